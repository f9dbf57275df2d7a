//! Replays of small packs, also damaged ones.

use std::fmt::Write as _;
use std::fs;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use tempfile::TempDir;

use super::*;

const START: u64 = 1_764_000_000;
const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Ports of a node; the second of `n2` is down from the 60th to the 119th second.
pub(crate) fn exposition(node: &str, second: u64) -> String {
    let is_down = node == "n2" && (60..120).contains(&second);
    let port = |device: &str, up: u64| {
        format!(
            "railscope_rdma_port_up{{device=\"{device}\",port=\"1\"}} {up}\n\
             railscope_rdma_port_state{{device=\"{device}\",port=\"1\"}} {}\n\
             railscope_rdma_port_transmit_bytes_total{{device=\"{device}\",port=\"1\"}} {}\n",
            1 + 3 * up,
            second * 1_000_000
        )
    };
    port("mlx5_0", 1) + &port("mlx5_1", u64::from(!is_down))
}

fn line(t: u64, instance: &str, answer: &str, text: &str) -> String {
    serde_json::json!({"t": t, "job": "railscope", "instance": instance, answer: text}).to_string()
}

/// Four minutes of three nodes.
fn lines() -> Vec<String> {
    let times = (0..240).step_by(5);
    let all = times.flat_map(|second| {
        NODES.map(|node| {
            let instance = format!("{node}:10660");
            match (node, second) {
                ("n3", 30) => line(START + second, &instance, "error", "timeout"),
                _ => line(START + second, &instance, "body", &exposition(node, second)),
            }
        })
    });
    all.collect()
}

fn pack(lines: &[String]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("written");
    };
    write(
        "railscope.toml",
        b"file_sd = [\"targets.json\"]\n[cluster]\nname = \"c\"\n",
    );
    let mut targets = String::new();
    for node in NODES {
        let comma = if targets.is_empty() { "" } else { "," };
        write!(targets, "{comma}{{\"targets\":[\"{node}:10660\"],\"labels\":{{\"job\":\"railscope\",\"node\":\"{node}\"}}}}").expect("text");
    }
    write("targets.json", format!("[{targets}]").as_bytes());
    let text = lines.join("\n") + "\n";
    write(
        "scrapes.jsonl.zst",
        &compress_to_vec(text.as_bytes(), CompressionLevel::Fastest),
    );
    folder
}

fn replay(folder: &TempDir, window: Window) -> (Vec<String>, Result<Replayed, PackError>) {
    let mut pack = Pack::open(folder.path()).expect("a pack");
    let mut replay = Replay::open(&mut pack).expect("a pack");
    let mut seen = Vec::new();
    let replayed = replay.run(&pack, window, |event| {
        let at = event
            .at
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970");
        let second = at.as_secs() - START;
        let (kind, incident) = (event.kind, &event.incident);
        seen.push(format!(
            "{second} {kind:?} {} {}",
            incident.class, incident.component
        ));
    });
    (seen, replayed)
}

#[test]
fn a_fault_is_found_at_the_times_of_the_recording_and_ends_with_it() {
    let folder = pack(&lines());
    let (seen, replayed) = replay(&folder, Window::default());
    let replayed = replayed.expect("a pack");
    assert_eq!((replayed.scrapes, replayed.failures), (143, 1));
    let span = replayed.span.expect("scrapes");
    assert_eq!(
        span,
        (Timestamp(START * 1000), Timestamp((START + 235) * 1000))
    );
    let ends = |at: usize| {
        seen.get(at)
            .map(|line| line.split_once(' ').expect("a time"))
    };
    let (opened, first) = ends(0).expect("opened");
    assert_eq!(first, "Opened port-down link/n2:mlx5_1/1");
    assert!(
        (60..90).contains(&opened.parse().expect("a second")),
        "{seen:?}"
    );
    let (closed, last) = ends(seen.len() - 1).expect("closed");
    assert_eq!(last, "Closed port-down link/n2:mlx5_1/1");
    assert!(
        (120..240).contains(&closed.parse().expect("a second")),
        "{seen:?}"
    );
    assert_eq!(replay(&folder, Window::default()).0, seen, "the same again");
}

