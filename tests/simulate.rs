//! `railscope simulate` writes a cluster that Railscope and other readers of such files accept as real.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use railscope_model::plan::WiringPlan;

use crate::support::{RAILSCOPE, run};

const LIMIT: Duration = Duration::from_secs(60);
const CLUSTER: &str =
    "nodes = 3\nnode = 'gb200-nvl72'\nwiring = { kind = 'rail-optimized', nodes_per_su = 32 }\n";

fn simulate(folder: &Path, cluster: &str, more: &[&str]) -> (bool, String) {
    let file = folder.join("cluster.toml");
    fs::write(&file, cluster).expect("writes");
    let mut command = Command::new(RAILSCOPE);
    command.arg("simulate").arg(file).arg(folder.join("out"));
    run(command.args(more), LIMIT)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

#[test]
fn a_cluster_is_written_once_and_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    let (well, said) = simulate(
        dir.path(),
        CLUSTER,
        &["--fault", "port-down", "--seed", "4"],
    );
    assert!(well, "{said}");
    assert!(said.contains("/1 goes dark."), "{said}");
    let out = dir.path().join("out");
    let mut found: Vec<_> = fs::read_dir(&out)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    found.sort();
    let nodes = ["gpu-node-00", "gpu-node-01", "gpu-node-02"];
    let files = ["subnet.ibnetdiscover", "subnet.ibsim", "wiring-plan.csv"];
    assert_eq!(found, [nodes, files].concat());
    // The plan has the cable that is dark, the subnet does not.
    let plan = read(&out.join("wiring-plan.csv"));
    let plan = WiringPlan::parse("wiring-plan.csv", &plan).expect("a plan");
    let nics = |file: &str| read(&out.join(file)).matches("\nCa\t").count();
    assert_eq!(nics("subnet.ibnetdiscover"), 11);
    assert_eq!(nics("subnet.ibsim"), 11);
    let at_nics = plan.cables.iter().filter(|cable| cable.rail.is_some());
    assert_eq!(at_nics.count(), 12);
    let mut topology = Command::new(RAILSCOPE);
    topology.args(["topology", "show"]);
    let (well, said) = run(topology.arg(out.join("subnet.ibnetdiscover")), LIMIT);
    assert!(
        !well && said.contains("3; 11 NICs") && said.contains("missing    rail"),
        "{said}"
    );
    let gpus = read(&out.join("gpu-node-02/nvml/nvml.state"));
    assert!(gpus.contains("name NVIDIA GB200"), "{gpus}");
    // Nothing else is left, and nothing is written over.
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 2);
    let (well, said) = simulate(dir.path(), CLUSTER, &[]);
    assert!(!well && said.contains("is already there"), "{said}");
}

#[test]
fn a_cloud_is_written_without_its_cables() {
    let dir = tempfile::tempdir().expect("a folder");
    let cluster = format!(
        "transport = 'efa'\n{}",
        CLUSTER.replace("gb200-nvl72", "efa-p5")
    );
    let (well, said) = simulate(dir.path(), &cluster, &["--fault", "port-down"]);
    assert!(well, "{said}");
    assert!(!said.contains("topology show"), "{said}");
    let out = dir.path().join("out");
    let found = fs::read_dir(&out).expect("a folder").count();
    assert_eq!(found, 3, "nodes only");
    let sys = out.join("gpu-node-00/sys");
    for (file, text) in [
        ("class/dmi/id/product_name", "p5.48xlarge\n"),
        ("class/dmi/id/sys_vendor", "Amazon EC2\n"),
        ("class/infiniband/rdmap71s0/ports/1/link_layer", "Unknown\n"),
        (
            "class/infiniband/rdmap71s0/ports/1/rate",
            "100 Gb/sec (4X EDR)\n",
        ),
        ("class/infiniband/rdmap71s0/device/device", "0xefa2\n"),
    ] {
        assert_eq!(read(&sys.join(file)), text, "{file}");
    }
    let devices = fs::read_dir(sys.join("class/infiniband")).expect("devices");
    assert_eq!(devices.count(), 32);
}

#[test]
fn a_description_that_is_wrong_is_refused_with_file_and_field() {
    for (cluster, expected) in [
        ("nodes = 3\n", "missing field `wiring`"),
        (
            &CLUSTER.replace("gb200-nvl72", "efa-p4"),
            "expected hgx-h100, hgx-h200, hgx-b200, gb200-nvl72, dgx-a100, efa-p5",
        ),
        (
            &CLUSTER.replace("gb200-nvl72", "efa-p5"),
            "transport: found infiniband with node efa-p5, expected efa",
        ),
        (
            &format!("nics_per_node = 5\n{CLUSTER}"),
            "nics_per_node: found 5, expected 1 to 4 (gb200-nvl72)",
        ),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let (well, said) = simulate(dir.path(), cluster, &[]);
        assert!(!well && said.contains("cluster.toml: "), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!dir.path().join("out").exists());
    }
}
