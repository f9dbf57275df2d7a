//! NICs that their switches pause most of the time, by the NIC's own counter: most switches count no time in pause.

use railscope_model::fabric::LinkKind;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{NIC_PFC_PAUSE_SECONDS, SWITCH_PORT_PFC_PAUSE_SECONDS};

use super::{HALTED, OF_HALTED, any_port_is_full, storm};
use crate::detect::detector::{Evidence, View};
use crate::detect::netdev::{nic_of, port_of};
use crate::detect::pause_graph::WINDOW_SECONDS;
use crate::detect::peers::MIN_PEERS;
use crate::store::{Increase, NodeHistory};

/// The time in pause of an interface on one priority.
struct Lane<'a> {
    node: &'a NodeName,
    history: &'a NodeHistory,
    netdev: &'a str,
    priority: &'a str,
    /// Whether it is paused, and does not pause its switch.
    is_paused: bool,
    /// Of [`WINDOW_SECONDS`].
    share: f64,
}

impl Lane<'_> {
    /// Port of the interface; where no exporter relates the two, the first of the NIC.
    fn port(&self) -> Option<RdmaPort> {
        port_of(self.history, self.netdev).or_else(|| {
            let (_, device) = nic_of(self.history, self.netdev)?;
            Some(RdmaPort { device, port: 1 })
        })
    }

    fn leaf(&self, view: &View<'_>) -> Option<SwitchName> {
        let nic = Part::Nic(self.node.clone(), self.port()?.device);
        let near = view.fabric.neighbours(view.fabric.find(&nic)?);
        let mut cables = near.filter(|near| near.link.kind == LinkKind::Cable);
        cables.find_map(|near| match &view.fabric.vertex(near.peer).part {
            Part::Switch(leaf) if near.link.is_present() => Some(leaf.clone()),
            _ => None,
        })
    }
}

fn lanes<'a>(view: &View<'a>) -> Vec<Lane<'a>> {
    let nodes = view.history.fresh_nodes(view.now);
    let lanes = nodes.flat_map(|(node, history)| {
        let series = history.series(&NIC_PFC_PAUSE_SECONDS);
        series.filter_map(move |(labels, window)| {
            let labels: Vec<&str> = labels.values().collect();
            let [netdev, priority, direction] = <[&str; 3]>::try_from(labels).ok()?;
            Some(Lane {
                node,
                history,
                netdev,
                priority,
                is_paused: direction == "receive",
                share: window.newest_increase(WINDOW_SECONDS)?.rate(),
            })
        })
    });
    lanes.collect()
}

/// NICs that are halted alone.
pub(super) fn find(view: &View<'_>) -> Vec<Evidence> {
    let mut nodes = view.history.fresh_nodes(view.now);
    let is_long = |rise: Option<Increase>| rise.is_some_and(|rise| rise.rate() > HALTED);
    let is_halted = |(_, history): (_, &NodeHistory)| {
        let mut moving = history.moving(&NIC_PFC_PAUSE_SECONDS);
        moving.any(|(_, window)| is_long(window.newest_increase(WINDOW_SECONDS)))
    };
    if !nodes.any(is_halted) {
        return Vec::new();
    }
    let lanes = lanes(view);
    let halted = lanes
        .iter()
        .filter(|lane| lane.is_paused && lane.share > HALTED);
    halted
        .filter_map(|lane| alone(view, lane, &lanes))
        .collect()
}

/// Congestion pauses several senders, and behind a NIC that does not receive a sender is paused no longer than that pauses its switch.
fn alone(view: &View<'_>, halted: &Lane<'_>, lanes: &[Lane<'_>]) -> Option<Evidence> {
    let leaf = halted.leaf(view);
    let of_leaf = leaf.as_ref().and_then(|leaf| view.history.switch(leaf));
    if let Some(history) = of_leaf {
        let mut told = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
        // Then the switch itself says whom it pauses, and whether it is paused.
        if told.next().is_some() || any_port_is_full(history) == Some(true) {
            return None;
        }
    }
    let is_other = |lane: &&Lane<'_>| (lane.node, lane.netdev) != (halted.node, halted.netdev);
    let others = lanes.iter().filter(is_other);
    let (paused, pausing): (Vec<_>, Vec<_>) = others.partition(|lane| lane.is_paused);
    let beside = |lane: &&&Lane<'_>| leaf.is_none() || lane.leaf(view) == leaf;
    let beside: Vec<_> = paused.iter().filter(beside).collect();
    let most = beside.iter().map(|lane| lane.share).fold(0.0, f64::max);
    let sent = pausing.iter().map(|lane| lane.share).fold(0.0, f64::max);
    if beside.len() < MIN_PEERS
        || most > OF_HALTED * halted.share
        || sent > OF_HALTED * halted.share
    {
        return None;
    }
    let (node, port) = (halted.node, halted.port()?);
    let at = match &leaf {
        Some(leaf) => leaf.to_string(),
        None => String::from("its switch"),
    };
    let statement = format!(
        "{} of {node} has been paused by {at} on priority {} for {:.0} % of the last {WINDOW_SECONDS:.0} s, no other NIC there for more than {:.1} %, and no NIC pauses its switch for more than {:.1} %.",
        port.device,
        halted.priority,
        100.0 * halted.share,
        100.0 * most,
        100.0 * sent
    );
    let mut evidence = storm(view, Part::HostLink(node.clone(), port), statement);
    evidence.signal = NIC_PFC_PAUSE_SECONDS.name;
    // Its port is what pauses.
    evidence.related.extend(leaf.map(Part::Switch));
    Some(evidence)
}
