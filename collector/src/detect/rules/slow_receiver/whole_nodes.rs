//! Nodes of which most NICs back-pressure their switches.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use railscope_model::metric::SWITCH_PORT_TRANSMIT_WAIT;

use super::slots::of_slot;
use super::{ABOVE_NODE, Holds, evidence};
use crate::classes::SLOW_RECEIVER;
use crate::detect::detector::{Evidence, View};
use crate::detect::peers::median;

/// Nodes with their slow NICs, and how many NICs each has. What several nodes of one job do on InfiniBand on all of their
/// NICs is how the job sends: in a pipeline the nodes next to its ends receive from both sides, and only one
/// of these has to share.
pub(super) fn findings(view: &View<'_>, nodes: &[(Vec<Holds<'_>>, usize)]) -> Vec<Evidence> {
    let job_of = |holds: &Holds<'_>| {
        let job = view.jobs.of_nic(holds.node, &holds.device);
        job.filter(|_| *holds.signal == SWITCH_PORT_TRANSMIT_WAIT)
            .map(|job| &job.name)
    };
    let mut of_job = BTreeMap::new();
    for (slow, _) in nodes {
        *of_job.entry(job_of(&slow[0])).or_insert(0) += 1;
    }
    let mut found = Vec::new();
    for (slow, nics) in nodes {
        let job = job_of(&slow[0]);
        if job.is_none() || of_job.get(&job) == Some(&1) {
            found.push(finding(view, slow, *nics));
        } else {
            found.extend(worst(slow).map(|holds| of_slot(view, holds)));
        }
    }
    found
}

/// NICs of a node that make their switches wait for much longer than its others do.
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
