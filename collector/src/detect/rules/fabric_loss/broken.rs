//! Broken packets that switches and other hosts count where the packets of a NIC pass: they explain what it loses.

use std::collections::BTreeSet;

use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::metric::SWITCH_PORT_ERRORS;

use super::{LOSS_SECONDS, MOST_PAIRS, errors_of, leaf_of};
use crate::detect::detector::View;
use crate::detect::port_series::link_at;
use crate::detect::registry::Threshold;
use crate::store::{Increase, NodeHistory};

/// Fewest broken packets for each lost one that explain the loss: a receiver misses all that is on its way behind a broken packet.
const FOR_EACH: f64 = 0.01;
/// Fewest a second.
const MIN_RATE: f64 = 1.0;
/// What switches call broken packets, on InfiniBand and on Ethernet.
const KINDS: [&str; 2] = ["port_rcv_errors", "receive"];

/// These as text.
pub(super) fn words() -> String {
    format!(
        "other hosts of the job and switches on its paths count, but for the NIC's own cable, fewer than {MIN_RATE:.0} broken packet per second, or fewer than {:.0} % of the loss",
        100.0 * FOR_EACH
    )
}

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
    [
        Threshold::new(
            "broken packets of other hosts and of switches on the paths, as a share of the loss, less than",
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

/// Whether broken packets that are counted elsewhere explain `lost` packets a second of a NIC, of these that lose packets of its job.
pub(super) fn explain(
    view: &View<'_>,
    (node, port): (&NodeName, &RdmaPort),
    nics: &[(&NodeName, &RdmaPort)],
    lost: f64,
) -> bool {
    let others: BTreeSet<_> = nics.iter().map(|(other, _)| *other).collect();
    let others = others.into_iter().filter(|other| *other != node);
    let of_hosts = others
        .filter_map(|other| view.history.node(other))
        .map(errors_of);
    let own = Part::HostLink(node.clone(), port.clone());
    let on_the_way = on_the_way(view, (node, port), nics);
    let switches = view.history.fresh_switches(view.now);
    let switches =
        switches.filter(|(switch, _)| on_the_way.as_ref().is_none_or(|way| way.contains(*switch)));
    let of_switches = switches.map(|(switch, history)| of_switch(view, (switch, history), &own));
    let broken: f64 = of_hosts.chain(of_switches).sum();
    broken >= MIN_RATE && broken >= FOR_EACH * lost
}

/// Broken packets a second that a switch receives, but for those from one cable.
fn of_switch(
    view: &View<'_>,
    (switch, history): (&SwitchName, &NodeHistory),
    without: &Part,
) -> f64 {
    let moving = history.moving(&SWITCH_PORT_ERRORS);
    let rates = moving.filter_map(|(labels, window)| {
        let port = labels.values().next()?;
        let is_broken = KINDS.contains(&labels.values().last()?);
        let counts = is_broken && link_at(view.fabric, switch, port).as_ref() != Some(without);
        counts.then(|| window.increase(LOSS_SECONDS[0]).map(Increase::rate))?
    });
    rates.sum()
}

/// The switches between the leaf of a NIC and those of others; `None` where its leaf is not known.
fn on_the_way(
    view: &View<'_>,
    (node, port): (&NodeName, &RdmaPort),
    nics: &[(&NodeName, &RdmaPort)],
) -> Option<BTreeSet<SwitchName>> {
    let leaf = |(node, port): &(&NodeName, &RdmaPort)| {
        leaf_of(
            view.fabric,
            &Part::Nic((*node).clone(), port.device.clone()),
        )
    };
    let own = leaf(&(node, port))?;
    let leaves: BTreeSet<_> = nics.iter().filter_map(leaf).collect();
    let mut switches = leaves.clone();
    for other in leaves
        .iter()
        .filter(|other| **other != own)
        .take(MOST_PAIRS)
    {
        let way = view.routes.between(view.fabric, &own, other);
        switches.extend(
            way.iter()
                .flat_map(|way| &way.switches)
                .filter_map(|(switch, _)| match &view.fabric.vertex(*switch).part {
                    Part::Switch(name) => Some(name.clone()),
                    _ => None,
                }),
        );
    }
    switches.insert(own);
    Some(switches)
}
