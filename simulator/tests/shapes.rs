//! Nodes of every shape obey the same laws with their own numbers, also side by side.

use std::time::Duration;

use railscope_model::units::LinkSpeed;
use railscope_simulator::cluster::{Cluster, Node};
use railscope_simulator::examples;
use railscope_simulator::faults::{CAUSES, Fault, Truth};
use railscope_simulator::spec::shape::NodeKind;
use railscope_simulator::spec::{ClusterSpec, Group, Speed};
use railscope_simulator::wiring::Wiring;

fn spec(kind: NodeKind, groups: &[(NodeKind, u16)]) -> ClusterSpec {
    let group = |(node, nodes): &(NodeKind, u16)| Group {
        node: *node,
        nodes: *nodes,
    };
    ClusterSpec {
        node: kind,
        groups: groups.iter().map(group).collect(),
        transport: kind.transport(),
        ..ClusterSpec::demo(8).expect("spec")
    }
}

fn cluster(kind: NodeKind) -> Cluster {
    Cluster::new(spec(kind, &[]), 1).expect("cluster")
}

fn with(kind: NodeKind, part: &str, effect: &str) -> (f64, Truth) {
    let mut cluster = cluster(kind);
    let healthy = cluster.step_seconds().expect("runs");
    let fault = Fault {
        part: part.parse().expect(part),
        onset_seconds: 0.0,
        end_seconds: None,
        effect: toml::from_str(effect).expect(effect),
    };
    let truth = cluster.inject(fault).expect(part);
    (healthy, truth)
}

#[test]
fn lost_nvlinks_cost_by_the_links_of_the_gpu() {
    // Half of the links doubles the time for 22.5 GB inside the node, up to what the slowest chip takes longer
    // anyway: three clock steps of 15 MHz.
    for (kind, links, seconds) in [
        (NodeKind::HgxH100, 18, 0.050),
        (NodeKind::HgxB200, 18, 0.025),
        (NodeKind::Gb200Nvl72, 18, 0.025),
        (NodeKind::DgxA100, 12, 0.075),
    ] {
        let lost = |links: u8| format!("cause = 'nvlink-down'\nlinks = {links}");
        let (healthy, truth) = with(kind, "gpu/gpu-node-02:1", &lost(links / 2));
        let slowdown = truth.slowdown.expect("slower");
        let longer = healthy * (slowdown - 1.0);
        let chips = 3.0 * 15.0 / kind.shape().gpu.full_clock_mhz * healthy;
        assert!(
            (seconds - chips..=seconds + 1e-9).contains(&longer),
            "{kind}: {longer}"
        );
        let (_, truth) = with(kind, "gpu/gpu-node-02:1", &lost(1));
        assert_eq!(truth.severity, 1.0 / f64::from(links), "{kind}");
    }
}

#[test]
fn half_a_slot_costs_by_its_generation_and_the_cable() {
    // 8 lanes of generation 4 beside 200 Gb/s are as 8 of generation 5 beside 400: half of what the NIC needs.
    for (kind, pci, generation) in [
        (NodeKind::HgxH100, "0000:19:00.0", 5),
        (NodeKind::DgxA100, "0000:05:00.0", 4),
        (NodeKind::Gb200Nvl72, "0000:01:00.0", 5),
    ] {
        let effect = format!("cause = 'pcie-degraded'\nlanes = 8\ngeneration = {generation}");
        let (healthy, truth) = with(kind, &format!("pcie/gpu-node-02:{pci}"), &effect);
        assert_eq!(truth.severity, 0.5, "{kind}");
        // Of 7.35 GB, at 49 GB/s and at 26, or at half of both.
        let wire = kind.shape().speed().link().bytes_per_second() * 0.98;
        let expected = 7.35e9 / wire * (49.0 / 26.0 - 1.0);
        let longer = healthy * (truth.slowdown.expect("slower") - 1.0);
        assert!(
            (longer / expected - 1.0).abs() < 0.01,
            "{kind}: {longer}, expected {expected}"
        );
    }
}

