//! How fast a replay prints what it finds.

use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use railscope_collector::replay::Window;
use railscope_collector::replay::pack::{Pack, PackError};

use super::time;

/// The slowest and the fastest pace, as multiples of real time.
const LIMITS: std::ops::RangeInclusive<f64> = 0.01..=1e6;

/// How fast a recording is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Speed {
    /// As fast as it goes.
    Max,
    /// So many times real time.
    Times(f64),
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let times = text.parse().ok().filter(|times| LIMITS.contains(times));
        times.map(Self::Times).ok_or_else(|| {
            let (least, most) = (LIMITS.start(), LIMITS.end());
            format!("{text:?}: expected max or a number from {least} to {most}")
        })
    }
}

/// When what happened is printed.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the replay began, the time of its first scrape, and the speed; none for as fast as it goes.
    clock: Option<(Instant, SystemTime, f64)>,
}

impl Pace {
    /// A pace that begins now, at the first scrape in the window.
    ///
    /// # Errors
    /// There are no scrapes.
    pub(super) fn start(speed: Speed, pack: &Pack, window: Window) -> Result<Self, PackError> {
        let Speed::Times(times) = speed else {
            return Ok(Self { clock: None });
        };
        // A line that cannot be read is an error of the replay.
        let first = pack.scrapes()?.next().and_then(Result::ok);
        let first = first.map(|(_, line)| window.from.map_or(line.at, |from| from.max(line.at)));
        Ok(Self {
            clock: first.map(|first| (Instant::now(), time(first), times)),
        })
    }

    /// Waits until it is time for what happened then.
    pub(super) fn wait_until(&self, at: SystemTime) {
        let Some((began, first, times)) = self.clock else {
            return;
        };
        let due = delay(at.duration_since(first).unwrap_or_default(), times);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
}

/// Wall time of so much of the recording.
fn delay(recorded: Duration, times: f64) -> Duration {
    Duration::try_from_secs_f64(recorded.as_secs_f64() / times).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_max_or_a_multiple_of_real_time() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("60".parse(), Ok(Speed::Times(60.0)));
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        for text in ["", "0", "-1", "NaN", "inf", "fast", "1e9"] {
            let error = text.parse::<Speed>().expect_err(text);
            let expected = "expected max or a number from 0.01 to 1000000";
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_minute_at_sixty_times_real_time_takes_a_second() {
        let second = Duration::from_secs(1);
        assert_eq!(delay(60 * second, 60.0), second);
        assert_eq!(delay(second, 0.5), 2 * second);
    }
}
