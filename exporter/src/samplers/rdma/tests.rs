//! Devices whose counters come by netlink, from a kernel at the other end of a socket.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::sources::rdma_netlink::tests::{Ports, kernel};
use crate::sources::sysfs::tests::{link, write};

const DEVICE: &str = "sys/class/infiniband/mlx5_0";
const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

/// A tree with an mlx5 device of one port, which has these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let device = temp.path().join(DEVICE);
    link(&device, "device/driver", "/bus/pci/drivers/mlx5_core");
    write(&temp.path().join(PORT), files);
    temp
}

fn rdma(root: &Path) -> Rdma {
    Rdma::new(&Machine::below(root))
}

/// Samples as `name labels value`, without the labels that all share.
fn sample(rdma: &mut Rdma) -> BTreeSet<String> {
    let mut reading = NodeReading::default();
    assert_eq!(
        rdma.sample(&mut reading).expect("a sample"),
        Presence::Present
    );
    assert_eq!(reading.normalize(), 0, "a number came twice");
    let lines = reading.samples().iter().map(|sample| {
        let name = sample.metric.name.trim_start_matches("railscope_");
        let labels = sample
            .labels
            .values()
            .filter(|label| !["mlx5_0", "1", ""].contains(label));
        let labels: Vec<_> = labels.collect();
        format!("{name} {} {}", labels.join(" "), sample.value.as_f64())
    });
    let quiet = [
        "source_",
        "source_",
        "rdma_port_info",
        "rdma_statistics_lifespan",
    ];
    lines
        .filter(|line| !quiet.iter().any(|name| line.starts_with(name)))
        .filter(|line| !line.contains("_peak_"))
        .collect()
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

const FILES: &[(&str, &str)] = &[
    ("counters/port_xmit_data", "100"),
    ("hw_counters/packet_seq_err", "5"),
    ("hw_counters/out_of_buffer", "6"),
    ("hw_counters/lifespan", "10"),
];

#[test]
fn with_netlink_no_hw_counter_file_is_read_and_optional_counters_appear() {
    let temp = tree(FILES);
    let mut rdma = rdma(temp.path());
    let ports: Ports = vec![(
        4,
        "mlx5_0",
        vec![
            ("out_of_buffer", Some(60), None),
            ("packet_seq_err", Some(50), None),
            ("of_no_table", Some(1), None),
            ("cc_rx_ce_pkts", Some(9), Some(true)),
            ("cc_rx_cnp_pkts", None, Some(false)),
        ],
    )];
    let (nldev, serving) = kernel(ports);
    rdma.netlink = Netlink::Open(nldev);
    let expected = set(&[
        "rdma_port_transmit_bytes_total  400",
        "rdma_transport_events_total packet_seq_err 50",
        "rdma_transport_events_total out_of_buffer 60",
        "rdma_sequence_errors_total  50",
        "rdma_no_buffer_total  60",
        "rdma_optional_statistics_total cc_rx_ce_pkts 9",
        "rdma_optional_statistic_enabled cc_rx_ce_pkts 1",
        "rdma_optional_statistic_enabled cc_rx_cnp_pkts 0",
        "rdma_qp_statistics_mode_info auto 1",
        "rdma_statistics_source_info netlink 1",
    ]);
    let one = sample(&mut rdma);
    assert_eq!(one, expected);
    for _ in 0..2 {
        sample(&mut rdma);
    }
    drop(rdma);
    // Devices, optional counters and mode once; counters once a sweep.
    assert_eq!(serving.join().expect("served"), 3 + 3);
}

#[test]
fn a_port_that_netlink_refuses_or_does_not_know_is_read_from_files() {
    let expected = set(&[
        "rdma_port_transmit_bytes_total  400",
        "rdma_transport_events_total packet_seq_err 5",
        "rdma_transport_events_total out_of_buffer 6",
        "rdma_sequence_errors_total  5",
        "rdma_no_buffer_total  6",
        "rdma_statistics_source_info sysfs 1",
    ]);
    let temp = tree(FILES);
    // A device of another network namespace.
    let mut unknown = rdma(temp.path());
    let (nldev, _serving) = kernel(vec![(4, "mlx5_7", vec![])]);
    unknown.netlink = Netlink::Open(nldev);
    assert_eq!(sample(&mut unknown), expected);

    // Port 1 exists in sysfs only as port 2 in netlink: EINVAL, and then no reply.
    let temp = tree(&[]);
    write(&temp.path().join(DEVICE).join("ports/2"), FILES);
    let mut refused = rdma(temp.path());
    let (nldev, serving) = kernel(vec![(4, "mlx5_0", vec![])]);
    refused.netlink = Netlink::Open(nldev);
    for _ in 0..3 {
        let lines = sample(&mut refused);
        let plain: BTreeSet<_> = lines
            .iter()
            .map(|line| line.replace(" 2 ", " ").replacen("  ", " ", 1))
            .collect();
        let expected: BTreeSet<_> = expected
            .iter()
            .map(|line| line.replacen("  ", " ", 1))
            .collect();
        assert_eq!(plain, expected);
    }
    drop(refused);
    assert_eq!(
        serving.join().expect("served"),
        4,
        "devices, two descriptions, one refusal"
    );
}

#[test]
fn a_recorded_tree_is_not_this_kernels_so_netlink_is_not_asked() {
    let temp = tree(FILES);
    let mut rdma = rdma(temp.path());
    sample(&mut rdma);
    assert!(matches!(rdma.netlink, Netlink::Elsewhere));
}

#[test]
fn a_reset_is_counted_once_for_a_port_and_dates_the_epoch_a_wrap_is_neither() {
    let temp = tree(&[
        ("counters/symbol_error", "900"),
        ("counters/port_xmit_data", "5000"),
        ("hw_counters/rx_write_requests", "4294966000"),
    ]);
    write(temp.path(), &[("proc/stat", "btime 1781000000\n")]);
    let port = temp.path().join(PORT);
    let mut rdma = rdma(temp.path());
    let mut state = |writes: &[(&str, &str)]| {
        write(&port, writes);
        sample(&mut rdma);
        (rdma.changes.resets, rdma.changes.wraps, rdma.changes.epoch)
    };
    let boot = Some(1_781_000_000);
    assert_eq!(state(&[]), (0, 0, boot));
    assert_eq!(
        state(&[("hw_counters/rx_write_requests", "4294967000")]),
        (0, 0, boot)
    );
    assert_eq!(
        state(&[("hw_counters/rx_write_requests", "700")]),
        (0, 1, boot)
    );
    let (resets, wraps, epoch) = state(&[
        ("counters/symbol_error", "0"),
        ("counters/port_xmit_data", "0"),
    ]);
    assert_eq!((resets, wraps), (1, 1));
    assert!(epoch > boot, "{epoch:?}");
}

#[test]
fn peaks_are_rates_over_the_time_between_two_sweeps() {
    let temp = tree(&[
        ("counters/port_xmit_data", "0"),
        ("counters/port_xmit_wait", "7"),
    ]);
    let mut rdma = rdma(temp.path());
    let mut peaks = |data: &str| {
        write(
            &temp.path().join(PORT),
            &[("counters/port_xmit_data", data)],
        );
        let mut reading = NodeReading::default();
        rdma.sample(&mut reading).expect("a sample");
        let peaks = reading
            .samples()
            .iter()
            .filter(|sample| sample.metric.name.contains("_peak_"));
        let peaks = peaks.map(|sample| {
            let labels: Vec<_> = sample.labels.values().skip(2).map(str::to_owned).collect();
            (
                sample.metric.name,
                labels.concat(),
                sample.profile,
                sample.value.as_f64(),
            )
        });
        peaks.collect::<Vec<_>>()
    };
    assert_eq!(peaks("0"), [], "one sample is no rate");
    std::thread::sleep(Duration::from_millis(20));
    let first = peaks("1000000");
    let [(_, short, shown, rate), (_, long, hidden, same), waits @ ..] = &first[..] else {
        panic!("{first:?}");
    };
    use railscope_model::metric::Profile;
    assert_eq!(
        (&**short, *shown, &**long, *hidden),
        ("15s", Profile::Full, "60s", Profile::Full)
    );
    // 4 MB in 20 ms or a little more.
    assert!(*rate > 4e6 && *rate <= 2e8 && rate == same, "{rate}");
    assert!(
        waits
            .iter()
            .all(|(_, _, profile, rate)| *profile == Profile::Full && *rate == 0.0)
    );
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(peaks("1000000")[0].3, *rate, "an idle second hides no peak");
}

#[test]
fn congestion_notifications_have_a_peak_at_each_point() {
    let temp = tree(&[
        ("hw_counters/np_cnp_sent", "0"),
        ("hw_counters/rp_cnp_handled", "5"),
    ]);
    let mut rdma = rdma(temp.path());
    let mut peaks = |sent: &str| {
        write(
            &temp.path().join(PORT),
            &[("hw_counters/np_cnp_sent", sent)],
        );
        let mut reading = NodeReading::default();
        rdma.sample(&mut reading).expect("a sample");
        let samples = reading.samples().iter();
        let peaks = samples.filter(|sample| sample.metric.name.ends_with("_peak_cnp_per_second"));
        let peaks = peaks.map(|sample| {
            let labels: Vec<_> = sample.labels.values().skip(2).collect();
            (labels.join(" "), sample.value.as_f64() > 0.0)
        });
        peaks.collect::<Vec<_>>()
    };
    assert_eq!(peaks("0"), []);
    std::thread::sleep(Duration::from_millis(20));
    let expected = [
        ("rp 15s", false),
        ("rp 60s", false),
        ("np 15s", true),
        ("np 60s", true),
    ];
    assert_eq!(
        peaks("900"),
        expected.map(|(labels, grew)| (labels.to_owned(), grew))
    );
}

#[test]
fn a_bridge_to_nvswitches_is_named_and_nothing_of_it_is_read() {
    let temp = tree(FILES);
    let device = temp.path().join(DEVICE);
    let common = [
        ("node_guid", "9c63:c003:00a1:0001"),
        ("device/vendor", "0x15b3"),
        ("device/class", "0x020700"),
    ];
    write(&device, &common);
    let vpd = |model: &str| {
        let text = format!("\u{2}\u{10}\0NVIDIA ConnectX-7\u{1}V3\u{b}SMDL={model}x");
        write(&device, &[("device/vpd", &text)]);
    };
    vpd("OTHER_");
    assert!(sample(&mut rdma(temp.path())).len() > 4);
    vpd("SW_MNG");
    let mut rdma = rdma(temp.path());
    let named = set(&["rdma_not_read_info switch_management 1"]);
    assert_eq!(sample(&mut rdma), named);
    assert_eq!(sample(&mut rdma), named);
}
