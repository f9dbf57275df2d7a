//! A leaf that back-pressures its hosts, although it waits for none of them: too little gets away over its cables to other switches.
//!
//! A queue before a cable that lets less through than its speed fills the leaf, which then pauses its hosts, or gives them no
//! credits. The counters of the cable itself may show nothing: its port sends all that it can. A slow receiver back-pressures those
//! that send to it, on every leaf; a busy job sends more than before, not less.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part, RdmaDevice, SwitchName};
use railscope_model::metric::{
    Metric, NIC_PAUSE_SECONDS, NIC_PFC_PAUSE_SECONDS, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_WAIT, SWITCH_PORT_ECN_MARKED, SWITCH_PORT_PFC_PAUSE_SECONDS,
    SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_SATURATED, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use self::numbers::{
    ELSEWHERE, IDLE, MARKED, MIN_HOSTS, MIN_PAUSED, MOST_OF_LEAF, MOST_SENT, PASSED_ON,
};
pub(super) use self::numbers::{rules, words};
use super::past::{Lane, NEW, REMEMBERED_SECONDS, before};
use super::standing_queue::is_to_switch;
use super::waiting_cable::{MIN_TICKS, WAIT_SECONDS, has_stopped, is_full, rate};
use crate::assemble::netdev::nic_of;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::ecn_marks::marked_share;
use crate::detect::peers::median;
use crate::detect::port_series::cable_at;
use crate::detect::rules::slow_receiver::pauses::{of_device, pause_of};
use crate::store::{NodeHistory, Window};

/// How a leaf back-pressures a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Pause,
    /// InfiniBand: it gives no credits.
    Credits,
}

impl Means {
    /// The metric of the finding.
    pub(super) const fn signal(self) -> &'static Metric {
        match self {
            Self::Pause => &SWITCH_PORT_PFC_PAUSE_SECONDS,
            Self::Credits => &RDMA_PORT_TRANSMIT_WAIT,
        }
    }

    const fn least(self) -> f64 {
        match self {
            Self::Pause => MIN_PAUSED,
            Self::Credits => MIN_TICKS,
        }
    }

    fn words(self, wait: f64) -> String {
        match self {
            Self::Pause => format!("pauses them for {:.1} % of the time", 100.0 * wait),
            Self::Credits => format!(
                "lets them wait for credits for {:.0} million ticks a second",
                1e-6 * wait
            ),
        }
    }
}

/// A port of a host that its leaf back-pressures.
struct HostPort<'a> {
    lane: Lane,
    /// The name of its host, or of the leaf's port where that is not known.
    host: String,
    /// Share of the time, or ticks a second.
    wait: f64,
    counter: Window<'a>,
    /// Bytes a second.
    sent: f64,
    bytes: Window<'a>,
}

/// How long a port waits, if that is long.
fn long_wait(counter: Window<'_>, means: Means) -> Option<f64> {
    let [wait, newest] = WAIT_SECONDS.map(|seconds| rate(counter, seconds));
    let is_long = |wait: &f64| *wait >= means.least();
    newest.filter(is_long)?;
    wait.filter(is_long)
}

/// A leaf with hosts that it back-pressures.
struct Leaf {
    switch: SwitchName,
    /// Ports that wait far longer than before although they send less, and how many hosts these are of.
    slowed: usize,
    hosts: usize,
    /// Mean wait of these ports.
    wait: f64,
    /// By how much the wait of all its hosts' ports that wait long has grown.
    growth: f64,
    /// Bytes a second that those ports send: in all, and the median one.
    sent: f64,
    usual: f64,
}

/// What a host's port did before it waited far longer.
struct Before {
    wait: f64,
    sent: f64,
    /// When it last waited far longer.
    last: Timestamp,
}

/// The leaves that back-pressure hosts by one means, and what the hosts' ports did before.
pub(super) struct CongestedLeaf {
    means: Means,
    before: BTreeMap<Lane, Before>,
}

impl CongestedLeaf {
    pub(super) const fn new(means: Means) -> Self {
        Self {
            means,
            before: BTreeMap::new(),
        }
    }

