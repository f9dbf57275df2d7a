//! Capacity and cost: what faults have cost over time, and how much of the network is in use.

use super::{cluster_column, component_column, job_column, leaf_column, node_column, with_node};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};
use crate::variable::Variable;

const COMPONENT: &str = "component:railscope_job_lost_gpu_seconds:increase1m";
const JOB: &str = "job:railscope_job_lost_gpu_seconds:increase1m";

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        by_day(),
        by_week(),
        by_component(),
        by_job(),
        incident_hours(),
        gpus_over_time(),
        Panel::row("Network: use and headroom"),
    ]);
    panels.extend(network());
    panels
}

fn numbers() -> Vec<Panel> {
    let lost = format!("sum(sum_over_time({COMPONENT}{{@class}}[$__range]))");
    vec![
        Panel::stat("GPU-hours lost to faults and slowdowns", Unit::GpuHours)
            .shows("GPU-hours that jobs lost in the chosen time range, for any cause, including unexplained ones.")
            .size(6, 4)
            .decimals(1)
            .good_below(1.0, Color::Warning)
            .query(Query::new(&format!("{lost} / 3600 or vector(0)")).instant()),
        Panel::stat("Share of capacity lost", Unit::Ratio)
            .shows("Lost GPU-hours as a share of the GPU-hours that the cluster had in the chosen time range.")
            .size(6, 4)
            .decimals(2)
            .good_below(0.01, Color::Warning)
            .query(
                Query::new(&format!(
                    "{lost} / sum(sum_over_time(cluster:railscope_gpu_seconds:increase1m{{@cluster}}[$__range])) or vector(0)"
                ))
                .instant(),
            ),
        Panel::stat("GPUs in the cluster", Unit::Count)
            .shows("GPUs that exporters report now.")
            .size(6, 4)
            .decimals(0)
            .neutral()
            .query(Query::new("sum(cluster:railscope_gpus:count{@cluster})")),
        Panel::stat("Utilization of host ports", Unit::Ratio)
            .shows("Traffic that all host ports send, as a share of their link speed.")
            .size(6, 4)
            .neutral()
            .query(Query::new(
                "sum(leaf_rail:railscope_rdma_port_transmit_bytes:rate2m{@cluster})
                / sum(leaf_rail:railscope_rdma_port_speed_bytes_per_second:sum{@cluster})",
            ))
            .link(Link::to(Board::Fabric)),
    ]
}

/// GPU-hours by class in steps of this length. A bar stands at the beginning of its step: the offset looks forward, so that
/// the step that has not ended has its bar too.
fn by_step(title: &'static str, description: &'static str, step: &'static str) -> Panel {
    Panel::bars(title, Unit::GpuHours)
        .shows(description)
        .query(
            Query::new(&format!(
                "sum by (class) (sum_over_time({COMPONENT}{{@class}}[{step}] offset -{step})) / 3600"
            ))
            .legend("{{class}}")
            .every(step),
        )
        .link(Link::to(Board::Incident).set(Variable::Class, "class"))
}

fn by_day() -> Panel {
    by_step(
        "GPU-hours lost by class and day",
        "GPU-hours lost on each day, by fault class. Class unexplained: no incident was open.",
        "1d",
    )
}

fn by_week() -> Panel {
    by_step(
        "GPU-hours lost by class and week",
        "GPU-hours lost in each week, by fault class. Choose a time range of several weeks.",
        "1w",
    )
}

fn by_component() -> Panel {
    let lost = format!(
        "topk(50, sum by (cluster, class, fault_domain) (sum_over_time({COMPONENT}{{@class}}[$__range])) / 3600 > 0)"
    );
    Panel::table("GPU-hours lost by component", Unit::GpuHours, "GPU-hours")
        .shows("The 50 components that cost the most GPU-hours in the chosen time range: candidates for replacement.")
        .decimals(2)
        .query(Query::new(&with_node(&lost)))
        .column(component_column())
        .column(Column::label("class", "Class").link(Link::runbook()))
        .column(node_column())
        .column(Column::value(0, "GPU-hours"))
        .column(cluster_column())
}

