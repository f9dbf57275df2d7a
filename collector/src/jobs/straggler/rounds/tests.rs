//! Rounds of several kinds of collectives.

use railscope_model::fabric::Timestamp;

use super::*;
use crate::jobs::job::Jobs;
use crate::jobs::straggler::{Answer, Waits};
use crate::store::History;

const RANKS: u32 = 8;

fn operation(rank: u32, kind: &str, number: u64, seconds: f64, end: f64) -> Operation {
    Operation {
        process: Process {
            host: format!("n{}", rank / 4).into(),
            pid: u64::from(100 + rank),
        },
        member: Membership {
            communicator: "0x7f".into(),
            name: None,
            rank,
            ranks: RANKS,
            hosts: 2,
        },
        name: kind.into(),
        number: Some(number),
        bytes: 1 << 20,
        seconds,
        begin: None,
        end: f64::from(1000 * rank) + end, // clocks of hosts need not agree
    }
}

/// One step, a second long, of a rank: by kind, how many collectives, and the seconds in all of them.
fn step(rank: u32, second: u64, kinds: &[(&str, u64, f64)]) -> Vec<Operation> {
    let noise = 0.001 * ((second * 7 + u64::from(rank) * 13) % 11) as f64;
    let of_kind = |(kind, count, seconds): &(&str, u64, f64)| {
        let each = (seconds + noise) / *count as f64;
        let numbers = second * count..(second + 1) * count;
        let all = numbers.map(|number| operation(rank, kind, number, each, second as f64));
        all.collect::<Vec<_>>()
    };
    kinds.iter().flat_map(of_kind).collect()
}

#[test]
fn kinds_of_collectives_with_the_same_numbers_do_not_hide_a_rank_that_waits_less() {
    for kinds in [
        [("ReduceScatter", 4, 0.2), ("AllGather", 4, 0.2)],
        [("AllGather", 16, 0.4), ("ReduceScatter", 8, 0.0)],
        [("AllGather", 16, 0.0), ("ReduceScatter", 8, 0.4)],
    ] {
        let mut waits = Waits::default();
        for second in 0..300 {
            for rank in 0..RANKS {
                // 22 % of a step.
                let share = if rank == 3 { 0.45 } else { 1.0 };
                let own = kinds.map(|(kind, count, seconds)| (kind, count, share * seconds));
                waits.take(step(rank, second, &own), Timestamp(0));
            }
        }
        let all = waits.tick(&History::default(), &Jobs::default(), Timestamp(0));
        let [waiting] = &all[..] else {
            panic!("one job: {all:#?}");
        };
        assert_eq!(waiting.answer, Answer::Stragglers, "{kinds:?} {waiting:#?}");
        let named = waiting.ranking.iter().filter(|rank| rank.cause.is_some());
        let named: Vec<_> = named
            .filter_map(|rank| Some((rank.process.as_ref()?.pid, rank.excess)))
            .collect();
        let [(103, excess)] = named[..] else {
            panic!("{kinds:?} {named:?}");
        };
        assert!((excess - 0.22).abs() < 0.01, "{kinds:?} {excess}");
    }
}

#[test]
fn a_kind_that_is_rare_delays_no_round_and_no_time_counts_twice() {
    let mut rounds = Rounds::default();
    for rank in 0..RANKS {
        // Parameters are sent once, before the first step.
        for number in 0..500 {
            rounds.take(operation(rank, "Broadcast", number, 0.002, 0.5));
        }
    }
    let mut found = Vec::new();
    for second in 1..100 {
        for rank in 0..RANKS {
            for one in step(
                rank,
                second,
                &[("AllReduce", 2, 0.2), ("AllGather", 1, 0.2)],
            ) {
                rounds.take(one);
            }
            if second % 7 == 0 {
                let number = 500 + second / 7;
                rounds.take(operation(rank, "Broadcast", number, 0.05, second as f64));
            }
        }
        found.extend(rounds.next_round());
    }
    assert_eq!(found.len(), 9);
    assert!(found[0].waited.is_empty(), "the first has no begin");
    for round in &found[1..] {
        assert!((10.0..=10.5).contains(&round.seconds), "{round:?}");
        assert_eq!(round.waited.len(), RANKS as usize);
        let is_right = |share: &f64| (0.40..=0.43).contains(share);
        assert!(round.waited.values().all(is_right), "{round:?}");
    }
}

#[test]
fn a_rank_of_which_collectives_are_missing_does_not_seem_to_wait_less() {
    let mut rounds = Rounds::default();
    let mut found = Vec::new();
    for second in 0..60 {
        for rank in 0..RANKS {
            for one in step(rank, second, &[("AllReduce", 8, 0.4)]) {
                let is_dropped = rank == 3 && one.number.is_some_and(|number| number % 2 == 0);
                if !is_dropped {
                    rounds.take(one);
                }
            }
        }
        found.extend(rounds.next_round());
    }
    let waited = found.iter().filter(|round| !round.waited.is_empty());
    let pids = waited.map(|round| round.waited.keys().map(|of| of.pid).collect::<Vec<_>>());
    let pids: Vec<_> = pids.collect();
    assert!(pids.len() >= 3, "{pids:?}");
    assert!(
        pids.iter()
            .all(|pids| pids.len() == 7 && !pids.contains(&103)),
        "{pids:?}"
    );
}
