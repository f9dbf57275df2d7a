//! Inside a node: GPU, NVLink, PCIe, NIC and NUMA side by side, along the path from GPU to leaf.

use super::{ANY_IS_BAD, incidents, job_column, leaf_column};
use crate::board::Board;
use crate::link::Link;
use crate::panel::{Color, Panel, Threshold, Unit};
use crate::query::Query;
use crate::table::{Cell, Column};
use crate::variable::Variable;

pub(super) fn panels() -> Vec<Panel> {
    let mut panels = numbers();
    panels.extend([
        incidents("Incidents of this node", "@node").size(24, 5),
        path(),
        Panel::row("GPU"),
    ]);
    panels.extend(gpus());
    panels.push(Panel::row("NVLink"));
    panels.extend(nvlink());
    panels.push(Panel::row("PCIe"));
    panels.extend(pcie());
    panels.push(Panel::row("NIC and leaf"));
    panels.extend(nics());
    panels.push(Panel::row("NUMA, kernel and sources"));
    panels.extend(host());
    panels
}

fn numbers() -> Vec<Panel> {
    vec![
        Panel::stat("GPUs", Unit::Count)
            .shows("GPUs that the exporter reports.")
            .decimals(0)
            .neutral()
            .query(Query::new("count(railscope_gpu_info{@node})")),
        Panel::stat("Ports of the node down", Unit::Count)
            .shows("RDMA ports whose state is not ACTIVE.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new("sum(railscope_rdma_port_up{@node} == bool 0)")),
        Panel::stat("PCIe links with missing lanes", Unit::Count)
            .shows("PCIe links that run with fewer lanes than they could.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "count(railscope_pcie_link_width_lanes{@node} < railscope_pcie_link_max_width_lanes{@node}) or vector(0)",
            )),
        Panel::stat("NVLinks up", Unit::Ratio)
            .shows("NVLinks that are up, as a share of those that the GPUs have. Some boards leave links unused by design: compare with peers.")
            .neutral()
            .query(Query::new(
                "sum(railscope_gpu_nvlinks_active{@node}) / (sum(railscope_gpu_nvlinks{@node}) > 0)",
            )),
        Panel::stat("Open incidents of the node", Unit::Count)
            .shows("Open incidents whose component is in this node.")
            .decimals(0)
            .thresholds(ANY_IS_BAD)
            .query(Query::new(
                "count(max by (cluster, incident) (railscope_incident_active{@node})) or vector(0)",
            )),
        Panel::stat("Age of the oldest source", Unit::Seconds)
            .shows("Time since the exporter last read its oldest source. A driver that hangs shows here.")
            .good_below(60.0, Color::Warning)
            .query(Query::new("max(railscope_source_age_seconds{@node})"))
            .link(Link::to(Board::Health)),
    ]
}

fn path() -> Panel {
    Panel::table("Path from GPU to leaf", Unit::BitsPerSecond, "Link speed")
        .shows("Each GPU with its nearest NIC, the connection between them (PIX: one PCIe switch, SYS: the other socket), and the leaf at the other end of the cable.")
        .size(24, 10)
        .query(Query::new(
            r#"8 * max by (cluster, node, gpu, device, hop) (railscope_gpu_nic_info{nearest="true", @node})
            * on (cluster, node, device) group_left (rail, leaf, leaf_port)
            topk by (cluster, node, device) (1, max by (cluster, node, device, rail, leaf, leaf_port) (railscope_port_topology_info{@node}))
            * on (cluster, node, device) group_left () max by (cluster, node, device) (railscope_rdma_port_speed_bytes_per_second{@node})"#,
        ))
        .column(Column::label("gpu", "GPU"))
        .column(Column::label("hop", "Connection"))
        .column(Column::label("device", "NIC"))
        .column(Column::label("rail", "Rail"))
        .column(leaf_column())
        .column(Column::label("leaf_port", "Port of the leaf"))
        .column(Column::value(0, "Link speed"))
        .column(Column::label("node", "Node").link(Link::to(Board::Roce).set(Variable::Node, "node")))
}

fn panel(title: &'static str, unit: Unit, description: &'static str) -> Panel {
    Panel::curves(title, unit).shows(description).size(8, 7)
}

