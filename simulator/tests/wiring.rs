//! The wiring is what its description says, and every text that it is written as says the same.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_simulator::ibnetdiscover::{ibnetdiscover, ibsim_net};
use railscope_simulator::spec::{ClusterSpec, SpecError, WiringSpec};
use railscope_simulator::wiring::{Device, Tier, Wiring};

const NOW: Timestamp = Timestamp(1_754_493_083_000);

/// Ends by name and port, the smaller first, and speed.
type NamedCable = ((String, u32), (String, u32), String);

fn spec(nodes: u16) -> ClusterSpec {
    ClusterSpec::demo(nodes).expect("demo cluster")
}

fn plan(nodes: u16) -> Wiring {
    Wiring::plan(&spec(nodes)).expect("wiring")
}

fn ordered(a: (String, u32), b: (String, u32), speed: &str) -> NamedCable {
    let (a, b) = if a <= b { (a, b) } else { (b, a) };
    (a, b, speed.to_owned())
}

fn cables_of(fabric: &Fabric) -> BTreeSet<NamedCable> {
    let name = |id| fabric.vertex(id).part.to_string();
    fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable)
        .map(|(_, a, b, link)| {
            let speed = link.speed.expect("speed").to_string();
            ordered(
                (name(a), link.ports.0.into()),
                (name(b), link.ports.1.into()),
                &speed,
            )
        })
        .collect()
}

/// A part's name out of a node description, as a person reads it.
fn part_of(description: &str) -> String {
    match description.strip_prefix("MF0;") {
        Some(switch) => format!("switch/{}", switch.split(':').next().unwrap_or(switch)),
        None => format!("nic/{}", description.replace(' ', ":")),
    }
}

/// Reads the devices and ports of either dialect: (device, port, far device, far port, speed), by the
/// description of both.
fn read(text: &str) -> Vec<(String, u32, String, u32, String)> {
    let quoted = |line: &str, number: usize| {
        let text = line.split('"').nth(2 * number + 1).expect(line);
        text.to_owned()
    };
    let bracketed = |text: &str| -> u32 {
        let inner = text.split('[').nth(1).expect(text);
        inner.split(']').next().expect(text).parse().expect(text)
    };
    let mut names = BTreeMap::new();
    for line in text.lines() {
        if line.starts_with("Switch\t") || line.starts_with("Ca\t") {
            let known = names.insert(quoted(line, 0), part_of(&quoted(line, 1)));
            assert_eq!(known, None, "{line} stands twice");
        }
    }
    let mut ports = Vec::new();
    let mut device = String::new();
    for line in text.lines() {
        if line.starts_with("Switch\t") || line.starts_with("Ca\t") {
            device = quoted(line, 0);
        } else if line.starts_with('[') {
            let far = quoted(line, 0);
            assert_eq!(part_of(&quoted(line, 1)), names[&far], "{line}");
            let behind = line.split('"').nth(2).expect(line);
            let speed = line.split_whitespace().last().expect(line);
            ports.push((
                names[&device].clone(),
                bracketed(line),
                names[&far].clone(),
                bracketed(behind),
                speed.to_owned(),
            ));
        }
    }
    ports
}

/// Both ends of every cable, joined; panics if the ends do not agree.
fn cables_in(text: &str) -> BTreeSet<NamedCable> {
    let ports = read(text);
    let seen: BTreeSet<_> = ports.iter().cloned().collect();
    assert_eq!(seen.len(), ports.len(), "a port stands twice");
    for (a, port, b, far, speed) in &seen {
        let back = (b.clone(), *far, a.clone(), *port, speed.clone());
        assert!(seen.contains(&back), "{b}[{far}] does not say {a}[{port}]");
    }
    let cables: BTreeSet<_> = seen
        .into_iter()
        .map(|(a, port, b, far, speed)| ordered((a, port), (b, far), &speed))
        .collect();
    assert_eq!(cables.len() * 2, ports.len());
    cables
}

#[test]
fn the_demo_cluster_has_256_gpus_on_8_leaves_and_4_spines() {
    let wiring = plan(32);
    let leaves = |switch: &&_| matches!(switch_tier(switch), Tier::Leaf { .. });
    assert_eq!(wiring.nics.len(), 256);
    assert_eq!(wiring.switches.iter().filter(leaves).count(), 8);
    assert_eq!(wiring.switches.len(), 12);
    assert_eq!(wiring.cables.len(), 512);
    let fabric = wiring.fabric(NOW);
    let expected = [("gpu", 256), ("host", 32), ("nic", 256), ("switch", 12)];
    assert_eq!(fabric.count_parts(), BTreeMap::from(expected));
}

fn switch_tier(switch: &railscope_simulator::wiring::Switch) -> Tier {
    switch.tier
}

#[test]
fn every_port_has_one_cable_and_every_rail_its_own_leaves() {
    for nodes in [1, 5, 32, 33, 100, 256] {
        let wiring = plan(nodes);
        let mut sockets = BTreeSet::new();
        for (device, port) in wiring.cables.iter().flat_map(|cable| cable.ends) {
            assert!(
                sockets.insert((device, port)),
                "{device:?} port {port} twice"
            );
            let ports = match device {
                Device::Nic(_) => 1,
                Device::Switch(index) => wiring.switches[index].ports,
            };
            assert!((1..=ports).contains(&port), "{device:?} has no port {port}");
        }
        for nic in 0..wiring.nics.len() {
            assert_eq!(wiring.on_own_rail(nic), Some(true));
        }
        let guids: BTreeSet<_> = wiring.nics.iter().map(|nic| nic.guid).collect();
        let lids: BTreeSet<_> = wiring.nics.iter().map(|nic| nic.lid).collect();
        assert_eq!(
            (guids.len(), lids.len()),
            (wiring.nics.len(), wiring.nics.len())
        );
    }
}

