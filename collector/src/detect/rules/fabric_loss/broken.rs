//! Broken packets that switches and other hosts count where the packets of a NIC pass: they explain what it loses.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::{RDMA_TRANSPORT_EVENTS, SWITCH_PORT_ERRORS};

use super::{BEHIND_A_GAP, LOSS_SECONDS, MOST_PAIRS, SENT_IN_VAIN, errors_of, leaf_of};
use crate::detect::detector::View;
use crate::detect::port_series::cable_at;
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory, Window};

/// Fewest broken packets for each lost one that explain the loss: a receiver misses all that is on its way behind a broken packet.
const FOR_EACH: f64 = 0.001;
/// Fewest a second.
const MIN_RATE: f64 = 1.0;
/// How much of a loss switches must have been read for: those that are read once in half a minute report broken packets late.
const READ_SECONDS: f64 = 10.0;
/// Share of its present rate from which a loss has begun: it may become much larger, and is known then.
const BEGUN: f64 = 0.1;
/// What switches call broken packets, on InfiniBand and on Ethernet.
const KINDS: [&str; 2] = ["port_rcv_errors", "receive"];

/// These as text.
pub(super) fn words() -> String {
    format!(
        "the other NICs of the job that lose packets, and switches on the paths to these (not at the cables of the node itself, or of another job), count over {:.0} s or {:.0} s fewer than {MIN_RATE:.0} broken packet per second, or fewer than {:.1} % of the loss, and were read {READ_SECONDS:.0} s after it had begun",
        LOSS_SECONDS[0],
        LOSS_SECONDS[1],
        100.0 * FOR_EACH
    )
}

/// The same of a loss that many NICs share.
pub(super) fn words_shared() -> String {
    format!(
        "switches count fewer than {MIN_RATE:.0} broken packet per second, or fewer than {:.1} % of the loss",
        100.0 * FOR_EACH
    )
}

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 4] {
    [
        Threshold::new(
            "duration of the loss for which these switches were read, at least",
            READ_SECONDS,
            "s",
            "switches that are read once in half a minute report it late (a choice)",
        ),
        Threshold::new(
            "share of its present rate from which a loss has begun",
            BEGUN,
            "ratio",
            "it may become much larger (a choice)",
        ),
        Threshold::new(
            "broken packets of the other NICs and of switches on the paths, as a share of the loss, less than",
            FOR_EACH,
            "ratio",
            "behind a broken packet a receiver misses all that is on its way (a choice)",
        ),
        Threshold::new(
            "or fewer of them than",
            MIN_RATE,
            "1/s",
            "a link that is nearly good breaks a few (a choice)",
        ),
    ]
}

/// NICs, by node and port.
type Nics<'a> = [(&'a NodeName, &'a RdmaPort)];

/// Whether broken packets that are counted elsewhere explain `lost` packets a second of a NIC, of these that lose packets of its job,
/// or may do so because a switch on the way was not read since.
pub(super) fn explain(
    view: &View<'_>,
    nic: (&NodeName, &RdmaPort),
    nics: &Nics<'_>,
    lost: f64,
) -> bool {
    let others = nics.iter().filter(|other| other.0 != nic.0);
    let of_hosts =
        others.filter_map(|(node, port)| Some(errors_of(view.history.node(node)?, Some(port))));
    let way = on_the_way(view, nic, nics);
    let switches = view.history.fresh_switches(view.now);
    let switches: Vec<_> = switches
        .filter(|(switch, _)| way.contains(*switch))
        .collect();
    let began = began(view, nic);
    let is_read = |history: &NodeHistory| {
        let since = history.heard().zip(began);
        since.is_none_or(|(heard, began)| heard.seconds_since(began) >= READ_SECONDS)
    };
    if !switches.iter().all(|(_, history)| is_read(history)) {
        return true;
    }
    let of_switches = switches
        .into_iter()
        .map(|found| of_switch(view, found, |far| concerns(view, far, nic, nics)));
    are_enough(of_hosts.chain(of_switches).sum(), lost)
}

/// When a NIC began to lose as many packets as now, by any event, as far as its history goes back.
fn began(view: &View<'_>, (node, port): (&NodeName, &RdmaPort)) -> Option<Timestamp> {
    let number = port.port.to_string();
    let history = view.history.node(node)?;
    let counted = |event: &&str| {
        let labels = [port.device.as_str(), &number, event];
        let lost = history.window(&RDMA_TRANSPORT_EVENTS, &labels)?;
        let rate = lost.newest_increase(LOSS_SECONDS[1])?.rate();
        Some((lost, rate))
    };
    let events = SENT_IN_VAIN.iter().chain(&BEHIND_A_GAP);
    let counted: Vec<_> = events.filter_map(counted).collect();
    let most = counted.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let rises = counted
        .into_iter()
        .filter_map(|(lost, _)| first_rise(lost, BEGUN * most));
    rises.min()
}

