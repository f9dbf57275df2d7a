//! Bandwidth in logs of nccl-tests, and slow results: compared with line rate, by message size, and with each other.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use railscope_collector::jobs::straggler::{Pair, Unevenness, judge_pairs};
use railscope_collector::sources::collectives::nccl_tests::{Size, TestRun};
use serde::Serialize;

const GIGABYTE: f64 = 1e9;
/// Minimum message size for the evaluation of bandwidth; smaller messages are bound by latency (the bandwidth in the
/// examples of nccl-tests levels off above it).
const BULK_BYTES: u64 = 16 << 20;
/// A bandwidth drop: a larger message reaches less than this ratio of a smaller one. Changes of protocol
/// and algorithm cost less than that; the healthy recordings lose at most 10 %.
const DROP: f64 = 0.5;
/// Ratio of a configured line rate below which a run is slow, ...
const SLOW_OF_GIVEN: f64 = 0.5;
/// ... and ratio of a line rate that was estimated from the GPU. Healthy pairs of the recordings reach 0.48 in the slowest test.
const SLOW_OF_GUESSED: f64 = 0.25;
/// Ratio of the best run of the same test below which a run is slow.
const SLOW_OF_BEST: f64 = 0.5;
/// Maximum number of runs printed for a test; of more, only the slowest are printed.
const MAX_LISTED: usize = 8;

/// Usual NIC line rate in bytes per second of nodes with a GPU (NVIDIA's DGX and HGX data sheets).
const NIC_OF_GPU: [(&str, f64); 6] = [
    ("B300", 100e9),
    ("B200", 50e9),
    ("H100", 50e9),
    ("H200", 50e9),
    ("H800", 50e9),
    ("A100", 25e9),
];

/// Runs of one test with the same number of nodes and GPUs; only these are comparable.
#[derive(Debug, Serialize)]
pub(super) struct TestReport {
    test: String,
    nodes: usize,
    ranks: usize,
    runs: Vec<RunReport>,
    /// Pairs of nodes among them.
    pairs: usize,
    /// Result of the matrix of pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
}

/// One run.
#[derive(Debug, Serialize)]
struct RunReport {
    nodes: Vec<String>,
    /// Mean over all sizes, as reported by the test.
    mean_gigabytes_per_second: f64,
    /// Highest bandwidth and its message size.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    findings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Best {
    gigabytes_per_second: f64,
    bytes: u64,
}

/// All tests by name, number of nodes and number of GPUs. `line_rate`: configured line rate of a NIC in bytes per second.
pub(super) fn tests(runs: &[TestRun], line_rate: Option<f64>) -> Vec<TestReport> {
    let mut tests: BTreeMap<(&str, usize, usize), Vec<&TestRun>> = BTreeMap::new();
    for run in runs {
        let test = run.test.as_deref().unwrap_or("unnamed test");
        tests
            .entry((test, run.nodes.len(), run.ranks))
            .or_default()
            .push(run);
    }
    let report = |((test, nodes, ranks), runs): ((&str, usize, usize), Vec<&TestRun>)| {
        let whole = runs.iter().filter(|run| !run.truncated);
        let best = whole.map(|run| run.bandwidth).fold(0.0, f64::max);
        let pairs: Vec<Pair> = runs.iter().filter_map(|run| pair(run)).collect();
        TestReport {
            test: test.to_owned(),
            nodes,
            ranks,
            pairs: pairs.len(),
            verdict: (!pairs.is_empty())
                .then(|| verdict(&judge_pairs(&pairs), pairs.len()))
                .flatten(),
            runs: runs.iter().map(|run| one(run, best, line_rate)).collect(),
        }
    };
    tests.into_iter().map(report).collect()
}

fn pair(run: &TestRun) -> Option<Pair> {
    let nodes: Vec<String> = run.nodes.iter().cloned().collect();
    (!run.truncated).then_some(())?;
    Some(Pair {
        nodes: nodes.try_into().ok()?,
        bandwidth: run.bandwidth,
    })
}

fn one(run: &TestRun, best_of_test: f64, line_rate: Option<f64>) -> RunReport {
    let mut findings = Vec::new();
    let best = run
        .sizes
        .iter()
        .copied()
        .max_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
    if run.nodes.len() > 1 {
        findings.extend(against_line_rate(run, best, line_rate));
    }
    findings.extend(bandwidth_drop(&run.sizes));
    if run.truncated {
        findings.push(
            "the table ends without the test's average: the log is truncated or the test was stopped; the average is that of the rows"
                .to_owned(),
        );
    } else if run.bandwidth < SLOW_OF_BEST * best_of_test {
        let best = best_of_test / GIGABYTE;
        findings.push(format!(
            "slow compared with the best run of this test, {best:.2} GB/s"
        ));
    }
    let wrong: u64 = run
        .sizes
        .iter()
        .fold(0, |sum, row| sum.saturating_add(row.wrong));
    if wrong > 0 {
        findings.push(format!(
            "{wrong} WRONG VALUES: data was corrupted in transit"
        ));
    }
    RunReport {
        nodes: run.nodes.iter().cloned().collect(),
        mean_gigabytes_per_second: run.bandwidth / GIGABYTE,
        best: best.filter(|best| best.bandwidth > 0.0).map(|best| Best {
            gigabytes_per_second: best.bandwidth / GIGABYTE,
            bytes: best.bytes,
        }),
        findings,
    }
}

