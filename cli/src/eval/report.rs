//! The scores for output: one structure for table, JSON and web page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;

use super::ablations::Ablation;
use super::alarm::Level;
use super::baselines::{BASELINES, MISSING};
use super::draw::Plan;
use super::goals::{self, Goal};
use super::judge::{About, Names, judge};
use super::scenario::Expect;
use super::score::{AlarmScore, Calibration, FaultScore, Judged, Score};
use super::simulate::Outcome;
use super::statistics::{Rate, Ratio};
use super::wrong::{Wrong, of_run};

/// What every reader must know first.
const NOTE: &str = "Everything here is simulated: fabrics, jobs, faults and their symptoms. \
                    A figure describes how a rule performs on this simulator, not on a real cluster.";

/// The scores of one invocation.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    note: &'static str,
    /// First and last seed.
    seeds: [u64; 2],
    runs: usize,
    simulated_days: f64,
    scenarios: Vec<ScenarioReport>,
    /// The collector first, then the baselines.
    pub(super) detectors: Vec<DetectorReport>,
    /// What the collector should reach, and does.
    pub(super) goals: Vec<Goal>,
    not_run: Vec<NotRun>,
    /// What the collector got wrong.
    pub(super) wrong: Vec<Wrong>,
}

/// A scenario and whether what it expects was reported.
#[derive(Debug, Serialize)]
struct ScenarioReport {
    name: String,
    about: String,
    nodes: u16,
    gpus: u32,
    expect: Expect,
    /// Runs in which the collector reported what was expected.
    met: Ratio,
}

/// A detector and its scores.
#[derive(Debug, Serialize)]
pub(super) struct DetectorReport {
    /// Name in tables.
    pub(super) name: String,
    /// `part`, or `node` for a rule that names machines and is evaluated by machines.
    names: &'static str,
    source: String,
    /// All figures.
    pub(super) score: Score,
}

#[derive(Debug, Serialize)]
struct NotRun {
    name: &'static str,
    needs: &'static str,
}

impl Report {
    /// Evaluates every run. Plans and outcomes are in the same order.
    pub(super) fn of(
        plans: &[Plan<'_>],
        runs: &[Outcome],
        seeds: Range<u64>,
        ablations: &[Ablation],
    ) -> Self {
        let own = String::from("railscope");
        let own = std::iter::once(own).chain(ablations.iter().map(|one| one.name.clone()));
        let own = own.map(|name| {
            (
                name,
                Names::Part,
                "the collector's detectors and root cause",
            )
        });
        let rules = BASELINES
            .iter()
            .map(|rule| (rule.name.to_owned(), rule.names, rule.source));
        let mut scenarios: Vec<ScenarioReport> = Vec::new();
        let mut detectors = Vec::new();
        let (mut goals, mut wrong) = (Vec::new(), Vec::new());
        for (number, (name, names, source)) in own.chain(rules).enumerate() {
            let judged: Vec<Judged<'_>> = plans
                .iter()
                .zip(runs)
                .map(|(plan, run)| Judged {
                    scenario: &plan.scenario.name,
                    gpus: plan.scenario.fabric.gpus(),
                    seconds: run.seconds,
                    verdicts: judge(
                        &run.events,
                        &run.maintenance,
                        &run.alarms[number],
                        names,
                        &|part| run.tier(part),
                    ),
                })
                .collect();
            if number == 0 {
                scenarios = scenario_reports(plans, &judged);
                goals = goals::of(&judged);
                let runs = plans.iter().zip(runs).zip(&judged);
                let of_runs = runs.map(|((plan, run), judged)| {
                    of_run(plan, run, &run.alarms[number], &judged.verdicts)
                });
                wrong = of_runs.flatten().collect();
            }
            detectors.push(DetectorReport {
                name,
                names: names.as_str(),
                source: source.to_owned(),
                score: Score::of(&judged),
            });
        }
        Self {
            note: NOTE,
            seeds: [seeds.start, seeds.end - 1],
            runs: runs.len(),
            simulated_days: runs.iter().map(|run| run.seconds).sum::<f64>() / 86_400.0,
            scenarios,
            detectors,
            goals,
            wrong,
            not_run: MISSING
                .iter()
                .map(|(name, needs)| NotRun { name, needs })
                .collect(),
        }
    }

    /// One line about what was run.
    pub(super) fn headline(&self) -> String {
        format!(
            "{} scenarios, seeds {} to {}, {} runs, {:.2} simulated days, {} faults. {}",
            self.scenarios.len(),
            self.seeds[0],
            self.seeds[1],
            self.runs,
            self.simulated_days,
            self.detectors[0].score.faults.recall.of,
            self.note
        )
    }

    /// The scores for a terminal.
    pub(super) fn table(&self) -> String {
        let mut out = format!("{}\n\n", self.headline());
        for rows in [self.goal_rows(), self.detector_rows()] {
            aligned(&mut out, &rows);
            out.push('\n');
        }
        let own = &self.detectors[0].score;
        for (title, groups) in [
            ("railscope by cause", &own.by_cause),
            ("railscope by severity", &own.by_severity),
            ("railscope by slowdown of the job", &own.by_slowdown),
        ] {
            if !groups.is_empty() {
                aligned(&mut out, &group_rows(title, groups));
                out.push('\n');
            }
        }
        for rows in [self.mean_rows(), self.end_rows()] {
            aligned(&mut out, &rows);
            out.push('\n');
        }
        aligned(&mut out, &self.scenario_rows());
        out.push('\n');
        for NotRun { name, needs } in &self.not_run {
            // Writing to a String cannot fail.
            writeln!(out, "not run: {name} ({needs})").ok();
        }
        out
    }

    /// The goals and what was reached, with a heading.
    pub(super) fn goal_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![columns(&["goal", "wanted", "reached", "result"])];
        rows.extend(self.goals.iter().map(|goal| {
            vec![
                goal.what.to_owned(),
                goal.wanted_text(),
                goal.reached_text(),
                goal.outcome_text(),
            ]
        }));
        rows
    }

