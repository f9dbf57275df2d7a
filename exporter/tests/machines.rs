//! The fixture machines under `tests/machines` and the generator that wrote them.
//!
//! They are ours, made up after the shape of the real thing: an HGX H100 server on InfiniBand, an HGX H200
//! server on RoCE, a cloud instance with EFA, and others. `UPDATE_EXPECT=1` writes them anew.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "machines/efa.rs"]
mod efa;
#[path = "machines/host_files.rs"]
mod host_files;
#[path = "machines/roce.rs"]
mod roce;
#[path = "machines/vm.rs"]
mod vm;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use host_files::{cpus, host, storage};

/// What stands at one path of a tree.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    File(String),
    Link(String),
}

/// A tree of files, by path below the machine's root.
#[derive(Default)]
struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// A file with one line, as the kernel prints it.
    fn file(&mut self, path: impl Into<String>, text: impl std::fmt::Display) {
        self.0.insert(path.into(), Entry::File(format!("{text}\n")));
    }

    /// A link from one path of the tree to another, relative as in sysfs.
    fn link(&mut self, path: &str, target: &str) {
        let from: Vec<&str> = path.split('/').collect();
        let to: Vec<&str> = target.split('/').collect();
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let up = "../".repeat(from.len() - 1 - common);
        let relative = format!("{up}{}", to[common..].join("/"));
        self.0.insert(path.to_owned(), Entry::Link(relative));
    }

    /// The flags of the first CPU; the others have the same.
    fn cpu(&mut self, flags: &str) {
        self.file(
            "proc/cpuinfo",
            format!("processor\t: 0\nflags\t\t: {flags}\n"),
        );
    }

    fn kernel(&mut self, node: &str, cpus: &str, numa_nodes: &str) {
        self.file("proc/sys/kernel/hostname", node);
        self.file("proc/sys/kernel/osrelease", "6.8.0-60-generic");
        self.file("proc/sys/kernel/arch", "x86_64");
        self.file("sys/devices/system/cpu/online", cpus);
        self.file("sys/devices/system/node/online", numa_nodes);
    }
}

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
/// Among the healthy parts stand the cases that an exporter must not get wrong: GPU 5's link runs at
/// half width with correctable errors; `mlx5_3` has counted link errors and its `link_downed` stands at
/// the end of its eight bits; one counter of `mlx5_6` says `N/A (no PMA)`; `mlx5_7` is down.
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
    tree
}

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
        let below = pcie_switch(&mut tree, bus, numa_node);
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
    }
    storage_bond(&mut tree);
    cpus(&mut tree, &["0-55,112-167", "56-111,168-223"], 224);
    host(&mut tree);
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

/// A PCI function with the files that every one has.
fn function(tree: &mut Tree, path: &str, vendor: &str, device: &str, class: &str, numa_node: u8) {
    tree.file(format!("{path}/vendor"), vendor);
    tree.file(format!("{path}/device"), device);
    tree.file(format!("{path}/class"), class);
    tree.file(format!("{path}/numa_node"), numa_node);
    let (_, address) = path.rsplit_once('/').expect("a path");
    tree.link(&format!("sys/bus/pci/devices/{address}"), path);
}

fn pcie_link(tree: &mut Tree, path: &str, width: u8, max_width: u8) {
    tree.file(format!("{path}/current_link_width"), width);
    tree.file(format!("{path}/max_link_width"), max_width);
    tree.file(format!("{path}/current_link_speed"), "32.0 GT/s PCIe");
    tree.file(format!("{path}/max_link_speed"), "32.0 GT/s PCIe");
}

fn aer(tree: &mut Tree, path: &str, received: u64, bad_packets: u64) {
    let correctable = [
        ("RxErr", received),
        ("BadTLP", bad_packets),
        ("BadDLLP", 0),
        ("Rollover", 0),
        ("Timeout", 0),
        ("NonFatalErr", 0),
        ("CorrIntErr", 0),
        ("HeaderOF", 0),
        ("TOTAL_ERR_COR", received + bad_packets),
    ];
    let uncorrectable = [
        "Undefined",
        "DLP",
        "SDES",
        "TLP",
        "FCP",
        "CmpltTO",
        "CmpltAbrt",
        "UnxCmplt",
        "RxOF",
        "MalfTLP",
        "ECRC",
        "UnsupReq",
        "ACSViol",
        "UncorrIntErr",
        "BlockedTLP",
        "AtomicOpBlocked",
        "TLPBlockedErr",
        "PoisonTLPBlocked",
    ];
    let table = |rows: &mut dyn Iterator<Item = (&str, u64)>| {
        let rows: Vec<String> = rows
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        rows.join("\n")
    };
    tree.file(
        format!("{path}/aer_dev_correctable"),
        table(&mut correctable.into_iter()),
    );
    for (file, total) in [
        ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"),
        ("aer_dev_fatal", "TOTAL_ERR_FATAL"),
    ] {
        let names = uncorrectable.into_iter().chain([total]);
        tree.file(
            format!("{path}/{file}"),
            table(&mut names.map(|name| (name, 0))),
        );
    }
}

