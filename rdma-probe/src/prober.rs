//! Schedule and results of the probes of one device. Pure: its caller has the clock and sends the packets.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::rate_limit::Bucket;
use railscope_model::rdma_probe::{Endpoint, Plan};

use crate::wire::{Packet, ProbeId, Residence};

/// Probes of one device that wait for an answer at once. More are not sent, and counted as limited.
const MOST_OUTSTANDING: usize = 4_096;
/// Probes that one visit sends: the send queue has room for them, and what came is looked at between two visits.
const MOST_AT_ONCE: usize = 64;

/// When something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// By the host's steady clock, nanoseconds: when the process looked.
    pub host_nanos: u64,
    /// By the NIC's own clock, nanoseconds; none where it takes no timestamps.
    pub nic_nanos: Option<u64>,
    /// Whether the process looked much later than it had meant to: it was stopped, or short of CPU.
    pub delayed: bool,
}

/// A probe to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The flow's number.
    pub flow: u32,
    /// The packet.
    pub id: ProbeId,
    /// Where it goes.
    pub peer: Endpoint,
    /// With which flow label.
    pub flow_label: u32,
}

/// What became of probes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// See [`Report::answered`](railscope_model::rdma_probe::Report::answered).
    pub answered: Vec<(u32, Option<u64>)>,
    /// See [`Report::lost`](railscope_model::rdma_probe::Report::lost).
    pub lost: Vec<u32>,
    /// Answers to no outstanding probe, or from another queue pair than was asked.
    pub unexpected: u64,
    /// Probes that were due and not sent.
    pub limited: u64,
}

#[derive(Debug)]
struct Flow {
    id: u32,
    peer: Endpoint,
    flow_label: u32,
    due_nanos: u64,
}

#[derive(Debug)]
struct Asked {
    flow: u32,
    queue_pair: u32,
    /// Just before it was handed to the driver.
    at_nanos: u64,
    /// When it left, by the NIC's clock.
    left_nanos: Option<u64>,
    /// When the answer came, if how long it took there is still to follow.
    answered: Option<Moment>,
}

/// The probes of one device.
#[derive(Debug)]
pub struct Prober {
    token: u64,
    sequence: u64,
    dice: u64,
    interval_nanos: u64,
    timeout_nanos: u64,
    flows: Vec<Flow>,
    asked: BTreeMap<u64, Asked>,
    limit: Bucket,
    outcomes: Outcomes,
}

impl Prober {
    /// Without flows yet. The token is a random number.
    pub fn new(token: u64, per_second: u64, now_nanos: u64) -> Self {
        Self {
            token,
            sequence: 0,
            dice: token | 1,
            interval_nanos: u64::MAX,
            timeout_nanos: u64::MAX,
            flows: Vec::new(),
            asked: BTreeMap::new(),
            limit: Bucket::new(per_second, now_nanos),
            outcomes: Outcomes::default(),
        }
    }

    /// Applies another plan. Flows whose endpoint is the same go on; new ones begin within one interval. Probes to an
    /// endpoint that is no longer in the plan are forgotten.
    pub fn follow(&mut self, plan: &Plan, device: &str, now_nanos: u64) {
        let before: BTreeMap<u32, Flow> =
            self.flows.drain(..).map(|flow| (flow.id, flow)).collect();
        self.interval_nanos = plan.interval_nanos.max(1);
        self.timeout_nanos = plan.timeout_nanos;
        for wanted in plan.flows.iter().filter(|flow| flow.device == device) {
            let known = before.get(&wanted.id);
            let due_nanos = match known.filter(|flow| flow.peer == wanted.peer) {
                Some(flow) => flow
                    .due_nanos
                    .min(now_nanos.saturating_add(self.interval_nanos)),
                None => now_nanos.saturating_add((self.roll() * self.interval_nanos as f64) as u64),
            };
            self.flows.push(Flow {
                id: wanted.id,
                peer: wanted.peer,
                flow_label: wanted.flow_label,
                due_nanos,
            });
        }
        let ends = self
            .flows
            .iter()
            .map(|flow| (flow.id, flow.peer.queue_pair));
        let ends: BTreeSet<(u32, u32)> = ends.collect();
        self.asked
            .retain(|_, asked| ends.contains(&(asked.flow, asked.queue_pair)));
    }