    /// One row for each detector, with a heading.
    pub(super) fn detector_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![columns(&DETECTOR_COLUMNS)];
        rows.extend(self.detectors.iter().map(detector_row));
        rows
    }

    /// Means over causes of the collector, with a heading.
    pub(super) fn mean_rows(&self) -> Vec<Vec<String>> {
        self.detectors[0].score.means.rows()
    }

    /// What followed the end of faults, of the collector, with a heading.
    pub(super) fn end_rows(&self) -> Vec<Vec<String>> {
        self.detectors[0].score.ends.rows()
    }

    /// One row for each scenario, with a heading.
    pub(super) fn scenario_rows(&self) -> Vec<Vec<String>> {
        let own = &self.detectors[0].score;
        let mut rows = vec![columns(&SCENARIO_COLUMNS)];
        rows.extend(self.scenarios.iter().map(|scenario| {
            vec![
                scenario.name.clone(),
                scenario.gpus.to_string(),
                match scenario.expect {
                    Expect::Page => "page",
                    Expect::Alarm => "alarm",
                    Expect::NoPage => "no page",
                }
                .to_owned(),
                counted(scenario.met),
                own.by_scenario
                    .get(&scenario.name)
                    .map_or_else(String::new, false_pages),
                scenario.about.clone(),
            ]
        }));
        rows
    }
}

/// One row for each group of faults, with a heading.
pub(super) fn group_rows(
    title: &str,
    groups: &BTreeMap<&'static str, FaultScore>,
) -> Vec<Vec<String>> {
    let mut rows = vec![columns(&FAULT_COLUMNS)];
    rows[0].insert(0, title.to_owned());
    for (name, score) in groups {
        let mut row = vec![(*name).to_owned()];
        row.extend(fault_cells(score));
        rows.push(row);
    }
    rows
}

fn scenario_reports(plans: &[Plan<'_>], judged: &[Judged<'_>]) -> Vec<ScenarioReport> {
    let mut reports: Vec<ScenarioReport> = Vec::new();
    for (plan, run) in plans.iter().zip(judged) {
        let scenario = plan.scenario;
        let place = reports.iter().position(|known| known.name == scenario.name);
        let place = place.unwrap_or_else(|| {
            let fabric = &scenario.fabric;
            reports.push(ScenarioReport {
                name: scenario.name.clone(),
                about: scenario.about.clone(),
                nodes: fabric.nodes,
                gpus: fabric.gpus(),
                expect: scenario.expect,
                met: Ratio::default(),
            });
            reports.len() - 1
        });
        let alarms = &run.verdicts.alarms;
        let paged = alarms.iter().any(|alarm| alarm.level == Level::Page);
        let met = match scenario.expect {
            Expect::Page => alarms
                .iter()
                .any(|alarm| alarm.level == Level::Page && alarm.about == About::Fault),
            Expect::Alarm => alarms.iter().any(|alarm| alarm.about == About::Fault),
            Expect::NoPage => !paged,
        };
        reports[place].met.hits += usize::from(met);
        reports[place].met.of += 1;
    }
    reports.sort_by(|a, b| a.name.cmp(&b.name));
    reports
}

