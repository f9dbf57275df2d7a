//! One GPU, as the state file describes it; keys without a line default to a busy H100 of an HGX board.

use super::faults::{Event, Fault, Process};
use super::link::LinkState;
use super::mig::MigDevice;
use super::pci::PciAddress;
use super::values::{Value, keyed_struct};
use super::vgpu::Vgpu;

const MIB: u64 = 1 << 20;

/// NVLinks of an H100 or B200.
pub const HGX_LINKS: usize = 18;

/// The GPUs of a DGX H100.
const HGX_BUSES: [u8; 8] = [0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf];

keyed_struct! {
    /// State of one GPU. Lines: `gpu <index|*> <key> <value>`.
    ///
    /// Most values are those of an H100 under load with driver 590.48.01, as `nvidia-smi -q` printed them.
    GpuState {
        /// Product name.
        name: String = "NVIDIA H100 80GB HBM3".into(),
        /// Unique id; differs on every GPU of a cluster.
        uuid: String = String::new(),
        /// Serial number of the board.
        serial: String = String::new(),
        /// Board part number.
        board_part_number: String = "692-2G520-0200-000".into(),
        /// Firmware.
        vbios_version: String = "96.00.A5.00.01".into(),
        /// Where it sits.
        pci_address: PciAddress = PciAddress::default(),
        /// Device and vendor.
        pci_device_id: u32 = 0x2330_10de,
        /// Board and board vendor.
        pci_subsystem_id: u32 = 0x16c1_10de,
        /// `/dev/nvidia<N>`.
        minor_number: u32 = 0,
        /// Socket on the HGX board.
        module_id: u32 = 0,
        /// `nvmlBrandType_t`; 14 is plain NVIDIA.
        brand: u32 = 14,
        /// `nvmlDeviceArchitecture_t`: 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell.
        architecture: u32 = 9,
        /// CUDA compute capability before the point.
        cuda_capability_major: i32 = 9,
        /// CUDA compute capability behind the point.
        cuda_capability_minor: i32 = 0,
        /// CUDA cores.
        cores: u32 = 16_896,
        /// NUMA node of the CPU beside it (`nvmlDeviceGetMemoryAffinity`).
        host_numa_node: u32 = 0,
        /// NUMA node of its own memory; only where that memory is coherent (Grace).
        numa_node_id: Option<u32> = None,
        /// Driver stays loaded without a client.
        persistence_mode: bool = true,
        /// P-state; 0 is the fastest.
        performance_state: u32 = 0,
        /// 0 none, 1 passthrough, 2 vGPU guest, 3 vGPU host, 4 vSGA host.
        virtualization_mode: u32 = 0,
        /// Multi-instance GPU.
        mig_mode: bool = false,
        /// Multi-instance GPU after the next reset.
        mig_mode_pending: bool = false,
        /// 0 none, 1 reset the GPU, 2 reboot the node, 3 drain peers, 4 drain and reset.
        recovery_action: u32 = 0,

        /// Part of the time that a kernel ran; hardware prints percent.
        gpu_utilization_percent: u32 = 100,
        /// Part of the time that memory was read or written.
        memory_utilization_percent: u32 = 11,
        /// All memory.
        memory_total_bytes: u64 = 81_559 * MIB,
        /// Kept by the driver.
        memory_reserved_bytes: u64 = 479 * MIB,
        /// Allocated by processes.
        memory_used_bytes: u64 = 19_818 * MIB,
        /// Window through which the host and NICs reach the memory.
        bar1_total_bytes: u64 = 131_072 * MIB,
        /// Mapped part of that window.
        bar1_used_bytes: u64 = 19_819 * MIB,

        /// Graphics clock.
        clock_graphics_mhz: u32 = 1_980,
        /// SM clock.
        clock_sm_mhz: u32 = 1_980,
        /// Memory clock.
        clock_memory_mhz: u32 = 2_619,
        /// Video clock.
        clock_video_mhz: u32 = 1_545,
        /// Highest graphics clock.
        clock_graphics_max_mhz: u32 = 1_980,
        /// Highest SM clock.
        clock_sm_max_mhz: u32 = 1_980,
        /// Highest memory clock.
        clock_memory_max_mhz: u32 = 2_619,
        /// Highest video clock.
        clock_video_max_mhz: u32 = 1_545,
        /// Why the clock is where it is: 1 idle, 2 applications clocks, 4 software power cap, 8 hardware slowdown,
        /// 0x10 sync boost, 0x20 software thermal, 0x40 hardware thermal, 0x80 hardware power brake, 0x100 display.
        clocks_event_reasons: u64 = 0,
        /// The bits that this GPU can report.
        clocks_event_reasons_supported: u64 = 0x1ff,
        /// Time slowed by the software power cap.
        sw_power_cap_nanoseconds: u64 = 0,
        /// Time slowed to keep step with other GPUs.
        sync_boost_nanoseconds: u64 = 0,
        /// Time slowed by software because of heat.
        sw_thermal_nanoseconds: u64 = 0,
        /// Time slowed by hardware because of heat.
        hw_thermal_nanoseconds: u64 = 0,
        /// Time slowed by the power brake signal.
        hw_power_brake_nanoseconds: u64 = 0,

        /// Mean over a second.
        power_milliwatts: u32 = 629_450,
        /// This instant.
        power_instant_milliwatts: u32 = 588_390,
        /// Mean over a second of GPU and CPU together; Grace only.
        module_power_milliwatts: Option<u32> = None,
        /// What an administrator set.
        power_limit_milliwatts: u32 = 700_000,
        /// What holds now: the lowest of all limits.
        power_limit_enforced_milliwatts: u32 = 700_000,
        /// Lowest limit that can be set.
        power_limit_min_milliwatts: u32 = 200_000,
        /// Highest limit that can be set.
        power_limit_max_milliwatts: u32 = 700_000,
        /// Limit after a driver load.
        power_limit_default_milliwatts: u32 = 700_000,
        /// Mean over a second of the memory alone.
        memory_power_milliwatts: Option<u32> = None,
        /// Since the driver was loaded.
        energy_millijoules: u64 = 0,

        /// The GPU's sensor.
        temperature_celsius: u32 = 59,
        /// The memory's sensor.
        memory_temperature_celsius: u32 = 55,
        /// Switches off above.
        temperature_shutdown_celsius: u32 = 95,
        /// Hardware slows above.
        temperature_slowdown_celsius: u32 = 89,
        /// Software slows above.
        temperature_max_celsius: u32 = 87,
        /// Software slows above, memory.
        memory_temperature_max_celsius: u32 = 95,

        /// Error correcting memory.
        ecc_mode: bool = true,
        /// Error correcting memory after the next reboot.
        ecc_mode_pending: bool = true,
        /// Corrected in memory since the driver was loaded.
        ecc_volatile_corrected_dram: u64 = 0,
        /// Corrected in caches and registers since the driver was loaded.
        ecc_volatile_corrected_sram: u64 = 0,
        /// Not corrected in memory since the driver was loaded.
        ecc_volatile_uncorrected_dram: u64 = 0,
        /// Not corrected in caches and registers since the driver was loaded.
        ecc_volatile_uncorrected_sram: u64 = 0,
        /// Corrected in memory in its life.
        ecc_aggregate_corrected_dram: u64 = 0,
        /// Corrected in caches and registers in its life.
        ecc_aggregate_corrected_sram: u64 = 0,
        /// Not corrected in memory in its life.
        ecc_aggregate_uncorrected_dram: u64 = 0,
        /// Not corrected in caches and registers in its life.
        ecc_aggregate_uncorrected_sram: u64 = 0,
        /// Rows replaced because of correctable errors.
        remapped_rows_correctable: u32 = 0,
        /// Rows replaced because of uncorrectable errors.
        remapped_rows_uncorrectable: u32 = 0,
        /// A row waits for a reset to be replaced.
        remapped_rows_pending: bool = false,
        /// A row could not be replaced.
        remapped_rows_failed: bool = false,
        /// A page waits for a reset to be retired; before Ampere only.
        retired_pages_pending: Option<bool> = None,

        /// PCIe generation now; an idle GPU may fall to 1.
        pcie_generation: u32 = 5,
        /// Highest generation of GPU and slot.
        pcie_generation_max: u32 = 5,
        /// Lanes now.
        pcie_width_lanes: u32 = 16,
        /// Most lanes of GPU and slot.
        pcie_width_max_lanes: u32 = 16,
        /// Packets sent again.
        pcie_replays: u32 = 9,
        /// Wraps of the hardware's replay counter.
        pcie_replay_rollovers: u32 = 0,
        /// Retrainings of the link.
        pcie_l0_to_recovery: u32 = 0,
        /// Correctable errors.
        pcie_correctable_errors: u32 = 0,
        /// Refusals from the other end.
        pcie_naks_received: u32 = 0,
        /// Refusals of ours.
        pcie_naks_sent: u32 = 0,
        /// Receiver errors.
        pcie_receiver_errors: u32 = 0,
        /// Bad transaction packets.
        pcie_bad_tlp: u32 = 0,
        /// Bad data link packets.
        pcie_bad_dllp: u32 = 0,
        /// Non-fatal errors.
        pcie_non_fatal_errors: u32 = 0,
        /// Fatal errors.
        pcie_fatal_errors: u32 = 0,
        /// Requests not supported.
        pcie_unsupported_requests: u32 = 0,
        /// Checksum errors of the link.
        pcie_lcrc_errors: u32 = 0,
        /// Errors by lane.
        pcie_lane_errors: [u32; 16] = [0; 16],
        /// From device to host.
        pcie_transmit_bytes: u64 = 0,
        /// From host to device.
        pcie_receive_bytes: u64 = 0,
        /// From device to host, over the last 20 ms.
        pcie_transmit_kilobytes_per_second: u32 = 3_092,
        /// From host to device, over the last 20 ms.
        pcie_receive_kilobytes_per_second: u32 = 6_346,

        /// 0 not supported, 1 not started, 2 in progress, 3 completed.
        fabric_state: u8 = 3,
        /// `nvmlReturn_t` of the registration with the fabric.
        fabric_status: u32 = 0,
        /// GPUs with the same clique and cluster reach each other by NVLink.
        fabric_clique_id: u32 = 0,
        /// NVLink domain.
        fabric_cluster_uuid: [u8; 16] = [0; 16],
        /// Two-bit fields from bit 0 (1 true, 2 false): low bandwidth, route recovery, route unhealthy, access
        /// timeout; from bit 8 four bits for a wrong configuration. 0 is "not supported", as on an H100.
        fabric_health_mask: u32 = 0,
        /// 0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity.
        fabric_health_summary: u8 = 0,

        /// Serial number of the rack's chassis; empty where the board does not report a rack, before Blackwell.
        platform_chassis_serial: String = String::new(),
        /// Slot in the chassis, switches counted.
        platform_slot: u8 = 0,
        /// Slot among those of compute trays.
        platform_tray: u8 = 0,
        /// Node within the tray.
        platform_host: u8 = 0,
        /// Kind of NVLink peer that the platform reports.
        platform_peer_type: u8 = 0,
        /// InfiniBand GUID of the GPU in the rack's fabric, first byte first.
        platform_guid: [u8; 8] = [0; 8],

        /// Chip-to-chip links to a Grace CPU.
        c2c_links: u32 = 0,
        /// Speed of each.
        c2c_speed_megabytes_per_second: u32 = 0,
        /// Replays on each.
        c2c_replays: u32 = 0,

        /// Whether performance monitoring is supported, as on Hopper and later; off because a value that never
        /// changes is not what a GPU shows.
        gpm: bool = false,
        /// Active SMs, thousandths, over any window.
        gpm_sm_active_permille: u32 = 0,
        /// Resident warps, thousandths.
        gpm_sm_occupancy_permille: u32 = 0,
        /// Tensor operations, thousandths of the time, over any window; the two below override it unless they are zero.
        gpm_tensor_active_permille: u32 = 0,
        /// Time with tensor operations since some moment.
        gpm_tensor_active_nanoseconds: u64 = 0,
        /// Time since that moment. A window in which none goes by holds no data.
        gpm_nanoseconds: u64 = 0,
        /// Memory bandwidth, thousandths.
        gpm_dram_bandwidth_permille: u32 = 0,
        /// From GPU to host.
        gpm_pcie_transmit_mebibytes_per_second: u32 = 0,
        /// From host to GPU.
        gpm_pcie_receive_mebibytes_per_second: u32 = 0,
        /// Over all links.
        gpm_nvlink_transmit_mebibytes_per_second: u32 = 0,
        /// Over all links.
        gpm_nvlink_receive_mebibytes_per_second: u32 = 0,
        /// Whether it counts since the reboot too, as newer drivers do; NVLink bytes are those of the links.
        gpm_counters: bool = false,
        /// The driver refuses a whole call that contains an unknown number.
        gpm_refuses_unknown: bool = false,
        /// SM cycles.
        gpm_sm_elapsed_cycles: u64 = 0,
        /// SM cycles with work.
        gpm_sm_active_cycles: u64 = 0,
        /// SM cycles with tensor operations.
        gpm_tensor_active_cycles: u64 = 0,
        /// From GPU to host.
        gpm_pcie_transmit_bytes: u64 = 0,
        /// From host to GPU.
        gpm_pcie_receive_bytes: u64 = 0,

        /// On a vGPU host: 1 best effort, 2 equal share, 3 fixed share.
        vgpu_scheduler_policy: u32 = 1,
        /// Adaptive round robin: 0 default, 1 disabled, 2 enabled.
        vgpu_scheduler_adaptive: u32 = 0,
        /// What each vGPU gets at a time.
        vgpu_timeslice_nanoseconds: u32 = 2_000_000,
        /// Whether vGPUs of several sizes may run at once.
        vgpu_heterogeneous: Option<bool> = None,
        /// In a guest: what its license is for.
        license_product: String = "NVIDIA Virtual Compute Server".into(),
        /// In a guest: whether it holds its license.
        license_held: bool = true,

        /// Event bits that can be registered.
        event_types_supported: u64 = 0xff9f,
        /// Reported duration of each field read.
        field_latency_microseconds: u64 = 3,
    }
    beside {
        /// NVLinks. Line: `gpu <index|*> links <count>`.
        links: Vec<LinkState>,
        /// What runs on it. Line: `gpu <index|*> process compute|graphics <pid> <bytes>`.
        processes: Vec<Process>,
        /// MIG devices. Line: `gpu <index|*> mig <gpu instance> <compute instance> <profile> <bytes> <used> <active>`.
        mig: Vec<MigDevice>,
        /// vGPUs of a host. Line: `gpu <index|*> vgpu <instance> <uuid> <vm> <bytes used> <license> <type name>`.
        vgpus: Vec<Vgpu>,
        /// What happened to it. Lines: `gpu <index|*> xid <code> <sequence>` and `... event <type> <data> <sequence>`.
        events: Vec<Event>,
        /// Injected faults. Lines: `gpu <index|*> fail|hang|delay <function|*> ...`.
        faults: Vec<Fault>,
    }
}

