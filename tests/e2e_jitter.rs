//! Jitter in a real network: exporters in network namespaces probe each other across a leaf-spine with ECMP, and a collector
//! that scrapes them names the cable between two switches that delays some packets, and nothing while none does.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

#[path = "../exporter/tests/common/namespace.rs"]
mod namespace;

#[path = "support/cable.rs"]
#[allow(dead_code, reason = "another test uses more of it than this one")]
mod cable;

#[path = "support/leaf_spine.rs"]
#[allow(dead_code, reason = "another test uses more of it than this one")]
mod leaf_spine;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use leaf_spine::{
    NIC, Running, SPINES, Site, gateway_address, host_address, trunk_addresses, veth,
};
use namespace::Namespace;

const TEST: &str = "slow_an_uplink_that_delays_a_percent_of_packets_is_named";
/// With two leaves, both cables of a spine would be on the same paths.
const LEAVES: usize = 3;
const HOSTS: usize = 2 * LEAVES;
const FLOWS: u8 = 4;
/// The cable between this leaf and this spine delays packets.
const JITTERY: (usize, usize) = (0, 1);
const LATE_PER_MILLE: u64 = 10;
/// On two CPUs, threads that carry frames make round trips of 0.5 ms in the median, but 20 ms in one of a thousand.
const LATE_BY: Duration = Duration::from_millis(100);
/// Longer than nearly all of these.
const SLOW_SECONDS: f64 = 0.05;
/// Routers on the path of a probe.
const HOPS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long nothing may be found before.
const QUIET: Duration = Duration::from_secs(100);
const NAMED_WITHIN: Duration = Duration::from_secs(120);
/// How long nothing else may be found afterwards.
const STAYS: Duration = Duration::from_secs(60);
const CLOSED_WITHIN: Duration = Duration::from_secs(300);

fn leaf_of(host: usize) -> usize {
    host / 2
}

/// Ports of a leaf: its hosts, then its spines.
fn port_up(spine: usize) -> usize {
    HOSTS + 1 + spine
}

/// The fabric as `ibnetdiscover` would print it.
fn subnet() -> String {
    let switch = |guid: usize, name: &str| {
        format!(
            "\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid={guid:#x}\nswitchguid={guid:#x}({guid:x})\n\
             Switch\t64 \"S-{guid:016x}\"\t\t# \"MF0;{name}:MQM8700/U1\" enhanced port 0 lid {guid} lmc 0\n"
        )
    };
    let (leaf_guid, spine_guid, host_guid) = (
        |leaf: usize| 0x10 + leaf,
        |spine: usize| 0x20 + spine,
        |host: usize| 0x30 + host,
    );
    let mut text = String::from("# Topology file\n");
    for leaf in 0..LEAVES {
        text += &switch(leaf_guid(leaf), &format!("leaf{leaf}"));
        for host in (0..HOSTS).filter(|host| leaf_of(*host) == leaf) {
            let guid = host_guid(host);
            writeln!(
                text,
                "[{}]\t\"H-{guid:016x}\"[1]({guid:x}) \t\t# \"host{host} {NIC}\" lid {guid} 4xHDR",
                host + 1
            )
            .expect("a string");
        }
        for spine in 0..SPINES {
            let guid = spine_guid(spine);
            writeln!(
                text,
                "[{}]\t\"S-{guid:016x}\"[{}]\t\t# \"MF0;spine{spine}:MQM8700/U1\" lid {guid} 4xHDR",
                port_up(spine),
                leaf + 1
            )
            .expect("a string");
        }
    }
    for spine in 0..SPINES {
        text += &switch(spine_guid(spine), &format!("spine{spine}"));
        for leaf in 0..LEAVES {
            let guid = leaf_guid(leaf);
            writeln!(
                text,
                "[{}]\t\"S-{guid:016x}\"[{}]\t\t# \"MF0;leaf{leaf}:MQM8700/U1\" lid {guid} 4xHDR",
                leaf + 1,
                port_up(spine)
            )
            .expect("a string");
        }
    }
    for host in 0..HOSTS {
        let (guid, leaf) = (host_guid(host), leaf_of(host));
        write!(
            text,
            "\nvendid=0x2c9\ndevid=0x101b\nsysimgguid={guid:#x}\ncaguid={guid:#x}\n\
             Ca\t1 \"H-{guid:016x}\"\t\t# \"host{host} {NIC}\"\n\
             [1]({guid:x}) \t\"S-{:016x}\"[{}]\t\t# lid {guid} lmc 0 \"MF0;leaf{leaf}:MQM8700/U1\" lid {} 4xHDR\n",
            leaf_guid(leaf),
            host + 1,
            leaf_guid(leaf)
        )
        .expect("a string");
    }
    text
}

