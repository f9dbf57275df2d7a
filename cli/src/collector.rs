//! `railscope collector`, `railscope check-config` and `railscope topology`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use railscope_collector::config::Config;
use railscope_collector::run::run as run_collector;
use railscope_collector::subnet::{Subnet, parse_ibnetdiscover};
use railscope_collector::topology::{assign_rails, judge, merge_subnet};
use railscope_model::fabric::{Fabric, Timestamp};
use tokio::signal::unix::{SignalKind, signal};

/// Problems of a file that are printed one by one.
const SHOWN_PROBLEMS: usize = 10;

/// Scrapes a cluster's exporters, reads its subnet, and serves incidents, API and page.
#[derive(Debug, Args)]
pub(crate) struct CollectorArgs {
    /// Configuration file; see packaging/collector.toml for every key.
    #[arg(long = "config", env = "RAILSCOPE_CONFIG")]
    config: PathBuf,
    /// Address to listen on, `host:port` or `:port`, in place of the file's.
    #[arg(long = "web.listen-address", env = "RAILSCOPE_WEB_LISTEN_ADDRESS")]
    listen_address: Option<String>,
}

/// Checks a collector's configuration file without touching the network.
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// The file.
    file: PathBuf,
}

/// Looks at the shape of a fabric.
#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    #[command(subcommand)]
    command: TopologyCommand,
}

#[derive(Debug, Subcommand)]
enum TopologyCommand {
    /// Says what a fabric is, what that rests on, and what does not fit.
    Show {
        /// Output of ibnetdiscover.
        #[arg(long, value_name = "FILE")]
        ibnetdiscover: PathBuf,
    },
}

/// Runs the collector until Ctrl-C or SIGTERM.
pub(crate) fn run(args: &CollectorArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let address = args
        .listen_address
        .clone()
        .unwrap_or_else(|| config.listen.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        let listener = crate::exporter::listen(&address).await?;
        let at = listener.local_addr().context("cannot tell the address")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        tracing::info!(cluster = config.cluster, "listening on http://{at}/");
        let shutdown = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("stopping");
        };
        run_collector(config, listener, shutdown)
            .await
            .context("the collector stopped")
    });
    // Nothing of ours is left on it but connections that clients keep open.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Checks a configuration file and says so.
pub(crate) fn check_config(args: &CheckConfigArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.file)?;
    println!(
        "{}: OK: cluster {}, {} targets here, {} files of targets, mappings for {}, {}",
        args.file.display(),
        config.cluster,
        config.targets.len(),
        config.file_sd.len(),
        config
            .mappings
            .kinds()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" "),
        if config.subnet.is_some() {
            "a subnet source"
        } else {
            "no subnet source"
        }
    );
    Ok(())
}

/// Prints the verdict on a fabric.
pub(crate) fn topology(args: &TopologyArgs) -> anyhow::Result<()> {
    let TopologyCommand::Show {
        ibnetdiscover: file,
    } = &args.command;
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let subnet = parse_ibnetdiscover(&String::from_utf8_lossy(&text));
    report_problems(file, &subnet);
    if subnet.nodes.is_empty() {
        bail!(
            "{}: no node in it: expected the output of ibnetdiscover (infiniband-diags)",
            file.display()
        );
    }
    let mut fabric = Fabric::default();
    let merge = merge_subnet(&mut fabric, &subnet, Timestamp(0));
    assign_rails(&mut fabric);
    print!("{}", judge(&fabric, &merge));
    Ok(())
}

/// Says on standard error which lines could not be read; nothing is skipped silently.
fn report_problems(file: &Path, subnet: &Subnet) {
    for problem in subnet.problems.iter().take(SHOWN_PROBLEMS) {
        eprintln!("{}: {problem}", file.display());
    }
    let all = subnet.counts.problems;
    if all > SHOWN_PROBLEMS {
        eprintln!(
            "{}: and {} more problems",
            file.display(),
            all - SHOWN_PROBLEMS
        );
    }
}
