//! Ethernet NICs: counters of their drivers, configuration, neighbours. RoCE NICs by default.

catalogue! {
    after rdma;

    Exporter Default Counter NIC_PAUSE_SECONDS = "railscope_nic_pause_seconds_total" ["seconds"] (netdev, direction)
        "Time for which sending was paused by the peer (receive) or the peer was told to pause (transmit): PFC of all priorities and global pause together, so several paused priorities add up.";
    Exporter Default Gauge NIC_PEAK_PAUSE = "railscope_nic_peak_pause_ratio" ["ratio"] (netdev, direction, window)
        "Largest share of one second for which a priority (the most paused one) or the whole link was paused, in the rolling window: a storm of a second that a scrape every 15 s averages away. 15s by default, 60s in the full profile. Scraping resets nothing.";
    Exporter Full Counter NIC_PFC_PAUSE_SECONDS = "railscope_nic_pfc_pause_seconds_total" ["seconds"] (netdev, priority, direction)
        "Time for which a priority was paused by PFC. rate() is the share of time. Absent where PFC is off on the priority.";
    Exporter Full Counter NIC_PFC_FRAMES = "railscope_nic_pfc_frames_total" (netdev, priority, direction)
        "PFC frames by priority. Absent where PFC is off on the priority.";
    Exporter Full Counter NIC_PFC_TRANSITIONS = "railscope_nic_pfc_transitions_total" (netdev, priority, direction)
        "Times that a priority went from paused to not paused.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_SECONDS = "railscope_nic_global_pause_seconds_total" ["seconds"] (netdev, direction)
        "Time for which global pause (802.3x) held the whole link. Present only where it is enabled, which on a RoCE NIC is itself worth a look.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_FRAMES = "railscope_nic_global_pause_frames_total" (netdev, direction)
        "Global pause frames.";
    Exporter Full Counter NIC_GLOBAL_PAUSE_TRANSITIONS = "railscope_nic_global_pause_transitions_total" (netdev, direction)
        "Times that the link went from globally paused to not paused.";
    Exporter Full Counter NIC_PAUSE_STORMS = "railscope_nic_pause_storm_events_total" (netdev, severity)
        "Times that the NIC sent pause for a long time (warning), and so long that it stopped sending pause (error): then packets may have been dropped.";
    Exporter Default Counter NIC_DISCARDS = "railscope_nic_discards_total" (netdev, direction, reason)
        "Discarded packets by reason: buffer (port buffer full); if the driver counts host rings, sums of all rings: ring (full), checksum, error; in the full profile the driver's other reasons.";
    Exporter Full Gauge NIC_PEAK_DISCARDS = "railscope_nic_peak_discards_per_second" (netdev, direction, window)
        "Highest rate over one second at which packets were dropped for one reason (the most frequent one), in the rolling window.";
    Exporter Full Counter NIC_PRIORITY_DISCARDS = "railscope_nic_priority_receive_discards_total" (netdev, priority, reason)
        "Received packets of a priority that were dropped: buffer (no room in the port), host_buffer (no room for this host), congestion (of this host).";
    Exporter Full Counter NIC_ECN_MARKED = "railscope_nic_ecn_marked_packets_total" (netdev, priority)
        "Received packets that the NIC itself marked because its host is congested.";
    Exporter Full Counter NIC_BUFFER_THRESHOLD = "railscope_nic_receive_buffer_threshold_events_total" (netdev)
        "Times that the port's receive buffer passed its threshold (mlx5: 85 % full).";
    Exporter Full Counter NIC_OUT_OF_BUFFER = "railscope_nic_out_of_buffer_total" (netdev, scope)
        "Times that a receive queue of the netdev (netdev) or of the device itself (device) had no buffer. Not the out_of_buffer of RDMA queue pairs.";
    Exporter Full Counter NIC_PRIORITY_BYTES = "railscope_nic_priority_bytes_total" ["bytes"] (netdev, priority, direction)
        "Bytes by priority at the port, those of virtual functions included: shows whether RoCE really uses the lossless one.";
    Exporter Full Counter NIC_PRIORITY_PACKETS = "railscope_nic_priority_packets_total" (netdev, priority, direction)
        "Packets by priority at the port, those of virtual functions included.";
    Exporter Default Counter NIC_PHY_SYMBOL_ERRORS = "railscope_nic_phy_symbol_errors_total" (netdev)
        "Symbol errors that forward error correction did not mend.";
    Exporter Full Counter NIC_PHY_CORRECTED_BITS = "railscope_nic_phy_corrected_bits_total" (netdev)
        "Bits that forward error correction mended. Over phy_bits of the same window it is the corrected bit error rate.";
    Exporter Full Counter NIC_PHY_BITS = "railscope_nic_phy_bits_total" (netdev)
        "Bits that could have been received: the base of error rates.";
    Exporter Full Counter NIC_PHY_LANE_ERRORS = "railscope_nic_phy_lane_errors_total" (netdev, lane)
        "Raw errors of a lane, before correction.";
    Exporter Full Counter NIC_PHY_CRC_ERRORS = "railscope_nic_phy_crc_errors_total" (netdev)
        "Received frames with a wrong check sequence.";
    Exporter Full Counter NIC_PHY_FRAME_ERRORS = "railscope_nic_phy_frame_errors_total" (netdev, direction, kind)
        "Frames dropped at the port because they were wrong. oversize and out_of_range mean that the peer has a larger MTU; symbol, fragment and jabber are the cable's.";
    Exporter Full Counter NIC_PHY_LINK_DOWN = "railscope_nic_phy_link_down_events_total" (netdev)
        "Times that the link went down, as the port's firmware counts them.";
    Exporter Full Counter NIC_FEC_BLOCKS = "railscope_nic_fec_blocks_total" (netdev, outcome)
        "Blocks with errors that forward error correction mended (corrected) or could not mend (uncorrectable).";
    Exporter Default Counter NIC_PCIE_STALLED_SECONDS = "railscope_nic_pcie_stalled_seconds_total" ["seconds"] (netdev, operation)
        "Seconds in which the NIC could not do PCIe writes (write; read in the full profile) for more than 30 % of the time, for want of credits.";
    Exporter Full Gauge NIC_PCIE_STALLED = "railscope_nic_pcie_stalled_ratio" ["ratio"] (netdev, operation)
        "Share of the last second in which the NIC had PCIe operations to do and no credits.";
    Exporter Full Counter NIC_PCIE_OVERFLOW = "railscope_nic_pcie_buffer_overflow_packets_total" (netdev)
        "Packets dropped because the buffer towards PCIe was full.";
    Exporter Full Counter NIC_PCIE_SIGNAL_INTEGRITY = "railscope_nic_pcie_signal_integrity_errors_total" (netdev, direction)
        "PCIe recoveries for framing and CRC errors seen (receive) or started by the other side (transmit).";
    Exporter Full Counter NIC_MODULE_EVENTS = "railscope_nic_module_events_total" (netdev, event)
        "Events of the cable or optical module: bus_stuck, high_temperature, shorted, unplugged.";
    Exporter Full Info NIC = "railscope_nic_info" (netdev, pci, device, driver, numa_node)
        "What the network interface is; device is its RDMA device.";
    Exporter Full Gauge NIC_CARRIER = "railscope_nic_carrier" (netdev)
        "1 if the link is up. Absent while the interface is switched off.";
    Exporter Full Counter NIC_CARRIER_CHANGES = "railscope_nic_carrier_changes_total" (netdev)
        "Times that the link went up or down.";
    Exporter Full Gauge NIC_SPEED = "railscope_nic_speed_bytes_per_second" (netdev)
        "Data rate of the link now.";
    Exporter Full Gauge NIC_FULL_DUPLEX = "railscope_nic_full_duplex" (netdev)
        "1 if the link sends and receives at once.";
    Exporter Full Gauge NIC_MTU = "railscope_nic_mtu_bytes" ["bytes"] (netdev)
        "Largest packet that the interface sends.";
    Exporter Default Info NIC_LINK_DOWN_REASON = "railscope_nic_link_down_reason_info" (netdev, reason)
        "Why the link is down, in the words of the kernel. Absent while it is up, and where the driver does not know.";
    Exporter Full Gauge NIC_PFC_ENABLED = "railscope_nic_pfc_enabled" (netdev, priority)
        "1 if PFC is enabled on the priority. Peers must agree.";
    Exporter Full Gauge NIC_PRIORITY_CLASS = "railscope_nic_priority_traffic_class" (netdev, priority)
        "Number of the traffic class that sends the priority (ETS). Peers must agree.";
    Exporter Full Gauge NIC_CLASS_BANDWIDTH = "railscope_nic_traffic_class_bandwidth_ratio" ["ratio"] (netdev, traffic_class)
        "Share of the link that the traffic class is guaranteed when it sends (ETS). Absent where it does not share, but goes strictly before others or by a rule of the vendor.";
    Exporter Full Gauge NIC_GLOBAL_PAUSE_ENABLED = "railscope_nic_global_pause_enabled" (netdev, direction)
        "1 if global pause frames are obeyed (receive) or sent (transmit).";
    Exporter Full Info NIC_TRUST = "railscope_nic_trust_info" (netdev, trust)
        "By what the NIC tells a received packet's priority: pcp (VLAN tag) or dscp (IP header).";
    Exporter Full Info NIC_FEC = "railscope_nic_fec_info" (netdev, mode)
        "Forward error correction in use: off, rs, baser, llrs.";
    Exporter Full Gauge NIC_ECN_ENABLED = "railscope_nic_ecn_enabled" (netdev, point, priority)
        "1 if RoCE congestion control is enabled on the priority, at the notification point (np) or the reaction point (rp).";
    Exporter Full Gauge NIC_DCQCN_SETTING = "railscope_nic_dcqcn_setting" (netdev, point, setting)
        "A setting of RoCE congestion control, under the driver's name and in its unit. Peers must agree.";
    Exporter Full Info NETDEV_ADDRESS = "railscope_netdev_address_info" (netdev, address)
        "IP address of the interface of an RDMA port, or of its bond, at which probes of other nodes are answered; only where the exporter answers them. No link-local ones.";
    Exporter Default Info LLDP_NEIGHBOR = "railscope_lldp_neighbor_info" (netdev, chassis, port, system, description)
        "What stands at the other end of the cable, as it says by LLDP: chassis id, port id, system name, port description.";
}
