//! SR-IOV as the host and as the guest see it, and platforms on this very machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{copy, machine, our_root, sampler};
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

/// A function of this vendor, device and class on a root bus, with an RDMA device of this name below it.
fn function(root: &Path, address: &str, ids: [&str; 3], device: &str, part: &str) {
    let path = root.join("sys/devices/pci0000:00").join(address);
    let rdma = path.join(part).join("infiniband").join(device);
    fs::create_dir_all(&rdma).expect("mkdir");
    for (file, text) in ["vendor", "device", "class"].into_iter().zip(ids) {
        fs::write(path.join(file), text).expect("write");
    }
    symlink("../..", rdma.join("device")).expect("link");
    for (folder, name) in [("bus/pci/devices", address), ("class/infiniband", device)] {
        let folder = root.join("sys").join(folder);
        fs::create_dir_all(&folder).expect("mkdir");
        let inner = match name == address {
            true => String::new(),
            false => format!("/{part}/infiniband/{device}").replace("//", "/"),
        };
        let up = "../".repeat(if name == address { 3 } else { 2 });
        let target = format!("{up}devices/pci0000:00/{address}{inner}");
        let link = folder.join(name);
        if !link.exists() {
            symlink(target, link).expect("link");
        }
    }
}

#[test]
fn a_guest_tells_a_virtual_function_by_its_id_and_by_nothing_else() {
    let connectx6_ib = ["0x15b3", "0x101c", "0x020700"];
    let connectx7_roce = ["0x15b3", "0x101e", "0x020000"];
    for (ids, is_virtual) in [
        (connectx6_ib, true),
        (connectx7_roce, true),
        (["0x14e4", "0x181b", "0x020000"], true),
        (["0x8086", "0x1889", "0x020000"], true),
        (["0x1414", "0x00ba", "0x020000"], true),
        // Physical functions that were passed through, and a vendor whose ids do not identify it.
        (["0x15b3", "0x1021", "0x020700"], false),
        (["0x15b3", "0x101d", "0x020000"], false),
        (["0x1d0f", "0xefa1", "0x020000"], false),
    ] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(temp.path().join("proc")).expect("mkdir");
        let cpu = "processor : 0\nflags : fpu hypervisor\n";
        fs::write(temp.path().join("proc/cpuinfo"), cpu).expect("write");
        function(temp.path(), "0000:00:05.0", ids, "mlx5_0", "");
        let expected: &[&str] = if is_virtual {
            &["sriov_info mlx5_0,0000:00:05.0,virtual, 1"]
        } else {
            &[]
        };
        assert_eq!(lines(&sample(temp.path())), expected, "{ids:?}");
    }
}

#[test]
fn a_subfunction_has_a_device_but_not_the_function_that_it_is_part_of() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (address, connectx7) = ("0000:00:05.0", ["0x15b3", "0x1021", "0x020000"]);
    // By name the subfunctions come first.
    function(temp.path(), address, connectx7, "mlx5_9", "");
    for number in [4, 5] {
        let part = format!("mlx5_core.sf.{number}");
        function(
            temp.path(),
            address,
            connectx7,
            &format!("mlx5_{number}"),
            &part,
        );
    }
    let physical = temp.path().join("sys/devices/pci0000:00").join(address);
    for (file, text) in [("sriov_totalvfs", "8"), ("sriov_numvfs", "0")] {
        fs::write(physical.join(file), text).expect("write");
    }
    let expected = [
        "full max_virtual_functions mlx5_9,0000:00:05.0 8",
        "full sriov_info mlx5_4,,subfunction,0000:00:05.0 1",
        "full sriov_info mlx5_5,,subfunction,0000:00:05.0 1",
        "full sriov_info mlx5_9,0000:00:05.0,physical, 1",
        "full virtual_functions mlx5_9,0000:00:05.0 0",
    ];
    assert_eq!(lines(&sample(temp.path())), expected);
    let mut reading = NodeReading::default();
    let presence = sampler("pcie", &machine(temp.path())).sample(&mut reading);
    assert_eq!(presence.expect("a sample"), Presence::Present);
    let mut samples = reading.samples().iter();
    let path = samples.find(|sample| sample.metric.name == "railscope_pcie_path_info");
    let labels: Vec<&str> = path.expect("a path").labels.values().collect();
    assert_eq!(labels[..3], ["0000:00:05.0", "nic", "mlx5_9"]);
}

#[test]
fn a_virtual_function_on_its_host_has_a_device_and_names_its_physical_function() {
    for class in ["0x020000", "0x020700"] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (pf, vf) = ("0000:00:05.0", "0000:00:05.1");
        function(temp.path(), pf, ["0x15b3", "0x101b", class], "mlx5_0", "");
        function(temp.path(), vf, ["0x15b3", "0x101c", class], "mlx5_1", "");
        let bus = temp.path().join("sys/devices/pci0000:00");
        symlink(format!("../{pf}"), bus.join(vf).join("physfn")).expect("link");
        for (file, text) in [("sriov_totalvfs", "8"), ("sriov_numvfs", "1")] {
            fs::write(bus.join(pf).join(file), text).expect("write");
        }
        let expected = [
            "full max_virtual_functions mlx5_0,0000:00:05.0 8",
            "full sriov_info mlx5_1,0000:00:05.1,virtual,0000:00:05.0 1",
            "sriov_info mlx5_0,0000:00:05.0,physical, 1",
            "virtual_functions mlx5_0,0000:00:05.0 1",
        ];
        assert_eq!(lines(&sample(temp.path())), expected, "{class}");
    }
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
