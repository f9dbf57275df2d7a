//! Errors that an NVLink switch counts at its ports are those of the NVLinks of a GPU, which counts them as well. No exporter
//! reports which GPU is at which port, so that they are joined only where the errors of one GPU alone began with those of the port.

use std::collections::BTreeMap;

use railscope_model::fabric::{Fabric, LinkKind};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{SWITCH_PORT_ERRORS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES};

use crate::classes::{LINK_ERRORS, NVLINK_DOWN, NVLINK_ERRORS};
use crate::diagnose::incident::Finding;
use crate::store::History;

/// Most time between the first errors of a GPU and of the port at the other end: counters of both are evaluated over minutes.
pub(crate) const TOGETHER_SECONDS: f64 = 120.0;

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
    groups: &mut BTreeMap<Part, Vec<Finding>>,
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
    let is_port = |part: &Part| match part {
        Part::SwitchLink(switch, _) => is_nvlink_switch(fabric, history, switch),
        _ => false,
    };
    let are_errors = |findings: &[Finding]| {
        let mut classes = findings.iter().map(|found| found.evidence.class);
        classes.all(|class| class == &LINK_ERRORS)
    };
    let ports = groups.iter();
    let ports = ports.filter(|(part, findings)| are_errors(findings) && is_port(part));
    let ports: Vec<Part> = ports.map(|(part, _)| part.clone()).collect();
    for port in ports {
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

/// Whether a switch is one of NVLinks: its exporters report errors of ports, but neither bytes nor speeds, and no cable is known.
fn is_nvlink_switch(fabric: &Fabric, history: &History, switch: &SwitchName) -> bool {
    let Some(said) = history.switch(switch) else {
        return false;
    };
    let id = fabric.find(&Part::Switch(switch.clone()));
    let mut links = id.into_iter().flat_map(|id| fabric.neighbours(id));
    let tells = |metric| said.series(metric).next().is_some();
    tells(&SWITCH_PORT_ERRORS)
        && ![&SWITCH_PORT_TRANSMIT_BYTES, &SWITCH_PORT_SPEED]
            .map(tells)
            .contains(&true)
        && !links.any(|near| near.link.kind == LinkKind::Cable)
}

#[cfg(test)]
mod tests {
    use railscope_model::fabric::Timestamp;
    use railscope_model::metric::Metric;
    use railscope_model::reading::{Labels, NodeReading};

    use super::*;
    use crate::classes::{Class, PORT_DOWN};
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
}
