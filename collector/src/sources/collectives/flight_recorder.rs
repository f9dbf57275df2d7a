//! Dumps of PyTorch's NCCL flight recorder: one file a rank, written when a collective times out. PyTorch writes them
//! itself in Python's pickle format, and also offers them as JSON.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de};

use super::CollectivesError;
use super::pickle::{is_pickle, parse_pickle};
use crate::jobs::straggler::{GroupState, RankState};

#[derive(Deserialize)]
struct RawDump {
    pg_config: BTreeMap<String, RawGroup>,
    /// By the rank's own number of the group.
    pg_status: BTreeMap<String, RawStatus>,
    /// PyTorch leaves an empty list out.
    #[serde(default)]
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
struct RawGroup {
    /// A list, as text.
    ranks: String,
}

/// Numbers in pickles, text in JSON (seen with PyTorch 2.11); other programs convert them to numbers.
#[derive(Deserialize)]
struct RawStatus {
    #[serde(deserialize_with = "number_or_text")]
    last_enqueued_collective: i64,
    #[serde(deserialize_with = "number_or_text")]
    last_completed_collective: i64,
}

fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(|_error| {
            let found = de::Unexpected::Str(&text);
            de::Error::invalid_value(found, &"a whole number")
        }),
    }
}

#[derive(Deserialize)]
struct RawEntry {
    pg_id: i64,
    /// Name and description.
    process_group: (String, String),
    collective_seq_id: i64,
    profiling_name: String,
    state: String,
    is_p2p: bool,
}

/// What one rank wrote.
pub struct Dump {
    rank: u32,
    raw: RawDump,
    members: BTreeMap<String, BTreeSet<u32>>,
}

impl Dump {
    /// The rank that wrote it.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }
}

/// The rank that a dump is of: the number at the end of its file's stem, as PyTorch names it.
///
/// # Errors
/// No number is there.
pub fn rank_of_file(file: &str) -> Result<u32, CollectivesError> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let digits = stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem[digits..].parse().map_err(|_error| CollectivesError {
        file: file.to_owned(),
        line: 0,
        field: "the file's name".to_owned(),
        found: format!("{name:?}"),
        expected: "a name that ends in the number of the rank".to_owned(),
    })
}

/// Whether a file that begins like this is a dump.
#[must_use]
pub fn is_flight_recorder(begin: &[u8]) -> bool {
    // PyTorch sorts the keys of its JSON: the groups come after thousands of entries.
    const KEYS: [&str; 3] = ["pg_config", "pg_status", "collective_seq_id"];
    let quote = if is_pickle(begin) { "" } else { "\"" };
    let text = String::from_utf8_lossy(begin);
    let mut keys = KEYS.iter();
    keys.any(|key| text.contains(&format!("{quote}{key}{quote}")))
}

/// Reads the dump of a rank.
///
/// # Errors
/// Neither JSON nor a pickle of plain data, a field missing or of another type, or an invalid list of ranks.
pub fn parse_dump(file: &str, rank: u32, bytes: &[u8]) -> Result<Dump, CollectivesError> {
    let refused = |line: usize, field: String, found: String| CollectivesError {
        file: file.to_owned(),
        line,
        field,
        found,
        expected: "a flight recorder's dump with pg_config and pg_status".to_owned(),
    };
    let raw: RawDump = if is_pickle(bytes) {
        let value = parse_pickle(bytes)
            .map_err(|error| refused(0, format!("byte {}", error.at), error.what))?;
        serde_json::from_value(value)
            .map_err(|error| refused(0, "the pickle".to_owned(), error.to_string()))?
    } else {
        serde_json::from_slice(bytes).map_err(|error| {
            let column = format!("column {}", error.column());
            refused(error.line(), column, error.to_string())
        })?
    };
    let mut members = BTreeMap::new();
    for (name, group) in &raw.pg_config {
        let ranks = serde_json::from_str(&group.ranks).map_err(|_error| CollectivesError {
            file: file.to_owned(),
            line: 0,
            field: format!("pg_config.{name}.ranks"),
            found: format!("{:?}", group.ranks),
            expected: "a list of ranks".to_owned(),
        })?;
        members.insert(name.clone(), ranks);
    }
    Ok(Dump { rank, raw, members })
}

