//! RDMA devices and ports: state, counters, which source was believed, one vocabulary over drivers, peaks.

catalogue! {
    after pcie;

    Exporter Default Info RDMA_PORT = "railscope_rdma_port_info" (device, port, pci, netdev, node_guid, port_guid, link_layer, driver, numa_node)
        "Identity of the port: join key to the subnet (node_guid) and to PCIe (pci).";
    Exporter Default Info RDMA_DEVICE = "railscope_rdma_device_info" (device, board, firmware, hca_type)
        "What the device is. Apart from the port's identity because firmware changes.";
    Exporter Full Info RDMA_PORT_ADDRESS = "railscope_rdma_port_address_info" (device, port, lid, sm_lid)
        "Addresses that the subnet manager gave the port.";
    Exporter Default Gauge RDMA_PORT_UP = "railscope_rdma_port_up" (device, port)
        "1 if the logical state of the port is ACTIVE.";
    Exporter Full Gauge RDMA_PORT_STATE = "railscope_rdma_port_state" (device, port)
        "Logical state: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER.";
    Exporter Full Gauge RDMA_PORT_PHYSICAL_STATE = "railscope_rdma_port_physical_state" (device, port)
        "Physical state: 1 Sleep, 2 Polling, 3 Disabled, 4 PortConfigurationTraining, 5 LinkUp, 6 LinkErrorRecovery, 7 PhyTest.";
    Exporter Default Gauge RDMA_PORT_SPEED = "railscope_rdma_port_speed_bytes_per_second" (device, port)
        "Data rate of the port now.";
    Exporter Full Gauge RDMA_PORT_WIDTH = "railscope_rdma_port_width_lanes" (device, port)
        "Lanes of the port now.";
    Exporter Default Counter RDMA_PORT_TRANSMIT_BYTES = "railscope_rdma_port_transmit_bytes_total" ["bytes"] (device, port)
        "Bytes sent: 4 x PortXmitData, whose unit is the 4-octet word.";
    Exporter Default Counter RDMA_PORT_RECEIVE_BYTES = "railscope_rdma_port_receive_bytes_total" ["bytes"] (device, port)
        "Bytes received: 4 x PortRcvData, whose unit is the 4-octet word.";
    Exporter Full Counter RDMA_PORT_TRANSMIT_PACKETS = "railscope_rdma_port_transmit_packets_total" (device, port)
        "Packets sent.";
    Exporter Full Counter RDMA_PORT_RECEIVE_PACKETS = "railscope_rdma_port_receive_packets_total" (device, port)
        "Packets received.";
    Exporter Full Counter RDMA_PORT_CAST_PACKETS = "railscope_rdma_port_cast_packets_total" (device, port, cast, direction)
        "Packets by cast (unicast, multicast) and direction (transmit, receive).";
    Exporter Default Counter RDMA_PORT_TRANSMIT_WAIT = "railscope_rdma_port_transmit_wait_ticks_total" (device, port)
        "PortXmitWait: ticks in which data waited for credit. A tick is no fixed time: compare ports of one kind.";
    Exporter Default Counter RDMA_PORT_ERRORS = "railscope_rdma_port_errors_total" (device, port, kind)
        "Port error counters of the performance management agent. They stop at their width (see port_error_saturated) until somebody clears them.";
    Exporter Default Gauge RDMA_PORT_ERROR_SATURATED = "railscope_rdma_port_error_saturated" (device, port, kind)
        "1 if this counter (kind is the kernel's file name) stands at its largest value and counts no more, until somebody clears it. Absent while it still counts.";
    Exporter Default Counter RDMA_TRANSPORT_EVENTS = "railscope_rdma_transport_events_total" (device, port, event)
        "Transport events of the RDMA device, under the names of its driver. 32 bits wide in hardware.";
    Exporter Default Counter RDMA_CNP = "railscope_rdma_cnp_total" (device, port, point, action)
        "Congestion notification packets: handled or ignored by the reaction point (rp), sent by the notification point (np).";
    Exporter Default Counter RDMA_ECN_MARKED = "railscope_rdma_ecn_marked_packets_total" (device, port)
        "RoCE packets received with the congestion mark.";
    Exporter Full Counter RDMA_ICRC_ERRORS = "railscope_rdma_icrc_errors_total" (device, port)
        "RoCE packets received with a wrong invariant CRC.";
    Exporter Full Gauge RDMA_STATISTICS_LIFESPAN = "railscope_rdma_statistics_lifespan_seconds" ["seconds"] (device, port)
        "How long the device serves hw_counters from its cache: two reads inside it are equal.";
    Exporter Full Info RDMA_STATISTICS_SOURCE = "railscope_rdma_statistics_source_info" (device, port, source)
        "Where the port's hardware counters are read: netlink (NETLINK_RDMA, one query a port) or sysfs (hw_counters). Never both.";
    Exporter Full Info RDMA_QP_STATISTICS_MODE = "railscope_rdma_qp_statistics_mode_info" (device, port, mode)
        "Whether an operator has bound queue pairs to counters of their own: none, auto or manual. The port's counters hold their sum in every mode.";
    Exporter Full Gauge RDMA_OPTIONAL_STATISTIC_ENABLED = "railscope_rdma_optional_statistic_enabled" (device, port, counter)
        "1 if an operator has switched this optional counter on (rdma statistic set), 0 if not. Railscope never does: it costs steering rules.";
    Exporter Full Counter RDMA_OPTIONAL_STATISTICS = "railscope_rdma_optional_statistics_total" (device, port, counter)
        "Optional counters that are switched on, under the names of the driver. They restart when switched on.";
    Exporter Default Info RDMA_NOT_READ = "railscope_rdma_not_read_info" (device, pci, reason)
        "A device whose counters Railscope leaves alone: switch_management (a bridge to NVSwitches that belongs to the Fabric Manager, by its VPD) or refused (the driver says EINVAL). Asking again would fill the kernel log.";
    Exporter Full Info RDMA_SWITCHDEV_PORT = "railscope_rdma_switchdev_port_info" (device, netdev, switch_id, port_name, role)
        "Network interfaces of a device in switchdev mode: uplink, or the representor of a vf, sf or pf.";
    Exporter Full Counter RDMA_VPORT_EVENTS = "railscope_rdma_vport_events_total" (device, port, event)
        "Transport events of the function behind a port of the NIC's own switch (mlx5 in switchdev mode), under the names of its driver. rdma_port_info names the port's representor. 32 bits wide in hardware.";
    Exporter Full Counter RDMA_DEVICE_EVENTS = "railscope_rdma_device_events_total" (device, event)
        "Counters of the whole device, under the names of its driver: EFA's commands, MANA's congestion, and what mlx5 counts for itself in switchdev mode, where its ports count for others.";
    Exporter Full Counter RDMA_OPERATION_BYTES = "railscope_rdma_operation_bytes_total" ["bytes"] (device, port, operation)
        "Bytes by operation, under the names of the driver: EFA's payload by verb, irdma's IP packets (it has no counter of the port's bytes).";
    Exporter Full Counter RDMA_RETRANSMITS = "railscope_rdma_retransmits_total" (device, port)
        "Retransmissions after an acknowledge timeout, on every driver: mlx5 local_ack_timeout_err, bnxt_re to_retransmits, rxe completer_retry_err (rounds), EFA retrans_pkts, irdma RetransSegs (packets), MANA requester_timeout. Compare within one driver.";
    Exporter Full Counter RDMA_SEQUENCE_ERRORS = "railscope_rdma_sequence_errors_total" (device, port)
        "Sequence errors that the peer reported, so packets were lost on the way there: mlx5 packet_seq_err, bnxt_re seq_err_naks_rcvd, rxe rcvd_seq_err, irdma Nak Sequence Error, MANA requester_oos_nak.";
    Exporter Full Counter RDMA_RECEIVER_NOT_READY = "railscope_rdma_receiver_not_ready_total" (device, port)
        "Receiver-not-ready answers of the peer: mlx5 rnr_nak_retry_err, bnxt_re rnr_naks_rcvd, rxe rcvd_rnr_err, irdma RNR received, MANA requester_rnr_nak.";
    Exporter Full Counter RDMA_RETRIES_EXCEEDED = "railscope_rdma_retries_exceeded_total" (device, port)
        "Connections given up after the last retry: mlx5 req_transport_retries_exceeded, bnxt_re max_retry_exceeded, rxe retry_exceeded_err, MANA requester_retries_exceeded; EFA unresponsive_remote_events is the nearest it has.";
    Exporter Full Counter RDMA_NO_BUFFER = "railscope_rdma_no_buffer_total" (device, port)
        "Packets dropped because no receive buffer was posted: mlx5 out_of_buffer, bnxt_re rx_out_of_buffer, EFA rx_drops.";
    Exporter Full Gauge RDMA_PORT_PEAK_TRANSMIT = "railscope_rdma_port_peak_transmit_bytes_per_second" (device, port, window)
        "Highest rate over one second in the rolling window: what a scrape every 15 s averages away. It tells how bursty the load was, not a fault. Scraping resets nothing.";
    Exporter Full Gauge RDMA_PORT_PEAK_RECEIVE = "railscope_rdma_port_peak_receive_bytes_per_second" (device, port, window)
        "Highest rate over one second in the rolling window. Scraping resets nothing.";
    Exporter Full Gauge RDMA_PORT_PEAK_WAIT = "railscope_rdma_port_peak_transmit_wait_ticks_per_second" (device, port, window)
        "Highest rate of PortXmitWait over one second in the rolling window.";
    Exporter Full Gauge RDMA_PORT_PEAK_CNP = "railscope_rdma_port_peak_cnp_per_second" (device, port, point, window)
        "Highest rate over one second of congestion notification packets in the rolling window: handled by the reaction point (rp), sent by the notification point (np).";
}
