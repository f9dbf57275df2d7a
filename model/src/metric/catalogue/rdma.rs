//! RDMA devices and ports: state, counters, which source is used, uniform names across drivers, peaks.

catalogue! {
    after pcie;

    Exporter Default Info RDMA_PORT = "railscope_rdma_port_info" (device, port, pci, netdev, node_guid, port_guid, link_layer, driver, numa_node)
        "Identity of the port. Join with the subnet on node_guid and with PCIe series on pci.";
    Exporter Default Info RDMA_DEVICE = "railscope_rdma_device_info" (device, board, firmware, hca_type)
        "Board, firmware and type of the device. Separate from rdma_port_info because the firmware can change.";
    Exporter Full Info RDMA_PORT_ADDRESS = "railscope_rdma_port_address_info" (device, port, lid, sm_lid)
        "Addresses that the subnet manager assigned to the port.";
    Exporter Default Gauge RDMA_PORT_UP = "railscope_rdma_port_up" (device, port)
        "1 if the logical state of the port is ACTIVE.";
    Exporter Full Gauge RDMA_PORT_STATE = "railscope_rdma_port_state" (device, port)
        "Logical state: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER.";
    Exporter Full Gauge RDMA_PORT_PHYSICAL_STATE = "railscope_rdma_port_physical_state" (device, port)
        "Physical state: 1 Sleep, 2 Polling, 3 Disabled, 4 PortConfigurationTraining, 5 LinkUp, 6 LinkErrorRecovery, 7 PhyTest.";
    Exporter Default Gauge RDMA_PORT_SPEED = "railscope_rdma_port_speed_bytes_per_second" (device, port)
        "Current data rate of the port.";
    Exporter Full Gauge RDMA_PORT_WIDTH = "railscope_rdma_port_width_lanes" (device, port)
        "Current lanes of the port.";
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
        "PortXmitWait: ticks in which data waited for credits. The length of a tick is not fixed: compare ports of one type.";
    Exporter Default Counter RDMA_PORT_ERRORS = "railscope_rdma_port_errors_total" (device, port, kind)
        "Port error counters of the performance management agent. They stop at their maximum (see rdma_port_error_saturated) until they are cleared.";
    Exporter Default Gauge RDMA_PORT_ERROR_SATURATED = "railscope_rdma_port_error_saturated" (device, port, kind)
        "1 if this counter (kind is the kernel's file name) is at its maximum and counts no more until it is cleared. Absent while it still counts.";
    Exporter Default Counter RDMA_TRANSPORT_EVENTS = "railscope_rdma_transport_events_total" (device, port, event)
        "Transport events of the RDMA device, by the driver's counter name. 32 bits wide in hardware.";
    Exporter Default Counter RDMA_CNP = "railscope_rdma_cnp_total" (device, port, point, action)
        "Congestion notification packets (CNP): handled or ignored by the reaction point (rp), sent by the notification point (np).";
    Exporter Default Counter RDMA_ECN_MARKED = "railscope_rdma_ecn_marked_packets_total" (device, port)
        "RoCE packets received with an ECN congestion mark.";
    Exporter Full Counter RDMA_ICRC_ERRORS = "railscope_rdma_icrc_errors_total" (device, port)
        "RoCE packets received with a wrong invariant CRC.";
    Exporter Full Gauge RDMA_STATISTICS_LIFESPAN = "railscope_rdma_statistics_lifespan_seconds" ["seconds"] (device, port)
        "Time for which the device caches hw_counters: two reads within this time return equal values.";
    Exporter Full Info RDMA_STATISTICS_SOURCE = "railscope_rdma_statistics_source_info" (device, port, source)
        "Source of the port's hardware counters: netlink (NETLINK_RDMA, one query per port) or sysfs (hw_counters). Never both.";
    Exporter Full Info RDMA_QP_STATISTICS_MODE = "railscope_rdma_qp_statistics_mode_info" (device, port, mode)
        "Whether an operator has bound queue pairs to separate counters: none, auto or manual. The port counters contain their sum in every mode.";
    Exporter Full Gauge RDMA_OPTIONAL_STATISTIC_ENABLED = "railscope_rdma_optional_statistic_enabled" (device, port, counter)
        "1 if an operator has enabled this optional counter (rdma statistic set), 0 if not. Railscope never enables it: it uses steering rules.";
    Exporter Full Counter RDMA_OPTIONAL_STATISTICS = "railscope_rdma_optional_statistics_total" (device, port, counter)
        "Optional counters that are enabled, by the driver's counter name. They restart when they are enabled.";
    Exporter Default Info RDMA_NOT_READ = "railscope_rdma_not_read_info" (device, pci, reason)
        "Device whose counters Railscope does not read: switch_management (a bridge to NVSwitches that belongs to the Fabric Manager, identified by its VPD) or refused (the driver returns EINVAL). Further reads would fill the kernel log.";
    Exporter Full Info RDMA_SWITCHDEV_PORT = "railscope_rdma_switchdev_port_info" (device, netdev, switch_id, port_name, role)
        "Network interfaces of a device in switchdev mode by role: uplink, or the representor of a vf, sf or pf.";
    Exporter Full Counter RDMA_VPORT_EVENTS = "railscope_rdma_vport_events_total" (device, port, event)
        "Transport events of the function behind a port of the NIC's embedded switch (mlx5 in switchdev mode), by the driver's counter name. rdma_port_info has the port's representor. 32 bits wide in hardware.";
    Exporter Full Counter RDMA_DEVICE_EVENTS = "railscope_rdma_device_events_total" (device, event)
        "Counters of the whole device, by the driver's counter name: EFA commands, MANA congestion, and mlx5 in switchdev mode, where the port counters belong to other functions.";
    Exporter Full Counter RDMA_OPERATION_BYTES = "railscope_rdma_operation_bytes_total" ["bytes"] (device, port, operation)
        "Bytes by operation, by the driver's counter name: EFA payload by verb, irdma IP packets (irdma has no byte counter of the port).";
    Exporter Full Counter RDMA_RETRANSMITS = "railscope_rdma_retransmits_total" (device, port)
        "Retransmissions after an acknowledge timeout: mlx5 local_ack_timeout_err, bnxt_re to_retransmits, rxe completer_retry_err (rounds), EFA retrans_pkts, irdma RetransSegs (packets), MANA requester_timeout. Compare ports of one driver.";
    Exporter Full Counter RDMA_SEQUENCE_ERRORS = "railscope_rdma_sequence_errors_total" (device, port)
        "Sequence errors that the peer reported: packets were lost on the path to it. mlx5 packet_seq_err, bnxt_re seq_err_naks_rcvd, rxe rcvd_seq_err, irdma Nak Sequence Error, MANA requester_oos_nak.";
    Exporter Full Counter RDMA_RECEIVER_NOT_READY = "railscope_rdma_receiver_not_ready_total" (device, port)
        "Receiver-not-ready (RNR) NAKs from the peer: mlx5 rnr_nak_retry_err, bnxt_re rnr_naks_rcvd, rxe rcvd_rnr_err, irdma RNR received, MANA requester_rnr_nak.";
    Exporter Full Counter RDMA_RETRIES_EXCEEDED = "railscope_rdma_retries_exceeded_total" (device, port)
        "Connections that failed after the last retry: mlx5 req_transport_retries_exceeded, bnxt_re max_retry_exceeded, rxe retry_exceeded_err, MANA requester_retries_exceeded; the closest of EFA is unresponsive_remote_events.";
    Exporter Full Counter RDMA_NO_BUFFER = "railscope_rdma_no_buffer_total" (device, port)
        "Packets dropped because no receive buffer was posted: mlx5 out_of_buffer, bnxt_re rx_out_of_buffer, EFA rx_drops.";
    Exporter Full Gauge RDMA_PORT_PEAK_TRANSMIT = "railscope_rdma_port_peak_transmit_bytes_per_second" (device, port, window)
        "Highest transmit rate over one second in the rolling window: shows peaks that a 15 s scrape averages away. Indicates bursty load, not a fault. A scrape does not reset it.";
    Exporter Full Gauge RDMA_PORT_PEAK_RECEIVE = "railscope_rdma_port_peak_receive_bytes_per_second" (device, port, window)
        "Highest receive rate over one second in the rolling window. A scrape does not reset it.";
    Exporter Full Gauge RDMA_PORT_PEAK_WAIT = "railscope_rdma_port_peak_transmit_wait_ticks_per_second" (device, port, window)
        "Highest rate of PortXmitWait over one second in the rolling window.";
    Exporter Full Gauge RDMA_PORT_PEAK_CNP = "railscope_rdma_port_peak_cnp_per_second" (device, port, point, window)
        "Highest rate over one second of congestion notification packets (CNP) in the rolling window: handled by the reaction point (rp), sent by the notification point (np).";
}
