//! Jobs: which are slow, which rank delays them, and what they have lost.

use super::{
    ANY_IS_BAD, cluster_column, component_column, incidents, job_column, node_column, to_incident,
    to_job, to_node, with_node,
};
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        result_by_job(),
        stragglers(),
        throughput(),
        lost_over_time(),
        Panel::row("Causes"),
        lost_by_cause(),
        incidents_of_jobs(),
        incidents("Incidents of all jobs", "@cluster"),
        Panel::row("Nodes of the chosen jobs"),
    ]);
    panels.extend(nodes());
    panels
}

fn numbers() -> Vec<Panel> {
    vec![
        Panel::stat("Jobs", Unit::Count)
            .shows("Jobs that hold GPUs.")
            .size(6, 4)
            .decimals(0)
            .neutral()
            .query(Query::new(
                "count(max by (cluster, hpc_job) (railscope_job_gpus{@job})) or vector(0)",
            )),
        Panel::stat("Jobs that wait for a component", Unit::Count)
            .shows("Jobs that wait for the component of an open incident.")
            .size(6, 4)
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "count(max by (cluster, hpc_job) (railscope_incident_job_info{@job})) or vector(0)",
            )),
        Panel::stat("Jobs with load imbalance", Unit::Count)
            .shows("Jobs whose ranks have unequal work, with no hardware cause.")
            .size(6, 4)
            .decimals(0)
            .good_below(1.0, Color::Warning)
            .query(Query::new(
                r#"count(max by (cluster, hpc_job) (railscope_job_waiting_info{answer="software-imbalance", @job})) or vector(0)"#,
            )),
        Panel::stat("GPUs lost", Unit::Count)
            .shows("GPU-seconds that the chosen jobs lose in each second: GPUs whose work is lost now.")
            .size(6, 4)
            .decimals(1)
            .good_below(1.0, Color::Warning)
            .query(Query::new(
                "sum(job:railscope_job_lost_gpu_seconds:increase1m{@job}) / 60 or vector(0)",
            )),
    ]
}

fn result_by_job() -> Panel {
    Panel::table("Straggler analysis by job", Unit::Count, "GPUs")
        .shows("The result for each job: balanced, straggler, software-imbalance or unknown, and what it is based on. The 100 largest jobs.")
        .decimals(0)
        .query(Query::new(
            "topk(100, max by (cluster, hpc_job) (railscope_job_gpus{@job}) * on (cluster, hpc_job) group_right ()
            max by (cluster, hpc_job, answer, basis) (railscope_job_waiting_info{@job}))",
        ))
        .column(job_column())
        .column(Column::label("answer", "Result"))
        .column(Column::label("basis", "Based on"))
        .column(Column::value(0, "GPUs"))
        .column(cluster_column())
}

fn stragglers() -> Panel {
    Panel::table("Straggler ranking", Unit::Ratio, "Share of a step")
        .shows("Ranks that wait less, or compute longer, than the median of their job, as a share of a step. The first of each job is the rank that delays the others.")
        .query(Query::new(&with_node(
            "topk(50, max by (cluster, hpc_job, fault_domain) (railscope_job_rank_excess_ratio{@job}))",
        )))
        .column(job_column())
        .column(component_column())
        .column(node_column())
        .column(Column::value(0, "Share of a step").cell(Cell::Gauge).thresholds(&[
            Threshold::base(Color::Neutral),
            Threshold::from(0.05, Color::Warning),
        ]))
        .column(cluster_column())
}

fn throughput() -> Panel {
    Panel::curves("Throughput compared with the usual", Unit::Ratio)
        .shows("Throughput of each job as a share of its median over 30 minutes; the 20 slowest. Below 95 % it loses GPU time. Absent in the first 5 minutes.")
        .query(
            Query::new("bottomk(20, max by (cluster, hpc_job) (railscope_job_speed_ratio{@job}))")
                .legend("{{hpc_job}}"),
        )
        .link(to_job())
}

fn lost_over_time() -> Panel {
    Panel::stacked("GPUs lost by job and class", Unit::Count)
        .shows("GPU-seconds lost in each second, by the class of the incident that the job waited for; the 20 largest.")
        .query(
            Query::new("topk(20, sum by (hpc_job, class) (job:railscope_job_lost_gpu_seconds:increase1m{@job})) / 60")
                .legend("{{hpc_job}} {{class}}"),
        )
        .link(to_job())
}

fn lost_by_cause() -> Panel {
    Panel::table("GPU-hours lost by job and cause", Unit::GpuHours, "GPU-hours")
        .shows("GPU-hours lost in the chosen time range, by job and fault class; the 50 largest. Class unexplained: no incident was open for the job.")
        .decimals(2)
        .query(Query::new(
            "topk(50, sum by (cluster, hpc_job, class) (sum_over_time(job:railscope_job_lost_gpu_seconds:increase1m{@job}[$__range])) / 3600 > 0)",
        ))
        .column(job_column())
        .column(Column::label("class", "Class"))
        .column(Column::value(0, "GPU-hours"))
        .column(cluster_column())
}

fn incidents_of_jobs() -> Panel {
    Panel::table("Incidents that jobs wait for", Unit::Count, "Jobs")
        .shows("Open incidents with the jobs that wait for their component. Empty means none.")
        .decimals(0)
        .query(Query::new(
            "max by (cluster, fault_domain, incident, hpc_job) (railscope_incident_job_info{@job})",
        ))
        .column(Column::label("fault_domain", "Component to repair").link(to_incident()))
        .column(job_column())
        .column(Column::label("incident", "Incident").link(to_incident()))
        .column(Column::value(0, "Jobs"))
        .column(cluster_column())
}

/// The 10 nodes of the chosen jobs with the smallest or largest value.
fn extreme(
    title: &'static str,
    unit: Unit,
    description: &'static str,
    pick: &str,
    series: &str,
) -> Panel {
    Panel::curves(title, unit)
        .shows(description)
        .query(
            Query::steady(
                &format!("{pick}(10"),
                "max by (cluster, node)",
                &format!("{series}{{@cluster}}"),
                "and on (cluster, node) job_node:railscope_workload:info{@job}",
            )
            .legend("{{node}}"),
        )
        .link(to_node())
}

fn nodes() -> Vec<Panel> {
    vec![
        extreme(
            "Nodes of the jobs that send least",
            Unit::BytesPerSecond,
            "The 10 nodes that sent least in the last hour of the time range. Jobs of a batch system only.",
            "bottomk",
            "node:railscope_rdma_port_transmit_bytes:rate2m",
        ),
        extreme(
            "Nodes of the jobs that wait least",
            Unit::PerSecond,
            "The 10 nodes with the least credit wait in the last hour of the time range: the straggler is among them. Jobs of a batch system only.",
            "bottomk",
            "node:railscope_rdma_port_transmit_wait_ticks:rate2m",
        ),
        extreme(
            "Slowest GPUs of the jobs",
            Unit::Hertz,
            "SM clock of the slowest GPU, for the 10 nodes that were slowest in the last hour of the time range. Jobs of a batch system only.",
            "bottomk",
            "node:railscope_gpu_clock_hertz:min",
        ),
        Panel::table("Nodes of the jobs", Unit::Count, "Node")
            .shows("Nodes on which the chosen jobs run, at most 200. Jobs of a batch system only.")
            .size(12, 8)
            .query(Query::new(
                "topk(200, max by (cluster, hpc_job, node) (job_node:railscope_workload:info{@job}))",
            ))
            .column(node_column())
            .column(job_column())
            .column(Column::value(0, "Jobs"))
            .column(cluster_column()),
    ]
}
