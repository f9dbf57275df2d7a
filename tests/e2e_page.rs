//! The web page in a real browser: it names the fault of the demo, and a picture of it is kept for inspection.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use support::browser::{self, browser, pictures, take};
use support::{Demo, Http, run, skip};

const DETECTED_WITHIN: Duration = Duration::from_secs(60);
const DRAWN_WITHIN: Duration = Duration::from_secs(60);
const WINDOW: (u32, u32) = (1440, 1600);

#[test]
fn the_page_names_the_fault_of_the_demo() {
    let Some(program) = browser::program() else {
        skip!("not installed: chromium")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let http = Http::new();
    let arguments = [
        "--nodes",
        "8",
        "--fault",
        "pcie-degraded",
        "--fault-after",
        "3s",
    ];
    let mut demo = Demo::start(folder.path(), &arguments);
    let incident = demo.wait_for_incident(&http, DETECTED_WITHIN);
    let text = |key: &str| incident[key].as_str().unwrap_or_default().to_owned();
    let node = text("fault_domain")
        .trim_start_matches("pcie/")
        .split(':')
        .next()
        .expect("a node")
        .to_owned();
    assert!(node.starts_with("gpu-node-"), "{incident}");

    let more = "Break something".to_owned();
    let words = [node, text("title"), text("class"), more];
    let incident_page = format!("incidents/{}", text("id"));
    for (name, path, own) in [
        ("overview", "", "All evidence"),
        ("incident", &incident_page, "Deciding counter"),
    ] {
        let words = words.iter().cloned().chain([own.to_owned()]);
        shows(
            &program,
            &folder.path().join(name),
            name,
            &format!("{}/{path}", demo.url),
            &words.collect::<Vec<_>>(),
        );
    }
    // What was broken beside what was found, and a button for each fault.
    let words = [
        "pcie-degraded",
        "uplink-lossy",
        "Break",
        "Clear",
        &text("title"),
        &text("fault_domain"),
    ];
    let words = words.map(str::to_owned);
    let url = format!("{}/demo", demo.url);
    shows(&program, &folder.path().join("demo"), "demo", &url, &words);
    breaks_by_button_only_from_its_own_page(&demo, &http);
    demo.stop();
}

/// What the button does, as a browser sends it; from another origin's page it does nothing.
fn breaks_by_button_only_from_its_own_page(demo: &Demo, http: &Http) {
    let address = demo.url.trim_start_matches("http://");
    for (origin, status) in [("http://evil.example", "403"), (demo.url.as_str(), "303")] {
        let mut stream = TcpStream::connect(address).expect("connects");
        write!(
            stream,
            "POST /demo/inject?cause=gpu-thermal HTTP/1.1\r\nHost: {address}\r\nOrigin: {origin}\r\n\
             Accept: text/html,*/*\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{origin}: {answer}"
        );
    }
    let faults = http
        .json(&format!("{}/demo/faults", demo.url))
        .expect("an answer");
    assert_eq!(
        faults["injected"].as_array().map(Vec::len),
        Some(2),
        "{faults}"
    );
}

/// The page contains the text, needs no external resource, and can be drawn.
fn shows(program: &Path, profile: &Path, name: &str, url: &str, words: &[String]) {
    let mut chromium = browser(program, profile, WINDOW);
    let (well, dom) = run(chromium.arg("--dump-dom").arg(url), DRAWN_WITHIN);
    assert!(well && dom.contains("</html>"), "{url}: {dom}");
    for word in words {
        assert!(dom.contains(word), "{url} does not say {word:?}: {dom}");
    }
    // It must work where there is no internet.
    for attribute in ["src=\"http", "rel=\"stylesheet\" href=\"http", "@import"] {
        assert!(!dom.contains(attribute), "{url}: {attribute}");
    }
    let picture = pictures().join(format!("{name}.png"));
    take(browser(program, profile, WINDOW), url, &picture);
}