/// A root port and the switch below it; returns the paths of the switch's four downstream ports.
fn pcie_switch(tree: &mut Tree, bus: u8, numa_node: u8) -> Vec<String> {
    let root = format!("sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0");
    let upstream = format!("{root}/0000:{:02x}:00.0", bus + 1);
    let downstream = (0..4).map(|port| format!("{upstream}/0000:{:02x}:{port:02x}.0", bus + 2));
    let downstream: Vec<String> = downstream.collect();
    function(tree, &root, "0x8086", "0x352a", "0x060400", numa_node);
    for port in [&upstream].into_iter().chain(&downstream) {
        function(tree, port, "0x1000", "0xc030", "0x060400", numa_node);
    }
    for port in [&root, &upstream].into_iter().chain(&downstream) {
        // GPU 5's downstream port sees the same half link as the GPU.
        let width = if port.ends_with("0000:99:03.0") {
            8
        } else {
            16
        };
        pcie_link(tree, port, width, 16);
        aer(tree, port, 0, if width == 8 { 41 } else { 0 });
    }
    downstream
}

fn gpu_function(tree: &mut Tree, path: &str, device: &str, ordinal: u8, numa_node: u8) {
    function(tree, path, "0x10de", device, "0x030200", numa_node);
    let degraded = ordinal == 5;
    pcie_link(tree, path, if degraded { 8 } else { 16 }, 16);
    aer(
        tree,
        path,
        if degraded { 1207 } else { 0 },
        if degraded { 12 } else { 0 },
    );
    tree.link(&format!("{path}/driver"), "sys/bus/pci/drivers/nvidia");
}

fn nic_function(tree: &mut Tree, path: &str, device: &str, class: &str, numa_node: u8) {
    function(tree, path, "0x15b3", device, class, numa_node);
    pcie_link(tree, path, 16, 16);
    aer(tree, path, 0, 0);
    tree.link(&format!("{path}/driver"), "sys/bus/pci/drivers/mlx5_core");
}

/// What differs between the ports of the server.
struct Port<'a> {
    name: &'a str,
    link_layer: &'a str,
    state: &'a str,
    physical_state: &'a str,
    rate: &'a str,
    /// Lower half of the GUIDs and scale of the counters.
    seed: u64,
}

fn infiniband(tree: &mut Tree, function: &str, rail: usize) {
    let name = format!("mlx5_{rail}");
    let up = rail != 7;
    let port = Port {
        name: &name,
        link_layer: "InfiniBand",
        state: if up { "4: ACTIVE" } else { "1: DOWN" },
        physical_state: if up { "5: LinkUp" } else { "2: Polling" },
        rate: if up {
            "400 Gb/sec (4X NDR)"
        } else {
            "10 Gb/sec (4X SDR)"
        },
        seed: 0x20 + rail as u64,
    };
    rdma_device(tree, function, &port, "MT4129", "MT_0000000838");
    let path = format!("{function}/infiniband/{name}/ports/1");
    tree.file(
        format!("{path}/lid"),
        format!("{:#x}", if up { 0x140 + rail } else { 0 }),
    );
    tree.file(format!("{path}/sm_lid"), if up { "0x1" } else { "0x0" });
    tree.file(format!("{function}/net/ibp{rail}s0/dev_port"), 0);
    match rail {
        3 => {
            tree.file(format!("{path}/counters/symbol_error"), 4711);
            tree.file(format!("{path}/counters/link_error_recovery"), 9);
            tree.file(format!("{path}/counters/link_downed"), 255);
            tree.file(format!("{path}/hw_counters/local_ack_timeout_err"), 118);
        }
        6 => tree.file(format!("{path}/counters/VL15_dropped"), "N/A (no PMA)"),
        _ => {}
    }
}

/// Two 100 Gb/s Ethernet ports of one card as one bonded RDMA device, on a root port of its own.
fn storage_bond(tree: &mut Tree) {
    let root = "sys/devices/pci0000:27/0000:27:01.0";
    function(tree, root, "0x8086", "0x352a", "0x060400", 0);
    pcie_link(tree, root, 16, 16);
    let card = format!("{root}/0000:28:00.0");
    nic_function(tree, &card, "0x101d", "0x020000", 0);
    nic_function(
        tree,
        &format!("{root}/0000:28:00.1"),
        "0x101d",
        "0x020000",
        0,
    );
    let port = Port {
        name: "mlx5_bond_0",
        link_layer: "Ethernet",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: "200 Gb/sec (2X NDR)",
        seed: 0x90,
    };
    rdma_device(tree, &card, &port, "MT4125", "MT_0000000359");
    let path = format!("{card}/infiniband/mlx5_bond_0/ports/1");
    tree.file(format!("{path}/gid_attrs/ndevs/0"), "bond0");
    for (counter, value) in [
        ("np_cnp_sent", 51_203),
        ("np_ecn_marked_roce_packets", 51_977),
        ("rp_cnp_handled", 48_811),
        ("rp_cnp_ignored", 0),
    ] {
        tree.file(format!("{path}/hw_counters/{counter}"), value);
    }
}

