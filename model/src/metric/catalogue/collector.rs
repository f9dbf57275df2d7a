//! The collector.

catalogue! {
    after probe;

    Collector Default Info COLLECTOR_BUILD = "railscope_collector_build_info" (version)
        "Version of the collector.";
    Collector Default Counter COLLECTOR_OTLP_EXPORTS = "railscope_collector_otlp_exports_total" (signal, result)
        "Exports of metrics, logs (incident events) and traces by OTLP, by what became of them: ok, partial, rejected, failed, or skipped because the one before took too long. Absent where nothing is sent.";
    Collector Default Counter COLLECTOR_OTLP_ITEMS = "railscope_collector_otlp_items_total" (signal, result)
        "Data points, log records and spans by what became of them: sent, rejected by the receiver, failed, dropped because a queue was full, or unreadable. Absent where nothing is sent.";
    Collector Default Gauge INCIDENT_ACTIVE = "railscope_incident_active" (fault_domain, class, severity, node, incident, far_end, alternatives)
        "Always 1: one series for each open incident, labeled with the part to fix; far_end is the other end of a cable between switches, alternatives are parts that it may be as well. Alert on this.";
    Collector Default Info INCIDENT_TEXT = "railscope_incident_text_info" (fault_domain, incident, title, part, seen, action)
        "Texts of an open incident for notifications: title, component, evidence (the strongest when it opened or its class last changed; empty after a restart until the next finding), action.";
    Collector Default Gauge INCIDENT_GPUS = "railscope_incident_affected_gpus" (fault_domain, incident)
        "GPUs that may wait because of the incident: those behind the part, and all of the jobs that use it.";
    Collector Default Gauge INCIDENT_GPUS_BEHIND = "railscope_incident_gpus_behind" (fault_domain, incident)
        "GPUs that are the part of the incident or behind it.";
    Collector Default Gauge INCIDENT_SLOWDOWN = "railscope_incident_slowdown_ratio" ["ratio"] (fault_domain, incident)
        "By which share the slowest job that uses the part goes slower than it usually does, as measured. Absent while that is not known: a job's usual pace takes five minutes.";
    Collector Default Gauge INCIDENT_SINCE = "railscope_incident_start_time_seconds" ["seconds"] (fault_domain, incident)
        "When the first evidence of the incident was seen, Unix time.";
    Collector Default Info INCIDENT_JOB = "railscope_incident_job_info" (fault_domain, incident, hpc_job)
        "Jobs that wait for the part of an open incident. hpc_job is the batch system's id, or namespace and name that the pods of a job share.";
    Collector Default Gauge JOB_GPUS = "railscope_job_gpus" (hpc_job)
        "GPUs that the job holds, of the 1,000 jobs that hold most, as all series of jobs.";
    Collector Default Gauge JOB_SPEED = "railscope_job_speed_ratio" ["ratio"] (hpc_job)
        "Pace of the job now as a share of its own median over 30 minutes: by bytes that its ports send, or by the work of its tensor cores where they send few. Absent in its first 5 minutes.";
    Collector Default Gauge JOB_STEP_EXPLAINED = "railscope_job_step_excess_explained_ratio" ["ratio"] (hpc_job, cause, estimate)
        "Share of the job's step excess (railscope_job_step_excess_seconds_total) of the last hour that goes with slow or lost probes (cause fabric) or late timers (cause hosts) of its own nodes: the value, and the ends of its interval of 95 % (at_least, at_most). Absent where it cannot be told.";
    Collector Default Counter JOB_LOST = "railscope_job_lost_gpu_seconds_total" ["seconds"] (hpc_job, fault_domain, class)
        "GPU-seconds that the job lost while it was at least 5 % slower than usual, by the part and class of the worst incident that it waited for. fault_domain is empty and class unexplained where there was none: a checkpoint, another phase of the job, or a fault that nobody named.";
    Collector Default Info JOB_WAITING = "railscope_job_waiting_info" (hpc_job, answer, basis)
        "Whom the ranks of the job wait for: balanced, straggler, software-imbalance (uneven work, and no hardware cause) or unknown; by timings of collectives or, a hint only, by activity of GPUs.";
    Collector Default Gauge JOB_RANK_EXCESS = "railscope_job_rank_excess_ratio" ["ratio"] (hpc_job, fault_domain)
        "Of the 8 ranks for which others wait the longest: share of a step by which one waits less (collectives) or computes longer (activity) than the median.";
    Collector Default Gauge PROBE_COMPONENT_SLOW = "railscope_probe_component_slow_ratio" ["ratio"] (component)
        "Share of probes over the component that were slower than the list of probes allows (100 us by default) in the last 150 s, of the 20 components with the largest excess over all paths of their class.";
    Collector Default Gauge PROBE_PAIR_SLOW = "railscope_probe_pair_slow_ratio" ["ratio"] (node, device, peer_node, peer_device, path_class)
        "Share of slow probes between two NICs in the last 150 s, of the 20 pairs with the largest excess over all paths of their class. The class is that of the fabric graph.";
    Collector Default Gauge FABRIC_PARTS = "railscope_fabric_parts" (class)
        "Parts in the fabric graph, by class.";
    Collector Default Gauge FABRIC_PARTS_BY_STATE = "railscope_fabric_parts_by_state" (class, state)
        "Nodes (host), NICs (nic) and switches by state: ok, unknown, degraded, down. unknown: the newest data is older than three intervals of its source, so that faults are not detected.";
    Collector Default Gauge FABRIC_LINKS = "railscope_fabric_links" (kind)
        "Links in the fabric graph: cable, pcie, nvlink.";
    Collector Default Gauge FABRIC_LEVELS = "railscope_fabric_levels" ()
        "Switch tiers of the fabric. Absent while no tier is known.";
    Collector Default Gauge FABRIC_HOSTS_MISSING_RAIL = "railscope_fabric_hosts_missing_rail" ()
        "Hosts that show fewer rails than their peers.";
    Collector Default Info FABRIC_VERDICT = "railscope_fabric_verdict_info" (kind, levels)
        "What the fabric is judged to be.";
    Collector Default Gauge TOPOLOGY_FINDINGS = "railscope_topology_findings" (rule)
        "Things that are wrong with the wiring, by rule: see /api/v1/topology/lint. Zero where nothing is.";
    Collector Default Info PORT_TOPOLOGY = "railscope_port_topology_info" (node, device, port, rail, leaf, leaf_port)
        "Where each host port hangs. Join on node, device and port.";
    Collector Default Gauge GRAPH_VERTEX = "railscope_graph_vertex_parts" (id, title, tier)
        "Vertices of the fabric as a graph for Grafana's node graph, with the parts that each stands for: one switch or the nodes of a unit; the leaves of a unit; or all of a tier, whichever is the finest within web.graph_series of the configuration.";
    Collector Default Gauge GRAPH_VERTEX_FAULTY = "railscope_graph_vertex_faulty_parts" (id, title, tier)
        "Parts of a vertex of railscope_graph_vertex_parts that work worse than they should, or not at all.";
    Collector Default Gauge GRAPH_EDGE = "railscope_graph_edge_cables" (source, target)
        "Cables between two vertices of railscope_graph_vertex_parts that somebody shows now; source is the lower tier. Those within one vertex are left out.";
    Collector Default Gauge GRAPH_EDGE_LOST = "railscope_graph_edge_lost_cables" (source, target)
        "Cables between the two vertices that nobody shows any more.";
    Collector Default Gauge TARGET_UP = "railscope_collector_target_up" (node, exporter)
        "1 if the last scrape of the exporter succeeded. node is the node or switch that it speaks for, or its address if it speaks for many; exporter is its kind.";
    Collector Default Gauge TARGET_AGE = "railscope_collector_target_age_seconds" ["seconds"] (node, exporter)
        "Time since the last successful scrape of the exporter.";
    Collector Default Gauge TARGET_UNREADABLE = "railscope_collector_target_unreadable" (node, exporter, reason)
        "1 while the exporter answers but no sample is usable, by reason: malformed (no valid line), too_large, empty, html (an HTML page), unrecognized (no known metric), other_node (the response is of another node). Absent otherwise.";
    Collector Default Gauge TARGETS_LEFT_OUT = "railscope_collector_targets_left_out" ()
        "Invalid entries of target files, such as entries of an unknown kind. The collector ignores them and uses the others.";
    Collector Default Gauge TARGET_FILES_UNREADABLE = "railscope_collector_target_files_unreadable" ()
        "Target files whose current content is unreadable. The collector keeps their previous targets.";
    Collector Default Gauge TARGETS = "railscope_collector_targets" ()
        "Exporters in the target list, including those that push samples.";
    Collector Default Counter TARGETS_REMOVED = "railscope_collector_targets_removed_total" ()
        "Exporters removed from the target list.";
    Collector Default Gauge ANALYSIS_INTERVAL = "railscope_collector_analysis_interval_seconds" ["seconds"] ()
        "Configured interval of the analysis.";
    Collector Default Gauge LAST_TICK = "railscope_collector_last_tick_timestamp_seconds" ["seconds"] ()
        "Unix time at which the last completed analysis started.";
    Collector Default Gauge TICK_LATENESS = "railscope_collector_tick_lateness_seconds" ["seconds"] ()
        "Delay of the start of the last analysis after its scheduled time.";
    Collector Default Counter LATE_TICKS = "railscope_collector_late_ticks_total" ()
        "Analyses that started more than one interval after their scheduled time.";
    Collector Default Gauge COLLECTOR_SOURCE_STATUS = "railscope_collector_source_status" (source, name, status)
        "Always 1. Status of the last read of a source other than exporters: waiting, ok, partial, timeout, failed. source: subnet, switch (its LLDP neighbors), file_sd, collectives.";
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
        "Connections that the HTTP server closed, by reason: timeout, no complete request within 10 s, or none for 300 s; limit, another client needed the place.";
    Collector Default Counter SCRAPES = "railscope_collector_scrapes_total" (result)
        "Scrapes of exporters by result: ok, partial (some lines or samples unusable), unreachable, timeout, and the reasons of railscope_collector_target_unreadable.";
    Collector Default Counter INGEST_SAMPLES = "railscope_collector_ingested_samples_total" (result)
        "Samples read from exporters by result: kept; unread, because nothing in the collector reads the series; late, of pages older than one taken up before or twice on a page, so that what was judged is never rewritten; unknown, because no catalogue row has the name; over_limit, beyond what one node may have; malformed, lines that could not be read; overruled, because an exporter that is believed first tells the series too; unfit, samples of other exporters whose type, labels or value do not fit their mapping, and values that a metric cannot have: negative, infinite, or beyond 64 bits.";
    Collector Default Counter PUSH_REQUESTS = "railscope_collector_push_requests_total" (protocol, result)
        "Requests with pushed samples by protocol (remote_write, otlp) and result: ok, unauthorized, unsupported (another format), malformed, too_large, or busy: the sender is to send it again. Absent if the configuration has no table push.";
    Collector Default Counter PUSH_SAMPLES = "railscope_collector_push_samples_total" (protocol, result)
        "Pushed samples by protocol and result: accepted; unassigned, without an instance, or made by rules; stale_marker, a mark that the series has ended; out_of_window, older than 300 s, from the future, or a delta that was counted before; unsupported, native and exponential histograms, and names with other characters than letters, digits, _ and :. Absent if the configuration has no table push.";
    Collector Default Counter RECORDED_LINES = "railscope_collector_recorded_lines_total" (result)
        "Scrapes and failed scrapes of the recording by result: written; dropped, because more than 64 MiB were not written yet; failed, because the folder could not be written. Absent if the configuration has no table record.";
    Collector Default Gauge SUBNET_AGE = "railscope_collector_subnet_age_seconds" ["seconds"] ()
        "Time since the InfiniBand subnet was last read to the end. Absent without a subnet source.";
    Collector Default Gauge SUBNET_INTERVAL = "railscope_collector_subnet_interval_seconds" ["seconds"] ()
        "Configured interval of the InfiniBand sweep. Absent without a subnet source.";
    Collector Default Counter SUBNET_SWEEPS = "railscope_collector_subnet_sweeps_total" (result)
        "Reads of the InfiniBand subnet by result: complete, partial, failed.";
    Collector Default Counter SWEEP_MADS = "railscope_collector_sweep_mads_total" (result)
        "Questions of the own sweep of the subnet (MADs) by what became of them: answered; repeated, sent again for want of an answer; unanswered, after all repetitions; refused, the device says that it does not do this; not_asked, no time was left. Absent without an own sweep.";
    Collector Default Gauge SWEEP_DURATION = "railscope_collector_sweep_duration_seconds" ["seconds"] (phase)
        "Time that the last own sweep of the subnet took: for its shape (topology), for the counters of its ports (counters) and for forwarding tables (forwarding).";
    Collector Default Counter COLLECTIVE_OPERATIONS = "railscope_collector_collective_operations_total" (result)
        "Operations in dumps of collective libraries by result: read, malformed (lines or files that cannot be read). Absent without a folder of dumps.";
    Collector Default Gauge TICK_DURATION = "railscope_collector_tick_duration_seconds" ["seconds"] ()
        "Time that the last analysis tick took.";
    Collector Default Gauge LATE_TARGETS = "railscope_collector_late_targets" ()
        "Nodes whose newest sample is older than 1.5 scrape intervals, but not older than 4.";
    Collector Default Gauge OPENING_SUSPENDED = "railscope_collector_incident_opening_suspended" (cause)
        "1 while no new incident opens, by what was late: targets, many at once; analysis, the collector itself. Ends once two intervals are complete.";
}
