//! Ethernet fabrics by LLDP: reports of hosts and switches become the graph, its missing cables and its contradictions.

mod restarts;
mod unlisted;

use std::collections::BTreeMap;

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::fabric::Kind;
use railscope_collector::fabric::{Neighbor, Told};
use railscope_model::fabric::{LinkKind, Presence, Timestamp, Witness};
use railscope_model::identity::{NodeName, SwitchName};
use railscope_model::metric::SWITCH_PORT_UP;
use railscope_model::reading::{Labels, NodeReading};

const NODES: usize = 8;
const RAILS: usize = 2;

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000 + seconds * 1000)
}

fn node(index: usize) -> NodeName {
    format!("n{index}").parse().expect("a name")
}

fn switch(name: &str) -> SwitchName {
    name.parse().expect("a name")
}

/// One port of a host: its leaf as LLDP reports it, and whether it is up.
#[derive(Clone)]
struct Port {
    system: String,
    chassis: String,
    port: String,
    up: bool,
}

impl Port {
    fn planned(node: usize, rail: usize) -> Self {
        Self {
            system: format!("leaf-{rail}"),
            chassis: format!("7c:21:d8:00:00:{rail:02x}"),
            port: format!("swp{}", node + 1),
            up: true,
        }
    }
}

/// An exposition with these ports; a port without a system and a chassis receives nothing.
fn page(ports: &[Port]) -> String {
    let mut page = String::new();
    for (rail, port) in ports.iter().enumerate() {
        let (device, netdev) = (format!("mlx5_{rail}"), format!("eth{rail}"));
        let up = u8::from(port.up);
        let pci = format!("0000:1{rail}:00.0");
        page += &format!(
            r#"railscope_rdma_port_info{{device="{device}",port="1",pci="{pci}",netdev="{netdev}",node_guid="",port_guid="",link_layer="Ethernet",driver="mlx5_core",numa_node="0"}} 1
railscope_rdma_port_up{{device="{device}",port="1"}} {up}
railscope_nic_info{{netdev="{netdev}",pci="{pci}",device="{device}",driver="mlx5_core",numa_node="0"}} 1
railscope_nic_speed_bytes_per_second{{netdev="{netdev}"}} 5e10
"#
        );
        if !port.chassis.is_empty() {
            page += &format!(
                "railscope_lldp_neighbor_info{{netdev=\"{netdev}\",chassis=\"{}\",port=\"{}\",system=\"{}\",description=\"\"}} 1\n",
                port.chassis, port.port, port.system
            );
        }
    }
    page
}

struct Cluster {
    analyzer: Analyzer,
    /// By node and rail.
    ports: Vec<Vec<Port>>,
    seconds: u64,
}

impl Cluster {
    fn new() -> Self {
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
        let port = |node| move |rail| Port::planned(node, rail);
        Self {
            analyzer,
            ports: (0..NODES)
                .map(|node| (0..RAILS).map(port(node)).collect())
                .collect(),
            seconds: 0,
        }
    }

    /// Leaves and spines report their neighbors.
    fn with_spines(mut self, spines: usize) -> Self {
        let uplink = |leaf: usize, spine: usize| {
            (
                format!("leaf-{leaf}"),
                format!("swp{}", 49 + spine),
                format!("spine-{spine}"),
                format!("swp{}", leaf + 1),
            )
        };
        let cables: Vec<_> = (0..RAILS)
            .flat_map(|leaf| (0..spines).map(move |spine| uplink(leaf, spine)))
            .collect();
        let leaves = (0..RAILS).map(|leaf| format!("leaf-{leaf}"));
        for name in leaves.chain((0..spines).map(|spine| format!("spine-{spine}"))) {
            let ends = cables.iter().filter_map(|(a, a_port, b, b_port)| {
                if name == *a {
                    Some((a_port, b, b_port))
                } else {
                    (name == *b).then_some((b_port, a, a_port))
                }
            });
            let neighbors = ends
                .map(|(local, system, port)| heard(local, system, port))
                .collect();
            let told = Told {
                neighbors,
                unparsed: 0,
                ..Told::default()
            };
            self.analyzer.take_switch(&switch(&name), Ok(told), at(0));
        }
        self
    }

