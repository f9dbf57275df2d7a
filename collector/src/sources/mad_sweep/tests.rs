//! The engine on fabrics in memory: complete ones, ones that lose packets or do not reply, and inconsistent ones.

mod fake;
mod tables;

use std::collections::HashMap;
use std::time::Duration;

use railscope_model::identity::Guid;

use super::*;
use crate::fabric::subnet::{End, Gap, NodeKind};
use fake::{Device, Fake};

const ALL_CAPABILITIES: (u16, u32) = (1 << 8 | 1 << 9 | 1 << 12, 0);

fn device(switch: bool, guid: u64, name: &str, ports: usize) -> Device {
    Device {
        switch,
        guid,
        name: name.to_owned(),
        lid: guid as u16,
        cables: vec![None; ports + 1],
        capabilities: ALL_CAPABILITIES,
        ..Device::default()
    }
}

fn plug(devices: &mut [Device], a: (usize, u8), b: (usize, u8)) {
    devices[a.0].cables[usize::from(a.1)] = Some(b);
    devices[b.0].cables[usize::from(b.1)] = Some(a);
}

/// Host 0 sweeps. Hosts 0 to 3 on two leaves (4, 5), two cables from each leaf to each of two spines (6, 7).
fn leaf_spine() -> Vec<Device> {
    let mut devices: Vec<_> = (0..4)
        .map(|host| device(false, 1 + host, &format!("host-{host} mlx5_0"), 1))
        .collect();
    devices.extend(
        [(0x10, "leaf-a"), (0x11, "leaf-b")].map(|(guid, name)| device(true, guid, name, 8)),
    );
    devices.extend(
        [(0x20, "spine-a"), (0x21, "spine-b")].map(|(guid, name)| device(true, guid, name, 8)),
    );
    for host in 0..4 {
        plug(
            &mut devices,
            (host, 1),
            (4 + host / 2, 1 + (host % 2) as u8),
        );
    }
    for leaf in 0..2 {
        for uplink in 0..4 {
            plug(
                &mut devices,
                (4 + leaf, 3 + uplink as u8),
                (6 + uplink / 2, (1 + 2 * leaf + uplink % 2) as u8),
            );
        }
    }
    devices
}

fn settings() -> Settings {
    Settings {
        timeout: Duration::from_millis(5),
        mads_per_second: None,
        ..Settings::default()
    }
}

fn sweep(fake: Fake) -> Swept {
    Sweeper::new(Box::new(fake), settings())
        .sweep()
        .expect("a sweep")
}

/// Both ends of every cable, the smaller first.
fn cables(subnet: &Subnet) -> Vec<[(u64, u16); 2]> {
    let mut cables: Vec<_> = subnet
        .links
        .iter()
        .map(|cable| {
            let mut ends = cable.ends.map(|end| (end.guid.0, end.port));
            ends.sort_unstable();
            ends
        })
        .collect();
    cables.sort_unstable();
    cables
}

fn expected_cables(devices: &[Device]) -> Vec<[(u64, u16); 2]> {
    let mut cables = Vec::new();
    for device in devices {
        for (port, far) in device.cables.iter().enumerate() {
            if let Some((far, far_port)) = far {
                let mut ends = [
                    (device.guid, port as u16),
                    (devices[*far].guid, u16::from(*far_port)),
                ];
                ends.sort_unstable();
                cables.push(ends);
            }
        }
    }
    cables.sort_unstable();
    cables.dedup();
    cables
}

fn end(guid: u64, port: u16) -> End {
    End {
        guid: Guid(guid),
        port,
    }
}

