//! Health of Railscope: whether the other dashboards can be trusted.

use super::{ANY_IS_BAD, WHOLE_IS_GOOD, cluster_column, node_column};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Unit};
use crate::query::Query;
use crate::table::Column;

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        missing_exporters(),
        oldest_sources(),
        Panel::row("Collector"),
    ]);
    panels.extend(collector());
    panels.push(Panel::row("Exporters"));
    panels.extend(exporters());
    panels
}

fn numbers() -> Vec<Panel> {
    vec![
        Panel::stat("Collectors up", Unit::Count)
            .shows("Collectors that Prometheus can scrape. At least one for each cluster.")
            .decimals(0)
            .neutral()
            .query(Query::new(r#"sum(up{job="railscope-collector", @cluster})"#)),
        Panel::stat("Exporters up", Unit::Ratio)
            .shows("Share of exporters that the collector could scrape last time.")
            .thresholds(WHOLE_IS_GOOD)
            .query(Query::new("min(cluster:railscope_collector_target_up:ratio{@cluster})")),
        Panel::stat("New incidents suspended", Unit::Count)
            .shows("1 while the collector opens no new incident, because samples of many nodes or its own analysis are late.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new("max(railscope_collector_incident_opening_suspended{@cluster})")),
        Panel::stat("Late nodes", Unit::Count)
            .shows("Nodes whose newest sample is older than 1.5 scrape intervals.")
            .decimals(0)
            .good_below(1.0, Color::Warning)
            .query(Query::new("sum(min by (cluster) (railscope_collector_late_targets{@cluster}))")),
        Panel::stat("Oldest scrape", Unit::Seconds)
            .shows("Time since the last successful scrape of the exporter that was scraped longest ago.")
            .good_below(60.0, Color::Warning)
            .query(Query::new("max(cluster:railscope_collector_target_age_seconds:max{@cluster})")),
        Panel::stat("Last complete sweep", Unit::Seconds)
            .shows("Time since the collector last completed an InfiniBand sweep. No value without a subnet source.")
            .good_below(300.0, Color::Warning)
            .query(Query::new("max(min by (cluster) (railscope_collector_subnet_age_seconds{@cluster}))"))
            .link(Link::to(Board::Fabric)),
    ]
}

fn missing_exporters() -> Panel {
    Panel::table("Exporters that the collector cannot scrape", Unit::Count, "Node")
        .shows("Nodes whose last scrape by the collector failed, at most 100. Empty means none.")
        .query(Query::new(
            "topk(100, max by (cluster, node, exporter) (railscope_collector_target_up{@cluster}) == 0)",
        ))
        .column(node_column())
        .column(Column::label("exporter", "Exporter"))
        .column(Column::value(0, "Up"))
        .column(cluster_column())
}

fn oldest_sources() -> Panel {
    Panel::table("Oldest sources", Unit::Seconds, "Age")
        .shows("The 20 nodes with the oldest source: time since it was last read successfully. A driver that hangs shows here.")
        .query(Query::new(
            "topk(20, max by (cluster, node, source) (node:railscope_source_age_seconds:max{@cluster}))",
        ))
        .column(node_column())
        .column(Column::label("source", "Source"))
        .column(Column::value(0, "Age"))
        .column(cluster_column())
}

fn panel(
    title: &'static str,
    unit: Unit,
    description: &'static str,
    query: &str,
    legend: &'static str,
) -> Panel {
    Panel::curves(title, unit)
        .shows(description)
        .size(8, 7)
        .query(Query::new(query).legend(legend))
}

fn collector() -> Vec<Panel> {
    vec![
        panel(
            "Scrapes by the collector",
            Unit::PerSecond,
            "Scrapes of exporters by result.",
            "sum by (result) (rate(railscope_collector_scrapes_total{@cluster}[$__rate_interval]))",
            "{{result}}",
        ),
        panel(
            "Analysis cycle",
            Unit::Seconds,
            "Time of one analysis cycle. It must stay well below the scrape interval.",
            "max by (cluster, instance) (railscope_collector_tick_duration_seconds{@cluster})",
            "{{instance}}",
        ),
        panel(
            "Samples by result",
            Unit::PerSecond,
            "Samples read from exporters by result.",
            "sum by (result) (rate(railscope_collector_ingested_samples_total{@cluster}[$__rate_interval]))",
            "{{result}}",
        ),
        panel(
            "Sweeps of the subnet",
            Unit::PerSecond,
            "Complete, partial and failed InfiniBand sweeps.",
            "sum by (result) (rate(railscope_collector_subnet_sweeps_total{@cluster}[$__rate_interval]))",
            "{{result}}",
        ),
        panel(
            "Suspension of new incidents",
            Unit::Count,
            "1 while no new incident opens, by cause.",
            "max by (cause) (railscope_collector_incident_opening_suspended{@cluster})",
            "{{cause}}",
        )
        .decimals(0),
        panel(
            "Late nodes over time",
            Unit::Count,
            "Nodes whose newest sample is late.",
            "max by (instance) (railscope_collector_late_targets{@cluster})",
            "{{instance}}",
        )
        .decimals(0),
    ]
}

fn exporters() -> Vec<Panel> {
    vec![
        panel("Sources by status", Unit::Count, "Nodes by source and status: absent and unsupported are facts about a machine; failed, denied and timeout are errors.", "sum by (source, status) (cluster:railscope_source_status:count{@cluster})", "{{source}} {{status}}").decimals(0),
        panel("Oldest sources over time", Unit::Seconds, "Oldest reading of each source on any node. A source that is read once a minute rises to 60 s; one that only rises is blocked.", "max by (source) (node:railscope_source_age_seconds:max{@cluster})", "{{source}}"),
        panel("Series of the exporters", Unit::Count, "Largest exposition of any node, by profile. The default profile stays within 600.", "max by (profile) (cluster:railscope_exporter_series:max{@cluster})", "{{profile}}").decimals(0),
    ]
}
