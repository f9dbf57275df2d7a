//! Jobs on a fabric: bytes are conserved, jobs meet only where cables are shared, idle nodes stay idle.

use std::collections::BTreeMap;
use std::time::Duration;

use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::Fault;
use railscope_simulator::parts::port::Counter;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::statistics::Balance;
use railscope_simulator::traffic::router::Lane;
use railscope_simulator::wiring::Device;
use railscope_simulator::work::schedule::{Interval, Schedule};
use railscope_simulator::work::workload::{Collective, JobSpec, Pattern, Workload};

/// A cluster of small switches; the rest of the description is TOML.
fn spec(text: &str) -> ClusterSpec {
    toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn job(name: &str, nodes: impl IntoIterator<Item = u16>, workload: Workload) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        nodes: nodes.into_iter().collect(),
        workload,
        schedule: Schedule::default(),
    }
}

fn ring() -> Workload {
    Workload::default()
}

fn experts(nodes: u16) -> Workload {
    let all_to_all = Collective {
        pattern: Pattern::AllToAll { nodes },
        bytes: 4e9,
    };
    let mut workload = Workload::default();
    workload.collectives.insert(0, all_to_all);
    workload
}

fn pipeline(stages: u16) -> Workload {
    let activations = Collective {
        pattern: Pattern::Pipeline,
        bytes: 1e9,
    };
    Workload {
        stages,
        microbatches: 8,
        collectives: vec![activations, ring().collectives[0]],
        ..ring()
    }
}

/// Ten symbols a second on the cable of a node's first NIC, from the first second on.
fn corrupting(node: u16) -> Fault {
    let effect = "cause = 'link-errors'\nsymbol_errors_per_second = 10.0";
    Fault {
        part: format!("link/gpu-node-{node:02}:mlx5_0/1")
            .parse()
            .expect("a cable"),
        onset_seconds: 1.0,
        end_seconds: None,
        effect: toml::from_str(effect).expect("an effect"),
    }
}

const SMALL: &str = "nodes = 24\nwiring = { kind = 'rail-optimized', nodes_per_su = 4 }\nswitches = { radix = 8, tiers = 2, spines = 4 }\nnics_per_node = 1";

fn step(cluster: &Cluster) -> Vec<f64> {
    let seconds = cluster.steps_seconds();
    seconds
        .map(|step| step.expect("a job that moves"))
        .collect()
}

#[test]
fn what_flows_into_a_switch_flows_out_of_it_and_every_nic_sends_its_bytes() {
    for routing in ["adaptive", "static", "ecmp"] {
        for workload in [ring(), experts(6), pipeline(4)] {
            let spec = spec(&format!(
                "routing = '{routing}'\n{}",
                SMALL.replace("nodes = 24\n", "nodes = 16\n")
            ));
            let per_step: f64 = workload
                .collectives
                .iter()
                .map(|collective| collective.bytes)
                .sum();
            let has_ends = workload.stages > 1;
            let mut cluster =
                Cluster::with_jobs(spec, vec![job("one", 0..16, workload)], 1).expect("a cluster");
            cluster.advance(Duration::from_secs(600));
            let steps = 600.0 / step(&cluster)[0];
            let mut rest = BTreeMap::<usize, f64>::new();
            for (index, cable) in cluster.wiring().cables.iter().enumerate() {
                let (up, down) = (
                    cluster.lane_bytes()[Lane::up(index).index()],
                    cluster.lane_bytes()[Lane::down(index).index()],
                );
                let [(lower, _), (upper, _)] = cable.ends;
                for (device, into) in [(lower, down - up), (upper, up - down)] {
                    if let Device::Switch(switch) = device {
                        *rest.entry(switch).or_default() += into;
                    }
                }
                if let (Device::Nic(_), false) = (lower, has_ends) {
                    let expected = per_step * steps;
                    assert!(
                        (up / expected - 1.0).abs() < 0.01,
                        "{routing}: {up} of {expected}"
                    );
                    assert!(
                        (down / expected - 1.0).abs() < 0.01,
                        "{routing}: {down} of {expected}"
                    );
                }
            }
            for (switch, rest) in rest {
                assert!(
                    rest.abs() < 1.0,
                    "{routing}: switch {switch} keeps {rest} bytes"
                );
            }
        }
    }
}

