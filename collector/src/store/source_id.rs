//! Sources and the parts that they report about: several exporters may be sources of one node, and
//! one for many switches.

use std::fmt;
use std::sync::Arc;

use railscope_model::identity::{NodeName, SwitchName};

/// A part that has a separate history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A host.
    Node(NodeName),
    /// A switch.
    Switch(SwitchName),
}

impl Subject {
    /// The node's name, if it is one.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node(node) => Some(node),
            Self::Switch(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Switch(switch) => switch.fmt(f),
        }
    }
}

/// One exporter that is a source of a part. The order is the precedence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speaker {
    /// The exporter's rank: 0 is Railscope's own.
    pub precedence: u8,
    /// What distinguishes it from others of its rank: its address.
    pub name: Arc<str>,
}

impl Default for Speaker {
    /// Railscope's own exporter, or the collector itself.
    fn default() -> Self {
        Self {
            precedence: 0,
            name: Arc::from(""),
        }
    }
}
