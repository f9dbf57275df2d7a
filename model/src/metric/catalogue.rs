//! The rows of the catalogue, in the order of the page.

use super::{Kind, Metric, Profile, Writer};

/// Turns rows into one `static` each and the table of them all.
macro_rules! catalogue {
    ($($(#[$group:meta])* $writer:ident $profile:ident $kind:ident $id:ident = $name:literal $([$unit:literal])? ($($label:ident),*) $help:literal;)+) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        #[repr(u16)]
        enum Index { $($id),+ }
        $(
            #[doc = $help]
            pub static $id: Metric = Metric {
                index: Index::$id as u16,
                name: $name,
                kind: Kind::$kind,
                unit: catalogue!(@unit $($unit)?),
                labels: &[$(stringify!($label)),*],
                profile: Profile::$profile,
                writer: Writer::$writer,
                help: $help,
            };
        )+
        /// Every metric that Railscope writes.
        pub static CATALOGUE: &[&Metric] = &[$(&$id),+];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

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
    Exporter Default Gauge GPU_CLOCK_MAX = "railscope_gpu_clock_max_hertz" ["hertz"] (gpu, clock)
        "Highest clock that the GPU can run at: sm; memory in the full profile.";
    Exporter Default Gauge GPU_CLOCK_EVENT = "railscope_gpu_clock_event_active" (gpu, reason)
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
        "NVLink errors summed over the GPU's links: replay, recovery, crc_flit, crc_data.";
    Exporter Default Gauge GPU_NVLINK_WORST_ERRORS = "railscope_gpu_nvlink_worst_link_errors" (gpu)
        "Errors of all kinds on the GPU's worst NVLink, so that one bad link does not drown in the sum.";
    Exporter Full Gauge NVLINK_STATE = "railscope_nvlink_up" (gpu, link)
        "1 if the link is up.";
    Exporter Full Counter NVLINK_ERRORS = "railscope_nvlink_errors_total" (gpu, link, kind)
        "NVLink errors: replay, recovery, crc_flit, crc_data.";
    Exporter Full Info NVLINK_PEER = "railscope_nvlink_peer_info" (gpu, link, peer_pci, peer_type)
        "What the other end of the link is.";

    // PCIe: endpoints by default, every hop in the full profile.
    Exporter Default Gauge PCIE_LINK_WIDTH = "railscope_pcie_link_width_lanes" (pci)
        "Lanes that the link above this function runs with.";
    Exporter Default Gauge PCIE_LINK_WIDTH_MAX = "railscope_pcie_link_max_width_lanes" (pci)
        "Lanes that this function could run with.";
    Exporter Default Gauge PCIE_LINK_SPEED = "railscope_pcie_link_transfers_per_second" (pci)
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
    Exporter Default Gauge RDMA_PORT_PHYSICAL_STATE = "railscope_rdma_port_physical_state" (device, port)
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
    Exporter Default Counter RDMA_ICRC_ERRORS = "railscope_rdma_icrc_errors_total" (device, port)
        "RoCE packets received with a wrong invariant CRC.";
    Exporter Full Gauge RDMA_STATISTICS_LIFESPAN = "railscope_rdma_statistics_lifespan_seconds" ["seconds"] (device, port)
        "How long the device serves hw_counters from its cache: two reads inside it are equal.";

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
