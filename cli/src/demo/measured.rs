//! Samplers of simulated nodes: the exporter's own, except probes and timers, which need real hardware.
//! The simulator writes the values of those into a file.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use railscope_exporter::Machine;
use railscope_exporter::sampler::{Presence, SAMPLERS, SampleError, Sampler};
use railscope_model::reading::{NodeReading, Status};
use railscope_simulator::show::measured::FILE;

/// All samplers of the node below this folder.
pub(super) fn samplers(root: &Path, machine: &Machine) -> Vec<Box<dyn Sampler>> {
    let own = SAMPLERS.iter().map(|build| build(machine));
    let measured = Measured {
        file: root.join(FILE),
        read: None,
    };
    own.chain([Box::new(measured) as Box<dyn Sampler>])
        .collect()
}

struct Measured {
    file: PathBuf,
    /// What was last read, and when that was written.
    read: Option<(SystemTime, NodeReading)>,
}

impl Sampler for Measured {
    /// The source that measures it on a real node.
    fn name(&self) -> &'static str {
        "prober"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let failed = |cause: Error| SampleError {
            what: self.file.display().to_string(),
            cause,
        };
        let written = fs::metadata(&self.file).and_then(|about| about.modified());
        let written = match written {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Presence::Absent(Status::Absent));
            }
            written => written.map_err(failed)?,
        };
        if self.read.as_ref().is_none_or(|(at, _)| *at != written) {
            let text = fs::read_to_string(&self.file).map_err(failed)?;
            let measured = serde_json::from_str(&text);
            self.read = Some((written, measured.map_err(|error| failed(error.into()))?));
        }
        for sample in self
            .read
            .iter()
            .flat_map(|(_, measured)| measured.samples())
        {
            reading.push(sample.metric, &sample.labels, sample.value.clone());
        }
        Ok(Presence::Present)
    }
}
