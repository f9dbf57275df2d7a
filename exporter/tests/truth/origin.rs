//! Which file each exported number is from, and the value of its text: written a second time, by other code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use railscope_model::reading::Sample;

/// A file below `sys`, and what its text comes to.
pub(super) type Origin = (String, Box<dyn Fn(&str) -> f64>);

/// Where a sample is from; none for what is not read from one file.
pub(super) fn origin(sample: &Sample, sys: &Path) -> Option<Origin> {
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
    let functions = |file: &str| format!("bus/pci/devices/{}/{file}", labels[1]);
    match name {
        "nic_virtual_functions" => return Some((functions("sriov_numvfs"), Box::new(number))),
        "nic_max_virtual_functions" => {
            return Some((functions("sriov_totalvfs"), Box::new(number)));
        }
        _ => {}
    }
    if let Some(name) = name.strip_prefix("nic_") {
        return Some(nic_origin(name, labels[0], &labels[1..]));
    }
    if let Some(origin) = host_origin(name, &labels, sys) {
        return Some(origin);
    }
    match name {
        "node_cpus" => Some(("devices/system/cpu/online".into(), Box::new(listed))),
        "node_numa_nodes" => Some(("devices/system/node/online".into(), Box::new(listed))),
        // A folder that is there or not.
        "gpudirect_module_loaded" => None,
        "source_status" | "source_errors_total" => None,
        // Sums and statistics over the files of all CPUs: see hardware.rs.
        "cpu_throttles_total" | "cpu_frequency_hertz" | "cpu_max_frequency_hertz" => None,
        "node_boot_time_seconds" => {
            let line = |text: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix("btime "));
                number(line.expect("a line"))
            };
            Some(("../proc/stat".into(), Box::new(line)))
        }
        // Counts of items in a reply, not numbers of files.
        "workload_devices" => None,
        // Nothing has fallen yet, and the epoch is the boot time.
        "source_resets_total" | "source_wraps_total" | "source_epoch_seconds" => None,
        other => panic!("no rule for {other}"),
    }
}

/// Of an Ethernet NIC: in sysfs, or in what was recorded of its driver beside it.
fn nic_origin(name: &str, netdev: &str, labels: &[&str]) -> Origin {
    let sysfs = |file: &str| format!("class/net/{netdev}/{file}");
    let recorded = |file: &str| format!("../network/{netdev}/{file}");
    let plain = |file: &str| -> Origin { (sysfs(file), Box::new(number)) };
    let with = |text: &'static str, words: &[&str]| {
        let mut text = text.to_owned();
        for word in words {
            text = text.replacen('{', word, 1);
        }
        text
    };
    match name {
        "carrier" => plain("carrier"),
        "carrier_changes_total" => plain("carrier_changes"),
        "mtu_bytes" => plain("mtu"),
        "ecn_enabled" => plain(&with("ecn/roce_{/enable/{", labels)),
        "dcqcn_setting" => plain(&with("ecn/roce_{/{", labels)),
        "full_duplex" => (
            sysfs("duplex"),
            Box::new(|text| f64::from(text == "full\n")),
        ),
        "speed_bytes_per_second" => (sysfs("speed"), Box::new(|text| number(text) * 125e3)),
        "pfc_enabled" => {
            let on = format!(" {}:on", labels[0]);
            (
                recorded("pfc"),
                Box::new(move |text| f64::from(text.contains(&on))),
            )
        }
        "global_pause_enabled" => {
            let on = if labels[0] == "receive" {
                "RX:\t\ton"
            } else {
                "TX:\t\ton"
            };
            (
                recorded("pause"),
                Box::new(move |text| f64::from(text.contains(on))),
            )
        }
        "fec_blocks_total" => {
            let row = format!("{}_blocks", labels[0]);
            (recorded("fec"), Box::new(move |text| row_of(text, &row)))
        }
        "pause_seconds_total" => {
            let direction = short(labels[0]);
            let sum = move |text: &str| {
                let rows = text
                    .lines()
                    .map(str::trim)
                    .filter(|row| row.starts_with(direction));
                let rows = rows.filter_map(|row| row.split_once("_pause_duration: "));
                rows.map(|(_, value)| number(value)).sum::<f64>() / 1e6
            };
            (recorded("stats"), Box::new(sum))
        }
        other => {
            let (row, scale) = counter_of(other, labels);
            (
                recorded("stats"),
                Box::new(move |text| row_of(text, &row) * scale),
            )
        }
    }
}

