//! The fixture machines under `tests/machines` and the generator that wrote them.
//!
//! They are our own, synthetic after real machines: an HGX H100 server on InfiniBand, an HGX H200
//! server on RoCE, a tray of a GB200 rack, a partitioned DGX A100, a cloud instance with EFA, and others.
//! Each is a tree of `/sys` and `/proc`, what its network drivers report, and the state of its NVML (`nvml.state`).
//! `UPDATE_EXPECT=1` rewrites them.
mod a100;
mod efa;
mod gb200;
mod gpus;
mod host_files;
mod pcie;
mod rdma;
mod roce;
mod tree;
mod vm;

use std::path::PathBuf;

use host_files::{cpus, host, storage};
use pcie::{GEN5, Switch, aer, function, gpu_function, nic_function, pcie_link, pcie_switch};
use rdma::{infiniband, storage_bond};
use tree::{Tree, read, write};

/// A machine with nothing but a kernel.
fn bare() -> Tree {
    let mut tree = Tree::default();
    tree.kernel("bare-1", "0-7", "0");
    cpus(&mut tree, &["0-7"], 8);
    tree.cpu("fpu vme sse2 ht");
    tree
}

/// An HGX H100 server: two sockets, two PCIe switches on each, two GPUs and two 400 Gb/s InfiniBand
/// NICs behind each switch, four NVSwitches, an Ethernet bond for storage, and a BMC's VGA function.
///
/// Among the healthy parts are the cases that an exporter must not get wrong: GPU 5's link runs at
/// half width with correctable errors; `mlx5_3` has counted link errors and its `link_downed` is at
/// the end of its eight bits; one counter of `mlx5_6` prints `N/A (no PMA)`; `mlx5_7` is down.
fn hgx_h100_ib() -> Tree {
    let mut tree = hgx(
        "hgx-1",
        "HGX H100 8-GPU",
        "0x2330",
        |tree, nic, rail, numa_node| {
            nic_function(tree, nic, "0x1021", "0x020700", numa_node);
            infiniband(tree, nic, rail);
        },
    );
    storage_bond(&mut tree);
    gpus::hgx(&mut tree, &gpus::H100);
    tree
}

/// Root ports of Sapphire Rapids, and the switches below them.
const SWITCH: Switch = Switch {
    root_port: ["0x8086", "0x352a"],
    ports: ["0x1000", "0xc030"],
    speed: GEN5,
};

/// An HGX server without its NICs' own files, which `nic` adds for each path, rail and NUMA node.
fn hgx(
    node: &str,
    product: &str,
    gpu_device: &str,
    nic: impl Fn(&mut Tree, &str, usize, u8),
) -> Tree {
    let mut tree = Tree::default();
    tree.kernel(node, "0-223", "0-1");
    tree.cpu("fpu vme sse2 ht avx512f amx_tile");
    tree.file("sys/class/dmi/id/sys_vendor", "Example Systems");
    tree.file("sys/class/dmi/id/product_name", product);
    let mut gpu = 0;
    for (place, (bus, numa_node)) in [(0x15_u8, 0), (0x37, 0), (0x97, 1), (0xb7, 1)]
        .into_iter()
        .enumerate()
    {
        let below = pcie_switch(&mut tree, bus, numa_node, &SWITCH);
        for slot in 0..2_u8 {
            let port = 2 * slot;
            let path = format!(
                "{}/0000:{:02x}:00.0",
                below[usize::from(port)],
                bus + 3 + port
            );
            nic(&mut tree, &path, 2 * place + usize::from(slot), numa_node);
            let card = format!(
                "{}/0000:{:02x}:00.0",
                below[usize::from(port) + 1],
                bus + 4 + port
            );
            gpu_function(&mut tree, &card, gpu_device, gpu, numa_node);
            gpu += 1;
        }
        if bus == 0x97 {
            // GPU 5's downstream port sees the same half link as the GPU.
            pcie_link(&mut tree, &below[3], 8, 16);
            aer(&mut tree, &below[3], 0, 41);
        }
    }
    storage_bond(&mut tree);
    cpus(&mut tree, &["0-55,112-167", "56-111,168-223"], 224);
    host(&mut tree, 224);
    storage(&mut tree);
    for slot in 0..4_u8 {
        let path = format!(
            "sys/devices/pci0000:57/0000:57:0{}.0/0000:{:02x}:00.0",
            slot + 1,
            0x58 + slot
        );
        function(&mut tree, &path, "0x10de", "0x22a3", "0x068000", 0);
    }
    let vga = "sys/devices/pci0000:00/0000:00:1c.0/0000:02:00.0";
    function(&mut tree, vga, "0x1a03", "0x2000", "0x030000", 0);
    tree
}

#[test]
fn the_committed_machines_are_what_the_generator_writes() {
    let machines = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/machines");
    for (name, tree) in [
        ("bare", bare()),
        ("hgx-h100-ib", hgx_h100_ib()),
        ("hgx-h200-roce", roce::hgx_h200_roce()),
        ("vm-vf-passthrough", vm::vm_vf_passthrough()),
        ("efa-p5", efa::efa_p5()),
        ("gb200-nvl72-tray", gb200::gb200_nvl72_tray()),
        ("dgx-a100-mig", a100::dgx_a100_mig()),
    ] {
        assert!(tree.0.len() < 2000, "{name}: {} files", tree.0.len());
        let root = machines.join(name);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            write(&tree, &root);
        }
        let mut found = Tree::default();
        read(&root, "", &mut found);
        for (path, entry) in &tree.0 {
            assert_eq!(found.0.remove(path).as_ref(), Some(entry), "{name}/{path}");
        }
        assert!(found.0.is_empty(), "{name}: {:?}", found.0.keys());
    }
}
