//! Every number on a page is the number of one file: read here a second time, by other code.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::{captures, copy, machine, our_root};
use railscope_exporter::sampler::sample_once;
use railscope_model::metric::Kind;
use railscope_model::reading::Sample;

/// A file below `sys`, and what its text comes to.
type Origin = (String, Box<dyn Fn(&str) -> f64>);

/// Where a sample is from; none for what is not read from one file.
fn origin(sample: &Sample) -> Option<Origin> {
    let labels: Vec<&str> = sample.labels.values().collect();
    let name = sample.metric.name.strip_prefix("railscope_")?;
    if let Some(name) = name.strip_prefix("rdma_") {
        if name == "device_events_total" {
            let file = format!("class/infiniband/{}/hw_counters/{}", labels[0], labels[1]);
            return Some((file, Box::new(number)));
        }
        let (file, value) = port_origin(name, &labels[2..], &labels[0][..4]);
        let port = format!("class/infiniband/{}/ports/{}", labels[0], labels[1]);
        return Some((format!("{port}/{file}"), value));
    }
    if let Some(name) = name.strip_prefix("pcie_") {
        let (file, value) = function_origin(name, &labels[1..]);
        return Some((format!("bus/pci/devices/{}/{file}", labels[0]), value));
    }
    match name {
        "node_cpus" => Some(("devices/system/cpu/online".into(), Box::new(listed))),
        "node_numa_nodes" => Some(("devices/system/node/online".into(), Box::new(listed))),
        "source_status" | "source_errors_total" | "node_boot_time_seconds" => None,
        "nic_virtual_functions" => {
            let file = format!("bus/pci/devices/{}/sriov_numvfs", labels[1]);
            Some((file, Box::new(number)))
        }
        "nic_max_virtual_functions" => {
            let file = format!("bus/pci/devices/{}/sriov_totalvfs", labels[1]);
            Some((file, Box::new(number)))
        }
        // Counts of what an answer holds, not numbers of files.
        "workload_devices" => None,
        // Nothing has fallen yet, and the epoch is the boot time.
        "source_resets_total" | "source_wraps_total" | "source_epoch_seconds" => None,
        other => panic!("no rule for {other}"),
    }
}

fn number(text: &str) -> f64 {
    text.trim().parse().expect("a number")
}

/// The number that a text begins with.
fn leading(text: &str) -> f64 {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.');
    number(&text[..end.unwrap_or(text.len())])
}

/// How many numbers `0-3,8` lists.
fn listed(text: &str) -> f64 {
    let sizes = text
        .trim()
        .split(',')
        .map(|range| match range.split_once('-') {
            Some((first, last)) => number(last) - number(first) + 1.0,
            None => 1.0,
        });
    sizes.sum()
}

fn port_origin(name: &str, labels: &[&str], kind: &str) -> Origin {
    let plain = |file: &str| -> Origin { (file.into(), Box::new(number)) };
    let words = |file: &str| -> Origin { (file.into(), Box::new(|text| number(text) * 4.0)) };
    match name {
        "port_up" => (
            "state".into(),
            Box::new(|text| f64::from(text.starts_with("4:"))),
        ),
        "port_state" => ("state".into(), Box::new(leading)),
        "port_physical_state" => ("phys_state".into(), Box::new(leading)),
        "port_speed_bytes_per_second" => ("rate".into(), Box::new(|text| leading(text) * 125e6)),
        "port_width_lanes" => {
            let lanes = |text: &str| leading(text.split_once('(').expect("lanes").1);
            ("rate".into(), Box::new(lanes))
        }
        // EFA, whose devices are named after its place: the driver counts bytes and packets itself.
        "port_transmit_bytes_total" if kind == "rdma" => plain("hw_counters/tx_bytes"),
        "port_receive_bytes_total" if kind == "rdma" => plain("hw_counters/rx_bytes"),
        "port_transmit_packets_total" if kind == "rdma" => plain("hw_counters/tx_pkts"),
        "port_receive_packets_total" if kind == "rdma" => plain("hw_counters/rx_pkts"),
        "retransmits_total" if kind == "rdma" => plain("hw_counters/retrans_pkts"),
        "retries_exceeded_total" if kind == "rdma" => {
            plain("hw_counters/unresponsive_remote_events")
        }
        "no_buffer_total" if kind == "rdma" => plain("hw_counters/rx_drops"),
        "retransmits_total" => plain("hw_counters/local_ack_timeout_err"),
        "sequence_errors_total" => plain("hw_counters/packet_seq_err"),
        "receiver_not_ready_total" => plain("hw_counters/rnr_nak_retry_err"),
        "retries_exceeded_total" => plain("hw_counters/req_transport_retries_exceeded"),
        "no_buffer_total" => plain("hw_counters/out_of_buffer"),
        "operation_bytes_total" => plain(&format!("hw_counters/{}", labels[0])),
        "port_transmit_bytes_total" => words("counters/port_xmit_data"),
        "port_receive_bytes_total" => words("counters/port_rcv_data"),
        "port_transmit_packets_total" => plain("counters/port_xmit_packets"),
        "port_receive_packets_total" => plain("counters/port_rcv_packets"),
        "port_transmit_wait_ticks_total" => plain("counters/port_xmit_wait"),
        "port_cast_packets_total" => {
            let direction = if labels[1] == "transmit" {
                "xmit"
            } else {
                "rcv"
            };
            plain(&format!("counters/{}_{direction}_packets", labels[0]))
        }
        "port_errors_total" => plain(&format!("counters/{}", labels[0])),
        "port_error_saturated" => {
            let ends = [15.0, 255.0, 65_535.0, 4_294_967_295.0];
            let at_end = move |text: &str| f64::from(ends.contains(&number(text)));
            (format!("counters/{}", labels[0]), Box::new(at_end))
        }
        "transport_events_total" => plain(&format!("hw_counters/{}", labels[0])),
        "cnp_total" => plain(&format!("hw_counters/{}_cnp_{}", labels[0], labels[1])),
        "ecn_marked_packets_total" => plain("hw_counters/np_ecn_marked_roce_packets"),
        "icrc_errors_total" => plain("hw_counters/rx_icrc_encapsulated"),
        "statistics_lifespan_seconds" => (
            "hw_counters/lifespan".into(),
            Box::new(|text| number(text) / 1000.0),
        ),
        other => panic!("no rule for {other}"),
    }
}

