//! From a subnet and exporters' readings to the fabric graph, its tiers and rails, and a first result on it.

pub mod addresses;
pub mod classify;
mod diff;
pub mod graph;
mod lid_routes;
pub mod lint;
pub mod lldp;
pub mod plans;
mod routes;
pub mod subnet;

pub use crate::fabric::classify::classifier::{judge, understand};
pub use crate::fabric::classify::rails::{
    AbsentLeaf, FABRIC_SHARE, LeafRail, MISPLACED_LIMIT, Misplaced, MissingRail, Wiring,
    assign_rails, wiring,
};
pub use crate::fabric::classify::structure::{
    Bisection, Group, LeafCapacity, MAX_SINGLE_POINTS, Network, SinglePoint, SinglePoints, Split,
    Structure, TierCapacity, Unit,
};
pub use crate::fabric::classify::units::{UnitMembers, units};
pub use crate::fabric::classify::verdict::{
    Confidence, Kind, Oversubscription, SelfLoop, ServiceHost, Speeds, Verdict,
};
pub use crate::fabric::graph::build::{Chassis, DuplicateName, SubnetMerge, merge_subnet};
pub use crate::fabric::graph::host_classes::{HostClass, HostRole};
pub(crate) use crate::fabric::graph::names::is_rdma_device;
pub use crate::fabric::graph::names::{is_aggregation_node, is_unnamed_host, short_switch_name};
pub use crate::fabric::graph::planned::plan_fabric;
pub use crate::fabric::graph::tiers::{Tiers, tiers};
pub use diff::{Change, Ends, Socket, diff, has_cables, net};
pub use lid_routes::LidRoutes;
pub use lldp::{
    Contradiction, End, Heard, HostWords, Interfaces, LldpMerge, Mac, Neighbor, Neighbors,
    PortNumber, Said, SwitchNumber, SwitchPorts, SwitchWords, Told, Words, Wrong, merge_lldp,
    neighbors_of_switches, unlisted_hosts,
};
pub use routes::{CableUse, PathSet, Routes};
