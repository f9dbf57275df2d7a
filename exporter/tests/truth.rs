//! Every number in an exposition is the number of one file: read here a second time, by other code.
mod labels;
mod left_out;
mod origin;
mod walk;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{captures, copy, machine, our_root};
use left_out::LEFT_OUT;
use origin::origin;
use railscope_exporter::sampler::sample_once;
use railscope_model::metric::Kind;
use railscope_model::reading::NodeReading;

/// Every counter file that holds a number, below `sys`.
fn counter_files(sys: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let names = |path: &str| {
        let entries = fs::read_dir(sys.join(path)).into_iter().flatten();
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.into_string().expect("a name"))
            .collect::<Vec<_>>()
    };
    for device in names("class/infiniband") {
        // A function that represents NVSwitches, by its vital product data, must not be read.
        if sys
            .join(format!("class/infiniband/{device}/device/vpd"))
            .exists()
        {
            continue;
        }
        for port in names(&format!("class/infiniband/{device}/ports")) {
            for kind in ["counters", "hw_counters"] {
                let dir = format!("class/infiniband/{device}/ports/{port}/{kind}");
                for file in names(&dir) {
                    let path = format!("{dir}/{file}");
                    let text = fs::read_to_string(sys.join(&path)).expect("a counter");
                    if file != "vendor_private" && text.trim().parse::<u64>().is_ok() {
                        files.insert(path);
                    }
                }
            }
        }
    }
    files
}

/// Compares every sample with its file, and returns the files, below `sys`, that the exposition is from.
fn compare(root: &Path, reading: &NodeReading) -> (BTreeSet<String>, usize) {
    let sys = root.join("sys");
    let mut files = BTreeSet::new();
    let mut compared = 0;
    for sample in reading.samples() {
        if sample.metric.kind == Kind::Info {
            for said in labels::said(sample, &sys) {
                let name = sample.metric.name;
                assert_eq!(said.label, said.expected, "{name}: {}", said.file);
                files.insert(said.file);
                compared += 1;
            }
            continue;
        }
        let Some((file, value)) = origin(sample, &sys) else {
            continue;
        };
        let text = fs::read_to_string(sys.join(&file)).expect(&file);
        let expected = value(&text);
        let found = sample.value.as_f64();
        assert!(
            (found - expected).abs() <= expected.abs() * 1e-12,
            "{} {:?}: {found}, but {file} says {expected}",
            sample.metric.name,
            sample.labels
        );
        files.insert(file);
        compared += 1;
    }
    (files, compared)
}

fn check(root: &Path) {
    let reading = sample_once(&machine(root));
    let (files, compared) = compare(root, &reading);
    let mut unread = counter_files(&root.join("sys"));
    unread.retain(|file| !files.contains(file));
    assert!(unread.is_empty(), "left out: {unread:?}");
    assert!(compared > 20, "{compared} values compared");
}

/// A recording as it was: every value of every file is exported or has a reason to be omitted, and every
/// exported number is one of the recording.
fn check_recording(name: &str, root: &Path, used: &mut BTreeSet<&'static str>) {
    let reading = sample_once(&machine(root));
    let (files, compared) = compare(root, &reading);
    let whole = root.canonicalize().expect("a root");
    let shown: BTreeSet<String> = files
        .iter()
        .filter_map(|file| root.join("sys").join(file).canonicalize().ok())
        .map(|path| {
            let below = path.strip_prefix(&whole).expect("within the recording");
            below.to_string_lossy().into_owned()
        })
        .collect();
    let path = walk::paths_of_devices(&whole);
    let (mut on_page, mut left, mut lost) = (0, 0, Vec::new());
    for (file, values) in walk::values(&whole) {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let reason = LEFT_OUT.iter().find(|row| {
            walk::stands_for(row.files, &file) && !(row.off_the_path && path.contains(folder))
        });
        match (shown.contains(whole_file(&file)), reason) {
            (true, _) => on_page += values,
            (false, Some(row)) => {
                left += values;
                used.insert(row.files);
            }
            (false, None) => lost.push(file),
        }
    }
    println!(
        "{name}: {on_page} values on the page, {left} left out with a reason, {compared} samples and labels compared"
    );
    assert!(lost.is_empty(), "{name}: {} lost: {lost:#?}", lost.len());
}

