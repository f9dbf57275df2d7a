//! From a subnet and exporters' readings to the fabric graph, its tiers and rails, and a first verdict on it.

mod build;
mod capacity;
mod cuts;
mod diff;
mod display;
mod graph;
mod groups;
mod judge;
mod kinds;
pub mod lint;
mod lldp;
mod names;
mod networks;
mod planned;
mod rails;
mod routes;
mod shapes;
mod structure;
mod survey;
mod tiers;
mod units;
mod verdict;

pub use build::{Chassis, DuplicateName, SubnetMerge, merge_subnet};
pub use diff::{Change, Ends, Socket, diff, has_cables, net};
pub use judge::{judge, understand};
pub use lldp::{
    Contradiction, End, Heard, HostWords, Interfaces, LldpMerge, Mac, Neighbour, PortNumber, Said,
    SwitchNumber, SwitchPorts, SwitchWords, Told, Words, merge_lldp,
};
pub use names::{is_aggregation_node, is_unnamed_host};
pub use planned::plan_fabric;
pub use rails::{
    AbsentLeaf, FABRIC_SHARE, LeafRail, MISPLACED_LIMIT, Misplaced, MissingRail, Wiring,
    assign_rails, wiring,
};
pub use routes::{CableUse, PathSet, Routes};
pub use shapes::{HostClass, HostRole};
pub use structure::{
    Bisection, Group, LeafCapacity, MAX_SINGLE_POINTS, Network, SinglePoint, SinglePoints, Split,
    Structure, TierCapacity, Unit,
};
pub use tiers::{Tiers, tiers};
pub use units::{UnitMembers, units};
pub use verdict::{Confidence, Kind, Oversubscription, SelfLoop, ServiceHost, Speeds, Verdict};
