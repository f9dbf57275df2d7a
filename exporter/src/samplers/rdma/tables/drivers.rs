//! What each driver counts beside the performance management agent: `hw_counters` of ports and devices.

use railscope_model::metric::{
    RDMA_CNP, RDMA_DEVICE_EVENTS, RDMA_ECN_MARKED, RDMA_ICRC_ERRORS, RDMA_OPERATION_BYTES,
    RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_PACKETS, RDMA_TRANSPORT_EVENTS, RDMA_VPORT_EVENTS,
};

use super::{Row, Shown, row};

/// `event!(file, shown)`: the event is the file's name, which is the driver's.
macro_rules! event {
    ($file:literal, $shown:ident) => {
        row($file, &RDMA_TRANSPORT_EVENTS, &[$file], Shown::$shown)
    };
}

/// `device!(file)`: an event of the whole device.
macro_rules! device {
    ($file:literal) => {
        row($file, &RDMA_DEVICE_EVENTS, &[$file], Shown::InFull)
    };
}

/// `vport!(event)`: an event of the function behind a port of the NIC's own switch.
macro_rules! vport {
    ($event:literal) => {
        row(
            concat!("vport_", $event),
            &RDMA_VPORT_EVENTS,
            &[$event],
            Shown::InFull,
        )
    };
}

