//! The time that the collector reckons with, which never jumps, and the wall clock, which is only shown.
//!
//! Whoever measures how old something is must not depend on a clock that somebody sets. All timestamps inside are the wall
//! clock when the process began, and the monotonic clock since. When the wall clock steps, what is shown steps with it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use railscope_model::fabric::Timestamp;

/// A wall clock that differs by so much more from ours was set: what NTP corrects by turning is less, and ours is turned alike.
const STEP_MILLIS: i64 = 500;

static BEGUN: LazyLock<(Instant, Timestamp)> = LazyLock::new(|| (Instant::now(), system_time()));
static WALL: Wall = Wall::new();

/// How the wall clock stands to the time inside.
#[derive(Debug)]
struct Wall {
    /// What the wall clock is ahead of it, ms.
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

    /// Looks at the wall clock; by how many ms it was set, if it was.
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

/// The moment, by the time inside.
pub(crate) fn now() -> Timestamp {
    let (begun, at) = *BEGUN;
    let since = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Timestamp(at.0.saturating_add(since))
}

/// Looks whether somebody has set the wall clock, and says so.
pub(crate) fn look() {
    if let Some(millis) = WALL.look(now(), system_time()) {
        tracing::warn!(
            seconds = millis as f64 / 1e3,
            "the wall clock was set: times that are shown follow it, nothing else does"
        );
    }
}

/// How often the wall clock was set, by direction.
pub(crate) fn steps() -> [(&'static str, u64); 2] {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    [
        ("forward", read(&WALL.forward)),
        ("backward", read(&WALL.backward)),
    ]
}

/// A time inside as people are shown it, and as it is kept in files.
pub(crate) fn shown(at: Timestamp) -> Timestamp {
    WALL.shown(at)
}

/// [`shown`], as seconds of Unix time.
pub(crate) fn unix_seconds(at: Timestamp) -> f64 {
    shown(at).as_seconds()
}

/// A time that people have written, by the time inside.
pub(crate) fn inside(wall: Timestamp) -> Timestamp {
    WALL.inside(wall)
}

/// A time that somebody else's clock wrote, or ours before it was set: whichever is nearer to now.
pub(crate) fn placed(at: Timestamp, now: Timestamp) -> Timestamp {
    WALL.placed(at, now)
}

/// A time out of a file of an earlier run: what seems to lie ahead was written by another clock.
pub(crate) fn restored(wall: Timestamp) -> Timestamp {
    inside(wall).min(now())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_clock_that_is_set_is_counted_once_and_shown_and_time_inside_goes_on() {
        let wall = Wall::new();
        let begun = Timestamp(100 * HOUR);
        // A clock that is turned a little is none that is set.
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
    fn times_of_others_are_taken_as_they_are_or_by_our_clock_whichever_is_nearer() {
        let wall = Wall::new();
        let now = Timestamp(100 * HOUR);
        wall.look(now, Timestamp(now.0 - HOUR));
        // By a clock that was not set, by ours before and after it was.
        for at in [now.0 - 1_000, now.0 - 300_000, now.0 - HOUR - 1_000] {
            let placed = wall.placed(Timestamp(at), now);
            assert!(now.seconds_since(placed) <= 300.0, "{at}: {placed:?}");
        }
    }

    #[test]
    fn time_inside_never_goes_back() {
        let first = now();
        assert!(now() >= first);
        assert!(restored(Timestamp(u64::MAX)) >= first);
        assert!(restored(Timestamp(u64::MAX)) <= now());
    }
}
