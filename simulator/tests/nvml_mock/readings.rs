//! NVML returns what was written into the state, and a change of it is noticed.

use std::thread;
use std::time::Duration;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, PcieUtilCounter, PerformanceState,
    TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::Capability;
use nvml_wrapper::enums::device::{DeviceArchitecture, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use railscope_simulator::show::nvml::{
    GpuState, NodeGpus, PciAddress, Process, ProcessKind, STATE_FILE,
};

use super::{Node, field, remote_device_type};

#[test]
fn a_node_has_eight_gpus_with_eighteen_nvlinks_to_nvswitches() {
    let node = Node::with(&NodeGpus::h100(8));
    assert_eq!(node.nvml.device_count().unwrap(), 8);
    for index in 0..8 {
        let gpu = node.gpu(index);
        assert_eq!(gpu.index().unwrap(), index);
        assert_eq!(field(&gpu, 91, 0), Ok((1, 18)));
        let mut switches = std::collections::BTreeSet::new();
        for link in 0..18 {
            let nvlink = gpu.link_wrapper_for(link);
            assert!(nvlink.is_active().unwrap());
            assert_eq!(nvlink.version().unwrap(), 6);
            assert!(nvlink.has_capability(Capability::P2p).unwrap());
            assert_eq!(remote_device_type(&gpu, link), 2, "an NVSwitch");
            switches.insert(nvlink.remote_pci_info().unwrap().bus_id);
            assert_eq!(field(&gpu, 164, link), Ok((1, 26_562)));
        }
        assert_eq!(switches.len(), 4);
        assert!(matches!(
            gpu.link_wrapper_for(18).is_active(),
            Err(NvmlError::InvalidArg)
        ));
    }
}

#[test]
fn a_gpu_is_found_by_index_uuid_serial_and_pci_address() {
    let node = Node::with(&NodeGpus::h100(8));
    let by_index = node.gpu(4);
    let uuid = by_index.uuid().unwrap();
    assert_eq!(
        node.nvml
            .device_by_uuid(uuid.as_str())
            .unwrap()
            .index()
            .unwrap(),
        4
    );
    #[allow(
        deprecated,
        reason = "wrong on boards with two GPUs, which an HGX board is not"
    )]
    let by_serial = node.nvml.device_by_serial(by_index.serial().unwrap());
    assert_eq!(by_serial.unwrap().index().unwrap(), 4);
    for spelling in ["00000000:9D:00.0", "0000:9d:00.0", "9d:00.0"] {
        assert_eq!(
            node.nvml
                .device_by_pci_bus_id(spelling)
                .unwrap()
                .index()
                .unwrap(),
            4
        );
    }
    assert!(matches!(
        node.nvml.device_by_uuid("GPU-none"),
        Err(NvmlError::NotFound)
    ));
    assert!(matches!(
        node.nvml.device_by_index(8),
        Err(NvmlError::InvalidArg)
    ));
}

#[test]
fn identity_reads_back_as_it_was_written() {
    let mut state = NodeGpus {
        driver: "570.124.06".into(),
        ..NodeGpus::h100(2)
    };
    state.gpus[1] = GpuState {
        name: "NVIDIA H200".into(),
        uuid: "GPU-5e9c7c34".into(),
        pci_address: PciAddress {
            domain: 1,
            ..PciAddress::new(0xc3, 0)
        },
        minor_number: 9,
        numa_node_id: Some(5),
        host_numa_node: 65,
        mig_mode_pending: true,
        ..GpuState::h100(1)
    };
    let node = Node::with(&state);
    assert_eq!(node.nvml.sys_driver_version().unwrap(), "570.124.06");
    assert_eq!(node.nvml.sys_nvml_version().unwrap(), "13.590.48.01");
    assert_eq!(node.nvml.sys_cuda_driver_version().unwrap(), 13_010);
    let gpu = node.gpu(1);
    assert_eq!(
        (gpu.name().unwrap(), gpu.uuid().unwrap()),
        ("NVIDIA H200".into(), "GPU-5e9c7c34".into())
    );
    let pci = gpu.pci_info().unwrap();
    assert_eq!(
        (pci.bus_id.as_str(), pci.domain, pci.bus),
        ("00000001:C3:00.0", 1, 0xc3)
    );
    assert_eq!(pci.pci_device_id, 0x2330_10de);
    assert_eq!(
        (gpu.minor_number().unwrap(), gpu.numa_node_id().unwrap()),
        (9, 5)
    );
    assert_eq!(gpu.memory_affinity(2, 0).unwrap(), [0, 2]);
    assert_eq!(gpu.architecture().unwrap(), DeviceArchitecture::Hopper);
    assert_eq!(gpu.board_part_number().unwrap(), "692-2G520-0200-000");
    assert_eq!(gpu.vbios_version().unwrap(), "96.00.A5.00.01");
    assert_eq!(gpu.cuda_compute_capability().unwrap().major, 9);
    assert_eq!(gpu.num_cores().unwrap(), 16_896);
    assert_eq!(gpu.performance_state().unwrap(), PerformanceState::Zero);
    assert_eq!(
        (
            gpu.mig_mode().unwrap().current,
            gpu.mig_mode().unwrap().pending
        ),
        (0, 1)
    );
    assert!(gpu.is_in_persistent_mode().unwrap());
    assert!(gpu.brand().is_ok() && gpu.virtualization_mode().is_ok());
    assert!(matches!(
        node.gpu(0).numa_node_id(),
        Err(NvmlError::NotSupported)
    ));
}