    /// The leaf that back-pressures its hosts, or the cable of it that is the reason.
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.before
            .retain(|_, before| view.now.seconds_since(before.last) <= REMEMBERED_SECONDS);
        let ports = match self.means {
            Means::Pause => paused(view),
            Means::Credits => without_credits(view),
        };
        let leaves = ports.chunk_by(|a, b| a.lane.0 == b.lane.0);
        let mut leaves: Vec<_> = leaves.map(|ports| self.leaf(view, ports)).collect();
        leaves.sort_by(|a, b| b.growth.total_cmp(&a.growth));
        let next = leaves.get(1).map_or(0.0, |next| next.growth);
        let first = leaves
            .first()
            .filter(|first| first.hosts >= MIN_HOSTS && next <= ELSEWHERE * first.growth);
        let Some((leaf, history)) = first.and_then(|leaf| Some((leaf, fresh(view, &leaf.switch)?)))
        else {
            return;
        };
        let sending = sending(view, (leaf, history)).max(leaf.slowed);
        if leaf.slowed as f64 >= MOST_OF_LEAF * sending as f64
            && passes_on(view, (leaf, history))
            && waits_for_none(view, (leaf, history), self.means)
            // Packets to one host wait for its link, and those of all others before the leaf.
            && marking(view, (&leaf.switch, history), false).is_none()
        {
            out.push(evidence(view, (leaf, history), sending, self.means));
        }
    }

    fn leaf(&mut self, view: &View<'_>, ports: &[HostPort<'_>]) -> Leaf {
        let (mut growth, mut waits, mut hosts) = (0.0, Vec::new(), BTreeSet::new());
        for port in ports {
            let (longer, is_slowed) = self.growth(view, port);
            growth += longer;
            if is_slowed {
                waits.push(port.wait);
                hosts.insert(&port.host);
            }
        }
        Leaf {
            switch: ports[0].lane.0.clone(),
            wait: waits.iter().sum::<f64>() / waits.len().max(1) as f64,
            slowed: waits.len(),
            hosts: hosts.len(),
            growth,
            sent: ports.iter().map(|port| port.sent).sum(),
            usual: median(ports.iter().map(|port| port.sent)).unwrap_or(0.0),
        }
    }

    /// By how much longer than before a port waits, and whether that is far longer although it sends less. A port may always wait:
    /// what it did before is kept only while it waits far longer.
    fn growth(&mut self, view: &View<'_>, port: &HostPort<'_>) -> (f64, bool) {
        let known = self.before.get(&port.lane);
        let known = known.map(|known| [known.wait, known.sent]).or_else(|| {
            let [wait, sent] = [port.counter, port.bytes].map(|counter| before(counter, view.now));
            Some([wait?, sent?])
        });
        let Some([wait, sent]) = known else {
            return (0.0, false);
        };
        let is_slowed = port.wait >= NEW * wait && port.sent <= MOST_SENT * sent;
        if is_slowed {
            let last = view.now;
            self.before
                .insert(port.lane.clone(), Before { wait, sent, last });
        }
        ((port.wait - wait).max(0.0), is_slowed)
    }
}

/// What a leaf reports now.
fn fresh<'a>(view: &View<'a>, leaf: &SwitchName) -> Option<&'a NodeHistory> {
    let history = view.history.switch(leaf);
    history.filter(|history| history.is_fresh(view.now))
}

