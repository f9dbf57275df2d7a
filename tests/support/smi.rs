//! What `nvidia-smi -q` and `nvidia-smi -q -x` printed of one GPU, as a map from path to text.

use std::collections::BTreeMap;
use std::path::Path;

/// `Section / Key` of `nvidia-smi -q`, or the path of an element of `nvidia-smi -q -x`, and its text.
pub(crate) type Said = BTreeMap<String, String>;

/// Numbers that we leave to `nvidia-smi`, and why.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    ("Serial Number", "text, on railscope_gpu_info"),
    ("Minor Number", "names a device file"),
    ("Accounting Mode Buffer Size", "accounting"),
    (
        "Platform Info / Module Id",
        "text, on railscope_gpu_platform_info",
    ),
    ("Inforom Version /", "firmware inventory"),
    ("PCI / Bus", "text, on railscope_gpu_info"),
    ("PCI / Device", "text, on railscope_gpu_info"),
    ("PCI / Domain", "text, on railscope_gpu_info"),
    ("PCI / Base Classcode", "constant"),
    ("PCI / Sub Classcode", "constant"),
    ("PCI / Sub System Id", "text"),
    (
        "PCI / GPU Link Info / PCIe Generation /",
        "what device, slot and host could do: sysfs tells it of every hop",
    ),
    ("PCI / Tx Throughput", "blocks 20 ms and shows 20 ms"),
    ("PCI / Rx Throughput", "blocks 20 ms and shows 20 ms"),
    ("FB Memory Usage / Used", "size less free; compared below"),
    ("FB Memory Usage / Free", "compared below"),
    ("BAR1 Memory Usage / Free", "size less used"),
    (
        "Conf Compute Protected Memory Usage /",
        "confidential computing",
    ),
    ("Utilization / Encoder", "video engine"),
    ("Utilization / Decoder", "video engine"),
    ("Utilization / JPEG", "video engine"),
    ("Utilization / OFA", "video engine"),
    ("Encoder Stats /", "video engine"),
    ("FBC Stats /", "frame buffer capture"),
    ("ECC Errors /", "summed over places; compared below"),
    (
        "Remapped Rows / Bank Remap Availability Histogram /",
        "spare rows",
    ),
    (
        "Temperature / GPU Shutdown T.Limit Temp",
        "constant of the board",
    ),
    (
        "Temperature / GPU Slowdown T.Limit Temp",
        "constant of the board",
    ),
    (
        "Temperature / GPU Max Operating T.Limit Temp",
        "zero by definition",
    ),
    (
        "Temperature / Memory Max Operating T.Limit Temp",
        "zero by definition",
    ),
    ("EDPp Multiplier", "constant"),
    ("Max Clocks / Graphics", "equals SM"),
    ("Max Clocks / Video", "video engine"),
    ("Max Customer Boost Clocks /", "constant"),
    ("Fabric / CliqueId", "text, on railscope_gpu_fabric_info"),
    ("Processes /", "counted, compared below"),
];

/// The same of `nvidia-smi -q -x`, whose names differ.
pub(crate) const LEFT_OUT_XML: &[(&str, &str)] = &[
    ("mig_devices/", "each instance is compared by itself"),
    ("serial", "text, on railscope_gpu_info"),
    ("minor_number", "names a device file"),
    ("gpu_module_id", "text, on railscope_gpu_platform_info"),
    ("accounting_mode_buffer_size", "accounting"),
    ("inforom_version/", "firmware inventory"),
    ("pci/pci_bus", "text, on railscope_gpu_info"),
    ("pci/pci_d", "text, on railscope_gpu_info"),
    (
        "pci/pci_gpu_link_info/pcie_gen/",
        "what device, slot and host could do: sysfs tells it of every hop",
    ),
    ("pci/tx_util", "blocks 20 ms and shows 20 ms"),
    ("pci/rx_util", "blocks 20 ms and shows 20 ms"),
    ("fb_memory_usage/used", "size less free"),
    ("fb_memory_usage/free", "compared below"),
    ("bar1_memory_usage/free", "size less used"),
    ("cc_protected_memory_usage/", "confidential computing"),
    ("utilization/", "video engine"),
    ("encoder_stats/", "video engine"),
    ("fbc_stats/", "frame buffer capture"),
    ("ecc_errors/", "summed over places; compared below"),
    (
        "temperature/gpu_temp_max_",
        "limits of the software; the margin tells",
    ),
    (
        "applications_clocks/",
        "what an administrator set; reason app_clocks tells when it holds the clock",
    ),
    ("default_applications_clocks/", "constant of the board"),
    ("max_clocks/graphics_clock", "equals SM"),
    ("max_clocks/video_clock", "video engine"),
    ("max_customer_boost_clocks/", "constant"),
    ("supported_clocks/", "constant of the board"),
    ("voltage/", "follows the clock"),
    ("processes/", "counted, compared below"),
];

