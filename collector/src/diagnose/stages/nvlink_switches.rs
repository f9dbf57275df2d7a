//! Errors that an NVLink switch counts at its ports are those of the NVLinks of a GPU, which counts them as well. No exporter
//! reports which GPU is at which port, so that they are joined only where the errors of one GPU alone began with those of the port.
//! A switch that has errors at most of its ports is bad itself, and the errors of all GPUs are its own.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{SWITCH_PORT_ERRORS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES};

use crate::classes::{Class, LINK_ERRORS, NVLINK_DOWN, NVLINK_ERRORS};
use crate::diagnose::incident::Finding;
use crate::store::{History, NodeHistory};

/// Findings by the part that is suspected.
type Groups = BTreeMap<Part, Vec<Finding>>;

/// Most time between the first errors of a GPU and of the port at the other end: counters of both are evaluated over minutes.
pub(crate) const TOGETHER_SECONDS: f64 = 120.0;

/// Share of a switch's ports that must have errors for the switch itself to be named.
const MOST_PORTS: f64 = 0.5;
/// Fewest of them, and fewest GPUs with errors that may be those of a switch.
const SEVERAL: usize = 4;
/// How long the errors of several GPUs wait for what a switch reports: its exporter may be read once in a minute.
const HOLD_SECONDS: f64 = 180.0;
/// How long the errors of a port wait for those of the GPU whose NVLink it is: its driver reports them a little later.
const PORT_HOLD_SECONDS: f64 = 120.0;

/// Why the errors of a port may be those of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bond {
    /// They were joined before.
    Joined,
    /// Their errors began together.
    BeganTogether,
}

/// Moves what ports of NVLink switches report to the GPU whose NVLinks they serve: the one that a port was joined with before, else the
/// only one whose errors began with those of the port.
pub(crate) fn join(
    fabric: &Fabric,
    history: &History,
    groups: &mut Groups,
    bond: impl Fn(&Part, &Part) -> Option<Bond>,
) {
    let has_errors = |(part, findings): &(&Part, &Vec<Finding>)| {
        let of_nvlinks =
            |found: &Finding| [&NVLINK_DOWN, &NVLINK_ERRORS].contains(&found.evidence.class);
        matches!(part, Part::Gpu(..)) && findings.iter().any(of_nvlinks)
    };
    let gpus = groups.iter().filter(has_errors);
    let gpus: Vec<Part> = gpus.map(|(part, _)| part.clone()).collect();
    if gpus.is_empty() {
        return;
    }
    for port in ports(fabric, history, groups) {
        let bonds: Vec<_> = gpus
            .iter()
            .filter_map(|gpu| Some((gpu, bond(gpu, &port)?)))
            .collect();
        let mut joined = bonds.iter().filter(|(_, bond)| *bond == Bond::Joined);
        let gpu = match (joined.next(), joined.next(), &bonds[..]) {
            (Some((gpu, _)), None, _) | (None, _, [(gpu, _)]) => Some(*gpu),
            _ => None,
        };
        if let Some(gpu) = gpu {
            let findings = groups.remove(&port).unwrap_or_default();
            groups.entry(gpu.clone()).or_default().extend(findings);
        }
    }
}

/// Ports of NVLink switches that have errors and nothing else.
fn ports(fabric: &Fabric, history: &History, groups: &Groups) -> Vec<Part> {
    let is_port = |part: &Part| match part {
        Part::SwitchLink(switch, _) => is_nvlink_switch(fabric, history, switch),
        _ => false,
    };
    let ports = groups.iter();
    let ports = ports.filter(|(part, findings)| are_all(findings, &LINK_ERRORS) && is_port(part));
    ports.map(|(part, _)| part.clone()).collect()
}

fn are_all(findings: &[Finding], class: &Class) -> bool {
    findings.iter().all(|found| found.evidence.class == class)
}

/// Moves the errors of most ports of an NVLink switch to the switch, and those of GPUs with it, if it is the only such switch: what was
/// found at a GPU longer ago than [`HOLD_SECONDS`] before the switch is the GPU's own. `since`: when a part was first suspected.
pub(crate) fn join_whole_switches(
    fabric: &Fabric,
    history: &History,
    groups: &mut Groups,
    since: impl Fn(&Part) -> Option<Timestamp>,
) {
    let mut by_switch: BTreeMap<SwitchName, Vec<Part>> = BTreeMap::new();
    for port in ports(fabric, history, groups) {
        if let Part::SwitchLink(switch, _) = &port {
            by_switch.entry(switch.clone()).or_default().push(port);
        }
    }
    by_switch.retain(|switch, bad| {
        let all = history.switch(switch).map_or(0, count_of_ports);
        bad.len() >= SEVERAL && bad.len() as f64 >= MOST_PORTS * all as f64
    });
    let only = (by_switch.len() == 1)
        .then(|| by_switch.keys().next().cloned())
        .flatten();
    for (switch, ports) in by_switch {
        let moved = ports
            .into_iter()
            .flat_map(|port| groups.remove(&port).unwrap_or_default());
        let moved: Vec<_> = moved.map(of_nvlink).collect();
        groups
            .entry(Part::Switch(switch))
            .or_default()
            .extend(moved);
    }
    let Some(switch) = only.map(Part::Switch) else {
        return;
    };
    let began = since(&switch);
    let is_older = |gpu: &Part| {
        let times = since(gpu).zip(began);
        times.is_some_and(|(gpu, switch)| switch.seconds_since(gpu) > HOLD_SECONDS)
    };
    let gpus: Vec<_> = gpus_with_errors(groups)
        .into_iter()
        .filter(|gpu| !is_older(gpu))
        .collect();
    if gpus.len() >= SEVERAL {
        for gpu in gpus {
            let moved = groups.remove(&gpu).unwrap_or_default();
            groups.entry(switch.clone()).or_default().extend(moved);
        }
    }
}

