//! Open files: how many the collector may have, how many its targets need, and how many scrapes leave to the rest.
//!
//! A connection stays open between scrapes, so each target needs a descriptor. When all are taken nothing can be
//! accepted any more, and the collector's own `/metrics` is the first thing to go: scrapes leave [`RESERVED`].

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest descriptors that scrapes leave: for clients of the web server, subnet sources, state files and recordings. Where
/// the limit is so low that this would be more than half of it, half is left.
const RESERVED: u64 = 256;
/// Descriptors that clients leave of those.
const FILES: u64 = 128;
/// One descriptor in so many is for clients, up to [`MOST_CLIENTS`].
const PER_CLIENT: u64 = 8;
/// Enough for an agent on each of 12,500 nodes that pushes.
const MOST_CLIENTS: u64 = 16_384;
/// The most that the collector allows itself: a hard limit may be a billion, which is slow for programs that it starts.
const LARGEST: u64 = 1 << 20;

/// The process's limit of open files, and what follows from it for scrapes.
#[derive(Debug)]
pub(super) struct Descriptors {
    limit: u64,
    short: AtomicBool,
}

impl Descriptors {
    /// Raises the soft limit of this process to the hard one, up to [`LARGEST`].
    pub(super) fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        let wanted = before.maximum.unwrap_or(LARGEST).min(LARGEST);
        if before.current.is_some_and(|current| current < wanted) {
            let raised = Rlimit {
                current: Some(wanted),
                maximum: before.maximum,
            };
            match setrlimit(Resource::Nofile, raised) {
                Ok(()) => tracing::debug!(
                    from = before.current,
                    to = wanted,
                    "limit of open files raised"
                ),
                Err(error) => {
                    tracing::warn!(%error, wanted, "cannot raise the limit of open files");
                }
            }
        }
        Self::of(getrlimit(Resource::Nofile).current)
    }

    /// None is without limit.
    fn of(limit: Option<u64>) -> Self {
        Self {
            limit: limit.unwrap_or(LARGEST).min(LARGEST),
            short: AtomicBool::new(false),
        }
    }

    /// Connections to targets at the same time.
    pub(super) fn for_scrapes(&self) -> usize {
        let reserved = RESERVED.max(self.clients() + FILES).min(self.limit / 2);
        places(self.limit - reserved)
    }

    /// Connections of clients at the same time.
    pub(super) fn for_clients(&self) -> usize {
        places(self.clients())
    }

    fn clients(&self) -> u64 {
        (self.limit / PER_CLIENT).min(MOST_CLIENTS)
    }

    /// Sets the number of targets; logs when the limit becomes too short for them, or is sufficient again.
    pub(super) fn expect_targets(&self, targets: usize) {
        let places = self.for_scrapes();
        let short = targets > places;
        if short == self.short.swap(short, Ordering::Relaxed) {
            return;
        }
        if short {
            let needed = targets as u64 + RESERVED;
            tracing::warn!(
                targets,
                limit = self.limit,
                needed,
                "too few open files for the targets: connections are closed after each scrape, and at most {places} \
                 targets are scraped at the same time; raise LimitNOFILE or ulimit -Hn"
            );
        } else {
            tracing::info!(
                targets,
                limit = self.limit,
                "enough open files for the targets again"
            );
        }
    }

    /// Whether connections must be closed after each scrape.
    pub(super) fn are_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }
}

fn places(descriptors: u64) -> usize {
    usize::try_from(descriptors).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapes_leave_a_reserve_and_never_more_than_half() {
        for (limit, scrapes, clients) in [
            (Some(0), 1, 1),
            (Some(64), 32, 8),
            (Some(1024), 768, 128),
            (Some(65_536), 57_216, 8_192),
            (None, 1_032_064, 16_384),
        ] {
            let descriptors = Descriptors::of(limit);
            assert_eq!(descriptors.for_scrapes(), scrapes, "{limit:?}");
            assert_eq!(descriptors.for_clients(), clients, "{limit:?}");
        }
    }

    #[test]
    fn a_limit_is_short_while_there_are_more_targets_than_places() {
        let descriptors = Descriptors::of(Some(1024));
        for (targets, short) in [(768, false), (769, true), (1400, true), (768, false)] {
            descriptors.expect_targets(targets);
            assert_eq!(descriptors.are_short(), short, "{targets}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let descriptors = Descriptors::raise();
        let now = getrlimit(Resource::Nofile);
        let hard = now.maximum.unwrap_or(LARGEST).min(LARGEST);
        assert!(now.current.is_none_or(|soft| soft >= hard), "{now:?}");
        assert!(descriptors.limit >= hard);
    }
}
