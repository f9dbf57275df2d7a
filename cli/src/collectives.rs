//! `railscope collectives`: evaluates dumps of collective libraries and logs of bandwidth tests; prints text or JSON.

mod bandwidth;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use railscope_collector::fabric::plans::inputs::{Reader, hint};
use railscope_collector::jobs::job::Jobs;
use railscope_collector::jobs::straggler::{Late, Operation, Side, Waiting, Waits, late_ranks};
use railscope_collector::sources::collectives::flight_recorder::{
    Dump, is_flight_recorder, missing_ranks, parse_dump, rank_of_file, rank_states,
};
use railscope_collector::sources::collectives::inspector::{Lines, is_dump};
use railscope_collector::sources::collectives::job_log::{JobLog, is_job_log};
use railscope_collector::sources::collectives::nccl_tests::{TestRun, parse_log, parse_pairs};
use railscope_collector::sources::collectives::ras::{Snapshot, is_ras, judge_ras, parse_ras};
use railscope_collector::store::History;
use railscope_model::fabric::Timestamp;
use serde::Serialize;

use bandwidth::TestReport;

/// Find the straggler of a job in dumps of NCCL's Inspector plugin (JSON) or of PyTorch's flight recorder (pickle or JSON), and slow
/// nodes or groups of nodes in logs of nccl-tests over pairs of nodes. Also reads outputs of NCCL's RAS client and job logs.
#[derive(Debug, Args)]
pub(crate) struct CollectivesArgs {
    /// Files, or directories, which are read recursively.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Line rate of one NIC in GB/s for comparison with nccl-tests, such as 50 for 400 Gb/s; default: the usual rate of
    /// nodes with the same GPUs.
    #[arg(long, value_name = "GB/S")]
    line_rate: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Hint at a job log with nothing to report.
const NO_SETUP: &str = "a job log without timeouts, failed RDMA operations or NCCL's network setup; NCCL writes the setup with NCCL_DEBUG=INFO";

/// All input data.
#[derive(Default)]
struct Read {
    operations: Vec<Operation>,
    /// Operations that NCCL's Inspector dropped.
    dropped: u64,
    /// By folder and rank.
    dumps: BTreeMap<PathBuf, BTreeMap<u32, Dump>>,
    runs: Vec<TestRun>,
    unfinished: usize,
    /// Outputs of NCCL's RAS client, in the order of the files.
    ras: Vec<Snapshot>,
    log: JobLog,
    /// Files of other formats.
    others: usize,
    /// The first file of another format, with a hint at its format.
    nearest: Option<(PathBuf, String)>,
    /// Errors by line.
    problems: Vec<String>,
}

/// The result.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Jobs with timings.
    jobs: Vec<JobReport>,
    /// Collectives, sends and receives that NCCL's Inspector dropped: wait times lack them.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_operations: Option<NonZeroU64>,
    /// Stalled jobs, by directory.
    stuck: Vec<StuckReport>,
    /// Bandwidth tests by name, number of nodes and number of GPUs.
    bandwidth: Vec<TestReport>,
    /// Findings about communicators, from NCCL's RAS client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    communicators: Vec<String>,
    /// Findings from job logs: the watchdog's timeouts, NCCL's network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
    /// Tests with a bandwidth, and tests without.
    tests: usize,
    unfinished_tests: usize,
    /// Files of other formats.
    other_files: usize,
    /// Unreadable lines or files.
    malformed: usize,
}

#[derive(Debug, Serialize)]
struct JobReport {
    answer: &'static str,
    sentence: String,
    processes: usize,
    rounds: u64,
    ranking: Vec<RankReport>,
}

#[derive(Debug, Serialize)]
struct RankReport {
    host: String,
    pid: u64,
    /// Share of a step by which it waits less than the median.
    missing_wait: f64,
}

#[derive(Debug, Serialize)]
struct StuckReport {
    folder: String,
    ranks: usize,
    /// Members of the groups without a dump.
    missing: Vec<u32>,
    late: Vec<LateReport>,
}

#[derive(Debug, Serialize)]
struct LateReport {
    rank: u32,
    side: &'static str,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    waiting: usize,
}

