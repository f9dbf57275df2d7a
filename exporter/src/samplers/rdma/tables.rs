//! Kernel file -> metric, for the counters of RDMA ports. A new counter is one row here or in [`drivers`].

mod drivers;

use railscope_model::metric::{
    Metric, RDMA_NO_BUFFER, RDMA_PORT_CAST_PACKETS, RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_PACKETS,
    RDMA_PORT_TRANSMIT_WAIT, RDMA_RECEIVER_NOT_READY, RDMA_RETRANSMITS, RDMA_RETRIES_EXCEEDED,
    RDMA_SEQUENCE_ERRORS, RDMA_STATISTICS_LIFESPAN,
};
use railscope_model::units::BYTES_PER_PORT_DATA_WORD;

/// One file and the series that it becomes.
pub(super) struct Row {
    /// File name below `counters` or `hw_counters`.
    pub(super) file: &'static str,
    /// The catalogue row.
    pub(super) metric: &'static Metric,
    /// Label values behind device and port.
    pub(super) labels: &'static [&'static str],
    /// Base units in one unit of the file.
    pub(super) unit: Unit,
    /// Width of the counter in bits, where it stops at all-ones instead of starting again.
    pub(super) stops_at_bits: Option<u8>,
    /// Whose port shows it by default.
    pub(super) shown: Shown,
}

/// What one unit of a file is.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    /// So many base units.
    Times(u64),
    /// A thousandth of the base unit.
    Milli,
}

/// On which ports the default profile shows a row; the full profile shows every row of every port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// On all.
    Always,
    /// Where the link layer is not InfiniBand: these count RoCE packets.
    OnEthernet,
    /// On none.
    InFull,
}

const fn row(
    file: &'static str,
    metric: &'static Metric,
    labels: &'static [&'static str],
    shown: Shown,
) -> Row {
    Row {
        file,
        metric,
        labels,
        unit: Unit::Times(1),
        stops_at_bits: None,
        shown,
    }
}

/// A counter of traffic. 64 bits wide where the port has the extended set; where it has not, 32, and
/// then it stops like the errors do (seen on QLE7340: every one of the four at 2^32 - 1).
const fn traffic(file: &'static str, metric: &'static Metric, unit: u64) -> Row {
    Row {
        unit: Unit::Times(unit),
        stops_at_bits: Some(32),
        ..row(file, metric, &[], Shown::Always)
    }
}

const fn error(file: &'static str, kind: &'static [&'static str], bits: u8, shown: Shown) -> Row {
    Row {
        stops_at_bits: Some(bits),
        ..row(file, &RDMA_PORT_ERRORS, kind, shown)
    }
}

/// `error!(file, bits, shown)`: the kind is the file's name.
macro_rules! error {
    ($file:literal, $bits:literal, $shown:ident) => {
        error($file, &[$file], $bits, Shown::$shown)
    };
}

/// `ports/N/counters`: the performance management agent's (PMA) counters, the same for every driver.
///
/// Widths are those of `PortCounters` (InfiniBand Architecture Specification, volume 1, 16.1.3.5, and
/// the kernel's `core/sysfs.c`). Such a counter stays at all-ones. Newer kernels and firmware
/// serve some of them out of the 64-bit extended set, where they go on: so only the exact all-ones
/// value is called saturated, never a larger one.
pub(super) const COUNTERS: &[Row] = &[
    traffic(
        "port_xmit_data",
        &RDMA_PORT_TRANSMIT_BYTES,
        BYTES_PER_PORT_DATA_WORD,
    ),
    traffic(
        "port_rcv_data",
        &RDMA_PORT_RECEIVE_BYTES,
        BYTES_PER_PORT_DATA_WORD,
    ),
    traffic("port_xmit_packets", &RDMA_PORT_TRANSMIT_PACKETS, 1),
    traffic("port_rcv_packets", &RDMA_PORT_RECEIVE_PACKETS, 1),
    cast("unicast_xmit_packets", &["unicast", "transmit"]),
    cast("unicast_rcv_packets", &["unicast", "receive"]),
    cast("multicast_xmit_packets", &["multicast", "transmit"]),
    cast("multicast_rcv_packets", &["multicast", "receive"]),
    traffic("port_xmit_wait", &RDMA_PORT_TRANSMIT_WAIT, 1),
    error!("symbol_error", 16, Always),
    error!("link_error_recovery", 8, Always),
    error!("link_downed", 8, Always),
    error!("port_rcv_errors", 16, Always),
    error!("port_xmit_discards", 16, Always),
    error!("port_rcv_remote_physical_errors", 16, InFull),
    error!("port_rcv_switch_relay_errors", 16, InFull),
    error!("port_rcv_constraint_errors", 8, InFull),
    error!("port_xmit_constraint_errors", 8, InFull),
    error!("local_link_integrity_errors", 4, InFull),
    error!("excessive_buffer_overrun_errors", 4, InFull),
    error!("VL15_dropped", 16, InFull),
];

const fn cast(file: &'static str, labels: &'static [&'static str]) -> Row {
    row(file, &RDMA_PORT_CAST_PACKETS, labels, Shown::InFull)
}

/// `ports/N/hw_counters` of one family of drivers. The directory also holds gauges (bnxt_re's
/// `active_qps`) and settings: what is not on the list is not exported.
pub(super) struct Driver {
    /// Names of the kernel driver of the hardware.
    pub(super) names: &'static [&'static str],
    /// Its counters.
    pub(super) rows: &'static [Row],
    /// Counters in the device's own `hw_counters`, beside `ports`.
    pub(super) device_rows: &'static [Row],
    /// Width in bits at which its transport events begin again from zero.
    pub(super) events_wrap_at_bits: Option<u8>,
}

impl Driver {
    const fn new(names: &'static [&'static str], rows: &'static [Row]) -> Self {
        Self {
            names,
            rows,
            device_rows: &[],
            events_wrap_at_bits: None,
        }
    }
}