/// Series that a recording of `nvidia-smi` does not contain: the mock uses its defaults.
pub(crate) const NOT_SAID: &[(&str, &str)] = &[
    ("nvml_", "the exporter's own calls"),
    ("mig_", "each instance is compared by itself"),
    (
        "gpu_clock_event_seconds_total",
        "not printed by the driver of the A100",
    ),
    ("gpu_statistic_source_info", "which call the exporter chose"),
    ("gpu_lowest_clock", "over a window: a recording has none"),
    ("gpu_peak_power", "over a window: a recording has none"),
    (
        "gpu_recovery_action",
        "not printed by the driver of the A100",
    ),
    (
        "gpu_power_scope_watts{gpu=\"0\",scope=\"gpu\",window=\"instant\"",
        "not printed by the driver of the A100",
    ),
    ("nvlink_", "nvidia-smi nvlink, compared by itself"),
    ("gpu_nvlink", "nvidia-smi nvlink, compared by itself"),
    ("gpu_info", "text"),
    ("gpu_platform_info", "text"),
    ("gpu_virtualization_info", "text"),
    ("gpu_fabric_info", "text"),
    (
        "gpu_energy_joules_total",
        "no command of nvidia-smi prints it",
    ),
    (
        "gpu_pcie_errors_total",
        "nvidia-smi pci --getErrorCounters, not recorded",
    ),
    (
        "gpu_pcie_lane_errors_total",
        "nvidia-smi pci --getErrorCounters, not recorded",
    ),
    (
        "gpu_pcie_transmit_bytes_total",
        "nvidia-smi pci --getCounters, not recorded",
    ),
    (
        "gpu_pcie_receive_bytes_total",
        "nvidia-smi pci --getCounters, not recorded",
    ),
    (
        "gpu_processes{gpu=\"0\",kind=\"graphics\"",
        "none in a data centre",
    ),
    (
        "gpu_processes{gpu=\"0\",kind=\"mps\"",
        "no MPS server in the recordings",
    ),
    (
        "gpu_temperature_limit_celsius",
        "since Hopper nvidia-smi prints margins in its place",
    ),
];

/// Sections of a recording: what reads each, or why none does.
pub(crate) const SECTIONS: &[(&str, &str)] = &[
    ("query (-q)", "read: every number compared"),
    ("nvlink -s", "read: every link compared"),
    ("query-gpu", "the numbers of -q once more, as a table"),
    (
        "nvidia-smi (default table)",
        "the numbers of -q once more, rounded",
    ),
    (
        "dmon",
        "power, temperature and clocks of -q once more, each second",
    ),
    (
        "pmon",
        "share of time of each process: the batch system's business",
    ),
    ("query-compute-apps", "processes of -q once more"),
    ("query-accounted-apps", "accounting is off"),
    ("query-retired-pages", "boards before Ampere"),
    ("topo -m", "one GPU and no NIC: no pair to place"),
    ("version", "text, on railscope_gpu_info"),
    ("list (-L)", "text, on railscope_gpu_info"),
    ("help", "documentation"),
    ("nvml-symbols", "names of functions"),
];

/// The number in `629.45 W`, `81559 MiB` or `16x`; none in `N/A` and other text.
pub(crate) fn number(text: &str) -> Option<f64> {
    let end = text.find(|char: char| !(char.is_ascii_digit() || char == '.' || char == '-'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let known = [
        "", " W", " MiB", " %", "%", " C", " MHz", " us", " KB/s", "x", " bank(s)", " mV",
    ];
    known.contains(&unit).then(|| digits.parse().ok()).flatten()
}

/// Reads one GPU of `nvidia-smi -q`: four blanks a level, `Key : Value`.
pub(crate) fn read_text(text: &str) -> Said {
    let mut said = Said::new();
    let mut path: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        let level = line.len() - line.trim_start().len();
        path.truncate(level / 4 - 1);
        let (key, value) = match line.split_once(" : ") {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (line.trim(), None),
        };
        path.push(key.to_owned());
        if let Some(value) = value {
            // Processes repeat: they are counted by their keys' numbers.
            let place = said.len();
            let name = path.join(" / ");
            let name = if name.starts_with("Processes /") {
                format!("{name} #{place}")
            } else {
                name
            };
            said.insert(name, value.to_owned());
        }
    }
    said
}

/// Reads the elements of the first GPU of `nvidia-smi -q -x`; repeated ones get the last text.
pub(crate) fn read_xml(text: &str) -> Said {
    let mut said = Said::new();
    let mut path: Vec<&str> = Vec::new();
    let gpu = text
        .split("<gpu id")
        .nth(1)
        .expect("a GPU")
        .split("</gpu>")
        .next();
    for line in gpu.expect("its elements").lines().skip(1) {
        let line = line.trim();
        let Some(name) = line
            .strip_prefix('<')
            .and_then(|rest| rest.split(['>', ' ']).next())
        else {
            continue;
        };
        if name.starts_with('/') {
            path.pop();
        } else if let Some((_, value)) = line.split_once('>').filter(|(_, rest)| !rest.is_empty()) {
            let value = value.split("</").next().unwrap_or_default();
            path.push(name);
            said.insert(path.join("/"), value.to_owned());
            path.pop();
        } else {
            path.push(name);
        }
    }
    said
}

pub(crate) fn capture(test: &str, file: &str) -> Option<String> {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures/gpu_smi");
    let text = std::fs::read_to_string(captures.join(file));
    if text.is_err() {
        eprintln!("SKIPPED: {test}: no recordings beside the checkout");
    }
    text.ok()
}
