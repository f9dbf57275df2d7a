//! Holds the simulator beside public traces of real clusters and writes what differs into `docs/anchors.md`.
//!
//! `cargo run --release -p railscope-simulator --example anchors`, with the recordings beside the checkout.

mod ports;
mod simulated;
mod steps;
mod svg;
mod traces;

use std::path::Path;
use std::process::ExitCode;

use traces::Failure;

/// One section of the document with its charts.
pub(crate) struct Section {
    pub(crate) text: String,
    /// Names of files below `docs/anchors/` and what is in them.
    pub(crate) charts: Vec<(&'static str, String)>,
}

fn main() -> ExitCode {
    let Some(folder) = traces::folder() else {
        println!("skipped: no recordings beside this checkout");
        return ExitCode::SUCCESS;
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<(), Failure> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::create_dir_all(docs.join("anchors"))?;
    let mut text = include_str!("begin.md").to_owned();
    for section in [ports::section(folder)?, steps::section(folder)?] {
        text.push_str(&section.text);
        for (name, svg) in section.charts {
            std::fs::write(docs.join("anchors").join(name), svg)?;
        }
    }
    std::fs::write(docs.join("anchors.md"), text)?;
    Ok(())
}

/// A row of a table.
pub(crate) fn row(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The head of a table.
pub(crate) fn head(cells: &[&str]) -> String {
    let line = row(cells.iter().map(|cell| (*cell).to_owned()));
    format!("\n{line}{}", row(cells.iter().map(|_| "---".to_owned())))
}

/// A number with so many decimals; a dash where there is none.
pub(crate) fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
