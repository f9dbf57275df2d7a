//! Samples that others push, by Prometheus remote write or OTLP.
//!
//! ```text
//! POST /api/v1/write -> remote_write  snappy, protobuf              a thread per request, two at a time
//! POST /v1/metrics   -> otlp          gzip, protobuf, delta sums    likewise; and by gRPC
//!                       fragments     text by target and timestamp
//!                    -> reassembly    complete scrapes, targets     one task
//!                    -> Event::Page, Event::Foreign                 as for own scrapes
//! ```

pub mod deltas;
pub mod fragments;
pub mod otlp;
pub mod remote_write;

mod reassembly;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prost::DecodeError;
use prost::bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::config::Push;
use crate::mapping::Mappings;
use crate::service::Event;
use crate::status::{ScrapeResult, State};

use deltas::Deltas;
use fragments::{Batch, Counts};
pub(crate) use reassembly::target_of;
use reassembly::{Output, Reassembly};
use remote_write::{Sample, Version};

/// Decoded requests that are queued.
const WAITING_BATCHES: usize = 16;
/// Requests that wait for a place or are decoded. Above this, requests are refused with 503 at once.
const WAITING_REQUESTS: usize = 16;
/// Requests that are decoded in parallel.
const DECODED_AT_ONCE: usize = 2;
/// How long a request waits for a place in the queue, and then for being decoded.
const WAIT: Duration = Duration::from_secs(1);

/// How a request is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus remote write, compressed with Snappy.
    RemoteWrite(Version),
    /// An `ExportMetricsServiceRequest` of OTLP.
    Otlp,
    /// The same, compressed with gzip.
    OtlpGzip,
}

/// The protocol of a request: the label `protocol` of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    RemoteWrite,
    Otlp,
}

impl Format {
    fn protocol(self) -> Protocol {
        match self {
            Self::RemoteWrite(_) => Protocol::RemoteWrite,
            Self::Otlp | Self::OtlpGzip => Protocol::Otlp,
        }
    }
}

