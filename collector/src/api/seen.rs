//! Who saw a cable and how long ago: for the layout, the JSON and the page's tooltips.

use railscope_model::fabric::{Presence, Sighting, Sightings, Timestamp, Witness};
use serde::Serialize;

use super::words;

/// What the witnesses say of all cables between two switches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenTogether([Option<Together>; Witness::ALL.len()]);

/// What one witness says of several cables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Together {
    /// Cables that its newest word shows.
    cables: usize,
    /// When it last saw the one that it saw longest ago.
    oldest: Timestamp,
}

impl SeenTogether {
    /// Adds what is said of one more cable.
    pub(super) fn add(&mut self, seen_by: &Sightings) {
        for (witness, said) in seen_by.iter() {
            let together = self.0[witness as usize].get_or_insert(Together {
                cables: 0,
                oldest: said.at,
            });
            together.cables += usize::from(said.says == Presence::Present);
            together.oldest = together.oldest.min(said.at);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Witness, Together)> {
        let all = Witness::ALL.into_iter().zip(self.0);
        all.filter_map(|(witness, together)| Some((witness, together?)))
    }
}

/// A witness of one cable.
#[derive(Debug, Serialize)]
pub(super) struct WitnessWire {
    witness: &'static str,
    /// How long ago it last saw the cable.
    age_seconds: f64,
    /// Its newest word: `present`, `unknown` or `lost`.
    says: &'static str,
}

/// The witnesses of a cable.
pub(super) fn witnesses(seen_by: &Sightings, now: Timestamp) -> Vec<WitnessWire> {
    let wire = |(witness, Sighting { at, says }): (Witness, Sighting)| WitnessWire {
        witness: witness.as_str(),
        age_seconds: now.seconds_since(at),
        says: says.as_str(),
    };
    seen_by.iter().map(wire).collect()
}

/// A witness of the cables between two switches.
#[derive(Debug, Serialize)]
pub(super) struct TogetherWire {
    witness: &'static str,
    /// Cables that its newest word shows.
    cables: usize,
    /// How long ago it last saw the one that it saw longest ago.
    oldest_age_seconds: f64,
}

/// The witnesses of the cables between two switches.
pub(super) fn witnesses_together(seen_by: &SeenTogether, now: Timestamp) -> Vec<TogetherWire> {
    let wire = |(witness, together): (Witness, Together)| TogetherWire {
        witness: witness.as_str(),
        cables: together.cables,
        oldest_age_seconds: now.seconds_since(together.oldest),
    };
    seen_by.iter().map(wire).collect()
}

/// The witnesses of a cable for a tooltip: `seen by exporter 3 s ago, switch 12 s ago`.
pub(super) fn in_words(seen_by: &Sightings, now: Timestamp) -> String {
    let said = seen_by.iter().map(|(witness, said)| (witness, said.at));
    sentence(said, now)
}

/// As [`in_words`], of several cables: the oldest sighting of each witness.
pub(super) fn together_in_words(seen_by: &SeenTogether, now: Timestamp) -> String {
    let said = seen_by.iter();
    sentence(said.map(|(witness, said)| (witness, said.oldest)), now)
}

fn sentence(said: impl Iterator<Item = (Witness, Timestamp)>, now: Timestamp) -> String {
    let word = |(witness, at): (Witness, Timestamp)| {
        let age = words::span(now.seconds_since(at));
        format!("{} {age} ago", witness.as_str())
    };
    let said: Vec<_> = said.map(word).collect();
    if said.is_empty() {
        return String::from("seen by nobody");
    }
    format!("seen by {}", said.join(", "))
}
