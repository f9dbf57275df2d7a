//! A leaf that spreads its packets evenly over its uplinks, and one of them that carries less: it lets less through than the others.
//!
//! Where packets are sprayed, or routed adaptively, all uplinks carry as much, and what one cannot carry goes over the others or makes
//! all wait. Nothing but the bytes shows that where the queue is short. Few flows that a hash spreads do not load uplinks
//! evenly, and one of them that ends is no fault: so the leaf must have been even before.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT};

use super::{Leaves, MIN_SENT, MIN_UPLINKS, UNUSED, WINDOW_SECONDS};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::PATH_SLOW;
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::PortSeries;
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
/// Most leaves of one switch above them that carry less to it: more avoid it, as something is wrong behind it.
const MOST_LEAVES: usize = 1;

/// The rule as text.
pub(super) fn words() -> String {
    format!(
        "at least {MIN_UPLINKS} uplinks of the leaf differed by at most {:.0} % in the last {:.0} minutes, and all but one still do, with {:.0} MB/s or more each; that one carries at most {:.0} % of what they do, and more than {:.0} %, over {WINDOW_SECONDS:.0} s; no other leaf carries less to the same switch; not where ports count what they wait for credits",
        100.0 * EVEN,
        REMEMBERED_SECONDS / 60.0,
        1e-6 * MIN_SENT,
        100.0 * SHORT,
        100.0 * UNUSED
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
            "leaves that carry less to one switch, at most",
            MOST_LEAVES as f64,
            "leaves",
            "more avoid what is behind it",
        ),
    ];
    Rule {
        signal: SWITCH_PORT_TRANSMIT_BYTES.name,
        ..Rule::new(&PATH_SLOW, thresholds)
    }
}

/// When leaves last spread their packets evenly.
#[derive(Default)]
pub(super) struct Spray(HashMap<SwitchName, Timestamp, FixedState>);

/// An uplink that carries less than the others of its leaf, bytes a second.
struct Short<'a> {
    leaf: &'a SwitchName,
    cable: Part,
    to: &'a Part,
    carries: f64,
    others: f64,
}

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
        let mut found: BTreeMap<&Part, Vec<Short<'_>>> = BTreeMap::new();
        for (leaf, ports) in &leaves.ports {
            let Some(of_leaf) = series.of(view, leaf) else {
                continue;
            };
            let windows = || ports.up.iter().map(|port| (*port, of_leaf.of(*port)[0]));
            let rates = |rate: &dyn Fn(Window<'_>) -> Option<f64>| {
                let of = windows().map(|(port, window)| Some((rate(window?)?, port)));
                let mut rates: Vec<_> = of.collect::<Option<_>>()?;
                rates.sort_by(|a, b| a.0.total_cmp(&b.0));
                (rates.len() >= MIN_UPLINKS).then_some(rates)
            };
            let lately = rates(&|of| of.newest_increase(WINDOW_SECONDS).map(Increase::rate));
            let Some(lately) = lately else { continue };
            if is_even(&lately) {
                self.0.insert(leaf.clone(), view.now);
                continue;
            }
            let Some(((carries, port), others)) = short(&lately) else {
                continue;
            };
            let until = view.now.plus_seconds(-AGO_SECONDS);
            let before = || rates(&|of| of.rate_until(until, WINDOW_SECONDS));
            let was_even = self.0.contains_key(leaf) || before().is_some_and(|own| is_even(&own));
            if was_even && !counts_credits(view, leaf) {
                self.0.entry(leaf.clone()).or_insert(until);
                if let Some(short) = at_port(view, leaf, port, (carries, others)) {
                    found.entry(short.to).or_default().push(short);
                }
            }
        }
        let alone = found
            .into_values()
            .filter(|short| short.len() <= MOST_LEAVES);
        out.extend(alone.flatten().map(|short| short.evidence(view)));
    }
}

/// Whether uplinks, with their rates in order, carry as much as each other, and enough.
fn is_even(rates: &[(f64, u16)]) -> bool {
    let ends = rates.first().zip(rates.last());
    ends.is_some_and(|((least, _), (most, _))| *least >= MIN_SENT && *most <= (1.0 + EVEN) * least)
}

/// The one that carries less than the others, which are even, and what these carry.
fn short(rates: &[(f64, u16)]) -> Option<((f64, u16), f64)> {
    let (own, others) = rates.split_first()?;
    let (usual, _) = others[others.len() / 2];
    let is_short = own.0 <= SHORT * usual && own.0 > UNUSED * usual;
    (is_short && is_even(others)).then_some((*own, usual))
}

/// Whether ports of a switch count what they wait for credits.
fn counts_credits(view: &View<'_>, switch: &SwitchName) -> bool {
    let history = view.history.switch(switch);
    history.is_some_and(|history| history.series(&SWITCH_PORT_TRANSMIT_WAIT).next().is_some())
}

/// The cable at an uplink.
fn at_port<'a>(
    view: &'a View<'_>,
    leaf: &'a SwitchName,
    port: u16,
    (carries, others): (f64, f64),
) -> Option<Short<'a>> {
    let id = view.fabric.find(&Part::Switch(leaf.clone()))?;
    let near = view.fabric.cables(id).find(|near| near.port == port)?;
    Some(Short {
        leaf,
        cable: view.fabric.cable_part(near.id)?,
        to: &view.fabric.vertex(near.peer).part,
        carries,
        others,
    })
}

impl Short<'_> {
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
                self.to,
                1e-9 * self.carries,
                1e-9 * self.others
            ),
            victims: gpus_behind(view.fabric, &self.cable),
            related: Vec::new(),
            alike: Vec::new(),
            part: self.cable,
        }
    }
}
