//! State of the NVML of the fixture machines: `nvml.state`, the text that the mock library reads.

use super::tree::Tree;

/// Lines of a state file.
#[derive(Default)]
pub(super) struct State(Vec<String>);

impl State {
    /// So many GPUs, each with the mock's defaults until a line overrides them.
    pub(super) fn of(gpus: usize) -> Self {
        Self(vec![format!("gpus {gpus}")])
    }

    /// A key of one GPU (`3`) or of all (`*`).
    pub(super) fn gpu(
        &mut self,
        gpu: impl std::fmt::Display,
        key: &str,
        value: impl std::fmt::Display,
    ) {
        self.0.push(format!("gpu {gpu} {key} {value}"));
    }

    /// A key of one NVLink (`3 17`) or of several (`* *`).
    pub(super) fn nvlink(&mut self, which: &str, key: &str, value: impl std::fmt::Display) {
        self.0.push(format!("nvlink {which} {key} {value}"));
    }

    /// Values that differ from GPU to GPU, so that no two can be taken for each other.
    pub(super) fn work(&mut self, addresses: &[String], numa_node: impl Fn(usize) -> usize) {
        for (gpu, address) in addresses.iter().enumerate() {
            self.gpu(gpu, "pci_address", address);
            self.gpu(gpu, "host_numa_node", numa_node(gpu));
            self.gpu(gpu, "temperature_celsius", 51 + gpu);
            self.gpu(
                gpu,
                "energy_millijoules",
                7_000_000_001_000 + 1_000_003 * gpu,
            );
            self.gpu(gpu, "memory_used_bytes", 60_000_000_000 + 1_048_576 * gpu);
            self.gpu(gpu, "gpm_sm_active_permille", 900 + gpu);
            let pid = 4_242 + gpu;
            self.gpu(gpu, "process compute", format!("{pid} 59000000000"));
        }
    }

    /// Bytes of each link of NVLink 3 and 4, in KiB as NVML counts them.
    pub(super) fn traffic(&mut self, gpus: usize, links: usize) {
        for gpu in 0..gpus {
            for link in 0..links {
                let kibibytes = 1_000_003 * (gpu + 1) + 1_009 * link;
                let which = format!("{gpu} {link}");
                self.nvlink(&which, "data_transmit_kibibytes", kibibytes);
                self.nvlink(&which, "data_receive_kibibytes", kibibytes - 7);
            }
        }
    }

    pub(super) fn write(self, tree: &mut Tree) {
        tree.file("nvml.state", self.0.join("\n"));
    }
}

/// A product.
pub(super) struct Product {
    name: &'static str,
    /// Device and vendor.
    device: &'static str,
    memory_mebibytes: u64,
}

pub(super) const H100: Product = Product {
    name: "NVIDIA H100 80GB HBM3",
    device: "0x233010de",
    memory_mebibytes: 81_559,
};
pub(super) const H200: Product = Product {
    name: "NVIDIA H200",
    device: "0x233510de",
    memory_mebibytes: 143_771,
};

/// Eight GPUs of an HGX server with 18 links to its four NVSwitches. GPU 5 has the half link that sysfs shows
/// too, and is slowed by heat; link 11 of GPU 6 is down after CRC errors.
pub(super) fn hgx(tree: &mut Tree, product: &Product) {
    let buses = [0x19, 0x1b, 0x3b, 0x3d, 0x9b, 0x9d, 0xbb, 0xbd];
    let addresses = buses.map(|bus| format!("0000:{bus:02x}:00.0"));
    let mut state = State::of(addresses.len());
    state.gpu("*", "name", product.name);
    state.gpu("*", "pci_device_id", product.device);
    state.gpu("*", "memory_total_bytes", product.memory_mebibytes << 20);
    state.gpu("*", "gpm", true);
    state.work(&addresses, |gpu| gpu / 4);
    for link in 0..18 {
        let switch = format!("0000:{:02x}:00.0", 0x58 + link % 4);
        state.nvlink(&format!("* {link}"), "remote_pci_address", switch);
    }
    state.traffic(addresses.len(), 18);
    for (key, value) in [
        ("pcie_width_lanes", 8),
        ("pcie_replays", 4_120),
        ("pcie_correctable_errors", 1_219),
        ("clock_sm_mhz", 1_605),
        ("clocks_event_reasons", 0x48),
        ("hw_thermal_nanoseconds", 81_000_000_123_u64),
    ] {
        state.gpu(5, key, value);
    }
    state.nvlink("6 11", "state", 0);
    state.nvlink("6 11", "crc_flit_errors", 512);
    state.write(tree);
}

/// The GPU of a virtual machine: the hypervisor passes it through without its NVLinks.
pub(super) fn passed_through(tree: &mut Tree) {
    let mut state = State::of(1);
    state.work(&["0000:01:00.0".to_owned()], |_| 0);
    for (key, value) in [
        ("links", 0),
        ("fabric_state", 0),
        ("virtualization_mode", 1),
    ] {
        state.gpu(0, key, value);
    }
    state.write(tree);
}

/// Two of the eight GPUs of a cloud instance, which sees no switch but that there is one.
pub(super) fn p5(tree: &mut Tree) {
    let mut state = State::of(2);
    state.work(
        &[0x4b, 0x5c].map(|bus| format!("0000:{bus:02x}:00.0")),
        |gpu| gpu,
    );
    state.traffic(2, 18);
    state.write(tree);
}
