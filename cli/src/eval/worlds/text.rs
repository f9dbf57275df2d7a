//! Prints the results of all worlds as tables.

use std::fmt::Write as _;

use super::table::{FaultRow, Group, IncidentRow, Report, Score};
use crate::eval::statistics::Ratio;

/// With fewer cases a share of 1 is not printed: the counts and the interval show more.
const FEW_CASES: usize = 30;

const FAULT_COLUMNS: [&str; 4] = [
    "recall",
    "right component",
    "right class",
    "detection p50 / p90",
];
const INCIDENT_COLUMNS: [&str; 5] = [
    "precision with tickets",
    "precision of critical",
    "victims blamed",
    "opened after the end",
    "class drift",
];

/// All tables.
pub(super) fn tables(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    writeln!(
        out,
        "{} worlds, {:.2} hours, {} faults ({} observable), {} incidents ({} explained by benign events). {}\n\
         Each ratio: count, share (omitted if it is 1 and of fewer than {FEW_CASES} cases), 95 % Wilson interval. \
         The worst row is first.",
        report.worlds,
        report.hours,
        report.faults,
        report.total.recall.of,
        report.incidents,
        report.explained,
        report.note
    )
    .ok();
    if !report.unknown_kinds.is_empty() {
        let kinds = report.unknown_kinds.join(", ");
        writeln!(
            out,
            "Kinds of faults that the table maps to no class, so that no class is right: {kinds}."
        )
        .ok();
    }
    for (title, groups) in [
        ("world", &report.by_world),
        ("kind of fault", &report.by_kind),
        ("source dialect", &report.by_dialect),
    ] {
        for (columns, cells) in [
            (&FAULT_COLUMNS[..], fault_cells as fn(&Score) -> Vec<String>),
            (&INCIDENT_COLUMNS[..], incident_cells),
        ] {
            out.push('\n');
            let rows = rows(title, columns, groups, &report.total, cells);
            aligned(&mut out, &rows);
        }
    }
    out
}

/// One line for each fault that was missed, or found with another component or class, and for each wrong incident.
pub(super) fn details(report: &Report) -> String {
    let missed = report.missed.iter().map(missed_line);
    let wrong = report.wrong.iter().map(wrong_line);
    missed.chain(wrong).collect()
}

fn missed_line(fault: &FaultRow) -> String {
    let what = match (fault.found, fault.exact, fault.class_fits) {
        (false, ..) => "missed",
        (_, true, _) => "wrong class",
        (_, _, true) => "other component",
        _ => "other component and class",
    };
    let FaultRow {
        world,
        kind,
        component,
        onset_seconds,
        ..
    } = fault;
    let mut line = format!("{what}: {world}: {kind}, {component}, from {onset_seconds:.0} s");
    if fault.found {
        line += &format!("; reported as {}", fault.classes.join(", "));
    }
    line + "\n"
}

fn wrong_line(incident: &IncidentRow) -> String {
    let IncidentRow {
        world,
        component,
        classes,
        opened_seconds,
        closed_seconds,
        ..
    } = incident;
    let outcome = incident.outcome.as_str();
    let severity = if incident.critical {
        "critical"
    } else {
        "warning"
    };
    let event = incident.of_event();
    let event = event.map(|(kind, of)| format!("; event: {kind}, {of}"));
    format!(
        "{outcome}: {world}: {severity} {classes}, {component}, {opened_seconds:.0} s to {closed_seconds:.0} s{}\n",
        event.unwrap_or_default()
    )
}

fn rows(
    title: &str,
    columns: &[&str],
    groups: &[Group],
    total: &Score,
    cells: fn(&Score) -> Vec<String>,
) -> Vec<Vec<String>> {
    let row = |name: &str, cells: Vec<String>| {
        let mut row = vec![name.to_owned()];
        row.extend(cells);
        row
    };
    let heading = columns.iter().map(|name| (*name).to_owned()).collect();
    let mut rows = vec![row(title, heading)];
    let of_groups = groups.iter().map(|group| (&*group.name, &group.score));
    let all = of_groups.chain([("all", total)]);
    rows.extend(all.map(|(name, score)| row(name, cells(score))));
    rows
}

fn fault_cells(score: &Score) -> Vec<String> {
    let times = score.detection_seconds_p50.zip(score.detection_seconds_p90);
    let times = times.map_or_else(
        || "-".to_owned(),
        |(p50, p90)| format!("{p50:.1} s / {p90:.1} s of {}", score.recall.hits),
    );
    vec![
        ratio(score.recall),
        ratio(score.right_component),
        ratio(score.right_class),
        times,
    ]
}

fn incident_cells(score: &Score) -> Vec<String> {
    [
        score.precision,
        score.precision_critical,
        score.victims_blamed,
        score.after_the_end,
        score.class_drift,
    ]
    .map(ratio)
    .to_vec()
}

/// `17/33 0.515 [0.352, 0.675]`, or `12/12 [0.758, 1.000]`.
fn ratio(ratio: Ratio) -> String {
    let (Some(share), Some((low, high))) = (ratio.value(), ratio.interval()) else {
        return "-".to_owned();
    };
    let Ratio { hits, of } = ratio;
    if hits == of && of < FEW_CASES {
        return format!("{hits}/{of} [{low:.3}, {high:.3}]");
    }
    format!("{hits}/{of} {share:.3} [{low:.3}, {high:.3}]")
}

/// Writes rows with their columns aligned.
fn aligned(out: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::world;
    use super::*;

    #[test]
    fn a_ratio_has_counts_and_interval_and_no_full_share_of_few_cases() {
        let of = |hits, of| ratio(Ratio { hits, of });
        assert_eq!(of(0, 0), "-");
        assert_eq!(of(12, 12), "12/12 [0.758, 1.000]");
        // Newcombe, Statistics in Medicine 17, 1998, table I: 1 of 29, 0 of 20, 81 of 263.
        assert_eq!(of(1, 29), "1/29 0.034 [0.006, 0.172]");
        assert_eq!(of(0, 20), "0/20 0.000 [0.000, 0.161]");
        assert_eq!(of(81, 263), "81/263 0.308 [0.255, 0.366]");
        assert_eq!(of(30, 30), "30/30 1.000 [0.886, 1.000]");
    }

    #[test]
    fn the_tables_name_each_group_and_the_total() {
        let report = Report::new(
            "Simulated.",
            &[world("a", "gnmic"), world("b", "railscope")],
        );
        let text = tables(&report);
        for expected in [
            "2 worlds, 0.40 hours, 6 faults (4 observable), 6 incidents (2 explained",
            "no class is right: solar_flare.",
            "world  recall",
            "world  precision with tickets",
            "kind of fault",
            "source dialect",
            "12.0 s / 12.0 s of 2",
            "(no event)",
            "checkpoint (benign)",
            "gnmic",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        let all = text.lines().filter(|line| line.starts_with("all "));
        assert_eq!(all.count(), 6);
    }

    #[test]
    fn details_have_a_line_for_each_missed_fault_and_wrong_incident() {
        let report = Report::new("", &[world("a", "x")]);
        assert_eq!(
            details(&report),
            "missed: a: solar_flare, node n2, from 200 s\n\
             false: a: warning host-steal, host/n7, 212 s to 300 s\n"
        );
    }
}
