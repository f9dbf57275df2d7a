//! One flow: probes in flight, and the results of the others. Pure: time comes in as an argument.

use std::collections::VecDeque;

use super::control::Stamps;

/// What became of the probes of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answered or given up.
    pub sent: u64,
    /// Not answered in time.
    pub lost: u64,
    /// Answered, after a round trip above the threshold.
    pub slow: u64,
}

/// What is lost, and what is slow; nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub timeout_nanos: u64,
    pub slow_nanos: u64,
}

/// Two clocks at one instant, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Now {
    /// Never jumps.
    pub steady: u64,
    /// The system's, in which the kernel stamps datagrams.
    pub system: u64,
}

/// A probe that was sent.
#[derive(Debug, Clone, Copy)]
struct Asked {
    sequence: u64,
    at: Now,
    /// Its number among what the socket has sent; none if their count has restarted since.
    number: Option<u32>,
    /// When it left.
    left: Stamps,
}

impl Asked {
    /// Nanoseconds from departure to arrival, between `residence` and `waited`: by the NIC's clock if it stamped both, else by
    /// the kernel's. None if the system's clock was set meanwhile: the difference is then too large, or negative.
    fn took(&self, arrived: Stamps, residence: u64, waited: u64) -> Option<u64> {
        let left = self.left.kernel.unwrap_or(self.at.system);
        let kernel = arrived.kernel?.checked_sub(left)?;
        let kernel = Some(kernel).filter(|took| *took <= waited)?;
        let nic = arrived.nic.zip(self.left.nic);
        let nic = nic.and_then(|(arrived, left)| arrived.checked_sub(left));
        // The kernel stamps before the NIC sends and after it has received, so a longer time is of another datagram, or of a clock
        // that was set.
        let nic = nic.filter(|took| (residence..=kernel).contains(took));
        Some(nic.unwrap_or(kernel))
    }
}

/// The result of a completed probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Answered in time; with the round trip without the time in the node that answered, nanoseconds, where all
    /// timestamps are there and agree.
    Answered(Option<u64>),
    /// Given up.
    Lost,
}

/// A flow.
#[derive(Debug, Default)]
pub(super) struct Flow {
    asked: VecDeque<Asked>,
    next: u64,
    counts: Counts,
}

impl Flow {
    /// The sequence number of the probe that is sent next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The probe was sent at this time, as the socket's so-and-so-many-th datagram.
    pub(super) fn asked(&mut self, at: Now, number: u32) {
        self.asked.push_back(Asked {
            sequence: self.next,
            at,
            number: Some(number),
            left: Stamps::default(),
        });
        self.next += 1;
    }

    /// The socket's so-and-so-many-th datagram left at this time; each clock may report by itself.
    pub(super) fn left(&mut self, number: u32, at: Stamps) {
        let of = |asked: &&mut Asked| asked.number == Some(number);
        if let Some(asked) = self.asked.iter_mut().rev().find(of) {
            // A number that was taken for another's would be reported by its time.
            let kernel = at.kernel.filter(|at| *at >= asked.at.system);
            asked.left.kernel = asked.left.kernel.or(kernel);
            asked.left.nic = asked.left.nic.or(at.nic);
        }
    }

    /// Datagrams are numbered again.
    pub(super) fn forget_numbers(&mut self) {
        for asked in &mut self.asked {
            asked.number = None;
        }
    }

    /// Nothing is waited for any more, and nothing of that is counted.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }

    /// A reply that arrived at this time. None if no probe waits for it.
    pub(super) fn answered(
        &mut self,
        sequence: u64,
        arrived: Stamps,
        residence: Option<u64>,
        now: Now,
        limits: Limits,
    ) -> Option<Outcome> {
        let place = self
            .asked
            .iter()
            .position(|asked| asked.sequence == sequence)?;
        let asked = self.asked.remove(place)?;
        let waited = now.steady.saturating_sub(asked.at.steady);
        let took = asked.took(arrived, residence.unwrap_or(0), waited);
        self.counts.sent += 1;
        if took.unwrap_or(waited) > limits.timeout_nanos {
            self.counts.lost += 1;
            return Some(Outcome::Lost);
        }
        let round_trip = took.zip(residence);
        let round_trip = round_trip.and_then(|(took, residence)| took.checked_sub(residence));
        if round_trip.is_some_and(|nanos| nanos > limits.slow_nanos) {
            self.counts.slow += 1;
        }
        Some(Outcome::Answered(round_trip))
    }

