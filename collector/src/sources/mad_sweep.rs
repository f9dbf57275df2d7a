//! An own sweep of the InfiniBand subnet: its shape and the counters of every cabled port, by single requests.
//!
//! `ibnetdiscover` and `ibqueryerrors` keep two requests in flight; this keeps a window of them over all devices,
//! and only few at any one device, because the management lane (VL15) has no flow control. Nothing is ever set.

pub mod ibsim;
pub mod mad;
pub mod transport;
pub mod umad;

mod count;
mod discover;
mod flight;
mod tables;

use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fabric::subnet::Subnet;
use crate::fabric::subnet::counters::DeviceReading;
use crate::fabric::subnet::forwarding::Tables;
use count::{Count, KnownAgents};
use discover::Discovery;
use flight::{Failure, Flight, Queue};
use ibsim::Ibsim;
use tables::{KnownTables, Reading};
use transport::Transport;
use umad::{Umad, UmadError};

/// Maximum requests in flight. Beyond it ibsim stops replying, and a real fabric gains nothing.
pub const MAX_WINDOW: usize = 128;
/// Questions to the performance agent of one device at a time.
const PER_AGENT: usize = 1;

/// How hard a sweep may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Requests in flight at a time, over all devices: 1 to [`MAX_WINDOW`].
    pub window: usize,
    /// Subnet management requests in flight at a time to one switch, or out of its ports to what is behind them.
    pub per_switch: usize,
    /// Maximum requests a second; none for no limit but the window's.
    pub mads_per_second: Option<NonZeroU32>,
    /// Timeout of a request.
    pub timeout: Duration,
    /// How often a request without a reply is repeated.
    pub retries: u32,
    /// Longest time that a whole sweep may take; requests in flight then count as timed out.
    pub limit: Duration,
    /// Whether counters are read too.
    pub counters: bool,
    /// Whether forwarding tables of switches are read too: when the shape of the subnet has settled, and every five minutes.
    pub forwarding: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: 64,
            // opensm's max_wire_smps, for the same reason, but for each switch and not for the fabric.
            per_switch: 4,
            mads_per_second: NonZeroU32::new(100_000),
            // opensm's transaction_timeout.
            timeout: Duration::from_millis(200),
            retries: 2,
            limit: Duration::from_secs(30),
            counters: true,
            forwarding: false,
        }
    }
}

/// What a sweep cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Questions sent, repeated ones included.
    pub sent: u64,
    /// Requests with a reply that reports something.
    pub answered: u64,
    /// Questions that were sent again.
    pub repeated: u64,
    /// Requests without a reply after all repetitions.
    pub unanswered: u64,
    /// Questions that the device answered with an error.
    pub refused: u64,
    /// Questions that were not sent before the time was over.
    pub not_asked: u64,
    /// Replies that came too late, or to no request.
    pub stray: u64,
    /// Ports whose counters cannot be read, because no subnet manager gave their device a LID.
    pub ports_without_lid: usize,
    /// Time for the shape.
    pub discovery: Duration,
    /// Time for the counters.
    pub counters: Duration,
    /// Time for the forwarding tables.
    pub forwarding: Duration,
}

/// What a sweep saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    /// The shape of the subnet.
    pub subnet: Subnet,
    /// State and counters of the ports of every device; empty if counters were not requested.
    pub readings: Vec<DeviceReading>,
    /// Forwarding tables of this shape of the subnet, and how long ago the oldest was read; none where none was.
    pub forwarding: Option<(Arc<Tables>, Duration)>,
    /// What it cost.
    pub stats: Stats,
}

