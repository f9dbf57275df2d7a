//! Bytes of pages that are being read or wait for the analysis: bounded together, whatever targets send.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of all pages together, beside one of any size. At 12,500 nodes all pages of one second have a fifth of it.
const ALL_PAGES: usize = 128 << 20;
/// What a page is taken to need that was never read: the default profile of a node with eight GPUs.
const FIRST: usize = 256 << 10;
/// What permits count: a page may have more bytes than a permit can say.
const UNIT: usize = 1 << 10;

/// The bytes that pages may have.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    all: Arc<Semaphore>,
    /// One page at a time may grow beyond what it was taken to need although all bytes are held. So pages that hold bytes
    /// never wait for each other.
    growing: Arc<Semaphore>,
    largest: usize,
}

/// The bytes that one page may have. They are given back when the page is gone.
#[derive(Debug)]
pub(crate) struct Held {
    permit: OwnedSemaphorePermit,
    growing: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// Enough for some pages of the largest size.
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

    /// Waits for room for a page that is likely to have so many bytes.
    pub(super) async fn hold(&self, last: Option<usize>) -> Option<Held> {
        let likely = last.map_or(FIRST, |last| last + last / 8);
        let units = units(likely.min(self.largest));
        // Nobody closes the semaphores.
        let permit = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
        Some(Held {
            permit,
            growing: None,
        })
    }

    /// Makes room for a page that has more bytes than thought.
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
    /// How many bytes the page may have without growing.
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
    async fn pages_wait_until_those_before_them_are_taken_up() {
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
    async fn of_pages_that_grow_over_all_bytes_one_at_a_time_does_and_none_waits_for_ever() {
        let budget = Budget::of(2 * FIRST, 16 << 20);
        let [mut first, mut second] = [
            budget.hold(None).await.expect("room"),
            budget.hold(None).await.expect("room"),
        ];
        assert_eq!(first.bytes(), FIRST);
        budget.grow(&mut first, FIRST).await;
        assert!(first.growing.is_none(), "it has the bytes");
        budget.grow(&mut first, 16 << 20).await;
        assert!(first.growing.is_some());
        let growth = timeout(SOON, budget.grow(&mut second, 2 * FIRST)).await;
        assert!(growth.is_err(), "one at a time");
        drop(first);
        budget.grow(&mut second, 2 * FIRST).await;
        assert_eq!(second.bytes(), 2 * FIRST);
    }
}