fn function_origin(name: &str, labels: &[&str]) -> Origin {
    let plain = |file: &str| -> Origin { (file.into(), Box::new(number)) };
    let giga = |file: &str| -> Origin { (file.into(), Box::new(|text| leading(text) * 1e9)) };
    match name {
        "link_width_lanes" => plain("current_link_width"),
        "link_max_width_lanes" => plain("max_link_width"),
        "link_transfers_per_second" => giga("current_link_speed"),
        "link_max_transfers_per_second" => giga("max_link_speed"),
        "errors_total" => {
            // The kernel's own total, which the sampler leaves out.
            let total = |text: &str| number(text.rsplit(' ').next().expect("a total"));
            (format!("aer_dev_{}", labels[0]), Box::new(total))
        }
        "aer_errors_total" => {
            let error = format!("{} ", labels[1]);
            let row = move |text: &str| {
                let row = text.lines().find_map(|line| line.strip_prefix(&error));
                number(row.expect("a row"))
            };
            (format!("aer_dev_{}", labels[0]), Box::new(row))
        }
        other => panic!("no rule for {other}"),
    }
}

/// Every counter file that holds a number, below `sys`.
fn counter_files(sys: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let names = |path: &str| {
        let entries = fs::read_dir(sys.join(path)).into_iter().flatten();
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.into_string().expect("a name"))
            .collect::<Vec<_>>()
    };
    for device in names("class/infiniband") {
        for port in names(&format!("class/infiniband/{device}/ports")) {
            for kind in ["counters", "hw_counters"] {
                let dir = format!("class/infiniband/{device}/ports/{port}/{kind}");
                for file in names(&dir) {
                    let path = format!("{dir}/{file}");
                    let text = fs::read_to_string(sys.join(&path)).expect("a counter");
                    if file != "vendor_private" && text.trim().parse::<u64>().is_ok() {
                        files.insert(path);
                    }
                }
            }
        }
    }
    files
}

fn check(root: &Path) {
    let sys = root.join("sys");
    let reading = sample_once(&machine(root));
    let mut unread = counter_files(&sys);
    let mut compared = 0;
    for sample in reading
        .samples()
        .iter()
        .filter(|sample| sample.metric.kind != Kind::Info)
    {
        let Some((file, value)) = origin(sample) else {
            continue;
        };
        let text = fs::read_to_string(sys.join(&file)).expect(&file);
        let expected = value(&text);
        let found = sample.value.as_f64();
        assert!(
            (found - expected).abs() <= expected.abs() * 1e-12,
            "{} {:?}: {found}, but {file} says {expected}",
            sample.metric.name,
            sample.labels
        );
        unread.remove(&file);
        compared += 1;
    }
    assert!(unread.is_empty(), "left out: {unread:?}");
    assert!(compared > 20, "{compared} values compared");
}

#[test]
fn our_values_are_those_of_their_files() {
    check(&our_root("hgx-h100-ib"));
    check(&our_root("efa-p5"));
}

#[test]
fn captured_values_are_those_of_their_files() {
    let test = "captured_values_are_those_of_their_files";
    let Some(h100) = captures(test, "sysfs/gpud-h100-class-infiniband") else {
        return;
    };
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&h100, &temp.path().join("sys/class/infiniband"));
    check(temp.path());
    if let Some(mixed) = captures(test, "sysfs/procfs-fixtures") {
        check(&mixed);
    }
}