/// Why there was no sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// There is no such port, or it may not be used.
    #[error(transparent)]
    Port(#[from] UmadError),
    /// The port of the sweeping host broke.
    #[error("the port that the sweep goes through: {0}")]
    Transport(#[from] io::Error),
    /// The sweeping host's own adapter does not respond.
    #[error("the adapter of this host does not answer the first question of a sweep ({0})")]
    NoStart(&'static str),
}

/// Opens the port that a configuration names: `mlx5_0`, `mlx5_0:2`, `auto` for the first InfiniBand port that carries
/// traffic, or `ibsim:SOCKET:HOST` for a simulated subnet.
///
/// # Errors
/// Why it cannot be used, with what there is and what to do about it.
pub fn open(device: &str, timeout: Duration) -> Result<Box<dyn Transport>, SweepError> {
    let simulated = device
        .strip_prefix("ibsim:")
        .and_then(|rest| rest.split_once(':'));
    if let Some((simulator, host)) = simulated {
        return Ok(Box::new(Ibsim::connect(simulator, host)?));
    }
    let ports = umad::ports(Path::new("/sys"), Path::new("/dev"));
    let port = umad::choose(&ports, device)?;
    Ok(Box::new(Umad::open(&port, timeout)?))
}

/// Sweeps repeatedly through one port.
pub struct Sweeper {
    transport: Box<dyn Transport>,
    settings: Settings,
    known_agents: KnownAgents,
    known_tables: KnownTables,
}

impl Sweeper {
    /// Nothing is sent yet.
    pub fn new(transport: Box<dyn Transport>, settings: Settings) -> Self {
        Self {
            transport,
            settings,
            known_agents: KnownAgents::default(),
            known_tables: KnownTables::default(),
        }
    }

    /// Sweeps once. Blocks until all replies are in or given up, at most slightly longer than [`Settings::limit`].
    ///
    /// # Errors
    /// No sweep was possible. A partial sweep is not an error: it reports its gaps.
    pub fn sweep(&mut self) -> Result<Swept, SweepError> {
        let begun = Instant::now();
        let mut stats = Stats::default();
        let mut discovery = Discovery::default();
        let mut queue = Queue::new(self.settings.per_switch.max(1));
        Discovery::begin(&mut queue);
        let transport = &mut *self.transport;
        Flight::new(transport, &self.settings, &mut stats, begun)
            .run(&mut discovery, &mut queue)?;
        if let Some(why) = discovery.start_failed {
            return Err(SweepError::NoStart(match why {
                Failure::Silent => "no answer",
                Failure::Refused => "it refuses",
            }));
        }
        stats.discovery = begun.elapsed();
        let mut readings = Vec::new();
        if self.settings.counters {
            let mut queue = Queue::new(PER_AGENT);
            let mut count = Count::begin(&discovery, &mut self.known_agents, &mut queue);
            stats.ports_without_lid = count.without_lid;
            Flight::new(transport, &self.settings, &mut stats, begun)
                .run(&mut count, &mut queue)?;
            readings = count.readings();
            stats.counters = begun.elapsed() - stats.discovery;
        }
        let subnet = Subnet::from(discovery.survey());
        let forwarding = match self.settings.forwarding {
            true => self.read_tables(&discovery, &subnet, &mut stats, begun)?,
            false => None,
        };
        Ok(Swept {
            subnet,
            readings,
            forwarding,
            stats,
        })
    }

    /// Reads the forwarding tables that are not known: last, so that they delay no other request.
    fn read_tables(
        &mut self,
        discovery: &Discovery,
        subnet: &Subnet,
        stats: &mut Stats,
        begun: Instant,
    ) -> io::Result<Option<(Arc<Tables>, Duration)>> {
        let now = Instant::now();
        if self.known_tables.may_read(subnet, now) {
            let mut queue = Queue::new(self.settings.per_switch.max(1));
            let mut reading = Reading::begin(discovery, &self.known_tables, &mut queue);
            Flight::new(&mut *self.transport, &self.settings, stats, begun)
                .run(&mut reading, &mut queue)?;
            reading.end(&mut self.known_tables);
        }
        stats.forwarding = now.elapsed();
        Ok(self.known_tables.current(Instant::now()))
    }
}

#[cfg(test)]
mod tests;
