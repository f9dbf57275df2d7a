//! PCIe functions of the fixture machines: identity, link, error counters, switches.

use super::tree::Tree;

/// Speeds as the kernel prints them.
pub(super) const GEN4: &str = "16.0 GT/s PCIe";
pub(super) const GEN5: &str = "32.0 GT/s PCIe";
pub(super) const GEN6: &str = "64.0 GT/s PCIe";
/// Class of a bridge to PCI.
pub(super) const BRIDGE: &str = "0x060400";

/// A PCI function with the files that every one has.
pub(super) fn function(
    tree: &mut Tree,
    path: &str,
    vendor: &str,
    device: &str,
    class: &str,
    numa_node: u8,
) {
    tree.file(format!("{path}/vendor"), vendor);
    tree.file(format!("{path}/device"), device);
    tree.file(format!("{path}/class"), class);
    tree.file(format!("{path}/numa_node"), numa_node);
    let (_, address) = path.rsplit_once('/').expect("a path");
    tree.link(&format!("sys/bus/pci/devices/{address}"), path);
}

/// A link of the fifth generation.
pub(super) fn pcie_link(tree: &mut Tree, path: &str, width: u8, max_width: u8) {
    link(tree, path, (width, GEN5), (max_width, GEN5));
}

/// Lanes and speed of a link: what it has, and what its end could.
pub(super) fn link(tree: &mut Tree, path: &str, current: (u8, &str), max: (u8, &str)) {
    for (which, (width, speed)) in [("current", current), ("max", max)] {
        tree.file(format!("{path}/{which}_link_width"), width);
        tree.file(format!("{path}/{which}_link_speed"), speed);
    }
}

pub(super) fn aer(tree: &mut Tree, path: &str, received: u64, bad_packets: u64) {
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

/// A kind of PCIe switch and of root port above it: vendor and device of both, and the speed of every link.
pub(super) struct Switch {
    pub(super) root_port: [&'static str; 2],
    pub(super) ports: [&'static str; 2],
    pub(super) speed: &'static str,
}

/// A root port and the switch below it; returns the paths of the switch's four downstream ports.
pub(super) fn pcie_switch(tree: &mut Tree, bus: u8, numa_node: u8, kind: &Switch) -> Vec<String> {
    let root = format!("sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0");
    let upstream = format!("{root}/0000:{:02x}:00.0", bus + 1);
    let downstream = (0..4).map(|port| format!("{upstream}/0000:{:02x}:{port:02x}.0", bus + 2));
    let downstream: Vec<String> = downstream.collect();
    let [vendor, device] = kind.root_port;
    function(tree, &root, vendor, device, BRIDGE, numa_node);
    let [vendor, device] = kind.ports;
    for port in [&upstream].into_iter().chain(&downstream) {
        function(tree, port, vendor, device, BRIDGE, numa_node);
    }
    for port in [&root, &upstream].into_iter().chain(&downstream) {
        link(tree, port, (16, kind.speed), (16, kind.speed));
        aer(tree, port, 0, 0);
    }
    downstream
}

/// A healthy device with all its 16 lanes: vendor, device, class and driver.
pub(super) fn endpoint(
    tree: &mut Tree,
    path: &str,
    [vendor, device, class, driver]: [&str; 4],
    speed: &str,
    numa_node: u8,
) {
    function(tree, path, vendor, device, class, numa_node);
    link(tree, path, (16, speed), (16, speed));
    aer(tree, path, 0, 0);
    tree.link(
        &format!("{path}/driver"),
        &format!("sys/bus/pci/drivers/{driver}"),
    );
}

pub(super) fn gpu_function(tree: &mut Tree, path: &str, device: &str, ordinal: u8, numa_node: u8) {
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

pub(super) fn nic_function(tree: &mut Tree, path: &str, device: &str, class: &str, numa_node: u8) {
    endpoint(
        tree,
        path,
        ["0x15b3", device, class, "mlx5_core"],
        GEN5,
        numa_node,
    );
}
