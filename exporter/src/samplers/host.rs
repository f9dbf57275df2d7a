//! The host itself: names, kernel, CPUs, NUMA nodes, boot time.

use std::time::Duration;

use railscope_model::reading::NodeReading;

use crate::sampler::{Machine, Presence, SampleError, Sampler};

struct Host;

/// Builds the sampler.
pub fn build(_machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Host)
}

impl Sampler for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn sample(&mut self, _reading: &mut NodeReading) -> Result<Presence, SampleError> {
        Ok(Presence::Present)
    }
}
