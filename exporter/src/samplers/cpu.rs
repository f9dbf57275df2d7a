//! What holds CPUs back: heat, by the kernel's count of throttles, and the frequency that they run at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use railscope_model::metric::{
    CPU_FREQUENCY, CPU_FREQUENCY_POLICY, CPU_MAX_FREQUENCY, CPU_THROTTLES,
};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::{Misses, Schedule};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::cpu::{self, Cpu};
use crate::sources::sysfs::{Buffer, File, Miss, Root};

/// Source label.
const NAME: &str = "cpu";
/// CPUs whose frequency is read at one sample: each read may wake its CPU.
const MOST_FREQUENCIES: usize = 64;
/// Statistics of the frequencies, with the place of each among them in rising order, in halves.
const STATISTICS: [(&str, usize); 3] = [("min", 0), ("median", 1), ("max", 2)];

/// A core of a package, or a package: without core.
type Place = (u64, Option<u64>);

struct CpuSampler {
    root: Root,
    schedule: Schedule,
    /// Why the CPUs are not known.
    miss: Option<Miss>,
    throttles: [Throttles; 2],
    frequencies: Vec<File>,
    /// The highest that any of the CPUs can have, kHz.
    max_frequency: Option<u64>,
    policies: BTreeSet<(String, String)>,
    misses: Misses,
}

/// One kind of throttle as one sum.
#[derive(Default)]
struct Throttles {
    kind: &'static str,
    file: &'static str,
    /// One file of each core or package: all its CPUs count the same events.
    files: Vec<(Place, File)>,
    /// A CPU that goes offline removes its count; the sum must not fall then, nor count the whole again
    /// when another CPU represents the core.
    last: HashMap<Place, u64>,
    total: u64,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    let throttles = |kind, file| Throttles {
        kind,
        file,
        ..Throttles::default()
    };
    Box::new(CpuSampler {
        root: Root::new(&machine.sysfs),
        schedule: Schedule::default(),
        miss: None,
        throttles: [
            throttles("core", "core_throttle_count"),
            throttles("package", "package_throttle_count"),
        ],
        frequencies: Vec::new(),
        max_frequency: None,
        policies: BTreeSet::new(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for CpuSampler {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Throttles are counted, so none is lost; a frequency matters where it stays low for long.
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        if self.schedule.is_due() {
            let sysfs = self.root.open();
            let cpus = sysfs.and_then(|sysfs| cpu::online(&sysfs, &mut buffer));
            self.miss = cpus.as_ref().err().copied();
            self.discover(&cpus.unwrap_or_default(), &mut buffer);
        }
        if let Some(miss) = self.miss {
            return Ok(Presence::Absent(miss.into()));
        }
        let begun = reading.samples().len();
        for throttles in &mut self.throttles {
            throttles.sample(reading, &mut self.misses, &mut buffer);
        }
        self.misses.end_device(reading, "throttles");
        self.sample_frequencies(reading, &mut buffer);
        self.misses.end_device(reading, "frequency");
        if reading.samples().len() == begun {
            return Ok(Presence::Absent(Status::Absent)); // as in virtual machines
        }
        self.misses.end_source(reading);
        Ok(Presence::Present)
    }
}

impl CpuSampler {
    fn discover(&mut self, cpus: &[Cpu], buffer: &mut Buffer) {
        let mut first: [BTreeMap<Place, File>; 2] = Default::default();
        for cpu in cpus {
            let Ok(dir) = cpu.dir.dir("thermal_throttle") else {
                continue;
            };
            let (package, core) = (cpu.package(buffer), cpu.core(buffer));
            let places = [(package, Some(core)), (package, None)];
            for ((files, place), throttles) in first.iter_mut().zip(places).zip(&self.throttles) {
                if dir.has(throttles.file) {
                    let file = || dir.file(throttles.file);
                    files.entry(place).or_insert_with(file);
                }
            }
        }
        for (throttles, files) in self.throttles.iter_mut().zip(first) {
            throttles.files = files.into_iter().collect();
        }
        self.frequencies.clear();
        self.policies.clear();
        self.max_frequency = None;
        for cpu in cpus
            .iter()
            .step_by(cpus.len().div_ceil(MOST_FREQUENCIES).max(1))
        {
            let Ok(dir) = cpu.dir.dir("cpufreq") else {
                continue;
            };
            let max = dir.file("cpuinfo_max_freq").read(buffer, positive);
            self.max_frequency = self.max_frequency.max(self.misses.keep(max));
            let mut text = |file| dir.text(file, buffer).unwrap_or_default();
            let policy = (text("scaling_driver"), text("scaling_governor"));
            if policy != (String::new(), String::new()) {
                self.policies.insert(policy);
            }
            self.frequencies.push(dir.file("scaling_cur_freq"));
        }
    }

    fn sample_frequencies(&mut self, reading: &mut NodeReading, buffer: &mut Buffer) {
        let mut found: Vec<u64> = Vec::new();
        for file in &mut self.frequencies {
            let read = file.read(buffer, |text| match text {
                "<unknown>" => Some(None), // of a CPU that has just been idle
                text => positive(text).map(Some),
            });
            found.extend(self.misses.keep(read).flatten());
        }
        found.sort_unstable();
        if let Some(last) = found.len().checked_sub(1) {
            for (statistic, halves) in STATISTICS {
                let hertz = found[last * halves / 2] as f64 * 1e3;
                reading.push(&CPU_FREQUENCY, &Labels::new([statistic]), hertz);
            }
        }
        if let Some(max) = self.max_frequency {
            let hertz = max as f64 * 1e3;
            reading.push(&CPU_MAX_FREQUENCY, &Labels::default(), hertz);
        }
        for (driver, governor) in &self.policies {
            let labels = Labels::new([driver, governor]);
            reading.push(&CPU_FREQUENCY_POLICY, &labels, true);
        }
    }
}

/// A frequency in kHz; 0 is none.
fn positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|khz| *khz > 0)
}

impl Throttles {
    fn sample(&mut self, reading: &mut NodeReading, misses: &mut Misses, buffer: &mut Buffer) {
        let first_sample = self.last.is_empty();
        for (place, file) in &mut self.files {
            if let Some(count) = misses.keep(file.count(buffer)) {
                // What a core counted before it was first seen belongs to the sum only where all sums begin.
                let before = if first_sample { 0 } else { count };
                let before = self.last.insert(*place, count).unwrap_or(before);
                self.total += count.saturating_sub(before);
            }
        }
        if !self.last.is_empty() {
            reading.push(&CPU_THROTTLES, &Labels::new([self.kind]), self.total);
        }
    }
}
