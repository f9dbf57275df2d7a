//! Interfaces that are set up otherwise than their peers, where peers must agree: those of the same name on other nodes; and those
//! that send in another [priority].

mod priority;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::identity::{NodeName, Part, RdmaDevice};
use railscope_model::metric::{
    Metric, NIC, NIC_MTU, NIC_PFC_ENABLED, NIC_PRIORITY_BYTES, NIC_SPEED,
};

use crate::assemble::netdev::fabric_nic_of;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, MTU_MISMATCH, PFC_MISMATCH};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS, norm};
use crate::detect::registry::{Rule, Threshold};
use crate::stages::Step;
use crate::store::NodeHistory;

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

/// Speed from which an interface carries data although it carries no RDMA, such as storage: 10 Gb/s.
const CARRIES_DATA: f64 = 1.25e9;

/// An interface: its node, its name and the value of a setting.
type Interface<'a> = (&'a NodeName, &'a str, f64);

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
            let mut cohorts: HashMap<_, Vec<Interface<'_>>, FixedState> = HashMap::default();
            for (node, history) in view.history.fresh_nodes(view.now) {
                let shape = history.series(&NIC).count();
                for (labels, window) in history.series(setting.metric) {
                    if let (Some(value), Some(netdev)) = (window.value(), labels.values().next()) {
                        let cohort = cohorts.entry((shape, labels)).or_default();
                        cohort.push((node, netdev, value));
                    }
                }
            }
            let cohorts: BTreeMap<_, _> = cohorts.into_iter().collect();
            let mut odd: BTreeMap<&NodeName, Vec<Evidence>> = BTreeMap::new();
            // Names that few nodes have are those of places: what carries RDMA is compared whatever it is called.
            let mut unlike: BTreeMap<Vec<&str>, Vec<Interface<'_>>> = BTreeMap::new();
            for ((_, labels), members) in cohorts {
                let rest: Vec<_> = labels.values().skip(1).collect();
                if members.len() < MIN_PEERS {
                    unlike.entry(rest).or_default().extend(members);
                    continue;
                }
                let nic = |own: &NodeHistory, netdev: &str, is_less: bool| {
                    fabric_nic_of(own, netdev).or_else(|| data_nic_of(own, netdev, is_less))
                };
                for (node, found) in odd_ones(view, setting, (&rest, &members), nic) {
                    odd.entry(node).or_default().push(found);
                }
            }
            for (rest, members) in unlike {
                let nic = |own: &NodeHistory, netdev: &str, _| fabric_nic_of(own, netdev);
                for (node, found) in odd_ones(view, setting, (&rest, &members), nic) {
                    odd.entry(node).or_default().push(found);
                }
            }
            for (node, found) in odd {
                out.extend(by_host(view, node, found));
            }
        }
        let mut odd: BTreeMap<&NodeName, Vec<Evidence>> = BTreeMap::new();
        for (node, found) in priority::find(view) {
            odd.entry(node).or_default().push(found);
        }
        for (node, found) in odd {
            out.extend(by_host(view, node, found));
        }
    }

    fn explain(&self, _: &Class, signal: &str) -> Explanation {
        if signal == NIC_PRIORITY_BYTES.name {
            return priority::explain();
        }
        Explanation {
            check: "A setting of a network interface differs from the same interface of other nodes, although both ends must agree.",
            threshold: format!(
                "any difference from the value of {:.0} % of at least {MIN_PEERS} nodes of the same shape, or, where fewer have an interface of this name, of all such interfaces; of an interface without RDMA a lower MTU, if it has {:.0} Gb/s; if {:.0} % of a node's NICs, and at least {MIN_PEERS}, differ, the node is reported",
                100.0 * MAJORITY,
                8e-9 * CARRIES_DATA,
                100.0 * MAJORITY
            ),
            clears: "The setting matches that of its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let speed = Threshold::new(
            "speed from which an interface without RDMA carries data",
            CARRIES_DATA,
            "B/s",
            "10 Gb/s: management has less (a choice)",
        );
        let rule = |setting: &Setting| {
            let of_all = peers::thresholds().into_iter();
            let of_mtu = (setting.class == &MTU_MISMATCH).then(|| speed.clone());
            Rule::new(setting.class, of_all.chain(of_mtu).collect())
        };
        let of_settings = SETTINGS.iter().map(rule);
        of_settings.chain([priority::rule()]).collect()
    }
}

/// An interface that carries no RDMA, by its name, if it is fast and its setting is less than that of most.
fn data_nic_of(history: &NodeHistory, netdev: &str, is_less: bool) -> Option<RdmaDevice> {
    let speed = history.value(&NIC_SPEED, &[netdev])?;
    let carries_data = is_less && speed >= CARRIES_DATA;
    carries_data.then(|| netdev.parse().ok())?
}

/// Findings at the NICs of a node: if most of them differ, one finding about the host, which is configured differently as a
/// whole.
fn by_host(view: &View<'_>, node: &NodeName, mut found: Vec<Evidence>) -> Vec<Evidence> {
    let odd: BTreeSet<_> = found.iter().map(|one| &one.part).collect();
    let host = Part::Host(node.clone());
    let most = MAJORITY * view.fabric.nics(node).count() as f64;
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

/// Members of a cohort that are set otherwise than most of it, each with its node: `rest` are the labels behind the interface, and
/// `nic` is the part of an interface on the fabric, given whether its value is less than that of most.
fn odd_ones<'a>(
    view: &View<'_>,
    setting: &Setting,
    (rest, members): (&[&str], &[Interface<'a>]),
    nic: impl Fn(&NodeHistory, &str, bool) -> Option<RdmaDevice>,
) -> Vec<(&'a NodeName, Evidence)> {
    let mut out = Vec::new();
    // What most reach from below and from above is what most have.
    let reached = norm(members.iter().map(|(.., value)| *value));
    let kept_below = norm(members.iter().map(|(.., value)| -*value));
    let Some(usual) = reached.filter(|usual| kept_below == Some(-usual)) else {
        return out;
    };
    for (node, netdev, value) in members.iter().filter(|(.., value)| *value != usual) {
        let history = view.history.node(node);
        let device = history.and_then(|history| nic(history, netdev, *value < usual));
        let Some(device) = device else {
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
                "{netdev} of {node} has {}; {} of {} such interfaces have {}.",
                said(*value),
                members.iter().filter(|(.., v)| *v == usual).count(),
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
