//! Units of the layout: nodes behind the same leaves, named in the order of their first node.

use super::{Host, Unit};
use crate::fabric;

/// Groups nodes by the leaves behind them and assigns each node its unit.
pub(super) fn assign(hosts: &mut [Host]) -> Vec<Unit> {
    let leaves = |host: &Host| {
        let uplinks = host.nics.iter().flat_map(|nic| &nic.uplinks);
        uplinks.map(|uplink| uplink.switch).collect()
    };
    let leaves_of: Vec<Vec<usize>> = hosts.iter().map(leaves).collect();
    let units = fabric::units(&leaves_of);
    for (number, unit) in units.iter().enumerate() {
        for host in &unit.hosts {
            hosts[*host].unit = Some(number);
        }
    }
    let named = (1..).zip(units).map(|(number, unit)| Unit {
        name: format!("su-{number}"),
        hosts: unit.hosts,
        leaves: unit.leaves,
    });
    named.collect()
}
