//! The exporter's side of the NVML worker: starts it, reads its lines, restarts and reaps it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use railscope_model::identity::GpuIndex;
use railscope_model::reading::{NodeReading, Status};
use rustix::process::{Pid, Signal, kill_process};

use super::wire::{Line, Scope, Values};
use crate::sampler::NvmlAccess;

/// Pause before a worker that ended is started again; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A worker that lived this long was healthy: the next pause is the shortest again.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// Pause before a library that is absent or a driver that is not loaded is tried again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// A worker from which no line came for this long (or ten periods) is blocked as a whole: it is killed.
const SILENT_LIMIT: Duration = Duration::from_secs(60);
/// No line is longer: a GPU with 36 NVLinks and every metric of the catalogue needs an eighth of it.
const LONGEST_LINE: u64 = 1 << 20;
/// How long dropping waits for a killed worker to be reaped.
const REAP_GRACE: Duration = Duration::from_secs(2);

/// How the worker is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Phase {
    /// Started, and has not reported anything yet.
    #[default]
    Starting,
    /// Reads GPUs.
    Running,
    /// NVML does not respond, for this reason; it is tried again later.
    Refused(Status),
    /// Ended by itself or could not be started; it is started again later.
    Ended,
}

/// What one GPU last reported.
#[derive(Debug, Clone)]
pub struct LastWord {
    /// How it could be read.
    pub status: Status,
    /// Its values; none before its first line.
    pub reading: Option<Arc<NodeReading>>,
    /// What the board or driver does not have, and why.
    pub missing: Vec<(String, Status)>,
    /// When the line came, or the worker started.
    pub at: Instant,
    /// Number of the line; none before the first.
    number: Option<u64>,
    /// Time that the read took, seconds.
    pub seconds: f64,
    /// Total delay of its samples' start since the worker started, seconds.
    pub late_seconds: f64,
}

/// All that is known of the GPUs at one instant.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// How the worker is doing.
    pub phase: Phase,
    /// Every GPU of the worker.
    pub gpus: BTreeMap<GpuIndex, LastWord>,
    /// What each GPU reported by events, and whether it can. Kept while a GPU is blocked: it reports
    /// why.
    pub events: BTreeMap<GpuIndex, (Status, Arc<NodeReading>)>,
    /// Values that failed, lines that could not be parsed and workers that ended, since the start.
    pub errors: u64,
}

/// A supervised worker. Dropping it kills and reaps the process.
pub struct NvmlChild {
    shared: Arc<Shared>,
    supervisor: Option<JoinHandle<()>>,
}

struct Shared {
    access: NvmlAccess,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    view: View,
    stopping: bool,
    /// The running process. Set to none before it is reaped, so that no other process is ever killed.
    pid: Option<Pid>,
    last_line_at: Instant,
}

impl NvmlChild {
    /// Starts the worker, and again whenever it ends.
    ///
    /// # Errors
    /// No thread could be started. That the worker cannot be started is reported by
    /// [`Phase::Ended`].
    pub fn start(access: NvmlAccess) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            access,
            state: Mutex::new(State {
                view: View::default(),
                stopping: false,
                pid: None,
                last_line_at: Instant::now(),
            }),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let supervisor = thread::Builder::new()
            .name("nvml-supervisor".to_owned())
            .spawn(move || of_thread.supervise())?;
        Ok(Self {
            shared,
            supervisor: Some(supervisor),
        })
    }

    /// The current state. Waits at most `patience` for a worker that has just been started to report its
    /// first reading of every GPU, and kills one that is blocked as a whole.
    pub fn view(&self, patience: Duration) -> View {
        let unsaid = |state: &mut State| match state.view.phase {
            Phase::Starting => state.view.gpus.is_empty(),
            Phase::Running => state.view.gpus.values().any(|gpu| gpu.is_awaited(patience)),
            Phase::Refused(_) | Phase::Ended => false,
        };
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, patience, unsaid);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let limit = SILENT_LIMIT.max(self.shared.access.period.saturating_mul(10));
        if state.pid.is_some() && state.last_line_at.elapsed() > limit {
            tracing::warn!("no output from the NVML worker for {limit:?}: restarting it");
            kill(state.pid);
        }
        state.view.clone()
    }
}

