//! The file that a thread is reading and the files that it refused, for a caller that must name them.
//!
//! Off by default: a thread without a [`Watch`] pays one access to a thread-local for each read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::FileType;

/// Refused files that the log names; beyond them it logs nothing, so that a broken tree cannot fill it.
const MOST_LOGGED: usize = 64;

thread_local! {
    static WATCH: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
}

/// Refused files that the log has named.
static LOGGED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A file that was not read because it is no regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Where it is.
    pub path: PathBuf,
    /// What it is: `a FIFO`, `a socket`.
    pub kind: &'static str,
}

/// What one thread reads, seen from another one.
#[derive(Debug, Default)]
pub struct Watch {
    current: Mutex<Option<PathBuf>>,
    refused: Mutex<Vec<Refused>>,
}

impl Watch {
    /// From now on this records what the calling thread reads.
    pub fn follow_this_thread(self: &Arc<Self>) {
        WATCH.with_borrow_mut(|watch| *watch = Some(Arc::clone(self)));
    }

    /// The file or directory that the thread is reading.
    pub fn current(&self) -> Option<PathBuf> {
        lock(&self.current).clone()
    }

    /// Files that the thread has refused to read, each once.
    pub fn refused(&self) -> Vec<Refused> {
        lock(&self.refused).clone()
    }
}

/// Runs a read of a path that may block in the kernel.
pub fn reading<T>(path: &Path, read: impl FnOnce() -> T) -> T {
    let Some(watch) = WATCH.with_borrow(Option::clone) else {
        return read();
    };
    *lock(&watch.current) = Some(path.to_owned());
    let result = read();
    *lock(&watch.current) = None;
    result
}

/// Names a file that is no regular file: in the log once, and to the thread's watch.
pub(super) fn refuse(path: &Path, kind: &'static str) {
    let mut logged = lock(&LOGGED);
    if logged.len() < MOST_LOGGED && logged.insert(path.to_owned()) {
        tracing::warn!(path = %path.display(), "skipped: {kind} in place of a regular file");
    }
    drop(logged);
    if let Some(watch) = WATCH.with_borrow(Option::clone) {
        let refused = Refused {
            path: path.to_owned(),
            kind,
        };
        let mut all = lock(&watch.refused);
        if !all.contains(&refused) {
            all.push(refused);
        }
    }
}

/// The type of a file that is not read; none for a regular file, and for a directory, which fails by itself.
pub(super) fn refused_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice => Some("a character device"),
        FileType::BlockDevice => Some("a block device"),
        _ => None,
    }
}

/// Nothing here is left half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
