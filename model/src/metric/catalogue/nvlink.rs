//! NVLink, chip-to-chip links and the NVLink fabric: per GPU by default, per link in the full profile.

catalogue! {
    after gpu;

    Exporter Default Gauge NVLINKS = "railscope_gpu_nvlinks" (gpu)
        "NVLinks of the GPU.";
    Exporter Default Gauge NVLINKS_ACTIVE = "railscope_gpu_nvlinks_active" (gpu)
        "NVLinks that are up. Some boards leave links unused by design: compare with peers.";
    Exporter Default Counter GPU_NVLINK_ERRORS = "railscope_gpu_nvlink_errors_total" (gpu, kind)
        "NVLink errors summed over the GPU's links: replay, recovery (both before Blackwell), crc_flit, crc_data; symbol and recovery_event (Blackwell and later). The full profile has the other kinds of NVLink 5.";
    Exporter Default Gauge GPU_NVLINK_WORST_ERRORS = "railscope_gpu_nvlink_worst_link_errors" (gpu)
        "Errors of all kinds on the GPU's worst NVLink. Shows one bad link that the sum over all links hides.";
    Exporter Full Gauge NVLINK_STATE = "railscope_nvlink_up" (gpu, link)
        "1 if the link is up.";
    Exporter Full Counter NVLINK_ERRORS = "railscope_nvlink_errors_total" (gpu, link, kind)
        "NVLink errors: replay, recovery, crc_flit, crc_data; Blackwell and later also malformed, overrun, receive, remote, general, integrity, discard, recovery_ok, recovery_failed, recovery_event, symbol.";
    Exporter Full Info NVLINK_PEER = "railscope_nvlink_peer_info" (gpu, link, peer_pci, peer_type)
        "Device at the other end of the link.";
    Exporter Full Gauge GPU_FABRIC_STATE = "railscope_gpu_fabric_state" (gpu)
        "Registration of the GPU with the NVLink fabric manager: 1 not started, 2 in progress, 3 completed. Absent on boards without NVSwitch.";
    Exporter Full Gauge GPU_FABRIC_STATUS = "railscope_gpu_fabric_status" (gpu)
        "Result of a completed registration with the NVLink fabric manager, an nvmlReturn_t: 0 is success.";
    Exporter Full Info GPU_FABRIC = "railscope_gpu_fabric_info" (gpu, cluster_uuid, clique)
        "NVLink domain and clique of a registered GPU: GPUs that share both reach each other over NVLink.";
    Exporter Full Gauge GPU_FABRIC_UNHEALTHY = "railscope_gpu_fabric_unhealthy" (gpu, cause)
        "1 if the NVLink fabric is unhealthy for the GPU: degraded_bandwidth, route_recovery, route_unhealthy, access_timeout, system_guid, chassis_serial, no_partition, insufficient_nvlinks. Absent if the board does not report it.";
    Exporter Full Gauge GPU_NVLINK_TRANSMIT_RATE = "railscope_gpu_nvlink_transmit_bytes_per_second" (gpu)
        "NVLink traffic sent, mean over the time between two samples of the NVML worker. Cross-checks the byte counters. Hopper and later.";
    Exporter Full Gauge GPU_NVLINK_RECEIVE_RATE = "railscope_gpu_nvlink_receive_bytes_per_second" (gpu)
        "NVLink traffic received, mean as for transmit. Hopper and later.";
    Exporter Full Gauge GPU_NVLINK_PEAK_TRANSMIT = "railscope_gpu_nvlink_peak_transmit_bytes_per_second" (gpu, window)
        "Highest transmit rate between two samples of the NVML worker in the rolling window (15s, 60s), over all NVLinks of the GPU. Shows peaks that a scrape averages away. A scrape does not reset it.";
    Exporter Full Gauge GPU_NVLINK_PEAK_RECEIVE = "railscope_gpu_nvlink_peak_receive_bytes_per_second" (gpu, window)
        "Highest receive rate; otherwise as for transmit.";
    Exporter Default Counter GPU_NVLINK_TRANSMIT_BYTES = "railscope_gpu_nvlink_transmit_bytes_total" ["bytes"] (gpu)
        "Payload bytes sent over all NVLinks of the GPU. A link that stops responding keeps its last count in the sum.";
    Exporter Default Counter GPU_NVLINK_RECEIVE_BYTES = "railscope_gpu_nvlink_receive_bytes_total" ["bytes"] (gpu)
        "Payload bytes received over all NVLinks of the GPU.";
    Exporter Full Counter NVLINK_TRANSMIT_BYTES = "railscope_nvlink_transmit_bytes_total" ["bytes"] (gpu, link)
        "Payload bytes sent over the link: NVML field 202 (Blackwell and later), before that 1024 x field 138 (KiB); if neither is available, performance monitoring counters 261 to 296 (links 0 to 17).";
    Exporter Full Counter NVLINK_RECEIVE_BYTES = "railscope_nvlink_receive_bytes_total" ["bytes"] (gpu, link)
        "Payload bytes received over the link: NVML field 204 (Blackwell and later), before that 1024 x field 139; if neither is available, as for transmit.";
    Exporter Full Counter NVLINK_TRANSMIT_PACKETS = "railscope_nvlink_transmit_packets_total" (gpu, link)
        "Packets sent over the link. Blackwell and later.";
    Exporter Full Counter NVLINK_RECEIVE_PACKETS = "railscope_nvlink_receive_packets_total" (gpu, link)
        "Packets received over the link. Blackwell and later.";
    Exporter Full Gauge NVLINK_SPEED = "railscope_nvlink_speed_bytes_per_second" (gpu, link)
        "Speed of the link in one direction.";
    Exporter Full Gauge NVLINK_SYMBOL_BER = "railscope_nvlink_symbol_ber_ratio" ["ratio"] (gpu, link)
        "Symbol error rate after error correction, as reported by the link. Read every 30 s. Blackwell and later.";
    Exporter Full Counter NVLINK_FEC_CODEWORDS = "railscope_nvlink_fec_codewords_total" (gpu, link, corrected)
        "Code words by the number of their symbols that error correction corrected, 0 to 15. Counts in the high bins indicate a failing link. Read every 30 s. Blackwell and later.";
    Exporter Full Counter NVLINK_TRANSMIT_WAIT = "railscope_nvlink_transmit_wait_ticks_total" (gpu, link)
        "PortXmitWait of the link: ticks in which data waited for credits. The length of a tick is not fixed: compare links of one type. PRM counter: Blackwell and later, read every 30 s; many drivers require root.";
    Exporter Full Counter NVLINK_LINK_DOWNS = "railscope_nvlink_link_down_events_total" (gpu, link)
        "Link failures of the NVLink. PRM counter as nvlink_transmit_wait_ticks_total.";
    Exporter Full Counter NVLINK_RECOVERIES = "railscope_nvlink_successful_recoveries_total" (gpu, link, layer)
        "Successful recoveries of the link, counted by its physical layer (physical) and by its recovery counters (total). PRM counter as nvlink_transmit_wait_ticks_total.";
    Exporter Full Gauge NVLINK_RECOVERY_AGE = "railscope_nvlink_last_recovery_age_seconds" ["seconds"] (gpu, link)
        "Time since the last successful recovery of the link, in whole seconds. Absent before the first.";
    Exporter Full Gauge NVLINK_RECOVERY_INTERVAL = "railscope_nvlink_recovery_interval_seconds" ["seconds"] (gpu, link)
        "Time between the last two recoveries of the link. Absent before the second.";
    Exporter Full Counter NVLINK_PLR_CODES = "railscope_nvlink_plr_codes_total" (gpu, link, kind)
        "Codes of physical layer retransmission (PLR): received, received_error, received_uncorrectable, transmitted, retransmitted.";
    Exporter Full Counter NVLINK_PLR_EVENTS = "railscope_nvlink_plr_events_total" (gpu, link, kind)
        "Events of physical layer retransmission (PLR): retry, sync.";
    Exporter Full Gauge C2C_UP = "railscope_c2c_link_up" (gpu, link)
        "1 if the chip-to-chip link between GPU and Grace CPU is up.";
    Exporter Full Gauge C2C_SPEED = "railscope_c2c_link_speed_bytes_per_second" (gpu, link)
        "Speed of the chip-to-chip link between GPU and Grace CPU.";
    Exporter Full Counter C2C_ERRORS = "railscope_c2c_link_errors_total" (gpu, link, kind)
        "Errors of the chip-to-chip link between GPU and Grace CPU: interrupt, replay, replay_back_to_back.";
}
