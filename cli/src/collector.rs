//! `railscope collector` and `railscope check-config`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use railscope_collector::config::Config;
use railscope_collector::service::{Beside, run_beside};

use crate::telemetry;
use railscope_otlp::Settings;
use tokio::signal::unix::{SignalKind, signal};

/// Scrape a cluster's exporters, read its subnet, and serve incidents, API and web page.
#[derive(Debug, Args)]
pub(crate) struct CollectorArgs {
    /// Configuration file; see packaging/collector.toml for every key.
    #[arg(long = "config", env = "RAILSCOPE_CONFIG")]
    config: PathBuf,
    /// Address to listen on, `host:port` or `:port`, instead of that in the file.
    #[arg(long = "web.listen-address", env = "RAILSCOPE_WEB_LISTEN_ADDRESS")]
    listen_address: Option<String>,
}

/// Check a collector's configuration file without using the network.
#[derive(Debug, Args)]
pub(crate) struct CheckConfigArgs {
    /// The file.
    file: PathBuf,
}

/// Runs the collector until Ctrl-C or SIGTERM.
pub(crate) fn run(args: &CollectorArgs, log: &str) -> anyhow::Result<()> {
    let config = Config::load(&args.config)?;
    let address = args
        .listen_address
        .clone()
        .unwrap_or_else(|| config.listen.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let service = ("railscope-collector", telemetry::host_name());
    let otlp = telemetry::start(log, &config.otlp, service, runtime.handle())?;
    let result = runtime.block_on(async {
        let listener = crate::exporter::listen(&address).await?;
        let at = listener.local_addr().context("cannot read the address")?;
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
        let beside = Beside {
            otlp,
            ..Beside::default()
        };
        run_beside(config, listener, beside, shutdown)
            .await
            .context("the collector stopped")
    });
    // Nothing of ours is left on it but connections that clients keep open.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Checks a configuration file and reports it.
pub(crate) fn check_config(args: &CheckConfigArgs) -> anyhow::Result<()> {
    let config = Config::load(&args.file)?;
    // The environment here may differ from that of the collector.
    Settings::resolve(&config.otlp, &|_| None).with_context(|| args.file.display().to_string())?;
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

#[cfg(test)]
mod tests {
    use railscope_collector::mapping::Mappings;

    /// A mapping that cannot be read is omitted: with the features of libraries as the binary is built, none is.
    #[test]
    fn this_binary_knows_every_exporter_that_has_a_mapping() {
        let kinds = Mappings::default();
        let kinds: Vec<_> = kinds.kinds().collect();
        let documented = include_str!("../../docs/other-exporters.md");
        for kind in &kinds {
            assert!(documented.contains(&format!("| `{kind}`")), "{kind}");
        }
        let rows = documented.lines().filter(|line| line.starts_with("| `"));
        // The first row is the table's heading.
        assert_eq!(rows.count(), 1 + kinds.len(), "{kinds:?}");
    }
}
