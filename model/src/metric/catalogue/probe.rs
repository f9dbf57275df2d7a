//! Probes: small packets between NICs of different nodes, each on a path that is pinned by its source port.

catalogue! {
    after host;

    Exporter Default Histogram PROBE_PATH_RTT = "railscope_probe_path_rtt_seconds" ["seconds"] (path_class, transport)
        "Round-trip times (RTT) of answered probes by path class, as set in the probe list, and transport (udp, rdma), excluding the processing time of the responding node.";
    Exporter Default Counter PROBE_PATH_LOST = "railscope_probe_path_lost_total" (path_class, transport)
        "Probes without a reply before the timeout, by path class.";
    Exporter Default Gauge PROBE_PATH_QUANTILE = "railscope_probe_path_rtt_quantile_seconds" ["seconds"] (path_class, transport, q)
        "Quantile q (0.5, 0.99, 0.999) of this node's round-trip times in the last 4 to 5 minutes; error at most 0.4 %. Do not average it over nodes: use the histogram railscope_probe_path_rtt_seconds.";
    Exporter Full Counter PROBES_SENT = "railscope_probes_sent_total" (device, transport)
        "Probes that the NIC sent to the NICs of other nodes in its probe list, after they were answered or timed out.";
    Exporter Full Counter PROBES_LOST = "railscope_probes_lost_total" (device, transport)
        "Probes without a reply before the timeout.";
    Exporter Full Counter PROBES_UNANSWERABLE = "railscope_probes_unanswerable_total" (transport)
        "Probes without a reply because the responder process of the other node was stopped, lacked CPU time or restarted. Counted neither as sent nor as lost in the network.";
    Exporter Full Gauge PROBE_RTT_MAX = "railscope_probe_rtt_max_seconds" ["seconds"] (device, transport)
        "Longest round-trip time of an answered probe in the last minute, excluding the processing time of the responding node.";
    Exporter Full Histogram PROBE_RTT = "railscope_probe_rtt_seconds" ["seconds"] (device, transport)
        "Round-trip times of answered probes, excluding the processing time of the responding node.";
    Exporter Full Histogram PROBE_RESPONDER = "railscope_probe_responder_seconds" ["seconds"] (device, transport)
        "Processing time of other nodes' probes in this node, added by its software and host. udp: from the kernel's receive timestamp to the reply. rdma: between two timestamps of the NIC, or, if it has none, from the time at which the process could run.";
    Exporter Full Counter PROBE_FLOW_SENT = "railscope_probe_flow_sent_total" (device, peer_node, peer_device, flow, transport)
        "Probes of one flow (its own source port, numbered from 0) that were answered or timed out.";
    Exporter Full Counter PROBE_FLOW_LOST = "railscope_probe_flow_lost_total" (device, peer_node, peer_device, flow, transport)
        "Probes of one flow without a reply before the timeout.";
    Exporter Full Counter PROBE_FLOW_SLOW = "railscope_probe_flow_slow_total" (device, peer_node, peer_device, flow, transport)
        "Answered probes of one flow whose round-trip time, excluding the processing time of the responding node, exceeded the threshold of the probe list (100 us if it sets none).";
    Exporter Full Info PROBE_HOP = "railscope_probe_hop_info" (device, peer_node, peer_device, flow, transport, hop, address)
        "Address of the router at position hop on the path of this flow's probes, found by time to live (TTL). Absent if the router does not reply.";
}
