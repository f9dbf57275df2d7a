//! What only some drivers and boards report of GPUs: counters since the reboot, MIG instances, port registers, vGPUs,
//! and what happened between two scrapes.

use std::collections::BTreeMap;

use crate::gpus::{Node, eventually};
use railscope_model::metric::Profile;
use railscope_simulator::show::nvml::{Fault, MigDevice, NodeGpus, Vgpu, install_old_driver};

/// `NVML_ERROR_NOT_SUPPORTED` and `NVML_ERROR_NO_PERMISSION`.
const NOT_SUPPORTED: u32 = 3;
const NO_PERMISSION: u32 = 4;
/// `NVML_GPU_VIRTUALIZATION_MODE_VGPU` and `..._HOST_VGPU`.
const GUEST: u32 = 2;
const HOST: u32 = 3;

const PCIE_BYTES: &str = r#"railscope_gpu_pcie_transmit_bytes_total{gpu="0"}"#;
const SM_ACTIVE: &str = r#"railscope_gpu_sm_active_ratio{gpu="0"}"#;
const SM_CYCLES: &str = r#"railscope_gpu_sm_elapsed_cycles_total{gpu="0"}"#;

fn source(counter: &str, source: &str) -> String {
    format!(
        "railscope_gpu_statistic_source_info{{gpu=\"0\",counter=\"{counter}\",source=\"{source}\"}}"
    )
}

fn missing(feature: &str, status: &str) -> String {
    format!("railscope_source_status{{source=\"gpu\",device=\"0/{feature}\",status=\"{status}\"}}")
}

