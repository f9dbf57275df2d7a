//! What nccl-tests print: the nodes of a run and its bus bandwidth.

use std::collections::BTreeSet;

use super::{CollectivesError, unlabeled};

/// One test of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct TestRun {
    /// `alltoall_perf`, as the test reports; none for versions that do not.
    pub test: Option<String>,
    /// Names of the nodes it ran on.
    pub nodes: BTreeSet<String>,
    /// How many GPUs took part.
    pub ranks: usize,
    /// Mean bus bandwidth over all sizes, as the test reports, in bytes a second; of a truncated table, that of its
    /// rows.
    pub bandwidth: f64,
    /// Whether the text ends before the test reports its mean.
    pub truncated: bool,
    /// The rows of the table, by message size.
    pub sizes: Vec<Size>,
    /// GPU model that the test prints.
    pub gpu: Option<String>,
}

/// A row of the result table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Message size in bytes.
    pub bytes: u64,
    /// Out-of-place bus bandwidth, in bytes per second.
    pub bandwidth: f64,
    /// Number of wrong values; 0 if the test does not check them.
    pub wrong: u64,
}

/// Parses a row: `size count type redop [root] time algbw busbw wrong`, the last four repeated for in-place.
fn size(words: &[&str]) -> Option<Size> {
    let busbw = match words.len() {
        13 => 7,
        12 => 6,
        _ => return None,
    };
    let bandwidth: f64 = words[busbw].parse().ok()?;
    Some(Size {
        bytes: words[0].parse().ok()?,
        bandwidth: bandwidth.is_finite().then_some(bandwidth * GIGABYTE)?,
        // Hydra labels every part of a line that the test writes at once: `0[0]`.
        wrong: words[busbw + 1]
            .split('[')
            .next()
            .and_then(|wrong| wrong.parse().ok())
            .unwrap_or(0),
    })
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Tests that ended.
    pub runs: Vec<TestRun>,
    /// Tests that began and never printed a bandwidth.
    pub unfinished: usize,
}

/// Bytes a second in the unit that nccl-tests print.
const GIGABYTE: f64 = 1e9;

/// What is known of the test at a line.
#[derive(Default)]
struct Begun {
    test: Option<String>,
    hosts: Vec<String>,
    /// One more than the highest rank in the list.
    ranks: usize,
    /// Whether the heading of the table was seen.
    has_heading: bool,
    sizes: Vec<Size>,
    gpu: Option<String>,
}

impl Begun {
    /// Ends the test with its mean, without which the text is truncated.
    fn end(&mut self, mean: Option<f64>, log: &mut Log) {
        let Self {
            test,
            hosts,
            ranks,
            has_heading,
            sizes,
            gpu,
        } = std::mem::take(self);
        if mean.is_none() && (sizes.is_empty() || !has_heading) {
            log.unfinished += usize::from(test.is_some() || !hosts.is_empty());
            return;
        }
        let of_rows = || {
            let sum: f64 = sizes.iter().map(|row| row.bandwidth).sum();
            sum / sizes.len().max(1) as f64
        };
        log.runs.push(TestRun {
            test,
            ranks: ranks.max(hosts.len()),
            // Of a truncated list of ranks, the nodes are unknown.
            nodes: match hosts.len() < ranks {
                true => BTreeSet::new(),
                false => hosts.into_iter().collect(),
            },
            bandwidth: mean.unwrap_or_else(of_rows),
            truncated: mean.is_none(),
            sizes,
            gpu,
        });
    }
}