/// `lifespan`, a setting that every driver's directory holds, in ms.
pub(super) const LIFESPAN: Row = Row {
    unit: Unit::Milli,
    ..row("lifespan", &RDMA_STATISTICS_LIFESPAN, &[], Shown::InFull)
};

/// Every known driver. Where the driver is unknown (a copied tree, a software device), each file takes
/// the first row of its name; so does one of several tables of a driver.
pub(super) const DRIVERS: &[Driver] = &[
    Driver {
        device_rows: drivers::MLX5_DEVICE,
        // be32 in the reply to QUERY_Q_COUNTER (the kernel's `mlx5/counters.c`).
        events_wrap_at_bits: Some(32),
        ..Driver::new(MLX5, drivers::MLX5)
    },
    Driver {
        events_wrap_at_bits: Some(32),
        ..Driver::new(MLX5, drivers::MLX5_VPORT)
    },
    Driver::new(BNXT_RE, drivers::BNXT_RE),
    // Broadcom's own packages have taken over mlx5's names.
    Driver::new(BNXT_RE, drivers::MLX5),
    Driver {
        device_rows: drivers::EFA_DEVICE,
        ..Driver::new(&["efa"], drivers::EFA)
    },
    Driver::new(&["ice", "i40e", "idpf", "irdma"], drivers::IRDMA),
    Driver {
        device_rows: drivers::MANA_DEVICE,
        ..Driver::new(&["mana", "mana_ib"], drivers::MANA)
    },
    Driver::new(&["rdma_rxe"], drivers::RXE),
];

const MLX5: &[&str] = &["mlx5_core", "mlx5_ib"];
const BNXT_RE: &[&str] = &["bnxt_en", "bnxt_re"];

/// Driver's counter -> what every driver calls differently. One counter of a driver at most for each
/// meaning: sums of counters that may count one packet twice would be ambiguous. Bytes need no
/// row: every driver's already have one name.
pub(super) const NEUTRAL: &[(&str, &Metric)] = &[
    // mlx5
    ("local_ack_timeout_err", &RDMA_RETRANSMITS),
    ("packet_seq_err", &RDMA_SEQUENCE_ERRORS),
    ("rnr_nak_retry_err", &RDMA_RECEIVER_NOT_READY),
    ("req_transport_retries_exceeded", &RDMA_RETRIES_EXCEEDED),
    ("out_of_buffer", &RDMA_NO_BUFFER),
    // bnxt_re
    ("to_retransmits", &RDMA_RETRANSMITS),
    ("seq_err_naks_rcvd", &RDMA_SEQUENCE_ERRORS),
    ("rnr_naks_rcvd", &RDMA_RECEIVER_NOT_READY),
    ("max_retry_exceeded", &RDMA_RETRIES_EXCEEDED),
    ("rx_out_of_buffer", &RDMA_NO_BUFFER),
    // EFA
    ("retrans_pkts", &RDMA_RETRANSMITS),
    ("unresponsive_remote_events", &RDMA_RETRIES_EXCEEDED),
    ("rx_drops", &RDMA_NO_BUFFER),
    // irdma, before and after its third generation
    ("tcpRetransSegs", &RDMA_RETRANSMITS),
    ("RetransSegs", &RDMA_RETRANSMITS),
    ("Nak Sequence Error", &RDMA_SEQUENCE_ERRORS),
    ("RNR received", &RDMA_RECEIVER_NOT_READY),
    // MANA
    ("requester_timeout", &RDMA_RETRANSMITS),
    ("requester_oos_nak", &RDMA_SEQUENCE_ERRORS),
    ("requester_rnr_nak", &RDMA_RECEIVER_NOT_READY),
    ("requester_retries_exceeded", &RDMA_RETRIES_EXCEEDED),
    // Soft-RoCE
    ("completer_retry_err", &RDMA_RETRANSMITS),
    ("rcvd_seq_err", &RDMA_SEQUENCE_ERRORS),
    ("rcvd_rnr_err", &RDMA_RECEIVER_NOT_READY),
    ("retry_exceeded_err", &RDMA_RETRIES_EXCEEDED),
];