#[test]
fn every_shape_can_have_every_fault_and_a_healthy_one_shows_none() {
    for kind in NodeKind::ALL {
        let mut had = 0;
        for cause in CAUSES {
            let mut cluster = cluster(*kind);
            // Faults of Ethernet have nothing to break on InfiniBand, and those of cables nothing on EFA.
            let Some(fault) = examples::fault(&cluster, cause, 5, 5.0) else {
                continue;
            };
            had += 1;
            let truth = cluster.inject(fault).expect(cause);
            assert!((0.0..=1.0).contains(&truth.severity), "{kind}: {cause}");
        }
        let least = if *kind == NodeKind::EfaP5 { 22 } else { 25 };
        assert!(had >= least, "{kind}: {had} kinds of faults");
        let mut cluster = cluster(*kind);
        cluster.advance(Duration::from_secs(600));
        let (model, shape) = (&kind.shape().gpu, kind.shape());
        for node in cluster.nodes() {
            assert_eq!(node.gpus.len(), usize::from(shape.gpus()));
            assert_eq!(node.ports.len(), usize::from(shape.nics()));
            for gpu in &node.gpus {
                assert!(
                    gpu.clock_mhz > 0.97 * model.full_clock_mhz,
                    "{kind}: {gpu:?}"
                );
                assert!(gpu.power_watts < model.limit_watts, "{kind}: {gpu:?}");
                assert!(
                    (40.0..70.0).contains(&gpu.temperature_celsius),
                    "{kind}: {gpu:?}"
                );
            }
        }
    }
}

/// Share of the time in which the tensor cores of a node's first GPU work.
fn tensor_active(node: &Node) -> f64 {
    node.gpus[0].tensor_active
}

#[test]
fn a_job_over_two_generations_is_as_fast_as_the_older_one() {
    let mixed = spec(NodeKind::HgxH100, &[(NodeKind::DgxA100, 2)]);
    let mut mixed = Cluster::new(mixed, 1).expect("cluster");
    let step = |cluster: &Cluster| cluster.step_seconds().expect("runs");
    let (new, old) = (cluster(NodeKind::HgxH100), cluster(NodeKind::DgxA100));
    assert!(step(&old) > 2.0 * step(&new));
    assert!((step(&mixed) / step(&old) - 1.0).abs() < 0.02);
    mixed.advance(Duration::from_secs(60));
    let [a100, h100] = [0, 5].map(|node| tensor_active(&mixed.nodes()[node]));
    // 312 of 989 TFLOPS: the newer ones wait for the rest.
    assert!((h100 / a100 - 312.0 / 989.0).abs() < 0.05, "{h100} {a100}");
}

#[test]
fn cables_run_at_the_speed_of_their_slower_end() {
    let speed = |spec: &ClusterSpec| {
        let wiring = Wiring::plan(spec).expect("plan");
        let speed = |cable: usize| wiring.cables[cable].speed.speed;
        let newest = wiring.hosts[7].nics.start;
        [speed(0), speed(newest), speed(wiring.cables.len() - 1)]
    };
    let mixed = spec(NodeKind::HgxH100, &[(NodeKind::DgxA100, 2)]);
    assert_eq!(speed(&mixed), ["HDR", "NDR", "NDR"]);
    let old_switches = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..mixed
    };
    assert_eq!(speed(&old_switches), ["HDR"; 3]);
    assert_eq!(speed(&spec(NodeKind::DgxA100, &[])), ["HDR"; 3]);
    let all = spec(NodeKind::HgxH100, &[(NodeKind::DgxA100, 8)]);
    assert_eq!(speed(&all), ["HDR"; 3]);
    let cluster = Cluster::new(spec(NodeKind::HgxH100, &[(NodeKind::DgxA100, 2)]), 1);
    let cluster = cluster.expect("cluster");
    let hdr = LinkSpeed {
        lanes: 4,
        speed: "HDR",
    };
    assert_eq!(cluster.nodes()[1].ports[7].speed, hdr);
}

