//! The nine dashboards, one file each, and what several of them share.

use crate::board::{Board, Dashboard};
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};
use crate::variable::Variable;

mod capacity;
mod fabric;
mod fleet;
mod health;
mod incident;
mod job;
mod node;
mod roce;
mod tail;

/// Every dashboard with its panels.
pub(crate) fn all() -> Vec<Dashboard> {
    let panels = |board| match board {
        Board::Fleet => fleet::panels(),
        Board::Incident => incident::panels(),
        Board::Fabric => fabric::panels(),
        Board::Node => node::panels(),
        Board::Job => job::panels(),
        Board::Tail => tail::panels(),
        Board::Roce => roce::panels(),
        Board::Capacity => capacity::panels(),
        Board::Health => health::panels(),
    };
    let dashboard = |board| Dashboard {
        board,
        panels: panels(board),
    };
    Board::ALL.into_iter().map(dashboard).collect()
}

/// Bad from the first on.
const ANY_IS_BAD: &[Threshold] = &[
    Threshold::base(Color::Good),
    Threshold::from(1.0, Color::Critical),
];

/// A share that is below 1 only while something is missing.
const WHOLE_IS_GOOD: &[Threshold] = &[
    Threshold::base(Color::Critical),
    Threshold::from(0.9, Color::Warning),
    Threshold::from(1.0, Color::Good),
];

fn to_incident() -> Link {
    Link::to(Board::Incident).set(Variable::Incident, "incident")
}

fn to_node() -> Link {
    Link::to(Board::Node).set(Variable::Node, "node")
}

fn to_job() -> Link {
    Link::to(Board::Job).set(Variable::Job, "hpc_job")
}

fn node_column() -> Column {
    Column::label("node", "Node").link(to_node())
}

fn leaf_column() -> Column {
    Column::label("leaf", "Leaf").link(Link::to(Board::Fabric).set(Variable::Leaf, "leaf"))
}

fn job_column() -> Column {
    Column::label("hpc_job", "Job").link(to_job())
}

fn cluster_column() -> Column {
    Column::label("cluster", "Cluster")
}

/// The component, without a link; `with_node` gives the node that it is in.
fn component_column() -> Column {
    Column::label("fault_domain", "Component")
}

/// The series with a label `node`, taken from components such as `gpu/n7:3`. Empty for switches.
fn with_node(series: &str) -> String {
    format!(r#"label_replace({series}, "node", "$1", "fault_domain", "[a-z]+/([^:]+):.*")"#)
}

/// Open incidents of these series, one row each. `selector` is within the braces of `railscope_incident_active`.
fn incidents(title: &'static str, selector: &str) -> Panel {
    const LABELS: &str = "cluster, fault_domain, incident, class, severity, node, alternatives";
    let row = |value: &str| {
        Query::new(&format!(
            "{value} * on (cluster, fault_domain, incident) group_left (class, severity, node, alternatives)
            max by ({LABELS}) (railscope_incident_active{{{selector}}})"
        ))
    };
    Panel::table(title, Unit::Count, "GPUs")
        .shows("Open incidents, one row for each component to repair. Component and incident link to its series, the class to its runbook. An empty table means no open incident.")
        .size(24, 7)
        .decimals(0)
        .query(row("max by (cluster, fault_domain, incident) (railscope_incident_affected_gpus{@cluster})"))
        .query(row("1000 * max by (cluster, fault_domain, incident) (railscope_incident_start_time_seconds{@cluster})"))
        .column(Column::severity())
        .column(Column::label("class", "Class").link(Link::runbook()))
        .column(Column::label("fault_domain", "Component to repair").link(to_incident()).link(Link::incident_page()))
        .column(Column::label("alternatives", "Other possible causes"))
        .column(node_column())
        .column(
            Column::value(0, "GPUs")
                .cell(Cell::ColoredText)
                .thresholds(&[Threshold::base(Color::None), Threshold::from(1.0, Color::Warning), Threshold::from(8.0, Color::Critical)]),
        )
        .column(Column::value(1, "Since").unit(Unit::Time))
        .column(cluster_column())
        .column(Column::label("incident", "Incident").link(to_incident()).link(Link::incident_page()))
}
