//! The node, the exporter itself and its sources.

catalogue! {
    first;

    Exporter Default Info EXPORTER_BUILD = "railscope_exporter_build_info" (version)
        "Version of the exporter.";
    Exporter Default Info NODE = "railscope_node_info" (node, kernel, architecture, vendor, product)
        "Identity of the node: host name, kernel release, machine architecture, system vendor and product (from DMI).";
    Exporter Default Gauge NODE_BOOT_TIME = "railscope_node_boot_time_seconds" ["seconds"] ()
        "Unix time of the last kernel boot. Counters that restart with the kernel start at this time.";
    Exporter Default Gauge NODE_NUMA_NODES = "railscope_node_numa_nodes" ()
        "Online NUMA nodes.";
    Exporter Default Gauge NODE_CPUS = "railscope_node_cpus" ()
        "Online logical CPUs.";
    Exporter Default Gauge SOURCE_STATUS = "railscope_source_status" (source, device, status)
        "Always 1. Status of a source: ok, absent, unsupported, denied, unparsed, timeout, failed. One series for the whole source (empty device) and one for each device whose status differs.";
    Exporter Default Gauge SOURCE_AGE = "railscope_source_age_seconds" ["seconds"] (source)
        "Time since the last complete read of the source. Rises while this source hangs; other sources are not affected.";
    Exporter Full Gauge SOURCE_DURATION = "railscope_source_duration_seconds" ["seconds"] (source)
        "Duration of the last complete read of the source.";
    Exporter Default Counter SOURCE_ERRORS = "railscope_source_errors_total" (source)
        "Single values that could not be read or parsed. Such a value is absent, never zero.";
    Exporter Full Counter SOURCE_READS = "railscope_source_reads_total" (source)
        "Finished reads of the whole source, complete or incomplete.";
    Exporter Full Counter SOURCE_LATE = "railscope_source_late_seconds_total" ["seconds"] (source)
        "Delay of reads of the source because their thread waited for a CPU, summed since the exporter started. Delays below 0.1 s do not count. For source gpu, the sum over all GPUs.";
    Exporter Default Counter OTLP_EXPORTS = "railscope_otlp_exports_total" (signal, result)
        "OTLP exports of metrics and traces by result: ok, partial, rejected, failed, or skipped (the previous export took too long). Absent without OTLP export.";
    Exporter Default Counter OTLP_ITEMS = "railscope_otlp_items_total" (signal, result)
        "Data points and spans by result: sent, rejected by the receiver, failed, dropped (a queue was full), or unreadable. Absent without OTLP export.";
    Exporter Default Gauge EXPORTER_SERIES = "railscope_exporter_series" (profile)
        "Series that the exporter exposes in each profile.";
    Exporter Default Counter EXPORTER_DROPPED = "railscope_exporter_dropped_samples_total" ()
        "Samples omitted because another sample had the same name and labels. A value above zero is a bug in Railscope; please report it.";
    Exporter Full Counter SOURCE_RESETS = "railscope_source_resets_total" (source)
        "Resets of port counters that the exporter observed, wraps excluded: the counters were cleared or the driver was reloaded.";
    Exporter Full Counter SOURCE_WRAPS = "railscope_source_wraps_total" (source)
        "Wraps of counters that the exporter observed (32-bit queue counters). rate() over a wrap is too low.";
    Exporter Full Gauge SOURCE_EPOCH = "railscope_source_epoch_seconds" ["seconds"] (source)
        "Unix time of the last known start of the source's counters: when a device appeared or counters were reset while this exporter ran, otherwise the kernel boot.";
}
