//! Tail latency and jitter: which paths have the tail, and whether the host or the fabric is the cause.

use super::{cluster_column, incidents, job_column, node_column, to_job, to_node};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::Column;

/// Classes of incidents that make a tail.
const TAIL: &str = r#"class=~"uplink-jitter|path-slow|host-stalls|host-steal|noisy-neighbour""#;
/// Answered probes by class of path.
const BUCKETS: &str = "path_class:railscope_probe_path_rtt_seconds_bucket:rate2m";

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        incidents("Tail incidents", &format!("{TAIL}, @cluster")),
        Panel::row("Round-trip times by path class"),
        round_trips(),
        quantile("Median round trip", "0.5"),
        quantile("p99 round trip", "0.99"),
        quantile("p99.9 round trip", "0.999"),
        worst_node(),
        Panel::row("Slow probes and loss by path class"),
        share_above("Share above 50 us", "0.00005|5e-05", "Share of answered probes with a round trip above 50 us. Kernel timestamps include interrupt moderation, tens of microseconds on an idle host: compare path classes and nodes."),
        share_above("Share above 200 us", "0.0002", "Share of answered probes with a round trip above 200 us. Typical causes: queues, PFC pauses, host stalls."),
        share_above("Share above 1,000 us", "0.001", "Share of answered probes with a round trip above 1,000 us. Typical causes: host stalls, long PFC pauses, link recovery."),
        loss(),
        Panel::row("Components and pairs with the most slow probes"),
    ]);
    panels.extend(worst());
    panels.push(Panel::row("Host or fabric"));
    panels.extend(host_or_fabric());
    panels.push(Panel::row("Step times of jobs"));
    panels.extend(step_times());
    panels
}

fn share(by: &str, bound: &str) -> String {
    format!(
        r#"clamp_min(1 - sum{by} ({BUCKETS}{{le=~"{bound}", @path}})
        / (sum{by} ({BUCKETS}{{le="+Inf", @path}}) > 0), 0)"#
    )
}

