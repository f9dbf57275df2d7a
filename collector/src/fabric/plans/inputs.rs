//! Table of all input formats that Railscope reads, and of well-known ones that it does not. `docs/inputs.md` is
//! generated from it, and error messages name the format that an unrecognized text resembles most.

mod hints;
mod table;

use std::fmt::Write as _;

pub use hints::{hint, is_binary, nearest};
pub use table::INPUTS;

/// The document that lists all formats.
pub const DOCUMENT: &str = "docs/inputs.md";

/// One input format.
#[derive(Debug, PartialEq, Eq)]
pub struct Input {
    /// Name of the format, as its users call it.
    pub form: &'static str,
    /// The command or service that reads it.
    pub reader: Reader,
    /// Data that it contains; what to use instead if it is unsupported.
    pub content: &'static str,
    /// Strings that identify the format, the most specific first.
    pub marks: &'static [&'static str],
}

/// What reads a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    /// `railscope topology`.
    Topology,
    /// `railscope check --file`, and also `railscope topology`.
    Node,
    /// `railscope check --file` only.
    Check,
    /// `railscope collectives`.
    Collectives,
    /// The exporter, with this option.
    Exporter(&'static str),
    /// The collector, with this setting.
    Collector(&'static str),
    /// Nothing: the format is not supported.
    Unsupported,
}

impl Reader {
    /// The command or setting that reads the format.
    pub fn command(self) -> &'static str {
        match self {
            Self::Topology => "railscope topology show FILE",
            Self::Node | Self::Check => "railscope check --file FILE",
            Self::Collectives => "railscope collectives FILE",
            Self::Exporter(option) => option,
            Self::Collector(setting) => setting,
            Self::Unsupported => "nothing",
        }
    }
}

const fn input(
    form: &'static str,
    reader: Reader,
    content: &'static str,
    marks: &'static [&'static str],
) -> Input {
    Input {
        form,
        reader,
        content,
        marks,
    }
}

/// Text of `docs/inputs.md`.
pub fn document() -> String {
    let mut text = String::from(
        "# Input formats\n\nSupported formats by reader. Generated from the table in `collector/src/fabric/plans/inputs/table.rs`; do not edit.\n\
         For an unrecognized text the error names the most similar format. Commands accept several files and directories;\n\
         an unusable file is reported and the others are read. [Ten files with a fault](answers.md) show what the answers look like.\n\n",
    );
    let titles = [
        (
            "Fabrics: `railscope topology show`, `lint`, `diff`, `export`",
            "The format is detected from the content; `--format` overrides it ([topology.md](topology.md)).",
        ),
        (
            "Nodes and switches: `railscope check --file`",
            "One file for each node; several are compared with each other. `railscope topology` also reads those of nodes.",
        ),
        (
            "Jobs: `railscope collectives`",
            "See [collectives.md](collectives.md).",
        ),
        (
            "Recordings for the exporter",
            "Used instead of the live host.",
        ),
        ("The collector", "Scraped, pushed, or read from a file."),
        ("Unsupported", "With alternatives."),
    ];
    for (group, (title, about)) in titles.iter().enumerate() {
        let of_group = INPUTS.iter().filter(|input| place(input.reader) == group);
        writeln!(text, "## {title}\n\n{about}\n").ok();
        let with_command = matches!(group, 3 | 4);
        text += if with_command {
            "| format | read by | content |\n|---|---|---|\n"
        } else {
            "| format | content |\n|---|---|\n"
        };
        for input in of_group {
            // Writing to a string does not fail.
            match with_command {
                true => writeln!(
                    text,
                    "| {} | `{}` | {} |",
                    input.form,
                    input.reader.command(),
                    input.content
                )
                .ok(),
                false => writeln!(text, "| {} | {} |", input.form, input.content).ok(),
            };
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn place(reader: Reader) -> usize {
    match reader {
        Reader::Topology => 0,
        Reader::Node | Reader::Check => 1,
        Reader::Collectives => 2,
        Reader::Exporter(_) => 3,
        Reader::Collector(_) => 4,
        Reader::Unsupported => 5,
    }
}
