//! Memory errors, as memory controllers count them.

use std::time::Duration;

use railscope_model::metric::MEMORY_ERRORS;
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::{Fleet, Misses};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::edac;
use crate::sources::sysfs::{Dir, File, Root};

/// Source label.
const NAME: &str = "memory";
/// File of a controller -> what it counts.
const COUNTS: [(&str, &str); 2] = [("ce_count", "corrected"), ("ue_count", "uncorrected")];

struct Memory {
    root: Root,
    controllers: Fleet<Controller>,
    misses: Misses,
}

struct Controller {
    name: String,
    dir: Dir,
    counts: Vec<(&'static str, File)>,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Memory {
        root: Root::new(&machine.sysfs),
        controllers: Fleet::default(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Memory {
    fn name(&self) -> &'static str {
        NAME
    }

    /// All are counters, so nothing between two samples is lost; the kernel itself polls most controllers
    /// once a second.
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let root = &self.root;
        let found = self.controllers.look(|_| {
            let found = edac::controllers(&root.open()?)?.into_iter();
            Ok(found
                .map(|(name, dir)| Controller::new(name, dir))
                .collect())
        });
        if let Some(miss) = found {
            return Ok(Presence::Absent(miss.into()));
        }
        let misses = &mut self.misses;
        self.controllers.sample(|controller| {
            if controller.dir.id().is_none() {
                return false;
            }
            for (severity, file) in &mut controller.counts {
                if let Some(count) = misses.keep(file.count(&mut buffer)) {
                    let labels = Labels::new([controller.name.as_str(), severity]);
                    reading.push(&MEMORY_ERRORS, &labels, count);
                }
            }
            misses.end_device(reading, &controller.name);
            true
        });
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Controller {
    fn new(name: String, dir: Dir) -> Self {
        let counts = COUNTS.map(|(file, severity)| (severity, dir.file(file)));
        Self {
            name,
            counts: counts.into(),
            dir,
        }
    }
}
