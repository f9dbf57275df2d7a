//! The own sweep against the tools that everybody uses, on one simulated subnet under a real subnet manager: the same
//! nodes and cables as `ibnetdiscover`, the same counters as `perfquery`, and every change seen by the next sweep.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves
#![allow(unsafe_code)] // the C library that the simulated kernel asks for the size of its header

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use railscope_collector::fabric::subnet::counters::{PortReading, counter_name};
use railscope_collector::fabric::subnet::{
    End, Node, NodeKind, Subnet as Seen, parse_ibnetdiscover,
};
use railscope_collector::sources::mad_sweep::umad::{Umad, UmadPort};
use railscope_collector::sources::mad_sweep::{Settings, Sweeper, Swept, open};
use railscope_simulator::spec::{ClusterSpec, Speed};
use railscope_simulator::wiring::Wiring;
use support::ibsim::{Collector, OPENS_WITHIN, Subnet, umad2sim};
use support::{need, run, skip, wait_for};

/// A tool may be slow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counters of `perfquery` and the kernel's names of them. It prints no traffic counters here: each MAD is traffic.
const NAMES: [(&str, &str); 13] = [
    ("SymbolErrorCounter", "symbol_error"),
    ("LinkErrorRecoveryCounter", "link_error_recovery"),
    ("LinkDownedCounter", "link_downed"),
    ("PortRcvErrors", "port_rcv_errors"),
    (
        "PortRcvRemotePhysicalErrors",
        "port_rcv_remote_physical_errors",
    ),
    ("PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors"),
    ("PortXmitDiscards", "port_xmit_discards"),
    ("PortXmitConstraintErrors", "port_xmit_constraint_errors"),
    ("PortRcvConstraintErrors", "port_rcv_constraint_errors"),
    ("LocalLinkIntegrityErrors", "local_link_integrity_errors"),
    (
        "ExcessiveBufferOverrunErrors",
        "excessive_buffer_overrun_errors",
    ),
    ("VL15Dropped", "VL15_dropped"),
    ("PortXmitWait", "port_xmit_wait"),
];

fn wiring(nodes: u16) -> Wiring {
    // More than 256 nodes take a third tier.
    let mut spec = ClusterSpec::demo(nodes.min(256)).expect("a cluster");
    (spec.nodes, spec.speed) = (nodes, Some(Speed::Hdr));
    spec.switches.tiers = if nodes > 256 { 3 } else { 2 };
    Wiring::plan(&spec).expect("a wiring")
}

/// A busy machine may leave ibsim no time for a whole time-out.
fn sweeper(subnet: &Subnet) -> Sweeper {
    let settings = Settings {
        timeout: Duration::from_secs(5),
        forwarding: true,
        ..Settings::default()
    };
    let transport = open(&subnet.device(), settings.timeout).expect("ibsim");
    Sweeper::new(transport, settings)
}

