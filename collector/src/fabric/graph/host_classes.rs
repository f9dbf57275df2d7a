//! Which hosts are alike by their NICs: compute classes with a rail per device, service hosts, and the rest.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::FixedState;
use railscope_model::identity::{PciAddress, RdmaDevice};

use super::names::is_unnamed_host;
use crate::fabric::graph::index::{HostView, NicView, Survey};

/// A shape with few NICs is still a separate class when this share of all hosts has it. Of the captures,
/// service hosts of one shape are at most 2 % (topograph, 2 of 122; Selene 6 of 469); a second kind of
/// compute node is 14 % (topograph, 17 of 122).
const ESTABLISHED_SHARE: f64 = 0.1;

/// A host is set apart as service host at this share of the usual NIC count or less. A compute node
/// that lost half of its rails is detected otherwise; by name it is still found.
const FEW_NICS_SHARE: f64 = 0.5;

/// Most of a class have a device at the same address when this share of at least so many hosts do: as in the lint.
const SAME_BOARD_SHARE: f64 = 0.75;
const MIN_BOARDS: usize = 4;

/// What a host is, evaluated by its NICs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostRole {
    /// One of a class of hosts that are alike.
    Compute {
        /// Index of its class.
        class: usize,
    },
    /// Few NICs by design: login, storage, management.
    Service,
    /// As many NICs as compute hosts, of names that no other host has.
    Unlike,
    /// A card whose host is not known.
    Unnamed,
    /// No NIC with a cable.
    WithoutNic,
}

/// Hosts that are alike by their devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostClass {
    /// Devices in the order of their rails: the first is on rail 0.
    pub devices: Vec<RdmaDevice>,
    /// Hosts of the class.
    pub hosts: usize,
    /// Hosts of it that have every device.
    pub complete: usize,
}

/// Every host's role and every NIC's rail.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    pub(crate) classes: Vec<HostClass>,
    /// By host.
    pub(crate) roles: Vec<HostRole>,
    /// By host and NIC of it.
    pub(crate) rails: Vec<Vec<Option<u16>>>,
    /// NICs that most hosts have, weighted by NICs.
    pub(crate) usual_nics: usize,
}

/// Device names by number, numbered in natural order, so that a sorted shape is in natural order.
struct Devices<'a> {
    names: Vec<&'a RdmaDevice>,
    numbers: HashMap<&'a str, u32, FixedState>,
}

/// Hosts with the same devices.
struct Group {
    shape: Vec<u32>,
    hosts: Vec<usize>,
}

/// A class while it is being made: the shape that defines it, and its rails as device numbers.
struct Class {
    shape: Vec<u32>,
    members: Vec<usize>,
    order: Vec<u32>,
}

impl Shapes {
    pub(crate) fn of(survey: &Survey<'_>) -> Self {
        let devices = Devices::of(survey);
        let mut roles = vec![HostRole::WithoutNic; survey.hosts.len()];
        let groups = group(survey, &devices, &mut roles);
        let usual = groups
            .iter()
            .max_by_key(|group| (group.shape.len() * group.hosts.len(), group.shape.len()))
            .map_or(0, |group| group.shape.len());
        let mut classes = make_classes(survey, &groups, usual, &mut roles);
        for class in &mut classes {
            class.order = rail_order(survey, class, &devices);
        }
        let rails = rails_of_nics(survey, &devices, &classes, &roles);
        let finished = classes
            .iter()
            .map(|class| HostClass {
                devices: class
                    .order
                    .iter()
                    .map(|n| devices.names[*n as usize].clone())
                    .collect(),
                hosts: class.members.len(),
                complete: class
                    .members
                    .iter()
                    .filter(|host| has_all_rails(survey, &rails, **host, class.order.len()))
                    .count(),
            })
            .collect();
        Self {
            classes: finished,
            roles,
            rails,
            usual_nics: usual,
        }
    }
}

fn has_all_rails(survey: &Survey<'_>, rails: &[Vec<Option<u16>>], host: usize, all: usize) -> bool {
    let nics = survey.hosts[host].nics.iter().zip(&rails[host]);
    nics.filter(|(nic, rail)| counts(survey, nic) && rail.is_some())
        .count()
        >= all
}

