//! Consistent differences between a plan and the fabric: devices with other names.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use foldhash::fast::FixedState;
use railscope_model::identity::{NodeName, Part, PortName, RdmaDevice, SwitchName};
use railscope_model::plan::{Socket, WiringPlan};

use super::compare::Seen;
use super::{Finding, MIN_PEERS, MOVED_CABLE, PEER_SHARE, WRONG_PLAN, cable_at};
use crate::fabric::subnet::counted;

/// Fewest NICs by which two hosts are reported to be in each other's place: one is a cable, not a
/// host.
const MIN_NICS: usize = 2;
/// Tiers above the leaves that are gone through.
const TIERS_ABOVE: usize = 3;

/// What the plan calls by other names.
#[derive(Default)]
pub(super) struct Names {
    switches: BTreeMap<SwitchName, SwitchName>,
    hosts: BTreeMap<NodeName, NodeName>,
    devices: BTreeMap<RdmaDevice, RdmaDevice>,
}

impl Names {
    fn switch(&self, name: &SwitchName) -> SwitchName {
        self.switches.get(name).unwrap_or(name).clone()
    }

    fn socket(&self, socket: &Socket) -> Socket {
        let part = match &socket.part {
            Part::Switch(name) => Part::Switch(self.switch(name)),
            Part::Nic(host, device) => Part::Nic(
                self.hosts.get(host).unwrap_or(host).clone(),
                self.devices.get(device).unwrap_or(device).clone(),
            ),
            other => other.clone(),
        };
        Socket {
            part,
            port: socket.port.clone(),
        }
    }

    /// The plan in the names of what was seen.
    pub(super) fn apply<'a>(&self, plan: &'a WiringPlan) -> Cow<'a, WiringPlan> {
        if self.switches.is_empty() && self.hosts.is_empty() && self.devices.is_empty() {
            return Cow::Borrowed(plan);
        }
        let mut plan = plan.clone();
        for cable in &mut plan.cables {
            cable.ends = cable.ends.each_ref().map(|end| self.socket(end));
        }
        Cow::Owned(plan)
    }
}

/// Votes for what each planned name is really called.
struct Votes<'a, T>(HashMap<&'a T, BTreeMap<&'a T, usize>, FixedState>);

impl<'a, T: Ord + Hash + Clone> Votes<'a, T> {
    fn new() -> Self {
        Self(HashMap::default())
    }

    fn add(&mut self, planned: &'a T, seen: &'a T) {
        let votes = self.0.entry(planned).or_default();
        *votes.entry(seen).or_default() += 1;
    }

    /// Names that enough votes replace by another name. Each seen name is assigned once, and never one that the
    /// plan has for a thing that keeps its own: that would give two things one name.
    fn renamed(self, fewest: usize, planned: &HashSet<&T, FixedState>) -> BTreeMap<T, T> {
        let mut renamed: BTreeMap<T, T> = BTreeMap::new();
        for (name, votes) in self.0 {
            let all: usize = votes.values().sum();
            let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
            if let Some((seen, most)) = most
                && seen != name
                && most >= fewest
                && most as f64 >= PEER_SHARE * all as f64
            {
                renamed.insert(name.clone(), seen.clone());
            }
        }
        loop {
            let mut users: BTreeMap<&T, usize> = BTreeMap::new();
            for seen in renamed.values() {
                *users.entry(seen).or_default() += 1;
            }
            let bad = renamed.iter().find(|(_, seen)| {
                users[seen] > 1 || planned.contains(seen) && !renamed.contains_key(*seen)
            });
            let Some(bad) = bad.map(|(name, _)| name.clone()) else {
                return renamed;
            };
            renamed.remove(&bad);
        }
    }
}

