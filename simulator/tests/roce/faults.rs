//! Faults that only a lossless Ethernet has, and their victims.

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_simulator::cluster::{Cluster, SwitchPort};
use railscope_simulator::examples;
use railscope_simulator::faults::CAUSES;
use railscope_simulator::parts::ethernet::EthernetCounter;
use railscope_simulator::parts::ethernet::EthernetCounter::*;
use railscope_simulator::parts::port::Counter;
use railscope_simulator::spec::{ClusterSpec, WiringSpec};
use railscope_simulator::traffic::router::{Lane, Routing};
use railscope_simulator::work::workload::{JobSpec, Pattern};

use super::{END, ONSET, Run, fault, growth, run, some, spec, victims};

#[test]
fn a_storm_is_all_pause_and_no_byte_until_the_watchdog_turns_pause_into_loss() {
    let cluster = Cluster::new(spec(8), 1).expect("cluster");
    let run = Run::of(
        cluster,
        fault("nic/gpu-node-02:mlx5_1", "cause = 'pfc-storm'"),
    );
    let (root, victim) = (run.nic("gpu-node-02:mlx5_1"), run.nic("gpu-node-01:mlx5_1"));
    assert_eq!(
        (run.truth.slowdown, run.cluster.step_seconds()),
        (None, None)
    );
    let (sent, received) = run.pause();
    assert!(sent[root] > 0.99 && received[root] == 0.0, "{sent:?}");
    // Except the last data of the step in which it began.
    assert!(run.grown(RxPrio3Bytes)[root] < 8e9 as u64);
    assert!(run.grown(TxPauseStormWarningEvents)[root] >= 900);
    // 200 ms of pause for each time-out of 4.3 s, and no mark: nothing arrives that could have one.
    assert!((received[victim] - 0.2 / 4.3).abs() < 0.01, "{received:?}");
    assert_eq!((some(&sent), some(&received)), (vec![root], vec![victim]));
    assert_eq!(run.grown(NpEcnMarkedRocePackets).iter().sum::<u64>(), 0);
    let waits = run.rdma(Counter::LocalAckTimeoutErr);
    assert!((20..=26).contains(&waits[victim]), "{waits:?}");
    assert_eq!(waits.iter().sum::<u64>(), waits[victim]);
    // Repeated pause frames; no resume frame.
    let quantum = 65_535.0 * 512.0 / 400e9;
    let frames = run.grown(TxPrio3Pause)[root] as f64 / (END as f64 - ONSET);
    assert!((frames * quantum / 2.0 - 1.0).abs() < 0.01, "{frames}");
}

#[test]
fn frames_that_are_too_long_stop_the_job_without_any_pause() {
    let cluster = Cluster::new(spec(8), 1).expect("cluster");
    let run = Run::of(
        cluster,
        fault(
            "nic/gpu-node-02:mlx5_1",
            "cause = 'mtu-mismatch'\nmtu = 1500",
        ),
    );
    let (root, victim) = (run.nic("gpu-node-02:mlx5_1"), run.nic("gpu-node-01:mlx5_1"));
    assert_eq!(run.truth.slowdown, None);
    let oversize = run.grown(RxOversizePktsPhy);
    assert!(oversize[root] > 0 && oversize.iter().sum::<u64>() == oversize[root]);
    let (sent, received) = run.pause();
    assert_eq!((some(&sent), some(&received)), (vec![], vec![]));
    assert!(run.rdma(Counter::LocalAckTimeoutErr)[victim] > 0);
    let netdev = |nic: usize| run.cluster.nodes()[nic / 8].ports[nic % 8].netdev.clone();
    let mtu = |nic| netdev(nic).expect("Ethernet").mtu;
    assert_eq!((mtu(root), mtu(victim)), (1500, 9000));
}

/// Sixteen nodes on two leaves, all to all, flows hashed.
fn hashed() -> Cluster {
    let spec = ClusterSpec {
        wiring: WiringSpec::HostGrouped { nodes_per_leaf: 4 },
        nics_per_node: Some(2),
        gpus_per_node: Some(2),
        routing: Routing::Ecmp,
        switches: toml::from_str("radix = 32\nuplinks = 16").expect("switches"),
        ..spec(8)
    };
    let mut job = JobSpec::on_first(8);
    job.workload.collectives[0].pattern = Pattern::AllToAll { nodes: 8 };
    Cluster::with_jobs(spec, vec![job], 1).expect("cluster")
}

