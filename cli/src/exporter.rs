//! `railscope exporter` and the hidden `railscope nvml-worker` that it starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use railscope_exporter::{
    Config, Exporter, Limits, Machine, WebSecurity, keep_memory_flat, run_worker, serve,
    serve_secured,
};
use railscope_model::exposition::Format;
use railscope_model::metric::Profile;
use railscope_otlp::{Otlp, Table};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::machine::MachineArgs;
use crate::probing::{Fetcher, ProbeArgs};
use crate::telemetry;

/// Read this node's GPUs, PCIe links and RDMA ports and serve their metrics to Prometheus.
#[derive(Debug, Args)]
pub(crate) struct ExporterArgs {
    /// Address to listen on, `host:port` or `:port`.
    #[arg(
        long = "web.listen-address",
        env = "RAILSCOPE_WEB_LISTEN_ADDRESS",
        default_value = ":10660"
    )]
    listen_address: String,
    /// TLS, client certificates and passwords: the `web-config.yml` of Prometheus' exporters.
    #[arg(
        long = "web.config.file",
        env = "RAILSCOPE_WEB_CONFIG_FILE",
        value_name = "FILE"
    )]
    web_config: Option<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    probes: ProbeArgs,
    /// Name of the node, instead of its host name.
    #[arg(long = "node.name", env = "RAILSCOPE_NODE_NAME")]
    node_name: Option<String>,
    /// Sample this many times as often as usual, for endurance tests.
    #[arg(
        long = "sample.hurry",
        env = "RAILSCOPE_SAMPLE_HURRY",
        default_value_t = 1,
        hide = true
    )]
    hurry: u32,
}

/// Arguments of the NVML worker: what the exporter starts it with.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// NVML library, by name or path.
    #[arg(long)]
    library: OsString,
    /// Seconds between two samples.
    #[arg(long)]
    period: f64,
}

/// Runs the exporter until Ctrl-C or SIGTERM.
pub(crate) fn run(args: ExporterArgs, log: &str) -> anyhow::Result<()> {
    keep_memory_flat();
    // Samplers have their own threads; one more is enough to serve scrapes.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the HTTP server")?;
    let host = args.node_name.clone().unwrap_or_else(telemetry::host_name);
    let service = ("railscope-exporter", host);
    let mut otlp = telemetry::start(log, &Table::default(), service, runtime.handle())?;
    let address = args.listen_address.clone();
    let security = args.web_config.as_deref().map(WebSecurity::load);
    let security = security.transpose().context("--web.config.file")?;
    let (mut config, fetcher) = config(args)?;
    config.machine.otlp = otlp.as_ref().map(Otlp::stats_reader);
    let exporter = Arc::new(Exporter::start(config).context("cannot start the exporter")?);
    if let Some(otlp) = &mut otlp {
        let exporter = Arc::clone(&exporter);
        #[expect(
            clippy::disallowed_methods,
            reason = "since when our counters count, read once"
        )]
        let start = SystemTime::now();
        otlp.export_metrics(start, move || {
            let page = exporter.page();
            let text = page.body(Profile::Default, Format::Text, false);
            String::from_utf8_lossy(&text).into_owned()
        });
    }
    let served = runtime.block_on(async {
        let listener = listen(&address).await?;
        let at = listener.local_addr().context("cannot read the address")?;
        let tls = security.as_ref().is_some_and(WebSecurity::speaks_tls);
        let scheme = if tls { "https" } else { "http" };
        tracing::info!("listening on {scheme}://{at}/metrics");
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        let shutdown = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("stopping");
        };
        if let Some(fetcher) = fetcher {
            tokio::spawn(fetcher.run());
        }
        let exporter = Arc::clone(&exporter);
        let served = match security {
            Some(security) => serve_secured(exporter, listener, Arc::new(security), shutdown).await,
            None => serve(exporter, listener, shutdown).await,
        };
        if let Some(otlp) = otlp {
            otlp.shutdown().await;
        }
        served.with_context(|| format!("serving on {address} failed"))
    });
    // Connections that clients keep open hold the exporter; they end with the runtime.
    drop(runtime);
    exporter.stop();
    served
}

/// Runs the NVML worker until the exporter that started it ends.
pub(crate) fn run_nvml_worker(args: &WorkerArgs) -> anyhow::Result<()> {
    let period = Duration::try_from_secs_f64(args.period).context("--period")?;
    Ok(run_worker(&args.library, period)?)
}

/// The exporter's settings, and the fetcher of its probe list.
fn config(args: ExporterArgs) -> anyhow::Result<(Config, Option<Fetcher>)> {
    let (probes, fetcher) = args.probes.access()?;
    let config = Config {
        machine: Machine {
            probes,
            ..args.machine.machine()?
        },
        node_name: args.node_name,
        limits: Limits::default(),
        hurry: args.hurry,
    };
    Ok((config, fetcher))
}

/// Listens on `host:port`, or on every address for `:port`.
pub(crate) async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let failed = || format!("cannot listen on {address:?} (expected host:port or :port)");
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await.with_context(failed);
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Ok(listener) => Ok(listener),
        // A kernel without IPv6.
        Err(_) => TcpListener::bind(format!("0.0.0.0:{port}"))
            .await
            .with_context(failed),
    }
}
