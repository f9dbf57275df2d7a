//! Reads a cluster back from Prometheus, or a server with its query API, as a pack.
//!
//! ```text
//! /api/v1/series      -> targets   by `up`: those of the configuration, and of exporters that a mapping recognizes
//! /api/v1/query [5m]  -> Slice     raw samples of one target; scrapes by the samples of `up`, labels of the target removed
//! all targets         -> Output    in order of time, through the collector's recorder
//! pack                -> Replay    as any other recording
//! ```

mod client;
mod output;
mod samples;
mod targets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use tokio::task::JoinSet;

use super::pack::PackError;
use crate::config::Config;

pub use client::Store;
use client::{Answered, Client};
use output::Output;
use samples::{Carry, Slice};
use targets::{Found, discover};

/// Length of the first slice in milliseconds. Further ones have the length that gives [`SLICE_SAMPLES`].
const FIRST_SLICE: u64 = 60_000;
/// Shortest and longest slice.
const SLICES: (u64, u64) = (5_000, 900_000);
/// Samples of all targets in a slice: 16 bytes each, beside the labels of their series.
const SLICE_SAMPLES: u64 = 2_000_000;
/// Requests at a time.
const REQUESTS: usize = 4;
/// A part of a slice that is still too large for the server and has less than this is an error.
const SHORTEST: u64 = 1_000;
/// After so long without `up` a target is no longer in the list: Prometheus' `query.lookback-delta`.
const LOOKBACK: u64 = 300_000;
/// Targets whose first scrapes are this close are listed together.
const TOGETHER: u64 = 10_000;

