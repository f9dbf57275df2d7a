//! What logs of nccl-tests measured, in numbers, and what of it is slow: against line rate, over sizes, against each other.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use railscope_collector::jobs::straggler::{Pair, Unevenness, judge_pairs};
use railscope_collector::sources::collectives::nccl_tests::{Size, TestRun};
use serde::Serialize;

const GIGABYTE: f64 = 1e9;
/// Smaller messages are bound by latency and say nothing of bandwidth (nccl-tests' own examples level off past it).
const BULK_BYTES: u64 = 16 << 20;
/// A bandwidth falls off a cliff when it falls below this share of what a smaller message reached. Changes of protocol
/// and algorithm cost some tenths; the healthy recordings lose at most one.
const CLIFF: f64 = 0.5;
/// Slow is less than this share of a line rate that was given, ...
const SLOW_OF_GIVEN: f64 = 0.5;
/// ... and of one that was guessed by the GPU. Healthy pairs of the recordings reach 0.48 with the slowest test.
const SLOW_OF_GUESSED: f64 = 0.25;
/// A pair is slow beside others when it reaches less than this share of the best of the same test.
const SLOW_OF_BEST: f64 = 0.5;
/// Runs that are listed of a test; more are summed up by their slowest.
const MAX_LISTED: usize = 8;

/// Bytes a second of the NIC that nodes with such GPUs mostly have for each (NVIDIA's DGX and HGX data sheets).
const NIC_OF_GPU: [(&str, f64); 6] = [
    ("B300", 100e9),
    ("B200", 50e9),
    ("H100", 50e9),
    ("H200", 50e9),
    ("H800", 50e9),
    ("A100", 25e9),
];

/// Runs of one test on as many nodes and GPUs: only these may be held against each other.
#[derive(Debug, Serialize)]
pub(super) struct TestReport {
    test: String,
    nodes: usize,
    ranks: usize,
    runs: Vec<RunReport>,
    /// Pairs of nodes among them.
    pairs: usize,
    /// What the matrix of pairs says.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
}

