//! Step times of training jobs, written by the jobs (docs/step-times.md).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use railscope_model::metric::{JOB_STEP_EXCESS, JOB_STEP_QUANTILE, JOB_STEPS};
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::step_times::{QUANTILES, StepTimes};

use super::discovery::Misses;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::step_times::{Steps, job_and_rank};
use crate::sources::sysfs::{Dir, Miss, Root};

/// Source label.
const NAME: &str = "step_times";
/// Jobs that are read at most: a node runs one or a few.
const MOST_JOBS: usize = 16;
/// Maximum number of names read, in the folder and in each folder in it: the folder is writable for all.
const MOST_NAMES: usize = 1_024;
/// A job that writes nothing for so long is over, or another of its files continues.
const OVER: Duration = Duration::from_secs(30 * 60);

struct Watched {
    root: Root,
    jobs: BTreeMap<String, Job>,
    misses: Misses,
    /// Whether a sample was taken before: what a file holds at the first one is older than the exporter.
    has_begun: bool,
}

/// A job that writes step times.
struct Job {
    /// The file of its lowest rank on this node: all ranks of a synchronous job run the same steps.
    name: String,
    steps: Steps,
    times: StepTimes,
    /// When it last wrote, or was found.
    wrote: Instant,
    /// Whether it has written since it was found: an old file reports nothing of a running job.
    is_running: bool,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Watched {
        root: Root::new(&machine.workloads.step_times),
        jobs: BTreeMap::new(),
        misses: Misses::new(NAME),
        has_begun: false,
    })
}

impl Sampler for Watched {
    fn name(&self) -> &'static str {
        NAME
    }

    /// What is slow at the same time is compared over nodes, so that a step is to be counted soon after its end.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let dir = match self.root.open() {
            Ok(dir) => dir,
            Err(miss) => {
                self.jobs.clear();
                // What is written into a folder that is made later is new.
                self.has_begun = true;
                return Ok(Presence::Absent(miss.into()));
            }
        };
        let files = files(&dir);
        self.jobs
            .retain(|job, known| files.get(job).is_some_and(|(_, name)| *name == known.name));
        for (job, (_, name)) in files {
            if self.jobs.len() < MOST_JOBS || self.jobs.contains_key(&job) {
                let found = || Job::new(&dir, name);
                let known = self.jobs.entry(job).or_insert_with(found);
                self.misses.keep(known.read(&dir, self.has_begun));
            } else {
                self.misses.note(Miss::Failed);
            }
        }
        self.has_begun = true;
        for (job, known) in self.jobs.iter().filter(|(_, known)| known.is_shown()) {
            known.write(job, reading);
        }
        self.misses.end_device(reading, "files");
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

/// By job, the file of its lowest rank: those of the folder, and of the folders in it, which are namespaces.
fn files(dir: &Dir) -> BTreeMap<String, (u32, String)> {
    let mut files: BTreeMap<String, (u32, String)> = BTreeMap::new();
    let mut add = |name: String| {
        let Some((job, rank)) = job_and_rank(&name) else {
            return;
        };
        let job = job.to_owned();
        let file = (rank, name);
        match files.get_mut(&job) {
            Some(known) if *known <= file => {}
            Some(known) => *known = file,
            None => drop(files.insert(job, file)),
        }
    };
    let names = dir.names().unwrap_or_default();
    for name in names.into_iter().take(MOST_NAMES) {
        match dir.length(&name) {
            Ok(_) => add(name),
            // A link that leads elsewhere is not followed.
            Err(_) if dir.link_name(&name).is_none() => {
                let below = dir.dir(&name).and_then(|below| below.names());
                let below = below.unwrap_or_default().into_iter().take(MOST_NAMES);
                below.for_each(|file| add(format!("{name}/{file}")));
            }
            Err(_) => {}
        }
    }
    files
}

impl Job {
    fn new(dir: &Dir, name: String) -> Self {
        Self {
            steps: Steps::new(dir, &name),
            name,
            times: StepTimes::default(),
            wrote: Instant::now(),
            is_running: false,
        }
    }

    /// Reads what is new. Where that is older than the exporter, it is not counted.
    fn read(&mut self, dir: &Dir, is_counted: bool) -> Result<(), Miss> {
        let new = self.steps.read(dir.length(&self.name)?)?;
        if !new.seconds.is_empty() {
            self.wrote = Instant::now();
            self.is_running |= is_counted;
        }
        for seconds in new.seconds {
            if is_counted {
                self.times.push(seconds);
            } else {
                self.times.remember(seconds);
            }
        }
        if new.bad_lines > 0 {
            return Err(Miss::Unparsed);
        }
        Ok(())
    }

    fn is_shown(&self) -> bool {
        self.is_running && self.wrote.elapsed() < OVER
    }

    fn write(&self, job: &str, reading: &mut NodeReading) {
        let labels = Labels::new([job]);
        reading.push(&JOB_STEPS, &labels, self.times.steps());
        reading.push(&JOB_STEP_EXCESS, &labels, self.times.excess_seconds());
        for (q, label) in QUANTILES {
            if let Some(seconds) = self.times.quantile(q) {
                reading.push(&JOB_STEP_QUANTILE, &labels.with(label), seconds);
            }
        }
    }
}
