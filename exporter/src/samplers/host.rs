//! The host itself: names, kernel, CPUs, NUMA nodes, boot time.

use std::time::Duration;

use railscope_model::metric::{NODE, NODE_BOOT_TIME, NODE_CPUS, NODE_NUMA_NODES};
use railscope_model::reading::{Labels, NodeReading, Status};

use super::discovery::Misses;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::sysfs::{Buffer, Dir, Miss, Root};

/// Source label.
const NAME: &str = "host";

struct Host {
    sysfs: Root,
    procfs: Root,
    misses: Misses,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Host {
        sysfs: Root::new(&machine.sysfs),
        procfs: Root::new(&machine.procfs),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Host {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Nothing here changes while the node works; only CPUs can be switched off.
    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let begun = reading.samples().len();
        let (sysfs, procfs) = (self.sysfs.open(), self.procfs.open());
        let misses = &mut self.misses;
        if let Some(procfs) = misses.keep(procfs) {
            read_procfs(&procfs, sysfs.as_ref().ok(), reading, misses, &mut buffer);
        }
        if let Some(sysfs) = misses.keep(sysfs) {
            for (path, metric) in [
                ("devices/system/cpu", &NODE_CPUS),
                ("devices/system/node", &NODE_NUMA_NODES),
            ] {
                let online = sysfs.dir(path).and_then(|dir| online(&dir, &mut buffer));
                if let Some(count) = misses.keep(online) {
                    reading.push(metric, &Labels::default(), count);
                }
            }
        }
        if reading.samples().len() == begun {
            misses.forget();
            return Ok(Presence::Absent(Status::Absent));
        }
        misses.end_device(reading, "kernel");
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

fn read_procfs(
    procfs: &Dir,
    sysfs: Option<&Dir>,
    reading: &mut NodeReading,
    misses: &mut Misses,
    buffer: &mut Buffer,
) {
    let mut text = |dir: Option<&Dir>, path: &str, name: &str| {
        let dir = dir.and_then(|dir| dir.dir(path).ok());
        // DMI names are missing on most ARM boards and in many virtual machines.
        let text = dir.and_then(|dir| misses.keep(dir.text(name, buffer)));
        text.unwrap_or_default()
    };
    let node = text(Some(procfs), "sys/kernel", "hostname");
    let kernel = text(Some(procfs), "sys/kernel", "osrelease");
    let architecture = match text(Some(procfs), "sys/kernel", "arch") {
        // Linux before 6.1 has no such file; a program runs on the architecture it was built for.
        unknown if unknown.is_empty() => std::env::consts::ARCH.to_owned(),
        known => known,
    };
    let vendor = text(sysfs, "class/dmi/id", "sys_vendor");
    let product = text(sysfs, "class/dmi/id", "product_name");
    if !node.is_empty() || !kernel.is_empty() {
        let labels = Labels::new([node, kernel, architecture, vendor, product]);
        reading.push(&NODE, &labels, true);
    }
    let boot = procfs
        .long_text("stat")
        .and_then(|stat| boot_time(&stat).ok_or(Miss::Unparsed));
    if let Some(boot) = misses.keep(boot) {
        reading.push(&NODE_BOOT_TIME, &Labels::default(), boot);
    }
}

/// The `btime` line of `/proc/stat`, Unix time in seconds.
pub(super) fn boot_time(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

/// How many numbers a directory's `online` file lists.
///
/// # Errors
/// The file gave no list.
pub(super) fn online(dir: &Dir, buffer: &mut Buffer) -> Result<u64, Miss> {
    let text = dir.text("online", buffer)?;
    count_list(&text).ok_or(Miss::Unparsed)
}

/// How many numbers a kernel list such as `0-3,8,10-11` names.
fn count_list(list: &str) -> Option<u64> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first)?.checked_add(1)
        })
        .try_fold(0_u64, |sum, count| sum.checked_add(count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_counted() {
        for (list, expected) in [
            ("0", Some(1)),
            ("0-95", Some(96)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-0", None),
            ("0-", None),
            ("0-18446744073709551615", None),
            ("all", None),
        ] {
            assert_eq!(count_list(list), expected, "{list:?}");
        }
    }

    #[test]
    fn boot_time_is_one_line_of_stat() {
        assert_eq!(
            boot_time("cpu  1 2\nctxt 9\nbtime 1780000000\nprocesses 3\n"),
            Some(1_780_000_000)
        );
        assert_eq!(boot_time("cpu  1 2\n"), None);
        assert_eq!(boot_time("btime soon\n"), None);
    }
}
