//! `show interfaces counters` and `show dropcounters counts` of SONiC: damaged frames and frames that a port had no room for.

use std::collections::BTreeMap;

use super::{SwitchReport, some};
use crate::fabric::plans::Source;

/// Share of damaged frames above which a cable is named (a choice): a switch that ran for months has seen some.
const DAMAGED: f64 = 1e-8;
/// Share of frames dropped on their way out above which a port is named (a choice).
const DROPPED: f64 = 1e-6;
/// Columns in the two spellings of the commands.
const RX_DROPS: [&str; 2] = ["RX_DRP", "RX_DROPS"];
const TX_DROPS: [&str; 2] = ["TX_DRP", "TX_DROPS"];

/// Values of a port by column.
type Row = BTreeMap<String, String>;

pub(super) fn is_heading(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("IFACE") && words.next() == Some("STATE") && line.contains("RX_ERR")
}

/// Words of a line; a rate and its unit are one.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 5] = ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"];
    line.split_whitespace().filter(|word| !UNITS.contains(word))
}

pub(super) fn read(source: &mut Source<'_>, report: &mut SwitchReport) {
    let mut tables: Vec<BTreeMap<String, Row>> = Vec::new();
    let mut columns: Option<Vec<&str>> = None;
    for (at, line) in source.text.lines().enumerate() {
        if is_heading(line) {
            columns = Some(cells(line).collect());
            tables.push(BTreeMap::new());
            continue;
        }
        let (Some(names), Some(table)) = (&columns, tables.last_mut()) else {
            continue;
        };
        if line.trim_start().starts_with("--") {
            continue;
        }
        let row: Vec<&str> = cells(line).collect();
        match row.first() {
            Some(port) if row.len() == names.len() => {
                let values = names.iter().zip(&row);
                let values = values.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                table.insert((*port).to_owned(), values.collect());
            }
            Some(port) if port.starts_with("Ethernet") => {
                let found = format!("{} values under {} columns", row.len(), names.len());
                source.problem(at + 1, port, &found, "a value for each column");
            }
            // A prompt or the next command ends the table.
            _ => columns = None,
        }
    }
    if let (Some(first), Some(last)) = (tables.first(), tables.last()) {
        let before = (tables.len() > 1).then_some(first);
        judge(before, last, report);
    }
}

/// A counter of a port, without what it was before; 0 if it is not counted.
fn count(before: Option<&Row>, now: &Row, names: &[&str]) -> u64 {
    let of = |row: &Row| {
        let value = names.iter().find_map(|name| row.get(*name));
        value.and_then(|value| value.replace(',', "").parse::<u64>().ok())
    };
    let now = of(now).unwrap_or(0);
    let earlier = before.and_then(of).unwrap_or(0);
    // A smaller counter was cleared in between.
    now.checked_sub(earlier).unwrap_or(now)
}

fn judge(
    before: Option<&BTreeMap<String, Row>>,
    now: &BTreeMap<String, Row>,
    report: &mut SwitchReport,
) {
    let up: Vec<&String> = now
        .iter()
        .filter(|(_, row)| row.get("STATE").is_some_and(|state| state == "U"))
        .map(|(port, _)| port)
        .collect();
    let how = match before {
        Some(_) => "between the first and the last output",
        None => "since the counters were last cleared",
    };
    let mut received_drops: Vec<(u64, String)> = Vec::new();
    for (port, row) in now {
        let earlier = before.and_then(|before| before.get(port));
        let of = |names: &[&str]| count(earlier, row, names);
        let (damaged, received) = (of(&["RX_ERR"]), of(&["RX_OK"]));
        // Drop counters are shown without those of good frames.
        let beside = |name: &str, count: u64, what: &str| match row.contains_key(name) {
            true => format!(" beside {count} {what}"),
            false => String::new(),
        };
        if damaged > 0 && damaged as f64 > DAMAGED * received as f64 {
            report.findings.push(format!(
                "{port}: {damaged} damaged frames (RX_ERR){} {how}: clean or replace the cable or module at this port",
                beside("RX_OK", received, "good ones")
            ));
        }
        let (dropped, sent) = (of(&TX_DROPS), of(&["TX_OK"]));
        if dropped > 0 && dropped as f64 > DROPPED * sent as f64 {
            report.findings.push(format!(
                "{port}: {dropped} frames dropped on their way out (TX_DRP){} {how}: more arrives for this port than it can send; check its speed, and PFC and ECN if it carries RoCE",
                beside("TX_OK", sent, "sent")
            ));
        }
        if of(&RX_DROPS) > 0 {
            received_drops.push((of(&RX_DROPS), port.clone()));
        }
    }
    let mut answer = format!(
        "interface counters: {} of {} ports are up",
        up.len(),
        now.len()
    );
    if !received_drops.is_empty() {
        received_drops.sort_by(|a, b| b.cmp(a));
        let ports: Vec<String> = received_drops
            .iter()
            .map(|(count, port)| format!("{port} {count}"))
            .collect();
        answer += &format!(
            "; frames dropped on arrival (no route, VLAN or buffer): {}",
            some(&ports)
        );
    }
    report.answer.push(answer);
}