/// The same finding of an NVLink.
fn of_nvlink(mut found: Finding) -> Finding {
    found.evidence.class = &NVLINK_ERRORS;
    found
}

/// How many ports of a switch count errors.
fn count_of_ports(history: &NodeHistory) -> usize {
    let ports = history.series(&SWITCH_PORT_ERRORS);
    let ports: BTreeSet<_> = ports
        .filter_map(|(labels, _)| labels.values().next())
        .collect();
    ports.len()
}

/// GPUs with errors of NVLinks and nothing else.
fn gpus_with_errors(groups: &Groups) -> Vec<Part> {
    let gpus = groups
        .iter()
        .filter(|(part, _)| matches!(part, Part::Gpu(..)));
    let gpus = gpus.filter(|(_, findings)| are_all(findings, &NVLINK_ERRORS));
    gpus.map(|(part, _)| part.clone()).collect()
}

/// GPUs whose errors wait, because several have some and a switch that is read may be the cause. `since`: when a part was first
/// suspected.
pub(crate) fn unexplained_gpus(
    fabric: &Fabric,
    (history, now): (&History, Timestamp),
    groups: &Groups,
    since: impl Fn(&Part) -> Option<Timestamp>,
) -> Vec<Part> {
    let mut new = gpus_with_errors(groups);
    new.retain(|gpu| is_new(since(gpu), now, HOLD_SECONDS));
    if new.len() < SEVERAL {
        return Vec::new();
    }
    let mut switches = history.fresh_switches(now);
    let is_read = switches.any(|(switch, _)| is_nvlink_switch(fabric, history, switch));
    if is_read { new } else { Vec::new() }
}

/// Ports of NVLink switches whose errors wait, because a GPU may still report them. `since`: when a part was first suspected.
pub(crate) fn unexplained_ports(
    fabric: &Fabric,
    (history, now): (&History, Timestamp),
    groups: &Groups,
    since: impl Fn(&Part) -> Option<Timestamp>,
) -> Vec<Part> {
    let mut ports = ports(fabric, history, groups);
    ports.retain(|port| is_new(since(port), now, PORT_HOLD_SECONDS));
    ports
}

/// Whether a part was first suspected less than so many seconds ago, or is not yet.
fn is_new(since: Option<Timestamp>, now: Timestamp, seconds: f64) -> bool {
    since.is_none_or(|since| now.seconds_since(since) < seconds)
}

