//! Advice from a collector that fails: only an incident that the collector no longer has is resolved.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::detail;
use crate::advise::memory::{self, Memory};
use crate::advise::{AdviseArgs, Format, run};

/// Status and body by path; the second response of a path is for its second request and all later ones.
type Routes = BTreeMap<&'static str, [(u16, String); 2]>;

struct FakeCollector {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl FakeCollector {
    fn start(routes: Routes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            let mut requests = BTreeMap::new();
            for peer in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                serve(&peer.expect("a client"), &routes, &mut requests);
            }
        });
        Self { url, connections }
    }
}

/// Serves one client until it disconnects, or until a path without a route, which closes the connection.
fn serve(mut peer: &TcpStream, routes: &Routes, requests: &mut BTreeMap<String, usize>) {
    let mut lines = BufReader::new(peer).lines();
    while let Some(Ok(first)) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let Some(answers) = routes.get(&*path) else {
            return;
        };
        let number = requests.entry(path).or_default();
        let (status, body) = &answers[(*number).min(1)];
        *number += 1;
        let length = body.len();
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        peer.write_all(answer.as_bytes()).ok();
    }
}

fn incidents(ids: &[&str]) -> String {
    let ids: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
    json!({ "cluster": "c1", "at": 1_700_000_900.0, "incidents": ids }).to_string()
}

/// A collector with two critical incidents, on n1 and on n2.
fn healthy() -> Routes {
    let fabric = json!({ "tick_age_seconds": 1.0, "targets": 8, "targets_up": 8 }).to_string();
    let one = |id, part| detail(id, part, "gpu-error", "critical").to_string();
    let routes = [
        ("/api/v1/fabric", fabric),
        ("/api/v1/incidents", incidents(&["1", "2"])),
        ("/api/v1/incidents/1", one("1", "gpu/n1:0")),
        ("/api/v1/incidents/2", one("2", "gpu/n2:0")),
    ];
    let twice = |(path, body): (_, String)| (path, [(200, body.clone()), (200, body)]);
    routes.map(twice).into()
}

fn advise(collector: &FakeCollector, state: PathBuf) -> anyhow::Result<()> {
    run(&AdviseArgs {
        format: Format::Slurm,
        collector: collector.url.clone(),
        node: None,
        state: Some(state),
        most: 10,
    })
}

fn drained(memory: &Memory) -> Vec<&str> {
    memory.nodes.keys().map(String::as_str).collect()
}

/// Advice of a healthy collector, then of one with other responses for the incident on n2.
fn then((status, body): (u16, &str), listed: [&[&str]; 2]) -> (anyhow::Result<()>, Vec<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state.json");
    advise(&FakeCollector::start(healthy()), state.clone()).expect("advice");
    let mut routes = healthy();
    let answer = (status, body.to_owned());
    routes.insert("/api/v1/incidents/2", [answer.clone(), answer]);
    let lists = listed.map(|ids| (200, incidents(ids)));
    routes.insert("/api/v1/incidents", lists);
    let result = advise(&FakeCollector::start(routes), state.clone());
    let after = memory::read(&state, "c1").expect("a state");
    let nodes = drained(&after).into_iter().map(str::to_owned).collect();
    (result, nodes)
}

const NOT_FOUND: &str =
    r#"{"error":"no open incident \"2\"","expected":"one that /api/v1/incidents lists"}"#;

#[test]
fn an_incident_that_the_collector_no_longer_has_is_resolved() {
    let (result, nodes) = then((404, NOT_FOUND), [&["1", "2"], &["1"]]);
    result.expect("advice");
    assert_eq!(nodes, ["n1"]);
}

#[test]
fn any_other_failure_is_an_error_and_leaves_the_state_alone() {
    let refused = r#"{"error":"no analysis yet","expected":"a later request"}"#;
    for (status, body, expected) in [
        (503, refused, "no analysis yet"),
        (500, "", "500"),
        (502, "<html>Bad Gateway</html>", "502"),
        (429, "", "429"),
        (200, "<html>Sign in</html>", "unexpected response"),
        (200, "{}", "unexpected response"),
        // A proxy without this path, in front of a collector that lists the incident.
        (404, "<html>Not Found</html>", "listed as open"),
        (404, NOT_FOUND, "listed as open"),
    ] {
        let (result, nodes) = then((status, body), [&["1", "2"], &["1", "2"]]);
        let error = format!("{:#}", result.expect_err(body));
        assert!(error.contains(expected), "{status} {body}: {error}");
        assert!(error.contains("incident") && error.contains('2'), "{error}");
        assert_eq!(nodes, ["n1", "n2"], "{status} {body}");
    }
}

#[test]
fn a_collector_that_goes_down_in_between_is_an_error_and_leaves_the_state_alone() {
    for missing in [
        "/api/v1/fabric",
        "/api/v1/incidents",
        "/api/v1/incidents/1",
        "/api/v1/incidents/2",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state.json");
        advise(&FakeCollector::start(healthy()), state.clone()).expect("advice");
        let before = std::fs::read(&state).expect("a state");
        let mut routes = healthy();
        routes.remove(missing);
        let result = advise(&FakeCollector::start(routes), state.clone());
        assert!(result.is_err(), "{missing}");
        assert_eq!(std::fs::read(&state).expect("a state"), before, "{missing}");
    }
}

#[test]
fn all_requests_share_one_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let collector = FakeCollector::start(healthy());
    advise(&collector, folder.path().join("state.json")).expect("advice");
    assert_eq!(collector.connections.load(Ordering::Relaxed), 1);
}
