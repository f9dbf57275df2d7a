//! `railscope demo`: a GPU cluster in a box, watched by real exporters and the real collector.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use railscope_collector::config::{Config, Record};
use railscope_collector::service::run_beside;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::CAUSES;
use railscope_simulator::show::readings::addresses as addresses_of;
use railscope_simulator::show::tree::{BYTES_PER_NODE, ClusterTree};
use railscope_simulator::spec::Transport;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch as flag;

mod clock;
mod control;
mod inject;
mod measured;
pub(crate) mod nodes;
#[cfg(test)]
mod rehearsal;
mod scene;
mod stage;
mod switches;
mod wanted;
mod watch;

use clock::{Clock, now};
use nodes::Nodes;
use scene::{SCENES, Scene};
use stage::Stage;
use switches::Counted;
use watch::Api;

/// `--fault` for a cluster that stays healthy, and the default value of `--fault`.
const NO_FAULT: &str = "none";
const USUAL_FAULT: &str = "pcie-degraded";
/// Address of the web page.
const LISTEN: &str = "127.0.0.1:10661";

/// Demonstrate Railscope: simulate a GPU cluster, inject a fault into one component and find it.
///
/// Nodes are simulated at the boundary of the real interfaces (/sys, /proc, NVML, ibnetdiscover);
/// exporters, collector and web page are the real ones. What probes and timers would measure is simulated, too. Needs no
/// GPU, no network and no privileges. While it runs, `railscope demo inject` and "Break something" on the web page inject
/// and end more faults.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Scenario to play: cluster, job, fault, and the expected result of Railscope. `list` prints all.
    #[arg(long, conflicts_with = "fault", value_parser = scenes())]
    scene: Option<String>,
    /// Nodes, 1 to 256, each with 8 GPUs and 8 NICs; default: that of the scene, or 32.
    #[arg(long)]
    nodes: Option<u16>,
    /// Seed for the noise and the component that fails.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Simulated seconds per second, 0.1 to 20. Counters increase faster by this factor, timestamps do not: above
    /// 1, rates exceed what the hardware can do, and rules about error rates report more than they should.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Time between two scrapes of a node, 1s to 5s, and between two readings of its GPUs, of the subnet and of switches;
    /// raise it if the machine is too slow.
    #[arg(long, default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Address of the web page, `host:port`.
    #[arg(long, default_value = LISTEN)]
    listen: String,
    /// Fault to inject, without a scene; default: pcie-degraded. `inject list` describes each.
    #[arg(long, value_parser = faults())]
    fault: Option<String>,
    /// Time from the start to the fault, such as 5s.
    #[arg(long, default_value = "5s", value_parser = crate::duration::parse)]
    fault_after: Duration,
    /// Time after which the demo stops, such as 2m; default: it runs until Ctrl-C.
    #[arg(long, value_parser = crate::duration::parse)]
    duration: Option<Duration>,
    /// Folder for a recording of all that the collector reads; `railscope replay` analyzes it again.
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    Inject(inject::InjectArgs),
}

fn faults() -> PossibleValuesParser {
    PossibleValuesParser::new(CAUSES.iter().copied().chain([NO_FAULT]))
}

fn scenes() -> PossibleValuesParser {
    let names = SCENES.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names.chain([scene::LIST]))
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text
        .parse()
        .ok()
        .filter(|speed| (0.1..=20.0).contains(speed));
    speed.ok_or_else(|| format!("{text:?} is not a number from 0.1 to 20"))
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = crate::duration::parse(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(5);
    let refused = || format!("{text:?} is not a time from 1s to 5s");
    Some(interval)
        .filter(|interval| allowed.contains(interval))
        .ok_or_else(refused)
}