/// Why a cluster cannot be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadBackError {
    /// The URL, the token or a header is invalid.
    #[error("{0}")]
    Address(String),
    /// No connection, or timed out.
    #[error("{store}: not reached: {why}")]
    Unreachable {
        /// The server.
        store: String,
        /// Why.
        why: String,
    },
    /// A response that is an error.
    #[error("{store}: answered {status} to {asked}: {message}: {hint}")]
    Refused {
        /// The server.
        store: String,
        /// What was requested.
        asked: String,
        /// The status.
        status: u16,
        /// What the server wrote.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// A response that is not of the query API.
    #[error(
        "{store}: invalid answer to {asked}: {why}: expected the URL below which it has Prometheus' /api/v1"
    )]
    NoApi {
        /// The server.
        store: String,
        /// What was requested.
        asked: String,
        /// Why.
        why: String,
    },
    /// More than the server returns at once, even for the smallest range.
    #[error(
        "too much for one answer: {0}: expected a higher limit of the server (Prometheus: --query.max-samples; VictoriaMetrics: -search.maxSamplesPerQuery; Mimir: -querier.max-fetched-series-per-query)"
    )]
    TooMuch(String),
    /// No target, or no scrape of one.
    #[error("{store}: nothing to replay: {why}")]
    Empty {
        /// The server.
        store: String,
        /// What was requested, what there is, and what to do.
        why: String,
    },
    /// A file of targets is invalid.
    #[error("{}: {why}", file.display())]
    Targets {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The pack cannot be written.
    #[error("{}: cannot write the recording: {source}", folder.display())]
    Write {
        /// Its folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the fabric cannot be read.
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// What is read back.
#[derive(Debug)]
pub struct Request {
    /// Where from.
    pub store: Store,
    /// Time of the first and the last scrape.
    pub span: (Timestamp, Timestamp),
    /// Jobs; all if empty.
    pub jobs: Vec<String>,
}

/// What was read back, and what was not.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadBack {
    /// Targets with a scrape.
    pub targets: usize,
    /// Scrapes with a response.
    pub scrapes: u64,
    /// Scrapes without one: `up` is 0.
    pub failures: u64,
    /// Number of samples.
    pub samples: u64,
    /// Median time between two scrapes of one target, in seconds.
    pub interval: Option<f64>,
    /// Targets that were not read, by job: no mapping recognizes them, or the configuration does not name them.
    pub unknown: BTreeMap<String, usize>,
    /// Job and instance of targets without a valid name of a node or switch.
    pub unnamed: Vec<String>,
    /// Instances of targets of the configuration without samples.
    pub missing: Vec<String>,
    /// Whether several servers had stored the same scrapes: those of one are used.
    pub has_replicas: bool,
    /// The first warning of the server.
    pub warning: Option<String>,
}

/// Reads a span of time back as a pack in an empty folder. `progress` gets the time until which it is read.
///
/// # Errors
/// The server does not respond, refuses, or has no data; or the folder cannot be written.
pub async fn read_back(
    request: &Request,
    config: &Config,
    folder: &Path,
    mut progress: impl FnMut(Timestamp),
) -> Result<ReadBack, ReadBackError> {
    let (from, until) = request.span;
    let client = Arc::new(Client::new(request.store.clone())?);
    let discovered = discover(&client, config, &request.jobs, request.span).await?;
    let mut reading = Reading {
        client,
        found: discovered.found,
        intervals: Vec::new(),
        out: ReadBack {
            unknown: discovered.unknown,
            unnamed: discovered.unnamed,
            missing: discovered.missing,
            ..ReadBack::default()
        },
    };
    if reading.found.is_empty() {
        return Err(reading.empty(request));
    }
    let mut output = Output::begin(config, folder, request.span)?;
    // The earliest sample is at `from` itself.
    let (mut after, mut length) = (Timestamp(from.0.saturating_sub(1)), FIRST_SLICE);
    while after < until {
        let end = Timestamp(after.0.saturating_add(length).min(until.0));
        let slices = reading.fetch((after, end)).await?;
        let samples: u64 = slices.iter().map(|slice| slice.samples as u64).sum();
        reading.write(slices, &mut output, end)?;
        let wanted = (end.0 - after.0).saturating_mul(SLICE_SAMPLES) / samples.max(1);
        length = wanted.clamp(SLICES.0, SLICES.1).min(length * 4);
        after = end;
        progress(end);
    }
    if reading.out.scrapes + reading.out.failures == 0 {
        return Err(reading.empty(request));
    }
    output.finish()?;
    Ok(reading.finish())
}

struct Reading {
    client: Arc<Client>,
    found: Vec<Found>,
    /// Milliseconds between two scrapes of one target.
    intervals: Vec<u64>,
    out: ReadBack,
}

impl Reading {
    fn empty(&self, request: &Request) -> ReadBackError {
        let (from, until) = request.span;
        let jobs = match &*request.jobs {
            [] => String::from("any job"),
            jobs => format!("job {}", jobs.join(", ")),
        };
        let mut why = format!(
            "asked for targets (series `up`) of {jobs} from {} to {}",
            from.as_seconds(),
            until.as_seconds()
        );
        let listed = &self.out.unknown;
        if !self.found.is_empty() {
            why += &format!("; {} targets have no scrape then", self.found.len());
        } else if !listed.is_empty() {
            let listed = listed.iter();
            let listed = listed.map(|(job, count)| format!("{job:?} ({count})"));
            let listed: Vec<_> = listed.collect();
            why += &format!(
                "; there are targets of jobs that no mapping recognizes, or that --config does not name: {}",
                listed.join(", ")
            );
        } else if !self.out.unnamed.is_empty() {
            why += "; no target has a valid name of a node: expected a label `node`, or [push] node_label in --config";
        } else {
            why += "; there is none";
        }
        ReadBackError::Empty {
            store: request.store.name(),
            why: why
                + ": expected a time within the retention of the server, and jobs that it scrapes",
        }
    }

    /// The slices of all targets, in their order.
    async fn fetch(&self, span: (Timestamp, Timestamp)) -> Result<Vec<Slice>, ReadBackError> {
        let mut slices: Vec<_> = self.found.iter().map(|_| Slice::default()).collect();
        let mut tasks = JoinSet::new();
        let mut waiting = self.found.iter().enumerate();
        loop {
            while tasks.len() < REQUESTS
                && let Some((index, found)) = waiting.next()
            {
                let one = OneTarget {
                    client: Arc::clone(&self.client),
                    selector: found.selector.clone(),
                    names_parts: found.names_parts,
                    carry: found.carry.clone(),
                };
                tasks.spawn(async move { (index, one.fetch(span).await) });
            }
            match tasks.join_next().await {
                None => return Ok(slices),
                Some(Ok((index, slice))) => slices[index] = slice?,
                Some(Err(error)) => {
                    let store = String::from("bug in Railscope");
                    let why = error.to_string();
                    return Err(ReadBackError::Unreachable { store, why });
                }
            }
        }
    }

    /// Writes the scrapes of a slice in order of time.
    fn write(
        &mut self,
        mut slices: Vec<Slice>,
        output: &mut Output,
        end: Timestamp,
    ) -> Result<(), ReadBackError> {
        let mut order = Vec::new();
        for (target, slice) in slices.iter().enumerate() {
            self.out.has_replicas |= slice.replicas > 0;
            self.out.samples += slice.samples as u64;
            let scrapes = slice.scrapes.iter().enumerate();
            order.extend(scrapes.map(|(index, scrape)| (scrape.done, target, index)));
        }
        order.sort_unstable();
        for (at, target, index) in order {
            if !output.has(&self.found[target].target) {
                let is_due = |slice: &Slice| {
                    let first = slice.scrapes.first();
                    first.is_some_and(|first| first.done.0 <= at.0 + TOGETHER)
                };
                let due = self.found.iter().zip(&slices);
                let due = due.filter(|(_, slice)| is_due(slice));
                output.list(due.map(|(found, _)| &found.target), at);
            }
            let found = &mut self.found[target];
            match found.last.replace(at) {
                None => self.out.targets += 1,
                Some(before) => self.intervals.push(at.0.saturating_sub(before.0)),
            }
            if slices[target].scrapes[index].is_up {
                self.out.scrapes += 1;
                let text = slices[target].exposition(index);
                output.scrape(&found.target, at, Ok(&text))?;
            } else {
                self.out.failures += 1;
                // The store has no reason. Samples with their own timestamps belong to the next response.
                output.scrape(&found.target, at, Err("refused"))?;
            }
        }
        for (found, slice) in self.found.iter_mut().zip(slices) {
            found.carry = slice.carry();
            if let Some(last) = found.last
                && end.0 > last.0 + LOOKBACK
            {
                output.unlist(&found.target, Timestamp(last.0 + LOOKBACK));
            }
        }
        // All intervals of a week are not needed for their median.
        self.intervals.truncate(100_000);
        Ok(())
    }

    fn finish(mut self) -> ReadBack {
        self.intervals.sort_unstable();
        let median = self.intervals.get(self.intervals.len() / 2);
        self.out.interval = median.map(|millis| *millis as f64 / 1e3);
        self.out.warning = self.client.warning();
        self.out
    }
}

/// The requests for one target in one slice.
struct OneTarget {
    client: Arc<Client>,
    selector: String,
    names_parts: bool,
    carry: Carry,
}

impl OneTarget {
    /// Its samples; what is too large for the server is requested in halves.
    async fn fetch(mut self, span: (Timestamp, Timestamp)) -> Result<Slice, ReadBackError> {
        let mut slice = Slice::default();
        let mut parts = vec![span];
        while let Some((after, until)) = parts.pop() {
            match self.client.samples(&self.selector, (after, until)).await? {
                Answered::Series(series) => {
                    let carry = std::mem::take(&mut self.carry);
                    slice.append(Slice::of(series, after, self.names_parts, carry));
                }
                Answered::TooMuch(_) if until.0 - after.0 > SHORTEST => {
                    let middle = Timestamp(after.0.midpoint(until.0));
                    parts.extend([(middle, until), (after, middle)]);
                }
                Answered::TooMuch(message) => return Err(ReadBackError::TooMuch(message)),
            }
        }
        Ok(slice)
    }
}

#[cfg(test)]
mod tests;
