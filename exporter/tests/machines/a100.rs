//! A DGX A100 of which two GPUs are cut into MIG devices.

use super::gpus::State;
use super::host_files::{cpus, host};
use super::pcie::{GEN4, Switch, endpoint, function, pcie_switch};
use super::rdma::{Port, rdma_device};
use super::tree::Tree;

/// PCIe switches by their first bus, and the NUMA node that each is connected to.
const SWITCHES: [(u8, u8); 4] = [(0x01, 3), (0x40, 1), (0x80, 7), (0xb0, 5)];
/// Root ports of EPYC, and PLX switches.
const SWITCH: Switch = Switch {
    root_port: ["0x1022", "0x1483"],
    ports: ["0x1000", "0xc010"],
    speed: GEN4,
};
/// 40 GB of memory, as `nvidia-smi` shows it.
const MEMORY_MEBIBYTES: u64 = 40_536;

/// Two EPYC sockets of 64 cores, four NUMA nodes each; four PCIe switches with two GPUs and two NICs each;
/// six NVSwitches; two NICs of two ports for storage.
///
/// GPU 0 is cut in two (3g.20gb), GPU 1 in seven (1g.5gb), GPU 2 is to be cut at its next reset. `mlx5_4` has
/// trained down to half its lanes on the fabric, and `mlx5_9` is dark.
pub(super) fn dgx_a100_mig() -> Tree {
    let mut tree = Tree::default();
    tree.kernel("dgx-1", "0-255", "0-7");
    tree.cpu("fpu vme sse2 ht avx2 svm");
    tree.file("sys/class/dmi/id/sys_vendor", "NVIDIA");
    tree.file(
        "sys/class/dmi/id/product_name",
        "DGXA100 920-23687-2530-000",
    );
    let lists: [String; 8] = std::array::from_fn(|node| {
        format!(
            "{}-{},{}-{}",
            16 * node,
            16 * node + 15,
            128 + 16 * node,
            143 + 16 * node
        )
    });
    cpus(&mut tree, &lists.each_ref().map(String::as_str), 256);
    host(&mut tree, 256);
    let mut rail = 0;
    for (bus, numa_node) in SWITCHES {
        let below = pcie_switch(&mut tree, bus, numa_node, &SWITCH);
        for (port, path) in below.iter().enumerate() {
            let end = format!("{path}/0000:{:02x}:00.0", usize::from(bus) + 3 + port);
            if port < 2 {
                let a100 = ["0x10de", "0x20b0", "0x030200", "nvidia"];
                endpoint(&mut tree, &end, a100, GEN4, numa_node);
            } else {
                nic(&mut tree, &end, numa_node);
                infiniband(&mut tree, &end, rail);
                rail += 1;
            }
        }
    }
    for (slot, (bus, numa_node)) in [(0x61_u8, 2), (0xe1, 6)].into_iter().enumerate() {
        let root = format!(
            "sys/devices/pci0000:{:02x}/0000:{:02x}:01.1",
            bus - 1,
            bus - 1
        );
        endpoint(
            &mut tree,
            &root,
            ["0x1022", "0x1483", "0x060400", "pcieport"],
            GEN4,
            numa_node,
        );
        let card = format!("{root}/0000:{bus:02x}:00.0");
        nic(&mut tree, &card, numa_node);
        infiniband(&mut tree, &card, 8 + slot);
    }
    for slot in 0..6 {
        let path = format!(
            "sys/devices/pci0000:c3/0000:c3:0{}.0/0000:{:02x}:00.0",
            slot + 1,
            0xc4 + slot
        );
        function(&mut tree, &path, "0x10de", "0x1af1", "0x068000", 4);
    }
    tree.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.06  Release Build",
    );
    nvml(&mut tree);
    tree
}

fn nic(tree: &mut Tree, path: &str, numa_node: u8) {
    endpoint(
        tree,
        path,
        ["0x15b3", "0x101b", "0x020700", "mlx5_core"],
        GEN4,
        numa_node,
    );
}

