//! Dumps of NCCL's Inspector plugin, versions 4.0 to 4.4: one JSON object a line, one line for each collective, send or
//! receive of a process.
//!
//! From v4.1 on, each dump of a communicator begins with a marker: a line with header, metadata and statistics of the dump.
//! From v4.3 on, only the marker has header and metadata; the lines up to the next marker are of its communicator.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::CollectivesError;
use crate::jobs::straggler::{Membership, Operation, Process};

/// Seconds in the plugin's unit of time.
const MICROSECOND: f64 = 1e-6;

#[derive(Deserialize)]
struct RawLine {
    header: Option<RawHeader>,
    metadata: Option<RawMetadata>,
    /// Only in markers.
    dump_stats: Option<RawStats>,
    coll_perf: Option<RawCollective>,
    p2p_perf: Option<RawTransfer>,
    proxy_trace: Option<IgnoredAny>,
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
struct RawStats {
    #[serde(default)]
    coll_dropped_since_last_dump: u64,
    #[serde(default)]
    p2p_dropped_since_last_dump: u64,
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

/// A collective, or a transfer, which has no number.
struct Record {
    name: String,
    number: Option<u64>,
    bytes: u64,
    micros: u64,
    trace: Option<RawTrace>,
}

impl From<RawCollective> for Record {
    fn from(raw: RawCollective) -> Self {
        Self {
            name: raw.coll,
            number: Some(raw.coll_sn),
            bytes: raw.coll_msg_size_bytes,
            micros: raw.coll_exec_time_us,
            trace: raw.event_trace_ts,
        }
    }
}

impl From<RawTransfer> for Record {
    fn from(raw: RawTransfer) -> Self {
        Self {
            name: raw.p2p,
            number: None,
            bytes: raw.p2p_msg_size_bytes,
            micros: raw.p2p_exec_time_us,
            trace: raw.event_trace_ts,
        }
    }
}

/// Header and metadata: whose operations follow, and when they were dumped.
#[derive(Clone, Debug)]
struct Context {
    process: Process,
    member: Membership,
    dumped_micros: u64,
}

impl Context {
    fn new(header: RawHeader, metadata: RawMetadata) -> Self {
        let named: Option<Arc<str>> = header.comm_name.map(Into::into);
        Self {
            process: Process {
                host: metadata.hostname.into(),
                pid: metadata.pid,
            },
            member: Membership {
                communicator: header.id.into(),
                name: named.filter(|name| **name != *"unknown"),
                rank: header.rank,
                ranks: header.n_ranks,
                hosts: header.nnodes,
            },
            dumped_micros: metadata.dump_timestamp_us,
        }
    }

    fn operation(self, record: Record) -> Operation {
        let span = record.trace.and_then(|trace| trace.span());
        let recorded = span.map_or(self.dumped_micros, |(_, end)| end);
        Operation {
            process: self.process,
            member: self.member,
            name: record.name.into(),
            number: record.number,
            bytes: record.bytes,
            seconds: record.micros as f64 * MICROSECOND,
            begin: span.map(|(begin, _)| begin as f64 * MICROSECOND),
            end: recorded as f64 * MICROSECOND,
        }
    }
}

/// What is wrong with a line.
struct Wrong {
    field: String,
    found: String,
    expected: &'static str,
}

impl Wrong {
    /// One of two fields, both of them, or neither.
    fn pair(fields: &str, found: [bool; 2], expected: &'static str) -> Self {
        let found = match found {
            [true, true] => "both",
            [false, false] => "neither",
            _ => "one of them",
        };
        Self {
            field: fields.to_owned(),
            found: found.to_owned(),
            expected,
        }
    }
}

/// Whether a text begins as a dump of the plugin does.
pub fn is_dump(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| {
        line.trim_start().starts_with('{')
            && line.contains("\"header\"")
            && ["\"coll_perf\"", "\"p2p_perf\"", "\"dump_stats\""]
                .iter()
                .any(|field| line.contains(field))
    })
}

/// Reads the lines of one file in their order.
#[derive(Debug, Default)]
pub struct Lines {
    /// Of the last marker.
    context: Option<Context>,
    dropped: u64,
}

impl Lines {
    /// Reads the next line. None if it has no operation: empty lines, markers, records of proxies, and lines without a
    /// header before the first marker, where reading began in the middle of a file.
    ///
    /// # Errors
    /// Invalid JSON, a field missing or of another type, or neither a collective nor a transfer. If the line may have been a
    /// marker, lines without a header are skipped until the next one.
    pub fn read(
        &mut self,
        file: &str,
        number: usize,
        line: &str,
    ) -> Result<Option<Operation>, CollectivesError> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        self.read_object(line).map_err(|wrong| {
            // One that may have been a marker: what follows it is not of the one before.
            let is_object = serde_json::from_str::<IgnoredAny>(line).is_ok();
            if !is_object || line.contains("\"header\"") || line.contains("\"dump_stats\"") {
                self.context = None;
            }
            CollectivesError {
                file: file.to_owned(),
                line: number,
                field: wrong.field,
                found: wrong.found,
                expected: wrong.expected.to_owned(),
            }
        })
    }

