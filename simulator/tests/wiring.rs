//! The wiring matches its description, and all of its text formats are equivalent.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_model::identity::Part;
use railscope_model::plan::WiringPlan;
use railscope_simulator::show::ibnetdiscover::{ibnetdiscover, ibsim_net};
use railscope_simulator::show::plan;
use railscope_simulator::spec::{Change, ClusterSpec, RailsMeet, SpecError, Switches, WiringSpec};
use railscope_simulator::wiring::{Device, Tier, Wiring};

const NOW: Timestamp = Timestamp(1_754_493_083_000);

/// Ends by name and port, the smaller first, and speed.
type NamedCable = ((String, u32), (String, u32), String);

fn spec(nodes: u16) -> ClusterSpec {
    ClusterSpec::demo(nodes).expect("demo cluster")
}

/// One cluster of each kind of fabric: every description in `tests/fabrics`.
fn families() -> impl Iterator<Item = (String, ClusterSpec, Wiring)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fabrics");
    let files = std::fs::read_dir(folder).expect(folder);
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    assert!(paths.len() >= 8, "{paths:?}");
    paths.sort();
    paths.into_iter().map(|path| {
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect(&name);
        let spec: ClusterSpec = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let wiring = Wiring::plan(&spec).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, spec, wiring)
    })
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
    let demos = [1, 5, 32, 33, 100, 256].map(|nodes| ("demo".to_owned(), spec(nodes), plan(nodes)));
    for (name, spec, wiring) in families().chain(demos) {
        let mut sockets = BTreeSet::new();
        for (device, port) in wiring.cables.iter().flat_map(|cable| cable.ends) {
            assert!(
                sockets.insert((device, port)),
                "{name}: {device:?} port {port} twice"
            );
            let ports = match device {
                Device::Nic(_) => 1,
                Device::Switch(index) => wiring.switches[index].ports,
            };
            assert!(
                (1..=ports).contains(&port),
                "{name}: {device:?} has no port {port}"
            );
        }
        assert_eq!(
            wiring.nics.len(),
            spec.kinds()
                .map(|(kind, _)| usize::from(spec.nics_of(kind) * spec.planes))
                .sum::<usize>()
        );
        for (number, nic) in wiring.nics.iter().enumerate() {
            assert_eq!(wiring.on_own_rail(number), Some(true), "{name}");
            assert_eq!(
                wiring.cables[number].ends[0],
                (Device::Nic(number), 1),
                "{name}"
            );
            assert_eq!(wiring.cable_named(&nic.link_part()), Some(number), "{name}");
        }
        let names: BTreeSet<_> = wiring.switches.iter().map(|switch| &switch.name).collect();
        assert_eq!(names.len(), wiring.switches.len(), "{name}");
        let addresses: BTreeSet<_> = wiring
            .nics
            .iter()
            .map(|nic| nic.guid)
            .chain(wiring.switches.iter().map(|switch| switch.guid))
            .collect();
        assert_eq!(
            addresses.len(),
            wiring.nics.len() + wiring.switches.len(),
            "{name}"
        );
        let subnets = wiring.subnets();
        let lids: BTreeSet<_> = wiring
            .switches
            .iter()
            .map(|switch| switch.lid)
            .chain(wiring.nics.iter().map(|nic| nic.lid))
            .zip(&subnets)
            .collect();
        assert_eq!(lids.len(), subnets.len(), "{name}: a LID twice in a subnet");
    }
}

#[test]
fn planes_and_rails_that_never_meet_are_subnets_of_their_own() {
    let count = |wiring: &Wiring| wiring.subnets().into_iter().collect::<BTreeSet<_>>().len();
    for (name, spec, wiring) in families() {
        let expected = match spec.wiring {
            WiringSpec::RailOnly { .. } => usize::from(spec.nics_of(spec.node)),
            _ => usize::from(spec.planes),
        };
        assert_eq!(count(&wiring), expected, "{name}");
    }
}

