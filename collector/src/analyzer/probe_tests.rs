//! What is reported about probes on three leaves under four spines: by scrapes of their nodes, tick
//! by tick.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::{Equipment, Fabric, Link, LinkKind, PartId, Timestamp, Witness};
use railscope_model::identity::{Guid, NodeName, Part};
use railscope_model::metric::{PROBE_FLOW_LOST, PROBE_FLOW_SENT, PROBE_FLOW_SLOW, PROBE_HOP};
use railscope_model::reading::{Labels, NodeReading};

use crate::detect::detector::{Evidence, View};
use crate::detect::gpus::Gpus;
use crate::detect::rules::probe_paths::build;
use crate::fabric::addresses::Addresses;
use crate::fabric::subnet::forwarding::Tables;
use crate::fabric::subnet::{End, Forwarding, Subnet};
use crate::fabric::{Routes, SubnetMerge, understand};
use crate::jobs::job::Jobs;
use crate::stages::{LeftOut, Step};
use crate::store::History;

const SPINES: usize = 4;
const LEAVES: usize = 3;
const PER_LEAF: usize = 4;
const NODES: usize = LEAVES * PER_LEAF;
const TICK_SECONDS: f64 = 10.0;
const TICKS: usize = 24;
/// Probes of a flow in a tick.
const PROBES: f64 = 20.0;

/// A flow and its path.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: usize,
    to: usize,
    flow: usize,
    /// Out and back; none within a leaf.
    spines: Option<[usize; 2]>,
}

impl Way {
    fn leaves(self) -> [usize; 2] {
        [self.from / PER_LEAF, self.to / PER_LEAF]
    }

    /// How many times a probe crosses the cable of a leaf to a spine.
    fn crosses(self, leaf: usize, spine: usize) -> f64 {
        let spines = self.spines.iter().flatten();
        let over = spines.filter(|own| **own == spine).count();
        if self.leaves().contains(&leaf) {
            over as f64
        } else {
            0.0
        }
    }

    fn has(self, node: usize) -> bool {
        self.from == node || self.to == node
    }
}

/// Each node to two of its leaf and to two of each other, four flows each.
fn ways() -> Vec<Way> {
    let mut ways = Vec::new();
    for from in 0..NODES {
        let leaf = from / PER_LEAF;
        let at = |leaf: usize, step: usize| leaf * PER_LEAF + (from + step) % PER_LEAF;
        for step in 1..=2 {
            let to = at(leaf, step);
            ways.push(Way {
                from,
                to,
                flow: 0,
                spines: None,
            });
        }
        for number in 0..16 {
            let (step, flow, other) = (number / 8, number % 4, number / 4 % 2 + 1);
            let to = at((leaf + other) % LEAVES, step);
            let back = (5 * to + 3 * from + 7 * flow + step) % SPINES;
            let spines = Some([(from + to + flow) % SPINES, back]);
            ways.push(Way {
                from,
                to,
                flow,
                spines,
            });
        }
    }
    ways
}

/// The GUIDs of leaves, spines and NICs, by their numbers.
const GUIDS: [u64; 3] = [0x100, 0x200, 0x1000];

/// The spine over which switches forward what goes to a node: by its LID alone.
fn spine_to(node: usize) -> usize {
    (node / PER_LEAF + node) % SPINES
}

/// Forwarding tables at that time, in which one spine may have none.
fn subnet(read_at: Timestamp, without: Option<usize>) -> Subnet {
    let mut tables = Tables::new();
    let mut lids = Vec::new();
    for node in 0..NODES {
        let lid = node as u16 + 1;
        let guid = Guid(GUIDS[2] + node as u64);
        lids.push((End { guid, port: 1 }, lid));
        for leaf in 0..LEAVES {
            let own = node / PER_LEAF == leaf;
            let port = if own {
                node % PER_LEAF + 1
            } else {
                33 + spine_to(node)
            };
            let table = tables.entry(Guid(GUIDS[0] + leaf as u64)).or_default();
            table.set(lid, port as u8);
        }
        for spine in (0..SPINES).filter(|spine| Some(*spine) != without) {
            let table = tables.entry(Guid(GUIDS[1] + spine as u64)).or_default();
            table.set(lid, (node / PER_LEAF + 1) as u8);
        }
    }
    Subnet {
        lids,
        forwarding: Some(Forwarding {
            tables: Arc::new(tables),
            read_at,
        }),
        ..Subnet::default()
    }
}

