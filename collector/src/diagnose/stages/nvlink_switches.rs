//! Errors that an NVLink switch counts at its ports are those of the NVLinks of a GPU, which counts them as well. No exporter
//! reports which GPU is at which port, so that they are joined only where one GPU alone has errors.

use std::collections::BTreeMap;

use railscope_model::fabric::{Fabric, LinkKind};
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{SWITCH_PORT_ERRORS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES};

use crate::classes::{LINK_ERRORS, NVLINK_DOWN, NVLINK_ERRORS};
use crate::diagnose::incident::Finding;
use crate::store::History;

/// Moves what ports of NVLink switches report to the GPU whose NVLinks they serve.
pub(crate) fn join(fabric: &Fabric, history: &History, groups: &mut BTreeMap<Part, Vec<Finding>>) {
    let has_errors = |(part, findings): &(&Part, &Vec<Finding>)| {
        let of_nvlinks =
            |found: &Finding| [&NVLINK_DOWN, &NVLINK_ERRORS].contains(&found.evidence.class);
        matches!(part, Part::Gpu(..)) && findings.iter().any(of_nvlinks)
    };
    let mut gpus = groups.iter().filter(has_errors).map(|(part, _)| part);
    let (Some(gpu), None) = (gpus.next().cloned(), gpus.next()) else {
        return;
    };
    let is_port = |part: &Part| match part {
        Part::SwitchLink(switch, _) => is_nvlink_switch(fabric, history, switch),
        _ => false,
    };
    let are_errors = |findings: &[Finding]| {
        let mut classes = findings.iter().map(|found| found.evidence.class);
        classes.all(|class| class == &LINK_ERRORS)
    };
    let (ports, mut others): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(groups)
        .into_iter()
        .partition(|(part, findings)| are_errors(findings) && is_port(part));
    let of_gpu = others.entry(gpu).or_default();
    of_gpu.extend(ports.into_values().flatten());
    *groups = others;
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
    use crate::classes::Class;
    use crate::detect::found::{found, part};

    const PORT: &str = "link/nvswitch:6";

    /// What is named where one switch reports these series.
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
            groups
                .entry(part(named))
                .or_insert_with(Vec::new)
                .push(finding);
        }
        join(&Fabric::default(), &history, &mut groups);
        groups.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn errors_at_an_nvlink_switch_belong_to_the_only_gpu_with_such_errors() {
        let errors: (&Metric, &[&str]) = (&SWITCH_PORT_ERRORS, &["6", "symbol_error"]);
        let [one, other] = ["gpu/n1:0", "gpu/n2:3"].map(|gpu| (&NVLINK_ERRORS, gpu));
        let port = (&LINK_ERRORS, PORT);
        assert_eq!(named(&[one, port], &[errors]), ["gpu/n1:0"]);
        assert_eq!(named(&[port], &[errors]), [PORT]);
        let two = named(&[one, other, port], &[errors]);
        assert_eq!(two, ["gpu/n1:0", "gpu/n2:3", PORT], "whose is it");
        let speed: (&Metric, &[&str]) = (&SWITCH_PORT_SPEED, &["6"]);
        let ethernet = named(&[one, port], &[errors, speed]);
        assert_eq!(ethernet, ["gpu/n1:0", PORT]);
    }
}
