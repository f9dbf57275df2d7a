//! What is wrong with the wiring before a counter ever moves: rules over the graph, and the graph against a plan.

mod compare;
mod hosts;
mod identity;
mod inside;
mod regular;
mod renamed;
mod speeds;
mod trunks;
mod weigh;

pub use weigh::{Rates, weigh};

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use foldhash::fast::FixedState;
use railscope_model::fabric::{Fabric, PartId};
use railscope_model::identity::{Part, PortName, RdmaPort};
use railscope_model::plan::{Socket, WiringPlan};

use crate::fabric::classify::verdict::Verdict;
use crate::fabric::graph::groups::dragonfly;
use crate::fabric::graph::host_classes::Shapes;
use crate::fabric::graph::index::Survey;
use crate::fabric::graph::tiers::tier_numbers;

/// Peers define a baseline when at least this share of them agrees (detectors compare cohorts at 70 %; wiring
/// follows rules, so the limit can be higher).
pub(crate) const PEER_SHARE: f64 = 0.75;
/// Fewest peers that can agree on anything: of three, one that differs and two that agree are no majority worth an
/// alert.
pub(crate) const MIN_PEERS: usize = 4;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Differs from the plan or the peers, and costs nothing as it is.
    Note,
    /// Costs bandwidth or will mislead repairs.
    Warning,
    /// Traffic takes a path that it should not, or has none.
    Error,
}

impl Severity {
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name: label, JSON, documentation.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What an operator should do.
    pub action: &'static str,
}

macro_rules! rules {
    ($($id:ident: $name:literal, $severity:ident, $action:literal;)*) => {
        $(#[doc = concat!("`", $name, "`: ", $action)]
        pub static $id: Rule = Rule { name: $name, severity: Severity::$severity, action: $action };)*
        /// Every rule, in the order in which findings are listed.
        pub static RULES: &[&Rule] = &[$(&$id),*];
    };
}

rules! {
    MISSING_CABLE: "missing-cable", Error, "Plug the cable, or find out why its port is down.";
    ABSENT_DEVICE: "absent-device", Error, "Find out why the device is not in the fabric: powered off, down, or never installed.";
    SWAPPED_CABLES: "swapped-cables", Error, "Exchange the two cables at their upper ends.";
    MOVED_CABLE: "moved-cable", Error, "Move the cable to its place, or correct the plan.";
    CROSS_RAIL: "cross-rail", Error, "Move the cable to the leaf of its own rail.";
    CROSS_PLANE: "cross-plane", Error, "Move the cable: it joins two fabrics that should not meet.";
    UNEXPECTED_CABLE: "unexpected-cable", Warning, "Remove the cable, or add it to the plan.";
    OTHER_PORT: "other-port", Note, "Correct the plan, or move the cable to its port when it is at hand.";
    UNPLANNED_DEVICE: "unplanned-device", Note, "Add the device to the plan.";
    WRONG_PLAN: "wrong-plan", Warning, "Correct the plan: what was built is right in itself.";
    UNEVEN_UPLINKS: "uneven-uplinks", Warning, "Give the switch as many uplinks as its peers have.";
    SLOW_CABLE: "slow-cable", Warning, "Reseat or replace the cable or its transceivers; look for a speed that was set by hand.";
    GPU_NIC_AFFINITY: "gpu-nic-affinity", Warning, "Compare PCIe slots, BIOS settings and risers with those of a peer.";
    DEVICE_ORDER: "device-order", Warning, "Name the devices by PCI address (udev), as on the peers: jobs pick rails by name.";
    VERSION_DIFFERS: "version-differs", Warning, "Install the version of the peers, or finish the rollout.";
    SETTING_DIFFERS: "setting-differs", Warning, "Compare BIOS, firmware and driver settings with those of a peer.";
    DUPLICATE_GUID: "duplicate-guid", Error, "Give one of the devices a GUID of its own; the subnet manager cannot tell them apart.";
    SELF_LOOP: "self-loop", Note, "Remove the cable unless it is for a test.";
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which rule found it.
    pub rule: &'static Rule,
    /// What it is about; the first is where to go.
    pub parts: Vec<Part>,
    /// What is wrong, in one sentence.
    pub sentence: String,
    /// What it rests on, in sentences.
    pub evidence: Vec<String>,
}

impl fmt::Display for Finding {
    /// The finding with its rule; evidence and action on their own lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = self.rule.severity.word();
        writeln!(f, "{severity:<7} {}: {}", self.rule.name, self.sentence)?;
        for evidence in &self.evidence {
            writeln!(f, "          because {evidence}")?;
        }
        writeln!(f, "          {}", self.rule.action)
    }
}

/// The input of the rules.
pub(super) struct Case<'a> {
    fabric: &'a Fabric,
    verdict: &'a Verdict,
    survey: Survey<'a>,
    shapes: Shapes,
    /// By switch of the survey.
    tiers: Vec<Option<u8>>,
    /// Whether what is not there is missing; in a partial sweep it may only be unseen.
    whole: bool,
}

