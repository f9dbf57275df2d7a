//! A leaf-spine of network namespaces with real lldpd: the graph is right cable by cable, a moved cable is seen.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "../exporter/tests/common/namespace.rs"]
#[allow(
    dead_code,
    reason = "the exporter's tests use more of it than this one"
)]
mod namespace;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use namespace::Namespace;
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::fabric::Kind;
use railscope_collector::fabric::lldp::text::parse_neighbors;
use railscope_exporter::sources::lldp::parse_json0;
use railscope_model::fabric::{LinkKind, Timestamp, Witness};
use railscope_model::identity::NodeName;
use railscope_model::metric::{LLDP_NEIGHBOR, NIC, RDMA_PORT, RDMA_PORT_UP};
use railscope_model::reading::{Labels, NodeReading};

const SPINES: usize = 2;
const UNITS: usize = 2;
const RAILS: usize = 2;
const HOSTS_OF_UNIT: usize = 4;
/// lldpd sends when a link comes up, then every second; a busy machine may need much longer, and what was
/// lost between one cabling and the next is a ticket until it has been healthy for a while.
const PATIENCE: Duration = Duration::from_secs(90);

/// A namespace with its lldpd, which ends with it.
struct Device {
    name: String,
    namespace: Namespace,
    lldpd: Child,
    socket: std::path::PathBuf,
}

impl Device {
    fn start(test: &str, folder: &Path, name: &str) -> Option<Self> {
        let namespace = Namespace::new(test, name)?;
        let configuration = folder.join(format!("{name}.conf"));
        // All share one host name; the chassis id is the MAC address of the first port.
        let text = format!(
            "configure system hostname {name}\nconfigure lldp tx-interval 1\nconfigure lldp tx-hold 3\n\
             configure lldp portidsubtype ifname\n"
        );
        fs::write(&configuration, text).expect("write");
        let socket = folder.join(format!("{name}.socket"));
        let lldpd = Command::new("ip")
            .args(["netns", "exec", &namespace.0, "lldpd", "-d", "-k", "-u"])
            .arg(&socket)
            .arg("-O")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("lldpd");
        Some(Self {
            name: name.to_owned(),
            namespace,
            lldpd,
            socket,
        })
    }

    /// What `lldpctl -f json0` prints.
    fn lldpctl(&self) -> String {
        let run = Command::new("lldpctl")
            .arg("-u")
            .arg(&self.socket)
            .args(["-f", "json0"])
            .output();
        String::from_utf8_lossy(&run.expect("lldpctl").stdout).into_owned()
    }

    /// What its exporter would report: neighbors from its lldpd, and each interface as that of an RDMA device.
    fn reading(&self) -> NodeReading {
        let mut reading = NodeReading::default();
        for rail in 0..RAILS {
            let (device, netdev) = (format!("mlx5_{rail}"), format!("rail{rail}"));
            let pci = format!("0000:1{rail}:00.0");
            let about = [
                &device,
                "1",
                &pci,
                &netdev,
                "",
                "",
                "Ethernet",
                "mlx5_core",
                "0",
            ];
            reading.push(&RDMA_PORT, &Labels::new(about), true);
            reading.push(
                &NIC,
                &Labels::new([&netdev, &pci, &device, "mlx5_core", "0"]),
                true,
            );
            reading.push(&RDMA_PORT_UP, &Labels::new([&device, "1"]), true);
        }
        let (found, unparsed) = parse_json0(&self.lldpctl()).unwrap_or_default();
        assert_eq!(unparsed, 0);
        for one in found {
            let labels = [
                &one.netdev,
                &one.chassis,
                &one.port,
                &one.system,
                &one.description,
            ];
            reading.push(&LLDP_NEIGHBOR, &Labels::new(labels), true);
        }
        reading
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The processes of a namespace of our own.
        let pids = Command::new("ip")
            .args(["netns", "pids", &self.namespace.0])
            .output();
        let pids = pids.map(|run| String::from_utf8_lossy(&run.stdout).into_owned());
        for pid in pids.unwrap_or_default().split_whitespace() {
            Command::new("kill").arg(pid).status().ok();
        }
        self.lldpd.wait().ok();
    }
}

