//! Where plan and fabric differ, traffic is evidence: for cables that are not needed, and for those that are used.

use std::time::Duration;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::lint::Finding;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_model::plan::{Socket, WiringPlan};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::plan;
use railscope_simulator::show::readings::{Exporters, switches};
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::wiring::Wiring;

use super::{NOW, row, spec};

const NODES: u16 = 8;

/// The findings after a minute, with a job on all nodes or with none.
fn after_a_minute(spec: &ClusterSpec, plan: WiringPlan, busy: bool) -> Vec<Finding> {
    let mut cluster = if busy {
        Cluster::new(spec.clone(), 1).expect("a cluster")
    } else {
        Cluster::with_jobs(spec.clone(), Vec::new(), 1).expect("a cluster")
    };
    let exporters = Exporters::of(&cluster);
    let mut analyzer = Analyzer::default();
    analyzer.set_targets(exporters.names());
    analyzer.set_plan(Some(plan));
    let built = Wiring::built(spec).expect("a wiring");
    analyzer.take_subnet(parse_ibnetdiscover(&ibnetdiscover(&built, NOW)), NOW);
    let mut view = analyzer.tick(NOW);
    for seconds in (10..=60).step_by(10) {
        cluster.advance(Duration::from_secs(seconds));
        let at = NOW.plus_seconds(seconds as f64);
        for (name, reading) in exporters.read(&cluster) {
            analyzer.ingest_reading(name, &reading, at);
        }
        for (switch, reading) in switches(&cluster) {
            analyzer.ingest_switch(&switch, &reading, at);
        }
        view = analyzer.tick(at);
    }
    view.lint.to_vec()
}

fn rules(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.rule.name).collect()
}

/// A plan that has one device more on the first hosts, each with a cable to a free port of the second leaf.
fn with_more(plan: &WiringPlan, hosts: usize) -> WiringPlan {
    let mut plan = plan.clone();
    for host in 0..hosts {
        let socket = |part: String, port: u16| Socket {
            part: part.parse().expect("a part"),
            port: port.into(),
        };
        let mut cable = plan.cables[0].clone();
        cable.rail = None;
        cable.ends = [
            socket(format!("nic/gpu-node-{host:02}:mlx5_6"), 1),
            socket(String::from("switch/leaf-1"), 21 + host as u16),
        ];
        plan.cables.push(cable);
    }
    plan
}

#[test]
fn cables_that_a_plan_has_and_no_host_are_the_plans_fault_if_jobs_run_without_them() {
    // 48 cables fill one leaf of 28 ports for hosts, and 20 of the next.
    let spec = ClusterSpec {
        nodes: NODES,
        nics_per_node: Some(6),
        ..spec("fat-tree-oversubscribed")
    };
    let plan = plan::plan(&Wiring::plan(&spec).expect("a wiring"));
    let all = usize::from(NODES);
    let findings = after_a_minute(&spec, with_more(&plan, all), true);
    let said: String = findings.iter().map(ToString::to_string).collect();
    assert_eq!(rules(&findings), ["wrong-plan"], "{said}");
    assert_eq!(findings[0].parts.len(), all, "{said}");
    assert!(
        said.contains("cables at mlx5_6 that 8 hosts do not have"),
        "{said}"
    );

    // Without traffic it is unknown whether they are needed; and three hosts do not make a rule.
    for (hosts, busy) in [(all, false), (3, true)] {
        let findings = after_a_minute(&spec, with_more(&plan, hosts), busy);
        assert_eq!(rules(&findings), vec!["missing-cable"; hosts]);
    }
}

#[test]
fn a_wrong_row_of_the_plan_has_the_traffic_of_the_cable_as_evidence() {
    let spec = ClusterSpec::demo(NODES).expect("a cluster");
    let mut plan = plan::plan(&Wiring::plan(&spec).expect("a wiring"));
    let (one, other) = (
        row(&plan, "nic/gpu-node-03:mlx5_2 port 1"),
        row(&plan, "nic/gpu-node-05:mlx5_4 port 1"),
    );
    let far = plan.cables[one].ends[1].clone();
    plan.cables[one].ends[1] = std::mem::replace(&mut plan.cables[other].ends[1], far);
    for busy in [true, false] {
        let findings = after_a_minute(&spec, plan.clone(), busy);
        let said: String = findings.iter().map(ToString::to_string).collect();
        assert_eq!(rules(&findings), ["wrong-plan"], "{said}");
        let seen = "traffic: what nic/gpu-node-03:mlx5_2 port 1 sends arrives at switch/leaf-su0-r2 port 4";
        assert_eq!(said.contains(seen), busy, "{said}");
    }
}
