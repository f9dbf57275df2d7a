//! Extremes between scrapes: what happened within a second, still visible to a scrape every 15 seconds.
//!
//! Windows roll with time and no scrape resets them, so any number of scrapers see the same values.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Names and lengths of the windows. The first one fits Prometheus' usual scrape interval.
pub const WINDOWS: [(&str, Duration); 2] = [
    ("15s", Duration::from_secs(15)),
    ("60s", Duration::from_secs(60)),
];

/// Windows are longer than their nominal length by this much: an exposition is up to a second old
/// and scrapes are not punctual, and a value must not be missed between two of them.
const SLACK: Duration = Duration::from_secs(1);
/// Values so close together share one place, so that memory is bounded whatever the sampling rate.
const GRAIN: Duration = Duration::from_millis(500);

/// The smallest and the largest value of a gauge in each window.
#[derive(Debug, Default)]
pub struct Extremes(VecDeque<Grain>);

#[derive(Debug)]
struct Grain {
    first: Instant,
    last: Instant,
    min: f64,
    max: f64,
}

impl Extremes {
    /// Adds a value. Times do not decrease.
    pub fn observe(&mut self, at: Instant, value: f64) {
        let [.., (_, longest)] = WINDOWS;
        while self
            .0
            .front()
            .is_some_and(|grain| at.saturating_duration_since(grain.last) > longest + SLACK)
        {
            self.0.pop_front();
        }
        match self.0.back_mut() {
            Some(grain) if at.saturating_duration_since(grain.first) < GRAIN => {
                grain.last = at;
                grain.min = grain.min.min(value);
                grain.max = grain.max.max(value);
            }
            _ => self.0.push_back(Grain {
                first: at,
                last: at,
                min: value,
                max: value,
            }),
        }
    }

    /// The largest value in the window that ends now; none if there is no value in it.
    pub fn max(&self, now: Instant, window: Duration) -> Option<f64> {
        self.within(now, window)
            .map(|grain| grain.max)
            .reduce(f64::max)
    }

    /// The smallest value in the window that ends now; none if there is no value in it.
    pub fn min(&self, now: Instant, window: Duration) -> Option<f64> {
        self.within(now, window)
            .map(|grain| grain.min)
            .reduce(f64::min)
    }

    fn within(&self, now: Instant, window: Duration) -> impl Iterator<Item = &Grain> {
        let latest_first = self.0.iter().rev();
        latest_first
            .take_while(move |grain| now.saturating_duration_since(grain.last) <= window + SLACK)
    }
}

/// The highest rate of a counter between two of its samples, in each window.
#[derive(Debug, Default)]
pub struct PeakRate {
    last: Option<(Instant, u64)>,
    rates: Extremes,
}

impl PeakRate {
    /// Adds a count. A count that fell (a reset, a wrap) gives no rate and starts from scratch.
    pub fn observe(&mut self, at: Instant, count: u64) {
        let before = self.last.replace((at, count));
        let Some((since, old)) = before else {
            return;
        };
        let seconds = at.saturating_duration_since(since).as_secs_f64();
        if let Some(grown) = count.checked_sub(old)
            && seconds > 0.0
        {
            self.rates.observe(at, grown as f64 / seconds);
        }
    }

    /// The highest rate in the window that ends now, counts per second; none before the second sample.
    pub fn max(&self, now: Instant, window: Duration) -> Option<f64> {
        self.rates.max(now, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = WINDOWS[0].1;
    const LONG: Duration = WINDOWS[1].1;

    fn after(start: Instant, seconds: f64) -> Instant {
        start + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_burst_of_one_second_is_seen_by_every_scraper_every_15_seconds_and_then_forgotten() {
        let start = Instant::now();
        for phase in 0..30 {
            let mut peak = PeakRate::default();
            let mut count = 0;
            let mut seen = [0, 0];
            for second in 0..100_u32 {
                count += if second == 40 { 5000 } else { 100 };
                let now = after(start, second.into());
                peak.observe(now, count);
                for (scraper, seen) in seen.iter_mut().enumerate() {
                    // Scrapes up to a second after the sample that they show.
                    let late = after(now, 0.9);
                    if (second + phase + 7 * scraper as u32).is_multiple_of(15) {
                        *seen += u32::from(peak.max(late, SHORT) == Some(5000.0));
                    }
                }
            }
            assert!(
                seen.iter().all(|seen| (1..=2).contains(seen)),
                "{phase}: {seen:?}"
            );
            assert_eq!(peak.max(after(start, 99.0), SHORT), Some(100.0));
            assert_eq!(peak.max(after(start, 99.0), LONG), Some(5000.0));
        }
    }

    #[test]
    fn a_reset_is_no_rate_and_silence_is_no_value() {
        let start = Instant::now();
        let mut peak = PeakRate::default();
        assert_eq!(peak.max(start, LONG), None);
        for (second, count) in [
            (0.0, 1_000_000),
            (1.0, 5),
            (2.0, 15),
            (2.0, 900),
            (3.0, 910),
        ] {
            peak.observe(after(start, second), count);
        }
        assert_eq!(peak.max(after(start, 3.0), SHORT), Some(10.0));
        assert_eq!(
            peak.max(after(start, 20.0), SHORT),
            None,
            "no sample for 17 s"
        );
    }

    #[test]
    fn a_gauge_has_both_ends_and_bounded_memory() {
        let start = Instant::now();
        let mut clock = Extremes::default();
        for sample in 0..100_000_u32 {
            let value = f64::from(sample % 1000);
            clock.observe(after(start, f64::from(sample) / 100.0), value);
        }
        let now = after(start, 1000.0);
        assert_eq!(
            (clock.min(now, SHORT), clock.max(now, SHORT)),
            (Some(0.0), Some(999.0))
        );
        assert!(clock.0.len() < 130, "{}", clock.0.len());
    }
}
