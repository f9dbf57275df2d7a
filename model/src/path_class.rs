//! Classes of paths: two NICs of one class are the same distance apart, so their latencies may be compared.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How far apart the two ends of a path are, by the graph. The label `path_class`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathClass {
    /// Both NICs are on one leaf switch.
    SameLeaf,
    /// Both are on one rail, behind different leaves.
    SameRail,
    /// They are on different rails of one scalable unit.
    CrossRail,
    /// They are in different scalable units and share no rail.
    CrossSu,
    /// One end is a storage server.
    Storage,
    /// The path belongs to the management network.
    Management,
    /// The list of probes does not specify it.
    Unknown,
}

impl PathClass {
    /// Every class, in the order in which web pages show them.
    pub const ALL: [Self; 7] = [
        Self::SameLeaf,
        Self::SameRail,
        Self::CrossRail,
        Self::CrossSu,
        Self::Storage,
        Self::Management,
        Self::Unknown,
    ];

    /// The class of a path between two NICs of different nodes in a fabric, each given by its leaf and its rail.
    /// `share_leaf` is whether any NICs of the two nodes are on one leaf, so that they are in one scalable unit.
    pub fn between<L: PartialEq>(
        (leaf, rail): (L, Option<u16>),
        (peer_leaf, peer_rail): (L, Option<u16>),
        share_leaf: impl FnOnce() -> bool,
    ) -> Self {
        if leaf == peer_leaf {
            Self::SameLeaf
        } else if rail.is_some() && rail == peer_rail {
            Self::SameRail
        } else if share_leaf() {
            Self::CrossRail
        } else {
            Self::CrossSu
        }
    }

    /// The value of the label `path_class`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameLeaf => "same-leaf",
            Self::SameRail => "same-rail",
            Self::CrossRail => "cross-rail",
            Self::CrossSu => "cross-su",
            Self::Storage => "storage",
            Self::Management => "management",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for PathClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no path class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no path class: expected one of {}", PathClass::ALL.map(PathClass::name).join(", "))]
pub struct UnknownPathClass {
    /// What was read.
    pub found: String,
}

impl FromStr for PathClass {
    type Err = UnknownPathClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|class| class.name() == text);
        named.ok_or_else(|| UnknownPathClass {
            found: text.to_owned(),
        })
    }
}

impl Serialize for PathClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for PathClass {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_reads_as_it_is_written_and_others_are_refused_by_name() {
        for class in PathClass::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        let refused = "spine"
            .parse::<PathClass>()
            .map_err(|error| error.to_string());
        let expected = "\"spine\" is no path class: expected one of same-leaf, same-rail, cross-rail, cross-su, storage, management, unknown";
        assert_eq!(refused, Err(expected.to_owned()));
    }
}
