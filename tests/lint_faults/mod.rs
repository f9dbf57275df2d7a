//! Each rule of the lint on a simulated fabric with exactly one fault: exactly its finding, on the faulty part.

mod heard;
mod plans;
mod traffic;

use railscope_collector::fabric::lint::{Finding, RULES, lint};
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{assign_rails, judge, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::plan::{PlannedCable, WiringPlan};
use railscope_simulator::show::ibnetdiscover::ibnetdiscover;
use railscope_simulator::show::plan;
use railscope_simulator::spec::{ClusterSpec, Speed};
use railscope_simulator::wiring::{Cable, Device, Wiring};

use crate::support::root;

const NOW: Timestamp = Timestamp(1_754_493_083_000);

/// A cluster on one of the fabrics of `tests/fabrics`, or a custom one.
fn spec(name: &str) -> ClusterSpec {
    if name == "rail-optimized" {
        return ClusterSpec::demo(40).expect("a cluster");
    }
    if name == "twelve-units" {
        return ClusterSpec {
            nodes: 48,
            ..spec("rail-optimized-3tier")
        };
    }
    let path = root().join("tests/fabrics").join(name);
    let text = std::fs::read_to_string(path.with_extension("toml")).expect(name);
    toml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn findings(wiring: &Wiring, plan: Option<&WiringPlan>) -> Vec<Finding> {
    let mut fabric = Fabric::default();
    let text = ibnetdiscover(wiring, NOW);
    // A sweep walks cables: it never comes to a switch without one.
    let lit = text
        .split("\n\n")
        .filter(|device| !device.contains("\nSwitch\t") || device.contains("\n["));
    let subnet = parse_ibnetdiscover(&lit.collect::<Vec<_>>().join("\n\n"));
    let merge = merge_subnet(&mut fabric, &subnet, NOW);
    assign_rails(&mut fabric);
    lint(&fabric, &judge(&fabric, &merge), plan)
}

/// The reference for what is right.
#[derive(Debug, Clone, Copy, PartialEq)]
enum By {
    Peers,
    Plan,
    /// Either, with the same finding.
    Both,
}
use By::{Both, Peers, Plan};

/// One fault on one fabric: what is done to what was built and to its plan, and the one finding with its first parts.
#[derive(Clone, Copy)]
struct Fault {
    fabric: &'static str,
    by: By,
    inject: fn(&mut Wiring, &mut WiringPlan),
    rule: &'static str,
    parts: &'static [&'static str],
}

const fn fault(
    fabric: &'static str,
    by: By,
    rule: &'static str,
    parts: &'static [&'static str],
    inject: fn(&mut Wiring, &mut WiringPlan),
) -> Fault {
    Fault {
        fabric,
        by,
        inject,
        rule,
        parts,
    }
}

/// What is wrong with the findings on a fault, by peers or by the plan.
fn wrong(fault: &Fault, with_plan: bool) -> Option<String> {
    let mut wiring = Wiring::plan(&spec(fault.fabric)).expect("a wiring");
    let mut plan = plan::plan(&wiring);
    let found = |wiring: &Wiring, plan: &WiringPlan| findings(wiring, with_plan.then_some(plan));
    let healthy = found(&wiring, &plan);
    (fault.inject)(&mut wiring, &mut plan);
    let findings = found(&wiring, &plan);
    let right = match findings.as_slice() {
        [finding] => {
            let parts = finding.parts.iter().map(ToString::to_string);
            finding.rule.name == fault.rule
                && parts
                    .take(fault.parts.len())
                    .eq(fault.parts.iter().copied())
        }
        _ => false,
    };
    let said = |findings: &[Finding]| findings.iter().map(ToString::to_string).collect::<String>();
    (!right || !healthy.is_empty()).then(|| {
        format!(
            "{}, {} {:?}, plan {with_plan}\nhealthy:\n{}with the fault:\n{}",
            fault.fabric,
            fault.rule,
            fault.parts,
            said(&healthy),
            said(&findings)
        )
    })
}

fn check(faults: &[Fault]) {
    let ways = faults.iter().flat_map(|fault| match fault.by {
        Peers => vec![(fault, false)],
        Plan => vec![(fault, true)],
        Both => vec![(fault, false), (fault, true)],
    });
    let wrong: Vec<_> = ways
        .filter_map(|(fault, plan)| wrong(fault, plan))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A cable by the name of its part.
fn cable<'a>(wiring: &'a mut Wiring, part: &str) -> &'a mut Cable {
    let index = wiring.cable_named(&part.parse().expect(part)).expect(part);
    &mut wiring.cables[index]
}

