//! Incident: the component, the jobs that use it, and its series around the onset beside those of its peers.

use super::{ANY_IS_BAD, incidents, job_column, to_node};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::Column;
use crate::variable::Variable;

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = vec![
        component(),
        gpus_behind(),
        gpus_of_jobs(),
        slowdown(),
        since(),
        incidents("This incident", "@incident").size(24, 5),
        state(),
        jobs(),
        Panel::row("The node compared with the median of all nodes"),
    ];
    panels.extend(node_and_median());
    panels.push(Panel::row("GPUs, PCIe links and ports of the node"));
    panels.extend(inside());
    panels.push(Panel::row(
        "The switch compared with the median of all leaves: empty unless the component is a switch or an uplink",
    ));
    panels.extend(switch());
    panels
}

fn component() -> Panel {
    Panel::name("Component to repair")
        .shows("The root cause, and its fault class.")
        .size(8, 4)
        .query(
            Query::new(
                "max by (cluster, fault_domain, class, node) (railscope_incident_active{@incident})",
            )
            .legend("{{fault_domain}} ({{class}})"),
        )
        .link(to_node())
}

fn gpus_behind() -> Panel {
    Panel::stat("GPUs behind it", Unit::Count)
        .shows("GPUs that are the component, or whose path crosses it.")
        .decimals(0)
        .thresholds(ANY_IS_BAD)
        .query(Query::new(
            "max by (cluster, incident) (railscope_incident_gpus_behind{@incident})",
        ))
        .link(Link::incident_page())
}

fn gpus_of_jobs() -> Panel {
    Panel::stat("With the GPUs of its jobs", Unit::Count)
        .shows("The GPUs behind the component and all GPUs of the jobs that use it. The slowdown shows whether these jobs are slower.")
        .decimals(0)
        .query(Query::new(
            "max by (cluster, incident) (railscope_incident_affected_gpus{@incident})",
        ))
        .link(Link::to(Board::Job))
}

fn slowdown() -> Panel {
    Panel::stat("Measured slowdown", Unit::Ratio)
        .shows("Slowdown of the slowest job that uses it, compared with its usual throughput. Empty until it can be measured: this takes five minutes of a job.")
        .thresholds(&[
            Threshold::base(Color::None),
            Threshold::from(0.05, Color::Critical),
        ])
        .query(Query::new(
            "max by (cluster, incident) (railscope_incident_slowdown_ratio{@incident})",
        ))
        .link(Link::to(Board::Job))
}

fn since() -> Panel {
    Panel::stat("Since", Unit::Time)
        .shows("When the first evidence was seen.")
        .neutral()
        .query(Query::new(
            "1000 * min by (cluster, incident) (railscope_incident_start_time_seconds{@incident})",
        ))
        .link(Link::incident_page())
}

fn state() -> Panel {
    Panel::states("When it was open")
        .shows("The bar begins at the onset; the curves below share the time axis.")
        .size(12, 7)
        .thresholds(&[
            Threshold::base(Color::None),
            Threshold::from(1.0, Color::Critical),
        ])
        .query(
            Query::new("max by (fault_domain, class) (railscope_incident_active{@incident})")
                .legend("{{fault_domain}} ({{class}})"),
        )
}

fn jobs() -> Panel {
    Panel::table("Jobs that use it", Unit::Count, "GPUs of the job")
        .shows("Jobs that use the component, with the GPUs that they hold.")
        .size(12, 7)
        .decimals(0)
        .query(Query::new(
            "max by (cluster, hpc_job) (railscope_job_gpus{@cluster})
            and on (cluster, hpc_job) max by (cluster, hpc_job) (railscope_incident_job_info{@incident})",
        ))
        .column(job_column())
        .column(Column::value(0, "GPUs of the job"))
        .column(Column::label("cluster", "Cluster"))
}

