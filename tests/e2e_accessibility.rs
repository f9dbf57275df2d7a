//! Every page of every scene of the demo in Chromium under axe-core, the checker of the WCAG rules, wide and narrow, light
//! and dark; and no page says anything on the console, which is where a request that its security policy forbids shows.
//!
//! Ignored, as it takes half an hour: `RAILSCOPE_AXE=axe.min.js cargo test -p railscope --test e2e_accessibility --
//! --ignored --nocapture`. `tests/run --slow` fetches that file; `RAILSCOPE_SCENES=slow-pcie,pfc-storm` chooses scenes.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse as _};
use axum::routing::{get, post};
use serde_json::{Value, json};
use support::browser::{self, browser};
use support::{Demo, Http, encoded, root, run, skip, wait_for};

const DETECTED_WITHIN: Duration = Duration::from_secs(180);
/// What is never named is not named this long after it has begun.
const SILENT_FOR: Duration = Duration::from_secs(60);
const DRAWN_WITHIN: Duration = Duration::from_secs(60);
const WIDTHS: [u32; 2] = [1440, 390];
const HEIGHT: u32 = 900;
/// The largest page of 256 GPUs.
const LARGEST: usize = 60_000;
/// It breaks the rules of images without text and of pages without title and language, and fails on the console.
const BROKEN: &str = "<!DOCTYPE html><img src='data:,'><script>console.error('broken')</script>";

#[test]
#[ignore = "half an hour, and needs axe-core"]
fn slow_every_page_of_each_scene_passes_axe() {
    let Some(program) = browser::program() else {
        skip!("not installed: chromium")
    };
    let Ok(axe) = std::env::var("RAILSCOPE_AXE") else {
        skip!("RAILSCOPE_AXE names no file of axe-core")
    };
    let axe = std::fs::read_to_string(axe).expect("axe-core");
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("profile");
    let http = Http::new();
    let broken = Checker::start(&http, &axe, None);
    let found = faults(&broken, &program, &profile, "broken");
    for rule in ["image-alt", "document-title", "html-has-lang", "console"] {
        assert!(found.contains(rule), "not found: {rule}: {found}");
    }
    let mut all = Vec::new();
    for scene in scenes() {
        let scene_folder = folder.path().join(&scene.name);
        std::fs::create_dir(&scene_folder).expect("a folder");
        let arguments = ["--scene", &scene.name, "--nodes", "32"];
        let mut demo = Demo::start(
            &scene_folder,
            &[&arguments[..], &["--fault-after", "20s"]].concat(),
        );
        let checker = Checker::start(&http, &axe, Some(&demo.url));
        for page in pages(&demo, &http, scene.names) {
            let size = http
                .get(&format!("{}/{page}", demo.url))
                .expect("a page")
                .len();
            let mut found = faults(&checker, &program, &profile, &page);
            if size > LARGEST {
                found += &format!("{size} bytes, more than {LARGEST}\n");
            }
            println!("{} /{page}: {size} bytes {found}", scene.name);
            if !found.is_empty() {
                all.push(format!("{} /{page}: {found}", scene.name));
            }
        }
        demo.stop();
    }
    assert!(all.is_empty(), "{}", all.concat());
}

/// A scene, and whether it ends in an incident.
struct Scene {
    name: String,
    names: bool,
}

fn scenes() -> Vec<Scene> {
    let chosen = std::env::var("RAILSCOPE_SCENES").ok();
    let files = std::fs::read_dir(root().join("cli/src/demo/scenes")).expect("scenes");
    let paths = files.map(|file| file.expect("a file").path());
    let mut scenes: Vec<_> = paths.map(|path| scene(&path)).collect();
    scenes.retain(|scene| {
        let chosen = chosen
            .as_ref()
            .map(|names| names.split(',').any(|name| name == scene.name));
        chosen.unwrap_or(true)
    });
    scenes.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!scenes.is_empty(), "no such scene: {chosen:?}");
    scenes
}

fn scene(path: &Path) -> Scene {
    let text = std::fs::read_to_string(path).expect("a scene");
    let table: toml::Table = text.parse().expect("TOML");
    Scene {
        name: path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned(),
        names: table["expect"].get("named").is_some(),
    }
}

