//! Units, groups and what each switch, tier and half of the fabric can carry.

use railscope_model::units::LinkSpeed;

use super::structure::{Bisection, Group, LeafCapacity, Structure, TierCapacity, Unit};
use super::units::units;
use super::verdict::{Kind, Oversubscription};
use crate::fabric::classify::classifier::Court;
use crate::fabric::graph::groups::Groups;
use crate::fabric::graph::host_classes::{HostRole, natural};

impl Court<'_> {
    /// All of the structure but its networks and single points of failure.
    pub(crate) fn structure(&self, kind: &Kind) -> Structure {
        let leaves = self.leaf_capacities();
        let tiers = self.tier_capacities();
        let found = self.dragonfly.as_ref().or(self.dragonfly_plus.as_ref());
        let groups = found.map(|groups| self.groups(groups)).unwrap_or_default();
        let pairs = found.map_or(0, |groups| groups.pairs.1);
        Structure {
            bisection: bisection(kind, &leaves, &tiers, &groups, pairs),
            units: self.units(),
            leaves,
            tiers,
            groups,
            ..Structure::default()
        }
    }

    fn is_compute(&self, host: usize) -> bool {
        self.shapes.roles[host] != HostRole::Service
    }

    fn units(&self) -> Vec<Unit> {
        let hosts = &self.survey.hosts;
        let mut order: Vec<usize> = (0..hosts.len())
            .filter(|host| {
                let role = self.shapes.roles[*host];
                matches!(role, HostRole::Compute { .. } | HostRole::Unlike)
            })
            .collect();
        order.sort_by(|a, b| natural(hosts[*a].name.as_str(), hosts[*b].name.as_str()));
        let leaves_of: Vec<Vec<usize>> = order
            .iter()
            .map(|host| {
                let nics = hosts[*host].nics.iter();
                nics.flat_map(|nic| nic.switches.iter().copied()).collect()
            })
            .collect();
        let named = (1..).zip(units(&leaves_of)).map(|(number, unit)| {
            let switch = |leaf: &usize| self.survey.switches[*leaf].name.clone();
            let mut leaves: Vec<_> = unit.leaves.iter().map(switch).collect();
            leaves.sort();
            Unit {
                name: format!("su-{number}"),
                leaves,
                hosts: unit
                    .hosts
                    .iter()
                    .map(|place| hosts[order[*place]].name.clone())
                    .collect(),
            }
        });
        named.collect()
    }

    fn groups(&self, groups: &Groups) -> Vec<Group> {
        let named = (1..).zip(&groups.members).map(|(number, members)| {
            let views = || members.iter().map(|switch| &self.survey.switches[*switch]);
            let mut switches: Vec<_> = views().map(|view| view.name.clone()).collect();
            switches.sort();
            let own = groups.of[members[0]];
            let across = views().flat_map(|view| {
                let trunks = view.trunks.iter();
                trunks.filter(|(peer, _)| groups.of[*peer].is_some() && groups.of[*peer] != own)
            });
            let drops = || views().flat_map(|view| view.nics.iter());
            Group {
                name: format!("group-{number}"),
                switches,
                nics: drops().count(),
                down: bandwidth(drops().map(|(.., speed)| *speed)),
                global: bandwidth(across.map(|(_, speed)| *speed)),
            }
        });
        named.collect()
    }

    fn leaf_capacities(&self) -> Vec<LeafCapacity> {
        let is_router = self.dragonfly.is_some();
        let leaves = self.leaves().filter(|leaf| {
            let nics = &self.survey.switches[*leaf].nics;
            nics.iter().any(|(host, ..)| self.is_compute(*host))
        });
        let capacity = |leaf: usize| {
            let switch = &self.survey.switches[leaf];
            let upwards = || {
                let trunks = switch.trunks.iter();
                trunks.filter(|(peer, _)| is_router || self.tiers[*peer] > Some(1))
            };
            LeafCapacity {
                leaf: switch.name.clone(),
                nics: switch.nics.len(),
                uplinks: upwards().count(),
                down: bandwidth(switch.nics.iter().map(|(.., speed)| *speed)),
                up: bandwidth(upwards().map(|(_, speed)| *speed)),
            }
        };
        leaves.map(capacity).collect()
    }

    /// Tiers that have one above them. Leaves without compute hosts do not count.
    fn tier_capacities(&self) -> Vec<TierCapacity> {
        let levels = self.tiers.iter().flatten().copied().max().unwrap_or(0);
        (1..levels).map(|tier| self.tier_capacity(tier)).collect()
    }

    fn tier_capacity(&self, tier: u8) -> TierCapacity {
        let mut sum = TierCapacity {
            tier,
            switches: 0,
            down: Some(0.0),
            up: Some(0.0),
            through: Some(0.0),
        };
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            *sum = sum.zip(more).map(|(sum, more)| sum + more);
        };
        for (index, switch) in self.survey.switches.iter().enumerate() {
            let of_compute = switch.nics.iter().any(|(host, ..)| self.is_compute(*host));
            if self.tiers[index] != Some(tier) || tier == 1 && !of_compute {
                continue;
            }
            let towards = |up: bool| {
                let trunks = switch.trunks.iter();
                trunks.filter(move |(peer, _)| {
                    let there = self.tiers[*peer];
                    if up {
                        there > Some(tier)
                    } else {
                        there.is_some_and(|there| there < tier)
                    }
                })
            };
            let nics = switch.nics.iter().map(|(.., speed)| *speed);
            let down = bandwidth(nics.chain(towards(false).map(|(_, speed)| *speed)));
            let up = bandwidth(towards(true).map(|(_, speed)| *speed));
            sum.switches += 1;
            add(&mut sum.down, down);
            add(&mut sum.up, up);
            add(
                &mut sum.through,
                down.zip(up).map(|(down, up)| down.min(up)),
            );
        }
        sum
    }

    /// Leaf by leaf where something is above them.
    pub(crate) fn oversubscription(
        &self,
        levels: usize,
        leaves: &[LeafCapacity],
    ) -> Option<Oversubscription> {
        if levels < 2 {
            return None;
        }
        let mut ratios: Vec<f64> = leaves.iter().filter_map(LeafCapacity::ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Some(Oversubscription {
            min: *ratios.first()?,
            median: ratios[ratios.len() / 2],
            max: *ratios.last()?,
            leaves: ratios.len(),
            unknown: leaves.len() - ratios.len(),
        })
    }
}

