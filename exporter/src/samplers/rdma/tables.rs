//! Kernel file -> metric, for the counters of RDMA ports. A new counter is one row here.

use railscope_model::metric::{
    Metric, RDMA_CNP, RDMA_DEVICE_EVENTS, RDMA_ECN_MARKED, RDMA_ICRC_ERRORS, RDMA_NO_BUFFER,
    RDMA_OPERATION_BYTES, RDMA_PORT_CAST_PACKETS, RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_TRANSMIT_BYTES, RDMA_PORT_TRANSMIT_PACKETS,
    RDMA_PORT_TRANSMIT_WAIT, RDMA_RECEIVER_NOT_READY, RDMA_RETRANSMITS, RDMA_RETRIES_EXCEEDED,
    RDMA_SEQUENCE_ERRORS, RDMA_STATISTICS_LIFESPAN, RDMA_TRANSPORT_EVENTS,
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

/// `event!(file, shown)`: the event is the file's name, which is the driver's.
macro_rules! event {
    ($file:literal, $shown:ident) => {
        row($file, &RDMA_TRANSPORT_EVENTS, &[$file], Shown::$shown)
    };
}

/// `ports/N/counters`: the performance management agent's (PMA) counters, the same for every driver.
///
/// Widths are those of `PortCounters` (InfiniBand Architecture Specification, volume 1, 16.1.3.5, and
/// the kernel's `core/sysfs.c`). Such a counter stands still at all-ones. Newer kernels and firmware
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
/// the first row of its name.
pub(super) const DRIVERS: &[Driver] = &[
    Driver {
        // be32 in the answer to QUERY_Q_COUNTER (the kernel's `mlx5/counters.c`).
        events_wrap_at_bits: Some(32),
        ..Driver::new(&["mlx5_core", "mlx5_ib"], MLX5)
    },
    Driver::new(&["bnxt_en", "bnxt_re"], BNXT_RE),
    Driver {
        device_rows: EFA_DEVICE,
        ..Driver::new(&["efa"], EFA)
    },
    Driver::new(&["ice", "i40e", "idpf", "irdma"], IRDMA),
    Driver::new(&["rdma_rxe"], RXE),
];

/// The kernel's `mlx5/counters.c`: queue counters (32 bits, they start again), congestion statistics
/// (64 bits, both ports of a bond together) and one of the physical port's.
const MLX5: &[Row] = &[
    event!("out_of_sequence", Always),
    event!("packet_seq_err", Always),
    event!("local_ack_timeout_err", Always),
    event!("rnr_nak_retry_err", Always),
    event!("roce_adp_retrans", InFull),
    event!("req_transport_retries_exceeded", Always),
    event!("req_rnr_retries_exceeded", InFull),
    event!("out_of_buffer", InFull),
    event!("duplicate_request", InFull),
    event!("implied_nak_seq_err", InFull),
    event!("rx_write_requests", InFull),
    event!("rx_read_requests", InFull),
    event!("rx_atomic_requests", InFull),
    event!("rx_dct_connect", InFull),
    event!("req_cqe_error", InFull),
    event!("req_cqe_flush_error", InFull),
    event!("req_remote_access_errors", InFull),
    event!("req_remote_invalid_request", InFull),
    event!("resp_cqe_error", InFull),
    event!("resp_cqe_flush_error", InFull),
    event!("resp_local_length_error", InFull),
    event!("resp_remote_access_errors", InFull),
    event!("roce_adp_retrans_to", InFull),
    event!("roce_slow_restart", InFull),
    event!("roce_slow_restart_cnps", InFull),
    event!("roce_slow_restart_trans", InFull),
    row(
        "rp_cnp_handled",
        &RDMA_CNP,
        &["rp", "handled"],
        Shown::OnEthernet,
    ),
    row(
        "rp_cnp_ignored",
        &RDMA_CNP,
        &["rp", "ignored"],
        Shown::InFull,
    ),
    row("np_cnp_sent", &RDMA_CNP, &["np", "sent"], Shown::OnEthernet),
    row(
        "np_ecn_marked_roce_packets",
        &RDMA_ECN_MARKED,
        &[],
        Shown::OnEthernet,
    ),
    row(
        "rx_icrc_encapsulated",
        &RDMA_ICRC_ERRORS,
        &[],
        Shown::OnEthernet,
    ),
];

/// The kernel's `bnxt_re/hw_counters.c`. It has no `counters` directory: bytes and packets stand here.
const BNXT_RE: &[Row] = &[
    row("tx_bytes", &RDMA_PORT_TRANSMIT_BYTES, &[], Shown::Always),
    row("rx_bytes", &RDMA_PORT_RECEIVE_BYTES, &[], Shown::Always),
    row("tx_pkts", &RDMA_PORT_TRANSMIT_PACKETS, &[], Shown::Always),
    row("rx_pkts", &RDMA_PORT_RECEIVE_PACKETS, &[], Shown::Always),
    event!("to_retransmits", Always),
    event!("seq_err_naks_rcvd", Always),
    event!("oos_drop_count", Always),
    event!("rnr_naks_rcvd", Always),
    event!("max_retry_exceeded", Always),
    event!("rx_out_of_buffer", InFull),
    event!("rx_roce_errors", InFull),
    event!("rx_roce_discards", InFull),
    event!("tx_roce_errors", InFull),
    event!("tx_roce_discards", InFull),
    event!("missing_resp", InFull),
    event!("dup_req", InFull),
    event!("recoverable_errors", InFull),
    event!("unrecoverable_err", InFull),
    event!("remote_access_err", InFull),
    event!("remote_op_err", InFull),
    row(
        "rx_cnp_pkts",
        &RDMA_CNP,
        &["rp", "handled"],
        Shown::OnEthernet,
    ),
    row("tx_cnp_pkts", &RDMA_CNP, &["np", "sent"], Shown::OnEthernet),
    row(
        "rx_ecn_marked_pkts",
        &RDMA_ECN_MARKED,
        &[],
        Shown::OnEthernet,
    ),
];

/// The kernel's `efa/efa_verbs.c`. Retransmission counters need Nitro v4.
const EFA: &[Row] = &[
    row("tx_bytes", &RDMA_PORT_TRANSMIT_BYTES, &[], Shown::Always),
    row("rx_bytes", &RDMA_PORT_RECEIVE_BYTES, &[], Shown::Always),
    row("tx_pkts", &RDMA_PORT_TRANSMIT_PACKETS, &[], Shown::Always),
    row("rx_pkts", &RDMA_PORT_RECEIVE_PACKETS, &[], Shown::Always),
    event!("rx_drops", Always),
    event!("retrans_pkts", Always),
    event!("retrans_timeout_events", Always),
    event!("unresponsive_remote_events", Always),
    event!("impaired_remote_conn_events", Always),
    event!("rdma_read_wrs", InFull),
    event!("rdma_read_wr_err", InFull),
    event!("rdma_write_wrs", InFull),
    event!("rdma_write_wr_err", InFull),
    event!("send_wrs", InFull),
    event!("recv_wrs", InFull),
    operation("send_bytes", &["send_bytes"]),
    operation("recv_bytes", &["recv_bytes"]),
    operation("rdma_read_bytes", &["rdma_read_bytes"]),
    operation("rdma_read_resp_bytes", &["rdma_read_resp_bytes"]),
    operation("rdma_write_bytes", &["rdma_write_bytes"]),
    operation("rdma_write_recv_bytes", &["rdma_write_recv_bytes"]),
    operation("retrans_bytes", &["retrans_bytes"]),
];

const fn operation(file: &'static str, labels: &'static [&'static str]) -> Row {
    row(file, &RDMA_OPERATION_BYTES, labels, Shown::InFull)
}

/// `device!(file)`: an event of the whole device.
macro_rules! device {
    ($file:literal) => {
        row($file, &RDMA_DEVICE_EVENTS, &[$file], Shown::InFull)
    };
}

/// `hw_counters` of the device itself, the second table of `efa/efa_verbs.c`: its command queue.
const EFA_DEVICE: &[Row] = &[
    device!("submitted_cmds"),
    device!("completed_cmds"),
    device!("cmds_err"),
    device!("no_completion_cmds"),
    device!("keep_alive_rcvd"),
    device!("alloc_pd_err"),
    device!("create_qp_err"),
    device!("create_cq_err"),
    device!("reg_mr_err"),
    device!("alloc_ucontext_err"),
    device!("create_ah_err"),
    device!("mmap_err"),
];

/// The kernel's `irdma/verbs.c`, with the names of before and after its third generation.
const IRDMA: &[Row] = &[
    event!("tcpRetransSegs", Always),
    event!("RetransSegs", Always),
    event!("tcpInProtoErrors", InFull),
    event!("InProtoErrors", InFull),
    event!("rxVlanErrors", InFull),
    event!("ip4InDiscards", InFull),
    event!("ip6InDiscards", InFull),
    row(
        "cnpHandled",
        &RDMA_CNP,
        &["rp", "handled"],
        Shown::OnEthernet,
    ),
    row("cnpIgnored", &RDMA_CNP, &["rp", "ignored"], Shown::InFull),
    row("cnpSent", &RDMA_CNP, &["np", "sent"], Shown::OnEthernet),
    row("RxECNMrkd", &RDMA_ECN_MARKED, &[], Shown::OnEthernet),
];

/// Soft-RoCE, as Linux 6.1 and 6.12 name them. `ack_deferred` grows in normal operation.
const RXE: &[Row] = &[
    row("sent_pkts", &RDMA_PORT_TRANSMIT_PACKETS, &[], Shown::Always),
    row("rcvd_pkts", &RDMA_PORT_RECEIVE_PACKETS, &[], Shown::Always),
    event!("rcvd_seq_err", Always),
    event!("retry_exceeded_err", Always),
    event!("completer_retry_err", Always),
    event!("rcvd_rnr_err", Always),
    event!("out_of_seq_request", InFull),
    event!("duplicate_request", InFull),
    event!("retry_rnr_exceeded_err", InFull),
    event!("send_rnr_err", InFull),
    event!("send_err", InFull),
    event!("ack_deferred", InFull),
    event!("rdma_sends", InFull),
    event!("rdma_recvs", InFull),
    row(
        "link_downed",
        &RDMA_PORT_ERRORS,
        &["link_downed"],
        Shown::Always,
    ),
];

/// Driver's counter -> what every driver calls differently. One counter of a driver at most for each
/// meaning: sums of counters that may count one packet twice would be nobody's number. Bytes need no
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
    // Soft-RoCE
    ("completer_retry_err", &RDMA_RETRANSMITS),
    ("rcvd_seq_err", &RDMA_SEQUENCE_ERRORS),
    ("rcvd_rnr_err", &RDMA_RECEIVER_NOT_READY),
    ("retry_exceeded_err", &RDMA_RETRIES_EXCEEDED),
];
