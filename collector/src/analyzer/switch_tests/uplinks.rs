//! Uplinks of leaves that carry less than others.

use std::collections::BTreeSet;
use std::ops::Range;

use railscope_model::identity::PortName;
use railscope_model::metric::{
    SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_WAIT,
};

use super::Lab;
use crate::detect::rules::switch_ports;

/// Five leaves with a host, which sends so many bytes, and eight uplinks each; bytes by leaf and uplink.
fn uplinks(from_host: f64, bytes: impl Fn(usize, usize) -> f64) -> Vec<String> {
    named_of_leaves(Lab::default(), from_host, bytes)
}

/// The same, beside what the lab has.
fn named_of_leaves(lab: Lab, from_host: f64, bytes: impl Fn(usize, usize) -> f64) -> Vec<String> {
    let lab = run(8, lab, from_host, |_, leaf, up| bytes(leaf, up), |_| ());
    lab.said_by(switch_ports::build)
}

/// So many readings, with what to do after each; bytes by reading, leaf and uplink.
fn run(
    readings: usize,
    mut lab: Lab,
    from_host: f64,
    bytes: impl Fn(usize, usize, usize) -> f64,
    mut each: impl FnMut(&Lab),
) -> Lab {
    for leaf in 0..5 {
        let name = format!("l{leaf}");
        lab.host(&format!("n{leaf}"), (&name, 100));
        for up in 0..8_u16 {
            lab.cable((&name, up + 1), (&format!("s{up}"), leaf + 1));
        }
    }
    for reading in 0..readings {
        for (leaf, up) in (0..5).flat_map(|leaf| (0..8).map(move |up| (leaf, up))) {
            let port = PortName::Number(up as u16 + 1).to_string();
            let switch = format!("l{leaf}");
            let sent = bytes(reading, leaf, up);
            lab.add(&switch, &SWITCH_PORT_TRANSMIT_BYTES, &[&port], sent);
            lab.add(
                &switch,
                &SWITCH_PORT_RECEIVE_BYTES,
                &["100"],
                from_host / 8.0,
            );
        }
        lab.read();
        each(&lab);
    }
    lab
}

#[test]
fn a_leaf_that_uses_few_uplinks_is_polarized_unless_its_flows_are_few_or_all_leaves_do() {
    let polarized = ["ecmp-polarized switch/l2"];
    // All traffic of the leaf uses two uplinks.
    let two = |leaf: usize, up: usize| match (leaf, up) {
        (2, 2..) => 0.0,
        (2, _) => 4e10,
        _ => 1e10,
    };
    assert_eq!(uplinks(2e9, two), polarized);
    // Nothing waits where hardly anything is sent.
    assert!(uplinks(2e6, |leaf, up| two(leaf, up) / 1000.0).is_empty());
    // Cables to switches that have hosts, too, as in a dragonfly, are no uplinks.
    let mut lab = Lab::default();
    for up in 0..8 {
        lab.host(&format!("m{up}"), (&format!("s{up}"), 100));
    }
    assert!(named_of_leaves(lab, 2e9, two).is_empty());
    // Eight flows, as large as the host's: two of eight uplinks are not a coincidence, four are.
    assert_eq!(uplinks(1e10, two), polarized);
    let half = |leaf, up| {
        if leaf == 2 {
            two(leaf, up / 2) / 2.0
        } else {
            1e10
        }
    };
    assert!(uplinks(1e10, half).is_empty());
    assert_eq!(uplinks(2e9, half), polarized);
    // Two elephants, where others send eight times as much.
    let few = |leaf: usize, up: usize| two(leaf, up) / if leaf == 2 { 8.0 } else { 1.0 };
    assert!(uplinks(2e9, few).is_empty());
    assert!(uplinks(2e9, |_, up| if up < 2 { 4e10 } else { 0.0 }).is_empty());
    assert!(uplinks(2e9, |_, _| 1e10).is_empty());
}

/// All that one detector names in a run where leaves spread their packets evenly, but for these shares, by leaf and uplink, in these
/// readings of forty.
fn spread(lab: Lab, differs: Range<usize>, share: impl Fn(usize, usize) -> f64) -> Vec<String> {
    let (mut detector, mut named) = (switch_ports::build(), BTreeSet::new());
    let bytes = |reading: usize, leaf, up| {
        let share = if differs.contains(&reading) {
            share(leaf, up)
        } else {
            1.0
        };
        1e10 * share
    };
    run(40, lab, 8e10, bytes, |lab| {
        let mut out = Vec::new();
        detector.observe(&lab.view(), &mut out);
        named.extend(
            out.iter()
                .map(|own| format!("{} {}", own.class.name, own.part)),
        );
    });
    named.into_iter().collect()
}

#[test]
fn an_uplink_that_carries_less_of_what_its_leaf_spreads_evenly_is_named() {
    let one = |share: f64| move |leaf, up| if (leaf, up) == (2, 3) { share } else { 1.0 };
    let named = ["path-slow link/l2:4"];
    assert_eq!(spread(Lab::default(), 20..40, one(0.5)), named);
    let quiet = |differs, share: &dyn Fn(usize, usize) -> f64, why| {
        let found = spread(Lab::default(), differs, share);
        assert!(found.is_empty(), "{why}: {found:?}");
    };
    quiet(20..40, &one(0.85), "it carries nearly as much");
    quiet(20..30, &one(0.0), "it goes down and comes up");
    quiet(0..40, &one(0.5), "it never carried more");
    quiet(
        20..40,
        &|leaf, up| 1e-2 * one(0.5)(leaf, up),
        "hardly anything is sent",
    );
    let flows = |leaf, up| {
        if (leaf, up) == (2, 5) {
            1.2
        } else {
            one(0.5)(leaf, up)
        }
    };
    quiet(20..40, &flows, "it does not spread evenly");
    // What is behind the switch above them is at fault.
    let two = |leaf, up| if leaf < 2 && up == 3 { 0.5 } else { 1.0 };
    quiet(20..40, &two, "two leaves avoid a switch");
    // Ports of InfiniBand count what they wait for.
    let mut lab = Lab::default();
    lab.add("l2", &SWITCH_PORT_TRANSMIT_WAIT, &["4"], 1e3);
    assert!(spread(lab, 20..40, one(0.5)).is_empty(), "credits");
}

/// It is still named when the time before is out of the window.
#[test]
fn an_uplink_stays_named_for_as_long_as_it_carries_less() {
    let (mut detector, mut reading) = (switch_ports::build(), 0);
    let mut last = Vec::new();
    let bytes = |reading, leaf, up| {
        if reading >= 20 && (leaf, up) == (2, 3) {
            5e9
        } else {
            1e10
        }
    };
    run(150, Lab::default(), 8e10, bytes, |lab| {
        last.clear();
        detector.observe(&lab.view(), &mut last);
        reading += 1;
        assert!(reading < 40 || last.len() == 1, "{reading}");
    });
}
