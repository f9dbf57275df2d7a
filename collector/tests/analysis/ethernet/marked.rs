//! Packets that are marked for congestion on their way to a NIC.

use std::collections::BTreeSet;

use crate::analysis::cluster::RAILS;
use crate::analysis::hosts::in_jobs;
use crate::analysis::{Fault, incidents, views, with};

/// When the bottleneck appears, seconds.
const BEGIN: u64 = 100;

/// What arrives at a NIC.
struct Arrivals {
    /// Share of 40 GB/s.
    load: f64,
    /// Packets of a million that are marked.
    marked: f64,
}

/// The share of the time for which each NIC pauses its switch, if it counts that.
type Paused = Option<f64>;

const NO_PAUSE: Paused = Some(0.0);

/// The first NICs of each node count what arrives, before and after the beginning.
fn arriving(
    nics: usize,
    paused: Paused,
    arrivals: impl Fn(usize, usize, u64) -> Arrivals + Send + Sync + 'static,
) -> Box<Fault> {
    with(move |node, seconds| {
        let of_rail = |rail| {
            let count = |of: fn(&Arrivals) -> f64| {
                let each = (0..seconds).step_by(10);
                each.map(|at| 10.0 * of(&arrivals(node, rail, at)))
                    .sum::<f64>()
            };
            let bytes = 40e9 * count(|one| one.load);
            let marks = 10.0 * count(|one| one.load * one.marked);
            let labels = format!("{{device=\"mlx5_{rail}\",port=\"1\"}}");
            let mut lines = format!(
                "railscope_rdma_port_receive_bytes_total{labels} {bytes}\nrailscope_rdma_ecn_marked_packets_total{labels} {marks}\n"
            );
            if let Some(share) = paused {
                lines += &format!(
                    "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"0\"}} 1\n\
                     railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"transmit\"}} {}\n",
                    0x10 + rail,
                    share * seconds as f64
                );
            }
            lines
        };
        (0..nics).map(of_rail).collect()
    })
}

/// What is found at each tick, so many seconds apart.
fn ticks_every(seconds: u64, fault: &Fault) -> Vec<Vec<String>> {
    let views = views((seconds, 0), fault);
    views.map(|view| incidents(&view)).collect()
}

fn ticks(fault: &Fault) -> Vec<Vec<String>> {
    ticks_every(10, fault)
}

/// All that is ever found.
fn found_with(
    nics: usize,
    paused: Paused,
    arrivals: impl Fn(usize, usize, bool) -> Arrivals + Send + Sync + 'static,
) -> BTreeSet<String> {
    let of_time = move |node, rail, seconds| arrivals(node, rail, seconds >= BEGIN);
    let ticks = ticks(&arriving(nics, paused, of_time));
    ticks.into_iter().flatten().collect()
}

fn found(arrivals: fn(usize, usize, bool) -> Arrivals) -> BTreeSet<String> {
    found_with(RAILS, NO_PAUSE, arrivals)
}

const NAMED: &str = "path-slow link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]";

/// Packets of a million that are marked where they wait, and elsewhere.
const fn marked(wait: bool) -> f64 {
    if wait { 12_000.0 } else { 120.0 }
}

const fn is_culprit(node: usize, rail: usize) -> bool {
    node == 2 && rail == 1
}

/// A link that passes half of what it should, for which the whole job waits.
fn shaped(node: usize, rail: usize, begun: bool) -> Arrivals {
    Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(begun && is_culprit(node, rail)),
    }
}

fn named() -> BTreeSet<String> {
    BTreeSet::from([NAMED.to_owned()])
}

#[test]
fn a_link_before_which_packets_wait_although_fewer_arrive_is_named() {
    assert_eq!(found(shaped), named());
    // Others at which packets always wait change nothing.
    let beside_uneven_work = |node, rail, begun| Arrivals {
        marked: if node == 6 {
            30_000.0
        } else {
            shaped(node, rail, begun).marked
        },
        ..shaped(node, rail, begun)
    };
    assert_eq!(found(beside_uneven_work), named());
}

#[test]
fn a_nic_that_pauses_its_switch_is_not_named_for_its_link() {
    let paused = found_with(RAILS, Some(0.015), shaped);
    assert_eq!(paused, BTreeSet::new());
    assert_eq!(found_with(RAILS, None, shaped), named());
}

#[test]
fn a_job_that_sends_less_has_no_slow_link_because_as_many_packets_are_marked() {
    let waits = |node: usize, rail: usize, begun: bool| Arrivals {
        load: if begun { 0.1 } else { 1.0 },
        marked: match (begun && node < 4, is_culprit(node, rail)) {
            (false, _) => 600.0,
            (true, true) => 7_500.0,
            // Nearly three times as many as before.
            (true, false) => {
                if rail == 2 {
                    1_650.0
                } else {
                    600.0
                }
            }
        },
    };
    assert_eq!(found(waits), BTreeSet::new());
}

#[test]
fn few_marked_packets_or_nearly_as_many_bytes_show_no_slow_link() {
    let few = |node, rail, begun| Arrivals {
        marked: shaped(node, rail, begun).marked / 10.0,
        ..shaped(node, rail, begun)
    };
    assert_eq!(found(few), BTreeSet::new());
    let nearly_as_much = |node, rail, begun| Arrivals {
        load: if begun { 0.93 } else { 1.0 },
        ..shaped(node, rail, begun)
    };
    assert_eq!(found(nearly_as_much), BTreeSet::new());
    let small = |node, rail, begun| Arrivals {
        load: 0.002 * shaped(node, rail, begun).load,
        ..shaped(node, rail, begun)
    };
    assert_eq!(found(small), BTreeSet::new());
}

