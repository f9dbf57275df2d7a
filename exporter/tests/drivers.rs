//! `hw_counters` of every driver: known names under the right metric, unknown names under none.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{machine, sampler};
use railscope_model::reading::NodeReading;

/// Series of one port with these files, as `name labels value`, without infos and statuses.
fn sample(driver: Option<&str>, files: &[(&str, &str)]) -> BTreeSet<String> {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let device = temp.path().join("sys/class/infiniband/dev0");
    let write = |path: &Path, text: &str| {
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, text).expect("write");
    };
    if let Some(driver) = driver {
        fs::create_dir_all(device.join("device")).expect("mkdir");
        let target = format!("../../../../bus/pci/drivers/{driver}");
        std::os::unix::fs::symlink(target, device.join("device/driver")).expect("link");
    }
    for (file, text) in files {
        write(&device.join("ports/1").join(file), text);
    }
    let mut reading = NodeReading::default();
    sampler("rdma", &machine(temp.path()))
        .sample(&mut reading)
        .expect("a sample");
    let lines = reading.samples().iter().filter_map(|sample| {
        let name = sample.metric.name.strip_prefix("railscope_rdma_")?;
        let labels: Vec<&str> = sample.labels.values().skip(2).collect();
        let line = format!("{name} {} {}", labels.join(" "), sample.value.as_f64());
        (!name.ends_with("_info")).then_some(line)
    });
    lines.collect()
}

fn check(driver: Option<&str>, files: &[(&str, &str)], expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(sample(driver, files), expected, "{driver:?}");
}

#[test]
fn bnxt_re_counts_bytes_and_has_gauges_beside_counters() {
    check(
        Some("bnxt_en"),
        &[
            ("hw_counters/tx_bytes", "1000"),
            ("hw_counters/rx_pkts", "7"),
            ("hw_counters/to_retransmits", "3"),
            ("hw_counters/rx_cnp_pkts", "5"),
            ("hw_counters/active_qps", "12"),
            ("hw_counters/lifespan", "10"),
        ],
        &[
            "port_transmit_bytes_total  1000",
            "port_receive_packets_total  7",
            "transport_events_total to_retransmits 3",
            "retransmits_total  3",
            "cnp_total rp handled 5",
            "statistics_lifespan_seconds  0.01",
        ],
    );
}

#[test]
fn efa_says_active_whatever_its_link_does_so_nobody_repeats_it() {
    check(
        Some("efa"),
        &[
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("hw_counters/rx_bytes", "64"),
            ("hw_counters/retrans_timeout_events", "2"),
            ("hw_counters/out_of_sequence", "9"),
        ],
        &[
            "port_speed_bytes_per_second  12500000000",
            "port_width_lanes  4",
            "port_receive_bytes_total  64",
            "transport_events_total retrans_timeout_events 2",
        ],
    );
}

/// Families that mean one thing on every driver.
const NEUTRAL: [&str; 5] = [
    "retransmits_total",
    "sequence_errors_total",
    "receiver_not_ready_total",
    "retries_exceeded_total",
    "no_buffer_total",
];

#[test]
fn one_name_means_one_thing_on_every_driver() {
    // The driver's file for each family in order; empty where it counts no such thing.
    for (driver, files) in [
        (
            "mlx5_core",
            "local_ack_timeout_err packet_seq_err rnr_nak_retry_err req_transport_retries_exceeded out_of_buffer",
        ),
        (
            "bnxt_en",
            "to_retransmits seq_err_naks_rcvd rnr_naks_rcvd max_retry_exceeded rx_out_of_buffer",
        ),
        (
            "efa",
            "retrans_pkts - - unresponsive_remote_events rx_drops",
        ),
        ("ice", "RetransSegs - - - -"),
        (
            "rdma_rxe",
            "completer_retry_err rcvd_seq_err rcvd_rnr_err retry_exceeded_err -",
        ),
    ] {
        let names = files.split(' ').zip(NEUTRAL).zip(11..);
        let counted: Vec<_> = names.filter(|((file, _), _)| *file != "-").collect();
        let paths: Vec<_> = counted
            .iter()
            .map(|((file, _), value)| (format!("hw_counters/{file}"), value.to_string()))
            .collect();
        let paths: Vec<_> = paths
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let expected: BTreeSet<_> = counted
            .iter()
            .map(|((_, name), value)| format!("{name}  {value}"))
            .collect();
        let mut found = sample(Some(driver), &paths);
        found.retain(|line| NEUTRAL.iter().any(|name| line.starts_with(name)));
        assert_eq!(found, expected, "{driver}");
    }
}

#[test]
fn soft_roce_has_no_hardware_and_no_counters_directory() {
    check(
        None,
        &[
            ("state", "1: DOWN"),
            ("hw_counters/sent_pkts", "4900"),
            ("hw_counters/rcvd_seq_err", "9"),
            ("hw_counters/link_downed", "1"),
        ],
        &[
            "port_up  0",
            "port_state  1",
            "port_transmit_packets_total  4900",
            "transport_events_total rcvd_seq_err 9",
            "sequence_errors_total  9",
            "port_errors_total link_downed 1",
        ],
    );
}

#[test]
fn irdma_marks_and_notifies() {
    check(
        Some("ice"),
        &[
            ("hw_counters/cnpHandled", "4"),
            ("hw_counters/RxECNMrkd", "6"),
            ("hw_counters/Tx atomics", "1"),
        ],
        &["cnp_total rp handled 4", "ecn_marked_packets_total  6"],
    );
}