#[test]
fn each_switch_spreads_its_uplinks_evenly_over_the_tier_above() {
    for (name, spec, wiring) in families() {
        let mut upward = BTreeMap::<usize, BTreeMap<usize, u16>>::new();
        for cable in &wiring.cables {
            if let [(Device::Switch(lower), _), (Device::Switch(upper), _)] = cable.ends {
                *upward.entry(lower).or_default().entry(upper).or_default() += 1;
            }
        }
        for (index, switch) in wiring.switches.iter().enumerate() {
            let above = upward.get(&index);
            let total: u16 = above.map_or(0, |above| above.values().sum());
            let even = above.is_none_or(|above| above.values().collect::<BTreeSet<_>>().len() == 1);
            match switch.tier {
                Tier::Leaf { .. } => assert_eq!(
                    (total, even),
                    (spec.switches.leaf_uplinks(), true),
                    "{name}: {}",
                    switch.name
                ),
                Tier::Spine if spec.switches.tiers == 3 => assert_eq!(
                    (total, even),
                    (spec.switches.radix / 2, true),
                    "{name}: {}",
                    switch.name
                ),
                Tier::Spine | Tier::Core => assert_eq!(total, 0, "{name}: {}", switch.name),
                Tier::Router { .. } => {}
            }
        }
    }
}

#[test]
fn groups_of_a_dragonfly_are_joined_all_to_all_inside_and_alike_outside() {
    let (_, _, wiring) = families()
        .find(|(name, ..)| name == "dragonfly")
        .expect("one");
    let group = |device| match device {
        Device::Switch(index) => match wiring.switches[index].tier {
            Tier::Router { group } => group,
            tier => panic!("{tier:?}"),
        },
        Device::Nic(_) => u16::MAX,
    };
    let mut between = BTreeMap::<(u16, u16), u32>::new();
    for cable in &wiring.cables {
        let [(a, _), (b, _)] = cable.ends;
        *between.entry((group(a), group(b))).or_default() += 1;
    }
    // 9 groups of 4 routers: 6 cables inside, 4 * 4 global ports over 8 others.
    for one in 0..9 {
        for other in one..9 {
            let expected = if one == other { 6 } else { 2 };
            assert_eq!(between.get(&(one, other)), Some(&expected), "{one} {other}");
        }
    }
}

#[test]
fn changes_move_and_remove_cables_and_nothing_else() {
    let with = |changes: &str| {
        let text = format!(
            "nodes = 40\nwiring = {{ kind = 'rail-optimized', nodes_per_su = 32 }}\n{changes}"
        );
        toml::from_str::<ClusterSpec>(&text).expect("a description")
    };
    let spec = with(
        "[[changes]]\nmissing = 'link/gpu-node-03:mlx5_2/1'\n[[changes]]\nswapped = ['link/leaf-su0-r1:33', 'link/gpu-node-05:mlx5_0/1']",
    );
    let (plan, built) = (
        Wiring::plan(&spec).expect("a plan"),
        Wiring::built(&spec).expect("a fabric"),
    );
    let named = |wiring: &Wiring| cables_of(&wiring.fabric(NOW));
    assert_eq!(named(&plan).difference(&named(&built)).count(), 3);
    assert_eq!(named(&built).difference(&named(&plan)).count(), 2);
    let dark = built.nic_index(3, 2);
    assert_eq!(
        (built.cable_of(dark), plan.cable_of(dark).is_some()),
        (None, true)
    );
    for (change, expected) in [
        (
            "[[changes]]\nmissing = 'link/nobody:mlx5_2/1'",
            "found link/nobody:mlx5_2/1, expected a cable of the plan, such as link/gpu-node-00:mlx5_0/1",
        ),
        (
            "[[changes]]\nmissing = 'switch/spine-0'",
            "found switch/spine-0",
        ),
    ] {
        let error = Wiring::built(&with(change)).expect_err("refused");
        assert_eq!(error.field, "changes");
        assert!(error.problem.contains(expected), "{}", error.problem);
    }
    let unknown =
        toml::from_str::<Change>("lost = 'link/gpu-node-03:mlx5_2/1'").expect_err("refused");
    assert!(unknown.to_string().contains("missing"), "{unknown}");
}

