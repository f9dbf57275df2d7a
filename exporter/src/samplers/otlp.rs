//! What became of what is sent by OTLP. Only where something is.

use std::time::Duration;

use railscope_model::metric::{OTLP_EXPORTS, OTLP_ITEMS};
use railscope_model::reading::{Labels, NodeReading};
use railscope_otlp::StatsReader;

use crate::sampler::{Machine, Presence, SampleError, Sampler};

struct Otlp(StatsReader);

/// Builds the sampler where something is sent.
pub fn build(machine: &Machine) -> Option<Box<dyn Sampler>> {
    let stats = machine.otlp.clone()?;
    Some(Box::new(Otlp(stats)))
}

impl Sampler for Otlp {
    fn name(&self) -> &'static str {
        "otlp"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        for (signal, stats) in self.0.read().by_signal() {
            for (metric, counts) in [
                (&OTLP_EXPORTS, stats.exports()),
                (&OTLP_ITEMS, stats.items()),
            ] {
                for (result, count) in counts {
                    reading.push(metric, &Labels::new([signal.as_str(), result]), count);
                }
            }
        }
        Ok(Presence::Present)
    }
}
