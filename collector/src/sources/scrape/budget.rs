//! Limits the total bytes of scrape bodies that are being read or are queued for the analysis.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Total bytes of all scrape bodies, excluding one of any size. At 12,500 nodes the bodies of one second use 20 % of it.
const ALL_PAGES: usize = 128 << 20;
/// Bytes reserved for the first scrape of a target: the default profile of a node with eight GPUs.
const FIRST: usize = 256 << 10;
/// Bytes of one permit; the number of permits of a body must fit in 32 bits.
const UNIT: usize = 1 << 10;

/// The byte budget of scrape bodies.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    all: Arc<Semaphore>,
    /// While the budget is exhausted, one body at a time may exceed its reservation, so that bodies with reservations never
    /// deadlock.
    growing: Arc<Semaphore>,
    largest: usize,
}

/// The reservation of one scrape body, released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    permit: OwnedSemaphorePermit,
    growing: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget for at least four bodies of the maximum size.
    pub(super) fn new(largest: usize) -> Self {
        Self::of(ALL_PAGES.max(largest.saturating_mul(4)), largest)
    }

    fn of(bytes: usize, largest: usize) -> Self {
        let units = bytes.div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(units)),
            growing: Arc::new(Semaphore::new(1)),
            largest,
        }
    }

    /// Waits for a reservation, estimated from the size of the target's last body.
    pub(super) async fn hold(&self, last: Option<usize>) -> Option<Held> {
        let likely = last.map_or(FIRST, |last| last + last / 8);
        let units = units(likely.min(self.largest));
        // The semaphores are never closed.
        let permit = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
        Some(Held {
            permit,
            growing: None,
        })
    }

    /// Extends the reservation of a body that is larger than estimated.
    pub(super) async fn grow(&self, held: &mut Held, bytes: usize) {
        if bytes <= held.bytes() || held.growing.is_some() {
            return;
        }
        let wanted = bytes.max(2 * held.bytes()).min(self.largest.max(bytes));
        let more = units(wanted - held.bytes());
        if let Ok(permit) = Arc::clone(&self.all).try_acquire_many_owned(more) {
            held.permit.merge(permit);
        } else {
            held.growing = Arc::clone(&self.growing).acquire_owned().await.ok();
        }
    }
}

impl Held {
    /// The reserved bytes.
    pub(super) fn bytes(&self) -> usize {
        self.permit.num_permits().saturating_mul(UNIT)
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test(start_paused = true)]
    async fn bodies_wait_until_earlier_ones_are_ingested() {
        let budget = Budget::of(4 << 20, 1 << 20);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(budget.hold(Some(1 << 20)).await.expect("room"));
        }
        assert!(timeout(SOON, budget.hold(Some(1))).await.is_err());
        held.pop();
        assert!(timeout(SOON, budget.hold(Some(1))).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn above_the_budget_one_body_at_a_time_grows_and_none_waits_forever() {
        let budget = Budget::of(2 * FIRST, 16 << 20);
        let [mut first, mut second] = [
            budget.hold(None).await.expect("room"),
            budget.hold(None).await.expect("room"),
        ];
        assert_eq!(first.bytes(), FIRST);
        budget.grow(&mut first, FIRST).await;
        assert!(first.growing.is_none(), "the bytes are reserved");
        budget.grow(&mut first, 16 << 20).await;
        assert!(first.growing.is_some());
        let growth = timeout(SOON, budget.grow(&mut second, 2 * FIRST)).await;
        assert!(growth.is_err(), "one at a time");
        drop(first);
        budget.grow(&mut second, 2 * FIRST).await;
        assert_eq!(second.bytes(), 2 * FIRST);
    }
}