fn gpus() -> Vec<Panel> {
    vec![
        panel("SM clock", Unit::Hertz, "SM clock by GPU, and the median of the cluster.")
            .query(Query::new(r#"max by (gpu) (railscope_gpu_clock_hertz{clock="sm", @node})"#).legend("GPU {{gpu}}"))
            .query(Query::new("max(cluster:railscope_gpu_clock_hertz:min_median{@cluster})").legend("median")),
        panel("Power", Unit::Watts, "Power drawn by GPU, and the smallest power limit. A GPU with a lower limit than its peers is a straggler.")
            .query(Query::new("max by (gpu) (railscope_gpu_power_watts{@node})").legend("GPU {{gpu}}"))
            .query(Query::new("min(railscope_gpu_power_limit_watts{@node})").legend("limit")),
        panel("Temperature", Unit::Celsius, "Temperature by GPU and sensor, and the median of the nodes' hottest sensors.")
            .query(Query::new("max by (gpu, sensor) (railscope_gpu_temperature_celsius{@node})").legend("GPU {{gpu}} {{sensor}}"))
            .query(Query::new("max(cluster:railscope_gpu_temperature_celsius:max_median{@cluster})").legend("median")),
        panel("Throttling", Unit::Ratio, "Share of time for which the driver lowered the clock, by GPU and reason. sw_power_cap is normal under load: compare with peers.")
            .query(Query::new("max by (gpu, reason) (rate(railscope_gpu_clock_event_seconds_total{@node}[$__rate_interval])) > 0").legend("GPU {{gpu}} {{reason}}")),
        panel("Utilization", Unit::Ratio, "Share of time in which a kernel ran. A GPU that waits in a collective also shows 100 %.")
            .query(Query::new("max by (gpu) (railscope_gpu_utilization_ratio{@node})").legend("GPU {{gpu}}")),
        panel("ECC errors and XIDs", Unit::PerSecond, "ECC errors by severity and XID errors, per second.")
            .query(Query::new("sum by (gpu, severity) (rate(railscope_gpu_ecc_errors_total{@node}[$__rate_interval]))").legend("GPU {{gpu}} ECC {{severity}}"))
            .query(Query::new("max by (gpu, xid) (rate(railscope_gpu_xid_events_total{@node}[$__rate_interval]))").legend("GPU {{gpu}} XID {{xid}}")),
    ]
}

fn nvlink() -> Vec<Panel> {
    vec![
        panel("NVLink traffic", Unit::BytesPerSecond, "Payload sent over all NVLinks of each GPU.")
            .query(Query::new("sum by (gpu) (rate(railscope_gpu_nvlink_transmit_bytes_total{@node}[$__rate_interval]))").legend("GPU {{gpu}}"))
            .link(Link::to(Board::Roce)),
        panel("NVLink errors", Unit::PerSecond, "NVLink errors by GPU and kind.")
            .query(Query::new("sum by (gpu, kind) (rate(railscope_gpu_nvlink_errors_total{@node}[$__rate_interval]))").legend("GPU {{gpu}} {{kind}}"))
            .link(Link::to(Board::Roce)),
        panel("Active NVLinks", Unit::Count, "NVLinks that are up, by GPU.")
            .decimals(0)
            .query(Query::new("max by (gpu) (railscope_gpu_nvlinks_active{@node})").legend("GPU {{gpu}}"))
            .link(Link::to(Board::Roce)),
    ]
}

fn pcie() -> Vec<Panel> {
    vec![
        Panel::table("PCIe links", Unit::Count, "Share")
            .shows("PCIe links with fewer lanes than they could have. Empty means none, unless a slot is narrow by design.")
            .size(8, 7)
            .query(Query::new("max by (node, pci, kind, name) (pci:railscope_pcie_link_width:degraded_ratio{@node})"))
            .column(Column::label("kind", "Kind"))
            .column(Column::label("name", "Device"))
            .column(Column::label("pci", "PCI address"))
            .column(
                Column::value(0, "Share")
                    .unit(Unit::Ratio)
                    .cell(Cell::ColoredText)
                    .thresholds(&[Threshold::base(Color::Critical), Threshold::from(1.0, Color::Good)]),
            )
            .column(Column::label("node", "Node").link(Link::own_page("Incidents in Railscope", ""))),
        panel("PCIe replays of GPUs", Unit::PerSecond, "PCIe packets that GPUs sent again, per second.")
            .query(Query::new("sum by (gpu) (rate(railscope_gpu_pcie_replays_total{@node}[$__rate_interval]))").legend("GPU {{gpu}}")),
        panel("PCIe errors (AER)", Unit::PerSecond, "Advanced Error Reporting by function and severity. Full profile only.")
            .query(Query::new("sum by (pci, severity) (rate(railscope_pcie_errors_total{@node}[$__rate_interval])) > 0").legend("{{pci}} {{severity}}")),
    ]
}

fn nics() -> Vec<Panel> {
    vec![
        panel("Traffic sent by port", Unit::BytesPerSecond, "Bytes that each port sends, and the speed of its fastest link. Collectives load all ports alike.")
            .query(Query::new("sum by (device, port) (rate(railscope_rdma_port_transmit_bytes_total{@node}[$__rate_interval]))").legend("{{device}}/{{port}}"))
            .query(Query::new("max(railscope_rdma_port_speed_bytes_per_second{@node})").legend("link speed"))
            .link(Link::to(Board::Fabric)),
        panel("Traffic received by port", Unit::BytesPerSecond, "Bytes that each port receives, and the speed of its fastest link.")
            .query(Query::new("sum by (device, port) (rate(railscope_rdma_port_receive_bytes_total{@node}[$__rate_interval]))").legend("{{device}}/{{port}}"))
            .query(Query::new("max(railscope_rdma_port_speed_bytes_per_second{@node})").legend("link speed"))
            .link(Link::to(Board::Fabric)),
        panel("Credit wait by port", Unit::PerSecond, "Ticks per second in which the port had data and no credit. A tick has no fixed length: compare the ports.")
            .query(Query::new("sum by (device, port) (rate(railscope_rdma_port_transmit_wait_ticks_total{@node}[$__rate_interval]))").legend("{{device}}/{{port}}"))
            .link(Link::to(Board::Fabric)),
        panel("Link speed by port", Unit::BitsPerSecond, "Data rate of each link. A port below the others has lost lanes or rate.")
            .query(Query::new("8 * max by (device, port) (railscope_rdma_port_speed_bytes_per_second{@node})").legend("{{device}}/{{port}}"))
            .link(Link::to(Board::Fabric)),
        panel("Port errors", Unit::PerSecond, "Port error counters by kind.")
            .query(Query::new("sum by (device, port, kind) (rate(railscope_rdma_port_errors_total{@node}[$__rate_interval]))").legend("{{device}}/{{port}} {{kind}}"))
            .link(Link::to(Board::Fabric)),
        panel("RDMA transport events", Unit::PerSecond, "Transport events by device and event, as its driver names them; the 20 most frequent.")
            .query(Query::new("topk(20, sum by (device, event) (rate(railscope_rdma_transport_events_total{@node}[$__rate_interval])) > 0)").legend("{{device}} {{event}}"))
            .link(Link::to(Board::Roce)),
    ]
}

fn host() -> Vec<Panel> {
    vec![
        panel("Timer stalls", Unit::PerSecond, "Wake-ups of the timer probe more than 200 us late, per second and NUMA node: hypervisor, firmware, interrupts.")
            .query(Query::new(
                r#"clamp_min(sum by (numa_node) (rate(railscope_host_timer_delay_seconds_count{@node}[$__rate_interval]))
                - sum by (numa_node) (rate(railscope_host_timer_delay_seconds_bucket{le="0.0002", @node}[$__rate_interval])), 0)"#,
            ).legend("NUMA node {{numa_node}}"))
            .link(Link::to(Board::Tail)),
        panel("Round trips of the node's probes", Unit::Seconds, "p99.9 of the node's probes in the last 4 to 5 minutes, by path class.")
            .query(Query::new(r#"max by (path_class, transport) (railscope_probe_path_rtt_quantile_seconds{q="0.999", @node})"#).legend("{{path_class}} {{transport}}"))
            .link(Link::to(Board::Tail).set(Variable::PathClass, "path_class")),
        panel("Hardware events in the kernel log", Unit::PerSecond, "Messages about hardware, links, storage and memory, by device and event.")
            .query(Query::new("sum by (device, event) (rate(railscope_kernel_hardware_events_total{@node}[$__rate_interval])) > 0").legend("{{device}} {{event}}")),
        Panel::table("Sources of the exporter", Unit::Count, "Source")
            .shows("Status of each source. Absent and unsupported are facts about the machine; failed, denied and timeout are errors.")
            .size(12, 8)
            .query(Query::new(r#"max by (node, source, status) (railscope_source_status{device="", @node})"#))
            .column(Column::label("source", "Source"))
            .column(Column::label("status", "Status").link(Link::to(Board::Health)))
            .column(Column::value(0, "Reported"))
            .column(Column::label("node", "Node")),
        Panel::table("Jobs on the node", Unit::Count, "GPUs")
            .shows("Jobs of a batch system that hold GPUs of the node.")
            .size(12, 8)
            .decimals(0)
            .query(Query::new(
                r#"count by (cluster, hpc_job) (max by (cluster, hpc_job, gpu) (railscope_workload_info{gpu!="", hpc_job!="", @node}))"#,
            ))
            .column(job_column())
            .column(Column::value(0, "GPUs")),
    ]
}
