//! Announced work, storms, and incidents that come back or outlive a restart.

use std::sync::Arc;

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::diagnose::incident::{CLOSE_AFTER_TICKS, Incident};
use railscope_collector::diagnose::stages::maintenance::Window;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_model::metric::{SWITCH_PORT_ENABLED, SWITCH_PORT_UP};
use railscope_model::reading::{Labels, NodeReading};

use super::cluster::{as_planned, at, node, page, subnet_of};

/// Seconds of a tick.
const TICK: u64 = 5;
/// Nodes of most tests here.
const FEW: usize = 8;
/// Nodes that have more cables than a storm needs, on each leaf.
const MANY: usize = 56;

/// A cluster whose expositions and subnet a test changes from tick to tick.
struct Run {
    analyzer: Analyzer,
    nodes: usize,
    seconds: u64,
}

impl Run {
    fn of(nodes: usize) -> Self {
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&(0..nodes).map(node).collect::<Vec<_>>());
        let subnet = parse_ibnetdiscover(&subnet_of(nodes, 2, &as_planned));
        analyzer.take_subnet(subnet, at(0));
        Self {
            analyzer,
            nodes,
            seconds: 0,
        }
    }

    fn announce(&mut self, parts: &[&str], from: u64, until: u64) {
        let parts = parts.iter().map(|part| part.parse().expect(part)).collect();
        let why = String::from("new firmware");
        let (from, until) = (at(from), at(until));
        let window = Window {
            parts,
            from,
            until,
            why,
        };
        self.analyzer.set_maintenance(vec![Arc::new(window)]);
    }

    /// So many ticks in which these ports are down.
    fn ticks(&mut self, ticks: u32, down: &[(usize, usize)]) -> ClusterView {
        let mut view = self.analyzer.tick(at(self.seconds));
        for _ in 0..ticks {
            self.seconds += TICK;
            for index in 0..self.nodes {
                let ports = down.iter().filter(|(node, _)| *node == index);
                let text = ports.fold(page(index, self.seconds), |text, (_, rail)| {
                    let up = format!("rdma_port_up{{device=\"mlx5_{rail}\",port=\"1\"}} ");
                    text.replace(&format!("{up}1"), &format!("{up}0"))
                });
                self.analyzer.ingest(&node(index), &text, at(self.seconds));
            }
            view = self.analyzer.tick(at(self.seconds));
        }
        view
    }
}

/// The incidents as `severity part [why]`.
fn told(view: &ClusterView) -> Vec<String> {
    let line = |incident: &Incident| {
        let why = incident
            .maintenance
            .as_ref()
            .map(|window| window.why.as_str());
        format!(
            "{} {} {}",
            incident.severity.as_str(),
            incident.root,
            why.unwrap_or("-")
        )
    };
    view.incidents.iter().map(line).collect()
}

#[test]
fn work_on_a_part_keeps_its_incident_and_takes_its_page_away() {
    const PAGE: &str = "critical link/n3:mlx5_2/1 -";
    const KEPT: &str = "warning link/n3:mlx5_2/1 new firmware";
    for (parts, from, until, expected) in [
        (&["link/n3:mlx5_2/1"][..], 0, 600, KEPT),
        (&["host/n3"], 0, 600, KEPT),
        (&["host/n4", "nic/n3:*"], 0, 600, KEPT),
        (&["switch/leaf-*"], 0, 600, KEPT),
        (&["switch/spine-*"], 0, 600, PAGE),
        (&["host/n4"], 0, 600, PAGE),
        (&["host/n3"], 300, 600, PAGE),
        // Its end and the minute after it are over.
        (&["host/n3"], 0, 10, PAGE),
    ] {
        let mut run = Run::of(FEW);
        run.announce(parts, from, until);
        run.ticks(10, &[]);
        let view = run.ticks(10, &[(3, 2)]);
        assert_eq!(told(&view), [expected], "{parts:?} {from} {until}");
    }
}

#[test]
fn what_lasts_longer_than_its_work_pages_after_a_minute() {
    let mut run = Run::of(FEW);
    run.announce(&["host/n3"], 0, 100);
    run.ticks(10, &[]);
    let down = &[(3, 2)];
    assert_eq!(
        told(&run.ticks(22, down)),
        ["warning link/n3:mlx5_2/1 new firmware"]
    );
    assert_eq!(told(&run.ticks(1, down)), ["critical link/n3:mlx5_2/1 -"]);
}

#[test]
fn the_cable_of_a_port_that_its_switch_reports_as_disabled_is_no_fault() {
    for (enabled, expected) in [
        (None, &["critical link/n3:mlx5_2/1 -"][..]),
        (Some(1.0), &["critical link/n3:mlx5_2/1 -"]),
        (Some(0.0), &[]),
    ] {
        let mut run = Run::of(FEW);
        run.ticks(10, &[]);
        let reports = |run: &mut Run, enabled: f64| {
            let mut reading = NodeReading::default();
            reading.push(&SWITCH_PORT_ENABLED, &Labels::new(["4"]), enabled);
            let leaf = "leaf-2".parse().expect("a name");
            run.analyzer.ingest_switch(&leaf, &reading, at(run.seconds));
        };
        if let Some(enabled) = enabled {
            reports(&mut run, enabled);
        }
        let down = &[(3, 2)];
        assert_eq!(told(&run.ticks(10, down)), expected, "{enabled:?}");
        // Enabled again it has a minute to come up.
        reports(&mut run, 1.0);
        assert_eq!(told(&run.ticks(2, down)), expected, "{enabled:?}");
        run.ticks(13, down);
        assert_eq!(told(&run.ticks(1, down)), ["critical link/n3:mlx5_2/1 -"]);
    }
}

