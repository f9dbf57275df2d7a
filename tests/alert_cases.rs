//! Fault cases in clusters, with the expected notifications.

use std::fmt::Write as _;

use railscope_collector::classes::CLASSES;

/// An open incident as the collector exports it.
fn incident(component: &str, class: &str, severity: &str, id: &str) -> String {
    let node = component
        .split_once('/')
        .map(|(_, rest)| rest.split(':').next().unwrap_or_default());
    let node = node
        .filter(|_| !component.starts_with("switch/"))
        .unwrap_or_default();
    format!(
        "railscope_incident_active{{fault_domain=\"{component}\",class=\"{class}\",severity=\"{severity}\",node=\"{node}\",incident=\"{id}\",alternatives=\"\"}} 1\n\
         railscope_incident_text_info{{fault_domain=\"{component}\",incident=\"{id}\",title=\"{class}\",part=\"{component}\",seen=\"Seen.\",action=\"Mend {component}.\"}} 1\n"
    )
}

/// Ports of 64 hosts on one leaf, all up or all down.
fn ports(up: u8) -> String {
    let mut text = String::new();
    for node in 0..64 {
        writeln!(
            text,
            "railscope_rdma_port_up{{node=\"n{node}\",device=\"mlx5_0\",port=\"1\"}} {up}"
        )
        .expect("a text");
    }
    text
}

/// Topology of these ports, which the collector retains after they go down.
fn map_of_ports() -> String {
    let mut text = String::new();
    for node in 0..64 {
        writeln!(
            text,
            "railscope_port_topology_info{{node=\"n{node}\",device=\"mlx5_0\",port=\"1\",rail=\"0\",leaf=\"leaf-0\",leaf_port=\"{node}\"}} 1"
        )
        .expect("a text");
    }
    text
}

/// Number of firing and of resolved notifications of one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) firing: usize,
    pub(crate) resolved: usize,
}

pub(crate) const ONE: Count = Count {
    firing: 1,
    resolved: 1,
};

/// The servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    Collector,
    /// The other of a pair.
    Second,
    Exporters,
}

/// Response of a server from this second on.
pub(crate) type Step = (u64, Server, Option<String>);

/// One cluster: events, and expected notifications by receiver and component.
pub(crate) struct Case {
    pub(crate) cluster: &'static str,
    pub(crate) steps: Vec<Step>,
    pub(crate) wanted: Vec<(&'static str, String, Count)>,
}

fn case(cluster: &'static str, steps: Vec<Step>, wanted: &[(&'static str, &str, Count)]) -> Case {
    let wanted = wanted.iter();
    Case {
        cluster,
        steps,
        wanted: wanted
            .map(|(path, component, count)| (*path, (*component).to_owned(), *count))
            .collect(),
    }
}

pub(crate) fn exports(text: impl Into<String>) -> Option<String> {
    Some(text.into())
}

const GPU: &str = "gpu/n7:3";
const PAGER: &str = "/pager";
const TICKETS: &str = "/tickets";