    /// Some ticks of 5 s.
    fn watch(&mut self, ticks: u64) -> ClusterView {
        for _ in 0..ticks {
            self.seconds += 5;
            for (index, ports) in self.ports.iter().enumerate() {
                self.analyzer
                    .ingest(&node(index), &page(ports), at(self.seconds));
            }
            self.analyzer.tick(at(self.seconds));
        }
        self.analyzer.tick(at(self.seconds))
    }
}

fn heard(local: &str, system: &str, port: &str) -> Neighbor {
    Neighbor {
        local: local.to_owned(),
        chassis: format!("chassis of {system}"),
        port: port.to_owned(),
        system: system.to_owned(),
        description: String::new(),
        forwards: Some(true),
    }
}

/// Every cable as `part: end – end, presence`.
fn cables(view: &ClusterView) -> Vec<String> {
    let fabric = &view.fabric;
    let links = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    let mut cables: Vec<_> = links
        .map(|(id, a, b, link)| {
            let end =
                |id, port| format!("{} {}", fabric.vertex(id).part, fabric.port_name(id, port));
            let part = fabric.cable_part(id).expect("a part");
            let presence = match link.seen_by.presence() {
                Presence::Present => "",
                presence => &format!(" {}", presence.as_str()),
            };
            format!(
                "{part}: {} - {}{presence}",
                end(a, link.ports.0),
                end(b, link.ports.1)
            )
        })
        .collect();
    cables.sort();
    cables
}

fn incidents(view: &ClusterView) -> Vec<String> {
    let incidents = view.incidents.iter();
    incidents
        .map(|incident| format!("{} {}", incident.class.name, incident.root))
        .collect()
}

#[test]
fn hosts_words_alone_give_leaves_and_no_word_on_what_is_above() {
    let view = Cluster::new().watch(3);
    assert_eq!(cables(&view).len(), NODES * RAILS);
    assert_eq!(
        cables(&view)[3],
        "link/n1:mlx5_1/1: nic/n1:mlx5_1 1 - switch/leaf-1 swp2"
    );
    let Kind::Unknown { why } = &view.verdict.kind else {
        panic!("{}", view.verdict);
    };
    assert!(why.contains("2 of 2 leaves do not tell"), "{why}");
    assert_eq!(view.verdict.wiring.leaf_rails.len(), RAILS);
    let (_, _, _, link) = view
        .fabric
        .links()
        .find(|(.., link)| link.kind == LinkKind::Cable)
        .expect("a cable");
    assert_eq!(
        link.speed.map(|speed| speed.to_string()).as_deref(),
        Some("400G")
    );
    let (id, ..) = view
        .fabric
        .links()
        .find(|(.., link)| link.kind == LinkKind::Cable)
        .expect("a cable");
    assert_eq!(
        view.sightings(id).of(Witness::Exporter).expect("seen").at,
        at(15),
        "as new as the page"
    );
    assert_eq!(incidents(&view), [""; 0]);
}

#[test]
fn with_the_switches_words_the_whole_fabric_is_known() {
    let view = Cluster::new().with_spines(2).watch(3);
    let cables = cables(&view);
    assert_eq!(cables.len(), NODES * RAILS + 4, "{cables:#?}");
    assert!(
        cables
            .contains(&"link/leaf-0[swp50]: switch/leaf-0 swp50 - switch/spine-1 swp1".to_owned()),
        "{cables:#?}"
    );
    assert_eq!(
        (&view.verdict.kind, view.verdict.levels),
        (&Kind::RailOptimized, 2),
        "{}",
        view.verdict
    );
    assert_eq!(view.lldp.contradictions, []);
}