#[test]
fn jobs_meet_only_where_they_share_a_full_cable() {
    // Four nodes on each leaf, and one uplink: a ring over two leaves crosses it once in each direction.
    let narrow = "nodes = 8\nnics_per_node = 1\nwiring = { kind = 'host-grouped', nodes_per_leaf = 4 }\nswitches = { radix = 8, uplinks = 1, spines = 1 }";
    let alone = |nodes: [u16; 4]| {
        let jobs = vec![job("a", nodes, ring())];
        step(&Cluster::with_jobs(spec(narrow), jobs, 1).expect("a cluster"))[0]
    };
    let both = |a: [u16; 4], b: [u16; 4]| {
        let jobs = vec![job("a", a, ring()), job("b", b, ring())];
        step(&Cluster::with_jobs(spec(narrow), jobs, 1).expect("a cluster"))
    };
    let apart = both([0, 1, 2, 3], [4, 5, 6, 7]);
    assert!(
        (apart[0] / alone([0, 1, 2, 3]) - 1.0).abs() < 1e-9,
        "{apart:?}"
    );
    // Each job's halves lie on both leaves. A quarter of the time the other is in its collective too, and
    // then each has half of the uplink: a quarter of the step takes a quarter longer.
    let meeting = both([0, 1, 4, 5], [2, 3, 6, 7]);
    for step in &meeting {
        let slowdown = step / alone([0, 1, 4, 5]);
        assert!((slowdown - 1.0625).abs() < 0.005, "{slowdown}");
    }
}

#[test]
fn oversubscription_costs_those_who_cross_it() {
    let step_with = |uplinks: u16| {
        let text = format!(
            "nodes = 8\nnics_per_node = 1\nwiring = {{ kind = 'host-grouped', nodes_per_leaf = 4 }}\nswitches = {{ radix = 8, uplinks = {uplinks}, spines = 1 }}"
        );
        let jobs = vec![job("experts", 0..8, experts(8))];
        step(&Cluster::with_jobs(spec(&text), jobs, 1).expect("a cluster"))[0]
    };
    // Of each NIC's bytes 4/7 go to the other leaf: four uplinks for four NICs carry them at full speed,
    // one carries 7/16 of it.
    let (wide, narrow) = (step_with(4), step_with(1));
    let seconds = 4e9 / (0.98 * 50e9);
    let expected = seconds * (16.0 / 7.0 - 1.0);
    assert!(
        (narrow - wide - expected).abs() < 1e-3,
        "{narrow} - {wide} = {expected}"
    );
}

#[test]
fn nodes_without_a_job_are_idle() {
    let jobs = vec![job("a", 0..12, ring())];
    let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
    cluster.advance(Duration::from_secs(120));
    for (number, node) in cluster.nodes().iter().enumerate() {
        for gpu in &node.gpus {
            let busy = number < 12;
            assert_eq!(gpu.utilization > 0.5, busy, "node {number}");
            assert_eq!(gpu.power_watts > 200.0, busy, "node {number}: {gpu:?}");
        }
    }
}

#[test]
fn a_cable_without_a_job_corrupts_symbols_and_no_packets() {
    let jobs = vec![job("a", 0..12, ring())];
    let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
    for node in [3, 20] {
        cluster.inject(corrupting(node)).expect("a fault");
    }
    cluster.advance(Duration::from_secs(121));
    let count = |node: usize, counter| cluster.nodes()[node].ports[0].get(counter);
    for node in [3, 20] {
        assert_eq!(count(node, Counter::SymbolError), 1200, "node {node}");
        assert_eq!(count(node, Counter::LinkErrorRecovery), 12, "node {node}");
    }
    assert_eq!(count(3, Counter::PortRcvErrors), 240);
    assert_eq!(count(20, Counter::PortRcvErrors), 0);
    assert_eq!(count(21, Counter::SymbolError), 0);
}

