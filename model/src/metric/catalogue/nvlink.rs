//! NVLink, chip-to-chip links and the NVLink fabric: per GPU by default, per link in the full profile.

catalogue! {
    after gpu;

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
    Exporter Full Gauge GPU_FABRIC_STATE = "railscope_gpu_fabric_state" (gpu)
        "Registration of the GPU with the NVLink fabric manager: 1 not started, 2 in progress, 3 completed. Absent on boards without NVSwitch.";
    Exporter Full Gauge GPU_FABRIC_STATUS = "railscope_gpu_fabric_status" (gpu)
        "Result of a completed registration, an nvmlReturn_t: 0 is success.";
    Exporter Full Info GPU_FABRIC = "railscope_gpu_fabric_info" (gpu, cluster_uuid, clique)
        "NVLink domain and clique of the GPU, once registered: GPUs that share both reach each other by NVLink.";
    Exporter Full Gauge GPU_FABRIC_UNHEALTHY = "railscope_gpu_fabric_unhealthy" (gpu, cause)
        "1 if the NVLink fabric is unwell for the GPU: degraded_bandwidth, route_recovery, route_unhealthy, access_timeout, system_guid, chassis_serial, no_partition, insufficient_nvlinks. Absent where the board does not tell.";
    Exporter Full Gauge GPU_NVLINK_TRANSMIT_RATE = "railscope_gpu_nvlink_transmit_bytes_per_second" (gpu)
        "NVLink traffic sent, mean over the time between two samples of the worker; a check on the byte counters. Hopper and later.";
    Exporter Full Gauge GPU_NVLINK_RECEIVE_RATE = "railscope_gpu_nvlink_receive_bytes_per_second" (gpu)
        "NVLink traffic received; as transmit.";
    Exporter Full Gauge GPU_NVLINK_PEAK_TRANSMIT = "railscope_gpu_nvlink_peak_transmit_bytes_per_second" (gpu, window)
        "Highest rate between two samples of the worker in the rolling window, over all NVLinks of the GPU: what a scrape averages away. 15s, 60s. Scraping resets nothing.";
    Exporter Full Gauge GPU_NVLINK_PEAK_RECEIVE = "railscope_gpu_nvlink_peak_receive_bytes_per_second" (gpu, window)
        "Highest rate received; as transmit.";
    Exporter Default Counter GPU_NVLINK_TRANSMIT_BYTES = "railscope_gpu_nvlink_transmit_bytes_total" ["bytes"] (gpu)
        "Payload sent over all NVLinks of the GPU. A link that stops answering keeps its last count in the sum.";
    Exporter Default Counter GPU_NVLINK_RECEIVE_BYTES = "railscope_gpu_nvlink_receive_bytes_total" ["bytes"] (gpu)
        "Payload received over all NVLinks of the GPU.";
    Exporter Full Counter NVLINK_TRANSMIT_BYTES = "railscope_nvlink_transmit_bytes_total" ["bytes"] (gpu, link)
        "Payload sent over the link: NVML field 202 from Blackwell on, before that 1024 x field 138, which counts KiB; where neither answers, performance monitoring counters 261 to 296 (links 0 to 17).";
    Exporter Full Counter NVLINK_RECEIVE_BYTES = "railscope_nvlink_receive_bytes_total" ["bytes"] (gpu, link)
        "Payload received over the link: NVML field 204 from Blackwell on, before that 1024 x field 139; otherwise as transmit.";
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
    Exporter Full Counter NVLINK_TRANSMIT_WAIT = "railscope_nvlink_transmit_wait_ticks_total" (gpu, link)
        "PortXmitWait of the link: ticks in which data waited for credit. A tick is no fixed time: compare links of one kind. This and the rows below: PRM counters, Blackwell and later, read every 30 s; many drivers give them to root only.";
    Exporter Full Counter NVLINK_LINK_DOWNS = "railscope_nvlink_link_down_events_total" (gpu, link)
        "Times that the link went down.";
    Exporter Full Counter NVLINK_RECOVERIES = "railscope_nvlink_successful_recoveries_total" (gpu, link, layer)
        "Recoveries of the link that succeeded, as its physical layer (physical) and its recovery counters (total) count them.";
    Exporter Full Gauge NVLINK_RECOVERY_AGE = "railscope_nvlink_last_recovery_age_seconds" ["seconds"] (gpu, link)
        "Time since the last successful recovery, in whole seconds. Absent before the first.";
    Exporter Full Gauge NVLINK_RECOVERY_INTERVAL = "railscope_nvlink_recovery_interval_seconds" ["seconds"] (gpu, link)
        "Time between the last two recoveries. Absent before the second.";
    Exporter Full Counter NVLINK_PLR_CODES = "railscope_nvlink_plr_codes_total" (gpu, link, kind)
        "Codes of physical layer retransmission: received, received_error, received_uncorrectable, transmitted, retransmitted.";
    Exporter Full Counter NVLINK_PLR_EVENTS = "railscope_nvlink_plr_events_total" (gpu, link, kind)
        "Events of physical layer retransmission: retry, sync.";
    Exporter Full Gauge C2C_UP = "railscope_c2c_link_up" (gpu, link)
        "1 if the chip-to-chip link between GPU and Grace CPU is up.";
    Exporter Full Gauge C2C_SPEED = "railscope_c2c_link_speed_bytes_per_second" (gpu, link)
        "Speed of the chip-to-chip link.";
    Exporter Full Counter C2C_ERRORS = "railscope_c2c_link_errors_total" (gpu, link, kind)
        "Errors of the chip-to-chip link: interrupt, replay, replay_back_to_back.";
}
