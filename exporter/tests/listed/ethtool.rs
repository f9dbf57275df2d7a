//! What `ethtool` printed of a laptop's network card.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::tree::{link, page, write};
use crate::common::captures;

/// Counters of the recorded drivers that are not exported, and why.
const NO_FABRIC: &[&str] = &[
    // e1000e is a laptop's network card: no RDMA, no PFC. node_exporter has what every card counts.
    "tx_packets",
    "rx_packets",
    "tx_errors",
    "rx_errors",
    "port.rx_dropped",
    "rx_missed",
    "align_errors",
    "tx_single_collisions",
    "tx_multi_collisions",
    "rx_unicast",
    "rx_broadcast",
    "rx_multicast",
    "tx_aborted",
    "tx_underrun",
    // Invented by node_exporter's authors.
    "duplicate metric",
    "duplicate_metric",
];

/// The text behind `key: ` on a separate line.
fn said<'a>(text: &'a str, key: &str) -> &'a str {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    lines.find(|(name, _)| *name == key).expect(key).1
}

/// The interface as sysfs has it, and what its driver counted beside it.
fn plant(root: &Path, recorded: &Path, interface: &str, at: &str) {
    let text = |file: &str| fs::read_to_string(recorded.join(file)).expect("text");
    let settings = text("eth0/settings.txt");
    let folder = format!("{at}/net/{interface}");
    let up = u8::from(said(&settings, "Link detected") == "yes");
    for (file, text) in [
        ("type", "1\n".to_owned()),
        ("carrier", format!("{up}\n")),
        ("speed", said(&settings, "Speed").replace("Mb/s", "\n")),
        (
            "duplex",
            format!("{}\n", said(&settings, "Duplex").to_lowercase()),
        ),
    ] {
        write(root, &format!("{folder}/{file}"), text);
    }
    link(root, &format!("{folder}/device"), at);
    link(root, &format!("sys/class/net/{interface}"), &folder);
    let statistics = text(&format!("{interface}/statistics.txt"));
    write(root, &format!("network/{interface}/stats"), statistics);
}

#[test]
fn a_laptops_network_card_counts_nothing_of_a_fabric() {
    let test = "a_laptops_network_card_counts_nothing_of_a_fabric";
    let Some(recorded) = captures(test, "ethtool/node_exporter") else {
        return;
    };
    let text = |file: &str| fs::read_to_string(recorded.join(file)).expect("text");
    let statistics = text("eth0/statistics.txt");
    let rows = statistics
        .lines()
        .filter_map(|line| line.strip_prefix("     ")?.rsplit_once(": "));
    let counted: BTreeSet<_> = rows.map(|(name, _)| name).collect();
    assert_eq!(
        counted,
        NO_FABRIC.iter().copied().collect(),
        "another recording"
    );
    let about = text("eth0/driver.txt");
    let (driver, bus) = (said(&about, "driver"), said(&about, "bus-info"));
    // With its driver's name, and as a tree that was copied without.
    for driver in [driver, ""] {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = temp.path();
        let at = format!("sys/devices/pci0000:00/{bus}");
        for interface in ["eth0", "bond0"] {
            plant(root, &recorded, interface, &at);
        }
        if !driver.is_empty() {
            link(
                root,
                &format!("{at}/driver"),
                &format!("sys/bus/pci/drivers/{driver}"),
            );
        }
        let mut page = page(root);
        let unparsed = page.remove("source_status{ethernet,bond0,unparsed}");
        assert_eq!(unparsed, Some(1.0), "what is no table is said to be none");
        page.retain(|series, _| series.contains("eth0"));
        for (series, value) in [
            (format!("nic_info{{eth0,{bus},,{driver},}}"), 1.0),
            ("nic_carrier{eth0}".to_owned(), 1.0),
            ("nic_speed_bytes_per_second{eth0}".to_owned(), 1000e6 / 8.0),
            ("nic_full_duplex{eth0}".to_owned(), 1.0),
        ] {
            assert_eq!(page.remove(&series), Some(value), "{series}");
        }
        assert!(page.is_empty(), "invented: {page:?}");
    }
    println!(
        "ethtool: 3 settings on the page, {} counters of no fabric left out",
        counted.len()
    );
}
