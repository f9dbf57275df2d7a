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
    /// What is wrong with each of those.
    pub wrong: Vec<Wrong>,
}

/// Why a neighbour could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Line of the text where it begins; 0 where that is not known.
    pub line: usize,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: &'static str,
}

impl Told {
    /// Counts a neighbour that cannot be read.
    pub(super) fn refuse(&mut self, line: usize, found: String, expected: &'static str) {
        self.unparsed += 1;
        self.wrong.push(Wrong {
            line,
            found,
            expected,
        });
    }

    /// Takes a neighbour, unless its words have been made unreadable before the text was passed on.
    pub(super) fn take(&mut self, line: usize, neighbour: Neighbour) {
        let words = [
            &neighbour.local,
            &neighbour.chassis,
            &neighbour.port,
            &neighbour.system,
        ];
        let redacted = words.into_iter().find(|word| is_redacted(word));
        match redacted.map(|word| format!("{word:?}")) {
            Some(found) => self.refuse(
                line,
                found,
                "the real name or address: this one has been blacked out",
            ),
            None => self.neighbours.push(neighbour),
        }
    }
}

/// Whether a word stands where another one was taken out.
fn is_redacted(word: &str) -> bool {
    let word = word.trim();
    let lower = word.to_ascii_lowercase();
    let all = |signs: &str| word.len() > 2 && word.chars().all(|sign| signs.contains(sign));
    lower.contains("redacted")
        || all("*")
        || all("xX:.-")
        || (word.starts_with('<') && word.ends_with('>'))
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
