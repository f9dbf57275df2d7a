//! What a fabric is made of: networks and planes, scalable units, groups, capacity, single points of
//! failure.

use railscope_model::identity::{NodeName, Part, SwitchName};

/// Switches that cables join, with the compute hosts on them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// Switches of each tier, leaves first.
    pub switches_by_tier: Vec<usize>,
    /// Compute hosts with a NIC on it.
    pub hosts: usize,
    /// NICs of compute hosts on it.
    pub nics: usize,
    /// Rails of those NICs, from 0, in order.
    pub rails: Vec<u16>,
}

/// What several networks beside each other are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Split {
    /// There is one network, or none.
    #[default]
    Whole,
    /// The same hosts are connected to each with several NICs, or with ports of the same cards.
    Planes,
    /// The same hosts are connected to each, with one NIC: each is a rail.
    Rails,
    /// Different hosts are connected to them: no path joins those.
    Apart,
}

/// Hosts behind the same leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `su-1`, in the order of its first host.
    pub name: String,
    /// Its leaves, by name.
    pub leaves: Vec<SwitchName>,
    /// Its hosts, numbers in names by value.
    pub hosts: Vec<NodeName>,
}

/// A group of a dragonfly.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `group-1`, in the order of the graph.
    pub name: String,
    /// Its switches, by name.
    pub switches: Vec<SwitchName>,
    /// NICs on them.
    pub nics: usize,
    /// Bytes per second towards its NICs; none where a cable's speed is not known.
    pub down: Option<f64>,
    /// Bytes per second towards other groups; none where a cable's speed is not known.
    pub global: Option<f64>,
}

/// Capacity of a leaf, down to its hosts and upwards.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafCapacity {
    /// The leaf.
    pub leaf: SwitchName,
    /// Cables to NICs.
    pub nics: usize,
    /// Cables to higher tiers; in a dragonfly, to other routers.
    pub uplinks: usize,
    /// Bytes per second towards its NICs; none where a cable's speed is not known.
    pub down: Option<f64>,
    /// Bytes per second upwards; none where a cable's speed is not known.
    pub up: Option<f64>,
}

impl LeafCapacity {
    /// Bandwidth down over bandwidth up; none where either is unknown or it has no uplinks.
    pub fn ratio(&self) -> Option<f64> {
        ratio(self.down, self.up)
    }
}

/// Capacity of a tier of switches, downwards and upwards, all together.
#[derive(Debug, Clone, PartialEq)]
pub struct TierCapacity {
    /// The tier: 1 is the leaf tier.
    pub tier: u8,
    /// Its switches that have anything below them.
    pub switches: usize,
    /// Bytes per second downwards; none where a cable's speed is not known.
    pub down: Option<f64>,
    /// Bytes per second upwards; none where a cable's speed is not known.
    pub up: Option<f64>,
    /// What can really pass: the smaller of both at each switch, added up.
    pub through: Option<f64>,
}

impl TierCapacity {
    /// Bandwidth down over bandwidth up; none where either is unknown or it has no uplinks.
    pub fn ratio(&self) -> Option<f64> {
        ratio(self.down, self.up)
    }
}

fn ratio(down: Option<f64>, up: Option<f64>) -> Option<f64> {
    let up = up.filter(|up| *up > 0.0)?;
    Some(down? / up)
}

/// Bandwidth between two halves of the hosts, in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bisection {
    /// Bytes per second that the structure carries.
    pub bytes_per_second: f64,
    /// Bytes per second that the hosts of one half can send.
    pub wanted: f64,
    /// The tier that limits it; none where the hosts do.
    pub limited_by: Option<u8>,
}

impl Bisection {
    /// Share of what the hosts can send that has a path, at most 1.
    pub fn share(&self) -> f64 {
        if self.wanted > 0.0 {
            self.bytes_per_second / self.wanted
        } else {
            1.0
        }
    }
}

/// A part without which hosts are cut off from most others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinglePoint {
    /// A switch, or a cable.
    pub part: Part,
    /// Hosts that have no path to most others without it.
    pub hosts: usize,
}

/// Single points of failure, counted and named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinglePoints {
    /// Switches that cut off at least one host.
    pub switches: usize,
    /// Cables between switches that cut off at least one host.
    pub trunks: usize,
    /// Hosts that depend on one cable.
    pub single_homed: usize,
    /// Switches and cables between switches among them, those that cut off most hosts first; cut at
    /// [`MAX_SINGLE_POINTS`].
    pub worst: Vec<SinglePoint>,
}

/// Single points that are named; the rest is counted. A fabric whose hosts have one NIC has as many as leaves.
pub const MAX_SINGLE_POINTS: usize = 256;

/// What a fabric is made of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Structure {
    /// Networks that carry compute hosts, those with most NICs first.
    pub networks: Vec<Network>,
    /// What these are to each other.
    pub split: Split,
    /// Scalable units.
    pub units: Vec<Unit>,
    /// Groups of a dragonfly; empty elsewhere.
    pub groups: Vec<Group>,
    /// Capacity of each leaf with compute hosts, in the order of the graph.
    pub leaves: Vec<LeafCapacity>,
    /// Capacity of each tier, leaves first.
    pub tiers: Vec<TierCapacity>,
    /// Bandwidth between halves, where the structure reports it.
    pub bisection: Option<Bisection>,
    /// What depends on one part.
    pub single_points: SinglePoints,
}

impl Structure {
    /// Planes: networks of the same hosts. One where there is a network and it is not split so.
    pub fn planes(&self) -> usize {
        match self.split {
            Split::Planes => self.networks.len(),
            _ => usize::from(!self.networks.is_empty()),
        }
    }

    /// Rails of the widest network.
    pub fn rails(&self) -> usize {
        let rails = self.networks.iter().map(|network| network.rails.len());
        match self.split {
            Split::Rails => self.networks.len(),
            _ => rails.max().unwrap_or(0),
        }
    }
}
