//! Kinds of fabrics of odd sizes, with parts missing: detected by structure, with groups, planes and units.
use crate::topology_net as net;

use net::Net;
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::fabric::{Kind, Split, Verdict, judge, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};

fn verdict(net: &Net) -> Verdict {
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &parse_ibnetdiscover(&net.text()), Timestamp(1));
    judge(&fabric, &merge)
}

/// A dragonfly: `global` cables between any two groups on routers in turn, `local` between any two routers.
#[derive(Clone, Copy)]
struct Dragonfly {
    groups: usize,
    routers: usize,
    hosts: usize,
    local: usize,
    global: usize,
}

impl Dragonfly {
    /// As many dragonflies side by side, each with two NICs of every host.
    fn planes(&self, planes: usize) -> Net {
        let mut net = Net::default();
        (0..planes).for_each(|plane| self.add(&mut net, plane, &|_, _, _| false));
        net
    }

    fn net(&self, leave_out: impl Fn(usize, usize, usize) -> bool) -> Net {
        let mut net = Net::default();
        self.add(&mut net, 0, &leave_out);
        net
    }

    /// Hosts have two NICs on neighboring routers; what `leave_out` names by group and routers stays unjoined.
    fn add(&self, net: &mut Net, plane: usize, leave_out: &dyn Fn(usize, usize, usize) -> bool) {
        let groups: Vec<Vec<usize>> = (0..self.groups)
            .map(|group| {
                let name = |router| format!("r-{plane}-{group}-{router}");
                (0..self.routers)
                    .map(|router| net.switch(&name(router)))
                    .collect()
            })
            .collect();
        for (group, routers) in groups.iter().enumerate() {
            for host in 0..self.hosts {
                for nic in 0..2 {
                    let router = routers[(2 * host + nic) % routers.len()];
                    net.host(
                        router,
                        &format!("n{group:03}{host:02} mlx5_{}", 2 * plane + nic),
                    );
                }
            }
            for upper in 1..routers.len() {
                for lower in 0..upper {
                    if !leave_out(group, lower, upper) {
                        (0..self.local).for_each(|_| net.link(routers[lower], routers[upper]));
                    }
                }
            }
        }
        for upper in 1..self.groups {
            for lower in 0..upper {
                for cable in 0..self.global {
                    let end = |from: usize, to: usize| {
                        let distance = (to + self.groups - from - 1) % self.groups;
                        groups[from][(distance * self.global + cable) % self.routers]
                    };
                    net.link(end(lower, upper), end(upper, lower));
                }
            }
        }
    }
}

fn check_dragonfly(dragonfly: Dragonfly, leave_out: impl Fn(usize, usize, usize) -> bool) {
    let verdict = verdict(&dragonfly.net(leave_out));
    let Dragonfly {
        groups, routers, ..
    } = dragonfly;
    let name = format!("{groups} groups of {routers}:\n{verdict}");
    assert_eq!(
        (&verdict.kind, verdict.levels),
        (&Kind::Dragonfly, 1),
        "{name}"
    );
    assert_eq!(verdict.structure.groups.len(), groups, "{name}");
    assert!(
        verdict
            .structure
            .groups
            .iter()
            .all(|group| group.switches.len() == routers),
        "{name}"
    );
    assert_eq!(verdict.unplaced_switches, 0, "{name}");
}

#[test]
fn a_dragonfly_is_one_with_any_number_of_routers_and_cables() {
    for routers in [4, 5, 6, 8, 11, 16] {
        for (groups, global) in [(3, 4), (5, 2), (9, 1), (9, 4), (17, 1)] {
            for local in [1, 2, 4] {
                let hosts = routers;
                check_dragonfly(
                    Dragonfly {
                        groups,
                        routers,
                        hosts,
                        local,
                        global,
                    },
                    |_, _, _| false,
                );
            }
        }
    }
}

#[test]
fn routers_without_hosts_and_cables_that_are_out_leave_a_dragonfly_one() {
    let sparse = Dragonfly {
        groups: 9,
        routers: 16,
        hosts: 3,
        local: 1,
        global: 4,
    };
    check_dragonfly(sparse, |_, _, _| false);
    let full = Dragonfly {
        groups: 7,
        routers: 8,
        hosts: 8,
        local: 1,
        global: 4,
    };
    check_dragonfly(full, |group, lower, upper| {
        group == 2 && (lower, upper) == (1, 4)
    });
}

