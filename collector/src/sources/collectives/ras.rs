//! Reads the output of NCCL's RAS client (`ncclras`), text and JSON: missing ranks, ranks that are behind, and hangs.
//!
//! The client lists the ranks of the smaller group, which can be ahead of the others or behind them. Its `OK` means that
//! no rank is missing, not that operations advance.

use std::collections::BTreeMap;

use serde_json::Value;

/// One output of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Communicators by their hash.
    pub communicators: BTreeMap<String, Communicator>,
    /// Processes that did not respond, as printed.
    pub missing: Vec<String>,
    /// Whether the table shows `OK` for every group.
    pub is_ok: bool,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Ranks by the number of their last launched operation.
    pub counts: BTreeMap<u64, Ranks>,
    /// Missing ranks.
    pub missing: Vec<String>,
}

/// Ranks with the same count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Number of ranks.
    pub number: usize,
    /// The listed ranks, with GPU, process and node as printed.
    pub listed: Vec<String>,
}

/// Whether a text is an output of the client.
pub fn is_ras(text: &str) -> bool {
    text.contains("Communicators... (")
        || (text.contains("\"communicators\"") && text.contains("\"collective_counts\""))
        || text.contains("ranks have launched up to operation")
}

/// Reads all outputs in a text, in order.
pub fn parse_ras(text: &str) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    // A text may contain several JSON outputs.
    if text.trim_start().starts_with('{') {
        let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        snapshots.extend(values.map_while(Result::ok).map(|value| of_json(&value)));
        return snapshots;
    }
    let mut begun = false;
    let mut rest = Vec::new();
    for line in text.lines() {
        if line.contains("Communicators... (") {
            if begun {
                snapshots.push(of_text(&rest));
            }
            rest.clear();
            begun = true;
        }
        rest.push(line);
    }
    snapshots.push(of_text(&rest));
    snapshots
}

fn of_json(value: &Value) -> Snapshot {
    let mut snapshot = Snapshot {
        is_ok: true,
        ..Snapshot::default()
    };
    let list = |value: &Value, key: &str| -> Vec<Value> {
        let items = value.get(key).and_then(Value::as_array);
        items.cloned().unwrap_or_default()
    };
    for one in list(value, "communicators") {
        let hash = one
            .get("hash")
            .and_then(Value::as_str)
            .unwrap_or("without a hash");
        let mut communicator = Communicator::default();
        for rank in list(&one, "ranks") {
            let counts = rank.get("collective_counts").and_then(Value::as_object);
            let counts = counts.into_iter().flat_map(|counts| counts.values());
            let sum = counts
                .filter_map(Value::as_u64)
                .fold(0, u64::saturating_add);
            let ranks = communicator.counts.entry(sum).or_default();
            ranks.number += 1;
            ranks.listed.push(describe_rank(&rank));
        }
        let missing = list(&one, "missing_ranks");
        communicator.missing = missing.iter().map(describe_rank).collect();
        snapshot.is_ok &= communicator.missing.is_empty();
        snapshot.communicators.insert(hash.to_owned(), communicator);
    }
    snapshot
}

fn describe_rank(rank: &Value) -> String {
    let number = |key: &str| rank.get(key).and_then(Value::as_u64);
    let host = rank
        .get("host")
        .and_then(Value::as_str)
        .unwrap_or("an unknown node");
    match (
        number("rank").or_else(|| rank.as_u64()),
        number("cuda_dev"),
        number("pid"),
    ) {
        (Some(own), Some(gpu), Some(pid)) => {
            format!("rank {own} (GPU {gpu}, process {pid} on {host})")
        }
        (Some(own), ..) => format!("rank {own}"),
        (None, ..) => "a rank without a number".to_owned(),
    }
}

fn of_text(lines: &[&str]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut own: Option<String> = None;
    let mut count: Option<u64> = None;
    let (mut ok, mut not_ok) = (0, 0);
    for line in lines.iter().map(|line| line.trim()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(hash) = header(line) {
            own = Some(hash.to_owned());
            count = None;
            snapshot.communicators.entry(hash.to_owned()).or_default();
            continue;
        }
        let communicator = own
            .as_ref()
            .and_then(|hash| snapshot.communicators.get_mut(hash));
        match (words.as_slice(), communicator) {
            (
                [
                    number,
                    "rank" | "ranks",
                    "have" | "has",
                    "launched",
                    "up",
                    "to",
                    "operation",
                    at,
                ],
                Some(of),
            ) => {
                count = at.parse().ok();
                if let (Some(at), Ok(number)) = (count, number.parse()) {
                    of.counts.entry(at).or_default().number = number;
                }
            }
            (["Rank", number, "--", ..], Some(of)) => {
                if let Some(ranks) = count.and_then(|at| of.counts.get_mut(&at)) {
                    let rest = line.split_once("--").map_or("", |(_, rest)| rest.trim());
                    ranks.listed.push(format!("rank {number} ({rest})"));
                }
            }
            (["The", "missing", "rank:" | "ranks:", rest @ ..], Some(of)) => {
                of.missing.push(format!("rank {}", rest.join(" ")));
            }
            (["Process", ..], _) => snapshot.missing.push(line.to_owned()),
            ([number, .., status, errors], _)
                if number.parse::<usize>().is_ok() && is_status(status) =>
            {
                match *errors {
                    "OK" => ok += 1,
                    _ => not_ok += 1,
                }
            }
            _ => {}
        }
    }
    snapshot.is_ok = ok > 0 && not_ok == 0;
    snapshot
}

