//! Delivers encoded requests of one signal: one at a time, with retries within bounds, and counts what became of them.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::stats::{Counters, Signal};
use crate::wire::{Outcome, Wire};

/// Attempts for one request, the first included.
const ATTEMPTS: u32 = 5;
/// Delay before the first retry; each further one is twice as long. With [`ATTEMPTS`] all delays together are 15 s, so
/// that a restart of the receiver loses nothing and old data does not delay new data for long.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay that a receiver can ask for. If it asks for more, the request is dropped, as an earlier retry
/// would add to its load.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// When the process stops: the instant after which nothing is sent, once it is known.
pub(crate) type Closing = watch::Receiver<Option<Instant>>;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    /// The receiver accepted it, at least in part.
    Accepted,
    /// The receiver rejected it.
    Rejected,
    /// The receiver did not accept it within all attempts.
    Failed,
}

/// The delivery of one signal.
#[derive(Debug)]
pub(crate) struct Delivery {
    wire: Wire,
    signal: Signal,
    limit: Duration,
    first_delay: Duration,
    counters: Arc<Counters>,
    closing: Closing,
    is_failing: AtomicBool,
    /// At most one request is in flight.
    turn: Mutex<()>,
}

impl Delivery {
    pub(crate) fn new(
        wire: Wire,
        signal: Signal,
        limit: Duration,
        counters: Arc<Counters>,
        closing: Closing,
    ) -> Self {
        Self {
            wire,
            signal,
            limit,
            first_delay: FIRST_DELAY,
            counters,
            closing,
            is_failing: AtomicBool::new(false),
            turn: Mutex::new(()),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Delivers one request of so many items, or drops it and counts that.
    pub(crate) async fn deliver(&self, message: Bytes, items: u64) -> Delivered {
        let _turn = self.turn.lock().await;
        let mut delay = self.first_delay;
        for attempt in 1..=ATTEMPTS {
            let (wanted, reason) = match self.attempt(message.clone()).await {
                Outcome::Accepted(rejected, reason) => {
                    self.accepted(items, rejected, &reason);
                    return Delivered::Accepted;
                }
                Outcome::Rejected(reason) => {
                    self.counters.exports_rejected.add(1);
                    self.counters.items_rejected.add(items);
                    self.fails("rejected", &reason, items);
                    return Delivered::Rejected;
                }
                Outcome::Retry(wanted, reason) => (wanted, reason),
            };
            let pause = jittered(delay).max(wanted.unwrap_or_default());
            if attempt == ATTEMPTS || self.is_closing() || pause > LONGEST_DELAY {
                self.failed(items, &reason);
                return Delivered::Failed;
            }
            // The last attempt is made early when the process stops.
            let mut closing = self.closing.clone();
            tokio::select! {
                () = sleep(pause) => {}
                _ = closing.wait_for(Option::is_some) => {}
            }
            delay *= 2;
            self.counters.retries.add(1);
        }
        Delivered::Failed
    }

    async fn attempt(&self, message: Bytes) -> Outcome {
        tokio::select! {
            biased;
            () = self.closed() => Outcome::Retry(None, "the process stops".to_owned()),
            sent = timeout(self.limit, self.wire.send(message)) => {
                sent.unwrap_or_else(|_| Outcome::Retry(None, format!("no answer within {:?}", self.limit)))
            }
        }
    }

    /// Returns at the deadline of the shutdown.
    async fn closed(&self) {
        let mut closing = self.closing.clone();
        let deadline = closing
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|deadline| *deadline);
        // Without a sender nothing can be flushed any more.
        if let Some(deadline) = deadline {
            sleep_until(deadline).await;
        }
    }

    fn is_closing(&self) -> bool {
        self.closing.borrow().is_some()
    }

    fn accepted(&self, items: u64, rejected: u64, reason: &str) {
        let rejected = rejected.min(items);
        self.counters.items_sent.add(items - rejected);
        self.counters.items_rejected.add(rejected);
        if rejected > 0 {
            self.counters.exports_partial.add(1);
            self.fails("accepted in part", reason, rejected);
            return;
        }
        self.counters.exports_ok.add(1);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(signal = self.signal.as_str(), "OTLP exports succeed again");
        }
    }

    fn failed(&self, items: u64, reason: &str) {
        self.counters.exports_failed.add(1);
        self.counters.items_failed.add(items);
        self.fails("failed", reason, items);
    }

    /// Logs the first failure after a success, not every one.
    fn fails(&self, result: &str, reason: &str, items: u64) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let signal = self.signal.as_str();
            tracing::warn!(
                signal,
                result,
                items,
                error = reason,
                "OTLP export failed; later failures are only counted"
            );
        }
    }
}

/// 80 to 120 % of a delay, so that nodes do not retry simultaneously.
fn jittered(delay: Duration) -> Duration {
    // Each state hashes with new keys: random enough, without a crate for it.
    let share = RandomState::new().hash_one(0u8) % 401;
    delay * (800 + u32::try_from(share).unwrap_or(0)) / 1000
}
