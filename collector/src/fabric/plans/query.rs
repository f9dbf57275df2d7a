//! Reads `nvidia-smi -q`, text and XML, and finds faults in the values of each GPU.

use std::collections::BTreeMap;
use std::fmt;

use railscope_model::plan::PlanError;

use super::Source;
use super::nccl::xml;
use crate::fabric::subnet::counted;

/// The output of `nvidia-smi -q` of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Values of the node: driver, number of GPUs.
    pub node: BTreeMap<String, String>,
    /// GPUs by name (their PCI address), each with its values by path: `ecc errors/volatile/dram uncorrectable`.
    pub gpus: Vec<(String, BTreeMap<String, String>)>,
    /// Error messages of the tool.
    pub complaints: Vec<String>,
}

/// Maximum number of GPUs in one text; the largest machines have 16, and each can be listed twice.
const MOST_GPUS: usize = 512;

/// Reads text or XML. Of several logs in one text, the last is used.
pub(super) fn read(source: &mut Source<'_>) -> Result<Query, Vec<PlanError>> {
    let query = if source.text.trim_start().starts_with('<') {
        read_xml(source)?
    } else {
        read_text(source)
    };
    let expected = "a \"GPU 00000000:1B:00.0\" with its values from nvidia-smi -q";
    if query.gpus.is_empty() && query.complaints.is_empty() {
        return Err(vec![source.error(1, "gpu", "no GPU", expected)]);
    }
    let attached = query.node.get("attached gpus");
    let attached: Option<usize> = attached.and_then(|number| number.parse().ok());
    if let Some(attached) = attached.filter(|attached| *attached != query.gpus.len()) {
        let is_it = |line: &str| key(line).contains("attached gpus");
        let line = source.text.lines().position(is_it);
        let found = format!("{} of {attached} attached GPUs", query.gpus.len());
        let expected = "all of them: the text is truncated, or a GPU does not answer";
        source.problem(line.map_or(0, |at| at + 1), "gpu", &found, expected);
    }
    if query.gpus.len() > MOST_GPUS {
        return Err(vec![source.error(
            1,
            "gpu",
            &format!("{} GPUs", query.gpus.len()),
            "at most 512 for a node",
        )]);
    }
    Ok(query)
}

/// Normalizes a key, so that text and XML agree: `ECC Errors` and `ecc_errors` are equal.
fn key(words: &str) -> String {
    words.trim().to_ascii_lowercase().replace(['_', '-'], " ")
}

fn read_text(source: &Source<'_>) -> Query {
    let mut query = Query::default();
    // Headings of the line, with their indentation.
    let mut headings: Vec<(usize, String)> = Vec::new();
    for line in source.text.lines() {
        let (indent, text) = (line.len() - line.trim_start().len(), line.trim());
        if text.contains("NVSMI LOG") {
            query = Query::default();
            headings.clear();
            continue;
        }
        if is_complaint(text) {
            query.complaints.push(text.to_owned());
            continue;
        }
        if indent == 0 && text.starts_with("GPU ") && text.contains(':') {
            let name = text.trim_start_matches("GPU ").to_owned();
            query.gpus.push((name, BTreeMap::new()));
            headings.clear();
            continue;
        }
        // Another command's output ends the log.
        if text.starts_with('#') || text.is_empty() {
            continue;
        }
        headings.retain(|(above, _)| *above < indent);
        let Some((name, value)) = text.split_once(" : ").or_else(|| text.split_once(": ")) else {
            headings.push((indent, key(text)));
            continue;
        };
        let path = headings
            .iter()
            .map(|(_, name)| name.clone())
            .chain([key(name)]);
        let path = path.collect::<Vec<_>>().join("/");
        match query.gpus.last_mut() {
            Some((_, values)) if indent > 0 => drop(values.insert(path, value.trim().to_owned())),
            Some(_) => {}
            None => drop(query.node.insert(path, value.trim().to_owned())),
        }
    }
    query
}

/// Whether a line is an error message that the tool prints if a GPU does not respond.
fn is_complaint(text: &str) -> bool {
    text.starts_with("Unable to determine the device handle")
        || text.starts_with("Failed to initialize NVML")
        || text.contains("GPU is lost")
        || text.starts_with("NVIDIA-SMI has failed")
}

fn read_xml(source: &mut Source<'_>) -> Result<Query, Vec<PlanError>> {
    let document = xml(source)?;
    let root = document.root_element();
    if !root.has_tag_name("nvidia_smi_log") {
        return Err(vec![source.error(
            1,
            "root",
            root.tag_name().name(),
            "<nvidia_smi_log>",
        )]);
    }
    let mut query = Query::default();
    for child in root.children().filter(roxmltree::Node::is_element) {
        if child.has_tag_name("gpu") {
            let mut values = BTreeMap::new();
            // Leaves only, each with its path; the XML reader limits the depth.
            for leaf in child.descendants().filter(|node| {
                node.is_element() && !node.children().any(|below| below.is_element())
            }) {
                let mut path: Vec<String> = leaf
                    .ancestors()
                    .take_while(|above| *above != child)
                    .map(|above| key(above.tag_name().name()))
                    .collect();
                path.reverse();
                let value = leaf.text().unwrap_or_default().trim().to_owned();
                values.entry(path.join("/")).or_insert(value);
            }
            let name = child
                .attribute("id")
                .unwrap_or("without an address")
                .to_owned();
            query.gpus.push((name, values));
        } else if let Some(text) = child.text() {
            query
                .node
                .insert(key(child.tag_name().name()), text.trim().to_owned());
        }
    }
    Ok(query)
}

