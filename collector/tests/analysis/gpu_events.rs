//! What GPUs report about themselves: that they are gone, errors of memory and NVLinks, XIDs; and what is no fault.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::classes::Severity;

use super::{Fault, NODES, at, check, incidents, node, of_gpus, page, run, with};

const OTHERS: &str = "[gpu/n3:0 gpu/n3:1 gpu/n3:3]";

/// Drops every series of these GPUs of one node.
fn without(node: usize, gpus: &'static [usize]) -> Box<Fault> {
    Box::new(move |index, _, text: String| {
        let is_gone = |line: &&str| {
            let mut labels = gpus.iter().map(|gpu| format!("gpu=\"{gpu}\""));
            index == node && labels.any(|label| line.contains(&label))
        };
        let left = text.lines().filter(|line| !is_gone(line));
        left.map(|line| format!("{line}\n")).collect()
    })
}

#[test]
fn a_gpu_that_is_no_longer_exported_is_lost() {
    check(
        &without(3, &[2]),
        &[&format!("gpu-lost gpu/n3:2 gpus=4 {OTHERS}")],
    );
}

#[test]
fn a_node_without_any_exported_gpu_has_lost_none() {
    check(&without(3, &[0, 1, 2, 3]), &[]);
}

#[test]
fn a_gpu_that_was_replaced_is_not_lost() {
    let replaced = |node: usize, _: u64, text: String| match node {
        3 => text.replace("GPU-3-2", "GPU-spare"),
        _ => text,
    };
    check(&replaced, &[]);
}

#[test]
fn a_gpu_that_was_released_when_idle_is_not_lost_where_counts_differ() {
    // Half of the nodes have fewer GPUs from the start, so there is no usual count; the GPU is idle at first.
    let released = |node: usize, seconds: u64, text: String| {
        let text =
            without(node, if node.is_multiple_of(2) { &[3] } else { &[] })(node, seconds, text);
        let idle = "railscope_gpu_utilization_ratio{gpu=\"2\"}";
        let text = text.replace(&format!("{idle} 1"), &format!("{idle} 0"));
        match (node, seconds) {
            (3, 130..) => without(3, &[2])(node, seconds, text),
            _ => text,
        }
    };
    let view = super::run_from_the_start(&released);
    assert_eq!(incidents(&view), Vec::<String>::new());
}

#[test]
fn a_gpu_that_was_missing_before_the_collector_started_is_lost() {
    let view = super::run_from_the_start(&without(3, &[2]));
    let lost = format!("gpu-lost gpu/n3:2 gpus=4 {OTHERS}");
    assert_eq!(incidents(&view), [lost]);
}

/// The roots of all incidents of a node that misses a GPU from 200 s on, is off from 300 s to 500 s, and does not export these GPUs
/// afterwards; those while it is off are excluded.
fn missing_around_a_restart(before: &'static [usize], after: &'static [usize]) -> BTreeSet<String> {
    let mut analyzer = Analyzer::default();
    let mut ever = BTreeSet::new();
    for seconds in (0..1_600).step_by(5) {
        for index in 0..NODES {
            let missing = match (index, seconds) {
                (3, 300..500) => continue,
                (3, 500..) => after,
                (3, 200..) => before,
                _ => &[],
            };
            let text = without(index, missing)(index, seconds, page(index, seconds));
            analyzer.ingest(&node(index), &text, at(seconds));
        }
        let view = analyzer.tick(at(seconds));
        if !(300..500).contains(&seconds) {
            ever.extend(view.incidents.iter().map(|one| one.root.to_string()));
        }
    }
    ever
}

#[test]
fn a_gpu_that_is_still_missing_after_a_restart_of_its_node_is_the_same_one() {
    let roots = |roots: &[&str]| roots.iter().map(|root| (*root).to_owned()).collect();
    // The numbers of the others do not tell which is missing.
    let last: BTreeSet<_> = roots(&["gpu/n3:3"]);
    assert_eq!(missing_around_a_restart(&[3], &[3]), last);
    // The driver has renumbered them: the last number is missing now, which one GPU had before.
    let renumbered: BTreeSet<_> = roots(&["gpu/n3:1", "host/n3"]);
    assert_eq!(missing_around_a_restart(&[1], &[3]), renumbered);
    let back: BTreeSet<_> = roots(&["gpu/n3:1"]);
    assert_eq!(missing_around_a_restart(&[1], &[]), back);
}