/// One quantity of the incident's node, and its median over all nodes.
fn beside_median(
    title: &'static str,
    unit: Unit,
    description: &'static str,
    series: &str,
) -> Panel {
    let (name, operation) = series.split_once(':').unwrap_or((series, ""));
    Panel::curves(title, unit)
        .shows(description)
        .size(8, 7)
        .query(
            Query::new(&format!(
                "max by (cluster, node) (node:railscope_{name}:{operation}{{@subject}})"
            ))
            .legend("{{node}}"),
        )
        .query(
            Query::new(&format!(
                "max(cluster:railscope_{name}:{operation}_median{{@cluster}})"
            ))
            .legend("median"),
        )
        .link(to_node())
}

fn node_and_median() -> Vec<Panel> {
    vec![
        beside_median(
            "Slowest SM clock of the node",
            Unit::Hertz,
            "Clock of the slowest GPU of the node. Below the median: power limit, heat or a hardware slowdown.",
            "gpu_clock_hertz:min",
        ),
        beside_median(
            "Hottest GPU sensor of the node",
            Unit::Celsius,
            "Highest temperature of the node's GPUs.",
            "gpu_temperature_celsius:max",
        ),
        beside_median(
            "Traffic sent by the node",
            Unit::BytesPerSecond,
            "Bytes that all ports of the node send. Collectives load all nodes alike.",
            "rdma_port_transmit_bytes:rate2m",
        ),
        beside_median(
            "Credit wait of the node",
            Unit::PerSecond,
            "Ticks per second in which ports had data and no credit. A straggler waits less than the median, its peers wait more.",
            "rdma_port_transmit_wait_ticks:rate2m",
        ),
        beside_median(
            "Port errors of the node",
            Unit::PerSecond,
            "Port errors of all kinds per second.",
            "rdma_port_errors:rate2m",
        ),
        Panel::curves("Pause of the node", Unit::Ratio)
            .shows("Share of time of the most paused port (RoCE): receive is pause by the switch, transmit is pause that the NIC sends.")
            .size(8, 7)
            .query(Query::new("max by (cluster, node, direction) (node:railscope_nic_pause:ratio_rate2m{@subject})").legend("{{direction}}"))
            .query(Query::new("max by (direction) (cluster:railscope_nic_pause:ratio_rate2m_median{@cluster})").legend("median {{direction}}"))
            .link(Link::to(Board::Roce)),
        beside_median(
            "Timer stalls of the node",
            Unit::PerSecond,
            "Wake-ups more than 200 us late, per second: hypervisor, firmware or interrupts.",
            "host_timer_stalls:rate2m",
        ),
        beside_median(
            "Slow probes of the node",
            Unit::Ratio,
            "Share of the node's probes with a round trip above 200 us.",
            "probes_slow:ratio_rate2m",
        ),
    ]
}

