//! Paths on two leaves under two spines, with tables that are complete, have gaps, are wrong, or have another shape.

use railscope_model::fabric::{Link, Presence, Witness};
use railscope_model::identity::Part;

use super::*;
use crate::analyzer::Analyzer;
use crate::fabric::subnet::forwarding::Table;
use crate::fabric::subnet::{End, Forwarding, parse_ibnetdiscover};

const SPINE_A: u64 = 0x20;
const LEAF_A: u64 = 0x10;

/// A fabric, and what was swept of it.
struct World {
    fabric: Fabric,
    subnet: Subnet,
}

fn switch(fabric: &mut Fabric, name: &str, guid: u64) -> PartId {
    let equipment = Equipment::Switch {
        guid: Some(Guid(guid)),
        ports: 8,
        description: name.to_owned(),
    };
    fabric.upsert(Part::Switch(name.parse().expect("a name")), equipment)
}

fn nic(fabric: &mut Fabric, host: u64) -> PartId {
    let node = format!("n{host}").parse().expect("a name");
    let nic = Equipment::Nic {
        guid: Some(Guid(host + 1)),
        pci: None,
        rail: None,
    };
    fabric.upsert(Part::Nic(node, "mlx5_0".parse().expect("a device")), nic)
}

/// Hosts 0 and 1 on leaf-a, 2 and 3 on leaf-b, LIDs 1 to 4; leaves have their uplinks on ports 5 and 6.
fn world() -> World {
    let mut fabric = Fabric::default();
    let cable = |ports| Link::cable(ports, None, Witness::Subnet, Timestamp(1));
    let leaves = ["leaf-a", "leaf-b"];
    let spines = ["spine-a", "spine-b"];
    let leaves: Vec<_> = (LEAF_A..)
        .zip(leaves)
        .map(|(guid, name)| switch(&mut fabric, name, guid))
        .collect();
    let spines: Vec<_> = (SPINE_A..)
        .zip(spines)
        .map(|(guid, name)| switch(&mut fabric, name, guid))
        .collect();
    for host in 0..4 {
        let nic = nic(&mut fabric, host);
        fabric.connect(
            nic,
            leaves[host as usize / 2],
            cable((1, host as u16 % 2 + 1)),
        );
    }
    for (number, leaf) in (1..).zip(&leaves) {
        for (uplink, spine) in (5..).zip(&spines) {
            fabric.connect(*leaf, *spine, cable((uplink, number)));
        }
    }
    // By the destination alone: odd LIDs over spine-a.
    let mut tables = Tables::new();
    for lid in 1..=4_u16 {
        for leaf in 0..2 {
            let is_own = usize::from(lid - 1) / 2 == leaf;
            let port = if is_own {
                (lid - 1) % 2 + 1
            } else {
                5 + (lid - 1) % 2
            };
            tables
                .entry(Guid(LEAF_A + leaf as u64))
                .or_default()
                .set(lid, port as u8);
        }
        for spine in 0..2 {
            let table: &mut Table = tables.entry(Guid(SPINE_A + spine)).or_default();
            table.set(lid, ((lid - 1) / 2 + 1) as u8);
        }
    }
    let lid = |host: u64| {
        (
            End {
                guid: Guid(host + 1),
                port: 1,
            },
            host as u16 + 1,
        )
    };
    let subnet = Subnet {
        lids: (0..4).map(lid).collect(),
        forwarding: Some(Forwarding {
            tables: Arc::new(tables),
            read_at: Timestamp(7),
        }),
        ..Subnet::default()
    };
    World { fabric, subnet }
}

impl World {
    fn set(&mut self, switch: u64, lid: u16, port: u8) {
        let forwarding = self.subnet.forwarding.as_mut().expect("tables");
        let tables = Arc::make_mut(&mut forwarding.tables);
        tables.entry(Guid(switch)).or_default().set(lid, port);
    }

