//! Fabric: which SU, leaf or rail differs from the others.

use super::{ANY_IS_BAD, cluster_column, leaf_column, node_column};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};
use crate::variable::Variable;

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        heat_by_su(),
        heat_by_leaf(),
        ports_down_by_leaf(),
        slow_links(),
        Panel::row("Rails"),
    ]);
    panels.extend(rails());
    panels.extend([
        Panel::row("Ports that differ from the others"),
        waiting_ports(),
        error_ports(),
        Panel::row("Graph and cabling"),
        graph(),
        missing_cables(),
        wiring(),
    ]);
    panels
}

fn numbers() -> Vec<Panel> {
    vec![
        Panel::name("Topology")
            .shows("Topology type that the collector detected, and the number of switch tiers.")
            .query(
                Query::new("max by (cluster, kind, levels) (railscope_fabric_verdict_info{@cluster})")
                    .legend("{{kind}}, {{levels}} tiers")
                    .instant(),
            ),
        Panel::stat("Host ports down", Unit::Count)
            .shows("Host ports of the chosen leaves and rails that are not ACTIVE.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new("sum(leaf_rail:railscope_rdma_ports_down:count{@leaf})")),
        Panel::stat("Cables missing", Unit::Count)
            .shows("Cables between vertices of the graph that no source reports any more.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "sum(max by (cluster, source, target) (railscope_graph_edge_lost_cables{@cluster}))",
            )),
        Panel::stat("Wiring errors", Unit::Count)
            .shows("Differences from a correct wiring, all rules. They are listed below.")
            .decimals(0)
            .good_below(1.0, Color::Warning)
            .query(Query::new(
                "sum(max by (cluster, rule) (railscope_topology_findings{@cluster}))",
            )),
        Panel::stat("Nodes with a missing rail", Unit::Count)
            .shows("Nodes that have fewer rails than their peers.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "sum(max by (cluster) (railscope_fabric_hosts_missing_rail{@cluster}))",
            )),
        Panel::stat("Age of the subnet data", Unit::Seconds)
            .shows("Time since the last complete InfiniBand sweep. No value without a subnet source.")
            .good_below(300.0, Color::Warning)
            .query(Query::new(
                "max(min by (cluster) (railscope_collector_subnet_age_seconds{@cluster}))",
            ))
            .link(Link::to(Board::Health)),
    ]
}

fn heat_by_su() -> Panel {
    Panel::matrix("SU by rail: $metric", Unit::Count, "su", "rail")
        .shows("The quantity that is chosen at the top, largest leaf in each SU and rail. The scale ends at the largest value. The SU links to its leaves.")
        .query(Query::new("max by (su, rail) ($metric{@leaf})"))
        .link(Link::to_cell(Board::Fabric, Variable::Su))
}

fn heat_by_leaf() -> Panel {
    Panel::matrix("Leaf by rail: $metric", Unit::Count, "leaf", "rail")
        .shows("The quantity that is chosen at the top, by leaf and rail; the 128 leaves with the largest values. Choose an SU for the others. The leaf links to its own curves.")
        .query(Query::new("topk(128, max by (leaf, rail) ($metric{@leaf}))"))
        .link(Link::to_cell(Board::Fabric, Variable::Leaf))
}

fn ports_down_by_leaf() -> Panel {
    Panel::matrix("Ports down by leaf and rail", Unit::Count, "leaf", "rail")
        .shows("Host ports that are not ACTIVE, by leaf and rail; only leaves with such ports. If all ports of a leaf are down, the leaf is the cause. On a rail-optimized fabric a leaf has one rail.")
        .decimals(0)
        .thresholds(&[
            Threshold::base(Color::Good),
            Threshold::from(1.0, Color::Warning),
            Threshold::from(4.0, Color::Critical),
        ])
        .query(Query::new(
            "topk(128, sum by (leaf, rail) (leaf_rail:railscope_rdma_ports_down:count{@leaf}) > 0)",
        ))
        .link(Link::to_cell(Board::Fabric, Variable::Leaf))
}

fn slow_links() -> Panel {
    Panel::table("Ports slower than the median", Unit::BitsPerSecond, "Link speed")
        .shows("Host ports whose link runs below the median speed of the cluster: lanes or rate missing. Empty means none.")
        .query(Query::new(
            "topk(100, 8 * max by (cluster, node, device, port, rail, leaf) (port:railscope_rdma_port_speed_bytes_per_second:below_median{@leaf}))",
        ))
        .column(node_column())
        .column(Column::label("device", "Device"))
        .column(Column::label("port", "Port"))
        .column(leaf_column())
        .column(Column::label("rail", "Rail"))
        .column(Column::value(0, "Link speed"))
        .column(cluster_column())
}

/// A quantity by rail, of the chosen SU and leaves.
fn by_rail(title: &'static str, unit: Unit, description: &'static str, query: &str) -> Panel {
    Panel::curves(title, unit)
        .shows(description)
        .query(Query::new(query).legend("rail {{rail}}"))
        .link(Link::to(Board::Fabric).set(Variable::Rail, "rail"))
}

