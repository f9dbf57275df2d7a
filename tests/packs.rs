//! The recordings in `tests/packs`: their incidents, the same in each replay, and correct by their ground truth.
//!
//! `cargo test -p railscope --test integration -- --ignored write_packs` rewrites the recordings from each `world.toml`,
//! `UPDATE_EXPECT=1 cargo test -p railscope --test integration packs` the verdicts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use expect_test::expect_file;
use railscope_collector::replay::pack::Pack;
use serde_json::Value;

use crate::support::{RAILSCOPE, root};
use crate::world::World;

const PACKS: [&str; 3] = ["fault-ends", "healthy", "lost-scrapes"];
/// All files of a pack together.
const MOST_BYTES: u64 = 400_000;
/// From the beginning of a fault to its incident: three scrapes of each node.
const OPENED_WITHIN_SECONDS: f64 = 30.0;
/// From the end of a fault to that of its incident.
const CLOSED_WITHIN_SECONDS: f64 = 120.0;

pub(crate) fn folder(name: &str) -> PathBuf {
    root().join("tests/packs").join(name)
}

pub(crate) fn replay(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(RAILSCOPE);
    let run = command.arg("replay").arg(folder).args(arguments).output();
    run.expect("railscope runs")
}

/// What `railscope replay PACK --json` prints.
fn verdicts(folder: &Path) -> String {
    let run = replay(folder, &["--json"]);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}: {errors}", folder.display());
    assert_eq!(errors, "", "{}", folder.display());
    String::from_utf8(run.stdout).expect("UTF-8")
}

/// By pack, those of a first replay.
pub(crate) static FIRST: LazyLock<BTreeMap<&str, String>> =
    LazyLock::new(|| PACKS.map(|name| (name, verdicts(&folder(name)))).into());

fn truth(name: &str) -> Value {
    let text = std::fs::read_to_string(folder(name).join("truth.json")).expect("a truth");
    serde_json::from_str(&text).expect("JSON")
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().expect(key)
}

#[test]
fn verdicts_are_those_of_the_golden_file() {
    for name in PACKS {
        let file = folder(name).join("verdicts.jsonl");
        assert!(file.exists(), "{}", file.display());
        expect_file![file].assert_eq(&FIRST[name]);
    }
}

#[test]
fn two_replays_of_a_pack_are_equal_byte_by_byte() {
    for name in PACKS {
        let (one, other) = (&FIRST[name], verdicts(&folder(name)));
        assert!(*one == other, "{name}:\n{one}\n{other}");
    }
}

/// Fails unless these are the changes of one incident about this fault, which is open as long as the fault is there.
fn check_incident(name: &str, fault: &Value, changes: &[&Value]) {
    let all = format!("{name}: {fault}\n{changes:#?}");
    for change in changes {
        let incident = &change["incident"];
        assert_eq!(incident["component"], fault["component"], "{all}");
        assert_eq!(incident["class"], fault["class"], "{all}");
        assert_eq!(incident["severity"], "critical", "{all}");
        assert_eq!(incident["suppressed"], false, "{all}");
    }
    let times = |event: &str| {
        let of_it = changes.iter().filter(|change| change["event"] == event);
        of_it.map(|change| number(change, "t")).collect::<Vec<_>>()
    };
    let within = |time: f64, from: f64, seconds: f64| (0.0..=seconds).contains(&(time - from));
    let opened = times("opened");
    let [opened] = &*opened else { panic!("{all}") };
    assert!(
        within(*opened, number(fault, "start"), OPENED_WITHIN_SECONDS),
        "{all}"
    );
    match (fault["end"].as_f64(), &*times("closed")) {
        (None, []) => {}
        (Some(end), [closed]) => assert!(within(*closed, end, CLOSED_WITHIN_SECONDS), "{all}"),
        _ => panic!("{all}"),
    }
}

#[test]
fn incidents_are_those_of_the_ground_truth_and_no_others() {
    for name in PACKS {
        let truth = truth(name);
        let faults = truth["faults"].as_array().expect("faults");
        let text = &FIRST[name];
        let changes = text.lines().map(serde_json::from_str);
        let changes: Vec<Value> = changes.collect::<Result<_, _>>().expect("JSON");
        let mut explained = 0;
        for fault in faults {
            let about = |change: &&Value| change["incident"]["component"] == fault["component"];
            let of_it: Vec<_> = changes.iter().filter(about).collect();
            check_incident(name, fault, &of_it);
            explained += of_it.len();
        }
        assert_eq!(explained, changes.len(), "{name}: {text}");
    }
}

