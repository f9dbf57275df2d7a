//! GPUs, NICs and hosts that nodes are made of, each figure with its source.

use railscope_model::identity::PciAddress;

use crate::spec::Speed;

/// A GPU product.
#[derive(Debug, PartialEq)]
pub struct GpuModel {
    /// Name as NVML reports it.
    pub name: &'static str,
    /// PCI device.
    pub pci_device: u16,
    /// Architecture as the exporter names it.
    pub architecture: &'static str,
    /// `nvmlDeviceArchitecture_t`.
    pub architecture_number: u32,
    /// CUDA compute capability.
    pub capability: (i32, i32),
    /// Firmware.
    pub vbios: &'static str,
    /// All memory, MiB, as `nvidia-smi` prints it.
    pub memory_mebibytes: u64,
    /// Highest SM clock, MHz.
    pub full_clock_mhz: f64,
    /// Highest memory clock, MHz.
    pub memory_clock_mhz: u32,
    /// Power limit, W.
    pub limit_watts: f64,
    /// Power of a dense training kernel, W. A choice that keeps the cap quiet: about 90 % of the limit.
    pub compute_watts: f64,
    /// Power while it spins in a collective kernel, W: half of the limit (an engineering estimate).
    pub wait_watts: f64,
    /// Power without work, W.
    pub idle_watts: f64,
    /// Degrees above the coolant for each watt: a GPU that computes is at about 60 degrees.
    pub celsius_per_watt: f64,
    /// Dense BF16 operations per second in 10^12, of the data sheet: how much faster one GPU computes than
    /// another.
    pub teraflops: f64,
    /// NVLinks.
    pub nvlinks: u8,
    /// `nvmlNvlinkVersion_t`: 4 is NVLink 3, 6 is 4, 7 is 5.
    pub nvlink_version: u32,
    /// Speed of one NVLink as the driver reports it, MB/s.
    pub nvlink_megabytes_per_second: u32,
    /// Bytes per second of one NVLink in each direction, of the data sheet.
    pub nvlink_bytes_per_second: f64,
    /// Whether it has performance monitoring for clients of NVML (Hopper and later).
    pub has_gpm: bool,
    /// Whether NVML reports a fabric for it (Hopper and later).
    pub has_fabric: bool,
    /// Links to a Grace CPU, and the speed of each in MB/s.
    pub c2c: (u32, u32),
}

/// Share of the power at full clock that does not follow the clock.
const STATIC_POWER: f64 = 0.4;
/// The clock does not go below this share of the full one, whatever the limit.
const LOWEST_CLOCK: f64 = 0.1;

impl GpuModel {
    /// Work that it does in a time, as a share of what an H100 does: workloads are specified for an
    /// H100.
    pub fn relative_speed(&self) -> f64 {
        self.teraflops / H100.teraflops
    }

    /// Power while it computes without a break at a clock, as a share of the full one, W. Dynamic power follows the
    /// clock; 40 % of the full draw is memory, leakage and fabric (an engineering estimate).
    pub(crate) fn watts_at(&self, clock: f64) -> f64 {
        self.compute_watts * (STATIC_POWER + (1.0 - STATIC_POWER) * clock)
    }

    /// Clock, as a share of the full one, at which it computes within a power limit.
    pub(crate) fn clock_at(&self, watts: f64) -> f64 {
        let clock = (watts / self.compute_watts - STATIC_POWER) / (1.0 - STATIC_POWER);
        clock.clamp(LOWEST_CLOCK, 1.0)
    }

    /// Bytes per second of so many of its NVLinks in each direction.
    pub fn nvlinks_bytes_per_second(&self, links: u8) -> f64 {
        f64::from(links) * self.nvlink_bytes_per_second
    }
}

/// H100 SXM: data sheet (700 W, 989 TFLOPS, 18 links of NVLink 4 with 900 GB/s in both directions), and a
/// captured node: memory, clocks, firmware, 70 to 120 W idle, 59 degrees at 629 W.
pub const H100: GpuModel = GpuModel {
    name: "NVIDIA H100 80GB HBM3",
    pci_device: 0x2330,
    architecture: "hopper",
    architecture_number: 9,
    capability: (9, 0),
    vbios: "96.00.A5.00.01",
    memory_mebibytes: 81_559,
    full_clock_mhz: 1_980.0,
    memory_clock_mhz: 2_619,
    limit_watts: 700.0,
    compute_watts: 640.0,
    wait_watts: 350.0,
    idle_watts: 75.0,
    celsius_per_watt: 0.049,
    teraflops: 989.0,
    nvlinks: 18,
    nvlink_version: 6,
    nvlink_megabytes_per_second: 26_562,
    nvlink_bytes_per_second: 25e9,
    has_gpm: true,
    has_fabric: true,
    c2c: (0, 0),
};

