//! Generations of GPUs as the exporter shows them: Hopper, Blackwell with Grace, a partitioned Ampere, and XIDs.

use std::collections::BTreeMap;

use crate::gpus::{Node, eventually};
use expect_test::expect_file;
use railscope_model::exposition::Format;
use railscope_model::metric::Profile;
use railscope_simulator::show::nvml::{Event, Fault, MigDevice, NodeGpus, Process, ProcessKind};

const GPUS: usize = 8;
/// Series of one GPU in the default profile: the budget of 600 a node leaves no more.
const BUDGET: usize = 38;
/// NVML calls of one sample of a GPU with 18 links. Five each ask for a link's state and error counters, which no
/// call gives of all links at once before NVLink 5.
const MOST_CALLS: f64 = 160.0;
/// `NVML_ERROR_INVALID_ARGUMENT`, `NVML_ERROR_NOT_SUPPORTED` and `NVML_ERROR_UNKNOWN`.
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const UNKNOWN: u32 = 999;

/// The last series that a GPU adds to its exposition: a rate between two samples.
const PEAK_OF_0: &str =
    r#"railscope_gpu_nvlink_peak_receive_bytes_per_second{gpu="0",window="60s"}"#;

/// Families that differ from run to run.
const VOLATILE: [&str; 9] = [
    "railscope_source_reads",
    "railscope_source_late_seconds",
    "railscope_exporter_series",
    "railscope_source_age_seconds",
    "railscope_source_duration_seconds",
    "railscope_nvml_calls",
    "railscope_nvml_call_seconds",
    "railscope_gpu_monitored_seconds",
    "railscope_gpu_tensor_active_seconds",
];

fn check(name: &str, node: &Node) {
    for (word, profile) in [("default", Profile::Default), ("full", Profile::Full)] {
        let text = node.text(profile, Format::OpenMetrics);
        let stays = |line: &&str| !VOLATILE.iter().any(|family| line.contains(family));
        let mut lines: Vec<_> = text.lines().filter(stays).collect();
        lines.push("");
        expect_file![format!("golden/{name}.{word}.prom")].assert_eq(&lines.join("\n"));
    }
}

/// Two GPUs of a Hopper board with three links each, every number another.
fn hopper() -> NodeGpus {
    let mut node = NodeGpus::h100(2);
    for (index, gpu) in (1_u32..).zip(&mut node.gpus) {
        gpu.set_link_count(index as usize - 1, 3);
        for (number, link) in (1_u64..).zip(&mut gpu.links) {
            link.data_receive_kibibytes = 100 * number;
            link.data_transmit_kibibytes = 200 * number;
            link.crc_flit_errors = number;
        }
        gpu.pcie_lane_errors[3] = index;
        gpu.pcie_bad_tlp = 7;
        gpu.pcie_transmit_bytes = 1 << 40;
        gpu.pcie_receive_bytes = 2 << 40;
        gpu.remapped_rows_uncorrectable = 1;
        gpu.ecc_aggregate_corrected_dram = 5;
        gpu.fabric_cluster_uuid = [0xab; 16];
        gpu.fabric_clique_id = 1;
        gpu.memory_power_milliwatts = Some(85_830);
        gpu.gpm = true;
        gpu.gpm_sm_active_permille = 912;
        gpu.gpm_sm_occupancy_permille = 500;
        gpu.gpm_tensor_active_permille = 431;
        gpu.gpm_dram_bandwidth_permille = 250;
        gpu.gpm_pcie_transmit_mebibytes_per_second = 1;
        gpu.gpm_nvlink_receive_mebibytes_per_second = 1000;
        gpu.gpm_counters = index == 1; // the other has an older driver
        gpu.gpm_sm_elapsed_cycles = 1 << 50;
        gpu.gpm_sm_active_cycles = 1 << 49;
        gpu.gpm_tensor_active_cycles = 1 << 48;
        gpu.gpm_pcie_transmit_bytes = 3 << 40;
        gpu.gpm_pcie_receive_bytes = 4 << 40;
    }
    node.gpus[0].processes = [(ProcessKind::Compute, 4242), (ProcessKind::Compute, 4243)]
        .map(|(kind, pid)| Process {
            kind,
            pid,
            used_bytes: 1 << 30,
        })
        .to_vec();
    node
}

