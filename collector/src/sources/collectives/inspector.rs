//! Dumps of NCCL's Inspector plugin: one JSON object a line, one line for each collective, send or receive of a process.

use std::sync::Arc;

use serde::Deserialize;

use super::CollectivesError;
use crate::jobs::straggler::{Membership, Operation, Process};

/// Seconds in the plugin's unit of time.
const MICROSECOND: f64 = 1e-6;

#[derive(Deserialize)]
struct RawLine {
    header: RawHeader,
    metadata: RawMetadata,
    coll_perf: Option<RawCollective>,
    p2p_perf: Option<RawTransfer>,
}

#[derive(Deserialize)]
struct RawHeader {
    id: String,
    /// `unknown`, or omitted by older versions, where the framework gave none.
    comm_name: Option<String>,
    rank: u32,
    n_ranks: u32,
    nnodes: u32,
}

#[derive(Deserialize)]
struct RawMetadata {
    dump_timestamp_us: u64,
    hostname: String,
    pid: u64,
}

#[derive(Deserialize)]
struct RawCollective {
    coll: String,
    coll_sn: u64,
    coll_msg_size_bytes: u64,
    coll_exec_time_us: u64,
    event_trace_ts: Option<RawTrace>,
}

#[derive(Deserialize)]
struct RawTransfer {
    p2p: String,
    p2p_msg_size_bytes: u64,
    p2p_exec_time_us: u64,
    event_trace_ts: Option<RawTrace>,
}

/// Only in verbose dumps.
#[derive(Deserialize)]
struct RawTrace {
    kernel_events: Vec<RawKernel>,
}

#[derive(Deserialize)]
struct RawKernel {
    kernel_start_ts: u64,
    kernel_stop_ts: u64,
}

impl RawTrace {
    /// First start and last end of its channels' kernels, microseconds.
    fn span(&self) -> Option<(u64, u64)> {
        let begin = self.kernel_events.iter().map(|one| one.kernel_start_ts);
        let end = self.kernel_events.iter().map(|one| one.kernel_stop_ts);
        let span = begin.filter(|at| *at > 0).min().zip(end.max());
        span.filter(|(begin, end)| begin < end)
    }
}

/// Whether a text begins as a dump of the plugin does.
pub fn is_dump(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| {
        line.trim_start().starts_with('{')
            && line.contains("\"header\"")
            && (line.contains("\"coll_perf\"") || line.contains("\"p2p_perf\""))
    })
}

/// Reads one line; none if it is empty.
///
/// # Errors
/// No JSON, a field missing or of another type, or neither a collective nor a transfer.
pub fn parse_line(
    file: &str,
    number: usize,
    line: &str,
) -> Result<Option<Operation>, CollectivesError> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |field: String, found: String, expected: &str| CollectivesError {
        file: file.to_owned(),
        line: number,
        field,
        found,
        expected: expected.to_owned(),
    };
    let raw: RawLine = serde_json::from_str(line).map_err(|error| {
        let field = format!("column {}", error.column());
        let expected = "an object with header, metadata, and coll_perf or p2p_perf";
        wrong(field, error.to_string(), expected)
    })?;
    let (name, number, bytes, micros, trace) = match (raw.coll_perf, raw.p2p_perf) {
        (Some(it), None) => (
            it.coll,
            Some(it.coll_sn),
            it.coll_msg_size_bytes,
            it.coll_exec_time_us,
            it.event_trace_ts,
        ),
        (None, Some(it)) => (
            it.p2p,
            None,
            it.p2p_msg_size_bytes,
            it.p2p_exec_time_us,
            it.event_trace_ts,
        ),
        (collective, _) => {
            let found = if collective.is_some() {
                "both"
            } else {
                "neither"
            };
            let field = "coll_perf, p2p_perf".to_owned();
            return Err(wrong(field, found.to_owned(), "one of them"));
        }
    };
    let named: Option<Arc<str>> = raw.header.comm_name.map(Into::into);
    let span = trace.and_then(|trace| trace.span());
    let recorded = span.map_or(raw.metadata.dump_timestamp_us, |(_, end)| end);
    Ok(Some(Operation {
        process: Process {
            host: raw.metadata.hostname.into(),
            pid: raw.metadata.pid,
        },
        member: Membership {
            communicator: raw.header.id.into(),
            name: named.filter(|name| **name != *"unknown"),
            rank: raw.header.rank,
            ranks: raw.header.n_ranks,
            hosts: raw.header.nnodes,
        },
        name: name.into(),
        number,
        bytes,
        seconds: micros as f64 * MICROSECOND,
        begin: span.map(|(begin, _)| begin as f64 * MICROSECOND),
        end: recorded as f64 * MICROSECOND,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"header":{"id":"0x7f","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin","dump_timestamp_us":5000000,"hostname":"n7","pid":9}"#;

    fn line(rest: &str) -> String {
        format!("{HEAD},{rest}}}")
    }

    const PLAIN: &str = r#""coll_perf":{"coll":"AllReduce","coll_sn":7,"coll_msg_size_bytes":1024,"coll_exec_time_us":2000,"coll_algobw_gbs":1.5,"coll_busbw_gbs":2.5}"#;

    #[test]
    fn a_collective_is_read_with_its_rank_and_its_time() {
        let read = parse_line("f", 1, &line(PLAIN))
            .expect("a line")
            .expect("one");
        assert_eq!((&*read.process.host, read.process.pid), ("n7", 9));
        assert_eq!((read.member.rank, read.member.ranks), (2, 8));
        assert_eq!((&*read.name, read.number), ("AllReduce", Some(7)));
        assert_eq!((read.seconds, read.begin, read.end), (0.002, None, 5.0));
    }

    #[test]
    fn a_verbose_dump_tells_when_kernels_ran_and_a_transfer_has_no_number() {
        let trace = r#""event_trace_ts":{"coll_start_ts":1,"coll_stop_ts":2,"kernel_events":[{"channel_id":0,"kernel_start_ts":4000000,"kernel_stop_ts":4500000,"kernel_record_ts":4500001},{"channel_id":1,"kernel_start_ts":4100000,"kernel_stop_ts":4600000,"kernel_record_ts":4600001}]}"#;
        let verbose = PLAIN.replace("\"coll_sn\"", &format!("{trace},\"coll_sn\""));
        let read = parse_line("f", 1, &line(&verbose))
            .expect("a line")
            .expect("one");
        assert_eq!((read.begin, read.end), (Some(4.0), 4.6));
        let send = r#""p2p_perf":{"p2p":"Send","p2p_sn":3,"p2p_peer":1,"p2p_msg_size_bytes":8,"p2p_exec_time_us":5}"#;
        let read = parse_line("f", 1, &line(send))
            .expect("a line")
            .expect("one");
        assert_eq!((&*read.name, read.number), ("Send", None));
    }

    #[test]
    fn a_bad_line_is_named_with_file_line_and_what_was_expected() {
        for (text, expected) in [
            ("{", "f:3: column 1"),
            (&*line("\"x\":1"), "found neither, expected one of them"),
            (&*line(&PLAIN.replace("2000", "\"long\"")), "f:3: column"),
        ] {
            let error = parse_line("f", 3, text).expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert_eq!(parse_line("f", 1, "  ").expect("empty"), None);
    }
}
