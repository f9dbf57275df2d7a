//! Shortest paths counted: their number, their components, and the hosts routed over a cable.
use crate::topology_net as net;

use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{PathSet, Routes, merge_subnet, understand};
use railscope_model::fabric::{Fabric, Timestamp};

struct Seen {
    fabric: Fabric,
    routes: Routes,
}

impl Seen {
    fn of(net: &Net) -> Self {
        let mut fabric = Fabric::default();
        let merge = merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
        let (_, routes) = understand(&fabric, &merge);
        Self { fabric, routes }
    }

    fn paths(&self, a: &str, b: &str) -> Option<PathSet> {
        let name = |name: &str| name.parse().expect(name);
        self.routes.between(&self.fabric, &name(a), &name(b))
    }

    /// Leaves routed over a cable with their shares.
    fn over(&self, cable: &str) -> Vec<(String, f64)> {
        let cable = cable.parse().expect(cable);
        let found = self.routes.over(&self.fabric, &cable);
        let mut leaves: Vec<_> = found
            .leaves
            .iter()
            .map(|(leaf, share)| (self.fabric.vertex(*leaf).part.to_string(), *share))
            .collect();
        leaves.sort_by(|a, b| a.0.cmp(&b.0));
        leaves
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// Four leaves of four hosts under two spines, two cables from each leaf to each.
fn two_tiers() -> Net {
    let mut net = Net::default();
    let spines: Vec<_> = (0..2).map(|n| net.switch(&format!("spine-{n}"))).collect();
    for leaf in 0..4 {
        let switch = net.switch(&format!("leaf-{leaf}"));
        (0..4).for_each(|host| {
            net.host(switch, &format!("n{leaf}{host} mlx5_0"));
        });
        for spine in &spines {
            (0..2).for_each(|_| net.link(switch, *spine));
        }
    }
    net
}

#[test]
fn parallel_cables_are_paths_of_their_own() {
    let seen = Seen::of(&two_tiers());
    let set = seen.paths("leaf-0", "leaf-3").expect("a path");
    assert_eq!((set.hops, set.switches.len(), set.cables.len()), (2, 2, 8));
    assert!(near(set.paths, 8.0), "2 spines, 2 cables up, 2 down");
    assert!(set.switches.iter().all(|(_, share)| near(*share, 0.5)));
    assert!(set.cables.iter().all(|(_, share)| near(*share, 0.25)));
    assert_eq!(seen.paths("leaf-0", "nowhere"), None);
}

#[test]
fn a_leafs_uplink_carries_its_share_of_that_leafs_traffic_and_of_no_other() {
    let seen = Seen::of(&two_tiers());
    // Ports 1 to 4 of a leaf are hosts, 5 to 8 its cables to the spines.
    let over = seen.over("link/leaf-1:5");
    assert_eq!(over.len(), 1, "{over:?}");
    assert_eq!(over[0].0, "switch/leaf-1");
    assert!(near(over[0].1, 0.25), "{over:?}");
    assert_eq!(seen.over("link/leaf-1:1"), [], "a cable to a host");
}

/// Pods of `leaves` leaves and as many spines; the spines of one place are joined by separate cores.
fn three_tiers(pods: usize, leaves: usize, cores: usize) -> Net {
    let mut net = Net::default();
    let above: Vec<Vec<usize>> = (0..leaves)
        .map(|place| {
            (0..cores)
                .map(|n| net.switch(&format!("core-{place}-{n}")))
                .collect()
        })
        .collect();
    for pod in 0..pods {
        let spines: Vec<_> = (0..leaves)
            .map(|n| net.switch(&format!("spine-{pod}-{n}")))
            .collect();
        for leaf in 0..leaves {
            let switch = net.switch(&format!("a-{pod}-{leaf}"));
            (0..2).for_each(|host| {
                net.host(switch, &format!("n{pod}{leaf}{host} mlx5_0"));
            });
            spines.iter().for_each(|spine| net.link(switch, *spine));
        }
        for (spine, cores) in spines.iter().zip(&above) {
            cores.iter().for_each(|core| net.link(*spine, *core));
        }
    }
    net
}

#[test]
fn ways_multiply_over_three_tiers() {
    let seen = Seen::of(&three_tiers(3, 4, 2));
    let within = seen.paths("a-0-0", "a-0-3").expect("a path");
    assert_eq!(within.hops, 2);
    assert!(near(within.paths, 4.0));
    let across = seen.paths("a-0-0", "a-2-1").expect("a path");
    assert_eq!((across.hops, across.switches.len()), (4, 4 + 8 + 4));
    assert!(near(across.paths, 8.0), "4 spines, 2 cores each");
    let all: f64 = across.cables.iter().map(|(_, share)| share).sum();
    assert!(near(all, 4.0), "each path has four cables");
}

#[test]
fn a_cable_to_a_core_carries_its_share_of_what_leaves_the_pod() {
    let seen = Seen::of(&three_tiers(3, 4, 2));
    // Ports 1 to 4 of a spine are its leaves; 5 and 6 its cores. Cables are named by the lower name.
    let over = seen.over("link/core-1-0:2");
    let names: Vec<_> = over.iter().map(|(leaf, _)| leaf.as_str()).collect();
    assert_eq!(
        names,
        [
            "switch/a-1-0",
            "switch/a-1-1",
            "switch/a-1-2",
            "switch/a-1-3"
        ]
    );
    // 16 of the 22 NICs elsewhere are in other pods; 8 paths lead there, one of them over this cable.
    let expected = 16.0 / 22.0 / 8.0;
    assert!(
        over.iter().all(|(_, share)| near(*share, expected)),
        "{over:?}"
    );
}

#[test]
fn a_dragonflys_minimal_path_takes_one_cable_between_groups() {
    let mut net = Net::default();
    let groups: Vec<Vec<usize>> = (0..4)
        .map(|group| {
            (0..4)
                .map(|n| net.switch(&format!("r-{group}-{n}")))
                .collect()
        })
        .collect();
    for (group, routers) in groups.iter().enumerate() {
        for (number, router) in routers.iter().enumerate() {
            net.host(*router, &format!("n{group}{number} mlx5_0"));
            routers[..number]
                .iter()
                .for_each(|other| net.link(*router, *other));
        }
    }
    // Group a's router b is cabled to group b's router a.
    for (upper, routers) in groups.iter().enumerate() {
        for (router, other) in routers.iter().zip(&groups[..upper]) {
            net.link(other[upper], *router);
        }
    }
    let seen = Seen::of(&net);
    let set = seen.paths("r-0-0", "r-1-1").expect("a path");
    assert_eq!(set.hops, 3, "within, between, within");
    assert!(near(set.paths, 1.0));
    // r-0-2 and r-2-0 are neighbors, r-2-1 and r-1-2 too: shorter paths over a third group do not count.
    let direct = seen.paths("r-0-2", "r-2-0").expect("a path");
    assert_eq!(direct.hops, 1);
    let over = seen.over("link/r-0-2:5");
    assert!(
        over.iter()
            .all(|(leaf, _)| leaf.starts_with("switch/r-0-") || leaf.starts_with("switch/r-2-")),
        "{over:?}"
    );
    assert_eq!(over.len(), 8);
    // Each router of the two groups sends 4 of its 15 parts over the one cable between them.
    assert!(
        over.iter().all(|(_, share)| near(*share, 4.0 / 15.0)),
        "{over:?}"
    );
}
