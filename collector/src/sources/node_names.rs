//! One name for each node: target lists name nodes with or without a domain, and by address.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use railscope_model::identity::{NodeName, without_domain};

use crate::config::Target;
use crate::fabric::graph::names::is_unset_host_name;
use crate::mapping::ReportedHost;
use crate::store::source_id::Subject;

/// The series in which node_exporter reports the kernel's name of its host.
const KERNEL_NAME: &str = "node_uname_info{";
/// Series in which exporters report the name of their host, by the beginning of their lines, and its label: node_exporter, DCGM's
/// and those of AMD.
const HOST_LABELS: [(&str, &str); 5] = [
    (KERNEL_NAME, "nodename=\""),
    ("DCGM_", "Hostname=\""),
    ("DCGM_", "hostname=\""),
    ("gpu_", "hostname=\""),
    ("amd_gpu_", "hostname=\""),
];

/// Part of the names of pods of exporters that do not share the network of their host; it is no name of a node.
const OF_POD: &str = "exporter";

/// Whether a reported name is that of a host: neither the default one nor a pod's.
pub(crate) fn names_host(name: &str) -> bool {
    let is_unset = name.parse().is_ok_and(|name| is_unset_host_name(&name));
    !is_unset && !name.contains(OF_POD)
}

/// Whether two names are of one host: whole names if both have a domain.
pub(crate) fn is_same_host(one: &str, other: &str) -> bool {
    if one.contains('.') && other.contains('.') {
        one.eq_ignore_ascii_case(other)
    } else {
        without_domain(one).eq_ignore_ascii_case(without_domain(other))
    }
}

