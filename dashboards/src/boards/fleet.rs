//! Fleet: whether it is healthy, which component is not, and how many GPUs that slows.

use super::{
    ANY_IS_BAD, WHOLE_IS_GOOD, cluster_column, incidents, job_column, node_column, to_incident,
    to_node,
};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};
use crate::variable::Variable;

pub(super) fn panels() -> Vec<Panel> {
    vec![
        open_incidents(),
        gpus_affected(),
        gpus_lost(),
        gpu_hours(),
        ports_down(),
        coverage(),
        incidents("Incidents", "@class"),
        over_time(),
        Panel::row("Where"),
        ports_by_rail(),
        slowest_jobs(),
        Panel::row("GPUs and PCIe links that differ from the others"),
        lowered_clocks(),
        narrow_links(),
        hottest(),
        clocks(),
        Panel::row("Over time"),
        by_class(),
        power(),
        other_alerts(),
    ]
}

fn open_incidents() -> Panel {
    Panel::stat("Open incidents", Unit::Count)
        .shows("Faults that the collector has traced to one component each. They are listed below.")
        .decimals(0)
        .thresholds(ANY_IS_BAD)
        .query(Query::new(
            "count(max by (cluster, incident) (railscope_incident_active{@class})) or vector(0)",
        ))
        .link(Link::to(Board::Incident))
}

fn gpus_affected() -> Panel {
    Panel::stat("GPUs affected", Unit::Ratio)
        .shows("GPUs that open incidents slow or stop, as a share of all GPUs. A GPU behind two faults counts twice, up to 100 %.")
        .good_below(0.000_001, Color::Critical)
        .query(Query::new(
            "clamp_max(sum(max by (cluster, incident) (railscope_incident_affected_gpus{@cluster}))
            / sum(cluster:railscope_gpus:count{@cluster}), 1) or vector(0)",
        ))
        .link(Link::to(Board::Incident))
}

fn gpus_lost() -> Panel {
    Panel::stat("GPUs lost now", Unit::Count)
        .shows("GPU-seconds that jobs lose in each second: GPUs whose work is lost now, for any cause.")
        .decimals(1)
        .good_below(1.0, Color::Warning)
        .query(Query::new(
            "sum(component:railscope_job_lost_gpu_seconds:increase1m{@class}) / 60 or vector(0)",
        ))
        .link(Link::to(Board::Job))
}

fn gpu_hours() -> Panel {
    Panel::stat("GPU-hours lost", Unit::GpuHours)
        .shows("GPU-hours that jobs lost to open incidents in the chosen time range; time without an incident to explain it is not counted.")
        .decimals(1)
        .good_below(1.0, Color::Warning)
        .query(
            Query::new(
                r#"sum(sum_over_time(component:railscope_job_lost_gpu_seconds:increase1m{fault_domain!="", @class}[$__range])) / 3600 or vector(0)"#,
            )
            .instant(),
        )
        .link(Link::to(Board::Capacity))
}

fn ports_down() -> Panel {
    Panel::stat("Ports down", Unit::Count)
        .shows("RDMA ports whose state is not ACTIVE, of all ports that exporters report. Unused ports count too.")
        .decimals(0)
        .neutral()
        .query(Query::new("sum(cluster:railscope_rdma_ports_down:count{@cluster})").legend("down"))
        .query(Query::new("sum(cluster:railscope_rdma_ports:count{@cluster})").legend("of"))
        .link(Link::to(Board::Fabric))
}

fn coverage() -> Panel {
    Panel::stat("Coverage", Unit::Ratio)
        .shows("Share of exporters that the collector could scrape last time. Faults on the other nodes are not detected.")
        .thresholds(WHOLE_IS_GOOD)
        .query(Query::new("min(cluster:railscope_collector_target_up:ratio{@cluster})"))
        .link(Link::to(Board::Health))
}

fn over_time() -> Panel {
    Panel::states("Incidents over time")
        .shows("When each incident was open.")
        .thresholds(&[Threshold::base(Color::None), Threshold::from(1.0, Color::Critical)])
        .query(
            Query::new("max by (cluster, fault_domain, class, incident) (railscope_incident_active{@class})")
                .legend("{{fault_domain}} ({{class}})"),
        )
        .link(to_incident())
}

fn ports_by_rail() -> Panel {
    Panel::matrix("Ports down by SU and rail", Unit::Count, "su", "rail")
        .shows("Host ports that are not ACTIVE, by scalable unit and rail. One rail of an SU is a leaf. The SU links to its leaves.")
        .decimals(0)
        .thresholds(&[
            Threshold::base(Color::Good),
            Threshold::from(1.0, Color::Warning),
            Threshold::from(4.0, Color::Critical),
        ])
        .query(Query::new("sum by (su, rail) (leaf_rail:railscope_rdma_ports_down:count{@cluster})"))
        .link(Link::to_cell(Board::Fabric, Variable::Su))
}

