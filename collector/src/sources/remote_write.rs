//! Samples that Prometheus, vmagent or Alloy push by remote write, as pages of the targets that those scrape.
//!
//! ```text
//! POST /api/v1/write -> wire      snappy, protobuf      a thread for each request, few at a time
//!                       portions  text by target and time
//!                    -> pages     whole pages, targets   one task
//!                    -> Event::Page, Event::Foreign      as from a scrape
//! ```

pub mod portions;
pub mod wire;

mod pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::config::RemoteWrite;
use crate::mapping::Mappings;
use crate::service::Event;
use crate::status::{ScrapeResult, State};

use pages::{Pages, Told};
use portions::{Batch, Counts};
use wire::{BodyError, Version};

/// Requests that wait to be put together. Beyond them a sender is told to come back.
const WAITING_BATCHES: usize = 16;
/// Requests that are decompressed at once.
const DECODED_AT_ONCE: usize = 2;
/// How long a request waits for that.
const WAIT: Duration = Duration::from_secs(1);

/// Why a request was not taken up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Too much at once: the same request may succeed later.
    #[error("more is pushed than can be taken up")]
    Busy,
    /// It is no request.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// What became of requests: the `result` label of their counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestResult {
    /// All that it holds was taken up, or counted.
    Ok,
    /// Without the token.
    Unauthorized,
    /// Of another format.
    Unsupported,
    /// No request.
    Malformed,
    /// Beyond the limit.
    TooLarge,
    /// To be sent again.
    Busy,
}

const REQUEST_RESULTS: [&str; 6] = [
    "ok",
    "unauthorized",
    "unsupported",
    "malformed",
    "too_large",
    "busy",
];
const SAMPLE_RESULTS: [&str; 5] = [
    "accepted",
    "unassigned",
    "stale_marker",
    "out_of_window",
    "unsupported",
];

/// Where requests are handed in.
#[derive(Debug)]
pub(crate) struct Intake {
    config: Arc<RemoteWrite>,
    batches: mpsc::Sender<Batch>,
    decoding: Semaphore,
    requests: [AtomicU64; REQUEST_RESULTS.len()],
    samples: [AtomicU64; SAMPLE_RESULTS.len()],
}

/// What was handed in.
#[derive(Debug)]
pub(crate) struct Inbox {
    config: Arc<RemoteWrite>,
    batches: mpsc::Receiver<Batch>,
}

/// An intake, and what must be [followed](follow).
pub(crate) fn open(config: RemoteWrite) -> (Intake, Inbox) {
    let config = Arc::new(config);
    let (sender, batches) = mpsc::channel(WAITING_BATCHES);
    let intake = Intake {
        config: Arc::clone(&config),
        batches: sender,
        decoding: Semaphore::new(DECODED_AT_ONCE),
        requests: Default::default(),
        samples: Default::default(),
    };
    (intake, Inbox { config, batches })
}

impl Intake {
    /// What a sender must show.
    pub(crate) fn token(&self) -> Option<&str> {
        self.config.token.as_deref()
    }

    /// Takes up the body of a request.
    pub(crate) async fn accept(
        &self,
        version: Version,
        body: Bytes,
        state: &State,
    ) -> Result<Counts, Refused> {
        let now = state.now();
        let place = self.batches.try_reserve().map_err(|_| Refused::Busy)?;
        let permit = timeout(WAIT, self.decoding.acquire()).await;
        let _permit = permit.map_err(|_| Refused::Busy)?.ok();
        let config = Arc::clone(&self.config);
        let read = move || Batch::read(version, &body, &config, now);
        let read = tokio::task::spawn_blocking(read).await;
        let batch = read.map_err(|_| Refused::Busy)??;
        let counts = batch.counts;
        place.send(batch);
        self.count_samples(counts);
        Ok(counts)
    }

    fn count_samples(&self, counts: Counts) {
        let counts = [
            counts.accepted,
            counts.unassigned,
            counts.stale,
            counts.out_of_window,
            counts.unsupported,
        ];
        for (counter, count) in self.samples.iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, result: RequestResult) {
        self.requests[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests by result.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        counted(REQUEST_RESULTS, &self.requests)
    }

    /// Samples by what became of them.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (&'static str, u64)> {
        counted(SAMPLE_RESULTS, &self.samples)
    }
}

fn counted<const N: usize>(
    results: [&'static str; N],
    counters: &[AtomicU64; N],
) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = counters.iter().map(|count| count.load(Ordering::Relaxed));
    results.into_iter().zip(counts)
}

/// Hands pages to the analysis until that is gone.
pub(crate) async fn follow(
    mut inbox: Inbox,
    mappings: Mappings,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let mut pages = Pages::new(inbox.config, mappings);
    let mut due = interval(Duration::from_secs(1));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let told = tokio::select! {
            batch = inbox.batches.recv() => match batch {
                Some(batch) => pages.take(batch.portions, state.now()),
                None => return,
            },
            _ = due.tick() => pages.due(state.now()),
        };
        for one in told {
            if !tell(one, &events, &state).await {
                return;
            }
        }
    }
}

/// Tells the analysis; whether it is still there.
async fn tell(told: Told, events: &mpsc::Sender<Event>, state: &State) -> bool {
    let event = match told {
        Told::Targets(targets) => {
            tracing::info!(targets = targets.len(), "targets of remote write");
            state.set_pushed_targets(&targets);
            Event::PushedTargets(targets)
        }
        Told::Page(event, kind) => {
            if let (Event::Foreign { target, .. }, Some(kind)) = (&event, &kind) {
                state.record_kind(target, kind);
            }
            event
        }
        Told::Down(target) => {
            let why = String::from("its sender could not scrape it: up is 0");
            if state.record_scrape(&target, ScrapeResult::Unreachable, None, Some(why)) {
                tracing::warn!(target = target.name(), "up is 0");
            }
            return true;
        }
    };
    events.send(event).await.is_ok()
}