fn is_status(word: &str) -> bool {
    word.len() > 3
        && word
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The hash of `#0-0 (27a079b828ff1a75) MISMATCH`.
fn header(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix('#')?.split_once('(')?;
    let (hash, _) = rest.split_once(')')?;
    Some(hash)
}

/// Findings from outputs in the order of time, as sentences; the flag marks those that need attention.
pub fn judge_ras(snapshots: &[Snapshot]) -> Vec<(String, bool)> {
    let mut findings = Vec::new();
    let Some(last) = snapshots.last() else {
        return findings;
    };
    for process in &last.missing {
        findings.push((format!("no answer from: {process}"), true));
    }
    for (hash, own) in &last.communicators {
        for missing in &own.missing {
            findings.push((
                format!("communicator {hash}: {missing} is missing; check it first"),
                true,
            ));
        }
        let before = snapshots
            .iter()
            .rev()
            .skip(1)
            .find_map(|one| one.communicators.get(hash));
        findings.extend(behind(hash, own, before));
    }
    let counted = last
        .communicators
        .values()
        .any(|own| !own.counts.is_empty());
    if last.is_ok && !counted {
        findings.push((
            "OK means that no rank is missing, not that operations advance: run \"ncclras -v -f json\" twice and pass both outputs".to_owned(),
            false,
        ));
    }
    findings
}

fn behind(hash: &str, own: &Communicator, before: Option<&Communicator>) -> Vec<(String, bool)> {
    let mut findings = Vec::new();
    let (Some((least, slow)), Some((most, fast))) =
        (own.counts.first_key_value(), own.counts.last_key_value())
    else {
        return findings;
    };
    let stands = before.map(|before| before.counts.keys().eq(own.counts.keys()));
    let still = match stands {
        Some(true) => ", and no count changed between the outputs: a HANG",
        Some(false) => ", while counts advance: work in progress",
        None => "; one output cannot distinguish a hang from work in progress, pass a second one",
    };
    if least == most {
        if stands == Some(true) {
            findings.push((
                format!("communicator {hash}: all {} ranks are stalled at operation {most}: a HANG even if the status is \"OK\", unless the job is idle", slow.number),
                true,
            ));
        }
        return findings;
    }
    let ranks = if slow.listed.is_empty() {
        format!(
            "the {} ranks that are NOT listed; the listed ones, {}, are ahead",
            slow.number,
            fast.listed.join(", ")
        )
    } else {
        slow.listed.join(", ")
    };
    findings.push((
        format!("communicator {hash}: behind at operation {least} of {most}: {ranks}{still}"),
        stands != Some(false),
    ));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(listed_are_ahead: bool, at: u64) -> String {
        let (many, few) = if listed_are_ahead {
            (at, at + 1)
        } else {
            (at + 1, at)
        };
        format!(
            "Communicators... (0.00s)\n=====\n\nGroup Comms Nodes Ranks Ranks Ranks Status Errors\n    0  1  4  8  32  32  RUNNING  MISMATCH\n\nWarnings\n========\n\n\
             #0-0 (27a0) MISMATCH\n  Communicator ranks have different collective operation counts\n  26 ranks have launched up to operation {many}\n  \
             6 ranks have launched up to operation {few}\n  Rank 3 -- GPU 3 managed by process 7 on node 10.0.0.1\n"
        )
    }

    fn findings(texts: &[String]) -> Vec<String> {
        let snapshots: Vec<Snapshot> = texts.iter().flat_map(|text| parse_ras(text)).collect();
        judge_ras(&snapshots)
            .into_iter()
            .map(|(finding, _)| finding)
            .collect()
    }

    #[test]
    fn ranks_that_are_behind_are_not_always_the_listed_ones() {
        let found = findings(&[text(false, 50)]);
        assert!(found[0].contains("behind at operation 50 of 51: rank 3 (GPU 3 managed by process 7 on node 10.0.0.1);"), "{found:?}");
        let found = findings(&[text(true, 50)]);
        assert!(
            found[0].contains("the 26 ranks that are NOT listed; the listed ones, rank 3"),
            "{found:?}"
        );
        assert!(
            found[0].contains("one output cannot distinguish"),
            "{found:?}"
        );
    }

    #[test]
    fn constant_counts_are_a_hang() {
        assert!(findings(&[text(false, 50), text(false, 50)])[0].ends_with("a HANG"));
        assert!(findings(&[text(false, 50), text(false, 60)])[0].ends_with("work in progress"));
        let json = |count: u64| {
            format!(
                r#"{{"communicators":[{{"hash":"0xa","ranks":[{{"rank":0,"host":"n1","pid":7,"cuda_dev":0,"collective_counts":{{"AllReduce":{count}}}}}],"missing_ranks":[]}}]}}"#
            )
        };
        let found = findings(&[format!("{}\n{}", json(4), json(4))]);
        assert!(
            found[0].contains("all 1 ranks are stalled at operation 4: a HANG"),
            "{found:?}"
        );
        assert_eq!(findings(&[json(4), json(5)]), ["x"; 0]);
        let ok = "Communicators... (0.00s)\n    0  8  4  1  4  32  RUNNING  OK\n";
        assert!(findings(&[ok.to_owned()])[0].starts_with("OK means that no rank is missing"));
    }

    #[test]
    fn a_missing_process_is_reported() {
        let text = "Communicators... (2.05s)\n 0 1 4 7-8 32 32 RUNNING INCOMPLETE\nErrors\nINCOMPLETE\n  Process 34 on node 10.0.0.2 managing GPU 5\n#0-0 (cf) INCOMPLETE\n  The missing rank: 21\n";
        let found = findings(&[text.to_owned()]);
        assert_eq!(
            found,
            [
                "no answer from: Process 34 on node 10.0.0.2 managing GPU 5",
                "communicator cf: rank 21 is missing; check it first"
            ]
        );
    }
}
