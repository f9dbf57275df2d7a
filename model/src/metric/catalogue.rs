//! The rows of the catalogue, in the order of the page.

catalogue! {
    // The node and the exporter itself.
    Exporter Default Info EXPORTER_BUILD = "railscope_exporter_build_info" (version)
        "Version of the exporter.";
    Exporter Default Info NODE = "railscope_node_info" (node, kernel, architecture, vendor, product)
        "What the node is: host name, kernel release, machine architecture, system vendor and product from DMI.";
    Exporter Default Gauge NODE_BOOT_TIME = "railscope_node_boot_time_seconds" ["seconds"] ()
        "When the kernel booted, Unix time. Counters that restart with the kernel began here.";
    Exporter Default Gauge NODE_NUMA_NODES = "railscope_node_numa_nodes" ()
        "NUMA nodes that are online.";
    Exporter Default Gauge NODE_CPUS = "railscope_node_cpus" ()
        "Logical CPUs that are online.";
    Exporter Default Gauge SOURCE_STATUS = "railscope_source_status" (source, device, status)
        "Always 1: whether a source could be read (ok, absent, unsupported, denied, unparsed, timeout, failed), for the whole source (empty device) and for each device where it differs.";
    Exporter Default Gauge SOURCE_AGE = "railscope_source_age_seconds" ["seconds"] (source)
        "Time since the source was last read to the end. A source that hangs grows old here while the others stay fresh.";
    Exporter Default Gauge SOURCE_DURATION = "railscope_source_duration_seconds" ["seconds"] (source)
        "Time that the last complete read of the source took.";
    Exporter Default Counter SOURCE_ERRORS = "railscope_source_errors_total" (source)
        "Reads of single values that failed or could not be parsed. The value is then absent, never zero.";
    Exporter Default Gauge EXPORTER_SERIES = "railscope_exporter_series" (profile)
        "Series on the page in each profile.";
    Exporter Default Counter EXPORTER_DROPPED = "railscope_exporter_dropped_samples_total" ()
        "Samples left off the page because another sample had the same name and labels. Above zero is a defect of Railscope.";

    // GPUs, by NVML.
    Exporter Default Info GPU = "railscope_gpu_info" (gpu, uuid, pci, name, serial, vbios, driver, architecture, numa_node)
        "What each GPU is. Join on gpu.";
    Exporter Default Gauge GPU_UTILIZATION = "railscope_gpu_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which at least one kernel ran. A GPU that waits inside a collective also shows 1.";
    Exporter Full Gauge GPU_MEMORY_UTILIZATION = "railscope_gpu_memory_utilization_ratio" ["ratio"] (gpu)
        "Share of the last NVML sample period in which device memory was read or written.";
    Exporter Default Gauge GPU_MEMORY_USED = "railscope_gpu_memory_used_bytes" ["bytes"] (gpu)
        "Device memory in use, the driver's reserve included.";
    Exporter Default Gauge GPU_MEMORY_SIZE = "railscope_gpu_memory_size_bytes" ["bytes"] (gpu)
        "Device memory in all.";
    Exporter Full Gauge GPU_MEMORY_RESERVED = "railscope_gpu_memory_reserved_bytes" ["bytes"] (gpu)
        "Device memory that the driver keeps for itself.";
    Exporter Default Gauge GPU_CLOCK = "railscope_gpu_clock_hertz" ["hertz"] (gpu, clock)
        "Current clock: sm or memory; graphics and video in the full profile.";
    Exporter Full Gauge GPU_CLOCK_MAX = "railscope_gpu_clock_max_hertz" ["hertz"] (gpu, clock)
        "Highest clock that the GPU can run at: sm, memory.";
    Exporter Full Gauge GPU_CLOCK_EVENT = "railscope_gpu_clock_event_active" (gpu, reason)
        "1 while the driver holds the clock down for this reason. sw_power_cap is normal under load: compare with peers.";
    Exporter Default Counter GPU_CLOCK_EVENT_SECONDS = "railscope_gpu_clock_event_seconds_total" ["seconds"] (gpu, reason)
        "Time for which the driver has held the clock down for this reason, since it was loaded. A duration, so nothing between two samples is lost.";
    Exporter Default Gauge GPU_POWER = "railscope_gpu_power_watts" ["watts"] (gpu)
        "Power drawn by the board.";
    Exporter Default Gauge GPU_POWER_LIMIT = "railscope_gpu_power_limit_watts" ["watts"] (gpu)
        "Power limit that is enforced now. A GPU capped below its peers is a straggler.";
    Exporter Default Counter GPU_ENERGY = "railscope_gpu_energy_joules_total" ["joules"] (gpu)
        "Energy used since the driver was loaded.";
    Exporter Default Gauge GPU_TEMPERATURE = "railscope_gpu_temperature_celsius" ["celsius"] (gpu, sensor)
        "Temperature of the die (gpu) and, where the board has the sensor, of its memory (memory).";
    Exporter Full Gauge GPU_TEMPERATURE_LIMIT = "railscope_gpu_temperature_limit_celsius" ["celsius"] (gpu, limit)
        "Temperature at which the GPU slows down (slowdown) or switches off (shutdown).";
    Exporter Default Counter GPU_ECC_ERRORS = "railscope_gpu_ecc_errors_total" (gpu, severity)
        "ECC errors since the driver was loaded: corrected, uncorrected.";
    Exporter Full Gauge GPU_ECC_ENABLED = "railscope_gpu_ecc_enabled" (gpu)
        "1 if ECC is switched on.";
    Exporter Full Gauge GPU_ROW_REMAP_PENDING = "railscope_gpu_row_remap_pending" (gpu)
        "1 if a row remap waits for a reset of the GPU.";
    Exporter Full Gauge GPU_ROW_REMAP_FAILED = "railscope_gpu_row_remap_failed" (gpu)
        "1 if a row remap has failed: the GPU is due for replacement.";
    Exporter Full Gauge GPU_PERFORMANCE_STATE = "railscope_gpu_performance_state" (gpu)
        "NVML performance state: 0 is the fastest.";
    Exporter Default Counter GPU_PCIE_REPLAYS = "railscope_gpu_pcie_replays_total" (gpu)
        "PCIe packets that the GPU sent again.";
    Exporter Full Gauge GPU_PCIE_LINK_GENERATION = "railscope_gpu_pcie_link_generation" (gpu)
        "PCIe generation now, as the GPU's driver sees it. An idle GPU trains down to save power.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH = "railscope_gpu_pcie_link_width_lanes" (gpu)
        "PCIe lanes now, as the GPU's driver sees it; the only source where a hypervisor hides sysfs.";
    Exporter Full Gauge GPU_PCIE_LINK_WIDTH_MAX = "railscope_gpu_pcie_link_max_width_lanes" (gpu)
        "PCIe lanes that the GPU and its slot allow.";

    // NVLink: per GPU by default, per link in the full profile.
    Exporter Default Gauge NVLINKS = "railscope_gpu_nvlinks" (gpu)
        "NVLinks that the GPU has.";
    Exporter Default Gauge NVLINKS_ACTIVE = "railscope_gpu_nvlinks_active" (gpu)
        "NVLinks that are up. Some boards leave links unused by design: compare with peers.";
    Exporter Default Counter GPU_NVLINK_ERRORS = "railscope_gpu_nvlink_errors_total" (gpu, kind)
        "NVLink errors summed over the GPU's links: replay, recovery (both before Blackwell), crc_flit, crc_data; symbol and recovery_event from Blackwell on; the other kinds of NVLink 5 in the full profile.";
    Exporter Default Gauge GPU_NVLINK_WORST_ERRORS = "railscope_gpu_nvlink_worst_link_errors" (gpu)
        "Errors of all kinds on the GPU's worst NVLink, so that one bad link does not drown in the sum.";
    Exporter Full Gauge NVLINK_STATE = "railscope_nvlink_up" (gpu, link)
        "1 if the link is up.";
    Exporter Full Counter NVLINK_ERRORS = "railscope_nvlink_errors_total" (gpu, link, kind)
        "NVLink errors: replay, recovery, crc_flit, crc_data; from Blackwell on also malformed, overrun, receive, remote, general, integrity, discard, recovery_ok, recovery_failed, recovery_event, symbol.";
    Exporter Full Info NVLINK_PEER = "railscope_nvlink_peer_info" (gpu, link, peer_pci, peer_type)
        "What the other end of the link is.";

    // PCIe: endpoints by default, every hop in the full profile.
    Exporter Default Gauge PCIE_LINK_WIDTH = "railscope_pcie_link_width_lanes" (pci)
        "Lanes that the link above this function runs with.";
    Exporter Default Gauge PCIE_LINK_WIDTH_MAX = "railscope_pcie_link_max_width_lanes" (pci)
        "Lanes that this function could run with.";
    Exporter Full Gauge PCIE_LINK_SPEED = "railscope_pcie_link_transfers_per_second" (pci)
        "Transfers per second and lane of the link above this function. An idle GPU trains down: judge it under load only.";
    Exporter Full Gauge PCIE_LINK_SPEED_MAX = "railscope_pcie_link_max_transfers_per_second" (pci)
        "Transfers per second and lane that this function could run with.";
    Exporter Full Counter PCIE_AER_ERRORS = "railscope_pcie_aer_errors_total" (pci, severity, error)
        "PCIe Advanced Error Reporting: errors by severity (correctable, nonfatal, fatal) and name. Names that have never counted are left out.";
    Exporter Full Counter PCIE_ERRORS = "railscope_pcie_errors_total" (pci, severity)
        "PCIe Advanced Error Reporting: errors by severity, all names together. Zero until the first; absent where the function or the firmware reports none.";
    Exporter Default Info PCIE_PATH = "railscope_pcie_path_info" (pci, kind, name, parent, root_port, numa_node)
        "Where the function hangs: its next bridge up, its root port and NUMA node. kind is gpu, nic or bridge; name is the GPU ordinal or RDMA device.";

    // Placement.
    Exporter Default Info GPU_NIC = "railscope_gpu_nic_info" (gpu, device, hop, nearest)
        "How far a NIC is from a GPU: PIX one PCIe switch, PXB several, PHB the host bridge, NODE the same NUMA node, SYS another. The nearest by default, every pair in the full profile.";

    // RDMA ports.
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

    // Ethernet NICs: counters of their drivers, configuration, neighbours. RoCE NICs by default.
    Exporter Default Counter NIC_PAUSE_SECONDS = "railscope_nic_pause_seconds_total" ["seconds"] (netdev, direction)
        "Time for which sending was paused by the peer (receive) or the peer was told to pause (transmit): PFC of all priorities and global pause together, so several paused priorities add up.";
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
        "Packets dropped without being wrong, at the port: buffer (no room), and in the full profile the driver's other reasons.";
    Exporter Full Counter NIC_PRIORITY_DISCARDS = "railscope_nic_priority_receive_discards_total" (netdev, priority, reason)
        "Received packets of a priority that were dropped: buffer (no room in the port), host_buffer (no room for this host), congestion (of this host).";
    Exporter Full Counter NIC_ECN_MARKED = "railscope_nic_ecn_marked_packets_total" (netdev, priority)
        "Received packets that the NIC itself marked because its host is congested.";
    Exporter Full Counter NIC_BUFFER_THRESHOLD = "railscope_nic_receive_buffer_threshold_events_total" (netdev)
        "Times that the port's receive buffer passed its threshold (mlx5: 85 % full).";
    Exporter Full Counter NIC_OUT_OF_BUFFER = "railscope_nic_out_of_buffer_total" (netdev, scope)
        "Times that a receive queue of the netdev (netdev) or of the device itself (device) had no buffer. Not the out_of_buffer of RDMA queue pairs.";
    Exporter Full Counter NIC_PRIORITY_BYTES = "railscope_nic_priority_bytes_total" ["bytes"] (netdev, priority, direction)
        "Bytes by priority: shows whether RoCE really uses the lossless one.";
    Exporter Full Counter NIC_PRIORITY_PACKETS = "railscope_nic_priority_packets_total" (netdev, priority, direction)
        "Packets by priority.";
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
    Exporter Default Info LLDP_NEIGHBOR = "railscope_lldp_neighbor_info" (netdev, chassis, port, system, description)
        "What stands at the other end of the cable, as it says by LLDP: chassis id, port id, system name, port description.";
    // Deployment model and SR-IOV.
    Exporter Default Info DEPLOYMENT = "railscope_deployment_info" (model, hypervisor, cloud, container, orchestrator)
        "What the node is to its software: model is bare_metal, virtual_machine or unknown; the others name what was found and are empty where nothing was. container is what the exporter itself runs in.";
    Exporter Default Info NIC_SRIOV = "railscope_nic_sriov_info" (device, pci, role, pf)
        "SR-IOV role of a network function: physical or virtual, and the PCI address of a virtual one's physical function, which a virtual machine does not see. By default where virtual functions are in use; those of a host in the full profile.";
    Exporter Default Gauge NIC_VFS = "railscope_nic_virtual_functions" (device, pci)
        "Virtual functions that are switched on at a physical function. By default where there are any.";
    Exporter Full Gauge NIC_VFS_MAX = "railscope_nic_max_virtual_functions" (device, pci)
        "Virtual functions that a physical function can have.";

    // Whose work runs on the devices.
    Exporter Default Info WORKLOAD = "railscope_workload_info" (gpu, mig, device, pci, claim, namespace, workload, container, hpc_job)
        "Who holds a device: a container of a pod (namespace, workload, container) or a job of a batch system (hpc_job: job itself would be the label by which Prometheus names its scrapes). gpu and device (RDMA) where one container holds both, nearest paired; pci is the NIC's function, or the GPU's where there is no NIC. mig is a MIG instance (UUID or GPU instance id), claim a DRA device (driver/pool/device). Empty where it does not apply; at most 256 series.";
    Exporter Full Gauge WORKLOAD_DEVICES = "railscope_workload_devices" (state)
        "Devices that workloads hold, by what became of them: named (in workload_info), unknown (an id that names no device of this node), stale (a job that the node no longer runs), dropped (beyond the limit of workload_info).";

    // RDMA: which source was believed, what happened to counters, representors, one vocabulary over drivers, peaks.
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
    Exporter Full Counter RDMA_DEVICE_EVENTS = "railscope_rdma_device_events_total" (device, event)
        "Counters of the whole device (EFA: commands to it, and those that failed), under the names of its driver.";
    Exporter Full Counter RDMA_OPERATION_BYTES = "railscope_rdma_operation_bytes_total" ["bytes"] (device, port, operation)
        "Payload bytes by operation, under the names of the driver (EFA).";
    Exporter Full Counter RDMA_RETRANSMITS = "railscope_rdma_retransmits_total" (device, port)
        "Retransmissions after an acknowledge timeout, on every driver: mlx5 local_ack_timeout_err, bnxt_re to_retransmits, rxe completer_retry_err (rounds), EFA retrans_pkts, irdma RetransSegs (packets). Compare within one driver.";
    Exporter Full Counter RDMA_SEQUENCE_ERRORS = "railscope_rdma_sequence_errors_total" (device, port)
        "Sequence errors that the peer reported, so packets were lost on the way there: mlx5 packet_seq_err, bnxt_re seq_err_naks_rcvd, rxe rcvd_seq_err.";
    Exporter Full Counter RDMA_RECEIVER_NOT_READY = "railscope_rdma_receiver_not_ready_total" (device, port)
        "Receiver-not-ready answers of the peer: mlx5 rnr_nak_retry_err, bnxt_re rnr_naks_rcvd, rxe rcvd_rnr_err.";
    Exporter Full Counter RDMA_RETRIES_EXCEEDED = "railscope_rdma_retries_exceeded_total" (device, port)
        "Connections given up after the last retry: mlx5 req_transport_retries_exceeded, bnxt_re max_retry_exceeded, rxe retry_exceeded_err; EFA unresponsive_remote_events is the nearest it has.";
    Exporter Full Counter RDMA_NO_BUFFER = "railscope_rdma_no_buffer_total" (device, port)
        "Packets dropped because no receive buffer was posted: mlx5 out_of_buffer, bnxt_re rx_out_of_buffer, EFA rx_drops.";
    Exporter Default Gauge RDMA_PORT_PEAK_TRANSMIT = "railscope_rdma_port_peak_transmit_bytes_per_second" (device, port, window)
        "Highest rate over one second in the rolling window: what a scrape every 15 s averages away. 15s by default, 60s in the full profile. Scraping resets nothing.";
    Exporter Default Gauge RDMA_PORT_PEAK_RECEIVE = "railscope_rdma_port_peak_receive_bytes_per_second" (device, port, window)
        "Highest rate over one second in the rolling window: 15s by default, 60s in the full profile. Scraping resets nothing.";
    Exporter Full Gauge RDMA_PORT_PEAK_WAIT = "railscope_rdma_port_peak_transmit_wait_ticks_per_second" (device, port, window)
        "Highest rate of PortXmitWait over one second in the rolling window.";
    Exporter Full Counter SOURCE_RESETS = "railscope_source_resets_total" (source)
        "Times that counters of a port fell while watched, other than by running over their width: somebody cleared them, or the driver was loaded anew.";
    Exporter Full Counter SOURCE_WRAPS = "railscope_source_wraps_total" (source)
        "Counters that ran over their width and began again while watched (32-bit queue counters). rate() over such a step is too low.";
    Exporter Full Gauge SOURCE_EPOCH = "railscope_source_epoch_seconds" ["seconds"] (source)
        "When counters of the source last began anew as far as is known, Unix time: a device that came or counters that fell while this exporter watched, and the boot of the kernel until then.";

    // PCIe configuration space and IOMMU.
    Exporter Full Info PCIE_CONFIG = "railscope_pcie_config_info" (pci, relaxed_ordering, extended_tags, acs)
        "Settings of the function: relaxed ordering and extended tags on or off; acs is none (no such capability), off, or the controls that are on.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD = "railscope_pcie_max_payload_bytes" ["bytes"] (pci)
        "Largest payload of one packet that the function sends.";
    Exporter Full Gauge PCIE_MAX_PAYLOAD_SUPPORTED = "railscope_pcie_max_payload_supported_bytes" ["bytes"] (pci)
        "Largest payload of one packet that the function could send.";
    Exporter Full Gauge PCIE_MAX_READ_REQUEST = "railscope_pcie_max_read_request_bytes" ["bytes"] (pci)
        "Largest read that the function asks for at once. Small ones throttle GPUDirect.";
    Exporter Full Gauge PCIE_ACS_ON_PATH = "railscope_pcie_acs_redirecting_hops" (pci)
        "Ports above this GPU or NIC whose access control (ACS) sends peer-to-peer packets up to the root complex: 0 is what GPUDirect wants. Absent where a port's configuration could not be read.";
    Exporter Full Info PCIE_IOMMU = "railscope_pcie_iommu_info" (pci, group, type)
        "IOMMU group of the function and how it translates: identity passes addresses through, DMA and DMA-FQ translate them.";
    // GPUs in depth, by NVML and the kernel log.
    Exporter Default Gauge GPU_RECOVERY_ACTION = "railscope_gpu_recovery_action" (gpu)
        "What the driver says the GPU needs: 0 nothing, 1 a reset, 2 a reboot of the node, 3 drain its peers, 4 drain and reset.";
    Exporter Default Gauge GPU_PROCESSES = "railscope_gpu_processes" (gpu, kind)
        "Processes with a context on the GPU: compute; graphics and mps in the full profile. More than one compute process is time-slicing.";
    Exporter Default Counter GPU_XID_EVENTS = "railscope_gpu_xid_events_total" (gpu, xid, source)
        "XID errors since the exporter's source began to listen, by who told: nvml or kmsg (the kernel log). Each misses some, so both are kept. A GPU that the node no longer shows has no ordinal: gpu is empty. Alert on the timestamp: a first event has no zero before it.";
    Exporter Default Gauge GPU_XID_TIMESTAMP = "railscope_gpu_xid_last_timestamp_seconds" ["seconds"] (gpu, xid, source)
        "When this XID was last reported, Unix time; from the kernel log also for those of before the exporter's start.";
    Exporter Default Counter GPU_EVENTS = "railscope_gpu_events_total" (gpu, event)
        "Other events that NVML told since the worker began to listen, once seen: double_bit_ecc, ecc_storm, dram_retirement, dram_retirement_failure, poison, fatal_poison, unavailable, recovery_action.";
    Exporter Default Counter NVSWITCH_SXID_EVENTS = "railscope_nvswitch_sxid_events_total" (pci, sxid, severity)
        "SXid errors of NVSwitches in the kernel log since the exporter began to read it; severity is fatal, nonfatal or empty.";
    Exporter Default Gauge NVSWITCH_SXID_TIMESTAMP = "railscope_nvswitch_sxid_last_timestamp_seconds" ["seconds"] (pci, sxid, severity)
        "When this SXid last stood in the kernel log, Unix time.";
    Exporter Full Counter GPU_ROW_REMAPS = "railscope_gpu_row_remaps_total" (gpu, cause)
        "Memory rows replaced in the GPU's life, because of correctable or uncorrectable errors.";
    Exporter Full Counter GPU_ECC_LIFETIME_ERRORS = "railscope_gpu_ecc_lifetime_errors_total" (gpu, severity)
        "ECC errors in the GPU's life: corrected, uncorrected.";
    Exporter Full Gauge GPU_POWER_SCOPE = "railscope_gpu_power_scope_watts" ["watts"] (gpu, scope, window)
        "Power by scope and window: gpu instant; memory average; module (GPU and CPU of a Grace module) average and instant.";
    Exporter Full Gauge GPU_POWER_LIMIT_RANGE = "railscope_gpu_power_limit_range_watts" ["watts"] (gpu, limit)
        "Power limits: min and max that can be set, default after a driver load, requested by the administrator.";
    Exporter Full Gauge GPU_TEMPERATURE_MARGIN = "railscope_gpu_temperature_margin_celsius" ["celsius"] (gpu)
        "Degrees left until the GPU slows itself down; negative above.";
    Exporter Full Gauge GPU_BAR1_USED = "railscope_gpu_bar1_used_bytes" ["bytes"] (gpu)
        "Mapped part of the window through which hosts and NICs reach the GPU's memory.";
    Exporter Full Gauge GPU_BAR1_SIZE = "railscope_gpu_bar1_size_bytes" ["bytes"] (gpu)
        "The whole of that window.";
    Exporter Full Counter GPU_PCIE_ERRORS = "railscope_gpu_pcie_errors_total" (gpu, kind)
        "PCIe errors as the GPU counts them: replay_rollover, l0_to_recovery, correctable, nak_received, nak_sent, receiver, bad_tlp, bad_dllp, non_fatal, fatal, unsupported_request, lcrc.";
    Exporter Full Counter GPU_PCIE_LANE_ERRORS = "railscope_gpu_pcie_lane_errors_total" (gpu, lane)
        "PCIe errors of one lane of the GPU's link.";
    Exporter Full Counter GPU_PCIE_TRANSMIT_BYTES = "railscope_gpu_pcie_transmit_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from GPU to host, NVML field 197. NVIDIA says that it can wrap and not when: once it falls below 2^32 while the driver's energy counter does not, it is left out (see counter_wrapped).";
    Exporter Full Counter GPU_PCIE_RECEIVE_BYTES = "railscope_gpu_pcie_receive_bytes_total" ["bytes"] (gpu)
        "PCIe bytes from host to GPU, NVML field 198; as transmit.";
    Exporter Full Gauge GPU_COUNTER_WRAPPED = "railscope_gpu_counter_wrapped" (gpu, counter)
        "1 if this counter was seen to wrap at 32 bits. It may wrap several times between two samples, so its value is left out. Absent otherwise.";
    Exporter Full Gauge GPU_FABRIC_STATE = "railscope_gpu_fabric_state" (gpu)
        "Registration of the GPU with the NVLink fabric manager: 1 not started, 2 in progress, 3 completed. Absent on boards without NVSwitch.";
    Exporter Full Gauge GPU_FABRIC_STATUS = "railscope_gpu_fabric_status" (gpu)
        "Result of a completed registration, an nvmlReturn_t: 0 is success.";
    Exporter Full Info GPU_FABRIC = "railscope_gpu_fabric_info" (gpu, cluster_uuid, clique)
        "NVLink domain and clique of the GPU, once registered: GPUs that share both reach each other by NVLink.";
    Exporter Full Gauge GPU_FABRIC_UNHEALTHY = "railscope_gpu_fabric_unhealthy" (gpu, cause)
        "1 if the NVLink fabric is unwell for the GPU: degraded_bandwidth, route_recovery, route_unhealthy, access_timeout, system_guid, chassis_serial, no_partition, insufficient_nvlinks. Absent where the board does not tell.";
    Exporter Full Info GPU_PLATFORM = "railscope_gpu_platform_info" (gpu, chassis_serial, slot, tray, host, peer_type, module, fabric_guid)
        "Where the GPU sits: rack chassis, slot, tray, host (Blackwell racks), and its module on the board.";
    Exporter Full Info GPU_VIRTUALIZATION = "railscope_gpu_virtualization_info" (gpu, mode, host_mode)
        "How the GPU is given to guests: mode is none, passthrough, vgpu, host_vgpu or host_vsga; host_mode is sriov, non_sriov or empty.";
    Exporter Full Gauge GPU_MIG_ENABLED = "railscope_gpu_mig_enabled" (gpu)
        "1 if the GPU is partitioned into MIG instances.";
    Exporter Default Info MIG = "railscope_mig_info" (gpu, gpu_instance, compute_instance, uuid, profile)
        "MIG devices, while there are any.";
    Exporter Full Gauge MIG_MEMORY_USED = "railscope_mig_memory_used_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory in use of a GPU instance; its compute instances share it.";
    Exporter Full Gauge MIG_MEMORY_SIZE = "railscope_mig_memory_size_bytes" ["bytes"] (gpu, gpu_instance)
        "Memory of a GPU instance.";
    Exporter Full Gauge GPU_SM_ACTIVE = "railscope_gpu_sm_active_ratio" ["ratio"] (gpu)
        "Share of SMs that had work, over the time between two samples of the worker. Hopper and later.";
    Exporter Full Gauge GPU_SM_OCCUPANCY = "railscope_gpu_sm_occupancy_ratio" ["ratio"] (gpu)
        "Warps that were resident, of the most that could be. Hopper and later.";
    Exporter Full Gauge GPU_TENSOR_ACTIVE = "railscope_gpu_tensor_active_ratio" ["ratio"] (gpu)
        "Share of time in which SMs did tensor operations. Hopper and later.";
    Exporter Full Gauge GPU_DRAM_BANDWIDTH = "railscope_gpu_dram_bandwidth_ratio" ["ratio"] (gpu)
        "Memory bandwidth in use, of the most there is. Hopper and later.";
    Exporter Full Gauge GPU_PCIE_TRANSMIT_RATE = "railscope_gpu_pcie_transmit_bytes_per_second" (gpu)
        "PCIe traffic from GPU to host, mean over the time between two samples of the worker. Hopper and later.";
    Exporter Full Gauge GPU_PCIE_RECEIVE_RATE = "railscope_gpu_pcie_receive_bytes_per_second" (gpu)
        "PCIe traffic from host to GPU; as transmit.";
    Exporter Full Gauge GPU_NVLINK_TRANSMIT_RATE = "railscope_gpu_nvlink_transmit_bytes_per_second" (gpu)
        "NVLink traffic sent, mean over the time between two samples of the worker; a check on the byte counters. Hopper and later.";
    Exporter Full Gauge GPU_NVLINK_RECEIVE_RATE = "railscope_gpu_nvlink_receive_bytes_per_second" (gpu)
        "NVLink traffic received; as transmit.";
    Exporter Default Counter GPU_NVLINK_TRANSMIT_BYTES = "railscope_gpu_nvlink_transmit_bytes_total" ["bytes"] (gpu)
        "Payload sent over all NVLinks of the GPU. A link that stops answering keeps its last count in the sum.";
    Exporter Default Counter GPU_NVLINK_RECEIVE_BYTES = "railscope_gpu_nvlink_receive_bytes_total" ["bytes"] (gpu)
        "Payload received over all NVLinks of the GPU.";
    Exporter Full Counter NVLINK_TRANSMIT_BYTES = "railscope_nvlink_transmit_bytes_total" ["bytes"] (gpu, link)
        "Payload sent over the link: NVML field 202 from Blackwell on, before that 1024 x field 138, which counts KiB.";
    Exporter Full Counter NVLINK_RECEIVE_BYTES = "railscope_nvlink_receive_bytes_total" ["bytes"] (gpu, link)
        "Payload received over the link: NVML field 204 from Blackwell on, before that 1024 x field 139.";
    Exporter Full Counter NVLINK_TRANSMIT_PACKETS = "railscope_nvlink_transmit_packets_total" (gpu, link)
        "Packets sent over the link. Blackwell and later.";
    Exporter Full Counter NVLINK_RECEIVE_PACKETS = "railscope_nvlink_receive_packets_total" (gpu, link)
        "Packets received over the link. Blackwell and later.";
    Exporter Full Gauge NVLINK_SPEED = "railscope_nvlink_speed_bytes_per_second" (gpu, link)
        "Speed of the link in one direction.";
    Exporter Full Gauge NVLINK_SYMBOL_BER = "railscope_nvlink_symbol_ber_ratio" ["ratio"] (gpu, link)
        "Symbol error rate after error correction, as the link reports it. Read every 30 s. Blackwell and later.";
    Exporter Full Counter NVLINK_FEC_CODEWORDS = "railscope_nvlink_fec_codewords_total" (gpu, link, corrected)
        "Code words by how many of their symbols error correction had to mend, 0 to 15: bins that fill from above announce a bad link. Read every 30 s. Blackwell and later.";
    Exporter Full Gauge C2C_UP = "railscope_c2c_link_up" (gpu, link)
        "1 if the chip-to-chip link between GPU and Grace CPU is up.";
    Exporter Full Gauge C2C_SPEED = "railscope_c2c_link_speed_bytes_per_second" (gpu, link)
        "Speed of the chip-to-chip link.";
    Exporter Full Counter C2C_ERRORS = "railscope_c2c_link_errors_total" (gpu, link, kind)
        "Errors of the chip-to-chip link: interrupt, replay, replay_back_to_back.";
    Exporter Full Counter NVML_CALLS = "railscope_nvml_calls_total" (gpu, call)
        "Calls into NVML since the worker started, by what they ask about.";
    Exporter Full Counter NVML_CALL_SECONDS = "railscope_nvml_call_seconds_total" ["seconds"] (gpu, call)
        "Time spent in those calls. A driver that sickens answers slower before it hangs.";
    // The host: stalls, the scheduler, the way to storage.
    Exporter Default Counter HOST_STALLS = "railscope_host_stalls_total" (numa_node, threshold)
        "Wake-ups of the timer probe that came later than the threshold: 50us, 200us, 1000us, the shorter ones counting the longer too. One stall counts once, and only if a timer of the probe was due in it: compare with peers and with host_timer_period_seconds.";
    Exporter Default Gauge HOST_TIMER_DELAY_MAX = "railscope_host_timer_delay_max_seconds" ["seconds"] (numa_node)
        "Latest wake-up of the timer probe in the last minute.";
    Exporter Full Histogram HOST_TIMER_DELAY = "railscope_host_timer_delay_seconds" ["seconds"] (numa_node)
        "How late a thread that sleeps until a given instant wakes on a CPU of the NUMA node: hypervisor stalls, firmware interrupts, long interrupt handlers, waiting for the CPU, and the time an idle CPU needs to leave its sleep state.";
    Exporter Full Gauge HOST_TIMER_PERIOD = "railscope_host_timer_period_seconds" ["seconds"] (numa_node)
        "Time between two wake-ups of the timer probe: the shortest of 1 to 50 ms that costs at most 0.15 % of one CPU here. A stall shorter than this is seen with the chance length / period.";
    Exporter Full Counter CPU_STEAL = "railscope_cpu_steal_seconds_total" ["seconds"] (numa_node)
        "Time for which the hypervisor ran something else while a CPU of the NUMA node had work, summed over its CPUs.";
    Exporter Full Counter CPU_RUN = "railscope_cpu_run_seconds_total" ["seconds"] (numa_node)
        "Time that tasks ran, summed over the CPUs of the NUMA node.";
    Exporter Full Counter CPU_WAIT = "railscope_cpu_wait_seconds_total" ["seconds"] (numa_node)
        "Time that runnable tasks waited for a CPU, summed over the CPUs of the NUMA node.";
    Exporter Full Counter SOFTNET_DROPPED = "railscope_softnet_dropped_packets_total" (numa_node)
        "Packets dropped because the receive backlog of a CPU was full, summed over the CPUs of the NUMA node. 32 bits a CPU.";
    Exporter Full Counter SOFTNET_SQUEEZED = "railscope_softnet_time_squeezes_total" (numa_node)
        "Times a CPU ended packet processing for lack of time or budget with packets left, summed over the CPUs of the NUMA node. 32 bits a CPU.";
    Exporter Full Counter HOST_PRESSURE = "railscope_host_pressure_seconds_total" ["seconds"] (resource, kind)
        "Time for which some or all (full) tasks that were not idle waited for the resource: cpu, memory, io, irq.";
    Exporter Full Info NVME_SUBSYSTEM = "railscope_nvme_subsystem_info" (subsystem, nqn, model, io_policy)
        "What an NVMe subsystem is, and how the kernel chooses among its paths.";
    Exporter Full Info NVME_PATH = "railscope_nvme_path_info" (controller, subsystem, transport, traddr, host_traddr, netdev, device, pci, numa_node, found_by)
        "One path to an NVMe subsystem. Fabrics: target and local address, the interface and RDMA device that it leaves by, and how that was found: host_iface or host_traddr as the path was set up, or route, where the kernel chooses. Local drives: pci and numa_node.";
    Exporter Full Gauge NVME_PATH_UP = "railscope_nvme_path_up" (controller)
        "1 if the state of the NVMe controller is live.";
    Exporter Full Gauge GDS_STATISTICS_ENABLED = "railscope_gds_statistics_enabled" ()
        "1 if nvidia-fs counts GPUDirect Storage traffic (module parameter rw_stats_enabled); 0 leaves bytes and operations out.";
    Exporter Full Counter GDS_BYTES = "railscope_gds_bytes_total" ["bytes"] (direction)
        "Bytes that GPUDirect Storage has read and written. The driver prints whole MiB.";
    Exporter Full Counter GDS_OPERATIONS = "railscope_gds_operations_total" (direction)
        "Reads and writes that GPUDirect Storage has begun.";
    Exporter Full Counter GDS_ERRORS = "railscope_gds_errors_total" (kind)
        "Errors that nvidia-fs has counted. 32 bits wide.";
    Exporter Full Gauge GPUDIRECT_MODULE = "railscope_gpudirect_module_loaded" (module)
        "1 if the kernel module is loaded: nvidia_peermem or the older nv_peer_mem let NICs reach GPU memory, nvidia_fs storage. Absent without an NVIDIA driver.";
    Exporter Full Gauge GPUDIRECT_DMA_BUF = "railscope_gpudirect_dma_buf_possible" ()
        "1 if NICs can reach GPU memory by dma-buf, with no peer memory module, as far as the kernel (5.12 or later) and the driver (open kernel modules) tell.";

    // The collector.
    Collector Default Info COLLECTOR_BUILD = "railscope_collector_build_info" (version)
        "Version of the collector.";
    Collector Default Gauge INCIDENT_ACTIVE = "railscope_incident_active" (fault_domain, class, severity, node, incident)
        "Always 1: one series for each open incident, labelled with the part to fix. Alert on this.";
    Collector Default Gauge INCIDENT_GPUS = "railscope_incident_affected_gpus" (fault_domain, incident)
        "GPUs that the incident slows or stops.";
    Collector Default Gauge INCIDENT_SINCE = "railscope_incident_start_time_seconds" ["seconds"] (fault_domain, incident)
        "When the first evidence of the incident was seen, Unix time.";
    Collector Default Gauge FABRIC_PARTS = "railscope_fabric_parts" (class)
        "Parts in the fabric graph, by class.";
    Collector Default Gauge FABRIC_LINKS = "railscope_fabric_links" (kind)
        "Links in the fabric graph: cable, pcie, nvlink.";
    Collector Default Gauge FABRIC_LEVELS = "railscope_fabric_levels" ()
        "Switch tiers of the fabric. Absent while no tier is known.";
    Collector Default Gauge FABRIC_HOSTS_MISSING_RAIL = "railscope_fabric_hosts_missing_rail" ()
        "Hosts that show fewer rails than their peers.";
    Collector Default Info FABRIC_VERDICT = "railscope_fabric_verdict_info" (kind, levels)
        "What the fabric is judged to be.";
    Collector Default Info PORT_TOPOLOGY = "railscope_port_topology_info" (node, device, port, rail, leaf, leaf_port)
        "Where each host port hangs. Join on node, device and port.";
    Collector Default Gauge TARGET_UP = "railscope_collector_target_up" (node)
        "1 if the last scrape of the node's exporter succeeded.";
    Collector Default Gauge TARGET_AGE = "railscope_collector_target_age_seconds" ["seconds"] (node)
        "Time since the last successful scrape of the node's exporter.";
    Collector Default Counter SCRAPES = "railscope_collector_scrapes_total" (result)
        "Scrapes of exporters by result: ok, unreachable, timeout, malformed, too_large.";
    Collector Default Counter INGEST_SAMPLES = "railscope_collector_ingested_samples_total" (result)
        "Samples read from exporters by result: kept; unknown, because no catalogue row has the name; over_limit, beyond what one node may have; malformed, lines that could not be read.";
    Collector Default Gauge SUBNET_AGE = "railscope_collector_subnet_age_seconds" ["seconds"] ()
        "Time since the InfiniBand subnet was last read to the end. Absent without a subnet source.";
    Collector Default Counter SUBNET_SWEEPS = "railscope_collector_subnet_sweeps_total" (result)
        "Reads of the InfiniBand subnet by result: complete, partial, failed.";
    Collector Default Gauge TICK_DURATION = "railscope_collector_tick_duration_seconds" ["seconds"] ()
        "Time that the last analysis tick took.";
}
