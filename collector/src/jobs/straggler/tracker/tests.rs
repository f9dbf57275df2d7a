//! Sixteen processes on two hosts, a collective a second: which rank is named, for what, and when
//! none is.

use super::*;
use crate::jobs::job::JobTable;
use crate::jobs::straggler::Membership;

const HOSTS: u64 = 2;
const GPUS: u64 = 8;

/// What a process does in a second: the share that it waits, and the share in which its tensor cores are active.
type Does = dyn Fn(u64, u64) -> (f64, f64);

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000 + seconds * 1000)
}

fn page(host: u64, second: u64, does: &Does, tells_activity: bool) -> String {
    let gpu = |gpu: u64| {
        let (_, active) = does(second, host * GPUS + gpu);
        let activity = format!("railscope_gpu_tensor_active_ratio{{gpu=\"{gpu}\"}} {active}\n");
        format!(
            "railscope_gpu_info{{gpu=\"{gpu}\",uuid=\"\",pci=\"\",name=\"H100\",serial=\"\",vbios=\"\",driver=\"\",architecture=\"\",numa_node=\"0\"}} 1\n\
             railscope_workload_info{{gpu=\"{gpu}\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"\",workload=\"\",container=\"\",hpc_job=\"17\"}} 1\n{}",
            if tells_activity {
                activity
            } else {
                String::new()
            }
        )
    };
    (0..GPUS).map(gpu).collect()
}

fn operation(rank: u64, second: u64, waited: f64) -> Operation {
    Operation {
        process: Process {
            host: format!("n{}.example", rank / GPUS).into(),
            pid: 100 + rank % GPUS,
        },
        member: Membership {
            communicator: "0x7f".into(),
            name: None,
            rank: rank as u32,
            ranks: (HOSTS * GPUS) as u32,
            hosts: HOSTS as u32,
        },
        name: "AllReduce".into(),
        number: Some(second),
        bytes: 1 << 20,
        seconds: waited,
        begin: None,
        end: (1_000 * rank + second) as f64, // clocks of hosts need not agree
    }
}

/// The result after five minutes, without some steps of the method.
fn run(does: &Does, tells_activity: bool, left_out: LeftOut) -> Waiting {
    let (mut history, mut waits, mut table) =
        (History::default(), Waits::default(), JobTable::default());
    waits.left_out = left_out;
    let mut last = Vec::new();
    for tick in 1..=60 {
        for host in 0..HOSTS {
            let node: NodeName = format!("n{host}").parse().expect("a name");
            let said = history
                .node_mut(&node)
                .ingest(&page(host, 5 * tick, does, tells_activity), at(5 * tick));
            assert_eq!((said.unknown, said.errors), (0, vec![]));
        }
        let new = (5 * tick - 5..5 * tick).flat_map(|second| {
            (0..HOSTS * GPUS).map(move |rank| operation(rank, second, does(second, rank).0))
        });
        waits.take(new.collect::<Vec<_>>(), at(5 * tick));
        let jobs = table.refresh(&history, at(5 * tick));
        last = waits.tick(&history, &jobs, at(5 * tick));
    }
    assert_eq!(last.len(), 1, "{last:#?}");
    last.remove(0)
}

fn check(does: &Does, tells_activity: bool, answer: &Answer, first: Option<(&str, Cause)>) {
    let waiting = run(does, tells_activity, LeftOut::default());
    assert_eq!(waiting.answer, *answer, "{waiting:#?}");
    assert_eq!(
        (waiting.basis, waiting.job.as_deref()),
        (Basis::Collectives, Some("17"))
    );
    let named = waiting.ranking.iter().filter_map(|rank| {
        let part = rank.part.as_ref().map(ToString::to_string);
        Some((part?, rank.cause?))
    });
    let first = first.map(|(part, cause)| (part.to_owned(), cause));
    assert_eq!(named.collect::<Vec<_>>(), Vec::from_iter(first));
}

/// All wait for 0.4 s but the one named by `late`, by so much less; it computes for it or
/// not.
fn late(second: u64, rank: u64, late: u64, computes: bool) -> (f64, f64) {
    let noise = 0.001 * ((second * 7 + rank * 13) % 11) as f64;
    if rank == late {
        (0.3 + noise, if computes { 0.5 * 0.7 / 0.6 } else { 0.5 })
    } else {
        (0.4 + noise, 0.5)
    }
}

#[test]
fn a_rank_that_waits_less_and_computes_longer_is_named_with_its_gpu() {
    let named = Some(("gpu/n1:3", Cause::Gpu));
    check(
        &|second, rank| late(second, rank, 11, true),
        true,
        &Answer::Stragglers,
        named,
    );
}

#[test]
fn one_that_does_not_compute_meanwhile_or_of_which_nobody_knows_is_a_hint() {
    let hint = Some(("gpu/n1:3", Cause::HostHint));
    check(
        &|second, rank| late(second, rank, 11, false),
        true,
        &Answer::Stragglers,
        hint,
    );
    check(
        &|second, rank| late(second, rank, 11, true),
        false,
        &Answer::Stragglers,
        hint,
    );
}

#[test]
fn without_conservation_of_its_step_a_late_host_is_called_a_slow_gpu() {
    let late_host = |second: u64, rank: u64| late(second, rank, 11, false);
    for (without, cause) in [
        (None, Cause::HostHint),
        (Some(Step::Conservation), Cause::Gpu),
    ] {
        let waiting = run(&late_host, true, without.into_iter().collect());
        let causes: Vec<_> = waiting
            .ranking
            .iter()
            .filter_map(|rank| rank.cause)
            .collect();
        assert_eq!(causes, [cause], "without {without:?}");
    }
}

#[test]
fn work_that_is_uneven_by_turns_is_no_fault_of_a_part() {
    let by_turns = |second: u64, rank: u64| late(second, rank, (second / 11 * 5) % 16, true);
    check(&by_turns, true, &Answer::SoftwareImbalance, None);
}

#[test]
fn ranks_that_wait_alike_are_balanced() {
    check(
        &|second, rank| late(second, rank, 99, true),
        true,
        &Answer::Balanced,
        None,
    );
}

#[test]
fn processes_that_share_a_communicator_are_of_one_job() {
    let mut waits = Waits::default();
    let of = |communicator: &str, rank: u64| {
        let mut operation = operation(rank, 1, 0.1);
        operation.member.communicator = communicator.into();
        operation
    };
    let groups = |waits: &mut Waits| {
        waits
            .tick(&History::default(), &Jobs::default(), at(1))
            .len()
    };
    waits.take([of("a", 0), of("a", 1), of("b", 2), of("b", 3)], at(0));
    assert_eq!(groups(&mut waits), 2);
    waits.take([of("c", 1), of("c", 2)], at(0));
    assert_eq!(groups(&mut waits), 1);
}
