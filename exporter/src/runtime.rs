//! Runs every sampler on a thread of its own and merges what each last said into one page.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use railscope_model::exposition::Page;
use railscope_model::metric::{
    EXPORTER_BUILD, EXPORTER_DROPPED, EXPORTER_SERIES, NODE, Profile, SOURCE_AGE, SOURCE_DURATION,
    SOURCE_ERRORS,
};
use railscope_model::reading::{Labels, NodeReading, Sample, Status};

use crate::page::RenderedPage;
use crate::sampler::{Machine, Presence, SAMPLERS, SampleError, Sampler};

/// A page is merged anew after this time even if no source said anything, so that ages grow.
const MAX_PAGE_AGE: Duration = Duration::from_secs(1);
/// How long stopping waits for samplers to end; one that hangs is left behind.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Keeps a sampler that asks for no pause from spinning.
const MIN_PERIOD: Duration = Duration::from_millis(10);
/// Profiles with the names that `?profile=` and the `profile` label give them.
pub const PROFILES: [(&str, Profile); 2] = [("default", Profile::Default), ("full", Profile::Full)];

/// What the exporter reads and when it stops believing what it read.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the machine is.
    pub machine: Machine,
    /// The name by which the cluster knows the node; none takes the machine's own host name.
    pub node_name: Option<String>,
    /// When values are too old to be shown.
    pub limits: Limits,
}

impl From<Machine> for Config {
    fn from(machine: Machine) -> Self {
        Self {
            machine,
            node_name: None,
            limits: Limits::default(),
        }
    }
}

/// When a source's values are too old to be shown: both have to pass. Then the values leave the page
/// and the status says `timeout`; both are undone by the next complete read.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Periods of the source without a complete read.
    pub stale_periods: u32,
    /// Time without a complete read, whatever the period: a fast source may stumble for a while.
    pub stale_at_least: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stale_periods: 10,
            stale_at_least: Duration::from_secs(30),
        }
    }
}

/// A running exporter: its samplers and the page of what they last said. Stops when dropped.
pub struct Exporter {
    slots: Vec<Arc<Slot>>,
    shared: Arc<Shared>,
    current: ArcSwap<Merged>,
    merging: Mutex<()>,
    dropped: AtomicU64,
}