    fn part(&self, name: &str) -> PartId {
        let switch = self
            .fabric
            .find(&Part::Switch(name.parse().expect("a name")));
        let nic = || {
            Part::Nic(
                name.parse().expect("a name"),
                "mlx5_0".parse().expect("a device"),
            )
        };
        switch.or_else(|| self.fabric.find(&nic())).expect("a part")
    }

    fn path(&self, from: &str, to: &str) -> Option<String> {
        let routes = LidRoutes::of(&self.fabric, Some(&self.subnet));
        let path = routes.path(&self.fabric, self.part(from), self.part(to))?;
        let step = |(cable, switch): (LinkId, PartId)| {
            let cable = self.fabric.cable_part(cable).expect("a cable");
            format!("{cable} {}", self.fabric.vertex(switch).part)
        };
        Some(path.into_iter().map(step).collect::<Vec<_>>().join(", "))
    }
}

#[test]
fn a_path_follows_the_tables_of_the_switches_on_it() {
    let world = world();
    assert_eq!(
        world.path("leaf-a", "n2").as_deref(),
        Some("link/leaf-a:5 switch/spine-a, link/leaf-b:5 switch/leaf-b")
    );
    assert_eq!(
        world.path("leaf-b", "n1").as_deref(),
        Some("link/leaf-b:6 switch/spine-b, link/leaf-a:6 switch/leaf-a")
    );
    assert_eq!(
        world.path("leaf-a", "n0").as_deref(),
        Some(""),
        "the same leaf"
    );
    let routes = LidRoutes::of(&world.fabric, Some(&world.subnet));
    assert_eq!(routes.read_at(), Some(Timestamp(7)));
    assert_eq!(LidRoutes::of(&world.fabric, None).read_at(), None);
}

#[test]
fn a_path_that_the_tables_do_not_give_in_full_is_unknown() {
    let known = Some("link/leaf-a:5 switch/spine-a, link/leaf-b:5 switch/leaf-b");
    assert_eq!(world().path("leaf-a", "n2").as_deref(), known);
    for (what, switch, port) in [
        ("a hole", SPINE_A, 255),
        ("a port without a cable", SPINE_A, 7),
        ("the switch itself", SPINE_A, 0),
        ("a loop", SPINE_A, 1),
        ("another host", LEAF_A + 1, 2),
        ("a loop behind the leaf of the host", LEAF_A + 1, 5),
        ("another host of the first leaf", LEAF_A, 2),
    ] {
        let mut world = world();
        world.set(switch, 3, port);
        assert_eq!(world.path("leaf-a", "n2"), None, "{what}");
    }
}

#[test]
fn a_switch_without_a_table_and_a_host_without_a_lid_have_no_path() {
    let mut world = world();
    let forwarding = world.subnet.forwarding.as_mut().expect("tables");
    Arc::make_mut(&mut forwarding.tables).remove(&Guid(SPINE_A));
    assert_eq!(world.path("leaf-a", "n2"), None);
    assert!(world.path("leaf-a", "n3").is_some(), "over the other spine");
    world.subnet.lids.retain(|(_, lid)| *lid != 4);
    assert_eq!(world.path("leaf-a", "n3"), None);
}

#[test]
fn tables_of_too_few_switches_are_not_used() {
    let mut world = world();
    let text = |guid: u64| {
        format!(
            "switchguid=0x{guid:x}\nSwitch\t8 \"S-{guid:016x}\"\t\t# \"s\" base port 0 lid 9 lmc 0\n\n"
        )
    };
    let text: String = [LEAF_A, LEAF_A + 1, SPINE_A, SPINE_A + 1]
        .map(text)
        .concat();
    world.subnet.nodes = parse_ibnetdiscover(&text).nodes;
    assert_eq!(world.subnet.nodes.len(), 4);
    for (removed, expected) in [(SPINE_A, true), (LEAF_A + 1, false)] {
        let forwarding = world.subnet.forwarding.as_mut().expect("tables");
        Arc::make_mut(&mut forwarding.tables).remove(&Guid(removed));
        let routes = LidRoutes::of(&world.fabric, Some(&world.subnet));
        assert_eq!(routes.read_at().is_some(), expected);
        assert_eq!(routes.has_table(world.part("leaf-a")), expected);
        assert!(!routes.has_table(world.part("spine-a")));
    }
}