fn rdma_device(tree: &mut Tree, function: &str, port: &Port<'_>, hca_type: &str, board: &str) {
    let device = format!("{function}/infiniband/{}", port.name);
    tree.link(&format!("sys/class/infiniband/{}", port.name), &device);
    tree.link(&format!("{device}/device"), function);
    let guid = format!("9c63:c003:00a1:{:04x}", port.seed);
    for (file, text) in [
        ("node_guid", guid.as_str()),
        ("sys_image_guid", &guid),
        ("board_id", board),
        ("fw_ver", "28.41.1000"),
        ("hca_type", hca_type),
    ] {
        tree.file(format!("{device}/{file}"), text);
    }
    let path = format!("{device}/ports/1");
    for (file, text) in [
        ("state", port.state),
        ("phys_state", port.physical_state),
        ("rate", port.rate),
        ("link_layer", port.link_layer),
        ("gids/0", &format!("fe80:0000:0000:0000:{guid}")),
    ] {
        tree.file(format!("{path}/{file}"), text);
    }
    counters(tree, &path, port.seed);
}

/// Counters that differ from port to port; errors are zero until a caller writes others.
fn counters(tree: &mut Tree, path: &str, seed: u64) {
    let traffic = 10_000_000_007 * seed;
    for (file, value) in [
        ("port_xmit_data", 1021 * traffic),
        ("port_rcv_data", 1019 * traffic),
        ("port_xmit_packets", traffic),
        ("port_rcv_packets", traffic - seed),
        ("unicast_xmit_packets", traffic),
        ("unicast_rcv_packets", traffic - seed),
        ("multicast_xmit_packets", seed),
        ("multicast_rcv_packets", 3 * seed),
        ("port_xmit_wait", 1009 * seed),
    ] {
        tree.file(format!("{path}/counters/{file}"), value);
    }
    for file in [
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_switch_relay_errors",
        "port_xmit_discards",
        "port_xmit_constraint_errors",
        "port_rcv_constraint_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "VL15_dropped",
    ] {
        tree.file(format!("{path}/counters/{file}"), 0);
    }
    for (file, value) in [
        ("lifespan", 10),
        ("rx_write_requests", (7919 * traffic) & 0xffff_ffff),
        ("rx_read_requests", 104_729 * seed),
        ("out_of_sequence", seed % 5),
        ("roce_adp_retrans", seed % 3),
        // Read by nobody: no row of the driver's table has this name.
        ("vendor_private", 1),
    ] {
        tree.file(format!("{path}/hw_counters/{file}"), value);
    }
    for file in [
        "rx_atomic_requests",
        "rx_dct_connect",
        "out_of_buffer",
        "duplicate_request",
        "rnr_nak_retry_err",
        "packet_seq_err",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "resp_local_length_error",
        "resp_cqe_error",
        "req_cqe_error",
        "req_remote_invalid_request",
        "req_remote_access_errors",
        "resp_remote_access_errors",
        "resp_cqe_flush_error",
        "req_cqe_flush_error",
        "req_transport_retries_exceeded",
        "req_rnr_retries_exceeded",
        "roce_adp_retrans_to",
        "roce_slow_restart",
        "roce_slow_restart_cnps",
        "roce_slow_restart_trans",
        "rx_icrc_encapsulated",
    ] {
        tree.file(format!("{path}/hw_counters/{file}"), 0);
    }
}

fn write(tree: &Tree, root: &Path) {
    if root.exists() {
        fs::remove_dir_all(root).expect("remove the old tree");
    }
    for (path, entry) in &tree.0 {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        match entry {
            Entry::File(text) => fs::write(&path, text).expect("write"),
            Entry::Link(target) => std::os::unix::fs::symlink(target, &path).expect("link"),
        }
    }
}

fn read(root: &Path, below: &str, into: &mut Tree) {
    for entry in fs::read_dir(root.join(below)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            read(root, &path, into);
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path()).expect("a link");
            let target = target.to_str().expect("a target").to_owned();
            into.0.insert(path, Entry::Link(target));
        } else {
            let text = fs::read_to_string(entry.path()).expect("a file");
            into.0.insert(path, Entry::File(text));
        }
    }
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
