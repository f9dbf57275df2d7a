//! One name for each node: target lists name nodes with or without a domain, and by address.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use railscope_model::identity::{NodeName, without_domain};

use crate::config::Target;
use crate::store::source_id::Subject;

/// Series in which exporters report the name of their host, by the beginning of their lines, and its label: node_exporter, DCGM's
/// and those of AMD.
const HOST_LABELS: [(&str, &str); 5] = [
    ("node_uname_info{", "nodename=\""),
    ("DCGM_", "Hostname=\""),
    ("DCGM_", "hostname=\""),
    ("gpu_", "hostname=\""),
    ("amd_gpu_", "hostname=\""),
];

/// Whether two names are of one host: whole names if both have a domain.
pub(crate) fn is_same_host(one: &str, other: &str) -> bool {
    if one.contains('.') && other.contains('.') {
        one.eq_ignore_ascii_case(other)
    } else {
        without_domain(one).eq_ignore_ascii_case(without_domain(other))
    }
}

/// Whether a node is named by its address.
pub(crate) fn is_address(name: &NodeName) -> bool {
    name.as_str().parse::<IpAddr>().is_ok()
}

/// Gives targets of a node that is listed with and without a domain the name without it.
pub(crate) fn unite<'a>(targets: impl Iterator<Item = &'a mut Target>) {
    let mut targets: Vec<_> = targets.collect();
    let names = without_domains(targets.iter().filter_map(|target| target.node()));
    for target in &mut targets {
        if let Some(Subject::Node(node)) = &mut target.about
            && let Some(short) = names.get(node)
        {
            *node = short.clone();
        }
    }
}

/// Nodes that are listed with a domain, and without it as well, each with the short name; not where two nodes have that short name.
fn without_domains<'a>(nodes: impl Iterator<Item = &'a NodeName>) -> BTreeMap<NodeName, NodeName> {
    let named = nodes.filter(|node| !is_address(node));
    let named: BTreeSet<&NodeName> = named.collect();
    let mut by_short: BTreeMap<&str, Vec<&NodeName>> = BTreeMap::new();
    for node in &named {
        by_short
            .entry(without_domain(node.as_str()))
            .or_default()
            .push(node);
    }
    let pairs = by_short
        .into_iter()
        .filter_map(|(short, nodes)| match nodes[..] {
            [one, other] if one.as_str() == short => Some((other.clone(), one.clone())),
            _ => None,
        });
    pairs.collect()
}

/// The name of the host that a scrape body reports, if any.
pub(crate) fn reported_host(page: &str) -> Option<&str> {
    page.lines().find_map(|line| {
        let of_line = HOST_LABELS
            .iter()
            .filter(|(series, _)| line.starts_with(series));
        let mut names = of_line.filter_map(|(_, label)| {
            let mut found = line.match_indices(label);
            let (at, _) = found.find(|(at, _)| line[..*at].ends_with(['{', ',']))?;
            line[at + label.len()..].split('"').next()
        });
        names.next().filter(|name| !name.is_empty())
    })
}

/// The names of nodes whose exporters are listed by address, as they report them.
#[derive(Debug, Default)]
pub(crate) struct ReportedNames {
    /// All listed nodes.
    listed: BTreeSet<NodeName>,
    /// Those that are listed by name, by their short names in lower case: each scrape of an address looks for one.
    by_short: BTreeMap<String, Vec<NodeName>>,
    by_address: BTreeMap<NodeName, NodeName>,
}

impl ReportedNames {
    /// Replaces the listed nodes. What was reported of others is forgotten.
    pub(crate) fn set_listed(&mut self, nodes: &[NodeName]) {
        self.listed = nodes.iter().cloned().collect();
        self.by_short.clear();
        for node in self.listed.iter().filter(|node| !is_address(node)) {
            let short = without_domain(node.as_str()).to_ascii_lowercase();
            self.by_short.entry(short).or_default().push(node.clone());
        }
        let listed = &self.listed;
        self.by_address
            .retain(|address, name| listed.contains(address) && listed.contains(name));
    }

    /// Notes which host the exporter of a listed node reports. Returns whether that is another listed node, and was not known.
    pub(crate) fn note(&mut self, listed: &NodeName, host: &str) -> bool {
        if !is_address(listed) {
            return false;
        }
        let named = self
            .by_short
            .get(&without_domain(host).to_ascii_lowercase());
        let mut nodes = named
            .into_iter()
            .flatten()
            .filter(|node| is_same_host(node.as_str(), host));
        // Names of pods are no nodes, and two domains may have the same names.
        let (Some(name), None) = (nodes.next(), nodes.next()) else {
            return false;
        };
        let known = self.by_address.insert(listed.clone(), name.clone());
        known.as_ref() != Some(name)
    }

