//! Switches: state and counters of their ports, read by a sweep of the subnet or from another exporter.
//!
//! `port` is the port's name as the fabric prints it: InfiniBand's decimal number, or `Ethernet48`.

catalogue! {
    after collector;

    Switch Full Info SWITCH = "railscope_switch_info" (vendor, model, firmware)
        "Identity of the switch as reported by its source; unknown fields are empty. InfiniBand: vendor and model are the ids of NodeInfo in hexadecimal.";
    Switch Full Gauge SWITCH_PORT_UP = "railscope_switch_port_up" (port)
        "1 if the port carries traffic: InfiniBand's logical state ACTIVE, Ethernet's operational status up.";
    Switch Full Gauge SWITCH_PORT_ENABLED = "railscope_switch_port_enabled" (port)
        "1 if the port is administratively enabled, 0 if someone disabled it. Only from exporters of others.";
    Switch Full Gauge SWITCH_PORT_SPEED = "railscope_switch_port_speed_bytes_per_second" (port)
        "Current data rate of the port. Absent while it has no link.";
    Switch Full Gauge SWITCH_PORT_WIDTH = "railscope_switch_port_width_lanes" (port)
        "Current lanes of the port. Absent while it has no link.";
    Switch Full Counter SWITCH_PORT_TRANSMIT_BYTES = "railscope_switch_port_transmit_bytes_total" ["bytes"] (port)
        "Bytes sent. InfiniBand: 4 x PortXmitData.";
    Switch Full Counter SWITCH_PORT_RECEIVE_BYTES = "railscope_switch_port_receive_bytes_total" ["bytes"] (port)
        "Bytes received. InfiniBand: 4 x PortRcvData.";
    Switch Full Counter SWITCH_PORT_TRANSMIT_PACKETS = "railscope_switch_port_transmit_packets_total" (port)
        "Packets sent.";
    Switch Full Counter SWITCH_PORT_RECEIVE_PACKETS = "railscope_switch_port_receive_packets_total" (port)
        "Packets received.";
    Switch Full Counter SWITCH_PORT_TRANSMIT_WAIT = "railscope_switch_port_transmit_wait_ticks_total" (port)
        "PortXmitWait: ticks in which data waited for credits. The length of a tick is not fixed: compare ports of one type.";
    Switch Full Counter SWITCH_PORT_DISCARDS = "railscope_switch_port_discards_total" (port, direction)
        "Valid packets that the port discarded while sending (transmit) or receiving (receive). InfiniBand: transmit is PortXmitDiscards, 16 bits wide.";
    Switch Full Counter SWITCH_PORT_ERRORS = "railscope_switch_port_errors_total" (port, kind)
        "Port errors by the kinds of rdma_port_errors_total, except kinds with their own metric here (link_downed, port_xmit_discards). InfiniBand counters stop at their maximum (see switch_port_saturated). Other sources use the closest kind, or receive and transmit for a sum of all kinds.";
    Switch Full Counter SWITCH_PORT_LINK_DOWNED = "railscope_switch_port_link_downed_total" (port)
        "Times that the port's link failed. InfiniBand: LinkDownedCounter, 8 bits wide.";
    Switch Full Counter SWITCH_PORT_CARRIER_CHANGES = "railscope_switch_port_carrier_changes_total" (port)
        "Times that the port's link went up or down.";
    Switch Full Gauge SWITCH_PORT_SATURATED = "railscope_switch_port_saturated" (port, kind)
        "1 if this counter (kind is the kernel's name, as in rdma_port_error_saturated) is at its maximum and counts no more until it is cleared. Absent while it still counts.";
    Switch Full Counter SWITCH_PORT_PFC_FRAMES = "railscope_switch_port_pfc_frames_total" (port, priority, direction)
        "PFC pause frames by priority.";
    Switch Full Counter SWITCH_PORT_PFC_PAUSE_SECONDS = "railscope_switch_port_pfc_pause_seconds_total" ["seconds"] (port, priority, direction)
        "Time for which PFC paused a priority: of this port by the peer (receive), or of the peer by this port (transmit).";
    Switch Full Counter SWITCH_PORT_ECN_MARKED = "railscope_switch_port_ecn_marked_packets_total" (port, priority)
        "Packets that the port marked with ECN congestion experienced; priority is empty for the whole port.";
    Switch Full Gauge SWITCH_PORT_QUEUE_WATERMARK = "railscope_switch_port_queue_watermark_bytes" ["bytes"] (port, priority, direction)
        "Highest buffer use of a priority since the switch last cleared it (egress queue for transmit, ingress buffer for receive). A watermark shows the peak, not its duration.";
}
