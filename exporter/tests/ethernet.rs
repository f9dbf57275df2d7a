//! Drivers, configurations and mishaps of Ethernet NICs: files in, series out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{captures, copy, machine, our_root, ours, sampler};
use railscope_exporter::NetworkAccess;
use railscope_exporter::sampler::{Machine, Presence, Sampler, sample_once};
use railscope_exporter::sources::ethtool::{Nic, NicSource, Recorded};
use railscope_exporter::sources::sysfs::Miss;
use railscope_model::metric::Profile;
use railscope_model::reading::{NodeReading, Status};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, text).expect("write");
}

/// A machine with one NIC, `eth0`, of a driver, whose counters were recorded.
fn nic(root: &Path, driver: Option<&str>, stats: &str) {
    write(root, "sys/class/net/eth0/type", "1\n");
    write(root, "sys/class/net/eth0/carrier", "1\n");
    write(root, "sys/class/net/eth0/carrier_changes", "3\n");
    fs::create_dir_all(root.join("sys/class/net/eth0/device/infiniband/dev0")).expect("mkdir");
    if let Some(driver) = driver {
        let link = root.join("sys/class/net/eth0/device/driver");
        let target = format!("../../../../bus/pci/drivers/{driver}");
        std::os::unix::fs::symlink(target, link).expect("link");
    }
    record(root, stats);
}

/// Records counters, `name value` each.
fn record(root: &Path, stats: &str) {
    let rows = stats.split_terminator('\n').map(|row| {
        let (name, value) = row.trim().rsplit_once(' ').expect("a name and a value");
        format!("     {name}: {value}\n")
    });
    let text = format!("NIC statistics:\n{}", rows.collect::<String>());
    write(root, "network/eth0/stats", &text);
}

fn sample(sampler: &mut dyn Sampler) -> NodeReading {
    let mut reading = NodeReading::default();
    let presence = sampler.sample(&mut reading).expect("a sample");
    assert_eq!(presence, Presence::Present);
    reading
}

/// Series as `name labels value`, without the interface and what every one has.
fn lines(reading: &NodeReading) -> BTreeSet<String> {
    let samples = reading.samples().iter().filter_map(|sample| {
        let name = sample.metric.name.strip_prefix("railscope_nic_")?;
        let labels: Vec<&str> = sample.labels.values().skip(1).collect();
        let common = ["info", "carrier", "carrier_changes_total"];
        let line = format!("{name} {} {}", labels.join(" "), sample.value.as_f64());
        // A second sample brings the first rates.
        (!common.contains(&name) && !name.starts_with("peak_")).then_some(line)
    });
    samples.collect()
}

fn check(driver: Option<&str>, stats: &str, expected: &[&str]) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    nic(temp.path(), driver, stats);
    let reading = sample(sampler("ethernet", &machine(temp.path())).as_mut());
    let expected: BTreeSet<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(lines(&reading), expected, "{driver:?}");
}

#[test]
fn mlx5_counts_microseconds_percents_and_seconds_called_events() {
    check(
        Some("mlx5_core"),
        "rx_prio3_pause_duration 2500000
         tx_prio3_pause_duration 1
         rx_prio4_pause_duration 500000
         tx_global_pause_duration 1000000
         outbound_pci_stalled_rd 7
         outbound_pci_stalled_wr_events 12
         rx_err_lane_2_phy 9
         rx_prio3_marked 5
         rx3_cache_full 8
         rx_oversize_pkts_phy 6
         tx_errors_phy 2
         rx_prio3_pause_durations 8",
        &[
            "pause_seconds_total receive 3",
            "pause_seconds_total transmit 1.000001",
            "pfc_pause_seconds_total 3 receive 2.5",
            "pfc_pause_seconds_total 3 transmit 0.000001",
            "pfc_pause_seconds_total 4 receive 0.5",
            "global_pause_seconds_total transmit 1",
            "pcie_stalled_ratio read 0.07",
            "pcie_stalled_seconds_total write 12",
            "phy_lane_errors_total 2 9",
            "ecn_marked_packets_total 3 5",
            "phy_frame_errors_total receive oversize 6",
            "phy_frame_errors_total transmit oversize 2",
        ],
    );
}

#[test]
fn bnxt_drops_at_the_rings_of_each_direction_add_up_beside_the_port() {
    check(
        Some("bnxt_en"),
        "[0]: rx_discards 1200
         [0]: tx_discards 4
         [0]: rx_l4_csum_errors 2
         [1]: rx_discards 1300
         [1]: tx_discards 5
         [1]: rx_l4_csum_errors 1
         rx_total_ring_discards 2500
         rx_stat_discard 1",
        &[
            "discards_total receive ring 2500",
            "discards_total transmit ring 9",
            "discards_total receive checksum 3",
            "discards_total receive buffer 1",
        ],
    );
}