/// Without this, an empty or cut recording would have the results of a healthy cluster.
#[test]
fn packs_hold_what_they_are_for() {
    for (name, faults, lost) in [
        ("fault-ends", 1, 0.0..0.001),
        ("healthy", 0, 0.001..0.02),
        ("lost-scrapes", 1, 0.03..0.1),
    ] {
        let truth = truth(name);
        let [start, end] = ["start", "end"].map(|key| number(&truth, key));
        let begins = truth["faults"].as_array().expect("faults").iter();
        let begins: Vec<_> = begins.map(|fault| number(fault, "start")).collect();
        assert_eq!(begins.len(), faults, "{name}");
        assert!(begins.iter().all(|begin| begin - start >= 180.0), "{name}");
        let pack = Pack::open(&folder(name)).expect("a pack");
        let scrapes = pack.scrapes().expect("scrapes");
        let scrapes: Result<Vec<_>, _> = scrapes.map(|one| one.map(|(_, line)| line)).collect();
        let scrapes = scrapes.expect("valid");
        let interval = number(&truth, "interval");
        let expected = number(&truth, "nodes") * (end - start) / interval;
        assert_eq!(scrapes.len(), expected as usize, "{name}");
        let failed = scrapes.iter().filter(|line| line.answer.is_err()).count();
        let share = failed as f64 / expected;
        assert!(
            lost.contains(&share),
            "{name}: {share} of the scrapes failed"
        );
        let last = scrapes.last().expect("scrapes").at.as_seconds();
        assert!(end - last <= interval, "{name}: {last}");
        let files = folder(name).read_dir().expect("a folder");
        let bytes = files.map(|file| file.expect("a file").metadata().expect("a file").len());
        let bytes: u64 = bytes.sum();
        assert!(bytes <= MOST_BYTES, "{name}: {bytes} bytes");
    }
}

/// Recorded on a real H200 (driver 580.159.04), while a training job and three jobs that crash by their own code ran one after the
/// other, then the exporter restarted. The serial number, the UUID and the kernel release were replaced.
#[test]
fn crashes_of_jobs_on_a_real_h200_accuse_nothing() {
    let folder = folder("h200-crashes");
    let pack = Pack::open(&folder).expect("a pack");
    let scrapes = pack.scrapes().expect("scrapes");
    let bodies = scrapes.map(|line| line.expect("valid").1.answer.expect("a body"));
    let bodies: Vec<_> = bodies.collect();
    assert_eq!(bodies.len(), 21);
    // An illegal address, a misaligned address (three lines of the kernel log for one event of NVML), and a trap.
    for (xid, lines) in [(31, 1), (13, 3), (43, 1)] {
        for (source, count) in [("kmsg", lines), ("nvml", 1)] {
            let series = format!(
                "railscope_gpu_xid_events_total{{gpu=\"0\",xid=\"{xid}\",source=\"{source}\"}} {count}\n"
            );
            let of_it = bodies.iter().any(|body| body.contains(&series));
            assert!(of_it, "{series}");
        }
    }
    assert_eq!(verdicts(&folder), "");
}

#[test]
fn a_pack_is_made_the_same_each_time() {
    let mut world = World::read(&folder("fault-ends"));
    world.seconds = 230;
    let written = [(), ()].map(|()| {
        let folder = tempfile::tempdir().expect("a folder");
        world.write(folder.path(), "short");
        let files = folder.path().read_dir().expect("a folder");
        let mut files: Vec<_> = files
            .map(|file| file.expect("a file"))
            .map(|file| {
                (
                    file.file_name(),
                    std::fs::read(file.path()).expect("a file"),
                )
            })
            .collect();
        files.sort();
        files
    });
    let [one, other] = &written;
    assert!(one.len() >= 5 && one == other);
}

#[test]
#[ignore = "writes tests/packs"]
fn write_packs() {
    for name in PACKS {
        World::read(&folder(name)).write(&folder(name), name);
    }
}