    /// When the next probe is due, or the next one is given up: host's clock.
    pub fn wake_nanos(&self) -> u64 {
        let due = self.flows.iter().map(|flow| flow.due_nanos).min();
        let oldest = self.asked.values().next();
        let given_up = oldest.map(|asked| asked.at_nanos.saturating_add(self.timeout_nanos));
        due.into_iter().chain(given_up).min().unwrap_or(u64::MAX)
    }

    /// Probes that are due; their caller says of each when it is [`sent`](Self::sent), or leaves it.
    pub fn due(&mut self, now_nanos: u64) -> Vec<Due> {
        let mut due = Vec::new();
        for place in 0..self.flows.len() {
            if self.flows[place].due_nanos > now_nanos || due.len() == MOST_AT_ONCE {
                continue;
            }
            // 10 % more or less, so that probes of many nodes do not synchronize.
            let pause = self.interval_nanos as f64 * (0.9 + 0.2 * self.roll());
            let flow = &mut self.flows[place];
            flow.due_nanos = now_nanos.saturating_add(pause as u64);
            if self.asked.len() + due.len() >= MOST_OUTSTANDING || !self.limit.take(now_nanos) {
                self.outcomes.limited += 1;
                continue;
            }
            self.sequence += 1;
            due.push(Due {
                flow: flow.id,
                id: ProbeId {
                    token: self.token,
                    sequence: self.sequence,
                },
                peer: flow.peer,
                flow_label: flow.flow_label,
            });
        }
        due
    }

    /// A probe was handed to the driver; `at_nanos` is from just before.
    pub fn sent(&mut self, due: &Due, at_nanos: u64) {
        let asked = Asked {
            flow: due.flow,
            queue_pair: due.peer.queue_pair,
            at_nanos,
            left_nanos: None,
            answered: None,
        };
        self.asked.insert(due.id.sequence, asked);
    }

    /// A probe was not taken by the driver.
    pub fn not_sent(&mut self) {
        self.outcomes.limited += 1;
    }

    /// A probe left, by the NIC's clock.
    pub fn left(&mut self, sequence: u64, nic_nanos: u64) {
        if let Some(asked) = self.asked.get_mut(&sequence) {
            asked.left_nanos = Some(nic_nanos);
        }
    }

    /// A packet came from this queue pair.
    pub fn arrived(&mut self, packet: Packet, queue_pair: u32, moment: Moment) {
        let (id, residence, comes_first) = match packet {
            Packet::Question(..) => {
                self.outcomes.unexpected += 1;
                return;
            }
            Packet::Answer(id, residence) => (id, residence, true),
            Packet::Time(id, residence) => (id, residence, false),
        };
        let asked = (self.asked.get_mut(&id.sequence)).filter(|asked| {
            let waits = asked.answered.is_none() == comes_first;
            id.token == self.token && asked.queue_pair == queue_pair && waits
        });
        let Some(asked) = asked else {
            self.outcomes.unexpected += 1;
            return;
        };
        if residence == Residence::Follows {
            asked.answered = Some(moment);
            return;
        }
        let moment = asked.answered.unwrap_or(moment);
        let took = round_trip(asked, moment, residence);
        self.outcomes.answered.push((asked.flow, took));
        self.asked.remove(&id.sequence);
    }

    /// Gives up what has waited for too long. If the process was delayed it may have missed answers, and it gives up nothing:
    /// such probes are forgotten.
    pub fn give_up(&mut self, now_nanos: u64, delayed: bool) {
        let Some(until) = now_nanos.checked_sub(self.timeout_nanos) else {
            return;
        };
        while let Some(oldest) = self.asked.first_entry()
            && oldest.get().at_nanos <= until
        {
            let asked = oldest.remove();
            match asked.answered {
                // The answer came; what is lost is only how long it took there.
                Some(_) => self.outcomes.answered.push((asked.flow, None)),
                None if delayed => {}
                None => self.outcomes.lost.push(asked.flow),
            }
        }
    }

    /// What became of probes since this was last asked.
    pub fn outcomes(&mut self) -> Outcomes {
        std::mem::take(&mut self.outcomes)
    }