#[test]
fn an_invalid_target_is_ignored_with_its_scrapes_and_the_others_are_replayed() {
    let mut lines = lines();
    lines.insert(1, line(START, "m1:8080", "body", "kube_node_info 1\n"));
    let folder = pack(&lines);
    let file = folder.path().join("targets.json");
    let targets = fs::read_to_string(&file).expect("targets");
    let unknown = r#"{"targets":["m1:8080"],"labels":{"job":"railscope","__railscope_kind":"kube-state-metrics"}}"#;
    let targets = targets.replacen('[', &format!("[{unknown},"), 1);
    fs::write(&file, targets).expect("written");
    let (seen, replayed) = replay(&folder, Window::default());
    let replayed = replayed.expect("a pack");
    assert_eq!((replayed.scrapes, replayed.ignored), (143, 1));
    assert_eq!(seen, replay(&pack(&self::lines()), Window::default()).0);
}

#[test]
fn a_window_omits_what_is_outside() {
    let folder = pack(&lines());
    let at = |second| Some(Timestamp((START + second) * 1000));
    let window = Window {
        from: at(10),
        until: at(50),
    };
    let (seen, replayed) = replay(&folder, window);
    assert_eq!(replayed.expect("a pack").span, at(10).zip(at(50)));
    assert!(seen.is_empty(), "{seen:?}");
}

#[test]
fn a_damaged_pack_has_an_error_with_its_line_after_what_was_valid() {
    let with = |line: String| {
        let mut all = lines();
        all.truncate(60);
        all.push(line);
        all
    };
    let at = START + 500;
    for (lines, expected) in [
        (
            with(String::from("{")),
            "line 61: column 1: expected an object with t, job",
        ),
        (
            with(line(START, "n1:10660", "body", "")),
            "line 61: t: 1764000000 after 1764000095: expected lines in order of time",
        ),
        (
            with(line(at, "n9:10660", "body", "")),
            "line 61: job \"railscope\", instance \"n9:10660\": expected a target of targets.json",
        ),
        (
            with(line(at, "n1:10660", "text", "")),
            "line 61: expected either body or error",
        ),
        (
            with(line(at * 1000, "n1:10660", "body", "")),
            "line 61: t: 1764000500000: expected seconds of Unix time",
        ),
    ] {
        let folder = pack(&lines);
        let (seen, replayed) = replay(&folder, Window::default());
        let error = replayed.expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!seen.is_empty(), "what was valid was replayed");
    }
    let folder = pack(&lines());
    let scrapes = folder.path().join("scrapes.jsonl.zst");
    let whole = fs::read(&scrapes).expect("a file");
    fs::write(&scrapes, &whole[..whole.len() / 2]).expect("written");
    let error = replay(&folder, Window::default()).1.expect_err("truncated");
    assert!(
        error
            .to_string()
            .contains("expected more of the zstd frame"),
        "{error}"
    );
    fs::write(&scrapes, "text").expect("written");
    assert!(replay(&folder, Window::default()).1.is_err());
    for name in ["targets.json", "railscope.toml"] {
        fs::remove_file(folder.path().join(name)).expect("removed");
        let error = Pack::open(folder.path()).expect_err("missing").to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn what_is_whole_of_a_truncated_frame_is_read_before_the_error() {
    let folder = pack(&lines());
    let number = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let lines = (0..30_000).map(|at| line(START, "n1:10660", "body", &number(at).to_string()));
    let text = lines.collect::<Vec<_>>().join("\n");
    let frame = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
    let file = folder.path().join("scrapes.jsonl.zst");
    fs::write(file, &frame[..frame.len() * 9 / 10]).expect("written");
    let pack = Pack::open(folder.path()).expect("a pack");
    let mut scrapes: Vec<_> = pack.scrapes().expect("scrapes").collect();
    let error = scrapes.pop().expect("an error").expect_err("truncated");
    let expected = format!(
        "line {}: expected more of the zstd frame",
        scrapes.len() + 1
    );
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(scrapes.len() > 20_000, "{}", scrapes.len());
    assert!(scrapes.iter().all(Result::is_ok));
}

#[test]
fn versions_of_the_fabric_file_are_used_from_their_time_on() {
    let folder = pack(&lines());
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("written");
    };
    let text = include_str!("../../../tests/fabrics/rail-2tier.ibnetdiscover");
    let config = "file_sd = [\"targets.json\"]\n[cluster]\nname = \"c\"\n[subnet]\nfile = \"fab.ibnetdiscover\"\n";
    write("railscope.toml", config.as_bytes());
    write("fab.ibnetdiscover", b"");
    write(
        &format!("fab.{}.ibnetdiscover", START + 100),
        text.as_bytes(),
    );
    write("fab.other.ibnetdiscover", b"");
    let links = |until: u64| {
        let mut pack = Pack::open(folder.path()).expect("a pack");
        let mut replay = Replay::open(&mut pack).expect("a pack");
        let until = Some(Timestamp((START + until) * 1000));
        let window = Window { from: None, until };
        replay.run(&pack, window, |_| {}).expect("a pack");
        let snapshot = replay.state().snapshot().expect("a tick");
        snapshot.view.fabric.links().count()
    };
    assert_eq!(links(90), 0);
    assert!(links(110) > 0);
}

