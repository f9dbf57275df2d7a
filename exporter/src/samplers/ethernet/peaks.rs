//! What a scrape every 15 s averages away: a second of pause, a burst of drops.

use std::time::Instant;

use railscope_model::metric::{
    Metric, NIC_DISCARDS, NIC_GLOBAL_PAUSE_SECONDS, NIC_PEAK_DISCARDS, NIC_PEAK_PAUSE,
    NIC_PFC_PAUSE_SECONDS,
};
use railscope_model::reading::Labels;
use railscope_model::units::MICROS;

use super::super::peaks::Peak;
use super::{Counter, DIRECTIONS};

/// Counters -> the peak of the highest of them, base units in one count, and the most that it can be. A NIC
/// that refreshes its counters once a second may seem to have paused for longer than the second.
const PEAKS: &[(&[&Metric], &Metric, f64, f64)] = &[
    (
        &[&NIC_PFC_PAUSE_SECONDS, &NIC_GLOBAL_PAUSE_SECONDS],
        &NIC_PEAK_PAUSE,
        1.0 / MICROS,
        1.0,
    ),
    (&[&NIC_DISCARDS], &NIC_PEAK_DISCARDS, 1.0, f64::INFINITY),
];

/// The peaks of one interface.
pub(super) struct Peaks(Vec<Watched>);

struct Watched {
    of: &'static [&'static Metric],
    direction: &'static str,
    unit: f64,
    most: f64,
    peak: Peak,
}

impl Peaks {
    pub(super) fn new(nic: &Labels) -> Self {
        let rows = PEAKS
            .iter()
            .flat_map(|row| DIRECTIONS.map(|direction| (row, direction)));
        let watched = rows.map(|((of, becomes, unit, most), direction)| Watched {
            of,
            direction,
            unit: *unit,
            most: *most,
            peak: Peak::new(becomes, &nic.with(direction)),
        });
        Self(watched.collect())
    }

    /// Adds the value of one counter, in its own unit.
    pub(super) fn observe(&mut self, at: Instant, counter: &Counter, count: u64) {
        for watched in &mut self.0 {
            let row = counter.row;
            if watched.of.contains(&row.metric) && row.labels.contains(&watched.direction) {
                watched.peak.observe(at, &counter.labels, count);
            }
        }
    }

    /// Passes on each peak that is known, and whether it is the shortest window's.
    pub(super) fn each(
        &self,
        now: Instant,
        mut each: impl FnMut(&'static Metric, &Labels, f64, bool),
    ) {
        for watched in &self.0 {
            for (labels, rate, is_shortest) in watched.peak.rates(now) {
                let value = (rate * watched.unit).min(watched.most);
                each(watched.peak.becomes, labels, value, is_shortest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::counters;
    use super::*;

    /// Peaks of `names` as `metric labels value`, their counts read every second.
    fn peaks(names: &[&str], counts: &[&[u64]]) -> Vec<String> {
        let nic = Labels::new(["eth0"]);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let begun = Instant::now();
        let mut peaks = Peaks::new(&nic);
        let mut now = begun;
        for (second, row) in (0_u64..).zip(counts) {
            now = begun + Duration::from_secs(second);
            // As after each description: other counters of the same names.
            for counter in counters(&names, Some("mlx5_core"), &nic) {
                peaks.observe(now, &counter, row[counter.places[0]]);
            }
        }
        let mut found = Vec::new();
        peaks.each(now, |metric, labels, value, is_shortest| {
            let name = metric.name.trim_start_matches("railscope_nic_peak_");
            let labels: Vec<_> = labels.values().skip(1).collect();
            assert_eq!(is_shortest, labels[1] == "15s");
            found.push(format!("{name} {} {value:.2}", labels.join(" ")));
        });
        found
    }

    #[test]
    fn a_storm_of_a_second_on_one_priority_shows_for_as_long_as_the_window() {
        let names = ["rx_prio3_pause_duration", "rx_prio4_pause_duration"];
        // Microseconds. Both pause a little, then one of them for 0.9 s.
        let storm: &[&[u64]] = &[&[0, 0], &[1000, 2000], &[901_000, 3000]];
        let quiet = [&[901_000, 3000][..]; 30];
        let short = peaks(&names, storm);
        assert_eq!(
            short,
            [
                "pause_ratio receive 15s 0.90",
                "pause_ratio receive 60s 0.90"
            ]
        );
        let later = peaks(&names, &[storm, &quiet].concat());
        assert_eq!(
            later,
            [
                "pause_ratio receive 15s 0.00",
                "pause_ratio receive 60s 0.90"
            ]
        );
    }

    #[test]
    fn a_share_is_at_most_one_and_directions_and_drops_have_their_own() {
        let names = [
            "tx_global_pause_duration",
            "rx_discards_phy",
            "tx_discards_phy",
        ];
        let found = peaks(&names, &[&[0, 5, 9], &[2_000_000, 5, 12]]);
        let expected = [
            "pause_ratio transmit 15s 1.00",
            "pause_ratio transmit 60s 1.00",
            "discards_per_second receive 15s 0.00",
            "discards_per_second receive 60s 0.00",
            "discards_per_second transmit 15s 3.00",
            "discards_per_second transmit 60s 3.00",
        ];
        assert_eq!(found, expected);
        assert!(
            peaks(&names, &[&[1, 1, 1]]).is_empty(),
            "one count is no rate"
        );
    }
}
