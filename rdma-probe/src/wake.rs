//! Whether a thread looked at what had come as soon as it came. Pure: its caller reads the clocks.

/// A thread that woke so much later than it wanted to, for another reason than that it waited for a CPU, was stopped. What
/// came meanwhile has no time.
const STOPPED_NANOS: u64 = 2_000_000;
/// One that was delayed so long may have missed answers, and gives up no probe.
const HELD_UP_NANOS: u64 = 20_000_000;

/// Clocks of one thread, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clocks {
    /// The host's steady clock.
    pub host: u64,
    /// CPU time of the thread so far.
    pub worked: u64,
    /// How long it has waited for a CPU so far.
    pub waited: u64,
}

/// What a thread knows of itself when it wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// When the thread could have run: as it woke, less the time that it waited for a CPU.
    pub ready_nanos: u64,
    /// How much later than it would have by itself it looked at what had come: it was stopped while it slept, or before.
    pub late_nanos: u64,
    /// How long it waited for a CPU.
    pub waited_nanos: u64,
}

impl Wake {
    /// Of a thread that last woke at `before`, then worked, and slept from `slept`, until `wanted_nanos` by the host's clock at
    /// the latest.
    ///
    /// A stop shows in one of two ways. While the thread sleeps, it wakes too late; a stop within that sleep's length does not
    /// show. While it works, more time passes than it works and waits for a CPU.
    pub fn of(before: Clocks, slept: Clocks, wanted_nanos: u64, woke: Clocks) -> Self {
        let waited_nanos = woke
            .waited
            .saturating_sub(slept.waited)
            .min(woke.host.saturating_sub(slept.host));
        let ready_nanos = woke.host - waited_nanos;
        let accounted = (slept.worked.saturating_sub(before.worked))
            + (slept.waited.saturating_sub(before.waited));
        let awake = slept.host.saturating_sub(before.host);
        let overslept = ready_nanos.saturating_sub(wanted_nanos);
        Self {
            ready_nanos,
            late_nanos: overslept.max(awake.saturating_sub(accounted)),
            waited_nanos,
        }
    }

    /// Whether what came has no time.
    pub fn was_stopped(self) -> bool {
        self.late_nanos >= STOPPED_NANOS
    }

    /// Whether answers may have been missed.
    pub fn was_held_up(self) -> bool {
        self.delay_nanos() >= HELD_UP_NANOS
    }

    /// How long what came may have been here before the thread looked.
    pub fn delay_nanos(self) -> u64 {
        self.late_nanos + self.waited_nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn clocks(host: u64, worked: u64, waited: u64) -> Clocks {
        Clocks {
            host: host * MS,
            worked: worked * MS,
            waited: waited * MS,
        }
    }

    /// Of a thread that woke at 0 and wanted to sleep until 100 ms after it fell asleep.
    fn wake(slept: Clocks, woke: Clocks) -> Wake {
        Wake::of(Clocks::default(), slept, slept.host + 100 * MS, woke)
    }

    #[test]
    fn a_thread_that_a_packet_wakes_is_not_late() {
        let wake = wake(clocks(3, 3, 0), clocks(40, 3, 0));
        assert_eq!((wake.ready_nanos, wake.late_nanos), (40 * MS, 0));
        assert!(!wake.was_stopped() && !wake.was_held_up());
    }

    #[test]
    fn a_wait_for_a_cpu_is_taken_off_and_is_no_stop() {
        let wake = wake(clocks(9, 3, 6), clocks(60, 3, 36));
        assert_eq!((wake.ready_nanos, wake.late_nanos), (30 * MS, 0));
        assert!(!wake.was_stopped());
        assert!(wake.was_held_up(), "answers may have come meanwhile");
    }

    #[test]
    fn a_stop_shows_wherever_the_thread_was() {
        // Asleep: it wakes 2,900 ms later than it wanted to.
        let asleep = wake(clocks(0, 0, 0), clocks(3_000, 0, 0));
        assert_eq!(asleep.late_nanos, 2_900 * MS);
        // At work: nothing is late by what it wanted, for it wanted that afterwards.
        let at_work = wake(clocks(3_003, 3, 0), clocks(3_004, 3, 0));
        assert_eq!(at_work.late_nanos, 3_000 * MS);
        for wake in [asleep, at_work] {
            assert!(wake.was_stopped() && wake.was_held_up());
        }
    }
}
