//! Reads the InfiniBand subnet: from a file, a program that prints it, or by its own sweep.

mod names;
mod tables;

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use railscope_model::fabric::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::clock;
use crate::config::{SubnetFrom, SubnetSource};
use crate::fabric::plans::NodeNames;
use crate::fabric::subnet::counters::DeviceReading;
use crate::fabric::subnet::{Forwarding, Subnet, parse_ibnetdiscover};
use crate::health::{SourceKey, SourceStatus};
use crate::service::Event;
use crate::sources::mad_sweep::{Settings, SweepError, Sweeper, Swept, open};
use crate::sources::targets::stamp;
use crate::status::{State, SweepResult};
use names::NameFile;
use tables::TablesFile;

/// Largest output that is read: the file of a 666-switch subnet has 2 MB.
const MAX_OUTPUT_BYTES: usize = 512 << 20;
/// What is kept of a program's complaints.
const MAX_STDERR_BYTES: usize = 1 << 20;

/// Why the subnet was not read.
#[derive(Debug, thiserror::Error)]
pub enum SubnetError {
    /// The file cannot be read, or the program cannot be started.
    #[error("{what}: {source}")]
    Io {
        /// File or program.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The program took too long and was killed, with all that it had started.
    #[error("{program} did not end within {limit:?} (subnet.timeout) and was killed")]
    Hung {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// The program failed; what it printed is not to be trusted.
    #[error("{program}: {status}: {stderr}")]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it reported.
        stderr: String,
    },
    /// There is no own sweep.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// The sweeping thread ended: a bug in Railscope.
    #[error("the sweep ended; this is a bug in Railscope")]
    Defect,
    /// The file of node names cannot be used.
    #[error("{0} (subnet.node_name_map)")]
    Names(String),
    /// There is more text than a subnet can have.
    #[error("{what} gives more than {MAX_OUTPUT_BYTES} bytes")]
    TooLarge {
        /// File or program.
        what: String,
    },
}

impl SubnetError {
    /// Status of the source for this error.
    pub(crate) fn status(&self) -> SourceStatus {
        match self {
            Self::Hung { .. } => SourceStatus::Timeout,
            _ => SourceStatus::Failed,
        }
    }
}

impl SubnetSource {
    /// Name of the source.
    pub(crate) fn name(&self) -> String {
        match &self.from {
            SubnetFrom::File(path) => path.display().to_string(),
            SubnetFrom::Command(argv) => argv.first().cloned().unwrap_or_default(),
            SubnetFrom::Device(device, _) => device.clone(),
        }
    }

    /// Read interval, if each read returns new data.
    pub(crate) fn steady_interval(&self) -> Option<Duration> {
        (!matches!(self.from, SubnetFrom::File(_))).then_some(self.interval)
    }
}

/// Result of one read of the source.
#[derive(Debug, PartialEq)]
pub enum Look {
    /// Text that is still to be read.
    Text(Sweep),
    /// An own sweep, and the time at which it began.
    Swept(Box<Swept>, Timestamp),
}

/// Text of a sweep and its time.
#[derive(Debug, PartialEq, Eq)]
pub struct Sweep {
    /// What `ibnetdiscover` printed.
    pub text: String,
    /// What it complained of beside that; of a file, nothing.
    pub complaints: String,
    /// When the file was written, or the program started.
    pub at: Timestamp,
}

/// A source of the subnet with its state between two reads.
pub struct Source {
    config: SubnetSource,
    stamp: Option<(SystemTime, u64)>,
    /// The open port of an own sweep; opened again after an error.
    sweeper: Option<Sweeper>,
    name_file: Option<NameFile>,
    tables_file: Option<TablesFile>,
}

impl Source {
    /// A source that has not been read.
    pub fn new(config: SubnetSource) -> Self {
        Self {
            name_file: config.node_name_map.clone().map(NameFile::new),
            tables_file: config.forwarding_file.clone().map(TablesFile::new),
            config,
            stamp: None,
            sweeper: None,
        }
    }

    /// Whether it is an own sweep that reads forwarding tables.
    fn reads_tables(&self) -> bool {
        matches!(&self.config.from, SubnetFrom::Device(_, settings) if settings.forwarding)
    }

    /// Names that nodes get beside their own, before the subnet is read: it is read again if they have changed.
    ///
    /// # Errors
    /// There is a file of names, and it was never usable.
    async fn names(&mut self) -> Result<Option<Arc<NodeNames>>, SubnetError> {
        let Some(file) = &mut self.name_file else {
            return Ok(None);
        };
        let (names, changed) = file.refresh().await.map_err(SubnetError::Names)?;
        if changed {
            self.stamp = None;
        }
        Ok(Some(names))
    }

