//! Where ports hang, on a page of their own.

use super::{get_text, serve, small};

#[tokio::test]
async fn ports_are_a_page_of_their_own_where_somebody_wants_it() {
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
    let (status, said) = get_text(format!("{at}/metrics?ports=some")).await;
    assert_eq!(status, 400);
    assert!(said.contains("ports=only"), "{said}");
}
