//! One operation of a collective library, as one process saw it.

use std::sync::Arc;

/// The participants: one process drives one GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its host, as the host calls itself.
    pub host: Arc<str>,
    /// Its number there.
    pub pid: u64,
}

/// A communicator, as one of its ranks reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// What all of its ranks call it.
    pub communicator: Arc<str>,
    /// Name given by the framework; none if it is not given.
    pub name: Option<Arc<str>>,
    /// Number of this process in it.
    pub rank: u32,
    /// How many are in it.
    pub ranks: u32,
    /// On how many hosts.
    pub hosts: u32,
}

/// A collective, a send or a receive that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The participants.
    pub process: Process,
    /// In which communicator.
    pub member: Membership,
    /// `AllReduce`, `Send` …
    pub name: Arc<str>,
    /// Its number among the collectives of its kind in the communicator, the same on every rank; none of sends and receives.
    pub number: Option<u64>,
    /// Bytes of its message.
    pub bytes: u64,
    /// For how long this process was in it, seconds: moving data, or waiting for later ranks.
    pub seconds: f64,
    /// When it began, seconds of Unix time by the host's clock; none if that was not recorded.
    pub begin: Option<f64>,
    /// When it ended, or was recorded at the latest.
    pub end: f64,
}