    /// The subnet, if it has changed, and the names of its nodes.
    async fn read(
        &mut self,
        now: Timestamp,
    ) -> Result<(Option<Look>, Option<Arc<NodeNames>>), SubnetError> {
        let names = self.names().await?;
        if let Some(tables) = &mut self.tables_file
            && tables.refresh(now).await
        {
            self.stamp = None;
        }
        Ok((self.look(now).await?, names))
    }

    /// Reads the subnet; `None` if it is a file that has not changed since.
    ///
    /// # Errors
    /// Why it could not be read.
    pub async fn look(&mut self, now: Timestamp) -> Result<Option<Look>, SubnetError> {
        match &self.config.from {
            SubnetFrom::File(path) => {
                let error = |source| SubnetError::Io {
                    what: path.display().to_string(),
                    source,
                };
                let stamp = stamp(path).map_err(error)?;
                if self.stamp == Some(stamp) {
                    return Ok(None);
                }
                let text = read_file(path, stamp.1).await?;
                self.stamp = Some(stamp);
                Ok(Some(Look::Text(Sweep {
                    text,
                    complaints: String::new(),
                    at: clock::placed(unix(stamp.0), now).min(now),
                })))
            }
            SubnetFrom::Command(argv) => {
                let (text, complaints) = run_program(argv, self.config.timeout).await?;
                Ok(Some(Look::Text(Sweep {
                    text,
                    complaints,
                    at: now,
                })))
            }
            SubnetFrom::Device(device, settings) => {
                let (device, settings) = (device.clone(), settings.clone());
                let sweeper = self.sweeper.take();
                let (sweeper, swept) = sweep(sweeper, device, settings).await?;
                self.sweeper = Some(sweeper);
                Ok(Some(Look::Swept(Box::new(swept), now)))
            }
        }
    }
}

/// Sweeps once, on a thread that may wait. The port comes back unless it broke.
async fn sweep(
    sweeper: Option<Sweeper>,
    device: String,
    settings: Settings,
) -> Result<(Sweeper, Swept), SubnetError> {
    let work = move || {
        let mut sweeper = match sweeper {
            Some(sweeper) => sweeper,
            None => Sweeper::new(open(&device, settings.timeout)?, settings),
        };
        let swept = sweeper.sweep()?;
        Ok((sweeper, swept))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(swept) => swept.map_err(SubnetError::Sweep),
        Err(_) => Err(SubnetError::Defect),
    }
}

fn unix(time: SystemTime) -> Timestamp {
    Timestamp(millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn read_file(path: &Path, bytes: u64) -> Result<String, SubnetError> {
    let what = path.display().to_string();
    if bytes > MAX_OUTPUT_BYTES as u64 {
        return Err(SubnetError::TooLarge { what });
    }
    let text = tokio::fs::read(path)
        .await
        .map_err(|source| SubnetError::Io { what, source })?;
    Ok(to_text(text))
}

/// Descriptions of nodes may hold any bytes; a wrong one costs its own characters only.
fn to_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Output and error messages of a program that succeeds.
async fn run_program(argv: &[String], limit: Duration) -> Result<(String, String), SubnetError> {
    let program = argv.first().cloned().unwrap_or_default();
    let io = |source| SubnetError::Io {
        what: program.clone(),
        source,
    };
    let mut child = Command::new(&program)
        .args(argv.get(1..).unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate group, so that what it starts can be killed with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(io)?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let ended = timeout(limit, output(&mut child)).await;
    if !matches!(ended, Ok(Ok(_)))
        && let Some(group) = group
        && let Err(error) = kill_process_group(group, Signal::KILL)
    {
        tracing::debug!(program, "not killed: {error}");
    }
    let (status, stdout, stderr) = match ended {
        Ok(ended) => ended.map_err(io)?,
        Err(_) => return Err(SubnetError::Hung { program, limit }),
    };
    let stderr = to_text(stderr).trim().to_owned();
    if !status.success() {
        return Err(SubnetError::Failed {
            program,
            status,
            stderr,
        });
    }
    if stdout.len() > MAX_OUTPUT_BYTES {
        return Err(SubnetError::TooLarge { what: program });
    }
    Ok((to_text(stdout), stderr))
}

async fn output(child: &mut Child) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(
        read_at_most(stdout, MAX_OUTPUT_BYTES + 1),
        read_at_most(stderr, MAX_STDERR_BYTES)
    )?;
    Ok((child.wait().await?, stdout, stderr))
}

/// Reads all and keeps the beginning: a full pipe would block the program.
async fn read_at_most(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        (&mut pipe)
            .take(limit as u64)
            .read_to_end(&mut kept)
            .await?;
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await?;
    }
    Ok(kept)
}

/// A subnet as it is passed to the analysis.
struct Taken {
    subnet: Subnet,
    readings: Vec<DeviceReading>,
    complaints: String,
    at: Timestamp,
}

/// Reads text; an own sweep needs no reading.
async fn take(look: Look, state: &State, names: Option<Arc<NodeNames>>) -> Option<Taken> {
    let mut taken = read(look, state).await?;
    if let Some(names) = names {
        names.apply(&mut taken.subnet);
    }
    Some(taken)
}

async fn read(look: Look, state: &State) -> Option<Taken> {
    match look {
        Look::Swept(swept, at) => {
            state.record_mads(&swept.stats);
            let Swept {
                mut subnet,
                readings,
                forwarding,
                ..
            } = *swept;
            subnet.forwarding = forwarding.map(|(tables, age)| Forwarding {
                tables,
                read_at: Timestamp(at.0.saturating_sub(millis(age))),
            });
            Some(Taken {
                subnet,
                readings,
                complaints: String::new(),
                at,
            })
        }
        Look::Text(sweep) => {
            let parsed = tokio::task::spawn_blocking(move || {
                let mut subnet = parse_ibnetdiscover(&sweep.text);
                subnet.hear_complaints(&sweep.complaints);
                Taken {
                    subnet,
                    readings: Vec::new(),
                    complaints: sweep.complaints,
                    at: sweep.at,
                }
            });
            parsed.await.ok()
        }
    }
}

/// Follows the subnet until the analysis is gone.
pub(crate) async fn follow(config: SubnetSource, events: mpsc::Sender<Event>, state: Arc<State>) {
    let mut due = interval(config.interval);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let key = ("subnet", config.name());
    state.expect_source(&key, config.steady_interval());
    let mut source = Source::new(config);
    if let Some(tables) = &source.tables_file {
        state.expect_source(&tables.key(), None);
    }
    let (mut problem, mut complained) = (None, String::new());
    loop {
        due.tick().await;
        let span = tracing::info_span!("sweep", parts = Empty, links = Empty);
        let looked = source.read(state.now()).instrument(span.clone()).await;
        let (look, names) = match looked {
            Ok((Some(look), names)) => (look, names),
            Ok((None, _)) => {
                state.record_source(&key, SourceStatus::Ok, None, None);
                continue;
            }
            Err(error) => {
                state.record_sweep(SweepResult::Failed);
                let said = error.to_string();
                state.record_source(&key, error.status(), None, Some(said.clone()));
                if problem.as_ref() != Some(&said) {
                    tracing::error!("cannot read the subnet: {said}");
                }
                problem = Some(said);
                continue;
            }
        };
        problem = None;
        let text = match (&state.recorder, &look) {
            (Some(_), Look::Text(sweep)) => Some(sweep.text.clone()),
            _ => None,
        };
        let Some(mut taken) = take(look, &state, names).await else {
            continue;
        };
        if let Some(tables) = &mut source.tables_file {
            tables.attach(&mut taken.subnet, taken.at, &state);
        } else if source.reads_tables() {
            tables::note_swept(&taken.subnet, &key.1, &state);
        }
        if let (Some(recorder), Some(text)) = (&state.recorder, text) {
            recorder.fabric(state.now(), text);
        }
        if !taken.complaints.is_empty() && taken.complaints != complained {
            tracing::warn!("subnet: {}", taken.complaints);
        }
        note(&taken, &state, &key);
        complained = taken.complaints;
        span.record("parts", taken.subnet.nodes.len());
        span.record("links", taken.subnet.links.len());
        drop(span);
        let event = Event::Subnet {
            subnet: Box::new(taken.subnet),
            readings: taken.readings,
            at: taken.at,
        };
        if events.send(event).await.is_err() {
            return;
        }
    }
}

/// Counts a sweep and reports what is wrong with it.
fn note(taken: &Taken, state: &State, key: &SourceKey) {
    let subnet = &taken.subnet;
    for problem in subnet.problems.iter().take(3) {
        tracing::warn!(all = subnet.counts.problems, "subnet: {problem}");
    }
    let gaps = subnet.completeness.gaps();
    if gaps.is_empty() {
        state.record_sweep(SweepResult::Complete);
        state.record_source(key, SourceStatus::Ok, Some(taken.at), None);
        return;
    }
    state.record_sweep(SweepResult::Partial);
    let said = gaps.first().map(ToString::to_string);
    // Unresponsive ports do not invalidate the rest.
    let at = subnet.is_settled().then_some(taken.at);
    state.record_source(key, SourceStatus::Partial, at, said);
    for gap in gaps {
        tracing::warn!("subnet is not whole: {gap}");
    }
}

#[cfg(test)]
mod tests;