/// The scrape before the first step in which a counter rose at this rate.
fn first_rise(lost: Window<'_>, rate: f64) -> Option<Timestamp> {
    let counts: Vec<_> = lost.counts().collect();
    let mut rises = counts.windows(2).filter(|pair| {
        let seconds = pair[0].at.seconds_since(pair[1].at);
        rate > 0.0 && pair[0].count - pair[1].count >= rate * seconds
    });
    rises.next_back().map(|pair| pair[1].at)
}

/// Whether what comes from this end of a cable may be what a NIC loses: from other switches, and from other nodes that lose packets of
/// its job, or run none that is known.
fn concerns(view: &View<'_>, far: &Part, nic: (&NodeName, &RdmaPort), nics: &Nics<'_>) -> bool {
    match far {
        Part::Nic(node, device) => {
            let is_of_job = || nics.iter().any(|(other, _)| *other == node);
            node != nic.0 && (is_of_job() || view.jobs.of_nic(node, device).is_none())
        }
        _ => true,
    }
}

/// Whether broken packets that any switch counts explain `lost` packets a second of many NICs.
pub(super) fn explain_shared(view: &View<'_>, lost: f64) -> bool {
    are_enough(of_all(view), lost)
}

/// Broken packets a second that all switches count.
pub(super) fn of_all(view: &View<'_>) -> f64 {
    let switches = view.history.fresh_switches(view.now);
    let broken = switches.map(|found| of_switch(view, found, |_| true));
    broken.sum()
}

fn are_enough(broken: f64, lost: f64) -> bool {
    broken >= MIN_RATE && broken >= FOR_EACH * lost
}

/// Broken packets a second that a switch receives over cables whose far end counts.
fn of_switch(
    view: &View<'_>,
    (switch, history): (&SwitchName, &NodeHistory),
    counts: impl Fn(&Part) -> bool,
) -> f64 {
    let moving = history.moving(&SWITCH_PORT_ERRORS);
    let rates = moving.filter_map(|(labels, window)| {
        let port = labels.values().next()?;
        if !KINDS.contains(&labels.values().last()?) {
            return None;
        }
        let far = cable_at(view.fabric, switch, port);
        if !far.is_none_or(|far| counts(&view.fabric.vertex(far.peer).part)) {
            return None;
        }
        // What has just begun counts as what lasts.
        let rates = LOSS_SECONDS.map(|seconds| window.newest_increase(seconds).map(Increase::rate));
        rates.into_iter().flatten().reduce(f64::max)
    });
    rates.sum()
}

/// The switches between the leaf of a NIC and those of others; none where its leaf is not known.
fn on_the_way(
    view: &View<'_>,
    nic: (&NodeName, &RdmaPort),
    nics: &Nics<'_>,
) -> BTreeSet<SwitchName> {
    let own = leaves(view, nic);
    let others: BTreeSet<_> = nics.iter().flat_map(|nic| leaves(view, *nic)).collect();
    let pairs = own
        .iter()
        .flat_map(|own| others.iter().map(move |other| (own, other)));
    let pairs = pairs.filter(|(own, other)| own != other).take(MOST_PAIRS);
    let ways = pairs.filter_map(|(own, other)| view.routes.between(view.fabric, own, other));
    let switches = ways.flat_map(|way| way.switches);
    let parts = switches.map(|(switch, _)| &view.fabric.vertex(switch).part);
    let between = parts.filter_map(|part| match part {
        Part::Switch(name) => Some(name.clone()),
        _ => None,
    });
    let mut way: BTreeSet<_> = between.collect();
    if !own.is_empty() {
        way.extend(own.into_iter().chain(others));
    }
    way
}

/// The leaf of a NIC, or those of its host's NICs where the fabric calls them otherwise.
fn leaves(view: &View<'_>, (node, port): (&NodeName, &RdmaPort)) -> Vec<SwitchName> {
    let leaf = leaf_of(view.fabric, &Part::Nic(node.clone(), port.device.clone()));
    if let Some(leaf) = leaf {
        return vec![leaf];
    }
    let nics = view.fabric.nics(node);
    nics.map(|nic| &view.fabric.vertex(nic).part)
        .filter_map(|part| leaf_of(view.fabric, part))
        .collect()
}
