//! What cluster to simulate: a short description that a person writes.

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

use crate::spec::shape::NodeKind;
use crate::traffic::router::Routing;

mod nodes;
pub mod pci_layout;
pub mod products;
pub mod shape;

pub use nodes::Group;

/// A cluster on one fabric. Serde-able, so that it can be in a TOML file:
///
/// ```toml
/// nodes = 64
/// node = "hgx-h100"
/// [wiring]
/// kind = "rail-optimized"
/// nodes_per_su = 32
/// [switches]
/// radix = 64
/// [[changes]]
/// missing = "link/gpu-node-03:mlx5_2/1"
/// [[groups]]
/// node = "dgx-a100"
/// nodes = 16
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSpec {
    /// Nodes in all.
    pub nodes: u16,
    /// What kind of nodes.
    #[serde(default)]
    pub node: NodeKind,
    /// Nodes of other kinds, from the first node on; the rest is as `node` specifies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// GPUs in each node, if fewer than its kind has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u8>,
    /// NICs in each node, if fewer than its kind has. NIC `i` is on rail `i`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics_per_node: Option<u8>,
    /// Ports of each NIC, 1 or 2: each port goes to a separate fabric, a plane, and no cable joins planes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub planes: u8,
    /// The protocol of the cables.
    #[serde(default, skip_serializing_if = "Transport::is_infiniband")]
    pub transport: Transport,
    /// Whether senders of RoCE slow down when receivers notify them of marked packets; else pause alone
    /// keeps queues from running over.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub dcqcn: bool,
    /// Speed of the switches: that of the fastest NIC if omitted. A cable runs at the slower of its ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// Which switch each NIC is connected to.
    pub wiring: WiringSpec,
    /// What the tree above the NICs is made of.
    #[serde(default)]
    pub switches: Switches,
    /// How switches choose among equal paths.
    #[serde(default)]
    pub routing: Routing,
    /// Where the cables differ from the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

const fn one() -> u8 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_one(number: &u8) -> bool {
    *number == 1
}

const fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_yes(flag: &bool) -> bool {
    *flag
}

/// The protocol of the cables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// InfiniBand: a subnet manager has every cable.
    #[default]
    Infiniband,
    /// RDMA over Ethernet that is lossless by pause on one priority (RoCE v2, PFC): neighbors report each
    /// other their identity by LLDP, and no component has all of them.
    Roce,
    /// The reliable datagrams of EFA, in a cloud whose fabric is not visible on a node. Nodes of its kind need it,
    /// and no other node can have it.
    Efa,
}

impl Transport {
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
    const fn is_infiniband(&self) -> bool {
        matches!(self, Self::Infiniband)
    }

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infiniband => "infiniband",
            Self::Roce => "roce",
            Self::Efa => "efa",
        }
    }
}

/// Speed of the fabric, by its InfiniBand generation: four lanes of it on every cable. The kernel names the
/// lanes of Ethernet by InfiniBand's generations too: 400 Gb/s are 4X NDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    /// 100 Gb/s.
    Edr,
    /// 200 Gb/s.
    Hdr,
    /// 400 Gb/s.
    Ndr,
}

impl Speed {
    /// Width and speed of a cable.
    pub const fn link(self) -> LinkSpeed {
        let speed = match self {
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
        };
        LinkSpeed { lanes: 4, speed }
    }
}

/// Which switch each NIC is connected to. One variant for each kind of fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WiringSpec {
    /// Rail `r` of all nodes of a scalable unit on one leaf; the rails meet further up.
    #[serde(alias = "rail-optimised")]
    RailOptimized {
        /// Nodes behind the same leaves.
        nodes_per_su: u16,
        /// Where the rails meet.
        #[serde(default)]
        rails_meet: RailsMeet,
    },
    /// As rail-optimized, and the rails never meet: each is a separate fabric.
    RailOnly {
        /// Nodes behind the same leaves.
        nodes_per_su: u16,
    },
    /// Leaves are filled in the order of nodes and NICs, whatever the node: a plain fat-tree.
    FatTree,
    /// All NICs of a node on one leaf, as behind a director or in a RoCE leaf-spine by rack.
    HostGrouped {
        /// Nodes on each leaf.
        nodes_per_leaf: u16,
    },
    /// Groups of routers, all joined to all within a group, and each group to each other group by several
    /// cables. The NICs of a node go round the routers of its group.
    Dragonfly {
        /// Routers in each group.
        routers_per_group: u16,
        /// Nodes in each group.
        nodes_per_group: u16,
        /// Cables of each router to other groups.
        global_ports: u16,
    },
}

/// Where the rails of a rail-optimized tree meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RailsMeet {
    /// At the spines: a spine joins leaves of all rails.
    #[default]
    Spine,
    /// At the cores: a spine joins leaves of one rail. Three tiers.
    Core,
}

/// What the tree above the NICs is made of. Sizes that are omitted follow from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switches {
    /// Ports of every switch.
    #[serde(default = "quantum_2_ports")]
    pub radix: u16,
    /// Tiers of switches, 2 or 3.
    #[serde(default = "two", skip_serializing_if = "is_two")]
    pub tiers: u8,
    /// Uplinks of a leaf: half of its ports, unless fewer specify how far it is oversubscribed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplinks: Option<u16>,
    /// Spines over which a leaf spreads its uplinks evenly: as few as have the ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spines: Option<u16>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            radix: QUANTUM_2_PORTS,
            tiers: 2,
            uplinks: None,
            spines: None,
        }
    }
}

impl Switches {
    /// Uplinks of a leaf.
    pub fn leaf_uplinks(&self) -> u16 {
        self.uplinks.unwrap_or(self.radix / 2)
    }

