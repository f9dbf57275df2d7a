//! Curves of hand-made histories: the series found, the values of peers, and the bounds.

use std::fmt::Write as _;

use railscope_model::fabric::{Equipment, Link, LinkKind, Witness};
use railscope_model::identity::{NodeName, SwitchName};
use railscope_model::metric::{
    GPU, GPU_CLOCK, PCIE_LINK_WIDTH, PCIE_PATH, RDMA_PORT, RDMA_PORT_ERRORS,
    SWITCH_PORT_TRANSMIT_WAIT,
};
use railscope_model::reading::NodeReading;

use super::*;
use crate::classes::{GPU_SLOW, LINK_ERRORS, PCIE_DEGRADED, SLOW_RECEIVER};
use crate::detect::detector::{DETECTORS, Explanation};
use crate::diagnose::incident::{Finding, describe};

/// When the fault of most tests begins.
const ONSET: u64 = 100;

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn node(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

/// What a cluster has reported.
#[derive(Default)]
struct World {
    fabric: Fabric,
    history: History,
    jobs: Jobs,
    recorder: Recorder,
}

impl World {
    fn read(&mut self, number: usize, seconds: u64, page: &str) {
        let told = self
            .history
            .node_mut(&node(number))
            .ingest(page, at(seconds));
        assert_eq!((told.unknown, &*told.errors), (0, &[][..]), "{page}");
    }

    fn tick(&mut self, incidents: &[Incident], seconds: u64) -> Curves {
        let seen = Seen {
            fabric: &self.fabric,
            history: &self.history,
            jobs: &self.jobs,
            now: at(seconds),
        };
        self.recorder.tick(seen, incidents, plotted)
    }

    fn incident(
        &self,
        part: &str,
        detector: &'static str,
        class: &'static Class,
        signal: &'static str,
    ) -> Incident {
        let part: Part = part.parse().expect("a part");
        let finding = Finding {
            evidence: Evidence {
                detector,
                signal,
                part: part.clone(),
                class,
                effect: 0.5,
                statement: String::new(),
                victims: Vec::new(),
                related: Vec::new(),
                alike: Vec::new(),
            },
            explanation: Explanation {
                check: "",
                threshold: String::new(),
                clears: "",
            },
        };
        describe(&self.fabric, &part, vec![finding], at(ONSET))
    }
}

fn plotted(evidence: &Evidence) -> Option<Plotted> {
    let mut detectors = DETECTORS.iter().map(|build| build());
    let by = detectors.find(|detector| detector.name() == evidence.detector)?;
    by.plotted(evidence.class, evidence.signal)
}

/// Two GPUs at full clock; the first of node 1 slows down at the onset.
fn clocks(number: usize, seconds: u64) -> String {
    let mut page = String::new();
    for gpu in 0..2 {
        let is_slow = number == 1 && gpu == 0 && seconds >= ONSET;
        let sm = if is_slow { 9.9e8 } else { 1.98e9 };
        for (clock, hertz) in [("memory", 2.6e9), ("sm", sm)] {
            let name = GPU_CLOCK.name;
            writeln!(page, "{name}{{gpu=\"{gpu}\",clock=\"{clock}\"}} {hertz}").expect("text");
        }
    }
    page
}

fn slow_gpu(world: &World) -> Incident {
    world.incident("gpu/n1:0", "slow-gpu", &GPU_SLOW, GPU_CLOCK.name)
}

#[test]
fn a_gauge_stands_beside_its_peers_from_a_minute_before_the_onset() {
    let mut world = World::default();
    for seconds in (0..=110).step_by(5) {
        (0..6).for_each(|number| world.read(number, seconds, &clocks(number, seconds)));
    }
    let incident = slow_gpu(&world);
    let curves = world.tick(std::slice::from_ref(&incident), 110);
    let curve = &curves[&incident.id];
    assert_eq!(
        curve.labels,
        Labels::new(["0", "sm"]),
        "what differs decides"
    );
    assert_eq!(
        (curve.peers, curve.limit, curve.onset),
        (11, None, at(ONSET))
    );
    let times: Vec<u64> = curve.points.iter().map(|point| point.at.0 / 1000).collect();
    assert_eq!(times, (40..=110).step_by(5).collect::<Vec<_>>());
    for point in &curve.points {
        let own = if point.at < at(ONSET) { 1.98e9 } else { 9.9e8 };
        assert_eq!(point.own, Some(own), "{:?}", point.at);
        let band = point.peers.expect("peers");
        assert_eq!([band.low, band.median, band.high], [1.98e9; 3]);
    }
    // One more scrape adds a point; the same scrape again adds none.
    world.read(1, 115, &clocks(1, 115));
    for seconds in [115, 116] {
        let curves = world.tick(std::slice::from_ref(&incident), seconds);
        assert_eq!(curves[&incident.id].points.len(), 16);
    }
}

#[test]
fn a_counter_of_one_kind_is_a_rate_with_its_limit_and_a_reset_is_a_gap() {
    let mut world = World::default();
    let page = |number: usize, seconds: u64| {
        let counted = match seconds {
            _ if number != 1 => 7,
            0..ONSET => 3,
            // Cleared by an operator.
            ONSET..120 => 3 + 2 * (seconds - ONSET),
            _ => 2 * (seconds - 120),
        };
        let name = RDMA_PORT_ERRORS.name;
        format!(
            "{name}{{device=\"mlx5_0\",port=\"1\",kind=\"link_error_recovery\"}} {counted}\n\
             {name}{{device=\"mlx5_0\",port=\"1\",kind=\"port_rcv_errors\"}} {}\n",
            1000 * seconds
        )
    };
    let incident = world.incident(
        "link/n1:mlx5_0/1",
        "error-counters",
        &LINK_ERRORS,
        "link_error_recovery",
    );
    let mut curves = Curves::default();
    for seconds in (0..=130).step_by(5) {
        (0..4).for_each(|number| world.read(number, seconds, &page(number, seconds)));
        if seconds >= 110 {
            curves = world.tick(std::slice::from_ref(&incident), seconds);
        }
    }
    let curve = &curves[&incident.id];
    assert!(curve.is_rate());
    assert_eq!(
        curve.labels,
        Labels::new(["mlx5_0", "1", "link_error_recovery"])
    );
    assert_eq!((curve.limit, curve.peers), (Some(300.0 / 3600.0), 3));
    let own = |seconds| {
        let mut points = curve.points.iter();
        points
            .find(|point| point.at == at(seconds))
            .expect("a point")
            .own
    };
    assert_eq!(
        [own(95), own(105), own(115)],
        [Some(0.0), Some(2.0), Some(2.0)]
    );
    assert_eq!([own(120), own(125)], [None, Some(2.0)]);
}

#[test]
fn what_a_switch_counts_of_a_nic_is_compared_with_its_other_ports_to_hosts() {
    let mut world = World::default();
    let switch: SwitchName = "leaf".parse().expect("a name");
    let leaf = world.fabric.upsert(
        Part::Switch(switch.clone()),
        Equipment::Switch {
            guid: None,
            ports: 8,
            description: String::new(),
        },
    );
    for port in 1..=6 {
        let (part, equipment) = if port == 6 {
            let spine = Part::Switch("spine".parse().expect("a name"));
            let equipment = Equipment::Switch {
                guid: None,
                ports: 8,
                description: String::new(),
            };
            (spine, equipment)
        } else {
            let nic = Part::Nic(node(port), "mlx5_0".parse().expect("a name"));
            let equipment = Equipment::Nic {
                guid: None,
                pci: None,
                rail: None,
            };
            (nic, equipment)
        };
        let far = world.fabric.upsert(part, equipment);
        let link = Link {
            ports: (port as u16, 1),
            ..Link::plain(LinkKind::Cable, Witness::Subnet, at(0))
        };
        world.fabric.add_link(leaf, far, link);
    }
    for seconds in (0..=110_u64).step_by(10) {
        let mut reading = NodeReading::default();
        for port in 1..=6_u64 {
            let ticks = match port {
                1 => 1000 * seconds.saturating_sub(ONSET - 10),
                6 => 5_000_000 * seconds,
                _ => port * seconds,
            };
            let labels = Labels::new([port]);
            reading.push(&SWITCH_PORT_TRANSMIT_WAIT, &labels, ticks);
        }
        world
            .history
            .switch_mut(&switch)
            .ingest_reading(&reading, at(seconds));
    }
    let signal = SWITCH_PORT_TRANSMIT_WAIT.name;
    for part in ["nic/n1:mlx5_0", "link/n1:mlx5_0/1"] {
        let incident = world.incident(part, "slow-receiver", &SLOW_RECEIVER, signal);
        let curves = world.tick(std::slice::from_ref(&incident), 110);
        let curve = &curves[&incident.id];
        assert_eq!(curve.labels, Labels::new(["1"]), "{part}");
        assert_eq!(curve.peers, 4, "the port to the spine is none: {part}");
        let last = curve.points.last().expect("a point");
        assert_eq!(last.own, Some(1000.0), "{part}");
        assert_eq!(last.peers.map(|band| band.median), Some(3.5), "{part}");
    }
}

/// A GPU and a NIC with 16 lanes, in any profile of the exporter; the NIC of node 1 loses half of them.
fn lanes(number: usize, seconds: u64) -> String {
    let is_narrow = number == 1 && seconds >= ONSET;
    let nic = if is_narrow { 8 } else { 16 };
    let (width, path) = (PCIE_LINK_WIDTH.name, PCIE_PATH.name);
    let mut page = format!(
        "{width}{{pci=\"0000:17:00.0\"}} 16\n{width}{{pci=\"0000:18:00.0\"}} {nic}\n\
         {}{{gpu=\"0\",pci=\"0000:17:00.0\"}} 1\n{}{{device=\"mlx5_0\",port=\"1\",pci=\"0000:18:00.0\"}} 1\n",
        GPU.name, RDMA_PORT.name
    );
    if is_narrow {
        writeln!(
            page,
            "{path}{{pci=\"0000:18:00.0\",kind=\"nic\",name=\"mlx5_0\"}} 1"
        )
        .expect("text");
    }
    page
}

#[test]
fn a_pcie_link_of_a_nic_is_compared_with_those_of_nics() {
    let mut world = World::default();
    for seconds in (0..=110).step_by(5) {
        (0..6).for_each(|number| world.read(number, seconds, &lanes(number, seconds)));
    }
    let incident = world.incident(
        "pcie/n1:0000:18:00.0",
        "degraded-link",
        &PCIE_DEGRADED,
        PCIE_LINK_WIDTH.name,
    );
    let curves = world.tick(std::slice::from_ref(&incident), 110);
    let curve = &curves[&incident.id];
    assert_eq!(curve.labels, Labels::new(["0000:18:00.0"]));
    assert_eq!(curve.peers, 5, "one NIC in each other node, and no GPU");
    assert_eq!(curve.points.last().and_then(|last| last.own), Some(8.0));
}

#[test]
fn a_silent_part_has_a_gap_and_what_rests_on_no_series_has_no_curve() {
    let mut world = World::default();
    for seconds in (0..=240).step_by(5) {
        let silent = |number: usize| number == 1 && seconds > 110;
        (0..6)
            .filter(|number| !silent(*number))
            .for_each(|number| world.read(number, seconds, &clocks(number, seconds)));
    }
    let incidents = [
        slow_gpu(&world),
        world.incident("host/n2", "miscabled-rail", &GPU_SLOW, "subnet"),
        world.incident("gpu/n9:0", "slow-gpu", &GPU_SLOW, GPU_CLOCK.name),
    ];
    let curves = world.tick(&incidents, 240);
    assert_eq!(curves.len(), 1);
    let last = *curves[&incidents[0].id].points.last().expect("a point");
    assert_eq!((last.at, last.own), (at(240), None));
    assert!(last.peers.is_some());
    assert_eq!(world.tick(&[], 245).len(), 0);
    assert!(
        world.recorder.0.is_empty(),
        "nothing is kept of what is over"
    );
}

#[test]
fn curves_are_bounded_in_number_and_length_and_keep_the_onset() {
    let mut world = World::default();
    for seconds in (0..=110).step_by(5) {
        (0..40).for_each(|number| world.read(number, seconds, &clocks(number, seconds)));
    }
    let mut incidents = vec![slow_gpu(&world)];
    for number in 2..40 {
        for gpu in 0..2 {
            let part = format!("gpu/n{number}:{gpu}");
            incidents.push(world.incident(&part, "slow-gpu", &GPU_SLOW, GPU_CLOCK.name));
        }
    }
    let curves = world.tick(&incidents, 110);
    assert_eq!((incidents.len(), curves.len()), (77, MOST_RECORDED));
    let rounds = 6 * 3600 / 5;
    let one = &incidents[..1];
    let mut curves = Curves::default();
    for round in 23..rounds {
        world.read(1, 5 * round, &clocks(1, 5 * round));
        curves = world.tick(one, 5 * round);
    }
    let points = &curves[&one[0].id].points;
    assert!(
        (MOST_POINTS / 2..=MOST_POINTS).contains(&points.len()),
        "{}",
        points.len()
    );
    let around = points
        .iter()
        .take_while(|point| point.at <= at(ONSET).plus_seconds(AROUND_SECONDS));
    assert!(around.count() > 30, "around the onset every scrape is kept");
    assert_eq!(
        points.last().map(|point| point.at),
        Some(at(5 * (rounds - 1)))
    );
    let tail = points
        .windows(2)
        .skip(60)
        .map(|pair| pair[1].at.seconds_since(pair[0].at));
    assert!(tail.fold(0.0, f64::max) < 1200.0, "evenly thinned");
}

#[test]
fn a_band_is_of_three_values_or_more() {
    assert_eq!(band(vec![1.0, 2.0]), None);
    let all = band((0..=10).rev().map(f64::from).collect()).expect("a band");
    assert_eq!((all.low, all.median, all.high), (1.0, 5.0, 9.0));
}
