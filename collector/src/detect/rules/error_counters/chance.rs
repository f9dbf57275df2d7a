//! Errors that move from component to component, and how many of them are explained by chance.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part, SwitchName};

use super::{Rise, WINDOW_SECONDS};
use crate::detect::peers::{self, MIN_PEERS, is_by_chance, mean_events};
use crate::detect::registry::Threshold;

/// For how long it is remembered which components had an error.
const REMEMBERED_SECONDS: f64 = 3600.0;

/// Which components had errors of one kind lately.
#[derive(Debug, Default)]
pub(super) struct Background {
    /// Start of observation.
    since: Option<Timestamp>,
    risen: BTreeMap<Part, Risen>,
}

#[derive(Debug)]
struct Risen {
    last: Timestamp,
    /// Start of the newest of its windows.
    begun: Timestamp,
    /// Windows with errors.
    windows: f64,
}

/// How many components have errors, for comparison with one of them.
pub(super) struct Usual<'a> {
    background: &'a Background,
    /// Components that are counted, and the nodes or switches that they belong to.
    parts: usize,
    owners: usize,
    /// Owners with errors in the window, and in the time that is remembered.
    now: usize,
    lately: usize,
    /// How many windows have passed in that time.
    passed: f64,
}

impl Background {
    /// Drops what is too old, and records the start of observation.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.since.get_or_insert(now);
        self.risen
            .retain(|_, risen| now.seconds_since(risen.last) <= REMEMBERED_SECONDS);
    }

    /// Records the counter's increase on all components, those of one owner together.
    pub(super) fn note(&mut self, all: &[Rise], now: Timestamp) -> Usual<'_> {
        let some = || all.iter().filter(|rise| rise.amount >= 1.0);
        for rise in some() {
            if let Some(risen) = self.risen.get_mut(&rise.part) {
                risen.last = now;
                if now.seconds_since(risen.begun) > WINDOW_SECONDS {
                    (risen.begun, risen.windows) = (now, risen.windows + 1.0);
                }
            } else {
                let risen = Risen {
                    last: now,
                    begun: now,
                    windows: 1.0,
                };
                self.risen.insert(rise.part.clone(), risen);
            }
        }
        let since = self.since.unwrap_or(now);
        let watched = now.seconds_since(since).min(REMEMBERED_SECONDS);
        Usual {
            parts: all.len(),
            owners: groups(all.iter().map(counted_by)),
            now: groups(some().map(counted_by)),
            lately: groups(self.risen.keys().map(owner)),
            passed: (watched / WINDOW_SECONDS).max(1.0),
            background: self,
        }
    }
}

impl Usual<'_> {
    /// Whether a component that has errors has no more of them, in the window and in the time that is remembered, than one of
    /// all has by chance. Errors of the same node or switch may have one cause: they are not compared.
    pub(super) fn has(&self, rise: &Rise) -> bool {
        let mean = |owners: usize| {
            let others = owners.saturating_sub(1);
            mean_events(others, self.owners) * self.owners as f64 / self.parts as f64
        };
        let lately = mean(self.lately);
        let now = mean(self.now).max(lately / self.passed);
        let windows = self.background.risen.get(&rise.part);
        let windows = windows.map_or(1.0, |risen| risen.windows);
        self.owners >= MIN_PEERS
            && is_by_chance(rise.amount, now, self.parts)
            && is_by_chance(windows, lately, self.parts)
    }
}

/// The device that counts an increase: its switch or its node.
fn counted_by(rise: &Rise) -> Option<&str> {
    let switch = rise.seen_at.as_ref().map(SwitchName::as_str);
    switch.or_else(|| owner(&rise.part))
}

/// The node of a part, or the switch that names it.
fn owner(part: &Part) -> Option<&str> {
    match part {
        Part::SwitchLink(switch, _) | Part::Switch(switch) => Some(switch.as_str()),
        _ => part.node().map(NodeName::as_str),
    }
}

/// How many different owners follow each other.
fn groups<'a>(owners: impl Iterator<Item = Option<&'a str>>) -> usize {
    let mut last = None;
    owners
        .filter(|owner| last.replace(*owner) != Some(*owner))
        .count()
}

/// The numbers.
pub(super) fn numbers() -> [Threshold; 2] {
    [
        peers::chance(),
        Threshold::new(
            "time over which errors of others are remembered",
            REMEMBERED_SECONDS,
            "s",
            "long enough for rare errors (a choice)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPUs of 20 nodes with 8 each, of which these have errors.
    fn rises(errors: &[(&str, f64)]) -> Vec<Rise> {
        let gpus = (0..160).map(|gpu| format!("gpu/n{:02}:{}", gpu / 8, gpu % 8));
        let rises = gpus.map(|gpu| {
            let own = errors.iter().find(|(name, _)| *name == gpu);
            Rise {
                part: gpu.parse().expect("a GPU"),
                seen_at: None,
                amount: own.map_or(0.0, |(_, amount)| *amount),
                seconds: WINDOW_SECONDS,
            }
        });
        rises.collect()
    }

    /// Whether a GPU has no more errors than usual, after windows with such errors.
    fn is_usual(gpu: &str, windows: &[&[(&str, f64)]]) -> bool {
        let mut background = Background::default();
        let mut found = false;
        for (number, errors) in (0..).zip(windows) {
            let now = Timestamp(0).plus_seconds(1.5 * WINDOW_SECONDS * f64::from(number));
            background.begin(now);
            let all = rises(errors);
            let usual = background.note(&all, now);
            let part: Part = gpu.parse().expect("a GPU");
            let own = all.iter().find(|rise| rise.part == part);
            found = usual.has(own.expect("a rise"));
        }
        found
    }

    #[test]
    fn what_one_in_turn_has_is_usual_and_what_only_one_has_is_not() {
        let own = ("gpu/n05:1", 1.0);
        assert!(!is_usual(own.0, &[&[own]]));
        assert!(is_usual(own.0, &[&[own, ("gpu/n09:3", 1.0)]]));
        assert!(is_usual(own.0, &[&[("gpu/n09:3", 1.0)], &[own]]));
        assert!(!is_usual(own.0, &[&[(own.0, 5.0), ("gpu/n09:3", 1.0)]]));
    }

    #[test]
    fn one_that_has_single_errors_again_and_again_is_not_usual() {
        let (own, other) = (("gpu/n05:1", 1.0), ("gpu/n09:3", 1.0));
        let windows: [&[(&str, f64)]; 4] = [&[other], &[own], &[own], &[own]];
        assert!(!is_usual(own.0, &windows));
    }

    #[test]
    fn errors_of_one_node_are_no_measure_of_each_other() {
        let pair = [("gpu/n05:1", 1.0), ("gpu/n05:2", 1.0)];
        assert!(!is_usual(pair[0].0, &[&pair]));
    }
}
