//! Scalable units: hosts behind the same leaves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

/// Hosts and leaves of one unit, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitMembers {
    /// Its hosts, in order.
    pub hosts: Vec<usize>,
    /// Its leaves: in the order in which its hosts name them.
    pub leaves: Vec<usize>,
}

/// Groups hosts by the leaves behind them, given for each host; those without a leaf are in no unit.
///
/// The leaves of most hosts make the units; a host with other leaves (a lost or misplaced cable) joins the
/// unit with which it shares the most. Units are in the order of their first host.
pub fn units(leaves_of: &[Vec<usize>]) -> Vec<UnitMembers> {
    let mut by_leaves: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (host, leaves) in leaves_of.iter().enumerate() {
        let mut leaves = leaves.clone();
        leaves.sort_unstable();
        leaves.dedup();
        if !leaves.is_empty() {
            by_leaves.entry(leaves).or_default().push(host);
        }
    }
    let mut groups: Vec<_> = by_leaves.into_iter().collect();
    groups.sort_by_key(|(leaves, hosts)| {
        (Reverse(hosts.len()), hosts.first().copied(), leaves.len())
    });
    let mut units: Vec<UnitMembers> = Vec::new();
    let mut unit_of_leaf: HashMap<usize, usize, FixedState> = HashMap::default();
    for (leaves, members) in groups {
        let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
        for unit in leaves.iter().filter_map(|leaf| unit_of_leaf.get(leaf)) {
            *shared.entry(*unit).or_default() += 1;
        }
        let most = shared
            .iter()
            .max_by_key(|(unit, count)| (**count, Reverse(**unit)));
        let unit = most.map_or(units.len(), |(unit, _)| *unit);
        if unit == units.len() {
            units.push(UnitMembers::default());
        }
        units[unit].hosts.extend(members);
        for leaf in leaves {
            unit_of_leaf.entry(leaf).or_insert_with(|| {
                units[unit].leaves.push(leaf);
                unit
            });
        }
    }
    units.iter_mut().for_each(|unit| unit.hosts.sort_unstable());
    units.sort_by_key(|unit| unit.hosts.first().copied());
    units
}
