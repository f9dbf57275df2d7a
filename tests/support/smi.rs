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

/// The number in `629.45 W`, `81559 MiB` or `16x`; none in `N/A` and other words.
pub(crate) fn number(text: &str) -> Option<f64> {
    let end = text.find(|char: char| !(char.is_ascii_digit() || char == '.' || char == '-'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let known = [
        "", " W", " MiB", " %", "%", " C", " MHz", " us", " KB/s", "x", " bank(s)",
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
