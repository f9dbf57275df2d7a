//! From a subnet and exporters' readings to the fabric graph, its tiers and rails, and a first verdict on it.

mod build;
mod display;
mod judge;
mod lldp;
mod names;
mod rails;
mod shapes;
mod survey;
mod tiers;
mod verdict;

pub use build::{Chassis, DuplicateName, SubnetMerge, merge_subnet};
pub use judge::judge;
pub use lldp::{Contradiction, End, Heard, LldpMerge, Words, merge_lldp};
pub use names::{is_aggregation_node, is_unnamed_host};
pub use rails::{AbsentLeaf, LeafRail, Misplaced, MissingRail, Wiring, assign_rails, wiring};
pub use shapes::{HostClass, HostRole};
pub use tiers::{Tiers, tiers};
pub use verdict::{Confidence, Kind, Oversubscription, SelfLoop, ServiceHost, Speeds, Verdict};
