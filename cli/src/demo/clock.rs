//! The demo's clock: moves the simulated cluster on and keeps its files up to date.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use railscope_model::fabric::Timestamp;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::fault::{Fault, Truth};
use railscope_simulator::tree::ClusterTree;
use tokio::sync::oneshot;

/// Time between two steps of the simulation.
const TICK: Duration = Duration::from_secs(1);
const CANNOT_GO_ON: &str = "the simulated cluster cannot go on";

/// The moment of now.
#[allow(clippy::disallowed_methods)] // the edge at which the demo reads the clock; all below get it as an argument
pub(super) fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed();
    Timestamp(since_epoch.map_or(0, |elapsed| elapsed.as_millis() as u64))
}

/// What the thread is asked to do.
enum Command {
    /// Break this part now, and say what is true then.
    Break(Box<Fault>, oneshot::Sender<anyhow::Result<Truth>>),
    Stop,
}

/// The thread that moves the cluster.
pub(super) struct Clock {
    commands: mpsc::Sender<Command>,
    thread: JoinHandle<(ClusterTree, anyhow::Result<()>)>,
}

impl Clock {
    /// Starts the simulation's time now.
    pub(super) fn start(cluster: Cluster, tree: ClusterTree) -> anyhow::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("cluster".into())
            .spawn(move || {
                let mut tree = tree;
                let ended = run(cluster, &mut tree, &inbox);
                (tree, ended)
            })
            .context("cannot start the cluster's thread")?;
        Ok(Self { commands, thread })
    }

    /// Breaks a part now: the files show it when this returns.
    pub(super) async fn inject(&self, fault: Fault) -> anyhow::Result<Truth> {
        let (reply, truth) = oneshot::channel();
        let ended = "the simulated cluster has ended";
        self.commands
            .send(Command::Break(Box::new(fault), reply))
            .context(ended)?;
        truth.await.context(ended)?
    }

    /// Waits until the clock ends by itself, which only an error makes it do.
    pub(super) async fn failed(&self) {
        while !self.thread.is_finished() {
            tokio::time::sleep(TICK).await;
        }
    }

    /// Stops the time and removes the cluster's files. Blocks.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // Fails only if the thread has ended, and then joining says why.
        self.commands.send(Command::Stop).ok();
        let ended = self.thread.join();
        let (tree, ended) = ended.map_err(|_| anyhow::anyhow!("the cluster's thread panicked"))?;
        let closed = tree.close().context("files of the demo are left behind");
        ended.and(closed)
    }
}

fn run(
    mut cluster: Cluster,
    tree: &mut ClusterTree,
    inbox: &mpsc::Receiver<Command>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut next = begun + TICK;
    loop {
        let pause = next.saturating_duration_since(Instant::now());
        match inbox.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {
                cluster.advance(next - begun);
                // Ticks that were missed, say because the machine slept, are lived through in one.
                while next < Instant::now() {
                    next += TICK;
                }
            }
            Ok(Command::Break(fault, reply)) => {
                let elapsed = begun.elapsed();
                cluster.advance(elapsed);
                let truth = cluster.inject(Fault {
                    onset_seconds: elapsed.as_secs_f64(),
                    ..*fault
                });
                cluster.advance(elapsed);
                tree.update(&cluster, now()).context(CANNOT_GO_ON)?;
                // Fails only if nobody waits for it any more.
                reply.send(truth.map_err(Into::into)).ok();
            }
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        tree.update(&cluster, now()).context(CANNOT_GO_ON)?;
    }
}
