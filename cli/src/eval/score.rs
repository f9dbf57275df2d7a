//! Figures over many runs: results added up, each ratio with its count and interval.

use std::collections::BTreeMap;

use serde::Serialize;

use super::alarm::Level;
use super::ends::Ends;
use super::field::Means;
use super::judge::{About, AlarmVerdict, FaultVerdict, Verdicts};
use super::statistics::{Rate, Ratio, quantile};

/// Where severities are cut: shares of the part's capability that are lost.
pub(super) const SEVERITIES: [(f64, &str); 4] = [
    (0.05, "below 5 %"),
    (0.10, "5 to 10 %"),
    (0.30, "10 to 30 %"),
    (f64::INFINITY, "30 % and more"),
];

/// Where slowdowns of jobs are cut, step time with the fault over that without.
pub(super) const SLOWDOWNS: [(f64, &str); 6] = [
    (1.005, "slows no job by 0.5 %"),
    (1.02, "0.5 to 2 % slower"),
    (1.05, "2 to 5 % slower"),
    (1.10, "5 to 10 % slower"),
    (1.30, "10 to 30 % slower"),
    (f64::INFINITY, "30 % and more slower"),
];
/// Of a job that does not go on.
pub(super) const STANDS_STILL: &str = "stands still";

/// The name of the first of such cuts that a value is below.
fn cut(cuts: &[(f64, &'static str)], value: f64) -> Option<&'static str> {
    let class = cuts.iter().find(|(below, _)| value < *below);
    class.map(|(_, name)| *name)
}

/// The results on one detector in one run, and how long the run was.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    /// The scenario.
    pub(super) scenario: &'a str,
    /// GPUs of its fabric.
    pub(super) gpus: u32,
    /// Simulated time.
    pub(super) seconds: f64,
    /// What became of faults and alarms.
    pub(super) verdicts: Verdicts,
}

/// What is reported about faults.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FaultScore {
    /// Share of the faults that an alarm named: recall.
    pub(super) recall: Ratio,
    /// Share whose root cause was named first.
    pub(super) top1: Ratio,
    /// Share whose root cause was among the first three.
    pub(super) top3: Ratio,
    /// Share for which a part of the root cause's kind was named first.
    pub(super) tier_top1: Ratio,
    /// Share for which a part of the root cause's kind was among the first three.
    pub(super) tier_top3: Ratio,
    /// Of faults that were found by a detector that names classes: share with the right one.
    pub(super) class: Ratio,
    /// From onset to the first alarm about root cause, node or victims.
    pub(super) detect_seconds: Quantiles,
    /// From onset to the first alarm about the root cause.
    pub(super) localise_seconds: Quantiles,
}

/// Middle and tail of a time; none of an empty list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Quantiles {
    /// Median.
    pub(super) p50: Option<f64>,
    /// Nine of ten are no longer.
    pub(super) p90: Option<f64>,
}

/// What is reported about alarms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AlarmScore {
    /// Share of the alarms, pages and tickets, that were about a fault; tickets about a maintenance window
    /// apart.
    pub(super) precision: Ratio,
    /// Pages about no fault.
    pub(super) false_pages: Rate,
    /// Those of them that maintenance explains: announced, had the detector been informed.
    pub(super) maintenance_pages: Rate,
    /// Tickets about no fault.
    pub(super) false_tickets: Rate,
    /// Pages in runs without any fault.
    pub(super) healthy_pages: Rate,
    /// Tickets about a maintenance window that report it: right, and about no fault.
    pub(super) work_tickets: usize,
    /// Share of the alarms that named a victim.
    pub(super) victim_blame: Ratio,
    /// How well the alarms that report how sure they are know it.
    pub(super) calibration: Calibration,
}

/// How sure alarms were, and how often they were right. Only alarms that report how sure they are
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Calibration {
    /// Mean of the squares of posterior less truth, which is 1 of an alarm about a fault and else 0: 0 is perfect, 0.25 is
    /// the score of a constant 0.5 (Brier, 1950). None without alarms.
    pub(super) brier: Option<f64>,
    /// Mean posterior.
    pub(super) said: Option<f64>,
    /// Share that was about a fault.
    pub(super) right: Ratio,
    /// By how sure they were.
    pub(super) reliability: [Reliability; SURENESS.len()],
}

/// Upper ends of the ranges of posteriors that are compared with what was right.
const SURENESS: [f64; 5] = [0.7, 0.9, 0.95, 0.99, 1.0];

