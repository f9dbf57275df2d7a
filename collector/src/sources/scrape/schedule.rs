//! When targets are scraped: at their offset in each interval, and again in between where something must be
//! known sooner.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use railscope_model::identity::NodeName;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use crate::config::Target;
use crate::detect::confirmation::SECOND_LOOK_SECONDS;

/// The scrape times of one target.
#[derive(Debug)]
pub(super) struct Turns {
    due: Interval,
    bell: Arc<Notify>,
    /// Whether a confirmation scrape was requested since its last scrape: one is enough until the
    /// next.
    is_asked: bool,
    /// When the confirmation scrape is.
    again: Option<Instant>,
}

impl Turns {
    /// Scrape times of a target for which this notifier requests confirmation scrapes.
    pub(super) fn of(target: &Target, interval: Duration, bell: Arc<Notify>) -> Self {
        let mut due = interval_at(Instant::now() + offset(target, interval), interval);
        due.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            due,
            bell,
            is_asked: false,
            again: None,
        }
    }

    /// Waits for the next.
    pub(super) async fn next(&mut self) {
        loop {
            let again = self.again;
            tokio::select! {
                _ = self.due.tick() => {
                    self.is_asked = again.is_some();
                    return;
                }
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    self.again = None;
                    return;
                }
                () = self.bell.notified() => if !self.is_asked {
                    self.is_asked = true;
                    let wait = Duration::from_secs_f64(SECOND_LOOK_SECONDS);
                    self.again = Some(Instant::now() + wait);
                }
            }
        }
    }
}

/// The scrape offset of a target within the interval: spread evenly, and the same after a restart.
fn offset(target: &Target, interval: Duration) -> Duration {
    let hash = foldhash::fast::FixedState::default().hash_one(target.name());
    interval.mul_f64((hash >> 11) as f64 / (1_u64 << 53) as f64)
}

/// The bells of all targets, by node.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<HashMap<NodeName, Vec<Arc<Notify>>>>);

impl Bells {
    /// Requests confirmation scrapes of these nodes, by all of their exporters.
    pub(crate) fn ring(&self, nodes: &BTreeSet<NodeName>) {
        if nodes.is_empty() {
            return;
        }
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bells = nodes.iter().filter_map(|node| bells.get(node));
        bells.flatten().for_each(|bell| bell.notify_one());
    }

    /// These are the bells from now on.
    pub(super) fn hang<'a>(&self, all: impl Iterator<Item = (&'a NodeName, &'a Arc<Notify>)>) {
        let mut bells: HashMap<_, Vec<_>> = HashMap::new();
        for (node, bell) in all {
            bells
                .entry(node.clone())
                .or_default()
                .push(Arc::clone(bell));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bells;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: usize) -> Target {
        let node = format!("n{number}").parse().expect("a name");
        Target::of_node(node, String::from("http://n/metrics"))
    }

    #[test]
    fn turns_are_spread_over_the_interval_and_stay_the_same() {
        let interval = Duration::from_secs(5);
        let turns: Vec<_> = (0..1000)
            .map(|number| offset(&target(number), interval))
            .collect();
        for tenth in 0..10 {
            let from = interval * tenth / 10;
            let here = turns
                .iter()
                .filter(|turn| **turn >= from && **turn < from + interval / 10)
                .count();
            assert!((50..200).contains(&here), "{here} of 1000 in tenth {tenth}");
        }
        assert_eq!(turns[7], offset(&target(7), interval));
    }

    /// Seconds from now to the next scrapes of a target that is notified after so many seconds.
    async fn turns(count: usize, rung: Vec<f64>) -> Vec<f64> {
        let (bell, begun) = (Arc::new(Notify::new()), Instant::now());
        let bells = Bells::default();
        let node = "n1".parse().expect("a name");
        bells.hang([(&node, &bell)].into_iter());
        let ringing = async move {
            for seconds in rung {
                sleep_until(begun + Duration::from_secs_f64(seconds)).await;
                bells.ring(&BTreeSet::from([
                    node.clone(),
                    "n2".parse().expect("a name"),
                ]));
            }
            std::future::pending::<()>().await;
        };
        let turning = async {
            let mut turns = Turns::of(&target(1), Duration::from_secs(5), bell);
            let mut at = Vec::new();
            for _ in 0..count {
                turns.next().await;
                at.push(begun.elapsed().as_secs_f64());
            }
            at
        };
        tokio::select! {
            at = turning => at,
            () = ringing => unreachable!("it rings for ever"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_is_looked_at_once_more_between_two_turns_if_it_is_asked_to() {
        let first = turns(1, Vec::new()).await[0];
        let after_first = |rung: &'static [f64]| async move {
            let at = turns(4, rung.iter().map(|at| first + at).collect()).await;
            at.iter()
                .map(|at| ((at - first) * 10.0).round() / 10.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(after_first(&[]).await, [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(after_first(&[1.0]).await, [0.0, 3.0, 5.0, 10.0]);
        // Many times between two scrapes, and in the next interval again.
        let often = &[0.5, 1.0, 2.6, 4.0, 6.0];
        assert_eq!(after_first(often).await, [0.0, 2.5, 5.0, 8.0]);
        // Shortly before a scrape, which then is too early to show anything new.
        assert_eq!(after_first(&[4.0]).await, [0.0, 5.0, 6.0, 10.0]);
    }
}