/// Reads all files and prints the result.
pub(crate) fn run(args: &CollectivesArgs) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for path in &args.files {
        list(path, &mut files).with_context(|| format!("cannot read {}", path.display()))?;
    }
    let mut read = Read::default();
    for file in &files {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        read.take(file, &bytes);
    }
    for problem in read.problems.iter().take(20) {
        eprintln!("railscope: {problem}");
    }
    let has_logs = !read.ras.is_empty() || !read.log.is_empty();
    if read.operations.is_empty() && read.dumps.is_empty() && read.runs.is_empty() && !has_logs {
        bail!(
            "none of {} files is a dump of NCCL's Inspector or a flight recorder, an output of NCCL's RAS client, a job log, or a log of nccl-tests with a bandwidth{}",
            files.len(),
            read.nearest
                .map(|(file, hint)| format!("; {}: {hint}", file.display()))
                .unwrap_or_default()
        );
    }
    let line_rate = args.line_rate.map(|gigabytes| gigabytes * 1e9);
    let report = read.report(line_rate);
    let text = if args.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        let mut text = String::new();
        write_report(&mut text, &report)?;
        text
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot print")
}

fn list(path: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in std::fs::read_dir(path)? {
        below.push(entry?.path());
    }
    below.sort();
    below.iter().try_for_each(|path| list(path, into))
}

impl Read {
    fn take_dump(&mut self, file: &Path, bytes: &[u8]) {
        let name = file.display().to_string();
        let dump = rank_of_file(&name).and_then(|rank| parse_dump(&name, rank, bytes));
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        match dump {
            Ok(dump) => {
                let dumps = self.dumps.entry(folder).or_default();
                // PyTorch's file stands before what a user converted it to.
                dumps.entry(dump.rank()).or_insert(dump);
            }
            Err(error) => self.problems.push(error.to_string()),
        }
    }

    fn take(&mut self, file: &Path, bytes: &[u8]) {
        // Enough to detect the format of a file.
        if is_flight_recorder(&bytes[..bytes.len().min(4096)]) {
            self.take_dump(file, bytes);
        } else {
            self.take_text(file, &String::from_utf8_lossy(bytes));
        }
    }

    fn take_text(&mut self, file: &Path, text: &str) {
        let name = file.display().to_string();
        if is_dump(text) {
            let mut reader = Lines::default();
            for (number, line) in text.lines().enumerate() {
                match reader.read(&name, number + 1, line) {
                    Ok(operation) => self.operations.extend(operation),
                    Err(error) => self.problems.push(error.to_string()),
                }
            }
            self.dropped = self.dropped.saturating_add(reader.dropped());
        } else if is_ras(text) {
            self.ras.extend(parse_ras(text));
            // The watchdog's lines often are in the same file.
            self.log.take(text);
        } else if let Some(pairs) = parse_pairs(text) {
            self.runs.extend(pairs);
        } else {
            let has_lines = is_job_log(text);
            self.log.take(text);
            match parse_log(&name, text) {
                Ok(log) if log.runs.is_empty() && has_lines => {
                    self.unfinished += log.unfinished;
                    let hint = || (file.to_owned(), NO_SETUP.to_owned());
                    self.nearest.get_or_insert_with(hint);
                }
                Ok(log) if log.runs.is_empty() && log.unfinished == 0 => {
                    self.others += 1;
                    if self.nearest.is_none() {
                        self.nearest = Some((file.to_owned(), hint(text, &[Reader::Collectives])));
                    }
                }
                Ok(log) => {
                    self.runs.extend(log.runs);
                    self.unfinished += log.unfinished;
                }
                Err(error) => self.problems.push(error.to_string()),
            }
        }
    }

    fn report(self, line_rate: Option<f64>) -> Report {
        let (tests, malformed) = (self.runs.len(), self.problems.len());
        let dumps = self.dumps.into_iter();
        let dumps = dumps.map(|(folder, dumps)| (folder, dumps.into_values().collect::<Vec<_>>()));
        let stuck = dumps.map(|(folder, dumps)| StuckReport {
            folder: folder.display().to_string(),
            ranks: dumps.len(),
            missing: missing_ranks(&dumps),
            late: late_ranks(&rank_states(&dumps))
                .into_iter()
                .map(late)
                .collect(),
        });
        let mut operations = self.operations;
        // Operations are read file by file; sort them by time.
        operations.sort_by(|a, b| a.end.total_cmp(&b.end));
        let mut waits = Waits::default();
        waits.take(operations, Timestamp(0));
        let jobs = waits.tick(&History::default(), &Jobs::default(), Timestamp(0));
        Report {
            jobs: jobs.into_iter().map(job).collect(),
            dropped_operations: NonZeroU64::new(self.dropped),
            stuck: stuck.collect(),
            communicators: judge_ras(&self.ras)
                .into_iter()
                .map(|(finding, _)| finding)
                .collect(),
            log: self
                .log
                .judge()
                .into_iter()
                .map(|(finding, _)| finding)
                .collect(),
            bandwidth: bandwidth::tests(&self.runs, line_rate),
            tests,
            unfinished_tests: self.unfinished,
            other_files: self.others,
            malformed,
        }
    }
}