/// Alarms of one range of posteriors: the nearer the two, the better they know how sure to be.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Reliability {
    /// Upper end of the range, which begins where the one before ends.
    pub(super) up_to: f64,
    /// Mean posterior.
    pub(super) said: Option<f64>,
    /// Share that was about a fault.
    pub(super) right: Ratio,
}

impl Calibration {
    fn of<'a>(alarms: impl IntoIterator<Item = &'a AlarmVerdict>) -> Self {
        let truth = |alarm: &AlarmVerdict| (alarm.posterior, alarm.about == About::Fault);
        let pairs = alarms.into_iter().map(truth);
        let pairs: Vec<(f64, bool)> = pairs
            .filter_map(|(posterior, right)| Some((posterior?, right)))
            .collect();
        let mean = |value: &dyn Fn(f64, bool) -> f64| {
            let sum: f64 = pairs.iter().map(|(said, right)| value(*said, *right)).sum();
            (!pairs.is_empty()).then(|| sum / pairs.len() as f64)
        };
        Self {
            brier: mean(&|said, right| (said - f64::from(u8::from(right))).powi(2)),
            said: mean(&|said, _| said),
            right: Ratio::count(pairs.iter().map(|(_, right)| *right)),
            reliability: SURENESS.map(|up_to| reliability(&pairs, up_to)),
        }
    }
}

fn reliability(pairs: &[(f64, bool)], up_to: f64) -> Reliability {
    let from = SURENESS.iter().rev().find(|end| **end < up_to);
    let from = from.copied().unwrap_or(f64::NEG_INFINITY);
    let of_range = || {
        pairs
            .iter()
            .filter(|(said, _)| *said > from && *said <= up_to)
    };
    let sum: f64 = of_range().map(|(said, _)| said).sum();
    let right = Ratio::count(of_range().map(|(_, right)| *right));
    Reliability {
        up_to,
        said: (right.of > 0).then(|| sum / right.of as f64),
        right,
    }
}

/// All figures of a detector.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Score {
    /// Of all faults.
    pub(super) faults: FaultScore,
    /// Of all alarms.
    pub(super) alarms: AlarmScore,
    /// Harmonic mean of precision and recall.
    pub(super) f1: Option<f64>,
    /// By what happened.
    pub(super) by_cause: BTreeMap<&'static str, FaultScore>,
    /// By how bad it was.
    pub(super) by_severity: BTreeMap<&'static str, FaultScore>,
    /// Slowdown of the job.
    pub(super) by_slowdown: BTreeMap<&'static str, FaultScore>,
    /// By what happened and how bad it was.
    pub(super) by_cause_and_severity: BTreeMap<&'static str, BTreeMap<&'static str, FaultScore>>,
    /// By class that alarms named, of those that report how sure they are.
    pub(super) calibration_by_class: BTreeMap<&'static str, Calibration>,
    /// Alarms by scenario.
    pub(super) by_scenario: BTreeMap<String, AlarmScore>,
    /// What followed the end of faults.
    pub(super) ends: Ends,
    /// Means over causes.
    pub(super) means: Means,
}

impl FaultScore {
    fn of<'a>(faults: impl IntoIterator<Item = &'a FaultVerdict>) -> Self {
        let faults: Vec<_> = faults.into_iter().collect();
        let count = |test: &dyn Fn(&FaultVerdict) -> bool| {
            Ratio::count(faults.iter().map(|fault| test(fault)))
        };
        let times = |time: &dyn Fn(&FaultVerdict) -> Option<f64>| {
            let times: Vec<f64> = faults.iter().filter_map(|fault| time(fault)).collect();
            Quantiles {
                p50: quantile(&times, 0.5),
                p90: quantile(&times, 0.9),
            }
        };
        Self {
            recall: count(&|fault| fault.found),
            top1: count(&|fault| fault.top[0]),
            top3: count(&|fault| fault.top[1]),
            tier_top1: count(&|fault| fault.top_tier[0]),
            tier_top3: count(&|fault| fault.top_tier[1]),
            class: Ratio::count(faults.iter().filter_map(|fault| fault.class_right)),
            detect_seconds: times(&|fault| fault.detect_seconds),
            localise_seconds: times(&|fault| fault.localise_seconds),
        }
    }
}

