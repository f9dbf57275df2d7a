//! Every number that `nvidia-smi -q` printed of real GPUs, held against the series of an exporter whose NVML
//! answers with the same numbers: nothing lost, nothing invented.

#![allow(clippy::expect_used)] // helpers of tests; clippy lets only the tests themselves

#[path = "support/gpus.rs"]
mod gpus;
#[path = "support/smi.rs"]
mod smi;

use std::collections::BTreeMap;

use gpus::Node;
use railscope_model::metric::Profile;
use railscope_simulator::nvml::{GpuState, MigDevice, NodeGpus, Process, ProcessKind};
use smi::{LEFT_OUT, Said, capture, number, read_text, read_xml};

type Feed = fn(&mut GpuState, f64);

/// What `-q` says, what it is called in the XML, the key of the mock that it feeds, the series, and what a printed
/// unit is in the series' unit.
const ROWS: &[(&str, &str, Feed, &str, f64)] = &[
    (
        "FB Memory Usage / Total",
        "fb_memory_usage/total",
        |g, v| g.memory_total_bytes = bytes(v),
        "memory_size_bytes",
        MIB,
    ),
    (
        "FB Memory Usage / Reserved",
        "fb_memory_usage/reserved",
        |g, v| g.memory_reserved_bytes = bytes(v),
        "memory_reserved_bytes",
        MIB,
    ),
    (
        "BAR1 Memory Usage / Total",
        "bar1_memory_usage/total",
        |g, v| g.bar1_total_bytes = bytes(v),
        "bar1_size_bytes",
        MIB,
    ),
    (
        "BAR1 Memory Usage / Used",
        "bar1_memory_usage/used",
        |g, v| g.bar1_used_bytes = bytes(v),
        "bar1_used_bytes",
        MIB,
    ),
    (
        "Utilization / GPU",
        "utilization/gpu_util",
        |g, v| g.gpu_utilization_percent = v as u32,
        "utilization_ratio",
        0.01,
    ),
    (
        "Utilization / Memory",
        "utilization/memory_util",
        |g, v| g.memory_utilization_percent = v as u32,
        "memory_utilization_ratio",
        0.01,
    ),
    (
        "Temperature / GPU Current Temp",
        "temperature/gpu_temp",
        |g, v| g.temperature_celsius = v as u32,
        "temperature_celsius,sensor=gpu",
        1.0,
    ),
    (
        "Temperature / Memory Current Temp",
        "temperature/memory_temp",
        |g, v| g.memory_temperature_celsius = v as u32,
        "temperature_celsius,sensor=memory",
        1.0,
    ),
    (
        "Temperature / GPU T.Limit Temp",
        "temperature/gpu_temp_tlimit",
        |g, v| g.temperature_max_celsius = (f64::from(g.temperature_celsius) + v) as u32,
        "temperature_margin_celsius",
        1.0,
    ),
    (
        "-",
        "temperature/gpu_temp_max_threshold",
        |g, v| g.temperature_shutdown_celsius = v as u32,
        "temperature_limit_celsius,limit=shutdown",
        1.0,
    ),
    (
        "-",
        "temperature/gpu_temp_slow_threshold",
        |g, v| g.temperature_slowdown_celsius = v as u32,
        "temperature_limit_celsius,limit=slowdown",
        1.0,
    ),
    (
        "GPU Power Readings / Average Power Draw",
        "gpu_power_readings/power_draw",
        |g, v| g.power_milliwatts = milli(v),
        "power_watts",
        1.0,
    ),
    (
        "GPU Power Readings / Instantaneous Power Draw",
        "-",
        |g, v| g.power_instant_milliwatts = milli(v),
        "power_scope_watts,scope=gpu,window=instant",
        1.0,
    ),
    (
        "GPU Memory Power Readings / Average Power Draw",
        "-",
        |g, v| g.memory_power_milliwatts = Some(milli(v)),
        "power_scope_watts,scope=memory,window=average",
        1.0,
    ),
    (
        "GPU Power Readings / Current Power Limit",
        "gpu_power_readings/current_power_limit",
        |g, v| g.power_limit_enforced_milliwatts = milli(v),
        "power_limit_watts",
        1.0,
    ),
    (
        "GPU Power Readings / Requested Power Limit",
        "gpu_power_readings/requested_power_limit",
        |g, v| g.power_limit_milliwatts = milli(v),
        "power_limit_range_watts,limit=requested",
        1.0,
    ),
    (
        "GPU Power Readings / Default Power Limit",
        "gpu_power_readings/default_power_limit",
        |g, v| g.power_limit_default_milliwatts = milli(v),
        "power_limit_range_watts,limit=default",
        1.0,
    ),
    (
        "GPU Power Readings / Min Power Limit",
        "gpu_power_readings/min_power_limit",
        |g, v| g.power_limit_min_milliwatts = milli(v),
        "power_limit_range_watts,limit=min",
        1.0,
    ),
    (
        "GPU Power Readings / Max Power Limit",
        "gpu_power_readings/max_power_limit",
        |g, v| g.power_limit_max_milliwatts = milli(v),
        "power_limit_range_watts,limit=max",
        1.0,
    ),
    (
        "Clocks / Graphics",
        "clocks/graphics_clock",
        |g, v| g.clock_graphics_mhz = v as u32,
        "clock_hertz,clock=graphics",
        1e6,
    ),
    (
        "Clocks / SM",
        "clocks/sm_clock",
        |g, v| g.clock_sm_mhz = v as u32,
        "clock_hertz,clock=sm",
        1e6,
    ),
    (
        "Clocks / Memory",
        "clocks/mem_clock",
        |g, v| g.clock_memory_mhz = v as u32,
        "clock_hertz,clock=memory",
        1e6,
    ),
    (
        "Clocks / Video",
        "clocks/video_clock",
        |g, v| g.clock_video_mhz = v as u32,
        "clock_hertz,clock=video",
        1e6,
    ),
    (
        "Max Clocks / SM",
        "max_clocks/sm_clock",
        |g, v| g.clock_sm_max_mhz = v as u32,
        "clock_max_hertz,clock=sm",
        1e6,
    ),
    (
        "Max Clocks / Memory",
        "max_clocks/mem_clock",
        |g, v| g.clock_memory_max_mhz = v as u32,
        "clock_max_hertz,clock=memory",
        1e6,
    ),
    (
        "PCI / GPU Link Info / PCIe Generation / Current",
        "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
        |g, v| g.pcie_generation = v as u32,
        "pcie_link_generation",
        1.0,
    ),
    (
        "PCI / GPU Link Info / Link Width / Current",
        "pci/pci_gpu_link_info/link_widths/current_link_width",
        |g, v| g.pcie_width_lanes = v as u32,
        "pcie_link_width_lanes",
        1.0,
    ),
    (
        "PCI / GPU Link Info / Link Width / Max",
        "pci/pci_gpu_link_info/link_widths/max_link_width",
        |g, v| g.pcie_width_max_lanes = v as u32,
        "pcie_link_max_width_lanes",
        1.0,
    ),
    (
        "PCI / Replays Since Reset",
        "pci/replay_counter",
        |g, v| g.pcie_replays = v as u32,
        "pcie_replays_total",
        1.0,
    ),
    (
        "PCI / Replay Number Rollovers",
        "pci/replay_rollover_counter",
        |g, v| g.pcie_replay_rollovers = v as u32,
        "pcie_errors_total,kind=replay_rollover",
        1.0,
    ),
    (
        "Clocks Event Reasons Counters / SW Power Capping",
        "-",
        |g, v| g.sw_power_cap_nanoseconds = nano(v),
        "clock_event_seconds_total,reason=sw_power_cap",
        1e-6,
    ),
    (
        "Clocks Event Reasons Counters / Sync Boost",
        "-",
        |g, v| g.sync_boost_nanoseconds = nano(v),
        "clock_event_seconds_total,reason=sync_boost",
        1e-6,
    ),
    (
        "Clocks Event Reasons Counters / SW Thermal Slowdown",
        "-",
        |g, v| g.sw_thermal_nanoseconds = nano(v),
        "clock_event_seconds_total,reason=sw_thermal",
        1e-6,
    ),
    (
        "Clocks Event Reasons Counters / HW Thermal Slowdown",
        "-",
        |g, v| g.hw_thermal_nanoseconds = nano(v),
        "clock_event_seconds_total,reason=hw_thermal",
        1e-6,
    ),
    (
        "Clocks Event Reasons Counters / HW Power Braking",
        "-",
        |g, v| g.hw_power_brake_nanoseconds = nano(v),
        "clock_event_seconds_total,reason=hw_power_brake",
        1e-6,
    ),
    (
        "Remapped Rows / Correctable Error",
        "remapped_rows/remapped_row_corr",
        |g, v| g.remapped_rows_correctable = v as u32,
        "row_remaps_total,cause=correctable",
        1.0,
    ),
    (
        "Remapped Rows / Uncorrectable Error",
        "remapped_rows/remapped_row_unc",
        |g, v| g.remapped_rows_uncorrectable = v as u32,
        "row_remaps_total,cause=uncorrectable",
        1.0,
    ),
];