/// Runs the demo until Ctrl-C, SIGTERM or the end of `--duration`.
pub(crate) fn run(args: &DemoArgs, log: &str) -> anyhow::Result<()> {
    if let Some(Action::Inject(args)) = &args.action {
        return inject::run(args);
    }
    let scene = match (args.scene.as_deref(), args.fault.as_deref()) {
        (Some(scene::LIST), _) => return print(&scene::list()?),
        (Some(name), _) => Scene::named(name)?,
        (None, Some(NO_FAULT)) => Scene::of_cause(None),
        (None, cause) => Scene::of_cause(Some(cause.unwrap_or(USUAL_FAULT))),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        let stop = stop_on_signals()?;
        demo(args, &scene, log, &stop).await
    });
    // Nothing of ours is left on it but connections that clients keep open.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Prints a list. A reader may close the pipe early.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print"),
    }
}

/// Turns true at the first Ctrl-C or SIGTERM, or at a message; the second signal ends the process at once.
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
                // The second request: blocked threads are not waited for. 130 is a shell's code for Ctrl-C.
                #[allow(clippy::disallowed_methods)]
                std::process::exit(130);
            }
            println!("Stopping; Ctrl-C again ends at once.");
            asked.send_replace(true);
        }
    });
    Ok(stop)
}

async fn demo(
    args: &DemoArgs,
    scene: &Scene,
    log: &str,
    stop: &flag::Sender<bool>,
) -> anyhow::Result<()> {
    // First, so that a port that is taken costs no time.
    let listener = TcpListener::bind(&args.listen).await.map_err(|error| {
        let address = &args.listen;
        anyhow!(
            "cannot listen on {address}: {error}; choose another address with --listen host:port"
        )
    })?;
    let listening = listener.local_addr()?;
    let api = Api::new(format!("http://{listening}"))?;
    let cluster = scene.cluster(args.nodes, args.seed)?;
    // Before anything starts: a fault that this cluster cannot have.
    scene.faults(&cluster, args.seed)?;
    println!(
        "Starting {} nodes with {} GPUs behind {} switches ...",
        cluster.nodes().len(),
        cluster.spec().gpus(),
        cluster.plan().switches.len()
    );
    let (log, probing, interval) = (log.to_owned(), scene.probes, args.interval);
    let started = tokio::task::spawn_blocking(move || {
        let mut tree = ClusterTree::create(&cluster, now(), &folder(cluster.nodes().len()))?;
        tree.measure(&cluster, probing)?;
        let nodes = Nodes::start(&tree, interval, &log)?;
        anyhow::Ok((cluster, tree, nodes))
    });
    let (cluster, tree, nodes) = started.await??;
    let mut config = collector_config(&cluster, &tree, &nodes, (&api.base, interval))?;
    config.record = args.record.clone().map(Record::into_folder);
    let names = cluster.nodes().iter().map(|node| node.name.clone());
    let exporters: BTreeMap<_, _> = names.zip(nodes.urls.iter().cloned()).collect();
    let (causes, fabric) = (wanted::possible(&cluster), cluster.spec().clone());
    let clock = Clock::start(cluster, tree, args.speed)?;
    let stage = Arc::new(Stage::new(
        clock.hand(),
        args.seed,
        exporters,
        (causes, fabric),
    ));
    let mut beside = control::beside(Arc::clone(&stage), listening);
    beside.routes = beside.routes.merge(switches::routes(clock.hand()));
    let mut stopped = stop.subscribe();
    let mut collector = tokio::spawn(run_beside(config, listener, beside, async move {
        // An error means that the sender is gone, and with it the demo.
        stopped.wait_for(|stop| *stop).await.ok();
    }));

    let mut stopped = stop.subscribe();
    let shown = tokio::select! {
        shown = show(args, scene, &api, &nodes, &stage) => shown,
        _ = stopped.wait_for(|stop| *stop) => Ok(()),
        () = end_of(args.duration) => Ok(()),
        () = clock.failed() => Ok(()), // stopping it reports why
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
        // Exporters first, so that none reads removed files.
        let nodes = nodes.stop();
        clock.stop().and(nodes)
    });
    shown.and(stopping.await?)
}

/// Where the cluster's files go: into memory if there is room, because thousands of them change every
/// second and need not be on disk. TMPDIR overrides it.
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