#[test]
fn a_leaf_has_as_many_uplinks_as_downlinks_evenly_on_all_spines() {
    let wiring = plan(64);
    for (index, switch) in wiring.switches.iter().enumerate() {
        if switch.tier == Tier::Spine {
            continue;
        }
        let mut by_spine = BTreeMap::<_, usize>::new();
        for cable in &wiring.cables {
            if let [(Device::Switch(leaf), _), (Device::Switch(spine), _)] = cable.ends
                && leaf == index
            {
                *by_spine.entry(spine).or_default() += 1;
            }
        }
        assert_eq!(by_spine.values().collect::<BTreeSet<_>>().len(), 1);
        assert_eq!(by_spine.values().sum::<usize>(), 32);
    }
}

#[test]
fn ibnetdiscover_text_says_what_the_fabric_says() {
    for nodes in [1, 32, 64] {
        let wiring = plan(nodes);
        let text = ibnetdiscover(&wiring, NOW);
        assert_eq!(cables_in(&text), cables_of(&wiring.fabric(NOW)));
    }
}

#[test]
fn ibnetdiscover_text_looks_like_the_tools() {
    let text = ibnetdiscover(&plan(2), NOW);
    for expected in [
        "# Topology file: generated on Wed Aug  6 15:11:23 2025\n#\n# Initiated from node e09d730300000100 port e09d730300000100\n",
        "vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x2c5eab0300000100\nswitchguid=0x2c5eab0300000100(2c5eab0300000100)\n\
         Switch\t64 \"S-2c5eab0300000100\"\t\t# \"MF0;leaf-su0-r0:MQM9700/U1\" enhanced port 0 lid 1 lmc 0\n\
         [1]\t\"H-e09d730300000100\"[1](e09d730300000100) \t\t# \"gpu-node-00 mlx5_0\" lid 13 4xNDR\n",
        "[33]\t\"S-2c5eab0300000900\"[1]\t\t# \"MF0;spine-0:MQM9700/U1\" lid 9 4xNDR\n",
        "caguid=0xe09d730300000230\nCa\t1 \"H-e09d730300000230\"\t\t# \"gpu-node-01 mlx5_3\"\n\
         [1](e09d730300000230) \t\"S-2c5eab0300000400\"[2]\t\t# lid 24 lmc 0 \"MF0;leaf-su0-r3:MQM9700/U1\" lid 4 4xNDR\n",
    ] {
        assert!(text.contains(expected), "{expected}\nis not in\n{text}");
    }
}

#[test]
fn the_ibsim_file_has_the_same_cables_under_names_that_its_console_takes() {
    let wiring = plan(64);
    let text = ibsim_net(&wiring);
    let at_hdr: BTreeSet<_> = cables_of(&wiring.fabric(NOW))
        .into_iter()
        .map(|(a, b, _)| (a, b, "4xHDR".to_owned()))
        .collect();
    assert_eq!(cables_in(&text), at_hdr);
    for line in text.lines() {
        assert!(line.len() <= 255, "ibsim cuts {line}");
        if line.starts_with("Ca\t") || line.starts_with("Switch\t") {
            let id = line.split('"').nth(1).expect(line);
            assert!(id.len() <= 31 && !id.contains(['#', '@', ' ']), "{id}");
        }
    }
    assert!(text.contains("\"leaf-su1-r3\"[5]"));
    assert!(text.contains("Ca\t1 \"gpu-node-40-mlx5_3\"\t\t# \"gpu-node-40 mlx5_3\"\n"));
}

#[test]
fn a_description_stands_in_toml() {
    let spec = spec(32);
    let text = toml::to_string(&spec).expect("toml");
    assert_eq!(toml::from_str::<ClusterSpec>(&text), Ok(spec.clone()));
    let short = "nodes = 32\nwiring = { kind = \"rail-optimised\", nodes_per_su = 32, radix = 64, spines = 4 }";
    assert_eq!(toml::from_str::<ClusterSpec>(short), Ok(spec));
    let error = toml::from_str::<ClusterSpec>("nodes = 32\nspine = 4").expect_err("unknown key");
    assert!(error.to_string().contains("spine"), "{error}");
}

#[test]
fn what_cannot_be_wired_is_refused_with_the_field() {
    let with = |change: fn(&mut ClusterSpec)| {
        let mut spec = spec(32);
        change(&mut spec);
        let SpecError { field, problem } = Wiring::plan(&spec).expect_err("refused");
        assert!(problem.contains("found"), "{problem}");
        field
    };
    assert_eq!(with(|spec| spec.nodes = 0), "nodes");
    assert_eq!(with(|spec| spec.gpus_per_node = 9), "gpus_per_node");
    let wired = |nodes_per_su, spines| WiringSpec::RailOptimised {
        nodes_per_su,
        radix: 64,
        spines,
    };
    let fields = [(33, 4), (32, 5), (32, 2)].map(|(nodes_per_su, spines)| {
        let spec = ClusterSpec {
            wiring: wired(nodes_per_su, spines),
            ..spec(32)
        };
        Wiring::plan(&spec).expect_err("refused").field
    });
    assert_eq!(
        fields,
        ["wiring.nodes_per_su", "wiring.spines", "wiring.spines"]
    );
    assert_eq!(ClusterSpec::demo(257).expect_err("too many").field, "nodes");
}
