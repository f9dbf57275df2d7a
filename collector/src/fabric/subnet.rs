//! The InfiniBand subnet as a sweep saw it: nodes, cables, and an account of every line that could not be read.
//!
//! [`parse_ibnetdiscover`] reads text; a sweep by other means fills the same [`Subnet`].

pub(crate) mod claims;
pub mod counters;
mod cursor;
pub mod forwarding;
mod join;
mod line;
mod parse;
pub(crate) mod silent_ports;

use std::fmt;

use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

pub use crate::fabric::subnet::claims::{PortClaim, Survey};
pub use forwarding::{Forwarding, parse_forwarding};
pub use parse::parse_ibnetdiscover;

/// Problems kept with their text. More are only counted: a file of another kind has one in every line.
pub const MAX_PROBLEMS: usize = 1000;
/// Characters of the input kept in [`Problem::found`].
pub const MAX_FOUND: usize = 80;

/// What a node of the subnet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A switch ASIC.
    Switch,
    /// A channel adapter: an HCA, or the aggregation node inside a switch.
    Ca,
    /// A router between subnets.
    Router,
}

/// One node of the subnet.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Node GUID. The `-p` form prints port GUIDs only, and this holds that of the first port seen.
    pub guid: Guid,
    /// System image GUID: one for all ports of a card and all ASICs of a chassis.
    pub system_guid: Option<Guid>,
    /// Vendor id, an IEEE company id.
    pub vendor: Option<u32>,
    /// Device id of the vendor.
    pub device: Option<u32>,
    /// Ports that it reports it has; in the `-p` form the highest port seen.
    pub ports: u16,
    /// Node description, unchanged but for outer white space; empty where none was printed.
    pub description: String,
    /// Local identifier: of port 0 for a switch, of the first port for others.
    pub lid: Option<u16>,
    /// Whether the node was swept itself; otherwise it is known only from the far end of a cable.
    pub swept: bool,
}

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Node GUID.
    pub guid: Guid,
    /// Port number, from 1.
    pub port: u16,
}

/// A cable, once, although a sweep sees it from both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cable {
    /// Both ends, the one seen first before the other.
    pub ends: [End; 2],
    /// Width and speed now; none where no end reports, or where the ends report different things.
    pub speed: Option<LinkSpeed>,
    /// Whether both ends showed it.
    pub both_ends: bool,
}

/// Something in the input that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1; 0 for an own sweep, which has no lines.
    pub line: usize,
    /// Byte in the line, from 1, where it is known.
    pub column: Option<usize>,
    /// What was being read.
    pub field: &'static str,
    /// What was expected there.
    pub expected: &'static str,
    /// What was found there, cut to [`MAX_FOUND`] characters.
    pub found: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}", self.line)?;
            if let Some(column) = self.column {
                write!(f, ", column {column}")?;
            }
            write!(f, ": ")?;
        }
        write!(
            f,
            "{}: expected {}, found {:?}",
            self.field, self.expected, self.found
        )
    }
}

/// Where every line went: `lines == blank + comments + read + unread`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Lines of the text.
    pub lines: usize,
    /// Empty lines.
    pub blank: usize,
    /// Comments and section titles.
    pub comments: usize,
    /// Lines that were understood, if not in every field.
    pub read: usize,
    /// Lines that were not understood. Each has a [`Problem`].
    pub unread: usize,
    /// All problems, also those past [`MAX_PROBLEMS`].
    pub problems: usize,
    /// Ports that the text shows without a cable (the `-p` form prints them).
    pub ports_without_cable: usize,
    /// Cables that were dropped, because their ends contradict each other or an end has no GUID.
    pub dropped_cables: usize,
}

/// What the text reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// When it was made, as printed: `Tue Feb 23 14:02:06 2021`.
    pub generated: Option<String>,
    /// GUID of the node that the sweep started from.
    pub started_at: Option<Guid>,
}

