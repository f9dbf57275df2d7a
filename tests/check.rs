//! `railscope check` for scripts: its exit status and both of its formats.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A check ends within this time, whatever blocks.
const LONGEST_CHECK: Duration = Duration::from_secs(10);
const RAILSCOPE: &str = env!("CARGO_BIN_EXE_railscope");

fn check(machine: &str, arguments: &[&str]) -> Output {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
    let root = machines.join(machine);
    Command::new(RAILSCOPE)
        .args(["check", "--no-nvml", "--path.sysfs"])
        .arg(root.join("sys"))
        .arg("--path.procfs")
        .arg(root.join("proc"))
        .arg("--path.rootfs")
        .arg(&root)
        .args(arguments)
        .output()
        .expect("runs")
}

#[test]
fn the_exit_status_says_whether_there_are_findings() {
    for (machine, arguments, status) in [
        ("bare", &[][..], 0),
        ("vm-vf-passthrough", &[], 0),
        ("hgx-h100-ib", &[], 1),
        ("hgx-h100-ib", &["--format", "json"], 1),
        ("bare", &["--format", "table"], 2),
        ("bare", &["--nvml.period", "never"], 2),
    ] {
        let output = check(machine, arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{machine} {arguments:?}"
        );
        assert_eq!(output.stdout.is_empty(), status == 2);
        assert_eq!(output.stderr.is_empty(), status != 2);
    }
}

#[test]
fn both_formats_hold_the_same_findings() {
    let text = String::from_utf8(check("hgx-h100-ib", &[]).stdout).expect("UTF-8");
    let json = check("hgx-h100-ib", &["--format", "json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let findings = rows.iter().filter(|row| row["verdict"] == "finding");
    let parts: Vec<_> = findings.map(|row| row["part"].as_str()).collect();
    assert_eq!(parts.len(), text.matches("FINDING").count());
    for part in parts {
        assert!(text.contains(part.expect("a part")), "{part:?}");
    }
}

/// Eight GPUs that NVML reports one after the other: none is evaluated before it has reported.
#[test]
fn a_healthy_node_whose_gpus_all_answer_has_no_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = folder.path().join("cluster.toml");
    std::fs::write(&spec, "nodes = 1\nwiring = { kind = \"fat-tree\" }\n").expect("a description");
    let cluster = folder.path().join("cluster");
    let simulated = Command::new(RAILSCOPE)
        .arg("simulate")
        .args([&spec, &cluster])
        .output()
        .expect("runs");
    assert!(simulated.status.success(), "{simulated:?}");
    let node = cluster.join("gpu-node-00");
    let output = Command::new(RAILSCOPE)
        .args(["check", "--path.sysfs"])
        .arg(node.join("sys"))
        .arg("--path.procfs")
        .arg(node.join("proc"))
        .arg("--path.rootfs")
        .arg(&node)
        .arg("--nvml.library")
        .arg(node.join("nvml/libnvidia-ml.so.1"))
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("8 GPUs"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Opening a FIFO without a writer waits for one, for ever.
#[test]
fn a_fifo_in_the_place_of_a_counter_is_a_finding_that_names_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(machines.join("hgx-h100-ib"))
        .arg(folder.path().join("node"))
        .status()
        .expect("runs");
    assert!(copied.success());
    let root = folder.path().join("node");
    let counter = root.join("sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error");
    let counter = counter.canonicalize().expect("the counter");
    std::fs::remove_file(&counter).expect("the counter");
    let (user, kind) = (Mode::RUSR | Mode::WUSR, FileType::Fifo);
    mknodat(CWD, &counter, kind, user, 0).expect("a FIFO");
    let mut running = Command::new(RAILSCOPE)
        .args(["check", "--no-nvml", "--path.sysfs"])
        .arg(root.join("sys"))
        .arg("--path.procfs")
        .arg(root.join("proc"))
        .arg("--path.rootfs")
        .arg(&root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    let end = Instant::now() + LONGEST_CHECK;
    while running.try_wait().expect("a state").is_none() {
        if Instant::now() > end {
            running.kill().expect("still runs");
            panic!("the check takes longer than {LONGEST_CHECK:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = running.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let named = format!("{} is a FIFO", counter.display());
    let row = said.lines().find(|line| line.contains(&named));
    let row = row.unwrap_or_else(|| panic!("no finding names the file: {said}"));
    assert!(row.starts_with("FINDING  unreadable"), "{row}");
    assert!(row.contains("rdma mlx5_0"), "{row}");
    assert!(said.contains("mlx5_3"), "the others were read: {said}");
}