/// The devices, and the cables between them as `device interface`, twice.
struct Site {
    switches: Vec<Device>,
    hosts: Vec<Device>,
    cables: Vec<[(String, String); 2]>,
}

fn leaf(unit: usize, rail: usize) -> String {
    format!("leaf{unit}r{rail}")
}

impl Site {
    fn build(test: &str, folder: &Path) -> Option<Self> {
        fs::create_dir_all("/run/lldpd").expect("the directory that lldpd locks itself into");
        let spines = (0..SPINES).map(|spine| format!("spine{spine}"));
        let leaves = (0..UNITS).flat_map(|unit| (0..RAILS).map(move |rail| leaf(unit, rail)));
        let start = |name: String| Device::start(test, folder, &name);
        let switches = spines.chain(leaves).map(start).collect::<Option<_>>()?;
        let hosts = (0..UNITS * HOSTS_OF_UNIT).map(|host| start(format!("host{host}")));
        let mut site = Self {
            switches,
            hosts: hosts.collect::<Option<_>>()?,
            cables: Vec::new(),
        };
        for unit in 0..UNITS {
            for rail in 0..RAILS {
                for spine in 0..SPINES {
                    let far = format!("swp{}", unit * RAILS + rail + 1);
                    let near = format!("swp{}", 49 + spine);
                    site.wire((&leaf(unit, rail), &near), (&format!("spine{spine}"), &far));
                }
                for host in 0..HOSTS_OF_UNIT {
                    let name = format!("host{}", unit * HOSTS_OF_UNIT + host);
                    let near = (leaf(unit, rail), format!("swp{}", host + 1));
                    site.wire((&name, &format!("rail{rail}")), (&near.0, &near.1));
                }
            }
        }
        Some(site)
    }

    fn device(&self, name: &str) -> &Device {
        let mut all = self.switches.iter().chain(&self.hosts);
        all.find(|device| device.name == name).expect(name)
    }

    fn wire(&mut self, a: (&str, &str), b: (&str, &str)) {
        let [near, far] = [a, b].map(|(name, _)| &self.device(name).namespace);
        near.ip(&format!(
            "link add {} type veth peer name {} netns {}",
            a.1, b.1, far.0
        ));
        near.ip(&format!("link set {} up", a.1));
        far.ip(&format!("link set {} up", b.1));
        let end = |(name, port): (&str, &str)| (name.to_owned(), port.to_owned());
        self.cables.push([end(a), end(b)]);
    }

    /// Pulls the cable at one end out at both.
    fn pull(&mut self, name: &str, interface: &str) {
        let at = |end: &(String, String)| end.0 == name && end.1 == interface;
        self.device(name)
            .namespace
            .ip(&format!("link del {interface}"));
        self.cables.retain(|ends| !ends.iter().any(at));
    }

    /// Cables as the graph should have them.
    fn expected(&self) -> BTreeSet<String> {
        let end = |(name, port): &(String, String)| match port.strip_prefix("rail") {
            Some(rail) => format!("nic/{name}:mlx5_{rail} 1"),
            None => format!("switch/{name} {port}"),
        };
        self.cables
            .iter()
            .map(|ends| cable(ends.each_ref().map(end)))
            .collect()
    }

    /// One read of the collector.
    fn look(&self, analyzer: &mut Analyzer, at: Timestamp) -> ClusterView {
        for host in &self.hosts {
            let node: NodeName = host.name.parse().expect("a name");
            analyzer.ingest_reading(&node, &host.reading(), at);
        }
        for switch in &self.switches {
            let told = parse_neighbors(&switch.lldpctl());
            analyzer.take_switch(&switch.name.parse().expect("a name"), told, at);
        }
        analyzer.tick(at)
    }

