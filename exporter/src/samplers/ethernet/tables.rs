//! Name of a driver's counter -> metric, for Ethernet NICs. A new counter is one row here.

use railscope_model::metric::{
    Metric, NIC_BUFFER_THRESHOLD, NIC_DISCARDS, NIC_ECN_MARKED, NIC_FEC_BLOCKS,
    NIC_GLOBAL_PAUSE_FRAMES, NIC_GLOBAL_PAUSE_SECONDS, NIC_GLOBAL_PAUSE_TRANSITIONS,
    NIC_MODULE_EVENTS, NIC_OUT_OF_BUFFER, NIC_PAUSE_STORMS, NIC_PCIE_OVERFLOW,
    NIC_PCIE_SIGNAL_INTEGRITY, NIC_PCIE_STALLED, NIC_PCIE_STALLED_SECONDS, NIC_PFC_FRAMES,
    NIC_PFC_PAUSE_SECONDS, NIC_PFC_TRANSITIONS, NIC_PHY_BITS, NIC_PHY_CORRECTED_BITS,
    NIC_PHY_CRC_ERRORS, NIC_PHY_FRAME_ERRORS, NIC_PHY_LANE_ERRORS, NIC_PHY_LINK_DOWN,
    NIC_PHY_SYMBOL_ERRORS, NIC_PRIORITY_BYTES, NIC_PRIORITY_DISCARDS, NIC_PRIORITY_PACKETS,
};
use railscope_model::reading::Value;

/// One counter of a driver and the series that it becomes.
pub(super) struct Row {
    /// The driver's name; `#` is a number in a label (a priority or a lane), `*` a number without a label (a ring), over which
    /// values are summed.
    pub(super) name: &'static str,
    /// The catalogue row.
    pub(super) metric: &'static Metric,
    /// Label values behind the interface; `#` is the number.
    pub(super) labels: &'static [&'static str],
    /// What one unit of the driver is.
    pub(super) unit: Unit,
    /// Only in the full profile, though other rows of the metric are in the default one.
    pub(super) full: bool,
}

/// What one unit of a counter is, in base units.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// One.
    One,
    /// A microsecond.
    Micro,
    /// 0.01.
    Percent,
}

impl Unit {
    /// A driver's count in base units.
    pub(super) fn value(self, count: u64) -> Value {
        match self {
            Self::One => count.into(),
            Self::Micro => (count as f64 / 1e6).into(),
            Self::Percent => (count as f64 / 100.0).into(),
        }
    }
}

impl Row {
    /// The number that matches `#` if this row is for a counter of this name; empty where there is none.
    pub(super) fn number<'a>(&self, name: &'a str) -> Option<&'a str> {
        let Some((before, behind)) = self.name.split_once(['#', '*']) else {
            return (self.name == name).then_some("");
        };
        let number = name.strip_prefix(before)?.strip_suffix(behind)?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let kept = self.name.contains('#');
        is_number.then_some(if kept { number } else { "" })
    }
}

const fn row(name: &'static str, metric: &'static Metric, labels: &'static [&'static str]) -> Row {
    Row {
        name,
        metric,
        labels,
        unit: Unit::One,
        full: false,
    }
}

const fn micros(
    name: &'static str,
    metric: &'static Metric,
    labels: &'static [&'static str],
) -> Row {
    Row {
        unit: Unit::Micro,
        ..row(name, metric, labels)
    }
}

const fn percent(name: &'static str, operation: &'static [&'static str]) -> Row {
    Row {
        unit: Unit::Percent,
        ..row(name, &NIC_PCIE_STALLED, operation)
    }
}

/// A row that the default profile omits.
const fn full(name: &'static str, metric: &'static Metric, labels: &'static [&'static str]) -> Row {
    Row {
        full: true,
        ..row(name, metric, labels)
    }
}

/// The counters of one driver. Two names that become one series add up.
pub(super) struct Driver {
    /// Its name.
    pub(super) name: &'static str,
    /// Its counters.
    pub(super) rows: &'static [Row],
}

/// Every known driver. Where the driver is unknown (a copied tree), each counter takes the first row of
/// its name; of a driver that is known and not listed, nothing is exported.
pub(super) const DRIVERS: &[Driver] = &[
    Driver {
        name: "mlx5_core",
        rows: MLX5,
    },
    Driver {
        name: "bnxt_en",
        rows: BNXT,
    },
    Driver {
        name: "ice",
        rows: ICE,
    },
    Driver {
        name: "ionic",
        rows: IONIC,
    },
];

