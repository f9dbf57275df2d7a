//! From scenarios and seeds to runs: which faults happen, where and when.

use anyhow::{Context as _, anyhow};
use railscope_simulator::cluster::Cluster;
use railscope_simulator::examples;
use railscope_simulator::faults::{Effect, Fault};
use railscope_simulator::noise::Noise;
use railscope_simulator::wiring::Wiring;
use railscope_simulator::work::placement::place;
use railscope_simulator::work::workload::JobSpec;

use super::ends::{self, Course};
use super::judge::Event;
use super::scenario::{Draw, EACH, Expect, Scenario};

/// The stream of noise that faults are drawn from: not the cluster's own.
const DRAWS: u64 = 0xfa17;
/// Causes that only probes report about: [`EACH`] draws them where exporters probe.
const NEED_PROBES: [&str; 2] = ["edge-lossy", "uplink-jitter"];
/// Parts that are tried before two faults may not be distinguished.
const TRIES: u64 = 64;

/// One run to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan<'a> {
    /// The scenario.
    pub(super) scenario: &'a Scenario,
    /// Value of [`EACH`] in this run.
    pub(super) each: Option<Variant<'a>>,
    /// The seed of cluster and faults.
    pub(super) seed: u64,
}

/// Value of [`EACH`] in one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant<'a> {
    cause: &'a str,
    /// Place among the scenario's effects, and the effect, where it is not the typical one of its cause.
    effect: Option<(usize, &'a Effect)>,
}

/// Every run of the scenarios with every seed. The longest start first.
///
/// # Errors
/// A scenario describes an impossible cluster.
pub(super) fn plans<'a>(
    scenarios: &'a [Scenario],
    seeds: &std::ops::Range<u64>,
) -> anyhow::Result<Vec<Plan<'a>>> {
    let mut plans = Vec::new();
    for scenario in scenarios {
        for each in causes(scenario)? {
            plans.extend(seeds.clone().map(|seed| Plan {
                scenario,
                each,
                seed,
            }));
        }
    }
    // The sort keeps the order of equals.
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.scenario.work()));
    Ok(plans)
}

/// Values of [`EACH`] in a scenario, run by run: its effects, or every cause, that its fabric can have.
fn causes(scenario: &Scenario) -> anyhow::Result<Vec<Option<Variant<'_>>>> {
    let Some(draw) = scenario.draws.iter().find(|draw| draw.cause == EACH) else {
        return Ok(vec![None]);
    };
    let plan = Plan {
        scenario,
        each: None,
        seed: 0,
    };
    let cluster = plan.cluster()?;
    let can_be = |variant: &Variant<'_>| {
        !draw.except.iter().any(|except| except == variant.cause)
            && (scenario.probes.is_some() || !NEED_PROBES.contains(&variant.cause))
            && examples::fault(&cluster, variant.cause, 0, 0.0).is_some()
    };
    let given = (1..).zip(&draw.effects).map(|(number, effect)| Variant {
        cause: effect.cause(),
        effect: Some((number, effect)),
    });
    let typical = examples::CAUSES.iter().filter(|_| draw.effects.is_empty());
    let typical = typical.map(|cause| Variant {
        cause,
        effect: None,
    });
    let all = given.chain(typical);
    Ok(all.filter(can_be).map(Some).collect())
}