#[test]
fn a_cable_that_is_lost_or_shares_its_port_is_on_no_path() {
    let mut world = world();
    let lost = Part::SwitchLink("leaf-a".parse().expect("a name"), 5.into());
    let (leaf, near) = world.fabric.find_cable(&lost).expect("there");
    let (spine, ports) = (near.peer, near.link.ports);
    let link = near.link.clone();
    world.fabric.retain_links(|one| one.ports != ports);
    assert_eq!(world.path("leaf-a", "n2"), None);
    assert!(world.path("leaf-a", "n3").is_some());
    world.fabric.connect(leaf, spine, link);
    assert!(world.path("leaf-a", "n2").is_some());
    let other = world.part("spine-b");
    let second = Link::cable((5, 8), None, Witness::Subnet, Timestamp(1));
    assert_eq!(second.seen_by.presence(), Presence::Present);
    world.fabric.connect(leaf, other, second);
    assert_eq!(world.path("leaf-a", "n2"), None, "two cables on one port");
}

/// Two hosts on one switch, as `ibnetdiscover` prints them.
fn printed() -> String {
    let head =
        |guid: u64, kind: &str| format!("sysimgguid=0x{guid:x}\n{kind}guid=0x{guid:x}({guid:x})\n");
    let mut text = head(LEAF_A, "switch");
    text += "Switch\t8 \"S-0000000000000010\"\t\t# \"leaf-a\" enhanced port 0 lid 7 lmc 0\n";
    for host in 1..=2 {
        text += &format!(
            "[{host}]\t\"H-000000000000000{host}\"[1]({host}) \t\t# \"n{host} mlx5_0\" lid {host} 4xNDR\n"
        );
    }
    for host in 1..=2 {
        text += &format!(
            "\n{}Ca\t1 \"H-000000000000000{host}\"\t\t# \"n{host} mlx5_0\"\n[1]({host}) \t\"S-0000000000000010\"[{host}]\t\t# lid {host} lmc 0 \"leaf-a\" lid 7 4xNDR\n",
            head(host, "ca")
        );
    }
    text
}

#[test]
fn a_partial_sweep_drops_the_tables_of_the_shape_that_is_kept() {
    let mut subnet = parse_ibnetdiscover(&printed());
    let lids: Vec<_> = subnet
        .lids
        .iter()
        .map(|(end, lid)| (end.guid.0, end.port, *lid))
        .collect();
    assert_eq!(lids, [(1, 1, 1), (2, 1, 2)]);
    assert!(subnet.is_settled(), "{:?}", subnet.completeness);
    let mut table = Table::default();
    table.set(1, 1);
    subnet.forwarding = Some(Forwarding {
        tables: Arc::new([(Guid(LEAF_A), table)].into()),
        read_at: Timestamp(5),
    });
    let mut analyzer = Analyzer::default();
    let read_at =
        |analyzer: &mut Analyzer, at| analyzer.tick(Timestamp(at)).routes.lids().read_at();
    analyzer.take_subnet(subnet.clone(), Timestamp(1_000));
    assert_eq!(read_at(&mut analyzer, 2_000), Some(Timestamp(5)));
    let mut partial = parse_ibnetdiscover(&printed()[..400]);
    assert!(!partial.is_settled());
    partial.forwarding.clone_from(&subnet.forwarding);
    analyzer.take_subnet(partial, Timestamp(3_000));
    assert_eq!(read_at(&mut analyzer, 4_000), None);
    analyzer.take_subnet(subnet, Timestamp(5_000));
    assert_eq!(read_at(&mut analyzer, 6_000), Some(Timestamp(5)));
}
