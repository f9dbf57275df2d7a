//! Per-node cache of results, valid as long as their inputs are unchanged.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::store::NodeHistory;

/// By history: what was made, and the numbers that report whether it would come out the same now, such
/// as [`NodeHistory::values_since`]. It changes what a tick costs, never what it reports.
#[derive(Debug, Clone)]
pub struct Kept<K, T> {
    of: HashMap<u64, One<K, T>, FixedState>,
    tick: u64,
}

#[derive(Debug, Clone)]
struct One<K, T> {
    rests_on: K,
    tick: u64,
    made: T,
}

impl<K, T> Default for Kept<K, T> {
    fn default() -> Self {
        Self {
            of: HashMap::default(),
            tick: 0,
        }
    }
}

impl<K: PartialEq, T> Kept<K, T> {
    /// Begins a tick: entries that the last one did not use are dropped.
    pub fn begin(&mut self) {
        let last = self.tick;
        self.of.retain(|_, one| one.tick == last);
        self.tick += 1;
    }

    /// Makes it again if it rests on something else by now.
    pub fn refresh(&mut self, history: &NodeHistory, rests_on: K, make: impl FnOnce() -> T) {
        let tick = self.tick;
        match self.of.get_mut(&history.born()) {
            Some(one) if one.rests_on == rests_on => one.tick = tick,
            _ => {
                let made = make();
                let one = One {
                    rests_on,
                    tick,
                    made,
                };
                self.of.insert(history.born(), one);
            }
        }
    }

    /// What was made of a history in this tick.
    pub fn of(&self, history: &NodeHistory) -> Option<&T> {
        let one = self.of.get(&history.born())?;
        (one.tick == self.tick).then_some(&one.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::History;

    #[test]
    fn it_is_made_again_for_another_reason_or_another_history_and_forgotten_unasked() {
        let mut history = History::default();
        let names = ["n1", "n2"].map(|name| name.parse().expect(name));
        for name in &names {
            history.node_mut(name);
        }
        let of = |place: usize| history.node(&names[place]).expect("a node");
        let (mut kept, mut made) = (Kept::default(), 0);
        for (place, rests_on, expected) in [(0, 1, 1), (0, 1, 1), (0, 2, 2), (1, 2, 3), (0, 2, 4)] {
            kept.begin();
            kept.refresh(of(place), rests_on, || {
                made += 1;
                made
            });
            assert_eq!(kept.of(of(place)), Some(&expected), "{place} {rests_on}");
            assert_eq!(kept.of(of(1 - place)), None);
        }
    }
}