fn short(direction: &str) -> &'static str {
    if direction == "receive" { "rx" } else { "tx" }
}

fn row_of(text: &str, name: &str) -> f64 {
    let mut rows = text.lines().filter_map(|row| row.trim().split_once(": "));
    number(rows.find(|(found, _)| *found == name).expect(name).1)
}

/// mlx5's name of a counter, and what one of it is.
fn counter_of(name: &str, labels: &[&str]) -> (String, f64) {
    let label = |place: usize| labels[place];
    let of_priority = |word: &str| format!("{}_prio{}_{word}", short(label(1)), label(0));
    let operation = || if label(0) == "read" { "rd" } else { "wr" };
    let row = match name {
        "pfc_pause_seconds_total" => return (of_priority("pause_duration"), 1e-6),
        "global_pause_seconds_total" => {
            return (format!("{}_global_pause_duration", short(label(0))), 1e-6);
        }
        "pcie_stalled_ratio" => return (format!("outbound_pci_stalled_{}", operation()), 1e-2),
        "pcie_stalled_seconds_total" => format!("outbound_pci_stalled_{}_events", operation()),
        "pfc_frames_total" => of_priority("pause"),
        "pfc_transitions_total" => of_priority("pause_transition"),
        "priority_bytes_total" => of_priority("bytes"),
        "priority_packets_total" => of_priority("packets"),
        "global_pause_frames_total" => format!("{}_global_pause", short(label(0))),
        "global_pause_transitions_total" => format!("{}_global_pause_transition", short(label(0))),
        "pause_storm_events_total" => format!("tx_pause_storm_{}_events", label(0)),
        "pcie_signal_integrity_errors_total" => format!("{}_pci_signal_integrity", short(label(0))),
        "pcie_buffer_overflow_packets_total" => "outbound_pci_buffer_overflow".to_owned(),
        "ecn_marked_packets_total" => format!("rx_prio{}_marked", label(0)),
        "phy_lane_errors_total" => format!("rx_err_lane_{}_phy", label(0)),
        "phy_symbol_errors_total" => "rx_pcs_symbol_err_phy".to_owned(),
        "phy_corrected_bits_total" => "rx_corrected_bits_phy".to_owned(),
        "phy_bits_total" => "rx_bits_phy".to_owned(),
        "phy_crc_errors_total" => "rx_crc_errors_phy".to_owned(),
        "phy_link_down_events_total" => "link_down_events_phy".to_owned(),
        "out_of_buffer_total" => "rx_out_of_buffer".to_owned(),
        "receive_buffer_threshold_events_total" => "rx_buffer_passed_thres_phy".to_owned(),
        _ => return (by_reason(name, labels), 1.0),
    };
    (row, 1.0)
}

fn by_reason(name: &str, labels: &[&str]) -> String {
    let priority = format!("rx_prio{}", labels[0]);
    match (name, *labels.last().expect("a reason")) {
        ("discards_total", "buffer") => "rx_discards_phy".to_owned(),
        ("discards_total", "port") => "tx_discards_phy".to_owned(),
        ("discards_total", "no_flow") => "rx_steer_missed_packets".to_owned(),
        ("discards_total", "interface_down") => "rx_if_down_packets".to_owned(),
        ("priority_receive_discards_total", "buffer") => format!("{priority}_discards"),
        ("priority_receive_discards_total", "host_buffer") => format!("{priority}_buf_discard"),
        ("priority_receive_discards_total", "congestion") => format!("{priority}_cong_discard"),
        ("module_events_total", "bus_stuck") => "module_bus_stuck".to_owned(),
        ("module_events_total", "high_temperature") => "module_high_temp".to_owned(),
        ("module_events_total", "shorted") => "module_bad_shorted".to_owned(),
        ("module_events_total", "unplugged") => "module_unplug".to_owned(),
        other => panic!("no rule for {other:?}"),
    }
}

