//! Packets that are marked for congestion on their way to a NIC.

use crate::analysis::cluster::RAILS;
use crate::analysis::{Fault, incidents, run_every, with};

/// When the bottleneck appears, seconds.
const BEGIN: u64 = 100;

/// What arrives at a NIC.
struct Arrivals {
    /// Share of 40 GB/s.
    load: f64,
    /// Packets of a million that are marked.
    marked: f64,
}

/// Every NIC counts what arrives, before and after the beginning.
fn arriving(arrivals: fn(usize, usize, bool) -> Arrivals) -> Box<Fault> {
    with(move |node, seconds| {
        let of_rail = |rail| {
            let (before, after) = (seconds.min(BEGIN), seconds.saturating_sub(BEGIN));
            let count = |of: fn(&Arrivals) -> f64| {
                let [first, second] = [false, true].map(|begun| of(&arrivals(node, rail, begun)));
                first * before as f64 + second * after as f64
            };
            let bytes = 40e9 * count(|one| one.load);
            let marks = 10.0 * count(|one| one.load * one.marked);
            let labels = format!("{{device=\"mlx5_{rail}\",port=\"1\"}}");
            format!(
                "railscope_rdma_port_receive_bytes_total{labels} {bytes}\nrailscope_rdma_ecn_marked_packets_total{labels} {marks}\n"
            )
        };
        (0..RAILS).map(of_rail).collect()
    })
}

fn found(arrivals: fn(usize, usize, bool) -> Arrivals) -> Vec<String> {
    incidents(&run_every(10, 0, &arriving(arrivals)))
}

/// Packets of a million that are marked where they wait, and elsewhere.
const fn marked(wait: bool) -> f64 {
    if wait { 4_000.0 } else { 40.0 }
}

const fn is_culprit(node: usize, rail: usize) -> bool {
    node == 2 && rail == 1
}

#[test]
fn a_link_before_which_packets_wait_although_fewer_arrive_is_named() {
    let shaped = |node, rail, begun| Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(begun && is_culprit(node, rail)),
    };
    assert_eq!(
        found(shaped),
        ["path-slow link/n2:mlx5_1/1 gpus=1 [gpu/n2:1]"]
    );
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
    assert_eq!(found(incast), [""; 0]);
}

#[test]
fn marks_at_many_nics_are_no_fault_of_one_link() {
    let uplink = |node, rail, begun| Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(begun && node < 4 && rail == 1),
    };
    assert_eq!(found(uplink), [""; 0]);
}

#[test]
fn a_nic_at_which_packets_always_wait_is_how_its_job_sends() {
    let uneven = |node, rail, begun| Arrivals {
        load: if begun { 0.5 } else { 1.0 },
        marked: marked(is_culprit(node, rail)),
    };
    assert_eq!(found(uneven), [""; 0]);
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
    assert_eq!(found(incast_of_a_slowed_job), [""; 0]);
}
