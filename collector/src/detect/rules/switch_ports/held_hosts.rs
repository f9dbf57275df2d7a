//! A leaf that holds up what its hosts send, although it waits for none of them: too little gets away over its cables to other
//! switches.
//!
//! A queue before a cable that lets less through than its speed fills the leaf, which then pauses its hosts, or gives them no
//! credits. The counters of the cable itself may show nothing: its port sends all that it can. A slow receiver holds up those that
//! send to it, on every leaf; a busy job sends more than before, not less.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part, RdmaDevice, SwitchName};
use railscope_model::metric::{
    Metric, NIC_PFC_PAUSE_SECONDS, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_WAIT,
    SWITCH_PORT_ECN_MARKED, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use self::numbers::{
    ELSEWHERE, HELD_SECONDS, IDLE, MARKED, MIN_HELD, MIN_PAUSED, MIN_TICKS, MOST_OF_LEAF,
    MOST_SENT, PASSED_ON,
};
pub(super) use self::numbers::{rule, words};
use super::past::{Lane, NEW, REMEMBERED_SECONDS, before};
use super::standing_queue::is_to_switch;
use crate::assemble::netdev::nic_of;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::ecn_marks::marked_share;
use crate::detect::peers::median;
use crate::detect::port_series::cable_at;
use crate::detect::rules::slow_receiver::pauses::pause_of;
use crate::store::{Increase, NodeHistory, Window};

/// What the finding is told by.
pub(super) const SIGNAL: &Metric = &SWITCH_PORT_PFC_PAUSE_SECONDS;

/// How a leaf holds up a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    Pause,
    /// InfiniBand: it gives no credits.
    Credits,
}

impl Means {
    const fn least(self) -> f64 {
        match self {
            Self::Pause => MIN_PAUSED,
            Self::Credits => MIN_TICKS,
        }
    }

    fn words(self, held: f64) -> String {
        match self {
            Self::Pause => format!("pauses them for {:.1} % of the time", 100.0 * held),
            Self::Credits => format!(
                "lets them wait for credits for {:.0} million ticks a second",
                1e-6 * held
            ),
        }
    }
}

/// A port of a host that its leaf holds up.
struct Host<'a> {
    lane: Lane,
    /// Share of the time, or ticks a second.
    held: f64,
    counter: Window<'a>,
    /// Bytes a second.
    sent: f64,
    bytes: Window<'a>,
}

impl<'a> Host<'a> {
    /// If it is held up.
    fn of(lane: Lane, means: Means, counter: Window<'a>, bytes: Window<'a>) -> Option<Self> {
        let [held, newest] = HELD_SECONDS.map(|seconds| rate(counter, seconds));
        let is_held = |held: &f64| *held >= means.least();
        newest.filter(is_held)?;
        Some(Self {
            held: held.filter(is_held)?,
            sent: rate(bytes, HELD_SECONDS[0])?,
            lane,
            counter,
            bytes,
        })
    }
}

fn rate(counter: Window<'_>, seconds: f64) -> Option<f64> {
    counter.newest_increase(seconds).map(Increase::rate)
}

/// A leaf with hosts that it holds up.
struct Leaf {
    switch: SwitchName,
    /// Hosts' ports that are held up longer than before although they send less, and all that send.
    held: usize,
    sending: usize,
    /// Mean wait, and by how much it has grown, of all that send.
    wait: f64,
    growth: f64,
    /// Bytes a second that the held ports send.
    sent: f64,
}

impl Leaf {
    fn is_held(&self) -> bool {
        self.held >= MIN_HELD && self.held as f64 >= MOST_OF_LEAF * self.sending as f64
    }
}

/// What a host's port did before it was held up longer.
struct Before {
    wait: f64,
    sent: f64,
    /// When it was last held up longer.
    last: Timestamp,
}

/// The leaf that holds up its hosts, and what their ports did before.
#[derive(Default)]
pub(super) struct HeldHosts(BTreeMap<Lane, Before>);

