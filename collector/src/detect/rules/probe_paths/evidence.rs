//! What tomography found -> evidence about a part, with the flows that it rests on.

use std::collections::BTreeMap;

use railscope_model::fabric::{LinkId, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::{PROBE_FLOW_LOST, PROBE_FLOW_SLOW};

use super::problem::{Posed, Signal, Suspect};
use super::{APART_SECONDS, NAME, OVER_SECONDS};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, EDGE_LOSSY, HOST_STALLS, PATH_SLOW, UPLINK_JITTER, UPLINK_LOSSY};
use crate::detect::detector::{Evidence, View, list};
use crate::detect::rules::probe_paths::paths::Ways;
use crate::detect::tomography::{Broken, Flow};

/// Flows over a part, or past it.
#[derive(Debug, Default)]
struct Tally {
    flows: usize,
    /// Those of them that were hit.
    hit: usize,
    probes: f64,
    hits: f64,
    seconds: f64,
    /// Scrapes that reported the first and the last hit.
    told: Option<(Timestamp, Timestamp)>,
}

impl Tally {
    fn add(&mut self, flow: &Flow, seconds: f64, told: Option<(Timestamp, Timestamp)>) {
        self.flows += 1;
        self.hit += usize::from(flow.hits > 0.0);
        self.probes += flow.probes;
        self.hits += flow.hits;
        self.seconds = self.seconds.max(seconds);
        if let Some((first, last)) = told {
            let known = self.told.unwrap_or((first, last));
            self.told = Some((known.0.min(first), known.1.max(last)));
        }
    }
}

/// The part that evidence is about.
struct Named {
    part: Part,
    class: &'static Class,
    /// Other candidates.
    or: Vec<Part>,
}

/// What is reported about a part that is taken to be broken; none if it may be transient, if it is over, or if it
/// cannot be determined which of several parts that have nothing in common it is.
pub(super) fn evidence(
    view: &View<'_>,
    ways: &Ways,
    posed: &Posed<'_>,
    broken: &Broken,
    signal: Signal,
) -> Option<Evidence> {
    if broken.rate < signal.least_named(posed.suspects[broken.part as usize]) {
        return None;
    }
    let [over, past] = tallies(posed, broken.part, signal);
    let (first, last) = over.told?;
    let lasts = last.seconds_since(first) >= APART_SECONDS;
    if !lasts || view.now.seconds_since(last) > OVER_SECONDS {
        return None;
    }
    let Named { part, class, or } = named(view, ways, posed, broken, signal)?;
    let what = match signal {
        Signal::Loss => "were lost",
        Signal::Tail => "were slow",
    };
    let mut statement = format!(
        "In {:.0} s, {:.0} of {:.0} probes over {part} {what} ({:.1} %); {} of {} flows over it were affected, and {} of {} others.",
        over.seconds,
        over.hits,
        over.probes,
        100.0 * broken.rate,
        over.hit,
        over.flows,
        past.hit,
        past.flows,
    );
    if !or.is_empty() {
        statement += &format!(" Probes cannot distinguish it from {}.", list(&or));
    }
    Some(Evidence {
        detector: NAME,
        signal: match signal {
            Signal::Loss => PROBE_FLOW_LOST.name,
            Signal::Tail => PROBE_FLOW_SLOW.name,
        },
        class,
        effect: broken.rate.min(1.0),
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: or,
        part,
    })
}

/// Flows that cross a part, or may, and all others.
fn tallies(posed: &Posed<'_>, part: u32, signal: Signal) -> [Tally; 2] {
    let mut tallies = [Tally::default(), Tally::default()];
    let sets = &posed.problem.sets;
    let has = |set: u32| sets[set as usize].iter().any(|(other, _)| *other == part);
    let has: Vec<bool> = (0..sets.len() as u32).map(has).collect();
    let flows = posed.problem.flows.iter().zip(&posed.counted);
    let known = posed
        .problem
        .flows
        .iter()
        .any(|flow| flow.over.contains(&part));
    for (flow, counted) in flows {
        let may = || flow.within.iter().any(|(set, _)| has[*set as usize]);
        // Only where no path is known, those that may lead over it count.
        let is_over = flow.over.contains(&part) || (!known && may());
        let hits = signal.hits(counted);
        tallies[usize::from(!is_over)].add(flow, counted.seconds, hits.told);
    }
    tallies
}