/// H200 SXM: data sheet (141 GB at 4.8 TB/s, otherwise an H100).
pub const H200: GpuModel = GpuModel {
    name: "NVIDIA H200",
    pci_device: 0x2335,
    memory_mebibytes: 143_771,
    memory_clock_mhz: 3_201,
    ..H100
};

/// B200: HGX B200 data sheet (1,000 W, 36 PFLOPS of sparse FP16 on eight, NVLink 5 with 1.8 TB/s on 18 links).
/// Idle power is an engineering estimate.
pub const B200: GpuModel = GpuModel {
    name: "NVIDIA B200",
    pci_device: 0x2901,
    architecture: "blackwell",
    architecture_number: 10,
    capability: (10, 0),
    vbios: "97.00.88.00.0F",
    memory_mebibytes: 183_359,
    full_clock_mhz: 1_965.0,
    memory_clock_mhz: 3_996,
    limit_watts: 1_000.0,
    compute_watts: 915.0,
    wait_watts: 500.0,
    idle_watts: 140.0,
    celsius_per_watt: 0.034,
    teraflops: 2_250.0,
    nvlink_version: 7,
    nvlink_megabytes_per_second: 53_125,
    nvlink_bytes_per_second: 50e9,
    ..H100
};

/// GB200: GB200 NVL72 data sheet (360 PFLOPS of sparse FP16 on 72, 130 TB/s of NVLink), 1,200 W to a GPU,
/// ten C2C links to Grace with 900 GB/s in both directions. Liquid keeps it cooler.
pub const GB200: GpuModel = GpuModel {
    name: "NVIDIA GB200",
    pci_device: 0x2941,
    vbios: "97.00.B9.00.69",
    memory_mebibytes: 189_471,
    full_clock_mhz: 2_062.0,
    limit_watts: 1_200.0,
    compute_watts: 1_095.0,
    wait_watts: 600.0,
    idle_watts: 150.0,
    celsius_per_watt: 0.024,
    teraflops: 2_500.0,
    c2c: (10, 44_712),
    ..B200
};

/// A100 SXM of 80 GB: data sheet (400 W, 312 TFLOPS, 12 links of NVLink 3 with 600 GB/s in both directions).
pub const A100: GpuModel = GpuModel {
    name: "NVIDIA A100-SXM4-80GB",
    pci_device: 0x20b2,
    architecture: "ampere",
    architecture_number: 7,
    capability: (8, 0),
    vbios: "92.00.45.00.03",
    memory_mebibytes: 81_920,
    full_clock_mhz: 1_410.0,
    memory_clock_mhz: 1_593,
    limit_watts: 400.0,
    compute_watts: 365.0,
    wait_watts: 200.0,
    idle_watts: 55.0,
    celsius_per_watt: 0.085,
    teraflops: 312.0,
    nvlinks: 12,
    nvlink_version: 4,
    nvlink_megabytes_per_second: 25_000,
    nvlink_bytes_per_second: 25e9,
    has_gpm: false,
    has_fabric: false,
    c2c: (0, 0),
};

/// The driver of a network adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicDriver {
    /// NVIDIA (Mellanox), InfiniBand and RoCE.
    Mlx5,
    /// Amazon's Elastic Fabric Adapter.
    Efa,
}

impl NicDriver {
    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5_core",
            Self::Efa => "efa",
        }
    }

    /// PCI vendor of its adapters.
    pub const fn vendor(self) -> u16 {
        match self {
            Self::Mlx5 => 0x15b3,
            Self::Efa => AMAZON,
        }
    }

    /// Class of their PCI functions as the kernel prints it; one of mlx5 is another on Ethernet.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Mlx5 => "0x020700",
            Self::Efa => "0x020000",
        }
    }

    /// Name of an RDMA device: by number, or by place on PCIe as udev names those of other drivers.
    pub fn device(self, slot: u8, pci: PciAddress) -> String {
        match self {
            Self::Mlx5 => format!("mlx5_{slot}"),
            Self::Efa => format!("rdmap{}s{}", pci.bus, pci.device),
        }
    }
}

