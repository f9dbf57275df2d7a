//! Cables whose loss may turn out to be their switch's, once the others on it have been heard.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;

use super::history::History;
use super::incident::{
    Finding, PARENT_MIN_CHILDREN, PARENT_SHARE, cables_of_switches, is_lost_cable,
};
use super::second_look::{SECOND_LOOK_SECONDS, Told};

/// What is lost of each switch, from tick to tick.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<Part, Loss>);

/// Lost cables of one switch.
#[derive(Debug, Clone, Copy)]
struct Loss {
    /// At the last tick.
    cables: usize,
    /// The tick that saw the first of them.
    since: Timestamp,
    /// The first page that told of one; none if no host did.
    told: Option<Timestamp>,
}

impl Losses {
    /// Lost cables that it is too early to name one by one: exporters are read one after another, and what each
    /// host says first is not yet whose fault it is. Such is a cable of a switch that loses more from tick to tick,
    /// or that enough hosts to make it the switch's fault have not been heard about since its first loss: since the tick
    /// that saw it, or long enough after the page that told of it.
    pub(super) fn spreading(
        &mut self,
        fabric: &Fabric,
        history: &History,
        findings: &[Finding],
        now: Timestamp,
    ) -> BTreeSet<Part> {
        let lost: BTreeSet<_> = findings
            .iter()
            .filter(|found| is_lost_cable(found.evidence.class))
            .map(|found| &found.evidence.part)
            .collect();
        let (mut losses, mut spreading) = (BTreeMap::new(), BTreeSet::new());
        for (switch, cables) in cables_of_switches(fabric, &lost) {
            let cables = cables.into_iter().map(|(cable, _)| cable);
            let (gone, left): (Vec<_>, Vec<_>) = cables.partition(|part| lost.contains(part));
            if gone.is_empty() {
                continue;
            }
            let before = self.0.get(switch);
            let told = || gone.iter().filter_map(|cable| Told::of(history, cable));
            let loss = Loss {
                cables: gone.len(),
                since: before.map_or(now, |before| before.since),
                told: before.map_or_else(|| told().map(|told| told.since).min(), |one| one.told),
            };
            losses.insert(switch.clone(), loss);
            let grows = gone.len() >= PARENT_MIN_CHILDREN
                && gone.len() > before.map_or(0, |before| before.cables);
            if grows || may_be_the_switch(history, &loss, &left, now) {
                spreading.extend(gone);
            }
        }
        self.0 = losses;
        spreading
    }
}

/// Whether the hosts that were not heard since the loss could make it the switch's fault.
fn may_be_the_switch(history: &History, loss: &Loss, left: &[Part], now: Timestamp) -> bool {
    let hosts = || left.iter().filter_map(Part::node);
    let is_after = |heard: Timestamp| {
        let told = |told| heard.seconds_since(told) >= SECOND_LOOK_SECONDS;
        heard > loss.since || loss.told.is_some_and(told)
    };
    let unheard = hosts().filter(|node| {
        let node = history.node(node).filter(|node| node.is_fresh(now));
        node.is_some_and(|node| !node.heard().is_some_and(is_after))
    });
    let (unheard, all) = (unheard.count(), loss.cables + hosts().count());
    let possible = loss.cables + unheard;
    unheard > 0 && possible >= PARENT_MIN_CHILDREN && possible as f64 >= PARENT_SHARE * all as f64
}