impl Drop for NvmlChild {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        kill(state.pid);
        drop(state);
        self.shared.changed.notify_all();
        let Some(supervisor) = self.supervisor.take() else {
            return;
        };
        let deadline = Instant::now() + REAP_GRACE;
        while !supervisor.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        // A worker that the kernel cannot kill (it waits in the driver) is left to the supervisor, which
        // reaps it should it ever end.
    }
}

/// Kills the worker, if it still runs. One that has just ended is no error: its supervisor sees the end.
fn kill(pid: Option<Pid>) {
    if let Some(pid) = pid
        && let Err(error) = kill_process(pid, Signal::KILL)
    {
        tracing::debug!(%error, "the NVML worker was not killed");
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half changed by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn supervise(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let end = self.run_once();
            if begun.elapsed() > WELL_AFTER {
                pause = FIRST_PAUSE;
            }
            let mut state = self.lock();
            if state.stopping {
                return;
            }
            let wait = if matches!(state.view.phase, Phase::Refused(_)) {
                LOOK_AGAIN
            } else {
                tracing::warn!("the NVML worker ended ({end}); started again in {pause:?}");
                state.view.phase = Phase::Ended;
                state.view.errors += 1;
                let longer = (pause * 2).min(LONGEST_PAUSE);
                std::mem::replace(&mut pause, longer)
            };
            self.changed.notify_all();
            let waited = self
                .changed
                .wait_timeout_while(state, wait, |state| !state.stopping);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stopping {
                return;
            }
            if state.view.phase == Phase::Ended {
                state.view.phase = Phase::Starting;
            }
        }
    }

    /// Runs one worker from its start to its end and reports how it ended.
    fn run_once(&self) -> String {
        let NvmlAccess {
            library,
            worker,
            period,
        } = &self.access;
        let Some((program, arguments)) = worker.split_first() else {
            return "no worker program is configured".to_owned();
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("--library")
            .arg(library)
            .arg("--period")
            .arg(period.as_secs_f64().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return format!("cannot start {}: {error}", program.display()),
        };
        let mut state = self.lock();
        state.pid = Some(Pid::from_child(&child));
        state.last_line_at = Instant::now();
        if state.stopping {
            kill(state.pid);
        }
        drop(state);
        let read = child
            .stdout
            .take()
            .map_or(Ok(()), |stdout| self.read(stdout));
        let mut state = self.lock();
        kill(state.pid);
        state.pid = None;
        drop(state);
        match (read, child.wait()) {
            (Err(error), _) => format!("reading it failed: {error}"),
            (Ok(()), Ok(status)) => status.to_string(),
            (Ok(()), Err(error)) => format!("waiting for it failed: {error}"),
        }
    }

    /// Reads lines until the worker ends.
    fn read(&self, stdout: impl Read) -> io::Result<()> {
        let mut stdout = BufReader::new(stdout);
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = (&mut stdout)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut text)?;
            if read == 0 {
                return Ok(());
            }
            if text.last() != Some(&b'\n') {
                if read as u64 == LONGEST_LINE {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        format!("a line of more than {LONGEST_LINE} bytes"),
                    ));
                }
                // It was killed while it wrote.
                return Ok(());
            }
            let line = serde_json::from_slice(&text);
            let mut state = self.lock();
            state.last_line_at = Instant::now();
            match line {
                Ok(line) => state.view.take_in(line),
                Err(error) => {
                    tracing::warn!(%error, "invalid line from the NVML worker; ignored");
                    state.view.errors += 1;
                }
            }
            drop(state);
            self.changed.notify_all();
        }
    }
}

