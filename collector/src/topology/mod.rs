//! From a subnet and exporters' readings to the fabric graph, its tiers and rails, and a first verdict on it.

mod build;
mod capacity;
mod cuts;
mod display;
mod graph;
mod groups;
mod judge;
mod kinds;
mod names;
mod networks;
mod rails;
mod shapes;
mod structure;
mod survey;
mod tiers;
mod units;
mod verdict;

pub use build::{Chassis, DuplicateName, SubnetMerge, merge_subnet};
pub use judge::judge;
pub use names::{is_aggregation_node, is_unnamed_host};
pub use rails::{AbsentLeaf, LeafRail, Misplaced, MissingRail, Wiring, assign_rails, wiring};
pub use shapes::{HostClass, HostRole};
pub use structure::{
    Bisection, Group, LeafCapacity, MAX_SINGLE_POINTS, Network, SinglePoint, SinglePoints, Split,
    Structure, TierCapacity, Unit,
};
pub use tiers::{Tiers, tiers};
pub use units::{UnitMembers, units};
pub use verdict::{Confidence, Kind, Oversubscription, SelfLoop, ServiceHost, Speeds, Verdict};