/// Why a sweep cannot be complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// No node at all.
    Empty,
    /// Nodes that cables lead to and that were not swept themselves.
    NotSwept {
        /// How many.
        nodes: usize,
        /// One of them: its description, or its GUID.
        example: String,
    },
    /// Cables that only one of two swept ends shows.
    OneSided {
        /// How many.
        cables: usize,
        /// The end that shows one of them.
        example: End,
    },
    /// Swept nodes without any cable.
    WithoutCables {
        /// How many.
        nodes: usize,
    },
    /// A section that stops before it reports what node it is about.
    HeadlessSection {
        /// Line on which the section begins.
        line: usize,
    },
    /// Lines of nodes or cables that could not be read.
    LostLines {
        /// How many.
        lines: usize,
    },
    /// The text stops inside a line.
    EndsInsideLine {
        /// The line.
        line: usize,
    },
    /// Ports behind which a device did not respond in time; see [`Subnet::recall`].
    Silent {
        /// How many.
        ports: usize,
        /// One of them.
        example: End,
    },
    /// Warnings of the tool itself that do not lead to a port.
    ToolWarned {
        /// How many.
        lines: usize,
    },
    /// The node that the sweep started from is not in it.
    StartMissing {
        /// Its GUID.
        guid: Guid,
    },
}

/// A number of things, as text: `1 node`, `3 nodes`.
pub(crate) fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some_nodes = |nodes: usize| counted(nodes, "node", "nodes");
        match self {
            Self::Empty => write!(f, "no node in it"),
            Self::NotSwept { nodes, example } => write!(
                f,
                "{} known only from the far end of a cable, such as {example:?}",
                some_nodes(*nodes)
            ),
            Self::OneSided { cables, example } => write!(
                f,
                "{} shown by one end only, such as port {} of {}",
                counted(*cables, "cable", "cables"),
                example.port,
                example.guid
            ),
            Self::WithoutCables { nodes } => write!(f, "{} without any cable", some_nodes(*nodes)),
            Self::HeadlessSection { line } => write!(f, "the section at line {line} names no node"),
            Self::LostLines { lines } => write!(
                f,
                "{} of nodes or cables could not be read",
                counted(*lines, "line", "lines")
            ),
            Self::EndsInsideLine { line } => write!(f, "the text stops inside line {line}"),
            Self::Silent { ports, example } => write!(
                f,
                "no answer in time behind {}, such as port {} of {}",
                counted(*ports, "port", "ports"),
                example.port,
                example.guid
            ),
            Self::ToolWarned { lines } => write!(
                f,
                "{} of the sweeping tool",
                counted(*lines, "warning", "warnings")
            ),
            Self::StartMissing { guid } => write!(
                f,
                "the node that the sweep started from, {guid}, is not in it"
            ),
        }
    }
}

/// Whether a sweep can be complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// Nothing reports that something is missing.
    Complete,
    /// Something is missing.
    Partial {
        /// What reports it; never empty.
        reasons: Vec<Gap>,
    },
}

impl Default for Completeness {
    fn default() -> Self {
        Self::Partial {
            reasons: vec![Gap::Empty],
        }
    }
}

impl Completeness {
    /// Complete without any gap.
    pub(crate) fn of(gaps: Vec<Gap>) -> Self {
        if gaps.is_empty() {
            Self::Complete
        } else {
            Self::Partial { reasons: gaps }
        }
    }

    fn into_gaps(self) -> Vec<Gap> {
        match self {
            Self::Complete => Vec::new(),
            Self::Partial { reasons } => reasons,
        }
    }

    /// The reasons why it is partial; none if it is complete.
    pub fn gaps(&self) -> &[Gap] {
        match self {
            Self::Complete => &[],
            Self::Partial { reasons } => reasons,
        }
    }
}

/// A sweep of the subnet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Subnet {
    /// What the text reports about itself.
    pub header: Header,
    /// Nodes in the order in which they were first named. Every GUID occurs once.
    pub nodes: Vec<Node>,
    /// Cables in the order in which they were first shown. Both ends are in `nodes`.
    pub links: Vec<Cable>,
    /// LIDs of the ports that have one: of those with several the first.
    pub lids: Vec<(End, u16)>,
    /// Forwarding tables of its switches, where they were read for this very shape of it.
    pub forwarding: Option<Forwarding>,
    /// Ports behind which a device did not respond in time, in order.
    pub silent: Vec<End>,
    /// The first [`MAX_PROBLEMS`] problems, in the order of their lines.
    pub problems: Vec<Problem>,
    /// Where every line went.
    pub counts: Counts,
    /// Whether it can be complete.
    pub completeness: Completeness,
}
