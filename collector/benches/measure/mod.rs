//! Processor time and memory of this program, for the benchmarks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads of this program so far, as several build the fabric: the time of other programs on
/// the machine does not count.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A line of the kernel's status of this process, such as `VmRSS` or `VmHWM`, in MB; 0 if it is missing.
pub(crate) fn megabytes(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find(|text| text.starts_with(line));
    let number = found.and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0_u64) / 1024
}