#[test]
fn a_whole_fabric_comes_back_with_names_lids_speeds_and_both_ends() {
    let devices = leaf_spine();
    let swept = sweep(Fake::new(devices.clone()));
    let subnet = &swept.subnet;
    assert_eq!(subnet.completeness.gaps(), []);
    assert_eq!((subnet.nodes.len(), subnet.problems.len()), (8, 0));
    assert_eq!(cables(subnet), expected_cables(&devices));
    for cable in &subnet.links {
        assert!(cable.both_ends);
        assert_eq!(
            cable.speed.map(|speed| speed.to_string()).as_deref(),
            Some("4xHDR")
        );
    }
    assert_eq!(subnet.header.started_at, Some(Guid(1)));
    for device in &devices {
        let node = subnet
            .nodes
            .iter()
            .find(|node| node.guid.0 == device.guid)
            .expect("found");
        assert_eq!(
            (node.description.as_str(), node.lid),
            (device.name.as_str(), Some(device.lid))
        );
        assert_eq!(node.kind == NodeKind::Switch, device.switch);
        assert_eq!(
            (node.vendor, usize::from(node.ports)),
            (Some(0x2c9), device.cables.len() - 1)
        );
        assert!(node.swept);
    }
    assert_eq!(swept.stats.sent, swept.stats.answered);
}

#[test]
fn no_switch_has_more_questions_under_way_than_its_share_and_no_agent_more_than_one() {
    for (window, per_switch) in [(64, 4), (3, 4), (128, 1), (1, 1)] {
        let fake = Fake::new(leaf_spine());
        let seen = Arc::clone(&fake.seen);
        let settings = Settings {
            window,
            per_switch,
            counters: false,
            ..settings()
        };
        let mut sweeper = Sweeper::new(Box::new(fake), settings.clone());
        sweeper.sweep().expect("a sweep");
        let found = seen.lock().expect("one thread").clone();
        assert!(found.most <= window && found.most_at_one <= per_switch);
        // As fast as allowed, too: the hosts' four devices are behind two leaves, spines reply beside them.
        assert!(window == 1 || found.most > 1, "{}", found.most);
    }
    let fake = Fake::new(leaf_spine());
    let seen = Arc::clone(&fake.seen);
    let settings = Settings {
        per_switch: 1,
        ..settings()
    };
    Sweeper::new(Box::new(fake), settings)
        .sweep()
        .expect("a sweep");
    assert_eq!(seen.lock().expect("one thread").most_at_one, 1);
}

#[test]
fn lost_questions_are_asked_again_and_nothing_is_missing() {
    let devices = leaf_spine();
    for said in [true, false] {
        let mut fake = Fake::new(devices.clone());
        fake.lose_each = Some((7, said));
        let swept = sweep(fake);
        assert_eq!(cables(&swept.subnet), expected_cables(&devices));
        assert_eq!(swept.subnet.completeness.gaps(), []);
        assert!(swept.stats.repeated > 0 && swept.stats.unanswered == 0);
    }
}

#[test]
fn who_keeps_silent_is_not_gone_and_the_sweep_says_where() {
    let whole = sweep(Fake::new(leaf_spine())).subnet;
    // NodeInfo, NodeDescription and PortInfo of host 2, behind leaf-b's port 1; then of the whole leaf-b.
    for (attribute, device, silent) in [
        (0x11, 2, vec![end(0x11, 1)]),
        (0x10, 2, vec![end(0x11, 1)]),
        (0x15, 2, vec![end(0x11, 1)]),
        (
            0x11,
            5,
            (1..=4)
                .map(|port| end(0x20 + (port - 1) / 2, 3 + (port as u16 - 1) % 2))
                .collect(),
        ),
    ] {
        let mut devices = leaf_spine();
        devices[device].mute.insert(attribute);
        let mut subnet = sweep(Fake::new(devices)).subnet;
        assert_eq!(
            subnet.silent, silent,
            "attribute {attribute:#x} of {device}"
        );
        assert!(subnet.is_settled(), "{:?}", subnet.completeness);
        assert!(!subnet.completeness.gaps().is_empty());
        subnet.recall(Some(&whole));
        assert_eq!(cables(&subnet), cables(&whole));
        assert_eq!(subnet.nodes.len(), whole.nodes.len());
    }
}