/// Whether a switch is one of NVLinks: its exporters report errors of ports, but neither bytes nor speeds, and no cable is known.
fn is_nvlink_switch(fabric: &Fabric, history: &History, switch: &SwitchName) -> bool {
    let Some(said) = history.switch(switch) else {
        return false;
    };
    let id = fabric.find(&Part::Switch(switch.clone()));
    let mut cables = id.into_iter().flat_map(|id| fabric.cables(id));
    let tells = |metric| said.series(metric).next().is_some();
    tells(&SWITCH_PORT_ERRORS)
        && ![&SWITCH_PORT_TRANSMIT_BYTES, &SWITCH_PORT_SPEED]
            .map(tells)
            .contains(&true)
        && cables.next().is_none()
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::Metric;
    use railscope_model::reading::{Labels, NodeReading};

    use super::*;
    use crate::classes::PORT_DOWN;
    use crate::detect::found::{found, part};

    const PORT: &str = "link/nvswitch:6";

    /// What is named where one switch reports these series, and the errors of GPUs of node n1 and those of the port began together.
    fn named(
        findings: &[(&'static Class, &str)],
        series: &[(&'static Metric, &[&str])],
    ) -> Vec<String> {
        let mut history = History::default();
        let mut reading = NodeReading::default();
        for (metric, labels) in series {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            reading.push(metric, &Labels::new(&labels), 1.0);
        }
        let switch = history.switch_mut(&"nvswitch".parse().expect("a name"));
        switch.ingest_reading(&reading, Timestamp(0));
        let mut groups = BTreeMap::new();
        for (class, named) in findings {
            let finding = found("test", class, named, &[]);
            let group: &mut Vec<Finding> = groups.entry(part(named)).or_default();
            group.push(finding);
        }
        let of_n1 = |gpu: &Part, _: &Part| match gpu.to_string() {
            gpu if gpu == "gpu/n1:7" => Some(Bond::Joined),
            gpu => gpu.starts_with("gpu/n1").then_some(Bond::BeganTogether),
        };
        join(&Fabric::default(), &history, &mut groups, of_n1);
        groups.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn errors_at_an_nvlink_switch_belong_to_the_only_gpu_whose_errors_began_with_them() {
        let errors: (&Metric, &[&str]) = (&SWITCH_PORT_ERRORS, &["6", "symbol_error"]);
        let [one, other, elsewhere] =
            ["gpu/n1:0", "gpu/n1:3", "gpu/n2:3"].map(|gpu| (&NVLINK_ERRORS, gpu));
        let port = (&LINK_ERRORS, PORT);
        assert_eq!(named(&[one, port], &[errors]), ["gpu/n1:0"]);
        let down = (&NVLINK_DOWN, "gpu/n1:0");
        assert_eq!(named(&[down, port], &[errors]), ["gpu/n1:0"]);
        assert_eq!(named(&[port], &[errors]), [PORT]);
        let two = named(&[one, elsewhere, port], &[errors]);
        assert_eq!(two, ["gpu/n1:0", "gpu/n2:3"]);
        let two = named(&[one, other, port], &[errors]);
        assert_eq!(two, ["gpu/n1:0", "gpu/n1:3", PORT], "whose is it");
        let before = named(&[one, (&NVLINK_ERRORS, "gpu/n1:7"), port], &[errors]);
        assert_eq!(before, ["gpu/n1:0", "gpu/n1:7"], "as before");
        let also_down = named(&[one, port, (&PORT_DOWN, PORT)], &[errors]);
        assert_eq!(also_down, ["gpu/n1:0", PORT]);
        let speed: (&Metric, &[&str]) = (&SWITCH_PORT_SPEED, &["6"]);
        let ethernet = named(&[one, port], &[errors, speed]);
        assert_eq!(ethernet, ["gpu/n1:0", PORT]);
    }

    /// What is named where a switch of six ports has errors at this many, beside errors of as many GPUs, of which the first is known for
    /// so many seconds.
    fn of_switch(bad: usize, gpus: usize, known: f64) -> (Vec<String>, usize) {
        let now = Timestamp(1_000_000);
        let mut history = History::default();
        let mut reading = NodeReading::default();
        for port in ["1", "2", "3", "4", "5", "6"] {
            reading.push(
                &SWITCH_PORT_ERRORS,
                &Labels::new([port, "symbol_error"]),
                1.0,
            );
        }
        history
            .switch_mut(&"nvswitch".parse().expect("a name"))
            .ingest_reading(&reading, now);
        let ports = (1..=bad).map(|port| (&LINK_ERRORS, format!("link/nvswitch:{port}")));
        let gpus = (0..gpus).map(|gpu| (&NVLINK_ERRORS, format!("gpu/n1:{gpu}")));
        let mut groups = Groups::new();
        for (class, named) in ports.chain(gpus) {
            let group = groups.entry(part(&named)).or_default();
            group.push(found("test", class, &named, &[]));
        }
        let since = |part: &Part| match part.to_string().as_str() {
            "gpu/n1:0" | "link/nvswitch:1" => Some(now.plus_seconds(-known)),
            "switch/nvswitch" => Some(now),
            _ => None,
        };
        let fabric = Fabric::default();
        let seen = (&history, now);
        let waiting = unexplained_gpus(&fabric, seen, &groups, since).len();
        let ports = unexplained_ports(&fabric, seen, &groups, since);
        let waited = usize::from(bad > 0 && known >= PORT_HOLD_SECONDS);
        assert_eq!(ports.len(), bad - waited, "new ones");
        join_whole_switches(&fabric, &history, &mut groups, since);
        let classes = groups.values().flatten().map(|found| found.evidence.class);
        assert!(bad < SEVERAL || classes.clone().all(|class| class == &NVLINK_ERRORS));
        (groups.keys().map(ToString::to_string).collect(), waiting)
    }

    #[test]
    fn errors_at_most_ports_of_an_nvlink_switch_and_those_of_its_gpus_are_the_switch_s() {
        let switch = vec!["switch/nvswitch".to_owned()];
        assert_eq!(of_switch(4, 6, 10.0), (switch.clone(), 6));
        let (own, waiting) = of_switch(4, 6, 300.0);
        assert_eq!(
            (own, waiting),
            ([vec!["gpu/n1:0".to_owned()], switch].concat(), 5)
        );
        assert_eq!(of_switch(3, 0, 10.0).0.len(), 3, "too few ports");
        assert_eq!(of_switch(0, 6, 10.0).0.len(), 6, "no switch");
        let (few, waiting) = of_switch(5, 3, 10.0);
        assert_eq!((few.len(), waiting), (4, 0), "their own");
    }
}
