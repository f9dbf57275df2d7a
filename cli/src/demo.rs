//! `railscope demo`: a GPU cluster in a box, watched by real exporters and the real collector.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use clap::builder::PossibleValuesParser;
use railscope_collector::config::Config;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::fault::Fault;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::tree::{BYTES_PER_NODE, ClusterTree};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as flag;

mod clock;
pub(crate) mod nodes;
mod watch;

use clock::{Clock, now};
use nodes::Nodes;
use watch::Api;

/// How often the collector scrapes exporters and looks at the subnet, and how often it judges: faster than
/// its defaults, because somebody is watching.
const SCRAPE_INTERVAL: &str = "2s";
const ANALYSIS_INTERVAL: &str = "1s";
/// `--fault` for a cluster that stays healthy.
const NO_FAULT: &str = "none";

/// Shows Railscope at work: simulates a GPU cluster, breaks one part of it and finds the culprit.
///
/// Nodes are simulated at the boundary of the real interfaces (/sys, /proc, NVML, ibnetdiscover);
/// exporters, collector and page are the real ones. Needs no GPU, no network and no privileges.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Nodes, 1 to 256, each with 8 GPUs and 8 NICs.
    #[arg(long, default_value_t = 32)]
    nodes: u16,
    /// Picks the noise and the part that fails.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Address of the page, `host:port`.
    #[arg(long, default_value = "127.0.0.1:10661")]
    listen: String,
    /// What to break.
    #[arg(long, default_value = "pcie-degraded", value_parser = faults())]
    fault: String,
    /// When to break it after the start, such as 5s.
    #[arg(long, default_value = "5s", value_parser = crate::duration::parse)]
    fault_after: Duration,
    /// When to stop by itself, such as 2m; else runs until Ctrl-C.
    #[arg(long, value_parser = crate::duration::parse)]
    duration: Option<Duration>,
}

/// Faults that the collector finds today. The simulator knows more, see `railscope_simulator::fault::CAUSES`.
const FOUND: &[&str] = &[
    "pcie-degraded",
    "port-down",
    "port-degraded",
    "link-errors",
    "miscabled-rail",
    "gpu-thermal",
];

fn faults() -> PossibleValuesParser {
    PossibleValuesParser::new(FOUND.iter().copied().chain([NO_FAULT]))
}

/// Runs the demo until Ctrl-C, SIGTERM or the end of `--duration`.
pub(crate) fn run(args: &DemoArgs, log: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        let stop = stop_on_signals()?;
        demo(args, log, &stop).await
    });
    // Nothing of ours is left on it but connections that clients keep open.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Turns true at the first Ctrl-C or SIGTERM, or when somebody sends; the second signal ends the process at once.
fn stop_on_signals() -> anyhow::Result<flag::Sender<bool>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let (stop, _) = flag::channel(false);
    let asked = stop.clone();
    tokio::spawn(async move {
        for asked_before in [false, true] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if asked_before {
                // Somebody asked twice: whatever hangs is not waited for. 130 is a shell's code for Ctrl-C.
                #[allow(clippy::disallowed_methods)]
                std::process::exit(130);
            }
            println!("Stopping; Ctrl-C again ends at once.");
            asked.send_replace(true);
        }
    });
    Ok(stop)
}

async fn demo(args: &DemoArgs, log: &str, stop: &flag::Sender<bool>) -> anyhow::Result<()> {
    // First, so that a port that is taken costs no time.
    let listener = TcpListener::bind(&args.listen).await.map_err(|error| {
        let address = &args.listen;
        anyhow!(
            "cannot listen on {address}: {error}; choose another address with --listen host:port"
        )
    })?;
    let api = Api::new(format!("http://{}", listener.local_addr()?))?;
    let spec =
        ClusterSpec::demo(args.nodes).map_err(|error| anyhow!("--nodes: {}", error.problem))?;
    let cluster = Cluster::new(spec, args.seed)?;
    let fault = fault(args, &cluster)?;
    println!(
        "Starting {} nodes with {} GPUs behind {} switches ...",
        args.nodes,
        cluster.spec().gpus(),
        cluster.plan().switches.len()
    );
    let log = log.to_owned();
    let started = tokio::task::spawn_blocking(move || {
        let tree = ClusterTree::create(&cluster, now(), &folder(cluster.nodes().len()))?;
        let nodes = Nodes::start(&tree, &log)?;
        anyhow::Ok((cluster, tree, nodes))
    });
    let (cluster, tree, nodes) = started.await??;
    let config = collector_config(&cluster, &tree, &nodes)?;
    let culprit = fault
        .as_ref()
        .and_then(|fault| url_of(&cluster, &nodes, fault));
    let clock = Clock::start(cluster, tree)?;
    let mut stopped = stop.subscribe();
    let mut collector = tokio::spawn(railscope_collector::run::run(
        config,
        listener,
        async move {
            // An error means that the sender is gone, and with it the demo.
            stopped.wait_for(|stop| *stop).await.ok();
        },
    ));

    let mut stopped = stop.subscribe();
    let shown = tokio::select! {
        shown = show(args, &api, &nodes, &clock, fault, culprit) => shown,
        _ = stopped.wait_for(|stop| *stop) => Ok(()),
        () = end_of(args.duration) => Ok(()),
        () = clock.failed() => Ok(()), // stopping it says why
        ended = &mut collector => ended.context("the collector panicked")?.context("collector"),
    };
    stop.send_replace(true);
    if !collector.is_finished() {
        collector
            .await
            .context("the collector panicked")?
            .context("collector")?;
    }
    let stopping = tokio::task::spawn_blocking(move || {
        // The exporters first, so that nobody reads files that go.
        let nodes = nodes.stop();
        clock.stop().and(nodes)
    });
    shown.and(stopping.await?)
}

