//! Which machine each exporter reports, so that data of one machine is never stored under the name of another.

use std::collections::{BTreeSet, HashMap};

use railscope_model::exposition::{Line, Series, parse};
use railscope_model::identity::{NodeName, without_domain};
use railscope_model::metric::{NODE, NODE_BOOT_TIME};

use super::node_names::{is_address, is_same_host};

/// Minimum number of other targets that report their own names: with fewer, the list may name its nodes differently.
const MIN_NAMED: usize = 3;
/// For each other target that reports another name, so many must report their own. Some sites name the nodes of their list
/// by position or alias; there a different name is normal.
const NAMED_PER_ALIAS: usize = 9;
/// Longest host name (RFC 1035).
const LONGEST_NAME: usize = 253;

/// A machine by its reported name and boot time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Machine {
    name: String,
    /// The bits of the Unix time in seconds; `None` if not reported.
    boot: Option<u64>,
}

impl Machine {
    fn of(page: &str) -> Option<Self> {
        let info = series(page, NODE.name)?;
        let name = info.label("node").filter(|name| !name.is_empty())?;
        (name.len() <= LONGEST_NAME).then(|| Self {
            name: name.into_owned(),
            boot: series(page, NODE_BOOT_TIME.name).map(|boot| boot.value.to_bits()),
        })
    }
}

/// The first series of this name.
fn series<'a>(page: &'a str, name: &str) -> Option<Series<'a>> {
    let found = page.match_indices(name).map(|(at, _)| at);
    let lines = found.filter(|at| *at == 0 || page.as_bytes()[at - 1] == b'\n');
    lines
        .map(|at| page[at..].split('\n').next().unwrap_or_default())
        .find_map(|line| match parse(line).next()? {
            Ok(Line::Series(series)) if series.name == name => Some(series),
            _ => None,
        })
}

/// How the name in the target list relates to the reported one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The same name, with or without the domain.
    Same,
    /// The target is named by its address.
    Address,
    Different,
}

impl Naming {
    fn of(node: &NodeName, reported: &str) -> Self {
        if is_address(node) {
            Self::Address
        } else if is_same_host(node.as_str(), reported) {
            Self::Same
        } else {
            Self::Different
        }
    }
}

fn expected(node: &NodeName) -> String {
    format!("expected node {node}; check address and name of the target")
}

fn of_other_target(node: &NodeName, other: &NodeName) -> String {
    let expected = expected(node);
    format!("the response is of node {other}, which is another target: {expected}")
}

/// The machines that the exporters of one kind report, those of Railscope or of another project, on all nodes.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    reported: HashMap<NodeName, Machine>,
    /// The first node under which each machine was scraped.
    claims: HashMap<Machine, NodeName>,
    /// Nodes that report their own name, and nodes that report a different one.
    named: usize,
    aliased: usize,
}

impl Identities {
    /// Forgets nodes that are no longer targets.
    pub(crate) fn retain(&mut self, nodes: &[NodeName]) {
        let nodes: BTreeSet<_> = nodes.iter().collect();
        let known = self.reported.keys();
        let gone: Vec<_> = known
            .filter(|node| !nodes.contains(node))
            .cloned()
            .collect();
        gone.iter().for_each(|node| self.forget(node));
    }

    /// The name that the exporter of a listed node reported.
    pub(crate) fn reported(&self, node: &NodeName) -> Option<&str> {
        self.reported.get(node).map(|machine| &*machine.name)
    }

    /// Why the scrape body of this node's exporter is rejected: it is of another node. A scrape body without a name is
    /// accepted.
    pub(crate) fn refusal(&mut self, node: &NodeName, page: &str) -> Option<String> {
        let machine = Machine::of(page);
        let naming = self.note(node, machine.as_ref());
        let machine = machine?;
        if naming == Some(Naming::Same) {
            return None;
        }
        let name = &machine.name;
        if let Some(other) = self.other_target(node, name) {
            return Some(of_other_target(node, &other));
        }
        let expected = expected(node);
        let owner = self.claims.get(&machine);
        if let Some(owner) = owner.filter(|owner| *owner != node) {
            return Some(format!(
                "the response is of node {name:?}, which is already scraped as {owner}: {expected}"
            ));
        }
        (naming == Some(Naming::Different) && self.is_outlier()).then(|| {
            format!("the response is of node {name:?}, while other targets report their listed names: {expected}")
        })
    }

    /// The same where only the name of the host is reported, as exporters of other projects do: the name of another target, while
    /// most targets report their own.
    pub(crate) fn refusal_by_name(&mut self, node: &NodeName, host: &str) -> Option<String> {
        let name = host.to_owned();
        let naming = self.note(node, Some(&Machine { name, boot: None }));
        if naming != Some(Naming::Different) || !self.is_outlier() {
            return None;
        }
        let other = self.other_target(node, host)?;
        Some(of_other_target(node, &other))
    }

