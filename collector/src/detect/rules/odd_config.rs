//! Interfaces that are set up otherwise than their peers, where peers must agree.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{Metric, NIC, NIC_MTU, NIC_PFC_ENABLED};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, MTU_MISMATCH, PFC_MISMATCH};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::netdev::fabric_nic_of;
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS, norm};
use crate::detect::registry::Rule;
use crate::stages::Step;

/// A setting that must be alike: its value on the same interface of most nodes is what it should be.
struct Setting {
    metric: &'static Metric,
    class: &'static Class,
    what: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        metric: &NIC_MTU,
        class: &MTU_MISMATCH,
        what: "an MTU of",
    },
    Setting {
        metric: &NIC_PFC_ENABLED,
        class: &PFC_MISMATCH,
        what: "PFC on priority",
    },
];

struct OddConfig;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(OddConfig)
}

impl Detector for OddConfig {
    fn name(&self) -> &'static str {
        "odd-config"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        for setting in SETTINGS {
            let mut cohorts: HashMap<_, Vec<(&NodeName, f64)>, FixedState> = HashMap::default();
            for (node, history) in view.history.fresh_nodes(view.now) {
                let shape = history.series(&NIC).count();
                for (labels, window) in history.series(setting.metric) {
                    if let Some(value) = window.value() {
                        let cohort = cohorts.entry((shape, labels)).or_default();
                        cohort.push((node, value));
                    }
                }
            }
            let cohorts: BTreeMap<_, _> = cohorts.into_iter().collect();
            let mut odd: BTreeMap<&NodeName, Vec<Evidence>> = BTreeMap::new();
            for ((_, labels), members) in cohorts {
                let labels: Vec<_> = labels.values().collect();
                for (node, found) in odd_ones(view, setting, &labels, &members) {
                    odd.entry(node).or_default().push(found);
                }
            }
            for (node, found) in odd {
                out.extend(by_host(view, node, found));
            }
        }
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A setting of a network interface differs from the same interface of other nodes, although both ends must agree.",
            threshold: format!(
                "any difference from the value of {:.0} % of at least {MIN_PEERS} nodes of the same shape; if {:.0} % of a node's NICs, and at least {MIN_PEERS}, differ, the node is reported",
                100.0 * MAJORITY,
                100.0 * MAJORITY
            ),
            clears: "The setting matches that of its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |setting: &Setting| Rule::new(setting.class, peers::thresholds());
        SETTINGS.iter().map(rule).collect()
    }
}

/// Findings at the NICs of a node: if most of them differ, one finding about the host, which is configured differently as a
/// whole.
fn by_host(view: &View<'_>, node: &NodeName, mut found: Vec<Evidence>) -> Vec<Evidence> {
    let odd: BTreeSet<_> = found.iter().map(|one| &one.part).collect();
    let host = Part::Host(node.clone());
    let inside = view.fabric.find(&host).into_iter();
    let inside = inside.flat_map(|host| view.fabric.neighbours(host));
    let nics = inside.filter(|near| matches!(view.fabric.vertex(near.peer).part, Part::Nic(..)));
    let most = MAJORITY * nics.count() as f64;
    let host_can_be = !view.left_out.has(Step::HostComponent);
    if !host_can_be || odd.len() < MIN_PEERS || (odd.len() as f64) < most {
        return found;
    }
    let count = odd.len();
    let first = found.swap_remove(0);
    let statement = format!(
        "{count} NICs of {node} differ from those of other nodes: {}",
        first.statement
    );
    vec![Evidence {
        statement,
        victims: gpus_behind(view.fabric, &host),
        part: host,
        ..first
    }]
}

/// Members of a cohort that are set otherwise than most of it, each with its node.
fn odd_ones<'a>(
    view: &View<'_>,
    setting: &Setting,
    labels: &[&str],
    members: &[(&'a NodeName, f64)],
) -> Vec<(&'a NodeName, Evidence)> {
    let mut out = Vec::new();
    // What most reach from below and from above is what most have.
    let reached = norm(members.iter().map(|(_, value)| *value));
    let kept_below = norm(members.iter().map(|(_, value)| -*value));
    let Some(usual) = reached.filter(|usual| kept_below == Some(-usual)) else {
        return out;
    };
    let Some((netdev, rest)) = labels.split_first() else {
        return out;
    };
    for (node, value) in members.iter().filter(|(_, value)| *value != usual) {
        let history = view.history.node(node);
        let Some(device) = history.and_then(|history| fabric_nic_of(history, netdev)) else {
            continue; // not on the fabric
        };
        let part = Part::Nic((*node).clone(), device);
        let said = |value: f64| match rest {
            [] => format!("{} {value}", setting.what),
            _ => format!(
                "{} {} {}",
                setting.what,
                rest.join(" "),
                if value == 0.0 { "off" } else { "on" }
            ),
        };
        let found = Evidence {
            detector: "odd-config",
            signal: setting.metric.name,
            class: setting.class,
            effect: 0.0,
            statement: format!(
                "{netdev} of {node} has {}; {} of {} nodes have {}.",
                said(*value),
                members.iter().filter(|(_, v)| *v == usual).count(),
                members.len(),
                said(usual)
            ),
            victims: gpus_behind(view.fabric, &part),
            related: Vec::new(),
            alike: Vec::new(),
            part,
        };
        out.push((*node, found));
    }
    out
}
