//! Runs every sampler on a separate thread and merges what each last reported into one
//! exposition.

mod slot;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use railscope_model::exposition::Page;
use railscope_model::metric::{EXPORTER_BUILD, EXPORTER_DROPPED, EXPORTER_SERIES, NODE, Profile};
use railscope_model::reading::{Labels, NodeReading};

use self::slot::Slot;
use crate::lateness::lateness;
use crate::page::RenderedPage;
use crate::sampler::{Machine, ON_DEMAND, Presence, SAMPLERS, SampleError, Sampler};

/// An exposition is merged again after this time even if no source reported anything, so that ages
/// increase.
const MAX_PAGE_AGE: Duration = Duration::from_secs(1);
/// How long shutdown waits for samplers to end; one that is blocked is abandoned.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// Keeps a sampler without a pause from spinning.
const MIN_PERIOD: Duration = Duration::from_millis(10);
/// Profiles with the names that `?profile=` and the `profile` label give them.
pub const PROFILES: [(&str, Profile); 2] = [("default", Profile::Default), ("full", Profile::Full)];

/// What the exporter reads, and after which time values are stale.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the machine is.
    pub machine: Machine,
    /// Name of the node in the cluster; none uses the machine's own host name.
    pub node_name: Option<String>,
    /// When values are too old to be shown.
    pub limits: Limits,
    /// Factor by which samplers run more often than they require: 1, except in endurance tests.
    pub hurry: u32,
}

impl From<Machine> for Config {
    fn from(machine: Machine) -> Self {
        Self {
            machine,
            node_name: None,
            limits: Limits::default(),
            hurry: 1,
        }
    }
}

/// When a source's values are too old to be shown: both have to pass. Then the values leave the
/// exposition and the status reports `timeout`; both are undone by the next complete read.
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

/// A running exporter: its samplers and the exposition of what they last reported. Stops when
/// dropped.
pub struct Exporter {
    slots: Vec<Arc<Slot>>,
    shared: Arc<Shared>,
    current: ArcSwap<Merged>,
    merging: Mutex<()>,
    dropped: AtomicU64,
}

impl Exporter {
    /// Starts every sampler of [`SAMPLERS`] on the machine, and those of [`ON_DEMAND`] that it enables.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(config: impl Into<Config>) -> io::Result<Self> {
        let config = config.into();
        let always = SAMPLERS.iter().map(|build| build(&config.machine));
        let on_demand = ON_DEMAND.iter().filter_map(|build| build(&config.machine));
        let samplers = always.chain(on_demand).map(|sampler| {
            let times = config.hurry.max(1);
            Box::new(Hurried { sampler, times }) as Box<dyn Sampler>
        });
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

    /// The current exposition: at most `MAX_PAGE_AGE` old, and merged once for all requests.
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
        let last = self.current.load();
        let last = last.page.as_ref().map(|(page, _)| page.page());
        let now = Instant::now();
        let page = self.merge(now, last.unwrap_or(&Page::default()));
        let page = Arc::new(RenderedPage::new(page));
        self.current.store(Arc::new(Merged {
            generation,
            page: Some((Arc::clone(&page), now)),
        }));
        page
    }

    /// Requests every sampler to end and waits for those that do; one that is blocked is abandoned, and ends by
    /// itself if it ever returns.
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

    /// Puts together what the sources last reported, in the order of the last exposition where it
    /// still holds.
    fn merge(&self, now: Instant, last: &Page) -> Page {
        let mut own = NodeReading::default();
        let version = Labels::new([env!("CARGO_PKG_VERSION")]);
        own.push(&EXPORTER_BUILD, &version, true);
        let slots = self.slots.iter();
        let said: Vec<_> = slots.map(|slot| slot.report(now, &mut own)).collect();
        // What the exposition reports about itself is known when it is complete; until then zeros
        // are there.
        own.push(&EXPORTER_DROPPED, &Labels::default(), 0_u64);
        for (name, _) in PROFILES {
            own.push(&EXPORTER_SERIES, &Labels::new([name]), 0_u64);
        }
        let mut page = last.after(said.into_iter().chain([Arc::new(own)]));
        let dropped = page.dropped() as u64;
        let dropped = self.dropped.fetch_add(dropped, Ordering::Relaxed) + dropped;
        page.set(&EXPORTER_DROPPED, &Labels::default(), dropped);
        for (name, profile) in PROFILES {
            let count = page.series(profile) as u64;
            page.set(&EXPORTER_SERIES, &Labels::new([name]), count);
        }
        page
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last exposition and what it was merged from.
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
    /// Sleeps; true if requested to end meanwhile.
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
            let defect = io::Error::other("the sampler panicked: a bug in Railscope");
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
        slot.begin(lateness(next, begun));
        let mut reading = NodeReading::default();
        match sampler.sample(&mut reading) {
            Ok(presence) => {
                if let Some(name) = &shared.node_name {
                    rename_node(&mut reading, name);
                }
                slot.publish(presence, reading, begun);
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

/// Replaces the machine's own name with the node's configured name.
fn rename_node(reading: &mut NodeReading, name: &str) {
    for sample in reading.take(|sample| sample.metric == &NODE) {
        let rest = sample.labels.values().skip(1);
        let labels = Labels::new([name].into_iter().chain(rest));
        reading.push(&NODE, &labels, sample.value);
    }
}

/// A sampler that runs several times as often as it requires.
struct Hurried {
    sampler: Box<dyn Sampler>,
    times: u32,
}

impl Sampler for Hurried {
    fn name(&self) -> &'static str {
        self.sampler.name()
    }

    fn period(&self) -> Duration {
        self.sampler.period() / self.times
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        self.sampler.sample(reading)
    }
}
