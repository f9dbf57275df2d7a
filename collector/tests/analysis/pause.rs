//! NICs that pause their switch, as exporters show them that know less than Railscope's own.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;

use super::cluster::{NODES, at, node, page};
use super::health::pause_of_one;
use super::{Fault, check, ever, incidents, of_gpus, run, with};

/// Pause that interface `eth1` of node 5 sends: seconds of pause by seconds since the start.
fn pauses(paused: fn(f64) -> f64) -> Box<Fault> {
    with(move |node, seconds| {
        of_gpus(|rail| {
            let is_it = (node, rail) == (5, 1);
            let paused = if is_it { paused(seconds as f64) } else { 0.0 };
            format!(
                "railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"transmit\"}} {paused}\n"
            )
        })
    })
}

/// With the PCI addresses of interfaces, and without their RDMA devices.
fn with_addresses(fault: Box<Fault>) -> Box<Fault> {
    Box::new(move |node, seconds, text: String| {
        let info = of_gpus(|rail| {
            format!(
                "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"\",driver=\"mlx5_core\",numa_node=\"\"}} 1\n",
                0x10 + rail
            )
        });
        fault(node, seconds, text) + &info
    })
}

/// Without the widths of PCIe links.
fn without_widths(fault: Box<Fault>) -> Box<Fault> {
    Box::new(move |node, seconds, text: String| {
        let text = fault(node, seconds, text);
        let left = text
            .lines()
            .filter(|line| !line.contains("_link_width_lanes"));
        left.map(|line| format!("{line}\n")).collect()
    })
}

#[test]
fn a_slow_nic_is_named_by_its_pcie_link_whether_or_not_its_width_is_seen() {
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    let paused = || with_addresses(pauses(|seconds| 0.3 * seconds));
    check(&paused(), &[slow]);
    check(&without_widths(paused()), &[slow]);
}

/// Pause that interface `eth1` of node 5 sends, as a share of the time until and from 100 s on, and the bytes that all NICs
/// receive.
fn more_pause(before: f64, share: f64) -> Box<Fault> {
    with(move |node, seconds| {
        let at = seconds as f64;
        of_gpus(|rail| {
            let is_it = (node, rail) == (5, 1);
            let paused = before * at.min(100.0) + share * (at - 100.0).max(0.0);
            let paused = if is_it { paused } else { 0.0 };
            format!(
                "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"\"}} 1\n\
                 railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"transmit\"}} {paused}\n\
                 railscope_rdma_port_receive_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n",
                0x10 + rail,
                1e10 * at
            )
        })
    })
}

#[test]
fn pause_that_a_nic_always_sends_is_no_fault_and_much_more_of_it_is() {
    assert_eq!(ever(&more_pause(0.05, 0.05)), BTreeSet::new());
    assert_eq!(ever(&more_pause(0.05, 0.09)), BTreeSet::new());
    let slow = String::from("slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]");
    assert_eq!(ever(&more_pause(0.05, 0.3)), BTreeSet::from([slow]));
}

#[test]
fn a_little_pause_is_that_of_bursts_unless_the_pcie_link_lacks_credits() {
    let stalls = |share: f64| {
        move |node: usize, seconds: u64, page: String| {
            let stalled = if node == 5 {
                share * seconds as f64
            } else {
                0.0
            };
            more_pause(0.001, 0.04)(node, seconds, page)
                + &format!(
                    "railscope_nic_pcie_stalled_seconds_total{{netdev=\"eth1\",operation=\"write\"}} {stalled}\n"
                )
        }
    };
    assert_eq!(ever(&stalls(0.0)), BTreeSet::new());
    let slow = String::from("slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]");
    assert_eq!(ever(&stalls(0.1)), BTreeSet::from([slow]));
}

/// Share of the time in pause by node and rail, received and sent, and the bytes that each NIC sends in a second.
fn lanes(shares: fn(usize, usize) -> [f64; 2], rate: f64) -> Box<Fault> {
    with(move |node, seconds| {
        of_gpus(|rail| {
            let paused = shares(node, rail).map(|share| share * seconds as f64);
            let series = |direction| {
                format!(
                    "railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"{direction}\"}}"
                )
            };
            format!(
                "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"0000:{:02x}:00.0\",device=\"mlx5_{rail}\",driver=\"mlx5_core\",numa_node=\"\"}} 1\n\
                 railscope_rdma_port_transmit_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n\
                 {} {}\n{} {}\n",
                0x10 + rail,
                rate * seconds as f64,
                series("receive"),
                paused[0],
                series("transmit"),
                paused[1]
            )
        })
    })
}