const MIB: f64 = 1024.0 * 1024.0;

fn bytes(mebibytes: f64) -> u64 {
    (mebibytes * MIB) as u64
}
fn milli(units: f64) -> u32 {
    (units * 1000.0).round() as u32
}
fn nano(micro: f64) -> u64 {
    (micro * 1000.0) as u64
}

/// Feeds the mock, and returns the rows that the recording has a number for.
fn feed(gpu: &mut GpuState, said: &Said, xml: bool) -> Vec<(&'static str, f64)> {
    let mut fed = Vec::new();
    for (text_key, xml_key, set, series, factor) in ROWS {
        let key = if xml { xml_key } else { text_key };
        if let Some(value) = said.get(*key).and_then(|text| number(text)) {
            set(gpu, value);
            fed.push((*series, value * factor));
        }
    }
    fed
}

/// `clock_hertz,clock=sm` as the page names it.
fn series_of(row: &str) -> String {
    let mut parts = row.split(',');
    let name = parts.next().unwrap_or_default();
    let labels: Vec<_> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(label, value)| format!(",{label}=\"{value}\""))
        .collect();
    format!("railscope_gpu_{name}{{gpu=\"0\"{}}}", labels.concat())
}

#[track_caller]
fn compare(page: &BTreeMap<String, f64>, row: &str, expected: f64) {
    let series = series_of(row);
    let found = page.get(&series).copied();
    let near = found.is_some_and(|found| (found - expected).abs() <= expected.abs() * 1e-9);
    assert!(near, "{series}: {found:?}, not {expected}");
}

