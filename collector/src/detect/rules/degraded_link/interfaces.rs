//! Network interfaces whose link went down, or is slower than on other nodes. Only on GPU nodes that report no state of RDMA ports
//! (instances of clouds, and nodes of which no exporter reads `/sys/class/infiniband`), and members of bonds.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort};
use railscope_model::metric::{NIC_CARRIER, NIC_SPEED};

use super::{DOWN_KEPT_SECONDS, TOLERANCE, evidence, gigabits};
use crate::assemble::netdev::{MIN_SPEED, without_port_state};
use crate::classes::{PORT_DEGRADED, PORT_DOWN};
use crate::detect::detector::{Evidence, View};
use crate::detect::peers::norm;
use crate::detect::registry::Threshold;
use crate::store::NodeHistory;

/// The slowest interface that counts, as a threshold.
pub(super) fn slowest() -> Threshold {
    Threshold::new(
        "slowest interface that counts, of a node without RDMA ports or a bond",
        MIN_SPEED,
        "bytes/s",
        "slower ones are for management (a choice)",
    )
}

/// Fast interfaces that were up, and when the link of each went down. One that is down has no speed, and may be down for days.
#[derive(Debug, Default)]
pub(super) struct FallenInterfaces(BTreeMap<(NodeName, String), Option<Timestamp>>);

impl FallenInterfaces {
    /// Those that are up on most nodes.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut carriers: BTreeMap<&str, Vec<(&NodeName, f64)>> = BTreeMap::new();
        for (node, history) in view.history.fresh_nodes(view.now) {
            let Some(counts) = without_port_state(history) else {
                continue;
            };
            for (labels, window) in history.series(&NIC_CARRIER) {
                let (Some(netdev), Some(carrier)) = (labels.values().next(), window.value()) else {
                    continue;
                };
                if !counts(netdev) {
                    continue;
                }
                carriers.entry(netdev).or_default().push((node, carrier));
                self.notice((node, history), netdev, carrier, view.now);
            }
        }
        self.0.retain(|(node, _), since| {
            let is_kept = |since| view.now.seconds_since(since) <= DOWN_KEPT_SECONDS;
            view.history.node(node).is_some() && since.is_none_or(is_kept)
        });
        for (netdev, nodes) in carriers {
            let are_up = norm(nodes.iter().map(|(_, carrier)| *carrier)) == Some(1.0);
            let fallen = nodes.iter().filter(|(node, _)| {
                let key = ((*node).clone(), netdev.to_owned());
                are_up && self.0.get(&key).is_some_and(Option::is_some)
            });
            let up = nodes.iter().filter(|(_, carrier)| *carrier == 1.0).count();
            for (node, _) in fallen {
                let Ok(device) = netdev.parse() else { continue };
                let statement = format!(
                    "Interface {netdev} of {node} is down; {up} of {} nodes have it up.",
                    nodes.len()
                );
                let part = Part::HostLink((*node).clone(), RdmaPort { device, port: 1 });
                let signal = NIC_CARRIER.name;
                out.push(evidence(view, part, &PORT_DOWN, signal, 1.0, statement));
            }
        }
    }

    /// Interfaces that are up and slower than on most nodes.
    pub(super) fn find_slow(view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut speeds: BTreeMap<&str, Vec<(&NodeName, f64)>> = BTreeMap::new();
        for (node, history) in view.history.fresh_nodes(view.now) {
            let Some(counts) = without_port_state(history) else {
                continue;
            };
            let up = history.series(&NIC_SPEED).filter_map(|(labels, window)| {
                let netdev = labels.values().next()?;
                let speed = window.value().filter(|speed| *speed > 0.0)?;
                let is_up = history.value(&NIC_CARRIER, &[netdev]) == Some(1.0);
                (is_up && counts(netdev)).then_some((netdev, speed))
            });
            for (netdev, speed) in up {
                speeds.entry(netdev).or_default().push((node, speed));
            }
        }
        for (netdev, nodes) in speeds {
            let usual = norm(nodes.iter().map(|(_, speed)| *speed));
            let Some(usual) = usual.filter(|usual| *usual >= MIN_SPEED) else {
                continue;
            };
            let slow = nodes.iter().filter(|(_, speed)| *speed < TOLERANCE * usual);
            for (node, speed) in slow {
                let Ok(device) = netdev.parse() else { continue };
                let statement = format!(
                    "Interface {netdev} of {node} runs at {} Gb/s; on most of {} nodes it runs at {} Gb/s.",
                    gigabits(*speed),
                    nodes.len(),
                    gigabits(usual)
                );
                let part = Part::HostLink((*node).clone(), RdmaPort { device, port: 1 });
                let (signal, effect) = (NIC_SPEED.name, 1.0 - speed / usual);
                out.push(evidence(
                    view,
                    part,
                    &PORT_DEGRADED,
                    signal,
                    effect,
                    statement,
                ));
            }
        }
    }

    /// Remembers a fast interface that is up, and when the link of one of these went down.
    fn notice(
        &mut self,
        (node, history): (&NodeName, &NodeHistory),
        netdev: &str,
        carrier: f64,
        now: Timestamp,
    ) {
        let speed = history.value(&NIC_SPEED, &[netdev]);
        let key = (node.clone(), netdev.to_owned());
        if carrier == 0.0 {
            if let Some(since) = self.0.get_mut(&key) {
                since.get_or_insert(now);
            }
        } else if speed.is_some_and(|speed| speed >= MIN_SPEED) {
            self.0.insert(key, None);
        } else {
            self.0.remove(&key);
        }
    }
}
