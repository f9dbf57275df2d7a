//! NICs that their switches pause most of the time, by the NIC's own counter: most switches count no time in pause.

use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{
    NIC_PAUSE_SECONDS, NIC_PFC_PAUSE_SECONDS, RDMA_PORT_SPEED, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_UP, SWITCH_PORT_PFC_PAUSE_SECONDS,
};

use super::{BEYOND_PAUSED, HALTED, OF_HALTED, any_port_is_full, storm};
use crate::assemble::netdev::port_of;
use crate::detect::detector::{Evidence, View};
use crate::detect::pause_graph::{MOST_CARRIED, WINDOW_SECONDS};
use crate::detect::peers::MIN_PEERS;
use crate::detect::rules::fabric_loss::leaf_of;
use crate::detect::rules::slow_receiver::pauses::pause_of;
use crate::store::{Increase, NodeHistory};

/// An interface that counts pause.
struct Nic<'a> {
    node: &'a NodeName,
    history: &'a NodeHistory,
    netdev: &'a str,
    /// Largest share of [`WINDOW_SECONDS`] in which it was paused on one priority, and that priority.
    received: (f64, &'a str),
    /// Largest share in which it paused its switch; none if it does not count that.
    sent: Option<f64>,
}

impl Nic<'_> {
    fn leaf(&self, view: &View<'_>) -> Option<SwitchName> {
        let port = port_of(self.history, self.netdev)?;
        leaf_of(view.fabric, &Part::Nic(self.node.clone(), port.device))
    }

    /// Whether a port sends almost nothing.
    fn is_silent(&self, port: &RdmaPort) -> bool {
        let labels = [port.device.as_str(), &port.port.to_string()];
        let bytes = self.history.window(&RDMA_PORT_TRANSMIT_BYTES, &labels);
        let rate = bytes.and_then(|bytes| bytes.newest_increase(WINDOW_SECONDS));
        let speed = self.history.value(&RDMA_PORT_SPEED, &labels);
        let carried = rate.zip(speed);
        carried.is_some_and(|(rate, speed)| rate.rate() < MOST_CARRIED * speed)
    }
}

/// Interfaces of a node that count pause.
fn nics_of<'a>(node: &'a NodeName, history: &'a NodeHistory) -> Vec<Nic<'a>> {
    let mut nics: Vec<Nic<'a>> = Vec::new();
    for ([netdev, priority, direction], window) in pause_of(history) {
        let Some(rise) = window.newest_increase(WINDOW_SECONDS) else {
            continue;
        };
        let known = nics.iter().position(|nic| nic.netdev == netdev);
        let place = known.unwrap_or_else(|| {
            nics.push(Nic {
                node,
                history,
                netdev,
                received: (0.0, priority),
                sent: None,
            });
            nics.len() - 1
        });
        let (nic, share) = (&mut nics[place], rise.rate());
        if direction == "transmit" {
            nic.sent = Some(nic.sent.unwrap_or(0.0).max(share));
        } else if share > nic.received.0 {
            nic.received = (share, priority);
        }
    }
    nics
}

/// The only NIC that is halted. Congestion pauses several senders, or one where the destination port is full; a sender to a slow
/// NIC is paused for no longer than that NIC pauses its switch. Reports nothing where a node may pause its switch unseen.
pub(super) fn find(view: &View<'_>) -> Option<Evidence> {
    let mut nodes = view.history.fresh_nodes(view.now);
    let is_long = |rise: Option<Increase>| rise.is_some_and(|rise| rise.rate() > HALTED);
    let is_halted = |(_, history): (_, &NodeHistory)| {
        let metrics = [&NIC_PFC_PAUSE_SECONDS, &NIC_PAUSE_SECONDS].into_iter();
        let mut moving = metrics.flat_map(|metric| history.moving(metric));
        moving.any(|(_, window)| is_long(window.newest_increase(WINDOW_SECONDS)))
    };
    if !nodes.any(is_halted)
        || view.history.nodes().count() > view.history.fresh_nodes(view.now).count()
    {
        return None;
    }
    let mut nics = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let of_node = nics_of(node, history);
        let tells = of_node.iter().any(|nic| nic.sent.is_some());
        if !tells && history.series(&RDMA_PORT_UP).next().is_some() {
            return None;
        }
        nics.extend(of_node);
    }
    let by_share =
        |a: &(usize, &Nic<'_>), b: &(usize, &Nic<'_>)| a.1.received.0.total_cmp(&b.1.received.0);
    let (first, halted) = nics.iter().enumerate().max_by(by_share)?;
    let (share, priority) = halted.received;
    let sent = nics.iter().filter_map(|nic| nic.sent).fold(0.0, f64::max);
    let port = port_of(halted.history, halted.netdev)?;
    if share <= HALTED || BEYOND_PAUSED * sent > share || is_congested(view, halted, &port) {
        return None;
    }
    let leaf = halted.leaf(view);
    let others = nics.iter().enumerate().filter(|(place, _)| *place != first);
    let beside = others.filter(|(_, nic)| leaf.is_none() || nic.leaf(view) == leaf);
    let beside: Vec<f64> = beside.map(|(_, nic)| nic.received.0).collect();
    let most = beside.iter().copied().fold(0.0, f64::max);
    if beside.len() < MIN_PEERS || most > OF_HALTED * share || tells(view, leaf.as_ref()) {
        return None;
    }
    let node = halted.node;
    let at = match &leaf {
        Some(leaf) => leaf.to_string(),
        None => String::from("its switch"),
    };
    let on = match priority {
        "" => String::new(),
        priority => format!(" on priority {priority}"),
    };
    let statement = format!(
        "{} of {node} has been paused by {at}{on} for {:.0} % of the last {WINDOW_SECONDS:.0} s, none of {} other NICs there for more than {:.1} %, and no NIC pauses its switch for more than {:.1} %.",
        port.device,
        100.0 * share,
        beside.len(),
        100.0 * most,
        100.0 * sent
    );
    let mut evidence = storm(view, Part::HostLink(node.clone(), port), statement);
    evidence.signal = NIC_PFC_PAUSE_SECONDS.name;
    // Its port is what pauses.
    evidence.related.extend(leaf.map(Part::Switch));
    Some(evidence)
}

/// Whether the port that it sends to may be full: a port of any switch is; where no switch reports that, whether it sends at all.
fn is_congested(view: &View<'_>, nic: &Nic<'_>, port: &RdmaPort) -> bool {
    let switches = view.history.fresh_switches(view.now);
    let full: Vec<_> = switches
        .filter_map(|(_, history)| any_port_is_full(history, nic.received.0))
        .collect();
    match full.is_empty() {
        true => !nic.is_silent(port),
        false => full.contains(&true),
    }
}

/// Whether the switch itself reports which ports it pauses, and whether it is paused.
fn tells(view: &View<'_>, leaf: Option<&SwitchName>) -> bool {
    let history = leaf.and_then(|leaf| view.history.switch(leaf));
    history.is_some_and(|history| {
        history
            .series(&SWITCH_PORT_PFC_PAUSE_SECONDS)
            .next()
            .is_some()
    })
}
