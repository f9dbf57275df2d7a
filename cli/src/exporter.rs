//! `railscope exporter` and the hidden `railscope nvml-worker` that it starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use railscope_exporter::{
    Config, Exporter, Limits, Machine, NetworkAccess, NvmlAccess, run_worker, serve,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Name of the worker's subcommand, which is in no help text.
pub(crate) const WORKER_SUBCOMMAND: &str = "nvml-worker";

/// Reads this node's GPUs, PCIe links and RDMA ports and serves them to Prometheus.
#[derive(Debug, Args)]
pub(crate) struct ExporterArgs {
    /// Address to listen on, `host:port` or `:port`.
    #[arg(
        long = "web.listen-address",
        env = "RAILSCOPE_WEB_LISTEN_ADDRESS",
        default_value = ":10660"
    )]
    listen_address: String,
    /// Where sysfs is mounted.
    #[arg(
        long = "path.sysfs",
        env = "RAILSCOPE_PATH_SYSFS",
        default_value = "/sys"
    )]
    sysfs: PathBuf,
    /// Where procfs is mounted.
    #[arg(
        long = "path.procfs",
        env = "RAILSCOPE_PATH_PROCFS",
        default_value = "/proc"
    )]
    procfs: PathBuf,
    /// The kernel log, for XIDs; reading it needs CAP_SYSLOG or kernel.dmesg_restrict=0.
    #[arg(
        long = "path.kmsg",
        env = "RAILSCOPE_PATH_KMSG",
        default_value = "/dev/kmsg"
    )]
    kmsg: PathBuf,
    /// NVML library, by name or path.
    #[arg(
        long = "nvml.library",
        env = "RAILSCOPE_NVML_LIBRARY",
        default_value = "libnvidia-ml.so.1"
    )]
    nvml_library: PathBuf,
    /// Time between two NVML samples, such as 5s; at least 1s, because polling costs the jobs on the GPU.
    #[arg(long = "nvml.period", env = "RAILSCOPE_NVML_PERIOD", default_value = "5s", value_parser = period)]
    nvml_period: Duration,
    /// Leave GPUs out.
    #[arg(long = "no-nvml", env = "RAILSCOPE_NO_NVML")]
    no_nvml: bool,
    /// Program that lists LLDP neighbours, by name or path. Without an answer from it the exporter listens
    /// itself, for which it needs the capability CAP_NET_RAW.
    #[arg(
        long = "lldp.lldpctl",
        env = "RAILSCOPE_LLDP_LLDPCTL",
        default_value = "lldpctl"
    )]
    lldpctl: PathBuf,
    /// Recordings of ethtool, dcb and lldpctl below this directory, in place of the kernel's answers.
    #[arg(
        long = "path.network-recordings",
        env = "RAILSCOPE_PATH_NETWORK_RECORDINGS"
    )]
    network_recordings: Option<PathBuf>,
    /// Leave out the thread on each NUMA node that watches how late timers fire.
    #[arg(long = "no-jitter-probe", env = "RAILSCOPE_NO_JITTER_PROBE")]
    no_jitter_probe: bool,
    /// Name of the node, in place of its host name.
    #[arg(long = "node.name", env = "RAILSCOPE_NODE_NAME")]
    node_name: Option<String>,
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
pub(crate) fn run(args: ExporterArgs) -> anyhow::Result<()> {
    let address = args.listen_address.clone();
    let exporter = Arc::new(Exporter::start(config(args)?).context("cannot start the exporter")?);
    // Samplers have threads of their own; one more is enough to answer scrapes.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the HTTP server")?;
    let served = runtime.block_on(async {
        let listener = listen(&address).await?;
        let at = listener.local_addr().context("cannot tell the address")?;
        tracing::info!("listening on http://{at}/metrics");
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
        let shutdown = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("stopping");
        };
        let served = serve(Arc::clone(&exporter), listener, shutdown).await;
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

fn config(args: ExporterArgs) -> anyhow::Result<Config> {
    let nvml = if args.no_nvml {
        None
    } else {
        let this_binary = std::env::current_exe().context("cannot find this very binary")?;
        Some(NvmlAccess {
            library: args.nvml_library,
            worker: vec![this_binary, WORKER_SUBCOMMAND.into()],
            period: args.nvml_period,
        })
    };
    let network = match args.network_recordings {
        Some(root) => NetworkAccess::Recorded(root),
        None => NetworkAccess::Kernel {
            lldpctl: args.lldpctl,
        },
    };
    Ok(Config {
        machine: Machine {
            sysfs: args.sysfs,
            procfs: args.procfs,
            kmsg: Some(args.kmsg),
            nvml,
            network,
            jitter_probe: !args.no_jitter_probe,
        },
        node_name: args.node_name,
        limits: Limits::default(),
    })
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

/// Reads a time of at least a second.
fn period(text: &str) -> Result<Duration, String> {
    let period = crate::duration::parse(text)?;
    if period < Duration::from_secs(1) {
        return Err(format!("{text:?} is too short: at least 1s"));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_with_its_unit() {
        assert_eq!(period("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(period("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(period("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(period("2"), Ok(Duration::from_secs(2)));
        for bad in [
            "",
            "s",
            "5h",
            "0.5s",
            "-1s",
            "1e400",
            "NaN",
            "99999999999999999999999s",
        ] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