/// Hosts' ports that their leaves pause, by leaf: as the leaf counts it, or the host where it does not.
fn paused<'a>(view: &View<'a>) -> Vec<HostPort<'a>> {
    let mut all = Longest::default();
    let mut counting = BTreeSet::new();
    for (switch, history) in view.history.fresh_switches(view.now) {
        let mut all_pauses = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
        if all_pauses.any(|(labels, _)| labels.values().last() == Some("transmit")) {
            counting.insert(switch);
        }
        for (labels, pause) in history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS) {
            let labels: Vec<_> = labels.values().collect();
            let [port, _, "transmit"] = labels[..] else {
                continue;
            };
            if let Some(wait) = long_wait(pause, Means::Pause)
                && let Some(host) = host_at(view, switch, port)
            {
                let bytes = history.window(&SWITCH_PORT_RECEIVE_BYTES, &[port]);
                let lane = (switch.clone(), port.to_owned(), String::new());
                all.add((lane, host), wait, pause, bytes);
            }
        }
    }
    for (node, history) in view.history.fresh_nodes(view.now) {
        let pauses = [&NIC_PFC_PAUSE_SECONDS, &NIC_PAUSE_SECONDS];
        if pauses
            .iter()
            .all(|metric| history.moving(metric).next().is_none())
        {
            continue;
        }
        for ([netdev, _, direction], pause) in pause_of(history) {
            if direction == "receive"
                && let Some(wait) = long_wait(pause, Means::Pause)
                && let Some((_, device)) = nic_of(history, netdev)
                && let Some(leaf) = only_leaf(view.fabric, node, &device)
                && !counting.contains(&leaf)
            {
                let lane = (leaf, format!("{node}/{device}"), String::new());
                let bytes = of_device(history, &device, &RDMA_PORT_TRANSMIT_BYTES).next();
                all.add((lane, node.to_string()), wait, pause, bytes);
            }
        }
    }
    all.0.into_values().collect()
}

/// Hosts' ports that wait for credits, by leaf.
fn without_credits<'a>(view: &View<'a>) -> Vec<HostPort<'a>> {
    let mut all = Longest::default();
    for (node, history) in view.history.fresh_nodes(view.now) {
        for (labels, wait) in history.moving(&RDMA_PORT_TRANSMIT_WAIT) {
            if let Some(long) = long_wait(wait, Means::Credits)
                && let Some(Ok(device)) = labels.values().next().map(str::parse)
                && let Some(leaf) = only_leaf(view.fabric, node, &device)
            {
                let lane = (leaf, format!("{node}/{device}"), String::new());
                let bytes = of_device(history, &device, &RDMA_PORT_TRANSMIT_BYTES).next();
                all.add((lane, node.to_string()), long, wait, bytes);
            }
        }
    }
    all.0.into_values().collect()
}

/// Hosts' ports with the longest wait of each: priorities are paused apart.
#[derive(Default)]
struct Longest<'a>(BTreeMap<Lane, HostPort<'a>>);

impl<'a> Longest<'a> {
    fn add(
        &mut self,
        (lane, host): (Lane, String),
        wait: f64,
        counter: Window<'a>,
        bytes: Option<Window<'a>>,
    ) {
        let known = self.0.get(&lane).map_or(0.0, |port| port.wait);
        let sent = bytes.and_then(|bytes| Some((bytes, rate(bytes, WAIT_SECONDS[0])?)));
        if let Some((bytes, sent)) = sent.filter(|_| wait > known) {
            let port = HostPort {
                lane: lane.clone(),
                host,
                wait,
                counter,
                sent,
                bytes,
            };
            self.0.insert(lane, port);
        }
    }
}

/// The name of the host at a port of a leaf, or of the port where the host is not in the fabric, as hypervisors of monitored guests
/// are not; `None` where the port leads to another switch.
fn host_at(view: &View<'_>, leaf: &SwitchName, port: &str) -> Option<String> {
    let peer = cable_at(view.fabric, leaf, port).map(|cable| cable.peer);
    let peer = peer.map(|peer| &view.fabric.vertex(peer).part);
    let node = peer.and_then(Part::node).map(ToString::to_string);
    let is_switch = matches!(peer, Some(Part::Switch(_)));
    (!is_switch).then(|| node.unwrap_or_else(|| port.to_owned()))
}

/// The leaf of a NIC that is cabled to one switch alone.
fn only_leaf(fabric: &Fabric, node: &NodeName, device: &RdmaDevice) -> Option<SwitchName> {
    let nic = fabric.find(&Part::Nic(node.clone(), device.clone()))?;
    let cables = fabric.cables(nic).filter(|near| near.link.is_present());
    let mut peers = cables.map(|near| &fabric.vertex(near.peer).part);
    match (peers.next()?, peers.next()) {
        (Part::Switch(leaf), None) => Some(leaf.clone()),
        _ => None,
    }
}