#[test]
fn a_job_uses_the_nics_that_all_of_its_nodes_have() {
    let mixed = spec(NodeKind::HgxH100, &[(NodeKind::Gb200Nvl72, 4)]);
    let mut cluster = Cluster::new(mixed, 1).expect("cluster");
    assert_eq!(cluster.plan().nics.len(), 4 * 4 + 4 * 8);
    assert_eq!(cluster.plan().nic_index(5, 3), 4 * 4 + 8 + 3);
    cluster.advance(Duration::from_secs(1));
    let before = cluster.nodes().to_vec();
    cluster.advance(Duration::from_secs(11));
    let sent = |nodes: &[Node], slot: usize| {
        nodes[5].ports[slot].get(railscope_simulator::parts::port::Counter::PortXmitData)
    };
    assert!(sent(cluster.nodes(), 3) > sent(&before, 3));
    assert_eq!(sent(cluster.nodes(), 4), sent(&before, 4));
}

#[test]
fn groups_and_shapes_stand_in_toml_and_what_does_not_fit_is_refused() {
    let wiring = "wiring = { kind = 'rail-optimized', nodes_per_su = 32 }";
    let parsed = |head: &str, tail: &str| {
        toml::from_str::<ClusterSpec>(&format!("nodes = 8\n{head}\n{wiring}\n{tail}"))
    };
    let group = "[[groups]]\nnode = 'dgx-a100'\nnodes = 2";
    let mixed = parsed("node = 'hgx-b200'", group).expect("a description");
    assert_eq!(mixed, spec(NodeKind::HgxB200, &[(NodeKind::DgxA100, 2)]));
    let kinds: Vec<_> = mixed
        .kinds()
        .map(|(kind, place)| (kind.name(), place))
        .collect();
    assert_eq!(
        kinds[..3],
        [("dgx-a100", 0), ("dgx-a100", 1), ("hgx-b200", 0)]
    );
    assert_eq!((kinds.len(), mixed.gpus()), (8, 64));
    let text = toml::to_string(&mixed).expect("toml");
    assert_eq!(toml::from_str::<ClusterSpec>(&text), Ok(mixed), "{text}");

    let refused = |head: &str, tail: &str| {
        let spec = parsed(head, tail).expect("a description");
        Wiring::plan(&spec).expect_err("refused").to_string()
    };
    assert_eq!(
        refused("", "[[groups]]\nnode = 'dgx-a100'\nnodes = 9"),
        "groups.nodes: found 9 in all, expected at most nodes = 8"
    );
    assert_eq!(
        refused("node = 'gb200-nvl72'\nnics_per_node = 8", ""),
        "nics_per_node: found 8, expected 1 to 4 (gb200-nvl72)"
    );
    let efa = "transport = 'efa'\nnode = 'efa-p5'";
    let spec = parsed(efa, "").expect("a description");
    assert_eq!(spec, self::spec(NodeKind::EfaP5, &[]));
    assert_eq!(Wiring::plan(&spec).expect("a plan").nics.len(), 8 * 32);
    for (head, tail, problem) in [
        (
            "node = 'efa-p5'",
            "",
            "transport: found infiniband with node efa-p5, expected efa, and no nodes of other kinds",
        ),
        (
            "transport = 'efa'",
            "",
            "transport: found efa with node hgx-h100, expected infiniband or roce",
        ),
        (
            efa,
            group,
            "transport: found efa with node dgx-a100, expected infiniband or roce",
        ),
        (
            "transport = 'efa'\nnode = 'efa-p5'\nplanes = 2",
            "",
            "planes: found 2, expected 1 to 1 (ports of a NIC)",
        ),
        (
            "transport = 'efa'\nnode = 'efa-p5'\ndcqcn = false",
            "",
            "dcqcn: found false on efa, expected it with transport roce only",
        ),
    ] {
        assert_eq!(refused(head, tail), problem, "{head}");
    }
}
