//! Recordings that Railscope did not make, beside the checkout: all can be replayed, and the healthy ones do not page.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::Value;

use crate::packs::replay;
use crate::support::skip;

/// Recordings that a debug build replays within seconds.
const SMALL: [&str; 4] = [
    "S1hn_healthy_hash_nocc-own",
    "S2n_slownic50_nocc-cumulus",
    "S7_swstorm_leaf-gnmic",
    "stranger-ib",
];
/// Those without a fault.
const HEALTHY: [&str; 3] = ["S1hn_healthy_hash_nocc-own", "quiet-lean", "quiet-ugly"];

/// The folders of all recordings; none if there are none.
fn packs() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/worlds/packs");
    let packs = folder.read_dir().ok()?;
    let mut packs: Vec<_> = packs.map(|entry| entry.expect("an entry").path()).collect();
    packs.sort();
    (!packs.is_empty()).then_some(packs)
}

fn name(pack: &Path) -> String {
    pack.file_name().expect("a name").to_string_lossy().into()
}

/// Replays a pack to its end, or to so many seconds after its start.
fn check(pack: &Path, seconds: Option<f64>) {
    let name = name(pack);
    let began = Instant::now();
    let truth = std::fs::read_to_string(pack.join("truth.json")).expect("a truth");
    let truth: Value = serde_json::from_str(&truth).expect("JSON");
    let start = truth["start"].as_f64().expect("a start");
    let until = seconds.map(|seconds| (start + seconds).to_string());
    let mut arguments = vec!["--json"];
    if let Some(until) = &until {
        arguments.extend(["--to", until]);
    }
    let run = replay(pack, &arguments);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {errors}");
    let text = String::from_utf8(run.stdout).expect("UTF-8");
    let is_healthy = truth["faults"].as_array().is_some_and(Vec::is_empty);
    assert_eq!(is_healthy, HEALTHY.contains(&&*name), "{name}");
    for line in text.lines() {
        let change: Value = serde_json::from_str(line).expect(line);
        let is_critical = change["incident"]["severity"] == "critical";
        assert!(!(is_healthy && is_critical), "{name}: {line}");
    }
    println!(
        "{name}: {} changes of incidents in {:.1} s",
        text.lines().count(),
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn small_recordings_of_others_are_replayed() {
    let Some(packs) = packs() else {
        skip!("no recordings beside the checkout: 0 of {}", SMALL.len());
    };
    let small = |pack: &&PathBuf| SMALL.contains(&&*name(pack));
    let small: Vec<_> = packs.iter().filter(small).collect();
    assert_eq!(small.len(), SMALL.len(), "{packs:?}");
    for pack in small {
        check(pack, None);
    }
}

#[test]
fn a_healthy_recording_of_others_pages_nobody_while_it_writes_a_checkpoint() {
    let Some(packs) = packs() else {
        skip!("no recordings beside the checkout: 0 of 1");
    };
    let pack = packs.iter().find(|pack| name(pack) == "quiet-lean");
    check(pack.expect("quiet-lean"), Some(330.0));
}

#[test]
#[ignore = "slow: minutes, in a debug build"]
fn slow_all_recordings_of_others_are_replayed_and_the_healthy_page_nobody() {
    let Some(packs) = packs() else {
        skip!("no recordings beside the checkout: none replayed");
    };
    let healthy = packs.iter().filter(|pack| HEALTHY.contains(&&*name(pack)));
    assert_eq!(healthy.count(), HEALTHY.len());
    for pack in &packs {
        check(pack, None);
    }
    println!("{} recordings replayed", packs.len());
}
