//! Paths are connected, shortest, and shared according to the routing.

use std::collections::BTreeMap;

use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::traffic::router::{Lane, Path, Router, Routing};
use railscope_simulator::wiring::{Device, Wiring};

const ALL: [Routing; 4] = [
    Routing::Adaptive,
    Routing::Static,
    Routing::Minhop,
    Routing::Ecmp,
];

fn wiring(name: &str) -> Wiring {
    let path = format!(
        "{}/../tests/fabrics/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect(name);
    let spec: ClusterSpec = toml::from_str(&text).expect(name);
    Wiring::plan(&spec).expect(name)
}

/// The two devices that a lane joins, in its direction.
fn ends(wiring: &Wiring, lane: Lane) -> (Device, Device) {
    let [(lower, _), (upper, _)] = wiring.cables[lane.cable()].ends;
    if lane == Lane::up(lane.cable()) {
        (lower, upper)
    } else {
        (upper, lower)
    }
}

/// What flows into each device minus what flows out of it.
fn balance(wiring: &Wiring, path: &Path) -> BTreeMap<Device, f64> {
    let mut balance = BTreeMap::new();
    for (lane, share) in path {
        let (from, to) = ends(wiring, *lane);
        *balance.entry(from).or_insert(0.0) -= share;
        *balance.entry(to).or_insert(0.0) += share;
    }
    balance
}

#[test]
fn all_of_a_flow_leaves_its_source_and_comes_to_its_destination() {
    for name in [
        "rail-optimized-3tier",
        "rail-optimized-cores",
        "fat-tree-oversubscribed",
        "fat-tree-3tier",
        "host-grouped",
        "dragonfly",
    ] {
        let wiring = wiring(name);
        for routing in ALL {
            let router = Router::new(&wiring, routing);
            let last = wiring.nics.len() - 1;
            for (from, to) in [(0, last), (last, 0), (0, 1), (last / 2, last)] {
                let path = router.path(from, to, 7).expect("a way");
                for (device, rest) in balance(&wiring, &path) {
                    let expected = match device {
                        Device::Nic(nic) if nic == from => -1.0,
                        Device::Nic(nic) if nic == to => 1.0,
                        _ => 0.0,
                    };
                    assert!(
                        (rest - expected).abs() < 1e-12,
                        "{name} {routing:?}: {device:?} keeps {rest}"
                    );
                }
            }
        }
    }
}

#[test]
fn ways_are_as_long_as_the_tiers_that_they_cross() {
    // (fabric, from node and slot, to node and slot, cables)
    for (name, from, to, cables) in [
        ("rail-optimized-3tier", (0, 0), (1, 0), 2.0), // one leaf
        ("rail-optimized-3tier", (0, 0), (0, 1), 4.0), // two rails of a unit: over a spine
        ("rail-optimized-3tier", (0, 0), (39, 0), 6.0), // two pods: over a core
        ("rail-optimized-cores", (0, 0), (0, 1), 6.0), // rails meet at the cores
        ("host-grouped", (0, 0), (0, 7), 2.0),
        ("dragonfly", (0, 0), (0, 1), 3.0), // two routers of a group
    ] {
        let wiring = wiring(name);
        let nic = |(node, slot)| wiring.nic_index(node, slot);
        for routing in ALL {
            let path = Router::new(&wiring, routing)
                .path(nic(from), nic(to), 1)
                .expect("a way");
            let length: f64 = path.iter().map(|(_, share)| share).sum();
            assert!(
                (length - cables).abs() < 1e-9,
                "{name} {routing:?} {from:?} {to:?}: {length}"
            );
        }
    }
    let wiring = wiring("dragonfly");
    let router = Router::new(&wiring, Routing::Adaptive);
    let farthest = (0..wiring.nics.len())
        .filter_map(|to| router.path(0, to, 1))
        .map(|path| path.iter().map(|(_, share)| share).sum::<f64>())
        .fold(0.0, f64::max);
    // Host, router, group, router, host: one global cable between any two groups (ISCA 2008).
    assert!((3.0..=5.0).contains(&farthest), "{farthest}");
}

#[test]
fn fabrics_that_never_meet_have_no_way_and_a_dark_cable_none_either() {
    let mut rails = wiring("rail-only");
    let router = Router::new(&rails, Routing::Static);
    assert!(
        router
            .path(rails.nic_index(0, 0), rails.nic_index(0, 1), 0)
            .is_none()
    );
    assert!(
        router
            .path(rails.nic_index(0, 0), rails.nic_index(9, 0), 0)
            .is_some()
    );
    rails.cables[0].lit = false;
    let router = Router::new(&rails, Routing::Static);
    assert!(router.path(0, rails.nic_index(9, 0), 0).is_none());
    let planes = wiring("dual-plane");
    let router = Router::new(&planes, Routing::Static);
    assert!(
        router
            .path(planes.nic_index(0, 0), planes.nic_index(1, 1), 0)
            .is_none()
    );
}

/// Flows over each uplink of the first leaf, when all of its NICs send to another leaf.
fn uplinks_used(routing: Routing) -> Vec<f64> {
    let wiring = wiring("host-grouped");
    let router = Router::new(&wiring, routing);
    let mut used = BTreeMap::new();
    for from in 0..32 {
        let path = router.path(from, from + 64, from as u64).expect("a way");
        for (lane, share) in path {
            if let (Device::Switch(0), Device::Switch(_)) = ends(&wiring, lane) {
                *used.entry(lane).or_insert(0.0) += share;
            }
        }
    }
    used.into_values().collect()
}

#[test]
fn adaptive_routing_and_d_mod_k_are_even_and_ecmp_collides() {
    let adaptive = uplinks_used(Routing::Adaptive);
    assert_eq!(adaptive.len(), 32);
    assert!(
        adaptive.iter().all(|load| (load - 1.0).abs() < 1e-9),
        "{adaptive:?}"
    );
    // 32 destinations in a row, 32 uplinks: each its own.
    assert_eq!(uplinks_used(Routing::Static), vec![1.0; 32]);
    assert_eq!(uplinks_used(Routing::Minhop), vec![1.0; 32]);
    let hashed = uplinks_used(Routing::Ecmp);
    // 32 balls into 32 bins leave about 1/e of them empty.
    assert!((16..=26).contains(&hashed.len()), "{hashed:?}");
    assert!(hashed.iter().any(|load| *load >= 2.0), "{hashed:?}");
}
