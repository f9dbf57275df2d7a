//! LLDP neighbors: fields from an exporter's labels, or from a switch's neighbor table.

use railscope_model::label;
use railscope_model::metric::{LLDP_NEIGHBOR, Label};
use railscope_model::reading::Labels;

/// Neighbor table of a switch, from a file or a command's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// Neighbors, each with the switch's own port.
    pub neighbors: Vec<Neighbor>,
    /// Number of invalid neighbors.
    pub unparsed: usize,
    /// Error of each invalid neighbor.
    pub wrong: Vec<Wrong>,
}

/// Error of an invalid neighbor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Line where the neighbor begins; 0 if unknown.
    pub line: usize,
    /// Text found.
    pub found: String,
    /// Text expected.
    pub expected: &'static str,
}

impl Told {
    /// Records an invalid neighbor.
    pub(super) fn refuse(&mut self, line: usize, found: String, expected: &'static str) {
        self.unparsed += 1;
        self.wrong.push(Wrong {
            line,
            found,
            expected,
        });
    }

    /// Adds a neighbor, unless its fields were redacted.
    pub(super) fn take(&mut self, line: usize, neighbor: Neighbor) {
        let words = [
            &neighbor.local,
            &neighbor.chassis,
            &neighbor.port,
            &neighbor.system,
        ];
        let redacted = words.into_iter().find(|word| is_redacted(word));
        match redacted.map(|word| format!("{word:?}")) {
            Some(found) => self.refuse(
                line,
                found,
                "the actual name or address: this one is redacted",
            ),
            None => self.neighbors.push(neighbor),
        }
    }
}

/// Whether a word replaces redacted text.
fn is_redacted(word: &str) -> bool {
    let word = word.trim();
    let lower = word.to_ascii_lowercase();
    let all = |signs: &str| word.len() > 2 && word.chars().all(|sign| signs.contains(sign));
    lower.contains("redacted")
        || all("*")
        || all("xX:.-")
        || (word.starts_with('<') && word.ends_with('>'))
}

/// One neighbor of a switch, as printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Neighbor {
    /// The switch's own port.
    pub local: String,
    /// Chassis id of the neighbor.
    pub chassis: String,
    /// Port id of the neighbor.
    pub port: String,
    /// System name of the neighbor; may be empty.
    pub system: String,
    /// Port description of the neighbor; may be empty.
    pub description: String,
    /// Whether the neighbor advertises bridging or routing; `None` if not advertised.
    pub forwards: Option<bool>,
}

/// What one end of a cable advertises, as received by the other end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Said<'a> {
    /// In the labels of [`LLDP_NEIGHBOR`].
    Exporter(&'a Labels),
    /// In a row of a switch's table.
    Switch(&'a Neighbor),
}

impl<'a> Said<'a> {
    /// Chassis id, mostly a MAC address.
    pub fn chassis(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "chassis"), |neighbor| {
            &neighbor.chassis
        })
    }

    /// Port id.
    pub fn port(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "port"), |neighbor| &neighbor.port)
    }

    /// System name; may be empty.
    pub fn system(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "system"), |neighbor| &neighbor.system)
    }

    /// Port description; may be empty.
    pub fn description(self) -> &'a str {
        self.word(label!(LLDP_NEIGHBOR, "description"), |neighbor| {
            &neighbor.description
        })
    }

    /// Whether it advertises packet forwarding; `None` if not advertised.
    pub fn forwards(self) -> Option<bool> {
        match self {
            Self::Exporter(_) => None,
            Self::Switch(neighbor) => neighbor.forwards,
        }
    }

    fn word(self, label: Label, field: impl Fn(&'a Neighbor) -> &'a String) -> &'a str {
        match self {
            Self::Exporter(labels) => labels.get(label).unwrap_or_default(),
            Self::Switch(neighbor) => field(neighbor),
        }
    }
}
