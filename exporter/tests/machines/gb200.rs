//! A compute tray of a GB200 NVL72 rack: two Grace CPUs, four Blackwell GPUs, four ConnectX-8, two BlueField-3.

use super::gpus::State;
use super::host_files::{cpus, host};
use super::pcie::{BRIDGE, GEN5, GEN6, endpoint, function, link};
use super::rdma::{Port, rdma_device};
use super::roce::netdev;
use super::tree::Tree;

/// Each root complex of Grace is a separate PCI domain. Domain of each GPU, and the NUMA node of its memory.
const GPUS: [(u16, u8); 4] = [(0x08, 2), (0x09, 10), (0x18, 18), (0x19, 26)];
/// Domains of the NICs on the fabric between racks, by rail.
const NICS: [u16; 4] = [0x00, 0x02, 0x10, 0x12];
/// Domains of the BlueFields.
const STORAGE: [u16; 2] = [0x06, 0x16];
const LINKS: usize = 18;

/// 144 Arm cores on two NUMA nodes, and four more of memory only: the GPUs' own, which CPUs reach by C2C.
/// The GPUs support PCIe 6, Grace supports 5; the NICs' own switches support 6 down to the NIC.
///
/// GPU 2 is not reachable over NVLink as it should be: link 7 recovers repeatedly, and its fabric reports it.
/// Rail 3 runs at half its width. One function belongs to the Fabric Manager: none of its counters is to be read.
pub(super) fn gb200_nvl72_tray() -> Tree {
    let mut tree = Tree::default();
    tree.kernel("rack2-tray9", "0-143", "0-2,10,18,26");
    tree.file("proc/sys/kernel/osrelease", "6.8.0-1028-nvidia-64k");
    tree.file("proc/sys/kernel/arch", "aarch64");
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes sve2",
    );
    tree.file("sys/class/dmi/id/sys_vendor", "NVIDIA");
    tree.file("sys/class/dmi/id/product_name", "GB200 NVL");
    cpus(&mut tree, &["0-71", "72-143"], 144);
    host(&mut tree, 144);
    for (domain, memory) in GPUS {
        tree.file(format!("sys/devices/system/node/node{memory}/cpulist"), "");
        let card = format!("{}/{domain:04x}:01:00.0", root_port(&mut tree, domain));
        let blackwell = ["0x10de", "0x2941", "0x030200", "nvidia"];
        endpoint(&mut tree, &card, blackwell, GEN5, socket(domain));
        link(&mut tree, &card, (16, GEN5), (16, GEN6));
    }
    for (rail, domain) in NICS.into_iter().enumerate() {
        let root = root_port(&mut tree, domain);
        let upstream = format!("{root}/{domain:04x}:01:00.0");
        let downstream = format!("{upstream}/{domain:04x}:02:00.0");
        for port in [&upstream, &downstream] {
            endpoint(
                &mut tree,
                port,
                ["0x15b3", "0x197c", BRIDGE, "pcieport"],
                GEN6,
                socket(domain),
            );
        }
        link(&mut tree, &upstream, (16, GEN5), (16, GEN6));
        let card = format!("{downstream}/{domain:04x}:03:00.0");
        endpoint(
            &mut tree,
            &card,
            ["0x15b3", "0x1023", "0x020700", "mlx5_core"],
            GEN6,
            socket(domain),
        );
        infiniband(&mut tree, &card, rail);
    }
    for (slot, domain) in STORAGE.into_iter().enumerate() {
        bluefield(&mut tree, domain, slot);
    }
    bridge(&mut tree);
    for module in ["nvidia", "nvidia_peermem"] {
        tree.file(format!("sys/module/{module}/refcnt"), 0);
    }
    tree.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build",
    );
    nvml(&mut tree);
    tree
}

const fn socket(domain: u16) -> u8 {
    (domain >= 0x10) as u8
}

/// The only port of a root complex, which belongs to the first or the second CPU.
fn root_port(tree: &mut Tree, domain: u16) -> String {
    let path = format!("sys/devices/pci{domain:04x}:00/{domain:04x}:00:00.0");
    endpoint(
        tree,
        &path,
        ["0x10de", "0x22b1", BRIDGE, "pcieport"],
        GEN5,
        socket(domain),
    );
    path
}

fn infiniband(tree: &mut Tree, function: &str, rail: usize) {
    let name = format!("mlx5_{rail}");
    let port = Port {
        name: &name,
        link_layer: "InfiniBand",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: if rail == 3 {
            "400 Gb/sec (2X XDR)"
        } else {
            "800 Gb/sec (4X XDR)"
        },
        seed: 0xc0 + rail as u64,
    };
    rdma_device(tree, function, &port, "MT4131", "MT_0000001069");
    let device = format!("{function}/infiniband/{name}");
    tree.file(format!("{device}/fw_ver"), "40.45.1200");
    tree.file(
        format!("{device}/ports/1/lid"),
        format!("{:#x}", 0x301 + rail),
    );
    tree.file(format!("{device}/ports/1/sm_lid"), "0x3");
    tree.file(format!("{function}/net/ibp3s0d{rail}/dev_port"), 0);
}

