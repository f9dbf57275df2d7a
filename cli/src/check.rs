//! `railscope check`: what this node should give and what it gives; exit status 0 nothing found, 1 findings, 2 no answer.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use railscope_exporter::check::{self, Report, Verdict};

use crate::check_file::{self, FileReport};
use crate::machine::MachineArgs;

/// Check which metrics this node can provide, which are missing, and how to fix each gap. Exit status: 0 no
/// findings, 1 findings, 2 the check itself failed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Output format of the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Recordings of nodes to check instead of this machine: nvidia-smi -q (text or XML), topo -m, nvlink -s or -e, NCCL's or
    /// hwloc's XML, kernel log; of switches: counters of interfaces and PFC of SONiC, interfaces and link log of Junos. Files
    /// or directories, one file for each node. Several nodes are compared with each other.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
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
    if !args.file.is_empty() {
        return of_files(&args);
    }
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

fn of_files(args: &CheckArgs) -> ExitCode {
    let printed = check_file::run(&args.file).and_then(|report: FileReport| {
        write(match args.format {
            Format::Text => report.text(),
            Format::Json => json(&report)?,
        })?;
        Ok(report.is_clean())
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("railscope: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn json(report: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_json::to_string_pretty(report).context("cannot write JSON")
}

fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    write(match format {
        Format::Text => report.text(),
        Format::Json => json(report)?,
    })
}

fn write(mut text: String) -> anyhow::Result<()> {
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}
