//! `railscope topology` on files: text, JSON, exit status, and what other tools make of its exports.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::plan;
use railscope_simulator::spec::{Change, ClusterSpec};
use railscope_simulator::wiring::Wiring;
use serde_json::Value;

use crate::support::{Process, RAILSCOPE, free_port, wait_for};

const NOW: Timestamp = Timestamp(1_754_493_083_000);

/// Exit status, standard output, standard error.
fn run(arguments: &[&str], files: &[&Path]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_railscope"))
        .arg("topology")
        .args(arguments)
        .args(files)
        .output()
        .expect("railscope");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A cluster's plan and what was built, as files.
fn files(folder: &Path, spec: &ClusterSpec) -> [std::path::PathBuf; 2] {
    let paths = [folder.join("plan.csv"), folder.join("seen.txt")];
    let planned = Wiring::plan(spec).expect("a plan");
    let built = Wiring::built(spec).expect("a wiring");
    std::fs::write(&paths[0], plan::write(&planned)).expect("a file");
    std::fs::write(&paths[1], ibnetdiscover(&built, NOW)).expect("a file");
    paths
}

fn swapped() -> ClusterSpec {
    let part = |text: &str| text.parse().expect(text);
    let changes = vec![Change::Swapped([
        part("link/gpu-node-03:mlx5_2/1"),
        part("link/gpu-node-05:mlx5_4/1"),
    ])];
    ClusterSpec {
        changes,
        ..ClusterSpec::demo(40).expect("a cluster")
    }
}

#[test]
fn lint_names_the_cable_and_says_it_by_its_exit_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plan, seen] = files(folder.path(), &swapped());
    let plan_flag = format!("--plan={}", plan.display());
    for arguments in [vec!["lint"], vec!["lint", &plan_flag]] {
        let (status, said, _) = run(&arguments, &[&seen]);
        assert_eq!(status, Some(1), "{said}");
        assert!(
            said.contains("swapped-cables") && said.ends_with("1 finding\n"),
            "{said}"
        );
        assert!(
            said.contains("gpu-node-03") && said.contains("gpu-node-05"),
            "{said}"
        );
    }
    let (_, json, _) = run(&["lint", "--json"], &[&seen]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["findings"][0]["rule"], "swapped-cables");
    assert_eq!(json["findings"][0]["parts"][0], "link/gpu-node-03:mlx5_2/1");

    let healthy = ClusterSpec::demo(40).expect("a cluster");
    let [_, seen] = files(folder.path(), &healthy);
    let (status, said, _) = run(&["lint", &plan_flag], &[&seen]);
    assert_eq!((status, said.as_str()), (Some(0), "nothing found\n"));
    let (status, said, error) = run(&["lint"], &[Path::new("/proc/version")]);
    assert_eq!((status, said.as_str()), (Some(2), ""), "{error}");
    assert!(
        error.contains("/proc/version:1: text: found Linux"),
        "{error}"
    );
}

#[test]
fn a_plan_and_a_sweep_differ_by_the_cables_that_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plan, seen] = files(folder.path(), &swapped());
    let (status, said, _) = run(&["diff"], &[&plan, &seen]);
    assert_eq!(status, Some(1));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "changed  cable of nic/gpu-node-03:mlx5_2 port 1: switch/leaf-su0-r2 port 4 -> switch/leaf-su0-r4 port 6",
            "changed  cable of nic/gpu-node-05:mlx5_4 port 1: switch/leaf-su0-r4 port 6 -> switch/leaf-su0-r2 port 4",
        ]
    );
    let (status, said, _) = run(&["diff"], &[&seen, &seen]);
    assert_eq!((status, said.as_str()), (Some(0), "no difference\n"));
}