/// Whether a NIC belongs to the shape of its host: it has a cable, or no cables are known at all.
fn counts(survey: &Survey<'_>, nic: &NicView<'_>) -> bool {
    !survey.has_cables || !nic.switches.is_empty()
}

impl<'a> Devices<'a> {
    fn of(survey: &Survey<'a>) -> Self {
        let mut numbers: HashMap<&str, u32, FixedState> = HashMap::default();
        let mut names = Vec::new();
        for nic in survey.hosts.iter().flat_map(|host| &host.nics) {
            numbers.entry(nic.device.as_str()).or_insert_with(|| {
                names.push(nic.device);
                0
            });
        }
        names.sort_by(|a, b| natural(a.as_str(), b.as_str()));
        for (number, name) in (0..).zip(&names) {
            numbers.insert(name.as_str(), number);
        }
        Self { names, numbers }
    }

    fn shape(&self, survey: &Survey<'_>, host: &HostView<'_>) -> Vec<u32> {
        let nics = host.nics.iter().filter(|nic| counts(survey, nic));
        let mut shape: Vec<u32> = nics.filter_map(|nic| self.number(nic)).collect();
        shape.sort_unstable();
        shape
    }

    fn number(&self, nic: &NicView<'_>) -> Option<u32> {
        self.numbers.get(nic.device.as_str()).copied()
    }
}

/// Groups hosts by shape, most hosts first; notes hosts that are in no group.
fn group(survey: &Survey<'_>, devices: &Devices<'_>, roles: &mut [HostRole]) -> Vec<Group> {
    let mut groups: HashMap<Vec<u32>, Vec<usize>, FixedState> = HashMap::default();
    for (index, host) in survey.hosts.iter().enumerate() {
        if is_unnamed_host(host.name) {
            roles[index] = HostRole::Unnamed;
            continue;
        }
        let shape = devices.shape(survey, host);
        if !shape.is_empty() {
            groups.entry(shape).or_default().push(index);
        }
    }
    let mut groups: Vec<_> = groups
        .into_iter()
        .map(|(shape, hosts)| Group { shape, hosts })
        .collect();
    groups.sort_by(|a, b| {
        let size = |group: &Group| (group.hosts.len(), group.shape.len());
        size(b).cmp(&size(a)).then_with(|| a.shape.cmp(&b.shape))
    });
    groups
}

fn make_classes(
    survey: &Survey<'_>,
    groups: &[Group],
    usual: usize,
    roles: &mut [HostRole],
) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut left = Vec::new();
    let hosts: usize = groups.iter().map(|group| group.hosts.len()).sum();
    for group in groups {
        let established = group.hosts.len() as f64 >= ESTABLISHED_SHARE * hosts as f64;
        let many = !is_few(group.shape.len(), usual);
        let like_a_class = classes
            .iter()
            .any(|class| class.shape.len() == group.shape.len());
        match kin(&classes, group) {
            Some(class) => join_class(&mut classes, class, &group.hosts, roles),
            None if many && (established || like_a_class || group.shape.len() == usual)
                || established && group.shape.len() > 1 =>
            {
                classes.push(Class {
                    shape: group.shape.clone(),
                    members: Vec::new(),
                    order: Vec::new(),
                });
                let class = classes.len() - 1;
                join_class(&mut classes, class, &group.hosts, roles);
            }
            None => left.push(group),
        }
    }
    place_the_rest(survey, &left, usual, &mut classes, roles);
    classes
}

fn is_few(nics: usize, usual: usize) -> bool {
    nics as f64 <= FEW_NICS_SHARE * usual as f64
}

/// The class that a smaller group belongs to because most of that class's devices are in it: hosts
/// that lack some, hosts that have more, and a few hosts where some are called otherwise.
fn kin(classes: &[Class], group: &Group) -> Option<usize> {
    let mut best: Option<(usize, usize)> = None;
    for (index, class) in classes.iter().enumerate() {
        let common = common(&class.shape, &group.shape);
        let most = common * 2 > class.shape.len();
        // As many devices of other names on many hosts are another kind of node, not a defect.
        let rare = group.hosts.len() as f64 <= ESTABLISHED_SHARE * class.members.len() as f64;
        let fits = rare
            || common == class.shape.len()
            || group.shape.len() < class.shape.len() && common == group.shape.len();
        if most && fits && best.is_none_or(|(_, most)| common > most) {
            best = Some((index, common));
        }
    }
    best.map(|(index, _)| index)
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter()
        .filter(|device| b.binary_search(device).is_ok())
        .count()
}