/// Why a body is not a valid request.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Invalid compression.
    #[error("not Snappy's block format: {0}")]
    Compression(#[from] snap::Error),
    /// Invalid compression.
    #[error("not gzip: {0}")]
    Gzip(std::io::Error),
    /// Too large after decompression.
    #[error("more than {0} bytes decompressed")]
    TooLarge(usize),
    /// Invalid message.
    #[error("not a request of this protocol: {0}")]
    Message(#[from] DecodeError),
    /// A field of another type than the protocol's.
    #[error("not a request of this protocol: a field of another type")]
    Type,
    /// A length that reaches beyond the end.
    #[error("not a request of this protocol: it ends within a field")]
    Truncated,
    /// A label in another encoding.
    #[error("a label that is not UTF-8: {0}")]
    Text(#[from] std::str::Utf8Error),
    /// A reference to a missing symbol, or an odd number of references.
    #[error("series {0} refers to missing symbols")]
    Symbols(usize),
}

/// One series of a request.
#[derive(Debug)]
pub struct Series<'a> {
    /// Names and values of its labels, in the order of the request.
    pub labels: &'a [(&'a str, &'a str)],
    /// Labels of its target alone: they identify the target, and are not part of what its exporter wrote.
    pub target: &'a [(&'a str, &'a str)],
    /// Its samples.
    pub samples: &'a [Sample],
    /// Number of its native histograms.
    pub histograms: usize,
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Overload: the sender should retry.
    #[error("overloaded: too many requests are queued")]
    Busy,
    /// The body is invalid.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Result of a request: the label `result` of the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestResult {
    /// Accepted.
    Ok,
    /// The token is missing or wrong.
    Unauthorized,
    /// Another content type or encoding.
    Unsupported,
    /// The body is invalid.
    Malformed,
    /// The body is too large.
    TooLarge,
    /// Overload.
    Busy,
}

impl From<&Refused> for RequestResult {
    fn from(refused: &Refused) -> Self {
        match refused {
            Refused::Busy => Self::Busy,
            Refused::Body(BodyError::TooLarge(_)) => Self::TooLarge,
            Refused::Body(_) => Self::Malformed,
        }
    }
}

const PROTOCOLS: [&str; 2] = ["remote_write", "otlp"];
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

/// Accepts requests.
#[derive(Debug)]
pub(crate) struct Intake {
    config: Arc<Push>,
    batches: mpsc::Sender<Batch>,
    waiting: Arc<Semaphore>,
    decoding: Arc<Semaphore>,
    deltas: Arc<Mutex<Deltas>>,
    requests: [[AtomicU64; REQUEST_RESULTS.len()]; PROTOCOLS.len()],
    samples: [[AtomicU64; SAMPLE_RESULTS.len()]; PROTOCOLS.len()],
}

/// Decoded requests.
#[derive(Debug)]
pub(crate) struct Inbox {
    config: Arc<Push>,
    batches: mpsc::Receiver<Batch>,
}

/// The intake, and the queue for [`follow`].
pub(crate) fn open(config: Push) -> (Intake, Inbox) {
    let config = Arc::new(config);
    let (sender, batches) = mpsc::channel(WAITING_BATCHES);
    let intake = Intake {
        config: Arc::clone(&config),
        batches: sender,
        waiting: Arc::new(Semaphore::new(WAITING_REQUESTS)),
        decoding: Arc::new(Semaphore::new(DECODED_AT_ONCE)),
        deltas: Arc::default(),
        requests: Default::default(),
        samples: Default::default(),
    };
    (intake, Inbox { config, batches })
}

impl Intake {
    /// The token that senders must present, if any.
    pub(crate) fn token(&self) -> Option<&str> {
        self.config.token.as_deref()
    }

    /// Decodes and queues a request.
    pub(crate) async fn accept(
        &self,
        format: Format,
        body: Bytes,
        state: &State,
    ) -> Result<Counts, Refused> {
        let now = state.now();
        let waiting = Arc::clone(&self.waiting).try_acquire_owned();
        let waiting = waiting.map_err(|_| Refused::Busy)?;
        let place = in_time(self.batches.clone().reserve_owned()).await?;
        let permit = in_time(Arc::clone(&self.decoding).acquire_owned()).await?;
        let (config, deltas) = (Arc::clone(&self.config), Arc::clone(&self.deltas));
        // It completes even if the sender does not wait for it.
        let read = move || {
            let _held = (waiting, permit);
            let batch = Batch::read(format, &body, (&config, &deltas), now)?;
            let counts = batch.counts;
            place.send(batch);
            Ok::<_, BodyError>(counts)
        };
        let read = tokio::task::spawn_blocking(read).await;
        let counts = read.map_err(|_| Refused::Busy)??;
        self.count_samples(format.protocol(), counts);
        Ok(counts)
    }

    fn count_samples(&self, protocol: Protocol, counts: Counts) {
        let counts = [
            counts.accepted,
            counts.unassigned,
            counts.stale,
            counts.out_of_window,
            counts.unsupported,
        ];
        for (counter, count) in self.samples[protocol as usize].iter().zip(counts) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self, protocol: Protocol, result: RequestResult) {
        self.requests[protocol as usize][result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests by protocol and result.
    pub(crate) fn requests(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        counted(REQUEST_RESULTS, &self.requests)
    }

    /// Samples by protocol and result.
    pub(crate) fn samples(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        counted(SAMPLE_RESULTS, &self.samples)
    }
}

/// What is waited for, if it comes within [`WAIT`].
async fn in_time<T, E>(awaited: impl Future<Output = Result<T, E>>) -> Result<T, Refused> {
    match timeout(WAIT, awaited).await {
        Ok(Ok(come)) => Ok(come),
        Ok(Err(_)) | Err(_) => Err(Refused::Busy),
    }
}

fn counted<const N: usize>(
    results: [&'static str; N],
    counters: &[[AtomicU64; N]; PROTOCOLS.len()],
) -> impl Iterator<Item = ([&'static str; 2], u64)> {
    let by_protocol = PROTOCOLS.into_iter().zip(counters);
    by_protocol.flat_map(move |(protocol, counters)| {
        let counts = counters.iter().map(|count| count.load(Ordering::Relaxed));
        let results = results.into_iter().map(move |result| [protocol, result]);
        results.zip(counts)
    })
}

/// Passes scrapes on to the analysis until that ends.
pub(crate) async fn follow(
    mut inbox: Inbox,
    mappings: Mappings,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let mut reassembly = Reassembly::new(inbox.config, mappings);
    if state.recorder.is_some() {
        reassembly.record();
    }
    let mut due = interval(Duration::from_secs(1));
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let outputs = tokio::select! {
            batch = inbox.batches.recv() => match batch {
                Some(batch) => reassembly.add(batch.fragments, state.now()),
                None => return,
            },
            _ = due.tick() => reassembly.due(state.now()),
        };
        for output in outputs {
            if !pass_on(output, &events, &state).await {
                return;
            }
        }
    }
}

/// Passes on one output; returns false once the analysis has ended.
async fn pass_on(output: Output, events: &mpsc::Sender<Event>, state: &State) -> bool {
    let event = match output {
        Output::Targets(targets) => {
            tracing::info!(targets = targets.len(), "targets that are pushed");
            state.set_pushed_targets(&targets);
            if let Some(recorder) = &state.recorder {
                recorder.set_targets(&targets, true, state.now());
            }
            Event::PushedTargets(targets)
        }
        Output::Scrape(event, kind) => {
            if let (Event::Foreign { target, .. }, Some(kind)) = (&*event, &kind) {
                state.record_kind(target, kind);
            }
            *event
        }
        Output::Recorded(target, at, text) => {
            if let Some(recorder) = &state.recorder {
                recorder.pushed(&target, state.now(), at, &text);
            }
            return true;
        }
        Output::Down(target) => {
            if let Some(recorder) = &state.recorder {
                recorder.scrape(&target, state.now(), Err("refused"));
            }
            let why = String::from("the sender could not scrape it (up is 0)");
            if state.record_scrape(&target, ScrapeResult::Unreachable, None, Some(why)) {
                tracing::warn!(target = target.name(), "up is 0");
            }
            return true;
        }
    };
    events.send(event).await.is_ok()
}