#[test]
fn an_exported_tree_reads_back_as_the_same_placement() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_, seen] = files(folder.path(), &ClusterSpec::demo(40).expect("a cluster"));
    let (status, tree, _) = run(&["export", "--to", "slurm-tree"], &[&seen]);
    assert_eq!(status, Some(0));
    assert!(
        tree.contains("SwitchName=unit-leaf-su0-r0 Nodes=gpu-node-[00-31]\n"),
        "{tree}"
    );
    let conf = folder.path().join("topology.conf");
    std::fs::write(&conf, &tree).expect("a file");
    let (status, said, _) = run(&["diff"], &[&seen, &conf]);
    assert_eq!(
        (status, said.as_str()),
        (Some(0), "no difference\n"),
        "{tree}"
    );
    let (status, said, _) = run(&["lint"], &[&conf]);
    assert_eq!((status, said.as_str()), (Some(0), "nothing found\n"));
    let (_, labels, _) = run(&["export", "--to", "node-labels"], &[&seen]);
    assert!(
        labels.starts_with("gpu-node-00:\n  network.topology.nvidia.com/leaf: unit-leaf-su0-r0\n"),
        "{labels}"
    );
    let (_, nccl, _) = run(&["export", "--to", "nccl"], &[&seen]);
    assert!(
        nccl.starts_with("# gpu-node-[00-39]\nNCCL_IB_HCA==mlx5_0:1,mlx5_1:1,"),
        "{nccl}"
    );
    for (to, start) in [
        ("json", "{"),
        ("graphml", "<?xml"),
        ("dot", "graph fabric {"),
        ("slurm-block", "# topology/block"),
    ] {
        let (status, text, _) = run(&["export", "--to", to], &[&seen]);
        assert_eq!(status, Some(0), "{to}");
        assert!(text.starts_with(start), "{to}: {text}");
    }
}

#[test]
fn show_says_plans_and_seen_fabrics_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let [plan, seen] = files(folder.path(), &ClusterSpec::demo(40).expect("a cluster"));
    let (status, said, _) = run(&["show"], &[&plan]);
    assert_eq!(status, Some(0));
    assert!(
        said.starts_with("PLANNED, not seen: rail-optimized fat-tree, 2 levels"),
        "{said}"
    );
    let (_, said, _) = run(&["show"], &[&seen]);
    assert!(
        said.starts_with("rail-optimized fat-tree, 2 levels (confidence high)"),
        "{said}"
    );
    let (_, json, _) = run(&["show", "--json"], &[&seen]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["verdict"]["rails"], &json["verdict"]["hosts"]),
        (&8.into(), &40.into())
    );
}

#[test]
fn an_export_that_is_not_sure_says_what_is_missing_and_exits_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let [_, seen] = files(folder.path(), &ClusterSpec::demo(40).expect("a cluster"));
    let text = std::fs::read_to_string(&seen).expect("a file");
    let unnamed = folder.path().join("unnamed.txt");
    std::fs::write(&unnamed, text.replace(" mlx5_", " HCA-")).expect("a file");
    let (status, said, error) = run(&["export", "--to", "nccl"], &[&unnamed]);
    assert_eq!(status, Some(1), "{said}");
    assert!(!said.contains("NCCL_IB_HCA=="), "{said}");
    assert!(
        error.contains("missing device names of gpu-node-[00-39]"),
        "{error}"
    );
}