impl AlarmScore {
    fn of(runs: &[&Judged<'_>]) -> Self {
        let alarms = |runs: &[&Judged<'_>]| -> Vec<AlarmVerdict> {
            let alarms = runs.iter().flat_map(|run| &run.verdicts.alarms);
            let work = |alarm: &&AlarmVerdict| alarm.about == About::Work;
            alarms.filter(|alarm| !work(alarm)).copied().collect()
        };
        let rate = |runs: &[&Judged<'_>], test: &dyn Fn(&AlarmVerdict) -> bool| Rate {
            count: alarms(runs)
                .iter()
                .filter(|alarm| alarm.about != About::Fault && test(alarm))
                .count(),
            // An empty sum would be -0.
            days: runs.iter().fold(0.0, |sum, run| sum + run.seconds) / 86_400.0,
        };
        let healthy: Vec<_> = runs
            .iter()
            .copied()
            .filter(|run| run.verdicts.faults.is_empty())
            .collect();
        let is_page = |alarm: &AlarmVerdict| alarm.level == Level::Page;
        let of = |about: About| Ratio::count(alarms(runs).iter().map(|a| a.about == about));
        Self {
            precision: of(About::Fault),
            false_pages: rate(runs, &is_page),
            maintenance_pages: rate(runs, &|alarm| is_page(alarm) && alarm.in_maintenance),
            false_tickets: rate(runs, &|alarm| alarm.level == Level::Ticket),
            healthy_pages: rate(&healthy, &is_page),
            work_tickets: (runs.iter().flat_map(|run| &run.verdicts.alarms))
                .filter(|alarm| alarm.about == About::Work)
                .count(),
            victim_blame: of(About::Victim),
            calibration: Calibration::of(&alarms(runs)),
        }
    }
}

/// Scores of faults by what is reported about each.
fn grouped<'a>(
    faults: &[&'a FaultVerdict],
    by: impl Fn(&FaultVerdict) -> Option<&'static str>,
) -> BTreeMap<&'static str, FaultScore> {
    let mut groups: BTreeMap<_, Vec<&'a FaultVerdict>> = BTreeMap::new();
    for fault in faults {
        if let Some(name) = by(fault) {
            groups.entry(name).or_default().push(fault);
        }
    }
    let score = |(name, faults): (_, Vec<_>)| (name, FaultScore::of(faults));
    groups.into_iter().map(score).collect()
}

impl Score {
    /// Adds up the runs of one detector.
    pub(super) fn of(runs: &[Judged<'_>]) -> Self {
        let all: Vec<&FaultVerdict> = runs.iter().flat_map(|run| &run.verdicts.faults).collect();
        let severity = |fault: &FaultVerdict| cut(&SEVERITIES, fault.severity);
        let by_cause = grouped(&all, |fault| Some(fault.cause));
        let of_cause = |cause: &&'static str| {
            let of_it = |fault: &FaultVerdict| severity(fault).filter(|_| fault.cause == *cause);
            (*cause, grouped(&all, of_it))
        };
        let by_cause_and_severity = by_cause.keys().map(of_cause).collect();
        let mut by_scenario: BTreeMap<String, Vec<&Judged<'_>>> = BTreeMap::new();
        for run in runs {
            by_scenario
                .entry(run.scenario.to_owned())
                .or_default()
                .push(run);
        }
        let mut by_class: BTreeMap<_, Vec<&AlarmVerdict>> = BTreeMap::new();
        for alarm in runs.iter().flat_map(|run| &run.verdicts.alarms) {
            if let (Some(class), Some(_)) = (alarm.class, alarm.posterior)
                && alarm.about != About::Work
            {
                by_class.entry(class).or_default().push(alarm);
            }
        }
        let by_slowdown = grouped(&all, |fault| {
            fault
                .slowdown
                .map_or(Some(STANDS_STILL), |slowdown| cut(&SLOWDOWNS, slowdown))
        });
        let by_severity = grouped(&all, severity);
        let ends = Ends::of(runs);
        let means = Means::of(&by_cause);
        let faults = FaultScore::of(all);
        let alarms = AlarmScore::of(&runs.iter().collect::<Vec<_>>());
        Self {
            f1: f1(alarms.precision, faults.recall),
            ends,
            means,
            faults,
            alarms,
            by_cause,
            by_severity,
            by_slowdown,
            by_cause_and_severity,
            calibration_by_class: by_class
                .into_iter()
                .map(|(class, alarms)| (class, Calibration::of(alarms)))
                .collect(),
            by_scenario: by_scenario
                .into_iter()
                .map(|(name, runs)| (name, AlarmScore::of(&runs)))
                .collect(),
        }
    }
}

