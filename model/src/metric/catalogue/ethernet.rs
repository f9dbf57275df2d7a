//! Ethernet NICs: counters of their drivers, configuration, neighbors. RoCE NICs by default.

catalogue! {
    after rdma;

    Exporter Default Counter NIC_PAUSE_SECONDS = "railscope_nic_pause_seconds_total" ["seconds"] (netdev, direction)
        "Time for which the peer paused this port (receive) or this port paused the peer (transmit): PFC of all priorities plus global pause, so the times of several paused priorities add up.";
    Exporter Default Gauge NIC_PEAK_PAUSE = "railscope_nic_peak_pause_ratio" ["ratio"] (netdev, direction, window)
        "Largest share of one second for which the most paused priority or the whole link was paused, in the rolling window: shows a storm of one second that a 15 s scrape averages away. Window 15s by default, also 60s in the full profile. A scrape does not reset it.";
    Exporter Full Counter NIC_PFC_PAUSE_SECONDS = "railscope_nic_pfc_pause_seconds_total" ["seconds"] (netdev, priority, direction)
        "Time for which PFC paused a priority. rate() is the share of time. Absent if PFC is off for the priority.";
    Exporter Full Counter NIC_PFC_FRAMES = "railscope_nic_pfc_frames_total" (netdev, priority, direction)
        "PFC pause frames by priority; without a priority where the driver counts those of all together. Absent if PFC is off for the priority.";
    Exporter Full Counter NIC_PFC_TRANSITIONS = "railscope_nic_pfc_transitions_total" (netdev, priority, direction)
        "Transitions of a priority from paused to not paused.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_SECONDS = "railscope_nic_global_pause_seconds_total" ["seconds"] (netdev, direction)
        "Time for which global pause (802.3x) stopped the whole link. Absent if global pause is off. If present on a RoCE NIC, check the configuration.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_FRAMES = "railscope_nic_global_pause_frames_total" (netdev, direction)
        "Global pause (802.3x) frames.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_TRANSITIONS = "railscope_nic_global_pause_transitions_total" (netdev, direction)
        "Transitions of the link from globally paused to not paused.";
    Exporter Full Counter NIC_PAUSE_STORMS = "railscope_nic_pause_storm_events_total" (netdev, severity)
        "Times that the NIC sent pause for a long time (warning), or for so long that it stopped sending pause (error), after which packets may have been dropped.";
    Exporter Default Counter NIC_DISCARDS = "railscope_nic_discards_total" (netdev, direction, reason)
        "Discarded packets by reason: buffer (port buffer full); if the driver counts host rings, sums of all rings: ring (full), checksum, error; in the full profile the driver's other reasons.";
    Exporter Full Gauge NIC_PEAK_DISCARDS = "railscope_nic_peak_discards_per_second" (netdev, direction, window)
        "Highest rate over one second of packets discarded for one reason (the most frequent one), in the rolling window.";
    Exporter Full Counter NIC_PRIORITY_DISCARDS = "railscope_nic_priority_receive_discards_total" (netdev, priority, reason)
        "Received packets of a priority that were discarded: buffer (port buffer full), host_buffer (buffer for this host full), congestion (this host is congested).";
    Exporter Full Counter NIC_ECN_MARKED = "railscope_nic_ecn_marked_packets_total" (netdev, priority)
        "Received packets that the NIC itself marked with ECN because its host is congested.";
    Exporter Full Counter NIC_BUFFER_THRESHOLD = "railscope_nic_receive_buffer_threshold_events_total" (netdev)
        "Times that the port's receive buffer exceeded its threshold (mlx5: 85 % full).";
    Exporter Full Counter NIC_OUT_OF_BUFFER = "railscope_nic_out_of_buffer_total" (netdev, scope)
        "Times that a receive queue of the network interface (netdev) or of the device itself (device) had no buffer. Different from out_of_buffer of RDMA queue pairs.";
    Exporter Full Counter NIC_PRIORITY_BYTES = "railscope_nic_priority_bytes_total" ["bytes"] (netdev, priority, direction)
        "Bytes by priority at the port, including virtual functions: shows whether RoCE uses the lossless priority.";
    Exporter Full Counter NIC_PRIORITY_PACKETS = "railscope_nic_priority_packets_total" (netdev, priority, direction)
        "Packets by priority at the port, including virtual functions.";
    Exporter Default Counter NIC_PHY_SYMBOL_ERRORS = "railscope_nic_phy_symbol_errors_total" (netdev)
        "Symbol errors that forward error correction (FEC) did not correct.";
    Exporter Full Counter NIC_PHY_CORRECTED_BITS = "railscope_nic_phy_corrected_bits_total" (netdev)
        "Bits that forward error correction (FEC) corrected. Divided by nic_phy_bits_total of the same window, the corrected bit error rate.";
    Exporter Full Counter NIC_PHY_BITS = "railscope_nic_phy_bits_total" (netdev)
        "Bits that could have been received: the divisor of error rates.";
    Exporter Full Counter NIC_PHY_LANE_ERRORS = "railscope_nic_phy_lane_errors_total" (netdev, lane)
        "Raw errors of a lane, before error correction.";
    Exporter Full Counter NIC_PHY_CRC_ERRORS = "railscope_nic_phy_crc_errors_total" (netdev)
        "Received frames with a wrong frame check sequence (CRC).";
    Exporter Full Counter NIC_RECEIVE_ERRORS = "railscope_nic_receive_errors_total" (netdev)
        "Received packets with an error of any kind, as the kernel counts them (rx_errors); only from node_exporter.";
    Exporter Full Counter NIC_PHY_FRAME_ERRORS = "railscope_nic_phy_frame_errors_total" (netdev, direction, kind)
        "Invalid frames dropped at the port. oversize and out_of_range: the peer has a larger MTU; symbol, fragment and jabber: errors of the cable.";
    Exporter Full Counter NIC_PHY_LINK_DOWN = "railscope_nic_phy_link_down_events_total" (netdev)
        "Times that the link went down, counted by the port's firmware.";
    Exporter Full Counter NIC_FEC_BLOCKS = "railscope_nic_fec_blocks_total" (netdev, outcome)
        "Blocks with errors that forward error correction (FEC) corrected (corrected) or could not correct (uncorrectable).";
    Exporter Default Counter NIC_PCIE_STALLED_SECONDS = "railscope_nic_pcie_stalled_seconds_total" ["seconds"] (netdev, operation)
        "Seconds in which the NIC lacked credits for PCIe writes (write; reads, read, in the full profile) for more than 30 % of the time.";
    Exporter Full Gauge NIC_PCIE_STALLED = "railscope_nic_pcie_stalled_ratio" ["ratio"] (netdev, operation)
        "Share of the last second in which the NIC had pending PCIe operations but no credits.";
    Exporter Full Counter NIC_PCIE_OVERFLOW = "railscope_nic_pcie_buffer_overflow_packets_total" (netdev)
        "Packets dropped because the buffer toward PCIe was full.";
    Exporter Full Counter NIC_PCIE_SIGNAL_INTEGRITY = "railscope_nic_pcie_signal_integrity_errors_total" (netdev, direction)
        "PCIe recoveries because of framing and CRC errors: detected here (receive) or started by the other side (transmit).";
    Exporter Full Counter NIC_MODULE_EVENTS = "railscope_nic_module_events_total" (netdev, event)
        "Events of the cable or optical module: bus_stuck, high_temperature, shorted, unplugged.";
    Exporter Full Info NIC = "railscope_nic_info" (netdev, pci, device, driver, numa_node)
        "Identity of the network interface; device is its RDMA device.";
    Exporter Full Info NIC_ADDRESS = "railscope_nic_address_info" (netdev, address)
        "MAC address of the network interface; only from node_exporter. Railscope's exporter exports GUIDs, which contain it.";
    Exporter Full Gauge NIC_CARRIER = "railscope_nic_carrier" (netdev)
        "1 if the link is up. Absent while the interface is administratively down.";
    Exporter Full Counter NIC_CARRIER_CHANGES = "railscope_nic_carrier_changes_total" (netdev)
        "Times that the link went up or down.";
    Exporter Full Gauge NIC_SPEED = "railscope_nic_speed_bytes_per_second" (netdev)
        "Current data rate of the link.";
    Exporter Full Gauge NIC_FULL_DUPLEX = "railscope_nic_full_duplex" (netdev)
        "1 if the link is full duplex.";
    Exporter Full Gauge NIC_MTU = "railscope_nic_mtu_bytes" ["bytes"] (netdev)
        "MTU: the largest packet that the interface sends.";
    Exporter Default Info NIC_LINK_DOWN_REASON = "railscope_nic_link_down_reason_info" (netdev, reason)
        "Reason that the kernel reports for a link that is down. Absent while the link is up, and if the driver reports no reason.";
    Exporter Full Gauge NIC_PFC_ENABLED = "railscope_nic_pfc_enabled" (netdev, priority)
        "1 if PFC is enabled for the priority. Must be equal on all peers.";
    Exporter Full Gauge NIC_PRIORITY_CLASS = "railscope_nic_priority_traffic_class" (netdev, priority)
        "Traffic class number to which the priority is mapped (ETS). Must be equal on all peers.";
    Exporter Full Gauge NIC_CLASS_BANDWIDTH = "railscope_nic_traffic_class_bandwidth_ratio" ["ratio"] (netdev, traffic_class)
        "Share of the link that is guaranteed to the traffic class when it sends (ETS). Absent if it has strict priority or a vendor-specific rule.";
    Exporter Full Gauge NIC_GLOBAL_PAUSE_ENABLED = "railscope_nic_global_pause_enabled" (netdev, direction)
        "1 if the NIC obeys (receive) or sends (transmit) global pause frames.";
    Exporter Full Info NIC_TRUST = "railscope_nic_trust_info" (netdev, trust)
        "Field that gives the priority of a received packet: pcp (VLAN tag) or dscp (IP header).";
    Exporter Full Info NIC_FEC = "railscope_nic_fec_info" (netdev, mode)
        "Active forward error correction (FEC): off, rs, baser, llrs.";
    Exporter Full Gauge NIC_ECN_ENABLED = "railscope_nic_ecn_enabled" (netdev, point, priority)
        "1 if RoCE congestion control is enabled for the priority at the notification point (np) or the reaction point (rp).";
    Exporter Full Gauge NIC_DCQCN_SETTING = "railscope_nic_dcqcn_setting" (netdev, point, setting)
        "Setting of RoCE congestion control (DCQCN), with the driver's name and unit. Must be equal on all peers.";
    Exporter Full Info NETDEV_ADDRESS = "railscope_netdev_address_info" (netdev, address)
        "IP address at which this exporter answers probes of other nodes: of the interface of an RDMA port, or of its bond. Absent if the exporter does not answer probes. Link-local addresses are omitted.";
    Exporter Default Info LLDP_NEIGHBOR = "railscope_lldp_neighbor_info" (netdev, chassis, port, system, description)
        "Neighbor at the other end of the cable, as it advertises by LLDP: chassis id, port id, system name, port description.";
}
