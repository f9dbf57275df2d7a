//! GPUDirect Storage counters of the nvidia-fs driver, from `/proc/driver/nvidia-fs/stats`.

use railscope_model::metric::{GDS_BYTES, GDS_ERRORS, GDS_OPERATIONS, GDS_STATISTICS_ENABLED};
use railscope_model::reading::{Labels, NodeReading};

use super::super::discovery::Misses;
use crate::sources::sysfs::Miss;

/// What a field of a line counts.
#[derive(Clone, Copy)]
enum Field {
    /// MiB in this direction.
    Mebibytes(&'static str),
    /// Operations in this direction.
    Operations(&'static str),
    /// Errors of this kind.
    Errors(&'static str),
}

/// Line and field -> what it counts. Only counters: bandwidths and latencies are the driver's own averages.
const FIELDS: &[(&str, &str, Field)] = &[
    ("Reads", "readMiB", Field::Mebibytes("read")),
    ("Writes", "writeMiB", Field::Mebibytes("write")),
    ("Reads", "n", Field::Operations("read")),
    ("Writes", "n", Field::Operations("write")),
    ("Reads", "err", Field::Errors("read")),
    ("Reads", "io_state_err", Field::Errors("read_io_state")),
    ("Writes", "err", Field::Errors("write")),
    ("Writes", "io_state_err", Field::Errors("write_io_state")),
    ("Writes", "pg-cache-fail", Field::Errors("page_cache_fail")),
    ("Writes", "pg-cache-eio", Field::Errors("page_cache_eio")),
    ("Batches", "err", Field::Errors("batch")),
    ("Mmap", "err", Field::Errors("mmap")),
    ("Bar1-map", "err", Field::Errors("bar1_map")),
    ("Error", "cpu-gpu-pages", Field::Errors("cpu_gpu_pages")),
    ("Error", "sg-ext", Field::Errors("sg_ext")),
    ("Error", "dma-map", Field::Errors("dma_map")),
    ("Error", "dma-ref", Field::Errors("dma_ref")),
];

/// Reads the whole file. With statistics switched off the driver omits bytes and operations, and so
/// do we.
pub(super) fn read(text: &str, reading: &mut NodeReading, misses: &mut Misses) {
    let mut known = false;
    for line in text.lines() {
        let Some((title, rest)) = line.split_once(':') else {
            continue;
        };
        let title = title.trim();
        if title == "IO stats" {
            let enabled = match rest.split(',').next().map(str::trim) {
                Some("Enabled") => Ok(true),
                Some("Disabled") => Ok(false),
                _ => Err(Miss::Unparsed),
            };
            known = true;
            if let Some(enabled) = misses.keep(enabled) {
                reading.push(&GDS_STATISTICS_ENABLED, &Labels::default(), enabled);
            }
        }
        for (name, value) in rest.split_whitespace().filter_map(|w| w.split_once('=')) {
            let field = FIELDS.iter().find(|row| (row.0, row.1) == (title, name));
            let Some((_, _, field)) = field else {
                continue;
            };
            known = true;
            if let Some(count) = misses.keep(value.parse().map_err(|_| Miss::Unparsed)) {
                push(reading, *field, count);
            }
        }
    }
    if !known {
        misses.note(Miss::Unparsed);
    }
}

fn push(reading: &mut NodeReading, field: Field, count: u64) {
    match field {
        Field::Mebibytes(direction) => {
            let bytes = count.saturating_mul(1 << 20);
            reading.push(&GDS_BYTES, &Labels::new([direction]), bytes);
        }
        Field::Operations(direction) => {
            reading.push(&GDS_OPERATIONS, &Labels::new([direction]), count);
        }
        Field::Errors(kind) => reading.push(&GDS_ERRORS, &Labels::new([kind]), count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str], statuses: usize) {
        let mut reading = NodeReading::default();
        let mut misses = Misses::new("storage");
        read(text, &mut reading, &mut misses);
        let samples = reading.samples().iter().map(|sample| {
            let name = sample.metric.name.trim_start_matches("railscope_gds_");
            let labels: Vec<_> = sample.labels.values().collect();
            format!("{name} {} {}", labels.join(" "), sample.value.as_f64())
        });
        assert_eq!(samples.collect::<Vec<_>>(), expected, "{text}");
        let mut said = NodeReading::default();
        misses.end_device(&mut said, "gds");
        assert_eq!(said.samples().len(), statuses, "{text}");
    }

    #[test]
    fn bytes_are_mebibytes_and_rates_are_left_out() {
        check(
            "NVFS statistics(ver: 4.0)\n\
             IO stats: Enabled, peer IO stats: Disabled\n\
             Logging level: info\n\n\
             Reads\t\t\t\t: n=12 ok=11 err=1 readMiB=3 io_state_err=2\n\
             Reads\t\t\t\t: Bandwidth(MiB/s)=5000 Avg-Latency(usec)=90\n\
             Sparse Reads\t\t        : n=7 io=0 holes=0 pages=0 \n\
             Error\t\t\t\t: cpu-gpu-pages=0 sg-ext=4 dma-map=0 dma-ref=0\n\
             Ops\t\t\t\t: Read=1 Write=0 BatchIO=0\n",
            &[
                "statistics_enabled  1",
                "operations_total read 12",
                "errors_total read 1",
                "bytes_total read 3145728",
                "errors_total read_io_state 2",
                "errors_total cpu_gpu_pages 0",
                "errors_total sg_ext 4",
                "errors_total dma_map 0",
                "errors_total dma_ref 0",
            ],
            0,
        );
    }

    #[test]
    fn statistics_that_are_off_give_no_zeroes() {
        check(
            "IO stats: Disabled, peer IO stats: Disabled\nReads : err=0 io_state_err=0\n",
            &[
                "statistics_enabled  0",
                "errors_total read 0",
                "errors_total read_io_state 0",
            ],
            0,
        );
    }

    #[test]
    fn what_is_broken_is_said_and_costs_only_itself() {
        check(
            "IO stats: maybe\nReads : n=x err=3 readMiB\nWrites\n",
            &["errors_total read 3"],
            1,
        );
        check("", &[], 1);
        check("some other file\n", &[], 1);
    }
}
