//! The topology of ports in a separate scrape.

use super::{get_text, serve, small};

#[tokio::test]
async fn ports_can_be_scraped_separately() {
    let at = serve(small()).await;
    let page = |query: &'static str| {
        let url = format!("{at}/metrics{query}");
        async { get_text(url).await.1 }
    };
    let (all, only, none) = (page(""), page("?ports=only"), page("?ports=none"));
    let (all, only, none) = (all.await, only.await, none.await);
    let is_port = |line: &&str| line.contains("railscope_port_topology_info");
    let (ports, others): (Vec<_>, Vec<_>) = all.lines().partition(is_port);
    assert!(ports.len() > 2, "{all}");
    assert_eq!(only.lines().collect::<Vec<_>>(), ports);
    assert_eq!(none.lines().collect::<Vec<_>>(), others);
    let (status, text) = get_text(format!("{at}/metrics?ports=some")).await;
    assert_eq!(status, 400);
    assert!(text.contains("ports=only"), "{text}");
}
