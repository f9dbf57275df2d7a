//! The checked-in files are those that the source generates, and no other.

#![allow(clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "lint/rules.rs"]
mod lint;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use railscope_dashboards::{COMMAND, files};

/// Largest dashboard. `kubectl apply` keeps a copy in an annotation, at most 256 KiB.
const LARGEST: usize = 200 * 1024;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_checked_in_file_is_the_generated_one() {
    let mut differ = Vec::new();
    for (path, text) in files() {
        let found = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        if found != text {
            differ.push(path);
        }
    }
    assert!(
        differ.is_empty(),
        "{differ:?} differ from dashboards/src: run `{COMMAND}`, read the difference and check it in"
    );
}

#[test]
fn no_dashboard_is_left_that_nothing_generates() {
    let generated: BTreeSet<_> = files().into_iter().map(|(path, _)| path).collect();
    for entry in root().join("dashboards").read_dir().expect("dashboards") {
        let name = entry.expect("entry").file_name();
        let path = format!("dashboards/{}", name.to_string_lossy());
        let is_generated = generated.contains(&path);
        assert!(
            is_generated || !path.ends_with(".json"),
            "{path}: not generated, delete it"
        );
    }
}

#[test]
fn a_dashboard_fits_into_a_config_map() {
    for (path, text) in files() {
        assert!(text.len() <= LARGEST, "{path}: {} bytes", text.len());
    }
}
