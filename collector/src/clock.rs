//! Internal time, which never steps, and the wall clock, which is used only for display and files.
//!
//! Ages must not depend on steps of the wall clock. Internal timestamps are the wall clock at the start of the process plus
//! the monotonic clock since then. After a step of the wall clock, displayed times follow it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use railscope_model::fabric::Timestamp;

/// Minimum change of the offset between wall clock and internal time that counts as a step. NTP slews smaller offsets, and
/// slews the monotonic clock equally.
const STEP_MILLIS: i64 = 500;

static BEGUN: LazyLock<(Instant, Timestamp)> = LazyLock::new(|| (Instant::now(), system_time()));
static WALL: Wall = Wall::new();

/// Offset of the wall clock from internal time, and its steps.
#[derive(Debug)]
struct Wall {
    /// Wall clock minus internal time, in milliseconds.
    ahead: AtomicI64,
    forward: AtomicU64,
    backward: AtomicU64,
}

impl Wall {
    const fn new() -> Self {
        Self {
            ahead: AtomicI64::new(0),
            forward: AtomicU64::new(0),
            backward: AtomicU64::new(0),
        }
    }

    /// Compares the clocks; returns the size of a new step in milliseconds.
    fn look(&self, inside: Timestamp, wall: Timestamp) -> Option<i64> {
        let ahead = signed(wall) - signed(inside);
        let step = ahead - self.ahead.load(Ordering::Relaxed);
        if step.abs() < STEP_MILLIS {
            return None;
        }
        self.ahead.store(ahead, Ordering::Relaxed);
        let counter = if step > 0 {
            &self.forward
        } else {
            &self.backward
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Some(step)
    }

    fn shown(&self, at: Timestamp) -> Timestamp {
        moved(at, self.ahead.load(Ordering::Relaxed))
    }

    fn inside(&self, wall: Timestamp) -> Timestamp {
        moved(wall, -self.ahead.load(Ordering::Relaxed))
    }

    fn placed(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        let other = self.inside(at);
        let far = |at: Timestamp| at.0.abs_diff(now.0);
        if far(other) < far(at) { other } else { at }
    }
}

fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

fn moved(at: Timestamp, millis: i64) -> Timestamp {
    Timestamp(at.0.saturating_add_signed(millis))
}

/// The wall clock.
#[allow(clippy::disallowed_methods)] // the edge: everything else takes the time as an argument
fn system_time() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The current internal time.
pub(crate) fn now() -> Timestamp {
    let (begun, at) = *BEGUN;
    let since = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Timestamp(at.0.saturating_add(since))
}

/// Checks the wall clock for a step, and logs it.
pub(crate) fn look() {
    if let Some(millis) = WALL.look(now(), system_time()) {
        tracing::warn!(
            seconds = millis as f64 / 1e3,
            "the wall clock was stepped: only displayed times change"
        );
    }
}

/// Number of steps of the wall clock, by direction.
pub(crate) fn steps() -> [(&'static str, u64); 2] {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        ("forward", read(&WALL.forward)),
        ("backward", read(&WALL.backward)),
    ]
}

/// Converts an internal time to the wall clock, for display and files.
pub(crate) fn shown(at: Timestamp) -> Timestamp {
    WALL.shown(at)
}

/// [`shown`], as seconds of Unix time.
pub(crate) fn unix_seconds(at: Timestamp) -> f64 {
    shown(at).as_seconds()
}

/// Converts a wall-clock time, such as user input, to internal time.
pub(crate) fn inside(wall: Timestamp) -> Timestamp {
    WALL.inside(wall)
}

/// Converts a time written by another clock, or by ours before or after a step; the nearest to now is used.
pub(crate) fn placed(at: Timestamp, now: Timestamp) -> Timestamp {
    WALL.placed(at, now)
}

/// Converts a time from a file of an earlier run; times in the future are limited to now.
pub(crate) fn restored(wall: Timestamp) -> Timestamp {
    inside(wall).min(now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_step_is_counted_once_and_displayed_and_internal_time_continues() {
        let wall = Wall::new();
        let begun = Timestamp(100 * HOUR);
        // A small offset is not a step.
        assert_eq!(wall.look(begun, Timestamp(begun.0 + 200)), None);
        assert_eq!(wall.shown(begun), begun);
        let later = Timestamp(begun.0 + 5_000);
        let back = Timestamp(later.0 - HOUR);
        assert_eq!(wall.look(later, back), Some(-(HOUR as i64)));
        assert_eq!(wall.look(later, back), None, "once");
        assert_eq!(wall.shown(later), back);
        assert_eq!(wall.inside(back), later);
        assert_eq!(wall.look(later, later), Some(HOUR as i64));
        assert_eq!(wall.shown(later), later);
        let counts = [&wall.forward, &wall.backward].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1]);
    }

    #[test]
    fn times_of_other_clocks_are_used_directly_or_converted_whichever_is_nearer() {
        let wall = Wall::new();
        let now = Timestamp(100 * HOUR);
        wall.look(now, Timestamp(now.0 - HOUR));
        // By a clock without a step, and by ours before and after the step.
        for at in [now.0 - 1_000, now.0 - 300_000, now.0 - HOUR - 1_000] {
            let placed = wall.placed(Timestamp(at), now);
            assert!(now.seconds_since(placed) <= 300.0, "{at}: {placed:?}");
        }
    }

    #[test]
    fn internal_time_never_decreases() {
        let first = now();
        assert!(now() >= first);
        assert!(restored(Timestamp(u64::MAX)) >= first);
        assert!(restored(Timestamp(u64::MAX)) <= now());
    }
}