#[test]
fn errors_of_nvlinks_and_memory_are_named() {
    for (series, per_second, class) in [
        (
            "railscope_gpu_nvlink_errors_total{gpu=\"2\",kind=\"recovery\"}",
            0.02,
            "nvlink-errors",
        ),
        (
            "railscope_gpu_nvlink_errors_total{gpu=\"2\",kind=\"replay\"}",
            1.0,
            "nvlink-errors",
        ),
        (
            "railscope_gpu_nvlink_errors_total{gpu=\"2\",kind=\"crc_flit\"}",
            200.0,
            "nvlink-errors",
        ),
        (
            "railscope_gpu_ecc_errors_total{gpu=\"2\",severity=\"uncorrected\"}",
            0.02,
            "gpu-memory",
        ),
        (
            "railscope_gpu_ecc_errors_total{gpu=\"2\",severity=\"corrected\"}",
            1.0,
            "gpu-memory",
        ),
    ] {
        let rises = with(move |node, seconds| {
            let count = if node == 3 {
                (per_second * seconds as f64).floor()
            } else {
                0.0
            };
            format!("{series} {count}\n")
        });
        check(&rises, &[&format!("{class} gpu/n3:2 gpus=1 []")]);
    }
    let few = with(|_, seconds| {
        let series = "railscope_gpu_nvlink_errors_total{gpu=\"2\",kind=\"crc_flit\"}";
        format!("{series} {}\n", seconds / 5)
    });
    check(&few, &[]);
}

/// The last XID of a GPU, as dcgm-exporter shows it, and 0 for all others.
fn last_xid(from: u64, xid: u32) -> Box<Fault> {
    with(move |node, seconds| {
        of_gpus(|gpu| {
            let has = (node, gpu) == (3, 2) && seconds >= from;
            let shown = if has { xid } else { 0 };
            format!("railscope_gpu_last_xid{{gpu=\"{gpu}\"}} {shown}\n")
        })
    })
}

#[test]
fn an_xid_of_hardware_is_named_with_its_class_and_one_of_an_application_is_not() {
    for (xid, class) in [
        (79, "gpu-lost"),
        (119, "gpu-error"),
        (63, "gpu-memory"),
        (95, "gpu-memory"),
        (74, "nvlink-errors"),
        (149, "nvlink-errors"),
    ] {
        check(
            &last_xid(100, xid),
            &[&format!("{class} gpu/n3:2 gpus=1 []")],
        );
    }
    for xid in [13, 31, 43, 45] {
        check(&last_xid(100, xid), &[]);
    }
    for (xid, severity) in [(78, Severity::Warning), (119, Severity::Critical)] {
        assert_eq!(run(&last_xid(100, xid)).incidents[0].severity, severity);
    }
}

/// Each job is on all GPUs of node 3 for 40 s, and so many of them report XID 31 in its middle: GPU 2 first.
fn failing_jobs(jobs: u64, reporting: usize) -> Box<Fault> {
    Box::new(move |index, seconds, page: String| {
        let turn = (seconds / 40).min(jobs);
        let page = super::jobs::held(page, &format!("job-{turn}"));
        let counts = |gpu: &usize| {
            let failures = (seconds + 20) / 40;
            format!(
                "railscope_gpu_xid_events_total{{gpu=\"{}\",xid=\"31\",source=\"nvml\"}} {}\n",
                (gpu + 2) % 4,
                failures.min(jobs)
            )
        };
        let of_node = (0..reporting).filter(|_| index == 3);
        page + &of_node.map(|gpu| counts(&gpu)).collect::<String>()
    })
}