#[test]
fn bnxt_has_other_names_for_the_same() {
    check(
        Some("bnxt_en"),
        "[0]: rx_ucast_packets 7
         rx_pfc_ena_frames_pri3 11
         pfc_pri3_rx_duration_us 4000000
         pfc_pri3_tx_transitions 2
         rx_stat_discard 1
         rx_fec_corrected_blocks 6
         link_down_events 3
         rx_prio3_pause 99",
        &[
            "pfc_frames_total 3 receive 11",
            "pfc_pause_seconds_total 3 receive 4",
            "pause_seconds_total receive 4",
            "pfc_transitions_total 3 transmit 2",
            "discards_total receive buffer 1",
            "fec_blocks_total corrected 6",
            "phy_link_down_events_total  3",
        ],
    );
}

#[test]
fn ice_counts_pauses_and_their_ends_which_are_both_frames() {
    check(
        Some("ice"),
        "rx_priority_3_xoff.nic 10
         rx_priority_3_xon.nic 4
         link_xoff_tx.nic 1
         rx_dropped.nic 2",
        &[
            "pfc_frames_total 3 receive 14",
            "global_pause_frames_total transmit 1",
            "discards_total receive buffer 2",
        ],
    );
}

#[test]
fn ionic_counts_the_time_in_pause_by_priority() {
    check(
        Some("ionic"),
        "frames_rx_pripause 40
         tx_pripause_3_1us_count 5000000
         frames_rx_pause 2
         frames_rx_bad_fcs 7
         frames_rx_pri_3 90",
        &[
            "pfc_frames_total  receive 40",
            "pfc_pause_seconds_total 3 transmit 5",
            "pause_seconds_total transmit 5",
            "global_pause_frames_total receive 2",
            "phy_crc_errors_total  7",
            "priority_packets_total 3 receive 90",
        ],
    );
}

#[test]
fn of_a_driver_without_a_table_nothing_is_guessed() {
    check(Some("e1000e"), "rx_discards_phy 1\nrx_bits 2\n", &[]);
    check(
        None,
        "rx_discards_phy 1\n",
        &["discards_total receive buffer 1"],
    );
}

#[test]
fn of_two_counters_of_one_name_the_first_stands() {
    check(
        Some("mlx5_core"),
        "rx_discards_phy 1\nrx_discards_phy 2\n",
        &["discards_total receive buffer 1"],
    );
}

#[test]
fn counters_that_come_and_go_are_named_anew() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    nic(
        temp.path(),
        Some("mlx5_core"),
        "rx_prio3_pause 5\nrx_discards_phy 1\n",
    );
    let mut ethernet = sampler("ethernet", &machine(temp.path()));
    let set = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    let before: BTreeSet<String> = set(&[
        "pfc_frames_total 3 receive 5",
        "discards_total receive buffer 1",
    ]);
    assert_eq!(lines(&sample(ethernet.as_mut())), before);
    // PFC is switched off: the driver drops its counters, and the others move up.
    record(temp.path(), "rx_discards_phy 2\n");
    let after: BTreeSet<String> = set(&["discards_total receive buffer 2"]);
    assert_eq!(lines(&sample(ethernet.as_mut())), after);
    // And elsewhere on, with the link having flapped in between.
    record(temp.path(), "rx_prio4_pause 1\n");
    write(temp.path(), "sys/class/net/eth0/carrier_changes", "5\n");
    let other: BTreeSet<String> = set(&["pfc_frames_total 4 receive 1"]);
    assert_eq!(lines(&sample(ethernet.as_mut())), other);
}

#[test]
fn a_recording_that_makes_no_sense_costs_its_values_and_is_said() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    nic(temp.path(), Some("mlx5_core"), "rx_discards_phy 1\n");
    write(temp.path(), "network/eth0/stats", "ERROR: 1sys\n");
    write(temp.path(), "network/eth0/pfc", "prio-pfc 0:maybe\n");
    let reading = sample(sampler("ethernet", &machine(temp.path())).as_mut());
    assert_eq!(lines(&reading), BTreeSet::new());
    let statuses = reading.samples().iter();
    let statuses = statuses.filter(|sample| sample.metric.name == "railscope_source_status");
    let said: Vec<String> = statuses
        .map(|sample| sample.labels.values().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(said, ["ethernet eth0 unparsed"]);
}