/// The kernel's `mlx5/counters.c`: queue counters (32 bits, they start again), congestion statistics
/// (64 bits, both ports of a bond together) and one of the physical port's.
pub(super) const MLX5: &[Row] = &[
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

/// In switchdev mode (Linux 6.5) ports are those of the NIC's own switch, and each counts for the function
/// behind it.
pub(super) const MLX5_VPORT: &[Row] = &[
    vport!("out_of_sequence"),
    vport!("packet_seq_err"),
    vport!("local_ack_timeout_err"),
    vport!("rnr_nak_retry_err"),
    vport!("roce_adp_retrans"),
    vport!("req_transport_retries_exceeded"),
    vport!("req_rnr_retries_exceeded"),
    vport!("out_of_buffer"),
    vport!("duplicate_request"),
    vport!("implied_nak_seq_err"),
    vport!("rx_write_requests"),
    vport!("rx_read_requests"),
    vport!("rx_atomic_requests"),
    vport!("rx_dct_connect"),
    vport!("req_cqe_error"),
    vport!("req_cqe_flush_error"),
    vport!("req_remote_access_errors"),
    vport!("req_remote_invalid_request"),
    vport!("resp_cqe_error"),
    vport!("resp_cqe_flush_error"),
    vport!("resp_local_length_error"),
    vport!("resp_remote_access_errors"),
    vport!("roce_adp_retrans_to"),
    vport!("roce_slow_restart"),
    vport!("roce_slow_restart_cnps"),
    vport!("roce_slow_restart_trans"),
];

/// In switchdev mode the device's own traffic is no port's.
pub(super) const MLX5_DEVICE: &[Row] = &[
    device!("out_of_sequence"),
    device!("packet_seq_err"),
    device!("local_ack_timeout_err"),
    device!("rnr_nak_retry_err"),
    device!("roce_adp_retrans"),
    device!("req_transport_retries_exceeded"),
    device!("req_rnr_retries_exceeded"),
    device!("out_of_buffer"),
    device!("duplicate_request"),
    device!("implied_nak_seq_err"),
    device!("rx_write_requests"),
    device!("rx_read_requests"),
    device!("rx_atomic_requests"),
    device!("rx_dct_connect"),
    device!("req_cqe_error"),
    device!("req_cqe_flush_error"),
    device!("req_remote_access_errors"),
    device!("req_remote_invalid_request"),
    device!("resp_cqe_error"),
    device!("resp_cqe_flush_error"),
    device!("resp_local_length_error"),
    device!("resp_remote_access_errors"),
    device!("roce_adp_retrans_to"),
    device!("roce_slow_restart"),
    device!("roce_slow_restart_cnps"),
    device!("roce_slow_restart_trans"),
    device!("rp_cnp_handled"),
    device!("rp_cnp_ignored"),
    device!("np_cnp_sent"),
    device!("np_ecn_marked_roce_packets"),
    device!("rx_icrc_encapsulated"),
];

/// The kernel's `bnxt_re/hw_counters.c`. It has no `counters` directory: bytes and packets stand here.
pub(super) const BNXT_RE: &[Row] = &[
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
    event!("bad_resp_err", InFull),
    event!("local_qp_op_err", InFull),
    event!("local_protection_err", InFull),
    event!("mem_mgmt_op_err", InFull),
    event!("remote_invalid_req_err", InFull),
    event!("res_exceed_max", InFull),
    event!("res_length_mismatch", InFull),
    event!("res_exceeds_wqe", InFull),
    event!("res_opcode_err", InFull),
    event!("res_rx_invalid_rkey", InFull),
    event!("res_rx_domain_err", InFull),
    event!("res_rx_no_perm", InFull),
    event!("res_rx_range_err", InFull),
    event!("res_tx_invalid_rkey", InFull),
    event!("res_tx_domain_err", InFull),
    event!("res_tx_no_perm", InFull),
    event!("res_tx_range_err", InFull),
    event!("res_irrq_oflow", InFull),
    event!("res_unsup_opcode", InFull),
    event!("res_unaligned_atomic", InFull),
    event!("res_rem_inv_err", InFull),
    event!("res_mem_err", InFull),
    event!("res_srq_err", InFull),
    event!("res_cmp_err", InFull),
    event!("res_invalid_dup_rkey", InFull),
    event!("res_wqe_format_err", InFull),
    event!("res_cq_load_err", InFull),
    event!("res_srq_load_err", InFull),
    event!("res_tx_pci_err", InFull),
    event!("res_rx_pci_err", InFull),
    event!("pacing_reschedule", InFull),
    event!("pacing_complete", InFull),
    event!("pacing_alerts", InFull),
    event!("tx_atomic_req", InFull),
    event!("tx_read_req", InFull),
    event!("tx_write_req", InFull),
    event!("tx_send_req", InFull),
    event!("rx_atomic_req", InFull),
    event!("rx_read_req", InFull),
    event!("rx_write_req", InFull),
    event!("rx_send_req", InFull),
    row(
        "rx_cnp_pkts",
        &RDMA_CNP,
        &["rp", "handled"],
        Shown::OnEthernet,
    ),
    row("tx_cnp_pkts", &RDMA_CNP, &["np", "sent"], Shown::OnEthernet),
    row("np_cnp_pkts", &RDMA_CNP, &["np", "sent"], Shown::OnEthernet),
    row(
        "rx_ecn_marked_pkts",
        &RDMA_ECN_MARKED,
        &[],
        Shown::OnEthernet,
    ),
];

/// The kernel's `efa/efa_verbs.c`. Retransmission counters need Nitro v4. A p5 has 32 such devices: of what they count,
/// the default profile has room for what every loss moves.
pub(super) const EFA: &[Row] = &[
    row("tx_bytes", &RDMA_PORT_TRANSMIT_BYTES, &[], Shown::Always),
    row("rx_bytes", &RDMA_PORT_RECEIVE_BYTES, &[], Shown::Always),
    row("tx_pkts", &RDMA_PORT_TRANSMIT_PACKETS, &[], Shown::Always),
    row("rx_pkts", &RDMA_PORT_RECEIVE_PACKETS, &[], Shown::Always),
    event!("rx_drops", InFull),
    event!("retrans_pkts", Always),
    event!("retrans_timeout_events", InFull),
    event!("unresponsive_remote_events", InFull),
    event!("impaired_remote_conn_events", InFull),
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

/// `hw_counters` of the device itself, the second table of `efa/efa_verbs.c`: its command queue.
pub(super) const EFA_DEVICE: &[Row] = &[
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

/// The kernel's `irdma/verbs.c`, with the names before and after its third generation.
pub(super) const IRDMA: &[Row] = &[
    event!("tcpRetransSegs", Always),
    event!("RetransSegs", Always),
    event!("tcpInProtoErrors", InFull),
    event!("InProtoErrors", InFull),
    event!("rxVlanErrors", InFull),
    event!("ip4InDiscards", InFull),
    event!("ip6InDiscards", InFull),
    event!("ip4InTruncatedPkts", InFull),
    event!("ip6InTruncatedPkts", InFull),
    event!("ip4OutNoRoutes", InFull),
    event!("ip6OutNoRoutes", InFull),
    event!("tcpInOptErrors", InFull),
    event!("InOptErrors", InFull),
    event!("RNR sent", InFull),
    event!("Nak Sequence Error Implied", InFull),
    event!("ord limit count", InFull),
    event!("ird limit count", InFull),
    operation("ip4InOctets", &["ip4InOctets"]),
    operation("ip4OutOctets", &["ip4OutOctets"]),
    operation("ip6InOctets", &["ip6InOctets"]),
    operation("ip6OutOctets", &["ip6OutOctets"]),
    event!("RNR received", Always),
    event!("Nak Sequence Error", Always),
    event!("RTO", Always),
    event!("Rcvd Out of order packets", Always),
    row("CRC errors", &RDMA_ICRC_ERRORS, &[], Shown::OnEthernet),
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

/// The kernel's `mana/counters.c` (Azure). `current_rate` and the numbers of queue pairs that are congested
/// or recovered are no counters.
pub(super) const MANA: &[Row] = &[
    row("tx_bytes", &RDMA_PORT_TRANSMIT_BYTES, &[], Shown::Always),
    row("rx_bytes", &RDMA_PORT_RECEIVE_BYTES, &[], Shown::Always),
    row(
        "tx_packets",
        &RDMA_PORT_TRANSMIT_PACKETS,
        &[],
        Shown::Always,
    ),
    row("rx_packets", &RDMA_PORT_RECEIVE_PACKETS, &[], Shown::Always),
    event!("requester_timeout", Always),
    event!("requester_oos_nak", Always),
    event!("requester_rnr_nak", Always),
    event!("requester_retries_exceeded", Always),
    event!("responder_oos", Always),
    event!("responder_rnr_nak", InFull),
    event!("responder_dup_request", InFull),
    event!("requester_implicit_nak", InFull),
    event!("requester_readresp_psn_mismatch", InFull),
    event!("requester_rnr_nak_retries_exceeded", InFull),
    event!("nak_inv_req", InFull),
    event!("nak_access_error", InFull),
    event!("nak_opp_error", InFull),
    event!("nak_inv_read", InFull),
    event!("responder_local_len_error", InFull),
    event!("requestor_local_prot_error", InFull),
    event!("responder_rem_access_error", InFull),
    event!("responder_local_qp_error", InFull),
    event!("responder_malformed_wqe", InFull),
    event!("general_hw_error", InFull),
    event!("total_fatal_error", InFull),
    event!("dup_rx_requests", InFull),
    event!("rx_send_requests", InFull),
    event!("rx_write_requests", InFull),
    event!("rx_read_requests", InFull),
    event!("rate_inc_events", InFull),
    row(
        "received_cnps",
        &RDMA_CNP,
        &["rp", "handled"],
        Shown::OnEthernet,
    ),
];

/// The second table of `mana/counters.c`.
pub(super) const MANA_DEVICE: &[Row] = &[
    device!("sent_cnps"),
    device!("received_ecns"),
    device!("received_cnp_count"),
    device!("qp_congested_events"),
    device!("qp_recovered_events"),
    device!("rate_inc_events"),
];

/// Soft-RoCE, as Linux 6.1 and 6.12 name them. `ack_deferred` grows in normal operation.
pub(super) const RXE: &[Row] = &[
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
