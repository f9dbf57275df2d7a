//! Cables that the fabric shows as lost, or slower than their peers. A fabric that was not
//! built again shows the same.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Link, LinkId, LinkKind, PartId, Presence, Timestamp, Witness};
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::SWITCH_PORT_UP;

use super::{TOLERANCE, evidence, generations, gigabits, norm};
use crate::classes::{PORT_DEGRADED, PORT_DOWN, UPLINK_DOWN};
use crate::detect::detector::{Evidence, View};
use crate::detect::gpus;
use crate::detect::registry::Threshold;
use crate::stages::Step;
use crate::store::Window;

/// Share of the cables between switches from which on a rate is part of the design.
const DESIGN_SHARE: f64 = 0.125;
/// And fewest of them: as many as there are pairs of four groups.
const DESIGN_CABLES: usize = 6;

pub(super) fn design() -> [Threshold; 2] {
    let share = Threshold::new(
        "share of the cables between switches from which on a rate that no switch has for most of its own is a design",
        DESIGN_SHARE,
        "ratio",
        "a dragonfly of 16 switches has a fifth to a third of its cables between groups; independent faults of as many cables are not seen (a choice)",
    );
    let cables = Threshold::new(
        "and fewest of these",
        DESIGN_CABLES as f64,
        "cables",
        "a few cables may have a fault each; a dragonfly of four groups has six between them (a choice)",
    );
    [share, cables]
}

/// What the fabric shows.
#[derive(Debug, Default)]
pub(super) struct Cables {
    epoch: Option<u64>,
    lost: Vec<LinkId>,
    pub(super) slow: Vec<Evidence>,
}

impl Cables {
    /// Evaluates the fabric, if it has changed.
    pub(super) fn refresh(&mut self, view: &View<'_>) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        let is_lost =
            |link: &Link| link.kind == LinkKind::Cable && link.seen_by.presence() == Presence::Lost;
        let lost = view.fabric.links().filter(|(.., link)| is_lost(link));
        self.lost = lost.map(|(id, ..)| id).collect();
        self.slow = slow(view);
    }

    /// Those that are lost: how long ago is another with each tick.
    pub(super) fn lost(&self, view: &View<'_>, out: &mut Vec<Evidence>) {
        out.extend(self.lost.iter().filter_map(|id| one_lost(view, *id)));
    }
}

/// Missing cables: an earlier sweep of the subnet saw them and the last complete one did not, or a
/// neighbor is no longer received and the port towards it is down.
fn one_lost(view: &View<'_>, id: LinkId) -> Option<Evidence> {
    let part = view.fabric.cable_part(id)?;
    let (link, [a, b]) = view.fabric.link(id)?;
    let is_restarting = |end: &PartId| {
        let node = view.fabric.vertex(*end).part.node();
        let history = node.and_then(|node| view.history.node(node));
        history.is_some_and(|history| gpus::is_restarting(history, view.now))
    };
    if [a, b].iter().any(is_restarting) {
        return None;
    }
    let end = |id, port: u16| {
        let port = view.fabric.port_name(id, port);
        format!("{} port {port}", view.fabric.vertex(id).part)
    };
    let swept = link.seen_by.of(Witness::Subnet).and(view.subnet_seen);
    let (signal, what) = match swept {
        Some(swept) => (
            "subnet",
            format!(
                "is missing from the subnet; it was last seen {:.0} s before the newest sweep",
                swept.seconds_since(link.seen())
            ),
        ),
        None if came_up(view, [(a, link.ports.0), (b, link.ports.1)]) => return None,
        None => (
            "lldp",
            format!(
                "has no link; its ends last reported each other {:.0} s ago",
                view.now.seconds_since(link.seen())
            ),
        ),
    };
    let statement = format!(
        "The cable between {} and {} {what}.",
        end(a, link.ports.0),
        end(b, link.ports.1),
    );
    let class = if matches!(part, Part::SwitchLink(..)) {
        &UPLINK_DOWN
    } else {
        &PORT_DOWN
    };
    Some(evidence(view, part, class, signal, 1.0, statement))
}

/// Whether a switch at one end has started again since the other end was last read, which was down then: its port here, or that of one
/// of its other neighbors to it, is up since.
fn came_up(view: &View<'_>, ends: [(PartId, u16); 2]) -> bool {
    let [one, other] = ends;
    [(one, other), (other, one)].into_iter().any(|(own, far)| {
        let read = port_up(view, far).and_then(|up| up.latest());
        read.is_some_and(|(read, _)| is_back_since(view, own, read))
    })
}

fn is_back_since(view: &View<'_>, (switch, port): (PartId, u16), read: Timestamp) -> bool {
    let is_up_since = |end: (PartId, u16)| {
        let up = port_up(view, end);
        let up = up.and_then(|up| up.unbroken().take_while(|(_, up)| *up != 0.0).last());
        up.is_some_and(|(up, _)| up > read)
    };
    let mut others = view.fabric.cables(switch).filter_map(|near| {
        let (link, [a, b]) = view.fabric.link(near.id)?;
        Some(if a == switch {
            (b, link.ports.1)
        } else {
            (a, link.ports.0)
        })
    });
    is_up_since((switch, port)) || others.any(is_up_since)
}