/// The collector's address of a host's management interface.
fn management_address(host: usize) -> String {
    format!("10.200.{host}.2")
}

fn configuration() -> String {
    let mut text = String::from(
        "[cluster]\nname = \"namespaces\"\n[web]\nlisten = \"127.0.0.1:10661\"\n[scrape]\ninterval = \"5s\"\n\
         [subnet]\nfile = \"fabric.ibnetdiscover\"\ninterval = \"10s\"\n",
    );
    for host in 0..HOSTS {
        write!(
            text,
            "[[targets]]\nnode = \"host{host}\"\nurl = \"http://{}:10660/metrics\"\n",
            management_address(host)
        )
        .expect("a string");
    }
    let mut switch = |name: String, addresses: Vec<String>| {
        write!(
            text,
            "[[switches]]\nname = \"{name}\"\naddresses = {addresses:?}\n"
        )
        .expect("a string");
    };
    for leaf in 0..LEAVES {
        let of_hosts = (0..HOSTS)
            .filter(|host| leaf_of(*host) == leaf)
            .map(gateway_address);
        let of_trunks = (0..SPINES).map(|spine| trunk_addresses(leaf, spine)[0].clone());
        switch(format!("leaf{leaf}"), of_hosts.chain(of_trunks).collect());
    }
    for spine in 0..SPINES {
        let of_trunks = (0..LEAVES).map(|leaf| trunk_addresses(leaf, spine)[1].clone());
        switch(format!("spine{spine}"), of_trunks.collect());
    }
    text
}

/// Probes from a host to all that are on other leaves.
fn list(host: usize) -> String {
    let peers = (0..HOSTS).filter(|peer| leaf_of(*peer) != leaf_of(host));
    let targets = peers.map(|peer| {
        format!(
            r#"{{"device":"{NIC}","peer_node":"host{peer}","peer_device":"{NIC}","address":"{}:10661","flows":{FLOWS}}}"#,
            host_address(peer)
        )
    });
    let targets: Vec<_> = targets.collect();
    format!(
        r#"{{"interval_seconds":0.1,"timeout_seconds":3,"slow_seconds":{SLOW_SECONDS},"targets":[{}]}}"#,
        targets.join(",")
    )
}

/// The namespace of the collector, with a cable to each host, and the path of its configuration.
fn management(site: &Site, folder: &Path) -> Option<(Namespace, String)> {
    let namespace = Namespace::new(TEST, "pcollector")?;
    for (host, space) in site.hosts.iter().enumerate() {
        let port = format!("host{host}");
        veth((space, "mgmt"), (&namespace, &port));
        space.ip(&format!(
            "addr add {}/30 dev mgmt",
            management_address(host)
        ));
        namespace.ip(&format!("addr add 10.200.{host}.1/30 dev {port}"));
    }
    fs::write(folder.join("fabric.ibnetdiscover"), subnet()).expect("write");
    let file = folder.join("collector.toml");
    fs::write(&file, configuration()).expect("write");
    Some((namespace, file.display().to_string()))
}

/// Class and component of all open incidents.
fn incidents(collector: &Running<'_>) -> BTreeSet<String> {
    let page = collector
        .get(10661, "/metrics")
        .expect("the collector responds");
    let open = page
        .lines()
        .filter(|line| line.starts_with("railscope_incident_active{"));
    let label = |line: &str, name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    open.filter_map(|line| {
        Some(format!(
            "{} {}",
            label(line, "class")?,
            label(line, "fault_domain")?
        ))
    })
    .collect()
}