    /// Whether targets that report another name than their listed one are exceptions.
    fn is_outlier(&self) -> bool {
        let others = self.aliased.saturating_sub(1);
        self.named >= MIN_NAMED.max(NAMED_PER_ALIAS * others)
    }

    /// Replaces what is known of a node.
    fn note(&mut self, node: &NodeName, machine: Option<&Machine>) -> Option<Naming> {
        if self.reported.get(node) != machine {
            self.forget(node);
        }
        let machine = machine?;
        let naming = Naming::of(node, &machine.name);
        self.remember(node, machine, naming);
        Some(naming)
    }

    /// The target of this name, with the domain of `node` or without a domain.
    fn other_target(&self, node: &NodeName, name: &str) -> Option<NodeName> {
        let domain = node.as_str().split_once('.').map(|(_, domain)| domain);
        let with_domain = domain.map(|domain| format!("{name}.{domain}"));
        let names = [
            Some(name.to_owned()),
            Some(without_domain(name).to_owned()),
            with_domain,
        ];
        let nodes = names
            .into_iter()
            .flatten()
            .filter_map(|name| name.parse().ok());
        nodes
            .into_iter()
            .find(|other| other != node && self.reported.contains_key(other))
    }

    fn remember(&mut self, node: &NodeName, machine: &Machine, naming: Naming) {
        if self
            .reported
            .insert(node.clone(), machine.clone())
            .is_none()
        {
            self.count(naming, 1);
        }
        if machine.boot.is_some() {
            let claim = self.claims.entry(machine.clone());
            claim.or_insert_with(|| node.clone());
        }
    }

    fn forget(&mut self, node: &NodeName) {
        let Some(machine) = self.reported.remove(node) else {
            return;
        };
        self.count(Naming::of(node, &machine.name), -1);
        if self.claims.get(&machine) == Some(node) {
            self.claims.remove(&machine);
        }
    }

