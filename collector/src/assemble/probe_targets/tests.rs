//! Which NIC probes which, on rails of two units of nodes.

use std::collections::BTreeSet;

use railscope_model::fabric::{Link, Timestamp, Witness};
use railscope_model::reading::{Labels, NodeReading};

use super::*;
use crate::fabric::{SubnetMerge, understand};

const RAILS: usize = 2;

/// Units of nodes with a leaf for each rail, under two spines, and what their exporters report.
/// `silent` nodes do not respond.
struct Lab {
    fabric: Fabric,
    history: History,
    nodes: usize,
    per_unit: usize,
}

fn name(node: usize) -> NodeName {
    format!("n{node:02}").parse().expect("a name")
}

fn switch(fabric: &mut Fabric, name: &str) -> PartId {
    let equipment = Equipment::Switch {
        guid: None,
        ports: 0,
        description: name.to_owned(),
    };
    fabric.upsert(format!("switch/{name}").parse().expect("a part"), equipment)
}

fn cable(a: u16, b: u16) -> Link {
    Link::cable((a, b), None, Witness::Subnet, Timestamp(0))
}

fn page(node: usize, answers: bool) -> NodeReading {
    let mut page = NodeReading::default();
    for rail in 0..RAILS {
        let (device, netdev) = (format!("mlx5_{rail}"), format!("eth{rail}"));
        let port = [
            &*device,
            "1",
            "",
            &netdev,
            "",
            "",
            "Ethernet",
            "mlx5_core",
            "0",
        ];
        page.push(&RDMA_PORT, &Labels::new(port), true);
        if answers {
            for address in [
                format!("fd00::{node}:{rail}"),
                format!("10.{rail}.0.{node}"),
            ] {
                page.push(&NETDEV_ADDRESS, &Labels::new([&netdev, &address]), true);
            }
        }
    }
    page
}

impl Lab {
    fn new(units: usize, per_unit: usize, silent: &[usize]) -> Self {
        let mut lab = Self {
            fabric: Fabric::default(),
            history: History::default(),
            nodes: units * per_unit,
            per_unit,
        };
        let spines = [0, 1].map(|spine| switch(&mut lab.fabric, &format!("spine-{spine}")));
        for unit in 0..units {
            for rail in 0..RAILS {
                let leaf = switch(&mut lab.fabric, &format!("leaf-{unit}-{rail}"));
                for (number, spine) in (0..).zip(spines) {
                    let port = (unit * RAILS + rail) as u16 + 1;
                    lab.fabric.connect(leaf, spine, cable(60 + number, port));
                }
                for place in 0..per_unit {
                    let node = unit * per_unit + place;
                    let device = format!("mlx5_{rail}").parse().expect("a device");
                    let nic = Equipment::Nic {
                        guid: None,
                        pci: None,
                        rail: Some(rail as u16),
                    };
                    let nic = lab.fabric.upsert(Part::Nic(name(node), device), nic);
                    lab.fabric.connect(nic, leaf, cable(1, place as u16 + 1));
                }
            }
        }
        for node in 0..lab.nodes {
            let page = page(node, !silent.contains(&node));
            lab.history
                .node_mut(&name(node))
                .ingest_reading(&page, Timestamp(1));
        }
        lab
    }

    /// By node: its probe targets.
    fn lists(&self) -> Vec<Vec<Target>> {
        let (_, routes) = understand(&self.fabric, &SubnetMerge::default());
        let probing = Probing::of(&self.fabric, &self.history);
        let list = |node| probing.targets(&self.fabric, &routes, &name(node));
        (0..self.nodes).map(list).collect()
    }

    fn unit(&self, node: &NodeName) -> usize {
        node.as_str()[1..].parse::<usize>().expect("a number") / self.per_unit
    }
}

#[test]
fn every_nic_and_every_pair_of_leaves_is_asked_and_nobody_asks_many() {
    for (units, per_unit) in [(2, 4), (3, 6), (6, 12)] {
        let lab = Lab::new(units, per_unit, &[]);
        let lists = lab.lists();
        let (mut asked, mut pairs) = (BTreeSet::new(), BTreeSet::new());
        for (node, list) in lists.iter().enumerate() {
            let own = name(node);
            for target in list {
                assert_ne!(target.peer_node, own);
                assert_eq!(target.device, target.peer_device, "of its rail");
                asked.insert((target.peer_node.clone(), target.peer_device.clone()));
                let units = [&own, &target.peer_node].map(|node| lab.unit(node));
                pairs.insert((target.device.clone(), units));
                let (is_far, address) = (units[0] != units[1], &target.address);
                assert_eq!(target.flows, if is_far { FLOWS } else { 1 });
                let class = if is_far {
                    PathClass::SameRail
                } else {
                    PathClass::SameLeaf
                };
                assert_eq!(target.path_class, class);
                assert!(address.starts_with("10."), "IPv4 comes first: {address}");
            }
            for rail in 0..RAILS {
                let of_rail = |target: &&Target| target.device.as_str() == format!("mlx5_{rail}");
                let asks = list.iter().filter(of_rail).count();
                assert_eq!(asks, NEAR.min(per_unit - 1) + FAR, "{own}");
            }
            let flows: usize = list.iter().map(|target| target.flows).sum();
            assert!(flows <= MOST_FLOWS, "{flows}");
        }
        assert_eq!(asked.len(), lab.nodes * RAILS);
        assert_eq!(pairs.len(), RAILS * units * units);
    }
}

#[test]
fn a_node_that_answers_nobody_is_neither_asked_nor_asks() {
    let lists = Lab::new(2, 4, &[3]).lists();
    assert_eq!(lists[3], []);
    let asked = lists.iter().flatten();
    assert!(asked.clone().count() > 0);
    assert!(asked.into_iter().all(|target| target.peer_node != name(3)));
}

#[test]
fn one_leaf_of_a_rail_asks_other_rails_through_the_spines() {
    for list in Lab::new(1, 4, &[]).lists() {
        let far = list.iter().filter(|target| target.flows > 1);
        let far: Vec<_> = far.collect();
        // The fourth NIC of the other leaf is its own.
        assert_eq!(far.len(), RAILS * 3);
        assert!(far.iter().all(|target| target.device != target.peer_device));
        assert!(
            far.iter()
                .all(|target| target.path_class == PathClass::CrossRail)
        );
    }
}

#[test]
fn nics_of_two_units_that_share_no_rail_are_of_a_class_of_their_own() {
    let lab = Lab::new(2, 2, &[]);
    let probing = Probing::of(&lab.fabric, &lab.history);
    let nic = |node: usize, rail: usize| &probing.all[node * RAILS + rail];
    for (ends, class) in [
        ([(0, 0), (1, 0)], PathClass::SameLeaf),
        ([(0, 0), (2, 0)], PathClass::SameRail),
        ([(0, 0), (1, 1)], PathClass::CrossRail),
        ([(0, 0), (2, 1)], PathClass::CrossSu),
    ] {
        let [a, b] = ends.map(|(node, rail)| nic(node, rail));
        assert_eq!(probing.path_class(a, b), class, "{ends:?}");
    }
}