#[test]
fn a_cable_moved_to_another_leaf_is_seen_and_a_swap_is_one_incident() {
    let mut cluster = Cluster::new().with_spines(2);
    cluster.watch(3);
    cluster.ports[3].swap(0, 1);
    let view = cluster.watch(3);
    let cables = cables(&view);
    assert_eq!(
        cables.len(),
        NODES * RAILS + 4,
        "moved, not lost: {cables:#?}"
    );
    assert!(
        cables.contains(&"link/n3:mlx5_0/1: nic/n3:mlx5_0 1 - switch/leaf-1 swp4".to_owned()),
        "{cables:#?}"
    );
    assert_eq!(incidents(&view), ["miscabled-rail link/n3:mlx5_0/1"]);
}

#[test]
fn a_silent_neighbor_is_unknown_while_the_port_is_up_and_lost_when_it_goes_down() {
    let mut cluster = Cluster::new().with_spines(2);
    cluster.watch(3);
    let quiet = |port: &mut Port| port.chassis.clear();
    quiet(&mut cluster.ports[2][1]);
    let view = cluster.watch(20);
    let of = |view: &ClusterView| {
        cables(view)
            .into_iter()
            .find(|cable| cable.starts_with("link/n2:mlx5_1"))
            .expect("kept")
    };
    assert!(of(&view).ends_with("leaf-1 swp3 unknown"), "{}", of(&view));
    assert_eq!(incidents(&view), [""; 0]);
    assert_eq!(view.verdict.wiring.missing, []);
    cluster.ports[2][1].up = false;
    let view = cluster.watch(3);
    assert!(of(&view).ends_with("leaf-1 swp3 lost"), "{}", of(&view));
    assert_eq!(incidents(&view), ["port-down link/n2:mlx5_1/1"]);
    cluster.ports[2][1] = Port::planned(2, 1);
    let view = cluster.watch(15);
    assert!(of(&view).ends_with("leaf-1 swp3"), "{}", of(&view));
    assert_eq!(incidents(&view), [""; 0]);
}

/// Carrier of uplinks as exporters of leaves and spines report it, except for those that are down.
fn lights(cluster: &mut Cluster, spines: usize, dark: &[(&str, &str)]) {
    let mut readings: BTreeMap<String, NodeReading> = BTreeMap::new();
    for (leaf, spine) in (0..RAILS).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine))) {
        for (name, port) in [
            (format!("leaf-{leaf}"), format!("swp{}", 49 + spine)),
            (format!("spine-{spine}"), format!("swp{}", leaf + 1)),
        ] {
            let lit = !dark.contains(&(name.as_str(), port.as_str()));
            let reading = readings.entry(name).or_default();
            reading.push(&SWITCH_PORT_UP, &Labels::new([&port]), lit);
        }
    }
    for (name, reading) in readings {
        let now = at(cluster.seconds + 5);
        cluster
            .analyzer
            .ingest_switch(&switch(&name), &reading, now);
    }
}

#[test]
fn an_uplink_without_light_is_lost_whatever_was_told_of_it_before_and_comes_back() {
    for dark in [
        &[("leaf-1", "swp50"), ("spine-1", "swp2")][..],
        &[("spine-1", "swp2")],
    ] {
        let mut cluster = Cluster::new().with_spines(2);
        lights(&mut cluster, 2, &[]);
        cluster.watch(1);
        for (ticks, dark, expected, presence) in [
            (2, dark, &["uplink-down link/leaf-1[swp50]"][..], " lost"),
            (20, dark, &["uplink-down link/leaf-1[swp50]"], " lost"),
            (15, &[], &[], ""),
            // Longer than the counters' window.
            (31, &[], &[], ""),
            (4, dark, &["port-flapping link/leaf-1[swp50]"], " lost"),
        ] {
            for _ in 0..ticks {
                lights(&mut cluster, 2, dark);
                cluster.watch(1);
            }
            let view = cluster.analyzer.tick(at(cluster.seconds));
            let cables = cables(&view);
            let mut cables = cables.iter();
            let cable = cables.find(|cable| cable.starts_with("link/leaf-1[swp50]"));
            let cable = cable.expect("kept");
            assert!(cable.ends_with(&format!("swp2{presence}")), "{cable}");
            assert_eq!(incidents(&view), expected, "{dark:?}, {ticks} ticks");
            assert_eq!(view.lldp.dark, usize::from(!dark.is_empty()));
        }
    }
}