impl HeldHosts {
    /// The leaf that holds up its hosts, or the cable of it that is the reason.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.0
            .retain(|_, before| view.now.seconds_since(before.last) <= REMEMBERED_SECONDS);
        for (means, hosts) in [
            (Means::Pause, paused(view)),
            (Means::Credits, without_credits(view)),
        ] {
            let leaves = hosts.chunk_by(|a, b| a.lane.0 == b.lane.0);
            let mut leaves: Vec<_> = leaves.map(|hosts| self.leaf(view, hosts)).collect();
            leaves.sort_by(|a, b| b.growth.total_cmp(&a.growth));
            let next = leaves.get(1).map_or(0.0, |next| next.growth);
            if let Some(first) = leaves.first()
                && first.is_held()
                && next <= ELSEWHERE * first.growth
                && passes_on(view, first)
                && waits_for_none(view, first, means)
            {
                out.push(evidence(view, first, means));
            }
        }
    }

    fn leaf(&mut self, view: &View<'_>, hosts: &[Host<'_>]) -> Leaf {
        let switch = hosts[0].lane.0.clone();
        let usual = median(hosts.iter().map(|host| host.sent)).unwrap_or(0.0);
        let grown: Vec<_> = hosts.iter().map(|host| self.growth(view, host)).collect();
        let sending = sending(view, &switch, IDLE * usual).max(hosts.len());
        let waits: f64 = hosts.iter().map(|host| host.held).sum();
        Leaf {
            switch,
            held: grown.iter().filter(|(_, is_new)| *is_new).count(),
            sending,
            wait: waits / sending as f64,
            growth: grown.iter().map(|(growth, _)| growth).sum::<f64>() / sending as f64,
            sent: hosts.iter().map(|host| host.sent).sum(),
        }
    }

    /// By how much longer than before a port is held up, and whether that is new, although it sends less. A port may always wait:
    /// what it did before is kept only while that is longer.
    fn growth(&mut self, view: &View<'_>, host: &Host<'_>) -> (f64, bool) {
        let known = self.0.get(&host.lane);
        let known = known.map(|known| [known.wait, known.sent]).or_else(|| {
            let [wait, sent] = [host.counter, host.bytes].map(|counter| before(counter, view.now));
            Some([wait?, sent?])
        });
        let Some([wait, sent]) = known else {
            return (0.0, false);
        };
        let is_new = host.held >= NEW * wait && host.sent <= MOST_SENT * sent;
        if is_new {
            let last = view.now;
            self.0
                .insert(host.lane.clone(), Before { wait, sent, last });
        }
        ((host.held - wait).max(0.0), is_new)
    }
}

/// Hosts' ports that their leaves pause, by leaf: as the leaf counts it, or else the host.
fn paused<'a>(view: &View<'a>) -> Vec<Host<'a>> {
    let mut all = Longest::default();
    for (switch, history) in view.history.fresh_switches(view.now) {
        for (labels, pause) in history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS) {
            let labels: Vec<_> = labels.values().collect();
            let [port, _, "transmit"] = labels[..] else {
                continue;
            };
            if is_to_switch(view, switch, port) != Some(true) {
                let bytes = history.window(&SWITCH_PORT_RECEIVE_BYTES, &[port]);
                let lane = (switch.clone(), port.to_owned(), String::new());
                all.add(lane, Means::Pause, pause, bytes);
            }
        }
    }
    let counting: BTreeSet<_> = all.0.keys().map(|(switch, ..)| switch.clone()).collect();
    for (node, history) in view.history.fresh_nodes(view.now) {
        if history.moving(&NIC_PFC_PAUSE_SECONDS).next().is_none() {
            continue;
        }
        for ([netdev, _, direction], pause) in pause_of(history) {
            if direction == "receive"
                && rate(pause, HELD_SECONDS[0]) >= Some(MIN_PAUSED)
                && let Some((_, device)) = nic_of(history, netdev)
                && let Some(leaf) = only_leaf(view.fabric, node, &device)
                && !counting.contains(&leaf)
            {
                let bytes = history.window(&RDMA_PORT_TRANSMIT_BYTES, &[device.as_str(), "1"]);
                let lane = (leaf, format!("{node}/{device}"), String::new());
                all.add(lane, Means::Pause, pause, bytes);
            }
        }
    }
    all.0.into_values().collect()
}