#[test]
fn a_polarized_hash_crowds_a_few_uplinks_and_no_host_sends_pause() {
    let polarized = "cause = 'ecmp-polarized'\nuplink_share = 0.15";
    let mut healthy = hashed();
    let run = Run::of(hashed(), fault("switch/leaf-0", polarized));
    let slowdown = run.truth.slowdown.expect("slower");
    assert!((1.1..1.5).contains(&slowdown), "{slowdown}");
    healthy.advance(Duration::from_secs(END - 1));
    healthy.advance(Duration::from_secs(END));
    // Uplinks of the first leaf that carry anything.
    let used = |cluster: &Cluster| {
        let plan = cluster.plan();
        let up = (plan.nics.len()..plan.cables.len())
            .filter(|cable| plan.cable_part(*cable).to_string().contains("leaf-0["));
        up.filter(|cable| cluster.lane_bytes()[Lane::up(*cable).index()] > 0.0)
            .count()
    };
    assert!(used(&healthy) > 8, "{}", used(&healthy));
    assert_eq!(used(&run.cluster), 3);
    let (sent, received) = run.pause();
    assert_eq!(some(&sent), Vec::<usize>::new());
    assert!(!some(&received).is_empty());
    assert!(run.grown(NpCnpSent).iter().sum::<u64>() > 0);
}

#[test]
fn a_switch_without_lossless_buffers_loses_packets_and_pauses_nobody() {
    let lossy = "cause = 'switch-qos'\nloss_ratio = 0.001";
    let run = Run::of(hashed(), fault("switch/leaf-1", lossy));
    let slowdown = run.truth.slowdown.expect("slower");
    assert!((1.05..3.0).contains(&slowdown), "{slowdown}");
    let (sent, received) = run.pause();
    assert_eq!((some(&sent), some(&received)), (vec![], vec![]));
    let (noticed, missed) = (
        run.rdma(Counter::PacketSeqErr),
        run.rdma(Counter::OutOfSequence),
    );
    assert_eq!(noticed.iter().sum::<u64>(), missed.iter().sum::<u64>());
    for nic in 8..16 {
        assert!(
            noticed[nic] > 0 && missed[nic] > 0,
            "NIC {nic} is on the switch"
        );
    }
    // A lost tail waits 4.3 s, and RoCE begins slowly again after it.
    let waits = run.rdma(Counter::LocalAckTimeoutErr);
    assert!(waits.iter().sum::<u64>() > 0);
    assert_eq!(waits, run.rdma(Counter::RoceSlowRestart));
}

#[test]
fn jobs_that_share_an_uplink_are_marked_and_one_without_a_fault_waits_behind_another() {
    // Two rings of two nodes each, side by side over the only uplink of each leaf.
    let spec = ClusterSpec {
        wiring: WiringSpec::HostGrouped { nodes_per_leaf: 2 },
        nics_per_node: Some(1),
        gpus_per_node: Some(1),
        switches: toml::from_str("radix = 16\nuplinks = 1").expect("switches"),
        dcqcn: false,
        ..spec(4)
    };
    let job = |name: &str, nodes: [u16; 2]| JobSpec {
        name: name.to_owned(),
        nodes: nodes.to_vec(),
        ..JobSpec::on_first(2)
    };
    let jobs = [job("one", [0, 2]), job("other", [1, 3])];
    let alone = Cluster::with_jobs(spec.clone(), jobs[..1].to_vec(), 1).expect("cluster");
    let both = || Cluster::with_jobs(spec.clone(), jobs.to_vec(), 1).expect("cluster");
    let healthy = |cluster: Cluster| {
        let mut cluster = cluster;
        let before = cluster.nodes().to_vec();
        run(&mut cluster, 0, 60);
        growth(&before, cluster.nodes(), RxPrio3PauseDuration)
    };
    assert_eq!(healthy(alone).iter().sum::<u64>(), 0);
    // They meet a quarter of the time, and then each has half.
    for micros in healthy(both()) {
        let share = micros as f64 / 60e6;
        assert!((0.01..0.25).contains(&share), "{share}");
    }
    let storm = fault("nic/gpu-node-02:mlx5_0", "cause = 'pfc-storm'");
    let run = Run::of(both(), storm);
    let received = run.grown(RxPrio3PauseDuration);
    // Node 1 sends over the uplink that node 0 has filled with data that is not drained.
    assert!(received[1] > 1_000_000, "{received:?}");
    assert!(victims(&run).contains(&1));
    assert_eq!(run.rdma(Counter::LocalAckTimeoutErr)[1], 0);
}