/// Reads a log, of one test or of several in a row, also with the labels of launchers.
///
/// # Errors
/// A line names a rank or a bandwidth and cannot be read.
pub fn parse_log(file: &str, text: &str) -> Result<Log, CollectivesError> {
    let mut log = Log::default();
    let mut begun = Begun::default();
    for (number, line) in text.lines().enumerate() {
        let wrong = |field: &str, expected: &str| CollectivesError {
            file: file.to_owned(),
            line: number + 1,
            field: field.to_owned(),
            found: format!("{line:?}"),
            expected: expected.to_owned(),
        };
        let words: Vec<&str> = unlabeled(line).split_whitespace().collect();
        match words[..] {
            ["#", "Collective", "test", "starting:", name] => {
                begun.end(None, &mut log);
                begun.test = Some(name.to_owned());
            }
            ["#", "Rank", rank, ref rest @ ..] => {
                let on = rest.iter().position(|word| *word == "on");
                let host = on.and_then(|on| rest.get(on + 1));
                let host = host.ok_or_else(|| wrong("Rank", "`on` and the node's name"))?;
                begun.hosts.push((*host).to_owned());
                let rank = rank.parse::<u32>().map_or(0, |rank| rank as usize + 1);
                begun.ranks = begun.ranks.max(rank);
                let name = rest.iter().position(|word| word.ends_with(']'));
                begun.gpu = name
                    .map(|at| rest[at + 1..].join(" "))
                    .filter(|name| !name.is_empty());
            }
            ["#", "Avg", "bus", "bandwidth", ref rest @ ..] => {
                let value: Option<f64> = rest.last().and_then(|value| value.parse().ok());
                let value = value.filter(|value| value.is_finite() && *value >= 0.0);
                let value =
                    value.ok_or_else(|| wrong("Avg bus bandwidth", "gigabytes a second"))?;
                begun.end(Some(value * GIGABYTE), &mut log);
            }
            _ if words.contains(&"busbw") => begun.has_heading = true,
            _ => begun.sizes.extend(size(&words)),
        }
    }
    begun.end(None, &mut log);
    Ok(log)
}

/// Parses a plain list of pairs, `node node GB/s` separated by blanks or commas, with an optional heading. `None` if the
/// text is something else.
pub fn parse_pairs(text: &str) -> Option<Vec<TestRun>> {
    let mut runs = Vec::new();
    let lines = text.lines().map(str::trim);
    for (place, line) in lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .enumerate()
    {
        let words: Vec<&str> = line
            .split([' ', '\t', ',', ';'])
            .filter(|word| !word.is_empty())
            .collect();
        let [a, b, value, unit @ ..] = words.as_slice() else {
            return None;
        };
        let number: Option<f64> = value
            .parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value >= 0.0);
        let is_name = |word: &str| {
            word.starts_with(|sign: char| sign.is_ascii_alphabetic())
                && word.parse::<f64>().is_err()
        };
        let scale = match unit {
            [] => 1.0,
            ["GB/s" | "GBps"] => 1.0,
            ["Gb/s" | "Gbps" | "Gbit/s"] => 0.125,
            _ => return None,
        };
        match number {
            Some(number) if is_name(a) && is_name(b) && a != b => runs.push(TestRun {
                test: Some("list of pairs".to_owned()),
                nodes: BTreeSet::from([(*a).to_owned(), (*b).to_owned()]),
                ranks: 2,
                bandwidth: number * scale * GIGABYTE,
                truncated: false,
                sizes: Vec::new(),
                gpu: None,
            }),
            // A heading.
            None if place == 0 => {}
            _ => return None,
        }
    }
    (!runs.is_empty()).then_some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
# Collective test starting: alltoall_perf
#  Rank  0 Group  0 Pid 1 on n1 device  0 [0000:1b:00] NVIDIA
#  Rank  1 Group  0 Pid 2 on n2 device  0 [0000:1b:00] NVIDIA
    33554432        524288    double    none      -1    529.7   63.34   55.43      0    526.1   63.78   55.80    N/A
    67108864       1048576    double     sum            990.9   67.73   59.26      2    976.7   68.71   60.12    N/A
