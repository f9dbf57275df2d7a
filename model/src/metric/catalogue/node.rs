//! The node, the exporter itself and its sources.

catalogue! {
    first;

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
    Exporter Full Gauge SOURCE_DURATION = "railscope_source_duration_seconds" ["seconds"] (source)
        "Time that the last complete read of the source took.";
    Exporter Default Counter SOURCE_ERRORS = "railscope_source_errors_total" (source)
        "Reads of single values that failed or could not be parsed. The value is then absent, never zero.";
    Exporter Full Counter SOURCE_READS = "railscope_source_reads_total" (source)
        "Reads of the whole source that have ended, complete or not.";
    Exporter Full Counter SOURCE_LATE = "railscope_source_late_seconds_total" ["seconds"] (source)
        "Time by which reads of the source began late, since the exporter started: their thread waited for a CPU. Reads less than 0.1 s late do not count. Of source gpu, the sum over all GPUs.";
    Exporter Default Counter OTLP_EXPORTS = "railscope_otlp_exports_total" (signal, result)
        "Exports of metrics and traces by OTLP, by what became of them: ok, partial, rejected, failed, or skipped because the one before took too long. Absent where nothing is sent.";
    Exporter Default Counter OTLP_ITEMS = "railscope_otlp_items_total" (signal, result)
        "Data points and spans by what became of them: sent, rejected by the receiver, failed, dropped because a queue was full, or unreadable. Absent where nothing is sent.";
    Exporter Default Gauge EXPORTER_SERIES = "railscope_exporter_series" (profile)
        "Series on the page in each profile.";
    Exporter Default Counter EXPORTER_DROPPED = "railscope_exporter_dropped_samples_total" ()
        "Samples left off the page because another sample had the same name and labels. Above zero is a defect of Railscope.";
    Exporter Full Counter SOURCE_RESETS = "railscope_source_resets_total" (source)
        "Times that counters of a port fell while watched, other than by running over their width: somebody cleared them, or the driver was loaded anew.";
    Exporter Full Counter SOURCE_WRAPS = "railscope_source_wraps_total" (source)
        "Counters that ran over their width and began again while watched (32-bit queue counters). rate() over such a step is too low.";
    Exporter Full Gauge SOURCE_EPOCH = "railscope_source_epoch_seconds" ["seconds"] (source)
        "When counters of the source last began anew as far as is known, Unix time: a device that came or counters that fell while this exporter watched, and the boot of the kernel until then.";
}
