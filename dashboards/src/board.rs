//! The dashboards: names, questions, variables, and which leads on to which.

use crate::panel::Panel;
use crate::variable::Variable;

/// One of the nine dashboards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Board {
    Fleet,
    Incident,
    Fabric,
    Node,
    Job,
    Tail,
    Roce,
    Capacity,
    Health,
}

/// A dashboard with its panels, top to bottom.
#[derive(Debug, Clone)]
pub(crate) struct Dashboard {
    pub(crate) board: Board,
    pub(crate) panels: Vec<Panel>,
}

impl Board {
    /// Every dashboard, in the order of an investigation.
    pub(crate) const ALL: [Self; 9] = [
        Self::Fleet,
        Self::Incident,
        Self::Fabric,
        Self::Node,
        Self::Job,
        Self::Tail,
        Self::Roce,
        Self::Capacity,
        Self::Health,
    ];

    /// Name of the file without its ending. The uid derives from it: links from outside keep it.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Incident => "incident",
            Self::Fabric => "fabric",
            Self::Node => "node",
            Self::Job => "jobs",
            Self::Tail => "tail-latency",
            Self::Roce => "roce-nvlink",
            Self::Capacity => "capacity-cost",
            Self::Health => "health",
        }
    }

    pub(crate) fn uid(self) -> String {
        format!("railscope-{}", self.file())
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Fleet => "Fleet",
            Self::Incident => "Incident",
            Self::Fabric => "Fabric",
            Self::Node => "Inside a node",
            Self::Job => "Jobs",
            Self::Tail => "Tail latency and jitter",
            Self::Roce => "RoCE and NVLink",
            Self::Capacity => "Capacity and cost",
            Self::Health => "Health of Railscope",
        }
    }

    /// The one question that the dashboard answers.
    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::Fleet => {
                "Is the fleet healthy, which component is not, and how many GPUs does it slow?"
            }
            Self::Incident => {
                "Which component is the root cause, which series show it, and which jobs does it slow?"
            }
            Self::Fabric => {
                "Which SU, leaf or rail differs from the others in traffic, congestion or errors?"
            }
            Self::Node => {
                "Which component on the path from GPU over PCIe and NIC to the leaf differs in this node?"
            }
            Self::Job => {
                "Which jobs are slower than usual, which rank delays them, and what have they lost?"
            }
            Self::Tail => {
                "Which paths have the latency tail, and is the cause the host or the fabric?"
            }
            Self::Roce => {
                "Where do pause, ECN marks, discards and NVLink errors occur, by priority and link?"
            }
            Self::Capacity => {
                "What did faults cost, by class, component and job, and how much of the network is in use?"
            }
            Self::Health => "Can the other dashboards be trusted now?",
        }
    }

    /// Its variables, but for the data source, which all have.
    pub(crate) fn variables(self) -> &'static [Variable] {
        use Variable::{
            Class, Cluster, Collector, Incident, IncidentLeaf, IncidentNode, Job, Leaf, Metric,
            Node, PathClass, Rail, Su, Transport,
        };
        match self {
            Self::Fleet => &[Cluster, Class, Collector],
            Self::Incident => &[
                Cluster,
                Class,
                Incident,
                IncidentNode,
                IncidentLeaf,
                Collector,
            ],
            Self::Fabric => &[Cluster, Su, Rail, Leaf, Metric, Collector],
            Self::Node => &[Cluster, Node, Collector],
            Self::Job => &[Cluster, Job, Collector],
            Self::Tail => &[Cluster, Su, PathClass, Transport, Collector],
            Self::Roce => &[Cluster, Su, Rail, Leaf, Node, Collector],
            Self::Capacity => &[Cluster, Class, Job, Collector],
            Self::Health => &[Cluster, Collector],
        }
    }

    /// A scenario of the demo that fills it, and how many panels then show something. `e2e_pictures` counts them.
    pub(crate) fn filled_by(self) -> (&'static str, usize) {
        match self {
            Self::Fleet => ("slow-pcie", 15),
            Self::Incident => ("slow-pcie", 20),
            Self::Fabric => ("slow-pcie", 14),
            Self::Node => ("slow-pcie", 28),
            Self::Job => ("slow-pcie", 15),
            Self::Tail => ("jittery-uplink", 23),
            Self::Roce => ("pfc-storm", 20),
            Self::Capacity => ("slow-pcie", 14),
            Self::Health => ("slow-pcie", 16),
        }
    }

    /// Where the links at the top lead.
    pub(crate) fn next(self) -> &'static [Self] {
        match self {
            Self::Fleet => &[Self::Incident, Self::Fabric, Self::Job, Self::Capacity],
            Self::Incident => &[Self::Node, Self::Fabric, Self::Tail, Self::Job, Self::Fleet],
            Self::Fabric => &[Self::Node, Self::Roce, Self::Tail, Self::Fleet],
            Self::Node => &[Self::Fabric, Self::Roce, Self::Job, Self::Fleet],
            Self::Job => &[Self::Incident, Self::Node, Self::Capacity, Self::Fleet],
            Self::Tail => &[Self::Node, Self::Fabric, Self::Roce, Self::Fleet],
            Self::Roce => &[Self::Node, Self::Fabric, Self::Tail, Self::Fleet],
            Self::Capacity => &[Self::Job, Self::Incident, Self::Fabric, Self::Fleet],
            Self::Health => &[Self::Fleet, Self::Node],
        }
    }

    /// The page of Railscope's own that shows the same.
    pub(crate) fn own_page(self) -> &'static str {
        match self {
            Self::Incident => "incidents/${incident}",
            Self::Tail => "tail",
            _ => "",
        }
    }

    /// Its time range: the cost of faults is a matter of weeks.
    pub(crate) fn time_from(self) -> &'static str {
        match self {
            Self::Capacity => "now-7d",
            _ => "now-1h",
        }
    }
}