#[test]
fn what_is_gone_is_gone() {
    let whole = sweep(Fake::new(leaf_spine())).subnet;
    let mut devices = leaf_spine();
    devices[3].cables[1] = None;
    devices[5].cables[2] = None;
    let mut subnet = sweep(Fake::new(devices)).subnet;
    assert_eq!(subnet.completeness.gaps(), []);
    subnet.recall(Some(&whole));
    assert_eq!(
        (subnet.nodes.len(), subnet.links.len()),
        (7, whole.links.len() - 1)
    );
}

#[test]
fn a_cable_that_only_one_end_shows_makes_the_sweep_partial() {
    let mut devices = leaf_spine();
    devices[6].down.insert(1);
    // The leaf's port still gets a reply of the spine in this fabric.
    let subnet = sweep(Fake::new(devices)).subnet;
    let gaps = subnet.completeness.gaps();
    assert!(
        matches!(gaps, [Gap::OneSided { cables: 1, example }] if *example == end(0x10, 3)),
        "{gaps:?}"
    );
}

#[test]
fn a_switch_cabled_to_itself_and_parallel_cables_are_what_they_are() {
    let mut devices = leaf_spine();
    plug(&mut devices, (4, 7), (4, 8));
    let subnet = sweep(Fake::new(devices.clone())).subnet;
    assert_eq!(cables(&subnet), expected_cables(&devices));
    assert_eq!(subnet.completeness.gaps(), []);
}

#[test]
fn two_devices_of_one_guid_are_named_and_neither_cable_is_made_up() {
    // Two hosts: the second cable contradicts the first. A host and a switch: they cannot be one device.
    let mut devices = leaf_spine();
    devices[3].guid = devices[2].guid;
    let subnet = sweep(Fake::new(devices)).subnet;
    assert_eq!(
        (subnet.counts.dropped_cables, subnet.problems.len()),
        (1, 1)
    );
    assert!(
        !subnet.problems[0].to_string().contains("line"),
        "{}",
        subnet.problems[0]
    );
    let mut devices = leaf_spine();
    devices[3].guid = 0x20;
    let subnet = sweep(Fake::new(devices)).subnet;
    let said = subnet.problems[0].to_string();
    assert!(said.contains("a GUID that no other node has"), "{said}");
}

#[test]
fn a_host_that_does_not_answer_itself_is_no_sweep() {
    let mut devices = leaf_spine();
    devices[0].mute.insert(0x11);
    let error = Sweeper::new(Box::new(Fake::new(devices)), settings()).sweep();
    let said = error.expect_err("no start").to_string();
    assert!(said.contains("does not answer"), "{said}");
}

#[test]
fn a_sweep_that_takes_too_long_ends_and_says_what_it_did_not_see() {
    let mut devices = leaf_spine();
    devices[4].mute.insert(0x15);
    let settings = Settings {
        timeout: Duration::from_secs(60),
        limit: Duration::from_millis(50),
        ..settings()
    };
    let swept = Sweeper::new(Box::new(Fake::new(devices)), settings)
        .sweep()
        .expect("a sweep");
    assert!(swept.stats.unanswered + swept.stats.not_asked > 0);
    assert_eq!(swept.subnet.silent, [end(1, 1)]);
}

#[test]
fn a_rate_holds() {
    let settings = Settings {
        mads_per_second: NonZeroU32::new(1000),
        window: 4,
        ..settings()
    };
    let mut sweeper = Sweeper::new(Box::new(Fake::new(leaf_spine())), settings);
    let swept = sweeper.sweep().expect("a sweep");
    let seconds = (swept.stats.discovery + swept.stats.counters).as_secs_f64();
    // A window may go at once in either half.
    let least = (swept.stats.sent as f64 - 2.0 * 4.0) / 1000.0;
    assert!(
        least > 0.0 && seconds >= least,
        "{seconds} s, at least {least} s"
    );
}