#[test]
fn an_xid_of_applications_that_follows_one_gpu_through_several_jobs_is_that_gpus() {
    check(&failing_jobs(2, 1), &[]);
    check(&failing_jobs(3, 2), &[]);
    let followed = run(&failing_jobs(3, 1));
    assert_eq!(incidents(&followed), ["gpu-error gpu/n3:2 gpus=32 []"]);
    assert_eq!(followed.incidents[0].severity, Severity::Warning);
}

/// The driver asks for a reset after an error of the memory: that error names the incident, and the reset pages.
#[test]
fn the_memory_error_after_which_the_driver_asks_for_a_reset_names_the_incident() {
    let failed = last_xid(100, 48);
    let asks = move |node: usize, seconds: u64, page: String| {
        let action = |gpu| u8::from((node, gpu, seconds >= 100) == (3, 2, true));
        let line = |gpu| {
            format!(
                "railscope_gpu_recovery_action{{gpu=\"{gpu}\"}} {}\n",
                action(gpu)
            )
        };
        failed(node, seconds, page) + &of_gpus(line)
    };
    let view = run(&asks);
    assert_eq!(incidents(&view), ["gpu-memory gpu/n3:2 gpus=1 []"]);
    assert_eq!(view.incidents[0].severity, Severity::Critical);
}

#[test]
fn an_xid_from_before_the_first_scrape_is_no_event() {
    check(&last_xid(0, 119), &[]);
}

/// A gauge of the XIDs of the last 60 s, as dcgm-exporter shows it: it falls when they become too old, and shows each new one.
#[test]
fn a_rise_of_recent_xids_is_an_event_and_a_fall_is_not() {
    let recent = |events: &'static [u64]| {
        with(move |node, seconds| {
            let is_recent = |event: &&u64| (**event..**event + 60).contains(&seconds);
            match events.iter().filter(is_recent).count() {
                count if count > 0 && node == 3 => {
                    format!("railscope_gpu_recent_xids{{gpu=\"2\",xid=\"119\"}} {count}\n")
                }
                _ => String::new(),
            }
        })
    };
    let named = ["gpu-error gpu/n3:2 gpus=1 []"];
    check(&recent(&[100]), &named);
    check(&recent(&[100, 130]), &named);
    check(&recent(&[]), &[]);
    // The second event after the first has left the gauge is an event, too.
    let twice = recent(&[60, 240]);
    let again = super::views((60, 0), &twice).map(|view| incidents(&view));
    let named_at = (1..).zip(again).filter(|(_, named)| !named.is_empty());
    let last = named_at.map(|(tick, _)| 60 * tick).last();
    assert!(
        last >= Some(840),
        "for 600 s after the second event: {last:?}"
    );
    let from_the_start = super::run_from_the_start(&recent(&[0]));
    assert_eq!(incidents(&from_the_start), named);
}

#[test]
fn the_first_counted_xid_is_an_event_and_an_old_count_is_not() {
    let count = |from: u64| {
        with(move |node, seconds| match node {
            3 if seconds >= from => String::from(
                "railscope_gpu_xid_events_total{gpu=\"2\",xid=\"119\",source=\"kmsg\"} 1\n",
            ),
            _ => String::new(),
        })
    };
    check(&count(100), &["gpu-error gpu/n3:2 gpus=1 []"]);
    let view = super::run_from_the_start(&count(0));
    assert_eq!(incidents(&view), Vec::<String>::new());
}

/// dcgm-exporter counts from its own start, and may be scraped later than what reports the utilization.
#[test]
fn the_first_count_of_another_exporter_may_be_old_and_a_rise_is_an_event() {
    let count = |rises: u64| {
        with(move |node, seconds| {
            if node != 3 || seconds < 50 {
                return String::new();
            }
            let count = 4 + u64::from(seconds >= rises);
            format!(
                "railscope_gpu_xid_events_total{{gpu=\"2\",xid=\"119\",source=\"dcgm\"}} {count}\n"
            )
        })
    };
    check(&count(u64::MAX), &[]);
    check(&count(100), &["gpu-error gpu/n3:2 gpus=1 []"]);
}