    /// A number between 0 and 1: xorshift64.
    fn roll(&mut self) -> f64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Time in the network: by the NIC's clock where it stamped both packets, else by the host's.
fn round_trip(asked: &Asked, moment: Moment, residence: Residence) -> Option<u64> {
    let Residence::Nanos(residence) = residence else {
        return None;
    };
    let took = match asked.left_nanos.zip(moment.nic_nanos) {
        Some((left, came)) => came.checked_sub(left)?,
        None if moment.delayed => return None,
        None => moment.host_nanos.checked_sub(asked.at_nanos)?,
    };
    took.checked_sub(residence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use railscope_model::rdma_probe::PlannedFlow;

    const MS: u64 = 1_000_000;
    const TOKEN: u64 = 77;

    fn plan(queue_pairs: &[u32]) -> Plan {
        let flows = queue_pairs
            .iter()
            .zip(0..)
            .map(|(queue_pair, id)| PlannedFlow {
                id,
                device: "rxe0".to_owned(),
                flow_label: id,
                peer: Endpoint {
                    gid: "::ffff:10.0.0.2".parse().expect("an address"),
                    lid: 0,
                    queue_pair: *queue_pair,
                    queue_key: 1,
                },
            });
        Plan {
            interval_nanos: 100 * MS,
            timeout_nanos: 500 * MS,
            flows: flows.collect(),
            ..Plan::default()
        }
    }

    fn prober(queue_pairs: &[u32]) -> Prober {
        let mut prober = Prober::new(TOKEN, 1_000, 0);
        prober.follow(&plan(queue_pairs), "rxe0", 0);
        prober
    }

    /// Sends what is due.
    fn ask(prober: &mut Prober, now: u64) -> Vec<Due> {
        let due = prober.due(now);
        for one in &due {
            prober.sent(one, now);
        }
        due
    }

    fn host(host_nanos: u64) -> Moment {
        Moment {
            host_nanos,
            ..Moment::default()
        }
    }

    #[test]
    fn the_time_in_the_other_node_and_in_this_one_is_not_in_a_round_trip() {
        let late = Moment {
            delayed: true,
            ..host(160 * MS)
        };
        let stamped = |delayed| Moment {
            host_nanos: 190 * MS,
            nic_nanos: Some(7_000 + 9 * MS),
            delayed,
        };
        let took = Residence::Nanos(MS);
        for (left, moment, residence, expected) in [
            (None, host(105 * MS), took, Some(4 * MS)),
            (None, host(105 * MS), Residence::Unknown, None),
            (None, host(105 * MS), Residence::Nanos(6 * MS), None),
            (None, late, took, None),
            // By the NIC's clock it does not matter when the process looked.
            (Some(7_000), stamped(true), took, Some(8 * MS)),
            (Some(7_000), stamped(false), took, Some(8 * MS)),
            (Some(7_000), host(105 * MS), took, Some(4 * MS)),
        ] {
            let mut prober = prober(&[5]);
            let due = ask(&mut prober, 100 * MS);
            if let Some(left) = left {
                prober.left(due[0].id.sequence, left);
            }
            prober.arrived(Packet::Answer(due[0].id, residence), 5, moment);
            let outcomes = prober.outcomes();
            assert_eq!(
                outcomes.answered,
                [(0, expected)],
                "{left:?} {moment:?} {residence:?}"
            );
        }
    }

    #[test]
    fn an_answer_whose_time_follows_ends_with_it_or_without_a_time() {
        let mut prober = prober(&[5]);
        let first = ask(&mut prober, 100 * MS)[0];
        let second = ask(&mut prober, 300 * MS)[0];
        // A time before its answer is unexpected.
        prober.arrived(
            Packet::Time(first.id, Residence::Nanos(1)),
            5,
            host(101 * MS),
        );
        prober.arrived(
            Packet::Answer(first.id, Residence::Follows),
            5,
            host(104 * MS),
        );
        prober.arrived(
            Packet::Answer(first.id, Residence::Follows),
            5,
            host(105 * MS),
        );
        prober.arrived(
            Packet::Time(first.id, Residence::Nanos(MS)),
            5,
            host(109 * MS),
        );
        prober.arrived(
            Packet::Answer(second.id, Residence::Follows),
            5,
            host(304 * MS),
        );
        prober.give_up(900 * MS, false);
        let outcomes = prober.outcomes();
        assert_eq!(outcomes.answered, [(0, Some(3 * MS)), (0, None)]);
        assert_eq!((outcomes.lost, outcomes.unexpected), (vec![], 2));
    }

    #[test]
    fn forged_and_replayed_answers_are_counted_and_change_nothing() {
        let mut prober = prober(&[5]);
        let due = ask(&mut prober, 100 * MS)[0];
        let answer = |id| Packet::Answer(id, Residence::Nanos(0));
        let other = |token, sequence| ProbeId { token, sequence };
        for (packet, queue_pair) in [
            (answer(other(TOKEN + 1, due.id.sequence)), 5),
            (answer(other(TOKEN, due.id.sequence + 1)), 5),
            (answer(due.id), 6),
            (Packet::Question(due.id, 1), 5),
        ] {
            prober.arrived(packet, queue_pair, host(101 * MS));
        }
        prober.arrived(answer(due.id), 5, host(102 * MS));
        prober.arrived(answer(due.id), 5, host(103 * MS));
        let outcomes = prober.outcomes();
        assert_eq!(outcomes.answered, [(0, Some(2 * MS))]);
        assert_eq!(outcomes.unexpected, 5);
    }

    #[test]
    fn a_process_that_was_stopped_itself_loses_no_probes() {
        for (delayed, lost) in [(true, 0), (false, 1)] {
            let mut prober = prober(&[5]);
            ask(&mut prober, 100 * MS);
            prober.give_up(599 * MS, delayed);
            assert_eq!(prober.outcomes().lost.len(), 0);
            prober.give_up(600 * MS, delayed);
            assert_eq!(prober.outcomes().lost.len(), lost, "{delayed}");
        }
    }

    #[test]
    fn an_answerer_that_is_another_now_takes_the_probes_to_the_one_before_with_it() {
        let mut prober = prober(&[5, 6]);
        assert_eq!(ask(&mut prober, 100 * MS).len(), 2);
        prober.follow(&plan(&[5, 9]), "rxe0", 110 * MS);
        prober.give_up(2_000 * MS, false);
        assert_eq!(prober.outcomes().lost, [0]);
        prober.follow(&plan(&[5]), "another", 3_000 * MS);
        assert_eq!(ask(&mut prober, 4_000 * MS), []);
        assert_eq!(prober.wake_nanos(), u64::MAX);
    }

    #[test]
    fn no_more_are_sent_than_the_limit_and_the_rest_is_counted() {
        let mut prober = Prober::new(TOKEN, 10, 0);
        prober.follow(&plan(&[5, 6, 7]), "rxe0", 0);
        assert_eq!(ask(&mut prober, 100 * MS).len(), 1);
        assert_eq!(prober.outcomes().limited, 2);
    }

    proptest! {
        /// Whatever arrives in whatever order: every probe that was sent ends once.
        #[test]
        fn every_probe_ends_once(events in proptest::collection::vec((0_u8..5, 1_u64..40, 0_u64..300), 0..200)) {
            let mut prober = prober(&[5, 6]);
            let (mut now, mut sent, mut ended) = (0, 0, 0);
            for (what, sequence, later) in events {
                now += later * MS;
                let id = ProbeId { token: TOKEN, sequence };
                match what {
                    0 | 1 => sent += ask(&mut prober, now).len(),
                    2 => prober.arrived(Packet::Answer(id, Residence::Nanos(1)), 5, host(now)),
                    3 => prober.arrived(Packet::Answer(id, Residence::Follows), 6, host(now)),
                    _ => prober.arrived(Packet::Time(id, Residence::Unknown), 6, host(now)),
                }
                let outcomes = prober.outcomes();
                ended += outcomes.answered.len() + outcomes.lost.len();
                prop_assert_eq!(ended + prober.asked.len(), sent);
            }
            prober.give_up(now + 501 * MS, false);
            let outcomes = prober.outcomes();
            prop_assert_eq!(ended + outcomes.answered.len() + outcomes.lost.len(), sent);
        }
    }
}