/// Changes of one fault.
pub(crate) fn cases_of_one_fault() -> Vec<Case> {
    use Server::Collector;
    let gpu = |class, severity, id| exports(incident(GPU, class, severity, id));
    vec![
        case(
            "plain",
            vec![
                (1, Collector, gpu("gpu-lost", "critical", "a")),
                (8, Collector, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
        case(
            "class-sharpens",
            vec![
                (1, Collector, gpu("gpu-slow", "critical", "a")),
                (5, Collector, gpu("gpu-error", "critical", "a")),
                (8, Collector, gpu("gpu-lost", "critical", "b")),
                (12, Collector, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
        case(
            "severity-rises",
            vec![
                (1, Collector, gpu("gpu-slow", "warning", "a")),
                (10, Collector, gpu("gpu-slow", "critical", "a")),
                (14, Collector, exports("")),
            ],
            &[(TICKETS, GPU, ONE), (PAGER, GPU, ONE)],
        ),
        case(
            "severity-rises-at-once",
            vec![
                (1, Collector, gpu("gpu-slow", "warning", "a")),
                (3, Collector, gpu("gpu-slow", "critical", "a")),
                (8, Collector, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
    ]
}

/// Intermittent faults, and collectors that restart.
pub(crate) fn cases_of_gaps() -> Vec<Case> {
    use Server::{Collector, Exporters, Second};
    let gpu = |class, severity, id| exports(incident(GPU, class, severity, id));
    let action = "railscope_gpu_recovery_action{node=\"n7\",gpu=\"3\"} 1\n";
    vec![
        case(
            "collector-restarts",
            vec![
                (1, Collector, gpu("gpu-lost", "critical", "a")),
                (6, Collector, None),
                (8, Collector, exports("")),
                (10, Collector, gpu("gpu-lost", "critical", "a")),
                (14, Collector, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
        case(
            "flaps",
            vec![
                (1, Collector, gpu("gpu-lost", "critical", "a")),
                (4, Collector, exports("")),
                (8, Collector, gpu("gpu-lost", "critical", "a")),
                (11, Collector, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
        // The exporters' report fires before the incident opens, and ends before it ends.
        case(
            "fallback-first",
            vec![
                (1, Exporters, exports(action)),
                (10, Collector, gpu("gpu-error", "critical", "a")),
                (12, Exporters, exports("")),
                (16, Collector, exports("")),
            ],
            &[(PAGER, "host/n7", ONE)],
        ),
        case(
            "pair",
            vec![
                (1, Collector, gpu("gpu-slow", "critical", "a")),
                (1, Second, exports("")),
                (3, Second, gpu("gpu-lost", "critical", "a")),
                (5, Collector, None),
                (9, Collector, gpu("gpu-lost", "warning", "a")),
                (11, Collector, exports("")),
                (13, Second, exports("")),
            ],
            &[(PAGER, GPU, ONE)],
        ),
    ]
}

/// Many ports down at once: the incident of their leaf before, after and without the alert of the ports.
pub(crate) fn cases_of_a_dead_leaf() -> Vec<Case> {
    use Server::{Collector, Exporters};
    let leaf = || map_of_ports() + &incident("switch/leaf-0", "switch-down", "critical", "l");
    vec![
        case(
            "dead-leaf",
            vec![
                (0, Collector, exports(map_of_ports())),
                (0, Exporters, exports(ports(1))),
                (2, Exporters, exports(ports(0))),
                (4, Collector, exports(leaf())),
                (13, Exporters, exports(ports(1))),
                (13, Collector, exports(map_of_ports())),
            ],
            &[(PAGER, "switch/leaf-0", ONE)],
        ),
        case(
            "dead-leaf-unseen",
            vec![
                (
                    0,
                    Collector,
                    exports(
                        map_of_ports() + &incident("link/n1:mlx5_9/1", "port-down", "warning", "x"),
                    ),
                ),
                (0, Exporters, exports(ports(1))),
                (2, Exporters, exports(ports(0))),
                (16, Exporters, exports(ports(1))),
                (16, Collector, exports("")),
            ],
            &[
                (PAGER, "fabric/ports", ONE),
                (TICKETS, "link/n1:mlx5_9/1", ONE),
            ],
        ),
        // The incident opens after the fallback alert was sent: the alert resolves, and the leaf is notified.
        case(
            "dead-leaf-late",
            vec![
                (0, Collector, exports(map_of_ports())),
                (0, Exporters, exports(ports(1))),
                (1, Exporters, exports(ports(0))),
                (10, Collector, exports(leaf())),
                (16, Exporters, exports(ports(1))),
                (16, Collector, exports(map_of_ports())),
            ],
            &[(PAGER, "fabric/ports", ONE), (PAGER, "switch/leaf-0", ONE)],
        ),
        // The incident ends while exporters still report the ports of their last scrapes.
        case(
            "dead-leaf-ends",
            vec![
                (0, Collector, exports(map_of_ports())),
                (0, Exporters, exports(ports(1))),
                (2, Exporters, exports(ports(0))),
                (4, Collector, exports(leaf())),
                (11, Collector, exports(map_of_ports())),
                (14, Exporters, exports(ports(1))),
            ],
            &[(PAGER, "switch/leaf-0", ONE)],
        ),
    ]
}

/// Several faults, incidents beside reports of exporters, and none.
pub(crate) fn cases_of_storms() -> Vec<Case> {
    use Server::{Collector, Exporters};
    let two = incident(GPU, "gpu-lost", "critical", "a")
        + &incident("link/n8:mlx5_1/1", "port-down", "critical", "b");
    let one_class = incident("host/n1", "host-stalls", "critical", "a")
        + &incident("host/n2", "host-stalls", "warning", "b");
    let action = |node| format!("railscope_gpu_recovery_action{{node=\"{node}\",gpu=\"0\"}} 1\n");
    vec![
        // A critical incident does not mute a warning of the same class on another component.
        case(
            "one-class",
            vec![
                (1, Collector, exports(one_class)),
                (8, Collector, exports("")),
            ],
            &[(PAGER, "host/n1", ONE), (TICKETS, "host/n2", ONE)],
        ),
        case(
            "two-faults",
            vec![(1, Collector, exports(two)), (6, Collector, exports(""))],
            &[(PAGER, GPU, ONE), (PAGER, "link/n8:mlx5_1/1", ONE)],
        ),
        // An incident about one node covers the reports of this node's exporter, and nothing else.
        case(
            "stranger",
            vec![
                (
                    1,
                    Collector,
                    exports(incident("gpu/n7:0", "gpu-error", "critical", "a")),
                ),
                (1, Exporters, exports(action("n7") + &action("n9"))),
                (12, Collector, exports("")),
                (12, Exporters, exports("")),
            ],
            &[(PAGER, "gpu/n7:0", ONE), (PAGER, "host/n9", ONE)],
        ),
        case("calm", vec![], &[]),
    ]
}

/// An incident of every class, each with a separate component.
pub(crate) fn every_class() -> Case {
    let component = |at: usize| format!("gpu/m{at}:0");
    let text: String = CLASSES
        .iter()
        .enumerate()
        .map(|(at, class)| incident(&component(at), class.name, "critical", &at.to_string()))
        .collect();
    let wanted = (0..CLASSES.len()).map(|at| (PAGER, component(at), ONE));
    Case {
        cluster: "every-class",
        steps: vec![
            (1, Server::Collector, Some(text)),
            (5, Server::Collector, exports("")),
        ],
        wanted: wanted.collect(),
    }
}