fn rails() -> Vec<Panel> {
    vec![
        by_rail(
            "Traffic sent by rail",
            Unit::BytesPerSecond,
            "Bytes that host ports send. Collectives load all rails alike: look at a rail below the others.",
            "sum by (rail) (leaf_rail:railscope_rdma_port_transmit_bytes:rate2m{@leaf})",
        ),
        by_rail(
            "Utilization by rail",
            Unit::Ratio,
            "Sent traffic as a share of the link speed of the host ports that are up.",
            "sum by (rail) (leaf_rail:railscope_rdma_port_transmit_bytes:rate2m{@leaf})
            / (sum by (rail) (leaf_rail:railscope_rdma_port_speed_bytes_per_second:sum{@leaf}) > 0)",
        )
        .max(1.0),
        by_rail(
            "Credit wait by rail",
            Unit::PerSecond,
            "Ticks per second in which host ports had data and no credit: congestion ahead of them. A tick has no fixed length: compare rails, not networks.",
            "sum by (rail) (leaf_rail:railscope_rdma_port_transmit_wait_ticks:rate2m{@leaf})",
        ),
        by_rail(
            "Errors by rail",
            Unit::PerSecond,
            "Errors of host ports per second, all kinds.",
            "sum by (rail) (leaf_rail:railscope_rdma_port_errors:rate2m{@leaf})",
        ),
        by_rail(
            "Pause by rail",
            Unit::Ratio,
            "Share of time for which switches paused the host ports (RoCE), mean over the ports of the most paused leaf.",
            "max by (rail) (leaf_rail:railscope_nic_pause:ratio_rate2m{@leaf})",
        ),
        by_rail(
            "ECN marks by rail",
            Unit::PerSecond,
            "RoCE packets received with the congestion mark, per second.",
            "sum by (rail) (leaf_rail:railscope_rdma_ecn_marked_packets:rate2m{@leaf})",
        ),
    ]
}

fn waiting_ports() -> Panel {
    Panel::table("Ports with the most credit wait", Unit::PerSecond, "Ticks per second")
        .shows("The 20 host ports of a cluster with the most credit wait. If one port of a rail waits, examine its destination. The straggler itself waits least.")
        .query(Query::new(
            "max by (cluster, node, device, port, rail, leaf) (port:railscope_rdma_port_transmit_wait_ticks:top20_rate2m{@leaf})",
        ))
        .column(node_column())
        .column(Column::label("device", "Device"))
        .column(Column::label("port", "Port"))
        .column(leaf_column())
        .column(Column::label("rail", "Rail"))
        .column(Column::value(0, "Ticks per second"))
        .column(cluster_column())
}

fn error_ports() -> Panel {
    Panel::table("Ports with the most errors", Unit::PerSecond, "Errors per second")
        .shows("The 20 error counters of a cluster that increase fastest. The receiving end counts: the faulty component is often the far end. Empty means none.")
        .query(Query::new(
            "max by (cluster, node, device, port, kind, rail, leaf) (port:railscope_rdma_port_errors:top20_rate2m{@leaf})",
        ))
        .column(node_column())
        .column(Column::label("device", "Device"))
        .column(Column::label("port", "Port"))
        .column(Column::label("kind", "Kind"))
        .column(leaf_column())
        .column(Column::label("rail", "Rail"))
        .column(Column::value(0, "Errors per second").cell(Cell::ColoredText).thresholds(ANY_IS_BAD))
        .column(cluster_column())
}

fn graph() -> Panel {
    const FAULTY: &str =
        "max by (cluster, id, title, tier) (railscope_graph_vertex_faulty_parts{@cluster})";
    let color = |bound: &str, color: &str| {
        format!(r#"label_replace({FAULTY} {bound}, "color", "{color}", "", "")"#)
    };
    let (red, green) = (color("> 0", "red"), color("== 0", "green"));
    Panel::node_graph("Fabric graph")
        .shows("A vertex is a switch or the nodes of a unit; in larger fabrics the leaves of a unit, or a tier. A red vertex has faulty components; its number is their count. The number on an edge is its number of cables.")
        .decimals(0)
        .query(
            Query::new(&format!(
                r#"label_replace(label_join({red} or {green}, "id", "/", "cluster", "id"), "subtitle", "$1", "tier", "(.*)")"#
            ))
            .named("nodes"),
        )
        .query(
            Query::new(
                r#"label_join(label_join(label_join(max by (cluster, source, target) (railscope_graph_edge_cables{@cluster}), "source", "/", "cluster", "source"), "target", "/", "cluster", "target"), "id", " - ", "source", "target")"#,
            )
            .named("edges"),
        )
        .link(Link::to(Board::Fabric).set(Variable::Leaf, "title"))
}

fn missing_cables() -> Panel {
    Panel::table("Missing cables", Unit::Count, "Cables")
        .shows("Where cables are missing that a source reported before. Empty means none.")
        .decimals(0)
        .query(Query::new(
            "max by (cluster, source, target) (railscope_graph_edge_lost_cables{@cluster}) > 0",
        ))
        .column(Column::label("source", "From").link(Link::own_page("Structure in Railscope", "")))
        .column(Column::label("target", "To"))
        .column(Column::value(0, "Cables"))
        .column(cluster_column())
}

fn wiring() -> Panel {
    Panel::table("Wiring findings", Unit::Count, "Findings")
        .shows("Wiring errors by rule; each with its component on Railscope's web page and under /api/v1/topology/lint. Empty means none.")
        .decimals(0)
        .query(Query::new(
            "max by (cluster, rule) (railscope_topology_findings{@cluster}) > 0",
        ))
        .column(Column::label("rule", "Rule").link(Link::own_page("Wiring in Railscope", "")))
        .column(Column::value(0, "Findings"))
        .column(cluster_column())
}