#[test]
fn the_third_generation_of_irdma_has_names_of_several_words() {
    check(
        Some("idpf"),
        &[
            ("hw_counters/RetransSegs", "1"),
            ("hw_counters/Nak Sequence Error", "2"),
            ("hw_counters/RNR received", "3"),
            ("hw_counters/RTO", "4"),
            ("hw_counters/CRC errors", "5"),
            ("hw_counters/ip4InOctets", "6"),
        ],
        &[
            "transport_events_total RetransSegs 1",
            "retransmits_total  1",
            "transport_events_total Nak Sequence Error 2",
            "sequence_errors_total  2",
            "transport_events_total RNR received 3",
            "receiver_not_ready_total  3",
            "transport_events_total RTO 4",
            "icrc_errors_total  5",
            "operation_bytes_total ip4InOctets 6",
        ],
    );
}

#[test]
fn mana_has_rates_and_levels_beside_counters() {
    check(
        Some("mana"),
        &[
            ("hw_counters/tx_bytes", "1000"),
            ("hw_counters/requester_timeout", "3"),
            ("hw_counters/requester_retries_exceeded", "1"),
            ("hw_counters/received_cnps", "9"),
            ("hw_counters/current_rate", "100"),
            ("hw_counters/num_qps_congested", "4"),
            ("../../hw_counters/sent_cnps", "7"),
        ],
        &[
            "port_transmit_bytes_total  1000",
            "transport_events_total requester_timeout 3",
            "retransmits_total  3",
            "transport_events_total requester_retries_exceeded 1",
            "retries_exceeded_total  1",
            "cnp_total rp handled 9",
            "device_events_total  7",
        ],
    );
}

#[test]
fn broadcoms_own_driver_speaks_like_mlx5_and_the_kernels_does_not() {
    check(
        Some("bnxt_en"),
        &[
            ("hw_counters/out_of_buffer", "1"),
            ("hw_counters/rp_cnp_handled", "2"),
            ("hw_counters/np_cnp_pkts", "3"),
            ("hw_counters/res_cmp_err", "4"),
            ("hw_counters/vport_out_of_buffer", "5"),
        ],
        &[
            "transport_events_total out_of_buffer 1",
            "no_buffer_total  1",
            "cnp_total rp handled 2",
            "cnp_total np sent 3",
            "transport_events_total res_cmp_err 4",
        ],
    );
}

#[test]
fn in_switchdev_mode_a_port_counts_for_the_function_behind_it_and_the_device_for_itself() {
    check(
        Some("mlx5_core"),
        &[
            ("hw_counters/vport_out_of_sequence", "1"),
            ("hw_counters/vport_local_ack_timeout_err", "2"),
            ("../../hw_counters/out_of_sequence", "3"),
        ],
        &[
            "vport_events_total out_of_sequence 1",
            "vport_events_total local_ack_timeout_err 2",
            "device_events_total  3",
        ],
    );
}

#[test]
fn representors_are_named_with_their_role_only_in_switchdev_mode() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let device = temp.path().join("sys/class/infiniband/mlx5_0");
    fs::create_dir_all(device.join("ports/1")).expect("mkdir");
    for (netdev, files) in [
        (
            "eth0",
            vec![("phys_switch_id", "b0a1"), ("phys_port_name", "p0")],
        ),
        (
            "eth0_3",
            vec![("phys_switch_id", "b0a1"), ("phys_port_name", "pf0vf3")],
        ),
        ("eth1", vec![("phys_port_name", "p1")]),
    ] {
        let dir = device.join("device/net").join(netdev);
        fs::create_dir_all(&dir).expect("mkdir");
        for (file, text) in files {
            fs::write(dir.join(file), text).expect("write");
        }
    }
    let mut reading = NodeReading::default();
    sampler("rdma", &machine(temp.path()))
        .sample(&mut reading)
        .expect("a sample");
    let samples = reading.samples().iter();
    let ports = samples.filter(|sample| sample.metric.name == "railscope_rdma_switchdev_port_info");
    let ports: Vec<_> = ports
        .map(|sample| sample.labels.values().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        ports,
        ["mlx5_0 eth0 b0a1 p0 uplink", "mlx5_0 eth0_3 b0a1 pf0vf3 vf"]
    );
}

#[test]
fn two_files_that_count_the_same_give_one_series() {
    check(
        Some("bnxt_re"),
        &[
            ("counters/port_xmit_data", "10"),
            ("hw_counters/tx_bytes", "41"),
        ],
        &["port_transmit_bytes_total  40"],
    );
}

#[test]
fn a_counter_at_the_end_of_its_width_is_said_to_have_stopped() {
    check(
        Some("mlx5_core"),
        &[
            ("counters/link_downed", "255"),
            ("counters/symbol_error", "65536"),
            ("counters/port_xmit_wait", "4294967295"),
            ("counters/port_rcv_data", "4294967295"),
        ],
        &[
            "port_errors_total link_downed 255",
            "port_error_saturated link_downed 1",
            // Beyond 16 bits: this kernel reads the 64-bit set, where it continues.
            "port_errors_total symbol_error 65536",
            "port_transmit_wait_ticks_total  4294967295",
            "port_error_saturated port_xmit_wait 1",
            "port_receive_bytes_total  17179869180",
            "port_error_saturated port_rcv_data 1",
        ],
    );
}
