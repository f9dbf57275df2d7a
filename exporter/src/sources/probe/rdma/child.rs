//! The process that sends RDMA probes: started, given its plan, read, and restarted when it has ended.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use railscope_model::rdma_probe::{Plan, Report};

/// How long to wait before a program that has ended, or could not be started, is started again.
const START_AGAIN: Duration = Duration::from_secs(5);
/// Reports queued for processing. Beyond that the process waits.
const MOST_WAITING: usize = 16;
/// Longest report that is read, bytes: two seconds of all probes and replies of a node.
const LONGEST_REPORT: u64 = 4 * 1024 * 1024;

/// The program, and the process that runs it, if one does.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    running: Option<Running>,
    start_at: Instant,
    /// Why there is none.
    problem: Option<io::ErrorKind>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    plans: SyncSender<String>,
    reports: Receiver<Report>,
}

/// What has become of the process.
#[derive(Debug)]
pub(super) enum Heard {
    /// It reported this.
    Report(Report),
    /// Nothing for now.
    Nothing,
    /// It runs, and did not before: it has no plan.
    Started,
    /// It does not run.
    Ended,
}

impl Program {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            running: None,
            start_at: Instant::now(),
            problem: None,
        }
    }

    /// Why it does not run.
    pub(super) fn problem(&self) -> Option<io::ErrorKind> {
        self.problem
    }

    /// Its next report within this time. Starts it if it is time.
    pub(super) fn listen(&mut self, patience: Duration) -> Heard {
        let Some(running) = &mut self.running else {
            if Instant::now() < self.start_at {
                thread::sleep(patience);
                return Heard::Ended;
            }
            self.start_at = Instant::now() + START_AGAIN;
            return match start(&self.path) {
                Ok(running) => {
                    self.running = Some(running);
                    self.problem = None;
                    Heard::Started
                }
                Err(error) => {
                    if self.problem.replace(error.kind()) != Some(error.kind()) {
                        tracing::warn!(%error, "cannot start {}", self.path.display());
                    }
                    Heard::Ended
                }
            };
        };
        match running.reports.recv_timeout(patience) {
            Ok(report) => Heard::Report(report),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                let ended = running.child.wait();
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                tracing::warn!("{} has ended: {how}", self.path.display());
                self.problem = Some(io::ErrorKind::BrokenPipe);
                self.running = None;
                Heard::Ended
            }
        }
    }

    /// Sends it a plan; false if it has not read the one before yet.
    pub(super) fn tell(&self, plan: &Plan) -> bool {
        let line = serde_json::to_string(plan);
        match (&self.running, line) {
            (Some(running), Ok(line)) => running.plans.try_send(line).is_ok(),
            _ => false,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends by itself when its input does; one that was stopped cannot. That it has ended already is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn start(path: &Path) -> io::Result<Running> {
    let mut child = Command::new(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (input, output) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
    let (plans, to_tell) = mpsc::sync_channel(1);
    let (heard, reports) = mpsc::sync_channel(MOST_WAITING);
    // Separate threads: a process that does not read or does not write blocks nothing else.
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    named("rdma-tell").spawn(move || tell_all(input, &to_tell))?;
    named("rdma-hear").spawn(move || hear_all(output, &heard))?;
    Ok(Running {
        child,
        plans,
        reports,
    })
}

fn tell_all(mut input: ChildStdin, plans: &Receiver<String>) {
    for plan in plans {
        let told = writeln!(input, "{plan}").and_then(|()| input.flush());
        if told.is_err() {
            return;
        }
    }
}

fn hear_all(output: ChildStdout, reports: &SyncSender<Report>) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    loop {
        line.clear();
        match io::Read::take(&mut output, LONGEST_REPORT).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_str(&line) {
            Ok(report) => {
                if reports.send(report).is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "invalid report from the RDMA prober; ignored"),
        }
    }
}