#[test]
fn jobs_that_cannot_run_are_refused_with_the_reason() {
    let refuse = |jobs: Vec<JobSpec>| {
        let error = Cluster::with_jobs(spec(SMALL), jobs, 1).expect_err("refused");
        error.to_string()
    };
    for (jobs, expected) in [
        (
            vec![job("a", [24], ring())],
            "jobs.nodes: found node 24 in a, expected less than 24",
        ),
        (
            vec![job("a", [3], ring()), job("b", [3], ring())],
            "jobs.nodes: found node 3 in a and in b, expected it in one job",
        ),
        (
            vec![job("a", 0..6, pipeline(4))],
            "jobs.workload.stages: a: found 4 for 6 nodes, expected a divisor of its nodes",
        ),
    ] {
        let found = refuse(jobs);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn a_checkpoint_stops_the_job_and_an_evaluation_its_traffic() {
    let with = |schedule: Schedule| {
        let jobs = vec![JobSpec {
            schedule,
            ..job("a", 0..24, ring())
        }];
        let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
        let mut bytes = 0.0;
        for second in 1..=1000 {
            cluster.advance(Duration::from_secs(second));
            bytes += cluster.lane_bytes()[Lane::up(0).index()];
        }
        (cluster.steps() as f64, bytes)
    };
    let tenth = Some(Interval {
        every_seconds: 100.0,
        seconds: 10.0,
    });
    let (steps, bytes) = with(Schedule::default());
    for (schedule, share) in [
        (
            Schedule {
                checkpoint: tenth,
                ..Schedule::default()
            },
            0.9,
        ),
        (
            Schedule {
                evaluation: tenth,
                ..Schedule::default()
            },
            0.9,
        ),
        (
            Schedule {
                relaunch: tenth,
                ..Schedule::default()
            },
            0.9,
        ),
    ] {
        let (slower, fewer) = with(schedule);
        assert!(
            (slower / steps - share).abs() < 0.01,
            "{schedule:?}: {slower} of {steps}"
        );
        assert!(
            (fewer / bytes - share).abs() < 0.01,
            "{schedule:?}: {fewer} of {bytes}"
        );
    }
}

#[test]
fn a_tick_holds_all_bytes_however_often_the_job_changes_inside_it() {
    let every = |seconds: u64| {
        let jobs = vec![JobSpec {
            schedule: Schedule {
                checkpoint: Some(Interval {
                    every_seconds: 50.0,
                    seconds: 5.0,
                }),
                ..Schedule::default()
            },
            ..job("a", 0..24, ring())
        }];
        let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
        let ticks = (1..=600 / seconds).map(|tick| {
            cluster.advance(Duration::from_secs(tick * seconds));
            cluster.lane_bytes()[Lane::up(0).index()]
        });
        ticks.sum::<f64>()
    };
    let (fine, coarse) = (every(5), every(300));
    assert!((fine / coarse - 1.0).abs() < 0.01, "{fine} {coarse}");
}

#[test]
fn unequal_sequences_slow_the_job_and_no_node_stays_the_slowest() {
    let unequal = Workload {
        imbalance: 0.1,
        ..ring()
    };
    let steps = |workload| {
        step(
            &Cluster::with_jobs(spec(SMALL), vec![job("a", 0..24, workload)], 1)
                .expect("a cluster"),
        )[0]
    };
    let slowdown = steps(unequal.clone()) / steps(ring());
    // 24 nodes: the longest of them is two standard deviations above the mean, of three quarters of the step.
    assert!((1.11..1.17).contains(&slowdown), "{slowdown}");
    let jobs = vec![job("a", 0..24, unequal)];
    let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
    let mut slowest = BTreeMap::<usize, u32>::new();
    for second in 1..=300 {
        cluster.advance(Duration::from_secs(second));
        let active = |node: &usize| cluster.nodes()[*node].gpus[0].tensor_active;
        let most = (0..24).max_by(|a, b| active(a).total_cmp(&active(b)));
        *slowest.entry(most.expect("nodes")).or_default() += 1;
    }
    assert!(slowest.len() > 12, "{slowest:?}");
    assert!(slowest.values().all(|times| *times < 90), "{slowest:?}");
}

#[test]
fn a_long_last_stage_is_busy_and_the_others_wait() {
    let workload = Workload {
        stage_costs: vec![1.0, 1.0, 1.0, 1.3],
        ..pipeline(4)
    };
    let mut cluster =
        Cluster::with_jobs(spec(SMALL), vec![job("a", 0..24, workload)], 1).expect("a cluster");
    cluster.advance(Duration::from_secs(60));
    for (place, node) in cluster.nodes().iter().enumerate() {
        let busy = node.gpus[0].tensor_active > 0.3;
        assert_eq!(
            busy,
            place % 4 == 3,
            "{place}: {}",
            node.gpus[0].tensor_active
        );
    }
}

#[test]
fn the_same_steps_come_whatever_the_ticks_are() {
    let unequal = Workload {
        imbalance: 0.05,
        overlap: 0.5,
        ..ring()
    };
    let at = |ticks: u64| {
        let jobs = vec![job("a", 0..24, unequal.clone())];
        let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
        let mut bytes = 0.0;
        for tick in 1..=ticks {
            cluster.advance(Duration::from_secs_f64(tick as f64 * 300.0 / ticks as f64));
            bytes += cluster.lane_bytes()[Lane::up(0).index()];
        }
        (cluster.steps(), bytes)
    };
    let (coarse, fine) = (at(1), at(600));
    assert_eq!(coarse.0, fine.0);
    assert!(
        (coarse.1 / fine.1 - 1.0).abs() < 1e-6,
        "{coarse:?} {fine:?}"
    );
}

#[test]
fn what_overlaps_with_compute_moves_all_of_its_bytes_and_costs_less_time() {
    let with = |overlap: f64| {
        let workload = Workload { overlap, ..ring() };
        let jobs = vec![job("a", 0..24, workload)];
        let mut cluster = Cluster::with_jobs(spec(SMALL), jobs, 1).expect("a cluster");
        let mut busy = 0;
        let mut bytes = 0.0;
        for tick in 1..=3000 {
            cluster.advance(Duration::from_millis(tick * 100));
            let moved = cluster.lane_bytes()[Lane::up(0).index()];
            busy += usize::from(moved > 0.0);
            bytes += moved;
        }
        (step(&cluster)[0], bytes / cluster.steps() as f64, busy)
    };
    let (exposed, half) = (with(0.0), with(0.5));
    // Half of 0.15 s at 49 GB/s.
    assert!(
        (exposed.0 - half.0 - 0.075).abs() < 1e-6,
        "{exposed:?} {half:?}"
    );
    for (_, bytes, _) in [exposed, half] {
        assert!((bytes / 7.35e9 - 1.0).abs() < 0.01, "{bytes}");
    }
    // It moves all the time, and not only at the end of the step.
    assert!(
        half.2 == 3000 && exposed.2 < 1800,
        "{} {}",
        half.2,
        exposed.2
    );
}

#[test]
fn hashed_flows_are_many_and_others_after_each_launch() {
    let text = format!("routing = 'ecmp'\n{SMALL}");
    // Ring over six leaves: uplinks by leaf.
    let uplinks = |flows: u16, relaunch: bool, seconds: u64| {
        let every = Interval {
            every_seconds: 10.0,
            seconds: 0.1,
        };
        let jobs = vec![JobSpec {
            schedule: Schedule {
                relaunch: relaunch.then_some(every),
                ..Schedule::default()
            },
            ..job(
                "a",
                (0..24).rev().collect::<Vec<_>>(),
                Workload {
                    flows,
                    ..experts(24)
                },
            )
        }];
        let mut cluster = Cluster::with_jobs(spec(&text), jobs, 1).expect("a cluster");
        let cables = cluster.wiring().cables.iter().enumerate();
        let first = |(_, cable): &(usize, &railscope_simulator::wiring::Cable)| {
            cable.ends[0].0 == Device::Switch(0)
        };
        let lanes: Vec<Lane> = cables
            .filter(first)
            .map(|(cable, _)| Lane::up(cable))
            .collect();
        let mut sums = vec![0.0; lanes.len()];
        for tick in 1..=seconds / 10 {
            cluster.advance(Duration::from_secs(tick * 10));
            for (sum, lane) in sums.iter_mut().zip(&lanes) {
                *sum += cluster.lane_bytes()[lane.index()];
            }
        }
        Balance::of(&sums).expect("loaded").variation
    };
    let (one, many) = (uplinks(1, false, 600), uplinks(16, false, 600));
    assert!(many < 0.6 * one, "{many} {one}");
    let renewed = uplinks(1, true, 600);
    assert!(renewed < 0.4 * one, "{renewed} {one}");
}