/// A BlueField-3 with one 200 Gb/s Ethernet port in use, for storage.
fn bluefield(tree: &mut Tree, domain: u16, slot: usize) {
    let card = format!("{}/{domain:04x}:01:00.0", root_port(tree, domain));
    endpoint(
        tree,
        &card,
        ["0x15b3", "0xa2dc", "0x020000", "mlx5_core"],
        GEN5,
        socket(domain),
    );
    let (name, interface) = (
        format!("mlx5_{}", 5 + slot),
        format!("enP{domain}p1s0f0np0"),
    );
    netdev(tree, &card, &interface, 3 + slot, 200_000, true);
    let port = Port {
        name: &name,
        link_layer: "Ethernet",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: "200 Gb/sec (4X HDR)",
        seed: 0xd0 + slot as u64,
    };
    rdma_device(tree, &card, &port, "MT41692", "MT_0000000884");
    let device = format!("{card}/infiniband/{name}");
    tree.file(format!("{device}/fw_ver"), "32.43.2566");
    tree.file(format!("{device}/ports/1/gid_attrs/ndevs/0"), &interface);
    let seed = port.seed;
    tree.file(
        format!("network/{interface}/stats"),
        format!(
            "NIC statistics:\n     rx_packets: {}\n     rx_out_of_buffer: {slot}\n     rx_discards_phy: 0\n     \
             rx_bits_phy: {}\n     rx_corrected_bits_phy: {}\n     link_down_events_phy: {slot}",
            1_000_003 * seed,
            72_000_007 * seed,
            11 * seed
        ),
    );
}

/// A function that represents NVSwitches, according to its vital product data. Reading its counters fills the
/// kernel log, so they hold a number that must not be exported.
fn bridge(tree: &mut Tree) {
    let card = format!("{}/0005:01:00.0", root_port(tree, 0x05));
    function(tree, &card, "0x15b3", "0x1021", "0x020700", 0);
    tree.file(format!("{card}/vpd"), "NVLink bridge V1 SMDL=SW_MNG RV");
    tree.link(&format!("{card}/driver"), "sys/bus/pci/drivers/mlx5_core");
    let port = Port {
        name: "mlx5_4",
        link_layer: "InfiniBand",
        state: "4: ACTIVE",
        physical_state: "5: LinkUp",
        rate: "400 Gb/sec (4X NDR)",
        seed: 0xe0,
    };
    rdma_device(tree, &card, &port, "MT4129", "MT_0000001171");
    let counters = format!("{card}/infiniband/mlx5_4/ports/1/counters");
    tree.file(format!("{counters}/port_xmit_data"), 666_666_666);
}

fn nvml(tree: &mut Tree) {
    let mut state = State::of(GPUS.len());
    for (key, value) in [
        ("name", "NVIDIA GB200"),
        ("pci_device_id", "0x294110de"),
        ("vbios_version", "97.00.B9.00.69"),
        ("architecture", "10"),
        ("cuda_capability_major", "10"),
        ("memory_total_bytes", "198441959424"),
        ("pcie_generation", "5"),
        ("pcie_generation_max", "5"),
        ("power_milliwatts", "1012340"),
        ("power_limit_milliwatts", "1200000"),
        ("power_limit_enforced_milliwatts", "1200000"),
        ("power_limit_max_milliwatts", "1200000"),
        ("power_limit_default_milliwatts", "1200000"),
        (
            "fabric_cluster_uuid",
            "0x2b 0x5e 0x11 0x7a 1 2 3 4 5 6 7 8 9 10 11 12",
        ),
        ("fabric_clique_id", "32766"),
        // All four two-bit fields are "no", and the configuration is right.
        ("fabric_health_mask", "0x1aa"),
        ("fabric_health_summary", "1"),
        ("platform_chassis_serial", "1820124009999"),
        ("platform_slot", "12"),
        ("platform_tray", "9"),
        ("platform_host", "1"),
        ("c2c_links", "10"),
        ("c2c_speed_megabytes_per_second", "44712"),
        ("gpm", "true"),
    ] {
        state.gpu("*", key, value);
    }
    let addresses = GPUS.map(|(domain, _)| format!("{domain:04x}:01:00.0"));
    state.work(&addresses, |gpu| gpu / 2);
    for (gpu, (_, memory)) in GPUS.into_iter().enumerate() {
        state.gpu(gpu, "numa_node_id", memory);
        state.gpu(gpu, "module_power_milliwatts", 1_400_500 + 1_001 * gpu);
        state.gpu(
            gpu,
            "platform_guid",
            format!("0x3c 0x6d 0x66 0 0 0 0x0b {gpu}"),
        );
        state.nvlink(&format!("{gpu} *"), "version", 7);
        state.nvlink(&format!("{gpu} *"), "speed_megabytes_per_second", 53_125);
        // The switches are in separate trays: the node sees no PCI function of theirs.
        state.nvlink(&format!("{gpu} *"), "remote_pci_address", "0000:00:00.0");
        for number in 0..LINKS {
            let (which, bytes) = (
                format!("{gpu} {number}"),
                1_000_000_007 * (gpu + 1) + 4_099 * number,
            );
            state.nvlink(&which, "transmit_bytes", bytes);
            state.nvlink(&which, "receive_bytes", bytes - 128);
            state.nvlink(&which, "transmit_packets", bytes / 256);
            state.nvlink(&which, "receive_packets", bytes / 256 - 1);
            state.nvlink(&which, "fec_history", format!("{} {number} 1", bytes * 16));
        }
    }
    // Bandwidth is degraded: the lowest two bits.
    state.gpu(2, "fabric_health_mask", "0x1a9");
    state.gpu(2, "fabric_health_summary", 3);
    for (key, value) in [
        ("recoveries", 41),
        ("recoveries_successful", 40),
        ("recoveries_failed", 1),
        ("symbol_errors", 9_001),
        ("symbol_ber_packed", 0x50f),
    ] {
        state.nvlink("2 7", key, value);
    }
    state.write(tree);
}