/// How many ports of a leaf's hosts are not idle beside those that wait: as the leaf counts it, or else the hosts.
fn sending(view: &View<'_>, (leaf, history): (&Leaf, &NodeHistory)) -> usize {
    let sends = |bytes: Window<'_>| rate(bytes, WAIT_SECONDS[0]) >= Some(IDLE * leaf.usual);
    let of_hosts = history
        .moving(&SWITCH_PORT_RECEIVE_BYTES)
        .filter(|(labels, bytes)| {
            let port = labels.values().next().unwrap_or_default();
            sends(*bytes) && host_at(view, &leaf.switch, port).is_some()
        });
    let counted = of_hosts.count();
    if counted > 0 {
        return counted;
    }
    let nics = nics_at(view, &leaf.switch);
    let sent =
        nics.filter_map(|(history, nic)| of_device(history, nic, &RDMA_PORT_TRANSMIT_BYTES).next());
    sent.filter(|bytes| sends(*bytes)).count()
}

/// NICs that are cabled to a leaf.
fn nics_at<'a>(
    view: &View<'a>,
    leaf: &SwitchName,
) -> impl Iterator<Item = (&'a NodeHistory, &'a RdmaDevice)> {
    let (fabric, history) = (view.fabric, view.history);
    let id = fabric.find(&Part::Switch(leaf.clone()));
    let cables = id.into_iter().flat_map(|id| fabric.cables(id));
    let present = cables.filter(|near| near.link.is_present());
    present.filter_map(move |near| match &fabric.vertex(near.peer).part {
        Part::Nic(node, device) => Some((history.node(node)?, device)),
        _ => None,
    })
}

/// Whether a leaf is known to send on to other switches what its hosts send, over cables none of which is full: a switch by itself
/// has no other cables, and what is full lets no more through.
fn passes_on(view: &View<'_>, (leaf, history): (&Leaf, &NodeHistory)) -> bool {
    let (mut all, mut any_is_full) = (0.0, false);
    for (labels, bytes) in history.moving(&SWITCH_PORT_TRANSMIT_BYTES) {
        let port = labels.values().next().unwrap_or_default();
        let cable = cable_at(view.fabric, &leaf.switch, port);
        if let Some(cable) = cable
            && matches!(view.fabric.vertex(cable.peer).part, Part::Switch(_))
            && let Some(sent) = rate(bytes, WAIT_SECONDS[0])
        {
            let speed = history.value(&SWITCH_PORT_SPEED, &[port]);
            all += sent;
            any_is_full |= is_full(sent, speed, cable.link);
        }
    }
    all >= PASSED_ON * leaf.sent && !any_is_full
}

/// Whether a leaf is known to wait for no receiver and for no other switch itself.
fn waits_for_none(view: &View<'_>, (leaf, history): (&Leaf, &NodeHistory), means: Means) -> bool {
    let series = |metric| history.series(metric);
    let mut waits: Vec<Window<'_>> = match means {
        Means::Pause => {
            let all = series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
            let own = all.filter(|(labels, _)| labels.values().last() == Some("receive"));
            own.map(|(_, window)| window).collect()
        }
        Means::Credits => {
            let mut stopped = series(&SWITCH_PORT_SATURATED);
            if stopped.any(|(_, stopped)| has_stopped(Some(stopped))) {
                return false;
            }
            let all = series(&SWITCH_PORT_TRANSMIT_WAIT);
            all.map(|(_, window)| window).collect()
        }
    };
    let counts_own_pauses = means == Means::Credits || !waits.is_empty();
    if !counts_own_pauses {
        for (history, device) in nics_at(view, &leaf.switch) {
            let own = pausing(history).filter(|(nic, _)| nic == device);
            waits.extend(own.map(|(_, window)| window));
        }
    }
    let is_short = |wait: &Window<'_>| {
        let Some(now) = rate(*wait, WAIT_SECONDS[0]) else {
            return false;
        };
        let before = before(*wait, view.now).unwrap_or(0.0);
        let is_new = now >= means.least() && now >= NEW * before;
        // Ports of switches and of NICs may count ticks of different lengths.
        !is_new && now - before <= ELSEWHERE * leaf.wait
    };
    // Which of its ports are paused is not known: a receiver at another leaf may pause the switches between.
    let is_paused_from_elsewhere = || {
        let all = view.history.fresh_nodes(view.now);
        let mut all = all.flat_map(|(_, history)| pausing(history));
        all.any(|(_, window)| rate(window, WAIT_SECONDS[0]).is_some() && !is_short(&window))
    };
    !waits.is_empty()
        && waits.iter().all(is_short)
        && (counts_own_pauses || !is_paused_from_elsewhere())
}

