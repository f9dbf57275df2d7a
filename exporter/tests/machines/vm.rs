//! A virtual machine: one GPU passed through, and one virtual function of the host's NIC.

use super::gpus;
use super::host_files::cpus;
use super::pcie::{aer, function, pcie_link};
use super::rdma::{Port, rdma_device};
use super::tree::Tree;

/// 16 virtual CPUs on KVM. Each device is below its own emulated root port, so nothing here
/// shows how close the two are on the host; no node of theirs is known, and the virtual function reports
/// no PCIe link and sees no physical function.
pub(super) fn vm_vf_passthrough() -> Tree {
    let mut tree = Tree::default();
    tree.kernel("vm-1", "0-15", "0");
    cpus(&mut tree, &["0-15"], 16);
    tree.cpu("fpu vme sse2 ht hypervisor avx512f");
    tree.file("sys/class/dmi/id/sys_vendor", "QEMU");
    tree.file(
        "sys/class/dmi/id/product_name",
        "Standard PC (Q35 + ICH9, 2009)",
    );
    let gpu = behind_root_port(&mut tree, 2, 1);
    device(&mut tree, &gpu, ["0x10de", "0x2330", "0x030200", "nvidia"]);
    pcie_link(&mut tree, &gpu, 16, 16);
    aer(&mut tree, &gpu, 0, 0);

    let vf = behind_root_port(&mut tree, 3, 2);
    device(
        &mut tree,
        &vf,
        ["0x15b3", "0x101e", "0x020700", "mlx5_core"],
    );
    pcie_link(&mut tree, &vf, 0, 0);
    let port = Port {
        name: "mlx5_0",
        link_layer: "InfiniBand",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: "400 Gb/sec (4X NDR)",
        seed: 0x40,
    };
    rdma_device(&mut tree, &vf, &port, "MT4126", "MT_0000000838");
    tree.file(format!("{vf}/net/ib0/dev_port"), 0);
    tree.file(format!("{vf}/net/ib0/mtu"), 4092);
    tree.link("sys/class/net/ib0", &format!("{vf}/net/ib0"));
    gpus::passed_through(&mut tree);
    tree
}

/// The path of a device below an emulated root port.
fn behind_root_port(tree: &mut Tree, slot: u8, bus: u8) -> String {
    let root = format!("sys/devices/pci0000:00/0000:00:{slot:02x}.0");
    function(tree, &root, "0x1b36", "0x000c", "0x060400", 0);
    tree.file(format!("{root}/numa_node"), -1);
    format!("{root}/0000:{bus:02x}:00.0")
}

/// A device that names no NUMA node; vendor, device, class and driver.
fn device(tree: &mut Tree, path: &str, [vendor, device, class, driver]: [&str; 4]) {
    function(tree, path, vendor, device, class, 0);
    tree.file(format!("{path}/numa_node"), -1);
    tree.link(
        &format!("{path}/driver"),
        &format!("sys/bus/pci/drivers/{driver}"),
    );
}
