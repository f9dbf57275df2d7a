//! A picture of each dashboard over the demo, for inspection: there is no Grafana here.
//!
//! Ignored, as it takes ten minutes: `cargo test -p railscope --test e2e_pictures -- --ignored --nocapture`. With
//! `RAILSCOPE_PROMETHEUS=http://127.0.0.1:9090` it draws the last `RAILSCOPE_MINUTES` (15) of that server in place of demos.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves
#![allow(clippy::disallowed_methods)] // the clock of a real Prometheus

mod pictures;
mod support;

use std::time::{Duration, SystemTime};

use pictures::{Prometheus, draw};
use serde_json::Value;
use support::site::Site;
use support::{Http, Sink, browser, need, root, say_skipped};

/// A demo, and the dashboards that it fills.
struct Scene {
    demo: &'static [&'static str],
    /// The job's usual throughput takes five minutes.
    runs_for: Duration,
    dashboards: &'static [&'static str],
}

const SCENES: &[Scene] = &[
    Scene {
        demo: &[
            "--scene",
            "slow-pcie",
            "--nodes",
            "16",
            "--fault-after",
            "150s",
        ],
        runs_for: Duration::from_secs(480),
        dashboards: &[
            "fleet",
            "incident",
            "fabric",
            "node",
            "jobs",
            "capacity-cost",
            "health",
        ],
    },
    Scene {
        demo: &["--scene", "jittery-uplink", "--nodes", "16"],
        runs_for: Duration::from_secs(120),
        dashboards: &["tail-latency"],
    },
    Scene {
        demo: &["--scene", "pfc-storm", "--nodes", "16"],
        runs_for: Duration::from_secs(120),
        dashboards: &["roce-nvlink"],
    },
];
const LATELY: Duration = Duration::from_secs(15 * 60);
/// Settings of Grafana's data source.
const SCRAPE_SECONDS: f64 = 5.0;

#[test]
#[ignore = "ten minutes, for pictures that people look at"]
fn a_picture_of_each_dashboard_is_drawn() {
    if let Ok(url) = std::env::var("RAILSCOPE_PROMETHEUS") {
        let minutes = std::env::var("RAILSCOPE_MINUTES").map(|text| text.parse().expect("minutes"));
        let range = minutes.map_or(LATELY, |minutes: u64| Duration::from_secs(60 * minutes));
        let all: Vec<_> = SCENES.iter().flat_map(|scene| scene.dashboards).collect();
        take(&Http::new(), url.trim_end_matches('/'), range, all);
        return;
    }
    need!("prometheus", "prometheus-alertmanager");
    let sink = Sink::start();
    for scene in SCENES {
        let mut site = Site::start(&sink, scene.demo);
        std::thread::sleep(scene.runs_for);
        let (http, url) = (&site.http, &site.prometheus_url);
        for (name, filled) in take(http, url, scene.runs_for, scene.dashboards) {
            assert!(
                filled >= documented(&name),
                "{name}: {filled} panels with data, fewer than docs/dashboards.md has"
            );
        }
        site.demo.stop();
    }
}

/// Draws these dashboards and lets Chromium take their pictures; how many panels of each have data.
fn take<'a>(
    http: &Http,
    url: &str,
    range: Duration,
    dashboards: impl IntoIterator<Item = &'a &'a str>,
) -> Vec<(String, usize)> {
    let Some(program) = browser::program() else {
        say_skipped("not installed: chromium");
        return Vec::new();
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let to = now.expect("after 1970").as_secs_f64();
    let prometheus = Prometheus {
        ask: &|path| http.json(&format!("{url}{path}")),
        from: to - range.as_secs_f64(),
        to,
        interval: SCRAPE_SECONDS,
    };
    let node = culprit(http, url);
    let set: Vec<_> = node.iter().map(|node| ("node", node.as_str())).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let mut counts = Vec::new();
    for name in dashboards {
        let text = std::fs::read_to_string(root().join(format!("dashboards/{name}.json")));
        let dashboard: Value = serde_json::from_str(&text.expect("a dashboard")).expect("JSON");
        let picture = draw(&dashboard, &prometheus, &set);
        println!(
            "{name}: {} with data; empty: {:?}",
            picture.filled, picture.empty
        );
        assert!(picture.errors.is_empty(), "{name}: {:#?}", picture.errors);
        let page = browser::pictures().join(format!("dashboard-{name}.html"));
        std::fs::write(&page, &picture.html).expect("a page");
        let size = (pictures::WIDTH as u32, picture.height as u32);
        let chromium = browser::browser(&program, &folder.path().join("profile"), size);
        let url = format!("file://{}", page.display());
        browser::take(chromium, &url, &page.with_extension("png"));
        counts.push((String::from(*name), picture.filled));
    }
    counts
}

/// How many panels of a dashboard have data, according to its documentation.
fn documented(name: &str) -> usize {
    let text = std::fs::read_to_string(root().join("docs/dashboards.md")).expect("a document");
    let file = format!("| `{name}.json` |");
    let row = text
        .lines()
        .find(|line| line.ends_with(&file))
        .expect("a row");
    let cell = row.split(" | ").nth(4).unwrap_or_default();
    let (count, _) = cell.split_once(" on ").expect("a count and a scenario");
    count.parse().expect("a number")
}

/// The node of an open incident.
fn culprit(http: &Http, url: &str) -> Option<String> {
    let query = support::encoded(r#"railscope_incident_active{node!=""}"#);
    let answer = http
        .json(&format!("{url}/api/v1/query?query={query}"))
        .ok()?;
    let node = answer.pointer("/data/result/0/metric/node")?;
    node.as_str().map(str::to_owned)
}
