//! A simulated InfiniBand subnet under a real subnet manager, read by the collector through the real
//! `ibnetdiscover`: the right classification, and only the cut cable is named, until it is back.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests; clippy lets only the tests themselves

mod support;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use railscope_collector::fabric::merge_subnet;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_model::fabric::{Fabric, LinkKind, Timestamp};
use railscope_simulator::spec::{ClusterSpec, Speed};
use railscope_simulator::wiring::Wiring;
use support::ibsim::{Collector, OPENS_WITHIN, Subnet, umad2sim};
use support::{need, root, run, skip, wait_for};

const NODES: u16 = 32;
const NOW: Timestamp = Timestamp(1_754_493_083_000);
const CLOSES_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_cable_cut_on_a_real_subnet_is_named_that_one_alone_until_it_is_back() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(NODES).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);

    let verdict = collector.verdict();
    assert!(
        verdict.contains(r#"kind="rail-optimized""#) && verdict.contains(r#"levels="2""#),
        "{verdict}"
    );
    // 256 to hosts and as many uplinks.
    collector.wait_for_cables(512);
    assert_eq!(
        collector.incidents(),
        Ok(Vec::new()),
        "a healthy subnet is silent"
    );

    // A host's cable, at its leaf's end: node 5 is connected to port 6 of its rails' leaves.
    let host_cable = ("link/gpu-node-05:mlx5_3/1", "port-down");
    subnet.command(r#"Unlink "leaf-su0-r3"[6]"#);
    let opened =
        collector.wait_for_incidents("incident for the host's cable", OPENS_WITHIN, &[host_cable]);
    let active = collector
        .series("railscope_incident_active{")
        .expect("metrics");
    assert_eq!(active.len(), 1, "{active:?}");
    assert!(
        active[0].contains(r#"fault_domain="link/gpu-node-05:mlx5_3/1""#),
        "{active:?}"
    );
    assert!(
        active[0].contains(r#"class="port-down""#) && active[0].ends_with(" 1"),
        "{active:?}"
    );

    // A second cut while the first lasts: a leaf's uplink. Rerouting must not drag others along.
    let uplink = ("link/leaf-su0-r2:33", "uplink-down");
    subnet.command(r#"Unlink "leaf-su0-r2"[33]"#);
    wait_for("second incident", OPENS_WITHIN, || {
        let found = collector.incidents()?;
        let mut found: Vec<_> = found
            .iter()
            .map(|(domain, class)| (domain.as_str(), class.as_str()))
            .collect();
        found.sort_unstable();
        if found == [host_cable, uplink] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    });

    subnet.command(r#"ReLink "leaf-su0-r3"[6]"#);
    subnet.command(r#"ReLink "leaf-su0-r2"[33]"#);
    let closed = collector.wait_for_incidents("end of both incidents", CLOSES_WITHIN, &[]);
    assert_eq!(
        collector.series("railscope_incident_active{"),
        Ok(Vec::new())
    );
    println!(
        "opened after {opened:?}, closed after {closed:?}; ibsim {}, opensm {}",
        subnet.ibsim.id(),
        subnet.opensm.id()
    );
}

#[test]
fn a_dead_leaf_is_one_incident_and_not_one_for_each_cable() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(4).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);
    collector.verdict();
    subnet.command(r#"Unlink "leaf-su0-r5""#);
    collector.wait_for_incidents(
        "incident for the leaf",
        OPENS_WITHIN,
        &[("switch/leaf-su0-r5", "switch-down")],
    );
}

#[test]
fn answers_that_never_come_make_a_sweep_partial_and_nothing_else() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    let spec = ClusterSpec {
        speed: Some(Speed::Hdr),
        ..ClusterSpec::demo(4).expect("a cluster")
    };
    let wiring = Wiring::plan(&spec).expect("a wiring");
    let mut subnet = Subnet::start(&wiring, preload);
    let collector = Collector::start(&subnet);
    collector.verdict();
    // NodeDescription, NodeInfo and PortInfo of a leaf and of a host's adapter.
    for attribute in [16, 17, 21] {
        for device in ["leaf-su0-r5", "gpu-node-02-mlx5_3"] {
            subnet.command(&format!(r#"Error "{device}" 100 {attribute}"#));
        }
        // An incident opens after two ticks.
        collector.wait_for_sweeps("partial", 3);
        assert_eq!(
            collector.incidents(),
            Ok(Vec::new()),
            "attribute {attribute}"
        );
        for device in ["leaf-su0-r5", "gpu-node-02-mlx5_3"] {
            subnet.command(&format!(r#"Error "{device}" 0 {attribute}"#));
        }
        collector.wait_for_sweeps("complete", 1);
    }
    assert_eq!(collector.incidents(), Ok(Vec::new()));
    // A cable that is cut while another device does not respond is still found.
    subnet.command(r#"Error "leaf-su0-r5" 100 17"#);
    subnet.command(r#"Unlink "leaf-su0-r3"[2]"#);
    let host_cable = ("link/gpu-node-01:mlx5_3/1", "port-down");
    collector.wait_for_incidents("incident for the host's cable", OPENS_WITHIN, &[host_cable]);
}

/// Both ends of every cable by part and port, the smaller first.
fn cables(fabric: &Fabric) -> BTreeSet<[(String, u16); 2]> {
    let name = |id| fabric.vertex(id).part.to_string();
    let links = fabric
        .links()
        .filter(|(.., link)| link.kind == LinkKind::Cable);
    links
        .map(|(_, a, b, link)| {
            let mut ends = [(name(a), link.ports.0), (name(b), link.ports.1)];
            ends.sort();
            ends
        })
        .collect()
}

#[test]
fn every_kind_of_fabric_comes_back_from_a_real_subnet_cable_by_cable() {
    need!("ibsim", "opensm", "ibnetdiscover", "env", "mkfifo");
    let Some(preload) = umad2sim() else {
        skip!("not installed: umad2sim/libumad2sim.so of ibsim-utils")
    };
    // All that are one subnet, and have no more than the 256 switches that ibsim takes.
    for name in [
        "dragonfly",
        "fat-tree-3tier",
        "fat-tree-oversubscribed",
        "host-grouped",
        "rail-optimized-3tier",
    ] {
        let path = root()
            .join("tests/fabrics")
            .join(name)
            .with_extension("toml");
        let text = std::fs::read_to_string(path).expect(name);
        let spec = ClusterSpec {
            speed: Some(Speed::Hdr),
            ..toml::from_str(&text).expect(name)
        };
        let wiring = Wiring::plan(&spec).expect("a wiring");
        let subnet = Subnet::start(&wiring, preload.clone());
        let argv = subnet.ibnetdiscover();
        let (well, said) = run(Command::new(&argv[0]).args(&argv[1..]), OPENS_WITHIN);
        assert!(well, "{name}: {said}");
        let mut seen = Fabric::default();
        merge_subnet(&mut seen, &parse_ibnetdiscover(&said), NOW);
        let (seen, built) = (cables(&seen), cables(&wiring.fabric(NOW)));
        assert_eq!(built.symmetric_difference(&seen).next(), None, "{name}");
        println!("{name}: {} cables", seen.len());
    }
}