    /// Gives up probes without a reply in time; returns how many. What has arrived must have been reported
    /// before.
    pub(super) fn give_up(&mut self, now: Now, limits: Limits) -> u64 {
        let mut lost = 0;
        while self.deadline(limits).is_some_and(|at| at < now.steady) {
            self.asked.pop_front();
            lost += 1;
        }
        self.counts.sent += lost;
        self.counts.lost += lost;
        lost
    }

    /// Deadline of the oldest probe, steady clock; none if no probe is in flight.
    pub(super) fn deadline(&self, limits: Limits) -> Option<u64> {
        let oldest = self.asked.front()?;
        Some(oldest.at.steady.saturating_add(limits.timeout_nanos))
    }

    /// What became of its probes so far.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    /// The system's clock is so far before the steady one.
    const EPOCH: u64 = 1_700_000_000_000_000_000;
    const LIMITS: Limits = Limits {
        timeout_nanos: 500 * MS,
        slow_nanos: 100 * US,
    };

    fn at(steady: u64) -> Now {
        Now {
            steady,
            system: EPOCH + steady,
        }
    }

    fn kernel(at: u64) -> Stamps {
        Stamps {
            kernel: Some(at),
            nic: None,
        }
    }

    /// Result of one probe that left and arrived so long after it was sent, that spent so long in the other node,
    /// and that was read after so much time had passed; microseconds.
    fn one([left, arrived, residence]: [Option<u64>; 3], looked: u64) -> (Outcome, [u64; 3]) {
        let mut flow = Flow::default();
        let sent = at(10 * MS);
        flow.asked(sent, 0);
        if let Some(left) = left {
            flow.left(0, kernel(sent.system + left * US));
        }
        let arrived = arrived.map(|arrived| sent.system + arrived * US);
        let arrived = Stamps {
            kernel: arrived,
            nic: None,
        };
        let residence = residence.map(|residence| residence * US);
        let now = at(10 * MS + looked * US);
        let outcome = flow.answered(0, arrived, residence, now, LIMITS);
        let Counts { sent, lost, slow } = flow.counts();
        (outcome.expect("it is waited for"), [sent, lost, slow])
    }

    fn counts(sent: u64, lost: u64, slow: u64) -> Counts {
        Counts { sent, lost, slow }
    }

    #[test]
    fn a_round_trip_is_from_departure_to_arrival_without_the_time_in_the_other_node() {
        const LOST: Outcome = Outcome::Lost;
        const NO_TIME: Outcome = Outcome::Answered(None);
        let took = |micros: u64| Outcome::Answered(Some(micros * US));
        for (times, looked, outcome, counts) in [
            ([Some(5), Some(65), Some(20)], 20_000, took(40), [1, 0, 0]),
            // Without the kernel's timestamp of when it left: since before it was sent.
            ([None, Some(65), Some(20)], 20_000, took(45), [1, 0, 0]),
            // The other node took long; the network did not.
            (
                [Some(0), Some(90_000), Some(89_950)],
                99_000,
                took(50),
                [1, 0, 0],
            ),
            ([Some(0), Some(101), Some(0)], 20_000, took(101), [1, 0, 1]),
            ([Some(0), Some(100), Some(0)], 20_000, took(100), [1, 0, 0]),
            // It arrived in time and was read late.
            (
                [Some(0), Some(499_000), Some(0)],
                900_000,
                took(499_000),
                [1, 0, 1],
            ),
            // It came late.
            ([Some(0), Some(501_000), Some(0)], 600_000, LOST, [1, 1, 0]),
            // Nothing is known of one end, or the ends disagree: answered, but no time.
            ([Some(0), Some(60), None], 20_000, NO_TIME, [1, 0, 0]),
            ([Some(0), None, Some(0)], 20_000, NO_TIME, [1, 0, 0]),
            ([Some(0), None, Some(0)], 600_000, LOST, [1, 1, 0]),
            ([Some(0), Some(60), Some(70)], 20_000, NO_TIME, [1, 0, 0]),
            // The system's clock was set back, or forth.
            ([Some(20), Some(0), Some(0)], 20_000, NO_TIME, [1, 0, 0]),
            (
                [Some(0), Some(3_600_000_000), Some(0)],
                20_000,
                NO_TIME,
                [1, 0, 0],
            ),
        ] {
            assert_eq!(one(times, looked), (outcome, counts), "{times:?}");
        }
    }

