//! The names of the whole catalogue in OTLP.

use std::collections::HashMap;

use expect_test::expect_file;
use railscope_model::metric::{CATALOGUE, Kind};
use railscope_otlp::{Instrument, MAPPED, names_table, otlp_name};

#[test]
fn the_table_of_names_is_up_to_date() {
    let head = "# Metric names in OTLP\n\nWritten by `UPDATE_EXPECT=1 cargo test -p railscope-otlp`. The rule is in \
                `otlp/src/names.rs`.\n\n";
    expect_file!["../names.md"].assert_eq(&format!("{head}{}", names_table()));
}

#[test]
fn names_follow_the_conventions_or_the_rule() {
    for (series, name, unit) in [
        (
            "railscope_gpu_memory_used_bytes",
            "hw.gpu.memory.usage",
            "By",
        ),
        (
            "railscope_gpu_power_limit_watts",
            "railscope.gpu_power_limit_watts",
            "W",
        ),
        (
            "railscope_nvlink_transmit_bytes_total",
            "railscope.nvlink_transmit_bytes",
            "By",
        ),
        (
            "railscope_nvlink_speed_bytes_per_second",
            "railscope.nvlink_speed_bytes_per_second",
            "By/s",
        ),
        ("railscope_gpu_info", "railscope.gpu_info", ""),
        ("railscope_incident_active", "railscope.incident_active", ""),
        ("process_cpu_seconds_total", "process_cpu_seconds", "s"),
        ("up", "up", ""),
    ] {
        let found = otlp_name(series);
        assert_eq!((found.name.as_ref(), found.unit), (name, unit), "{series}");
    }
}

#[test]
fn a_name_by_the_rule_stands_for_one_metric() {
    let mut names = HashMap::new();
    for metric in CATALOGUE {
        let name = otlp_name(metric.name);
        if name.mapping.is_none() {
            let before = names.insert(name.name.clone(), metric.name);
            assert_eq!(before, None, "{}: {}", metric.name, name.name);
        }
    }
}

#[test]
fn mapped_metrics_of_one_name_agree_and_have_the_labels_that_they_use() {
    let mut seen: HashMap<&str, (&str, Instrument)> = HashMap::new();
    for row in MAPPED {
        let metric = row.metric;
        let first = *seen.entry(row.name).or_insert((row.unit, row.instrument));
        assert_eq!(first, (row.unit, row.instrument), "{}", row.name);
        assert_eq!(
            metric.kind == Kind::Counter,
            row.instrument == Instrument::Counter,
            "{}",
            metric.name
        );
        if let Some(renamed) = row.renamed {
            assert!(
                metric.labels.contains(&renamed.label),
                "{}: {}",
                metric.name,
                renamed.label
            );
        }
    }
}
