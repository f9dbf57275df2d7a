//! A virtual machine with a real kernel that runs one scenario of `tests/qemu/guest`, and its report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use railscope_model::exposition::{Line, parse};

use crate::support::{RAILSCOPE, root, run};

/// Unpacking the kernel takes 10 s, and its download what the network takes: two tests one after the other, each twice
/// at most.
const BUILDING: Duration = Duration::from_secs(600);
/// A scenario takes a minute at most; on a busy host it may take some times as long. Seconds.
const RUNNING: u64 = 300;
/// How `tests/qemu/build` reports that this machine lacks something.
const LACKING: &str = "lacking: ";

/// Series as exported, with their values.
pub(crate) type Series = BTreeMap<String, f64>;

/// `name{label="value"}`.
pub(crate) fn series(name: &str, labels: &[(&str, &str)]) -> String {
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// Fails with what is only in one of them.
pub(crate) fn same<T: PartialEq + Copy + Debug>(
    what: &str,
    found: &BTreeMap<String, T>,
    expected: &BTreeMap<String, T>,
) {
    let only = |of: &BTreeMap<String, T>, not: &BTreeMap<String, T>| -> BTreeMap<String, T> {
        let differ = of
            .iter()
            .filter(|(key, value)| not.get(*key) != Some(value));
        differ.map(|(key, value)| (key.clone(), *value)).collect()
    };
    let (found, expected) = (only(found, expected), only(expected, found));
    assert!(
        found.is_empty() && expected.is_empty(),
        "{what}: found {found:#?}, expected {expected:#?}"
    );
}

/// Boots a machine with the program under test, lets it run the scenario and reads its report.
///
/// # Errors
/// Why this machine cannot do that.
pub(crate) fn run_in_guest(
    scenario: &str,
    devices: &str,
    programs: &[&Path],
) -> Result<Results, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = root().join("target/qemu");
    let initramfs = folder.path().join("initramfs");
    let mut build = Command::new(root().join("tests/qemu/build"));
    build.arg(&cache).arg(RAILSCOPE).arg(&initramfs);
    let (built, said) = run(build.args(programs), BUILDING);
    if let Some((_, why)) = said.split_once(LACKING).filter(|_| !built) {
        return Err(why.trim().to_owned());
    }
    assert!(built, "tests/qemu/build: {said}");
    let mut console = String::new();
    // Again if it never came up: that is the emulator's or the host's fault.
    for _ in 0..2 {
        boot(
            &cache.join("vmlinuz"),
            &initramfs,
            folder.path(),
            scenario,
            devices,
        );
        console = text(&folder.path().join("console"));
        if console.contains("@@ init") {
            break;
        }
    }
    let results = Results::read(&text(&folder.path().join("results")));
    let log = results
        .0
        .get("exporter.log")
        .map(String::as_str)
        .unwrap_or_default();
    assert!(
        console.contains(&format!("@@ {scenario} ended with 0")),
        "{console}\n{log}"
    );
    Ok(results)
}

/// Runs the machine to its end. Emulated: KVM is not to be had everywhere, and not everywhere fit for a stock kernel.
fn boot(kernel: &Path, initramfs: &Path, folder: &Path, scenario: &str, devices: &str) {
    let serial = |name: &str| format!("file:{}", folder.join(name).display());
    let mut qemu = Command::new("timeout");
    qemu.arg(RUNNING.to_string())
        .args([
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
        ])
        .args([
            "-smp",
            "2",
            "-m",
            "512M",
            "-nodefaults",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-serial", &serial("console"), "-serial", &serial("results")])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off scenario={scenario}"
        ))
        .args(devices.split_whitespace());
    let (ended, said) = run(&mut qemu, Duration::from_secs(RUNNING + 30));
    assert!(ended, "qemu: {said}\n{}", text(&folder.join("console")));
}

fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Texts by name.
pub(crate) struct Results(BTreeMap<String, String>);

impl Results {
    /// Reads `@@ name length` and as many bytes, repeatedly.
    fn read(mut text: &str) -> Self {
        let mut results = BTreeMap::new();
        while let Some((head, rest)) = text.split_once('\n') {
            let head = head
                .strip_prefix("@@ ")
                .and_then(|head| head.split_once(' '));
            let (name, length) = head.unwrap_or_else(|| panic!("not a result: {rest}"));
            let length: usize = length.parse().expect("a length");
            // The machine may have been stopped in the middle.
            let (result, rest) = rest.split_at_checked(length).unwrap_or((rest, ""));
            results.insert(name.to_owned(), result.to_owned());
            text = rest;
        }
        Self(results)
    }

    /// One of them.
    pub(crate) fn text(&self, name: &str) -> &str {
        let text = self.0.get(name);
        text.unwrap_or_else(|| panic!("no {name}: {:?}", self.0.keys()))
    }

    /// The kernel's values, and the exposition sampled from them.
    pub(crate) fn snapshot(&self, name: &str) -> Snapshot {
        let text = |part: &str| self.text(&format!("{name}/{part}"));
        let lines = |part: &str| {
            text(part)
                .lines()
                .map(|line| (line.to_owned(), ()))
                .collect()
        };
        same(name, &lines("before"), &lines("after"));
        Snapshot {
            raw: text("before").to_owned(),
            page: Page::read(text("page")),
        }
    }
}

/// One sample.
pub(crate) struct Snapshot {
    /// The kernel's values, by line.
    pub(crate) raw: String,
    /// The exporter's values.
    pub(crate) page: Page,
}

/// The exporter's exposition.
pub(crate) struct Page(Series);

impl Page {
    /// Parses an exposition.
    pub(crate) fn read(page: &str) -> Self {
        let lines = parse(page).map(|line| line.expect("a page of ours"));
        let series = lines.filter_map(|line| match line {
            Line::Series(series) => Some((
                format!("{}{{{}}}", series.name, series.raw_labels()),
                series.value,
            )),
            _ => None,
        });
        Self(series.collect())
    }

    /// Series with these names.
    pub(crate) fn only(&self, names: &[&str]) -> Series {
        let wanted = self.0.iter().filter(|(series, _)| {
            series
                .split('{')
                .next()
                .is_some_and(|name| names.contains(&name))
        });
        wanted
            .map(|(series, value)| (series.clone(), *value))
            .collect()
    }

    /// Values of all series with this name and these words in their labels, added up.
    pub(crate) fn sum(&self, name: &str, words: &[&str]) -> f64 {
        let named = |series: &str| series.split('{').next() == Some(name);
        let all = self.0.iter().filter(|(series, _)| named(series));
        let wanted = all.filter(|(series, _)| words.iter().all(|word| series.contains(word)));
        wanted.map(|(_, value)| value).sum()
    }

    /// Series about a device, by any label.
    pub(crate) fn about(&self, device: &str) -> Vec<&str> {
        let value = format!("\"{device}\"");
        let found = self.0.keys().filter(|series| series.contains(&value));
        found.map(String::as_str).collect()
    }

    /// What became of every source and device.
    pub(crate) fn statuses(&self) -> BTreeSet<String> {
        self.only(&["railscope_source_status"])
            .into_keys()
            .collect()
    }

    /// Statuses other than those of successful reads and of hardware that the machine does not have.
    pub(crate) fn failures(&self) -> BTreeSet<String> {
        let fine = |status: &String| {
            ["ok", "absent"]
                .iter()
                .any(|word| status.contains(&format!("status=\"{word}\"")))
        };
        self.statuses()
            .into_iter()
            .filter(|status| !fine(status))
            .collect()
    }
}
