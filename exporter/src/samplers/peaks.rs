//! Peaks between scrapes, as series: one for each window of [`crate::extremes`].

use std::time::Instant;

use railscope_model::metric::Metric;
use railscope_model::reading::Labels;

use crate::extremes::{PeakRate, WINDOWS};

/// The highest rate that any of some counters had, in each window.
#[derive(Debug)]
pub(super) struct Peak {
    /// The metric that it becomes; its last label is the window.
    pub(super) becomes: &'static Metric,
    windows: [Labels; WINDOWS.len()],
    counters: Vec<(Labels, PeakRate)>,
}

impl Peak {
    /// The series with these labels, to which the window is added, without data yet.
    pub(super) fn new(becomes: &'static Metric, labels: &Labels) -> Self {
        Self {
            becomes,
            windows: WINDOWS.map(|(name, _)| labels.with(name)),
            counters: Vec::new(),
        }
    }

    /// Adds the value of the counter with these labels.
    pub(super) fn observe(&mut self, at: Instant, counter: &Labels, count: u64) {
        match self.counters.iter_mut().find(|(known, _)| known == counter) {
            Some((_, rate)) => rate.observe(at, count),
            None => {
                let mut rate = PeakRate::default();
                rate.observe(at, count);
                self.counters.push((counter.clone(), rate));
            }
        }
    }

    /// Labels and counts per second of each window in which a rate is known, and whether the window is the
    /// shortest one, which fits the usual scrape.
    pub(super) fn rates(&self, now: Instant) -> impl Iterator<Item = (&Labels, f64, bool)> {
        let windows = WINDOWS.iter().zip(&self.windows).enumerate();
        windows.filter_map(move |(place, ((_, length), labels))| {
            let counters = self.counters.iter();
            let rates = counters.filter_map(|(_, rate)| rate.max(now, *length));
            Some((labels, rates.reduce(f64::max)?, place == 0))
        })
    }
}
