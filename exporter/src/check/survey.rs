//! Reads every source of a machine once, each on a separate thread: one that blocks costs only itself.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use railscope_model::reading::{NodeReading, Status};

use crate::sampler::{Machine, SAMPLERS, Sampler, sample_into};
use crate::sources::setup::Setup;
use crate::sources::sysfs::{Root, Watch};

/// After this time the check reports without the sources that still block. A worker of NVML may take 2 s
/// for its first values and 2 s to be reaped.
const LIMIT: Duration = Duration::from_secs(7);
/// How long a source keeps the next one from starting. They start in order, as some learn from others.
const PATIENCE: Duration = Duration::from_secs(3);
/// Name of the setup, which is no source of the exporter, in the table.
const SETUP: &str = "setup";

/// A file that kept a source from a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFile {
    /// The source.
    pub source: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What it is in place of a regular file: `a FIFO`. None of a file whose read blocks.
    pub kind: Option<&'static str>,
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            Some(kind) => write!(f, "{path} is {kind}"),
            None => write!(f, "the read of {path} blocks"),
        }
    }
}

impl BadFile {
    /// Whether it may be why this device of a source has a status; an empty name is the whole source.
    pub(super) fn is_of(&self, source: &str, device: &str) -> bool {
        let named = |part: &Path| part.as_os_str() == device;
        self.source == source
            && (device.is_empty() || self.path.iter().any(|part| named(part.as_ref())))
    }
}

/// Result of one read of a machine.
pub(super) struct Survey {
    pub(super) reading: NodeReading,
    pub(super) setup: Setup,
    pub(super) bad_files: Vec<BadFile>,
}

impl Survey {
    /// Reads the machine. Ends after [`LIMIT`]; threads that block then are left behind.
    pub(super) fn of(machine: &Machine) -> Self {
        let samplers = SAMPLERS.iter().map(|build| build(machine)).collect();
        let (sysfs, procfs) = (Root::new(&machine.sysfs), Root::new(&machine.procfs));
        Self::take(samplers, move || Setup::read(&sysfs, &procfs), LIMIT)
    }

    fn take(
        samplers: Vec<Box<dyn Sampler>>,
        setup: impl FnOnce() -> Setup + Send + 'static,
        limit: Duration,
    ) -> Self {
        let end = Instant::now() + limit;
        let mut setup = Asked::new(SETUP, |answer| answer(setup()));
        let mut asked = Vec::new();
        for mut sampler in samplers {
            let mut source = Asked::new(sampler.name(), move |answer| {
                let mut reading = NodeReading::default();
                let status = sample_into(sampler.as_mut(), &mut reading);
                answer((reading, status));
            });
            let left = end.saturating_duration_since(Instant::now());
            source.wait_for_answer(Instant::now() + PATIENCE.min(left / 2));
            asked.push(source);
        }
        let mut survey = Self {
            reading: NodeReading::default(),
            setup: Setup::default(),
            bad_files: Vec::new(),
        };
        for mut source in asked {
            source.wait_for_end(end);
            survey.bad_files.extend(source.bad_files());
            let unanswered = source.status_without_answer();
            let answer = source.answer.take();
            let (reading, status) = answer.unwrap_or_else(|| (NodeReading::default(), unanswered));
            survey.reading.extend(&reading);
            survey.reading.push_status(source.name, "", status);
        }
        setup.wait_for_end(end);
        survey.bad_files.extend(setup.bad_files());
        survey.setup = setup.answer.unwrap_or_default();
        survey.reading.normalize();
        survey
    }
}

/// A request to a thread that may never reply.
struct Asked<T> {
    name: &'static str,
    watch: Arc<Watch>,
    answers: Receiver<T>,
    answer: Option<T>,
    ended: bool,
}