/// Ranks that groups of these dumps have as members, of which there is no dump.
pub fn missing_ranks(dumps: &[Dump]) -> Vec<u32> {
    let members = dumps
        .iter()
        .flat_map(|dump| dump.members.values().flatten());
    let all: BTreeSet<u32> = members.copied().collect();
    let own: BTreeSet<u32> = dumps.iter().map(|dump| dump.rank).collect();
    all.difference(&own).copied().collect()
}

/// What the dumps of one job report about each rank and group.
///
/// A rank's status refers to groups by its own numbers, and only its entries map these to names. A rank without entries is
/// assumed to number a group as its other members do, if those agree; otherwise its status stays unknown.
pub fn rank_states(dumps: &[Dump]) -> Vec<RankState> {
    let mut numbers: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for entry in dumps.iter().flat_map(|dump| &dump.raw.entries) {
        numbers
            .entry(&entry.process_group.0)
            .or_default()
            .insert(entry.pg_id);
    }
    dumps
        .iter()
        .map(|dump| rank_state(dump, &numbers))
        .collect()
}

fn rank_state(dump: &Dump, numbers: &BTreeMap<&str, BTreeSet<i64>>) -> RankState {
    let groups = dump.members.iter().map(|(name, members)| {
        let entries = || {
            dump.raw
                .entries
                .iter()
                .filter(|entry| entry.process_group.0 == *name)
        };
        let agreed = || {
            numbers
                .get(name.as_str())
                .filter(|all| all.len() == 1)?
                .first()
                .copied()
        };
        let number = entries().next().map(|entry| entry.pg_id).or_else(agreed);
        let status = number.and_then(|number| dump.raw.pg_status.get(&number.to_string()));
        let pending = || entries().filter(|entry| entry.state != "completed" && !entry.is_p2p);
        let oldest = pending().min_by_key(|entry| entry.collective_seq_id);
        let known = |value: i64| u64::try_from(value).ok();
        let state = GroupState {
            members: members.clone(),
            description: entries().next().map(|entry| entry.process_group.1.clone()),
            has_point_to_point: entries().any(|entry| entry.is_p2p),
            last_enqueued: status.and_then(|status| known(status.last_enqueued_collective)),
            last_completed: status.and_then(|status| known(status.last_completed_collective)),
            oldest_pending: oldest.and_then(|entry| known(entry.collective_seq_id)),
            operation: oldest.map(|entry| entry.profiling_name.clone()),
        };
        (name.clone(), state)
    });
    RankState {
        rank: dump.rank,
        groups: groups.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_dumps_are_refused_with_file_and_field() {
        let check = |text: &str, expected: &str| {
            let error = parse_dump("dump_3.json", 3, text.as_bytes())
                .map(|_dump| ())
                .expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("", "dump_3.json:1");
        check("{\"pg_config\": {}}", "pg_status");
        let ranks = r#"{"pg_config": {"7": {"ranks": "[0, x]"}}, "pg_status": {}, "entries": []}"#;
        check(ranks, "pg_config.7.ranks");
        let status = r#"{"pg_status": {"0": {"last_enqueued_collective": "x"}}}"#;
        check(status, "whole number");
        check("\u{80}", "dump_3.json:1");
        let pickled = parse_dump("dump_3", 3, b"\x80\x02}.").map(|_dump| ());
        let error = pickled.expect_err("no dump").to_string();
        assert!(error.contains("pg_config"), "{error}");
        let imports = parse_dump("dump_3", 3, b"\x80\x02cos\nsystem\n.").map(|_dump| ());
        let error = imports.expect_err("no dump").to_string();
        assert!(error.contains("byte 2"), "{error}");
    }

    #[test]
    fn the_rank_is_the_number_at_the_end_of_the_name() {
        assert_eq!(rank_of_file("/tmp/_dump_12.json").ok(), Some(12));
        assert_eq!(rank_of_file("nccl_trace_rank_3").ok(), Some(3));
        assert!(rank_of_file("dump.json").is_err());
    }
}