#[test]
fn planes_of_dragonflies_are_dragonflies() {
    let dragonfly = Dragonfly {
        groups: 5,
        routers: 4,
        hosts: 4,
        local: 1,
        global: 2,
    };
    let verdict = verdict(&dragonfly.planes(2));
    assert_eq!(verdict.kind, Kind::Dragonfly, "{verdict}");
    let structure = &verdict.structure;
    assert_eq!(
        (structure.planes(), structure.groups.len()),
        (2, 10),
        "{verdict}"
    );
}

#[test]
fn rows_and_columns_joined_all_to_all_are_no_dragonfly() {
    let mut net = Net::default();
    let grid: Vec<Vec<usize>> = (0..5)
        .map(|row| {
            (0..5)
                .map(|column| net.switch(&format!("s{row}{column}")))
                .collect()
        })
        .collect();
    for row in 0..5 {
        for column in 0..5 {
            net.host(grid[row][column], &format!("n{row}{column} mlx5_0"));
            (0..column).for_each(|other| net.link(grid[row][column], grid[row][other]));
            (0..row).for_each(|other| net.link(grid[row][column], grid[other][column]));
        }
    }
    assert_eq!(verdict(&net).kind, Kind::Direct);
}

/// Groups of leaves and spines; every spine of a group is cabled to spines of the others in turn.
fn dragonfly_plus(groups: usize, leaves: usize, spines: usize) -> Net {
    let mut net = Net::default();
    let mut all = Vec::new();
    for group in 0..groups {
        let own: Vec<_> = (0..spines)
            .map(|n| net.switch(&format!("spine-{group}-{n}")))
            .collect();
        for leaf in 0..leaves {
            let switch = net.switch(&format!("leaf-{group}-{leaf}"));
            for host in 0..4 {
                net.host(switch, &format!("n{group}{leaf:02}{host} mlx5_0"));
            }
            own.iter().for_each(|spine| net.link(switch, *spine));
        }
        all.push(own);
    }
    for upper in 1..groups {
        for lower in 0..upper {
            net.link(all[lower][upper % spines], all[upper][lower % spines]);
            net.link(
                all[lower][(upper + 1) % spines],
                all[upper][(lower + 1) % spines],
            );
        }
    }
    net
}

#[test]
fn groups_of_leaves_and_spines_joined_by_spines_are_a_dragonfly_plus() {
    for (groups, leaves, spines) in [(3, 4, 2), (5, 3, 3), (9, 8, 8)] {
        let verdict = verdict(&dragonfly_plus(groups, leaves, spines));
        assert_eq!(
            (&verdict.kind, verdict.levels),
            (&Kind::DragonflyPlus, 2),
            "{verdict}"
        );
        assert_eq!(verdict.structure.groups.len(), groups, "{verdict}");
    }
}

/// A separate rail tree for every plane, with so many rails of every host.
fn planes(rails: &[usize]) -> Net {
    let mut net = Net::default();
    let mut first = 0;
    for (plane, own) in rails.iter().enumerate() {
        let spines: Vec<_> = (0..2)
            .map(|n| net.switch(&format!("spine-{plane}-{n}")))
            .collect();
        for unit in 0..3 {
            for rail in 0..*own {
                let leaf = net.switch(&format!("leaf-{plane}-{unit}-{rail}"));
                for host in 0..8 {
                    net.host(leaf, &format!("gpu-{unit}{host} mlx5_{}", first + rail));
                }
                spines.iter().for_each(|spine| net.link(leaf, *spine));
            }
        }
        first += own;
    }
    net
}

#[test]
fn networks_of_the_same_hosts_are_planes_equal_or_not() {
    for (rails, planes_seen, rails_seen) in
        [(&[4, 4][..], 2, 4), (&[8, 1], 2, 8), (&[3, 5, 2], 3, 5)]
    {
        let verdict = verdict(&planes(rails));
        let structure = &verdict.structure;
        assert_eq!(verdict.kind, Kind::RailOptimized, "{verdict}");
        assert_eq!(structure.split, Split::Planes, "{verdict}");
        assert_eq!(
            (structure.planes(), structure.rails()),
            (planes_seen, rails_seen),
            "{verdict}"
        );
        assert_eq!(structure.units.len(), 3, "{verdict}");
        assert!(
            structure.units.iter().all(|unit| unit.hosts.len() == 8),
            "{verdict}"
        );
    }
}

