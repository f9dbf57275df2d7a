//! When switches began to wait for NICs: hosts do not break in the same seconds, and what a job or a storage system sends begins
//! at many of them at once.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::WINDOW_SECONDS;
use super::credits::Waits;
use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::store::{Count, Window};

/// Waits that began closer to each other, or as close as their scrapes can tell, have one cause.
const TOGETHER_SECONDS: f64 = 10.0;
/// Fewest hosts of such waits. In two simulated clusters of another author, five pairs of hosts began together, and none was at fault.
const MIN_HOSTS: usize = 2;
/// Share of a port's present wait from which it waited as it does now.
const BEGUN: f64 = 0.5;

/// Since when switches wait for NICs.
#[derive(Debug, Default)]
pub(super) struct Onsets(BTreeMap<Part, Onset>);

#[derive(Debug)]
struct Onset {
    /// When, and the seconds between the scrapes before and after; `None` where it began before the history did.
    began: Option<(Timestamp, f64)>,
    /// When the switch last waited.
    last: Timestamp,
    /// Whether it was suspected: what it waited for before had another cause.
    is_suspect: bool,
    /// Whether its host was named: then it stays so, whatever begins later.
    is_named: bool,
}

impl Onsets {
    /// Notes ports that wait for their NICs, for whatever reason. Returns the suspects among them whose wait did not begin when
    /// that for a NIC of another host did.
    pub(super) fn alone<'a, 'b>(
        &mut self,
        view: &View<'_>,
        waiting: &[&Waits<'_>],
        mut suspects: Vec<&'b Waits<'a>>,
    ) -> Vec<&'b Waits<'a>> {
        let is_over = |onset: &Onset| view.now.seconds_since(onset.last) > WINDOW_SECONDS;
        self.0.retain(|_, onset| !is_over(onset));
        for own in waiting {
            let new = || Onset {
                began: began(own.wait, own.ticks),
                last: view.now,
                is_suspect: false,
                is_named: false,
            };
            let nic = own.nic(view).clone();
            self.0.entry(nic).or_insert_with(new).last = view.now;
        }
        for own in &suspects {
            let onset = self.0.get_mut(own.nic(view));
            if let Some(onset) = onset.filter(|onset| !onset.is_suspect) {
                onset.is_suspect = true;
                onset.began = began(own.wait, own.ticks);
            }
        }
        suspects.retain(|own| !self.has_company(own.nic(view)));
        for own in &suspects {
            if let Some(onset) = self.0.get_mut(own.nic(view)) {
                onset.is_named = true;
            }
        }
        suspects
    }

    /// Whether the wait for a NIC began when those for NICs of other hosts did.
    fn has_company(&self, nic: &Part) -> bool {
        let own = self.0.get(nic).filter(|onset| !onset.is_named);
        let Some((own, own_step)) = own.and_then(|onset| onset.began) else {
            return false;
        };
        let with_it = |onset: &Onset| {
            onset.began.is_some_and(|(other, step)| {
                let apart = own.max(other).seconds_since(own.min(other));
                apart <= TOGETHER_SECONDS.max(own_step).max(step)
            })
        };
        let together = self.0.iter().filter(|(_, onset)| with_it(onset));
        let hosts: BTreeSet<_> = together.filter_map(|(nic, _)| nic.node()).collect();
        hosts.len() >= MIN_HOSTS
    }
}

/// Since when a port has waited so many ticks a second, and the step between scrapes then, where the history has the time before,
/// too.
fn began(wait: Window<'_>, ticks: f64) -> Option<(Timestamp, f64)> {
    // Newest first.
    let counts: Vec<_> = wait.counts().collect();
    let step = |pair: &[Count]| pair[0].at.seconds_since(pair[1].at);
    let waits = |pair: &[Count]| pair[0].count - pair[1].count >= BEGUN * ticks * step(pair);
    let newest = counts.windows(2).position(waits)?;
    let run = counts[newest..].windows(2).take_while(|pair| waits(pair));
    let first = newest + run.count() - 1;
    (first + 2 < counts.len()).then(|| (counts[first + 1].at, step(&counts[first..])))
}

/// The numbers.
pub(super) fn numbers() -> [Threshold; 3] {
    [
        Threshold::new(
            "waits for NICs of several hosts that began closer to each other, or within one step of their scrapes, InfiniBand, are no fault of these hosts",
            TOGETHER_SECONDS,
            "s",
            "two scrapes at 5 s (a choice)",
        ),
        Threshold::new(
            "such hosts, at least",
            MIN_HOSTS as f64,
            "hosts",
            "in two simulated clusters of another author five pairs began together, and none was at fault (a choice)",
        ),
        Threshold::new(
            "share of its present wait from which a port counts as having begun to wait, InfiniBand",
            BEGUN,
            "ratio",
            "the first scrape has only part of it (a choice)",
        ),
    ]
}