/// Half of what the hosts can send, or of what the narrowest tier lets through; in a dragonfly, the cables
/// between two halves of its groups, taken to be joined alike.
fn bisection(
    kind: &Kind,
    leaves: &[LeafCapacity],
    tiers: &[TierCapacity],
    groups: &[Group],
    pairs: usize,
) -> Option<Bisection> {
    let down: Option<f64> = leaves.iter().map(|leaf| leaf.down).sum();
    let wanted = down? / 2.0;
    let whole = Bisection {
        bytes_per_second: wanted,
        wanted,
        limited_by: None,
    };
    let narrower = |bytes_per_second: f64, tier: u8| {
        let limits = bytes_per_second < wanted;
        Bisection {
            bytes_per_second: bytes_per_second.min(wanted),
            wanted,
            limited_by: limits.then_some(tier),
        }
    };
    match kind {
        Kind::SingleSwitch => Some(whole),
        Kind::FatTree | Kind::RailOptimized | Kind::RailOnly | Kind::HostGrouped => {
            let mut least = whole;
            for tier in tiers {
                let half = tier.through? / 2.0;
                if half < least.bytes_per_second {
                    least = narrower(half, tier.tier);
                }
            }
            Some(least)
        }
        Kind::Dragonfly | Kind::DragonflyPlus => {
            let global: Option<f64> = groups.iter().map(|group| group.global).sum();
            // Groups of one network: n of them make n (n - 1) / 2 pairs.
            let count = 2.0 * pairs as f64 / groups.len() as f64 + 1.0;
            let half = (count / 2.0).floor();
            // Each cable stands at both of its groups, and pairs across the cut are this share of all.
            let across = half * (count - half) / (count * (count - 1.0) / 2.0);
            Some(narrower(global? / 2.0 * across, 1))
        }
        _ => None,
    }
}

/// Bytes per second of some cables; none if the speed of one is not known.
fn bandwidth(speeds: impl Iterator<Item = Option<LinkSpeed>>) -> Option<f64> {
    speeds
        .map(|speed| speed.map(LinkSpeed::bytes_per_second))
        .sum()
}