#[test]
fn pfc_frames_come_from_data_center_bridging_where_the_driver_counts_none() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    nic(temp.path(), Some("other"), "");
    let row = |on: &str, off: &str| {
        let words = (0..8).map(|place| format!("{place}:{}", if place == 3 { on } else { off }));
        words.collect::<Vec<_>>().join(" ")
    };
    let text = format!(
        "prio-pfc {}\nrequests {}\nindications {}\n",
        row("on", "off"),
        row("17", "0"),
        row("23", "0")
    );
    write(temp.path(), "network/eth0/pfc", &text);
    let text = format!(
        "willing off ets-cap 8 cbs off\ntc-bw {}\ntc-tsa {}\nprio-tc {}\n",
        row("60", "0"),
        row("ets", "strict"),
        row("3", "0")
    );
    write(temp.path(), "network/eth0/ets", &text);
    let found = lines(&sample(sampler("ethernet", &machine(temp.path())).as_mut()));
    let frames: Vec<_> = found
        .iter()
        .filter(|line| line.starts_with("pfc_frames"))
        .collect();
    assert_eq!(
        frames,
        [
            "pfc_frames_total 3 receive 23",
            "pfc_frames_total 3 transmit 17"
        ]
    );
    assert!(found.contains("pfc_enabled 3 1") && found.contains("pfc_enabled 4 0"));
    assert!(found.contains("priority_traffic_class 3 3"));
    assert!(found.contains("priority_traffic_class 4 0"));
    let shares: Vec<_> = found
        .iter()
        .filter(|line| line.contains("bandwidth"))
        .collect();
    assert_eq!(shares, ["traffic_class_bandwidth_ratio 3 0.6"]);
}

#[test]
fn an_interface_that_vanishes_leaves_no_series() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    copy(&our_root("hgx-h200-roce"), temp.path());
    let mut ethernet = sampler("ethernet", &machine(temp.path()));
    let of = |reading: &NodeReading, name: &str| {
        let samples = reading.samples().iter();
        let samples = samples.filter(|sample| !sample.metric.name.contains("_peak_"));
        samples
            .filter(|sample| sample.labels.values().any(|value| value == name))
            .count()
    };
    let first = sample(ethernet.as_mut());
    assert!(of(&first, "enp24s0np0") > 50);
    let link = temp.path().join("sys/class/net/enp24s0np0");
    let target = fs::canonicalize(&link).expect("a link");
    fs::remove_dir_all(target).expect("unplug");
    fs::remove_file(link).expect("unplug");
    let second = sample(ethernet.as_mut());
    assert_eq!(of(&second, "enp24s0np0"), 0);
    assert_eq!(of(&second, "enp26s0np0"), of(&first, "enp26s0np0"));
}

#[test]
fn a_tree_of_files_is_never_mixed_with_this_machines_interfaces() {
    // This machine has a loopback and most likely an eth0; the tree has its own eth0.
    let temp = tempfile::tempdir().expect("a temporary directory");
    nic(temp.path(), None, "rx_discards_phy 1\n");
    write(temp.path(), "sys/class/net/eth0/ifindex", "2\n");
    let kernel = Machine {
        network: NetworkAccess::kernel(),
        ..machine(temp.path())
    };
    let reading = sample(sampler("ethernet", &kernel).as_mut());
    assert_eq!(lines(&reading), BTreeSet::new());
    let mut neighbors = NodeReading::default();
    let presence = sampler("lldp", &kernel)
        .sample(&mut neighbors)
        .expect("a sample");
    assert_eq!(presence, Presence::Absent(Status::Absent));
}

#[test]
fn a_roce_nic_costs_the_default_profile_six_series_and_other_nics_none() {
    let reading = sample_once(&ours("hgx-h200-roce"));
    let shown = |name: &str| {
        let samples = reading.samples().iter().filter(|sample| {
            let of_us = ["railscope_nic_", "railscope_lldp_"];
            sample.profile == Profile::Default
                && of_us
                    .iter()
                    .any(|prefix| sample.metric.name.starts_with(prefix))
                && sample.labels.values().next() == Some(name)
        });
        samples.count()
    };
    assert_eq!(shown("enp24s0np0"), 6);
    assert_eq!(shown("eno1"), 0);
    let all = reading.samples().iter();
    let all = all
        .filter(|sample| sample.profile == Profile::Default)
        .count();
    println!(
        "hgx-h200-roce: {all} series by default, {} in full",
        reading.samples().len()
    );
}

#[test]
fn recorded_counters_of_a_laptop_are_read_with_their_odd_names() {
    let test = "recorded_counters_of_a_laptop_are_read_with_their_odd_names";
    let Some(recorded) = captures(test, "ethtool/node_exporter") else {
        return;
    };
    let temp = tempfile::tempdir().expect("a temporary directory");
    for netdev in ["eth0", "bond0"] {
        let text = fs::read_to_string(recorded.join(netdev).join("statistics.txt"));
        write(
            temp.path(),
            &format!("{netdev}/stats"),
            &text.expect("a recording"),
        );
    }
    let mut source = Recorded::new(temp.path());
    let nic = |name: &str| Nic {
        name: name.to_owned(),
        index: None,
    };
    let names = source.names(&nic("eth0")).expect("names");
    let mut values = Vec::new();
    source.values(&nic("eth0"), &mut values).expect("values");
    assert_eq!((names.len(), values.len()), (16, 16));
    let value = |name: &str| {
        values[names
            .iter()
            .position(|known| known == name)
            .expect("a name")]
    };
    assert_eq!(value("port.rx_dropped"), 12_028);
    assert_eq!(
        (value("duplicate metric"), value("duplicate_metric")),
        (1, 2)
    );
    assert_eq!(source.names(&nic("bond0")), Err(Miss::Unparsed));
}
