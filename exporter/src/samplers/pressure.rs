//! Pressure stall information: time for which tasks waited for a resource, from `/proc/pressure`.

use railscope_model::metric::HOST_PRESSURE;
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::Misses;
use crate::sources::sysfs::{Dir, Miss};

/// Files of `/proc/pressure`, each named after its resource. `irq` came with Linux 6.1.
const RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];
/// The two kinds of line. For the CPU the kernel prints `full` as well, but for a whole machine it means
/// nothing and stays 0; `irq` has no `some`.
const KINDS: [&str; 2] = ["some", "full"];

/// Reads every resource. A kernel without them, or with `psi=0`, leaves them out.
pub(super) fn read(procfs: &Dir, reading: &mut NodeReading, misses: &mut Misses) {
    let Some(dir) = misses.keep(procfs.dir("pressure")) else {
        return;
    };
    for resource in RESOURCES {
        let Some(text) = misses.keep(dir.long_text(resource)) else {
            continue;
        };
        for line in text.lines() {
            let Some((kind, seconds)) = misses.keep(parse(line).ok_or(Miss::Unparsed)) else {
                continue;
            };
            if (resource, kind) != ("cpu", "full") {
                reading.push(&HOST_PRESSURE, &Labels::new([resource, kind]), seconds);
            }
        }
    }
}

/// Kind and seconds of `some avg10=0.00 avg60=0.00 avg300=0.00 total=4711`, whose total is in microseconds.
fn parse(line: &str) -> Option<(&'static str, f64)> {
    let mut words = line.split_whitespace();
    let word = words.next()?;
    let kind = KINDS.into_iter().find(|kind| *kind == word)?;
    let total: u64 = words
        .find_map(|word| word.strip_prefix("total="))?
        .parse()
        .ok()?;
    Some((kind, total as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_microseconds() {
        for (line, expected) in [
            (
                "some avg10=0.00 avg60=1.25 avg300=0.07 total=4711000",
                Some(("some", 4.711)),
            ),
            (
                "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
                Some(("full", 0.0)),
            ),
            ("full total=1500000 avg10=0.00", Some(("full", 1.5))),
            ("some avg10=0.00 avg60=0.00 avg300=0.00", None),
            ("some avg10=0.00 total=", None),
            ("some avg10=0.00 total=-1", None),
            ("most avg10=0.00 total=1", None),
            ("", None),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
