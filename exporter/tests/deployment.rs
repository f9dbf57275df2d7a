//! SR-IOV as the host and as the guest see it, and platforms on this very machine.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{copy, machine, our_root, sampler};
use railscope_exporter::sampler::Presence;
use railscope_model::metric::Profile;
use railscope_model::reading::NodeReading;

/// The NIC of `mlx5_0` of our HGX machine.
const PF: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0";

fn sample(root: &Path) -> NodeReading {
    let mut reading = NodeReading::default();
    let presence = sampler("deployment", &machine(root))
        .sample(&mut reading)
        .expect("a sample");
    assert_eq!(presence, Presence::Present);
    reading
}

/// `name label,label… value`, with `full` before what only the full profile shows.
fn lines(reading: &NodeReading) -> Vec<String> {
    lines_of("railscope_nic_", reading)
}

fn lines_of(start: &str, reading: &NodeReading) -> Vec<String> {
    let about = reading
        .samples()
        .iter()
        .filter(|sample| sample.metric.name.starts_with(start));
    let mut lines: Vec<String> = about
        .map(|sample| {
            let labels: Vec<&str> = sample.labels.values().collect();
            let profile = match sample.profile {
                Profile::Default => "",
                Profile::Full => "full ",
            };
            let name = sample.metric.name.trim_start_matches(start);
            let value = sample.value.as_f64();
            format!("{profile}{name} {} {value}", labels.join(","))
        })
        .collect();
    lines.sort();
    lines
}

/// Switches `active` of 16 virtual functions on, as the kernel shows them on the host.
fn split(root: &Path, active: u8) {
    let physical = root.join(PF);
    fs::write(physical.join("sriov_totalvfs"), "16\n").expect("write");
    fs::write(physical.join("sriov_numvfs"), format!("{active}\n")).expect("write");
    for number in 1..=active {
        let address = format!("0000:18:00.{number}");
        let path = physical.parent().expect("a bridge").join(&address);
        fs::create_dir(&path).expect("mkdir");
        for (file, text) in [
            ("vendor", "0x15b3"),
            ("device", "0x101e"),
            ("class", "0x020700"),
        ] {
            fs::write(path.join(file), text).expect("write");
        }
        symlink("../0000:18:00.0", path.join("physfn")).expect("link");
        let target = format!("../../../../{PF}/../{address}");
        symlink(target, root.join("sys/bus/pci/devices").join(&address)).expect("link");
    }
}

#[test]
fn a_host_shows_physical_functions_by_default_and_virtual_ones_in_full() {
    for (active, expected) in [
        (
            0,
            &[
                "full max_virtual_functions mlx5_0,0000:18:00.0 16",
                "full sriov_info mlx5_0,0000:18:00.0,physical, 1",
                "full virtual_functions mlx5_0,0000:18:00.0 0",
            ][..],
        ),
        (
            2,
            &[
                "full max_virtual_functions mlx5_0,0000:18:00.0 16",
                "full sriov_info ,0000:18:00.1,virtual,0000:18:00.0 1",
                "full sriov_info ,0000:18:00.2,virtual,0000:18:00.0 1",
                "sriov_info mlx5_0,0000:18:00.0,physical, 1",
                "virtual_functions mlx5_0,0000:18:00.0 2",
            ],
        ),
    ] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        copy(&our_root("hgx-h100-ib"), temp.path());
        split(temp.path(), active);
        assert_eq!(lines(&sample(temp.path())), expected, "{active}");
    }
}

#[test]
fn a_split_nvme_controller_shows_its_functions_in_full() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let sys = temp.path().join("sys");
    let bus = sys.join("bus/pci/devices");
    fs::create_dir_all(&bus).expect("mkdir");
    for (address, files) in [
        (
            "0000:01:00.0",
            &[("sriov_totalvfs", "32"), ("sriov_numvfs", "1")][..],
        ),
        ("0000:01:00.1", &[]),
    ] {
        let path = sys.join("devices/pci0000:00").join(address);
        fs::create_dir_all(&path).expect("mkdir");
        for (file, text) in files.iter().chain(&[("class", "0x010802")]) {
            fs::write(path.join(file), text).expect("write");
        }
        symlink(
            format!("../../../devices/pci0000:00/{address}"),
            bus.join(address),
        )
        .expect("link");
    }
    let physical = sys.join("devices/pci0000:00/0000:01:00.0");
    symlink("../0000:01:00.0", physical.join("../0000:01:00.1/physfn")).expect("link");
    fs::create_dir_all(physical.join("nvme/nvme0")).expect("mkdir");
    fs::create_dir_all(sys.join("class/nvme")).expect("mkdir");
    let controller = "../../devices/pci0000:00/0000:01:00.0/nvme/nvme0";
    symlink(controller, sys.join("class/nvme/nvme0")).expect("link");
    let expected = [
        "full max_virtual_functions nvme0,0000:01:00.0 32",
        "full sriov_info ,0000:01:00.1,virtual,0000:01:00.0 1",
        "full sriov_info nvme0,0000:01:00.0,physical, 1",
        "full virtual_functions nvme0,0000:01:00.0 1",
    ];
    let reading = sample(temp.path());
    assert_eq!(lines_of("railscope_nvme_", &reading), expected);
    assert_eq!(lines(&reading), Vec::<String>::new());
}

#[test]
fn a_guest_shows_its_virtual_function_by_default() {
    let reading = sample(&our_root("vm-vf-passthrough"));
    let expected = ["sriov_info mlx5_0,0000:02:00.0,virtual, 1"];
    assert_eq!(lines(&reading), expected);
}

#[test]
fn this_very_machine_has_a_deployment_model() {
    let reading = sample(Path::new("/"));
    let mut samples = reading.samples().iter();
    let deployment = samples.find(|sample| sample.metric.name == "railscope_deployment_info");
    let deployment = deployment.expect("a deployment");
    let labels: Vec<&str> = deployment.labels.values().collect();
    println!("this machine: {labels:?}");
    let flags = fs::read_to_string("/proc/cpuinfo").expect("procfs");
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        assert_eq!(labels[0], "virtual_machine");
        assert_ne!(labels[1], "");
    }
}
