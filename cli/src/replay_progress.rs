//! How far a replay is: a line on a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use railscope_collector::replay::Window;
use railscope_collector::status::State;
use railscope_model::fabric::Timestamp;

/// Time between two updates of the line.
const INTERVAL: Duration = Duration::from_millis(500);
/// To the first column, and nothing behind it.
const CLEAR: &str = "\r\u{1b}[K";

/// Shows how far a replay is until it is dropped, if standard error is a terminal.
#[derive(Debug)]
pub(super) struct Progress {
    /// Whether its line is on the terminal; locked while something is printed.
    is_shown: Arc<Mutex<bool>>,
    /// Updates the line until the sender is dropped; none without a terminal.
    updates: Option<(Sender<()>, JoinHandle<()>)>,
}

fn lock(is_shown: &Mutex<bool>) -> MutexGuard<'_, bool> {
    is_shown.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress {
    /// Begins to show it.
    pub(super) fn start(folder: &Path, window: Window, state: Arc<State>) -> Self {
        let is_shown = Arc::new(Mutex::new(false));
        let updates = io::stderr().is_terminal().then(|| {
            let (sender, ended) = mpsc::channel();
            let is_shown = Arc::clone(&is_shown);
            let end = end(folder, window);
            let follow = move || follow(&state, window.from, end, &is_shown, &ended);
            (sender, thread::spawn(follow))
        });
        Self { is_shown, updates }
    }

    /// Prints something else, with the line of the progress removed.
    pub(super) fn hidden<T>(&self, print: impl FnOnce() -> T) -> T {
        let mut is_shown = lock(&self.is_shown);
        if std::mem::take(&mut *is_shown) {
            write(CLEAR);
        }
        print()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.updates.take() {
            drop(sender);
            // A panic there is no reason to end differently.
            thread.join().ok();
        }
        self.hidden(|| {});
    }
}

/// Updates the line until the sender is dropped.
fn follow(
    state: &State,
    from: Option<Timestamp>,
    end: Option<Timestamp>,
    is_shown: &Mutex<bool>,
    ended: &Receiver<()>,
) {
    let mut begin = from;
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let Some(now) = state.snapshot().map(|snapshot| snapshot.view.now) else {
            continue;
        };
        let begin = *begin.get_or_insert(now);
        let mut is_shown = lock(is_shown);
        write(&format!("{CLEAR}{}", text(begin, now, end)));
        *is_shown = true;
    }
}

fn write(text: &str) {
    let mut terminal = io::stderr().lock();
    let written = terminal.write_all(text.as_bytes());
    // A terminal that is gone is no reason to stop.
    written.and_then(|()| terminal.flush()).ok();
}

/// The time at which a replay ends, if it is known before.
fn end(folder: &Path, window: Window) -> Option<Timestamp> {
    match (last_cycle(folder), window.until) {
        (Some(last), Some(until)) => Some(last.min(until)),
        (last, until) => last.or(until),
    }
}

/// The time of the recording's last analysis cycle, if a collector recorded them.
fn last_cycle(folder: &Path) -> Option<Timestamp> {
    let names = folder.read_dir().ok()?.flatten();
    let cycles = names.filter_map(|entry| {
        let name = entry.file_name();
        let seconds = name
            .to_str()?
            .strip_prefix("ticks.")?
            .strip_suffix(".txt")?;
        Some((seconds.parse::<u64>().ok()?, entry.path()))
    });
    let (_, newest) = cycles.max()?;
    let text = std::fs::read_to_string(newest).ok()?;
    let seconds: f64 = text.lines().last()?.parse().ok()?;
    Some(Timestamp((seconds * 1e3) as u64))
}

/// How far it is: a share if the end is known.
fn text(begin: Timestamp, now: Timestamp, end: Option<Timestamp>) -> String {
    let done = now.seconds_since(begin);
    match end.map(|end| end.seconds_since(begin)) {
        Some(all) if all > 0.0 => format!(
            "{:.0} %: {done:.0} of {all:.0} s",
            100.0 * (done / all).min(1.0)
        ),
        _ => format!("{done:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_share_if_the_end_is_known() {
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        assert_eq!(text(at(10), at(40), Some(at(70))), "50 %: 30 of 60 s");
        assert_eq!(text(at(10), at(80), Some(at(70))), "100 %: 70 of 60 s");
        assert_eq!(text(at(10), at(40), Some(at(5))), "30 s");
        assert_eq!(text(at(10), at(40), None), "30 s");
    }

    #[test]
    fn the_end_is_the_last_recorded_cycle() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(last_cycle(folder.path()), None);
        for (name, text) in [
            ("ticks.900.txt", "900.000\n905.000\n"),
            ("ticks.1000.txt", "1000.000\n1005.250\n"),
            ("ticks.text", ""),
        ] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        assert_eq!(last_cycle(folder.path()), Some(Timestamp(1_005_250)));
    }
}
