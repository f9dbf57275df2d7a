//! What keeps work from its CPU: steal, I/O, waiting, packet backlogs, summed over each NUMA node; and pressure.

mod lines;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use railscope_model::metric::{
    CPU_IOWAIT, CPU_RUN, CPU_STEAL, CPU_WAIT, Metric, SOFTNET_DROPPED, SOFTNET_SQUEEZED,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::{Misses, Schedule};
use super::pressure;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::numa;
use crate::sources::sysfs::{Dir, Miss, Root};
use crate::sources::timer::ticks_per_second;

/// Source label.
const NAME: &str = "scheduler";

/// A file with a line for each CPU: its path, how to read it, what its columns are.
struct Table {
    path: &'static str,
    read: fn(&str, &[usize]) -> Result<lines::Rows, Miss>,
    columns: &'static [(&'static Metric, Unit)],
}

/// What one of the kernel's counts is.
#[derive(Clone, Copy)]
enum Unit {
    Count,
    Nanoseconds,
    /// `USER_HZ` a second.
    Ticks,
}

impl Unit {
    /// By how much a count may fall without a reset. The kernel moves idle time between idle and I/O wait, so that
    /// either can fall (proc_stat(5)); `node_exporter` also ignores up to 3 s.
    fn may_fall(self) -> u64 {
        match self {
            Self::Ticks => 3 * ticks_per_second(),
            Self::Count | Self::Nanoseconds => 0,
        }
    }
}

const TABLES: &[Table] = &[
    Table {
        path: "stat",
        read: lines::stat,
        columns: &[(&CPU_IOWAIT, Unit::Ticks), (&CPU_STEAL, Unit::Ticks)],
    },
    Table {
        path: "schedstat",
        read: lines::schedstat,
        columns: &[
            (&CPU_RUN, Unit::Nanoseconds),
            (&CPU_WAIT, Unit::Nanoseconds),
        ],
    },
    Table {
        path: "net/softnet_stat",
        read: lines::softnet,
        columns: &[
            (&SOFTNET_DROPPED, Unit::Count),
            (&SOFTNET_SQUEEZED, Unit::Count),
        ],
    },
];

struct Scheduler {
    sysfs: Root,
    procfs: Root,
    schedule: Schedule,
    /// CPUs that are online, rising, each with its NUMA node.
    cpus: BTreeMap<usize, u32>,
    /// Why they are not known.
    cpus_miss: Option<Miss>,
    /// One for each column of [`TABLES`], in their order.
    sums: Vec<Sums>,
    misses: Misses,
}

/// One counter of every CPU as one of each NUMA node.
///
/// The kernel omits CPUs that are offline. Their part must not vanish from the sum: for Prometheus
/// that would be a reset, and the full sum would count again.
#[derive(Debug, Default)]
struct Sums {
    last: HashMap<usize, u64>,
    totals: BTreeMap<u32, u64>,
}

