//! `railscope replay` as a user runs it: damaged recordings, at a pace, and with the web page of the end.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use railscope_collector::replay::pack::Pack;
use serde_json::Value;

use crate::packs::{FIRST, folder, replay};
use crate::support::{Http, Process, RAILSCOPE};

/// A debug build replays a pack within a few seconds.
const REPLAYED_WITHIN: Duration = Duration::from_secs(60);

/// A zstd frame with a short text as it is.
fn frame(text: &str) -> Vec<u8> {
    let bytes = u8::try_from(text.len()).expect("a short text");
    let size = (u32::from(bytes) << 3) | 1;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, bytes];
    frame.extend(&size.to_le_bytes()[..3]);
    frame.extend(text.as_bytes());
    frame
}

/// A copy of a pack in a folder.
fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for file in folder(name).read_dir().expect("a pack") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), copy.path().join(file.file_name())).expect("copied");
    }
    copy
}

/// What the replay of a damaged pack prints before the error, which has these parts.
fn damaged(folder: &Path, expected: &[&str]) -> String {
    let run = replay(folder, &["--json"]);
    let error = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{error}");
    for part in expected {
        assert!(error.contains(part), "{part:?} is missing: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    String::from_utf8(run.stdout).expect("UTF-8")
}

#[test]
fn an_invalid_line_is_an_error_with_its_place_after_the_verdicts_before_it() {
    let golden = &FIRST["fault-ends"];
    let copy = copy("fault-ends");
    let file = copy.path().join("scrapes.jsonl.zst");
    let whole = std::fs::read(&file).expect("scrapes");
    let scrapes = Pack::open(copy.path()).expect("a pack").scrapes();
    let lines = scrapes.expect("scrapes").count();
    let place = format!("{}: line {}: ", file.display(), lines + 1);
    for (line, expected) in [
        ("{", "column 1: expected an object with t, job, instance"),
        (
            r#"{"t": 1764000000, "job": "railscope", "instance": "gpu-node-00:10660", "body": ""}"#,
            "t: 1764000000 after 1764000628: expected lines in order of time",
        ),
        (
            r#"{"t": 1764000629, "job": "railscope", "instance": "n9:1", "body": ""}"#,
            r#"job "railscope", instance "n9:1": expected a target of targets.json"#,
        ),
        (
            r#"{"t": 1764000629, "job": "railscope", "instance": "gpu-node-00:10660"}"#,
            "expected either body or error",
        ),
    ] {
        let bytes = [whole.clone(), frame(&format!("{line}\n"))].concat();
        std::fs::write(&file, bytes).expect("written");
        assert_eq!(damaged(copy.path(), &[&place, expected]), *golden);
    }
}

#[test]
fn a_truncated_file_is_an_error_with_its_place_after_the_verdicts_before_it() {
    let copy = copy("fault-ends");
    let file = copy.path().join("scrapes.jsonl.zst");
    let whole = std::fs::read(&file).expect("scrapes");
    // In the last frame: the fault ends with the one before.
    std::fs::write(&file, &whole[..whole.len() - 1_000]).expect("written");
    let place = format!("{}: line ", file.display());
    let expected = [&*place, "expected more of the zstd frame"];
    let verdicts = damaged(copy.path(), &expected);
    assert!(verdicts.lines().count() >= 1, "the frames before it");
    assert!(FIRST["fault-ends"].starts_with(&verdicts), "{verdicts}");
}

#[test]
fn a_missing_file_is_an_error_with_its_name() {
    for (name, file) in [
        ("fault-ends", "railscope.toml"),
        ("fault-ends", "targets.json"),
        ("fault-ends", "scrapes.jsonl.zst"),
        ("lost-scrapes", "plan.csv"),
    ] {
        let copy = copy(name);
        std::fs::remove_file(copy.path().join(file)).expect("removed");
        let path = copy.path().join(file).display().to_string();
        assert_eq!(damaged(copy.path(), &[&path, "No such file"]), "");
    }
    let none = tempfile::tempdir().expect("a folder");
    let error = ["none", "No such file"];
    assert_eq!(damaged(&none.path().join("none"), &error), "");
}

/// The expected incidents that are open at the end, by id.
fn open_incidents(verdicts: &str) -> BTreeMap<String, Value> {
    let mut open = BTreeMap::new();
    for line in verdicts.lines() {
        let change: Value = serde_json::from_str(line).expect("JSON");
        let incident = &change["incident"];
        let id = incident["id"].as_str().expect("an id").to_owned();
        match change["event"].as_str() {
            Some("closed") => open.remove(&id),
            _ => open.insert(id, incident.clone()),
        };
    }
    open
}

#[test]
fn the_web_page_and_the_api_have_the_incidents_of_the_end() {
    let http = Http::new();
    let scratch = tempfile::tempdir().expect("a folder");
    let opened = FIRST["fault-ends"].lines().next().expect("a verdict");
    for (name, to, verdicts, end) in [
        (
            "lost-scrapes",
            "1764000999",
            &*FIRST["lost-scrapes"],
            1_764_000_600.0,
        ),
        ("fault-ends", "1764000300", opened, 1_764_000_300.0),
        (
            "fault-ends",
            "1764000999",
            &FIRST["fault-ends"],
            1_764_000_630.0,
        ),
    ] {
        let mut command = Command::new(RAILSCOPE);
        command.arg("replay").arg(folder(name));
        command.args(["--json", "--to", to, "--serve", "127.0.0.1:0"]);
        let mut process = Process::start("replay", scratch.path(), &mut command);
        process.wait_for_output("until Ctrl-C", REPLAYED_WITHIN);
        let output = process.output();
        let (_, address) = output.split_once("http://").expect("an address");
        let (address, _) = address.split_once('/').expect("an address");
        let answer = http.json(&format!("http://{address}/api/v1/incidents"));
        let answer = answer.expect("incidents");
        assert!(
            (answer["at"].as_f64().expect("a time") - end).abs() <= 5.0,
            "{answer}"
        );
        let incidents = answer["incidents"].as_array().expect("incidents");
        let expected = open_incidents(verdicts);
        assert_eq!(incidents.len(), expected.len(), "{name}: {answer}");
        for incident in incidents {
            let one = &expected[incident["id"].as_str().expect("an id")];
            assert_eq!(incident["fault_domain"], one["component"]);
            for key in ["class", "severity", "since"] {
                assert_eq!(incident[key], one[key], "{name}: {key}");
            }
        }
        let page = http.get(&format!("http://{address}/")).expect("a page");
        assert!(!page.contains("The analysis last ran"), "{page}");
        let fabric = http.json(&format!("http://{address}/api/v1/fabric"));
        // Its clock is stopped at the end.
        assert_eq!(fabric.expect("a fabric")["tick_age_seconds"], 0.0);
        let ended = process.stop().expect("ends by itself");
        assert!(ended.success(), "{}", process.output());
    }
}

#[test]
fn an_address_for_more_than_one_recording_and_a_wrong_one_are_errors() {
    let run = |arguments: &[&str]| {
        let run = replay(&folder("healthy"), arguments);
        assert_eq!(run.status.code(), Some(1), "{arguments:?}");
        assert!(run.stdout.is_empty(), "{arguments:?}");
        String::from_utf8(run.stderr).expect("UTF-8")
    };
    let other = folder("fault-ends").display().to_string();
    let error = run(&[&other, "--serve", "127.0.0.1:0"]);
    assert!(
        error.contains("--serve: 2 recordings: expected one"),
        "{error}"
    );
    let error = run(&["--serve", "nowhere"]);
    assert!(error.contains("cannot listen on \"nowhere\""), "{error}");
    let error = run(&["--json", "--to", "1", "--serve", "127.0.0.1:0"]);
    assert!(error.contains("no scrape in this time"), "{error}");
}

#[test]
fn changes_are_printed_when_it_is_their_time() {
    // The change is at 1764000195: 15 seconds after the beginning, and 45 seconds before the end.
    let mut command = Command::new(RAILSCOPE);
    command.arg("replay").arg(folder("fault-ends"));
    command.args(["--json", "--from", "1764000180", "--to", "1764000240"]);
    let began = Instant::now();
    let child = command.args(["--speed", "20"]).stdout(Stdio::piped());
    let mut child = child.spawn().expect("railscope runs");
    let mut line = String::new();
    let out = BufReader::new(child.stdout.take().expect("its output"));
    out.take(10_000).read_line(&mut line).expect("a line");
    assert!(line.contains("opened"), "{line}");
    assert!(began.elapsed() >= Duration::from_millis(750));
    assert!(child.wait().expect("ends").success());
    // The last scrape is at most one interval before the end.
    assert!(began.elapsed() >= Duration::from_millis(2_500));
}
