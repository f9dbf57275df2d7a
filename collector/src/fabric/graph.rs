//! The graph itself: its building, names, tiers, groups, classes of hosts.

pub(crate) mod build;
pub(crate) mod frozen;
pub(crate) mod groups;
pub(crate) mod host_classes;
pub(crate) mod index;
pub(crate) mod names;
pub(crate) mod planned;
pub(crate) mod tiers;