/// Harmonic mean of precision and recall.
fn f1(precision: Ratio, recall: Ratio) -> Option<f64> {
    let (p, r) = precision.value().zip(recall.value())?;
    Some(if p + r > 0.0 {
        2.0 * p * r / (p + r)
    } else {
        0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(cause: &'static str, severity: f64, delay: Option<f64>) -> FaultVerdict {
        FaultVerdict {
            cause,
            severity,
            slowdown: Some(1.5),
            is_network: true,
            found: delay.is_some(),
            top: [delay.is_some(); 2],
            top_tier: [delay.is_some(); 2],
            class_right: delay.map(|_| true),
            detect_seconds: delay,
            localise_seconds: delay,
            has_ended: false,
            class_drifted: None,
        }
    }

    fn run<'a>(
        scenario: &'a str,
        faults: Vec<FaultVerdict>,
        alarms: &[(Level, About)],
    ) -> Judged<'a> {
        let alarms = alarms.iter().map(|(level, about)| AlarmVerdict {
            level: *level,
            about: *about,
            is_network: true,
            in_maintenance: false,
            class: Some("a-class"),
            posterior: None,
        });
        Judged {
            scenario,
            gpus: 1000,
            seconds: 43_200.0,
            verdicts: Verdicts {
                faults,
                alarms: alarms.collect(),
            },
        }
    }

    #[test]
    fn calibration_is_of_alarms_that_say_how_sure_they_are() {
        let verdict = |posterior, about| AlarmVerdict {
            level: Level::Page,
            about,
            is_network: true,
            in_maintenance: false,
            class: Some("a-class"),
            posterior,
        };
        let mut judged = run("broken", vec![fault("a", 0.5, None)], &[]);
        judged.verdicts.alarms = vec![
            verdict(Some(0.9), About::Fault),
            verdict(Some(0.5), About::Victim),
            verdict(Some(0.4), About::Fault),
            verdict(None, About::Nothing),
        ];
        let score = Score::of(&[judged]);
        let found = score.alarms.calibration;
        // (0.01 + 0.25 + 0.36) / 3 and (0.9 + 0.5 + 0.4) / 3.
        assert!((found.brier.expect("some") - 0.62 / 3.0).abs() < 1e-12);
        assert!((found.said.expect("some") - 0.6).abs() < 1e-12);
        assert_eq!(found.right, Ratio { hits: 2, of: 3 });
        assert_eq!(score.calibration_by_class["a-class"], found);
        // 0.5 and 0.4 fall into the first range, of which one was right; 0.9 into the second.
        let counted = found.reliability.map(|of| (of.right.hits, of.right.of));
        assert_eq!(counted, [(1, 2), (1, 1), (0, 0), (0, 0), (0, 0)]);
        let silent = Score::of(&[run("calm", vec![], &[(Level::Page, About::Nothing)])]);
        assert_eq!(silent.alarms.calibration.brier, None);
        assert!(silent.calibration_by_class.is_empty());
    }

    #[test]
    fn figures_are_those_of_a_hand_count() {
        let score = Score::of(&[
            run(
                "broken",
                vec![fault("a", 0.5, Some(10.0)), fault("b", 0.07, None)],
                &[
                    (Level::Page, About::Fault),
                    (Level::Page, About::Victim),
                    (Level::Ticket, About::Nothing),
                ],
            ),
            run("calm", vec![], &[(Level::Page, About::Nothing)]),
        ]);
        assert_eq!(score.faults.recall, Ratio { hits: 1, of: 2 });
        assert_eq!(score.alarms.precision, Ratio { hits: 1, of: 4 });
        assert_eq!(score.f1, Some(2.0 * 0.25 * 0.5 / 0.75));
        assert_eq!(score.alarms.victim_blame, Ratio { hits: 1, of: 4 });
        assert_eq!(score.alarms.false_pages.per_day(), Some(2.0));
        assert_eq!(score.alarms.false_tickets.per_day(), Some(1.0));
        assert_eq!(score.alarms.healthy_pages.per_day(), Some(2.0));
        assert_eq!(score.by_cause["b"].recall, Ratio { hits: 0, of: 1 });
        assert_eq!(score.by_severity["5 to 10 %"].recall.of, 1);
        assert_eq!(score.by_severity["30 % and more"].recall.hits, 1);
        assert_eq!(score.by_slowdown["30 % and more slower"].recall.of, 2);
        assert_eq!(score.by_cause_and_severity["b"]["5 to 10 %"].recall.of, 1);
        assert_eq!(score.by_scenario["calm"].precision.of, 1);
        assert_eq!(score.faults.detect_seconds.p90, Some(10.0));
    }
}
