//! `railscope eval`: evaluates the collector's detectors, and rules from the literature, on simulated
//! faults.
//!
//! ```text
//! scenario + seed -> Cluster -> Exporters -> readings -> Analyzer -> incidents -+
//!                                              |                               +-> judge -> score -> report
//!                                              +-> Frame -> baselines ---------+
//! ```

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

mod ablations;
mod alarm;
mod baselines;
mod delivery;
mod draw;
mod ends;
mod field;
mod frame;
mod goals;
mod html;
mod judge;
mod markdown;
mod probes;
mod report;
mod rounds;
mod scenario;
mod score;
pub(crate) mod simulate;
mod statistics;
mod worlds;
mod wrong;

use ablations::Ablations;
use draw::plans;
use report::Report;
use simulate::{Outcome, Settings, Spent};

/// Seeds from here on are never used here: they are reserved for independent checks.
const HELD_OUT_SEEDS: u64 = 2000;
/// Seeds on which thresholds may be chosen; scores on them are not a test.
const TUNING_SEEDS: u64 = 1000;

/// Evaluate the detectors on simulated faults with known ground truth, next to rules from the literature on
/// the same data. All data is simulated.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Scenario files, or folders of them.
    #[arg(long, value_name = "PATH", num_args = 1.., default_value = "tests/scenarios")]
    scenario: Vec<PathBuf>,
    /// Seeds, without the last one. Thresholds are chosen on 0..1000, scores come from 1000..2000.
    #[arg(long, value_name = "A..B", default_value = "1000..1003", value_parser = seeds)]
    seeds: Range<u64>,
    /// Threads; default: one per CPU. Results do not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Time between two scrapes and analysis cycles, such as 1s; default: that of the scenario.
    #[arg(long, value_parser = tick)]
    tick: Option<f64>,
    /// List the errors of each run; JSON always contains them.
    #[arg(long)]
    list_wrong: bool,
    /// Output format of the scores.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
    /// Also write a web page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Also evaluate the collector without a step of its method, on the same runs, as an additional row. Steps separated by
    /// commas are disabled together; `each` is every step, one after the other. Can be given several times.
    #[arg(long, value_name = "STEP", value_parser = ablations::parse)]
    without: Vec<Ablations>,
    /// Also write the tables into a Markdown file, between its markers `<!-- eval NAME -->` and `<!-- end -->`; a new file
    /// if there is none.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write each reading as a scrape body and read it again, as between exporter and collector. Slower, with
    /// the same results.
    #[arg(long)]
    through_text: bool,
    /// Replay these recordings instead of scenarios and compare the incidents with the truth.json of each.
    #[arg(long, value_name = "PACK", num_args = 1.., conflicts_with_all = [
        "scenario", "seeds", "tick", "html", "without", "markdown", "through_text",
    ])]
    worlds: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReportFormat {
    Table,
    Json,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let expected =
        || format!("{text:?} is not a range of seeds such as 1000..1003, below {HELD_OUT_SEEDS}");
    let (first, end) = text.split_once("..").ok_or_else(expected)?;
    let range = first.parse().map_err(|_| expected())?..end.parse().map_err(|_| expected())?;
    let sound = range.start < range.end && range.end <= HELD_OUT_SEEDS;
    if sound { Ok(range) } else { Err(expected()) }
}

fn tick(text: &str) -> Result<f64, String> {
    let seconds = crate::duration::parse(text)?.as_secs_f64();
    if (1.0..=60.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text:?} is no tick: expected 1s to 60s"))
    }
}

/// Makes every run and prints the scores; where the time went goes to the log.
pub(crate) fn run(args: &EvalArgs) -> anyhow::Result<()> {
    let threads = match args.threads {
        Some(threads) => threads.max(1),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    if !args.worlds.is_empty() {
        let options = worlds::Options {
            threads,
            format: args.format,
            lists_wrong: args.list_wrong,
        };
        return worlds::run(&args.worlds, &options);
    }
    let scenarios = scenario::read_all(&args.scenario)?;
    let plans = plans(&scenarios, &args.seeds)?;
    if args.seeds.start < TUNING_SEEDS {
        tracing::warn!(
            "seeds below {TUNING_SEEDS} are for choosing thresholds: these scores are not a test"
        );
    }
    let settings = Settings {
        tick_seconds: args.tick,
        through_text: args.through_text,
        ablations: args.without.concat(),
    };
    let began = Instant::now();
    let runs = in_parallel(plans.len(), threads, |index| {
        simulate::run(&plans[index], &settings)
            .with_context(|| format!("{}, seed {}", plans[index].name(), plans[index].seed))
    })?;
    tell_times(&runs, began);
    let report = Report::of(&plans, &runs, args.seeds.clone(), &settings.ablations);
    match args.format {
        ReportFormat::Table => {
            print!("{}", report.table());
            if args.list_wrong {
                report.wrong.iter().for_each(|wrong| println!("{wrong}"));
            }
        }
        ReportFormat::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&report)).with_context(|| file.display().to_string())?;
    }
    if let Some(file) = &args.markdown {
        markdown::write(file, &report)?;
    }
    Ok(())
}

/// The results of all tasks in their order, whichever thread ran them. After a failure nothing new
/// is begun.
///
/// # Errors
/// That of a task that failed.
fn in_parallel<T: Send, E: Send>(
    tasks: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks));
    thread::scope(|scope| {
        for _ in 0..threads.min(tasks) {
            scope.spawn(|| {
                loop {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= tasks {
                        return;
                    }
                    let result = work(task);
                    if result.is_err() {
                        next.store(tasks, Ordering::Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((task, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(task, _)| *task);
    done.into_iter().map(|(_, result)| result).collect()
}

fn tell_times(runs: &[Outcome], began: Instant) {
    let mut spent = Spent::default();
    for run in runs {
        spent += run.spent;
    }
    let simulated: f64 = runs.iter().map(|run| run.seconds).sum();
    let seconds = |time: std::time::Duration| format!("{:.1}", time.as_secs_f64());
    tracing::info!(
        runs = runs.len(),
        simulated_hours = format!("{:.1}", simulated / 3600.0),
        wall_seconds = seconds(began.elapsed()),
        simulator = seconds(spent.simulator),
        ingest = seconds(spent.ingest),
        subnet = seconds(spent.subnet),
        analysis = seconds(spent.analysis),
        baselines = seconds(spent.baselines),
        "done; CPU seconds of all threads by activity"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_below_those_that_nobody_looks_at() {
        assert_eq!(seeds("1000..1003"), Ok(1000..1003));
        for text in ["", "5", "3..3", "1999..2001", "a..b", "-1..3"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn results_come_in_order_from_any_number_of_threads_and_a_failure_ends_all() {
        for threads in [1, 3, 50] {
            let squares = in_parallel(20, threads, |task| {
                // The first is done last.
                let pause = if task == 0 { 20 } else { 0 };
                thread::sleep(std::time::Duration::from_millis(pause));
                Ok::<_, ()>(task * task)
            });
            assert_eq!(squares, Ok((0..20).map(|task| task * task).collect()));
            let failed = in_parallel(
                20,
                threads,
                |task| if task == 5 { Err(5) } else { Ok(task) },
            );
            assert_eq!(failed, Err(5));
        }
    }
}
