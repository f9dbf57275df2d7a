//! What kind of topology file a text is, by its content.

use std::fmt;
use std::str::FromStr;

use railscope_model::plan::PlanError;

use super::Source;
use super::inputs::{self, Reader};

/// A format that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// `ibnetdiscover`, in any of its forms.
    Ibnetdiscover,
    /// `iblinkinfo`, in blocks or lines.
    Linkinfo,
    /// `db_csv` of ibdiagnet.
    DbCsv,
    /// `net_dump` of ibdiagnet.
    NetDump,
    /// The metrics endpoint of Railscope's exporter.
    Page,
    /// Railscope's wiring plan as a table.
    Plan,
    /// Railscope's wiring plan as TOML.
    PlanToml,
    /// The cabling plan of NVIDIA's UFM: a table with `StartDevice`.
    Ndt,
    /// JSON of NVIDIA NetQ: its topology graph, or the compute nodes of an NVLink domain.
    Netq,
    /// LLDP neighbors of one host or switch as JSON: `lldpctl -f json` or `-f json0`, Arista EOS, Cisco NX-OS, Junos.
    LldpJson,
    /// LLDP neighbors of one host or switch as text or XML: `lldpctl`, `show lldp neighbors detail` of Arista EOS, Cisco
    /// NX-OS and IOS-XR, `show lldp neighbors` of SONiC, Cumulus Linux and Junos.
    LldpText,
    /// Slurm's `topology.conf`.
    Slurm,
    /// The model of NVIDIA topograph, YAML or JSON.
    Topograph,
    /// The topology of NCCL or RCCL, XML.
    Nccl,
    /// The topology of hwloc, XML.
    Hwloc,
    /// `nvidia-smi topo -m`, also amid other text.
    SmiTopo,
    /// `nvidia-smi nvlink -s`.
    SmiNvlink,
    /// `nvidia-smi -q`, text or XML.
    SmiQuery,
    /// Output of a switch's commands about its ports (SONiC, Junos).
    Switch,
}

/// Names of the formats, as `--format` takes them.
const NAMES: [(Format, &str); 19] = [
    (Format::Ibnetdiscover, "ibnetdiscover"),
    (Format::Linkinfo, "iblinkinfo"),
    (Format::DbCsv, "ibdiagnet"),
    (Format::NetDump, "net-dump"),
    (Format::Page, "metrics"),
    (Format::Plan, "plan"),
    (Format::PlanToml, "plan-toml"),
    (Format::Ndt, "ndt"),
    (Format::Netq, "netq"),
    (Format::LldpJson, "lldpctl"),
    (Format::LldpText, "lldp-neighbors"),
    (Format::Slurm, "slurm"),
    (Format::Topograph, "topograph"),
    (Format::Nccl, "nccl"),
    (Format::Hwloc, "hwloc"),
    (Format::SmiTopo, "smi-topo"),
    (Format::SmiNvlink, "smi-nvlink"),
    (Format::SmiQuery, "smi-query"),
    (Format::Switch, "switch"),
];

