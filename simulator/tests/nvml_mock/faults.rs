//! Injected faults: lost, hanging and slow GPUs, XIDs, old drivers, missing drivers, crashes.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use railscope_simulator::show::nvml::{
    Event, Fault, LIBRARY_FILE, NodeGpus, install, install_old_driver, unload_driver, update_state,
};

use super::{Node, field, load};

const GPU_IS_LOST: u32 = 15;

#[test]
fn a_lost_gpu_fails_alone() {
    let mut state = NodeGpus::h100(8);
    state.gpus[3].faults = vec![Fault::fail("*", GPU_IS_LOST)];
    state.gpus[5].faults = vec![Fault::fail("nvmlDeviceGetTemperature", GPU_IS_LOST)];
    let node = Node::with(&NodeGpus::h100(8));
    let third = node.gpu(3);
    node.update(&state);
    assert!(matches!(third.power_usage(), Err(NvmlError::GpuLost)));
    assert!(matches!(
        node.nvml.device_by_index(3),
        Err(NvmlError::GpuLost)
    ));
    assert_eq!(node.nvml.device_count().unwrap(), 8);
    for index in [0, 1, 2, 4, 6, 7] {
        assert_eq!(
            node.gpu(index).temperature(TemperatureSensor::Gpu).unwrap(),
            59
        );
    }
    assert!(matches!(
        node.gpu(5).temperature(TemperatureSensor::Gpu),
        Err(NvmlError::GpuLost)
    ));
    assert!(
        node.gpu(5).power_usage().is_ok(),
        "only the named function fails"
    );
    node.update(&NodeGpus::h100(8));
    assert!(
        third.power_usage().is_ok(),
        "it comes back when the line is gone"
    );
}

#[test]
fn a_hanging_gpu_blocks_its_caller_until_the_line_is_gone() {
    let mut state = NodeGpus::h100(2);
    state.gpus[1].faults = vec![Fault::hang("*")];
    let node = Node::with(&NodeGpus::h100(2));
    let second = node.gpu(1);
    node.update(&state);
    thread::scope(|scope| {
        let stuck = scope.spawn(|| second.power_usage());
        thread::sleep(Duration::from_millis(200));
        assert!(!stuck.is_finished());
        assert!(
            node.gpu(0).power_usage().is_ok(),
            "the other GPU answers meanwhile"
        );
        node.update(&NodeGpus::h100(2));
        assert!(stuck.join().unwrap().is_ok());
    });
}

#[test]
fn a_slow_gpu_answers_late() {
    let mut state = NodeGpus::h100(1);
    state.gpus[0].faults = vec![Fault::delay("nvmlDeviceGetPowerUsage", 60)];
    let node = Node::with(&state);
    let started = Instant::now();
    assert!(node.gpu(0).power_usage().is_ok());
    assert!(started.elapsed() >= Duration::from_millis(60));
}

#[test]
fn an_xid_is_delivered_once_to_those_who_registered_before_it() {
    let mut state = NodeGpus::h100(4);
    state.gpus[2].events = vec![Event::xid(48, 1)];
    let node = Node::with(&state);
    let set = node.nvml.create_event_set().unwrap();
    let set = node
        .gpu(2)
        .register_events(EventTypes::CRITICAL_XID_ERROR, set)
        .unwrap();
    assert!(
        matches!(set.wait(0), Err(NvmlError::Timeout)),
        "the old event is not news"
    );
    state.gpus[2].events.push(Event::xid(79, 2));
    state.gpus[2].faults = vec![Fault::fail("*", GPU_IS_LOST)];
    state.gpus[3].events = vec![Event::xid(13, 1)];
    node.update(&state);
    let event = set.wait(5_000).unwrap();
    assert_eq!(event.event_type, EventTypes::CRITICAL_XID_ERROR);
    assert!(matches!(event.event_data, Some(XidError::Value(79))));
    assert!(
        matches!(set.wait(5_000), Err(NvmlError::GpuLost)),
        "then the loss itself shows"
    );
    state.gpus[2].faults.clear();
    node.update(&state);
    assert!(
        matches!(set.wait(20), Err(NvmlError::Timeout)),
        "nothing twice, nothing of GPUs not registered"
    );
}

#[test]
fn an_old_driver_loads_and_lacks_only_its_missing_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let library = install_old_driver(dir.path(), &NodeGpus::h100(8)).unwrap();
    let nvml = load(&library).unwrap();
    let gpu = nvml.device_by_index(7).unwrap();
    assert!(matches!(
        gpu.total_energy_consumption(),
        Err(NvmlError::FailedToLoadSymbol(_))
    ));
    assert!(
        matches!(gpu.memory_info(), Err(NvmlError::FailedToLoadSymbol(_))),
        "the wrapper needs the second version"
    );
    assert!(matches!(
        gpu.numa_node_id(),
        Err(NvmlError::FailedToLoadSymbol(_))
    ));
    assert!(nvml.lib().nvmlDeviceGetCurrentClocksEventReasons.is_err());
    assert!(nvml.lib().nvmlDeviceGetGpuFabricInfoV.is_err());
    assert!(
        gpu.current_throttle_reasons().unwrap().is_empty(),
        "the old name is there"
    );
    assert!(nvml.lib().nvmlDeviceGetMemoryInfo.is_ok());
    assert_eq!(field(&gpu, 91, 0), Ok((1, 18)));
    assert_eq!(gpu.power_usage().unwrap(), 629_450);
}

#[test]
fn without_a_state_file_the_driver_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let library = install(dir.path(), &NodeGpus::h100(1)).unwrap();
    unload_driver(dir.path()).unwrap();
    assert!(matches!(load(&library), Err(NvmlError::DriverNotLoaded)));
    update_state(dir.path(), &NodeGpus::h100(1)).unwrap();
    let nvml = load(&library).unwrap();
    unload_driver(dir.path()).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(matches!(
        nvml.device_count(),
        Err(NvmlError::DriverNotLoaded)
    ));
}

#[test]
fn a_failing_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mismatch = Fault::fail("nvmlInit_v2", 18);
    let library = install(
        dir.path(),
        &NodeGpus {
            faults: vec![mismatch],
            ..NodeGpus::h100(1)
        },
    )
    .unwrap();
    assert!(matches!(
        load(&library),
        Err(NvmlError::LibRmVersionMismatch)
    ));
}

#[test]
fn a_state_that_is_no_text_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = NodeGpus::h100(1);
    state.gpus[0].name = "one\ncrash".into();
    let error = install(dir.path(), &state).unwrap_err();
    assert!(
        error.to_string().contains("cannot be written as text"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

const CRASH_DIR: &str = "RAILSCOPE_TEST_CRASH_DIR";

#[test]
fn a_crash_line_aborts_the_process_that_calls() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path(), &NodeGpus::h100(1)).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--ignored", "--exact", "nvml_mock::faults::crash_victim"])
        .env(CRASH_DIR, dir.path());
    let output = child.output().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&output.status),
        Some(6),
        "{output:?}"
    );
}

#[test]
#[ignore = "the child of the test above: it aborts"]
fn crash_victim() {
    let Some(dir) = std::env::var_os(CRASH_DIR) else {
        return;
    };
    let nvml = load(&Path::new(&dir).join(LIBRARY_FILE)).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 1);
    update_state(
        Path::new(&dir),
        &NodeGpus {
            crash: true,
            ..NodeGpus::h100(1)
        },
    )
    .unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(nvml.device_count().is_err(), "unreachable: the call aborts");
}