fn job(waiting: Waiting) -> JobReport {
    let ranking = waiting.ranking.into_iter().filter_map(|rank| {
        let process = rank.process?;
        Some(RankReport {
            host: process.host.to_string(),
            pid: process.pid,
            missing_wait: rank.excess,
        })
    });
    JobReport {
        answer: waiting.answer.as_str(),
        sentence: waiting.sentence,
        processes: waiting.ranks,
        rounds: waiting.rounds,
        ranking: ranking.collect(),
    }
}

fn late(late: Late) -> LateReport {
    LateReport {
        rank: late.rank,
        side: match late.side {
            Side::Gpu => "gpu",
            Side::Host => "host",
        },
        group: late.description.unwrap_or(late.group),
        operation: late.operation,
        waiting: late.waiting,
    }
}

/// Prints the report as text.
fn write_report(out: &mut String, report: &Report) -> fmt::Result {
    for job in &report.jobs {
        writeln!(
            out,
            "Job of {} processes, {} rounds: {}",
            job.processes, job.rounds, job.answer
        )?;
        writeln!(out, "  {}", job.sentence)?;
        if job.answer == "straggler" {
            writeln!(out, "  wait deficit relative to the median, per step")?;
            for rank in &job.ranking {
                writeln!(
                    out,
                    "    {:5.1} %  {} process {}",
                    100.0 * rank.missing_wait,
                    rank.host,
                    rank.pid
                )?;
            }
        }
    }
    if let Some(dropped) = report.dropped_operations {
        writeln!(
            out,
            "NCCL's Inspector dropped {dropped} operations: wait times are too small; make it dump more often"
        )?;
    }
    for stuck in &report.stuck {
        write_stuck(out, stuck)?;
    }
    for (title, sentences) in [
        ("NCCL communicators", &report.communicators),
        ("Job logs", &report.log),
    ] {
        if !sentences.is_empty() {
            writeln!(out, "{title}")?;
        }
        for sentence in sentences {
            writeln!(out, "  {sentence}")?;
        }
    }
    if report.tests + report.unfinished_tests > 0 {
        let unfinished = report.unfinished_tests;
        writeln!(
            out,
            "nccl-tests: {} runs with a bandwidth, {unfinished} without",
            report.tests
        )?;
    }
    for test in &report.bandwidth {
        test.write(out)?;
    }
    if report.malformed + report.other_files > 0 {
        writeln!(
            out,
            "{} unreadable lines or files, {} files of other formats",
            report.malformed, report.other_files
        )?;
    }
    Ok(())
}

/// Prints which ranks of one folder's flight recorders delay the others.
fn write_stuck(out: &mut String, stuck: &StuckReport) -> fmt::Result {
    writeln!(
        out,
        "Flight recorders of {} ranks in {}",
        stuck.ranks, stuck.folder
    )?;
    if stuck.late.is_empty() {
        writeln!(out, "  no single rank delays the others")?;
    }
    if !stuck.missing.is_empty() {
        let shown: Vec<String> = stuck.missing.iter().take(8).map(u32::to_string).collect();
        writeln!(
            out,
            "  no dump of {} ranks ({}{}): a rank that crashed or hangs outside of collectives writes none; add dumps that exist",
            stuck.missing.len(),
            shown.join(", "),
            if stuck.missing.len() > shown.len() {
                ", ..."
            } else {
                ""
            }
        )?;
    }
    for late in &stuck.late {
        let operation = late.operation.as_deref().unwrap_or("a collective");
        writeln!(
            out,
            "  rank {} is late ({} side): {} ranks wait in {operation} of {}",
            late.rank, late.side, late.waiting, late.group
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