impl Plan<'_> {
    /// Name of scenario and cause, for people.
    pub(super) fn name(&self) -> String {
        match self.each {
            Some(Variant {
                cause,
                effect: Some((number, _)),
            }) => format!("{} ({cause}, {number})", self.scenario.name),
            Some(Variant { cause, .. }) => format!("{} ({cause})", self.scenario.name),
            None => self.scenario.name.clone(),
        }
    }

    /// The cluster before anything happens.
    ///
    /// # Errors
    /// The scenario describes a cluster that cannot be.
    pub(super) fn cluster(&self) -> anyhow::Result<Cluster> {
        let Scenario {
            fabric, jobs, site, ..
        } = self.scenario;
        let jobs = if jobs.is_empty() {
            Ok(vec![JobSpec::on_first(fabric.nodes)])
        } else {
            Wiring::plan(fabric).and_then(|wiring| place(jobs, &wiring, self.seed))
        };
        jobs.and_then(|jobs| Cluster::with_jobs(fabric.clone(), jobs, self.seed))
            .and_then(|cluster| cluster.with_site(site.clone()))
            .with_context(|| self.scenario.name.clone())
    }

    /// Lets the scenario's faults happen to the cluster, and reports what is true of them.
    ///
    /// # Errors
    /// The cluster cannot have one of them.
    pub(super) fn inject(&self, cluster: &mut Cluster) -> anyhow::Result<Vec<Event>> {
        let mut faults = self.scenario.faults.clone();
        // By name, so that scenarios of one seed differ, and a new one leaves the others as they are.
        let name = self.name();
        let noise = Noise::new(self.seed).part(DRAWS);
        let noise = name
            .bytes()
            .fold(noise, |noise, byte| noise.part(byte.into()));
        for (number, draw) in (0..).zip(&self.scenario.draws) {
            for copy in 0..u64::from(draw.count) {
                let noise = noise.part(number).part(copy);
                let fault = self.draw(cluster, draw, noise, &faults)?;
                faults.push(fault);
            }
        }
        self.end(cluster, noise, &mut faults);
        let event = |fault: Fault| {
            let (onset, end) = (fault.onset_seconds, fault.end_seconds);
            let truth = cluster
                .inject(fault)
                .with_context(|| self.scenario.name.clone())?;
            Ok(Event {
                truth,
                onset,
                end: end.unwrap_or(self.scenario.duration_seconds),
                has_ended: end.is_some_and(|end| end < self.scenario.duration_seconds),
            })
        };
        faults.into_iter().map(event).collect()
    }

    /// Lets faults end in half of the runs; some come back, and some overlap with another one.
    fn end(&self, cluster: &Cluster, noise: Noise, faults: &mut Vec<Fault>) {
        let Scenario {
            ends,
            expect,
            probes,
            duration_seconds,
            ..
        } = self.scenario;
        if !ends {
            return;
        }
        let noise = noise.part(ends::DRAWS);
        let course = Course::of(self.seed, noise);
        ends::apply(course, *duration_seconds, noise, faults);
        if course != Course::Overlaps || *expect == Expect::NoPage {
            return;
        }
        let Some(first) = faults.iter().find(|fault| fault.end_seconds.is_some()) else {
            return;
        };
        let onset = ends::overlapping_onset(first, noise);
        let known = examples::CAUSES.iter().filter(|cause| {
            **cause != first.effect.cause() && (probes.is_some() || !NEED_PROBES.contains(*cause))
        });
        let known: Vec<_> = known.collect();
        let start = noise.bits(0) as usize % known.len().max(1);
        let others = known.iter().cycle().skip(start).take(known.len());
        let other = others.enumerate().find_map(|(index, cause)| {
            let fault = examples::fault(cluster, cause, noise.bits(1 + index as u64), onset)?;
            let is_taken = faults.iter().any(|other| shares_a_node(other, &fault));
            (!is_taken).then_some(fault)
        });
        faults.extend(other);
    }

    fn draw(
        &self,
        cluster: &Cluster,
        draw: &Draw,
        noise: Noise,
        before: &[Fault],
    ) -> anyhow::Result<Fault> {
        let variant = self.each.filter(|_| draw.cause == EACH);
        let cause = variant.map_or(&*draw.cause, |variant| variant.cause);
        let [first, last] = draw.onset_seconds;
        // Not at a full second: faults are independent of scrapes.
        let onset = first + (last - first) * noise.uniform(0);
        let taken = |fault: &Fault| before.iter().any(|other| shares_a_node(other, fault));
        let drawn = (1..=TRIES).find_map(|index| {
            let fault = examples::fault(cluster, cause, noise.bits(index), onset)?;
            (!taken(&fault)).then_some(fault)
        });
        let mut fault = drawn.ok_or_else(|| {
            let name = &self.scenario.name;
            anyhow!("{name}: its fabric has nothing for a draw of {cause:?}, or nothing more")
        })?;
        if let Some((_, effect)) = variant.and_then(|variant| variant.effect) {
            fault.effect = effect.clone();
        }
        fault.end_seconds = draw.lasts_seconds.map(|lasts| onset + lasts);
        Ok(fault)
    }
}

/// Faults of one node could be one fault: drawn ones are never.
fn shares_a_node(one: &Fault, other: &Fault) -> bool {
    match (one.part.node(), other.part.node()) {
        (Some(one), Some(other)) => one == other,
        _ => one.part == other.part,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::scenario::read_all;
    use super::*;

    #[test]
    fn every_severity_is_a_run_of_its_own_that_the_fabric_can_have() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/scenarios/severity");
        let scenarios = read_all(&[folder]).expect("sound");
        for scenario in &scenarios {
            let plans = plans(std::slice::from_ref(scenario), &(0..1)).expect("a cluster");
            assert_eq!(
                plans.len(),
                scenario.draws[0].effects.len(),
                "{}",
                scenario.name
            );
            for plan in plans {
                let mut cluster = plan.cluster().expect("a cluster");
                let events = plan.inject(&mut cluster).expect("faults");
                // Some come back, some overlap with another one.
                let drawn = scenario.draws.len();
                assert!(
                    (drawn..=drawn + 1).contains(&events.len()),
                    "{}",
                    plan.name()
                );
            }
        }
    }
}