/// Hosts' ports that wait for credits, by leaf.
fn without_credits<'a>(view: &View<'a>) -> Vec<Host<'a>> {
    let mut all = Longest::default();
    for (node, history) in view.history.fresh_nodes(view.now) {
        for (labels, wait) in history.moving(&RDMA_PORT_TRANSMIT_WAIT) {
            let labels: Vec<_> = labels.values().collect();
            if let [device, port] = labels[..]
                && rate(wait, HELD_SECONDS[0]) >= Some(MIN_TICKS)
                && let Ok(device) = device.parse()
                && let Some(leaf) = only_leaf(view.fabric, node, &device)
            {
                let bytes = history.window(&RDMA_PORT_TRANSMIT_BYTES, &[device.as_str(), port]);
                let lane = (leaf, format!("{node}/{device}"), String::new());
                all.add(lane, Means::Credits, wait, bytes);
            }
        }
    }
    all.0.into_values().collect()
}

/// Hosts' ports with what holds each up longest: priorities are paused apart.
#[derive(Default)]
struct Longest<'a>(BTreeMap<Lane, Host<'a>>);

impl<'a> Longest<'a> {
    fn add(&mut self, lane: Lane, means: Means, counter: Window<'a>, bytes: Option<Window<'a>>) {
        let known = self.0.get(&lane).map_or(0.0, |host| host.held);
        let host = bytes.and_then(|bytes| Host::of(lane.clone(), means, counter, bytes));
        if let Some(host) = host.filter(|host| host.held > known) {
            self.0.insert(lane, host);
        }
    }
}

/// The leaf of a NIC that is cabled to one switch alone.
fn only_leaf(fabric: &Fabric, node: &NodeName, device: &RdmaDevice) -> Option<SwitchName> {
    let nic = fabric.find(&Part::Nic(node.clone(), device.clone()))?;
    let mut peers = fabric
        .cables(nic)
        .map(|near| &fabric.vertex(near.peer).part);
    match (peers.next()?, peers.next()) {
        (Part::Switch(leaf), None) => Some(leaf.clone()),
        _ => None,
    }
}

/// How many of a leaf's hosts' ports send at least so many bytes a second: as the leaf counts it, or else the hosts.
fn sending(view: &View<'_>, leaf: &SwitchName, least: f64) -> usize {
    let sends = |bytes: Window<'_>| rate(bytes, HELD_SECONDS[0]) >= Some(least);
    let history = view.history.switch(leaf);
    let ports = history
        .into_iter()
        .flat_map(|history| history.moving(&SWITCH_PORT_RECEIVE_BYTES));
    let of_hosts = ports.filter(|(labels, bytes)| {
        let port = labels.values().next().unwrap_or_default();
        is_to_switch(view, leaf, port) != Some(true) && sends(*bytes)
    });
    let counted = of_hosts.count();
    if counted > 0 {
        return counted;
    }
    let nics = nics_at(view, leaf);
    let sent = nics.filter_map(|(history, device)| {
        history.window(&RDMA_PORT_TRANSMIT_BYTES, &[device.as_str(), "1"])
    });
    sent.filter(|bytes| sends(*bytes)).count()
}

/// NICs that are cabled to a leaf.
fn nics_at<'a>(
    view: &View<'a>,
    leaf: &SwitchName,
) -> impl Iterator<Item = (&'a NodeHistory, &'a RdmaDevice)> {
    let fabric = view.fabric;
    let id = fabric.find(&Part::Switch(leaf.clone()));
    let near = id.into_iter().flat_map(|id| fabric.cables(id));
    let history = view.history;
    near.filter_map(move |near| match &fabric.vertex(near.peer).part {
        Part::Nic(node, device) => Some((history.node(node)?, device)),
        _ => None,
    })
}