impl View {
    fn take_in(&mut self, line: Line) {
        let now = Instant::now();
        self.errors += line.errors;
        match line.scope {
            Scope::Driver if line.status == Status::Ok => {
                self.phase = Phase::Running;
                self.gpus.retain(|gpu, _| gpu.0 < line.gpus);
                self.events.retain(|gpu, _| gpu.0 < line.gpus);
                for gpu in 0..line.gpus {
                    let word = self.gpus.entry(GpuIndex(gpu));
                    word.or_insert_with(|| LastWord::none(now));
                }
            }
            Scope::Driver => {
                if self.phase != Phase::Refused(line.status) {
                    tracing::info!(
                        status = line.status.as_str(),
                        reason = line.message,
                        "no NVML"
                    );
                }
                self.phase = Phase::Refused(line.status);
                self.gpus.clear();
                self.events.clear();
            }
            Scope::Events(gpu) => {
                if let Values::Whole(reading) = line.values {
                    self.events.insert(gpu, (line.status, Arc::new(reading)));
                }
            }
            Scope::Gpu(gpu) => {
                let word = self.gpus.entry(gpu).or_insert_with(|| LastWord::none(now));
                let follows = word.number.is_some_and(|last| line.number == last + 1);
                let taken = match (line.values, &mut word.reading) {
                    (Values::Whole(reading), last) => {
                        *last = Some(Arc::new(reading));
                        true
                    }
                    (Values::Changed(changes), Some(last)) if follows => {
                        Arc::make_mut(last).apply(changes).is_ok()
                    }
                    (Values::Changed(_), _) => false,
                };
                if !taken {
                    // Until the next complete line nothing is certain: the last reading becomes stale.
                    tracing::debug!(%gpu, "a line of the NVML worker is lost");
                    self.errors += 1;
                    return;
                }
                if line.status == Status::Failed && word.status != Status::Failed {
                    tracing::warn!(%gpu, reason = line.message, "the GPU does not answer");
                }
                word.status = line.status;
                word.missing = line.missing;
                word.at = now;
                word.number = Some(line.number);
                word.seconds = line.seconds;
                word.late_seconds = line.late_seconds;
            }
        }
    }
}

impl LastWord {
    /// Of a GPU that has not reported anything yet.
    fn none(now: Instant) -> Self {
        Self {
            status: Status::Ok,
            reading: None,
            missing: Vec::new(),
            at: now,
            number: None,
            seconds: 0.0,
            late_seconds: 0.0,
        }
    }

    /// Whether its first reading is still to come, from a worker that was started no longer ago than
    /// this.
    fn is_awaited(&self, patience: Duration) -> bool {
        self.number.is_none() && self.at.elapsed() < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::GPU_ENERGY;
    use railscope_model::reading::Labels;

    use crate::sources::nvml::wire::Teller;

    #[test]
    fn a_lost_line_is_counted_and_the_values_stand_until_a_whole_one() {
        let gpu = GpuIndex(0);
        let (mut teller, mut next) = (Teller::default(), 0_u64);
        let mut tell = || {
            let mut reading = NodeReading::default();
            reading.push(&GPU_ENERGY, &Labels::new([gpu]), next);
            next += 1;
            let mut line = Line::new(Scope::Gpu(gpu), Status::Ok);
            teller.tell(reading, &mut line);
            line
        };
        let mut view = View::default();
        let mut last = Vec::new();
        for number in 0..32 {
            let line = tell();
            if number != 2 {
                view.take_in(line);
            }
            let reading = view.gpus[&gpu].reading.as_ref().expect("a reading");
            last.push(reading.samples()[0].value.as_f64());
        }
        assert_eq!(
            last[..4],
            [0.0, 1.0, 1.0, 1.0],
            "nothing is built on the lost line"
        );
        assert_eq!(last[29..], [1.0, 30.0, 31.0]);
        assert_eq!(view.errors, 27);
    }
}
