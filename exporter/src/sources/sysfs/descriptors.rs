//! How many files the process keeps open between reads: all where the limit allows, else the first ones.
//!
//! A file without a place is opened, read and closed each time: that costs time, never the value.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the exporter allows itself, where the hard limit does.
const WANTED: u64 = 65_536;
/// Descriptors left for everything that is not cached here: scrapes, the NVML worker's pipes, netlink,
/// the directories and files that each sampler opens briefly. Where the limit is so low that this
/// would take more than half of it, half is left.
const RESERVED: u64 = 128;

/// Places taken.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// Number of slots; the limit is raised and read once.
static PLACES: OnceLock<u64> = OnceLock::new();

/// An open file that holds one of the places.
#[derive(Debug)]
pub(super) struct Descriptor(OwnedFd);

impl Descriptor {
    /// Keeps an open file, or closes it if every slot is taken.
    pub(super) fn keep(file: OwnedFd) -> Result<Self, OwnedFd> {
        let places = *PLACES.get_or_init(|| places(raise_limit()));
        let free = |kept: u64| (kept < places).then_some(kept + 1);
        match KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => Ok(Self(file)),
            Err(_) => Err(file),
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many files may stay open under a limit; none is unlimited.
fn places(limit: Option<u64>) -> u64 {
    let limit = limit.unwrap_or(WANTED);
    limit - RESERVED.min(limit / 2)
}

/// Raises the soft limit of open files, as a node with many ports keeps more than the usual 1024 open.
/// Returns the limit then.
fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(WANTED).min(WANTED);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, wanted, "cannot raise the limit of open files");
        }
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_half_and_a_high_one_leaves_the_reserve() {
        for (limit, expected) in [
            (Some(0), 0),
            (Some(64), 32),
            (Some(256), 128),
            (Some(1024), 896),
            (Some(65_536), 65_408),
            (None, 65_408),
        ] {
            assert_eq!(places(limit), expected, "{limit:?}");
        }
    }
}
