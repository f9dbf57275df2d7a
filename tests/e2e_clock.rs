//! A wall clock that steps while the demo runs stops nothing: targets stay current, a fault is named, the step is reported.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::{Demo, Http, RAILSCOPE};

const FAULT: &str = "pcie-degraded";
const COMPONENT: &str = "pcie/gpu-node-04:0000:19:00.0";
/// README's time from a fault to its incident.
const NAMED_WITHIN: Duration = Duration::from_secs(30);
/// The demo scrapes every second.
const MOST_AGE_SECONDS: f64 = 8.0;
/// Longer than [`MOST_AGE_SECONDS`], so that a target that is no longer read shows.
const WATCHED: Duration = Duration::from_secs(10);
const HOUR: i64 = 3_600;

/// The library that moves a program's wall clock, of the Debian package `faketime`.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file())
}

/// Sets the wall clock of the running demo, in seconds from the machine's.
fn step(file: &Path, seconds: i64) {
    let next = file.with_extension("next");
    std::fs::write(&next, format!("{seconds:+}\n")).expect("a file");
    std::fs::rename(next, file).expect("a file in place of the former");
}

/// Steps that the collector counted in this direction.
fn steps(demo: &Demo, http: &Http, direction: &str) -> Option<f64> {
    let page = http.get(&format!("{}/metrics", demo.url)).ok()?;
    let name = format!("railscope_collector_clock_steps_total{{direction=\"{direction}\"}}");
    let line = page.lines().find_map(|line| line.strip_prefix(&name))?;
    line.trim().parse().ok()
}

/// All targets are current, and no component is accused, for [`WATCHED`].
fn all_targets_stay_current(demo: &Demo, http: &Http) {
    let begun = Instant::now();
    while begun.elapsed() < WATCHED {
        let nodes = http
            .json(&format!("{}/api/v1/nodes", demo.url))
            .expect("nodes");
        let items = nodes["items"].as_array().expect("a list");
        assert!(!items.is_empty());
        for node in items {
            // Of one that was never scraped, the age is that of the demo.
            let age = node["target"]["age_seconds"].as_f64();
            let age = age.unwrap_or_else(|| begun.elapsed().as_secs_f64());
            assert!((0.0..MOST_AGE_SECONDS).contains(&age), "{node}");
        }
        assert_eq!(demo.incidents(http), Ok(Vec::new()));
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_wall_clock_that_steps_by_an_hour_stops_nothing() {
    let Some(library) = library() else {
        support::skip!("needs the Debian package faketime");
    };
    let (http, folder) = (Http::new(), tempfile::tempdir().expect("a folder"));
    let clock = folder.path().join("clock");
    step(&clock, 0);
    let mut command = Command::new(RAILSCOPE);
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", &clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let mut demo = Demo::start_as(
        command,
        folder.path(),
        &["--fault", "none", "--nodes", "16"],
    );
    all_targets_stay_current(&demo, &http);
    for (direction, seconds) in [("backward", -HOUR), ("forward", 0)] {
        assert_eq!(steps(&demo, &http, direction), Some(0.0));
        step(&clock, seconds);
        all_targets_stay_current(&demo, &http);
        assert_eq!(steps(&demo, &http, direction), Some(1.0));
    }
    let address = demo.url.trim_start_matches("http://").to_owned();
    let mut inject = Command::new(RAILSCOPE);
    inject.args([
        "demo", "inject", FAULT, "--part", COMPONENT, "--demo", &address,
    ]);
    let (succeeded, output) = support::run(&mut inject, Duration::from_secs(60));
    assert!(succeeded, "{output}");
    step(&clock, -HOUR);
    demo.wait_until_only(&http, (COMPONENT, FAULT), NAMED_WITHIN);
    assert_eq!(steps(&demo, &http, "backward"), Some(2.0));
    demo.stop();
}
