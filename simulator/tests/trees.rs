//! The trees on disk have the forms of sysfs, follow the cluster in place, and go away.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::plan::WiringPlan;
use railscope_model::units::{PortRate, pcie_transfers_per_second};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::show::plan;
use railscope_simulator::show::tree::ClusterTree;
use railscope_simulator::spec::{Change, ClusterSpec, Transport};
use railscope_simulator::wiring::Wiring;

const STARTED: Timestamp = Timestamp(1_754_493_083_000);
const SEED: u64 = 11;

fn cluster(nodes: u16) -> Cluster {
    Cluster::new(ClusterSpec::demo(nodes).expect("spec"), SEED).expect("cluster")
}

fn tree(cluster: &Cluster) -> ClusterTree {
    ClusterTree::create(cluster, STARTED, &std::env::temp_dir()).expect("tree")
}

fn advance(cluster: &mut Cluster, tree: &mut ClusterTree, seconds: u64) {
    cluster.advance(Duration::from_secs(seconds));
    let now = Timestamp(STARTED.0 + seconds * 1000);
    tree.update(cluster, now).expect("update");
}

/// Every file and link below a folder, with its content.
fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("folder") {
            let path = entry.expect("entry").path();
            let kind = fs::symlink_metadata(&path).expect("metadata").file_type();
            let below = path.strip_prefix(root).expect("below").to_owned();
            if kind.is_symlink() {
                let target = fs::read_link(&path).expect("link");
                found.insert(below, target.into_os_string().into_encoded_bytes());
            } else if kind.is_dir() {
                folders.push(path);
            } else {
                found.insert(below, fs::read(&path).expect("file"));
            }
        }
    }
    found
}

fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A one-line attribute, as the kernel prints it.
fn line(path: impl AsRef<Path>) -> String {
    let text = text(&path);
    let line = text.strip_suffix('\n').expect("a line end");
    assert!(
        !line.is_empty() && !line.contains('\n'),
        "{}: {text:?}",
        path.as_ref().display()
    );
    line.to_owned()
}

#[test]
fn same_seed_same_bytes() {
    let run = || {
        let mut cluster = cluster(3);
        let fault = examples::fault(&cluster, "link-errors", SEED, 2.0).expect("fault");
        cluster.inject(fault).expect("fault");
        let mut tree = tree(&cluster);
        for second in 1..=5 {
            advance(&mut cluster, &mut tree, second);
        }
        content(tree.path())
    };
    let (one, two) = (run(), run());
    assert!(one.len() > 3_000, "{} files", one.len());
    assert_eq!(one, two);
}

#[test]
fn a_node_is_an_hgx_h100_to_whoever_reads_sysfs() {
    let cluster = cluster(2);
    let tree = tree(&cluster);
    let machine = tree.machines()[1].paths();
    let sys = machine.sysfs();
    let mut switches = BTreeMap::<PathBuf, usize>::new();
    for rail in 0..8_u8 {
        let device = sys.join(format!("class/infiniband/mlx5_{rail}"));
        let function = fs::canonicalize(device.join("device")).expect("device");
        let linked = fs::canonicalize(&device).expect("device");
        assert_eq!(linked.parent(), Some(&*function.join("infiniband")));
        assert_eq!(line(function.join("class")), "0x020700");
        let socket = if rail < 4 { "0" } else { "1" };
        assert_eq!(line(function.join("numa_node")), socket);
        let chain: Vec<_> = function
            .ancestors()
            .take_while(|path| path.join("class").exists())
            .collect();
        // NIC, switch port, switch, root port.
        assert_eq!(chain.len(), 4, "{chain:?}");
        let complex = chain[3].parent().expect("root complex");
        assert!(complex.ends_with(format!("pci{}", &name(chain[3])[..7])));
        for hop in &chain {
            is_a_healthy_function(&sys, hop);
        }
        *switches.entry(chain[2].to_owned()).or_default() += 1;
        is_a_healthy_ndr_port(&device);
        let guid = cluster.plan().nics[8 + usize::from(rail)].guid;
        assert_eq!(line(device.join("node_guid")).parse(), Ok(guid));
    }
    assert_eq!(switches.values().collect::<Vec<_>>(), [&2, &2, &2, &2]);
    let hostname = line(machine.procfs().join("sys/kernel/hostname"));
    assert_eq!(hostname, "gpu-node-01");
    let booted = format!("\nbtime {}\n", STARTED.0 / 1000 - 3 * 86_400);
    assert!(text(machine.procfs().join("stat")).contains(&booted));
    assert!(machine.nvml_library().is_file());
}

fn is_a_healthy_function(sys: &Path, function: &Path) {
    for kind in ["current", "max"] {
        let speed = line(function.join(format!("{kind}_link_speed")));
        assert_eq!(pcie_transfers_per_second(&speed), Ok(Some(32e9)), "{speed}");
        assert_eq!(line(function.join(format!("{kind}_link_width"))), "16");
    }
    for (file, rows) in [("correctable", 9), ("nonfatal", 19), ("fatal", 19)] {
        let table = text(function.join(format!("aer_dev_{file}")));
        assert_eq!(table.lines().count(), rows);
    }
    let by_address = sys.join("bus/pci/devices").join(name(function));
    assert_eq!(fs::canonicalize(by_address).expect("link"), function);
}

