//! The collector.

catalogue! {
    after probe;

    Collector Default Info COLLECTOR_BUILD = "railscope_collector_build_info" (version)
        "Version of the collector.";
    Collector Default Counter COLLECTOR_OTLP_EXPORTS = "railscope_collector_otlp_exports_total" (signal, result)
        "OTLP exports of metrics, logs (incident events) and traces by result: ok, partial, rejected, failed, or skipped (the previous export took too long). Absent without OTLP export.";
    Collector Default Counter COLLECTOR_OTLP_ITEMS = "railscope_collector_otlp_items_total" (signal, result)
        "Data points, log records and spans by result: sent, rejected by the receiver, failed, dropped (a queue was full), or unreadable. Absent without OTLP export.";
    Collector Default Gauge INCIDENT_ACTIVE = "railscope_incident_active" (fault_domain, class, severity, node, incident, far_end, alternatives)
        "Always 1: one series per open incident. fault_domain is the component to repair, far_end the switch port at the other end of a cable, alternatives are other possible components. Alert on this metric.";
    Collector Default Info INCIDENT_TEXT = "railscope_incident_text_info" (fault_domain, incident, title, part, seen, action)
        "Texts of an open incident for notifications: title, component, evidence (the strongest when it opened or its class last changed; empty after a restart until the next finding), action.";
    Collector Default Gauge INCIDENT_GPUS = "railscope_incident_affected_gpus" (fault_domain, incident)
        "GPUs that may wait because of the incident: those behind the component, and all GPUs of the jobs that use it.";
    Collector Default Gauge INCIDENT_GPUS_BEHIND = "railscope_incident_gpus_behind" (fault_domain, incident)
        "GPUs that are the component of the incident or are behind it.";
    Collector Default Gauge INCIDENT_SLOWDOWN = "railscope_incident_slowdown_ratio" ["ratio"] (fault_domain, incident)
        "Measured slowdown of the slowest job that uses the component, as a share of its usual throughput. Absent until that is known: measuring the usual throughput takes 5 minutes.";
    Collector Default Gauge INCIDENT_SINCE = "railscope_incident_start_time_seconds" ["seconds"] (fault_domain, incident)
        "Unix time of the first evidence of the incident.";
    Collector Default Info INCIDENT_JOB = "railscope_incident_job_info" (fault_domain, incident, hpc_job)
        "Jobs that wait for the component of an open incident. hpc_job is the batch system's job id, or the namespace and name that the pods of a job share.";
    Collector Default Gauge JOB_GPUS = "railscope_job_gpus" (hpc_job)
        "GPUs that the job holds. All job series cover only the 1,000 jobs with the most GPUs.";
    Collector Default Gauge JOB_SPEED = "railscope_job_speed_ratio" ["ratio"] (hpc_job)
        "Current throughput of the job as a share of its own median over 30 minutes: by bytes that its ports send, or by tensor core work if they send few. Absent in the first 5 minutes.";
    Collector Default Gauge JOB_STEP_EXPLAINED = "railscope_job_step_excess_explained_ratio" ["ratio"] (hpc_job, cause, estimate)
        "Share of the job's step excess (railscope_job_step_excess_seconds_total) of the last hour that coincides with slow or lost probes (cause fabric) or late timers (cause hosts) of its nodes: value, and bounds of the 95 % interval (at_least, at_most). Absent if it cannot be estimated.";
    Collector Default Counter JOB_LOST = "railscope_job_lost_gpu_seconds_total" ["seconds"] (hpc_job, fault_domain, class)
        "GPU-seconds that the job lost while it was at least 5 % slower than usual, by component and class of the worst incident that it waited for. Without an incident, fault_domain is empty and class is unexplained: a checkpoint, another phase of the job, or an undetected fault.";
    Collector Default Info JOB_WAITING = "railscope_job_waiting_info" (hpc_job, answer, basis)
        "Result of the straggler analysis of the job's ranks: balanced, straggler, software-imbalance (uneven work without a hardware cause) or unknown. basis: timings of collectives, or, only as a hint, GPU activity.";
    Collector Default Gauge JOB_RANK_EXCESS = "railscope_job_rank_excess_ratio" ["ratio"] (hpc_job, fault_domain)
        "Share of a step by which a rank waits less (collectives) or computes longer (activity) than the median. Only the 8 ranks for which others wait longest.";
    Collector Default Gauge PROBE_COMPONENT_SLOW = "railscope_probe_component_slow_ratio" ["ratio"] (component)
        "Share of probes over the component that were slower than the threshold of the probe list (100 us by default) in the last 150 s. Only the 20 components with the largest excess over all paths of their class.";
    Collector Default Gauge PROBE_PAIR_SLOW = "railscope_probe_pair_slow_ratio" ["ratio"] (node, device, peer_node, peer_device, path_class)
        "Share of slow probes between two NICs in the last 150 s. Only the 20 pairs with the largest excess over all paths of their class, as classified by the fabric graph.";
    Collector Default Gauge FABRIC_PARTS = "railscope_fabric_parts" (class)
        "Components in the fabric graph, by class.";
    Collector Default Gauge FABRIC_PARTS_BY_STATE = "railscope_fabric_parts_by_state" (class, state)
        "Nodes (host), NICs (nic) and switches by state: ok, unknown, degraded, down. unknown: the newest data is older than three intervals of its source (of a node: of any of its exporters but its BMC's), so faults are not detected.";
    Collector Default Gauge FABRIC_LINKS = "railscope_fabric_links" (kind)
        "Links in the fabric graph: cable, pcie, nvlink.";
    Collector Default Gauge FABRIC_LEVELS = "railscope_fabric_levels" ()
        "Switch tiers of the fabric. Absent while no tier is known.";
    Collector Default Gauge FABRIC_HOSTS_MISSING_RAIL = "railscope_fabric_hosts_missing_rail" ()
        "Hosts with fewer rails than their peers.";
    Collector Default Info FABRIC_VERDICT = "railscope_fabric_verdict_info" (kind, levels)
        "Topology type of the fabric (kind) and its switch tiers (levels), as classified by the collector.";
    Collector Default Gauge TOPOLOGY_FINDINGS = "railscope_topology_findings" (rule)
        "Wiring errors by rule (see /api/v1/topology/lint). Zero if the rule found none.";
    Collector Default Info PORT_TOPOLOGY = "railscope_port_topology_info" (node, device, port, rail, leaf, leaf_port)
        "Rail, leaf and leaf port to which each host port is connected. Join on node, device and port.";
    Collector Default Gauge GRAPH_VERTEX = "railscope_graph_vertex_parts" (id, title, tier)
        "Components per vertex of the fabric graph for Grafana's node graph panel. A vertex is one switch or the nodes of a scalable unit, the leaves of a unit, or a whole tier: the finest level within web.graph_series of the configuration.";
    Collector Default Gauge GRAPH_VERTEX_FAULTY = "railscope_graph_vertex_faulty_parts" (id, title, tier)
        "Degraded or down components per vertex of railscope_graph_vertex_parts.";
    Collector Default Gauge GRAPH_EDGE = "railscope_graph_edge_cables" (source, target)
        "Cables currently reported between two vertices of railscope_graph_vertex_parts; source is the lower tier. Cables within one vertex are omitted.";
    Collector Default Gauge GRAPH_EDGE_LOST = "railscope_graph_edge_lost_cables" (source, target)
        "Missing cables between the two vertices: no source reports them any more.";
    Collector Default Gauge TARGET_UP = "railscope_collector_target_up" (node, exporter)
        "1 if the last scrape of the exporter succeeded. node is the node or switch of the exporter, or its address if it serves many; exporter is its kind.";
    Collector Default Gauge TARGET_AGE = "railscope_collector_target_age_seconds" ["seconds"] (node, exporter)
        "Time since the last successful scrape of the exporter.";
    Collector Default Gauge TARGET_UNREADABLE = "railscope_collector_target_unreadable" (node, exporter, reason)
        "1 while the exporter responds but no sample is usable, by reason: malformed (no valid line), too_large, empty, html (an HTML document), unrecognized (no known metric), other_node (the response is of another node). Absent otherwise.";
    Collector Default Gauge TARGETS_LEFT_OUT = "railscope_collector_targets_left_out" ()
        "Invalid entries of target files, such as entries of an unknown kind. The collector ignores them and uses the others.";
    Collector Default Gauge TARGET_FILES_UNREADABLE = "railscope_collector_target_files_unreadable" ()
        "Target files whose current content is unreadable. The collector keeps their previous targets.";
    Collector Default Gauge TARGETS = "railscope_collector_targets" ()
        "Exporters in the target list, including those that push samples.";
    Collector Default Counter TARGETS_REMOVED = "railscope_collector_targets_removed_total" ()
        "Exporters removed from the target list.";
    Collector Default Gauge OPEN_FILES_SHORT = "railscope_collector_open_files_short" ()
        "Whether the limit of open files is too low for the number of targets: connections are closed after each scrape.";
    Collector Default Gauge ANALYSIS_INTERVAL = "railscope_collector_analysis_interval_seconds" ["seconds"] ()
        "Configured interval of the analysis.";
    Collector Default Gauge LAST_TICK_AGE = "railscope_collector_last_tick_age_seconds" ["seconds"] ()
        "Time since the last completed analysis started, by a clock that steps of the wall clock do not change.";
    Collector Default Gauge TICK_LATENESS = "railscope_collector_tick_lateness_seconds" ["seconds"] ()
        "Delay of the start of the last analysis after its scheduled time.";
    Collector Default Counter LATE_TICKS = "railscope_collector_late_ticks_total" ()
        "Analyses that started more than one interval after their scheduled time.";
    Collector Default Gauge COLLECTOR_SOURCE_STATUS = "railscope_collector_source_status" (source, name, status)
        "Always 1. Status of the last read of a source that is not an exporter: waiting, ok, partial, timeout, failed. source: subnet, switch (its LLDP neighbors), file_sd, collectives.";
    Collector Default Gauge COLLECTOR_SOURCE_AGE = "railscope_collector_source_age_seconds" ["seconds"] (source, name)
        "Time since the last complete read of the source. Absent before the first.";
    Collector Default Gauge SOURCE_INTERVAL = "railscope_collector_source_interval_seconds" ["seconds"] (source, name)
        "Configured read interval of the source. Absent for subnet and neighbor files, whose age depends on their writer.";
    Collector Default Gauge STATE_UNWRITABLE = "railscope_collector_state_unwritable" (state)
        "1 if the last write of the state file failed. state: fabric, incidents. Absent without a state directory.";
    Collector Default Counter CLOCK_STEPS = "railscope_collector_clock_steps_total" (direction)
        "Steps of the wall clock of the collector's host by direction: forward, backward. They affect displayed times only, not ages and rates.";
    Collector Default Gauge CLIENTS = "railscope_collector_clients" ()
        "Open connections to the HTTP server of the collector.";
    Collector Default Counter CLIENTS_CLOSED = "railscope_collector_clients_closed_total" (reason)
        "Connections that the HTTP server closed, by reason: timeout (no complete request within 10 s, or no request for 300 s), limit (another client needed the connection slot).";
    Collector Default Counter SCRAPES = "railscope_collector_scrapes_total" (result)
        "Scrapes of exporters by result: ok, partial (some lines or samples unusable), unreachable, timeout, and the reasons of railscope_collector_target_unreadable.";
    Collector Default Counter INGEST_SAMPLES = "railscope_collector_ingested_samples_total" (result)
        "Samples read from exporters by result: kept; unread (the collector does not use the series); late (older than a stored scrape, or twice in one response; stored data is never rewritten); unknown (no metric in the catalogue has the name); over_limit (beyond the limit per node); malformed (invalid lines); overruled (a source with higher precedence has the series); unfit (type, labels or value do not fit the mapping of another exporter, or the value is impossible: negative, infinite, or beyond 64 bits).";
    Collector Default Counter PUSH_REQUESTS = "railscope_collector_push_requests_total" (protocol, result)
        "Requests with pushed samples by protocol (remote_write, otlp) and result: ok, unauthorized, unsupported (another format), malformed, too_large, or busy (the sender should retry). Absent if the configuration has no table push.";
    Collector Default Counter PUSH_SAMPLES = "railscope_collector_push_samples_total" (protocol, result)
        "Pushed samples by protocol and result: accepted; unassigned (no instance, or from a rule); stale_marker (end of a series); out_of_window (older than 300 s, in the future, or a delta that was already counted); unsupported (native and exponential histograms, and names with characters other than letters, digits, _ and :). Absent if the configuration has no table push.";
    Collector Default Counter RECORDED_LINES = "railscope_collector_recorded_lines_total" (result)
        "Scrapes and failed scrapes of the recording by result: written; dropped (more than 64 MiB were still unwritten); failed (the folder was not writable). Absent if the configuration has no table record.";
    Collector Default Gauge SUBNET_AGE = "railscope_collector_subnet_age_seconds" ["seconds"] ()
        "Time since the last complete sweep of the InfiniBand subnet. Absent without a subnet source.";
    Collector Default Gauge SUBNET_INTERVAL = "railscope_collector_subnet_interval_seconds" ["seconds"] ()
        "Configured interval of the InfiniBand sweep. Absent without a subnet source.";
    Collector Default Counter SUBNET_SWEEPS = "railscope_collector_subnet_sweeps_total" (result)
        "Reads of the InfiniBand subnet by result: complete, partial, failed.";
    Collector Default Counter SWEEP_MADS = "railscope_collector_sweep_mads_total" (result)
        "Requests (MADs) of the collector's own subnet sweep by result: answered; repeated (sent again because no reply arrived); unanswered (no reply after all retries); refused (the device does not support the request); not_asked (no time was left). Absent without an own sweep.";
    Collector Default Gauge SWEEP_DURATION = "railscope_collector_sweep_duration_seconds" ["seconds"] (phase)
        "Duration of the last own subnet sweep by phase: topology, port counters (counters), forwarding tables (forwarding).";
    Collector Default Counter COLLECTIVE_OPERATIONS = "railscope_collector_collective_operations_total" (result)
        "Operations in dumps of collective libraries by result: read, malformed (invalid lines or files). Absent without a folder of dumps.";
    Collector Default Gauge TICK_DURATION = "railscope_collector_tick_duration_seconds" ["seconds"] ()
        "Duration of the last analysis cycle.";
    Collector Default Gauge LATE_TARGETS = "railscope_collector_late_targets" ()
        "Nodes whose newest sample is older than 1.5 scrape intervals, but not older than 4.";
    Collector Default Gauge OPENING_SUSPENDED = "railscope_collector_incident_opening_suspended" (cause)
        "1 while no new incident opens, by cause: targets (many were late at once), analysis (the collector itself was late). Ends after two complete intervals.";
}