impl Format {
    /// Names of all formats, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(format, _)| format == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = NAMES.iter().find(|(_, name)| *name == text);
        named.map(|(format, _)| *format).ok_or_else(|| {
            let names: Vec<_> = Self::names().collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

/// Texts that resemble a topology, and why they are not one.
const OTHERS: [(&str, &str); 3] = [
    (
        "<graphs",
        "NCCL's graph (rings and trees that it chose), not the topology that it chose them on",
    ),
    (
        "Neighbor Device ID",
        "the short list of LLDP neighbors, which omits the kind of a neighbor",
    ),
    (
        "CA type:",
        "ibstat: the ports of one host without what they are cabled to; ibnetdiscover prints that",
    ),
];

/// Returns the format of a text.
pub(super) fn recognize(source: &Source<'_>) -> Result<Format, PlanError> {
    let text = source.text;
    if text.trim().is_empty() {
        return Err(source.error(1, "text", "an empty file", &expected(text)));
    }
    if inputs::is_binary(text) {
        return Err(source.error(1, "text", "no text", &expected(text)));
    }
    // A session can contain the short list before the details.
    let has_details = crate::fabric::lldp::text::is_neighbors(text);
    for (mark, what) in OTHERS.iter().filter(|_| !has_details) {
        if let Some(line) = text.lines().position(|line| line.contains(mark)) {
            return Err(source.error(line + 1, "text", what, &expected(text)));
        }
    }
    let first = text.trim_start().chars().next();
    let found = match first {
        Some('<') => xml(text),
        Some('{' | '[') if !text.contains("[[cables]]") => json(text),
        _ => plain(text),
    };
    found.ok_or_else(|| {
        let line = text.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or_default().trim();
        // A single bracket identifies no format.
        let begun: String = text.chars().take(200).collect();
        let words: Vec<&str> = begun.split_whitespace().collect();
        let found = if line.len() > 2 {
            line.to_owned()
        } else {
            words.join(" ")
        };
        source.error(1, "text", &found, &expected(text))
    })
}

fn expected(text: &str) -> String {
    let hint = inputs::hint(text, &[Reader::Topology, Reader::Node]);
    format!("a fabric, a node or a switch: {hint}")
}

fn xml(text: &str) -> Option<Format> {
    let has = |mark: &str| text.contains(mark);
    match () {
        () if has("<lldp-neighbors-information") => Some(Format::LldpText),
        () if has("<nvidia_smi_log") => Some(Format::SmiQuery),
        () if has("<system") => Some(Format::Nccl),
        () if has("<topology") && has("<object") => Some(Format::Hwloc),
        () => None,
    }
}

/// Keys of LLDP neighbors in the JSON of lldpd, EOS, Junos and NX-OS.
const LLDP_KEYS: [&str; 6] = [
    "lldp",
    "lldp_status",
    "lldpNeighbors",
    "lldp-neighbors-information",
    "TABLE_nbor",
    "TABLE_nbor_detail",
];

fn json(text: &str) -> Option<Format> {
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    match () {
        () if LLDP_KEYS.iter().any(|key| has(key)) => Some(Format::LldpJson),
        () if has("compounded_links") || has("GpuIDList") => Some(Format::Netq),
        () if has("switches") || has("capacity_blocks") => Some(Format::Topograph),
        () => None,
    }
}

fn plain(text: &str) -> Option<Format> {
    let line = |is: &dyn Fn(&str) -> bool| text.lines().any(|line| is(line.trim_end()));
    let key = |line: &str, names: &[&str]| {
        let (name, _) = line.split_once('=').unwrap_or_default();
        names
            .iter()
            .any(|wanted| name.trim().eq_ignore_ascii_case(wanted))
    };
    let table = |line: &str, columns: &[&str]| {
        let fields: Vec<_> = line
            .split(',')
            .map(|field| field.trim().trim_matches('"'))
            .collect();
        columns.iter().all(|column| fields.contains(column))
    };
    match () {
        () if line(&|line| key(line, &["SwitchName", "BlockName", "BlockSizes"])) => {
            Some(Format::Slurm)
        }
        () if line(&|line| {
            line.trim_start_matches('#')
                .trim()
                .starts_with("StartDevice,")
        }) =>
        {
            Some(Format::Ndt)
        }
        () if line(&|line| table(line, &["from", "to"]) || table(line, &["from_port"])) => {
            Some(Format::Plan)
        }
        () if line(&|line| line == "[[cables]]") => Some(Format::PlanToml),
        () if line(&|line| {
            line.starts_with("railscope_") || line.starts_with("# TYPE railscope_")
        }) =>
        {
            Some(Format::Page)
        }
        () if line(&|line| line.contains("GPU0") && line.contains("CPU Affinity")) => {
            Some(Format::SmiTopo)
        }
        () if line(&|line| line.trim() == "START_LINKS") => Some(Format::DbCsv),
        () if line(&super::net_dump::is_heading) => Some(Format::NetDump),
        () if line(&|line| super::subnets::is_linkinfo(line)) => Some(Format::Linkinfo),
        () if line(&|line| line.contains("NVSMI LOG")) => Some(Format::SmiQuery),
        () if line(&|line| super::smi::is_nvlink(line)) && text.contains("GPU ") => {
            Some(Format::SmiNvlink)
        }
        () if line(&super::switch::is_switch) => Some(Format::Switch),
        () if crate::fabric::lldp::text::is_neighbors(text) => Some(Format::LldpText),
        () if line(&|line| ["switches:", "capacity_blocks:", "nodes:"].contains(&line)) => {
            Some(Format::Topograph)
        }
        () if !crate::fabric::subnet::parse_ibnetdiscover(text)
            .nodes
            .is_empty() =>
        {
            Some(Format::Ibnetdiscover)
        }
        () => None,
    }
}
