//! A lossless Ethernet: who pauses whom and for how long, what congestion control says of it, and what stays the same.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::ethernet::EthernetCounter::{self, *};
use railscope_simulator::examples;
use railscope_simulator::fault::{CAUSES, Fault, Truth};
use railscope_simulator::port::Counter;
use railscope_simulator::route::{Lane, Routing};
use railscope_simulator::spec::{ClusterSpec, Transport, WiringSpec};
use railscope_simulator::workload::{Collective, JobSpec, Pattern};

const ONSET: f64 = 20.0;
const END: u64 = 120;

fn spec(nodes: u16) -> ClusterSpec {
    ClusterSpec {
        transport: Transport::Roce,
        ..ClusterSpec::demo(nodes).expect("spec")
    }
}

fn run(cluster: &mut Cluster, from: u64, to: u64) {
    for second in from + 1..=to {
        cluster.advance(Duration::from_secs(second));
    }
}

fn fault(part: &str, effect: &str) -> Fault {
    Fault {
        part: part.parse().expect(part),
        onset_seconds: ONSET,
        end_seconds: None,
        effect: toml::from_str(effect).expect(effect),
    }
}

/// A run with a fault: the cluster at the onset and at the end.
struct Run {
    cluster: Cluster,
    before: Vec<Node>,
    truth: Truth,
}

impl Run {
    fn of(mut cluster: Cluster, fault: Fault) -> Self {
        let truth = cluster.inject(fault).expect("a fault");
        run(&mut cluster, 0, ONSET as u64);
        let before = cluster.nodes().to_vec();
        run(&mut cluster, ONSET as u64, END);
        Self {
            cluster,
            before,
            truth,
        }
    }

    fn grown(&self, counter: EthernetCounter) -> Vec<u64> {
        growth(&self.before, self.cluster.nodes(), counter)
    }

    fn rdma(&self, counter: Counter) -> Vec<u64> {
        let of = |nodes: &[Node]| -> Vec<u64> {
            let ports = nodes.iter().flat_map(|node| &node.ports);
            ports.map(|port| port.get(counter)).collect()
        };
        let (before, after) = (of(&self.before), of(self.cluster.nodes()));
        before.iter().zip(after).map(|(b, a)| a - b).collect()
    }

    /// Share of the time in pause of each NIC, sent and received.
    fn pause(&self) -> (Vec<f64>, Vec<f64>) {
        let seconds = END as f64 - ONSET;
        let share = |counter| {
            let grown = self.grown(counter).into_iter();
            grown.map(|micros| micros as f64 / 1e6 / seconds).collect()
        };
        (share(TxPrio3PauseDuration), share(RxPrio3PauseDuration))
    }

    /// Index of a NIC: `gpu-node-02:mlx5_3`.
    fn nic(&self, name: &str) -> usize {
        let nics = &self.cluster.plan().nics;
        let is = |nic: &railscope_simulator::wiring::Nic| {
            format!("{}:{}", nic.node_name, nic.device) == name
        };
        nics.iter().position(is).expect(name)
    }
}

fn growth(before: &[Node], after: &[Node], counter: EthernetCounter) -> Vec<u64> {
    let of = |nodes: &[Node]| -> Vec<u64> {
        let ports = nodes.iter().flat_map(|node| &node.ports);
        ports
            .map(|port| port.netdev.as_ref().expect("Ethernet").get(counter))
            .collect()
    };
    of(before)
        .iter()
        .zip(of(after))
        .map(|(b, a)| a - b)
        .collect()
}

fn some(values: &[f64]) -> Vec<usize> {
    (0..values.len())
        .filter(|nic| values[*nic] > 1e-4)
        .collect()
}

#[test]
fn a_healthy_fabric_pauses_nobody_and_marks_nothing() {
    let mut cluster = Cluster::new(spec(8), 5).expect("cluster");
    let before = cluster.nodes().to_vec();
    run(&mut cluster, 0, 300);
    for counter in EthernetCounter::ALL {
        let grown: u64 = growth(&before, cluster.nodes(), *counter).iter().sum();
        assert_eq!(grown > 0, counter.is_traffic(), "{}", counter.name());
    }
}