/// One GPU of a GB200 rack with two links.
fn grace_blackwell() -> NodeGpus {
    let mut node = NodeGpus::b200(1);
    let gpu = &mut node.gpus[0];
    gpu.name = "NVIDIA GB200".into();
    gpu.set_link_count(0, 2);
    gpu.platform_chassis_serial = "1820124001234".into();
    (gpu.platform_slot, gpu.platform_tray, gpu.platform_host) = (12, 9, 1);
    gpu.platform_guid = [0x3c, 0x6d, 0x66, 0, 0, 0x0a, 0x0b, 0x0c];
    gpu.module_id = 2;
    gpu.module_power_milliwatts = Some(1_400_500);
    gpu.numa_node_id = Some(2);
    (gpu.c2c_links, gpu.c2c_speed_megabytes_per_second) = (2, 44_712);
    gpu.c2c_replays = 3;
    gpu.recovery_action = 1;
    gpu.fabric_cluster_uuid = [1; 16];
    // Degraded bandwidth: yes; the other three: no; configuration: insufficient NVLinks.
    gpu.fabric_health_mask = 0b01 | 0b10_10_10_00 | 5 << 8;
    for (number, link) in (1_u64..).zip(&mut gpu.links) {
        (link.version, link.speed_megabytes_per_second) = (7, 53_125);
        link.receive_bytes = 1_000 * number;
        link.transmit_bytes = 2_000 * number;
        link.receive_packets = 10 * number;
        link.transmit_packets = 20 * number;
        link.symbol_errors = number;
        link.recoveries = 5;
        link.recoveries_successful = 4;
        link.recoveries_failed = 1;
        link.symbol_ber_packed = 0x50f;
        link.fec_history[0] = 1 << 40;
        link.fec_history[7] = number;
        link.prm_link_downs = number;
        link.prm_physical_recoveries = 3;
        link.prm_recoveries = number - 1;
        link.prm_seconds_since_recovery = 3600;
        link.prm_milliseconds_between_recoveries = 1500;
        link.prm_transmit_wait = 1 << 33;
        link.prm_plr = [1, 2, 3, 4, 5, 6, 7].map(|kind| 10 * kind + number);
    }
    node
}