#[test]
fn a_nic_that_its_switch_halts_is_named_if_it_is_the_only_one() {
    let halted = |node, rail| [if (node, rail) == (5, 1) { 0.7 } else { 0.0 }, 0.0];
    let storm = "pfc-storm link/n5:mlx5_1/1 gpus=1 [gpu/n5:1]";
    check(&lanes(halted, 1e7), &[storm]);
    // It may send to a port that is full, which no switch here can show.
    check(&lanes(halted, 1e10), &[]);
    // Nor that of a node that counts no pause.
    let halts = lanes(halted, 1e7);
    let untold = move |node: usize, seconds: u64, page: String| match node {
        7 => page,
        _ => halts(node, seconds, page),
    };
    check(&untold, &[]);
    let congestion = |node, rail| match (node, rail) {
        (5, 1) => [0.7, 0.0],
        (6, 1) => [0.1, 0.0],
        _ => [0.0; 2],
    };
    check(&lanes(congestion, 1e7), &[]);
    let slow_receiver = |node, rail| match (node, rail) {
        (5, 1) => [0.7, 0.0],
        (2, 1) => [0.0, 0.6],
        _ => [0.0; 2],
    };
    let slow = "slow-receiver pcie/n2:0000:11:00.0 gpus=1 [gpu/n2:1]";
    check(&lanes(slow_receiver, 1e7), &[slow]);
    // What pauses its switch for so short a time holds no sender back for so long.
    let both = |node, rail| match (node, rail) {
        (5, 1) => [0.7, 0.0],
        (2, 1) => [0.0, 0.12],
        _ => [0.0; 2],
    };
    check(&lanes(both, 1e7), &[slow, storm]);
}

/// Seconds in which PCIe took too little of what interface `eth1` of these nodes received, by seconds since the start.
fn stalls(culprits: &'static [usize], per_second: f64) -> Box<Fault> {
    with_addresses(with(move |node, seconds| {
        of_gpus(|rail| {
            let is_it = rail == 1 && culprits.contains(&node);
            let stalled = if is_it {
                per_second * seconds as f64
            } else {
                0.0
            };
            format!(
                "railscope_nic_pcie_stalled_seconds_total{{netdev=\"eth{rail}\",operation=\"write\"}} {stalled}\n"
            )
        })
    }))
}

#[test]
fn a_nic_whose_pcie_link_stalls_is_named_without_any_pause() {
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    check(&stalls(&[5], 0.3), &[slow]);
    check(&stalls(&[5], 0.1), &[]);
    let also_paused = |node: usize, seconds: u64, page: String| {
        let paused = pauses(|seconds| 0.3 * seconds)(node, seconds, page);
        stalls(&[5], 0.5)(node, seconds, paused)
    };
    check(&also_paused, &[slow]);
}

/// Pause frames a second that every NIC of 400 Gb/s sends without counting the time, and interface `eth1` of node 5 from 100 s on.
fn frames(all: f64, one: f64) -> Box<Fault> {
    with_addresses(with(move |node, seconds| {
        let at = seconds as f64;
        of_gpus(|rail| {
            let more = if (node, rail) == (5, 1) { one } else { 0.0 };
            let sent = all * at + more * (at - 100.0).max(0.0);
            format!(
                "railscope_nic_speed_bytes_per_second{{netdev=\"eth{rail}\"}} 5e10\n\
                 railscope_nic_pfc_frames_total{{netdev=\"eth{rail}\",priority=\"\",direction=\"transmit\"}} {sent}\n"
            )
        })
    }))
}

#[test]
fn a_nic_that_counts_frames_alone_is_named_if_they_can_pause_its_switch_most_of_the_time() {
    // One frame pauses 400 Gb/s for 84 us at most: 11,921 a second pause it always.
    let slow = String::from("slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]");
    let storm = String::from("pfc-storm nic/n5:mlx5_1 gpus=1 [gpu/n5:1]");
    let told = |all, one| ever(&frames(all, one));
    assert_eq!(told(0.0, 5_000.0), BTreeSet::new());
    assert_eq!(told(0.0, 9_000.0), BTreeSet::from([slow]));
    assert_eq!(told(0.0, 15_000.0), BTreeSet::from([storm]));
    assert_eq!(told(1_500.0, 9_000.0), BTreeSet::new(), "the load");
    let timed = |node: usize, seconds: u64, page: String| {
        let page = pauses(|_| 0.0)(node, seconds, page);
        frames(0.0, 15_000.0)(node, seconds, page)
    };
    assert_eq!(ever(&timed), BTreeSet::new(), "time decides");
}