fn switch(wiring: &Wiring, name: &str) -> usize {
    let mut all = wiring.switches.iter();
    all.position(|switch| switch.name.as_str() == name)
        .expect(name)
}

/// The first port of a switch in which nothing is.
fn free_port(wiring: &Wiring, name: &str) -> (Device, u16) {
    let device = Device::Switch(switch(wiring, name));
    let used = |port: &u16| {
        wiring
            .cables
            .iter()
            .all(|cable| !cable.ends.contains(&(device, *port)))
    };
    (device, (1..=128).find(used).expect("a free port"))
}

/// Puts the upper end of a cable into a free port of a switch.
fn move_to(wiring: &mut Wiring, part: &str, name: &str) {
    let port = free_port(wiring, name);
    cable(wiring, part).ends[1] = port;
}

/// Exchanges the upper ends of two cables.
fn swap(wiring: &mut Wiring, one: &str, other: &str) {
    let [one, other] = [one, other].map(|part| wiring.cable_named(&part.parse().expect("a part")));
    wiring.swap(one.expect("one"), other.expect("another"));
}

/// One more cable between two switches, or of a switch with itself.
fn add(wiring: &mut Wiring, lower: &str, upper: &str) {
    let speed = wiring.cables[0].speed;
    let one = free_port(wiring, lower);
    wiring.cables.push(Cable {
        ends: [one, one],
        speed,
        lit: true,
    });
    let other = free_port(wiring, upper);
    wiring.cables.last_mut().expect("a cable").ends[1] = other;
}

/// Pulls every cable of a switch.
fn switch_off(wiring: &mut Wiring, name: &str) {
    let dead = Device::Switch(switch(wiring, name));
    for cable in &mut wiring.cables {
        cable.lit &= cable.ends.iter().all(|(device, _)| *device != dead);
    }
}

/// Where a plan has this row: its place.
fn row(plan: &WiringPlan, end: &str) -> usize {
    let is_there = |cable: &PlannedCable| cable.ends.iter().any(|found| found.to_string() == end);
    plan.cables.iter().position(is_there).expect(end)
}

/// Cabling errors by hand.
const CABLES: &[Fault] = &[
    fault(
        "rail-optimized",
        Both,
        "missing-cable",
        &["link/gpu-node-03:mlx5_2/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_2/1").lit = false;
        },
    ),
    fault(
        "rail-optimized-3tier",
        Both,
        "missing-cable",
        &["link/leaf-su0-r0:17"],
        |wiring, _| {
            cable(wiring, "link/leaf-su0-r0:17").lit = false;
        },
    ),
    fault(
        "dual-plane",
        Both,
        "missing-cable",
        &["link/gpu-node-03:mlx5_5/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_5/1").lit = false;
        },
    ),
    fault(
        "host-grouped",
        Both,
        "missing-cable",
        &["link/gpu-node-03:mlx5_5/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_5/1").lit = false;
        },
    ),
    fault(
        "dragonfly",
        Plan,
        "missing-cable",
        &["link/gpu-node-03:mlx5_5/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_5/1").lit = false;
        },
    ),
    fault(
        "fat-tree-3tier",
        Plan,
        "absent-device",
        &["host/gpu-node-03", "link/gpu-node-03:mlx5_0/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_0/1").lit = false; // its only one: a sweep does not come there
        },
    ),
    fault(
        "twelve-units",
        Peers,
        "absent-device",
        &["link/gpu-node-00:mlx5_3/1"],
        |wiring, _| {
            switch_off(wiring, "leaf-su0-r3");
        },
    ),
    fault(
        "rail-optimized",
        Both,
        "swapped-cables",
        &["link/gpu-node-03:mlx5_2/1", "link/gpu-node-05:mlx5_4/1"],
        |wiring, _| {
            swap(
                wiring,
                "link/gpu-node-03:mlx5_2/1",
                "link/gpu-node-05:mlx5_4/1",
            );
        },
    ),
    fault(
        "fat-tree-oversubscribed",
        Plan,
        "moved-cable",
        &["link/gpu-node-03:mlx5_0/1"],
        |wiring, _| move_to(wiring, "link/gpu-node-03:mlx5_0/1", "leaf-8"),
    ),
    fault(
        "rail-optimized",
        Both,
        "moved-cable",
        &["link/gpu-node-03:mlx5_2/1"],
        |wiring, _| {
            move_to(wiring, "link/gpu-node-03:mlx5_2/1", "leaf-su1-r2");
        },
    ),
    fault(
        "rail-optimized",
        Both,
        "cross-rail",
        &["link/gpu-node-35:mlx5_2/1"],
        |wiring, _| {
            move_to(wiring, "link/gpu-node-35:mlx5_2/1", "leaf-su1-r5");
        },
    ),
    fault(
        "dual-plane",
        Plan,
        "cross-plane",
        &["link/gpu-node-03:mlx5_0/1", "link/gpu-node-03:mlx5_1/1"],
        |wiring, _| {
            swap(
                wiring,
                "link/gpu-node-03:mlx5_0/1",
                "link/gpu-node-03:mlx5_1/1",
            );
        },
    ),
    fault(
        "dual-plane",
        Both,
        "cross-plane",
        &["link/p0-leaf-su0-r1:18"],
        |wiring, _| move_to(wiring, "link/p0-leaf-su0-r1:18", "p1-spine-1"),
    ),
    fault(
        "rail-optimized",
        Both,
        "unexpected-cable",
        &["link/leaf-su1-r0:9"],
        |wiring, _| {
            add(wiring, "leaf-su1-r0", "spine-3");
        },
    ),
    fault(
        "dragonfly",
        Plan,
        "unexpected-cable",
        &["link/router-0-0:16"],
        |wiring, _| {
            add(wiring, "router-0-0", "router-5-2");
        },
    ),
    fault(
        "rail-optimized",
        Plan,
        "other-port",
        &["link/gpu-node-35:mlx5_2/1"],
        |wiring, _| {
            move_to(wiring, "link/gpu-node-35:mlx5_2/1", "leaf-su1-r2");
        },
    ),
    fault(
        "host-grouped",
        Peers,
        "self-loop",
        &["link/leaf-7:17"],
        |wiring, _| {
            add(wiring, "leaf-7", "leaf-7");
        },
    ),
];