/// One run.
#[derive(Debug, Serialize)]
struct RunReport {
    nodes: Vec<String>,
    /// Mean over all sizes, as the test says.
    mean_gigabytes_per_second: f64,
    /// Of the best size, and that size.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<Best>,
    findings: Vec<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Best {
    gigabytes_per_second: f64,
    bytes: u64,
}

/// Every test, by name, nodes and GPUs. `line_rate`: bytes a second that somebody says a NIC has.
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
        let best = runs.iter().map(|run| run.bandwidth).fold(0.0, f64::max);
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
    findings.extend(cliff(&run.sizes));
    if run.bandwidth < SLOW_OF_BEST * best_of_test {
        let best = best_of_test / GIGABYTE;
        findings.push(format!(
            "slow beside the best run of this test, {best:.2} GB/s"
        ));
    }
    let wrong: u64 = run
        .sizes
        .iter()
        .fold(0, |sum, row| sum.saturating_add(row.wrong));
    if wrong > 0 {
        findings.push(format!(
            "{wrong} WRONG VALUES: data was corrupted on the way"
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

/// One run is enough to say that it is far from what its NICs can do.
fn against_line_rate(run: &TestRun, best: Option<Size>, given: Option<f64>) -> Option<String> {
    let gpu = run.gpu.as_deref().unwrap_or_default();
    let guessed = || NIC_OF_GPU.iter().find(|(name, _)| gpu.contains(name));
    let (rate, share, whose) = match (given, guessed()) {
        (Some(rate), _) => (rate, SLOW_OF_GIVEN, "as --line-rate says".to_owned()),
        (None, Some((name, rate))) => (
            *rate,
            SLOW_OF_GUESSED,
            format!("that nodes with {name} mostly have; --line-rate says another"),
        ),
        (None, None) => return None,
    };
    // Of a log without its table the mean is all there is.
    let reached = match best {
        Some(best) if best.bytes >= BULK_BYTES => best.bandwidth,
        Some(_) => return None,
        None => run.bandwidth,
    };
    (reached < share * rate).then(|| {
        format!(
            "slow against line rate: at best {:.0} % of the {:.0} GB/s of one NIC, {whose}",
            100.0 * reached / rate,
            rate / GIGABYTE
        )
    })
}

/// Where the bandwidth falls though the messages grow.
fn cliff(sizes: &[Size]) -> Option<String> {
    let mut best: Option<Size> = None;
    let mut fallen: Option<(Size, Size, usize)> = None;
    for row in sizes.iter().filter(|row| row.bytes >= BULK_BYTES) {
        match (best, &mut fallen) {
            (Some(best), None) if row.bandwidth < CLIFF * best.bandwidth => {
                fallen = Some((best, *row, 1));
            }
            (Some(best), Some((.., low))) if row.bandwidth < CLIFF * best.bandwidth => *low += 1,
            (Some(best), _) if best.bandwidth >= row.bandwidth => {}
            _ => best = Some(*row),
        }
    }
    let (before, at, low) = fallen?;
    let later = sizes.iter().filter(|row| row.bytes >= at.bytes).count();
    Some(format!(
        "a cliff at {}: {:.2} GB/s where {} reached {:.2}; {}",
        bytes(at.bytes),
        at.bandwidth / GIGABYTE,
        bytes(before.bytes),
        before.bandwidth / GIGABYTE,
        if low >= later {
            "all larger sizes are as slow".to_owned()
        } else {
            format!("{low} of {later} sizes from there on are as slow")
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

/// What the matrix of pairs says; nothing for so few that single runs say it all.
fn verdict(unevenness: &Unevenness, pairs: usize) -> Option<String> {
    Some(match unevenness {
        Unevenness::Undecided if pairs < 3 => return None,
        Unevenness::Undecided => {
            "fewer than four nodes, or not every pair was measured: single pairs only".to_owned()
        }
        Unevenness::Even => "no pair is slow beside the others".to_owned(),
        Unevenness::Nodes(nodes) => format!("slow with nearly everybody: {}", nodes.join(", ")),
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
    /// The report in words.
    pub(super) fn tell(&self, out: &mut String) -> fmt::Result {
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
        writeln!(
            out,
            "  {} on {} GPUs, {what}{verdict}",
            self.test, self.ranks
        )?;
        let mut runs: Vec<&RunReport> = self.runs.iter().collect();
        runs.sort_by(|a, b| {
            a.mean_gigabytes_per_second
                .total_cmp(&b.mean_gigabytes_per_second)
        });
        // Of many runs the odd ones and the slowest say what there is to say.
        let listed = if runs.len() > MAX_LISTED {
            3
        } else {
            runs.len()
        };
        for (place, run) in runs.iter().enumerate() {
            if place < listed || (!run.findings.is_empty() && place < 2 * MAX_LISTED) {
                run.tell(out)?;
            }
        }
        if let Some(fastest) = runs.last().filter(|_| runs.len() > listed) {
            writeln!(out, "    ... the best of {} runs:", runs.len())?;
            fastest.tell(out)?;
        }
        Ok(())
    }
}

impl RunReport {
    fn tell(&self, out: &mut String) -> fmt::Result {
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

    /// A log over two nodes with H100, size by size.
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

    fn told(logs: &[String], line_rate: Option<f64>) -> String {
        let runs: Vec<TestRun> = logs
            .iter()
            .flat_map(|log| parse_log("log", log).expect("a log").runs)
            .collect();
        let mut text = String::new();
        for test in tests(&runs, line_rate) {
            test.tell(&mut text).expect("told");
        }
        text
    }

    #[test]
    fn one_pair_has_its_bandwidth_printed_and_is_held_against_line_rate() {
        for (busbw, expected) in [
            (1.89, "at best 4 % of the 50 GB/s"),
            (6.67, "at best 13 % of the 50 GB/s"),
        ] {
            let text = told(&[log(["n1", "n2"], &[(64, busbw), (128, busbw)])], None);
            assert!(text.contains(&format!("{busbw} GB/s on average")), "{text}");
            assert!(
                text.contains("slow against line rate") && text.contains(expected),
                "{text}"
            );
        }
        let text = told(&[log(["n1", "n2"], &[(64, 47.8), (128, 48.1)])], None);
        assert!(
            text.contains("48.10 at 128 MiB  n1 and n2") && !text.contains("slow"),
            "{text}"
        );
        // A NIC of a tenth of that, and somebody says so.
        let text = told(&[log(["n1", "n2"], &[(64, 4.8)])], Some(5e9));
        assert!(!text.contains("slow"), "{text}");
    }

    #[test]
    fn a_cliff_is_said_with_its_size() {
        let text = told(
            &[log(
                ["n1", "n2"],
                &[(64, 46.0), (128, 47.9), (256, 12.0), (512, 11.5)],
            )],
            None,
        );
        assert!(text.contains("a cliff at 256 MiB: 12.00 GB/s where 128 MiB reached 47.90; all larger sizes are as slow"), "{text}");
        let text = told(
            &[log(["n1", "n2"], &[(64, 46.0), (128, 12.0), (256, 47.0)])],
            None,
        );
        assert!(
            text.contains("a cliff at 128 MiB") && text.contains("1 of 2 sizes"),
            "{text}"
        );
    }

    #[test]
    fn of_two_pairs_the_slow_one_is_named() {
        let text = told(
            &[
                log(["n1", "n2"], &[(64, 47.0)]),
                log(["n1", "n3"], &[(64, 20.0)]),
            ],
            None,
        );
        assert!(text.contains("2 pairs of nodes"), "{text}");
        assert!(
            text.contains(
                "n1 and n3\n             slow beside the best run of this test, 47.00 GB/s"
            ),
            "{text}"
        );
    }
}