/// Compares a single run with the line rate of its NICs.
fn against_line_rate(run: &TestRun, best: Option<Size>, given: Option<f64>) -> Option<String> {
    let gpu = run.gpu.as_deref().unwrap_or_default();
    let guessed = || NIC_OF_GPU.iter().find(|(name, _)| gpu.contains(name));
    let (rate, share, origin) = match (given, guessed()) {
        (Some(rate), _) => (rate, SLOW_OF_GIVEN, "from --line-rate".to_owned()),
        (None, Some((name, rate))) => (
            *rate,
            SLOW_OF_GUESSED,
            format!("usual for nodes with {name}; --line-rate overrides it"),
        ),
        (None, None) => return None,
    };
    // A log without its table has only the mean.
    let reached = match best {
        Some(best) if best.bytes >= BULK_BYTES => best.bandwidth,
        Some(_) => return None,
        None => run.bandwidth,
    };
    (reached < share * rate).then(|| {
        format!(
            "slow compared with line rate: at most {:.0} % of {:.0} GB/s for one NIC ({origin})",
            100.0 * reached / rate,
            rate / GIGABYTE
        )
    })
}

/// The size at which the bandwidth drops although messages grow.
fn bandwidth_drop(sizes: &[Size]) -> Option<String> {
    let mut best: Option<Size> = None;
    let mut fallen: Option<(Size, Size, usize)> = None;
    for row in sizes.iter().filter(|row| row.bytes >= BULK_BYTES) {
        match (best, &mut fallen) {
            (Some(best), None) if row.bandwidth < DROP * best.bandwidth => {
                fallen = Some((best, *row, 1));
            }
            (Some(best), Some((.., low))) if row.bandwidth < DROP * best.bandwidth => *low += 1,
            (Some(best), _) if best.bandwidth >= row.bandwidth => {}
            _ => best = Some(*row),
        }
    }
    let (before, at, low) = fallen?;
    let later = sizes.iter().filter(|row| row.bytes >= at.bytes).count();
    Some(format!(
        "bandwidth drop at {}: {:.2} GB/s, but {} reached {:.2}; {}",
        bytes(at.bytes),
        at.bandwidth / GIGABYTE,
        bytes(before.bytes),
        before.bandwidth / GIGABYTE,
        if low >= later {
            "all larger sizes are equally slow".to_owned()
        } else {
            format!("{low} of {later} sizes from there on are equally slow")
        }
    ))
}

fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value.fract() > 0.0);
    format!("{value:.digits$} {}", units[unit])
}

/// Result of the matrix of pairs; `None` for fewer than three pairs, which are evaluated as single runs.
fn verdict(unevenness: &Unevenness, pairs: usize) -> Option<String> {
    Some(match unevenness {
        Unevenness::Undecided if pairs < 3 => return None,
        Unevenness::Undecided => {
            "fewer than four nodes or unmeasured pairs: only single pairs are evaluated".to_owned()
        }
        Unevenness::Even => "no pair is slow compared with the others".to_owned(),
        Unevenness::Nodes(nodes) => {
            format!("slow with nearly all other nodes: {}", nodes.join(", "))
        }
        Unevenness::Between(groups) => {
            let groups: Vec<String> = groups.iter().map(|group| group.join(", ")).collect();
            format!(
                "slow between groups, fast within: {{{}}}",
                groups.join("} {")
            )
        }
        Unevenness::Pairs(pairs) => {
            let pairs: Vec<String> = pairs.iter().map(|pair| pair.join(" and ")).collect();
            format!("slow pairs: {}", pairs.join("; "))
        }
    })
}

