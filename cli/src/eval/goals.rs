//! The goals that were set before anything was measured, and what was reached.

use serde::Serialize;

use super::alarm::Level;
use super::judge::{About, AlarmVerdict, FaultVerdict};
use super::score::Judged;
use super::statistics::{Rate, Ratio, quantile};

/// GPUs and days that one false page is allowed for.
const GPUS_OF_BUDGET: f64 = 100_000.0;

/// Whether a goal was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Outcome {
    /// By the entire interval.
    Met,
    /// By the figure itself; the interval crosses the goal, as these runs are too few to decide.
    Unproven,
    /// Not.
    Missed,
    /// Nothing in these runs was of its kind.
    Untested,
}

impl Outcome {
    /// For a table.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Unproven => "reached, not proven: the interval crosses the goal",
            Self::Missed => "missed",
            Self::Untested => "not tested",
        }
    }
}

/// A goal and what was reached.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Goal {
    /// What is measured.
    pub(super) what: &'static str,
    /// The figure that was wanted, and whether less is better.
    pub(super) wanted: f64,
    at_most: bool,
    /// The figure that was reached; none without cases.
    pub(super) reached: Option<f64>,
    /// Its 95 % interval, of figures that have one.
    pub(super) interval: Option<(f64, f64)>,
    /// Number of faults, alarms or pages that it rests on.
    pub(super) of: usize,
    /// The result.
    pub(super) outcome: Outcome,
}