/// Finds what the plan calls by other names, and reports it.
pub(super) fn find(plan: &WiringPlan, seen: &Seen<'_>, out: &mut Vec<Finding>) -> Names {
    let mut names = Names::default();
    leaves(plan, seen, &mut names);
    hosts(plan, seen, &mut names, out);
    let of_leaves: Vec<_> = names
        .switches
        .iter()
        .map(|(a, b)| (a.clone(), b.clone()))
        .collect();
    uppers(plan, seen, &mut names);
    devices(plan, seen, &mut names, out);
    for (planned, seen_name) in names.switches.clone() {
        let by_hosts = of_leaves.iter().any(|(name, _)| *name == planned);
        // Leaves carry hosts: if their own uplinks did not come along, it is the hosts' cables that are elsewhere.
        let whole = !by_hosts || uplinks_agree(plan, seen, &names, &planned, &seen_name);
        out.push(told(plan, &planned, &seen_name, whole));
    }
    names
}

/// The NIC end and the switch end of a planned cable.
fn host_cables(plan: &WiringPlan) -> impl Iterator<Item = (&Socket, &Socket)> {
    plan.cables.iter().filter_map(|cable| {
        let [a, b] = &cable.ends;
        match (&a.part, &b.part) {
            (Part::Nic(..), Part::Switch(_)) => Some((a, b)),
            (Part::Switch(_), Part::Nic(..)) => Some((b, a)),
            _ => None,
        }
    })
}

/// Both orders of the two ends of a planned cable between switches.
fn trunks(
    plan: &WiringPlan,
) -> impl Iterator<Item = (&SwitchName, &PortName, &SwitchName, &PortName)> {
    plan.cables.iter().flat_map(|cable| {
        let [a, b] = &cable.ends;
        let both = match (&a.part, &b.part) {
            (Part::Switch(one), Part::Switch(other)) => {
                vec![
                    (one, &a.port, other, &b.port),
                    (other, &b.port, one, &a.port),
                ]
            }
            _ => Vec::new(),
        };
        both.into_iter()
    })
}

fn planned_switches(plan: &WiringPlan) -> HashSet<&SwitchName, FixedState> {
    let ends = plan.cables.iter().flat_map(|cable| &cable.ends);
    let switches = ends.filter_map(|end| match &end.part {
        Part::Switch(name) => Some(name),
        _ => None,
    });
    switches.collect()
}

/// Switches with hosts, by where the hosts' cables really lead.
fn leaves(plan: &WiringPlan, seen: &Seen<'_>, names: &mut Names) {
    let mut votes = Votes::new();
    for (nic, leaf) in host_cables(plan) {
        if let (Part::Switch(planned), Some(Part::Switch(name))) = (&leaf.part, seen.far_part(nic))
        {
            votes.add(planned, name);
        }
    }
    names.switches = votes.renamed(MIN_PEERS, &planned_switches(plan));
}

/// Switches above, by where the cables of those below really lead; tier by tier.
fn uppers(plan: &WiringPlan, seen: &Seen<'_>, names: &mut Names) {
    let mut settled: HashSet<&SwitchName, FixedState> = host_cables(plan)
        .filter_map(|(_, leaf)| match &leaf.part {
            Part::Switch(name) => Some(name),
            _ => None,
        })
        .collect();
    for _ in 0..TIERS_ABOVE {
        let mut votes = Votes::new();
        for (lower, port, upper, _) in trunks(plan) {
            if settled.contains(lower) && !settled.contains(upper) {
                let near = Socket {
                    part: Part::Switch(names.switch(lower)),
                    port: port.clone(),
                };
                if let Some(Part::Switch(name)) = seen.far_part(&near) {
                    votes.add(upper, name);
                }
            }
        }
        if votes.0.is_empty() {
            return;
        }
        settled.extend(votes.0.keys());
        names
            .switches
            .extend(votes.renamed(MIN_PEERS, &planned_switches(plan)));
    }
}