#[track_caller]
fn no_series(node: &Node, prefix: &str) {
    let page = node.series(Profile::Full);
    let found: Vec<_> = page.keys().filter(|key| key.starts_with(prefix)).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// One H100 with performance monitoring, whose counters and fields of PCIe bytes differ.
fn monitored(counters: bool) -> NodeGpus {
    let mut node = NodeGpus::h100(1);
    let gpu = &mut node.gpus[0];
    (gpu.gpm, gpu.gpm_counters) = (true, counters);
    gpu.gpm_sm_active_permille = 500;
    gpu.gpm_sm_elapsed_cycles = 1000;
    gpu.pcie_transmit_bytes = 1 << 40;
    gpu.gpm_pcie_transmit_bytes = 7;
    node
}

#[test]
fn pcie_bytes_come_from_one_counter_and_never_jump_to_the_other() {
    let mut node = Node::start(monitored(true));
    node.shows(PCIE_BYTES, 7.0);
    node.shows(SM_CYCLES, 1000.0);
    assert_eq!(node.value(&source("pcie_transmit_bytes", "gpm")), Some(1.0));
    let field = source("pcie_transmit_bytes", "field_197");
    assert_eq!(node.value(&field), None);
    // An administrator partitions the GPU, say.
    node.change(|node| {
        let fail = Fault::fail("nvmlGpmSampleGet", NOT_SUPPORTED);
        node.gpus[0].faults.push(fail);
    });
    node.shows(&missing("gpm_sample", "unsupported"), 1.0);
    for gone in [PCIE_BYTES, SM_ACTIVE, SM_CYCLES] {
        assert_eq!(node.value(gone), None, "{gone}");
    }
    no_series(
        &node,
        "railscope_gpu_statistic_source_info{gpu=\"0\",counter=\"pcie",
    );
}

#[test]
fn activity_of_tensor_cores_is_that_between_two_samples_and_is_summed_up() {
    const RATIO: &str = r#"railscope_gpu_tensor_active_ratio{gpu="0"}"#;
    const MONITORED: &str = r#"railscope_gpu_monitored_seconds_total{gpu="0"}"#;
    const ACTIVE: &str = r#"railscope_gpu_tensor_active_seconds_total{gpu="0"}"#;
    let mut state = monitored(false);
    state.gpus[0].gpm_tensor_active_permille = 500;
    let mut node = Node::start(state);
    node.shows(RATIO, 0.5);
    let share = || {
        let page = node.series(Profile::Full);
        page[ACTIVE] / page[MONITORED]
    };
    assert!((share() - 0.5).abs() < 1e-9, "{}", share());
    let before = node.series(Profile::Full);
    // Four seconds go by at the GPU, in one of which it did tensor operations.
    node.change(|node| {
        let gpu = &mut node.gpus[0];
        gpu.gpm_nanoseconds = 4_000_000_000;
        gpu.gpm_tensor_active_nanoseconds = 1_000_000_000;
    });
    // The windows before and after are as the GPU says where no time goes by: one of a quarter is less by a fourth of a second.
    let counted = eventually(|| {
        let page = node.series(Profile::Full);
        let [active, monitored] = [ACTIVE, MONITORED].map(|series| page[series] - before[series]);
        active < 0.5 * monitored - 0.2
    });
    assert!(counted, "{:?}", node.series(Profile::Full));
}

#[test]
fn a_driver_that_knows_no_counters_costs_only_them() {
    for refuses_the_call in [false, true] {
        let mut state = monitored(false);
        state.gpus[0].gpm_refuses_unknown = refuses_the_call;
        let node = Node::start(state);
        node.shows(SM_ACTIVE, 0.5);
        node.shows(PCIE_BYTES, (1_u64 << 40) as f64);
        node.shows(&source("pcie_transmit_bytes", "field_197"), 1.0);
        assert_eq!(node.value(SM_CYCLES), None);
        let refused = missing("gpm_counters", "unsupported");
        assert_eq!(node.value(&refused), Some(1.0), "{refuses_the_call}");
        let errors = r#"railscope_source_errors_total{source="gpu"}"#;
        assert_eq!(node.value(errors), Some(0.0));
    }
}

#[test]
fn nvlink_bytes_come_from_performance_monitoring_where_no_field_tells_them() {
    let mut state = monitored(true);
    let gpu = &mut state.gpus[0];
    gpu.set_link_count(0, 3);
    for (link, bytes) in gpu.links.iter_mut().zip([100, 200, 300]) {
        (link.receive_bytes, link.transmit_bytes) = (bytes, 10 * bytes);
    }
    gpu.faults = ["field.138", "field.139"]
        .map(|field| Fault::fail(field, NOT_SUPPORTED))
        .to_vec();
    let node = Node::start(state);
    node.shows(
        r#"railscope_gpu_nvlink_receive_bytes_total{gpu="0"}"#,
        600.0,
    );
    for (series, value) in [
        (
            r#"railscope_gpu_nvlink_transmit_bytes_total{gpu="0"}"#,
            6000.0,
        ),
        (
            r#"railscope_nvlink_receive_bytes_total{gpu="0",link="1"}"#,
            200.0,
        ),
        (
            r#"railscope_nvlink_transmit_bytes_total{gpu="0",link="2"}"#,
            3000.0,
        ),
        (&source("nvlink_receive_bytes", "gpm"), 1.0),
    ] {
        assert_eq!(node.value(series), Some(value), "{series}");
    }
}

fn mig(gpu_instance: u32, active_permille: u32) -> MigDevice {
    MigDevice {
        gpu_instance,
        compute_instance: 0,
        profile: "3g.40gb".into(),
        total_bytes: 40 << 30,
        used_bytes: 0,
        active_permille,
    }
}

#[test]
fn a_partitioned_gpu_tells_the_activity_of_its_instances_and_none_of_its_own() {
    let mut state = NodeGpus::h100(2);
    for gpu in &mut state.gpus {
        gpu.gpm = true;
        gpu.gpm_sm_active_permille = 500;
    }
    state.gpus[0].mig_mode = true;
    state.gpus[0].mig = vec![mig(1, 850), mig(2, 120)];
    let mut node = Node::start(state);
    let ratio = |what: &str, instance: u32| {
        format!("railscope_mig_{what}_ratio{{gpu=\"0\",gpu_instance=\"{instance}\"}}")
    };
    node.shows(&ratio("sm_active", 1), 0.85);
    node.shows(&ratio("sm_active", 2), 0.12);
    for what in ["sm_occupancy", "tensor_active", "dram_bandwidth"] {
        assert_eq!(node.value(&ratio(what, 2)), Some(0.12), "{what}");
    }
    assert_eq!(node.value(SM_ACTIVE), None);
    let of_other = r#"railscope_gpu_sm_active_ratio{gpu="1"}"#;
    assert_eq!(node.value(of_other), Some(0.5));
    assert_eq!(node.value(&missing("gpm_sample", "unsupported")), Some(1.0));
    let uuid = |instance: u32| format!("MIG-00000000-0000-0000-0000-000000000000/{instance}/0");
    let both = BTreeMap::from([1, 2].map(|instance| (uuid(instance), 0)));
    assert_eq!(node.mig_devices.known(), both);

    node.change(|node| node.gpus[0].mig.truncate(1));
    let gone = || node.value(&ratio("sm_active", 2)).is_none();
    assert!(eventually(gone), "an instance that is gone tells nothing");
    assert_eq!(node.mig_devices.known(), BTreeMap::from([(uuid(1), 0)]));
    assert_eq!(node.value(&ratio("sm_active", 1)), Some(0.85));
    let errors = r#"railscope_source_errors_total{source="gpu"}"#;
    assert_eq!(node.value(errors), Some(0.0));
}

#[test]
fn port_registers_that_are_denied_or_not_there_are_a_status_and_no_error() {
    let denied = Fault::fail("nvmlDeviceReadPRMCounters_v1", NO_PERMISSION);
    for (mut state, fault, status) in [
        (NodeGpus::b200(1), Some(denied), "denied"),
        (NodeGpus::h100(1), None, "unsupported"),
    ] {
        state.gpus[0].faults.extend(fault);
        let node = Node::start(state);
        node.shows(&missing("nvlink_prm", status), 1.0);
        no_series(&node, "railscope_nvlink_transmit_wait_ticks_total");
        no_series(&node, "railscope_nvlink_link_down_events_total");
        let errors = r#"railscope_source_errors_total{source="gpu"}"#;
        assert_eq!(node.value(errors), Some(0.0), "{status}");
        let device = r#"railscope_source_status{source="gpu",device="0",status="denied"}"#;
        assert_eq!(node.value(device), None, "a feature does not color its GPU");
    }
}

#[test]
fn an_old_driver_has_neither_monitoring_nor_port_registers_nor_vgpus() {
    let mut state = monitored(true);
    state.driver = "390.157".into();
    state.gpus[0].virtualization_mode = HOST;
    let node = Node::start_on(state, install_old_driver);
    node.shows(PCIE_BYTES, (1_u64 << 40) as f64);
    for feature in ["gpm", "nvlink_prm", "vgpus", "vgpu_scheduler"] {
        let status = missing(feature, "unsupported");
        assert_eq!(node.value(&status), Some(1.0), "{feature}");
    }
}

fn vgpu(instance: u32, vm: &str, license_state: Option<u32>) -> Vgpu {
    Vgpu {
        instance,
        uuid: format!("1f2e3d4c-0000-4000-8000-00000000{instance}"),
        vm: vm.into(),
        used_bytes: u64::from(instance) << 20,
        license_state,
        name: "GRID A100-10C".into(),
    }
}

#[test]
fn a_vgpu_host_tells_its_vgpus_and_a_guest_without_a_driver_is_no_lost_gpu() {
    let mut state = NodeGpus::a100(1);
    let gpu = &mut state.gpus[0];
    gpu.virtualization_mode = HOST;
    (gpu.vgpu_scheduler_policy, gpu.vgpu_scheduler_adaptive) = (2, 2);
    gpu.vgpu_heterogeneous = Some(true);
    let vm = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";
    gpu.vgpus = vec![vgpu(3251, vm, Some(5)), vgpu(3252, "alice", None)];
    let node = Node::start(state);
    for (series, value) in [
        (
            r#"railscope_vgpu_info{gpu="0",vgpu="3251",uuid="1f2e3d4c-0000-4000-8000-000000003251",vgpu_type="GRID A100-10C",vm="aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"}"#,
            Some(1.0),
        ),
        (
            r#"railscope_vgpu_info{gpu="0",vgpu="3252",uuid="1f2e3d4c-0000-4000-8000-000000003252",vgpu_type="GRID A100-10C",vm=""}"#,
            Some(1.0),
        ),
        (
            r#"railscope_vgpu_license_state{gpu="0",vgpu="3251"}"#,
            Some(5.0),
        ),
        (r#"railscope_vgpu_license_state{gpu="0",vgpu="3252"}"#, None),
        (
            r#"railscope_vgpu_memory_used_bytes{gpu="0",vgpu="3252"}"#,
            Some(3_409_969_152.0),
        ),
        (
            r#"railscope_vgpu_scheduler_info{gpu="0",policy="equal_share",adaptive="enabled",heterogeneous="enabled"}"#,
            Some(1.0),
        ),
        (r#"railscope_vgpu_timeslice_seconds{gpu="0"}"#, Some(0.002)),
        (r#"railscope_source_errors_total{source="gpu"}"#, Some(0.0)),
        (
            r#"railscope_source_status{source="gpu",device="",status="ok"}"#,
            Some(1.0),
        ),
    ] {
        let shown = eventually(|| node.value(series) == value);
        assert!(shown, "{series}: {:?}, not {value:?}", node.value(series));
    }
}

#[test]
fn a_guest_tells_its_license_and_bare_metal_is_not_asked() {
    let mut state = NodeGpus::a100(1);
    state.gpus[0].virtualization_mode = GUEST;
    state.gpus[0].license_held = false;
    let node = Node::start(state);
    node.shows(
        r#"railscope_gpu_feature_licensed{gpu="0",feature="compute",product="NVIDIA Virtual Compute Server"}"#,
        0.0,
    );
    let page = node.series(Profile::Full);
    let features = page
        .keys()
        .filter(|key| key.starts_with("railscope_gpu_feature_licensed"));
    assert_eq!(
        features.count(),
        1,
        "features that are switched off need no license"
    );

    let mut state = NodeGpus::a100(1);
    // It would block the GPU's thread.
    state.gpus[0].faults = [
        "nvmlDeviceGetActiveVgpus",
        "nvmlDeviceGetGridLicensableFeatures_v4",
    ]
    .map(Fault::hang)
    .to_vec();
    let node = Node::start(state);
    node.shows(r#"railscope_gpu_power_watts{gpu="0"}"#, 629.45);
    no_series(&node, "railscope_vgpu");
    no_series(&node, "railscope_gpu_feature_licensed");
}

#[test]
fn vgpus_that_a_host_does_not_let_us_see_are_denied() {
    let mut state = NodeGpus::a100(1);
    state.gpus[0].virtualization_mode = HOST;
    state.gpus[0].vgpus = vec![vgpu(3251, "12", Some(5))];
    state.gpus[0].faults = vec![Fault::fail("nvmlDeviceGetActiveVgpus", NO_PERMISSION)];
    let node = Node::start(state);
    node.shows(&missing("vgpus", "denied"), 1.0);
    no_series(&node, "railscope_vgpu_info");
    // It runs vGPUs by best effort, which has no time slice.
    node.shows(
        r#"railscope_vgpu_scheduler_info{gpu="0",policy="best_effort",adaptive="default",heterogeneous=""}"#,
        1.0,
    );
    no_series(&node, "railscope_vgpu_timeslice_seconds");
}

#[test]
fn a_drop_of_the_clock_and_a_burst_stay_visible_when_they_are_over() {
    let mut node = Node::start(NodeGpus::h100(1));
    let clock = r#"railscope_gpu_clock_hertz{gpu="0",clock="sm"}"#;
    node.shows(clock, 1.98e9);
    node.change(|node| {
        let gpu = &mut node.gpus[0];
        gpu.clock_sm_mhz = 345;
        gpu.power_milliwatts = 712_000;
        gpu.links[3].data_receive_kibibytes = 1 << 30;
    });
    node.shows(clock, 345e6);
    node.change(|node| {
        node.gpus[0].clock_sm_mhz = 1_980;
        node.gpus[0].power_milliwatts = 100_000;
    });
    node.shows(clock, 1.98e9);
    let lowest = |window: &str| {
        format!("railscope_gpu_lowest_clock_hertz{{gpu=\"0\",clock=\"sm\",window=\"{window}\"}}")
    };
    let peak =
        |window: &str| format!("railscope_gpu_peak_power_watts{{gpu=\"0\",window=\"{window}\"}}");
    for window in ["15s", "60s"] {
        assert_eq!(node.value(&lowest(window)), Some(345e6), "{window}");
        assert_eq!(node.value(&peak(window)), Some(712.0), "{window}");
        let peak = |direction: &str| {
            let family = format!("railscope_gpu_nvlink_peak_{direction}_bytes_per_second");
            node.value(&format!("{family}{{gpu=\"0\",window=\"{window}\"}}"))
        };
        assert!(peak("receive") > Some(1e10), "{:?}", peak("receive"));
        assert_eq!(peak("transmit"), Some(0.0));
    }
    let default = node.series(Profile::Default);
    assert!(default.contains_key(&lowest("15s")));
    assert!(!default.contains_key(&lowest("60s")));
}
