//! Records everything that the analysis receives as a pack (docs/recording.md). Off unless configured.
//!
//! ```text
//! scrapes, cycles, targets, fabric -> Recorder   lines in memory, at most 64 MiB
//! once a second                    -> Writer     one zstd frame, one write
//!                                  -> Ring       files; the oldest segment is deleted first
//! ```
//!
//! An error of the recording never stops the collector: it is logged when it begins, and its lines are counted.

mod compression;
mod configuration;
mod ring;
mod targets;
mod writer;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{Config, Target};
use crate::diagnose::stages::maintenance::Window;
use crate::status::State;

use targets::TargetLog;
use writer::Writer;

/// What a kill loses at most.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Limit on the lines that are not written yet. Further ones are dropped.
const MOST_WAITING_BYTES: usize = 64 << 20;
/// From here on a write does not wait for its second.
const EARLY_BYTES: usize = 8 << 20;
/// Limit on the cycles that are not written yet, while the folder cannot be written.
const MOST_CYCLES: usize = 100_000;

/// Results of a line: the label `result` of the counter.
const RESULTS: [&str; 3] = ["written", "dropped", "failed"];

#[derive(Debug, Clone, Copy)]
enum LineResult {
    Written,
    Dropped,
    Failed,
}

/// One line without its time.
#[derive(Debug)]
struct Line {
    at: Timestamp,
    samples_at: Timestamp,
    /// Target and result as members of a JSON object.
    members: Vec<u8>,
}

/// What is not written yet.
#[derive(Debug, Default)]
struct Batch {
    lines: Vec<Line>,
    bytes: usize,
    cycles: Vec<Timestamp>,
    fabric: Option<(Timestamp, String)>,
    /// The maintenance windows if they are other ones than before, and since when.
    windows: Option<(Timestamp, Vec<Arc<Window>>)>,
}

#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    /// Those of the last cycle.
    windows: Vec<Arc<Window>>,
    is_dropping: bool,
}

/// Records into one folder.
#[derive(Debug)]
pub struct Recorder {
    waiting: Mutex<Waiting>,
    targets: Mutex<TargetLog>,
    writer: Mutex<Writer>,
    early: Notify,
    counts: [AtomicU64; RESULTS.len()],
    most_waiting_bytes: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// A recorder as configured; none if the configuration has no recording. It writes nothing yet.
    pub fn open(config: &Config, now: Timestamp) -> Option<Self> {
        let record = config.record.as_ref()?;
        let writer = Writer::new(record, config);
        let mut targets = TargetLog::default();
        if let Some(text) = writer.earlier_targets() {
            targets.load(&text, &config.mappings, now);
        }
        Some(Self {
            waiting: Mutex::default(),
            targets: Mutex::new(targets),
            writer: Mutex::new(writer),
            early: Notify::new(),
            counts: Default::default(),
            most_waiting_bytes: MOST_WAITING_BYTES,
        })
    }

    /// Records the list of targets that are scraped, or of those that are pushed.
    pub fn set_targets(&self, targets: &[Target], are_pushed: bool, now: Timestamp) {
        lock(&self.targets).set(targets, are_pushed, now);
    }

    /// Records a scrape: its exposition, or the name of its failure.
    pub fn scrape(&self, target: &Target, at: Timestamp, answer: Result<&str, &str>) {
        self.add(target, (at, at), answer);
    }

    /// Records a scrape that a sender pushed: when it was passed on, and the time of its samples.
    pub fn pushed(&self, target: &Target, now: Timestamp, samples_at: Timestamp, body: &str) {
        self.add(target, (now, samples_at), Ok(body));
    }

    fn add(
        &self,
        target: &Target,
        (at, samples_at): (Timestamp, Timestamp),
        answer: Result<&str, &str>,
    ) {
        // A target that was just removed from the list: the analysis ignores its scrape, too.
        let Some(origin) = lock(&self.targets).members(target) else {
            return;
        };
        let (name, text) = match answer {
            Ok(body) => ("body", body),
            Err(error) => ("error", error),
        };
        let mut members = Vec::with_capacity(origin.len() + text.len() + text.len() / 8 + 16);
        members.extend_from_slice(origin.as_bytes());
        members.extend_from_slice(format!(",\"{name}\":").as_bytes());
        if serde_json::to_writer(&mut members, text).is_err() {
            self.count(LineResult::Failed, 1);
            return;
        }
        let mut waiting = lock(&self.waiting);
        if waiting.batch.bytes + members.len() > self.most_waiting_bytes {
            self.count(LineResult::Dropped, 1);
            if !std::mem::replace(&mut waiting.is_dropping, true) {
                tracing::warn!(
                    "recording: {} bytes are not written yet; scrapes are dropped from the recording",
                    self.most_waiting_bytes
                );
            }
            return;
        }
        waiting.batch.bytes += members.len();
        waiting.batch.lines.push(Line {
            at,
            samples_at,
            members,
        });
        if waiting.batch.bytes > EARLY_BYTES {
            self.early.notify_one();
        }
    }

    /// Records an analysis cycle and the maintenance windows that it uses.
    pub fn cycle(&self, now: Timestamp, windows: &[Arc<Window>]) {
        let mut waiting = lock(&self.waiting);
        if waiting.batch.cycles.len() < MOST_CYCLES {
            waiting.batch.cycles.push(now);
        }
        if waiting.windows != windows {
            waiting.windows = windows.to_vec();
            waiting.batch.windows = Some((now, windows.to_vec()));
        }
    }

    /// Records the text of the subnet, from now on valid.
    pub fn fabric(&self, now: Timestamp, text: String) {
        lock(&self.waiting).batch.fabric = Some((now, text));
    }

    /// Writes what was recorded since the last call. An error is logged and counted.
    pub fn flush(&self, now: Timestamp) {
        // The next write retries.
        self.write(now).ok();
    }

    /// Writes what was recorded since the last call.
    ///
    /// # Errors
    /// The folder cannot be written; what was to be written is lost.
    pub fn write(&self, now: Timestamp) -> io::Result<()> {
        let mut writer = lock(&self.writer);
        let batch = {
            let mut waiting = lock(&self.waiting);
            waiting.is_dropping = false;
            std::mem::take(&mut waiting.batch)
        };
        let lines = batch.lines.len() as u64;
        let written = writer.write(batch, &self.targets, now);
        match &written {
            Ok(()) => self.count(LineResult::Written, lines),
            Err(_) => self.count(LineResult::Failed, lines),
        }
        written
    }

    fn count(&self, result: LineResult, lines: u64) {
        self.counts[result as usize].fetch_add(lines, Ordering::Relaxed);
    }

    /// Lines by result.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        RESULTS.into_iter().zip(counts)
    }
}

/// Writes once a second, and earlier if there is much.
pub(crate) async fn follow(recorder: Arc<Recorder>, state: Arc<State>) {
    let mut due = interval(WRITE_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = recorder.early.notified() => {}
        }
        let (recorder, now) = (Arc::clone(&recorder), state.now());
        let flushed = tokio::task::spawn_blocking(move || recorder.flush(now)).await;
        if let Err(error) = flushed {
            tracing::error!("bug in Railscope: a write of the recording ended: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
