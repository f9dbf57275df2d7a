//! Stalls of the host: how late timers fire on each NUMA node, by the probe of [`crate::sources::timer`].

use std::collections::VecDeque;
use std::time::Duration;

use railscope_model::metric::{
    HOST_STALLS, HOST_TIMER_DELAY, HOST_TIMER_DELAY_MAX, HOST_TIMER_PERIOD,
};
use railscope_model::reading::{Labels, Latencies, NodeReading, Status};

use super::discovery::{Misses, Schedule};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::numa::{self, NumaNode};
use crate::sources::sysfs::{Miss, Root};
use crate::sources::timer::{MAX_SHARE, Probe};

/// Source label.
const NAME: &str = "jitter";
/// Delays above which a wake-up counts as a stall, nanoseconds, with their label. 50 to 500 us is what
/// a hypervisor takes from a guest; stalls of 200 us to 1 ms and more delay a collective step.
const THRESHOLDS: [(u64, &str); 3] = [(50_000, "50us"), (200_000, "200us"), (1_000_000, "1000us")];
/// Samples over which the greatest delay is kept: a minute, so that no usual scrape misses it.
const MAX_OVER_SAMPLES: usize = 60;

struct Jitter {
    sysfs: Root,
    enabled: bool,
    schedule: Schedule,
    nodes: Vec<Watched>,
    misses: Misses,
}

/// A NUMA node and its probe.
struct Watched {
    node: NumaNode,
    probe: Result<Probe, Miss>,
    recent: Recent,
}

/// The greatest delay of each of the last samples, nanoseconds.
#[derive(Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    /// Adds one sample's and returns the largest of all.
    fn push(&mut self, nanos: u64) -> u64 {
        if self.0.len() == MAX_OVER_SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(nanos);
        self.0.iter().copied().max().unwrap_or_default()
    }
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Jitter {
        sysfs: Root::new(&machine.sysfs),
        enabled: machine.jitter_probe,
        schedule: Schedule::default(),
        nodes: Vec::new(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Jitter {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The probes run by themselves; this only reads their counts.
    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        if !self.enabled {
            return Ok(Presence::Absent(Status::Absent));
        }
        if self.schedule.is_due() {
            let mut buffer = [0; 4096];
            let sysfs = self.sysfs.open();
            let found = sysfs.and_then(|sysfs| numa::nodes(&sysfs, &mut buffer));
            match found {
                Ok(found) => self.adopt(found),
                Err(miss) => {
                    self.schedule.hurry();
                    return Ok(Presence::Absent(miss.into()));
                }
            }
        }
        for watched in &mut self.nodes {
            let node = watched.node.id;
            match &watched.probe {
                Ok(probe) => {
                    let max = watched.recent.push(probe.take_max_nanos());
                    let report = report(reading, node, &probe.delays(), max);
                    self.misses.keep(report);
                    let period = probe.period_nanos() as f64 / 1e9;
                    reading.push(&HOST_TIMER_PERIOD, &Labels::new([node]), period);
                }
                Err(miss) => self.misses.note(*miss),
            }
            self.misses.end_device(reading, &format!("numa{node}"));
        }
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Jitter {
    /// Starts a probe on every node that is new or has other CPUs than before, and ends those of others.
    fn adopt(&mut self, found: Vec<NumaNode>) {
        let mut before = std::mem::take(&mut self.nodes);
        let share = MAX_SHARE / found.len().max(1) as f64;
        for node in found {
            let kept = before.iter().position(|watched| watched.node == node);
            self.nodes.push(match kept {
                Some(place) => before.swap_remove(place),
                None => Watched {
                    probe: Probe::start(format!("timer-numa{}", node.id), &node.cpus, share),
                    recent: Recent::default(),
                    node,
                },
            });
        }
    }
}

/// Writes what one node's probe has counted.
fn report(
    reading: &mut NodeReading,
    node: u32,
    delays: &Latencies,
    max_nanos: u64,
) -> Result<(), Miss> {
    let labels = Labels::new([node]);
    for (nanos, threshold) in THRESHOLDS {
        let stalls = delays.above(nanos);
        reading.push(&HOST_STALLS, &labels.with(threshold), stalls);
    }
    if delays.count() > 0 {
        reading.push(&HOST_TIMER_DELAY_MAX, &labels, max_nanos as f64 / 1e9);
    }
    let histogram = delays.histogram().map_err(|_| Miss::Failed)?;
    reading.push(&HOST_TIMER_DELAY, &labels, histogram);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::exposition::{Format, Page};
    use railscope_model::metric::Profile;
    use std::sync::Arc;

    #[test]
    fn delays_are_a_histogram_by_default_and_counters_of_stalls_in_full() {
        let mut reading = NodeReading::default();
        let mut seen = Latencies::default();
        for (nanos, times) in [
            (50_000, 900),
            (100_000, 30),
            (300_000, 4),
            (1_450_800_000, 1),
        ] {
            (0..times).for_each(|_| seen.note(nanos));
        }
        report(&mut reading, 1, &seen, 123_456_000).expect("a histogram");
        reading.normalize();
        let page = Page::new(Arc::new(reading));
        let default = page.write(Format::Text, Profile::Default);
        assert!(default.contains("# TYPE railscope_host_timer_delay_seconds histogram\n"));
        assert!(!default.contains("railscope_host_stalls_total"));
        for line in [
            r#"railscope_host_timer_delay_seconds_sum{numa_node="1"} 1.5"#,
            r#"railscope_host_timer_delay_seconds_count{numa_node="1"} 935"#,
            r#"railscope_host_timer_delay_seconds_bucket{le="0.00005",numa_node="1"} 900"#,
            r#"railscope_host_timer_delay_seconds_bucket{le="0.0002",numa_node="1"} 930"#,
            r#"railscope_host_timer_delay_seconds_bucket{le="0.001",numa_node="1"} 934"#,
            r#"railscope_host_timer_delay_seconds_bucket{le="0.1",numa_node="1"} 934"#,
            r#"railscope_host_timer_delay_seconds_bucket{le="+Inf",numa_node="1"} 935"#,
            r#"railscope_host_timer_delay_max_seconds{numa_node="1"} 0.123456"#,
        ] {
            assert!(
                default.lines().any(|found| found == line),
                "{line}\n{default}"
            );
        }
        let full = page.write(Format::Text, Profile::Full);
        for (threshold, stalls) in [("1000us", 1), ("200us", 5), ("50us", 35)] {
            let line = format!(
                r#"railscope_host_stalls_total{{numa_node="1",threshold="{threshold}"}} {stalls}"#
            );
            assert!(full.lines().any(|found| found == line), "{line}\n{full}");
        }
    }

    #[test]
    fn the_greatest_delay_stays_for_a_minute_and_then_leaves() {
        let mut recent = Recent::default();
        assert_eq!(recent.push(7), 7);
        for _ in 1..MAX_OVER_SAMPLES {
            assert_eq!(recent.push(1), 7);
        }
        assert_eq!(recent.push(1), 1);
    }
}