/// A switch that is read every 30 s may say only then that its port was disabled; one that is not read any more may be dead.
#[test]
fn a_lost_cable_waits_until_its_switch_was_read() {
    let lost = "critical link/n3:mlx5_2/1 -";
    for (reads, expected) in [(true, &[][..]), (false, &[lost])] {
        let mut run = Run::of(FEW);
        let report = |run: &mut Run, enabled: f64| {
            let mut reading = NodeReading::default();
            reading.push(&SWITCH_PORT_ENABLED, &Labels::new(["4"]), enabled);
            reading.push(&SWITCH_PORT_UP, &Labels::new(["4"]), 1.0);
            let leaf = "leaf-2".parse().expect("a name");
            run.analyzer.ingest_switch(&leaf, &reading, at(run.seconds));
        };
        for _ in 0..4 {
            run.ticks(6, &[]);
            report(&mut run, 1.0);
        }
        let down = &[(3, 2)];
        assert!(told(&run.ticks(6, down)).is_empty(), "not read since");
        if reads {
            report(&mut run, 0.0);
        }
        assert_eq!(told(&run.ticks(6, down)), expected);
    }
    // It says itself that the port is down, and enabled.
    let mut run = Run::of(FEW);
    for up in [1.0, 1.0, 1.0, 0.0] {
        run.ticks(6, &[]);
        let mut reading = NodeReading::default();
        reading.push(&SWITCH_PORT_ENABLED, &Labels::new(["4"]), 1.0);
        reading.push(&SWITCH_PORT_UP, &Labels::new(["4"]), up);
        let leaf = "leaf-2".parse().expect("a name");
        run.analyzer.ingest_switch(&leaf, &reading, at(run.seconds));
    }
    assert_eq!(told(&run.ticks(3, &[(3, 2)])), [lost]);
}

/// Ports of some rails of every node.
fn rails(rails: std::ops::Range<usize>) -> Vec<(usize, usize)> {
    let nodes = 0..MANY;
    nodes
        .flat_map(|node| rails.clone().map(move |rail| (node, rail)))
        .collect()
}

/// The incidents as `class part`.
fn classes(view: &ClusterView) -> Vec<String> {
    let incidents = view.incidents.iter();
    incidents
        .map(|incident| format!("{} {}", incident.class.name, incident.root))
        .collect()
}

#[test]
fn cables_of_many_switches_lost_at_once_are_one_storm_and_those_of_one_are_its_own() {
    for (lost, expected) in [
        (rails(0..1), "switch-down switch/leaf-0"),
        (rails(0..2), "fabric-storm switch/leaf-0"),
        (rails(0..3), "fabric-storm switch/spine-0"),
    ] {
        let mut run = Run::of(MANY);
        run.ticks(CLOSE_AFTER_TICKS + 1, &[]);
        // They are seen within two ticks.
        run.ticks(1, &lost[..lost.len() / 2]);
        assert_eq!(classes(&run.ticks(4, &lost)), [expected]);
        // Most are back: the rest is what it is.
        run.ticks(CLOSE_AFTER_TICKS, &[(3, 0)]);
        assert_eq!(
            classes(&run.ticks(2, &[(3, 0)])),
            ["port-down link/n3:mlx5_0/1"]
        );
    }
}

#[test]
fn cables_that_were_lost_before_are_no_storm() {
    let mut run = Run::of(MANY);
    // A run has just begun: the start of the fault is unknown.
    run.ticks(1, &[]);
    let view = run.ticks(20, &rails(0..3));
    let expected = (0..3).map(|leaf| format!("switch-down switch/leaf-{leaf}"));
    assert_eq!(classes(&view), expected.collect::<Vec<_>>());
    let mut run = Run::of(MANY);
    run.ticks(CLOSE_AFTER_TICKS + 1, &[]);
    let mut lost = Vec::new();
    for rail in 0..3 {
        lost.extend(rails(rail..rail + 1));
        run.ticks(3, &lost);
    }
    assert_eq!(classes(&run.ticks(1, &lost)).len(), 3, "one after another");
}

#[test]
fn what_comes_back_within_half_an_hour_is_the_same_incident() {
    let down = &[(3, 2)];
    for (quiet_ticks, since, reopenings) in [(300, 55, 1), (CLOSE_AFTER_TICKS + 361, 1935, 0)] {
        let mut run = Run::of(FEW);
        run.ticks(10, &[]);
        run.ticks(3, down);
        assert_eq!(run.ticks(quiet_ticks, &[]).incidents, []);
        let view = run.ticks(3, down);
        let [incident] = view.incidents.as_slice() else {
            panic!("one incident: {:?}", view.incidents);
        };
        assert_eq!(
            (incident.since, incident.reopenings),
            (at(since), reopenings),
            "{quiet_ticks}"
        );
    }
}

#[test]
fn after_a_restart_an_incident_is_open_at_once_and_as_old_as_it_was() {
    let down = &[(3, 2)];
    let mut before = Run::of(FEW);
    before.ticks(10, &[]);
    let view = before.ticks(3, down);
    for (seen, left) in [(down.as_slice(), 1), (&[], 0)] {
        let mut run = Run::of(FEW);
        run.seconds = before.seconds;
        let (open, closed) = (view.incidents.clone(), view.closed.clone());
        run.analyzer.restore_incidents(open, closed);
        let known = [(&*view.incidents[0].id, at(55))];
        let now = run.ticks(4, seen);
        let told: Vec<_> = now
            .incidents
            .iter()
            .map(|one| (&*one.id, one.since))
            .collect();
        assert_eq!(told, known);
        assert_eq!(run.ticks(CLOSE_AFTER_TICKS, seen).incidents.len(), left);
    }
}
