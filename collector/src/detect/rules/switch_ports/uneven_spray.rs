//! Detects an uplink with less throughput than the others of its leaf, from transmitted bytes, where the leaf spreads its packets evenly.
//!
//! Where packets are sprayed, or routed adaptively, all uplinks carry as much, and what one cannot carry goes over the others or makes
//! all wait. Where queues are short, no other counter shows it. Few flows that a hash spreads do not load uplinks evenly, and
//! one of them that ends is no fault: so the leaf must have been even before.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::{PartId, Timestamp};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT};

use super::{Leaves, MIN_SENT, MIN_UPLINKS, UNUSED, WINDOW_SECONDS, window};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::{PortSeries, SwitchSeries};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, Window};

/// Most by which the uplinks of a leaf that spreads evenly differ, as a share of the smallest.
const EVEN: f64 = 0.05;
/// Share of what the others carry at which an uplink is limited, at most.
const SHORT: f64 = 0.75;
/// Age of the time in which a leaf must have been even if it was not seen then.
const AGO_SECONDS: f64 = 130.0;
/// How long a leaf that was even is known to be.
const REMEMBERED_SECONDS: f64 = 900.0;
/// Adjacent parts of the window, in each of which the uplink carries less, and by how much its shares of what the others carry may
/// differ there: those of a link that goes down or comes up differ more.
const PARTS: f64 = 2.0;
const SAME: f64 = 0.2;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "at least {MIN_UPLINKS} uplinks of the leaf differed by at most {:.0} % in the last {:.0} minutes, and all but one still do, with {:.0} MB/s or more each; that one carries at most {:.0} % of what they do, and more than {:.0} %, in each of {PARTS} parts of {WINDOW_SECONDS:.0} s, and within {:.0} % the same share in both; no other leaf sends as much less to the same switch than to others; not where ports count what they wait for credits",
        100.0 * EVEN,
        REMEMBERED_SECONDS / 60.0,
        1e-6 * MIN_SENT,
        100.0 * SHORT,
        100.0 * UNUSED,
        100.0 * SAME
    )
}

/// The rule's numbers.
pub(super) fn rule() -> Rule {
    let thresholds = vec![
        Threshold::new(
            "difference of the uplinks of a leaf that spreads evenly, at most",
            EVEN,
            "ratio",
            "few flows that a hash spreads differ by a whole flow (a choice)",
        ),
        Threshold::new(
            "share of what the others carry, at most",
            SHORT,
            "ratio",
            "far outside of that (a choice)",
        ),
        Threshold::new(
            "age of the time in which the leaf was even, if it was not seen then",
            AGO_SECONDS,
            "s",
            "two windows (a choice)",
        ),
        Threshold::new(
            "time for which it is known to be",
            REMEMBERED_SECONDS,
            "s",
            "a fault lasts (a choice)",
        ),
        Threshold::new(
            "parts of the window, in each of which it does",
            PARTS,
            "parts",
            "a link that goes down or comes up carries less in one (a choice)",
        ),
        Threshold::new(
            "difference of the shares in these parts, at most",
            SAME,
            "ratio",
            "those of a link that goes down or comes up differ more (a choice)",
        ),
        Threshold::new(
            "uplinks of a leaf, at least",
            MIN_UPLINKS as f64,
            "uplinks",
            "fewer may be even by chance (a choice)",
        ),
        Threshold::new(
            "bytes that each of the others carries, at least",
            MIN_SENT,
            "B/s",
            "2 Gb/s: below, nothing waits for an uplink (a choice)",
        ),
        Threshold::new(
            "share of what the others carry, more than",
            UNUSED,
            "ratio",
            "an uplink that is not used is another fault, or maintenance (a choice)",
        ),
        window(),
    ];
    Rule {
        signal: SWITCH_PORT_TRANSMIT_BYTES.name,
        ..Rule::new(&PATH_SLOW, thresholds)
    }
}

/// When leaves last spread their packets evenly.
#[derive(Default)]
pub(super) struct Spray(HashMap<SwitchName, Timestamp, FixedState>);

/// An uplink that carries less than the others of its leaf.
struct Limited<'a> {
    leaf: &'a SwitchName,
    cable: Part,
    to: PartId,
    lower: Lower,
}

/// The rates of a leaf's uplinks with their ports, the smallest first.
type Rates = Vec<(f64, u16)>;

