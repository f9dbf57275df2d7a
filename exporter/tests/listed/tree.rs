//! A tree of files built from a recorded text, and the exposition of the machine that it represents.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use railscope_exporter::sampler::sample_once;

use crate::common::machine;

pub(super) fn write(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, bytes).expect("write");
}

pub(super) fn link(root: &Path, path: &str, target: &str) {
    let up = "../".repeat(path.matches('/').count());
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    symlink(format!("{up}{target}"), path).expect("link");
}

/// Samples as `name{labels}` without our prefix, and their values.
pub(super) fn page(root: &Path) -> BTreeMap<String, f64> {
    let reading = sample_once(&machine(root));
    let samples = reading.samples().iter();
    samples
        .map(|sample| {
            let name = sample.metric.name.trim_start_matches("railscope_");
            let labels: Vec<_> = sample.labels.values().collect();
            (
                format!("{name}{{{}}}", labels.join(",")),
                sample.value.as_f64(),
            )
        })
        .collect()
}