fn inside() -> Vec<Panel> {
    vec![
        Panel::curves("SM clock by GPU of the node", Unit::Hertz)
            .shows("SM clock of each GPU of the node.")
            .size(8, 7)
            .query(Query::new(r#"max by (node, gpu) (railscope_gpu_clock_hertz{clock="sm", @subject})"#).legend("GPU {{gpu}}"))
            .link(to_node()),
        Panel::curves("Throttle reasons of the node", Unit::Ratio)
            .shows("Share of time for which the driver lowered the clock, by GPU and reason; the 10 largest. sw_power_cap is normal under load.")
            .size(8, 7)
            .query(Query::new("topk(10, max by (node, gpu, reason) (rate(railscope_gpu_clock_event_seconds_total{@subject}[$__rate_interval])) > 0)").legend("GPU {{gpu}} {{reason}}"))
            .link(to_node()),
        Panel::curves("PCIe lanes of the node", Unit::Count)
            .shows("Lanes of each PCIe link of the node. A link that has fewer than it could also has a limit line.")
            .size(8, 7)
            .decimals(0)
            .query(Query::new("max by (node, pci) (railscope_pcie_link_width_lanes{@subject})").legend("{{pci}}"))
            .query(Query::new("max by (node, pci) (railscope_pcie_link_max_width_lanes{@subject} > railscope_pcie_link_width_lanes{@subject})").legend("limit {{pci}}"))
            .link(to_node()),
        Panel::curves("Traffic sent by port of the node", Unit::BytesPerSecond)
            .shows("Bytes that each port sends, and the speed of the fastest link.")
            .size(8, 7)
            .query(Query::new("sum by (node, device, port) (rate(railscope_rdma_port_transmit_bytes_total{@subject}[$__rate_interval]))").legend("{{device}}/{{port}}"))
            .query(Query::new("max(railscope_rdma_port_speed_bytes_per_second{@subject})").legend("link speed"))
            .link(to_node()),
        Panel::curves("Credit wait by port of the node", Unit::PerSecond)
            .shows("Ticks per second in which the port had data and no credit.")
            .size(8, 7)
            .query(Query::new("sum by (node, device, port) (rate(railscope_rdma_port_transmit_wait_ticks_total{@subject}[$__rate_interval]))").legend("{{device}}/{{port}}"))
            .link(to_node()),
        Panel::curves("Ports of the node that are up", Unit::Count)
            .shows("1 while the port is ACTIVE.")
            .size(8, 7)
            .decimals(0)
            .query(Query::new("max by (node, device, port) (railscope_rdma_port_up{@subject})").legend("{{device}}/{{port}}"))
            .link(to_node()),
    ]
}

fn switch() -> Vec<Panel> {
    let to_leaf = || Link::to(Board::Fabric).set(Variable::Leaf, "leaf");
    let panel = |title, unit, description, series: &str, median: &str| {
        Panel::curves(title, unit)
            .shows(description)
            .size(12, 7)
            .query(
                Query::new(&format!(
                    "max by (cluster, leaf, rail) ({series}{{@switch}})"
                ))
                .legend("{{leaf}} rail {{rail}}"),
            )
            .query(
                Query::new(&format!(
                    "max({median}{{@cluster}}) and on () max({series}{{@switch}})"
                ))
                .legend("median"),
            )
            .link(to_leaf())
    };
    vec![
        Panel::curves("Ports down at the leaf", Unit::Count)
            .shows("Host ports at the leaf that are not ACTIVE, and all its host ports: if all are down, the leaf is the cause. Only for incidents of a leaf or its uplinks.")
            .size(12, 7)
            .decimals(0)
            .query(Query::new("max by (cluster, leaf, rail) (leaf_rail:railscope_rdma_ports_down:count{@switch})").legend("{{leaf}} rail {{rail}}"))
            .query(Query::new("max by (cluster, leaf, rail) (leaf_rail:railscope_rdma_ports:count{@switch})").legend("limit {{leaf}} rail {{rail}}"))
            .link(to_leaf()),
        panel(
            "Utilization of the leaf's host ports",
            Unit::Ratio,
            "Sent traffic of the hosts at the leaf as a share of their link speed. Only for incidents of a leaf or its uplinks.",
            "leaf_rail:railscope_rdma_port_transmit_utilization:ratio_rate2m",
            "cluster:railscope_leaf_rdma_port_transmit_utilization:ratio_rate2m_median",
        ),
        panel(
            "Credit wait at the leaf",
            Unit::PerSecond,
            "Credit wait of the hosts at the leaf, ticks per second. Only for incidents of a leaf or its uplinks.",
            "leaf_rail:railscope_rdma_port_transmit_wait_ticks:rate2m",
            "cluster:railscope_leaf_rdma_port_transmit_wait_ticks:rate2m_median",
        ),
        panel(
            "Port errors at the leaf",
            Unit::PerSecond,
            "Port errors of the hosts at the leaf per second. Only for incidents of a leaf or its uplinks.",
            "leaf_rail:railscope_rdma_port_errors:rate2m",
            "cluster:railscope_leaf_rdma_port_errors:rate2m_median",
        ),
    ]
}
