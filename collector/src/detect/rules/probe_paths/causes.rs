//! Which components make probes slow, as shares of all slow probes.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::Part;

use super::problem::{Posed, Suspect};
use crate::detect::detector::View;
use crate::detect::rules::host_health::timer_stalls;
use crate::detect::tails::{Cause, Causes, StalledHost};
use crate::detect::tomography::{Broken, Flow};

/// What of the slow probes the components that tomography names explain.
pub(super) fn causes(view: &View<'_>, posed: &Posed<'_>, broken: &[Broken]) -> Causes {
    let flows = &posed.problem.flows;
    let slow: f64 = flows.iter().map(|flow| flow.hits).sum();
    let share = usual_share(posed, broken);
    let usual = (share * flows.iter().map(|flow| flow.probes).sum::<f64>()).min(slow);
    let mut explained: BTreeMap<Cause, f64> = BTreeMap::new();
    let mut hosts = Vec::new();
    for (one, by_it) in broken.iter().zip(explained_by(posed, broken, share)) {
        let suspect = posed.suspects[one.part as usize];
        *explained.entry(cause(suspect)).or_default() += by_it;
        if let Suspect::Host(host) | Suspect::Prober(host) = suspect
            && let Part::Host(node) = &view.fabric.vertex(host).part
        {
            let stalls = view.history.node(node).and_then(timer_stalls);
            hosts.push(StalledHost {
                node: node.clone(),
                slow: by_it,
                timer_stalls_per_second: stalls,
            });
        }
    }
    // Where paths are not known, rates are used in place of counts: together they may explain more than
    // there is.
    let all: f64 = explained.values().sum();
    if all > slow - usual {
        let scale = (slow - usual) / all;
        explained.values_mut().for_each(|slow| *slow *= scale);
        hosts.iter_mut().for_each(|host| host.slow *= scale);
    }
    hosts.sort_by(|a, b| b.slow.total_cmp(&a.slow).then_with(|| a.node.cmp(&b.node)));
    Causes {
        slow,
        usual,
        explained,
        hosts,
    }
}

/// Share of slow probes on the flows that cross no broken component, nor may cross one.
fn usual_share(posed: &Posed<'_>, broken: &[Broken]) -> f64 {
    let broken: BTreeSet<u32> = broken.iter().map(|one| one.part).collect();
    let has_broken = |set: &Vec<(u32, f64)>| set.iter().any(|(part, _)| broken.contains(part));
    let sets: Vec<bool> = posed.problem.sets.iter().map(has_broken).collect();
    let passes_by = |flow: &&Flow| {
        flow.over.iter().all(|part| !broken.contains(part))
            && flow.within.iter().all(|(set, _)| !sets[*set as usize])
    };
    let sum = |sum: (f64, f64), flow: &Flow| (sum.0 + flow.probes, sum.1 + flow.hits);
    let flows = posed.problem.flows.iter();
    let (probes, slow) = flows.filter(passes_by).fold((0.0, 0.0), sum);
    if probes > 0.0 { slow / probes } else { 0.0 }
}

/// For each broken component, in their order: slow probes beyond the usual share on the flows that
/// cross it for certain and none before it; of flows that may cross it, as many as its own rate
/// reports.
fn explained_by(posed: &Posed<'_>, broken: &[Broken], usual: f64) -> Vec<f64> {
    let ranks: BTreeMap<u32, usize> = broken.iter().map(|one| one.part).zip(0..).collect();
    let of_set = |set: &Vec<(u32, f64)>| -> Vec<(usize, f64)> {
        let ranked = set.iter();
        ranked
            .filter_map(|(part, share)| Some((*ranks.get(part)?, *share)))
            .collect()
    };
    let sets: Vec<_> = posed.problem.sets.iter().map(of_set).collect();
    let mut explained = vec![0.0; broken.len()];
    for flow in &posed.problem.flows {
        let crossed = flow.over.iter().filter_map(|part| ranks.get(part)).min();
        if let Some(first) = crossed {
            explained[*first] += flow.hits - flow.probes * usual;
            continue;
        }
        for (set, times) in &flow.within {
            for (rank, share) in &sets[*set as usize] {
                explained[*rank] += flow.probes * broken[*rank].rate * share * f64::from(*times);
            }
        }
    }
    explained.iter().map(|slow| f64::max(*slow, 0.0)).collect()
}

const fn cause(suspect: Suspect) -> Cause {
    match suspect {
        Suspect::Host(_) | Suspect::Prober(_) => Cause::Host,
        Suspect::Edge(_) => Cause::Edge,
        Suspect::Cable(_) => Cause::Cable,
        Suspect::Switch(_) => Cause::Switch,
    }
}