#[test]
fn a_nic_of_400_gigabits_on_generation_4_pauses_its_switch_half_of_the_time() {
    // 16 lanes of generation 4 carry 26 GB/s of the 49 that come: 1 - 26/49 = 0.47.
    let degraded = "cause = 'pcie-degraded'\nlanes = 16\ngeneration = 4";
    let cluster = Cluster::new(spec(8), 1).expect("cluster");
    let run = Run::of(cluster, fault("pcie/gpu-node-02:0000:1b:00.0", degraded));
    let (sent, received) = run.pause();
    let culprit = run.nic("gpu-node-02:mlx5_1");
    assert_eq!(some(&sent), [culprit], "only the culprit sends pause");
    // The pause is in the collective only: 7.35 GB at 26 GB/s of every 0.73 s.
    let in_collective = 7.35 / 26.0 / run.cluster.step_seconds().expect("a step");
    let duty = sent[culprit] / in_collective;
    assert!((duty - 0.47).abs() < 0.01, "{duty}");
    let sender = run.nic("gpu-node-01:mlx5_1");
    assert_eq!(some(&received), [sender]);
    // DCQCN has slowed the sender down after the first 1.5 ms.
    assert!(received[sender] < 0.05 * sent[culprit], "{received:?}");
    let quantum = 65_535.0 * 512.0 / 400e9;
    let least = sent[culprit] * (END as f64 - ONSET) / quantum;
    let frames = run.grown(TxPrio3Pause)[culprit] as f64;
    assert!(frames >= least, "{frames} frames, {least} would do");
    assert!(run.grown(RxBufferPassedThresPhy)[culprit] > 0);
}

#[test]
fn without_congestion_control_the_sender_is_paused_as_long_as_the_receiver_pauses() {
    let degraded = "cause = 'pcie-degraded'\nlanes = 16\ngeneration = 4";
    let spec = ClusterSpec {
        dcqcn: false,
        ..spec(8)
    };
    let cluster = Cluster::new(spec, 1).expect("cluster");
    let run = Run::of(cluster, fault("pcie/gpu-node-02:0000:1b:00.0", degraded));
    let (sent, received) = run.pause();
    let (root, victim) = (run.nic("gpu-node-02:mlx5_1"), run.nic("gpu-node-01:mlx5_1"));
    assert!((received[victim] / sent[root] - 1.0).abs() < 0.01);
    assert_eq!((sent[victim], received[root]), (0.0, 0.0));
    for counter in [NpCnpSent, NpEcnMarkedRocePackets, RpCnpHandled] {
        assert_eq!(run.grown(counter).iter().sum::<u64>(), 0);
    }
}

#[test]
fn pause_changes_no_byte_of_what_arrives_and_every_notification_sent_is_handled() {
    let slow = || {
        fault(
            "host/gpu-node-03",
            "cause = 'slow-receiver'\ndrain_ratio = 0.6",
        )
    };
    let run = Run::of(Cluster::new(spec(8), 1).expect("cluster"), slow());
    let (sent, received) = (run.grown(TxPrio3Bytes), run.grown(RxPrio3Bytes));
    let sum = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64;
    assert!((sum(&sent) / sum(&received) - 1.0).abs() < 1e-3);
    // The same bytes as on InfiniBand: pause and credits hold back alike.
    let infiniband = Cluster::new(ClusterSpec::demo(8).expect("spec"), 1).expect("cluster");
    let other = Run::of(infiniband, slow());
    assert_eq!(
        run.rdma(Counter::PortXmitData),
        other.rdma(Counter::PortXmitData)
    );
    assert_eq!(run.truth.slowdown, other.truth.slowdown);
    let (asked, handled) = (sum(&run.grown(NpCnpSent)), sum(&run.grown(RpCnpHandled)));
    assert!(
        asked > 1e3 && (asked / handled - 1.0).abs() < 1e-2,
        "{asked} {handled}"
    );
    // One flow to each NIC of the slow host: at most one every 50 us.
    let most = *run.grown(NpCnpSent).iter().max().expect("ports") as f64;
    assert!(most <= (END as f64 - ONSET) / 50e-6);
}

#[test]
fn a_slow_receiver_pauses_on_all_of_its_ports_and_its_senders_are_the_victims() {
    let slow = fault(
        "host/gpu-node-03",
        "cause = 'slow-receiver'\ndrain_ratio = 0.6",
    );
    let run = Run::of(Cluster::new(spec(8), 1).expect("cluster"), slow);
    let (sent, received) = run.pause();
    let ports = |node: usize| (node * 8..node * 8 + 8).collect::<Vec<_>>();
    assert_eq!(some(&sent), ports(3));
    assert_eq!(some(&received), ports(2));
    for nic in ports(3) {
        assert!((0.01..0.6).contains(&sent[nic]), "{sent:?}");
        assert!(run.grown(RxPrio3Bytes)[nic] > 0);
    }
    assert_eq!(victims(&run), ports(2));
}

