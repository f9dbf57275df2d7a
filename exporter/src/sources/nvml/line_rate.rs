//! Byte counters of NVLinks that rise faster than the links can carry.

use std::time::{Duration, Instant};

/// Drivers may update counters less often than they are read, so shorter times report nothing.
const SHORTEST: Duration = Duration::from_secs(5);
/// A rate this many times the link's speed is no inaccuracy of times: a driver that updates a counter once a
/// second shows at most 1.2 times the true rate over 5 s.
const MARGIN: f64 = 1.5;

/// What is known of one counter of all links of a GPU.
#[derive(Debug, Default)]
pub(super) struct LineRate {
    /// By link: when the current interval began, and the count then.
    began: Vec<Option<(Instant, u64)>>,
    is_implausible: bool,
}

impl LineRate {
    /// Compares a link's count with the speed of the link, in bytes per second.
    pub(super) fn observe(&mut self, link: usize, now: Instant, count: u64, speed: Option<u64>) {
        if self.began.len() <= link {
            self.began.resize(link + 1, None);
        }
        let began = &mut self.began[link];
        let Some((at, before)) = *began else {
            *began = Some((now, count));
            return;
        };
        let elapsed = now.saturating_duration_since(at);
        if elapsed < SHORTEST {
            return;
        }
        *began = Some((now, count));
        let Some(speed) = speed.filter(|speed| *speed > 0) else {
            return;
        };
        // A counter that fell was reset.
        let rise = count.saturating_sub(before);
        let most = speed as f64 * MARGIN * elapsed.as_secs_f64();
        self.is_implausible |= rise as f64 > most;
    }

    /// Whether any link's count once rose faster than possible: all of them are in the same unit.
    pub(super) fn is_implausible(&self) -> bool {
        self.is_implausible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: u64 = 1_000;

    /// Whether counts at these seconds are refused.
    fn refuses(counts: &[(u64, u64)], speed: Option<u64>) -> bool {
        let start = Instant::now();
        let mut rate = LineRate::default();
        for (second, count) in counts {
            rate.observe(1, start + Duration::from_secs(*second), *count, speed);
        }
        rate.is_implausible()
    }

    #[test]
    fn only_a_lasting_rise_above_the_links_speed_is_refused() {
        for (counts, speed, expected) in [
            (&[(0, 7), (5, 5_007), (10, 10_007)][..], Some(SPEED), false),
            (&[(0, 0), (1, 4_000), (5, 5_000)], Some(SPEED), false),
            (&[(0, 0), (5, 7_600)], Some(SPEED), true),
            (&[(0, 0), (5, 7_600), (10, 7_600)], Some(SPEED), true),
            (&[(0, 0), (5, 7_600)], None, false),
            (&[(0, 0), (5, 7_600)], Some(0), false),
            (&[(0, 9_000), (5, 10), (10, 5_000)], Some(SPEED), false),
            // The link did not respond for a minute.
            (&[(0, 0), (60, 60_000), (65, 65_000)], Some(SPEED), false),
        ] {
            assert_eq!(refuses(counts, speed), expected, "{counts:?} {speed:?}");
        }
    }
}