/// Waits until a sweep shows it, and returns that one. A console command is carried out when ibsim comes to it.
fn sweep_until(sweeper: &mut Sweeper, what: &str, is: impl Fn(&Swept) -> bool) -> Swept {
    let began = Instant::now();
    let mut sweeps = 0;
    loop {
        sweeps += 1;
        let swept = sweeper.sweep().expect("a sweep");
        if is(&swept) {
            println!("{what}: seen by sweep {sweeps} after the command");
            return swept;
        }
        assert!(began.elapsed() < PATIENCE, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The data on which both kinds of sweep must agree, in one order.
fn canonical(subnet: &Seen) -> (Vec<Node>, Vec<String>) {
    let mut nodes = subnet.nodes.clone();
    nodes.sort_by_key(|node| node.guid);
    let mut cables: Vec<_> = subnet
        .links
        .iter()
        .map(|cable| {
            let mut ends = cable.ends;
            ends.sort();
            format!("{ends:?} {:?} {}", cable.speed, cable.both_ends)
        })
        .collect();
    cables.sort();
    (nodes, cables)
}

/// Whether a node is the one of this name: descriptions of switches contain more than that.
fn is_named(node: &Node, name: &str) -> bool {
    let mut words = node
        .description
        .split(|char: char| !char.is_ascii_alphanumeric() && !"-_ ".contains(char));
    words.any(|word| word == name)
}

fn port_of<'a>(swept: &'a Swept, name: &str, port: u8) -> &'a PortReading {
    let mut nodes = swept.subnet.nodes.iter();
    let guid = nodes.find(|node| is_named(node, name)).expect(name).guid;
    let device = swept.readings.iter().find(|device| device.guid == guid);
    let ports = &device.expect(name).ports;
    ports
        .iter()
        .find(|reading| reading.port == port)
        .expect("the port")
}

/// Counters by LID and port, as `perfquery` prints them for every port of these LIDs: of a switch all, of others the first.
fn perfquery(subnet: &Subnet, nodes: &[Node]) -> BTreeMap<(u16, u8), BTreeMap<String, u64>> {
    // A shell gets its commands as an argument, and those may not be long.
    let some = nodes.chunks(256);
    some.flat_map(|nodes| perfquery_some(subnet, nodes))
        .collect()
}

fn perfquery_some(subnet: &Subnet, nodes: &[Node]) -> BTreeMap<(u16, u8), BTreeMap<String, u64>> {
    let argv = subnet.tool("perfquery");
    let (program, environment) = argv.split_last().expect("a program");
    let mut script = String::new();
    for node in nodes {
        let lid = node.lid.expect("a LID");
        script += &match node.kind {
            NodeKind::Switch => format!("{program} -l {lid} 1-{} || exit 1\n", node.ports),
            _ => format!("{program} {lid} 1 || exit 1\n"),
        };
    }
    let mut command = Command::new(&environment[0]);
    command.args(&environment[1..]).args(["sh", "-c", &script]);
    let (well, said) = run(&mut command, PATIENCE);
    assert!(well, "{said}");
    let mut found: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut place = (0, 0);
    for line in said.lines() {
        // "# Port counters: Lid 18 port 5 (CapMask: 0x1300 CapMask2: 0x0000000)"
        let mut words = line.split_whitespace().skip_while(|word| *word != "Lid");
        if let (Some(lid), Some(port)) = (words.nth(1), words.nth(1)) {
            place = (lid.parse().expect(line), port.parse().expect(line));
        } else if let Some((name, value)) = line.split_once(':')
            && let Ok(value) = value.trim_start_matches('.').parse()
        {
            found
                .entry(place)
                .or_default()
                .insert(name.to_owned(), value);
        }
    }
    found
}

/// Sets counters all over the subnet to distinct numbers, some of them to their maximum.
fn set_counters(subnet: &mut Subnet, wiring: &Wiring) -> usize {
    let mut set = 0;
    let switches = wiring.switches.iter().map(|switch| switch.name.clone());
    for (index, switch) in switches.enumerate() {
        for (place, (name, _)) in NAMES.iter().enumerate().skip(index % 3) {
            let port = 1 + (index + place) % 32;
            let value = if place == 2 {
                255
            } else {
                1 + place + index % 14
            };
            subnet.command(&format!(
                r#"PerformanceSet "{switch}"[{port}] PortCounters.{name}={value}"#
            ));
            set += 1;
        }
    }
    subnet.command(
        r#"PerformanceSet "leaf-su0-r0"[3] PortCountersExtended.PortXmitData=1099511627776"#,
    );
    set
}

fn equals_the_tools(nodes: u16, preload: PathBuf) {
    let wiring = wiring(nodes);
    let mut subnet = Subnet::start(&wiring, preload);
    let mut sweeper = sweeper(&subnet);
    let set = set_counters(&mut subnet, &wiring);
    let nonzero = |port: &PortReading| {
        let counters = port.counters.unwrap_or_default();
        let is = |(_, name): &&(&str, &str)| counters.by_name(name).is_some_and(|value| value > 0);
        NAMES.iter().filter(is).count()
    };
    let swept = sweep_until(&mut sweeper, "all counters that were set", |swept| {
        let ports = swept.readings.iter().flat_map(|device| &device.ports);
        ports.map(nonzero).sum::<usize>() == set
    });
    println!("{nodes} nodes: {:?}", swept.stats);

    let printed = parse_ibnetdiscover(&subnet.printed("ibnetdiscover"));
    let (mut own, theirs) = (canonical(&swept.subnet), canonical(&printed));
    assert_eq!(swept.subnet.completeness.gaps(), []);
    assert_eq!(own.0.len(), wiring.nics.len() + wiring.switches.len());
    // ibnetdiscover prints no LID of an adapter in its section but beside its port: the parser reads that too.
    for (own, theirs) in own.0.iter_mut().zip(&theirs.0) {
        assert_eq!(own, theirs);
    }
    assert_eq!(own.1, theirs.1);
    subnet.forwards_as(&swept);

    let answers = perfquery(&subnet, &own.0);
    let mut compared = 0;
    for node in &own.0 {
        let device = swept
            .readings
            .iter()
            .find(|device| device.guid == node.guid);
        for port in device
            .expect("a reading")
            .ports
            .iter()
            .filter(|port| port.speed.is_some())
        {
            let theirs = &answers[&(node.lid.expect("a LID"), port.port)];
            let counters = port.counters.expect("counters");
            for (name, kernel) in NAMES {
                let of = || format!("{name} of port {} of {}", port.port, node.description);
                assert_eq!(counters.by_name(kernel), Some(theirs[name]), "{}", of());
                compared += 1;
            }
        }
    }
    assert_eq!(compared, NAMES.len() * 2 * swept.subnet.links.len());
    let wide = port_of(&swept, "leaf-su0-r0", 3)
        .counters
        .expect("counters");
    let sent = wide.by_name("port_xmit_data").expect("bytes");
    assert!(
        (1 << 40..(1 << 40) + (1 << 32)).contains(&sent),
        "64 bits: {sent}"
    );
    let stopped = (0..17).filter(|place| counter_name(*place) == "link_downed");
    let stopped = stopped.map(|place| {
        port_of(&swept, "leaf-su0-r0", 3)
            .counters
            .map(|of| of.is_saturated(place))
    });
    assert_eq!(
        stopped.collect::<Vec<_>>(),
        [Some(true)],
        "LinkDownedCounter is 255"
    );
}

#[test]
fn own_sweep_equals_ibnetdiscover_and_perfquery_port_by_port() {
    need!(
        "ibsim",
        "opensm",
        "ibnetdiscover",
        "perfquery",
        "dump_fts",
        "env",
        "mkfifo"
    );
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    equals_the_tools(32, preload);
}

/// `RAILSCOPE_SWEEP_NODES` is the number of nodes of eight adapters.
#[test]
#[ignore = "slow: a minute, most of it perfquery's"]
fn slow_own_sweep_of_1024_adapters_equals_the_tools() {
    need!(
        "ibsim",
        "opensm",
        "ibnetdiscover",
        "perfquery",
        "dump_fts",
        "env",
        "mkfifo"
    );
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let nodes = std::env::var("RAILSCOPE_SWEEP_NODES").ok();
    let nodes = nodes.map_or(128, |nodes| nodes.parse().expect("a number of nodes"));
    equals_the_tools(nodes, preload);
}

/// Whether a cable stands between two ports, by name.
fn has_cable(swept: &Swept, a: (&str, u16), b: (&str, u16)) -> bool {
    let is = |end: End, (name, port): (&str, u16)| {
        let node = swept.subnet.nodes.iter().find(|node| node.guid == end.guid);
        end.port == port && node.is_some_and(|node| is_named(node, name))
    };
    swept.subnet.links.iter().any(|cable| {
        let [one, other] = cable.ends;
        is(one, a) && is(other, b) || is(one, b) && is(other, a)
    })
}

#[test]
fn every_change_of_a_cable_is_seen_by_the_next_sweep() {
    need!("ibsim", "opensm", "ibportstate", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let mut subnet = Subnet::start(&wiring(4), preload);
    let mut sweeper = sweeper(&subnet);
    let first = sweeper.sweep().expect("a sweep");
    let cables = first.subnet.links.len();
    let host = |node: u8, rail: u8| format!("gpu-node-{node:02} mlx5_{rail}");

    // Cut and relinked.
    assert!(has_cable(&first, ("leaf-su0-r3", 2), (&host(1, 3), 1)));
    subnet.command(r#"Unlink "leaf-su0-r3"[2]"#);
    let cut = sweep_until(&mut sweeper, "a cut cable", |swept| {
        !has_cable(swept, ("leaf-su0-r3", 2), (&host(1, 3), 1))
    });
    assert_eq!(cut.subnet.links.len(), cables - 1, "that one alone");
    assert!(cut.subnet.is_settled(), "{:?}", cut.subnet.completeness);
    subnet.command(r#"ReLink "leaf-su0-r3"[2]"#);
    sweep_until(&mut sweeper, "a relinked cable", |swept| {
        swept.subnet.links.len() == cables
    });

    // Moved: two rails of one host swapped.
    for line in [
        r#"Unlink "leaf-su0-r1"[3]"#,
        r#"Unlink "leaf-su0-r2"[3]"#,
        r#"Link "gpu-node-02-mlx5_1"[1] "leaf-su0-r2"[3]"#,
        r#"Link "gpu-node-02-mlx5_2"[1] "leaf-su0-r1"[3]"#,
    ] {
        subnet.command(line);
    }
    let moved = sweep_until(&mut sweeper, "a swap", |swept| {
        has_cable(swept, ("leaf-su0-r2", 3), (&host(2, 1), 1))
            && has_cable(swept, ("leaf-su0-r1", 3), (&host(2, 2), 1))
    });
    assert_eq!(moved.subnet.links.len(), cables);

    // Slowed: a lane of four, at half the speed. The tool goes by the route from its host, its leaf's port 1.
    let speed_of = |swept: &Swept| {
        let speed = port_of(swept, "leaf-su0-r0", 1).speed;
        speed.map(|speed| speed.to_string()).unwrap_or_default()
    };
    for (settings, expected) in [
        ([["width", "1"]].as_slice(), "1xHDR"),
        (&[["width", "3"]], "4xHDR"),
        (&[["width", "3"], ["espeed", "2"]], "4xEDR"),
    ] {
        // opensm, which still reads after the swap, may write what it read of the port before: then all is set again.
        let began = Instant::now();
        loop {
            for setting in settings {
                let argv = subnet.tool("ibportstate");
                let mut command = Command::new(&argv[0]);
                let words = argv[1..].iter().map(String::as_str);
                command.args(words.chain(["-D", "0,1", "1"]).chain(*setting));
                let (well, said) = run(&mut command, PATIENCE);
                assert!(well, "{said}");
            }
            let speed = speed_of(&sweeper.sweep().expect("a sweep"));
            if speed == expected {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{speed} is not {expected}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Names the simulated subnet to the process that has the kernel's stand-in preloaded.
const UNDER_PRELOAD: &str = "RAILSCOPE_TEST_UNDER_UMAD2SIM";

/// The stand-in queries libibumad whether headers name a P_Key, which libibumad knows once it has opened a port itself.
fn open_by_libibumad() {
    // SAFETY: three functions of libibumad with their C signatures; the port is closed before anybody else uses it.
    unsafe {
        let library = libc::dlopen(
            c"libibumad.so.3".as_ptr(),
            libc::RTLD_NOW | libc::RTLD_GLOBAL,
        );
        assert!(!library.is_null(), "libibumad.so.3");
        let find = |name: &std::ffi::CStr| {
            let symbol = libc::dlsym(library, name.as_ptr());
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        let init: extern "C" fn() -> i32 = std::mem::transmute(find(c"umad_init"));
        let open: extern "C" fn(*const libc::c_char, i32) -> i32 =
            std::mem::transmute(find(c"umad_open_port"));
        let close: extern "C" fn(i32) -> i32 = std::mem::transmute(find(c"umad_close_port"));
        assert_eq!(init(), 0, "umad_init");
        let port = open(c"ibsim0".as_ptr(), 1);
        assert!(port >= 0, "umad_open_port: {port}");
        assert_eq!(close(port), 0, "umad_close_port");
    }
}

/// Not a test by itself: what [`the_kernels_interface_carries_the_same_sweep`] runs in another process.
#[test]
#[ignore = "runs inside another test"]
fn sweep_through_umad() {
    if std::env::var_os(UNDER_PRELOAD).is_none() {
        return;
    }
    open_by_libibumad();
    let port = UmadPort {
        device: String::from("ibsim0"),
        port: 1,
        path: PathBuf::from("/dev/infiniband/umad0"),
        active: true,
        pkey_index: 0,
    };
    let timeout = Duration::from_secs(5);
    let settings = Settings {
        timeout,
        ..Settings::default()
    };
    let umad = Umad::open(&port, timeout).expect("the device");
    let mut sweeper = Sweeper::new(Box::new(umad), settings);
    let swept = sweeper.sweep().expect("a sweep");
    println!(
        "SWEPT {:?} {:?}",
        canonical(&swept.subnet),
        swept.stats.refused
    );
    // The stand-in's descriptors are not the kernel's, which the standard library would notice when it closes one.
    std::mem::forget(sweeper);
}

#[test]
fn the_kernels_interface_carries_the_same_sweep() {
    need!("ibsim", "opensm", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let subnet = Subnet::start(&wiring(4), preload);
    let swept = sweeper(&subnet).sweep().expect("a sweep");
    assert_eq!(swept.subnet.completeness.gaps(), []);
    let mut argv = subnet.tool("env");
    argv.pop();
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .arg(format!("{UNDER_PRELOAD}=1"))
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "sweep_through_umad", "--ignored", "--nocapture"]);
    let (well, said) = run(&mut command, PATIENCE);
    assert!(well, "{said}");
    let expected = format!("SWEPT {:?} 0", canonical(&swept.subnet));
    assert!(said.contains(&expected), "{said}\nexpected: {expected}");
}

#[test]
fn a_collector_that_sweeps_itself_names_a_cut_cable_and_says_what_sweeping_costs() {
    need!("ibsim", "opensm", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let mut subnet = Subnet::start(&wiring(4), preload);
    let source = format!("device = \"{}\"", subnet.device());
    let collector = Collector::start_from(&subnet, &source);
    let verdict = collector.verdict();
    assert!(verdict.contains(r#"kind="rail-optimized""#), "{verdict}");
    for name in [
        r#"railscope_collector_sweep_mads_total{result="answered"} "#,
        r#"railscope_collector_sweep_duration_seconds{phase="counters"} "#,
    ] {
        let series = collector.series(name).expect("metrics");
        let value = series.first().and_then(|line| line.strip_prefix(name));
        let value: f64 = value.expect(name).parse().expect("a number");
        assert!(value > 0.0, "{name}{value}");
    }
    assert_eq!(
        collector.incidents(),
        Ok(Vec::new()),
        "a healthy subnet is silent"
    );
    subnet.command(r#"Unlink "leaf-su0-r3"[2]"#);
    let host_cable = ("link/gpu-node-01:mlx5_3/1", "port-down");
    collector.wait_for_incidents("incident for the host's cable", OPENS_WITHIN, &[host_cable]);
    // A device that does not reply is not removed.
    subnet.command(r#"Error "gpu-node-02-mlx5_5" 100 17"#);
    collector.wait_for_sweeps("partial", 3);
    let found = wait_for("incidents", OPENS_WITHIN, || collector.incidents());
    assert_eq!(found.len(), 1, "{found:?}");
}
