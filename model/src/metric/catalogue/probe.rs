//! Probes: small packets between NICs of different nodes, each on a way that is pinned by its source port.

catalogue! {
    after host;

    Exporter Default Histogram PROBE_PATH_RTT = "railscope_probe_path_rtt_seconds" ["seconds"] (path_class, transport)
        "Round-trip times of answered probes by class of path, as the list of probes gives it, and transport (udp, rdma), excluding the processing time of the node that answered.";
    Exporter Default Counter PROBE_PATH_LOST = "railscope_probe_path_lost_total" (path_class, transport)
        "Probes without an answer in time, by class of path.";
    Exporter Default Gauge PROBE_PATH_QUANTILE = "railscope_probe_path_rtt_quantile_seconds" ["seconds"] (path_class, transport, q)
        "Quantile q (0.5, 0.99, 0.999) of this node's round-trip times in the last 4 to 5 minutes; error at most 0.4 %. Do not average it over nodes: use the histogram.";
    Exporter Full Counter PROBES_SENT = "railscope_probes_sent_total" (device, transport)
        "Probes that the NIC has sent to the NICs of other nodes on its list and that were answered or given up.";
    Exporter Full Counter PROBES_LOST = "railscope_probes_lost_total" (device, transport)
        "Probes that no answer came to in time.";
    Exporter Full Counter PROBES_UNANSWERABLE = "railscope_probes_unanswerable_total" (transport)
        "Probes that no answer came to while the program that answers at the other node was stopped, short of CPU or restarted: neither sent nor lost for the network.";
    Exporter Full Gauge PROBE_RTT_MAX = "railscope_probe_rtt_max_seconds" ["seconds"] (device, transport)
        "Longest round trip of an answered probe in the last minute, without the time it took in the node that answered.";
    Exporter Full Histogram PROBE_RTT = "railscope_probe_rtt_seconds" ["seconds"] (device, transport)
        "Round trips of answered probes, without the time they took in the node that answered.";
    Exporter Full Histogram PROBE_RESPONDER = "railscope_probe_responder_seconds" ["seconds"] (device, transport)
        "Time that probes of others spent in this node: of udp from the kernel's receive timestamp to the answer, of rdma between two timestamps of the NIC, or where it takes none from the moment at which the program could run. What its software and its host add.";
    Exporter Full Counter PROBE_FLOW_SENT = "railscope_probe_flow_sent_total" (device, peer_node, peer_device, flow, transport)
        "Probes of one flow (a source port of its own, numbered from 0) that were answered or given up.";
    Exporter Full Counter PROBE_FLOW_LOST = "railscope_probe_flow_lost_total" (device, peer_node, peer_device, flow, transport)
        "Probes of one flow that no answer came to in time.";
    Exporter Full Counter PROBE_FLOW_SLOW = "railscope_probe_flow_slow_total" (device, peer_node, peer_device, flow, transport)
        "Answered probes of one flow whose round trip, without the time in the node that answered, was beyond the threshold of the list (100 us where it names none).";
    Exporter Full Info PROBE_HOP = "railscope_probe_hop_info" (device, peer_node, peer_device, flow, transport, hop, address)
        "Address of the router that probes of this flow pass as their hop-th, by time to live; absent where it does not answer.";
}