#[test]
fn a_dead_leaf_is_one_incident_with_and_without_its_uplinks() {
    // Fewer than 30 % of its cables go to hosts.
    for with_spines in [false, true] {
        let mut cluster = Cluster::new();
        if with_spines {
            cluster = cluster.with_spines(24);
        }
        cluster.watch(3);
        for ports in &mut cluster.ports {
            ports[1].chassis.clear();
            ports[1].up = false;
        }
        for ticks in [3, 30] {
            let view = cluster.watch(ticks);
            assert_eq!(
                incidents(&view),
                ["switch-down switch/leaf-1"],
                "after {ticks}"
            );
        }
    }
}

#[test]
fn a_port_that_two_nics_claim_is_believed_of_neither_unless_the_switch_says_which() {
    let mut cluster = Cluster::new();
    // As lldpd with neighbors by chassis id only, where all have the same.
    for port in &mut cluster.ports[0] {
        port.system = String::from("leaf-0");
        port.chassis = String::from("vm");
        port.port = String::from("swp1");
    }
    let view = cluster.watch(3);
    let of_n0 = |view: &ClusterView| {
        cables(view)
            .into_iter()
            .filter(|cable| cable.contains("n0:"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_n0(&view), [""; 0]);
    let [contradiction] = &view.lldp.contradictions[..] else {
        panic!("{:?}", view.lldp);
    };
    assert_eq!(contradiction.end, "switch/leaf-0 port swp1");
    assert_eq!(
        (contradiction.claims.len(), &contradiction.kept),
        (2, &None)
    );
    assert!(
        view.verdict
            .doubts
            .iter()
            .any(|doubt| doubt.contains("contradicts itself")),
        "{}",
        view.verdict
    );

    let told = Told {
        neighbors: vec![heard("swp1", "n0", "eth0")],
        unparsed: 0,
        ..Told::default()
    };
    cluster
        .analyzer
        .take_switch(&switch("leaf-0"), Ok(told), at(20));
    let view = cluster.watch(1);
    assert_eq!(
        of_n0(&view),
        ["link/n0:mlx5_0/1: nic/n0:mlx5_0 1 - switch/leaf-0 swp1"]
    );
    assert_eq!(
        view.lldp.contradictions[0].kept.as_deref(),
        Some("nic/n0:mlx5_0 port 1")
    );
}

#[test]
fn what_a_switch_says_and_what_its_neighbors_were_told_is_one_cable() {
    let mut cluster = Cluster::new();
    for ports in &mut cluster.ports {
        // SONiC advertises an alias of the port.
        ports[0].port = ports[0].port.replace("swp", "etp");
    }
    let told = |node: usize| {
        heard(
            &format!("Ethernet{}", 4 * node),
            &format!("n{node}.example.org"),
            "eth0",
        )
    };
    let told = Told {
        neighbors: (0..NODES).map(told).collect(),
        unparsed: 0,
        ..Told::default()
    };
    cluster
        .analyzer
        .take_switch(&switch("leaf-0"), Ok(told), at(0));
    let view = cluster.watch(3);
    assert_eq!(cables(&view).len(), NODES * RAILS);
    assert_eq!(
        cables(&view)[2],
        "link/n1:mlx5_0/1: nic/n1:mlx5_0 1 - switch/leaf-0 Ethernet4"
    );
    let fabric = &view.fabric;
    let (id, ..) = fabric
        .links()
        .find(|(id, ..)| {
            fabric
                .cable_part(*id)
                .is_some_and(|part| part.to_string() == "link/n1:mlx5_0/1")
        })
        .expect("it");
    let witnesses: Vec<_> = view
        .sightings(id)
        .iter()
        .map(|(witness, _)| witness)
        .collect();
    assert_eq!(witnesses, [Witness::Exporter, Witness::Switch]);
    assert_eq!(view.lldp.contradictions, []);
}
