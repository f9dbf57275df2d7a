//! PFC of SONiC: pause frames by port and priority, and the storms that its watchdog found.

use std::collections::BTreeMap;

use super::{SwitchReport, some};
use crate::fabric::plans::Source;

const PRIORITIES: usize = 8;
/// Share of the pause frames of a priority above which one port stands out.
const ONE_PORT: f64 = 0.5;
/// Fewest ports among which a share means something, and fewest frames: a switch that ran for months has seen some.
const FEWEST_PORTS: usize = 4;
const FEWEST_FRAMES: u64 = 10_000;

/// Pause frames by port.
type Table = BTreeMap<String, [Option<u64>; PRIORITIES]>;

/// A queue of which the watchdog reports something.
struct Watched {
    queue: String,
    status: String,
    /// Detected and restored storms; packets that were dropped for them, sent and received.
    storms: [u64; 2],
    dropped: u64,
}

/// What lines of the text belong to.
enum Section {
    None,
    Received,
    Sent,
    Watchdog,
}

pub(super) fn is_heading(line: &str) -> bool {
    !matches!(section_of(line), Section::None)
}

fn section_of(line: &str) -> Section {
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("Port"), Some("Rx"), Some("PFC0")) => Section::Received,
        (Some("Port"), Some("Tx"), Some("PFC0")) => Section::Sent,
        _ if line.contains("STORM DETECTED/RESTORED") => Section::Watchdog,
        _ => Section::None,
    }
}

pub(super) fn read(source: &mut Source<'_>, report: &mut SwitchReport) {
    let (mut received, mut sent): (Vec<Table>, Vec<Table>) = (Vec::new(), Vec::new());
    let mut watched: Option<Vec<Watched>> = None;
    let mut section = Section::None;
    for (at, line) in source.text.lines().enumerate() {
        match section_of(line) {
            Section::None => {}
            heading => {
                match heading {
                    Section::Received => received.push(Table::new()),
                    Section::Sent => sent.push(Table::new()),
                    // The last output reports what is so now.
                    _ => watched = Some(Vec::new()),
                }
                section = heading;
                continue;
            }
        }
        if line.trim_start().starts_with("--") {
            continue;
        }
        let read = match section {
            Section::None => continue,
            _ if line.trim().is_empty() => {
                section = Section::None;
                continue;
            }
            Section::Received => row(line, received.last_mut()),
            Section::Sent => row(line, sent.last_mut()),
            Section::Watchdog => watched
                .as_mut()
                .zip(queue(line))
                .map(|(all, queue)| all.push(queue)),
        };
        if read.is_none() {
            // A prompt or the next command ends a table; a row of it that cannot be read is reported.
            if line.trim_start().starts_with("Ethernet") {
                let expected = "a port with the counters of its heading";
                source.problem(at + 1, "row", line.trim(), expected);
            } else {
                section = Section::None;
            }
        }
    }
    if !received.is_empty() || !sent.is_empty() {
        let (how, received, sent) = growth(&received, &sent);
        counters(how, &received, &sent, report);
    }
    if let Some(watched) = watched {
        storms(&watched, report);
    }
}

/// A port with its counters.
fn row(line: &str, table: Option<&mut Table>) -> Option<()> {
    let mut words = line.split_whitespace();
    let port = words.next()?.to_owned();
    let mut counts = [None; PRIORITIES];
    for count in &mut counts {
        *count = match words.next()? {
            "N/A" => None,
            number => Some(number.replace(',', "").parse().ok()?),
        };
    }
    table?.insert(port, counts);
    Some(())
}

fn pair(word: &str) -> Option<[u64; 2]> {
    let (first, second) = word.split_once('/')?;
    Some([first.parse().ok()?, second.parse().ok()?])
}

fn queue(line: &str) -> Option<Watched> {
    let mut words = line.split_whitespace();
    let queue = words.next().filter(|queue| queue.contains(':'))?.to_owned();
    let status = words.next()?.to_owned();
    let storms = pair(words.next()?)?;
    let [_, sent] = pair(words.next()?)?;
    let [_, received] = pair(words.next()?)?;
    Some(Watched {
        queue,
        status,
        storms,
        dropped: sent.saturating_add(received),
    })
}

