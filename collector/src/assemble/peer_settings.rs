//! Versions and settings of devices against those of the same devices of other nodes.
//!
//! A NIC with older firmware or a GPU behind a bridge with other access control runs until a job needs what it does not do. No
//! counter shows that; peers do.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{NodeName, Part};
use railscope_model::label;
use railscope_model::metric::{GPU, NODE, PCIE_CONFIG, PCIE_PATH, RDMA_DEVICE};
use railscope_model::reading::Labels;

use crate::fabric::lint::{
    Finding, MIN_PEERS, PEER_SHARE, Rule, SETTING_DIFFERS, VERSION_DIFFERS, sort,
};
use crate::store::{History, NodeHistory};

/// Nodes that a sentence names.
const MOST_NAMED: usize = 5;

/// What is compared: which setting of which kind of device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    /// Plural, with its model: `NICs of board MT_0000000838`.
    devices: String,
    setting: &'static str,
}

/// By value, the parts of one node that have it.
type Values = BTreeMap<String, BTreeSet<Part>>;

/// These findings and those about versions and settings, the worst first.
pub(crate) fn with_settings(mut findings: Vec<Finding>, history: &History) -> Vec<Finding> {
    findings.extend(differing(history));
    sort(&mut findings);
    findings
}

/// Devices whose version or setting is not that of the peers: at least [`PEER_SHARE`] of at least [`MIN_PEERS`] nodes with such
/// devices have as many of each value. One finding for each other value, so that a rollout in waves is a few findings and
/// not one for each node.
fn differing(history: &History) -> Vec<Finding> {
    let versions = by(&VERSION_DIFFERS, versions, history);
    [versions, by(&SETTING_DIFFERS, settings, history)].concat()
}

/// What a node reports of one kind: each value with the part that has it.
type Report = fn(&NodeName, &NodeHistory) -> Vec<(Subject, String, Part)>;

fn by(rule: &'static Rule, report: Report, history: &History) -> Vec<Finding> {
    let mut subjects: BTreeMap<Subject, BTreeMap<&NodeName, Values>> = BTreeMap::new();
    for (name, node) in history.nodes() {
        for (subject, value, part) in report(name, node) {
            let of_node = subjects
                .entry(subject)
                .or_default()
                .entry(name)
                .or_default();
            of_node.entry(value).or_default().insert(part);
        }
    }
    let compared = subjects
        .iter()
        .flat_map(|(subject, nodes)| compare(rule, subject, nodes));
    compared.collect()
}

fn versions(name: &NodeName, node: &NodeHistory) -> Vec<(Subject, String, Part)> {
    let mut found = Vec::new();
    for (labels, _) in node.series(&RDMA_DEVICE) {
        let get = |label| labels.get(label).filter(|value| !value.is_empty());
        let board = get(label!(RDMA_DEVICE, "board"));
        let firmware = get(label!(RDMA_DEVICE, "firmware"));
        let device = get(label!(RDMA_DEVICE, "device")).and_then(|device| device.parse().ok());
        if let (Some(board), Some(firmware), Some(device)) = (board, firmware, device) {
            let subject = Subject {
                devices: format!("NICs of board {board}"),
                setting: "firmware",
            };
            found.push((
                subject,
                firmware.to_owned(),
                Part::Nic(name.clone(), device),
            ));
        }
    }
    for (labels, _) in node.series(&GPU) {
        let get = |label| labels.get(label).filter(|value| !value.is_empty());
        let gpu = get(label!(GPU, "gpu")).and_then(|gpu| gpu.parse().ok());
        let (Some(model), Some(gpu)) = (get(label!(GPU, "name")), gpu) else {
            continue;
        };
        for (setting, value) in [
            ("VBIOS", get(label!(GPU, "vbios"))),
            ("driver", get(label!(GPU, "driver"))),
        ] {
            let Some(value) = value else { continue };
            let devices = format!("{model} GPUs");
            let part = if setting == "driver" {
                Part::Host(name.clone())
            } else {
                Part::Gpu(name.clone(), gpu)
            };
            found.push((Subject { devices, setting }, value.to_owned(), part));
        }
    }
    found
}

