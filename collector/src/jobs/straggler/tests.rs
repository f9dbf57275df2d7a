//! The bound on false alarms, and the delay until a rank is named.
#![allow(clippy::expect_used, reason = "helpers of tests")]

use proptest::prelude::*;

use super::*;

/// Pseudo-random numbers: splitmix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, standard deviation one: the sum of twelve.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

fn equal_ranks(count: u32) -> Vec<Rank> {
    let rank = |number| Rank {
        number,
        ..Rank::default()
    };
    (0..count).map(rank).collect()
}

/// A synchronous step: all ranks wait for the last. Compute of a second, of `slow` more; the host takes `host` more.
fn step(
    random: &mut Random,
    ranks: usize,
    noise: f64,
    slow: (usize, f64),
    host: (usize, f64),
) -> Vec<Option<StepTimes>> {
    let compute = |rank: usize| {
        let excess = if rank == slow.0 { slow.1 } else { 0.0 };
        (1.0 + excess) * (1.0 + noise * random.normal()).max(0.1)
    };
    let compute: Vec<f64> = (0..ranks).map(compute).collect();
    let unaccounted = |rank: usize| 0.02 + if rank == host.0 { host.1 } else { 0.0 };
    let busy = compute
        .iter()
        .enumerate()
        .map(|(rank, compute)| compute + unaccounted(rank));
    let longest = busy.fold(0.0, f64::max);
    let step_seconds = longest + 0.1;
    let times = compute.iter().enumerate().map(|(rank, compute)| {
        let wait_seconds = step_seconds - compute - unaccounted(rank);
        Some(StepTimes {
            step_seconds,
            wait_seconds,
            compute_seconds: *compute,
        })
    });
    times.collect()
}

const NOBODY: (usize, f64) = (usize::MAX, 0.0);

#[test]
fn exchangeable_ranks_are_named_no_more_often_than_the_bound_says() {
    const ALARM_OF_TEST: f64 = 100.0;
    const RUNS: u64 = 500;
    let first = |seed: u64| {
        let mut random = Random(seed);
        let mut watch = WaitWatch::new(equal_ranks(8), ALARM_OF_TEST);
        // Noise of 20 % passes the gate in nearly every step, so that the bet alone bounds the rate.
        let named = (1..=20_000u64).find(|_| {
            watch.observe(&step(&mut random, 8, 0.2, NOBODY, NOBODY));
            watch.culprits().iter().any(|culprit| culprit.index == 0)
        });
        named.unwrap_or(20_000) as f64
    };
    let mean = (0..RUNS).map(first).sum::<f64>() / RUNS as f64;
    assert!(
        mean >= ALARM_OF_TEST,
        "named after {mean} steps, the bound is {ALARM_OF_TEST}"
    );
}

#[test]
fn healthy_ranks_are_never_named_at_the_alarm_of_production() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let mut watch = WaitWatch::new(equal_ranks(8), ALARM);
        for _ in 0..1000 {
            watch.observe(&step(&mut random, 8, 0.02, NOBODY, NOBODY));
            assert_eq!(watch.culprits(), []);
        }
        assert_eq!(watch.conclude(), Conclusion::NoHardwareCause);
    }
}

/// Steps until a rank is named, with the rank and the reason.
fn named(seed: u64, slow: (usize, f64), host: (usize, f64)) -> (u64, Vec<(usize, Cause)>) {
    let mut random = Random(seed);
    let mut watch = WaitWatch::new(equal_ranks(8), ALARM);
    for steps in 1..=200 {
        watch.observe(&step(&mut random, 8, 0.005, slow, host));
        let culprits = watch.culprits();
        if !culprits.is_empty() {
            let who = culprits
                .iter()
                .map(|culprit| (culprit.index, culprit.cause));
            return (steps, who.collect());
        }
    }
    (200, Vec::new())
}

#[test]
fn a_rank_five_percent_slower_among_eight_is_named_within_thirty_steps() {
    for seed in 0..100 {
        let (steps, who) = named(seed, (3, 0.05), NOBODY);
        assert_eq!(who, [(3, Cause::Gpu)], "seed {seed}");
        assert!((14..=30).contains(&steps), "seed {seed}: {steps} steps");
    }
}

#[test]
fn a_late_host_is_a_hint_and_no_gpu() {
    for seed in 0..100 {
        let (_, who) = named(seed, NOBODY, (5, 0.1));
        assert_eq!(who, [(5, Cause::HostHint)], "seed {seed}");
    }
}

