//! What happened to a GPU within a second, kept for scrapes that come every 15 seconds.

use std::time::Instant;

use railscope_model::metric as m;
use railscope_model::metric::{Metric, Profile};
use railscope_model::reading::{Labels, NodeReading};

use crate::extremes::{Extremes, PeakRate, WINDOWS};

/// The highest rate of a counter in each window, in the full profile.
pub(super) struct Peak {
    metric: &'static Metric,
    rate: PeakRate,
    windows: [Labels; WINDOWS.len()],
}

impl Peak {
    pub(super) fn new(metric: &'static Metric, gpu: &Labels) -> Self {
        Self {
            metric,
            rate: PeakRate::default(),
            windows: WINDOWS.map(|(name, _)| gpu.with(name)),
        }
    }

    pub(super) fn observe(&mut self, now: Instant, count: u64) {
        self.rate.observe(now, count);
    }

    pub(super) fn push(&self, now: Instant, reading: &mut NodeReading) {
        for ((_, length), labels) in WINDOWS.into_iter().zip(&self.windows) {
            if let Some(rate) = self.rate.max(now, length) {
                reading.push(self.metric, labels, rate);
            }
        }
    }
}

/// The lowest SM clock, hertz, and the highest power, watts, in each window.
#[derive(Debug, Default)]
pub(super) struct Strain {
    pub(super) sm_clock: Extremes,
    pub(super) power: Extremes,
}

impl Strain {
    /// The clock of the shortest window by default, the rest in the full profile.
    pub(super) fn push(&self, now: Instant, gpu: &Labels, reading: &mut NodeReading) {
        let sm = gpu.with("sm");
        for (place, (name, length)) in WINDOWS.into_iter().enumerate() {
            if let Some(hertz) = self.sm_clock.min(now, length) {
                let profile = Profile::default_if(place == 0);
                reading.push_in(profile, &m::GPU_LOWEST_CLOCK, &sm.with(name), hertz);
            }
            if let Some(watts) = self.power.max(now, length) {
                reading.push(&m::GPU_PEAK_POWER, &gpu.with(name), watts);
            }
        }
    }
}