/// A name without its domain, for comparing.
fn short(name: &str) -> String {
    without_domain(name).to_ascii_lowercase()
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
pub(crate) fn reported_host(page: &str) -> Option<ReportedHost> {
    page.lines().find_map(|line| {
        let of_line = HOST_LABELS
            .iter()
            .filter(|(series, _)| line.starts_with(series));
        let mut names = of_line.filter_map(|(_, label)| {
            let mut found = line.match_indices(label);
            let (at, _) = found.find(|(at, _)| line[..*at].ends_with(['{', ',']))?;
            line[at + label.len()..].split('"').next()
        });
        let name = names.next().filter(|name| !name.is_empty())?;
        Some(ReportedHost {
            name: name.to_owned(),
            is_kernels: line.starts_with(KERNEL_NAME),
        })
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
    /// The names that kernels report of nodes that are listed by address alone, by address.
    unlisted: BTreeMap<NodeName, NodeName>,
}

impl ReportedNames {
    /// Replaces the listed nodes. What was reported of others is forgotten.
    pub(crate) fn set_listed(&mut self, nodes: &[NodeName]) {
        self.listed = nodes.iter().cloned().collect();
        self.by_short.clear();
        for node in self.listed.iter().filter(|node| !is_address(node)) {
            let short = short(node.as_str());
            self.by_short.entry(short).or_default().push(node.clone());
        }
        let (listed, by_short) = (&self.listed, &self.by_short);
        self.unlisted.retain(|address, name| {
            listed.contains(address) && !by_short.contains_key(&short(name.as_str()))
        });
        self.by_address
            .retain(|address, name| listed.contains(address) && listed.contains(name));
        self.settle();
    }

    /// Notes which host the exporter of a listed node reports. Returns whether the node may have another name from the next
    /// [`Self::settle`] on.
    pub(crate) fn note(&mut self, listed: &NodeName, host: &ReportedHost) -> bool {
        if !is_address(listed) {
            return false;
        }
        let Some(named) = self.by_short.get(&short(&host.name)) else {
            return host.is_kernels && self.note_unlisted(listed, &host.name);
        };
        let named = named.iter();
        let mut nodes = named.filter(|node| is_same_host(node.as_str(), &host.name));
        // Two domains may have the same names.
        let (Some(name), None) = (nodes.next(), nodes.next()) else {
            return false;
        };
        let known = self.by_address.insert(listed.clone(), name.clone());
        known.as_ref() != Some(name)
    }

    /// The same of a host that is listed by its address alone.
    fn note_unlisted(&mut self, listed: &NodeName, host: &str) -> bool {
        let Ok(name) = host.parse::<NodeName>() else {
            return false;
        };
        // Its exporters may report it with and without its domain.
        let known = self.unlisted.get(listed);
        let is_known = known.is_some_and(|known| is_same_host(known.as_str(), host));
        if is_known || !names_host(host) {
            return false;
        }
        self.unlisted.insert(listed.clone(), name);
        true
    }

    /// Names the nodes that are listed by address alone, but those of a name that several addresses have, as clones do. It takes
    /// as long as there are such nodes: once a cycle, not for each name.
    pub(crate) fn settle(&mut self) {
        let mut addresses: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
        for (address, name) in &self.unlisted {
            addresses.entry(name).or_default().push(address);
        }
        let listed = &self.listed;
        self.by_address.retain(|_, name| listed.contains(name));
        for (name, addresses) in addresses {
            if let [address] = addresses[..] {
                self.by_address.insert(address.clone(), name.clone());
            }
        }
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
        let of = |page: &str| reported_host(page).map(|host| (host.name, host.is_kernels));
        let gpus = page("DCGM_FI_DEV_GPU_UTIL", "Hostname", "n1");
        assert_eq!(of(&gpus), Some(("n1".to_owned(), false)));
        let host = page("node_uname_info", "nodename", "n1.a.net");
        assert_eq!(of(&host), Some(("n1.a.net".to_owned(), true)));
        assert_eq!(
            of(&page("node_uname_info", "exported_nodename", "n1")),
            None
        );
        assert_eq!(of(&page("backup_ok", "Hostname", "n1")), None);
    }

    /// Notes a name that may be a pod's.
    fn note(names: &mut ReportedNames, listed: &NodeName, host: &str) -> bool {
        let name = host.to_owned();
        let is_kernels = false;
        names.note(listed, &ReportedHost { name, is_kernels })
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
            note(&mut names, &first, "N1.a.net") && !note(&mut names, &first, "n1"),
            "known"
        );
        assert!(
            !note(&mut names, &second, "dcgm-exporter-x7") && !note(&mut names, &n1, "n2.a.net")
        );
        assert!(!note(&mut names, &second, "n2"), "of which domain");
        assert_eq!((names.of(&first), names.of(&second)), (&n1, &second));
        assert!(note(&mut names, &second, "n2.b.net"));
        assert_eq!(names.nodes(), nodes(&["n1", "n2.a.net", "n2.b.net"]));
        assert_eq!(
            names.as_listed(BTreeSet::from([n2.clone()])),
            BTreeSet::from([second, n2])
        );
        names.set_listed(&nodes(&["10.0.0.1"]));
        assert_eq!(names.of(&first), &first);
    }

    #[test]
    fn a_node_that_is_listed_by_address_alone_has_the_name_of_its_kernel() {
        let kernels = |name: &str| ReportedHost {
            name: name.to_owned(),
            is_kernels: true,
        };
        let mut names = ReportedNames::default();
        let listed = nodes(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "n9.a.net", "n9.b.net"]);
        names.set_listed(&listed);
        let [first, second, third] = [&listed[0], &listed[1], &listed[2]];
        assert!(!note(&mut names, first, "dcgm-exporter-x7"), "a pod");
        assert!(!names.note(first, &kernels("localhost")));
        assert!(!names.note(first, &kernels("n9")), "of which domain");
        assert!(names.note(first, &kernels("n1")) && !names.note(first, &kernels("n1")));
        assert!(names.note(second, &kernels("n2")));
        names.settle();
        assert_eq!(names.of(first).as_str(), "n1");
        names.set_listed(&listed);
        assert_eq!(names.of(first).as_str(), "n1");
        // Two exporters of one address, and the pod of one.
        assert!(!names.note(first, &kernels("n1.a.net")));
        assert!(!names.note(first, &kernels("node-exporter-x7k2p")));
        assert_eq!(names.of(first).as_str(), "n1");
        // Two addresses of one name: neither has it, until one is gone.
        assert!(names.note(third, &kernels("n2")) && !names.note(second, &kernels("n2")));
        names.settle();
        assert_eq!((names.of(second), names.of(third)), (second, third));
        names.set_listed(&nodes(&["10.0.0.1", "10.0.0.3"]));
        assert_eq!(names.of(third).as_str(), "n2");
        // Installed anew; another has its old name.
        assert!(names.note(third, &kernels("n3")));
        names.set_listed(&listed);
        assert!(names.note(second, &kernels("n2")));
        names.settle();
        let named = [second, third].map(|address| names.of(address).as_str());
        assert_eq!(named, ["n2", "n3"]);
        // Now it is listed by name as well.
        names.set_listed(&nodes(&["10.0.0.1", "n1.a.net"]));
        assert_eq!(names.of(first), first);
        assert!(names.note(first, &kernels("n1")));
        assert_eq!(names.of(first).as_str(), "n1.a.net");
    }
}
