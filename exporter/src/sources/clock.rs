//! The kernel's clocks as numbers.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// What a clock shows, nanoseconds: in 64 bits until the year 2554. One that was set to before 1970 reports
/// 1970.
pub(super) fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}
