//! How PCIe functions are set up: configuration spaces and IOMMU groups of a whole machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::{copy, machine, our_root, sampler};
use railscope_model::reading::NodeReading;

const SWITCH: &str = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0";
const NIC: &str = "0000:17:00.0/0000:18:00.0";
const GPU: &str = "0000:17:01.0/0000:19:00.0";

/// A configuration space with a PCI Express capability and, of bridges, access control.
fn config(control: u16, access_control: Option<u16>) -> Vec<u8> {
    let mut space = vec![0; 4096];
    let mut write = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    write(0x06, &[0x10, 0x00]);
    write(0x34, &[0x60]);
    write(0x60, &[0x10, 0x00, 0x02, 0x00, 0x02]);
    write(0x68, &control.to_le_bytes());
    if let Some(controls) = access_control {
        write(0x100, &[0x0d, 0x00, 0x01, 0x00]);
        write(0x106, &controls.to_le_bytes());
    }
    space
}

/// Samples of one function as `name labels value`.
fn sample(root: &Path, function: &str) -> BTreeSet<String> {
    let mut reading = NodeReading::default();
    let mut pcie = sampler("pcie", &machine(root));
    pcie.sample(&mut reading).expect("a sample");
    let lines = reading.samples().iter().filter_map(|sample| {
        let name = sample.metric.name.strip_prefix("railscope_")?;
        let setup = [
            "max_payload",
            "max_read",
            "config",
            "acs",
            "iommu",
            "source_status",
        ];
        let labels: Vec<_> = sample.labels.values().collect();
        let ours = labels[0] == function || labels[1..].first() == Some(&function);
        let wanted = ours && setup.iter().any(|word| name.contains(word));
        wanted.then(|| format!("{name} {} {}", labels[1..].join(" "), sample.value.as_f64()))
    });
    lines.collect()
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn settings_of_an_endpoint_and_access_control_on_its_way_up() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let root = temp.path();
    copy(&our_root("hgx-h100-ib"), root);
    let switch = root.join(SWITCH);
    let write = |path: &Path, bytes: Vec<u8>| fs::write(path.join("config"), bytes).expect("write");
    // 256 byte payloads, reads of 512; relaxed ordering; the port above the GPU redirects, the NIC's does not.
    write(&switch.join(GPU), config(0x2130, None));
    write(&switch.join(NIC), config(0x5020, None));
    write(&switch.join("0000:17:00.0"), config(0x2030, Some(0x00)));
    write(&switch.join("0000:17:01.0"), config(0x2030, Some(0x1d)));
    write(&switch, config(0x2030, None));
    write(
        switch.parent().expect("the root port"),
        config(0x2030, Some(0x01)),
    );
    let group = root.join("sys/kernel/iommu_groups/41");
    fs::create_dir_all(&group).expect("mkdir");
    fs::write(group.join("type"), "DMA-FQ\n").expect("write");
    symlink(
        "../../../../../../kernel/iommu_groups/41",
        switch.join(GPU).join("iommu_group"),
    )
    .expect("link");

    let gpu = set(&[
        "pcie_max_payload_bytes  256",
        "pcie_max_payload_supported_bytes  512",
        "pcie_max_read_request_bytes  512",
        "pcie_config_info on on none 1",
        "pcie_acs_redirecting_hops  1",
        "pcie_iommu_info 41 DMA-FQ 1",
    ]);
    assert_eq!(sample(root, "0000:19:00.0"), gpu);
    let nic = set(&[
        "pcie_max_payload_bytes  256",
        "pcie_max_payload_supported_bytes  512",
        "pcie_max_read_request_bytes  4096",
        "pcie_config_info off off none 1",
        "pcie_acs_redirecting_hops  0",
    ]);
    assert_eq!(sample(root, "0000:18:00.0"), nic);
    let bridge = sample(root, "0000:17:01.0");
    let acs = "pcie_config_info on off source_validation+request_redirect+completion_redirect+upstream_forwarding 1";
    assert!(bridge.contains(acs), "{bridge:?}");

    // A sleeping port is left asleep: then its effect on the GPU's packets is unknown.
    let power = switch.join("0000:17:01.0/power");
    fs::create_dir_all(&power).expect("mkdir");
    fs::write(power.join("runtime_status"), "suspended\n").expect("write");
    assert_eq!(sample(root, "0000:17:01.0"), set(&[]));
    let unknown = sample(root, "0000:19:00.0");
    assert!(
        !unknown.iter().any(|line| line.contains("acs_redirecting")),
        "{unknown:?}"
    );
}

#[test]
fn without_the_right_to_read_it_there_is_one_status_and_no_setting() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root("hgx-h100-ib"), temp.path());
    let space = config(0x2130, None)[..64].to_vec();
    for function in [GPU, NIC] {
        let path = temp.path().join(SWITCH).join(function).join("config");
        fs::write(path, &space).expect("write");
    }
    assert_eq!(sample(temp.path(), "0000:19:00.0"), set(&[]));
    let status = set(&["source_status config denied 1"]);
    assert_eq!(sample(temp.path(), "config"), status);
}