#[test]
fn every_family_grows_to_its_limit_and_says_where_it_is() {
    let tree = |nodes, tiers| ClusterSpec {
        nodes,
        nics_per_node: Some(1),
        wiring: WiringSpec::FatTree,
        switches: Switches {
            radix: 8,
            tiers,
            ..Switches::default()
        },
        ..spec(1)
    };
    // k-port switches carry k^2/2 NICs on two tiers and k^3/4 on three (Al-Fares et al., SIGCOMM 2008).
    for (nodes, tiers, fits) in [
        (32, 2, true),
        (33, 2, false),
        (128, 3, true),
        (129, 3, false),
    ] {
        assert_eq!(
            Wiring::plan(&tree(nodes, tiers)).is_ok(),
            fits,
            "{nodes} on {tiers} tiers"
        );
    }
}

#[test]
fn ibnetdiscover_text_says_what_the_fabric_says() {
    let demos = [1, 32, 64].map(|nodes| ("demo".to_owned(), spec(nodes), plan(nodes)));
    for (name, _, wiring) in families().chain(demos) {
        let text = ibnetdiscover(&wiring, NOW);
        assert_eq!(cables_in(&text), cables_of(&wiring.fabric(NOW)), "{name}");
    }
}

#[test]
fn the_plan_of_every_family_is_read_back_as_it_was_written() {
    for (name, spec, wiring) in families() {
        let text = plan::write(&wiring);
        let read = WiringPlan::parse(&name, &text).expect(&name);
        assert_eq!(read, plan::plan(&wiring), "{name}");
        assert_eq!(read.cables.len(), wiring.cables.len(), "{name}");
        assert_eq!(
            text.starts_with("from,from_port,to,to_port,rail,plane\n"),
            spec.planes > 1,
            "{name}"
        );
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
    let short = "nodes = 32\nwiring = { kind = \"rail-optimized\", nodes_per_su = 32 }";
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
    assert_eq!(with(|spec| spec.gpus_per_node = Some(9)), "gpus_per_node");
    assert_eq!(with(|spec| spec.planes = 3), "planes");
    assert_eq!(with(|spec| spec.switches.radix = 2), "switches.radix");
    assert_eq!(with(|spec| spec.switches.tiers = 4), "switches.tiers");
    assert_eq!(
        with(|spec| spec.switches.uplinks = Some(64)),
        "switches.uplinks"
    );
    // 8 leaves with 32 uplinks each need 4 spines with 64 ports, and 32 do not divide by 5.
    assert_eq!(
        with(|spec| spec.switches.spines = Some(5)),
        "switches.spines"
    );
    assert_eq!(
        with(|spec| spec.switches.spines = Some(2)),
        "switches.spines"
    );
    let unit = |nodes_per_su| WiringSpec::RailOptimized {
        nodes_per_su,
        rails_meet: RailsMeet::Spine,
    };
    let spec = ClusterSpec {
        wiring: unit(33),
        ..spec(32)
    };
    assert_eq!(
        Wiring::plan(&spec).expect_err("refused").field,
        "wiring.nodes_per_su"
    );
    assert_eq!(ClusterSpec::demo(257).expect_err("too many").field, "nodes");
}

#[test]
fn a_cable_between_switches_has_the_name_that_a_fabric_gives_it_and_is_found_by_either_end() {
    for (name, _, wiring) in families() {
        let trunks = wiring.nics.len()..wiring.cables.len();
        for cable in trunks {
            let ends = wiring.cables[cable].ends;
            let by_end = ends.map(|(end, port)| match end {
                Device::Switch(switch) => {
                    Part::SwitchLink(wiring.switches[switch].name.clone(), port.into())
                }
                Device::Nic(_) => panic!("{name}: a trunk ends at switches"),
            });
            for part in &by_end {
                assert_eq!(wiring.cable_named(part), Some(cable), "{name}: {part}");
            }
            let [one, other] = by_end;
            assert_eq!(wiring.cable_part(cable), one.min(other), "{name}");
        }
    }
}