fn infiniband(tree: &mut Tree, function: &str, rail: usize) {
    let name = format!("mlx5_{rail}");
    let up = rail != 9;
    let port = Port {
        name: &name,
        link_layer: "InfiniBand",
        state: if up { "4: ACTIVE" } else { "1: DOWN" },
        physical_state: if up { "5: LinkUp" } else { "3: Disabled" },
        rate: match rail {
            4 => "100 Gb/sec (2X HDR)",
            9 => "10 Gb/sec (4X SDR)",
            _ => "200 Gb/sec (4X HDR)",
        },
        seed: 0xa0 + rail as u64,
    };
    rdma_device(tree, function, &port, "MT4123", "MT_0000000223");
    let device = format!("{function}/infiniband/{name}");
    tree.file(format!("{device}/fw_ver"), "20.39.3560");
    let lid = if up { 0x210 + rail } else { 0 };
    tree.file(format!("{device}/ports/1/lid"), format!("{lid:#x}"));
    tree.file(
        format!("{device}/ports/1/sm_lid"),
        if up { "0x7" } else { "0x0" },
    );
    tree.file(format!("{function}/net/ib{rail}/dev_port"), 0);
}

/// 12 links of NVLink 3 to six switches: two to each.
fn nvml(tree: &mut Tree) {
    let address = |bus: u8| format!("0000:{bus:02x}:00.0");
    let gpus: Vec<String> = SWITCHES
        .iter()
        .flat_map(|(bus, _)| [address(bus + 3), address(bus + 4)])
        .collect();
    let mut state = State::of(gpus.len());
    for (key, value) in [
        ("name", "NVIDIA A100-SXM4-40GB"),
        ("pci_device_id", "0x20b010de"),
        ("vbios_version", "92.00.45.00.03"),
        ("architecture", "7"),
        ("cuda_capability_major", "8"),
        ("clock_sm_mhz", "1410"),
        ("clock_graphics_mhz", "1410"),
        ("clock_memory_mhz", "1215"),
        ("clock_sm_max_mhz", "1410"),
        ("clock_memory_max_mhz", "1215"),
        ("pcie_generation", "4"),
        ("pcie_generation_max", "4"),
        ("power_milliwatts", "371200"),
        ("power_limit_milliwatts", "400000"),
        ("power_limit_enforced_milliwatts", "400000"),
        ("power_limit_max_milliwatts", "400000"),
        ("power_limit_default_milliwatts", "400000"),
        ("memory_power_milliwatts", "unsupported"),
        ("fabric_state", "0"),
        ("links", "12"),
    ] {
        state.gpu("*", key, value);
    }
    state.gpu("*", "memory_total_bytes", MEMORY_MEBIBYTES << 20);
    state.gpu("*", "bar1_total_bytes", 65_536_u64 << 20);
    state.work(&gpus, |gpu| usize::from(SWITCHES[gpu / 2].1));
    state.gpu("*", "memory_used_bytes", 31_000_u64 << 20);
    state.nvlink("* *", "version", 4);
    state.nvlink("* *", "speed_megabytes_per_second", 25_000);
    state.nvlink("* *", "remote_pci_device_id", "0x1af110de");
    for link in 0..12_u8 {
        state.nvlink(
            &format!("* {link}"),
            "remote_pci_address",
            address(0xc4 + link % 6),
        );
    }
    state.traffic(gpus.len(), 12);
    for gpu in 0..2 {
        state.gpu(gpu, "mig_mode", true);
        // NVML has no utilization of a GPU that is cut.
        state.gpu(gpu, "fail nvmlDeviceGetUtilizationRates", 3);
    }
    for gpu in 0..3 {
        state.gpu(gpu, "mig_mode_pending", true);
    }
    for instance in 1..=2_u64 {
        let used = (instance * 4_001) << 20;
        state.gpu(
            0,
            "mig",
            format!("{instance} 0 3g.20gb {} {used} 0", 20_096_u64 << 20),
        );
    }
    for instance in 7..=13_u64 {
        let used = (instance * 101) << 20;
        state.gpu(
            1,
            "mig",
            format!("{instance} 0 1g.5gb {} {used} 0", 4_864_u64 << 20),
        );
    }
    state.write(tree);
}
