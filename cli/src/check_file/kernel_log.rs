//! A kernel log as a recording of a node: its faults with what to do, and what else it reports.

use std::path::Path;

use railscope_collector::detect::rules::gpu_xid::xid_advice;
use railscope_collector::fabric::plans::inputs::{Reader, hint, nearest};
use railscope_exporter::samplers::kernel_log::{Occurrence, Recording, What};

use crate::advise::time::rfc3339;

/// Events that alone are no fault: corrected errors, and links that came up.
const NO_FAULTS: [&str; 4] = [
    "pcie_corrected",
    "machine_check_corrected",
    "memory_corrected",
    "link_up",
];

/// What to do about an event of a kernel log.
fn advice(event: &str) -> &'static str {
    match event {
        "pcie_nonfatal" | "pcie_fatal" | "pcie_link_down" => {
            "reseat the device or its riser, and replace it if it repeats"
        }
        "machine_check_uncorrected" | "memory_uncorrected" => {
            "drain the node and replace the memory module or CPU that the message names"
        }
        "link_down" | "cable_error" | "cable_unplugged" => {
            "clean, reseat or replace the cable, and check the switch port"
        }
        "nic_error" => "reset the NIC, update its firmware, and replace it if it repeats",
        "overheat" => "check fans, filters and the temperature of the air",
        "gpu_init_failed" | "gpu_lost" => {
            "drain the node and power-cycle it; replace the GPU if it repeats"
        }
        "storage_error" => "check the drive's health (SMART) and replace it",
        "nfs_timeout" => "check the server and the network to it",
        "out_of_memory" | "hung_task" => "look for the job or mount that caused it",
        _ => "read the message in the log",
    }
}

/// Error of a file that resembles a kernel log but is not one; `None` for other files.
pub(super) fn refusal(file: &str, text: &str) -> Option<String> {
    nearest(text).filter(|input| input.reader == Reader::Check)?;
    Some(format!("{file}: {}", hint(text, &[Reader::Check])))
}

/// Summary and findings of a kernel log, and the number of lines that are no records; `None` if the file is none.
pub(super) fn read(path: &Path, text: &str) -> Option<(String, Vec<String>, u64)> {
    let resembles = nearest(text).is_some_and(|input| input.reader == Reader::Check);
    let log = Recording::of(path).filter(|log| log.is_readable)?;
    (resembles || log.unparsed == 0).then_some(())?;
    let mut findings = Vec::new();
    let mut others = Vec::new();
    for one in &log.occurrences {
        match finding(one) {
            Some(finding) => findings.push(finding),
            None => others.push(happened(one)),
        }
    }
    let also = if others.is_empty() {
        String::new()
    } else {
        format!("; no action needed: {}", others.join(", "))
    };
    let many = match findings.len() {
        0 => "no fault".to_owned(),
        1 => "1 fault".to_owned(),
        many => format!("{many} faults"),
    };
    Some((format!("kernel log: {many}{also}"), findings, log.unparsed))
}

/// What happened, where and how often.
fn happened(one: &Occurrence) -> String {
    let what = match &one.what {
        What::Xid(code) => format!("Xid {code}"),
        What::Sxid(code, severity) => format!("{severity} SXid {code}"),
        What::Event(event) => event.clone(),
    };
    let at = match one.device.as_str() {
        "" => String::new(),
        device => format!(" at {device}"),
    };
    let times = match one.count {
        1 => String::new(),
        count => format!(" {count} times"),
    };
    // Of times since boot the log does not report the date.
    let last = match one.last {
        None => String::new(),
        Some(last) if one.count == 1 => format!(" on {}", rfc3339(last)),
        Some(last) => format!(", last on {}", rfc3339(last)),
    };
    format!("{what}{at}{times}{last}")
}

/// A fault with its action; `None` for errors of applications, corrected errors and links that came up.
fn finding(one: &Occurrence) -> Option<String> {
    let happened = happened(one);
    match &one.what {
        What::Xid(code) => {
            let (meaning, action) = xid_advice(code.parse().ok()?)?;
            Some(format!("{happened}, {meaning}: {action}"))
        }
        What::Sxid(_, severity) => (severity == "fatal").then(|| {
            format!("{happened}: drain the node, reset its GPUs and NVSwitches, and replace the board if it repeats")
        }),
        What::Event(event) if NO_FAULTS.contains(&event.as_str()) => None,
        What::Event(event) => Some(format!("{happened}: {}", advice(event))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(String, Vec<String>, u64)> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("n1.log");
        std::fs::write(&path, text).expect("a file");
        read(&path, text)
    }

    #[test]
    fn a_lost_gpu_and_a_lost_link_are_faults_and_errors_of_applications_are_not() {
        let log = "[    1.0] NVRM: Xid (PCI:0000:09:00): 79, pid=0, GPU has fallen off the bus.\n\
                   [    2.0] NVRM: Xid (PCI:0000:0a:00): 13, Graphics Exception\n\
                   [    3.0] mlx5_core 0000:3b:00.0 ens1: Link down\n\
                   [    4.0] mlx5_core 0000:3b:00.0 ens1: Link up\n\
                   [    5.0] mlx5_core 0000:3b:00.0 ens1: Link down\n";
        let (answer, findings, unparsed) = of(log).expect("a kernel log");
        assert_eq!(
            answer,
            "kernel log: 2 faults; no action needed: Xid 13 at 0000:0a:00.0, link_up at ens1"
        );
        assert_eq!(
            findings,
            [
                "Xid 79 at 0000:09:00.0, the GPU fell off the bus: restart the node",
                "link_down at ens1 2 times: clean, reseat or replace the cable, and check the switch port",
            ]
        );
        assert_eq!(unparsed, 0);
    }

    #[test]
    fn the_last_time_is_given_if_the_log_has_dates() {
        let log = "2025-02-23T16:24:18,123456+00:00 NVRM: Xid (PCI:0000:09:00): 79, gone\n";
        let (_, findings, _) = of(log).expect("a kernel log");
        assert_eq!(
            findings,
            [
                "Xid 79 at 0000:09:00.0 on 2025-02-23T16:24:18Z, the GPU fell off the bus: restart the node"
            ]
        );
    }

    #[test]
    fn a_quiet_log_is_one_and_another_text_is_none() {
        let (answer, findings, _) = of("[    0.000000] Linux version 6.8.0\n").expect("a log");
        assert_eq!(
            (answer.as_str(), findings.len()),
            ("kernel log: no fault", 0)
        );
        let summary = "node-1 | Healthy\nnode-2 | NVRM: Xid\n";
        assert_eq!(of(summary), None);
        let refused = refusal("f", summary).expect("similar");
        assert!(refused.contains("but lacks their data"), "{refused}");
        assert_eq!(of("hello\n"), None);
    }
}