/// What was counted between the first and the last output, or in all if there is one only.
fn growth(received: &[Table], sent: &[Table]) -> (&'static str, Table, Table) {
    let grown = |tables: &[Table]| -> Table {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else {
            return Table::new();
        };
        let of_port = |(port, counts): (&String, &[Option<u64>; PRIORITIES])| {
            let before = first.get(port).filter(|_| tables.len() > 1);
            let mut counts = *counts;
            for (count, before) in counts.iter_mut().zip(before.into_iter().flatten()) {
                // A counter that is smaller now was cleared in between: what it shows came after that.
                *count = count.map(|now| now.checked_sub(before.unwrap_or(0)).unwrap_or(now));
            }
            (port.clone(), counts)
        };
        last.iter().map(of_port).collect()
    };
    let how = if received.len().max(sent.len()) > 1 {
        "between the first and the last output"
    } else {
        "since the counters were last cleared"
    };
    (how, grown(received), grown(sent))
}

fn total(table: &Table) -> u64 {
    let counts = table.values().flatten().flatten();
    counts.fold(0, |sum, count| sum.saturating_add(*count))
}

fn counters(how: &str, received: &Table, sent: &Table, report: &mut SwitchReport) {
    let ports = received.len().max(sent.len());
    let mut all = received.values().chain(sent.values()).flatten();
    if all.all(Option::is_none) {
        report
            .answer
            .push(format!("PFC counters of {ports} ports: no values (N/A)"));
        report.findings.push(
            "all PFC counters are N/A: the switch does not count pause frames; check \"counterpoll show\" and whether the platform has PFC counters".to_owned(),
        );
        return;
    }
    let (got, gave) = (total(received), total(sent));
    let mut answer =
        format!("PFC counters of {ports} ports: {got} pause frames received, {gave} sent {how}");
    if got == 0 && gave > 0 {
        answer += "; no device pauses this switch, so its own output ports are the bottleneck (several senders for one receiver, or a slow port)";
    }
    report.answer.push(answer);
    for priority in 0..PRIORITIES {
        if let Some(finding) = standing_out(priority, how, received) {
            report.findings.push(finding);
        }
    }
}

/// The port from which most of the pause frames of a priority come.
fn standing_out(priority: usize, how: &str, received: &Table) -> Option<String> {
    let of = |counts: &[Option<u64>; PRIORITIES]| counts.get(priority).copied().flatten();
    let counts: Vec<(&String, u64)> = received
        .iter()
        .filter_map(|(port, counts)| Some((port, of(counts)?)))
        .collect();
    let all = counts
        .iter()
        .fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let (port, most) = counts.iter().max_by_key(|(_, count)| *count)?;
    let share = *most as f64 / all.max(1) as f64;
    if counts.len() < FEWEST_PORTS || *most < FEWEST_FRAMES || share <= ONE_PORT {
        return None;
    }
    Some(format!(
        "{port}: {most} of {all} pause frames of priority {priority} ({:.1} %) {how} came from here: the device at this port takes data too slowly; at a host check its NIC, PCIe link and memory, at an uplink the switch behind it",
        share * 100.0
    ))
}

fn storms(watched: &[Watched], report: &mut SwitchReport) {
    let is_on = |queue: &&Watched| queue.status.contains("storm");
    let now: Vec<String> = watched
        .iter()
        .filter(is_on)
        .map(|queue| queue.queue.clone())
        .collect();
    let past = watched
        .iter()
        .filter(|queue| !is_on(queue) && queue.storms[0] > 0);
    report.answer.push(match (now.len(), past.clone().count()) {
        (0, 0) => "PFC watchdog: no storm".to_owned(),
        (now, past) => format!("PFC watchdog: {now} in a storm now, {past} had one before"),
    });
    if now.len() > 2 {
        report.findings.push(format!(
            "{} queues are in a pause storm at once ({}): the origin is behind one of them, or the switches pause each other (cyclic buffer dependency); look at the port that stormed first and at the other switches' watchdogs",
            now.len(),
            some(&now)
        ));
    }
    for queue in watched.iter().filter(is_on) {
        report.findings.push(format!(
            "{}: pause storm now (detected {}, over {}), {} packets dropped: the device at this port sends pause frames without end; reset its NIC or restart its host, and drain it if the storm returns",
            port_and_queue(&queue.queue), queue.storms[0], queue.storms[1], queue.dropped
        ));
    }
    for queue in past {
        report.findings.push(format!(
            "{}: pause storms in the past ({}), {} packets dropped: check firmware and PCIe link of the NIC at this port",
            port_and_queue(&queue.queue), queue.storms[0], queue.dropped
        ));
    }
}

fn port_and_queue(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((port, queue)) => format!("{port} queue {queue}"),
        None => text.to_owned(),
    }
}