impl Goal {
    fn new(
        (what, wanted, at_most): (&'static str, f64, bool),
        reached: Option<f64>,
        interval: Option<(f64, f64)>,
        of: usize,
    ) -> Self {
        let good = |value: f64| {
            if at_most {
                value <= wanted
            } else {
                value >= wanted
            }
        };
        let outcome = match (reached, interval) {
            (None, _) => Outcome::Untested,
            (Some(value), _) if !good(value) => Outcome::Missed,
            (_, Some((low, high))) if !good(if at_most { high } else { low }) => Outcome::Unproven,
            _ => Outcome::Met,
        };
        Self {
            what,
            wanted,
            at_most,
            reached,
            interval,
            of,
            outcome,
        }
    }

    /// A share that should be at least this.
    fn share(what: &'static str, wanted: f64, ratio: Ratio) -> Self {
        let goal = (what, wanted, false);
        Self::new(goal, ratio.value(), ratio.interval(), ratio.of)
    }

    /// A time of which nine in ten should be no longer than this, seconds.
    fn seconds(what: &'static str, wanted: f64, times: &[f64]) -> Self {
        let p90 = quantile(times, 0.9);
        Self::new((what, wanted, true), p90, None, times.len())
    }

    /// The goal, for a table: `>= 0.97`.
    pub(super) fn wanted_text(&self) -> String {
        let sign = if self.at_most { "<=" } else { ">=" };
        format!("{sign} {}", self.wanted)
    }

    /// What was reached, for a table: `0.981 [0.963, 0.990] of 412`.
    pub(super) fn reached_text(&self) -> String {
        let Some(value) = self.reached else {
            return "-".to_owned();
        };
        let interval = self
            .interval
            .map_or_else(String::new, |(low, high)| format!(" [{low:.3}, {high:.3}]"));
        format!("{value:.3}{interval} of {}", self.of)
    }

    /// The result for a table, with the amount by which a goal is missed.
    pub(super) fn outcome_text(&self) -> String {
        let missed = self.reached.filter(|_| self.outcome == Outcome::Missed);
        missed.map_or_else(
            || self.outcome.as_str().to_owned(),
            |value| format!("missed by {:.3}", (value - self.wanted).abs()),
        )
    }
}

/// Causes by which something is gone.
const HARD: [&str; 5] = [
    "gpu-lost",
    "nvlink-down",
    "port-down",
    "switch-down",
    "uplink-down",
];

/// All goals, compared with what became of every fault and alarm of the collector.
pub(super) fn of(runs: &[Judged<'_>]) -> Vec<Goal> {
    let faults: Vec<&FaultVerdict> = runs.iter().flat_map(|run| &run.verdicts.faults).collect();
    let alarms = runs.iter().flat_map(|run| &run.verdicts.alarms);
    let alarms: Vec<&AlarmVerdict> = alarms.filter(|alarm| alarm.about != About::Work).collect();
    let of = |kind: &dyn Fn(&FaultVerdict) -> bool, test: &dyn Fn(&FaultVerdict) -> bool| {
        Ratio::count(faults.iter().filter(|f| kind(f)).map(|f| test(f)))
    };
    let times = |kind: &dyn Fn(&FaultVerdict) -> bool| -> Vec<f64> {
        let of_kind = faults.iter().filter(|fault| kind(fault));
        of_kind.filter_map(|fault| fault.localise_seconds).collect()
    };
    let network = |fault: &FaultVerdict| fault.is_network;
    let slow = |from: f64, to: f64| {
        move |fault: &FaultVerdict| fault.slowdown.is_some_and(|s| (from..to).contains(&s))
    };
    let of_network = alarms.iter().filter(|alarm| alarm.is_network);
    let precision = Ratio::count(of_network.map(|alarm| alarm.about == About::Fault));
    let class = Ratio::count(faults.iter().filter_map(|fault| fault.class_right));
    vec![
        Goal::share("network faults: precision", 0.985, precision),
        Goal::share("network faults: recall", 0.993, of(&network, &|f| f.found)),
        Goal::share("network faults: top-1", 0.97, of(&network, &|f| f.top[0])),
        Goal::share("network faults: top-3", 0.99, of(&network, &|f| f.top[1])),
        Goal::share(
            "jobs slower by 5 % and more: root cause named first",
            0.98,
            of(&slow(1.05, f64::INFINITY), &|f| f.top[0]),
        ),
        Goal::share(
            "jobs slower by 2 to 5 %: root cause named first",
            0.90,
            of(&slow(1.02, 1.05), &|f| f.top[0]),
        ),
        Goal::share("class, from counters alone", 0.93, class),
        Goal::seconds(
            "hard faults, device, link or switch lost: seconds to the root cause, p90",
            10.0,
            &times(&|fault| HARD.contains(&fault.cause)),
        ),
        Goal::seconds(
            "stalled jobs: seconds to the root cause, p90",
            10.0,
            &times(&|fault| fault.slowdown.is_none()),
        ),
        Goal::seconds(
            "jobs slower by 10 % and more: seconds, p90",
            30.0,
            &times(&slow(1.10, f64::INFINITY)),
        ),
        Goal::seconds(
            "jobs slower by 3 to 5 %: seconds, p90",
            240.0,
            &times(&slow(1.03, 1.05)),
        ),
        healthy_pages(runs),
    ]
}

/// Pages of runs without a fault, for each day of a hundred thousand GPUs.
fn healthy_pages(runs: &[Judged<'_>]) -> Goal {
    let healthy = runs.iter().filter(|run| run.verdicts.faults.is_empty());
    let (mut count, mut days) = (0, 0.0);
    for run in healthy {
        let pages = run.verdicts.alarms.iter();
        count += pages.filter(|alarm| alarm.level == Level::Page).count();
        days += run.seconds / 86_400.0 * f64::from(run.gpus) / GPUS_OF_BUDGET;
    }
    let rate = Rate { count, days };
    Goal::new(
        ("false pages a day, per 100,000 GPUs", 1.0, true),
        rate.per_day(),
        rate.interval(),
        count,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_only_by_the_whole_of_its_interval() {
        for (hits, of, outcome) in [
            (1000, 1000, Outcome::Met),
            (99, 100, Outcome::Unproven),
            (96, 100, Outcome::Missed),
            (0, 0, Outcome::Untested),
        ] {
            let goal = Goal::share("a", 0.97, Ratio { hits, of });
            assert_eq!(goal.outcome, outcome, "{hits}/{of}");
        }
        let late = Goal::seconds("b", 10.0, &[5.0, 12.5]);
        assert_eq!(late.outcome, Outcome::Missed);
        assert_eq!(late.outcome_text(), "missed by 2.500");
        assert_eq!(late.wanted_text(), "<= 10");
    }
}