    /// Collectives and transfers that the plugin dropped before it could dump them: sums of wait times lack them.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn read_object(&mut self, line: &str) -> Result<Option<Operation>, Wrong> {
        let raw: RawLine = serde_json::from_str(line).map_err(|error| Wrong {
            field: format!("column {}", error.column()),
            found: error.to_string(),
            expected: "an object with header and metadata, coll_perf, p2p_perf, or proxy_trace",
        })?;
        let own = match (raw.header, raw.metadata) {
            (Some(header), Some(metadata)) => Some(Context::new(header, metadata)),
            (None, None) => None,
            (header, metadata) => {
                let found = [header.is_some(), metadata.is_some()];
                return Err(Wrong::pair("header, metadata", found, "both or neither"));
            }
        };
        if let Some(stats) = raw.dump_stats {
            if own.is_none() {
                let found = [false, false];
                return Err(Wrong::pair("header, metadata", found, "both"));
            }
            for dropped in [
                stats.coll_dropped_since_last_dump,
                stats.p2p_dropped_since_last_dump,
            ] {
                self.dropped = self.dropped.saturating_add(dropped);
            }
            self.context = own;
            return Ok(None);
        }
        let record: Record = match (raw.coll_perf, raw.p2p_perf) {
            (Some(collective), None) => collective.into(),
            (None, Some(transfer)) => transfer.into(),
            (None, None) if raw.proxy_trace.is_some() => return Ok(None),
            (collective, transfer) => {
                let found = [collective.is_some(), transfer.is_some()];
                return Err(Wrong::pair("coll_perf, p2p_perf", found, "one of them"));
            }
        };
        let context = own.or_else(|| self.context.clone());
        Ok(context.map(|context| context.operation(record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"header":{"id":"0x7f","rank":2,"n_ranks":8,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"profiler_plugin","dump_timestamp_us":5000000,"hostname":"n7","pid":9}"#;

    fn line(rest: &str) -> String {
        format!("{HEAD},{rest}}}")
    }

    fn read_line(line: &str) -> Operation {
        let read = Lines::default().read("f", 1, line);
        read.expect("a line").expect("an operation")
    }

    const PLAIN: &str = r#""coll_perf":{"coll":"AllReduce","coll_sn":7,"coll_msg_size_bytes":1024,"coll_exec_time_us":2000,"coll_algobw_gbs":1.5,"coll_busbw_gbs":2.5}"#;

    #[test]
    fn a_collective_is_read_with_its_rank_and_its_time() {
        let read = read_line(&line(PLAIN));
        assert_eq!((&*read.process.host, read.process.pid), ("n7", 9));
        assert_eq!((read.member.rank, read.member.ranks), (2, 8));
        assert_eq!((&*read.name, read.number), ("AllReduce", Some(7)));
        assert_eq!((read.seconds, read.begin, read.end), (0.002, None, 5.0));
    }

    #[test]
    fn a_verbose_dump_tells_when_kernels_ran_and_a_transfer_has_no_number() {
        let trace = r#""event_trace_ts":{"coll_start_ts":1,"coll_stop_ts":2,"kernel_events":[{"channel_id":0,"kernel_start_ts":4000000,"kernel_stop_ts":4500000,"kernel_record_ts":4500001},{"channel_id":1,"kernel_start_ts":4100000,"kernel_stop_ts":4600000,"kernel_record_ts":4600001}]}"#;
        let verbose = PLAIN.replace("\"coll_sn\"", &format!("{trace},\"coll_sn\""));
        let read = read_line(&line(&verbose));
        assert_eq!((read.begin, read.end), (Some(4.0), 4.6));
        let send = r#""p2p_perf":{"p2p":"Send","p2p_sn":3,"p2p_peer":1,"p2p_msg_size_bytes":8,"p2p_exec_time_us":5}"#;
        let read = read_line(&line(send));
        assert_eq!((&*read.name, read.number), ("Send", None));
    }

    #[test]
    fn a_bad_line_is_named_with_file_line_and_what_was_expected() {
        for (text, expected) in [
            ("{", "f:3: column 1"),
            ("{\"x\":1}", "found neither, expected one of them"),
            (&*line("\"x\":1"), "found neither, expected one of them"),
            (&*line(&PLAIN.replace("2000", "\"long\"")), "f:3: column"),
            (
                "{\"dump_stats\":{}}",
                "header, metadata: found neither, expected both",
            ),
        ] {
            let error = Lines::default().read("f", 3, text).expect_err(text);
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert_eq!(Lines::default().read("f", 1, "  ").expect("empty"), None);
    }

    /// First line of a dump of v4.3 of a communicator.
    fn marker(communicator: &str, dropped: u64) -> String {
        format!(
            r#"{{"header":{{"id":"{communicator}","comm_name":"dp","rank":2,"n_ranks":4,"nnodes":2}},"metadata":{{"inspector_output_format_version":"v4.3","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":5000000,"hostname":"n7","pid":9}},"dump_stats":{{"coll_records":1,"coll_dropped_total":20,"coll_dropped_since_last_dump":{dropped},"p2p_records":1,"p2p_dropped_total":1,"p2p_dropped_since_last_dump":1}}}}"#
        )
    }

    const COLLECTIVE: &str = r#"{"coll_perf":{"coll":"AllReduce","coll_algo":"RING","coll_proto":"LL","coll_sn":7,"coll_msg_size_bytes":65536,"coll_exec_time_us":2000,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1.5,"coll_busbw_gbs":2.25}}"#;
    const SEND: &str = r#"{"p2p_perf":{"p2p":"Send","p2p_sn":3,"p2p_peer":1,"p2p_msg_size_bytes":8,"p2p_exec_time_us":5}}"#;
    const PROXY: &str = r#"{"proxy_trace":{"record_type":"proxy_op","record_sn":1,"parent_type":"coll","parent_sn":7,"is_final":true,"steps":[{"step":0}]}}"#;

    /// Communicator, kind and number of an operation.
    type Summary = (String, String, Option<u64>);

    /// The operations in a file, and the numbers of its lines that cannot be read.
    fn read_all(reader: &mut Lines, lines: &[&str]) -> (Vec<Summary>, Vec<usize>) {
        let (mut operations, mut bad) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(lines) {
            match reader.read("f", number, line) {
                Ok(read) => operations.extend(read.map(|one| {
                    let communicator = one.member.communicator.to_string();
                    (communicator, one.name.to_string(), one.number)
                })),
                Err(error) => bad.push(error.line),
            }
        }
        (operations, bad)
    }

    #[test]
    fn lines_without_a_header_are_of_the_communicator_of_the_last_marker() {
        let (first, second) = (marker("0x1a", 0), marker("0x2b", 12));
        assert!(is_dump(&first) && is_dump(&line(PLAIN)) && !is_dump("{\"header\":1}"));
        let lines = [
            &*first, COLLECTIVE, SEND, PROXY, "", &*second, COLLECTIVE, PROXY,
        ];
        let mut reader = Lines::default();
        let (operations, bad) = read_all(&mut reader, &lines);
        let expected = [
            ("0x1a", "AllReduce", Some(7)),
            ("0x1a", "Send", None),
            ("0x2b", "AllReduce", Some(7)),
        ];
        let expected = expected.map(|(id, kind, number)| (id.to_owned(), kind.to_owned(), number));
        assert_eq!((operations, bad), (expected.to_vec(), vec![]));
        assert_eq!(reader.dropped(), 12 + 2);
        let read = reader.read("f", 9, COLLECTIVE).expect("a line");
        let read = read.expect("an operation");
        assert_eq!((&*read.process.host, read.process.pid), ("n7", 9));
        assert_eq!(
            (read.member.rank, read.member.name.as_deref()),
            (2, Some("dp"))
        );
        assert_eq!((read.seconds, read.begin, read.end), (0.002, None, 5.0));
    }

    #[test]
    fn lines_without_a_header_are_skipped_until_a_marker_was_read() {
        let marker = marker("0x1a", 0);
        // Reading began in the middle of a file; later a marker is cut off.
        let lines = [
            COLLECTIVE,
            SEND,
            PROXY,
            &*marker,
            SEND,
            &marker[..90],
            COLLECTIVE,
            SEND,
            &*marker,
            COLLECTIVE,
        ];
        let (operations, bad) = read_all(&mut Lines::default(), &lines);
        let kinds: Vec<&str> = operations.iter().map(|(_, kind, _)| &**kind).collect();
        assert_eq!((kinds, bad), (vec!["Send", "AllReduce"], vec![6]));
    }

    #[test]
    fn before_v4_3_markers_precede_lines_with_headers_of_their_own() {
        let marker = marker("0x1a", 3);
        let lines = [&*marker, &*line(PLAIN), &*marker, &*line(PLAIN)].map(str::to_owned);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut reader = Lines::default();
        let (operations, bad) = read_all(&mut reader, &lines);
        let communicators: Vec<&str> = operations.iter().map(|(id, ..)| &**id).collect();
        assert_eq!((communicators, bad), (vec!["0x7f", "0x7f"], vec![]));
        assert_eq!(reader.dropped(), 2 * (3 + 1));
    }
}