/// The kernel's `mlx5/counters.rst`. Durations are in microseconds; `outbound_pci_stalled_*` are percent
/// of the last second, and `*_events` of them seconds, in spite of the name.
const MLX5: &[Row] = &[
    row("rx_prio#_pause", &NIC_PFC_FRAMES, &["#", "receive"]),
    row("tx_prio#_pause", &NIC_PFC_FRAMES, &["#", "transmit"]),
    micros(
        "rx_prio#_pause_duration",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "receive"],
    ),
    micros(
        "tx_prio#_pause_duration",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "transmit"],
    ),
    row(
        "rx_prio#_pause_transition",
        &NIC_PFC_TRANSITIONS,
        &["#", "receive"],
    ),
    row("rx_global_pause", &NIC_GLOBAL_PAUSE_FRAMES, &["receive"]),
    row("tx_global_pause", &NIC_GLOBAL_PAUSE_FRAMES, &["transmit"]),
    micros(
        "rx_global_pause_duration",
        &NIC_GLOBAL_PAUSE_SECONDS,
        &["receive"],
    ),
    micros(
        "tx_global_pause_duration",
        &NIC_GLOBAL_PAUSE_SECONDS,
        &["transmit"],
    ),
    row(
        "rx_global_pause_transition",
        &NIC_GLOBAL_PAUSE_TRANSITIONS,
        &["receive"],
    ),
    row(
        "tx_pause_storm_warning_events",
        &NIC_PAUSE_STORMS,
        &["warning"],
    ),
    row("tx_pause_storm_error_events", &NIC_PAUSE_STORMS, &["error"]),
    row("rx_discards_phy", &NIC_DISCARDS, &["receive", "buffer"]),
    full("tx_discards_phy", &NIC_DISCARDS, &["transmit", "port"]),
    full(
        "rx_steer_missed_packets",
        &NIC_DISCARDS,
        &["receive", "no_flow"],
    ),
    full(
        "rx_if_down_packets",
        &NIC_DISCARDS,
        &["receive", "interface_down"],
    ),
    row(
        "rx_prio#_discards",
        &NIC_PRIORITY_DISCARDS,
        &["#", "buffer"],
    ),
    row(
        "rx_prio#_buf_discard",
        &NIC_PRIORITY_DISCARDS,
        &["#", "host_buffer"],
    ),
    row(
        "rx_prio#_cong_discard",
        &NIC_PRIORITY_DISCARDS,
        &["#", "congestion"],
    ),
    row("rx_prio#_marked", &NIC_ECN_MARKED, &["#"]),
    row("rx_buffer_passed_thres_phy", &NIC_BUFFER_THRESHOLD, &[]),
    row("rx_out_of_buffer", &NIC_OUT_OF_BUFFER, &["netdev"]),
    row("dev_out_of_buffer", &NIC_OUT_OF_BUFFER, &["device"]),
    row("rx_prio#_bytes", &NIC_PRIORITY_BYTES, &["#", "receive"]),
    row("tx_prio#_bytes", &NIC_PRIORITY_BYTES, &["#", "transmit"]),
    row("rx_prio#_packets", &NIC_PRIORITY_PACKETS, &["#", "receive"]),
    row(
        "tx_prio#_packets",
        &NIC_PRIORITY_PACKETS,
        &["#", "transmit"],
    ),
    row("rx_pcs_symbol_err_phy", &NIC_PHY_SYMBOL_ERRORS, &[]),
    row("rx_corrected_bits_phy", &NIC_PHY_CORRECTED_BITS, &[]),
    row("rx_bits_phy", &NIC_PHY_BITS, &[]),
    row("rx_err_lane_#_phy", &NIC_PHY_LANE_ERRORS, &["#"]),
    row("rx_crc_errors_phy", &NIC_PHY_CRC_ERRORS, &[]),
    row(
        "rx_oversize_pkts_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "oversize"],
    ),
    row(
        "rx_out_of_range_len_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "out_of_range"],
    ),
    row(
        "rx_in_range_len_errors_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "in_range"],
    ),
    row(
        "rx_undersize_pkts_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "undersize"],
    ),
    row(
        "rx_fragments_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "fragment"],
    ),
    row(
        "rx_jabbers_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "jabber"],
    ),
    row(
        "rx_symbol_err_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "symbol"],
    ),
    row(
        "tx_errors_phy",
        &NIC_PHY_FRAME_ERRORS,
        &["transmit", "oversize"],
    ),
    row("link_down_events_phy", &NIC_PHY_LINK_DOWN, &[]),
    percent("outbound_pci_stalled_rd", &["read"]),
    percent("outbound_pci_stalled_wr", &["write"]),
    full(
        "outbound_pci_stalled_rd_events",
        &NIC_PCIE_STALLED_SECONDS,
        &["read"],
    ),
    row(
        "outbound_pci_stalled_wr_events",
        &NIC_PCIE_STALLED_SECONDS,
        &["write"],
    ),
    row("outbound_pci_buffer_overflow", &NIC_PCIE_OVERFLOW, &[]),
    row(
        "rx_pci_signal_integrity",
        &NIC_PCIE_SIGNAL_INTEGRITY,
        &["receive"],
    ),
    row(
        "tx_pci_signal_integrity",
        &NIC_PCIE_SIGNAL_INTEGRITY,
        &["transmit"],
    ),
    row("module_bus_stuck", &NIC_MODULE_EVENTS, &["bus_stuck"]),
    row(
        "module_high_temp",
        &NIC_MODULE_EVENTS,
        &["high_temperature"],
    ),
    row("module_bad_shorted", &NIC_MODULE_EVENTS, &["shorted"]),
    row("module_unplug", &NIC_MODULE_EVENTS, &["unplugged"]),
];

