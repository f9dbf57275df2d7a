//! Nodes of which most NICs back-pressure their switches.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_TRANSMIT_WAIT;

use super::slots::of_slot;
use super::{ABOVE_NODE, ALIKE, Holds, evidence};
use crate::classes::SLOW_RECEIVER;
use crate::detect::detector::{Evidence, View};
use crate::detect::peers::median;
use crate::jobs::job::{Job, JobName};

/// Nodes with their slow NICs, and how many NICs each has. What many nodes of one job do on InfiniBand on all of their NICs is
/// how the job sends: in a pipeline the nodes next to its ends receive from both sides, and only one
/// of these has to share.
pub(super) fn findings(view: &View<'_>, nodes: &[(Vec<Holds<'_>>, usize)]) -> Vec<Evidence> {
    let job_of = |holds: &Holds<'_>| {
        let job = view.jobs.of_nic(holds.node, &holds.device);
        job.filter(|_| *holds.signal == SWITCH_PORT_TRANSMIT_WAIT)
    };
    let mut alike: BTreeMap<&JobName, usize> = BTreeMap::new();
    for job in nodes.iter().filter_map(|(slow, _)| job_of(&slow[0])) {
        *alike.entry(&job.name).or_default() += 1;
    }
    let is_shape = |job: &Job| {
        let alike = alike.get(&job.name).copied().unwrap_or(0);
        alike > 1 && alike as f64 >= ALIKE * job.nodes.len() as f64
    };
    let mut found = Vec::new();
    for (slow, nics) in nodes {
        if job_of(&slow[0]).is_some_and(is_shape) {
            found.extend(worst(slow).map(|holds| of_slot(view, holds)));
        } else {
            found.push(finding(view, slow, *nics));
        }
    }
    found
}

/// NICs of a node that make their switches wait much longer than its other NICs do.
fn worst<'a, 'b>(slow: &'a [Holds<'b>]) -> impl Iterator<Item = &'a Holds<'b>> {
    let usual = median(slow.iter().map(|holds| holds.ticks)).unwrap_or(0.0);
    slow.iter()
        .filter(move |holds| holds.ticks > ABOVE_NODE * usual)
}

fn finding(view: &View<'_>, slow: &[Holds<'_>], nics: usize) -> Evidence {
    let first = &slow[0];
    let statement = format!(
        "{}, and so do {} of {nics} NICs of the node: a shared component is too slow, such as the node's memory.",
        first.words,
        slow.len()
    );
    evidence(
        view,
        Part::Host(first.node.clone()),
        &SLOW_RECEIVER,
        first,
        statement,
    )
}