/// Whether a leaf is known to send on to other switches what its hosts send: a switch by itself has no other cables.
fn passes_on(view: &View<'_>, leaf: &Leaf) -> bool {
    let history = view.history.switch(&leaf.switch).into_iter();
    let ports = history.flat_map(|history| history.moving(&SWITCH_PORT_TRANSMIT_BYTES));
    let sent = ports.filter_map(|(labels, bytes)| {
        let is_between = is_to_switch(view, &leaf.switch, labels.values().next()?)?;
        rate(bytes, HELD_SECONDS[0]).filter(|_| is_between)
    });
    sent.sum::<f64>() >= PASSED_ON * leaf.sent
}

/// Whether a leaf is known to wait for no receiver and for no other switch itself.
fn waits_for_none(view: &View<'_>, leaf: &Leaf, means: Means) -> bool {
    let history = view.history.switch(&leaf.switch);
    let of_leaf = |metric, direction: Option<&str>| {
        let series = history
            .into_iter()
            .flat_map(|history| history.series(metric));
        let series = series.filter(|(labels, _)| {
            direction.is_none_or(|direction| labels.values().last() == Some(direction))
        });
        series.map(|(_, window)| window).collect::<Vec<_>>()
    };
    let mut waits = match means {
        Means::Pause => of_leaf(&SWITCH_PORT_PFC_PAUSE_SECONDS, Some("receive")),
        Means::Credits => of_leaf(&SWITCH_PORT_TRANSMIT_WAIT, None),
    };
    if means == Means::Pause && waits.is_empty() {
        let pauses = nics_at(view, &leaf.switch).flat_map(|(history, _)| pause_of(history));
        let sent = pauses.filter(|([.., direction], _)| *direction == "transmit");
        waits.extend(sent.map(|(_, window)| window));
    }
    let is_short = |wait: &Window<'_>| {
        let longer =
            rate(*wait, HELD_SECONDS[0]).map(|now| now - before(*wait, view.now).unwrap_or(0.0));
        longer.is_none_or(|longer| longer <= ELSEWHERE * leaf.growth)
    };
    !waits.is_empty() && waits.iter().all(is_short)
}

/// The cable of a leaf to another switch whose queue marks packets while those of the others do not.
fn marking(view: &View<'_>, leaf: &SwitchName) -> Option<(Part, String)> {
    let history = view.history.switch(leaf)?;
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for (labels, marked) in history.series(&SWITCH_PORT_ECN_MARKED) {
        let port = labels.values().next()?;
        let bytes = history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[port]);
        let rates = rate(marked, HELD_SECONDS[0]).zip(rate(bytes?, HELD_SECONDS[0]));
        if let Some((marked, bytes)) = rates
            && is_to_switch(view, leaf, port) == Some(true)
        {
            *shares.entry(port).or_default() += marked_share(marked, bytes);
        }
    }
    let (port, share) = shares.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let others = shares.iter().filter(|(other, _)| *other != port);
    let usual = median(others.map(|(_, share)| *share))?;
    let (least, times) = MARKED;
    let stands_out = *share >= least && *share >= times * usual;
    let cable = cable_at(view.fabric, leaf, port).filter(|_| stands_out)?;
    let words = format!(
        "port {port} marks {:.2} % of its packets, its other ports to switches {:.2} %",
        100.0 * share,
        100.0 * usual
    );
    Some((view.fabric.cable_part(cable.id)?, words))
}

fn evidence(view: &View<'_>, leaf: &Leaf, means: Means) -> Evidence {
    let Leaf {
        switch,
        held,
        sending,
        ..
    } = leaf;
    let marking = marking(view, switch);
    let words = marking.as_ref().map_or_else(
        || "its cables to other switches let too little through".to_owned(),
        |(_, words)| words.clone(),
    );
    let part = marking.map_or_else(|| Part::Switch(switch.clone()), |(part, _)| part);
    Evidence {
        detector: "switch-ports",
        signal: SIGNAL.name,
        class: &PATH_SLOW,
        // What flows lose depends on what else they wait for.
        effect: 0.0,
        statement: format!(
            "{switch} holds up {held} of the {sending} ports of hosts that send through it: it {}, longer than before, although they send less and it waits for none of them itself; {words}.",
            means.words(leaf.wait)
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