    /// The name of a listed node.
    pub(crate) fn of<'a>(&'a self, listed: &'a NodeName) -> &'a NodeName {
        self.by_address.get(listed).unwrap_or(listed)
    }

    /// The same part, of a node by its name.
    pub(crate) fn subject<'a>(&self, subject: &'a Subject) -> Cow<'a, Subject> {
        let name = match subject {
            Subject::Node(node) => self.by_address.get(node),
            Subject::Switch(_) => None,
        };
        name.map_or(Cow::Borrowed(subject), |name| {
            Cow::Owned(Subject::Node(name.clone()))
        })
    }

    /// The addresses by which nodes are listed, each with the node.
    pub(crate) const fn by_address(&self) -> &BTreeMap<NodeName, NodeName> {
        &self.by_address
    }

    /// These nodes, and the addresses by which they are listed.
    pub(crate) fn as_listed(&self, mut nodes: BTreeSet<NodeName>) -> BTreeSet<NodeName> {
        if nodes.is_empty() {
            return nodes;
        }
        let addresses = self.by_address.iter();
        let of_them = addresses.filter(|(_, name)| nodes.contains(*name));
        let of_them: Vec<_> = of_them.map(|(address, _)| address.clone()).collect();
        nodes.extend(of_them);
        nodes
    }

    /// All nodes, each once.
    pub(crate) fn nodes(&self) -> Vec<NodeName> {
        let nodes: BTreeSet<_> = self.listed.iter().map(|node| self.of(node)).collect();
        nodes.into_iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &[&str]) -> Vec<NodeName> {
        names
            .iter()
            .map(|name| name.parse().expect("a name"))
            .collect()
    }

    #[test]
    fn a_node_that_is_listed_with_and_without_a_domain_is_one() {
        let listed = nodes(&[
            "n1", "n1.a.net", "n2.a.net", "n3", "n3.a.net", "n3.b.net", "10.0.0.1", "10",
        ]);
        let found = without_domains(listed.iter());
        let found: Vec<_> = found
            .iter()
            .map(|(from, to)| format!("{from} {to}"))
            .collect();
        assert_eq!(found, ["n1.a.net n1"]);
    }

    #[test]
    fn an_exporter_that_is_listed_by_address_reports_its_node() {
        let page = |series: &str, label: &str, host: &str| {
            format!(
                "# HELP a b\na{{{label}=\"n9\"}} 1\n{series}{{gpu=\"0\",{label}=\"{host}\"}} 1\n"
            )
        };
        let of = |page: &str| reported_host(page).map(str::to_owned);
        let gpus = page("DCGM_FI_DEV_GPU_UTIL", "Hostname", "n1");
        assert_eq!(of(&gpus), Some("n1".to_owned()));
        let host = page("node_uname_info", "nodename", "n1.a.net");
        assert_eq!(of(&host), Some("n1.a.net".to_owned()));
        assert_eq!(
            of(&page("node_uname_info", "exported_nodename", "n1")),
            None
        );
        assert_eq!(of(&page("backup_ok", "Hostname", "n1")), None);
    }

    #[test]
    fn an_address_is_joined_with_the_only_node_of_the_reported_name() {
        let mut names = ReportedNames::default();
        names.set_listed(&nodes(&[
            "n1", "n2.a.net", "n2.b.net", "10.0.0.1", "10.0.0.2",
        ]));
        let [n1, n2, first, second] =
            ["n1", "n2.b.net", "10.0.0.1", "10.0.0.2"].map(|name| name.parse().expect("a name"));
        assert!(
            names.note(&first, "N1.a.net") && !names.note(&first, "n1"),
            "known"
        );
        assert!(!names.note(&second, "dcgm-exporter-x7") && !names.note(&n1, "n2.a.net"));
        assert!(!names.note(&second, "n2"), "of which domain");
        assert_eq!((names.of(&first), names.of(&second)), (&n1, &second));
        assert!(names.note(&second, "n2.b.net"));
        assert_eq!(names.nodes(), nodes(&["n1", "n2.a.net", "n2.b.net"]));
        assert_eq!(
            names.as_listed(BTreeSet::from([n2.clone()])),
            BTreeSet::from([second, n2])
        );
        names.set_listed(&nodes(&["10.0.0.1"]));
        assert_eq!(names.of(&first), &first);
    }
}
