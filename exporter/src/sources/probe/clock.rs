//! The two clocks of probes: one that never jumps, for timeouts, and the system's, in which the kernel stamps datagrams.

use rustix::time::ClockId;

use super::flow::Now;
use crate::sources::clock::nanos;

/// Both at this instant.
pub(super) fn now() -> Now {
    Now {
        steady: nanos(ClockId::Monotonic),
        system: system(),
    }
}

/// The system's.
pub(super) fn system() -> u64 {
    nanos(ClockId::Realtime)
}