impl Spray {
    /// Uplinks that carry less than the others of their leaf, which spreads evenly.
    pub(super) fn find(
        &mut self,
        view: &View<'_>,
        (leaves, series): (&Leaves, &PortSeries<2>),
        out: &mut Vec<Evidence>,
    ) {
        let is_recent = |at: &Timestamp| view.now.seconds_since(*at) <= REMEMBERED_SECONDS;
        self.0.retain(|_, at| is_recent(at));
        for (leaf, ports) in &leaves.ports {
            let rates = |rate: &dyn Fn(Window<'_>) -> Option<f64>| {
                rates(series.of(view, leaf)?, &ports.up, rate)
            };
            let part = WINDOW_SECONDS / PARTS;
            let newest = rates(&|of| of.newest_increase(part).map(Increase::rate));
            let Some(newest) = newest else { continue };
            if is_even(&newest) {
                self.0.insert(leaf.clone(), view.now);
                continue;
            }
            let rate_before = |ago: f64, seconds: f64| {
                move |of: Window<'_>| of.rate_just_before(view.now.plus_seconds(-ago), seconds)
            };
            let (Some(now), Some(before)) = (
                limited(&newest),
                rates(&rate_before(part, part)).and_then(|rates| limited(&rates)),
            ) else {
                continue;
            };
            let was_even = self.0.contains_key(leaf)
                || rates(&rate_before(AGO_SECONDS, WINDOW_SECONDS))
                    .is_some_and(|own| is_even(&own));
            if !now.is_as(&before) || !was_even || counts_credits(view, leaf) {
                continue;
            }
            self.0.insert(leaf.clone(), view.now);
            let found = at_port(view, leaf, now);
            let alone = found.filter(|found| !is_avoided(view, (leaves, series), found));
            out.extend(alone.map(|found| found.evidence(view)));
        }
    }
}

/// The rates of uplinks, if all are known and there are enough.
fn rates(
    of_leaf: SwitchSeries<'_, 2>,
    ports: &[u16],
    rate: &dyn Fn(Window<'_>) -> Option<f64>,
) -> Option<Rates> {
    let of = ports
        .iter()
        .map(|port| Some((rate(of_leaf.of(*port)[0]?)?, *port)));
    let mut rates: Rates = of.collect::<Option<_>>()?;
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    (rates.len() >= MIN_UPLINKS).then_some(rates)
}

/// Whether another leaf sends less to the same switch than to others, too: it avoids what is behind that switch.
fn is_avoided(
    view: &View<'_>,
    (leaves, series): (&Leaves, &PortSeries<2>),
    found: &Limited<'_>,
) -> bool {
    view.fabric.cables(found.to).any(|near| {
        let Part::Switch(leaf) = &view.fabric.vertex(near.peer).part else {
            return false;
        };
        let ports = leaves.ports.get(leaf).filter(|_| leaf != found.leaf);
        let rates = ports
            .zip(series.of(view, leaf))
            .and_then(|(ports, of_leaf)| {
                let rate = |of: Window<'_>| of.newest_increase(WINDOW_SECONDS).map(Increase::rate);
                rates(of_leaf, &ports.up, &rate)
            });
        rates.is_some_and(|rates| {
            let (usual, _) = rates[rates.len() / 2];
            let mut own = rates.iter().filter(|(_, port)| *port == near.peer_port);
            usual >= MIN_SENT && own.any(|(rate, _)| *rate <= SHORT * usual)
        })
    })
}

/// Whether uplinks, with their rates in order, carry as much as each other, and enough.
fn is_even(rates: &[(f64, u16)]) -> bool {
    let ends = rates.first().zip(rates.last());
    ends.is_some_and(|((least, _), (most, _))| *least >= MIN_SENT && *most <= (1.0 + EVEN) * least)
}

/// A port that carries less than the others, which are even; bytes a second.
struct Lower {
    port: u16,
    carries: f64,
    others: f64,
}

impl Lower {
    /// Whether it is the same port with about the same share.
    fn is_as(&self, other: &Self) -> bool {
        let [one, two] = [self, other].map(|own| own.carries / own.others);
        self.port == other.port && one.max(two) <= (1.0 + SAME) * one.min(two)
    }
}

fn limited(rates: &[(f64, u16)]) -> Option<Lower> {
    let ((carries, port), others) = rates.split_first()?;
    let (usual, _) = others[others.len() / 2];
    let is_lower = *carries <= SHORT * usual && *carries > UNUSED * usual;
    (is_lower && is_even(others)).then_some(Lower {
        port: *port,
        carries: *carries,
        others: usual,
    })
}

/// Whether ports of a switch count what they wait for credits.
fn counts_credits(view: &View<'_>, switch: &SwitchName) -> bool {
    let history = view.history.switch(switch);
    history.is_some_and(|history| history.series(&SWITCH_PORT_TRANSMIT_WAIT).next().is_some())
}

/// The cable at an uplink.
fn at_port<'a>(view: &View<'_>, leaf: &'a SwitchName, lower: Lower) -> Option<Limited<'a>> {
    let id = view.fabric.find(&Part::Switch(leaf.clone()))?;
    let mut cables = view.fabric.cables(id);
    let near = cables.find(|near| near.port == lower.port)?;
    Some(Limited {
        leaf,
        cable: view.fabric.cable_part(near.id)?,
        to: near.peer,
        lower,
    })
}

impl Limited<'_> {
    fn evidence(self, view: &View<'_>) -> Evidence {
        Evidence {
            detector: "switch-ports",
            signal: SWITCH_PORT_TRANSMIT_BYTES.name,
            class: &PATH_SLOW,
            // What flows lose depends on what else they wait for.
            effect: 0.0,
            statement: format!(
                "{} spreads its packets evenly over its uplinks, but that to {} carries {:.1} GB/s and each other one {:.1}.",
                self.leaf,
                view.fabric.vertex(self.to).part,
                1e-9 * self.lower.carries,
                1e-9 * self.lower.others
            ),
            victims: gpus_behind(view.fabric, &self.cable),
            related: Vec::new(),
            alike: Vec::new(),
            part: self.cable,
        }
    }
}