fn sum(said: &Said, prefix: &str, words: &[&str]) -> f64 {
    let of = |key: &str| key.starts_with(prefix) && words.iter().all(|word| key.contains(word));
    let found = said.iter().filter(|(key, _)| of(key));
    found.filter_map(|(_, text)| number(text)).sum()
}

fn check_text(test: &str, file: &str) {
    let Some(text) = capture(test, file) else {
        return;
    };
    for load in text.split("==============NVSMI LOG==============").skip(1) {
        let load = load.split("\n####").next().unwrap_or_default();
        let said = read_text(load);
        let mut state = NodeGpus::h100(1);
        let gpu = &mut state.gpus[0];
        let fed = feed(gpu, &said, false);
        assert!(
            fed.len() >= 30,
            "{}: the recording is not what it was",
            fed.len()
        );
        let free = number(&said["FB Memory Usage / Free"]).expect("a number");
        let total = number(&said["FB Memory Usage / Total"]).expect("a number");
        let reserved = number(&said["FB Memory Usage / Reserved"]).expect("a number");
        gpu.memory_used_bytes = bytes(total - reserved - free);
        let processes = said
            .keys()
            .filter(|key| key.contains("/ Process ID"))
            .count();
        gpu.processes = vec![
            Process {
                kind: ProcessKind::Compute,
                pid: 1,
                used_bytes: 1
            };
            processes
        ];
        gpu.ecc_volatile_corrected_dram =
            sum(&said, "ECC Errors / Volatile /", &[" Correctable"]) as u64;
        gpu.ecc_aggregate_uncorrected_sram =
            sum(&said, "ECC Errors / Aggregate /", &["Uncorrectable"]) as u64;
        let node = Node::start(state);
        node.shows(&series_of("processes,kind=compute"), processes as f64);
        let page = node.series(Profile::Full);
        for (row, expected) in &fed {
            compare(&page, row, *expected);
        }
        // nvidia-smi rounds each to whole MiB; free is what both versions of the call agree on.
        let used = page[&series_of("memory_used_bytes")];
        assert!((used - (total - free) * MIB).abs() <= MIB, "{used}");
        compare(
            &page,
            "ecc_errors_total,severity=corrected",
            sum(&said, "ECC Errors / Volatile /", &[" Correctable"]),
        );
        compare(
            &page,
            "ecc_lifetime_errors_total,severity=uncorrected",
            sum(&said, "ECC Errors / Aggregate /", &["Uncorrectable"]),
        );
        let known = |key: &str| {
            ROWS.iter().any(|row| row.0 == key)
                || LEFT_OUT.iter().any(|(prefix, _)| key.starts_with(prefix))
        };
        let lost: Vec<_> = said
            .iter()
            .filter(|(key, text)| number(text).is_some() && !known(key))
            .collect();
        assert!(lost.is_empty(), "nvidia-smi says more: {lost:#?}");
        println!("{test}: {} numbers compared", fed.len() + 4);
    }
}