#[test]
fn an_interface_of_which_nothing_else_is_known_names_its_nic() {
    check(
        &pauses(|seconds| 0.3 * seconds),
        &["slow-receiver nic/n5:eth1 gpus=0 []"],
    );
    check(
        &pauses(|seconds| seconds),
        &["pfc-storm nic/n5:eth1 gpus=0 []"],
    );
}

#[test]
fn a_nic_that_receives_nothing_is_not_slow_because_it_pauses_a_little() {
    let receives = |rate: u64| -> Box<Fault> {
        let paused = with_addresses(pauses(|seconds| 0.08 * (seconds - 100.0).max(0.0)));
        Box::new(move |node, seconds, page: String| {
            let received = of_gpus(|rail| {
                format!(
                    "railscope_rdma_port_receive_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n",
                    rate * seconds
                )
            });
            paused(node, seconds, page) + &received
        })
    };
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    check(&receives(10_000_000_000), &[slow]);
    check(&receives(1_000), &[]);
}

#[test]
fn much_pause_of_a_nic_whose_pcie_link_does_not_stall_is_a_storm() {
    let [storm, slow] = [
        "pfc-storm nic/n5:eth1 gpus=0 []",
        "slow-receiver nic/n5:eth1 gpus=0 []",
    ];
    check(&pauses(|seconds| 0.75 * seconds), &[storm]);
    check(&pauses(|seconds| 0.6 * seconds), &[slow]);
    let half = |stalled: &'static str| {
        let stalls = move |seconds: u64| match stalled {
            "stalled" => 0.3 * seconds as f64,
            _ => 0.0,
        };
        move |node: usize, seconds: u64, page: String| {
            let page = pauses(|seconds| 0.5 * seconds)(node, seconds, page);
            let stalled = of_gpus(|rail| {
                let is_it = (node, rail) == (5, 1);
                format!(
                    "railscope_nic_pcie_stalled_seconds_total{{netdev=\"eth{rail}\",operation=\"write\"}} {}\n",
                    if is_it { stalls(seconds) } else { 0.0 }
                )
            });
            page + &stalled
        }
    };
    check(&half("never"), &[storm]);
    check(&half("stalled"), &[slow]);
}

/// Pause for half of the time, of a NIC that receives nothing from 65 s to 80 s, and pauses less then by this share.
fn half_the_time_with_a_gap(of_idle: f64) -> Box<Fault> {
    const GAP: std::ops::Range<u64> = 65..80;
    let before = |seconds: u64| seconds.clamp(GAP.start, GAP.end) - GAP.start;
    let busy = move |seconds: u64| (seconds - before(seconds)) as f64;
    with(move |node, seconds| {
        of_gpus(|rail| {
            let is_it = (node, rail) == (5, 1);
            let paused = 0.5 * busy(seconds) + of_idle * before(seconds) as f64;
            let paused = if is_it { paused } else { 0.0 };
            format!(
                "railscope_nic_pfc_pause_seconds_total{{netdev=\"eth{rail}\",priority=\"3\",direction=\"transmit\"}} {paused}\n\
                 railscope_rdma_port_receive_bytes_total{{device=\"mlx5_{rail}\",port=\"1\"}} {}\n",
                1e10 * busy(seconds),
            )
        })
    })
}

#[test]
fn pause_that_goes_on_while_nothing_arrives_is_a_storm() {
    let named = |of_idle| incidents(&run(&with_addresses(half_the_time_with_a_gap(of_idle))));
    let storm = "pfc-storm nic/n5:mlx5_1 gpus=1 [gpu/n5:1]";
    assert_eq!(named(0.4), [storm]);
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    assert_eq!(named(0.02), [slow]);
}

#[test]
fn pause_that_a_storm_left_in_the_window_is_no_slow_receiver() {
    let view = run(&with_addresses(pauses(|seconds| seconds.min(120.0))));
    let incidents = incidents(&view);
    let others = incidents
        .iter()
        .filter(|incident| !incident.starts_with("pfc-storm"));
    assert_eq!(others.count(), 0, "{incidents:?}");
}