/// PCIe settings of the functions that paths lead to, by the kind of the host: other models have other bridges.
fn settings(name: &NodeName, node: &NodeHistory) -> Vec<(Subject, String, Part)> {
    let product = node
        .series(&NODE)
        .find_map(|(labels, _)| labels.get(label!(NODE, "product")));
    let product = product
        .filter(|product| !product.is_empty())
        .unwrap_or("unknown hosts");
    let kinds: BTreeMap<&str, &str> = (node.series(&PCIE_PATH))
        .filter_map(|(labels, _)| {
            let kind = labels.get(label!(PCIE_PATH, "kind"))?;
            Some((labels.get(label!(PCIE_PATH, "pci"))?, kind))
        })
        .collect();
    let setting = |labels: &Labels| {
        let pci = labels.get(label!(PCIE_CONFIG, "pci"))?;
        let kind = kinds.get(pci).filter(|kind| !kind.is_empty())?;
        let part = Part::PcieLink(name.clone(), pci.parse().ok()?);
        let of = |setting, value: Option<&str>| {
            let subject = Subject {
                devices: format!("PCIe functions ({kind}) of {product}"),
                setting,
            };
            let value = value.filter(|value| !value.is_empty())?;
            Some((subject, value.to_owned(), part.clone()))
        };
        Some([
            of(
                "relaxed ordering",
                labels.get(label!(PCIE_CONFIG, "relaxed_ordering")),
            ),
            of(
                "extended tags",
                labels.get(label!(PCIE_CONFIG, "extended_tags")),
            ),
            of(
                "access control (ACS)",
                labels.get(label!(PCIE_CONFIG, "acs")),
            ),
        ])
    };
    let found = node
        .series(&PCIE_CONFIG)
        .filter_map(|(labels, _)| setting(labels));
    found.flatten().flatten().collect()
}

fn compare(
    rule: &'static Rule,
    subject: &Subject,
    nodes: &BTreeMap<&NodeName, Values>,
) -> Vec<Finding> {
    let counts = |values: &Values| -> BTreeMap<String, usize> {
        values
            .iter()
            .map(|(value, parts)| (value.clone(), parts.len()))
            .collect()
    };
    let mut peers: BTreeMap<BTreeMap<String, usize>, usize> = BTreeMap::new();
    for values in nodes.values() {
        *peers.entry(counts(values)).or_default() += 1;
    }
    let Some((usual, agree)) = peers.iter().max_by_key(|(_, agree)| **agree) else {
        return Vec::new();
    };
    if nodes.len() < MIN_PEERS || (*agree as f64) < PEER_SHARE * nodes.len() as f64 {
        return Vec::new();
    }
    // A device that is missing is no other value.
    let is_other = |(value, parts): &(&String, &BTreeSet<Part>)| {
        parts.len() > usual.get(*value).copied().unwrap_or_default()
    };
    let mut others: BTreeMap<&str, BTreeSet<&Part>> = BTreeMap::new();
    for (value, parts) in nodes.values().flatten().filter(is_other) {
        others.entry(value).or_default().extend(parts);
    }
    let usual: Vec<&str> = usual.keys().map(String::as_str).collect();
    let peers = format!(
        "on {agree} of the {} nodes with such devices it is {}",
        nodes.len(),
        usual.join(" and ")
    );
    let others = others.iter();
    others
        .map(|(value, parts)| finding(rule, subject, (value, parts), &peers))
        .collect()
}

