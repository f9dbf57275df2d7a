//! The words of LLDP as an exporter has them in labels, and as a switch has them in a table of neighbours.

use railscope_model::label;
use railscope_model::metric::{LLDP_NEIGHBOR, Label};
use railscope_model::reading::Labels;

/// What a switch told of its neighbours, in a file or as a program's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Neighbours, each with the switch's own port.
    pub neighbours: Vec<Neighbour>,
    /// Neighbours that could not be read.
    pub unparsed: usize,
}

/// One neighbour of a switch, word by word.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// The switch's own port.
    pub local: String,
    /// Chassis id of the neighbour.
    pub chassis: String,
    /// Port id of the neighbour.
    pub port: String,
    /// System name of the neighbour; may be empty.
    pub system: String,
    /// Port description of the neighbour; may be empty.
    pub description: String,
    /// Whether the neighbour says that it bridges or routes; none where nobody told.
    pub forwards: Option<bool>,
}

/// What one end of a cable says of itself, where the other's reader has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Said<'a> {
    /// In the labels of [`LLDP_NEIGHBOR`].
    Exporter(&'a Labels),
    /// In a row of a switch's table.
    Switch(&'a Neighbour),
}

impl<'a> Said<'a> {
    /// Chassis id, mostly a MAC address.
    pub fn chassis(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "chassis"), |neighbour| {
            &neighbour.chassis
        })
    }

    /// Port id.
    pub fn port(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "port"), |neighbour| &neighbour.port)
    }

    /// System name; may be empty.
    pub fn system(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "system"), |neighbour| {
            &neighbour.system
        })
    }

    /// Port description; may be empty.
    pub fn description(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "description"), |neighbour| {
            &neighbour.description
        })
    }

    /// Whether it says that it forwards packets; none where nobody told.
    pub fn forwards(self) -> Option<bool> {
        match self {
            Self::Exporter(_) => None,
            Self::Switch(neighbour) => neighbour.forwards,
        }
    }

    fn word(self, label: Label, field: impl Fn(&'a Neighbour) -> &'a String) -> &'a str {
        match self {
            Self::Exporter(labels) => labels.get(label).unwrap_or_default(),
            Self::Switch(neighbour) => field(neighbour),
        }
    }
}