    /// Reads until the graph has these cables and no others, each seen from both of its ends, without
    /// contradictions, and with these incidents.
    fn watch(&self, analyzer: &mut Analyzer, tick: &mut u64, incidents: &[&str]) -> ClusterView {
        let (begun, expected) = (Instant::now(), self.expected());
        loop {
            *tick += 1;
            let view = self.look(analyzer, Timestamp(1_700_000_000_000 + *tick * 5_000));
            let (seen, open) = (cables(&view), named(&view));
            if seen == expected && view.lldp.contradictions.is_empty() && open == incidents {
                println!("{} cables after {:?}", seen.len(), begun.elapsed());
                return view;
            }
            let wrong: Vec<_> = seen.symmetric_difference(&expected).collect();
            assert!(
                begun.elapsed() < PATIENCE,
                "{wrong:#?}\n{open:#?}\n{:#?}",
                view.lldp
            );
            thread::sleep(Duration::from_millis(500));
        }
    }
}

fn cable(mut ends: [String; 2]) -> String {
    ends.sort();
    ends.join(" - ")
}

/// Cables that are present and seen by all possible witnesses.
fn cables(view: &ClusterView) -> BTreeSet<String> {
    let fabric = &view.fabric;
    let mut cables = BTreeSet::new();
    for (_, a, b, link) in fabric.links() {
        let by_switch = link.seen_by.of(Witness::Switch).is_some();
        if link.kind == LinkKind::Cable && link.is_present() && by_switch {
            let end =
                |id, port| format!("{} {}", fabric.vertex(id).part, fabric.port_name(id, port));
            cables.insert(cable([end(a, link.ports.0), end(b, link.ports.1)]));
        }
    }
    cables
}

/// Incidents as `class part`.
fn named(view: &ClusterView) -> Vec<String> {
    let incidents = view.incidents.iter();
    incidents
        .map(|incident| format!("{} {}", incident.class.name, incident.root))
        .collect()
}

#[test]
fn a_leaf_spine_of_real_lldpd_is_read_cable_by_cable_and_a_moved_cable_is_seen() {
    let test = "a_leaf_spine_of_real_lldpd_is_read_cable_by_cable_and_a_moved_cable_is_seen";
    if Command::new("lldpd").arg("-v").output().is_err() {
        println!("SKIPPED: {test}: no lldpd");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(mut site) = Site::build(test, folder.path()) else {
        return;
    };
    let mut analyzer = Analyzer::default();
    let nodes: Vec<NodeName> = site
        .hosts
        .iter()
        .map(|host| host.name.parse().expect("a name"))
        .collect();
    analyzer.set_targets(&nodes);
    let mut tick = 0;
    let view = site.watch(&mut analyzer, &mut tick, &[]);
    let verdict = &view.verdict;
    assert_eq!(
        (&verdict.kind, verdict.levels, &verdict.switches_by_tier[..]),
        (&Kind::RailOptimized, 2, &[UNITS * RAILS, SPINES][..]),
        "{verdict}"
    );
    assert_eq!(
        (verdict.wiring.units, verdict.wiring.misplaced.len()),
        (UNITS, 0)
    );

    // The two cables of one host, each in the other's leaf.
    site.pull("host1", "rail0");
    site.pull("host1", "rail1");
    site.wire(("host1", "rail0"), ("leaf0r1", "swp2"));
    site.wire(("host1", "rail1"), ("leaf0r0", "swp2"));
    let only = ["miscabled-rail link/host1:mlx5_0/1"];
    let view = site.watch(&mut analyzer, &mut tick, &only);
    let misplaced: Vec<_> = view
        .verdict
        .wiring
        .misplaced
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        misplaced,
        [
            "host1 mlx5_0 of rail 0 is connected to leaf0r1 of rail 1, not to leaf0r0 (swapped with host1 mlx5_1)",
            "host1 mlx5_1 of rail 1 is connected to leaf0r0 of rail 0, not to leaf0r1 (swapped with host1 mlx5_0)",
        ]
    );
}
