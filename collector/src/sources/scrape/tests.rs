//! Scraping against a small server that misbehaves in various ways.

use super::*;

use axum::Router;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::get;
use railscope_model::exposition::gzip;

const PAGE: &str = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";

/// The address of a server with an exposition for each kind of trouble.
async fn server() -> String {
    let app = Router::new()
        .route("/good", get(|| async { PAGE }))
        .route(
            "/query",
            get(|RawQuery(query): RawQuery| async move { query.unwrap_or_default() }),
        )
        .route("/zipped", get(zipped))
        .route(
            "/bomb",
            get(|| async {
                let zeros = gzip(&vec![b'0'; 1 << 20]).expect("gzip");
                ([(header::CONTENT_ENCODING, "gzip")], zeros)
            }),
        )
        .route("/huge", get(|| async { "0".repeat(1 << 20) }))
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                PAGE
            }),
        )
        .route(
            "/not-gzip",
            get(|| async { ([(header::CONTENT_ENCODING, "gzip")], PAGE) }),
        )
        .route("/not-text", get(|| async { vec![0xff_u8, 0xfe] }))
        .route(
            "/moved",
            get(|| async { axum::response::Redirect::temporary("/good") }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("port");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

async fn zipped(headers: HeaderMap) -> axum::response::Response {
    let accepted = headers
        .get(header::ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    assert!(
        accepted.is_some_and(|accepted| accepted.contains("gzip")),
        "{headers:?}"
    );
    let page = gzip(PAGE.as_bytes()).expect("gzip");
    ([(header::CONTENT_ENCODING, "gzip")], page).into_response()
}

fn target(at: &str, path: &str) -> Target {
    let node = "n1".parse().expect("name");
    Target::of_node(node, format!("{at}/{path}"))
}

/// With time enough on a machine that has other work.
fn scraper(profile: ScrapeProfile) -> Scraper {
    scraper_within(Duration::from_secs(20), profile)
}

fn scraper_within(timeout: Duration, profile: ScrapeProfile) -> Scraper {
    let limits = Scrape {
        timeout,
        max_body_bytes: 64 << 10,
        profile,
        ..Scrape::default()
    };
    Scraper::new(limits).expect("client")
}

#[tokio::test]
async fn a_page_is_read_plain_or_compressed() {
    let at = server().await;
    let scraper = scraper(ScrapeProfile::Full);
    for path in ["good", "zipped"] {
        assert_eq!(
            scraper.scrape(&target(&at, path)).await.as_deref(),
            Ok(PAGE),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_full_profile_is_asked_for_beside_the_query_of_the_target() {
    let at = server().await;
    for (profile, path, query) in [
        (ScrapeProfile::Full, "query", "profile=full"),
        (ScrapeProfile::Full, "query?a=1", "a=1&profile=full"),
        (ScrapeProfile::Default, "query", ""),
    ] {
        let page = scraper(profile).scrape(&target(&at, path)).await;
        assert_eq!(page.as_deref(), Ok(query), "{path}");
    }
    let foreign = Target {
        kind: Some("node_exporter".into()),
        ..target(&at, "query")
    };
    let page = scraper(ScrapeProfile::Full).scrape(&foreign).await;
    assert_eq!(page.as_deref(), Ok(""), "others do not know the word");
}

#[tokio::test]
async fn every_trouble_has_its_result_and_says_what_happened() {
    let at = server().await;
    let hasty = scraper_within(Duration::from_millis(500), ScrapeProfile::Full);
    let error = hasty.scrape(&target(&at, "slow")).await.expect_err("slow");
    assert_eq!(error.result(), ScrapeResult::Timeout, "{error}");
    assert_eq!(error.to_string(), "scrape timed out after 500ms");
    let scraper = scraper(ScrapeProfile::Full);
    for (path, result, said) in [
        (
            "huge",
            ScrapeResult::TooLarge,
            "more than 65536 bytes (scrape.max_body_bytes)",
        ),
        ("bomb", ScrapeResult::TooLarge, "more than 65536 bytes"),
        ("not-gzip", ScrapeResult::Malformed, "not an exposition"),
        ("not-text", ScrapeResult::Malformed, "invalid utf-8"),
        ("moved", ScrapeResult::Malformed, "status 307"),
        ("nowhere", ScrapeResult::Malformed, "status 404"),
    ] {
        let error = scraper.scrape(&target(&at, path)).await.expect_err(path);
        assert_eq!(error.result(), result, "{path}: {error}");
        assert!(error.to_string().contains(said), "{path}: {error}");
    }
    let error = scraper
        .scrape(&target("http://127.0.0.1:9", "metrics"))
        .await
        .expect_err("nobody listens");
    assert_eq!(error.result(), ScrapeResult::Unreachable, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn nodes_that_hang_do_not_starve_the_others() {
    let at = server().await;
    let limits = Scrape {
        concurrency: 1,
        timeout: Duration::from_secs(5),
        ..Scrape::default()
    };
    let scraper = Arc::new(Scraper::new(limits).expect("client"));
    for _ in 0..8 {
        let (scraper, slow) = (Arc::clone(&scraper), target(&at, "slow"));
        tokio::spawn(async move { scraper.scrape(&slow).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let good = timeout(Duration::from_secs(2), scraper.scrape(&target(&at, "good"))).await;
    assert_eq!(good.expect("in time").as_deref(), Ok(PAGE));
}

#[tokio::test]
async fn time_in_the_collectors_queue_is_not_part_of_the_targets_timeout() {
    let at = server().await;
    let scraper = scraper_within(Duration::from_secs(2), ScrapeProfile::Full);
    let scraper = Arc::new(scraper);
    let mut held = Vec::new();
    while let Ok(page) = timeout(
        Duration::from_millis(50),
        scraper.budget.hold(Some(usize::MAX / 2)),
    )
    .await
    {
        held.push(page);
    }
    let waiting = {
        let (scraper, good) = (Arc::clone(&scraper), target(&at, "good"));
        tokio::spawn(async move { scraper.scrape(&good).await })
    };
    tokio::time::sleep(scraper.limits.timeout * 2).await;
    assert!(!waiting.is_finished(), "the budget is exhausted");
    held.clear();
    assert_eq!(waiting.await.expect("no panic").as_deref(), Ok(PAGE));
}