# Avg bus bandwidth    : 72.5
# Collective test starting: sendrecv_perf
#  Rank  0 Group  0 Pid 1 on n1 device  0 [0000:1b:00] NVIDIA
";

    #[test]
    fn a_test_without_a_bandwidth_is_counted() {
        let log = parse_log("log", LOG).expect("a log");
        assert_eq!((log.runs.len(), log.unfinished), (1, 1));
        assert_eq!((log.runs[0].ranks, log.runs[0].bandwidth), (2, 72.5e9));
        assert_eq!(log.runs[0].test.as_deref(), Some("alltoall_perf"));
        let rows = log.runs[0].sizes.iter();
        let rows: Vec<_> = rows
            .map(|row| (row.bytes, row.bandwidth, row.wrong))
            .collect();
        assert_eq!(rows, [(1 << 25, 55.43e9, 0), (1 << 26, 59.26e9, 2)]);
        assert_eq!(log.runs[0].gpu.as_deref(), Some("NVIDIA"));
    }

    #[test]
    fn a_table_is_read_with_the_labels_of_launchers_and_without_its_end() {
        let rows = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n  33554432  8388608  float  sum  -1  2180.1  15.39  29.50  0  2285.2  14.68  28.14  0\n  67108864  16777216  float  sum  -1[0]  24410  2.75  5.27  3[0]  24425  2.75  5.27  0\n";
        for label in ["", "[0]", "0: ", "   [1,0]<stdout>:"] {
            let whole = format!("{rows}# Avg bus bandwidth : 17.3\n");
            let labeled = |text: &str| -> String {
                let lines = text.lines().map(|line| format!("{label}{line}\n"));
                lines.collect()
            };
            let log = parse_log("log", &labeled(&whole)).expect("a log");
            let runs: Vec<_> = log
                .runs
                .iter()
                .map(|run| (run.bandwidth, run.truncated, run.sizes.len()))
                .collect();
            assert_eq!(runs, [(17.3e9, false, 2)], "{label}");
            assert_eq!(log.runs[0].sizes[1].wrong, 3);
            let log = parse_log("log", &labeled(rows)).expect("a log");
            let runs: Vec<_> = log
                .runs
                .iter()
                .map(|run| (run.bandwidth.round(), run.truncated))
                .collect();
            assert_eq!(
                (runs, log.unfinished),
                (vec![(17.385e9, true)], 0),
                "{label}"
            );
        }
        let other = parse_log("log", &"1 2 3 4 5 6 7 8 9 10 11 12 13\n".repeat(3));
        assert_eq!(other.expect("no log"), Log::default());
    }

    #[test]
    fn a_truncated_list_of_ranks_says_how_many_there_are_and_no_nodes() {
        let log = parse_log(
            "log",
            "#  Rank 71 Group  0 Pid 1 on n9 device  3 [0x01] NVIDIA\n# Avg bus bandwidth : 745.5\n",
        );
        let run = &log.expect("a log").runs[0];
        assert_eq!((run.ranks, run.nodes.len()), (72, 0));
    }

    #[test]
    fn a_plain_list_of_pairs_is_read_and_other_texts_are_not() {
        let runs =
            parse_pairs("# pairs\nsrc dst GB/s\nn1 n2 48.1\nn1,n3,380 Gb/s\n").expect("a list");
        assert_eq!(
            runs.iter().map(|run| run.bandwidth).collect::<Vec<_>>(),
            [48.1e9, 47.5e9]
        );
        for text in [
            "",
            "n1 n2\n",
            "hello world 3 4 5\n",
            "n1 n1 4\n",
            "1 2 3\n",
            "n1 n2 4\nn1 n2 four\n",
        ] {
            assert_eq!(parse_pairs(text), None, "{text}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = parse_log("log", &LOG.replace("72.5", "much")).expect_err("no number");
        assert!(
            error.to_string().starts_with("log:6: Avg bus bandwidth"),
            "{error}"
        );
        let error = parse_log("log", "# Rank 0 Pid 1 at n1").expect_err("no node");
        assert!(error.to_string().starts_with("log:1: Rank"), "{error}");
    }
}
