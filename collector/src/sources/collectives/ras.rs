//! What NCCL's RAS client (`ncclras`) prints, text and JSON: who is missing, who is behind, and what stands still.
//!
//! The ranks that it lists are those of the smaller group, which may be ahead of the others as well as behind them;
//! and its `OK` says that nobody is missing, not that anything moves.

use std::collections::BTreeMap;

use serde_json::Value;

/// One answer of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Communicators by their hash.
    pub communicators: BTreeMap<String, Communicator>,
    /// Processes that did not answer, word by word.
    pub missing: Vec<String>,
    /// Whether the table called every group `OK`.
    pub is_ok: bool,
}

/// What is said of one communicator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communicator {
    /// Ranks by the operation that they have launched last.
    pub counts: BTreeMap<u64, Ranks>,
    /// Ranks that are missing.
    pub missing: Vec<String>,
}

/// Ranks of one count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// How many.
    pub number: usize,
    /// Those that are listed, with GPU, process and node as they are said.
    pub listed: Vec<String>,
}

/// Whether a text is an answer of the client.
pub fn is_ras(text: &str) -> bool {
    text.contains("Communicators... (")
        || (text.contains("\"communicators\"") && text.contains("\"collective_counts\""))
        || text.contains("ranks have launched up to operation")
}

/// Reads all answers in a text, first to last.
pub fn parse_ras(text: &str) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    // Several JSON answers may stand behind each other.
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
            ranks.listed.push(rank_in_words(&rank));
        }
        let missing = list(&one, "missing_ranks");
        communicator.missing = missing.iter().map(rank_in_words).collect();
        snapshot.is_ok &= communicator.missing.is_empty();
        snapshot.communicators.insert(hash.to_owned(), communicator);
    }
    snapshot
}

fn rank_in_words(rank: &Value) -> String {
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

/// What answers in the order of time say, in sentences; the flag says whether somebody should look.
pub fn judge_ras(snapshots: &[Snapshot]) -> Vec<(String, bool)> {
    let mut said = Vec::new();
    let Some(last) = snapshots.last() else {
        return said;
    };
    for process in &last.missing {
        said.push((format!("does not answer: {process}"), true));
    }
    for (hash, own) in &last.communicators {
        for missing in &own.missing {
            said.push((
                format!("communicator {hash}: {missing} is missing: look there first"),
                true,
            ));
        }
        let before = snapshots
            .iter()
            .rev()
            .skip(1)
            .find_map(|one| one.communicators.get(hash));
        said.extend(behind(hash, own, before));
    }
    let counted = last
        .communicators
        .values()
        .any(|own| !own.counts.is_empty());
    if last.is_ok && !counted {
        said.push((
            "OK says that nobody is missing, not that operations go on: ask twice with \"ncclras -v -f json\" and give both answers".to_owned(),
            false,
        ));
    }
    said
}

fn behind(hash: &str, own: &Communicator, before: Option<&Communicator>) -> Vec<(String, bool)> {
    let mut said = Vec::new();
    let (Some((least, slow)), Some((most, fast))) =
        (own.counts.first_key_value(), own.counts.last_key_value())
    else {
        return said;
    };
    let stands = before.map(|before| before.counts.keys().eq(own.counts.keys()));
    let still = match stands {
        Some(true) => ", and no count moved between the answers: a HANG",
        Some(false) => ", while counts move: work in progress",
        None => "; one answer cannot tell a hang from work in progress, a second one can",
    };
    if least == most {
        if stands == Some(true) {
            said.push((
                format!("communicator {hash}: all {} ranks stand at operation {most}: a HANG, whatever \"OK\" says, unless nobody has anything to send", slow.number),
                true,
            ));
        }
        return said;
    }
    let who = if slow.listed.is_empty() {
        format!(
            "the {} ranks that are NOT listed; those that are, {}, are ahead",
            slow.number,
            fast.listed.join(", ")
        )
    } else {
        slow.listed.join(", ")
    };
    said.push((
        format!("communicator {hash}: behind at operation {least} of {most}: {who}{still}"),
        stands != Some(false),
    ));
    said
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

    fn told(texts: &[String]) -> Vec<String> {
        let snapshots: Vec<Snapshot> = texts.iter().flat_map(|text| parse_ras(text)).collect();
        judge_ras(&snapshots)
            .into_iter()
            .map(|(said, _)| said)
            .collect()
    }

    #[test]
    fn who_is_behind_is_not_who_is_listed() {
        let said = told(&[text(false, 50)]);
        assert!(said[0].contains("behind at operation 50 of 51: rank 3 (GPU 3 managed by process 7 on node 10.0.0.1);"), "{said:?}");
        let said = told(&[text(true, 50)]);
        assert!(
            said[0].contains("the 26 ranks that are NOT listed; those that are, rank 3"),
            "{said:?}"
        );
        assert!(said[0].contains("one answer cannot tell"), "{said:?}");
    }

    #[test]
    fn counts_that_stand_still_are_a_hang() {
        assert!(told(&[text(false, 50), text(false, 50)])[0].ends_with("a HANG"));
        assert!(told(&[text(false, 50), text(false, 60)])[0].ends_with("work in progress"));
        let json = |count: u64| {
            format!(
                r#"{{"communicators":[{{"hash":"0xa","ranks":[{{"rank":0,"host":"n1","pid":7,"cuda_dev":0,"collective_counts":{{"AllReduce":{count}}}}}],"missing_ranks":[]}}]}}"#
            )
        };
        let said = told(&[format!("{}\n{}", json(4), json(4))]);
        assert!(
            said[0].contains("all 1 ranks stand at operation 4: a HANG"),
            "{said:?}"
        );
        assert_eq!(told(&[json(4), json(5)]), ["x"; 0]);
        let ok = "Communicators... (0.00s)\n    0  8  4  1  4  32  RUNNING  OK\n";
        assert!(told(&[ok.to_owned()])[0].starts_with("OK says that nobody is missing"));
    }

    #[test]
    fn a_missing_process_is_named() {
        let text = "Communicators... (2.05s)\n 0 1 4 7-8 32 32 RUNNING INCOMPLETE\nErrors\nINCOMPLETE\n  Process 34 on node 10.0.0.2 managing GPU 5\n#0-0 (cf) INCOMPLETE\n  The missing rank: 21\n";
        let said = told(&[text.to_owned()]);
        assert_eq!(
            said,
            [
                "does not answer: Process 34 on node 10.0.0.2 managing GPU 5",
                "communicator cf: rank 21 is missing: look there first"
            ]
        );
    }
}