#[test]
fn a_verdict_needs_the_hits_that_the_method_states_and_ends_with_its_cause() {
    for (ranks, hits) in [(4, 23), (8, 14), (16, 10), (64, 6)] {
        assert_eq!(hits_needed(ranks, ALARM.ln()), hits, "{ranks} ranks");
    }
    let mut random = Random(7);
    let mut watch = WaitWatch::new(equal_ranks(8), ALARM);
    for _ in 0..200 {
        watch.observe(&step(&mut random, 8, 0.001, (2, 0.2), NOBODY));
    }
    assert_eq!(watch.culprits().len(), 1);
    for _ in 0..31 {
        watch.observe(&step(&mut random, 8, 0.001, NOBODY, NOBODY));
    }
    assert_eq!(watch.culprits(), []);
}

#[test]
fn steps_that_too_few_report_teach_nothing() {
    let mut random = Random(1);
    let mut watch = WaitWatch::new(equal_ranks(8), ALARM);
    for _ in 0..100 {
        let mut times = step(&mut random, 8, 0.001, (2, 0.2), NOBODY);
        times[5..].fill(None);
        watch.observe(&times);
    }
    assert_eq!(watch.conclude(), Conclusion::Undecided);
}

#[test]
fn ranks_of_stages_are_never_held_against_each_other() {
    let rank = |number: u32, stage| Rank {
        number,
        stage: Some(stage),
        tensor: Some(number % 2),
        ..Rank::default()
    };
    let ranks: Vec<Rank> = (0..8).map(|number| rank(number, number / 4)).collect();
    assert_eq!(
        cohorts(&ranks),
        [vec![0, 2, 1, 3], vec![4, 6, 5, 7]],
        "too few of a place: the stage"
    );
    assert_eq!(
        cohorts(&ranks[..7]),
        [vec![0, 2, 1, 3]],
        "three of a stage are no cohort"
    );
}

#[test]
fn the_edge_is_blamed_only_if_both_sides_wait_for_the_network() {
    let zero = EdgeTimes {
        seconds: 1.0,
        ..EdgeTimes::default()
    };
    let edge = EdgeTimes {
        send_wait: 0.8,
        recv_wait: 0.9,
        ..zero
    };
    let sender = EdgeTimes {
        send_gpu_wait: 0.8,
        recv_wait: 0.9,
        ..zero
    };
    let receiver = EdgeTimes {
        send_remote_fifo_wait: 0.7,
        recv_gpu_wait: 0.6,
        ..zero
    };
    assert_eq!(edge.verdict(), EdgeVerdict::Edge);
    assert_eq!(sender.verdict(), EdgeVerdict::Sender);
    assert_eq!(receiver.verdict(), EdgeVerdict::Receiver);
    assert_eq!(
        EdgeTimes {
            recv_wait: 0.9,
            ..zero
        }
        .verdict(),
        EdgeVerdict::Unclear
    );
    assert_eq!(EdgeTimes::default().verdict(), EdgeVerdict::Unclear);
}

proptest! {
    #[test]
    fn a_union_is_no_longer_than_its_span_nor_than_its_sum(
        intervals in prop::collection::vec((0.0..100.0f64, 0.0..10.0f64), 1..30)
    ) {
        let intervals: Vec<(f64, f64)> = intervals.iter().map(|(a, length)| (*a, a + length)).collect();
        let length = union(intervals.iter().copied());
        let sum: f64 = intervals.iter().map(|(a, b)| b - a).sum();
        let longest = intervals.iter().map(|(a, b)| b - a).fold(0.0, f64::max);
        prop_assert!(length <= sum + 1e-9 && length >= longest - 1e-9 && length <= 110.0);
    }

    #[test]
    fn no_numbers_panic_or_name_anybody_alone(
        values in prop::collection::vec((any::<f64>(), any::<f64>(), any::<f64>()), 0..40)
    ) {
        let mut watch = WaitWatch::new(equal_ranks(3), ALARM);
        let times = |(step_seconds, wait_seconds, compute_seconds)| Some(StepTimes { step_seconds, wait_seconds, compute_seconds });
        let times: Vec<Option<StepTimes>> = values.into_iter().map(times).collect();
        watch.observe(&times);
        prop_assert_eq!(watch.conclude(), Conclusion::Undecided);
    }
}