/// How long each NIC of a node paused its switch, by priority.
fn pausing(history: &NodeHistory) -> impl Iterator<Item = (RdmaDevice, Window<'_>)> {
    let sent = pause_of(history).filter(|([.., direction], _)| *direction == "transmit");
    sent.filter_map(|([netdev, ..], window)| Some((nic_of(history, netdev)?.1, window)))
}

/// Of a leaf's ports to other switches, or of those to hosts, the one whose queue marks packets while those of the others do not, and
/// the shares of its packets and of those of the others.
fn marking<'a>(
    view: &View<'a>,
    (leaf, history): (&SwitchName, &'a NodeHistory),
    to_switches: bool,
) -> Option<(&'a str, [f64; 2])> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for (labels, marked) in history.series(&SWITCH_PORT_ECN_MARKED) {
        let port = labels.values().next().unwrap_or_default();
        let bytes = history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[port]);
        let lately = |counter| rate(counter, WAIT_SECONDS[0]);
        if let Some(marked) = lately(marked)
            && let Some(bytes) = bytes.and_then(lately).filter(|bytes| *bytes > 0.0)
            && is_to_switch(view, leaf, port) == Some(to_switches)
        {
            *shares.entry(port).or_default() += marked_share(marked, bytes);
        }
    }
    let (port, share) = shares.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
    let others = shares.iter().filter(|(other, _)| *other != port);
    let usual = median(others.map(|(_, share)| *share))?;
    let (least, times) = MARKED;
    let stands_out = *share >= least && *share >= times * usual;
    stands_out.then_some((*port, [*share, usual]))
}

/// The cable of a leaf to another switch that marks.
fn marking_cable(view: &View<'_>, leaf: (&SwitchName, &NodeHistory)) -> Option<(Part, String)> {
    let (port, shares) = marking(view, leaf, true)?;
    let [share, usual] = shares.map(|share| 100.0 * share);
    let cable = cable_at(view.fabric, leaf.0, port)?;
    let words = format!(
        "port {port} marks {share:.2} % of its packets, its other ports to switches {usual:.2} %"
    );
    Some((view.fabric.cable_part(cable.id)?, words))
}

fn evidence(
    view: &View<'_>,
    (leaf, history): (&Leaf, &NodeHistory),
    sending: usize,
    means: Means,
) -> Evidence {
    let Leaf { switch, slowed, .. } = leaf;
    let marking = marking_cable(view, (switch, history));
    let words = marking.as_ref().map_or_else(
        || "its cables to other switches let too little through".to_owned(),
        |(_, words)| words.clone(),
    );
    let part = marking.map_or_else(|| Part::Switch(switch.clone()), |(part, _)| part);
    Evidence {
        detector: "switch-ports",
        signal: means.signal().name,
        class: &PATH_SLOW,
        // What flows lose depends on what else they wait for.
        effect: 0.0,
        statement: format!(
            "{switch} back-pressures {slowed} of the {sending} ports of hosts that send through it: it {}, longer than before, although they send less and it waits for none of them itself; {words}.",
            means.words(leaf.wait)
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