    /// Ports of a leaf that are for NICs.
    pub fn leaf_downlinks(&self) -> u16 {
        self.radix.saturating_sub(self.leaf_uplinks())
    }
}

const fn quantum_2_ports() -> u16 {
    QUANTUM_2_PORTS
}

const fn two() -> u8 {
    2
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
const fn is_two(number: &u8) -> bool {
    *number == 2
}

/// One cable that is not as planned. Cables are named as parts: `link/gpu-node-03:mlx5_2/1` by their host
/// end, `link/leaf-su0-r3:33` between switches by their lower end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is not plugged.
    Missing(Part),
    /// The upper ends of two cables are in each other's place.
    Swapped([Part; 2]),
}

/// A cluster that cannot be built, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Field of the specification.
    pub field: &'static str,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl SpecError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self { field, problem }
    }
}

/// NDR ports of a Quantum-2 switch (NVIDIA QM9700 data sheet).
const QUANTUM_2_PORTS: u16 = 64;
/// Nodes of one scalable unit of an H100 SuperPOD (NVIDIA DGX SuperPOD reference architecture, H100).
const NODES_PER_SU: u16 = 32;
/// What two tiers of 64-port switches carry: one cable from every leaf to every spine.
const LARGEST_TWO_TIER: u16 = NODES_PER_SU * (QUANTUM_2_PORTS / 8);

impl ClusterSpec {
    /// The cluster of the demo: nodes with 8 GPUs and 8 NDR NICs on a rail-optimized fabric of 64-port
    /// switches, with as many spines as carry all uplinks. 32 nodes are one scalable unit.
    ///
    /// # Errors
    /// No nodes, or more than two tiers carry (256 nodes, 2,048 GPUs).
    pub fn demo(nodes: u16) -> Result<Self, SpecError> {
        if nodes == 0 || nodes > LARGEST_TWO_TIER {
            return Err(SpecError::new(
                "nodes",
                format!(
                    "found {nodes}, expected 1 to {LARGEST_TWO_TIER} (two tiers of {QUANTUM_2_PORTS}-port switches carry no more)"
                ),
            ));
        }
        Ok(Self {
            nodes,
            node: NodeKind::default(),
            groups: Vec::new(),
            gpus_per_node: None,
            nics_per_node: None,
            planes: 1,
            transport: Transport::default(),
            dcqcn: true,
            speed: None,
            wiring: WiringSpec::RailOptimized {
                nodes_per_su: NODES_PER_SU,
                rails_meet: RailsMeet::Spine,
            },
            switches: Switches::default(),
            routing: Routing::default(),
            changes: Vec::new(),
        })
    }

    fn check_transport(&self) -> Result<(), SpecError> {
        let found = self.transport;
        for kind in self.kinds_present() {
            if !kind.shape().speaks(found) {
                let own = match kind.transport() {
                    Transport::Efa => "efa, and no nodes of other kinds",
                    _ => "infiniband or roce",
                };
                let problem = format!("found {} with node {kind}, expected {own}", found.name());
                return Err(SpecError::new("transport", problem));
            }
        }
        let ports = if found == Transport::Efa { 1 } else { 2 };
        within("planes", self.planes.into(), 1..=ports, "ports of a NIC")?;
        if self.dcqcn || found == Transport::Roce {
            return Ok(());
        }
        let problem = format!(
            "found false on {}, expected it with transport roce only",
            found.name()
        );
        Err(SpecError::new("dcqcn", problem))
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        within("nodes", self.nodes, 1..=u16::MAX, "any number of nodes")?;
        self.check_nodes()?;
        self.check_transport()?;
        let Switches { radix, tiers, .. } = self.switches;
        within("switches.radix", radix, 4..=1024, "ports of a switch")?;
        within(
            "switches.tiers",
            tiers.into(),
            2..=3,
            "a tree that is cabled today",
        )?;
        let uplinks = self.switches.leaf_uplinks();
        within(
            "switches.uplinks",
            uplinks,
            1..=radix - 1,
            "and ports left for NICs",
        )?;
        let down = self.switches.leaf_downlinks();
        let per_node = self.most_nics();
        match self.wiring {
            WiringSpec::RailOptimized { nodes_per_su, .. }
            | WiringSpec::RailOnly { nodes_per_su } => within(
                "wiring.nodes_per_su",
                nodes_per_su,
                1..=down,
                "a leaf's ports for NICs",
            ),
            WiringSpec::FatTree => Ok(()),
            WiringSpec::HostGrouped { nodes_per_leaf } => within(
                "wiring.nodes_per_leaf",
                nodes_per_leaf,
                1..=down / per_node,
                "a leaf's ports for NICs",
            ),
            WiringSpec::Dragonfly {
                routers_per_group,
                nodes_per_group,
                global_ports,
            } => {
                within(
                    "wiring.routers_per_group",
                    routers_per_group,
                    1..=radix,
                    "joined all to all",
                )?;
                let nics = nodes_per_group
                    .saturating_mul(per_node)
                    .div_ceil(routers_per_group);
                let used = nics
                    .saturating_add(global_ports)
                    .saturating_add(routers_per_group - 1);
                within(
                    "wiring.nodes_per_group",
                    nodes_per_group,
                    1..=u16::MAX,
                    "some",
                )?;
                within(
                    "switches.radix",
                    radix,
                    used..=1024,
                    "NICs, the other routers of the group and other groups",
                )
            }
        }
    }
}

/// Refuses a number outside of its range.
fn within(
    field: &'static str,
    found: u16,
    range: std::ops::RangeInclusive<u16>,
    why: &str,
) -> Result<(), SpecError> {
    if range.contains(&found) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(SpecError::new(
        field,
        format!("found {found}, expected {least} to {most} ({why})"),
    ))
}