/// A value of a GPU's state: its paths in both forms, and the condition that makes it a fault.
struct Fact {
    paths: &'static [&'static str],
    /// The fault and the action.
    fault: &'static str,
    is_fault: fn(&str) -> bool,
}

/// Whether the value is a number above zero, with any unit.
fn some(value: &str) -> bool {
    let number = value.split_whitespace().next().unwrap_or_default();
    number.parse::<u64>().is_ok_and(|number| number > 0)
}

fn yes(value: &str) -> bool {
    value.eq_ignore_ascii_case("yes")
}

fn active(value: &str) -> bool {
    value.eq_ignore_ascii_case("active")
}

/// Whether the value is neither a healthy state nor "not supported".
fn not_fine(value: &str) -> bool {
    let fine = [
        "",
        "n/a",
        "none",
        "completed",
        "success",
        "healthy",
        "full",
        "false",
        "not supported",
        "no",
    ];
    !fine.contains(&value.to_ascii_lowercase().as_str())
        && !value.starts_with("Requested functionality")
}

/// Faults and actions (NVIDIA, "NVIDIA GPU Memory Error Management" and "Fabric Manager User Guide").
const FACTS: &[Fact] = &[
    Fact {
        paths: &[
            "ecc errors/volatile/dram uncorrectable",
            "ecc errors/volatile/sram uncorrectable",
            "ecc errors/volatile/sram uncorrectable parity",
            "ecc errors/volatile/sram uncorrectable sec ded",
            "ecc errors/volatile/sram uncorrectable secded",
            "ecc errors/volatile/device memory",
        ],
        fault: "uncorrectable memory errors since the driver was loaded, which crash jobs: drain the node and reset the GPU",
        is_fault: some,
    },
    Fact {
        paths: &[
            "ecc errors/aggregate/sram threshold exceeded",
            "ecc errors/aggregate/sram threshold exceeded flag",
        ],
        fault: "SRAM errors exceed the threshold: replace the GPU",
        is_fault: yes,
    },
    Fact {
        paths: &[
            "remapped rows/remapping failure occurred",
            "remapped rows/remapped row failure",
        ],
        fault: "row remap failed: replace the GPU",
        is_fault: yes,
    },
    Fact {
        paths: &[
            "remapped rows/pending",
            "remapped rows/remapped row pending",
        ],
        fault: "row remap pending: drain the node and reset the GPU",
        is_fault: yes,
    },
    Fact {
        paths: &[
            "remapped rows/bank remap availability histogram/none",
            "remapped rows/row remapper histogram/row remapper histogram none",
        ],
        fault: "memory banks without spare rows: replace the GPU at the next row remap failure",
        is_fault: some,
    },
    Fact {
        paths: &[
            "retired pages/pending page blacklist",
            "retired pages/pending retirement",
            "retired pages/pending blacklist",
        ],
        fault: "page retirement pending: drain the node and reset the GPU",
        is_fault: yes,
    },
    Fact {
        paths: &[
            "retired pages/double bit ecc",
            "retired pages/double bit retirement/retired count",
        ],
        fault: "memory pages retired after double-bit errors; replace the GPU if the number grows",
        is_fault: some,
    },
    Fact {
        paths: &["fabric/state"],
        fault: "not joined the NVLink fabric: check the fabric manager and Xid 74 and 145",
        is_fault: not_fine,
    },
    Fact {
        paths: &["fabric/status"],
        fault: "joining the NVLink fabric failed: check the fabric manager",
        is_fault: not_fine,
    },
    Fact {
        paths: &[
            "fabric/health/summary",
            "fabric/health/bandwidth",
            "fabric/health/route recovery in progress",
            "fabric/health/route unhealthy",
            "fabric/health/access timeout recovery",
            "fabric/health/incorrect configuration",
        ],
        fault: "the NVLink fabric reports an unhealthy connection of this GPU",
        is_fault: not_fine,
    },
    Fact {
        paths: &["gpu recovery action"],
        fault: "the driver requests this recovery action",
        is_fault: not_fine,
    },
    Fact {
        paths: &[
            "clocks event reasons/hw slowdown",
            "clocks event reasons/hw thermal slowdown",
            "clocks event reasons/hw slowdown/hw thermal slowdown",
            "clocks event reasons/hw slowdown/hw power brake slowdown",
            "clocks event reasons/clocks event reason hw slowdown",
            "clocks throttle reasons/hw slowdown",
            "clocks throttle reasons/hw slowdown/hw thermal slowdown",
            "clocks throttle reasons/hw slowdown/hw power brake slowdown",
            "clocks throttle reasons/clocks throttle reason hw slowdown",
        ],
        fault: "hardware clock slowdown: check cooling and power",
        is_fault: active,
    },
    Fact {
        paths: &[
            "channel repair pending",
            "ecc errors/channel repair pending",
            "ecc errors/tpc repair pending",
            "ecc errors/unrepairable memory",
        ],
        fault: "repair of memory or of a processing cluster pending: drain the node and reset the GPU",
        is_fault: yes,
    },
];

