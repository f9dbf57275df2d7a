//! Confirmation scrapes: of a node that reports a lost port or NVLink, and of the other nodes on the
//! port's switch, so that the next tick can already distinguish the port, its switch and a passing state.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::label;
use railscope_model::metric::{NVLINKS_ACTIVE, RDMA_PORT_UP};

use crate::assemble::node_parts::read;
use crate::diagnose::stages::lost_links::cables_of_switches;
use crate::store::{History, NodeHistory, Window};

/// Time after which a scrape returns a new sample, s: exporters sample
/// ports once a second, and a busy one may miss a sample.
pub const SECOND_LOOK_SECONDS: f64 = 2.0;

/// Switches whose hosts were scraped again, and when.
#[derive(Debug, Default)]
pub(crate) struct SecondLooks(BTreeMap<Part, Timestamp>);

impl SecondLooks {
    /// Nodes to scrape again after a scrape of a node: none, unless it is the first to report that
    /// a port is down, or NVLinks of a GPU are. Hosts of one switch are not scraped again more often than
    /// new samples arrive.
    pub(crate) fn after(
        &mut self,
        fabric: &Fabric,
        (node, said): (&NodeName, &NodeHistory),
    ) -> BTreeSet<NodeName> {
        let lost = lost_cables(node, said);
        let loses_nvlinks = || {
            said.moving(&NVLINKS_ACTIVE)
                .any(|(_, active)| falls(active))
        };
        let Some(at) = said.heard().filter(|_| !lost.is_empty() || loses_nvlinks()) else {
            return BTreeSet::new();
        };
        self.0
            .retain(|_, asked| at.seconds_since(*asked) < SECOND_LOOK_SECONDS);
        let mut hosts = BTreeSet::from([node.clone()]);
        for (switch, cables) in cables_of_switches(fabric, &lost.iter().collect()) {
            if self.0.insert(switch.clone(), at).is_none() {
                hosts.extend(cables.iter().filter_map(|(cable, _)| cable.node().cloned()));
            }
        }
        hosts
    }
}

/// Cables of the ports whose links have just gone down.
fn lost_cables(node: &NodeName, said: &NodeHistory) -> BTreeSet<Part> {
    let ports = said.moving(&RDMA_PORT_UP).filter_map(|(labels, up)| {
        if !falls(up) {
            return None;
        }
        let device = read(labels, label!(RDMA_PORT_UP, "device"))?;
        let port = read(labels, label!(RDMA_PORT_UP, "port"))?;
        Some(Part::HostLink(node.clone(), RdmaPort { device, port }))
    });
    ports.collect()
}

/// Whether the newest scrape reported less than the one before.
fn falls(told: Window<'_>) -> bool {
    let mut told = told.told().map(|(_, value)| value);
    told.next()
        .zip(told.next())
        .is_some_and(|(now, before)| now < before)
}

/// The earliest time of a sample that confirms a loss, if the host was scraped since and still reports
/// it: a port that is down, or a GPU that has fewer NVLinks than it had. `None` of a part of which no
/// scrape reported more.
pub(crate) fn second_look_at(history: &History, part: &Part) -> Option<Timestamp> {
    let window = match part {
        Part::HostLink(node, RdmaPort { device, port }) => {
            let labels = [device.as_str(), &port.to_string()];
            history.node(node)?.window(&RDMA_PORT_UP, &labels)?
        }
        Part::Gpu(node, gpu) => {
            let labels = [&*gpu.to_string()];
            history.node(node)?.window(&NVLINKS_ACTIVE, &labels)?
        }
        _ => return None,
    };
    let mut told = window.told();
    let (newest, now) = told.next()?;
    let mut since = newest;
    for (at, before) in told {
        if before != now {
            let second = since.plus_seconds(SECOND_LOOK_SECONDS);
            return (before > now && newest >= second).then_some(second);
        }
        since = at;
    }
    None
}