fn slowest_jobs() -> Panel {
    Panel::table("Slowest jobs", Unit::Ratio, "GPUs")
        .shows("The 10 jobs with the lowest throughput compared with their own median over 30 minutes. Absent in the first 5 minutes of a job.")
        .query(Query::new(
            "bottomk(10, max by (cluster, hpc_job) (railscope_job_speed_ratio{@cluster}))",
        ))
        .query(Query::new(
            "max by (cluster, hpc_job) (railscope_job_gpus{@cluster})
            and on (cluster, hpc_job) bottomk(10, max by (cluster, hpc_job) (railscope_job_speed_ratio{@cluster}))",
        ))
        .column(job_column())
        .column(
            Column::value(0, "Throughput")
                .cell(Cell::ColoredText)
                .thresholds(&[Threshold::base(Color::Critical), Threshold::from(0.95, Color::Good)]),
        )
        .column(Column::value(1, "GPUs").unit(Unit::Count))
        .column(cluster_column())
}

fn by_class() -> Panel {
    Panel::stacked("Open incidents by class", Unit::Count)
        .shows("Open incidents by fault class.")
        .decimals(0)
        .query(
            Query::new("sum by (class) (class:railscope_incidents:count{@class})")
                .legend("{{class}}"),
        )
        .link(Link::to(Board::Incident).set(Variable::Class, "class"))
}

fn lowered_clocks() -> Panel {
    Panel::table("GPUs with a lowered clock", Unit::Ratio, "Share of time")
        .shows("The 20 GPUs of a cluster whose clock the driver lowers for the largest share of time, by reason. sw_power_cap is normal under load: compare with peers. Empty means none.")
        .query(Query::new(
            "max by (cluster, node, gpu, reason) (gpu:railscope_gpu_clock_event_seconds:top20_rate2m{@cluster})",
        ))
        .column(node_column())
        .column(Column::label("gpu", "GPU"))
        .column(Column::label("reason", "Reason"))
        .column(
            Column::value(0, "Share of time")
                .cell(Cell::Gauge)
                .thresholds(&[Threshold::base(Color::Neutral)]),
        )
        .column(cluster_column())
}

fn narrow_links() -> Panel {
    Panel::table("PCIe links with fewer lanes", Unit::Ratio, "Share of lanes")
        .shows("GPUs and NICs whose PCIe link runs with fewer lanes than it could, at most 100. Empty means none, unless a slot is narrow by design.")
        .query(Query::new(
            "bottomk(100, max by (cluster, node, pci, kind, name) (pci:railscope_pcie_link_width:degraded_ratio{@cluster}))",
        ))
        .column(node_column())
        .column(Column::label("kind", "Kind"))
        .column(Column::label("name", "Device"))
        .column(Column::label("pci", "PCI address"))
        .column(
            Column::value(0, "Share of lanes")
                .cell(Cell::ColoredText)
                .thresholds(&[
                    Threshold::base(Color::Critical),
                    Threshold::from(1.0, Color::Good),
                ]),
        )
        .column(cluster_column())
}

fn hottest() -> Panel {
    Panel::curves("Hottest nodes", Unit::Celsius)
        .shows("The hottest GPU sensor of the 5 nodes that were hottest in the last hour of the time range, and the median of all nodes.")
        .query(
            Query::steady(
                "topk(5",
                "max by (cluster, node)",
                "node:railscope_gpu_temperature_celsius:max{@cluster}",
                "",
            )
            .legend("{{node}}"),
        )
        .query(
            Query::new("max(cluster:railscope_gpu_temperature_celsius:max_median{@cluster})")
                .legend("median"),
        )
        .link(to_node())
}

fn clocks() -> Panel {
    Panel::curves("SM clock: slowest and median", Unit::Hertz)
        .shows("SM clock of the slowest GPU, and the median of the nodes' slowest. A gap is a straggler.")
        .query(Query::new("min(cluster:railscope_gpu_clock_hertz:min{@cluster})").legend("slowest"))
        .query(Query::new("max(cluster:railscope_gpu_clock_hertz:min_median{@cluster})").legend("median"))
        .link(Link::to(Board::Node))
}

fn other_alerts() -> Panel {
    Panel::table("Other alerts of Railscope", Unit::Count, "Alerts")
        .shows("Firing alerts besides incidents: Railscope itself, or faults that no incident explains. Empty means none.")
        .decimals(0)
        .query(Query::new(
            r#"count by (cluster, alertname, severity, component) (ALERTS{alertname=~"Railscope.+", alertname!~"RailscopeIncident.+|RailscopeWatchdog", alertstate="firing", @cluster})"#,
        ))
        .column(Column::severity())
        .column(Column::label("alertname", "Alert").link(Link::to(Board::Health)))
        .column(Column::label("component", "Component"))
        .column(Column::value(0, "Alerts"))
        .column(cluster_column())
}

fn power() -> Panel {
    Panel::curves("GPU power", Unit::Watts)
        .shows("Power drawn by all GPUs. Jobs that wait draw less.")
        .query(
            Query::new("sum by (cluster) (cluster:railscope_gpu_power_watts:sum{@cluster})")
                .legend("all GPUs {{cluster}}"),
        )
        .link(Link::to(Board::Capacity))
}