fn named(
    view: &View<'_>,
    ways: &Ways,
    posed: &Posed<'_>,
    broken: &Broken,
    signal: Signal,
) -> Option<Named> {
    let suspect = posed.suspects[broken.part as usize];
    let alike: Vec<Suspect> = (broken.alike.iter())
        .map(|part| posed.suspects[*part as usize])
        .collect();
    let part = |suspect: &Suspect| part(view, ways, *suspect);
    let class = match (signal, suspect) {
        (Signal::Loss, Suspect::Edge(_) | Suspect::Host(_) | Suspect::Prober(_)) => &EDGE_LOSSY,
        (Signal::Loss, Suspect::Cable(_) | Suspect::Switch(_)) => &UPLINK_LOSSY,
        (Signal::Tail, Suspect::Prober(_) | Suspect::Host(_)) => &HOST_STALLS,
        (Signal::Tail, Suspect::Cable(_)) => &UPLINK_JITTER,
        (Signal::Tail, _) => &PATH_SLOW,
    };
    let cables = alike.iter().chain([&suspect]).map(|one| match one {
        Suspect::Cable(cable) => Some(*cable),
        _ => None,
    });
    let cables: Vec<LinkId> = cables.flatten().collect();
    let of_one_pair = || {
        let ends = |cable: &LinkId| view.fabric.link(*cable).map(|(_, ends)| ends);
        let sorted = |mut ends: [PartId; 2]| {
            ends.sort_unstable();
            ends
        };
        let mut pairs = cables.iter().filter_map(ends).map(sorted);
        pairs
            .next()
            .is_some_and(|first| pairs.all(|pair| pair == first))
    };
    let or = alike.iter().filter_map(&part).collect();
    if cables.len() < 2 || of_one_pair() {
        return Some(Named {
            part: part(&suspect)?,
            class,
            or,
        });
    }
    // One of several cables of a switch: check the switch, unless more probes will show
    // which cable it is.
    if !broken.same {
        return None;
    }
    let switch = common_switch(view, &cables)?;
    Some(Named {
        part: view.fabric.vertex(switch).part.clone(),
        class,
        or: alike.iter().chain([&suspect]).filter_map(&part).collect(),
    })
}

/// The switch at which all of these cables end; if all of them connect the same two leaves, the first, which is as good a
/// place to start as the other.
fn common_switch(view: &View<'_>, cables: &[LinkId]) -> Option<PartId> {
    let ends = |cable: &LinkId| view.fabric.link(*cable).map(|(_, ends)| ends);
    let mut counts: BTreeMap<PartId, usize> = BTreeMap::new();
    for end in cables.iter().filter_map(ends).flatten() {
        *counts.entry(end).or_default() += 1;
    }
    let name = |switch: PartId| &view.fabric.vertex(switch).part;
    let mut switches: Vec<(usize, PartId)> = counts.into_iter().map(|(one, n)| (n, one)).collect();
    switches.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| name(a.1).cmp(name(b.1))));
    let is_between = |leaves: &[(usize, PartId)]| {
        let has = |ends: [PartId; 2]| leaves.iter().any(|(_, leaf)| ends.contains(leaf));
        cables.iter().filter_map(ends).all(has)
    };
    let (first, second) = (switches.first()?, switches.get(1)?);
    let is_one = first.0 == cables.len() && second.0 < first.0;
    (is_one || first.0 < cables.len() && is_between(&[*first, *second])).then_some(first.1)
}

/// A suspect as a part of the fabric.
pub(super) fn part(view: &View<'_>, ways: &Ways, suspect: Suspect) -> Option<Part> {
    let vertex = |id: PartId| view.fabric.vertex(id).part.clone();
    match suspect {
        // Probes cannot distinguish what is behind a NIC from what is before it; mostly it is the cable.
        Suspect::Edge(nic) => Some(
            ways.known_end(nic)
                .and_then(|end| view.fabric.cable_part(end.cable?))
                .unwrap_or_else(|| vertex(nic)),
        ),
        Suspect::Host(host) | Suspect::Prober(host) => Some(vertex(host)),
        Suspect::Cable(cable) => view.fabric.cable_part(cable),
        Suspect::Switch(switch) => Some(vertex(switch)),
    }
}
