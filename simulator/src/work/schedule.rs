//! What interrupts a job's training: checkpoints and evaluations. Neither is a fault.

use serde::{Deserialize, Serialize};

/// Something that a job does at intervals instead of training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Time from the end of one to the end of the next.
    pub every_seconds: f64,
    /// Time that it takes.
    pub seconds: f64,
}

/// What a job does besides training.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// All GPUs wait while the model is written to storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Interval>,
    /// Steps without communication between nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Interval>,
    /// The job ends and is launched again. Its flows are others then, so that switches hash them otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relaunch: Option<Interval>,
}

/// What a job does at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Steps with their collectives.
    Training,
    /// Nothing: it writes.
    Checkpoint,
    /// Steps without collectives.
    Evaluation,
    /// Nothing: it is being launched.
    Launch,
}

impl Interval {
    fn is_sound(self) -> bool {
        self.seconds > 0.0 && self.every_seconds > self.seconds && self.every_seconds.is_finite()
    }

    fn place(self, seconds: f64) -> f64 {
        // A millionth of a second is far above rounding and far below any interval.
        (seconds + 1e-6) % self.every_seconds
    }

    fn is_on(self, seconds: f64) -> bool {
        self.place(seconds) >= self.every_seconds - self.seconds
    }

    fn next_change(self, seconds: f64) -> f64 {
        let place = self.place(seconds);
        let begins = self.every_seconds - self.seconds;
        let until = if place < begins {
            begins - place
        } else {
            self.every_seconds - place
        };
        seconds + 1e-6 + until
    }
}

impl Schedule {
    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        [self.checkpoint, self.evaluation, self.relaunch]
            .into_iter()
            .flatten()
            .find(|interval| !interval.is_sound())
            .map(|interval| {
                format!(
                    "found {} s every {} s, expected more than 0 and less than all of the time",
                    interval.seconds, interval.every_seconds
                )
            })
    }

    /// How often the job has been launched again by a given time of the simulation.
    pub fn launches(&self, seconds: f64) -> u64 {
        // As `Interval::place` has it.
        let of = |interval: Interval| ((seconds + 1e-6) / interval.every_seconds) as u64;
        self.relaunch.map_or(0, of)
    }

    /// What the job does at a given time of the simulation. A launch precedes a checkpoint, and that an
    /// evaluation.
    pub fn at(&self, seconds: f64) -> Activity {
        let is_on = |interval: Option<Interval>| interval.is_some_and(|it| it.is_on(seconds));
        if is_on(self.relaunch) {
            Activity::Launch
        } else if is_on(self.checkpoint) {
            Activity::Checkpoint
        } else if is_on(self.evaluation) {
            Activity::Evaluation
        } else {
            Activity::Training
        }
    }

    /// The next time at which that may change.
    pub(crate) fn next_change(&self, seconds: f64) -> Option<f64> {
        [self.checkpoint, self.evaluation, self.relaunch]
            .into_iter()
            .flatten()
            .map(|interval| interval.next_change(seconds))
            .reduce(f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_changes_what_it_does_at_the_moments_that_it_says() {
        let schedule = Schedule {
            checkpoint: Some(Interval {
                every_seconds: 100.0,
                seconds: 10.0,
            }),
            evaluation: Some(Interval {
                every_seconds: 250.0,
                seconds: 60.0,
            }),
            relaunch: Some(Interval {
                every_seconds: 280.0,
                seconds: 5.0,
            }),
        };
        let mut now = 0.0_f64;
        let mut seen = Vec::new();
        while now < 300.0 {
            seen.push((now.round(), schedule.at(now)));
            now = schedule.next_change(now).expect("a change");
        }
        use Activity::{Checkpoint, Evaluation, Launch, Training};
        assert_eq!(
            seen,
            [
                (0.0, Training),
                (90.0, Checkpoint),
                (100.0, Training),
                (190.0, Checkpoint),
                (200.0, Evaluation),
                (250.0, Training),
                (275.0, Launch),
                (280.0, Training),
                (290.0, Checkpoint),
            ]
        );
        assert_eq!(
            [0.0, 279.9, 280.0, 561.0].map(|at| schedule.launches(at)),
            [0, 0, 1, 2]
        );
        assert_eq!(Schedule::default().next_change(5.0), None);
    }
}
