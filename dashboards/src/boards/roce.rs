//! RoCE and NVLink: pause, marks, discards and errors by priority, direction and link.

use super::{ANY_IS_BAD, cluster_column, node_column, to_node};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.push(Panel::row("RoCE of the cluster"));
    panels.extend(cluster());
    panels.push(Panel::row("RoCE of the chosen node: $node"));
    panels.extend(roce_of_node());
    panels.push(Panel::row("NVLink of the cluster"));
    panels.extend(nvlink_of_cluster());
    panels.push(Panel::row("NVLink of the chosen node: $node"));
    panels.extend(nvlink_of_node());
    panels
}

/// Whether anything is wrong, and where first.
fn numbers() -> Vec<Panel> {
    vec![
        Panel::name("Sends the most pause")
            .shows("The node whose NIC stops its switch for the largest share of time. Empty if none does for more than 1 %.")
            .size(6, 4)
            .query(
                Query::new(r#"topk(1, max by (cluster, node) (node:railscope_nic_pause:ratio_rate2m{direction="transmit", @su})) > 0.01"#)
                    .legend("{{node}}"),
            )
            .link(to_node()),
        Panel::stat("Largest share of pause sent", Unit::Ratio)
            .shows("Share of time for which the NIC that pauses most stopped its switch. No value on InfiniBand.")
            .size(6, 4)
            .good_below(0.1, Color::Critical)
            .query(Query::new(r#"max(node:railscope_nic_pause:ratio_rate2m{direction="transmit", @su})"#)),
        Panel::stat("ECN marks", Unit::PerSecond)
            .shows("RoCE packets received with the congestion mark per second, all leaves. No value on InfiniBand.")
            .neutral()
            .query(Query::new(
                "sum(leaf_rail:railscope_rdma_ecn_marked_packets:rate2m{@leaf})",
            )),
        Panel::stat("CNPs", Unit::PerSecond)
            .shows("Congestion notification packets that receivers sent per second, all leaves. No value on InfiniBand.")
            .neutral()
            .query(Query::new(
                r#"sum(leaf_rail:railscope_rdma_cnp:rate2m{point="np", @leaf})"#,
            )),
        Panel::stat("Nodes with NVLink errors", Unit::Count)
            .shows("Nodes on which NVLink errors were counted in the last two minutes.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "count(max by (cluster, node) (node:railscope_gpu_nvlink_errors:rate2m{@su}) > 0) or vector(0)",
            )),
    ]
}

fn cluster() -> Vec<Panel> {
    let paused = |direction: &str| {
        format!(
            r#"max by (cluster, node) (node:railscope_nic_pause:ratio_rate2m{{direction="{direction}", @su}})"#
        )
    };
    vec![
        Panel::curves("Nodes that send the most pause", Unit::Ratio)
            .shows("Share of time for which the NIC that pauses most stopped its switch; the 10 largest nodes. The highest is the cause of a pause storm; nodes that only receive pause are victims.")
            .query(Query::new(&format!("topk(10, {})", paused("transmit"))).legend("{{node}}"))
            .link(to_node()),
        Panel::curves("Nodes that receive the most pause", Unit::Ratio)
            .shows("Share of time for which the switch paused the most paused NIC; the 10 largest.")
            .query(Query::new(&format!("topk(10, {})", paused("receive"))).legend("{{node}}"))
            .link(to_node()),
        Panel::table("Pause sent and received by node", Unit::Ratio, "Sends")
            .size(12, 8)
            .shows("The 20 nodes that send the most pause, with what they receive. Empty on InfiniBand.")
            .query(Query::new(&format!("topk(20, {})", paused("transmit"))))
            .query(Query::new(&format!(
                "{} and on (cluster, node) topk(20, {})",
                paused("receive"),
                paused("transmit")
            )))
            .column(node_column())
            .column(Column::value(0, "Sends").cell(Cell::Gauge).thresholds(&[
                Threshold::base(Color::Neutral),
                Threshold::from(0.1, Color::Critical),
            ]))
            .column(Column::value(1, "Receives").cell(Cell::Gauge).thresholds(&[Threshold::base(Color::Neutral)]))
            .column(cluster_column()),
        Panel::curves("Congestion notification packets", Unit::PerSecond)
            .shows("CNPs per second: sent by receivers of marked packets (np), handled by senders (rp).")
            .query(Query::new("sum by (rail, point) (leaf_rail:railscope_rdma_cnp:rate2m{@leaf})").legend("rail {{rail}} {{point}}"))
            .link(Link::to(Board::Fabric)),
        Panel::curves("ECN marks by leaf", Unit::PerSecond)
            .shows("RoCE packets received with the congestion mark, per second; the 10 leaves with most.")
            .query(Query::new("topk(10, sum by (cluster, leaf) (leaf_rail:railscope_rdma_ecn_marked_packets:rate2m{@leaf}))").legend("{{leaf}}"))
            .link(Link::to(Board::Fabric)),
        Panel::curves("ECN marks by node", Unit::PerSecond)
            .shows("RoCE packets received with the congestion mark, per second; the 10 nodes with most.")
            .query(Query::new("topk(10, max by (cluster, node) (node:railscope_rdma_ecn_marked_packets:rate2m{@su}))").legend("{{node}}"))
            .link(to_node()),
    ]
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
        .link(Link::to(Board::Node))
}

fn roce_of_node() -> Vec<Panel> {
    vec![
        panel(
            "Pause by NIC",
            Unit::Ratio,
            "Share of time by direction: receive is pause by the switch, transmit is pause that the NIC sends. All priorities together, so several paused ones add up.",
            "sum by (netdev, direction) (rate(railscope_nic_pause_seconds_total{@node}[$__rate_interval]))",
            "{{netdev}} {{direction}}",
        ),
        panel(
            "Peak pause by NIC",
            Unit::Ratio,
            "Largest share of one second in the last 15 s: shows a one-second storm that an average hides.",
            r#"max by (netdev, direction) (railscope_nic_peak_pause_ratio{window="15s", @node})"#,
            "{{netdev}} {{direction}}",
        ),
        panel(
            "PFC pause by priority",
            Unit::Ratio,
            "Share of time for which a priority was paused, by direction. Full profile only.",
            "sum by (netdev, priority, direction) (rate(railscope_nic_pfc_pause_seconds_total{@node}[$__rate_interval]))",
            "{{netdev}} priority {{priority}} {{direction}}",
        ),
        panel(
            "PFC frames by priority",
            Unit::PerSecond,
            "PFC frames by priority and direction. Full profile only.",
            "sum by (netdev, priority, direction) (rate(railscope_nic_pfc_frames_total{@node}[$__rate_interval]))",
            "{{netdev}} priority {{priority}} {{direction}}",
        ),
        panel(
            "Traffic by priority",
            Unit::BytesPerSecond,
            "Bytes by priority and direction: shows whether RoCE uses the lossless priority. Full profile only.",
            "sum by (netdev, priority, direction) (rate(railscope_nic_priority_bytes_total{@node}[$__rate_interval]))",
            "{{netdev}} priority {{priority}} {{direction}}",
        ),
        panel(
            "Discards by NIC",
            Unit::PerSecond,
            "Packets that the port dropped without an error, by direction and reason.",
            "sum by (netdev, direction, reason) (rate(railscope_nic_discards_total{@node}[$__rate_interval]))",
            "{{netdev}} {{direction}} {{reason}}",
        ),
        panel(
            "ECN marks by port",
            Unit::PerSecond,
            "RoCE packets received with the congestion mark.",
            "sum by (device, port) (rate(railscope_rdma_ecn_marked_packets_total{@node}[$__rate_interval]))",
            "{{device}}/{{port}}",
        ),
        panel(
            "CNPs by port",
            Unit::PerSecond,
            "Congestion notification packets: sent (np), handled or ignored (rp).",
            "sum by (device, point, action) (rate(railscope_rdma_cnp_total{@node}[$__rate_interval]))",
            "{{device}} {{point}} {{action}}",
        ),
        panel(
            "PCIe back-pressure of NICs",
            Unit::Ratio,
            "Share of time in which the NIC could not write to PCIe for lack of credits: the host is the slow receiver.",
            "sum by (netdev, operation) (rate(railscope_nic_pcie_stalled_seconds_total{@node}[$__rate_interval]))",
            "{{netdev}} {{operation}}",
        ),
    ]
}

fn nvlink_of_cluster() -> Vec<Panel> {
    vec![
        Panel::curves("NVLink traffic: nodes with the least", Unit::BytesPerSecond)
            .shows("NVLink payload that the GPUs of a node send; the 10 nodes with the least in the last hour of the time range. Nodes of one job send alike.")
            .query(
                Query::steady(
                    "bottomk(10",
                    "max by (cluster, node)",
                    "node:railscope_gpu_nvlink_transmit_bytes:rate2m{@su}",
                    "",
                )
                .legend("{{node}}"),
            )
            .link(to_node()),
        Panel::table("Nodes with the most NVLink errors", Unit::PerSecond, "Errors per second")
            .shows("The 20 nodes with the most NVLink errors per second. Empty means none.")
            .size(12, 8)
            .query(Query::new("topk(20, max by (cluster, node) (node:railscope_gpu_nvlink_errors:rate2m{@su}) > 0)"))
            .column(node_column())
            .column(Column::value(0, "Errors per second"))
            .column(cluster_column()),
    ]
}

fn nvlink_of_node() -> Vec<Panel> {
    vec![
        panel("NVLink traffic by GPU", Unit::BytesPerSecond, "Payload sent over all NVLinks of each GPU.", "sum by (gpu) (rate(railscope_gpu_nvlink_transmit_bytes_total{@node}[$__rate_interval]))", "GPU {{gpu}}"),
        panel("NVLink errors by GPU", Unit::PerSecond, "NVLink errors by GPU and kind.", "sum by (gpu, kind) (rate(railscope_gpu_nvlink_errors_total{@node}[$__rate_interval]))", "GPU {{gpu}} {{kind}}"),
        panel("NVLink utilization by link", Unit::Ratio, "Payload sent over each link as a share of its speed; the 20 largest. Full profile only.", "topk(20, sum by (gpu, link) (rate(railscope_nvlink_transmit_bytes_total{@node}[$__rate_interval])) / max by (gpu, link) (railscope_nvlink_speed_bytes_per_second{@node} > 0))", "GPU {{gpu}} link {{link}}").max(1.0),
        panel("NVLink errors by link", Unit::PerSecond, "Errors by link and kind; the 20 largest. Full profile only.", "topk(20, sum by (gpu, link, kind) (rate(railscope_nvlink_errors_total{@node}[$__rate_interval])) > 0)", "GPU {{gpu}} link {{link}} {{kind}}"),
        panel("NVLinks down", Unit::Count, "Links that are not up, by GPU. Some boards leave links unused by design. Full profile only.", "sum by (gpu) (railscope_nvlink_up{@node} == bool 0)", "GPU {{gpu}}").decimals(0),
        panel("NVLink credit wait by link", Unit::PerSecond, "Ticks per second in which data waited for credit; the 20 largest. Blackwell and later. Full profile only.", "topk(20, sum by (gpu, link) (rate(railscope_nvlink_transmit_wait_ticks_total{@node}[$__rate_interval])))", "GPU {{gpu}} link {{link}}"),
    ]
}