const SCENARIO_COLUMNS: [&str; 6] = [
    "scenario",
    "GPUs",
    "expects",
    "met",
    "false pages (in maintenance)",
    "about",
];
const DETECTOR_COLUMNS: [&str; 13] = [
    "detector",
    "names",
    "recall",
    "precision",
    "F1",
    "top-1",
    "top-3",
    "tier top-1",
    "class",
    "detect p50/p90",
    "false pages a day",
    "blames victims",
    "Brier",
];
const FAULT_COLUMNS: [&str; 7] = [
    "recall",
    "top-1",
    "top-3",
    "tier top-1",
    "class",
    "detect p50/p90",
    "localize p50/p90",
];

pub(super) fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn detector_row(detector: &DetectorReport) -> Vec<String> {
    let Score {
        faults, alarms, f1, ..
    } = &detector.score;
    vec![
        detector.name.clone(),
        detector.names.to_owned(),
        with_interval(faults.recall),
        with_interval(alarms.precision),
        f1.map_or_else(|| "-".to_owned(), |f1| format!("{f1:.3}")),
        with_interval(faults.top1),
        counted(faults.top3),
        counted(faults.tier_top1),
        counted(faults.class),
        times(faults.detect_seconds.p50, faults.detect_seconds.p90),
        rate(alarms.false_pages),
        counted(alarms.victim_blame),
        calibration(alarms.calibration),
    ]
}

fn fault_cells(score: &FaultScore) -> Vec<String> {
    vec![
        with_interval(score.recall),
        with_interval(score.top1),
        counted(score.top3),
        counted(score.tier_top1),
        counted(score.class),
        times(score.detect_seconds.p50, score.detect_seconds.p90),
        times(score.localise_seconds.p50, score.localise_seconds.p90),
    ]
}

/// `12 (9)`.
fn false_pages(alarms: &AlarmScore) -> String {
    let [all, announced] = [alarms.false_pages, alarms.maintenance_pages].map(|rate| rate.count);
    if announced > 0 {
        format!("{all} ({announced})")
    } else {
        all.to_string()
    }
}

/// `0.120, posterior 0.80, right 0.750 6/8`; not available for a detector that reports no probability.
fn calibration(of: Calibration) -> String {
    let values = of.brier.zip(of.said);
    values.map_or_else(
        || "n/a".to_owned(),
        |(brier, said)| {
            format!(
                "{brier:.3}, posterior {said:.2}, right {}",
                counted(of.right)
            )
        },
    )
}

/// Below this number of cases a share is shown by its counts and interval alone.
const FEW_CASES: usize = 30;

/// `0.97 [0.92, 0.99] 97/100`; of few cases `3/3 [0.438, 1.000]`.
pub(super) fn with_interval(ratio: Ratio) -> String {
    match (ratio.value(), ratio.interval()) {
        (Some(value), Some((low, high))) => {
            let Ratio { hits, of } = ratio;
            if of < FEW_CASES {
                format!("{hits}/{of} [{low:.3}, {high:.3}]")
            } else {
                format!("{value:.3} [{low:.3}, {high:.3}] {hits}/{of}")
            }
        }
        _ => "-".to_owned(),
    }
}

/// `0.970 97/100`; of few cases as [`with_interval`].
pub(super) fn counted(ratio: Ratio) -> String {
    let Ratio { hits, of } = ratio;
    match ratio.value() {
        Some(value) if of >= FEW_CASES => format!("{value:.3} {hits}/{of}"),
        _ => with_interval(ratio),
    }
}

fn rate(rate: Rate) -> String {
    match (rate.per_day(), rate.interval()) {
        (Some(value), Some((low, high))) => {
            format!("{value:.1} [{low:.1}, {high:.1}] {}", rate.count)
        }
        _ => "-".to_owned(),
    }
}

fn times(p50: Option<f64>, p90: Option<f64>) -> String {
    match (p50, p90) {
        (Some(p50), Some(p90)) => format!("{p50:.1} s / {p90:.1} s"),
        _ => "-".to_owned(),
    }
}

/// Writes rows with columns under each other.
fn aligned(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            let pad = width + 2 - cell.chars().count();
            line.extend(std::iter::repeat_n(' ', pad));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
