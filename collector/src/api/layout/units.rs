//! Units: nodes behind the same leaves.

use std::collections::{BTreeMap, HashMap};

use super::{Host, Unit};

/// Groups nodes by the leaves behind them. The leaves of most nodes make the units; a node with other
/// leaves (a lost or misplaced cable) joins the unit with which it shares the most.
pub(super) fn assign(hosts: &mut [Host]) -> Vec<Unit> {
    let mut by_leaves: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (place, host) in hosts.iter().enumerate() {
        let uplinks = host.nics.iter().flat_map(|nic| &nic.uplinks);
        let mut leaves: Vec<usize> = uplinks.map(|uplink| uplink.switch).collect();
        leaves.sort_unstable();
        leaves.dedup();
        if !leaves.is_empty() {
            by_leaves.entry(leaves).or_default().push(place);
        }
    }
    let mut groups: Vec<_> = by_leaves.into_iter().collect();
    groups.sort_by_key(|(leaves, hosts)| {
        (
            std::cmp::Reverse(hosts.len()),
            hosts.first().copied(),
            leaves.len(),
        )
    });
    let mut units: Vec<Unit> = Vec::new();
    let mut unit_of_leaf: HashMap<usize, usize> = HashMap::new();
    for (leaves, members) in groups {
        let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
        for unit in leaves.iter().filter_map(|leaf| unit_of_leaf.get(leaf)) {
            *shared.entry(*unit).or_default() += 1;
        }
        let most = shared
            .iter()
            .max_by_key(|(unit, count)| (**count, std::cmp::Reverse(**unit)));
        let unit = most.map_or(units.len(), |(unit, _)| *unit);
        if unit == units.len() {
            units.push(Unit {
                name: String::new(),
                hosts: Vec::new(),
                leaves: Vec::new(),
            });
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
    for (number, unit) in units.iter_mut().enumerate() {
        unit.name = format!("su-{}", number + 1);
        for host in &unit.hosts {
            hosts[*host].unit = Some(number);
        }
    }
    units
}