/// The collector's configuration, through the same file format that a user writes. The demo listens at `base`; exporters are
/// scraped, and switches and the subnet read, once in `interval`. The collector evaluates twice in it, because a person is
/// watching.
fn collector_config(
    cluster: &Cluster,
    tree: &ClusterTree,
    nodes: &Nodes,
    (base, interval): (&str, Duration),
) -> anyhow::Result<Config> {
    let [interval, analysis] =
        [interval, interval / 2].map(|time| format!("{}ms", time.as_millis()));
    let mut text = format!(
        "cluster = {{ name = \"demo\" }}\n\
         scrape = {{ interval = \"{interval}\" }}\n\
         analysis = {{ interval = \"{analysis}\" }}\n"
    );
    // An Ethernet has no sweep: its switches report one by one.
    if cluster.spec().transport == Transport::Infiniband {
        let file = tree.subnet();
        text.push_str(&format!(
            "subnet = {{ file = {file:?}, interval = \"{interval}\" }}\n"
        ));
    }
    text.push('\n');
    for (node, url) in cluster.nodes().iter().zip(&nodes.urls) {
        text.push_str(&format!(
            "[[targets]]\nnode = \"{}\"\nurl = \"{url}\"\n",
            node.name
        ));
    }
    let mut addresses: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for (address, switch, port) in addresses_of(cluster.plan()) {
        let row = format!("{:?} = \"{address}\"", port.to_string());
        addresses.entry(switch).or_default().push(row);
    }
    for counted in Counted::all(cluster) {
        let url = counted.url(base)?;
        text.push_str(&match &counted {
            Counted::Subnet => format!("[[targets]]\nkind = \"{}\"\n", counted.kind()),
            Counted::Switch(name) => format!(
                "[[switches]]\nname = \"{name}\"\nlldp_file = {:?}\ninterval = \"{interval}\"\n\
                 port_addresses = {{ {} }}\n\
                 [[targets]]\nswitch = \"{name}\"\nkind = \"{}\"\n",
                tree.lldp(name),
                addresses
                    .get(name)
                    .map_or_else(String::new, |rows| rows.join(", ")),
                counted.kind()
            ),
        });
        text.push_str(&format!("url = \"{url}\"\n"));
    }
    Config::parse(&text, &tree.path().join("collector.toml"))
        .context("the demo's own configuration")
}

async fn show(
    args: &DemoArgs,
    scene: &Scene,
    api: &Api,
    nodes: &Nodes,
    stage: &Stage,
) -> anyhow::Result<()> {
    api.wait_for(nodes.urls.len()).await?;
    let base = &api.base;
    println!("\n  page        {base}/");
    println!("  break more  {base}/demo");
    println!("  incidents   {base}/api/v1/incidents");
    println!("  metrics     {base}/metrics");
    for url in nodes.urls.iter().take(2) {
        println!("  exporter    {url}");
    }
    if let Some(name) = &args.scene {
        println!("\n{name}: {}\n{}", scene.story.trim(), scene.expectation());
    }
    if args.speed > 1.0 {
        println!(
            "\nThe cluster lives {} seconds a second: rates are so many times what its hardware could do.",
            args.speed
        );
    }
    if scene.faults.is_empty() {
        println!("\nNothing is broken: no incident should open. Ctrl-C stops.");
    } else {
        println!("\nIn {:?} one part breaks. Ctrl-C stops.", args.fault_after);
    }
    let play = async {
        tokio::time::sleep(args.fault_after).await;
        for wanted in &scene.faults {
            stage.inject(wanted).await?;
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    tokio::select! {
        played = play => played,
        told = api.tell(stage) => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_a_number_within_bounds() {
        for (text, known) in [("1", Some(1.0)), ("0.5", Some(0.5)), ("20", Some(20.0))] {
            assert_eq!(speed(text).ok(), known, "{text}");
        }
        for text in ["0", "21", "-1", "NaN", "fast", ""] {
            assert!(speed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_interval_is_a_time_within_bounds() {
        for (text, millis) in [("1s", 1000), ("1500ms", 1500), ("5s", 5000)] {
            assert_eq!(interval(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0.5s", "6s", "-1s", "often", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