impl TestReport {
    /// Prints the report as text.
    pub(super) fn write(&self, out: &mut String) -> fmt::Result {
        let what = match (self.nodes, self.pairs) {
            (2, 1) => "one pair of nodes".to_owned(),
            (2, pairs) => format!("{pairs} pairs of nodes"),
            (0, _) => "nodes without names".to_owned(),
            (1, _) => "1 node".to_owned(),
            (nodes, _) => format!("{nodes} nodes"),
        };
        let verdict = self
            .verdict
            .as_ref()
            .map(|verdict| format!(": {verdict}"))
            .unwrap_or_default();
        let gpus = match self.ranks {
            0 => String::new(),
            ranks => format!(" on {ranks} GPUs"),
        };
        writeln!(out, "  {}{gpus}, {what}{verdict}", self.test)?;
        let mut runs: Vec<&RunReport> = self.runs.iter().collect();
        runs.sort_by(|a, b| {
            a.mean_gigabytes_per_second
                .total_cmp(&b.mean_gigabytes_per_second)
        });
        // Of many runs, print the slowest and those with findings.
        let listed = if runs.len() > MAX_LISTED {
            3
        } else {
            runs.len()
        };
        for (place, run) in runs.iter().enumerate() {
            if place < listed || (!run.findings.is_empty() && place < 2 * MAX_LISTED) {
                run.write(out)?;
            }
        }
        if let Some(fastest) = runs.last().filter(|_| runs.len() > listed) {
            writeln!(out, "    ... the fastest of {} runs:", runs.len())?;
            fastest.write(out)?;
        }
        Ok(())
    }
}

impl RunReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let nodes = self.nodes.join(" and ");
        write!(
            out,
            "    {:8.2} GB/s on average",
            self.mean_gigabytes_per_second
        )?;
        if let Some(best) = self.best {
            write!(
                out,
                ", {:.2} at {}",
                best.gigabytes_per_second,
                bytes(best.bytes)
            )?;
        }
        writeln!(out, "  {nodes}")?;
        for finding in &self.findings {
            writeln!(out, "             {finding}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_collector::sources::collectives::nccl_tests::parse_log;

    /// A log over two nodes with H100, with its table of sizes.
    fn log(nodes: [&str; 2], rows: &[(u64, f64)]) -> String {
        let rank = |rank: usize| {
            format!(
                "#  Rank  {rank} Group  0 Pid 1 on {} device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n",
                nodes[rank]
            )
        };
        let table = rows.iter().map(|(megabytes, busbw)| {
            format!(
                "{} 1 float sum -1 1.0 1.0 {busbw} 0 1.0 1.0 {busbw} 0\n",
                megabytes << 20
            )
        });
        let mean = rows.iter().map(|(_, busbw)| busbw).sum::<f64>() / rows.len() as f64;
        format!(
            "# Collective test starting: all_reduce_perf\n{}{}{}# Avg bus bandwidth : {mean}\n",
            rank(0),
            rank(1),
            table.collect::<String>()
        )
    }

    fn output(logs: &[String], line_rate: Option<f64>) -> String {
        let runs: Vec<TestRun> = logs
            .iter()
            .flat_map(|log| parse_log("log", log).expect("a log").runs)
            .collect();
        let mut text = String::new();
        for test in tests(&runs, line_rate) {
            test.write(&mut text).expect("a report");
        }
        text
    }

    #[test]
    fn the_bandwidth_of_one_pair_is_printed_and_compared_with_line_rate() {
        for (busbw, expected) in [
            (1.89, "at most 4 % of 50 GB/s"),
            (6.67, "at most 13 % of 50 GB/s"),
        ] {
            let text = output(&[log(["n1", "n2"], &[(64, busbw), (128, busbw)])], None);
            assert!(text.contains(&format!("{busbw} GB/s on average")), "{text}");
            assert!(
                text.contains("slow compared with line rate") && text.contains(expected),
                "{text}"
            );
        }
        let text = output(&[log(["n1", "n2"], &[(64, 47.8), (128, 48.1)])], None);
        assert!(
            text.contains("48.10 at 128 MiB  n1 and n2") && !text.contains("slow"),
            "{text}"
        );
        // A configured line rate of 10 % of that.
        let text = output(&[log(["n1", "n2"], &[(64, 4.8)])], Some(5e9));
        assert!(!text.contains("slow"), "{text}");
    }

    #[test]
    fn a_bandwidth_drop_is_reported_with_its_size() {
        let text = output(
            &[log(
                ["n1", "n2"],
                &[(64, 46.0), (128, 47.9), (256, 12.0), (512, 11.5)],
            )],
            None,
        );
        assert!(text.contains("bandwidth drop at 256 MiB: 12.00 GB/s, but 128 MiB reached 47.90; all larger sizes are equally slow"), "{text}");
        let text = output(
            &[log(["n1", "n2"], &[(64, 46.0), (128, 12.0), (256, 47.0)])],
            None,
        );
        assert!(
            text.contains("bandwidth drop at 128 MiB") && text.contains("1 of 2 sizes"),
            "{text}"
        );
    }

    #[test]
    fn of_two_pairs_the_slow_one_is_named() {
        let text = output(
            &[
                log(["n1", "n2"], &[(64, 47.0)]),
                log(["n1", "n3"], &[(64, 20.0)]),
            ],
            None,
        );
        assert!(text.contains("2 pairs of nodes"), "{text}");
        assert!(
            text.contains(
                "n1 and n3\n             slow compared with the best run of this test, 47.00 GB/s"
            ),
            "{text}"
        );
    }
}