#[test]
fn a_fault_of_the_cables_gives_its_finding_and_no_other() {
    check(CABLES);
}

/// Invisible from outside: a cable that is up, but slower or narrower than its peers.
const SPEEDS: &[Fault] = &[
    fault(
        "rail-optimized",
        Both,
        "slow-cable",
        &["link/gpu-node-03:mlx5_2/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_2/1").speed = Speed::Hdr.link();
        },
    ),
    fault(
        "rail-optimized",
        Both,
        "slow-cable",
        &["link/gpu-node-03:mlx5_2/1"],
        |wiring, _| {
            cable(wiring, "link/gpu-node-03:mlx5_2/1").speed.lanes = 1; // of the same generation
        },
    ),
    fault(
        "fat-tree-oversubscribed",
        Both,
        "slow-cable",
        &["link/leaf-1:30"],
        |wiring, _| {
            cable(wiring, "link/leaf-1:30").speed.lanes = 2;
        },
    ),
    fault(
        "dual-plane",
        Both,
        "slow-cable",
        &["link/p1-leaf-su0-r1:18"],
        |wiring, _| {
            cable(wiring, "link/p1-leaf-su0-r1:18").speed = Speed::Edr.link();
        },
    ),
];

#[test]
fn a_slow_or_narrow_cable_is_found_beside_its_equals() {
    check(SPEEDS);
}

/// A leaf with fewer uplinks than its peers, where no single cable shows why.
const UPLINKS: &[Fault] = &[fault(
    "rail-optimized",
    Peers,
    "uneven-uplinks",
    &["switch/leaf-su1-r0"],
    |wiring, _| {
        let leaf = Device::Switch(switch(wiring, "leaf-su1-r0"));
        let own = wiring
            .cables
            .iter_mut()
            .filter(|cable| cable.ends[0].0 == leaf);
        own.take(16).for_each(|cable| cable.lit = false); // half of them
    },
)];

#[test]
fn a_leaf_with_fewer_uplinks_is_one_finding_and_not_one_for_each() {
    check(UPLINKS);
}

#[test]
fn every_rule_has_a_fault_that_gives_it() {
    let all = [CABLES, SPEEDS, UPLINKS, plans::PLANS].concat();
    let mut named: Vec<_> = all.iter().map(|fault| fault.rule).collect();
    named.extend(heard::RULES);
    // Of what nodes report and not of the wiring: collector/src/assemble/peer_settings.rs has their tests.
    named.extend(["version-differs", "setting-differs"]);
    let without: Vec<_> = RULES
        .iter()
        .filter(|rule| !named.contains(&rule.name))
        .collect();
    assert!(without.is_empty(), "{without:?}");
}
