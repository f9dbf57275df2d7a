//! The demo's clock: moves the simulated cluster on and keeps its files up to date.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::faults::Truth;
use railscope_simulator::show::tree::ClusterTree;
use tokio::sync::oneshot;

use super::switches::Counted;
use super::wanted::Wanted;

/// Time between two steps of the simulation.
const TICK: Duration = Duration::from_secs(1);
const CANNOT_GO_ON: &str = "the simulated cluster cannot go on";
const ENDED: &str = "the simulated cluster has ended";

/// The current time.
#[allow(clippy::disallowed_methods)] // the edge at which the demo reads the clock; all below get it as an argument
pub(super) fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed();
    Timestamp(since_epoch.map_or(0, |elapsed| elapsed.as_millis() as u64))
}

/// A part that broke.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) truth: Truth,
    /// What happened to the part.
    pub(super) what: String,
}

/// What is to break.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) wanted: Wanted,
    /// Picks the part if none is requested.
    pub(super) seed: u64,
    /// Parts that have this fault already: no second time.
    pub(super) taken: Vec<Part>,
}

/// Seeds that are tried to find a part that is not taken.
const TRIES: usize = 1000;

/// Requests to the thread.
enum Command {
    /// Break something now, and report what is true then.
    Break(Box<Order>, oneshot::Sender<anyhow::Result<Broken>>),
    /// End a fault of this part and cause now, and report whether there was one.
    End(Part, &'static str, oneshot::Sender<bool>),
    /// Return the switches' current counters; none if there is no response.
    Count(Counted, oneshot::Sender<Option<String>>),
    Stop,
}

/// What talks to the thread that moves the cluster.
#[derive(Clone)]
pub(super) struct Hand(mpsc::Sender<Command>);

impl Hand {
    /// Breaks a part now: the files show it when this returns.
    ///
    /// # Errors
    /// The cluster has no such part or fault, or has ended.
    pub(super) async fn inject(&self, order: Order) -> anyhow::Result<Broken> {
        let (reply, broken) = oneshot::channel();
        let command = Command::Break(Box::new(order), reply);
        self.0.send(command).context(ENDED)?;
        broken.await.context(ENDED)?
    }

    /// Clears a fault of a part now; false if it had no such fault.
    ///
    /// # Errors
    /// The cluster has ended.
    pub(super) async fn end(&self, part: Part, cause: &'static str) -> anyhow::Result<bool> {
        let (reply, ended) = oneshot::channel();
        self.0
            .send(Command::End(part, cause, reply))
            .context(ENDED)?;
        ended.await.context(ENDED)
    }

    /// The counters of switches, as an exporter shows them; none if there is no response.
    ///
    /// # Errors
    /// The cluster has ended.
    pub(super) async fn count(&self, counted: Counted) -> anyhow::Result<Option<String>> {
        let (reply, page) = oneshot::channel();
        self.0.send(Command::Count(counted, reply)).context(ENDED)?;
        page.await.context(ENDED)
    }
}

/// The thread that moves the cluster.
pub(super) struct Clock {
    hand: Hand,
    thread: JoinHandle<(ClusterTree, anyhow::Result<()>)>,
}

impl Clock {
    /// Starts the simulation's time now. It runs `speed` times as fast as the clock on the wall.
    pub(super) fn start(cluster: Cluster, tree: ClusterTree, speed: f64) -> anyhow::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("cluster".into())
            .spawn(move || {
                let mut tree = tree;
                let ended = run(cluster, &mut tree, speed, &inbox);
                (tree, ended)
            })
            .context("cannot start the cluster's thread")?;
        let hand = Hand(commands);
        Ok(Self { hand, thread })
    }

    /// What talks to it.
    pub(super) fn hand(&self) -> Hand {
        self.hand.clone()
    }

    /// Waits until the clock ends by itself, which only an error makes it do.
    pub(super) async fn failed(&self) {
        while !self.thread.is_finished() {
            tokio::time::sleep(TICK).await;
        }
    }

    /// Stops the time and removes the cluster's files. Blocks.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        // Fails only if the thread has ended, and then joining reports why.
        self.hand.0.send(Command::Stop).ok();
        let ended = self.thread.join();
        let (tree, ended) = ended.map_err(|_| anyhow::anyhow!("the cluster's thread panicked"))?;
        let closed = tree.close().context("files of the demo are left behind");
        ended.and(closed)
    }
}

fn run(
    mut cluster: Cluster,
    tree: &mut ClusterTree,
    speed: f64,
    inbox: &mpsc::Receiver<Command>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut next = begun + TICK;
    loop {
        let pause = next.saturating_duration_since(Instant::now());
        match inbox.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {
                cluster.advance((next - begun).mul_f64(speed));
                // Ticks that were missed, for example because the machine slept, are lived through
                // in one.
                while next < Instant::now() {
                    next += TICK;
                }
            }
            Ok(Command::Break(order, reply)) => {
                let elapsed = begun.elapsed().mul_f64(speed);
                cluster.advance(elapsed);
                let broken = break_now(&mut cluster, &order, elapsed);
                tree.update(&cluster, now()).context(CANNOT_GO_ON)?;
                // Fails only if the receiver is gone.
                reply.send(broken).ok();
                continue;
            }
            Ok(Command::End(part, cause, reply)) => {
                cluster.advance(begun.elapsed().mul_f64(speed));
                let ended = cluster.end(&part, cause);
                tree.update(&cluster, now()).context(CANNOT_GO_ON)?;
                reply.send(ended).ok();
                continue;
            }
            Ok(Command::Count(counted, reply)) => {
                // Fails only if the receiver is gone.
                reply.send(counted.page(&cluster)).ok();
                continue;
            }
            Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        tree.update(&cluster, now()).context(CANNOT_GO_ON)?;
    }
}

fn break_now(cluster: &mut Cluster, order: &Order, elapsed: Duration) -> anyhow::Result<Broken> {
    let Order {
        wanted,
        seed,
        taken,
    } = order;
    let mut fault = wanted.fault(cluster, *seed)?;
    for seed in (*seed..).take(TRIES) {
        if wanted.part.is_some() || !taken.contains(&fault.part) {
            break;
        }
        fault = wanted.fault(cluster, seed)?;
    }
    if taken.contains(&fault.part) {
        bail!("{} has {} already: end it first", fault.part, wanted.cause);
    }
    fault.onset_seconds = elapsed.as_secs_f64();
    let what = fault.effect.to_string();
    let truth = cluster.inject(fault)?;
    cluster.advance(elapsed);
    Ok(Broken { truth, what })
}

#[cfg(test)]
mod tests {
    use railscope_simulator::spec::ClusterSpec;

    use super::*;

    #[test]
    fn a_part_is_broken_once_and_others_after_it() {
        let spec = ClusterSpec {
            gpus_per_node: Some(2),
            ..ClusterSpec::demo(1).expect("a node")
        };
        let mut cluster = Cluster::new(spec, 1).expect("a cluster");
        let mut order = Order {
            wanted: Wanted::typical("gpu-thermal"),
            seed: 1,
            taken: Vec::new(),
        };
        for _ in 0..2 {
            let broken = break_now(&mut cluster, &order, Duration::ZERO).expect("a GPU");
            assert!(!order.taken.contains(&broken.truth.part));
            order.taken.push(broken.truth.part);
        }
        let error = break_now(&mut cluster, &order, Duration::ZERO).expect_err("both are hot");
        assert!(error.to_string().contains("already"), "{error}");
        order.wanted.part = order.taken.pop();
        break_now(&mut cluster, &order, Duration::ZERO).expect("was cleared");
    }
}