fn lost(by: &str) -> String {
    let lost = format!("sum{by} (path_class:railscope_probe_path_lost:rate2m{{@path}})");
    format!(r#"{lost} / (({lost} + sum{by} ({BUCKETS}{{le="+Inf", @path}})) > 0)"#)
}

fn numbers() -> Vec<Panel> {
    vec![
        Panel::stat("p99.9 of the worst node", Unit::Seconds)
            .shows("Highest p99.9 of any node in the last 4 to 5 minutes, by path class; each node computes it from a sketch with a relative error of at most 0.4 %. Orange above 200 us, red above 1 ms.")
            .size(8, 4)
            .thresholds(&[
                Threshold::base(Color::Good),
                Threshold::from(0.0002, Color::Warning),
                Threshold::from(0.001, Color::Critical),
            ])
            .query(
                Query::new(r#"max by (path_class, transport) (path_class:railscope_probe_path_rtt_quantile_seconds:max{q="0.999", @path})"#)
                    .legend("{{path_class}} {{transport}}"),
            ),
        Panel::stat("Share of probes above 200 us", Unit::Ratio)
            .shows("Share of answered probes with a round trip above 200 us, over all nodes and the chosen path classes.")
            .good_below(0.005, Color::Warning)
            .query(Query::new(&share("", "0.0002"))),
        Panel::stat("Share of probes lost", Unit::Ratio)
            .shows("Probes without an answer before the timeout, as a share of answered and lost ones. Probes to a node that is down count as lost.")
            .good_below(0.001, Color::Warning)
            .query(Query::new(&lost(""))),
        Panel::stat("Nodes with timer stalls", Unit::Count)
            .shows("Nodes with more than 0.1 timer stalls above 1 ms per second. Empty if no node exports timer latency.")
            .decimals(0)
            .good_below(1.0, Color::Warning)
            .query(Query::new("sum(cluster:railscope_timer_stall_nodes:count{@cluster})")),
        Panel::stat("Open tail incidents", Unit::Count)
            .shows("Open incidents of the classes uplink-jitter, path-slow, host-stalls, host-steal and noisy-neighbour. Empty if Prometheus has no data from the collector.")
            .decimals(0)
            .good_below(1.0, Color::Critical)
            .query(Query::new(&format!(
                "count(max by (cluster, incident) (railscope_incident_active{{{TAIL}, @cluster}})) or 0 * count(railscope_collector_build_info{{@cluster}})"
            )))
            .link(Link::to(Board::Fleet)),
    ]
}

fn round_trips() -> Panel {
    Panel::heatmap("Round-trip times: $path_class", Unit::Seconds)
        .shows("Answered probes per second by round-trip time, one panel for each chosen path class. The color scale emphasizes low rates: a faint band far above the main one is the tail.")
        .repeat("path_class")
        .query(Query::new(&format!("sum by (le) ({BUCKETS}{{@path}})")).legend("{{le}}"))
}

fn quantile(title: &'static str, q: &str) -> Panel {
    Panel::curves(title, Unit::Seconds)
        .shows("Estimated from the histogram of all nodes. Interpolation is linear inside a bucket, so the true value lies in the same bucket. Bounds: 5, 10, 20, 50, 100, 200, 500 us, 1, 10, 100 ms.")
        .query(
            Query::new(&format!(
                "histogram_quantile({q}, sum by (path_class, transport, le) ({BUCKETS}{{@path}}))"
            ))
            .legend("{{path_class}} {{transport}}"),
        )
}

fn worst_node() -> Panel {
    Panel::curves("p99.9 round trip of the worst node", Unit::Seconds)
        .shows("The highest p99.9 of any node over its last 4 to 5 minutes, by path class. A gap to the p99.9 of all nodes means that few nodes have the tail.")
        .query(
            Query::new(r#"max by (path_class, transport) (path_class:railscope_probe_path_rtt_quantile_seconds:max{q="0.999", @path})"#)
                .legend("{{path_class}} {{transport}}"),
        )
}

fn share_above(title: &'static str, bound: &str, description: &'static str) -> Panel {
    Panel::curves(title, Unit::Ratio)
        .shows(description)
        .size(12, 7)
        .query(
            Query::new(&share(" by (path_class, transport)", bound))
                .legend("{{path_class}} {{transport}}"),
        )
}

fn loss() -> Panel {
    Panel::curves("Loss rate", Unit::Ratio)
        .shows("Lost probes as a share of answered and lost probes. Jobs wait for the retransmission of a lost packet.")
        .size(12, 7)
        .query(
            Query::new(&lost(" by (path_class, transport)")).legend("{{path_class}} {{transport}}"),
        )
}

/// Pairs of NICs with slow probes, by either end.
const PAIRS: &str = r#"max by (cluster, node, device, peer_node, peer_device, path_class) (railscope_probe_pair_slow_ratio{cluster=~"$cluster", path_class=~"$path_class"})"#;
const COMPONENTS: &str =
    "max by (cluster, component) (railscope_probe_component_slow_ratio{@cluster})";

fn worst() -> Vec<Panel> {
    vec![
        Panel::table("Worst components", Unit::Ratio, "Slow probes")
            .shows("The 20 components with the largest excess of slow probes over all paths of their class: switch, cable (link), NIC, host. Slow is above the threshold of the probe list, 100 us by default. Components of one path share its slow probes: check the highest share first.")
            .size(9, 10)
            .query(Query::new(&format!("topk(20, {COMPONENTS})")))
            .column(Column::label("component", "Component").link(Link::own_page("Tail latency in Railscope", "tail")))
            .column(Column::value(0, "Slow probes"))
            .column(cluster_column()),
        Panel::table("Worst pairs", Unit::Ratio, "Slow probes")
            .shows("The 20 pairs of NICs with the largest excess of slow probes over all paths of their class. Rows with the same node at one end indicate the node or its NIC; rows with different nodes indicate a switch or cable between them.")
            .size(15, 10)
            .query(Query::new(&format!("topk(20, {PAIRS})")))
            .column(node_column())
            .column(Column::label("device", "NIC"))
            .column(Column::label("peer_node", "Peer"))
            .column(Column::label("peer_device", "NIC of the peer"))
            .column(Column::label("path_class", "Path class"))
            .column(Column::value(0, "Slow probes"))
            .column(cluster_column()),
        Panel::curves("Slow probes by component", Unit::Ratio)
            .shows("Share of slow probes over time, 10 components. The collector exports the 20 worst only: a gap means that a component was not among them.")
            .query(Query::new(&format!("topk(10, {COMPONENTS})")).legend("{{component}}")),
        Panel::curves("Slow probes by pair", Unit::Ratio)
            .shows("Share of slow probes over time, 10 pairs of NICs. The collector exports the 20 worst only: a gap means that a pair was not among them.")
            .query(Query::new(&format!("topk(10, {PAIRS})")).legend("{{node}} {{device}} - {{peer_node}} {{peer_device}}"))
            .link(to_node()),
    ]
}

fn host_or_fabric() -> Vec<Panel> {
    const SLOW: &str = "max by (cluster, node) (node:railscope_probes_slow:ratio_rate2m{@su})";
    const STALLS: &str = "max by (cluster, node) (node:railscope_host_timer_stalls:rate2m{@su})";
    vec![
        Panel::curves("Timer stalls above 200 us by node", Unit::PerSecond)
            .shows("Wake-ups of the timer probe that were more than 200 us late, per second, for the 10 worst nodes. Causes are on the host: interrupts, firmware, idle states, a hypervisor.")
            .query(Query::new(&format!("topk(10, {STALLS})")).legend("{{node}}"))
            .link(to_node()),
        Panel::curves("Share of probes above 200 us by node", Unit::Ratio)
            .shows("Share of answered probes above 200 us that the node sent, for the 10 worst nodes. A node that is also among the timer stalls has a host problem. If it is not, check the fabric and the peers.")
            .query(Query::new(&format!("topk(10, {SLOW})")).legend("{{node}}"))
            .link(to_node()),
        Panel::table("Slow probes and timer stalls of the same nodes", Unit::PerSecond, "Slow probes")
            .shows("The 20 nodes with the highest share of probes above 200 us, with their timer stalls above 200 us per second. High in both columns: the host. Slow probes without timer stalls: NIC, cable, switch or peer. No value: the node does not export timer latency.")
            .query(Query::new(&format!("topk(20, {SLOW})")))
            .query(Query::new(&format!("{STALLS} and on (cluster, node) topk(20, {SLOW})")))
            .column(node_column())
            .column(Column::value(0, "Slow probes").unit(Unit::Ratio))
            .column(Column::value(1, "Timer stalls"))
            .column(cluster_column()),
        Panel::heatmap("Timer latency", Unit::Seconds)
            .shows("Wake-ups of the timer probe per second by timer latency, over all nodes. Compare with the round-trip times above: the same band in both indicates the hosts.")
            .size(12, 9)
            .query(Query::new("sum by (le) (cluster:railscope_host_timer_delay_seconds_bucket:rate2m{@cluster})").legend("{{le}}")),
        Panel::curves("Longest timer latency by node", Unit::Seconds)
            .shows("Latest wake-up of the timer probe in the last minute, for the 10 worst nodes.")
            .size(24, 7)
            .query(Query::new("topk(10, max by (cluster, node) (node:railscope_host_timer_delay_max_seconds:max{@su}))").legend("{{node}}"))
            .link(to_node()),
    ]
}

/// Of jobs that write how long their steps take (docs/step-times.md).
fn step_times() -> Vec<Panel> {
    let quantile = |q: &str| {
        format!(
            r#"max by (cluster, hpc_job) (job:railscope_job_step_quantile_seconds:max{{q="{q}", @cluster}})"#
        )
    };
    let (median, p99) = (quantile("0.5"), quantile("0.99"));
    let explained = |cause: &str, estimate: &str| {
        Query::new(&format!(
            r#"max by (cluster, hpc_job) (railscope_job_step_excess_explained_ratio{{cause="{cause}", estimate="{estimate}", @cluster}})"#
        ))
    };
    vec![
        Panel::curves("p99 step time by job", Unit::Seconds)
            .shows("p99 of the last 1,000 steps of each job that writes its step times, for the 10 jobs with the longest. Empty if no job writes them.")
            .query(Query::new(&format!("topk(10, {p99})")).legend("{{hpc_job}}"))
            .link(to_job()),
        Panel::curves("Step time jitter by job", Unit::Ratio)
            .shows("How much longer p99 is than the median step, for the 10 jobs with the most jitter.")
            .query(Query::new(&format!("topk(10, {p99} / {median} - 1)")).legend("{{hpc_job}}"))
            .link(to_job()),
        Panel::curves("Time lost in long steps by job", Unit::Ratio)
            .shows("Time by which steps longer than 1.1 times the median exceeded it, as a share of all time, for the 10 jobs that lose most.")
            .query(
                Query::new("topk(10, max by (cluster, hpc_job) (job:railscope_job_step_excess_seconds:rate2m{@cluster}))")
                    .legend("{{hpc_job}}"),
            )
            .link(to_job()),
        Panel::table("Cause of long steps", Unit::Ratio, "Fabric")
            .shows("Share of the time lost in long steps, over the last hour, that coincides with slow or lost probes (fabric) or late timers (hosts) of the nodes of the job, with the limits of its 95 % confidence interval. No value: not measured, or equal in all windows.")
            .size(24, 8)
            .query(explained("fabric", "value"))
            .query(explained("fabric", "at_least"))
            .query(explained("fabric", "at_most"))
            .query(explained("hosts", "value"))
            .query(explained("hosts", "at_least"))
            .query(explained("hosts", "at_most"))
            .column(job_column())
            .column(Column::value(0, "Fabric"))
            .column(Column::value(1, "at least"))
            .column(Column::value(2, "at most"))
            .column(Column::value(3, "Hosts"))
            .column(Column::value(4, "at least"))
            .column(Column::value(5, "at most"))
            .column(cluster_column()),
    ]
}
