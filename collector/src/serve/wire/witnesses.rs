//! The witnesses of a cable and their age: for the layout, the JSON and the page's tooltips.

use std::collections::BTreeMap;

use railscope_model::fabric::{Presence, Sighting, Sightings, Timestamp, Witness};
use serde::Serialize;

use crate::analyzer::ClusterView;
use crate::fabric::LldpMerge;
use crate::serve::phrases;

/// What the witnesses report about all cables between two switches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenTogether([Option<Together>; Witness::ALL.len()]);

/// What one witness reports about several cables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Together {
    /// Cables that its newest report shows.
    cables: usize,
    /// When it last saw the one that it saw longest ago.
    oldest: Timestamp,
}

impl SeenTogether {
    /// Adds what is reported about one more cable.
    pub(crate) fn add(&mut self, seen_by: &Sightings) {
        for (witness, said) in seen_by.iter() {
            let together = self.0[witness as usize].get_or_insert(Together {
                cables: 0,
                oldest: said.at,
            });
            together.cables += usize::from(said.says == Presence::Present);
            together.oldest = together.oldest.min(said.at);
        }
    }

    /// Whether this witness shows one of the cables.
    pub(crate) fn shows(&self, witness: Witness) -> bool {
        self.0[witness as usize].is_some_and(|together| together.cables > 0)
    }

    fn iter(&self) -> impl Iterator<Item = (Witness, Together)> {
        let all = Witness::ALL.into_iter().zip(self.0);
        all.filter_map(|(witness, together)| Some((witness, together?)))
    }
}

/// A witness of one cable.
#[derive(Debug, Serialize)]
pub(crate) struct WitnessWire {
    witness: &'static str,
    /// How long ago it last saw the cable.
    age_seconds: f64,
    /// Its newest report: `present`, `unknown` or `lost`.
    says: &'static str,
}

/// The witnesses of a cable.
pub(crate) fn witnesses(seen_by: &Sightings, now: Timestamp) -> Vec<WitnessWire> {
    let wire = |(witness, Sighting { at, says }): (Witness, Sighting)| WitnessWire {
        witness: witness.as_str(),
        age_seconds: now.seconds_since(at),
        says: says.as_str(),
    };
    seen_by.iter().map(wire).collect()
}

/// What LLDP gave, and what of it is not in the graph.
#[derive(Debug, Serialize)]
pub(crate) struct Lldp {
    cables: usize,
    /// Switches that report their neighbors.
    switches: usize,
    /// Time since the witness with the oldest report was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_switch_age_seconds: Option<f64>,
    leaves: usize,
    /// Leaves that do not report their neighbors: what is above them is not known.
    mute_leaves: usize,
    /// Ethernet ports that are up and receive no neighbor.
    silent_ports: usize,
    /// Neighbors omitted, by the reason.
    left_out: BTreeMap<&'static str, usize>,
    unparsed: usize,
    contradictions: Vec<Contradiction>,
    shared_chassis: Vec<SharedChassis>,
    unread: BTreeMap<String, String>,
}

/// An end of a cable that several others claim.
#[derive(Debug, Serialize)]
struct Contradiction {
    end: String,
    claims: Vec<String>,
    /// The claim that takes precedence; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

/// A chassis id that several names share.
#[derive(Debug, Serialize)]
struct SharedChassis {
    chassis: String,
    names: Vec<String>,
}

impl Lldp {
    /// None if no host receives LLDP and no switch was read.
    pub(crate) fn of(view: &ClusterView, now: Timestamp) -> Option<Self> {
        let lldp = &*view.lldp;
        if *lldp == LldpMerge::default() {
            return None;
        }
        let oldest = view.switches_heard.values().min();
        let contradictions = lldp.contradictions.iter().cloned();
        let shared = lldp.shared_chassis.iter().cloned();
        let unread = lldp.unread.iter();
        Some(Self {
            cables: lldp.cables,
            switches: lldp.speakers,
            oldest_switch_age_seconds: oldest.map(|at| now.seconds_since(*at)),
            leaves: lldp.leaves.len(),
            mute_leaves: lldp.leaves.len() - lldp.speaking_leaves,
            silent_ports: lldp.silent,
            left_out: BTreeMap::from([
                ("dark_port", lldp.dark),
                ("host", lldp.host_neighbors),
                ("management", lldp.management),
                ("slow_port", lldp.slow),
                ("stranger", lldp.strangers.len()),
            ]),
            unparsed: lldp.unparsed,
            contradictions: contradictions
                .map(|one| Contradiction {
                    end: one.end,
                    claims: one.claims,
                    kept: one.kept,
                })
                .collect(),
            shared_chassis: shared
                .map(|(chassis, names)| SharedChassis { chassis, names })
                .collect(),
            unread: unread
                .map(|(switch, why)| (switch.to_string(), why.clone()))
                .collect(),
        })
    }
}

/// A witness of the cables between two switches.
#[derive(Debug, Serialize)]
pub(crate) struct TogetherWire {
    witness: &'static str,
    /// Cables that its newest report shows.
    cables: usize,
    /// How long ago it last saw the one that it saw longest ago.
    oldest_age_seconds: f64,
}

/// The witnesses of the cables between two switches.
pub(crate) fn witnesses_together(seen_by: &SeenTogether, now: Timestamp) -> Vec<TogetherWire> {
    let wire = |(witness, together): (Witness, Together)| TogetherWire {
        witness: witness.as_str(),
        cables: together.cables,
        oldest_age_seconds: now.seconds_since(together.oldest),
    };
    seen_by.iter().map(wire).collect()
}

/// A sighting this long ago is worth saying: longer than any usual scrape interval. Thousands of tooltips are short without.
const OLD_SECONDS: f64 = 60.0;

/// The witnesses of a cable for a tooltip: `seen by exporter, subnet (3 min ago)`.
pub(crate) fn in_words(seen_by: &Sightings, now: Timestamp) -> String {
    let said = seen_by.iter().map(|(witness, said)| (witness, said.at));
    sentence(said, now)
}

/// As [`in_words`], of several cables: the oldest sighting of each witness.
pub(crate) fn together_in_words(seen_by: &SeenTogether, now: Timestamp) -> String {
    let said = seen_by.iter();
    sentence(said.map(|(witness, said)| (witness, said.oldest)), now)
}

fn sentence(said: impl Iterator<Item = (Witness, Timestamp)>, now: Timestamp) -> String {
    let word = |(witness, at): (Witness, Timestamp)| {
        let age = now.seconds_since(at);
        match age > OLD_SECONDS {
            true => format!("{} ({} ago)", witness.as_str(), phrases::span(age)),
            false => witness.as_str().to_owned(),
        }
    };
    let said: Vec<_> = said.map(word).collect();
    if said.is_empty() {
        return String::from("not seen by any source");
    }
    format!("seen by {}", said.join(", "))
}