fn by_job() -> Panel {
    Panel::table("GPU-hours lost by job", Unit::GpuHours, "GPU-hours")
        .shows("The 50 jobs that lost the most GPU-hours in the chosen time range.")
        .decimals(2)
        .query(Query::new(&format!(
            "topk(50, sum by (cluster, hpc_job) (sum_over_time({JOB}{{@job}}[$__range])) / 3600 > 0)"
        )))
        .column(job_column())
        .column(Column::value(0, "GPU-hours"))
        .column(cluster_column())
}

fn incident_hours() -> Panel {
    Panel::bars("Hours of open incidents by class and day", Unit::IncidentHours)
        .shows("Hours for which incidents were open on each day, by fault class; two open at once count twice.")
        .query(
            Query::new("sum by (class) (sum_over_time(class:railscope_incidents:hours1m{@class}[1d] offset -1d))")
                .legend("{{class}}")
                .every("1d"),
        )
        .link(Link::to(Board::Incident).set(Variable::Class, "class"))
}

fn gpus_over_time() -> Panel {
    Panel::curves("GPUs and nodes", Unit::Count)
        .shows("GPUs and nodes that exporters report.")
        .decimals(0)
        .query(
            Query::new("sum by (cluster) (cluster:railscope_gpus:count{@cluster})")
                .legend("GPUs {{cluster}}"),
        )
        .query(
            Query::new("sum by (cluster) (cluster:railscope_nodes:count{@cluster})")
                .legend("nodes {{cluster}}"),
        )
        .link(Link::to(Board::Fleet))
}

fn network() -> Vec<Panel> {
    let used = "max by (cluster, leaf, rail) (leaf_rail:railscope_rdma_port_transmit_utilization:ratio_rate2m{@cluster})";
    vec![
        Panel::curves("Headroom by rail", Unit::Ratio)
            .shows("Share of the host ports' link speed that is not in use, by rail.")
            .max(1.0)
            .query(
                Query::new(
                    "1 - sum by (rail) (leaf_rail:railscope_rdma_port_transmit_bytes:rate2m{@cluster})
                    / (sum by (rail) (leaf_rail:railscope_rdma_port_speed_bytes_per_second:sum{@cluster}) > 0)",
                )
                .legend("rail {{rail}}"),
            )
            .link(Link::to(Board::Fabric).set(Variable::Rail, "rail")),
        Panel::table("Busiest leaves", Unit::Ratio, "Utilization")
            .shows("The 20 leaves whose host ports use the largest share of their link speed.")
            .query(Query::new(&format!("topk(20, {used})")))
            .column(leaf_column())
            .column(Column::label("rail", "Rail"))
            .column(Column::value(0, "Utilization").cell(Cell::Gauge).thresholds(&[
                Threshold::base(Color::Neutral),
                Threshold::from(0.9, Color::Warning),
            ]))
            .column(cluster_column()),
        Panel::table("Oversubscription of leaves", Unit::Count, "Host ports for each uplink")
            .shows("Host ports for each uplink cable of the leaf, missing cables excluded; the 50 largest. Above 1 the uplinks have less capacity, if all links have the same speed. Only while the graph shows single switches.")
            .decimals(2)
            .query(Query::new("topk(50, max by (cluster, leaf) (leaf:railscope_oversubscription:ratio{@cluster}))"))
            .column(leaf_column())
            .column(Column::value(0, "Host ports for each uplink").cell(Cell::ColoredText).thresholds(&[
                Threshold::base(Color::Good),
                Threshold::from(1.000_001, Color::Warning),
            ]))
            .column(cluster_column()),
        Panel::curves("Energy use: power of all GPUs", Unit::Watts)
            .shows("Power drawn by all GPUs.")
            .query(Query::new("sum by (cluster) (cluster:railscope_gpu_power_watts:sum{@cluster})").legend("all GPUs {{cluster}}"))
            .link(Link::to(Board::Fleet)),
    ]
}