fn number(text: &str) -> f64 {
    // Linux 2.6 ends a list with a zero byte.
    let number = text.trim_matches(['\0', '\n', ' ', '\t']).parse();
    number.unwrap_or_else(|_| panic!("no number: {text:?}"))
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

/// Values of the host's own sources.
fn host_origin(name: &str, labels: &[&str], sys: &Path) -> Option<Origin> {
    let node = labels.first().copied().unwrap_or_default();
    let cpus = cpus_of(sys, node);
    Some(match name {
        "cpu_iowait_seconds_total" => cpu_sum(&cpus, "stat", 5, 10, 0.01),
        "cpu_steal_seconds_total" => cpu_sum(&cpus, "stat", 8, 10, 0.01),
        "cpu_run_seconds_total" => cpu_sum(&cpus, "schedstat", 7, 10, 1e-9),
        "cpu_wait_seconds_total" => cpu_sum(&cpus, "schedstat", 8, 10, 1e-9),
        "softnet_dropped_packets_total" => cpu_sum(&cpus, "net/softnet_stat", 1, 16, 1.0),
        "softnet_time_squeezes_total" => cpu_sum(&cpus, "net/softnet_stat", 2, 16, 1.0),
        "host_pressure_seconds_total" => {
            let kind = labels[1].to_owned();
            let total = move |text: &str| {
                let line = text.lines().find(|line| line.starts_with(&kind));
                let total = line.and_then(|line| line.rsplit('=').next());
                number(total.expect("a total")) / 1e6
            };
            (format!("../proc/pressure/{}", labels[0]), Box::new(total))
        }
        "nvme_path_up" => (
            format!("class/nvme/{}/state", labels[0]),
            Box::new(|text| f64::from(text.trim() == "live")),
        ),
        "gpudirect_dma_buf_possible" => (
            "../proc/driver/nvidia/version".into(),
            Box::new(|text| f64::from(text.contains("Open Kernel Module"))),
        ),
        "gds_statistics_enabled" => (
            "../proc/driver/nvidia-fs/stats".into(),
            Box::new(|text| f64::from(text.contains("IO stats: Enabled,"))),
        ),
        _ => return gds_origin(name, labels),
    })
}

/// CPUs of a NUMA node.
fn cpus_of(sys: &Path, node: &str) -> BTreeSet<usize> {
    let list = sys.join(format!("devices/system/node/node{node}/cpulist"));
    let text = fs::read_to_string(list).unwrap_or_default();
    let ranges = text.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            number(first) as usize..=number(last) as usize
        })
        .collect()
}

/// The sum of one column over some CPUs, in a table whose lines are those of CPUs 0, 1, ...
fn cpu_sum(cpus: &BTreeSet<usize>, file: &str, place: usize, radix: u32, unit: f64) -> Origin {
    let cpus = cpus.clone();
    let value = move |text: &str| {
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix("cpu").unwrap_or_default();
            radix == 16 || rest.starts_with(|char: char| char.is_ascii_digit())
        });
        let of_node = lines.enumerate().filter(|(cpu, _)| cpus.contains(cpu));
        let counts = of_node.map(|(_, line)| {
            let word = line.split_whitespace().nth(place).expect("a column");
            u64::from_str_radix(word, radix).expect("a count")
        });
        counts.sum::<u64>() as f64 * unit
    };
    (format!("../proc/{file}"), Box::new(value))
}

/// One field of a line of the statistics of nvidia-fs.
fn gds_origin(name: &str, labels: &[&str]) -> Option<Origin> {
    let label = labels.first().copied().unwrap_or_default();
    let of_direction = if label.starts_with("read") {
        "Reads\t"
    } else {
        "Writes\t"
    };
    let (line, field, unit) = match (name, label) {
        ("gds_bytes_total", _) => (of_direction, format!("{label}MiB"), 1_048_576.0),
        ("gds_operations_total", _) => (of_direction, "n".to_owned(), 1.0),
        ("gds_errors_total", "batch") => ("Batches", "err".to_owned(), 1.0),
        ("gds_errors_total", "mmap") => ("Mmap", "err".to_owned(), 1.0),
        ("gds_errors_total", "bar1_map") => ("Bar1-map", "err".to_owned(), 1.0),
        ("gds_errors_total", "read" | "write") => (of_direction, "err".to_owned(), 1.0),
        ("gds_errors_total", "read_io_state" | "write_io_state") => {
            (of_direction, "io_state_err".to_owned(), 1.0)
        }
        ("gds_errors_total", "page_cache_fail" | "page_cache_eio") => {
            let field = label.replace("page_cache_", "pg-cache-");
            ("Writes\t", field, 1.0)
        }
        ("gds_errors_total", other) => ("Error", other.replace('_', "-"), 1.0),
        _ => return None,
    };
    let field = format!("{field}=");
    let value = move |text: &str| {
        let found = text.lines().find(|found| found.starts_with(line));
        let mut words = found.expect("a line").split_whitespace();
        let word = words.find_map(|word| word.strip_prefix(&field));
        number(word.expect("a field")) * unit
    };
    Some(("../proc/driver/nvidia-fs/stats".into(), Box::new(value)))
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
            // The kernel's own total, which the sampler omits.
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