fn dragonfly() -> Cluster {
    let spec = ClusterSpec {
        nodes: 9,
        nics_per_node: Some(4),
        gpus_per_node: Some(4),
        wiring: WiringSpec::Dragonfly {
            routers_per_group: 4,
            nodes_per_group: 3,
            global_ports: 2,
        },
        switches: toml::from_str("radix = 16").expect("switches"),
        ..spec(9)
    };
    let mut job = JobSpec::on_first(9);
    job.workload.collectives[0].pattern = Pattern::AllToAll { nodes: 9 };
    Cluster::with_jobs(spec, vec![job], 1).expect("cluster")
}

#[test]
fn only_a_fabric_whose_paths_make_a_circle_can_lock_itself() {
    let deadlock = || fault("switch/router-1-2", "cause = 'pfc-deadlock'");
    let run = Run::of(dragonfly(), deadlock());
    assert_eq!(run.truth.slowdown, None);
    let (sent, received) = run.pause();
    assert_eq!(some(&sent), Vec::<usize>::new(), "no host is the root");
    let full = received.iter().filter(|share| **share > 0.9).count();
    assert!(full > 0, "{received:?}");
    // Each switch of the circle has a port that its peer pauses all of the time, and all of them are the fault.
    let switches = &run.cluster.plan().switches;
    let all = switches.iter().zip(run.cluster.switch_ports());
    let circle = all.filter(|(_, ports)| {
        let still = |port: &SwitchPort| {
            run.cluster.lane_count(port.sends).paused_seconds >= END as f64 - ONSET
        };
        ports.iter().any(still)
    });
    let circle: Vec<_> = circle
        .map(|(switch, _)| Part::Switch(switch.name.clone()))
        .collect();
    let culprits = || std::iter::once(&run.truth.part).chain(&run.truth.accomplices);
    assert!(
        culprits().count() > 2 && culprits().all(|part| circle.contains(part)),
        "{circle:?}"
    );
    let refused = hashed().inject(fault("switch/leaf-0", "cause = 'pfc-deadlock'"));
    let refused = refused.expect_err("a tree has no circle").to_string();
    assert!(refused.contains("up and then down have none"), "{refused}");
}

#[test]
fn ethernet_faults_are_refused_on_infiniband_with_the_reason() {
    let mut cluster = Cluster::new(ClusterSpec::demo(4).expect("spec"), 1).expect("cluster");
    for (part, effect) in [
        ("nic/gpu-node-02:mlx5_1", "cause = 'pfc-storm'"),
        (
            "nic/gpu-node-02:mlx5_1",
            "cause = 'mtu-mismatch'\nmtu = 1500",
        ),
        (
            "switch/leaf-su0-r0",
            "cause = 'switch-qos'\nloss_ratio = 0.01",
        ),
        (
            "switch/leaf-su0-r0",
            "cause = 'ecmp-polarized'\nuplink_share = 0.25",
        ),
        ("switch/leaf-su0-r0", "cause = 'pfc-deadlock'"),
    ] {
        let refused = cluster
            .inject(fault(part, effect))
            .expect_err(effect)
            .to_string();
        assert!(refused.contains("expected transport roce"), "{refused}");
    }
}

#[test]
fn symptoms_stay_with_the_culprit_and_those_that_the_truth_calls_victims() {
    let planes = || {
        let spec = ClusterSpec {
            planes: 2,
            ..spec(4)
        };
        Cluster::new(spec, 1).expect("cluster")
    };
    let rails = || Cluster::new(spec(8), 1).expect("cluster");
    for make in [rails as fn() -> Cluster, planes, hashed, dragonfly] {
        let causes = CAUSES.iter().copied();
        for cause in causes {
            let Some(fault) = examples::fault(&make(), cause, 7, ONSET) else {
                continue;
            };
            let own = |run: &Run, nic: usize| {
                let nics = &run.cluster.plan().nics;
                let accomplices = &run.truth.accomplices;
                let of_node = run.truth.part.node() == Some(&nics[nic].node_name);
                of_node || accomplices.contains(&nics[nic].link_part())
            };
            let run = Run::of(make(), fault);
            let victims = victims(&run);
            for counter in EthernetCounter::ALL
                .iter()
                .filter(|counter| !counter.is_traffic())
            {
                for (nic, grown) in run.grown(*counter).into_iter().enumerate() {
                    let may = victims.contains(&nic) || own(&run, nic);
                    assert!(
                        grown == 0 || may,
                        "{cause}: {} of NIC {nic}",
                        counter.name()
                    );
                }
            }
        }
    }
}
