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
    let usual = usual(flows, broken).min(slow);
    let mut explained: BTreeMap<Cause, f64> = BTreeMap::new();
    let mut hosts = Vec::new();
    for one in broken {
        let suspect = posed.suspects[one.part as usize];
        let crossed = crossed(posed, one.part);
        *explained.entry(cause(suspect)).or_default() += crossed * one.rate;
        if let Suspect::Host(host) | Suspect::Prober(host) = suspect
            && let Part::Host(node) = &view.fabric.vertex(host).part
        {
            let stalls = view.history.node(node).and_then(timer_stalls);
            hosts.push(StalledHost {
                node: node.clone(),
                slow: crossed * one.rate,
                timer_stalls_per_second: stalls,
            });
        }
    }
    // Rates are those of a coarse grid: together they may explain more than there is.
    let all: f64 = explained.values().sum();
    let scale = ((slow - usual) / all).clamp(0.0, 1.0);
    explained.values_mut().for_each(|slow| *slow *= scale);
    hosts.iter_mut().for_each(|host| host.slow *= scale);
    hosts.sort_by(|a, b| b.slow.total_cmp(&a.slow).then_with(|| a.node.cmp(&b.node)));
    Causes {
        slow,
        usual,
        explained,
        hosts,
    }
}

/// Slow probes that there would be if all flows had the share of those that cross no broken component.
fn usual(flows: &[Flow], broken: &[Broken]) -> f64 {
    let broken: BTreeSet<u32> = broken.iter().map(|one| one.part).collect();
    let passes_by = |flow: &&Flow| flow.over.iter().all(|part| !broken.contains(part));
    let (probes, slow) = flows
        .iter()
        .filter(passes_by)
        .fold((0.0, 0.0), |sum, flow| {
            (sum.0 + flow.probes, sum.1 + flow.hits)
        });
    let all: f64 = flows.iter().map(|flow| flow.probes).sum();
    if probes > 0.0 {
        all * slow / probes
    } else {
        0.0
    }
}

/// Probes that crossed a component, as far as their paths are known: of sets of paths the share that leads over it.
fn crossed(posed: &Posed<'_>, part: u32) -> f64 {
    let share_of = |set: &u32| -> f64 {
        let parts = posed.problem.sets[*set as usize].iter();
        parts
            .filter(|(other, _)| *other == part)
            .map(|(_, share)| share)
            .sum()
    };
    let times = |flow: &Flow| -> f64 {
        let certain = f64::from(u8::from(flow.over.contains(&part)));
        let within = flow.within.iter();
        certain
            + within
                .map(|(set, times)| share_of(set) * f64::from(*times))
                .sum::<f64>()
    };
    let flows = posed.problem.flows.iter();
    flows.map(|flow| flow.probes * times(flow)).sum()
}

const fn cause(suspect: Suspect) -> Cause {
    match suspect {
        Suspect::Host(_) | Suspect::Prober(_) => Cause::Host,
        Suspect::Edge(_) => Cause::Edge,
        Suspect::Cable(_) => Cause::Cable,
        Suspect::Switch(_) => Cause::Switch,
    }
}
