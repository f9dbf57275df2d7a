//! The one binary: `railscope exporter`, `collector`, `demo`, `check`, `check-config`, `topology`.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod check;
mod collector;
mod exporter;
mod machine;

/// Which part of a GPU cluster's fabric is slow, why, and whom it hurts.
#[derive(Debug, Parser)]
#[command(name = "railscope", version)]
struct Cli {
    /// What to log, such as info or railscope_exporter=debug.
    #[arg(long, env = "RAILSCOPE_LOG", default_value = "info", global = true)]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exporter(exporter::ExporterArgs),
    Check(check::CheckArgs),
    Collector(collector::CollectorArgs),
    CheckConfig(collector::CheckConfigArgs),
    Topology(collector::TopologyArgs),
    /// Reads NVML for the exporter that started it.
    #[command(name = machine::WORKER_SUBCOMMAND, hide = true)]
    NvmlWorker(exporter::WorkerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = match EnvFilter::try_new(&cli.log) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("railscope: --log {:?}: {error}", cli.log);
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
    let result = match cli.command {
        Command::Exporter(args) => exporter::run(args),
        // Its exit status says more than success or failure.
        Command::Check(args) => return check::run(args),
        Command::Collector(args) => collector::run(&args),
        Command::CheckConfig(args) => collector::check_config(&args),
        Command::Topology(args) => collector::topology(&args),
        Command::NvmlWorker(args) => exporter::run_nvml_worker(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("railscope: {error:#}");
            ExitCode::FAILURE
        }
    }
}