/// Content of the kernel log of node 3, by series; times are seconds of the test.
fn logged(lines: &'static [(&str, f64)]) -> Box<Fault> {
    with(move |node, _| {
        let lines = lines.iter().filter(|_| node == 3);
        let text = lines.map(|(series, at)| {
            let at = if series.contains("timestamp") {
                super::at(0).as_seconds() + at
            } else {
                *at
            };
            format!("{series} {at}\n")
        });
        text.collect()
    })
}

#[test]
fn an_xid_with_a_recent_time_is_an_event_on_the_first_page_and_an_old_one_is_not() {
    const SERIES: &str =
        "railscope_gpu_xid_last_timestamp_seconds{gpu=\"2\",xid=\"119\",source=\"kmsg\"}";
    check(
        &logged(&[(SERIES, 40.0)]),
        &["gpu-error gpu/n3:2 gpus=1 []"],
    );
    check(&logged(&[(SERIES, -3600.0)]), &[]);
    // The clock of the node is wrong.
    check(&logged(&[(SERIES, 7200.0)]), &[]);
}

#[test]
fn a_gpu_that_the_driver_could_not_start_is_named_by_its_address() {
    const EVENT: &str = "railscope_kernel_hardware_event_last_timestamp_seconds{device=\"0000:9b:00.0\",event=\"gpu_lost\"}";
    check(
        &logged(&[(EVENT, 0.0)]),
        &["gpu-lost pcie/n3:0000:9b:00.0 gpus=0 []"],
    );
}

#[test]
fn an_nvswitch_with_a_fatal_error_is_named_and_with_a_single_corrected_one_is_not() {
    const FATAL: [&str; 2] = [
        "railscope_nvswitch_sxid_last_timestamp_seconds{pci=\"0000:c3:00.0\",sxid=\"20034\",severity=\"fatal\"}",
        "railscope_nvswitch_sxid_events_total{pci=\"0000:c3:00.0\",sxid=\"20034\",severity=\"fatal\"}",
    ];
    const CORRECTED: [&str; 2] = [
        "railscope_nvswitch_sxid_last_timestamp_seconds{pci=\"0000:c3:00.0\",sxid=\"12028\",severity=\"nonfatal\"}",
        "railscope_nvswitch_sxid_events_total{pci=\"0000:c3:00.0\",sxid=\"12028\",severity=\"nonfatal\"}",
    ];
    let others = "[gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    check(
        &logged(&[(FATAL[0], 60.0), (FATAL[1], 1.0)]),
        &[&format!("nvlink-down host/n3 gpus=4 {others}")],
    );
    check(&logged(&[(CORRECTED[0], 60.0), (CORRECTED[1], 1.0)]), &[]);
    check(
        &logged(&[(CORRECTED[0], 60.0), (CORRECTED[1], 5.0)]),
        &[&format!("nvlink-errors host/n3 gpus=4 {others}")],
    );
}

#[test]
fn an_end_of_peer_traffic_after_an_xid_of_nvlinks_is_about_them() {
    let after_xid = |xid: u16| -> Box<Fault> {
        with(move |node, _| {
            of_gpus(|gpu| {
                let (action, xid) = if (node, gpu) == (2, 1) {
                    (3, xid)
                } else {
                    (0, 0)
                };
                format!(
                    "railscope_gpu_recovery_action{{gpu=\"{gpu}\"}} {action}\n\
                     railscope_gpu_last_xid{{gpu=\"{gpu}\"}} {xid}\n"
                )
            })
        })
    };
    check(&after_xid(149), &["nvlink-down gpu/n2:1 gpus=1 []"]);
    // One that follows from it.
    let then_cleanup: Box<Fault> = Box::new(move |node, seconds, page| {
        let xid = if seconds < 100 { 149 } else { 45 };
        after_xid(xid)(node, seconds, page)
    });
    check(&then_cleanup, &["nvlink-down gpu/n2:1 gpus=1 []"]);
    check(&after_xid(79), &["gpu-error gpu/n2:1 gpus=1 []"]);
}
