//! Lengths of steps, and how far the ranks of a job are apart.

use std::collections::BTreeMap;
use std::path::Path;

use railscope_simulator::cluster::Cluster;
use railscope_simulator::statistics::{autocorrelation, mean, median, quantile, variation};

use crate::simulated::{Pipeline, logged, rank_noise, steps};
use crate::svg::{COLORS, Chart, Line};
use crate::traces::{self, Failure, Job};
use crate::{Section, head, row, shown};

/// The simulator draws its noise once a tick; a collector scrapes every 10 s.
const TICK_SECONDS: f64 = 10.0;

/// Steps that are no longer than this are training, the others have a checkpoint in them.
const CHECKPOINT: f64 = 1.5;

struct Steps {
    name: &'static str,
    seconds: Vec<f64>,
    simulated: bool,
}

fn even(job: &Job, ideal_seconds: f64, shape: Pipeline) -> Pipeline {
    // A pipeline of equal stages: (m + s - 1) slots; what else the ideal step has is communication.
    let slots = f64::from(shape.microbatches + shape.stages - 1) / f64::from(shape.microbatches);
    let compute: Vec<f64> = job
        .compute
        .values()
        .filter_map(|steps| mean(steps))
        .collect();
    let compute_seconds = median(&compute).unwrap_or(ideal_seconds);
    let even = mean(&shape.stage_costs).unwrap_or(1.0);
    Pipeline {
        compute_seconds,
        exposed_seconds: (ideal_seconds - compute_seconds * even * slots).max(0.0),
        ..shape
    }
}

/// The job with one slow worker, and that worker's share of the others' speed.
fn slow_worker(job: &Job) -> Pipeline {
    let shape = Pipeline {
        stages: 4,
        replicas: 4,
        gpus: 4,
        microbatches: 32,
        compute_seconds: 0.0,
        stage_costs: Vec::new(),
        exposed_seconds: 0.0,
        // Compute of the first rank is 2.35 times the median.
        first_speed: 1.0 / 2.35,
        imbalance: 7e-3,
    };
    // Step without stragglers, as the authors of the trace work it out.
    even(job, 23.485, shape)
}

/// The job whose last stage has more work.
fn long_stage(job: &Job) -> Pipeline {
    let shape = Pipeline {
        stages: 4,
        replicas: 2,
        gpus: 1,
        microbatches: 4,
        compute_seconds: 0.0,
        stage_costs: vec![1.0, 1.0, 1.0, 1.373 / 0.842],
        exposed_seconds: 0.0,
        first_speed: 1.0,
        imbalance: 5e-3,
    };
    even(job, 1.843, shape)
}

fn simulated(cluster: Cluster, count: usize) -> Vec<f64> {
    let step = cluster.step_seconds().unwrap_or(TICK_SECONDS);
    steps(cluster, TICK_SECONDS.min(0.9 * step), count)
}

fn table(all: &[Steps]) -> String {
    let mut text = head(&[
        "job",
        "steps",
        "mean (s)",
        "CoV",
        "middle half / 1.35",
        "0.1 / 1 / 10 / 90 / 99 / 99.9 % over median",
        "more than 2 % over",
        "more than 2 % under",
        "ac 1",
        "ac 4",
        "ac 16",
        "with a checkpoint",
    ]);
    for Steps { name, seconds, .. } in all {
        let usual = median(seconds).unwrap_or(1.0);
        let of_usual: Vec<f64> = seconds.iter().map(|step| step / usual - 1.0).collect();
        let training: Vec<f64> = of_usual
            .iter()
            .copied()
            .filter(|x| x + 1.0 < CHECKPOINT)
            .collect();
        let percent = |share: f64| {
            let value = quantile(&training, share).map(|value| 100.0 * value);
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:+.2}"))
        };
        let half = quantile(&training, 0.75).zip(quantile(&training, 0.25));
        let lengths: Vec<f64> = training.iter().map(|x| x + 1.0).collect();
        let share = |far: fn(f64) -> bool| {
            let count = training.iter().filter(|value| far(**value)).count();
            format!(
                "{:.1} %",
                100.0 * count as f64 / training.len().max(1) as f64
            )
        };
        text += &row([
            (*name).to_owned(),
            seconds.len().to_string(),
            shown(mean(seconds), 2),
            format!("{} %", shown(variation(&lengths).map(|cov| 100.0 * cov), 2)),
            format!(
                "{} %",
                shown(half.map(|(high, low)| 100.0 * (high - low) / 1.349), 2)
            ),
            [0.001, 0.01, 0.1, 0.9, 0.99, 0.999]
                .map(percent)
                .join(" / "),
            share(|x| x > 0.02),
            share(|x| x < -0.02),
            shown(autocorrelation(&training, 1), 2),
            shown(autocorrelation(&training, 4), 2),
            shown(autocorrelation(&training, 16), 2),
            (seconds.len() - training.len()).to_string(),
        ]);
    }
    text
}