/// One A100 cut into three devices on two GPU instances, and an undivided one.
fn partitioned() -> NodeGpus {
    let mut node = NodeGpus::a100(2);
    for gpu in &mut node.gpus {
        gpu.set_link_count(0, 2);
    }
    let gpu = &mut node.gpus[0];
    (gpu.mig_mode, gpu.mig_mode_pending) = (true, true);
    gpu.faults = vec![Fault::fail("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED)];
    gpu.mig = [
        (1, 0, "1c.3g.40gb"),
        (1, 1, "1c.3g.40gb"),
        (5, 0, "2g.20gb"),
    ]
    .map(|(gpu_instance, compute_instance, profile)| MigDevice {
        gpu_instance,
        compute_instance,
        profile: profile.into(),
        total_bytes: 20 << 30,
        used_bytes: u64::from(gpu_instance) << 20,
        active_permille: 0,
    })
    .to_vec();
    node
}

#[test]
fn hopper_board() {
    let node = Node::start(hopper());
    // Performance monitoring needs two samples.
    for gpu in 0..2 {
        node.shows(
            &format!("railscope_gpu_sm_active_ratio{{gpu=\"{gpu}\"}}"),
            0.912,
        );
    }
    check("gpus-hopper", &node);
}

#[test]
fn grace_blackwell_rack() {
    let node = Node::start(grace_blackwell());
    node.shows(r#"railscope_gpu_recovery_action{gpu="0"}"#, 1.0);
    // A rate needs two samples.
    node.shows(PEAK_OF_0, 0.0);
    check("gpus-grace-blackwell", &node);
}

#[test]
fn partitioned_ampere() {
    let mut node = Node::start(partitioned());
    for gpu in 0..2 {
        let enabled = f64::from(gpu == 0);
        node.shows(
            &format!("railscope_gpu_mig_enabled{{gpu=\"{gpu}\"}}"),
            enabled,
        );
        node.shows(
            &PEAK_OF_0.replace("gpu=\"0\"", &format!("gpu=\"{gpu}\"")),
            0.0,
        );
    }
    check("gpus-partitioned-ampere", &node);
    node.change(|node| node.gpus[0].mig.truncate(1));
    let of_instance_5 = r#"railscope_mig_memory_used_bytes{gpu="0",gpu_instance="5"}"#;
    assert!(
        eventually(|| node.value(of_instance_5).is_none()),
        "an instance that is gone takes its series along"
    );
}

#[test]
fn every_generation_stays_within_the_budget_and_the_calls_are_counted() {
    for (name, mut state) in [
        ("hopper", NodeGpus::h100(GPUS)),
        ("blackwell", NodeGpus::b200(GPUS)),
        ("ampere", NodeGpus::a100(GPUS)),
    ] {
        for gpu in &mut state.gpus {
            gpu.gpm = name != "ampere";
            gpu.gpm_counters = gpu.gpm;
        }
        let node = Node::start(state);
        let read = |gpu| {
            node.value(&format!("railscope_gpu_power_watts{{gpu=\"{gpu}\"}}"))
                .is_some()
        };
        assert!(eventually(|| (0..GPUS).all(read)), "{name} is read");
        let (default, full) = (node.series(Profile::Default), node.series(Profile::Full));
        println!(
            "{name}: {} series by default, {} in full",
            default.len(),
            full.len()
        );
        for gpu in 0..GPUS {
            let labels = [
                format!("gpu=\"{gpu}\""),
                format!("source=\"gpu\",device=\"{gpu}\""),
            ];
            let of_gpu: Vec<_> = default
                .keys()
                .filter(|key| labels.iter().any(|label| key.contains(label)))
                .collect();
            assert!(
                of_gpu.len() <= BUDGET,
                "{name}: {} {of_gpu:#?}",
                of_gpu.len()
            );
        }
        let calls = calls_of_a_sample(&node);
        let all: f64 = calls.iter().map(|(_, calls)| calls).sum();
        println!("{name}: {all:.1} NVML calls a sample of one GPU: {calls:.1?}");
        assert!(all <= MOST_CALLS, "{name}: {all} {calls:?}");
    }
}

/// NVML calls of one sample of GPU 0, by their subject, once the GPU's features are known.
fn calls_of_a_sample(node: &Node) -> Vec<(String, f64)> {
    let prefix = "railscope_nvml_calls_total{gpu=\"0\",call=\"";
    let now = || -> BTreeMap<String, f64> {
        let series = node.series(Profile::Full);
        let calls = series.into_iter();
        calls
            .filter_map(|(key, calls)| {
                let call = key.strip_prefix(prefix)?.trim_end_matches("\"}");
                Some((call.to_owned(), calls))
            })
            .collect()
    };
    // Four calls of every sample read the PCIe link.
    let samples = |calls: &BTreeMap<String, f64>| calls["pcie_link"] / 4.0;
    assert!(eventually(|| samples(&now()) >= 2.0), "the second sample");
    let before = now();
    assert!(eventually(|| samples(&now()) >= samples(&before) + 2.0));
    let after = now();
    let taken = samples(&after) - samples(&before);
    after
        .into_iter()
        .map(|(call, calls)| {
            let made = calls - before.get(&call).copied().unwrap_or(0.0);
            (call, made / taken)
        })
        .filter(|(_, calls)| *calls > 0.0)
        .collect()
}

#[test]
fn a_field_that_spoils_its_batch_or_is_not_supported_costs_only_itself() {
    let mut state = grace_blackwell();
    state.gpus[0].faults = vec![
        // One that fails every shared call, but succeeds alone.
        Fault::spoil(186, UNKNOWN),
        // One that also fails alone.
        Fault::spoil(207, UNKNOWN),
        Fault::fail("field.207", UNKNOWN),
        Fault::fail("field.142", NOT_SUPPORTED),
    ];
    let node = Node::start(state);
    node.shows(r#"railscope_gpu_recovery_action{gpu="0"}"#, 1.0);
    let kind = |kind: &str| {
        format!("railscope_nvlink_errors_total{{gpu=\"0\",link=\"1\",kind=\"{kind}\"}}")
    };
    for (series, value) in [
        (
            r#"railscope_gpu_power_scope_watts{gpu="0",scope="gpu",window="instant"}"#.to_owned(),
            Some(588.39),
        ),
        (
            r#"railscope_gpu_row_remaps_total{gpu="0",cause="uncorrectable"}"#.to_owned(),
            Some(0.0),
        ),
        (
            r#"railscope_gpu_row_remaps_total{gpu="0",cause="correctable"}"#.to_owned(),
            None,
        ),
        (kind("symbol"), Some(2.0)),
        (kind("malformed"), Some(0.0)),
        (kind("overrun"), None),
    ] {
        assert_eq!(node.value(&series), value, "{series}");
    }
    let missing = r#"railscope_source_status{source="gpu",device="0/row_remaps_correctable",status="unsupported"}"#;
    assert_eq!(node.value(missing), Some(1.0));
    assert!(!node.series(Profile::Default).contains_key(missing));
}

#[test]
fn the_recovery_action_follows_the_driver_and_one_without_it_is_no_error() {
    let mut state = NodeGpus::h100(3);
    // Drivers before 570.
    state.gpus[1].faults = vec![Fault::fail("field.230", NOT_SUPPORTED)];
    state.gpus[2].faults = vec![Fault::fail("field.230", INVALID_ARGUMENT)];
    let mut node = Node::start(state);
    let action = |gpu| format!("railscope_gpu_recovery_action{{gpu=\"{gpu}\"}}");
    node.shows(&action(0), 0.0);
    for asked in [1_u32, 2, 3, 4, 0] {
        node.change(|node| node.gpus[0].recovery_action = asked);
        node.shows(&action(0), f64::from(asked));
    }
    for gpu in [1, 2] {
        node.shows(
            &format!("railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}}"),
            59.0,
        );
        assert_eq!(node.value(&action(gpu)), None);
    }
    let errors = r#"railscope_source_errors_total{source="gpu"}"#;
    assert_eq!(node.value(errors), Some(0.0));
}

#[test]
fn bytes_of_a_link_that_stops_answering_stay_in_the_sum_and_their_counters_are_never_mixed() {
    let mut node = Node::start(hopper());
    let sum = r#"railscope_gpu_nvlink_receive_bytes_total{gpu="0"}"#;
    node.shows(sum, 600.0 * 1024.0);
    node.change(|node| {
        let gpu = &mut node.gpus[0];
        gpu.links[0].data_receive_kibibytes += 1;
        gpu.faults.push(Fault::fail("field.139", NOT_SUPPORTED));
        gpu.temperature_celsius = 77;
    });
    node.shows(
        r#"railscope_gpu_temperature_celsius{gpu="0",sensor="gpu"}"#,
        77.0,
    );
    assert_eq!(node.value(sum), Some(600.0 * 1024.0));
    let link = r#"railscope_nvlink_receive_bytes_total{gpu="0",link="0"}"#;
    assert_eq!(node.value(link), None);
}

#[test]
fn xids_are_counted_with_their_time_and_told_even_while_the_gpu_hangs() {
    let mut node = Node::start(NodeGpus::h100(2));
    node.change(|node| node.gpus[1].events.push(Event::xid(31, 1)));
    node.shows(
        r#"railscope_gpu_temperature_celsius{gpu="1",sensor="gpu"}"#,
        59.0,
    );
    let series = |xid: u32, family: &str| {
        format!("railscope_gpu_xid_{family}{{gpu=\"1\",xid=\"{xid}\",source=\"nvml\"}}")
    };
    node.change(|node| {
        let events = &mut node.gpus[1].events;
        events.extend([Event::xid(79, 1), Event::xid(79, 2)]);
        events.push(Event {
            kind: 0x4000,
            data: 0,
            sequence: 1,
        });
        node.gpus[1]
            .faults
            .push(Fault::hang("nvmlDeviceGetTemperature"));
    });
    node.shows(&series(79, "events_total"), 2.0);
    node.shows(
        r#"railscope_gpu_events_total{gpu="1",event="unavailable"}"#,
        1.0,
    );
    assert!(node.value(&series(79, "last_timestamp_seconds")) > Some(1.7e9));
    let timeout = r#"railscope_source_status{source="gpu",device="1",status="timeout"}"#;
    node.shows(timeout, 1.0);
    assert_eq!(node.value(&series(79, "events_total")), Some(2.0));
    assert_eq!(
        node.value(r#"railscope_gpu_xid_events_total{gpu="0",xid="79",source="nvml"}"#),
        None
    );
}

#[test]
fn a_byte_counter_that_wraps_is_withdrawn_and_the_slow_throughput_call_is_never_made() {
    let mut state = NodeGpus::h100(1);
    // It would block the GPU's thread.
    state.gpus[0].faults = vec![Fault::hang("nvmlDeviceGetPcieThroughput")];
    state.gpus[0].pcie_transmit_bytes = 4_000_000_000;
    let mut node = Node::start(state);
    let bytes = r#"railscope_gpu_pcie_transmit_bytes_total{gpu="0"}"#;
    node.shows(bytes, 4e9);
    node.change(|node| node.gpus[0].pcie_transmit_bytes = 5);
    node.shows(
        r#"railscope_gpu_statistic_wrapped{gpu="0",counter="pcie_transmit_bytes"}"#,
        1.0,
    );
    assert_eq!(node.value(bytes), None);
    assert_eq!(
        node.value(r#"railscope_gpu_pcie_receive_bytes_total{gpu="0"}"#),
        Some(0.0)
    );
}