#[test]
fn one_file_of_a_folder_that_is_of_no_use_does_not_hide_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let lldp = r#"{"lldp":{"interface":{"ens1":{"chassis":{"leaf-1":{"capability":{"type":"Bridge","enabled":true}}},
        "port":{"id":{"type":"ifname","value":"swp3"}}},"ens2":{"chassis":{"leaf-2":{"capability":{"type":"Bridge","enabled":true}}},
        "port":{"id":{"type":"ifname","value":"swp3"}}}}}}"#;
    let matrix = "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\nGPU0\tX\tNV18\tNV18\tSYS\tPIX\t0\nGPU1\tNV18\tX\tNV18\tSYS\tPIX\t0\n\
                  GPU2\tNV18\tNV18\tX\tSYS\tPIX\t0\nGPU3\tSYS\tSYS\tSYS\tX\tPIX\t0\nNIC0\tPIX\tPIX\tPIX\tPIX\tX\n";
    for (name, text) in [
        ("n1.json", lldp),
        ("topo.txt", matrix),
        ("notes.txt", "call the vendor\n"),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let (status, said, error) = run(&["show"], &[folder.path()]);
    assert_eq!(status, Some(1), "{said}{error}");
    assert!(
        said.contains("2 cables") && said.contains("WRONG      GPU3 has none of the 18 NVLinks"),
        "{said}"
    );
    assert!(
        error.contains("notes.txt:1: text: found call the vendor")
            && error.contains("docs/inputs.md"),
        "{error}"
    );
    let (status, json, _) = run(&["show", "--json"], &[folder.path()]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(status, Some(1));
    assert_eq!(
        json["cables_of_one_device"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(json["nodes"][0]["gpus"][3]["nvlinks"], 0);
    assert_eq!(
        (&json["refused"][0]["line"], &json["refused"][0]["field"]),
        (&1.into(), &"text".into())
    );
    let (status, said, _) = run(&["lint"], &[&folder.path().join("topo.txt")]);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("warning inside-node: ") && said.ends_with("1 finding\n"),
        "{said}"
    );
    let (status, said, _) = run(&["lint"], &[&folder.path().join("n1.json")]);
    assert_eq!((status, said.as_str()), (Some(0), "nothing found\n"));
}

/// A collector that reads its subnet from a file, once a second.
fn collector(folder: &Path, subnet: &Path) -> (Process, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[cluster]\nname = \"here\"\n\n[web]\nlisten = \"{address}\"\n\n[subnet]\ncommand = [\"cat\", {subnet:?}]\n\
         interval = \"1s\"\n\n[analysis]\ninterval = \"1s\"\n"
    );
    let file = folder.join("collector.toml");
    std::fs::write(&file, config).expect("a configuration");
    let mut command = Command::new(RAILSCOPE);
    command.arg("collector").arg("--config").arg(file);
    let process = Process::start("collector", folder, command.stdin(Stdio::null()));
    (process, format!("--collector=http://{address}"))
}

#[test]
fn a_running_collector_shows_lints_exports_and_tells_two_times_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path();
    let [_, wrong] = files(here, &swapped());
    let wrong = std::fs::read_to_string(wrong).expect("a file");
    let [_, seen] = files(here, &ClusterSpec::demo(40).expect("a cluster"));
    let (_collector, url) = collector(here, &seen);
    let url = url.as_str();
    let patience = Duration::from_secs(60);
    wait_for("a verdict", patience, || {
        let (status, said, error) = run(&["show", url], &[]);
        let known =
            status == Some(0) && said.starts_with("here: rail-optimized fat-tree, 2 levels");
        if known {
            Ok(())
        } else {
            Err(format!("{said}{error}"))
        }
    });
    let (status, said, _) = run(&["lint", url], &[]);
    assert_eq!(
        (status, said.as_str()),
        (Some(0), "nothing found, by peers\n")
    );
    for to in [
        "slurm-tree",
        "slurm-block",
        "node-labels",
        "nccl",
        "graphml",
        "dot",
        "json",
    ] {
        let (_, by_file, _) = run(&["export", "--to", to], &[&seen]);
        let (status, said, error) = run(&["export", "--to", to, url], &[]);
        assert_eq!((status, &said), (Some(0), &by_file), "{to}: {error}");
    }

    let (_, json, _) = run(&["show", "--json", url], &[]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let before = json["at"].as_f64().expect("a time");
    let replaced = here.join("replaced.txt");
    std::fs::write(&replaced, wrong).expect("a file");
    std::fs::rename(&replaced, &seen).expect("a file");
    let from = format!("--from={before}");
    wait_for("a difference", patience, || {
        let (status, said, error) = run(&["diff", url, &from], &[]);
        let both = ["gpu-node-03:mlx5_2", "gpu-node-05:mlx5_4"].map(|nic| said.contains(nic));
        if status == Some(1) && both == [true; 2] {
            Ok(())
        } else {
            Err(format!("{said}{error}"))
        }
    });
    let (status, said, _) = run(&["lint", url], &[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("swapped-cables") && said.ends_with("1 finding, by peers\n"),
        "{said}"
    );
    let (status, said, _) = run(&["diff", url, "--from=0", &format!("--to={before}")], &[]);
    assert_eq!((status, said.as_str()), (Some(0), "no difference\n"));
    wrong_questions(url);
}

/// What a collector refuses, and what its command line does.
fn wrong_questions(url: &str) {
    for (arguments, expected) in [
        (
            vec!["diff", url, "--from=yesterday"],
            "query: from: \"yesterday\": expected a time",
        ),
        (vec!["diff", url], "--from <TIME>"),
        (
            vec!["show", "--collector=nowhere"],
            "expected an address such as http://127.0.0.1:10661",
        ),
        (
            vec!["show", "--collector=http://127.0.0.1:1"],
            "no answer from http://127.0.0.1:1",
        ),
        (vec!["lint", "--plan=plan.csv", url], "cannot be used with"),
    ] {
        let (status, said, error) = run(&arguments, &[]);
        assert_eq!(
            (status, said.as_str()),
            (Some(2), ""),
            "{arguments:?}: {error}"
        );
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