impl<'a> Case<'a> {
    fn of(fabric: &'a Fabric, verdict: &'a Verdict, whole: bool) -> Self {
        let survey = Survey::of(fabric);
        let shapes = Shapes::of(&survey);
        let tiers = tier_numbers(&survey, &shapes, dragonfly(&survey).as_ref());
        Self {
            fabric,
            verdict,
            survey,
            shapes,
            tiers,
            whole: whole && verdict.sweep.gaps.is_empty(),
        }
    }
}

/// Checks over the graph alone.
const CHECKS: &[fn(&Case<'_>, &mut Vec<Finding>)] = &[
    hosts::check,
    trunks::check,
    speeds::check,
    inside::check_affinity,
    inside::check_device_order,
    identity::check_guids,
    identity::check_loops,
];

/// Every finding on a fabric and, where there is one, against its plan; the worst first.
///
/// What the plan covers is evaluated by the plan and not by peers: a server with half of the rails may be meant
/// so.
pub fn lint(fabric: &Fabric, verdict: &Verdict, plan: Option<&WiringPlan>) -> Vec<Finding> {
    lint_seen(fabric, verdict, plan, true)
}

/// As [`lint`]; nothing is called missing unless `whole` reports that every switch could be queried for its
/// cables.
pub fn lint_seen(
    fabric: &Fabric,
    verdict: &Verdict,
    plan: Option<&WiringPlan>,
    whole: bool,
) -> Vec<Finding> {
    let case = Case::of(fabric, verdict, whole);
    let mut findings = by_peers(&case);
    if let Some(plan) = plan {
        let covered = Covered::by(plan);
        let cables = findings
            .iter()
            .filter(|finding| is_about_cables(finding.rule));
        let odd: BTreeSet<Part> = cables.flat_map(|finding| finding.parts.clone()).collect();
        findings.retain(|finding| !is_about_cables(finding.rule) || !covered.has(&finding.parts));
        let by_peers = findings.len();
        let plan = compare::check(&case, plan, &mut findings);
        regular::blame(&case, &plan, &odd, &mut findings[by_peers..]);
    }
    sort(&mut findings);
    findings
}

/// What differs from its peers.
fn by_peers(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for check in CHECKS {
        check(case, &mut findings);
    }
    findings
}

/// The worst first.
pub(crate) fn sort(findings: &mut [Finding]) {
    let place = |finding: &Finding| RULES.iter().position(|rule| *rule == finding.rule);
    findings.sort_by(|a, b| {
        let worst = b.rule.severity.cmp(&a.rule.severity);
        worst
            .then(place(a).cmp(&place(b)))
            .then_with(|| a.parts.cmp(&b.parts))
    });
}

/// How many findings of each rule there are, none omitted.
pub fn count(findings: &[Finding]) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, _> = RULES.iter().map(|rule| (rule.name, 0)).collect();
    for finding in findings {
        *counts.entry(finding.rule.name).or_default() += 1;
    }
    counts
}

/// Whether a rule reports where a cable should be; only those does a plan know better.
fn is_about_cables(rule: &Rule) -> bool {
    [
        &MISSING_CABLE,
        &ABSENT_DEVICE,
        &SWAPPED_CABLES,
        &MOVED_CABLE,
        &CROSS_RAIL,
        &CROSS_PLANE,
        &UNEXPECTED_CABLE,
        &UNEVEN_UPLINKS,
        &SELF_LOOP,
    ]
    .contains(&rule)
}

/// Hosts and switches that a plan has.
struct Covered(HashSet<Part, FixedState>);

impl Covered {
    fn by(plan: &WiringPlan) -> Self {
        let ends = plan.cables.iter().flat_map(|cable| &cable.ends);
        Self(ends.map(|end| device(&end.part)).collect())
    }

    fn has(&self, parts: &[Part]) -> bool {
        parts.iter().all(|part| self.0.contains(&device(part)))
    }
}

/// The host or the switch that a part belongs to.
fn device(part: &Part) -> Part {
    match part {
        Part::SwitchLink(switch, _) | Part::Switch(switch) => Part::Switch(switch.clone()),
        other => other
            .node()
            .map_or_else(|| other.clone(), |node| Part::Host(node.clone())),
    }
}

/// A part and its port, as the fabric counts both.
type Place = (PartId, u16);

/// The same by name.
fn socket(fabric: &Fabric, (part, port): Place) -> Socket {
    Socket {
        part: fabric.vertex(part).part.clone(),
        port: fabric.port_name(part, port),
    }
}

/// The cable at a socket, named as the fabric would name it by this end.
fn cable_at(socket: &Socket) -> Part {
    match &socket.part {
        Part::Nic(node, device) => Part::HostLink(
            node.clone(),
            RdmaPort {
                device: device.clone(),
                port: match socket.port {
                    PortName::Number(port) => u8::try_from(port).unwrap_or(1),
                    PortName::Name(_) => 1,
                },
            },
        ),
        Part::Switch(switch) => Part::SwitchLink(switch.clone(), socket.port.clone()),
        other => other.clone(),
    }
}

/// The value that most have, if enough of enough peers have it.
fn usual<T: Ord + Clone>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    let (value, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (all >= MIN_PEERS && most as f64 >= PEER_SHARE * all as f64).then_some(value)
}