/// Ranks of a stage beside each other: means over all steps, and the noise of one rank.
fn ranks_table(jobs: &[(&str, &Job, Cluster)]) -> String {
    let mut text = head(&[
        "job",
        "stage",
        "ranks",
        "compute (s) of each",
        "CoV over ranks",
        "CoV over steps of a rank",
        "CoV of one forward pass",
        "simulated CoV over nodes",
        "simulated CoV over steps of a rank",
    ]);
    for (name, job, cluster) in jobs {
        let mut stages: BTreeMap<i8, Vec<i16>> = BTreeMap::new();
        for (stage, rank) in job.compute.keys() {
            stages.entry(*stage).or_default().push(*rank);
        }
        // The slowest GPU of a node is its pace.
        let nodes = cluster.nodes().iter();
        let clocks = nodes.map(|node| node.gpus.iter().map(|gpu| gpu.chip_clock));
        let seconds: Vec<f64> = clocks
            .map(|clocks| 1.0 / clocks.fold(1.0, f64::min))
            .collect();
        let noise = rank_noise(cluster).map(|noise| 100.0 * noise);
        for (stage, ranks) in stages {
            let of = |rank: &i16| mean(&job.compute[&(stage, *rank)]);
            let means: Vec<f64> = ranks.iter().filter_map(of).collect();
            let each = |of: &BTreeMap<(i8, i16), Vec<f64>>| {
                let values = ranks
                    .iter()
                    .filter_map(|rank| variation(&of[&(stage, *rank)]));
                median(&values.collect::<Vec<_>>()).map(|value| 100.0 * value)
            };
            let percent = |value: Option<f64>| format!("{} %", shown(value, 2));
            text += &row([
                (*name).to_owned(),
                stage.to_string(),
                ranks.len().to_string(),
                means
                    .iter()
                    .map(|mean| format!("{mean:.3}"))
                    .collect::<Vec<_>>()
                    .join(", "),
                percent(variation(&means).map(|value| 100.0 * value)),
                percent(each(&job.compute)),
                percent(each(&job.forward)),
                percent(variation(&seconds).map(|value| 100.0 * value)),
                percent(noise),
            ]);
        }
    }
    text
}

fn slowdowns_table(rows: &[(&str, f64, &Job, f64, f64)]) -> String {
    let mut text = head(&[
        "job",
        "ideal step (s)",
        "step of the trace",
        "slowdown",
        "simulated step",
        "simulated slowdown",
    ]);
    for (name, ideal, job, healthy, step) in rows {
        let real = mean(&job.steps);
        text += &row([
            (*name).to_owned(),
            format!("{ideal:.2}"),
            shown(real, 2),
            shown(real.map(|real| real / ideal), 2),
            format!("{step:.2}"),
            format!("{:.2}", step / healthy),
        ]);
    }
    text
}

fn chart(all: &[Steps]) -> String {
    let lines = all.iter().enumerate().map(|(number, steps)| {
        let usual = median(&steps.seconds).unwrap_or(1.0);
        let at = |n: i32| f64::from(n) / 200.0;
        // The last half percent would be checkpoints.
        let points = (1..199).filter_map(|n| {
            let value = quantile(&steps.seconds, at(n))?;
            Some((at(n), (100.0 * (value / usual - 1.0)).clamp(-2.0, 4.0)))
        });
        Line {
            name: steps.name.to_owned(),
            dashed: steps.simulated,
            color: COLORS[if number == 6 { 3 } else { number % 3 }],
            points: points.collect(),
        }
    });
    let chart = Chart {
        title: "Length of steps beside their median, cut at -2 and 4",
        x: "share of the steps below",
        y: "%",
        log_x: false,
        lines: lines.collect(),
    };
    chart.svg()
}

/// Steps of the traces beside those of the simulator.
pub(crate) fn section(folder: &Path) -> Result<Section, Failure> {
    let log = traces::logged_steps(folder)?;
    let (ar, st) = (traces::job(folder, "AR")?, traces::job(folder, "ST")?);
    let (slow, long) = (slow_worker(&ar), long_stage(&st));
    // As many steps as the log has: the windows of the other two are too short to show a tail.
    let count = log.len();
    let step =
        |shape: &Pipeline| Ok::<f64, Failure>(shape.cluster()?.step_seconds().unwrap_or(f64::NAN));
    let healthy = Pipeline {
        first_speed: 1.0,
        stage_costs: Vec::new(),
        ..slow_worker(&ar)
    };
    let evened = Pipeline {
        compute_seconds: long.compute_seconds * mean(&long.stage_costs).unwrap_or(1.0),
        stage_costs: Vec::new(),
        ..long_stage(&st)
    };
    let slowdowns = slowdowns_table(&[
        ("AR", 23.485, &ar, step(&healthy)?, step(&slow)?),
        ("ST", 1.843, &st, step(&evened)?, step(&long)?),
    ]);
    let ranks = ranks_table(&[("AR", &ar, slow.cluster()?), ("ST", &st, long.cluster()?)]);
    let of = |name, seconds, simulated| Steps {
        name,
        seconds,
        simulated,
    };
    let all = [
        of("log", log, false),
        of("AR", ar.steps, false),
        of("ST", st.steps, false),
        of("log, simulated", simulated(logged()?, count), true),
        of("AR, simulated", simulated(slow.cluster()?, count), true),
        of("ST, simulated", simulated(long.cluster()?, count), true),
        of(
            "log, simulated at ticks of 1 s",
            steps(logged()?, 1.0, 400),
            true,
        ),
    ];
    let text = format!(
        include_str!("steps.md"),
        steps = table(&all),
        slowdowns = slowdowns,
        ranks = ranks
    );
    Ok(Section {
        text,
        charts: vec![("steps.svg", chart(&all))],
    })
}