/// A job whose nodes all send to the first of eight at once.
fn incast(nodes: u16) -> JobSpec {
    let mut job = JobSpec::on_first(nodes);
    let gather = Collective {
        pattern: Pattern::Incast { nodes: 8 },
        bytes: 0.2e9,
    };
    job.workload.collectives.push(gather);
    job
}

#[test]
fn incast_is_marked_at_the_receiver_and_nobody_sends_pause() {
    let mut cluster = Cluster::with_jobs(spec(8), vec![incast(8)], 1).expect("cluster");
    let usual = Cluster::new(spec(8), 1)
        .expect("cluster")
        .step_seconds()
        .expect("a step");
    let slower = cluster.step_seconds().expect("a step") / usual;
    assert!((1.03..1.3).contains(&slower), "{slower}");
    let before = cluster.nodes().to_vec();
    run(&mut cluster, 0, 60);
    let grown = |counter| growth(&before, cluster.nodes(), counter);
    let (marked, handled, sent) = (
        grown(NpEcnMarkedRocePackets),
        grown(RpCnpHandled),
        grown(TxPrio3Pause),
    );
    assert!(marked[..8].iter().all(|count| *count > 0), "{marked:?}");
    assert!(marked[8..].iter().all(|count| *count == 0), "{marked:?}");
    assert!(handled[8..].iter().all(|count| *count > 0), "{handled:?}");
    assert!(sent.iter().all(|frames| *frames == 0));
}

/// Indices of the NICs whose cables a truth calls victims.
fn victims(run: &Run) -> Vec<usize> {
    let parts = run.truth.victims.iter();
    let nics = &run.cluster.plan().nics;
    let index = |part: &Part| nics.iter().position(|nic| nic.link_part() == *part);
    parts.map(|part| index(part).expect("a port")).collect()
}

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
    // The last data of the step in which it began apart.
    assert!(run.grown(RxPrio3Bytes)[root] < 8e9 as u64);
    assert!(run.grown(TxPauseStormWarningEvents)[root] >= 900);
    // 200 ms of pause for each time-out of 4.3 s, and no mark: nothing arrives that could have one.
    assert!((received[victim] - 0.2 / 4.3).abs() < 0.01, "{received:?}");
    assert_eq!((some(&sent), some(&received)), (vec![root], vec![victim]));
    assert_eq!(run.grown(NpEcnMarkedRocePackets).iter().sum::<u64>(), 0);
    let waits = run.rdma(Counter::LocalAckTimeoutErr);
    assert!((20..=26).contains(&waits[victim]), "{waits:?}");
    assert_eq!(waits.iter().sum::<u64>(), waits[victim]);
    // Frames that say it again and again; none that lets go.
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
        nics_per_node: 2,
        gpus_per_node: 2,
        routing: Routing::Ecmp,
        switches: toml::from_str("radix = 32\nuplinks = 16").expect("switches"),
        ..spec(8)
    };
    let mut job = JobSpec::on_first(8);
    job.workload.collectives[0].pattern = Pattern::AllToAll { nodes: 8 };
    Cluster::with_jobs(spec, vec![job], 1).expect("cluster")
}

#[test]
fn a_polarised_hash_crowds_a_few_uplinks_and_no_host_sends_pause() {
    let polarised = "cause = 'ecmp-polarised'\nuplink_share = 0.15";
    let mut healthy = hashed();
    let run = Run::of(hashed(), fault("switch/leaf-0", polarised));
    let slowdown = run.truth.slowdown.expect("slower");
    assert!((1.1..1.5).contains(&slowdown), "{slowdown}");
    healthy.advance(Duration::from_secs(END - 1));
    healthy.advance(Duration::from_secs(END));
    // Uplinks of the first leaf that carry anything.
    let used = |cluster: &Cluster| {
        let plan = cluster.plan();
        let up = (plan.nics.len()..plan.cables.len())
            .filter(|cable| plan.cable_part(*cable).to_string().contains("leaf-0:"));
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
        nics_per_node: 1,
        gpus_per_node: 1,
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
    // Node 1 sends over the uplink that node 0 has filled with what nobody takes.
    assert!(received[1] > 1_000_000, "{received:?}");
    assert!(victims(&run).contains(&1));
    assert_eq!(run.rdma(Counter::LocalAckTimeoutErr)[1], 0);
}

fn dragonfly() -> Cluster {
    let spec = ClusterSpec {
        nodes: 9,
        nics_per_node: 4,
        gpus_per_node: 4,
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
            "cause = 'ecmp-polarised'\nuplink_share = 0.25",
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
    for make in [
        || Cluster::new(spec(8), 1).expect("cluster"),
        hashed,
        dragonfly,
    ] {
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