/// The port statistics in the kernel's `bnxt/bnxt_ethtool.c`. It counts every priority, PFC or not.
const BNXT: &[Row] = &[
    row("rx_pfc_ena_frames_pri#", &NIC_PFC_FRAMES, &["#", "receive"]),
    row(
        "tx_pfc_ena_frames_pri#",
        &NIC_PFC_FRAMES,
        &["#", "transmit"],
    ),
    micros(
        "pfc_pri#_rx_duration_us",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "receive"],
    ),
    micros(
        "pfc_pri#_tx_duration_us",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "transmit"],
    ),
    row(
        "pfc_pri#_rx_transitions",
        &NIC_PFC_TRANSITIONS,
        &["#", "receive"],
    ),
    row(
        "pfc_pri#_tx_transitions",
        &NIC_PFC_TRANSITIONS,
        &["#", "transmit"],
    ),
    row("rx_pause_frames", &NIC_GLOBAL_PAUSE_FRAMES, &["receive"]),
    row("tx_pause_frames", &NIC_GLOBAL_PAUSE_FRAMES, &["transmit"]),
    row("rx_stat_discard", &NIC_DISCARDS, &["receive", "buffer"]),
    full("tx_stat_discard", &NIC_DISCARDS, &["transmit", "port"]),
    // A slow host discards packets at its rings, thousands of times more than the port. The driver's totals of all rings
    // (`rx_total_ring_discards`, `rx_total_discard_pkts` and so on) count the same packets and are not read.
    row("[*]: rx_discards", &NIC_DISCARDS, &["receive", "ring"]),
    row("[*]: tx_discards", &NIC_DISCARDS, &["transmit", "ring"]),
    row(
        "[*]: rx_l4_csum_errors",
        &NIC_DISCARDS,
        &["receive", "checksum"],
    ),
    row("[*]: rx_buf_errors", &NIC_DISCARDS, &["receive", "ring"]),
    row("[*]: rx_errors", &NIC_DISCARDS, &["receive", "error"]),
    row("[*]: tx_errors", &NIC_DISCARDS, &["transmit", "error"]),
    row("rx_buffer_passed_threshold", &NIC_BUFFER_THRESHOLD, &[]),
    row("rx_bytes_pri#", &NIC_PRIORITY_BYTES, &["#", "receive"]),
    row("tx_bytes_pri#", &NIC_PRIORITY_BYTES, &["#", "transmit"]),
    row("rx_packets_pri#", &NIC_PRIORITY_PACKETS, &["#", "receive"]),
    row("tx_packets_pri#", &NIC_PRIORITY_PACKETS, &["#", "transmit"]),
    row("rx_pcs_symbol_err", &NIC_PHY_SYMBOL_ERRORS, &[]),
    row("rx_corrected_bits", &NIC_PHY_CORRECTED_BITS, &[]),
    row("rx_bits", &NIC_PHY_BITS, &[]),
    row("rx_fcs_err_frames", &NIC_PHY_CRC_ERRORS, &[]),
    row("link_down_events", &NIC_PHY_LINK_DOWN, &[]),
    row("rx_fec_corrected_blocks", &NIC_FEC_BLOCKS, &["corrected"]),
    row(
        "rx_fec_uncorrectable_blocks",
        &NIC_FEC_BLOCKS,
        &["uncorrectable"],
    ),
];