/// PCI vendor of what a cloud of Amazon emulates.
pub const AMAZON: u16 = 0x1d0f;

/// A network adapter.
#[derive(Debug, PartialEq, Eq)]
pub struct NicModel {
    /// Its driver, which names its devices and its counters.
    pub driver: NicDriver,
    /// PCI device of its vendor.
    pub pci_device: u16,
    /// Type in the manner of the driver.
    pub hca_type: &'static str,
    /// Board.
    pub board_id: &'static str,
    /// Firmware.
    pub firmware: &'static str,
    /// Fastest link of each port.
    pub speed: Speed,
}

/// ConnectX-7 of 400 Gb/s, as on a captured H100 node.
pub const CONNECTX_7: NicModel = NicModel {
    driver: NicDriver::Mlx5,
    pci_device: 0x1021,
    hca_type: "MT4129",
    board_id: "MT_0000000838",
    firmware: "28.41.1000",
    speed: Speed::Ndr,
};

/// ConnectX-6 of 200 Gb/s (DGX A100 user guide: eight of them).
pub const CONNECTX_6: NicModel = NicModel {
    driver: NicDriver::Mlx5,
    pci_device: 0x101b,
    hca_type: "MT4123",
    board_id: "MT_0000000223",
    firmware: "20.39.3560",
    speed: Speed::Hdr,
};

/// An EFA device of 100 Gb/s (Amazon EC2 user guide: 3,200 Gb/s of a p5.48xlarge on 32 of them). It has no board
/// and no type, and its firmware has no version number.
pub const EFA: NicModel = NicModel {
    driver: NicDriver::Efa,
    pci_device: 0xefa2,
    hca_type: "",
    board_id: "",
    firmware: "0.0.0.0",
    speed: Speed::Edr,
};

/// The processors of a node and its kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    /// Processors in all.
    pub cpus: usize,
    /// Processors of each NUMA node, as the kernel lists them.
    pub cpu_lists: &'static [&'static str],
    /// Architecture as `uname -m` reports it.
    pub architecture: &'static str,
    /// Kernel.
    pub kernel: &'static str,
    /// Vendor and device of its root ports.
    pub root_port: (u16, u16),
}

impl Host {
    /// The first processor of each NUMA node.
    pub fn first_cpus(&self) -> impl Iterator<Item = usize> {
        let lists = self.cpu_lists.iter();
        lists.filter_map(|list| list.split('-').next()?.parse().ok())
    }
}

/// Two sockets with 56 cores each and two threads to a core.
pub const SAPPHIRE_RAPIDS: Host = Host {
    cpus: 224,
    cpu_lists: &["0-55,112-167", "56-111,168-223"],
    architecture: "x86_64",
    kernel: "6.8.0-1030-nvidia",
    root_port: (0x8086, 0x352a),
};

/// Two EPYC 7742 with 64 cores each, two threads to a core and four NUMA nodes to a socket (DGX A100 user
/// guide).
pub const ROME: Host = Host {
    cpus: 256,
    cpu_lists: &[
        "0-15,128-143",
        "16-31,144-159",
        "32-47,160-175",
        "48-63,176-191",
        "64-79,192-207",
        "80-95,208-223",
        "96-111,224-239",
        "112-127,240-255",
    ],
    architecture: "x86_64",
    kernel: "5.15.0-1053-nvidia",
    root_port: (0x1022, 0x1483),
};

/// Two Grace with 72 cores each. The GPUs' own memory, further NUMA nodes without processors, is omitted.
pub const GRACE: Host = Host {
    cpus: 144,
    cpu_lists: &["0-71", "72-143"],
    architecture: "aarch64",
    kernel: "6.8.0-1028-nvidia-64k",
    root_port: (0x10de, 0x22b1),
};

/// Two EPYC 7R13, of which a p5.48xlarge has 48 cores each and two threads to a core (Amazon EC2 user guide: 192
/// virtual CPUs); its bridges are the hypervisor's.
pub const MILAN: Host = Host {
    cpus: 192,
    cpu_lists: &["0-47,96-143", "48-95,144-191"],
    architecture: "x86_64",
    kernel: "6.8.0-1030-aws",
    root_port: (AMAZON, 0x0200),
};
