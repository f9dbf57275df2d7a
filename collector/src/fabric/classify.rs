//! What a fabric is: kind, rails, capacity, single points of failure.

pub(crate) mod capacity;
pub(crate) mod classifier;
pub(crate) mod display;
pub(crate) mod home_leaves;
pub(crate) mod kinds;
pub(crate) mod networks;
mod odd;
pub(crate) mod rails;
pub(crate) mod single_points;
pub(crate) mod structure;
pub(crate) mod units;
pub(crate) mod verdict;