/// GPUs of a node that dcgm-exporter reads; the first reports XID 79 after a minute.
fn gpus(node: &str, second: u64) -> String {
    let of_gpu = |gpu: u64| {
        let labels = format!(
            "{{gpu=\"{gpu}\",UUID=\"GPU-{node}-{gpu}\",pci_bus_id=\"00000000:{gpu}B:00.0\",device=\"nvidia{gpu}\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"{node}\"}}"
        );
        let xid = if gpu == 0 && second >= 60 { 79 } else { 0 };
        format!(
            "DCGM_FI_DEV_GPU_UTIL{labels} 100\nDCGM_FI_DEV_SM_CLOCK{labels} 1980\nDCGM_FI_DEV_XID_ERRORS{labels} {xid}\n"
        )
    };
    (0..4).map(of_gpu).collect()
}

#[test]
fn exporters_that_are_listed_with_a_domain_or_by_address_are_of_their_node() {
    let mut lines = lines();
    let listed = [("n1", "n1.a.net:9400"), ("n2", "10.0.0.2:9400")];
    for second in (0..240).step_by(5) {
        for (node, instance) in listed {
            let scrape = line(START + second, instance, "body", &gpus(node, second));
            lines.push(scrape.replace("\"job\":\"railscope\"", "\"job\":\"dcgm\""));
        }
    }
    lines.sort_by_key(|line| {
        let read: serde_json::Value = serde_json::from_str(line).expect("JSON");
        read["t"].as_u64()
    });
    let folder = pack(&lines);
    let path = folder.path().join("targets.json");
    let targets = fs::read_to_string(&path).expect("targets");
    let more = listed.map(|(_, instance)| {
        format!(
            "{{\"targets\":[\"{instance}\"],\"labels\":{{\"job\":\"dcgm\",\"__railscope_kind\":\"dcgm-exporter\"}}}}"
        )
    });
    let targets = format!("{},{}]", targets.trim_end_matches(']'), more.join(","));
    fs::write(&path, targets).expect("written");
    let (seen, replayed) = replay(&folder, Window::default());
    replayed.expect("a pack");
    for gpu in ["gpu/n1:0", "gpu/n2:0"] {
        let named = seen
            .iter()
            .any(|line| line.ends_with(&format!("Opened gpu-lost {gpu}")));
        assert!(named, "{gpu}: {seen:?}");
    }
}