impl Exporter {
    /// Starts every sampler of [`SAMPLERS`] on the machine.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(config: impl Into<Config>) -> io::Result<Self> {
        let config = config.into();
        let samplers = SAMPLERS.iter().map(|build| build(&config.machine));
        Self::start_samplers(samplers.collect(), config.limits, config.node_name)
    }

    /// Starts these samplers, whatever they read.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start_samplers(
        samplers: Vec<Box<dyn Sampler>>,
        limits: Limits,
        node_name: Option<String>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            node_name,
            ..Shared::default()
        });
        let exporter = Self {
            slots: samplers
                .iter()
                .map(|sampler| Arc::new(Slot::new(sampler.as_ref(), limits)))
                .collect(),
            shared,
            current: ArcSwap::from_pointee(Merged::default()),
            merging: Mutex::default(),
            dropped: AtomicU64::new(0),
        };
        for (sampler, slot) in samplers.into_iter().zip(&exporter.slots) {
            let running = Running::new(Arc::clone(slot), Arc::clone(&exporter.shared));
            thread::Builder::new()
                .name(format!("sample-{}", sampler.name()))
                .spawn(move || run(sampler, &running))?;
        }
        Ok(exporter)
    }

    /// The page of now: at most `MAX_PAGE_AGE` old, and merged once however many ask.
    pub fn page(&self) -> Arc<RenderedPage> {
        if let Some(page) = self.fresh_page() {
            return page;
        }
        let _one_at_a_time = lock(&self.merging);
        if let Some(page) = self.fresh_page() {
            return page;
        }
        // The generation is taken before the slots are read: what comes in between is merged twice, not lost.
        let generation = self.shared.generation.load(Ordering::Acquire);
        let page = Arc::new(RenderedPage::new(self.merge(Instant::now())));
        self.current.store(Arc::new(Merged {
            generation,
            page: Some((Arc::clone(&page), Instant::now())),
        }));
        page
    }

    /// Asks every sampler to end and waits for those that do; one that hangs is left behind, and ends by
    /// itself should it ever return.
    pub fn stop(&self) {
        *lock(&self.shared.stopping) = true;
        self.shared.stop_asked.notify_all();
        let running = lock(&self.shared.running);
        let ended = &self.shared.ended;
        let left = ended.wait_timeout_while(running, STOP_GRACE, |running| *running > 0);
        let (left, _) = left.unwrap_or_else(PoisonError::into_inner);
        if *left > 0 {
            tracing::warn!(samplers = *left, "left behind: their sources hang");
        }
    }

    fn fresh_page(&self) -> Option<Arc<RenderedPage>> {
        let current = self.current.load();
        let (page, merged_at) = current.page.as_ref()?;
        let unchanged = current.generation == self.shared.generation.load(Ordering::Acquire);
        (unchanged && merged_at.elapsed() < MAX_PAGE_AGE).then(|| Arc::clone(page))
    }

    fn merge(&self, now: Instant) -> Page {
        let mut reading = NodeReading::default();
        let version = Labels::new([env!("CARGO_PKG_VERSION")]);
        reading.push(&EXPORTER_BUILD, &version, true);
        for slot in &self.slots {
            slot.report(now, &mut reading);
        }
        let dropped = reading.normalise() as u64;
        let dropped = self.dropped.fetch_add(dropped, Ordering::Relaxed) + dropped;
        reading.push(&EXPORTER_DROPPED, &Labels::default(), dropped);
        let counts = PROFILES.map(|(name, profile)| {
            let shown = |sample: &&Sample| sample.profile <= profile;
            let others = reading.samples().iter().filter(shown).count();
            (name, (others + PROFILES.len()) as u64)
        });
        for (name, count) in counts {
            reading.push(&EXPORTER_SERIES, &Labels::new([name]), count);
        }
        reading.normalise();
        Page::new(Arc::new(reading))
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last page and what it was merged from.
#[derive(Default)]
struct Merged {
    generation: u64,
    page: Option<(Arc<RenderedPage>, Instant)>,
}

/// What all sampler threads share.
#[derive(Default)]
struct Shared {
    node_name: Option<String>,
    /// Counts what samplers published.
    generation: AtomicU64,
    stopping: Mutex<bool>,
    stop_asked: Condvar,
    running: Mutex<usize>,
    ended: Condvar,
}

impl Shared {
    /// Sleeps; true if asked to end meanwhile.
    fn sleep_until(&self, wake: Instant) -> bool {
        let pause = wake.saturating_duration_since(Instant::now());
        let stopping = lock(&self.stopping);
        let waited = self
            .stop_asked
            .wait_timeout_while(stopping, pause, |stopping| !*stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Nothing here is left half changed by a panic, so a poisoned lock is as good as any other.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sampler thread that has not ended yet.
struct Running {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

impl Running {
    fn new(slot: Arc<Slot>, shared: Arc<Shared>) -> Self {
        *lock(&shared.running) += 1;
        Self { slot, shared }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            let defect = io::Error::other("the sampler panicked: a defect of Railscope");
            self.slot.fail(&SampleError {
                what: self.slot.source.to_owned(),
                cause: defect,
            });
            self.shared.generation.fetch_add(1, Ordering::Release);
        }
        *lock(&self.shared.running) -= 1;
        self.shared.ended.notify_all();
    }
}

fn run(mut sampler: Box<dyn Sampler>, running: &Running) {
    let Running { slot, shared } = running;
    let period = sampler.period().max(MIN_PERIOD);
    let mut next = Instant::now();
    loop {
        let begun = Instant::now();
        let mut reading = NodeReading::default();
        match sampler.sample(&mut reading) {
            Ok(presence) => {
                if let Some(name) = &shared.node_name {
                    reading = rename_node(&reading, name);
                }
                slot.publish(presence, &reading, begun);
            }
            Err(error) => slot.fail(&error),
        }
        shared.generation.fetch_add(1, Ordering::Release);
        // A read that took longer than its period skips the reads it missed.
        next = (next + period).max(Instant::now());
        if shared.sleep_until(next) {
            break;
        }
    }
}

/// The reading with the node's configured name in place of the one the machine gives itself.
fn rename_node(reading: &NodeReading, name: &str) -> NodeReading {
    rewrite(reading, |sample| {
        if sample.metric != &NODE {
            return Some(sample.labels.clone());
        }
        let rest = sample.labels.values().skip(1);
        Some(Labels::new([name].into_iter().chain(rest)))
    })
}

/// The reading with other labels, or without the samples for which `labels` gives none.
fn rewrite(reading: &NodeReading, labels: impl Fn(&Sample) -> Option<Labels>) -> NodeReading {
    let mut out = NodeReading::default();
    for sample in reading.samples() {
        let Some(labels) = labels(sample) else {
            continue;
        };
        if sample.profile == Profile::Full {
            out.push_full(sample.metric, &labels, sample.value);
        } else {
            out.push(sample.metric, &labels, sample.value);
        }
    }
    out
}

/// One source: what its sampler last said.
struct Slot {
    source: &'static str,
    stale_after: Duration,
    last: ArcSwap<Outcome>,
    failed_reads: AtomicU64,
}

/// How the last read of a source ended.
#[derive(Clone)]
struct Outcome {
    /// None before the first read ended.
    status: Option<Status>,
    /// Empty after a read that failed: what cannot be read is absent.
    reading: Arc<NodeReading>,
    /// When any read last ended; the start of the exporter before the first.
    ended_at: Instant,
    /// When a read last was complete; the start of the exporter before the first.
    complete_at: Instant,
    /// What the sampler itself said of its read, in place of what its thread can see.
    own: OwnWord,
    /// None before the first complete read.
    duration_seconds: Option<f64>,
}

/// What a sampler that reads through somebody else (a child process) knows better than its thread. It
/// pushes the metrics of this name for its source.
#[derive(Debug, Clone, Copy, Default)]
struct OwnWord {
    /// `SOURCE_AGE`: age of the oldest value when `sample` returned, seconds.
    age_seconds: f64,
    /// `SOURCE_DURATION`: the read itself, seconds.
    duration_seconds: Option<f64>,
    /// `SOURCE_ERRORS`: single values that failed since the start.
    errors: u64,
}

impl Slot {
    fn new(sampler: &dyn Sampler, limits: Limits) -> Self {
        let now = Instant::now();
        let periods = sampler.period().saturating_mul(limits.stale_periods);
        Self {
            source: sampler.name(),
            stale_after: periods.max(limits.stale_at_least),
            last: ArcSwap::from_pointee(Outcome {
                status: None,
                reading: Arc::default(),
                ended_at: now,
                complete_at: now,
                own: OwnWord::default(),
                duration_seconds: None,
            }),
            failed_reads: AtomicU64::new(0),
        }
    }

    fn publish(&self, presence: Presence, reading: &NodeReading, begun: Instant) {
        let status = match presence {
            Presence::Present => Status::Ok,
            Presence::Absent(why) => why,
        };
        let last = self.last.load();
        if last.status != Some(status) {
            tracing::info!(source = self.source, status = status.as_str());
        }
        let now = Instant::now();
        let (reading, own) = self.split_own_word(reading);
        self.last.store(Arc::new(Outcome {
            status: Some(status),
            reading: Arc::new(reading),
            ended_at: now,
            complete_at: now,
            own,
            duration_seconds: own.duration_seconds.or(Some((now - begun).as_secs_f64())),
        }));
    }

    fn fail(&self, error: &SampleError) {
        self.failed_reads.fetch_add(1, Ordering::Relaxed);
        let status = status_of(&error.cause);
        let last = self.last.load();
        if last.status != Some(status) {
            tracing::warn!(source = self.source, %error, "not read");
        }
        self.last.store(Arc::new(Outcome {
            status: Some(status),
            reading: Arc::default(),
            ended_at: Instant::now(),
            ..Outcome::clone(&last)
        }));
    }

    /// Takes out of a reading what its sampler says of the read itself.
    fn split_own_word(&self, reading: &NodeReading) -> (NodeReading, OwnWord) {
        let mut own = OwnWord::default();
        let own_metrics = [&SOURCE_AGE, &SOURCE_DURATION, &SOURCE_ERRORS];
        let is_own = |sample: &Sample| {
            own_metrics.contains(&sample.metric) && sample.labels.values().eq([self.source])
        };
        for sample in reading.samples().iter().filter(|sample| is_own(sample)) {
            let value = sample.value.as_f64();
            if sample.metric == &SOURCE_AGE {
                own.age_seconds = value;
            } else if sample.metric == &SOURCE_DURATION {
                own.duration_seconds = Some(value);
            } else {
                own.errors = value as u64;
            }
        }
        let rest = rewrite(reading, |sample| {
            (!is_own(sample)).then(|| sample.labels.clone())
        });
        (rest, own)
    }

    /// Adds to a page what the source last said, unless it is too old, and how old it is.
    fn report(&self, now: Instant, page: &mut NodeReading) {
        let last = self.last.load();
        let labels = Labels::new([self.source]);
        let hangs = now.saturating_duration_since(last.ended_at) > self.stale_after;
        if hangs {
            page.push_status(self.source, "", Status::Timeout);
        } else {
            page.extend(&last.reading);
            if let Some(status) = last.status {
                page.push_status(self.source, "", status);
            }
        }
        let age = now
            .saturating_duration_since(last.complete_at)
            .as_secs_f64();
        page.push(&SOURCE_AGE, &labels, age + last.own.age_seconds);
        if let Some(seconds) = last.duration_seconds {
            page.push(&SOURCE_DURATION, &labels, seconds);
        }
        let errors = self.failed_reads.load(Ordering::Relaxed) + last.own.errors;
        page.push(&SOURCE_ERRORS, &labels, errors);
    }
}

/// The status that an error of the operating system amounts to.
fn status_of(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Status::Denied,
        io::ErrorKind::TimedOut => Status::Timeout,
        io::ErrorKind::InvalidData => Status::Unparsed,
        io::ErrorKind::Unsupported => Status::Unsupported,
        _ => Status::Failed,
    }
}