#[test]
fn clocks_power_and_temperature_read_back_as_they_were_written() {
    let mut state = NodeGpus::h100(1);
    state.gpus[0] = GpuState {
        temperature_celsius: 71,
        clock_sm_mhz: 1_215,
        clocks_event_reasons: 0x40,
        power_milliwatts: 512_345,
        power_limit_enforced_milliwatts: 500_000,
        energy_millijoules: 1 << 40,
        ..GpuState::h100(0)
    };
    let node = Node::with(&state);
    let gpu = node.gpu(0);
    assert_eq!(gpu.temperature(TemperatureSensor::Gpu).unwrap(), 71);
    let slowdown = gpu.temperature_threshold(TemperatureThreshold::Slowdown);
    assert_eq!(slowdown.unwrap(), 89);
    assert_eq!(gpu.clock_info(Clock::SM).unwrap(), 1_215);
    assert_eq!(gpu.max_clock_info(Clock::SM).unwrap(), 1_980);
    let reasons = gpu.current_throttle_reasons_strict().unwrap();
    assert_eq!(reasons, ThrottleReasons::HW_THERMAL_SLOWDOWN);
    assert_eq!(gpu.power_usage().unwrap(), 512_345);
    assert_eq!(gpu.enforced_power_limit().unwrap(), 500_000);
    let limits = gpu.power_management_limit_constraints().unwrap();
    assert_eq!((limits.min_limit, limits.max_limit), (200_000, 700_000));
    assert_eq!(gpu.total_energy_consumption().unwrap(), 1 << 40);
    assert_eq!(gpu.utilization_rates().unwrap().gpu, 100);
}

#[test]
fn memory_and_its_errors_read_back_as_they_were_written() {
    let mut state = NodeGpus::h100(1);
    state.gpus[0] = GpuState {
        memory_used_bytes: 7 << 30,
        ecc_volatile_corrected_dram: 3,
        ecc_volatile_corrected_sram: 4,
        retired_pages_pending: Some(true),
        ..GpuState::h100(0)
    };
    let node = Node::with(&state);
    let gpu = node.gpu(0);
    let memory = gpu.memory_info().unwrap();
    assert_eq!(memory.used, 7 << 30);
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
    assert_eq!(gpu.bar1_memory_info().unwrap().total, 131_072 << 20);
    assert!(gpu.is_ecc_enabled().unwrap().currently_enabled);
    let (corrected, volatile) = (MemoryError::Corrected, EccCounter::Volatile);
    let errors = |place| gpu.memory_error_counter(corrected, volatile, place);
    assert_eq!(errors(MemoryLocation::Device).unwrap(), 3);
    assert_eq!(errors(MemoryLocation::SRAM).unwrap(), 4);
    assert!(matches!(
        errors(MemoryLocation::L1Cache),
        Err(NvmlError::NotSupported)
    ));
    assert_eq!(gpu.total_ecc_errors(corrected, volatile).unwrap(), 7);
    assert!(gpu.are_pages_pending_retired().unwrap());
}

#[test]
fn pcie_and_processes_read_back_as_they_were_written() {
    let process = Process {
        kind: ProcessKind::Compute,
        pid: 4242,
        used_bytes: 6 << 30,
    };
    let mut state = NodeGpus::h100(1);
    state.gpus[0] = GpuState {
        pcie_width_lanes: 8,
        pcie_generation: 4,
        pcie_replays: 77,
        processes: vec![process],
        ..GpuState::h100(0)
    };
    let node = Node::with(&state);
    let gpu = node.gpu(0);
    assert_eq!(gpu.current_pcie_link_width().unwrap(), 8);
    assert_eq!(gpu.max_pcie_link_width().unwrap(), 16);
    assert_eq!(gpu.current_pcie_link_gen().unwrap(), 4);
    assert_eq!(gpu.pcie_link_speed().unwrap(), 16_000);
    assert_eq!(gpu.pcie_replay_counter().unwrap(), 77);
    assert_eq!(gpu.pcie_throughput(PcieUtilCounter::Send).unwrap(), 3_092);
    let processes = gpu.running_compute_processes().unwrap();
    assert_eq!((processes.len(), processes[0].pid), (1, 4242));
    assert_eq!(processes[0].used_gpu_memory, UsedGpuMemory::Used(6 << 30));
    assert!(gpu.running_graphics_processes().unwrap().is_empty());
    assert!(!gpu.gpm_support().unwrap());
}

#[test]
fn a_changed_state_is_seen_by_a_loaded_library() {
    let mut state = NodeGpus::h100(2);
    let node = Node::with(&state);
    assert_eq!(node.gpu(1).clock_info(Clock::SM).unwrap(), 1_980);
    state.gpus[1].clock_sm_mhz = 1_200;
    node.update(&state);
    assert_eq!(node.gpu(1).clock_info(Clock::SM).unwrap(), 1_200);
    assert_eq!(node.gpu(0).clock_info(Clock::SM).unwrap(), 1_980);
    // As a person edits it, in place and with a line that means nothing.
    let path = node.dir.path().join(STATE_FILE);
    std::fs::write(path, "gpus 2\nthis is not a key\ngpu 1 clock_sm_mhz 345\n").unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(node.gpu(1).clock_info(Clock::SM).unwrap(), 345);
}

#[test]
fn two_copies_in_one_process_answer_independently() {
    let (mut left, right) = (NodeGpus::h100(8), NodeGpus::b200(4));
    let (a, b) = (Node::with(&left), Node::with(&right));
    assert_eq!(
        (
            a.nvml.device_count().unwrap(),
            b.nvml.device_count().unwrap()
        ),
        (8, 4)
    );
    left.gpus[0].name = "left".into();
    a.update(&left);
    assert_eq!(
        (a.gpu(0).name().unwrap(), b.gpu(0).name().unwrap()),
        ("left".into(), "NVIDIA B200".into())
    );
    drop(a);
    assert_eq!(
        b.gpu(3).index().unwrap(),
        3,
        "the end of one is not the end of the other"
    );
}