#[test]
fn single_rails_are_no_planes_and_strangers_are_neither() {
    let rails = verdict(&planes(&[1, 1, 1, 1]));
    assert_eq!(
        (&rails.kind, rails.structure.split),
        (&Kind::RailOnly, Split::Rails),
        "{rails}"
    );
    assert_eq!((rails.structure.planes(), rails.structure.rails()), (1, 4));
    let mut net = Net::default();
    for network in 0..2 {
        let spine = net.switch(&format!("spine-{network}"));
        for leaf in 0..3 {
            let switch = net.switch(&format!("leaf-{network}-{leaf}"));
            net.link(switch, spine);
            for host in 0..4 {
                net.host(switch, &format!("n{network}{leaf}{host} mlx5_0"));
            }
        }
    }
    let apart = verdict(&net);
    assert_eq!(
        (&apart.kind, apart.structure.split),
        (&Kind::FatTree, Split::Apart),
        "{apart}"
    );
    assert!(
        apart
            .doubts
            .iter()
            .any(|doubt| doubt.contains("no cable joins")),
        "{apart}"
    );
}

/// Leaves of one network joined to spines as a test specifies: leaf, spine.
fn two_tiers(
    leaves: usize,
    spines: usize,
    nics: usize,
    joined: impl Fn(usize, usize) -> usize,
) -> Net {
    let mut net = Net::default();
    let above: Vec<_> = (0..spines)
        .map(|n| net.switch(&format!("spine-{n}")))
        .collect();
    for leaf in 0..leaves {
        let switch = net.switch(&format!("leaf-{leaf}"));
        for host in 0..8 {
            for nic in 0..nics {
                net.host(switch, &format!("n{leaf:02}{host} mlx5_{nic}"));
            }
        }
        for (number, spine) in above.iter().enumerate() {
            (0..joined(leaf, number)).for_each(|_| net.link(switch, *spine));
        }
    }
    net
}

#[test]
fn odd_numbers_and_missing_cables_leave_a_tree_one() {
    for (leaves, spines) in [(3, 1), (5, 3), (7, 2), (13, 5)] {
        let whole = verdict(&two_tiers(leaves, spines, 1, |_, _| 1));
        assert_eq!((&whole.kind, whole.levels), (&Kind::FatTree, 2), "{whole}");
        let several = verdict(&two_tiers(leaves, spines, 4, |leaf, spine| {
            1 + (leaf + spine) % 3
        }));
        assert_eq!(
            (&several.kind, several.levels),
            (&Kind::HostGrouped, 2),
            "{several}"
        );
    }
    let torn = verdict(&two_tiers(13, 5, 1, |leaf, spine| {
        usize::from((leaf, spine) != (4, 2))
    }));
    assert_eq!((&torn.kind, torn.levels), (&Kind::FatTree, 2), "{torn}");
}

#[test]
fn leaves_that_share_no_spine_with_most_others_are_irregular() {
    // Each spine joins two leaves only: a ring of leaves and spines.
    let ring = verdict(&two_tiers(9, 9, 1, |leaf, spine| {
        usize::from(spine == leaf || spine == (leaf + 1) % 9)
    }));
    assert_eq!(ring.kind, Kind::Irregular, "{ring}");
    assert!(
        ring.ruled_out
            .iter()
            .any(|why| why.starts_with("fat-tree: ")),
        "{ring}"
    );
}

#[test]
fn twin_switches_with_cables_between_them_leave_a_tree_one() {
    let mut net = Net::default();
    let spines: Vec<_> = (0..4).map(|n| net.switch(&format!("spine-{n}"))).collect();
    for module in 0..6 {
        let twins: Vec<_> = (0..2)
            .map(|n| net.switch(&format!("twin-{module}-{n}")))
            .collect();
        (0..2).for_each(|_| net.link(twins[0], twins[1]));
        for host in 0..8 {
            for (nic, twin) in twins.iter().enumerate() {
                net.host(*twin, &format!("n{module}{host} mlx5_{nic}"));
            }
        }
        for twin in &twins {
            spines.iter().for_each(|spine| net.link(*twin, *spine));
        }
    }
    let verdict = verdict(&net);
    assert_eq!(
        (&verdict.kind, verdict.levels),
        (&Kind::RailOptimized, 2),
        "{verdict}"
    );
    assert_eq!(verdict.switches_by_tier, [12, 4], "{verdict}");
}
