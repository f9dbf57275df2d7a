//! Variables that dashboards share: one definition each, whichever dashboards have them.

use serde_json::{Value, json};

use crate::render::source;

/// A variable of a dashboard. The same name means the same on every dashboard, so links can pass it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    Cluster,
    Collector,
    Su,
    Rail,
    Leaf,
    Node,
    Job,
    Class,
    Incident,
    IncidentNode,
    IncidentLeaf,
    PathClass,
    Transport,
    Metric,
}

/// What the heat maps of the fabric can show. Every choice is a recorded series by leaf and rail.
const METRICS: &[(&str, &str)] = &[
    (
        "Sent traffic as a share of link speed",
        "leaf_rail:railscope_rdma_port_transmit_utilization:ratio_rate2m",
    ),
    (
        "Received traffic as a share of link speed",
        "leaf_rail:railscope_rdma_port_receive_utilization:ratio_rate2m",
    ),
    (
        "Credit wait in ticks per second",
        "leaf_rail:railscope_rdma_port_transmit_wait_ticks:rate2m",
    ),
    (
        "Paused share of time",
        "leaf_rail:railscope_nic_pause:ratio_rate2m",
    ),
    (
        "Errors per second",
        "leaf_rail:railscope_rdma_port_errors:rate2m",
    ),
    (
        "ECN marks per second",
        "leaf_rail:railscope_rdma_ecn_marked_packets:rate2m",
    ),
];

/// Choices of a query variable.
struct Choices {
    label: &'static str,
    query: &'static str,
    /// Keeps a part of each value.
    regex: &'static str,
    /// Several at once, or all.
    is_multi: bool,
    is_hidden: bool,
}

impl Choices {
    const fn many(label: &'static str, query: &'static str) -> Self {
        Self {
            label,
            query,
            regex: "",
            is_multi: true,
            is_hidden: false,
        }
    }

    const fn one(label: &'static str, query: &'static str) -> Self {
        Self {
            is_multi: false,
            ..Self::many(label, query)
        }
    }
}

impl Variable {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Collector => "collector",
            Self::Su => "su",
            Self::Rail => "rail",
            Self::Leaf => "leaf",
            Self::Node => "node",
            Self::Job => "job",
            Self::Class => "class",
            Self::Incident => "incident",
            Self::IncidentNode => "incident_node",
            Self::IncidentLeaf => "incident_leaf",
            Self::PathClass => "path_class",
            Self::Transport => "transport",
            Self::Metric => "metric",
        }
    }

    fn choices(self) -> Option<Choices> {
        Some(match self {
            Self::Cluster => Choices::many(
                "Cluster",
                "label_values(railscope_collector_build_info, cluster)",
            ),
            // Its address as Prometheus scrapes it: where links to Railscope's own web page lead.
            Self::Collector => Choices::one(
                "Railscope",
                r#"label_values(railscope_collector_build_info{cluster=~"$cluster"}, instance)"#,
            ),
            Self::Su => Choices::many(
                "SU",
                r#"label_values(node:railscope_rdma_port_transmit_bytes:rate2m{cluster=~"$cluster"}, su)"#,
            ),
            Self::Rail => Choices::many(
                "Rail",
                r#"label_values(leaf_rail:railscope_rdma_ports:count{cluster=~"$cluster"}, rail)"#,
            ),
            Self::Leaf => Choices::many(
                "Leaf",
                r#"label_values(leaf_rail:railscope_rdma_ports:count{cluster=~"$cluster", su=~"$su"}, leaf)"#,
            ),
            Self::Node => Choices::one(
                "Node",
                r#"label_values(railscope_collector_target_up{cluster=~"$cluster"}, node)"#,
            ),
            Self::Job => Choices::many(
                "Job",
                r#"label_values(railscope_job_gpus{cluster=~"$cluster"}, hpc_job)"#,
            ),
            Self::Class => Choices::many(
                "Fault class",
                r#"label_values(railscope_incident_active{cluster=~"$cluster"}, class)"#,
            ),
            Self::Incident => Choices::one(
                "Incident",
                r#"label_values(railscope_incident_active{cluster=~"$cluster", class=~"$class"}, incident)"#,
            ),
            Self::IncidentNode => Choices {
                is_hidden: true,
                ..Choices::one(
                    "Node of the incident",
                    r#"label_values(railscope_incident_active{cluster=~"$cluster", incident=~"$incident"}, node)"#,
                )
            },
            Self::IncidentLeaf => Choices {
                is_hidden: true,
                regex: r"/^(?:switch|link)\/([^:\[]+)/",
                ..Choices::one(
                    "Switch of the incident",
                    r#"label_values(railscope_incident_active{cluster=~"$cluster", incident=~"$incident"}, fault_domain)"#,
                )
            },
            Self::PathClass => Choices::many(
                "Path class",
                r#"label_values(path_class:railscope_probe_path_rtt_quantile_seconds:max{cluster=~"$cluster"}, path_class)"#,
            ),
            Self::Transport => Choices::many(
                "Transport",
                r#"label_values(path_class:railscope_probe_path_rtt_quantile_seconds:max{cluster=~"$cluster"}, transport)"#,
            ),
            Self::Metric => return None,
        })
    }

    pub(crate) fn json(self) -> Value {
        let Some(choices) = self.choices() else {
            return metric();
        };
        let mut variable = json!({
            "name": self.name(),
            "label": choices.label,
            "type": "query",
            "datasource": source(),
            "query": { "query": choices.query, "refId": self.name() },
            "definition": choices.query,
            "refresh": 2,
            "sort": 7,
            "includeAll": choices.is_multi,
            "multi": choices.is_multi,
            "allValue": ".*",
            "hide": if choices.is_hidden { 2 } else { 0 },
            "options": [],
            "regex": choices.regex,
            "skipUrlSync": false,
        });
        // Where there is no choice yet, Grafana's schema has no such field.
        if choices.is_multi {
            variable["current"] = json!({ "selected": true, "text": ["All"], "value": ["$__all"] });
        }
        variable
    }
}

fn metric() -> Value {
    let option = |(at, (text, value)): (usize, &(&str, &str))| json!({ "selected": at == 0, "text": text, "value": value });
    let options: Vec<_> = METRICS.iter().enumerate().map(option).collect();
    let query: Vec<_> = METRICS
        .iter()
        .map(|(text, value)| format!("{text} : {value}"))
        .collect();
    json!({
        "name": Variable::Metric.name(),
        "label": "Heat maps show",
        "type": "custom",
        "query": query.join(", "),
        "current": options.first(),
        "options": options,
        "hide": 0,
        "includeAll": false,
        "multi": false,
        "skipUrlSync": false,
    })
}

/// The variable of the data source, which every dashboard has first.
pub(crate) fn data_source() -> Value {
    json!({
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "includeAll": false,
        "multi": false,
        "options": [],
        "refresh": 1,
        "regex": "",
        "skipUrlSync": false,
    })
}