#[test]
fn a_slow_link_stays_named_near_the_limits_and_is_named_again_after_a_pause_of_the_job() {
    let named_at = |arrivals: fn(u64) -> (f64, f64)| {
        let of_time = move |node, rail, seconds| {
            let (load, of_culprit) = arrivals(seconds);
            let marked = if is_culprit(node, rail) {
                of_culprit
            } else {
                40.0
            };
            Arrivals { load, marked }
        };
        let ticks = ticks(&arriving(RAILS, NO_PAUSE, of_time));
        ticks
            .iter()
            .map(|named| named.contains(&NAMED.to_owned()))
            .collect::<Vec<_>>()
    };
    // 0.93 of the bytes and 3,600 marked of a million would open no incident.
    let near = named_at(|seconds| match seconds {
        0..BEGIN => (1.0, 40.0),
        BEGIN..180 => (0.5, 12_000.0),
        _ => (0.93, 3_600.0),
    });
    assert!(near[29], "{near:?}");
    // Nothing is marked for 60 s. What was before is not forgotten.
    let again = named_at(|seconds| match seconds {
        0..BEGIN => (1.0, 40.0),
        180..220 => (0.02, 40.0),
        _ => (0.5, 12_000.0),
    });
    assert!(again[29], "{again:?}");
}

#[test]
fn a_short_queue_is_no_slow_link() {
    let of_time = |node, rail, seconds: u64| Arrivals {
        marked: marked((BEGIN..BEGIN + 10).contains(&seconds) && is_culprit(node, rail)),
        ..shaped(node, rail, seconds >= BEGIN)
    };
    let ticks = ticks(&arriving(RAILS, NO_PAUSE, of_time));
    assert!(ticks.iter().all(Vec::is_empty), "{ticks:?}");
}

#[test]
fn one_slow_scrape_shows_no_slow_link() {
    for every in [30, 60] {
        let begin = 10 * every;
        let burst = move |node, rail, seconds: u64| Arrivals {
            marked: marked((begin..begin + every).contains(&seconds) && is_culprit(node, rail)),
            ..shaped(node, rail, seconds >= begin)
        };
        let ticks = ticks_every(every, &arriving(RAILS, NO_PAUSE, burst));
        assert!(
            ticks.iter().all(Vec::is_empty),
            "every {every} s: {ticks:?}"
        );
    }
    let shaped = |node, rail, seconds| shaped(node, rail, seconds >= 300);
    let ticks = ticks_every(30, &arriving(RAILS, NO_PAUSE, shaped));
    let found: BTreeSet<_> = ticks.into_iter().flatten().collect();
    assert_eq!(found, named());
}

#[test]
fn congestion_that_spreads_is_no_slow_link_of_the_nic_that_it_reaches_last() {
    let spreads = |node: usize, rail, seconds| Arrivals {
        load: if seconds < BEGIN + 150 { 1.0 } else { 0.5 },
        marked: marked(
            rail == 1 && (node == 6 && seconds >= BEGIN || node == 2 && seconds >= BEGIN + 150),
        ),
    };
    let ticks = ticks(&arriving(RAILS, NO_PAUSE, spreads));
    assert!(ticks.iter().all(Vec::is_empty), "{ticks:?}");
}

#[test]
fn many_senders_to_one_nic_are_no_fault_of_its_link() {
    let incast = |node, rail, begun| Arrivals {
        load: if begun && is_culprit(node, rail) {
            1.2
        } else {
            1.0
        },
        marked: marked(begun && is_culprit(node, rail)),
    };
    assert_eq!(found(incast), BTreeSet::new());
}

#[test]
fn marks_at_many_nics_are_no_fault_of_one_link() {
    let uplink = |node, rail, begun| Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(begun && node < 4 && rail == 1),
    };
    assert_eq!(found(uplink), BTreeSet::new());
    let two = |node, rail, begun| Arrivals {
        marked: marked(begun && [1, 7].contains(&node) && rail == 1),
        ..shaped(node, rail, begun)
    };
    assert_eq!(found(two), BTreeSet::new());
    // They are of different jobs.
    let of_time = move |node, rail, seconds| two(node, rail, seconds >= BEGIN);
    let ticks = ticks(&in_jobs(arriving(RAILS, NO_PAUSE, of_time)));
    let named: BTreeSet<_> = ticks.into_iter().flatten().collect();
    assert_eq!(named.len(), 2, "{named:?}");
    for link in ["link/n1:mlx5_1/1", "link/n7:mlx5_1/1"] {
        assert!(
            named
                .iter()
                .any(|one| one.starts_with(&format!("path-slow {link}")))
        );
    }
}

#[test]
fn a_nic_at_which_packets_always_wait_is_how_its_job_sends() {
    let uneven = |node, rail, begun| Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(is_culprit(node, rail)),
    };
    assert_eq!(found(uneven), BTreeSet::new());
}

#[test]
fn more_than_at_the_other_nics_of_the_node_comes_from_others() {
    let incast_of_a_slowed_job = |node, rail, begun: bool| Arrivals {
        load: if !begun {
            1.0
        } else if is_culprit(node, rail) {
            0.8
        } else {
            0.5
        },
        marked: marked(begun && is_culprit(node, rail)),
    };
    assert_eq!(found(incast_of_a_slowed_job), BTreeSet::new());
    // Where a node has no other, as many as others of the cluster receive are enough.
    assert_eq!(
        found_with(1, NO_PAUSE, move |node, _, begun| incast_of_a_slowed_job(
            node, 1, begun
        )),
        BTreeSet::new()
    );
}