/// The kernel's `ice/ice_ethtool.c`. PFC and pause frames are counted as XOFF (pause) and XON (go on).
const ICE: &[Row] = &[
    row("rx_priority_#_xoff.nic", &NIC_PFC_FRAMES, &["#", "receive"]),
    row("rx_priority_#_xon.nic", &NIC_PFC_FRAMES, &["#", "receive"]),
    row(
        "tx_priority_#_xoff.nic",
        &NIC_PFC_FRAMES,
        &["#", "transmit"],
    ),
    row("tx_priority_#_xon.nic", &NIC_PFC_FRAMES, &["#", "transmit"]),
    row("link_xoff_rx.nic", &NIC_GLOBAL_PAUSE_FRAMES, &["receive"]),
    row("link_xon_rx.nic", &NIC_GLOBAL_PAUSE_FRAMES, &["receive"]),
    row("link_xoff_tx.nic", &NIC_GLOBAL_PAUSE_FRAMES, &["transmit"]),
    row("link_xon_tx.nic", &NIC_GLOBAL_PAUSE_FRAMES, &["transmit"]),
    row("rx_dropped.nic", &NIC_DISCARDS, &["receive", "buffer"]),
    full(
        "tx_dropped_link_down.nic",
        &NIC_DISCARDS,
        &["transmit", "link_down"],
    ),
    row("rx_crc_errors.nic", &NIC_PHY_CRC_ERRORS, &[]),
    row(
        "rx_oversize.nic",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "oversize"],
    ),
    row(
        "rx_undersize.nic",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "undersize"],
    ),
    row(
        "rx_fragments.nic",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "fragment"],
    ),
    row(
        "rx_jabber.nic",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "jabber"],
    ),
];

/// AMD's Pensando and Pollara: the kernel's `pensando/ionic.rst`. It counts pause frames of all priorities together.
const IONIC: &[Row] = &[
    row("frames_rx_pripause", &NIC_PFC_FRAMES, &["", "receive"]),
    row("frames_tx_pripause", &NIC_PFC_FRAMES, &["", "transmit"]),
    micros(
        "rx_pripause_#_1us_count",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "receive"],
    ),
    micros(
        "tx_pripause_#_1us_count",
        &NIC_PFC_PAUSE_SECONDS,
        &["#", "transmit"],
    ),
    micros(
        "rx_pause_1us_count",
        &NIC_GLOBAL_PAUSE_SECONDS,
        &["receive"],
    ),
    row("frames_rx_pause", &NIC_GLOBAL_PAUSE_FRAMES, &["receive"]),
    row("frames_tx_pause", &NIC_GLOBAL_PAUSE_FRAMES, &["transmit"]),
    row("frames_rx_dropped", &NIC_DISCARDS, &["receive", "buffer"]),
    row("frames_rx_pri_#", &NIC_PRIORITY_PACKETS, &["#", "receive"]),
    row("frames_tx_pri_#", &NIC_PRIORITY_PACKETS, &["#", "transmit"]),
    row("frames_rx_bad_fcs", &NIC_PHY_CRC_ERRORS, &[]),
    row(
        "frames_rx_oversized",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "oversize"],
    ),
    row(
        "frames_rx_undersized",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "undersize"],
    ),
    row(
        "frames_rx_fragments",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "fragment"],
    ),
    row(
        "frames_rx_jabber",
        &NIC_PHY_FRAME_ERRORS,
        &["receive", "jabber"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_name_is_digits_only() {
        let row = &MLX5[0];
        for (name, expected) in [
            ("rx_prio3_pause", Some("3")),
            ("rx_prio12_pause", Some("12")),
            ("rx_prio_pause", None),
            ("rx_priox_pause", None),
            ("rx_prio3_pause_duration", None),
            ("tx_prio3_pause", None),
        ] {
            assert_eq!(row.number(name), expected, "{name}");
        }
        let ring = row_of_rings();
        for (name, expected) in [
            ("[0]: rx_discards", Some("")),
            ("[17]: rx_discards", Some("")),
            ("[]: rx_discards", None),
            ("rx_discards", None),
        ] {
            assert_eq!(ring.number(name), expected, "{name}");
        }
    }

    fn row_of_rings() -> &'static Row {
        let mut rows = BNXT.iter();
        rows.find(|row| row.name.contains("rx_discards"))
            .expect("a row")
    }

    #[test]
    fn every_row_names_the_labels_of_its_metric() {
        for driver in DRIVERS {
            for row in driver.rows {
                assert_eq!(row.metric.labels[0], "netdev", "{}", row.name);
                assert_eq!(
                    row.metric.labels.len(),
                    row.labels.len() + 1,
                    "{}",
                    row.name
                );
                let number = row.labels.contains(&"#");
                assert_eq!(row.name.contains('#'), number, "{}", row.name);
            }
        }
    }
}
