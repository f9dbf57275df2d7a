//! What `nvidia-smi` prints, the key of the mock NVML that it feeds, and the series that it has to become.

use railscope_simulator::show::nvml::GpuState;

use super::smi::{Said, number};

pub(crate) type Feed = fn(&mut GpuState, f64);

/// Its name in `-q`, its name in the XML, the key of the mock that it feeds, the series, and what a printed
/// unit is in the series' unit.
pub(crate) const ROWS: &[(&str, &str, Feed, &str, f64)] = &[
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

pub(crate) const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn bytes(mebibytes: f64) -> u64 {
    (mebibytes * MIB) as u64
}
fn milli(units: f64) -> u32 {
    (units * 1000.0).round() as u32
}
fn nano(micro: f64) -> u64 {
    (micro * 1000.0) as u64
}

/// Feeds the mock, and returns the rows that the recording has a number for.
pub(crate) fn feed(gpu: &mut GpuState, said: &Said, xml: bool) -> Vec<(&'static str, f64)> {
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

/// A state that `nvidia-smi` prints as a word: the keys of both forms, how it feeds the mock, the series, and its
/// number.
pub(crate) struct Word {
    pub(crate) text: &'static str,
    pub(crate) xml: &'static str,
    set: fn(&mut GpuState, f64),
    pub(crate) series: &'static str,
    value: fn(&str) -> Option<f64>,
}

/// Switched on or off. Another word (`N/A`) is not a value.
fn on(text: &str) -> Option<f64> {
    match text {
        "Active" | "Enabled" | "Yes" => Some(1.0),
        "Not Active" | "Disabled" | "No" => Some(0.0),
        _ => None,
    }
}

/// `P0`
fn performance(text: &str) -> Option<f64> {
    text.strip_prefix('P')?.parse().ok()
}

/// NVML's numbers behind the words.
fn numbered(text: &str) -> Option<f64> {
    match text {
        "None" | "Success" => Some(0.0),
        "Completed" => Some(3.0),
        _ => None,
    }
}

const fn word(
    text: &'static str,
    xml: &'static str,
    set: fn(&mut GpuState, f64),
    series: &'static str,
    value: fn(&str) -> Option<f64>,
) -> Word {
    Word {
        text,
        xml,
        set,
        series,
        value,
    }
}

/// One reason of `nvmlClocksEventReasons`, by its bit.
macro_rules! reason {
    ($text:literal, $xml:literal, $bit:literal, $label:literal) => {
        word(
            concat!("Clocks Event Reasons / ", $text),
            concat!("clocks_event_reasons/clocks_event_reason_", $xml),
            |gpu, on| {
                gpu.clocks_event_reasons &= !$bit;
                gpu.clocks_event_reasons |= $bit * on as u64;
            },
            concat!("clock_event_active,reason=", $label),
            on,
        )
    };
}

#[rustfmt::skip] // one row a line
pub(crate) const WORDS: &[Word] = &[
    reason!("Idle", "gpu_idle", 0x1, "gpu_idle"),
    reason!("Applications Clocks Setting", "applications_clocks_setting", 0x2, "app_clocks"),
    reason!("SW Power Cap", "sw_power_cap", 0x4, "sw_power_cap"),
    reason!("HW Slowdown", "hw_slowdown", 0x8, "hw_slowdown"),
    reason!("HW Slowdown / HW Thermal Slowdown", "hw_thermal_slowdown", 0x40, "hw_thermal"),
    reason!("HW Slowdown / HW Power Brake Slowdown", "hw_power_brake_slowdown", 0x80, "hw_power_brake"),
    reason!("Sync Boost", "sync_boost", 0x10, "sync_boost"),
    reason!("SW Thermal Slowdown", "sw_thermal_slowdown", 0x20, "sw_thermal"),
    reason!("Display Clock Setting", "display_clocks_setting", 0x100, "display_clock"),
    word("Performance State", "performance_state", |g, v| g.performance_state = v as u32, "performance_state", performance),
    word("ECC Mode / Current", "ecc_mode/current_ecc", |g, v| g.ecc_mode = v > 0.0, "ecc_enabled", on),
    word("MIG Mode / Current", "mig_mode/current_mig", |g, v| g.mig_mode = v > 0.0, "mig_enabled", on),
    word("Remapped Rows / Pending", "remapped_rows/remapped_row_pending", |g, v| g.remapped_rows_pending = v > 0.0, "row_remap_pending", on),
    word("Remapped Rows / Remapping Failure Occurred", "remapped_rows/remapped_row_failure", |g, v| g.remapped_rows_failed = v > 0.0, "row_remap_failed", on),
    word("GPU Recovery Action", "-", |g, v| g.recovery_action = v as u32, "recovery_action", numbered),
    word("Fabric / State", "fabric/state", |g, v| g.fabric_state = v as u8, "fabric_state", numbered),
    word("Fabric / Status", "fabric/status", |g, v| g.fabric_status = v as u32, "fabric_status", numbered),
];

/// As [`feed`], for states in words.
pub(crate) fn feed_words(gpu: &mut GpuState, said: &Said, xml: bool) -> Vec<(&'static str, f64)> {
    let mut fed = Vec::new();
    for word in WORDS {
        let key = if xml { word.xml } else { word.text };
        if let Some(value) = said.get(key).and_then(|text| (word.value)(text)) {
            (word.set)(gpu, value);
            fed.push((word.series, value));
        }
    }
    fed
}