#[test]
fn our_values_are_those_of_their_files() {
    check(&our_root("hgx-h100-ib"));
    check(&our_root("hgx-h200-roce"));
    check(&our_root("efa-p5"));
    check(&our_root("gb200-nvl72-tray"));
    check(&our_root("dgx-a100-mig"));
    check(&our_root("vm-vf-passthrough"));
}

/// The file that a row of a table is from, if it is from such rows: of `/proc/stat`, CPUs and boot time.
fn whole_file(file: &str) -> &str {
    match file.split_once(':') {
        Some((table @ "proc/stat", row)) => {
            let cpu = row
                .strip_prefix("cpu")
                .is_some_and(|number| !number.is_empty());
            if cpu || row == "btime" { table } else { file }
        }
        _ => file,
    }
}

/// A tree that was copied without links has files in their places that hold where they led.
fn restore_links(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a directory") {
        let entry = entry.expect("an entry");
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        if kind.is_dir() {
            restore_links(&path);
        // The directory may list a link that was just restored: it is followed no further.
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
            && text.starts_with("../")
            && !text.contains('\n')
        {
            fs::remove_file(&path).expect("remove");
            std::os::unix::fs::symlink(text, &path).expect("link");
        }
    }
}

/// Interfaces that a recording has, but not their entries in the list of all: adds one for each.
fn list_interfaces(sys: &Path, below: &Path) {
    for entry in fs::read_dir(sys.join(below)).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        let listed = sys.join("class/net").join(entry.file_name());
        if !entry.file_type().expect("a type").is_dir() {
            continue;
        }
        if below.ends_with("net") && fs::symlink_metadata(&listed).is_err() {
            std::os::unix::fs::symlink(Path::new("../..").join(&path), listed).expect("link");
        }
        list_interfaces(sys, &path);
    }
}

/// Unpacks an archive of hwloc's; none where there is no `tar` with bzip2.
fn unpack(archive: &Path, into: &Path) -> Option<PathBuf> {
    let status = Command::new("tar")
        .arg("xjf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return None;
    }
    let entry = fs::read_dir(into).ok()?.next()?;
    Some(entry.ok()?.path())
}

#[test]
fn recordings_are_on_their_pages_without_a_lost_or_an_invented_value() {
    let test = "recordings_are_on_their_pages_without_a_lost_or_an_invented_value";
    let Some(captured) = captures(test, "sysfs") else {
        return;
    };
    let mut used = BTreeSet::new();
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(
        &captured.join("gpud-h100-class-infiniband"),
        &temp.path().join("sys/class/infiniband"),
    );
    check_recording("gpud-h100-class-infiniband", temp.path(), &mut used);
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&captured.join("procfs-fixtures"), temp.path());
    restore_links(temp.path());
    list_interfaces(&temp.path().join("sys"), Path::new("devices"));
    check_recording("procfs-fixtures", temp.path(), &mut used);
    for archive in fs::read_dir(captured.join("hwloc")).expect("archives") {
        let archive = archive.expect("an archive").path();
        let temp = tempfile::tempdir().expect("a temporary directory");
        let Some(root) = unpack(&archive, temp.path()) else {
            eprintln!("SKIPPED: {test}: {} cannot be unpacked", archive.display());
            return;
        };
        let name = root
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        check_recording(&name, &root, &mut used);
    }
    let idle = LEFT_OUT.iter().map(|row| row.files);
    let idle: Vec<_> = idle.filter(|files| !used.contains(files)).collect();
    assert!(
        idle.is_empty(),
        "no recording has what these leave out: {idle:#?}"
    );
}