fn join_class(classes: &mut [Class], class: usize, hosts: &[usize], roles: &mut [HostRole]) {
    for host in hosts {
        roles[*host] = HostRole::Compute { class };
        classes[class].members.push(*host);
    }
}

/// Hosts with few NICs are service hosts, unless they are called like the hosts of a class whose
/// devices they have a part of: a `gpu-017` among a thousand `gpu-NNN` has lost its rails.
fn place_the_rest(
    survey: &Survey<'_>,
    left: &[&Group],
    usual: usize,
    classes: &mut [Class],
    roles: &mut [HostRole],
) {
    if left.is_empty() {
        return;
    }
    let stems: Vec<HashSet<String>> = classes
        .iter()
        .map(|class| {
            class
                .members
                .iter()
                .map(|host| stem(survey.hosts[*host].name.as_str()))
                .collect()
        })
        .collect();
    for group in left {
        for host in &group.hosts {
            let stem = stem(survey.hosts[*host].name.as_str());
            let class = (0..classes.len()).find(|class| {
                stems[*class].contains(&stem)
                    && common(&classes[*class].shape, &group.shape) == group.shape.len()
            });
            match class {
                Some(class) => join_class(classes, class, &[*host], roles),
                None if is_few(group.shape.len(), usual) => roles[*host] = HostRole::Service,
                None => roles[*host] = HostRole::Unlike,
            }
        }
    }
}

/// A host name with every number folded: `luna-0541` is `luna-#`.
fn stem(name: &str) -> String {
    let mut stem = String::with_capacity(name.len());
    for char in name.chars() {
        if !char.is_ascii_digit() {
            stem.push(char);
        } else if !stem.ends_with('#') {
            stem.push('#');
        }
    }
    stem
}

/// The order of a class's devices: by PCI address as most of its whole hosts have it, where their
/// exporters report it; else by name.
fn rail_order(survey: &Survey<'_>, class: &Class, devices: &Devices<'_>) -> Vec<u32> {
    let mut votes: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for host in &class.members {
        let nics = survey.hosts[*host].nics.iter();
        let mut placed: Vec<_> = nics
            .filter_map(|nic| Some((nic.pci?, devices.number(nic)?)))
            .filter(|(_, number)| class.shape.binary_search(number).is_ok())
            .collect();
        if placed.len() == class.shape.len() {
            placed.sort_unstable();
            let order = placed.into_iter().map(|(_, number)| number).collect();
            *votes.entry(order).or_default() += 1;
        }
    }
    // Of two orders with equal votes, the one nearer to the names' comes first in the map.
    let mut best = (class.shape.clone(), 0);
    for (order, count) in votes {
        if count > best.1 {
            best = (order, count);
        }
    }
    best.0
}

fn rails_of_nics(
    survey: &Survey<'_>,
    devices: &Devices<'_>,
    classes: &[Class],
    roles: &[HostRole],
) -> Vec<Vec<Option<u16>>> {
    let tables: Vec<HashMap<u32, u16, FixedState>> = classes
        .iter()
        .map(|class| class.order.iter().copied().zip(0..).collect())
        .collect();
    let slots: Vec<_> = classes
        .iter()
        .map(|class| usual_slots(survey, class, devices))
        .collect();
    let mut rails = Vec::with_capacity(survey.hosts.len());
    for (host, role) in survey.hosts.iter().zip(roles) {
        let HostRole::Compute { class } = role else {
            rails.push(vec![None; host.nics.len()]);
            continue;
        };
        // Names are given by software, slots by the board: a host whose devices have each other's names is wired right.
        let of_slot = |nic: &NicView<'_>| slots[*class].get(&nic.pci?).copied();
        let same_board = host.nics.iter().all(|nic| {
            devices
                .number(nic)
                .is_none_or(|own| !tables[*class].contains_key(&own))
                || of_slot(nic).is_some()
        });
        let rail = |nic: &NicView<'_>| {
            let by_slot = of_slot(nic).filter(|_| same_board);
            tables[*class]
                .get(&by_slot.or_else(|| devices.number(nic))?)
                .copied()
        };
        let mut own: Vec<Option<u16>> = host.nics.iter().map(rail).collect();
        fill_renamed(survey, host, devices, classes[*class].order.len(), &mut own);
        rails.push(own);
    }
    rails
}

