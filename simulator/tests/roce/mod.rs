//! A lossless Ethernet: which ports pause which, and for how long, the reaction of congestion control, and invariants.

mod faults;

use std::time::Duration;

use railscope_model::identity::Part;
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::faults::{Fault, Truth};
use railscope_simulator::parts::ethernet::EthernetCounter;
use railscope_simulator::parts::ethernet::EthernetCounter::*;
use railscope_simulator::parts::port::Counter;
use railscope_simulator::spec::{ClusterSpec, Transport};
use railscope_simulator::work::workload::{Collective, JobSpec, Pattern};

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
        bytes: 0.3e9,
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
    assert!((1.05..1.3).contains(&slower), "{slower}");
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