fn is_a_healthy_ndr_port(device: &Path) {
    let port = device.join("ports/1");
    let rate: PortRate = line(port.join("rate")).parse().expect("rate");
    assert_eq!((rate.bytes_per_second, rate.lanes), (50e9, Some(4)));
    assert_eq!(line(port.join("state")), "4: ACTIVE");
    assert_eq!(line(port.join("phys_state")), "5: LinkUp");
    let gid = format!("fe80:0000:0000:0000:{}", line(device.join("node_guid")));
    assert_eq!(line(port.join("gids/0")), gid);
    for (folder, files) in [("counters", 21), ("hw_counters", 26)] {
        let found = fs::read_dir(port.join(folder)).expect(folder).count();
        assert_eq!(found, files, "{folder}");
    }
}

#[test]
fn a_roce_port_is_an_ethernet_port_to_whoever_reads_sysfs() {
    let spec = ClusterSpec {
        transport: Transport::Roce,
        ..ClusterSpec::demo(2).expect("spec")
    };
    let run = || {
        let mut cluster = Cluster::new(spec.clone(), SEED).expect("cluster");
        let mut tree = tree(&cluster);
        advance(&mut cluster, &mut tree, 2);
        (content(tree.path()), tree)
    };
    let ((one, tree), (two, _)) = (run(), run());
    assert_eq!(one, two, "same seed, same bytes");
    assert!(!tree.subnet().exists());
    let machine = tree.machines()[1].paths();
    let device = machine.sysfs().join("class/infiniband/mlx5_2");
    let function = fs::canonicalize(device.join("device")).expect("device");
    assert_eq!(line(function.join("class")), "0x020000");
    let port = device.join("ports/1");
    // Bus 4c, the third NIC of the second node.
    for (file, expected) in [
        ("link_layer", "Ethernet"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("lid", "0x0"),
        ("sm_lid", "0x0"),
        ("gids/0", "fe80:0000:0000:0000:e29d:73ff:fe00:0220"),
        ("gids/3", "0000:0000:0000:0000:0000:ffff:0a02:0001"),
        ("gid_attrs/types/3", "RoCE v2"),
        ("gid_attrs/ndevs/3", "enp76s0np0"),
        ("hw_counters/np_cnp_sent", "0"),
        ("counters/symbol_error", "0"),
    ] {
        assert_eq!(line(port.join(file)), expected, "{file}");
    }
    let netdev = machine.sysfs().join("class/net/enp76s0np0");
    assert_eq!(
        fs::canonicalize(netdev.join("device")).expect("device"),
        function
    );
    for (file, expected) in [
        ("address", "e0:9d:73:00:02:20"),
        ("mtu", "9000"),
        ("speed", "400000"),
        ("type", "1"),
        ("carrier", "1"),
    ] {
        assert_eq!(line(netdev.join(file)), expected, "{file}");
    }
    let statistics = text(machine.network().join("enp76s0np0/stats"));
    assert!(statistics.starts_with("NIC statistics:\n     rx_crc_errors_phy: 0\n"));
}

fn name(path: &Path) -> String {
    path.file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned()
}

#[test]
fn an_open_reader_sees_new_values_in_the_same_file() {
    let mut cluster = cluster(2);
    let mut tree = tree(&cluster);
    let fault = examples::fault(&cluster, "port-down", SEED, 1.5).expect("fault");
    let truth = cluster.inject(fault).expect("fault");
    let (node, device) = cluster
        .plan()
        .nics
        .iter()
        .find(|nic| nic.link_part() == truth.part)
        .map(|nic| (usize::from(nic.node), nic.device.to_string()))
        .expect("culprit");
    let port = tree.machines()[node]
        .paths()
        .sysfs()
        .join(format!("class/infiniband/{device}/ports/1"));
    let open = |name: &str| File::open(port.join(name)).expect(name);
    let read = |file: &File| {
        let mut buffer = [0; 128];
        let count = file.read_at(&mut buffer, 0).expect("read");
        String::from_utf8(buffer[..count].to_vec()).expect("text")
    };
    let (data, state) = (open("counters/port_xmit_data"), open("state"));
    let before = read(&data);
    let inode = data.metadata().expect("metadata").ino();
    advance(&mut cluster, &mut tree, 1);
    let number = |text: String| text.trim().parse::<u64>().expect("number");
    assert!(number(read(&data)) > number(before));
    assert_eq!(read(&state), "4: ACTIVE\n");
    advance(&mut cluster, &mut tree, 2);
    assert_eq!(read(&state), "1: DOWN\n");
    assert_eq!(line(port.join("phys_state")), "2: Polling");
    let now = fs::metadata(port.join("counters/port_xmit_data")).expect("metadata");
    assert_eq!(now.ino(), inode);
}

#[test]
fn a_degraded_pcie_link_changes_both_of_its_ends_and_no_other_state() {
    let (mut healthy, mut faulty) = (cluster(4), cluster(4));
    let fault = examples::fault(&faulty, "pcie-degraded", SEED, 3.0).expect("fault");
    let truth = faulty.inject(fault).expect("fault");
    let (mut tree, mut faulty_tree) = (tree(&healthy), tree(&faulty));
    for second in 1..=10 {
        advance(&mut healthy, &mut tree, second);
        advance(&mut faulty, &mut faulty_tree, second);
    }
    let (expected, found) = (content(tree.path()), content(faulty_tree.path()));
    assert!(expected.keys().eq(found.keys()), "no file comes or goes");
    let differing = expected
        .iter()
        .filter(|(path, bytes)| found[*path] != **bytes);
    // The common slowdown shows in what every port and GPU counts, and in the job's step times.
    let common = |path: &Path| {
        path.ends_with("nvml.state")
            || path.parent().is_some_and(|folder| {
                ["counters", "hw_counters", "railscope/steps"]
                    .iter()
                    .any(|of_all| folder.ends_with(of_all))
            })
    };
    let own: Vec<_> = differing
        .map(|(path, _)| path)
        .filter(|path| !common(path))
        .collect();
    assert_eq!(own.len(), 2, "{own:?}");
    let Part::PcieLink(_, function) = truth.part else {
        panic!("{}", truth.part)
    };
    let function = function.to_string();
    for path in own {
        assert!(path.ends_with("current_link_width"), "{}", path.display());
        assert_eq!(found[path], b"8\n");
        let near = path.parent().expect("function");
        let below = faulty_tree.path().join(near).join(&function);
        assert!(
            near.ends_with(&function) || below.is_dir(),
            "{}",
            path.display()
        );
    }
}

#[test]
fn the_subnet_file_follows_the_cables() {
    let mut cluster = cluster(2);
    let mut tree = tree(&cluster);
    let planned = text(tree.subnet());
    for (class, onset) in [
        ("miscabled-rail", 1.0),
        ("port-degraded", 2.0),
        ("port-down", 3.0),
    ] {
        let fault = examples::fault(&cluster, class, onset as u64, onset - 0.5).expect(class);
        cluster.inject(fault).expect(class);
        let before = text(tree.subnet());
        advance(&mut cluster, &mut tree, onset as u64);
        let after = text(tree.subnet());
        assert_ne!(before, after, "{class}");
        let slow = after.matches("1xNDR").count();
        let gone = planned.lines().count() - after.lines().count();
        match class {
            "miscabled-rail" => assert_eq!((slow, gone), (0, 0)),
            "port-degraded" => assert_eq!((slow, gone), (2, 0)),
            // The line at the switch, and the NIC with its six lines and the gap.
            _ => assert_eq!(gone, 8),
        }
    }
}

#[test]
fn an_unchanged_subnet_is_swept_again() {
    let mut cluster = cluster(2);
    let mut tree = tree(&cluster);
    let inode = |tree: &ClusterTree| fs::metadata(tree.subnet()).expect("a file").ino();
    let first = inode(&tree);
    advance(&mut cluster, &mut tree, 2);
    assert_eq!(inode(&tree), first);
    advance(&mut cluster, &mut tree, 6);
    assert_ne!(inode(&tree), first, "the collector would take it for stale");
}

#[test]
fn the_plan_says_what_was_planned_and_not_what_was_built() {
    let mut spec = ClusterSpec::demo(2).expect("spec");
    let [one, other] = ["link/gpu-node-00:mlx5_0/1", "link/gpu-node-00:mlx5_1/1"]
        .map(|part| part.parse().expect(part));
    spec.changes = vec![Change::Swapped([one, other])];
    let cluster = Cluster::new(spec.clone(), SEED).expect("cluster");
    let tree = tree(&cluster);
    let read = WiringPlan::parse("wiring-plan.csv", &text(tree.plan())).expect("a plan");
    let planned = Wiring::plan(&spec).expect("wiring");
    assert_eq!(read, plan::plan(&planned));
    assert_ne!(read, plan::plan(&Wiring::built(&spec).expect("wiring")));
    assert_eq!(read.cables.len(), planned.cables.len());
    let first = &read.cables[0];
    assert_eq!(
        (first.ends.each_ref().map(ToString::to_string), first.rail),
        (
            [
                "nic/gpu-node-00:mlx5_0 port 1".to_owned(),
                "switch/leaf-su0-r0 port 1".to_owned()
            ],
            Some(0)
        )
    );
}

#[test]
fn nothing_is_left_behind() {
    let tree = tree(&cluster(1));
    let path = tree.path().to_owned();
    assert!(path.is_dir());
    tree.close().expect("close");
    assert!(!path.exists());
}