/// Swapped hosts: another host is connected to their ports by the same devices.
fn hosts(plan: &WiringPlan, seen: &Seen<'_>, names: &mut Names, out: &mut Vec<Finding>) {
    let mut votes = Votes::new();
    let mut planned = HashSet::default();
    for (nic, leaf) in host_cables(plan) {
        let Part::Nic(host, device) = &nic.part else {
            continue;
        };
        planned.insert(host);
        if let Some(Part::Nic(other, found)) = seen.far_part(&names.socket(leaf))
            && found == device
        {
            votes.add(host, other);
        }
    }
    names.hosts = votes.renamed(MIN_NICS, &planned);
    let mut told = BTreeSet::new();
    for (host, other) in &names.hosts {
        if !told.insert(host) || names.hosts.get(other) == Some(host) && !told.insert(other) {
            continue;
        }
        let mutual = names.hosts.get(other) == Some(host);
        out.push(Finding {
            rule: &WRONG_PLAN,
            parts: vec![Part::Host(host.clone()), Part::Host(other.clone())],
            sentence: if mutual {
                format!("{host} and {other} stand in each other's place: their cables are right, their names are not.")
            } else {
                format!("Where the plan has {host} there is {other}.")
            },
            evidence: vec!["all their cables lead to the other's ports, device by device".to_owned()],
        });
    }
}

/// Devices that the plan calls otherwise on all hosts: for example by the kernel's other naming.
fn devices(plan: &WiringPlan, seen: &Seen<'_>, names: &mut Names, out: &mut Vec<Finding>) {
    let mut votes = Votes::new();
    for (nic, leaf) in host_cables(plan) {
        let near = names.socket(nic);
        let (Part::Nic(_, device), Part::Nic(host, _)) = (&nic.part, &near.part) else {
            continue;
        };
        if seen.has(&near.part) {
            continue;
        }
        if let Some(Part::Nic(other, found)) = seen.far_part(&names.socket(leaf))
            && other == host
        {
            votes.add(device, found);
        }
    }
    names.devices = votes.renamed(MIN_PEERS, &HashSet::default());
    if names.devices.is_empty() {
        return;
    }
    let pairs = names
        .devices
        .iter()
        .map(|(planned, seen)| format!("{planned} is {seen}"));
    let pairs: Vec<_> = pairs.collect();
    let first = host_cables(plan).next().map(|(nic, _)| cable_at(nic));
    out.push(Finding {
        rule: &WRONG_PLAN,
        parts: first.into_iter().collect(),
        sentence: format!(
            "The plan has other names for the hosts' devices: {}.",
            pairs.join(", ")
        ),
        evidence: vec!["they hang at the planned ports".to_owned()],
    });
}

/// Whether a switch's cables to other switches lead where those of the planned one should.
fn uplinks_agree(
    plan: &WiringPlan,
    seen: &Seen<'_>,
    names: &Names,
    planned: &SwitchName,
    actual: &SwitchName,
) -> bool {
    let mut wanted: BTreeMap<SwitchName, i64> = BTreeMap::new();
    let mut all = 0;
    for (_, _, upper, _) in trunks(plan).filter(|(lower, ..)| *lower == planned) {
        *wanted.entry(names.switch(upper)).or_default() += 1;
        all += 1;
    }
    let mut right = 0;
    for found in seen.switches_at(actual) {
        let left = wanted.get_mut(found).filter(|left| **left > 0);
        if let Some(left) = left {
            *left -= 1;
            right += 1;
        }
    }
    all == 0 || f64::from(right) >= PEER_SHARE * f64::from(all)
}

fn told(plan: &WiringPlan, planned: &SwitchName, actual: &SwitchName, whole: bool) -> Finding {
    let cables = host_cables(plan)
        .filter(|(_, leaf)| leaf.part == Part::Switch(planned.clone()))
        .count();
    let hosts = counted(cables, "cable of a host", "cables of hosts");
    let parts = vec![Part::Switch(planned.clone()), Part::Switch(actual.clone())];
    if whole {
        Finding {
            rule: &WRONG_PLAN,
            parts,
            sentence: format!("What the plan calls {planned} is {actual}."),
            evidence: vec![format!(
                "{hosts} planned on {planned} lead to {actual}, and its cables to other switches fit too"
            )],
        }
    } else {
        Finding {
            rule: &MOVED_CABLE,
            parts,
            sentence: format!(
                "The hosts of {planned} are connected to {actual}: all their cables moved as one."
            ),
            evidence: vec![format!(
                "{hosts} lead there, but its cables to other switches are its own, not those of {planned}"
            )],
        }
    }
}