#[test]
fn pause_near_the_limit_of_storms_is_one_storm() {
    let paused = |seconds: f64| 0.75 * seconds.min(60.0) + 0.6 * (seconds - 60.0).max(0.0);
    let incidents = ever(&with_addresses(pauses(paused)));
    assert_eq!(incidents.len(), 1, "{incidents:?}");
    assert!(incidents.iter().all(|one| one.starts_with("pfc-storm")));
    // What slow receivers do is no storm any longer.
    let paused = |seconds: f64| 0.75 * seconds.min(40.0) + 0.5 * (seconds - 40.0).max(0.0);
    let named = super::incidents(&run(&with_addresses(pauses(paused))));
    assert!(named[0].starts_with("slow-receiver"), "{named:?}");
}

#[test]
fn a_nic_with_too_few_lanes_pauses_much_without_a_storm() {
    let paused = pauses(|seconds| 0.75 * seconds);
    let lanes = "railscope_pcie_link_width_lanes{pci=\"0000:11:00.0\"}";
    let narrow = move |node: usize, seconds: u64, page: String| {
        let page = paused(node, seconds, page);
        if node == 5 {
            page.replace(&format!("{lanes} 16"), &format!("{lanes} 8"))
        } else {
            page
        }
    };
    let degraded = "pcie-degraded pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    check(&with_addresses(Box::new(narrow)), &[degraded]);
}

/// Scrapes are 20 s apart, and the storm ends between two.
#[test]
fn the_end_of_a_storm_makes_no_nic_slow() {
    let stormy = with_addresses(pauses(|seconds| 0.8 * seconds.min(110.0)));
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
    let mut all = BTreeSet::new();
    for seconds in (5..=240_u64).step_by(5) {
        if seconds.is_multiple_of(20) {
            for index in 0..NODES {
                let text = stormy(index, seconds, page(index, seconds));
                analyzer.ingest(&node(index), &text, at(seconds));
            }
        }
        all.extend(incidents(&analyzer.tick(at(seconds))));
    }
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all.iter().all(|one| one.starts_with("pfc-storm")));
}

/// Pause of the whole port, as exporters count it where global pause is used in place of PFC.
#[test]
fn global_pause_names_what_pfc_would() {
    let paused = |share: f64, on_fabric: bool| {
        with(move |node, seconds| {
            of_gpus(|rail| {
                let is_it = (node, rail) == (5, 1);
                let paused = if is_it { share * seconds as f64 } else { 0.0 };
                format!(
                    "railscope_nic_info{{netdev=\"eth{rail}\",pci=\"\",device=\"{}\",driver=\"mlx5_core\",numa_node=\"\"}} 1\n\
                     railscope_nic_pause_seconds_total{{netdev=\"eth{rail}\",direction=\"transmit\"}} {paused}\n\
                     railscope_nic_pause_seconds_total{{netdev=\"eth{rail}\",direction=\"receive\"}} 0\n",
                    if on_fabric {
                        format!("mlx5_{rail}")
                    } else {
                        String::new()
                    }
                )
            })
        })
    };
    let named = "nic/n5:mlx5_1 gpus=1 [gpu/n5:1]";
    check(&paused(0.3, true), &[&format!("slow-receiver {named}")]);
    check(&paused(1.0, true), &[&format!("pfc-storm {named}")]);
    // A port for storage.
    check(&paused(0.3, false), &[]);
}

/// What the NIC delivers goes to the memory of its GPU.
#[test]
fn a_nic_that_waits_for_the_degraded_pcie_link_of_its_gpu_is_part_of_that_incident() {
    let gpu_has_lanes = |lanes: &'static str| {
        let pauses = pause_of_one(0.3);
        move |node: usize, seconds: u64, page: String| {
            let width = "railscope_pcie_link_width_lanes{pci=\"0000:21:00.0\"}";
            let page = pauses(node, seconds, page);
            match node {
                5 => page.replace(&format!("{width} 16"), &format!("{width} {lanes}")),
                _ => page,
            }
        }
    };
    let slow = "slow-receiver pcie/n5:0000:11:00.0 gpus=1 [gpu/n5:1]";
    check(&gpu_has_lanes("16"), &[slow]);
    let view = run(&gpu_has_lanes("1"));
    let degraded = "pcie-degraded pcie/n5:0000:21:00.0 gpus=1 [gpu/n5:1]";
    assert_eq!(incidents(&view), [degraded]);
}