/// Which device of a class is at which PCI address, where most of enough hosts agree.
fn usual_slots(
    survey: &Survey<'_>,
    class: &Class,
    devices: &Devices<'_>,
) -> HashMap<PciAddress, u32, FixedState> {
    let mut votes: HashMap<PciAddress, HashMap<u32, usize, FixedState>, FixedState> =
        HashMap::default();
    let members = class.members.iter();
    for nic in members.flat_map(|host| &survey.hosts[*host].nics) {
        if let (Some(pci), Some(number)) = (nic.pci, devices.number(nic))
            && class.order.contains(&number)
        {
            *votes.entry(pci).or_default().entry(number).or_default() += 1;
        }
    }
    let usual = votes.into_iter().filter_map(|(pci, votes)| {
        let all: usize = votes.values().sum();
        let (number, most) = votes
            .into_iter()
            .max_by_key(|(number, most)| (*most, *number))?;
        (all >= MIN_BOARDS && most as f64 >= SAME_BOARD_SHARE * all as f64).then_some((pci, number))
    });
    usual.collect()
}

/// Where a host has as many NICs as its class and some go by other names, those take the rails that are
/// left, in the order of their names.
fn fill_renamed(
    survey: &Survey<'_>,
    host: &HostView<'_>,
    devices: &Devices<'_>,
    all: usize,
    rails: &mut [Option<u16>],
) {
    let counted: Vec<usize> = (0..host.nics.len())
        .filter(|nic| counts(survey, &host.nics[*nic]))
        .collect();
    let mut others: Vec<usize> = counted
        .iter()
        .copied()
        .filter(|nic| rails[*nic].is_none())
        .collect();
    if others.is_empty() || counted.len() != all {
        return;
    }
    others.sort_by_key(|nic| devices.number(&host.nics[*nic]));
    let free: Vec<u16> = (0..all as u16)
        .filter(|rail| !counted.iter().any(|nic| rails[*nic] == Some(*rail)))
        .collect();
    for (nic, rail) in others.into_iter().zip(free) {
        rails[nic] = Some(rail);
    }
}

/// Compares names so that numbers in them count as numbers: `mlx5_2` before `mlx5_10`.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (a_text, a_rest) = split_at_digit(left);
        let (b_text, b_rest) = split_at_digit(right);
        let (a_number, a_after) = split_number(a_rest);
        let (b_number, b_after) = split_number(b_rest);
        // Without leading zeros, the longer number is the greater one.
        let order = a_text
            .cmp(b_text)
            .then_with(|| a_number.len().cmp(&b_number.len()))
            .then_with(|| a_number.cmp(b_number));
        if order != Ordering::Equal {
            return order;
        }
        if a_after.is_empty() || b_after.is_empty() {
            return a_after.cmp(b_after).then_with(|| a.cmp(b));
        }
        (left, right) = (a_after, b_after);
    }
}

fn split_at_digit(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|char: char| char.is_ascii_digit())
            .unwrap_or(text.len()),
    )
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (digits.trim_start_matches('0'), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_sort_by_their_numbers() {
        let sorted = [
            "HCA-1",
            "HCA-2",
            "HCA-10",
            "ibp1s0f0",
            "ibp11s0f0",
            "ibp11s0f1",
            "mlx5_0",
            "mlx5_2",
            "mlx5_10",
            "mlx5_a",
        ];
        for (low, a) in sorted.iter().enumerate() {
            for (high, b) in sorted.iter().enumerate() {
                assert_eq!(natural(a, b), low.cmp(&high), "{a} {b}");
            }
        }
    }

    #[test]
    fn numbers_fold_in_a_stem() {
        assert_eq!(stem("a05-p1-dgx-01-c18"), "a#-p#-dgx-#-c#");
    }
}