/// Paths of the current and the maximum link width.
const WIDTHS: [[&str; 2]; 2] = [
    [
        "pci/gpu link info/link width/current",
        "pci/gpu link info/link width/max",
    ],
    [
        "pci/pci gpu link info/link widths/current link width",
        "pci/pci gpu link info/link widths/max link width",
    ],
];

/// Values that nodes of the same kind share.
const ALIKE: &[&[&str]] = &[
    &["product name"],
    &["vbios version"],
    &["ecc mode/current", "ecc mode/current ecc"],
    &["mig mode/current", "mig mode/current mig"],
    &["persistence mode"],
    &["fb memory usage/total"],
    &[
        "gpu power readings/current power limit",
        "power readings/current power limit",
        "power readings/enforced power limit",
    ],
    &["gsp firmware version"],
];

impl Query {
    /// Faults of the node's GPUs, one sentence each with its action.
    pub fn findings(&self) -> Vec<String> {
        let mut findings: Vec<String> = self.complaints.clone();
        for (name, values) in &self.gpus {
            for fact in FACTS {
                let bad = fact.paths.iter().filter_map(|path| {
                    let value = values.get(*path)?;
                    (fact.is_fault)(value).then(|| format!("{path} = {value}"))
                });
                let bad: Vec<String> = bad.collect();
                if !bad.is_empty() {
                    findings.push(format!("GPU {name}: {} ({})", fact.fault, bad.join(", ")));
                }
            }
            for [now, most] in WIDTHS {
                if let (Some(now), Some(most)) = (values.get(now), values.get(most))
                    && now != most
                    && now.ends_with('x')
                {
                    findings.push(format!(
                        "GPU {name}: PCIe link width is {now} of {most}: reseat it, check its slot"
                    ));
                }
            }
            let unreadable = values
                .iter()
                .find(|(_, value)| value.contains("ERR!") || value.contains("Unknown Error"));
            if let Some((path, value)) = unreadable {
                findings.push(format!(
                    "GPU {name} does not answer: {path} = {value}; reset it, or restart the node"
                ));
            }
        }
        findings
    }

    /// Values by which nodes are compared; all GPUs of a node and of its peers should share them.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let mut same: BTreeMap<String, String> = BTreeMap::new();
        same.insert("GPUs".to_owned(), self.gpus.len().to_string());
        for name in ["driver version", "cuda version"] {
            if let Some(value) = self.node.get(name) {
                same.insert(name.to_owned(), value.clone());
            }
        }
        for paths in ALIKE {
            let values = self
                .gpus
                .iter()
                .filter_map(|(_, values)| paths.iter().find_map(|path| values.get(*path)));
            let mut values: Vec<&str> = values.map(String::as_str).collect();
            values.sort_unstable();
            values.dedup();
            if let (Some(name), false) = (paths.first(), values.is_empty()) {
                same.insert((*name).to_owned(), values.join(" and "));
            }
        }
        same
    }
}

impl fmt::Display for Query {
    /// Several lines; the first is the summary.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.findings();
        let found = match findings.len() {
            0 => "no findings".to_owned(),
            some => counted(some, "finding", "findings"),
        };
        writeln!(f, "{}: {found}", counted(self.gpus.len(), "GPU", "GPUs"))?;
        for finding in findings {
            writeln!(f, "  WRONG      {finding}")?;
        }
        for (name, value) in self.identity() {
            writeln!(f, "  has        {name}: {value}")?;
        }
        Ok(())
    }
}

/// Nodes that differ from at least two thirds of at least three nodes, one sentence each.
pub fn odd_nodes(nodes: &[(String, BTreeMap<String, String>)]) -> Vec<String> {
    let keys: std::collections::BTreeSet<&String> =
        nodes.iter().flat_map(|(_, values)| values.keys()).collect();
    let mut odd = Vec::new();
    for key in keys {
        let mut by_value: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (node, values) in nodes {
            let value = values.get(key).map_or("absent", String::as_str);
            by_value.entry(value).or_default().push(node);
        }
        let Some((usual, most)) = by_value.iter().max_by_key(|(_, nodes)| nodes.len()) else {
            continue;
        };
        if nodes.len() < 3 || most.len() * 3 < nodes.len() * 2 {
            continue;
        }
        for (value, own) in by_value.iter().filter(|(value, _)| *value != usual) {
            odd.push(format!(
                "{}: {key} is {value}; {} of {} nodes have {usual}",
                own.join(", "),
                most.len(),
                nodes.len()
            ));
        }
    }
    odd
}