impl GpuState {
    /// GPU `index` of an HGX H100 board: its own UUID, serial number, address and 18 links to NVSwitches.
    #[must_use]
    pub fn h100(index: usize) -> Self {
        let mut gpu = Self {
            uuid: format!("GPU-00000000-0000-0000-0000-{index:012}"),
            serial: format!("16501230{index:05}"),
            pci_address: hgx_address(index),
            minor_number: number(index),
            module_id: number(index + 1),
            host_numa_node: u32::from(index >= HGX_BUSES.len() / 2),
            ..Self::default()
        };
        gpu.set_link_count(index, HGX_LINKS);
        gpu
    }

    /// GPU `index` of an HGX B200 board: NVLink 5 with its counters, otherwise as [`GpuState::h100`].
    #[must_use]
    pub fn b200(index: usize) -> Self {
        let mut gpu = Self {
            name: "NVIDIA B200".into(),
            pci_device_id: 0x2901_10de,
            architecture: 10,
            cuda_capability_major: 10,
            memory_total_bytes: 183_359 * MIB,
            power_limit_milliwatts: 1_000_000,
            power_limit_enforced_milliwatts: 1_000_000,
            power_limit_max_milliwatts: 1_000_000,
            power_limit_default_milliwatts: 1_000_000,
            ..Self::h100(index)
        };
        for link in &mut gpu.links {
            (link.version, link.speed_megabytes_per_second) = (7, 53_125);
        }
        gpu
    }

