//! The two clocks of probes: one that never jumps, for timeouts, and the system's, in which the kernel stamps datagrams.

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::flow::Now;

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Both at this instant.
pub(super) fn now() -> Now {
    Now {
        steady: nanos(clock_gettime(ClockId::Monotonic)),
        system: system(),
    }
}

/// The system's.
pub(super) fn system() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// In 64 bits until the year 2554; a clock set to before 1970 says 1970.
fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}