fn finding(
    rule: &'static Rule,
    subject: &Subject,
    (value, parts): (&str, &BTreeSet<&Part>),
    peers: &str,
) -> Finding {
    let nodes: BTreeSet<&NodeName> = parts.iter().filter_map(|part| part.node()).collect();
    let mut named: Vec<String> = nodes
        .iter()
        .take(MOST_NAMED)
        .map(ToString::to_string)
        .collect();
    if nodes.len() > MOST_NAMED {
        named.push(format!("{} more", nodes.len() - MOST_NAMED));
    }
    let Subject { devices, setting } = subject;
    Finding {
        rule,
        parts: parts.iter().copied().cloned().collect(),
        sentence: format!(
            "The {setting} of {devices} is {value} on {}.",
            named.join(", ")
        ),
        evidence: vec![peers.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::fabric::Timestamp;

    /// A node with two NICs of one board, one of another, and two GPUs.
    fn page(firmware: [&str; 3], vbios: &str, driver: &str, acs: &str) -> String {
        let mut page = String::from(
            "railscope_node_info{node=\"\",kernel=\"\",architecture=\"\",vendor=\"\",product=\"HGX\"} 1\n",
        );
        for (nic, firmware) in firmware.iter().enumerate() {
            let board = ["MT_1", "MT_1", "MT_2"][nic];
            page += &format!(
                "railscope_rdma_device_info{{device=\"mlx5_{nic}\",board=\"{board}\",firmware=\"{firmware}\",hca_type=\"MT4129\"}} 1\n\
                 railscope_pcie_path_info{{pci=\"0000:1{nic}:00.0\",kind=\"nic\",name=\"mlx5_{nic}\",parent=\"\",root_port=\"\",numa_node=\"0\"}} 1\n\
                 railscope_pcie_config_info{{pci=\"0000:1{nic}:00.0\",relaxed_ordering=\"on\",extended_tags=\"on\",acs=\"{acs}\"}} 1\n"
            );
        }
        for gpu in 0..2 {
            page += &format!(
                "railscope_gpu_info{{gpu=\"{gpu}\",uuid=\"\",pci=\"\",name=\"H100\",serial=\"\",vbios=\"{vbios}\",driver=\"{driver}\",architecture=\"\",numa_node=\"0\"}} 1\n"
            );
        }
        page
    }

    fn check(pages: &[String], expected: &[&str]) {
        let mut history = History::default();
        for (index, page) in pages.iter().enumerate() {
            let name = format!("n{index}").parse().expect("a name");
            let result = history
                .node_mut(&name)
                .ingest(page, Timestamp(1_764_000_000_000));
            assert_eq!((result.unknown, result.errors), (0, vec![]));
        }
        let found = differing(&history);
        let lines: Vec<String> = found
            .iter()
            .map(|found| {
                format!(
                    "{}: {} {}",
                    found.rule.name, found.sentence, found.evidence[0]
                )
            })
            .collect();
        assert_eq!(lines, expected);
        assert!(found.iter().all(|found| !found.parts.is_empty()));
    }

    fn usual() -> String {
        page(["28.41", "28.40", "16.35"], "96.00", "570.1", "off")
    }

    #[test]
    fn what_differs_from_the_peers_is_one_finding_for_each_value() {
        let mut pages = vec![usual(); 10];
        check(&pages, &[]);
        pages.push(page(["28.39", "28.40", "16.35"], "96.00", "570.1", "off"));
        pages.push(page(
            ["28.39", "28.39", "16.35"],
            "96.01",
            "565.9",
            "redirect",
        ));
        check(
            &pages,
            &[
                "version-differs: The VBIOS of H100 GPUs is 96.01 on n11. on 11 of the 12 nodes with such devices it is 96.00",
                "version-differs: The driver of H100 GPUs is 565.9 on n11. on 11 of the 12 nodes with such devices it is 570.1",
                "version-differs: The firmware of NICs of board MT_1 is 28.39 on n10, n11. on 10 of the 12 nodes with such devices it is 28.40 and 28.41",
                "setting-differs: The access control (ACS) of PCIe functions (nic) of HGX is redirect on n11. on 11 of the 12 nodes with such devices it is off",
            ],
        );
    }

    #[test]
    fn a_missing_device_a_rollout_in_the_middle_and_few_peers_are_no_findings() {
        let old = page(["28.39", "28.39", "16.35"], "96.00", "570.1", "off");
        let without = usual().replace(
            "device=\"mlx5_2\",board=\"MT_2\"",
            "device=\"mlx5_2\",board=\"\"",
        );
        check(&[vec![usual(); 10], vec![without]].concat(), &[]);
        check(&[vec![usual(); 5], vec![old.clone(); 5]].concat(), &[]);
        check(&[usual(), usual(), old], &[]);
    }
}
