//! `railscope check`: what this node should give and what it gives; exit status 0 nothing found, 1 findings, 2 no answer.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use railscope_exporter::check::{self, Report, Verdict};

use crate::machine::MachineArgs;

/// Says what this node should give, what it gives and how to mend the difference. Exit status: 0 nothing
/// found, 1 findings, 2 the check itself failed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// How to print the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Reads the machine once and prints the table.
pub(crate) fn run(args: CheckArgs) -> ExitCode {
    let printed = args.machine.machine().and_then(|machine| {
        let report = check::run(&machine);
        print(&report, args.format)?;
        Ok(report)
    });
    match printed {
        Ok(report) if report.count(Verdict::Finding) == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("railscope: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    let mut text = match format {
        Format::Text => report.text(),
        Format::Json => serde_json::to_string_pretty(report).context("cannot write JSON")?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}