/// Where the cluster's files go: into memory where that has the room, because thousands of them change every
/// second and none is worth a disk's time. Who sets TMPDIR decides.
fn folder(nodes: usize) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let needed = nodes as u64 * BYTES_PER_NODE;
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|about| about.f_bavail.saturating_mul(about.f_frsize) > 2 * needed);
    if has_room && std::env::var_os("TMPDIR").is_none() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

async fn end_of(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// What `--fault` asks for; its time is set when it happens.
fn fault(args: &DemoArgs, cluster: &Cluster) -> anyhow::Result<Option<Fault>> {
    if args.fault == NO_FAULT {
        return Ok(None);
    }
    examples::fault(cluster, &args.fault, args.seed, 0.0)
        .map(Some)
        .with_context(|| format!("this cluster has nothing for --fault {}", args.fault))
}

/// The collector's configuration, through the same file format that a user writes.
fn collector_config(
    cluster: &Cluster,
    tree: &ClusterTree,
    nodes: &Nodes,
) -> anyhow::Result<Config> {
    let mut text = format!(
        "cluster = {{ name = \"demo\" }}\n\
         scrape = {{ interval = \"{SCRAPE_INTERVAL}\" }}\n\
         analysis = {{ interval = \"{ANALYSIS_INTERVAL}\" }}\n\
         subnet = {{ file = {:?}, interval = \"{SCRAPE_INTERVAL}\" }}\n\n",
        tree.subnet()
    );
    for (node, url) in cluster.nodes().iter().zip(&nodes.urls) {
        text.push_str(&format!(
            "[[targets]]\nnode = \"{}\"\nurl = \"{url}\"\n",
            node.name
        ));
    }
    Config::parse(&text, &tree.path().join("collector.toml"))
        .context("the demo's own configuration")
}

/// Exporter of the node that the fault is in.
fn url_of(cluster: &Cluster, nodes: &Nodes, fault: &Fault) -> Option<String> {
    let name = fault.part.node()?;
    let place = cluster.nodes().iter().position(|node| node.name == *name)?;
    nodes.urls.get(place).cloned()
}

async fn show(
    args: &DemoArgs,
    api: &Api,
    nodes: &Nodes,
    clock: &Clock,
    fault: Option<Fault>,
    culprit: Option<String>,
) -> anyhow::Result<()> {
    api.wait_for(nodes.urls.len()).await?;
    let base = &api.base;
    println!("\n  page        {base}/");
    println!("  incidents   {base}/api/v1/incidents");
    println!("  metrics     {base}/metrics");
    for url in nodes.urls.iter().take(2) {
        println!("  exporter    {url}");
    }
    let Some(fault) = fault else {
        println!("\nNothing is broken: no incident should open. Ctrl-C stops.");
        return api.tell(None).await;
    };
    println!("\nIn {:?} one part breaks. Ctrl-C stops.", args.fault_after);
    tokio::select! {
        told = api.tell(None) => told?,
        () = tokio::time::sleep(args.fault_after) => {}
    }
    println!("\n  BROKEN: {} {}.", fault.part, fault.effect);
    let truth = clock.inject(fault).await?;
    let since = Instant::now();
    match truth.slowdown {
        Some(slowdown) => println!(
            "    Every GPU waits for the slowest in each step: all of them now take {slowdown:.2} times as long.\n    \
             No NIC stands out by its traffic; find the one that all the others wait for."
        ),
        None => println!("    Every GPU waits in its collective: the job stands still."),
    }
    if let Some(url) = culprit {
        println!("    The culprit's own exporter: {url}?profile=full");
    }
    api.tell(Some((&truth, since))).await
}

#[cfg(test)]
mod tests {
    use railscope_collector::core::classes;

    use super::*;

    #[test]
    fn every_fault_leads_to_an_incident_class_that_the_collector_knows() {
        let spec = ClusterSpec::demo(4).expect("four nodes");
        let mut cluster = Cluster::new(spec, 1).expect("cluster");
        for cause in FOUND {
            let fault = examples::fault(&cluster, cause, 1, 0.0).expect(cause);
            let class = cluster.inject(fault).expect(cause).class;
            assert!(
                classes::CLASSES.iter().any(|known| known.name == class),
                "{class}"
            );
        }
    }
}