    fn count(&mut self, naming: Naming, change: isize) {
        let counter = match naming {
            Naming::Same => &mut self.named,
            Naming::Different => &mut self.aliased,
            Naming::Address => return,
        };
        *counter = counter.saturating_add_signed(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, boot: u64) -> String {
        format!(
            "# HELP railscope_node_info x\n# TYPE railscope_node_info gauge\n\
             railscope_node_info{{node=\"{name}\",kernel=\"6.1\"}} 1\nrailscope_node_boot_time_seconds {boot}\n"
        )
    }

    /// Scrapes these targets, with the names that they report, in this order. Returns the refusals of the last round of two.
    fn refusals(targets: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut identities = Identities::default();
        let mut refused = Vec::new();
        for _ in 0..2 {
            refused.clear();
            for (index, (listed, reported)) in targets.iter().enumerate() {
                // Equal names are of the same machine, except those of the default name.
                let boot = if *reported == "localhost" {
                    index as u64
                } else {
                    7
                };
                let node = listed.parse().expect("a name");
                if let Some(why) = identities.refusal(&node, &page(reported, boot)) {
                    refused.push(((*listed).to_owned(), why));
                }
            }
        }
        refused
    }

    #[test]
    fn a_target_that_answers_as_another_node_is_refused() {
        let three = [("n1", "n1"), ("n2", "n2"), ("n3", "n3")];
        for (targets, expected) in [
            // Another target's scrape, whichever is scraped first.
            (
                vec![("n1", "n2"), ("n2", "n2")],
                vec![("n1", "of node n2, which is another target")],
            ),
            (
                vec![("n2", "n2"), ("n1", "n2")],
                vec![("n1", "of node n2, which is another target")],
            ),
            (
                vec![("a.x.org", "b"), ("b.x.org", "b.x.org")],
                vec![("a.x.org", "of node b.x.org, which is")],
            ),
            (
                vec![("n1", "N2.x.org"), ("N2", "N2.x.org")],
                vec![("n1", "of node N2, which is")],
            ),
            (
                vec![("10.0.0.1", "n2"), ("n2", "n2")],
                vec![("10.0.0.1", "of node n2, which is")],
            ),
            // Two targets of different nodes lead to one machine.
            (
                vec![("r1-u1", "x"), ("r1-u2", "x")],
                vec![("r1-u2", "\"x\", which is already scraped as r1-u1")],
            ),
            (
                vec![("10.0.0.1", "x"), ("10.0.0.2", "x")],
                vec![("10.0.0.2", "already scraped as 10.0.0.1")],
            ),
            // Swapped addresses.
            (
                vec![("n1", "n2"), ("n2", "n1")],
                vec![("n1", "of node n2"), ("n2", "of node n1")],
            ),
            // A machine that is in no list, under the name of one that is.
            (
                [&three[..], &[("n4", "x99")]].concat(),
                vec![("n4", "\"x99\", while other targets report")],
            ),
        ] {
            let refused = refusals(&targets);
            assert_eq!(refused.len(), expected.len(), "{targets:?}: {refused:?}");
            for ((node, why), (expected_node, expected_why)) in refused.iter().zip(expected) {
                assert_eq!(node, expected_node, "{targets:?}: {refused:?}");
                assert!(why.contains(expected_why), "{targets:?}: {why}");
            }
        }
    }

    #[test]
    fn a_foreign_exporter_of_another_target_is_refused_where_most_report_their_listed_names() {
        let refused = |count: usize, odd: &[(&str, &str)]| {
            let mut identities = Identities::default();
            let plain = (0..count).map(|n| (format!("n{n}"), format!("n{n}.x.org")));
            let odd = odd.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            let targets: Vec<_> = plain.chain(odd).collect();
            let mut refused = Vec::new();
            for _ in 0..2 {
                refused.clear();
                for (listed, host) in &targets {
                    let node = listed.parse().expect("a name");
                    refused.extend(identities.refusal_by_name(&node, host));
                }
            }
            refused
        };
        let words = "the response is of node n2, which is another target: expected node a; check address and name of the target";
        assert_eq!(refused(9, &[("a", "n2")]), [words]);
        assert_eq!(refused(18, &[("a", "b"), ("b", "a")]).len(), 2, "swapped");
        // Another name that is no target, too few that report their own, and a list that names nodes by position.
        assert_eq!(refused(9, &[("a", "c")]), [""; 0]);
        assert_eq!(refused(2, &[("a", "n1")]), [""; 0]);
        assert_eq!(refused(9, &[("a", "b"), ("b", "c"), ("c", "d")]), [""; 0]);
    }

    #[test]
    fn lists_that_name_nodes_by_domain_address_or_position_are_accepted() {
        for targets in [
            &[
                ("n1.x.org", "n1"),
                ("n2", "n2.x.org"),
                ("N3", "n3"),
                ("a.b", "A.B"),
            ][..],
            &[
                ("10.0.0.1", "n1"),
                ("10.0.0.2", "n2"),
                ("n3", "n3"),
                ("n4", "n4"),
                ("n5", "n5"),
            ],
            &[
                ("r1-u1", "n1"),
                ("r1-u2", "n2"),
                ("r1-u3", "n3"),
                ("r1-u4", "n4"),
                ("n5", "n5"),
            ],
            &[("n1", "x"), ("n2", "n2"), ("n3", "n3")],
            // Default host names: the boot times differ.
            &[("n1", "localhost"), ("n2", "localhost")],
        ] {
            assert_eq!(refusals(targets), [], "{targets:?}");
        }
    }

    #[test]
    fn a_target_whose_address_is_corrected_is_accepted_and_frees_its_claim() {
        let mut identities = Identities::default();
        let [one, two] = ["r1-u1", "r1-u2"].map(|name| name.parse::<NodeName>().expect("a name"));
        assert_eq!(identities.refusal(&one, &page("x", 7)), None);
        assert!(identities.refusal(&two, &page("x", 7)).is_some());
        assert_eq!(identities.refusal(&one, &page("y", 7)), None);
        assert_eq!(identities.refusal(&two, &page("x", 7)), None);
        identities.retain(std::slice::from_ref(&two));
        assert_eq!(
            identities.refusal(&two, &page("y", 7)),
            None,
            "y is no longer a target"
        );
        identities.retain(&[]);
        assert!(identities.reported.is_empty() && identities.claims.is_empty());
        assert_eq!((identities.named, identities.aliased), (0, 0));
    }

    #[test]
    fn a_scrape_body_without_a_valid_name_is_accepted() {
        let mut identities = Identities::default();
        let node: NodeName = "n1".parse().expect("a name");
        for page in [
            String::new(),
            String::from("railscope_node_info 1\n"),
            String::from("railscope_node_info{node=\"\"} 1\n"),
            String::from("railscope_node_info{node=\"n2\n"),
            String::from("x_railscope_node_info{node=\"n2\"} 1\n"),
            page(&"n".repeat(1_000), 7),
        ] {
            assert_eq!(identities.refusal(&node, &page), None, "{page:.80}");
        }
        assert!(identities.reported.is_empty());
    }
}
