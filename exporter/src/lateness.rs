//! How late a read of a source begins.

use std::time::{Duration, Instant};

/// A read that begins later than this after it was due has waited for a CPU; what is less is how timers are. 10 % of
/// the shortest period.
const FROM: Duration = Duration::from_millis(100);

/// Time by which a read that was due, and begins now, is late; zero of one in time.
pub(crate) fn lateness(due: Instant, now: Instant) -> Duration {
    let late = now.saturating_duration_since(due);
    if late >= FROM { late } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_timer_does_not_do_by_itself_is_late() {
        let due = Instant::now();
        let late = |milliseconds| lateness(due, due + Duration::from_millis(milliseconds));
        assert_eq!([0, 99].map(late), [Duration::ZERO; 2]);
        assert_eq!(late(400), Duration::from_millis(400));
        assert_eq!(lateness(due + Duration::from_secs(1), due), Duration::ZERO);
    }
}