    /// The round trip in microseconds of a probe that by the kernel's clock took 80 us, 10 of them in the other node, and that left
    /// and arrived at these times of the NIC's clock.
    fn by_the_nic(left: Option<u64>, arrived: Option<u64>) -> Option<u64> {
        let mut flow = Flow::default();
        let sent = at(10 * MS);
        flow.asked(sent, 0);
        // Each timestamp of a departure comes in a separate message, the kernel's first.
        flow.left(0, kernel(sent.system + 5 * US));
        let nic = left.map(|left| left * US);
        flow.left(0, Stamps { kernel: None, nic });
        let arrived = Stamps {
            nic: arrived.map(|arrived| arrived * US),
            ..kernel(sent.system + 85 * US)
        };
        let outcome = flow.answered(0, arrived, Some(10 * US), at(30 * MS), LIMITS);
        match outcome.expect("it is waited for") {
            Outcome::Answered(took) => took.map(|nanos| nanos / US),
            Outcome::Lost => None,
        }
    }

    #[test]
    fn a_round_trip_is_by_the_nics_clock_where_it_stamped_both_ends() {
        assert_eq!(by_the_nic(Some(1_000), Some(1_050)), Some(40));
        // One end only, or a clock that was set: the kernel's.
        assert_eq!(by_the_nic(Some(1_000), None), Some(70));
        assert_eq!(by_the_nic(None, Some(1_050)), Some(70));
        assert_eq!(by_the_nic(Some(1_000), Some(900)), Some(70));
        assert_eq!(by_the_nic(Some(1_000), Some(1_081)), Some(70));
        assert_eq!(by_the_nic(Some(1_000), Some(1_009)), Some(70));
    }

    #[test]
    fn what_is_not_answered_in_time_is_lost_once_and_a_late_answer_is_nothing() {
        let mut flow = Flow::default();
        for number in 0..3 {
            flow.asked(at(u64::from(number) * 100 * MS), number);
        }
        assert_eq!(flow.deadline(LIMITS), Some(500 * MS));
        assert_eq!(flow.give_up(at(500 * MS), LIMITS), 0);
        assert_eq!(flow.give_up(at(650 * MS), LIMITS), 2);
        assert_eq!(flow.counts(), counts(2, 2, 0));
        let late = flow.answered(0, Stamps::default(), None, at(660 * MS), LIMITS);
        assert_eq!((late, flow.counts()), (None, counts(2, 2, 0)));
        let good = flow.answered(2, Stamps::default(), None, at(660 * MS), LIMITS);
        assert_eq!(good, Some(Outcome::Answered(None)));
        let again = flow.answered(2, Stamps::default(), None, at(661 * MS), LIMITS);
        assert_eq!((again, flow.counts()), (None, counts(3, 2, 0)));
        assert_eq!(flow.deadline(LIMITS), None);
    }

    #[test]
    fn departures_of_before_the_numbers_began_anew_are_not_those_of_after() {
        let mut flow = Flow::default();
        flow.asked(at(0), 7);
        flow.forget_numbers();
        flow.asked(at(100 * MS), 7);
        flow.left(7, kernel(EPOCH + 100 * MS + 3 * US));
        let first = flow.answered(0, kernel(EPOCH + 40 * US), Some(0), at(110 * MS), LIMITS);
        assert_eq!(first, Some(Outcome::Answered(Some(40 * US))));
        let second = flow.answered(
            1,
            kernel(EPOCH + 100 * MS + 40 * US),
            Some(0),
            at(110 * MS),
            LIMITS,
        );
        assert_eq!(second, Some(Outcome::Answered(Some(37 * US))));
    }

    #[test]
    fn a_departure_before_it_was_sent_is_anothers() {
        let mut flow = Flow::default();
        flow.asked(at(100 * MS), 0);
        flow.left(0, kernel(EPOCH + 99 * MS));
        let arrived = kernel(EPOCH + 100 * MS + 40 * US);
        let outcome = flow.answered(0, arrived, Some(0), at(110 * MS), LIMITS);
        assert_eq!(outcome, Some(Outcome::Answered(Some(40 * US))));
    }

    proptest! {
        /// Whatever arrives in any order: every probe is counted once, and none is lost.
        #[test]
        fn every_probe_ends_once(events in proptest::collection::vec((0_u8..4, 0_u64..40, 0_u64..300), 0..200)) {
            let (mut flow, mut now) = (Flow::default(), 0);
            for (what, sequence, later) in events {
                now += later * MS;
                match what {
                    0 | 1 => flow.asked(at(now), sequence as u32),
                    2 => flow.left(sequence as u32, kernel(EPOCH + now)),
                    _ => {
                        flow.answered(sequence, kernel(EPOCH + now), Some(0), at(now), LIMITS);
                        flow.give_up(at(now), LIMITS);
                    }
                }
                let counts = flow.counts();
                prop_assert_eq!(counts.sent + flow.asked.len() as u64, flow.next());
                prop_assert!(counts.lost + counts.slow <= counts.sent);
            }
            flow.give_up(at(now + 501 * MS), LIMITS);
            prop_assert_eq!(flow.counts().sent, flow.next());
        }
    }
}
