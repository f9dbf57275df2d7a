//! The demo's nodes: a real exporter for each, in processes that each hold as many as may keep their files open.
//!
//! An exporter keeps some 720 files open. All exporters of a cluster in one process would need more
//! descriptors than many systems allow it.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use railscope_exporter::{Exporter, Limits, Machine, NvmlAccess, WorkloadAccess, serve};
use railscope_simulator::show::machine::NodePaths;
use railscope_simulator::show::tree::{ClusterTree, FOLDER_PREFIX};
use rustix::process::{Resource, getppid, getrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use super::measured;
use crate::machine::WORKER_SUBCOMMAND;

/// Name of the subcommand that runs exporters for the demo, which is in no help text.
pub(crate) const NODES_SUBCOMMAND: &str = "demo-nodes";
/// Descriptors that one exporter of a simulated node needs: 720 files (measured), sockets and pipes.
const DESCRIPTORS_PER_NODE: u64 = 760;
/// Descriptors beside those of exporters.
const OTHER_DESCRIPTORS: u64 = 200;
/// Most descriptors that an exporter raises its limit to.
const MOST_DESCRIPTORS: u64 = 65_536;
/// How long stopping waits for a process before it is killed: longer than an exporter waits for its parts.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// Arguments of the process that runs exporters: what the demo starts it with.
#[derive(Debug, Args)]
pub(crate) struct NodesArgs {
    /// Folder of the whole cluster.
    #[arg(long)]
    cluster: PathBuf,
    /// Milliseconds between two scrapes, and so between two NVML samples.
    #[arg(long)]
    interval: u64,
    /// Folder of each node.
    nodes: Vec<PathBuf>,
}

/// Exporters of all nodes, in their own processes.
pub(super) struct Nodes {
    processes: Vec<Child>,
    /// Where each node serves `/metrics`, in the cluster's order.
    pub(super) urls: Vec<String>,
}

impl Nodes {
    /// Starts the exporters, to be scraped once in `interval`, and waits until all of them listen. Blocks.
    pub(super) fn start(tree: &ClusterTree, interval: Duration, log: &str) -> anyhow::Result<Self> {
        let this_binary = std::env::current_exe().context("cannot find this very binary")?;
        let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let descriptors = allowed
            .min(MOST_DESCRIPTORS)
            .saturating_sub(OTHER_DESCRIPTORS);
        let together = usize::try_from(descriptors / DESCRIPTORS_PER_NODE)?.max(1);
        let mut nodes = Self {
            processes: Vec::new(),
            urls: Vec::new(),
        };
        let mut outputs = Vec::new();
        for group in tree.machines().chunks(together) {
            let mut process = Command::new(&this_binary)
                .args([NODES_SUBCOMMAND, "--cluster"])
                .arg(tree.path())
                .args(["--interval", &interval.as_millis().to_string()])
                .args(group.iter().map(|machine| &machine.paths().root))
                .env("RAILSCOPE_LOG", log)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // A Ctrl-C of the terminal reaches the demo alone, which then stops them in order.
                .process_group(0)
                .spawn()
                .context("cannot start a process for exporters")?;
            outputs.push((process.stdout.take(), group.len()));
            nodes.processes.push(process);
        }
        for (output, count) in outputs {
            let lines = output
                .map(BufReader::new)
                .into_iter()
                .flat_map(BufRead::lines);
            let urls = lines.take(count).collect::<Result<Vec<_>, _>>()?;
            if urls.len() < count {
                bail!("a process for exporters ended before they listened");
            }
            nodes.urls.extend(urls);
        }
        Ok(nodes)
    }

    /// Ends all exporters; their processes are reaped when this returns. Blocks.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            // The end of its input signals it to exit, and so does the end of the demo, however it
            // comes.
            drop(process.stdin.take());
        }
        let deadline = Instant::now() + STOP_GRACE;
        for mut process in self.processes.drain(..) {
            while process.try_wait()?.is_none() {
                if Instant::now() > deadline {
                    tracing::warn!("a process for exporters hangs: killing it");
                    process.kill()?;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(%error, "cannot stop the exporters");
        }
    }
}

/// Runs the exporters of some nodes, prints the address of each, and stops at the end of the input.
pub(crate) fn run(args: &NodesArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the HTTP servers")?;
    let demo = getppid();
    let result = runtime.block_on(serve_nodes(args));
    drop(runtime);
    if getppid() != demo {
        // The demo was killed and cannot clean up; no other process would.
        remove_cluster(&args.cluster)?;
    }
    result
}

/// Removes the files of a cluster whose demo is gone.
fn remove_cluster(folder: &Path) -> anyhow::Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with(FOLDER_PREFIX) {
        return Ok(());
    }
    match std::fs::remove_dir_all(folder) {
        // Another process for exporters was faster.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", folder.display())),
    }
}

async fn serve_nodes(args: &NodesArgs) -> anyhow::Result<()> {
    // Taken so that it does not end the process: the demo signals when to stop.
    let _interrupts = signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
    let this_binary = std::env::current_exe().context("cannot find this very binary")?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let (mut serving, mut exporters) = (JoinSet::new(), Vec::new());
    for root in &args.nodes {
        let paths = NodePaths { root: root.clone() };
        let machine = Machine {
            sysfs: paths.sysfs(),
            procfs: paths.procfs(),
            jitter_probe: false,
            nvml: Some(NvmlAccess {
                library: paths.nvml_library(),
                worker: vec![this_binary.clone(), WORKER_SUBCOMMAND.into()],
                period: Duration::from_millis(args.interval),
            }),
            workloads: WorkloadAccess {
                job_mapping: Some(paths.job_mapping()),
                ..WorkloadAccess::below(&paths.root)
            },
            // Where else anything of a simulated node would stand: nothing of this machine is its own.
            ..Machine::below(&paths.root)
        };
        let samplers = measured::samplers(root, &machine);
        let exporter = Exporter::start_samplers(samplers, Limits::default(), None);
        let exporter = Arc::new(exporter.context("cannot start an exporter")?);
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no loopback port is free for an exporter")?;
        let address = listener.local_addr().context("cannot read the address")?;
        let mut stopped = stopped.clone();
        serving.spawn(serve(Arc::clone(&exporter), listener, async move {
            // An error means that the sender is gone, and with it the process.
            stopped.wait_for(|stop| *stop).await.ok();
        }));
        exporters.push(exporter);
        println!("http://{address}/metrics");
    }
    std::io::stdout()
        .flush()
        .context("cannot notify the demo")?;
    let input_ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    input_ended.await?.context("cannot listen to the demo")?;
    stop.send_replace(true);
    while let Some(ended) = serving.join_next().await {
        ended?.context("an exporter stopped serving")?;
    }
    thread::scope(|scope| {
        for exporter in &exporters {
            // Each waits for its own threads and child: at the same time, not one after the other.
            scope.spawn(|| exporter.stop());
        }
    });
    Ok(())
}