/// Counters of leaf-a's ports, by name.
fn leaf_a(swept: &Swept, port: u8, name: &str) -> Option<u64> {
    let device = swept
        .readings
        .iter()
        .find(|device| device.guid == Guid(0x10))?;
    let port = device.ports.iter().find(|reading| reading.port == port)?;
    port.counters?.by_name(name)
}

/// Leaf-a counts: port 3 has 5 symbol errors (or, as a sum, no port has any) and 9 words sent.
fn counting(capabilities: (u16, u32), errors: u8) -> Fake {
    let mut devices = leaf_spine();
    devices[4].capabilities = capabilities;
    devices[4].narrow = HashMap::from([(3, vec![(5, vec![errors]), (27, vec![7])])]);
    devices[4].wide = HashMap::from([(3, vec![(15, vec![9]), (79, vec![6])])]);
    Fake::new(devices)
}

#[test]
fn counters_come_from_the_widest_attribute_that_the_agent_has() {
    let xmit = "port_xmit_data";
    for (capabilities, errors, sent, symbol_errors, wait) in [
        ((0, 0), 5, Some(7), Some(5), None),
        ((1 << 12, 0), 5, Some(7), Some(5), Some(0)),
        ((1 << 9, 0), 5, Some(9), Some(5), None),
        (ALL_CAPABILITIES, 5, Some(9), Some(5), Some(0)),
        (ALL_CAPABILITIES, 0, Some(9), Some(0), Some(0)),
        ((1 << 9, 2), 5, Some(9), Some(6), Some(0)),
    ] {
        let swept = sweep(counting(capabilities, errors));
        let found = [xmit, "symbol_error", "port_xmit_wait"].map(|name| leaf_a(&swept, 3, name));
        assert_eq!(found, [sent, symbol_errors, wait], "{capabilities:?}");
        let other = leaf_a(&swept, 4, "symbol_error");
        assert_eq!(other, Some(0), "{capabilities:?}");
        assert_eq!(leaf_a(&swept, 8, xmit), None, "no cable");
    }
}

#[test]
fn a_switch_without_errors_says_so_with_one_question() {
    for (errors, questions) in [(0, 4 + 4), (5, 4 + 4 + 6)] {
        let fake = counting(ALL_CAPABILITIES, errors);
        let seen = Arc::clone(&fake.seen);
        sweep(fake);
        // One for each switch and each host, and where leaf-a has errors one for each of its six cables.
        let asked = seen.lock().expect("one thread").performance[&0x12];
        assert_eq!(asked, questions, "{errors} errors");
    }
}

#[test]
fn what_an_agent_can_count_is_asked_once() {
    let fake = Fake::new(leaf_spine());
    let seen = Arc::clone(&fake.seen);
    let mut sweeper = Sweeper::new(Box::new(fake), settings());
    let first = sweeper.sweep().expect("a sweep");
    let second = sweeper.sweep().expect("a sweep");
    assert_eq!(first.subnet, second.subnet);
    assert_eq!(first.readings, second.readings);
    assert_eq!(seen.lock().expect("one thread").performance[&0x01], 8);
}

#[test]
fn an_agent_that_keeps_silent_costs_its_own_counters_only() {
    for (mute, refuses) in [(Some(0x01), None), (Some(0x1d), None), (None, Some(0x1d))] {
        let mut fake = counting(ALL_CAPABILITIES, 5);
        fake.devices[4].mute.extend(mute);
        fake.devices[4].refuses.extend(refuses);
        let swept = sweep(fake);
        assert_eq!(leaf_a(&swept, 3, "port_xmit_data"), None);
        assert_eq!(swept.subnet.completeness.gaps(), [], "the shape is whole");
        let others = swept
            .readings
            .iter()
            .filter(|device| device.guid != Guid(0x10));
        for port in others
            .flat_map(|device| &device.ports)
            .filter(|port| port.active)
        {
            assert!(
                port.counters
                    .is_some_and(|counters| counters.get(0).is_some())
            );
        }
        assert!(swept.stats.unanswered + swept.stats.refused > 0);
    }
}