/// Whether a switch's port is up, over time.
fn port_up<'a>(view: &View<'a>, (id, port): (PartId, u16)) -> Option<Window<'a>> {
    let Part::Switch(switch) = &view.fabric.vertex(id).part else {
        return None;
    };
    let history = view.history.switch(switch)?;
    let name = view.fabric.port_name(id, port).to_string();
    history.window(&SWITCH_PORT_UP, &[&name])
}

/// Cables that the subnet shows slower than their peers: for a host port the same
/// device of hosts of the same shape, for a cable between switches the other such cables of either switch.
fn slow(view: &View<'_>) -> Vec<Evidence> {
    let mut cohorts: BTreeMap<String, Vec<(LinkId, f64)>> = BTreeMap::new();
    for (id, ends, rate) in rated(view) {
        let host_end = ends.into_iter().find(|end| is_nic(view, *end));
        let keys = match host_end {
            Some(_) if view.left_out.has(Step::RoleCohort) => vec![String::from("nic")],
            Some(nic) => vec![host_cohort(view, nic)],
            None => ends
                .map(|end| view.fabric.vertex(end).part.to_string())
                .to_vec(),
        };
        for key in keys {
            cohorts.entry(key).or_default().push((id, rate));
        }
    }
    let mut slow = BTreeMap::new();
    for members in cohorts.values() {
        let Some(norm) = norm(members.iter().map(|(_, rate)| *rate)) else {
            continue;
        };
        for (id, rate) in members.iter().filter(|(_, rate)| *rate < TOLERANCE * norm) {
            slow.insert(*id, (*rate, norm, members.len() - 1));
        }
    }
    let host_of = |id: LinkId| {
        let (_, ends) = view.fabric.link(id)?;
        ends.into_iter()
            .find_map(|end| match &view.fabric.vertex(end).part {
                Part::Nic(node, device) => Some((node, device)),
                _ => None,
            })
    };
    let rates = slow.iter().filter_map(|(id, (rate, ..))| {
        let (node, device) = host_of(*id)?;
        Some((node, device.as_str(), *rate))
    });
    let links = slow.keys().filter_map(|id| host_of(*id));
    let links = links.map(|(node, _)| (node, nics_of(view, node)));
    let others = generations(rates, &links.collect());
    let designed = designed_rates(view);
    let is_peer = |id: LinkId, rate: f64| match host_of(id) {
        Some((node, device)) => !others.contains(&(node, device.as_str())),
        None => !designed.contains(&rate.to_bits()),
    };
    let found = |(id, (rate, norm, peers)): (LinkId, (f64, f64, usize))| {
        let part = view.fabric.cable_part(id).filter(|_| is_peer(id, rate))?;
        let statement = format!(
            "The subnet shows {part} at {} Gb/s; {peers} cables of its kind run at {} Gb/s.",
            gigabits(rate),
            gigabits(norm)
        );
        let effect = 1.0 - rate / norm;
        Some(evidence(
            view,
            part,
            &PORT_DEGRADED,
            "subnet",
            effect,
            statement,
        ))
    };
    slow.into_iter().filter_map(found).collect()
}

/// The cables that the subnet shows, their ends and rates, bytes/s. A lost cable's speed is of another day, and what exporters
/// report about their ports is evaluated port by port.
fn rated<'a>(view: &View<'a>) -> impl Iterator<Item = (LinkId, [PartId; 2], f64)> + use<'a> {
    view.fabric.links().filter_map(|(id, a, b, link)| {
        let by_subnet = link.seen_by.of(Witness::Subnet)?;
        let is_shown = link.kind == LinkKind::Cable && by_subnet.says == Presence::Present;
        Some((id, [a, b], link.speed?.bytes_per_second())).filter(|_| is_shown)
    })
}

/// Rates of many cables between switches, of which no switch has most: a design of several speeds, as of a dragonfly
/// with slower cables between its groups, not a fault of each.
fn designed_rates(view: &View<'_>) -> BTreeSet<u64> {
    let between = rated(view).filter(|(_, ends, _)| !ends.iter().any(|end| is_nic(view, *end)));
    let mut ends_at: BTreeMap<u64, Vec<PartId>> = BTreeMap::new();
    for (_, ends, rate) in between {
        ends_at.entry(rate.to_bits()).or_default().extend(ends);
    }
    let all: usize = ends_at.values().map(Vec::len).sum();
    let is_designed = |ends: &Vec<PartId>| {
        let cables = ends.len() / 2;
        let mut of_each: BTreeMap<PartId, usize> = BTreeMap::new();
        for end in ends {
            *of_each.entry(*end).or_default() += 1;
        }
        let most = of_each.into_values().max().unwrap_or(0);
        let are_many = cables >= DESIGN_CABLES && ends.len() as f64 >= DESIGN_SHARE * all as f64;
        are_many && 2 * most < cables
    };
    let designed = ends_at.into_iter().filter(|(_, ends)| is_designed(ends));
    designed.map(|(rate, _)| rate).collect()
}

fn is_nic(view: &View<'_>, id: PartId) -> bool {
    matches!(view.fabric.vertex(id).part, Part::Nic(..))
}

/// Hosts with as many NICs, and the same device of each.
fn host_cohort(view: &View<'_>, nic: PartId) -> String {
    let Part::Nic(node, device) = &view.fabric.vertex(nic).part else {
        return String::new();
    };
    format!("nic {device} of {}", nics_of(view, node))
}

fn nics_of(view: &View<'_>, node: &NodeName) -> usize {
    view.fabric.nics(node).count()
}