/// Waits until the collector responds and all flows of all hosts know the routers on their paths.
fn wait_until_ready(collector: &Running<'_>, exporters: &[Running<'_>]) {
    let begun = Instant::now();
    let of_host = (HOSTS - 2) * usize::from(FLOWS) * HOPS;
    let hops = |exporter: &Running<'_>| {
        let page = exporter
            .get(10660, "/metrics?profile=full")
            .unwrap_or_default();
        let lines = page.lines();
        lines
            .filter(|line| line.starts_with("railscope_probe_hop_info{"))
            .count()
    };
    let is_ready = || {
        collector.get(10661, "/metrics").is_some()
            && exporters.iter().all(|exporter| hops(exporter) == of_host)
    };
    while !is_ready() {
        let hops: Vec<_> = exporters.iter().map(hops).collect();
        assert!(
            begun.elapsed() < READY_WITHIN,
            "hops {hops:?}, expected {of_host} each"
        );
        thread::sleep(Duration::from_secs(1));
    }
    println!("ready after {:?}", begun.elapsed());
}

/// Polls until the open incidents are as expected; all that were open.
fn until(
    collector: &Running<'_>,
    limit: Duration,
    done: impl Fn(&BTreeSet<String>) -> bool,
) -> (bool, BTreeSet<String>) {
    let (begun, mut seen) = (Instant::now(), BTreeSet::new());
    while begun.elapsed() < limit {
        let open = incidents(collector);
        seen.extend(open.iter().cloned());
        if done(&open) {
            println!("after {:?}: {open:?}", begun.elapsed());
            return (true, seen);
        }
        thread::sleep(Duration::from_secs(1));
    }
    (false, seen)
}

#[test]
#[ignore = "takes minutes, and an otherwise idle machine: tests/run --slow"]
fn slow_an_uplink_that_delays_a_percent_of_packets_is_named() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), everybody).expect("chmod");
    let trunks = (0..LEAVES).flat_map(|leaf| (0..SPINES).map(move |spine| (leaf, spine)));
    let trunks: Vec<_> = trunks.collect();
    let Some(site) = Site::build(TEST, &[2; LEAVES], &trunks) else {
        return;
    };
    let Some((namespace, file)) = management(&site, folder.path()) else {
        return;
    };
    let exporters = site.hosts.iter().enumerate().map(|(host, space)| {
        let file = folder.path().join(format!("list{host}.json"));
        fs::write(&file, list(host)).expect("write");
        let (file, name) = (file.display().to_string(), format!("host{host}"));
        Running::exporter(
            space,
            folder.path(),
            &["--node.name", &name, "--probe.list", &file],
        )
    });
    let exporters: Vec<_> = exporters.collect();
    let collector = ["collector", "--config", &file];
    let collector = Running::start(&namespace, folder.path(), &collector);
    wait_until_ready(&collector, &exporters);
    let (_, seen) = until(&collector, QUIET, |_| false);
    assert_eq!(seen, BTreeSet::new(), "nothing is wrong yet");

    site.carried[&JITTERY].delay(LATE_PER_MILLE, LATE_BY);
    let (leaf, spine) = JITTERY;
    let expected = format!("uplink-jitter link/leaf{leaf}:{}", port_up(spine));
    let (found, seen) = until(&collector, NAMED_WITHIN, |open| open.contains(&expected));
    assert!(found, "{seen:?}, expected {expected}");
    let (_, later) = until(&collector, STAYS, |_| false);
    assert_eq!(
        &seen | &later,
        BTreeSet::from([expected]),
        "and nothing else"
    );

    site.carried[&JITTERY].delay(0, LATE_BY);
    let (closed, seen) = until(&collector, CLOSED_WITHIN, BTreeSet::is_empty);
    assert!(closed, "{seen:?}");
}