    /// GPU `index` of an HGX A100 board: 12 NVLinks, otherwise as [`GpuState::h100`].
    #[must_use]
    pub fn a100(index: usize) -> Self {
        let mut gpu = Self {
            name: "NVIDIA A100-SXM4-80GB".into(),
            pci_device_id: 0x20b2_10de,
            architecture: 7,
            cuda_capability_major: 8,
            memory_total_bytes: 81_920 * MIB,
            memory_reserved_bytes: 869 * MIB,
            clock_graphics_max_mhz: 1_410,
            clock_sm_max_mhz: 1_410,
            clock_memory_max_mhz: 1_593,
            pcie_generation: 4,
            pcie_generation_max: 4,
            ..Self::h100(index)
        };
        gpu.set_link_count(index, 12);
        for link in &mut gpu.links {
            (link.version, link.speed_megabytes_per_second) = (4, 25_000);
        }
        gpu
    }

    /// Cuts or extends the links of GPU `index` to `count`.
    pub fn set_link_count(&mut self, index: usize, count: usize) {
        let have = self.links.len();
        self.links
            .extend((have..count).map(|link| LinkState::hgx(index, link)));
        self.links.truncate(count);
    }
}

fn hgx_address(index: usize) -> PciAddress {
    match HGX_BUSES.get(index) {
        Some(&bus) => PciAddress::new(bus, 0),
        None => PciAddress {
            domain: 1,
            ..PciAddress::new(u8::try_from(index).unwrap_or(u8::MAX), 0)
        },
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
