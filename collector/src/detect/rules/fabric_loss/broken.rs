//! Broken packets that switches and other hosts count where the packets of a NIC pass: they explain what it loses.

use std::collections::BTreeSet;

use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::SWITCH_PORT_ERRORS;

use super::{LOSS_SECONDS, MOST_PAIRS, errors_of, leaf_of};
use crate::detect::detector::View;
use crate::detect::port_series::cable_at;
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory};

/// Fewest broken packets for each lost one that explain the loss: a receiver misses all that is on its way behind a broken packet.
const FOR_EACH: f64 = 0.001;
/// Fewest a second.
const MIN_RATE: f64 = 5.0;
/// What switches call broken packets, on InfiniBand and on Ethernet.
const KINDS: [&str; 2] = ["port_rcv_errors", "receive"];

/// These as text.
pub(super) fn words() -> String {
    format!(
        "the other NICs of the job that lose packets, and switches on the paths to these at cables between switches and to these, count fewer than {MIN_RATE:.0} broken packets per second, or fewer than {:.1} % of the loss",
        100.0 * FOR_EACH
    )
}

/// The same of a loss that many NICs share.
pub(super) fn words_shared() -> String {
    format!(
        "switches count fewer than {MIN_RATE:.0} broken packets per second, or fewer than {:.1} % of the loss",
        100.0 * FOR_EACH
    )
}

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
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

/// Whether broken packets that are counted elsewhere explain `lost` packets a second of a NIC, of these that lose packets of its job.
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
    let switches = switches.filter(|(switch, _)| way.contains(*switch));
    let of_switches = switches.map(|found| of_switch(view, found, |far| concerns(far, nic, nics)));
    are_enough(of_hosts.chain(of_switches).sum(), lost)
}

/// Whether what comes from this end of a cable may be what a NIC loses: from other switches, and from the other NICs.
fn concerns(far: &Part, nic: (&NodeName, &RdmaPort), nics: &Nics<'_>) -> bool {
    match far {
        Part::Nic(node, device) => nics.iter().any(|(other, port)| {
            (*other, *port) != nic && *other == node && port.device == *device
        }),
        _ => true,
    }
}

/// Whether broken packets that any switch counts explain `lost` packets a second of many NICs.
pub(super) fn explain_shared(view: &View<'_>, lost: f64) -> bool {
    let switches = view.history.fresh_switches(view.now);
    let broken = switches.map(|found| of_switch(view, found, |_| true));
    are_enough(broken.sum(), lost)
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
        let is_broken = KINDS.contains(&labels.values().last()?);
        let far = cable_at(view.fabric, switch, port);
        let counts = far.is_none_or(|far| counts(&view.fabric.vertex(far.peer).part));
        (is_broken && counts)
            .then(|| window.newest_increase(LOSS_SECONDS[0]).map(Increase::rate))?
    });
    rates.sum()
}

/// The switches between the leaf of a NIC and those of others; none where its leaf is not known.
fn on_the_way(
    view: &View<'_>,
    nic: (&NodeName, &RdmaPort),
    nics: &Nics<'_>,
) -> BTreeSet<SwitchName> {
    let leaf = |(node, port): &(&NodeName, &RdmaPort)| {
        leaf_of(
            view.fabric,
            &Part::Nic((*node).clone(), port.device.clone()),
        )
    };
    let Some(own) = leaf(&nic) else {
        return BTreeSet::new();
    };
    let leaves: BTreeSet<_> = nics.iter().filter_map(leaf).collect();
    let mut switches = leaves.clone();
    for other in leaves
        .iter()
        .filter(|other| **other != own)
        .take(MOST_PAIRS)
    {
        let way = view.routes.between(view.fabric, &own, other);
        let way = way.iter().flat_map(|way| &way.switches);
        let parts = way.map(|(switch, _)| &view.fabric.vertex(*switch).part);
        switches.extend(parts.filter_map(|part| match part {
            Part::Switch(name) => Some(name.clone()),
            _ => None,
        }));
    }
    switches.insert(own);
    switches
}
