//! The one binary: `railscope exporter`, `collector`, `demo`, `check`, `check-config`, `explain`, `runbook`, `advise`, `collectives`, `topology`, `sweep`, `replay`, `simulate`, `eval`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod advise;
mod check;
mod check_file;
mod collectives;
mod collector;
mod demo;
mod duration;
mod eval;
mod explain;
mod exporter;
mod machine;
mod probing;
mod replay;
mod runbook;
mod simulate;
mod sweep;
mod telemetry;
mod topology;

/// Find which component of a GPU cluster's fabric is slow, why, and which jobs it affects.
#[derive(Debug, Parser)]
#[command(name = "railscope", version)]
struct Cli {
    /// What to log, such as info or railscope_exporter=debug; default: info, and warn in demo and replay.
    #[arg(long, env = "RAILSCOPE_LOG", global = true)]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exporter(exporter::ExporterArgs),
    Check(check::CheckArgs),
    Collector(collector::CollectorArgs),
    CheckConfig(collector::CheckConfigArgs),
    Explain(explain::ExplainArgs),
    Runbook(runbook::RunbookArgs),
    Advise(advise::AdviseArgs),
    Collectives(collectives::CollectivesArgs),
    Topology(topology::TopologyArgs),
    Sweep(sweep::SweepArgs),
    Replay(replay::ReplayArgs),
    Demo(demo::DemoArgs),
    Simulate(simulate::SimulateArgs),
    Eval(eval::EvalArgs),
    /// Runs exporters for the demo that started it.
    #[command(name = demo::nodes::NODES_SUBCOMMAND, hide = true)]
    DemoNodes(demo::nodes::NodesArgs),
    /// Reads NVML for the exporter that started it.
    #[command(name = machine::WORKER_SUBCOMMAND, hide = true)]
    NvmlWorker(exporter::WorkerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let quiet = matches!(
        cli.command,
        Command::Demo(_) | Command::DemoNodes(_) | Command::Replay(_)
    );
    let log = cli
        .log
        .unwrap_or_else(|| if quiet { "warn" } else { "info" }.to_owned());
    if let Err(error) = EnvFilter::try_new(&log) {
        eprintln!("railscope: --log {log:?}: {error}");
        return ExitCode::from(2);
    }
    // Exporter and collector begin to log once they know whether they send traces.
    if !matches!(cli.command, Command::Exporter(_) | Command::Collector(_)) {
        telemetry::log(&log);
    }
    let result = match cli.command {
        Command::Exporter(args) => exporter::run(args, &log),
        Command::Collector(args) => collector::run(&args, &log),
        // Its exit status reports more than success or failure.
        Command::Check(args) => return check::run(args),
        Command::Topology(args) => return topology::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Runbook(args) => runbook::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::CheckConfig(args) => collector::check_config(&args),
        Command::Collectives(args) => collectives::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Demo(args) => demo::run(&args, &log),
        Command::Simulate(args) => simulate::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::DemoNodes(args) => demo::nodes::run(&args),
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