#[test]
fn an_h100_idle_and_under_load() {
    check_text(
        "an_h100_idle_and_under_load",
        "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.txt",
    );
}

#[test]
fn an_h200_idle_and_under_load() {
    check_text(
        "an_h200_idle_and_under_load",
        "linux-x86_64__nvidia-h200__590.48.01.txt",
    );
}

#[test]
fn a_partitioned_a100() {
    let Some(text) = capture("a_partitioned_a100", "a100-sxm4-v12.nvidia-smi-qx.xml") else {
        return;
    };
    let said = read_xml(&text);
    let mut state = NodeGpus::a100(1);
    let gpu = &mut state.gpus[0];
    let fed = feed(gpu, &said, true);
    assert!(
        fed.len() >= 20,
        "{}: the recording is not what it was",
        fed.len()
    );
    (gpu.mig_mode, gpu.mig_mode_pending) = (said["mig_mode/current_mig"] == "Enabled", true);
    for device in text
        .split("<gpu id")
        .nth(1)
        .expect("a GPU")
        .split("<mig_device>")
        .skip(1)
    {
        let value = |name: &str| {
            let found = device
                .split(&format!("<{name}>"))
                .nth(1)
                .and_then(|rest| rest.split('<').next());
            number(found.expect("an element")).expect("a number")
        };
        gpu.mig.push(MigDevice {
            gpu_instance: value("gpu_instance_id") as u32,
            compute_instance: value("compute_instance_id") as u32,
            profile: "1g.20gb".into(),
            total_bytes: bytes(value("total")),
            used_bytes: bytes(value("used")),
            active_permille: 0,
        });
    }
    let instances: Vec<_> = gpu.mig.iter().map(|mig| mig.gpu_instance).collect();
    assert_eq!(instances, [3, 4, 5, 6]);
    let node = Node::start(state);
    node.shows(&series_of("mig_enabled"), 1.0);
    let page = node.series(Profile::Full);
    for (row, expected) in &fed {
        compare(&page, row, *expected);
    }
    for instance in instances {
        for (what, mebibytes) in [("size", 19_968.0), ("used", 12.0)] {
            let series = format!(
                "railscope_mig_memory_{what}_bytes{{gpu=\"0\",gpu_instance=\"{instance}\"}}"
            );
            assert_eq!(page.get(&series), Some(&(mebibytes * MIB)), "{series}");
        }
    }
}