impl<T: Send + 'static> Asked<T> {
    /// Starts a thread; `work` passes on its result before it cleans up, which may block too.
    fn new(name: &'static str, work: impl FnOnce(&dyn Fn(T)) + Send + 'static) -> Self {
        let (sender, answers) = channel();
        let watch = Arc::new(Watch::default());
        let followed = Arc::clone(&watch);
        let started = thread::Builder::new()
            .name(format!("check-{name}"))
            .spawn(move || {
                followed.follow_this_thread();
                // The receiver is gone after the limit.
                work(&|answer| drop(sender.send(answer)));
            });
        if let Err(error) = started {
            tracing::warn!(source = name, %error, "cannot start a thread to read it");
        }
        Self {
            name,
            watch,
            answers,
            answer: None,
            ended: false,
        }
    }

    fn wait_for_answer(&mut self, until: Instant) {
        if self.answer.is_some() || self.ended {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(answer) => self.answer = Some(answer),
            Err(RecvTimeoutError::Disconnected) => self.ended = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }

    /// Waits for the end of the thread too: a sampler that is dropped ends what it has started.
    fn wait_for_end(&mut self, until: Instant) {
        self.wait_for_answer(until);
        if !self.ended && self.answer.is_some() {
            let left = until.saturating_duration_since(Instant::now());
            let more = self.answers.recv_timeout(left).err();
            self.ended = more == Some(RecvTimeoutError::Disconnected);
        }
    }

    /// Without a result it blocks, or has panicked.
    fn status_without_answer(&self) -> Status {
        if self.ended {
            Status::Failed
        } else {
            Status::Timeout
        }
    }

    fn bad_files(&self) -> Vec<BadFile> {
        let bad = |path, kind| BadFile {
            source: self.name,
            path,
            kind,
        };
        let refused = self.watch.refused().into_iter();
        let refused = refused.map(|refused| bad(refused.path, Some(refused.kind)));
        let blocking = self
            .watch
            .current()
            .filter(|_| self.answer.is_none() && !self.ended);
        let blocking = blocking.map(|path| bad(path, None));
        refused.chain(blocking).collect()
    }
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::{NODE_CPUS, SOURCE_STATUS};
    use railscope_model::reading::Labels;

    use super::*;
    use crate::sampler::{Presence, SampleError};
    use crate::sources::sysfs::reading as reading_of;

    const LIMIT: Duration = Duration::from_millis(400);

    enum Source {
        Steady,
        Blocked(PathBuf),
        Panics,
    }

    impl Sampler for Source {
        fn name(&self) -> &'static str {
            match self {
                Self::Steady => "steady",
                Self::Blocked(_) => "blocked",
                Self::Panics => "panics",
            }
        }

        fn period(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
            match self {
                Self::Steady => reading.push(&NODE_CPUS, &Labels::default(), 4_u64),
                // As a driver does that waits for its device.
                Self::Blocked(path) => {
                    reading_of(path, || thread::sleep(Duration::from_secs(3600)));
                }
                Self::Panics => std::panic::resume_unwind(Box::new("a bug")),
            }
            Ok(Presence::Present)
        }
    }

    fn statuses(survey: &Survey) -> Vec<String> {
        let samples = survey.reading.samples().iter();
        let statuses = samples.filter(|sample| sample.metric == &SOURCE_STATUS);
        let texts = statuses.map(|sample| sample.labels.values().collect::<Vec<_>>().join(" "));
        texts.collect()
    }

    #[test]
    fn a_source_that_blocks_or_panics_costs_only_itself_and_is_named_with_its_file() {
        let path = PathBuf::from("/sys/class/infiniband/mlx5_0/ports/1/rate");
        let samplers: Vec<Box<dyn Sampler>> = vec![
            Box::new(Source::Blocked(path.clone())),
            Box::new(Source::Panics),
            Box::new(Source::Steady),
        ];
        let begun = Instant::now();
        let survey = Survey::take(samplers, Setup::default, LIMIT);
        assert!(begun.elapsed() < LIMIT * 10, "{:?}", begun.elapsed());
        assert_eq!(
            statuses(&survey),
            ["blocked  timeout", "panics  failed", "steady  ok"]
        );
        let cpus = survey.reading.samples().iter();
        assert_eq!(cpus.filter(|sample| sample.metric == &NODE_CPUS).count(), 1);
        let blocked = BadFile {
            source: "blocked",
            path,
            kind: None,
        };
        assert_eq!(survey.bad_files, [blocked]);
    }

    #[test]
    fn a_setup_that_blocks_is_named_too() {
        let setup = || {
            let path = Path::new("/sys/class/net/eth0/mtu");
            reading_of(path, || thread::sleep(Duration::from_secs(3600)));
            Setup::default()
        };
        let survey = Survey::take(vec![Box::new(Source::Steady)], setup, LIMIT);
        assert_eq!(statuses(&survey), ["steady  ok"]);
        assert_eq!(survey.bad_files.len(), 1);
        assert!(survey.bad_files[0].is_of(SETUP, "eth0"));
        assert!(!survey.bad_files[0].is_of(SETUP, "eth1"));
    }
}