/// What the world does.
struct World {
    knows_hops: bool,
    /// What is known of an InfiniBand subnet, where it is one: there flows between the same two take the same path.
    subnet: Option<Subnet>,
    /// Share of its probes that a flow loses in a tick.
    lost: fn(Way, usize) -> f64,
    /// Share of its probes that are slow.
    slow: fn(Way, usize) -> f64,
    /// Whether a node is there in a tick. When it comes back its counters begin at zero.
    is_there: fn(usize, usize) -> bool,
}

const HEALTHY: World = World {
    knows_hops: true,
    subnet: None,
    lost: |_, _| 0.0,
    slow: |_, _| 0.0,
    is_there: |_, _| true,
};

fn at(seconds: f64) -> Timestamp {
    Timestamp(1_700_000_000_000).plus_seconds(seconds)
}

fn node(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

fn switch(fabric: &mut Fabric, name: &str, guid: u64) -> PartId {
    let part = Part::Switch(name.parse().expect("a name"));
    let equipment = Equipment::Switch {
        guid: Some(Guid(guid)),
        ports: 0,
        description: name.to_owned(),
    };
    fabric.upsert(part, equipment)
}

fn fabric() -> Fabric {
    let mut fabric = Fabric::default();
    let leaf = |leaf: u64| switch(&mut fabric, &format!("leaf-{leaf}"), GUIDS[0] + leaf);
    let leaves = [0, 1, 2].map(leaf);
    for number in 0..NODES {
        let host = fabric.upsert(Part::Host(node(number)), Equipment::Host);
        let part = Part::Nic(node(number), "mlx5_0".parse().expect("a device"));
        let nic = Equipment::Nic {
            guid: Some(Guid(GUIDS[2] + number as u64)),
            pci: None,
            rail: None,
        };
        let nic = fabric.upsert(part, nic);
        fabric.connect(
            host,
            nic,
            Link::plain(LinkKind::Inside, Witness::Exporter, at(0.0)),
        );
        let port = (number % PER_LEAF) as u16 + 1;
        let cable = Link::cable((1, port), None, Witness::Subnet, at(0.0));
        fabric.connect(nic, leaves[number / PER_LEAF], cable);
    }
    for spine in 0..SPINES {
        let id = switch(
            &mut fabric,
            &format!("spine-{spine}"),
            GUIDS[1] + spine as u64,
        );
        for (number, leaf) in leaves.into_iter().enumerate() {
            let ports = (33 + spine as u16, number as u16 + 1);
            fabric.connect(leaf, id, Link::cable(ports, None, Witness::Subnet, at(0.0)));
        }
    }
    fabric
}

/// Each port of a spine has an address.
fn address(spine: usize, leaf: usize) -> String {
    format!("10.0.{spine}.{leaf}")
}

fn addresses() -> Addresses {
    let all = (0..SPINES).flat_map(|spine| (0..LEAVES).map(move |leaf| (spine, leaf)));
    let of = |(spine, leaf): (usize, usize)| {
        let name = format!("spine-{spine}").parse().expect("a name");
        let port = (leaf as u16 + 1).into();
        (address(spine, leaf), (name, Some(port)))
    };
    all.map(of).collect()
}

fn labels(way: Way) -> Labels {
    let peer = node(way.to).to_string();
    Labels::new(["mlx5_0", &peer, "mlx5_0", &way.flow.to_string(), "udp"])
}

impl World {
    fn page(&self, from: usize, counts: &BTreeMap<usize, [f64; 3]>, ways: &[Way]) -> NodeReading {
        let mut page = NodeReading::default();
        for (number, way) in ways.iter().enumerate().filter(|(_, way)| way.from == from) {
            let labels = labels(*way);
            let counts = counts.get(&number).copied().unwrap_or_default();
            let metrics = [&PROBE_FLOW_SENT, &PROBE_FLOW_LOST, &PROBE_FLOW_SLOW];
            for (metric, count) in metrics.into_iter().zip(counts) {
                page.push(metric, &labels, count.floor());
            }
            if let (Some([out, _]), true) = (way.spines, self.knows_hops) {
                let hop = labels.with(2).with(address(out, from / PER_LEAF));
                page.push(&PROBE_HOP, &hop, true);
            }
        }
        page
    }

    /// `class part` of all that was reported, by tick.
    fn said(&self, left_out: LeftOut) -> Vec<BTreeSet<String>> {
        let (fabric, addresses, mut ways) = (fabric(), addresses(), ways());
        let (_, routes): (_, Routes) = understand(&fabric, &SubnetMerge::default());
        let routes = routes.with_lids(&fabric, self.subnet.as_ref());
        for way in ways.iter_mut().filter(|_| self.subnet.is_some()) {
            let by_lid = [way.to, way.from].map(spine_to);
            way.spines = way.spines.map(|_| by_lid);
        }
        let (mut history, jobs, mut detector) = (History::default(), Jobs::default(), build());
        let mut counts: BTreeMap<usize, [f64; 3]> = BTreeMap::new();
        let mut said = Vec::new();
        for tick in 0..TICKS {
            let now = at(TICK_SECONDS * tick as f64);
            for (number, way) in ways.iter().enumerate() {
                if !(self.is_there)(way.from, tick) {
                    counts.remove(&number);
                    continue;
                }
                let gone = !(self.is_there)(way.to, tick);
                let lost = if gone { 1.0 } else { (self.lost)(*way, tick) };
                let of_flow = counts.entry(number).or_default();
                for (count, share) in of_flow.iter_mut().zip([1.0, lost, (self.slow)(*way, tick)]) {
                    *count += PROBES * share;
                }
            }
            for from in (0..NODES).filter(|from| (self.is_there)(*from, tick)) {
                let page = self.page(from, &counts, &ways);
                history.node_mut(&node(from)).ingest_reading(&page, now);
            }
            let view = View {
                fabric: &fabric,
                epoch: 1,
                routes: &routes,
                addresses: &addresses,
                history: &history,
                gpus: &Gpus::default(),
                jobs: &jobs,
                waiting: &[],
                misplaced: &[],
                subnet_seen: None,
                left_out,
                now,
            };
            let mut out = Vec::new();
            detector.observe(&view, &mut out);
            let line = |one: Evidence| format!("{} {}", one.class.name, one.part);
            said.push(out.into_iter().map(line).collect());
        }
        said
    }

    /// All that was ever reported, and what was reported last.
    fn check(&self, expected: &[&str]) {
        let said = self.said(LeftOut::default());
        let ever: BTreeSet<String> = said.iter().flatten().cloned().collect();
        let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(ever, expected);
        assert_eq!(said.last(), Some(&expected));
    }
}

#[test]
fn nothing_is_said_of_a_healthy_fabric() {
    HEALTHY.check(&[]);
}

#[test]
fn a_cable_that_loses_probes_is_named_by_the_ways_over_it() {
    let lossy = World {
        lost: |way, _| 0.05 * way.crosses(0, 2),
        ..HEALTHY
    };
    lossy.check(&["uplink-lossy link/leaf-0:35"]);
    let out = lossy.said([Step::Probes].into_iter().collect());
    assert!(out.iter().all(BTreeSet::is_empty), "left out: {out:?}");
}

#[test]
fn where_routers_do_not_answer_the_leaf_of_the_cable_is_named() {
    let lossy = World {
        lost: |way, _| 0.05 * way.crosses(1, 0),
        knows_hops: false,
        ..HEALTHY
    };
    lossy.check(&["uplink-lossy switch/leaf-1"]);
}

#[test]
fn forwarding_tables_name_the_cable_where_no_router_answers() {
    let begin = at(0.0);
    let old = Timestamp(begin.0 - 1_000_000);
    let infiniband = |subnet, lost| World {
        lost,
        knows_hops: false,
        subnet: Some(subnet),
        ..HEALTHY
    };
    let lossy = |way: Way, _| 0.05 * way.crosses(1, 0);
    infiniband(subnet(begin, None), lossy).check(&["uplink-lossy link/leaf-1:33"]);
    infiniband(subnet(begin, Some(2)), lossy).check(&["uplink-lossy link/leaf-1:33"]);
    // Not known whether they still hold: the leaf, and no cable by its number.
    let said = infiniband(subnet(old, None), lossy).said(LeftOut::default());
    let last = said.last().expect("ticks");
    assert!(last.contains("uplink-lossy switch/leaf-1"), "{last:?}");
    let mut all = said.iter().flatten();
    assert!(!all.any(|line| line.contains("link/leaf-")), "{said:?}");
    let slow = World {
        slow: |way, _| 0.2 * way.crosses(2, 3),
        ..infiniband(subnet(begin, None), |_, _| 0.0)
    };
    slow.check(&["uplink-jitter link/leaf-2:36"]);
    infiniband(subnet(begin, None), |_, _| 0.0).check(&[]);
}

#[test]
fn a_cable_that_adaptive_routing_uses_for_all_flows_is_not_taken_for_another() {
    // Each probe takes any spine, whatever the tables hold; one cable of leaf 1 loses some.
    let lossy = World {
        lost: |way, _| {
            let between = way.spines.is_some() && way.leaves().contains(&1);
            f64::from(u8::from(between)) * 2.0 * 0.05 / SPINES as f64
        },
        knows_hops: false,
        subnet: Some(subnet(at(0.0), None)),
        ..HEALTHY
    };
    let said = lossy.said(LeftOut::default());
    let all: BTreeSet<&String> = said.iter().flatten().collect();
    assert!(all.iter().all(|line| !line.contains(" link/")), "{all:?}");
    assert!(
        all.iter().any(|line| *line == "uplink-lossy switch/leaf-1"),
        "{all:?}"
    );
}

#[test]
fn a_nic_that_loses_what_comes_and_goes_is_named_by_its_cable() {
    let lossy = World {
        lost: |way, _| 0.1 * f64::from(u8::from(way.has(3))),
        ..HEALTHY
    };
    lossy.check(&["edge-lossy link/n3:mlx5_0/1"]);
}

#[test]
fn a_node_that_is_down_or_comes_back_is_nobodys_fault() {
    let down = World {
        is_there: |node, tick| node != 5 || tick < 12,
        ..HEALTHY
    };
    down.check(&[]);
    let back = World {
        is_there: |node, tick| node != 5 || !(8..11).contains(&tick),
        ..HEALTHY
    };
    back.check(&[]);
}

#[test]
fn a_moment_of_loss_is_said_of_nobody() {
    let moment = World {
        lost: |way, tick| {
            if tick == 12 {
                0.5 * way.crosses(0, 1)
            } else {
                0.0
            }
        },
        ..HEALTHY
    };
    moment.check(&[]);
}

#[test]
fn what_is_over_is_said_no_more() {
    let over = World {
        lost: |way, tick| {
            if (4..8).contains(&tick) {
                0.2 * way.crosses(0, 1)
            } else {
                0.0
            }
        },
        ..HEALTHY
    };
    let said = over.said(LeftOut::default());
    let first = said.iter().position(|said| !said.is_empty());
    let last = said.iter().rposition(|said| !said.is_empty());
    assert!(
        first.is_some_and(|first| (5..=7).contains(&first)),
        "{first:?}"
    );
    // The last hits are reported at tick 7.
    assert!(last.is_some_and(|last| last <= 13), "{last:?}");
}

#[test]
fn a_host_whose_own_probes_are_slow_is_a_host_and_a_slow_cable_a_cable() {
    let host = World {
        slow: |way, _| 0.2 * f64::from(u8::from(way.from == 2)),
        ..HEALTHY
    };
    host.check(&["host-stalls host/n2"]);
    let cable = World {
        slow: |way, _| 0.2 * way.crosses(1, 3),
        ..HEALTHY
    };
    cable.check(&["uplink-jitter link/leaf-1:36"]);
    let both = World {
        slow: |way, _| 0.2 * way.crosses(1, 3) + 0.2 * f64::from(u8::from(way.from == 2)),
        ..HEALTHY
    };
    both.check(&["host-stalls host/n2", "uplink-jitter link/leaf-1:36"]);
}

/// One of few spines is on some paths of every source, so that no source is without slow probes.
#[test]
fn a_part_between_few_spines_is_named_however_slow_it_is() {
    let cable = World {
        slow: |way, _| (0.45 * way.crosses(1, 3)).min(0.9),
        ..HEALTHY
    };
    cable.check(&["uplink-jitter link/leaf-1:36"]);
    let spine = World {
        slow: |way, _| {
            let over = way.spines.iter().flatten().filter(|spine| **spine == 2);
            0.4 * over.count() as f64
        },
        ..HEALTHY
    };
    spine.check(&["path-slow switch/spine-2"]);
}

#[test]
fn what_all_probes_suffer_is_no_parts_fault() {
    HEALTHY.check(&[]);
    let all = World {
        lost: |_, _| 0.02,
        ..HEALTHY
    };
    all.check(&[]);
    let most = World {
        lost: |_, _| 0.4,
        ..HEALTHY
    };
    most.check(&[]);
}