/// Paths of the pages, once the scene has its incident.
fn pages(demo: &Demo, http: &Http, names: bool) -> Vec<String> {
    let mut pages = ["", "tail", "demo"].map(String::from).to_vec();
    if names {
        let incidents = wait_for("an incident", DETECTED_WITHIN, || {
            let incidents = demo.incidents(http)?;
            (!incidents.is_empty())
                .then_some(incidents)
                .ok_or_else(|| demo.process.tail())
        });
        let ids = incidents
            .iter()
            .filter_map(|incident| incident["id"].as_str());
        pages.extend(ids.take(2).map(|id| format!("incidents/{id}")));
    } else {
        std::thread::sleep(SILENT_FOR);
    }
    pages
}

/// What is wrong with a page, a line each.
fn faults(checker: &Checker, program: &Path, profile: &Path, page: &str) -> String {
    let mut faults = String::new();
    for (scheme, setting) in [("dark", 0), ("light", 1)] {
        let scheme_of_browser = format!("--blink-settings=preferredColorScheme={setting}");
        for width in WIDTHS {
            let view = format!("{}/axe/view?{}#{width}", checker.url, encoded(page));
            let mut chromium = browser(program, profile, (WIDTHS[0] + 100, HEIGHT + 100));
            chromium.args([&scheme_of_browser, "--dump-dom", &view]);
            let (well, said) = run(&mut chromium, DRAWN_WITHIN);
            assert!(well, "{view}: {said}");
            let report = checker.reports.recv_timeout(DRAWN_WITHIN);
            let report = report.unwrap_or_else(|_| panic!("no report of {view}: {said}"));
            let expected = json!([format!("/{page}"), width, scheme == "dark"]);
            let of_view = json!([report["page"], report["width"], report["dark"]]);
            assert_eq!(of_view, expected, "{view}: {report}");
            if report["wide"] == true {
                faults += &format!("{scheme} {width}: wider than the window\n");
            }
            for violation in report["violations"].as_array().expect("a list") {
                faults += &format!("{scheme} {width}: {violation}\n");
            }
        }
    }
    let mut chromium = browser(program, profile, (WIDTHS[0], HEIGHT));
    chromium.args(["--enable-logging=stderr", "--dump-dom"]);
    let (_, said) = run(
        chromium.arg(format!("{}/{page}", checker.site)),
        DRAWN_WITHIN,
    );
    for line in said.lines().filter(|line| line.contains(":CONSOLE")) {
        faults += &format!("console: {line}\n");
    }
    faults
}

/// A server of the pages of another without their security policy, so that axe-core can be run in them.
struct Checker {
    url: String,
    /// Where the pages are as they are served to people.
    site: String,
    /// What axe-core found in a view.
    reports: Receiver<Value>,
    _runtime: tokio::runtime::Runtime,
}

impl Checker {
    /// One of the pages of this site, or of [`BROKEN`] alone.
    fn start(http: &Http, axe: &str, site: Option<&str>) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let listener = http_listener(&runtime);
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (sender, reports) = channel();
        let router = router(axe.to_owned(), sender, site.map(str::to_owned));
        runtime.spawn(async move { axum::serve(listener, router).await });
        http.get(&format!("{url}/axe/view")).expect("it serves");
        let site = site.map_or_else(|| url.clone(), str::to_owned);
        Self {
            url,
            site,
            reports,
            _runtime: runtime,
        }
    }
}

fn http_listener(runtime: &tokio::runtime::Runtime) -> tokio::net::TcpListener {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    runtime.block_on(listener).expect("a loopback port")
}

fn router(axe: String, reports: Sender<Value>, site: Option<String>) -> Router {
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let page = async move |request: Request| {
        let Some(site) = site else {
            return Html(BROKEN.to_owned()).into_response();
        };
        let answer = client
            .get(format!("{site}{}", request.uri()))
            .send()
            .await
            .expect("an answer");
        if !answer.status().is_success() {
            return StatusCode::BAD_GATEWAY.into_response();
        }
        let kind = answer.headers()[CONTENT_TYPE].clone();
        (
            [(CONTENT_TYPE, kind)],
            answer.bytes().await.expect("a body"),
        )
            .into_response()
    };
    let report = async move |body: String| {
        reports
            .send(serde_json::from_str(&body).expect("JSON"))
            .ok();
    };
    Router::new()
        .route(
            "/axe/view",
            get(Html(include_str!("support/axe_view.html"))),
        )
        .route(
            "/axe/axe.js",
            get(([(CONTENT_TYPE, "text/javascript")], axe)),
        )
        .route("/axe/report", post(report))
        .fallback(page)
}