impl Sums {
    fn add(&mut self, cpu: usize, node: u32, count: u64, may_fall: u64, first_sample: bool) {
        let last = self.last.get(&cpu).copied();
        let last = last.filter(|last| (1..=may_fall).contains(&last.saturating_sub(count)));
        let count = last.unwrap_or(count);
        // What a CPU counted before it was first seen belongs to the sum only where all sums begin.
        let before = if first_sample { 0 } else { count };
        let before = self.last.insert(cpu, count).unwrap_or(before);
        *self.totals.entry(node).or_default() += count.saturating_sub(before);
    }
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    let columns = TABLES.iter().map(|table| table.columns.len()).sum();
    Box::new(Scheduler {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        schedule: Schedule::default(),
        cpus: BTreeMap::new(),
        cpus_miss: None,
        sums: std::iter::repeat_with(Sums::default)
            .take(columns)
            .collect(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Scheduler {
    fn name(&self) -> &'static str {
        NAME
    }

    /// All are counters, so nothing between two samples is lost; and `/proc/stat` costs the kernel a
    /// walk over every interrupt of every CPU, milliseconds on a machine of 200.
    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let begun = reading.samples().len();
        if self.schedule.is_due() {
            let mut buffer = [0; 4096];
            let sysfs = self.sysfs.open();
            let nodes = sysfs.and_then(|sysfs| numa::nodes(&sysfs, &mut buffer));
            self.cpus_miss = nodes.as_ref().err().copied();
            if let Ok(nodes) = nodes {
                self.cpus = nodes
                    .into_iter()
                    .flat_map(|node| node.cpus.into_iter().map(move |cpu| (cpu, node.id)))
                    .collect();
            }
        }
        if let Some(procfs) = self.misses.keep(self.procfs.open()) {
            if let Some(miss) = self.cpus_miss {
                self.misses.note(miss);
            }
            self.read_tables(&procfs, reading);
            self.misses.end_device(reading, "cpu");
            pressure::read(&procfs, reading, &mut self.misses);
            self.misses.end_device(reading, "pressure");
        }
        if reading.samples().len() == begun {
            self.misses.forget();
            return Ok(Presence::Absent(Status::Absent));
        }
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl Scheduler {
    fn read_tables(&mut self, procfs: &Dir, reading: &mut NodeReading) {
        let online: Vec<usize> = self.cpus.keys().copied().collect();
        let mut sums = self.sums.iter_mut();
        for table in TABLES {
            let mut sums: Vec<&mut Sums> = sums.by_ref().take(table.columns.len()).collect();
            let rows = procfs
                .long_text(table.path)
                .and_then(|text| (table.read)(&text, &online));
            let Some(rows) = self.misses.keep(rows) else {
                continue;
            };
            let first_sample = sums.iter().all(|sums| sums.last.is_empty());
            for row in rows {
                let Some((cpu, counts)) = self.misses.keep(row) else {
                    continue;
                };
                let Some(node) = self.cpus.get(&cpu) else {
                    continue; // came online just now: known at the next discovery
                };
                let columns = sums.iter_mut().zip(table.columns);
                for ((sums, (_, unit)), count) in columns.zip(counts) {
                    sums.add(cpu, *node, count, unit.may_fall(), first_sample);
                }
            }
            for ((metric, unit), sums) in table.columns.iter().zip(sums) {
                for (node, total) in &sums.totals {
                    push(reading, metric, *node, *total, *unit);
                }
            }
        }
    }
}

fn push(reading: &mut NodeReading, metric: &'static Metric, node: u32, total: u64, unit: Unit) {
    let labels = Labels::new([node]);
    match unit {
        Unit::Count => reading.push(metric, &labels, total),
        Unit::Nanoseconds => reading.push(metric, &labels, total as f64 / 1e9),
        Unit::Ticks => {
            let seconds = total as f64 / ticks_per_second() as f64;
            reading.push(metric, &labels, seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_goes_offline_takes_nothing_from_the_sum() {
        let mut sums = Sums::default();
        let mut sample = |counts: &[(usize, u64)]| {
            let first = sums.last.is_empty();
            for (cpu, count) in counts {
                sums.add(*cpu, 0, *count, 5, first);
            }
            sums.totals[&0]
        };
        assert_eq!(sample(&[(0, 100), (1, 50)]), 150, "since the boot");
        assert_eq!(sample(&[(0, 110)]), 160, "CPU 1 is offline");
        assert_eq!(sample(&[(0, 110), (1, 55)]), 165, "and back");
        assert_eq!(sample(&[(0, 110), (1, 55), (2, 900)]), 165, "a new one");
        assert_eq!(sample(&[(0, 10), (1, 55), (2, 901)]), 166, "a reset");
        assert_eq!(sample(&[(0, 12)]), 168, "and what came after it");
        assert_eq!(sample(&[(0, 7)]), 168, "a step back");
        assert_eq!(sample(&[(0, 13)]), 169, "counts once");
    }
}
