//! The fabric as displayed: nodes by rails, leaves by units, switches by tiers, each with its state.

mod build;
mod known;
mod units;

use std::collections::HashMap;

use railscope_model::fabric::Sightings;
use railscope_model::identity::{NodeName, Part, PciAddress, PortName, SwitchName};

use crate::serve::wire::witnesses::SeenTogether;

/// How a part fares. Ordered from well to ill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Seen, and no incident names it.
    Ok,
    /// No source reports anything about it now.
    Unknown,
    /// Works worse than it should.
    Degraded,
    /// Does not work.
    Down,
}

impl Health {
    /// Every state, from well to ill.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Unknown, Self::Degraded, Self::Down];

    /// Name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Degraded => "degraded",
            Self::Down => "down",
        }
    }
}

/// Health of a part and the worst incident that names it, as its place in the view's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// How it fares.
    pub health: Health,
    /// The incident that reports it.
    pub incident: Option<usize>,
}

impl Condition {
    /// A state that no incident is behind.
    pub fn plain(health: Health) -> Self {
        Self {
            health,
            incident: None,
        }
    }

    /// Keeps the worse of both.
    pub fn worsen(&mut self, other: Self) {
        if other.health > self.health {
            *self = other;
        }
    }
}

/// The other end of a NIC's cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Port of the NIC.
    pub port: u16,
    /// The switch, by its place in [`Layout::switches`].
    pub switch: usize,
    /// Port of the switch.
    pub switch_port: PortName,
    /// Width and speed, where a source reported them.
    pub speed: Option<String>,
    /// The witnesses of the cable, and when each saw it.
    pub seen_by: Sightings,
    /// Whether anybody still shows the cable.
    pub present: bool,
}

/// One RDMA device of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Device name.
    pub device: String,
    /// Column of the matrix.
    pub column: usize,
    /// Rail, from 0, where it is known.
    pub rail: Option<u16>,
    /// Its cables, by port.
    pub uplinks: Vec<Uplink>,
    /// How it fares.
    pub condition: Condition,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name.
    pub name: NodeName,
    /// GPUs that its exporter reports about.
    pub gpus: usize,
    /// RDMA devices, by column.
    pub nics: Vec<Nic>,
    /// The node itself: its GPUs, its PCIe, its being there. NICs have their own condition.
    pub inside: Condition,
    /// Whether its exporter was seen lately; `None` if none is configured.
    pub heard: Option<bool>,
    /// The unit it belongs to, by its place in [`Layout::units`].
    pub unit: Option<usize>,
}

impl Host {
    /// The worst of node and NICs.
    pub fn worst(&self) -> Condition {
        let mut worst = self.inside;
        self.nics.iter().for_each(|nic| worst.worsen(nic.condition));
        worst
    }
}

/// Cables to one neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trunk {
    /// The other switch, by its place in [`Layout::switches`].
    pub switch: usize,
    /// Cables that a source shows.
    pub present: usize,
    /// Cables that no source shows any more.
    pub lost: usize,
    /// Their witnesses, and when each saw them.
    pub seen_by: SeenTogether,
    /// The worst of them.
    pub condition: Condition,
}

/// One switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Name.
    pub name: SwitchName,
    /// GUID, as text.
    pub guid: Option<String>,
    /// Ports that it has.
    pub ports: u16,
    /// Tier, 1 for leaves; 0 where none is known.
    pub tier: u8,
    /// Cables to NICs: host and NIC of the host, by place.
    pub hosts: Vec<(usize, usize)>,
    /// Cables to other switches.
    pub trunks: Vec<Trunk>,
    /// The rail of most of its NICs.
    pub rail: Option<u16>,
    /// The unit of most of its hosts.
    pub unit: Option<usize>,
    /// The switch itself or one of its cables.
    pub condition: Condition,
}

/// Nodes behind the same leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// `su-1`, in the order of its first node.
    pub name: String,
    /// Its nodes, by place.
    pub hosts: Vec<usize>,
    /// Its leaves, by place.
    pub leaves: Vec<usize>,
}

/// The fabric as displayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Nodes by name, numbers in names by value.
    pub hosts: Vec<Host>,
    /// Switches by tier, unit, rail and name.
    pub switches: Vec<Switch>,
    /// Units.
    pub units: Vec<Unit>,
    /// Titles of the matrix' columns: rails, or devices where no rail is known.
    pub columns: Vec<String>,
    /// GPUs in all.
    pub gpus: usize,
    host_places: HashMap<NodeName, usize>,
    /// What sits at a PCIe function of a node: `NIC mlx5_3`, `GPU 3`.
    functions: HashMap<(usize, PciAddress), String>,
    /// Far ends of cables between switches.
    far_ends: HashMap<(SwitchName, PortName), (SwitchName, PortName)>,
    switch_places: HashMap<SwitchName, usize>,
}

impl Layout {
    /// The place of a node.
    pub fn host_place(&self, name: &NodeName) -> Option<usize> {
        self.host_places.get(name).copied()
    }

    /// A node by name.
    pub fn host(&self, name: &NodeName) -> Option<&Host> {
        self.host_place(name).map(|place| &self.hosts[place])
    }

    /// The place of a switch.
    pub fn switch_place(&self, name: &SwitchName) -> Option<usize> {
        self.switch_places.get(name).copied()
    }

    /// A switch by name.
    pub fn switch(&self, name: &SwitchName) -> Option<&Switch> {
        self.switch_place(name).map(|place| &self.switches[place])
    }

    /// The highest tier.
    pub fn levels(&self) -> u8 {
        self.switches
            .iter()
            .map(|switch| switch.tier)
            .max()
            .unwrap_or(0)
    }

    /// Switches of one tier with their places.
    pub fn tier(&self, tier: u8) -> impl Iterator<Item = (usize, &Switch)> {
        self.switches
            .iter()
            .enumerate()
            .filter(move |(_, switch)| switch.tier == tier)
    }

    /// NICs in all.
    pub fn nics(&self) -> usize {
        self.hosts.iter().map(|host| host.nics.len()).sum()
    }

    /// What sits at a PCIe function of a node: `NIC mlx5_3`, `GPU 3`.
    pub fn function(&self, node: &NodeName, pci: PciAddress) -> Option<&str> {
        self.functions
            .get(&(self.host_place(node)?, pci))
            .map(String::as_str)
    }

    /// The far end of a cable between two switches.
    pub fn far_end(&self, switch: &SwitchName, port: &PortName) -> Option<&(SwitchName, PortName)> {
        self.far_ends.get(&(switch.clone(), port.clone()))
    }

    /// The NIC behind a part, if it is one or its cable.
    pub fn nic(&self, part: &Part) -> Option<&Nic> {
        let device = match part {
            Part::Nic(_, device) => device,
            Part::HostLink(_, port) => &port.device,
            _ => return None,
        };
        self.host(part.node()?)?
            .nics
            .iter()
            .find(|nic| nic.device == device.as_str())
    }
}

/// What a tier is called: the top of two is the spine, of three the core.
pub fn tier_name(tier: u8, levels: u8) -> &'static str {
    match (tier, levels) {
        (0, _) => "unplaced",
        (1, _) => "leaf",
        (2, _) => "spine",
        (3, 3) => "core",
        _ => "upper",
    }
}
