//! When switches began to wait for NICs: hosts do not break in the same seconds, and what a job or a storage system sends begins
//! at many of them at once.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::WINDOW_SECONDS;
use super::credits::Waits;
use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::store::{Count, Window};

/// Waits that began closer to each other have one cause.
const TOGETHER_SECONDS: f64 = 10.0;
/// Share of a port's present wait from which it waited as it does now.
const BEGUN: f64 = 0.5;

/// Since when switches wait for NICs.
#[derive(Debug, Default)]
pub(super) struct Onsets(BTreeMap<Part, Onset>);

#[derive(Debug)]
struct Onset {
    /// `None` where it began before the history did.
    began: Option<Timestamp>,
    /// When the switch last waited.
    last: Timestamp,
}

impl Onsets {
    /// Notes ports that wait for their NICs. Returns those whose wait did not begin when that for a NIC of another host did.
    pub(super) fn alone<'a, 'b>(
        &mut self,
        view: &View<'_>,
        mut waiting: Vec<&'b Waits<'a>>,
    ) -> Vec<&'b Waits<'a>> {
        let is_over = |onset: &Onset| view.now.seconds_since(onset.last) > WINDOW_SECONDS;
        self.0.retain(|_, onset| !is_over(onset));
        for own in &waiting {
            let new = || Onset {
                began: began(own.wait, own.ticks),
                last: view.now,
            };
            let nic = own.nic(view).clone();
            self.0.entry(nic).or_insert_with(new).last = view.now;
        }
        waiting.retain(|own| !self.has_company(own.nic(view)));
        waiting
    }

    /// Whether the wait for a NIC began when that for a NIC of another host did.
    fn has_company(&self, nic: &Part) -> bool {
        let Some(own) = self.0.get(nic).and_then(|onset| onset.began) else {
            return false;
        };
        let others = self
            .0
            .iter()
            .filter(|(other, _)| other.node() != nic.node());
        let mut began = others.filter_map(|(_, onset)| onset.began);
        began.any(|other| own.max(other).seconds_since(own.min(other)) <= TOGETHER_SECONDS)
    }
}

/// Since when a port waits so many ticks a second, where the history has the time before, too.
fn began(wait: Window<'_>, ticks: f64) -> Option<Timestamp> {
    // Newest first.
    let counts: Vec<_> = wait.counts().collect();
    let waits = |pair: &[Count]| {
        let seconds = pair[0].at.seconds_since(pair[1].at);
        pair[0].count - pair[1].count >= BEGUN * ticks * seconds
    };
    let first = counts.windows(2).rposition(waits)?;
    (first + 2 < counts.len()).then(|| counts[first + 1].at)
}

/// The numbers.
pub(super) fn numbers() -> [Threshold; 2] {
    [
        Threshold::new(
            "waits for NICs of several hosts that began closer to each other, InfiniBand, are no fault of these hosts",
            TOGETHER_SECONDS,
            "s",
            "two scrapes at 5 s (a choice)",
        ),
        Threshold::new(
            "share of its present wait from which a port counts as having begun to wait, InfiniBand",
            BEGUN,
            "ratio",
            "the first scrape has only part of it (a choice)",
        ),
    ]
}
