//! The scores as tables of a Markdown file: `docs/scoreboard.md`, whose other text is written by
//! hand.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::report::{Report, columns, counted, group_rows, with_interval};
use super::score::{Calibration, SEVERITIES, SLOWDOWNS, STANDS_STILL};

const BEGIN: &str = "<!-- eval ";
const END: &str = "<!-- end -->";

type Rows = Vec<Vec<String>>;
/// A table of the file: its name in marks, its title on a separate page, and its content.
type Block = (&'static str, &'static str, fn(&Report) -> String);

const BLOCKS: &[Block] = &[
    ("summary", "Runs", |report| {
        format!("{}\n", report.headline())
    }),
    ("goals", "Goals", |report| table(&report.goal_rows())),
    ("rules", "All rules", |report| {
        table(&report.detector_rows())
    }),
    ("recall", "Recall by cause", |report| table(&recall(report))),
    ("causes", "The collector by cause", |report| {
        table(&group_rows("", &report.detectors[0].score.by_cause))
    }),
    ("means", "Means over causes", |report| {
        table(&report.mean_rows())
    }),
    ("ends", "After the end of a fault", |report| {
        table(&report.end_rows())
    }),
    ("severities", "By severity", |report| {
        table(&severities(report))
    }),
    ("slowdowns", "By slowdown of the job", |report| {
        table(&slowdowns(report))
    }),
    ("matrix", "Recall by cause and severity", |report| {
        table(&matrix(report))
    }),
    ("sureness", "Calibration", |report| table(&sureness(report))),
    ("scenarios", "Scenarios", |report| {
        table(&report.scenario_rows())
    }),
    ("wrong", "Misses and false alarms", |report| {
        table(&wrong(report))
    }),
];

/// Writes the tables into a Markdown file, or a new one if there is none.
///
/// # Errors
/// The file cannot be read or written, or its marks are invalid.
pub(super) fn write(file: &Path, report: &Report) -> anyhow::Result<()> {
    let said = || file.display().to_string();
    let page = match std::fs::read_to_string(file) {
        Ok(old) => renewed(&old, &|name| block(report, name)).with_context(said)?,
        Err(error) if error.kind() == ErrorKind::NotFound => fresh(report),
        Err(error) => return Err(error).with_context(said),
    };
    std::fs::write(file, page).with_context(said)
}

fn block(report: &Report, name: &str) -> Option<String> {
    let block = BLOCKS.iter().find(|(known, ..)| *known == name);
    block.map(|(.., text)| text(report))
}

fn fresh(report: &Report) -> String {
    let mut page = String::from("# Scoreboard\n");
    for (name, title, text) in BLOCKS {
        page += &format!("\n## {title}\n\n{BEGIN}{name} -->\n{}{END}\n", text(report));
    }
    page
}

/// The file with the text between its marks replaced.
fn renewed(old: &str, block: &dyn Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut page = String::new();
    let mut lines = (1..).zip(old.lines());
    while let Some((number, line)) = lines.next() {
        page += line;
        page.push('\n');
        let name = line.strip_prefix(BEGIN);
        let Some(name) = name.and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let Some(text) = block(name) else {
            let known: Vec<_> = BLOCKS.iter().map(|(name, ..)| *name).collect();
            bail!(
                "line {number}: no table is named {name:?}: expected one of {}",
                known.join(", ")
            );
        };
        if !lines.any(|(_, line)| line == END) {
            bail!("line {number}: {name} has no end: expected a line {END} after it");
        }
        page += &text;
        page += END;
        page.push('\n');
    }
    Ok(page)
}

/// Rows, the first of which is a heading.
fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            text += &format!("|{}\n", "---|".repeat(row.len()));
        }
    }
    text
}

/// By cause, the share that each rule named.
fn recall(report: &Report) -> Rows {
    let mut rows = vec![columns(&["cause"])];
    rows[0].extend(report.detectors.iter().map(|rule| rule.name.clone()));
    for cause in report.detectors[0].score.by_cause.keys() {
        let share = |rule: &super::report::DetectorReport| {
            let score = rule.score.by_cause.get(cause);
            score.map_or_else(|| "-".to_owned(), |score| counted(score.recall))
        };
        let mut row = vec![(*cause).to_owned()];
        row.extend(report.detectors.iter().map(share));
        rows.push(row);
    }
    rows
}

/// The groups of a table in the order of their cuts.
fn in_order(mut rows: Rows, order: &[&str]) -> Rows {
    let place = |row: &Vec<String>| order.iter().position(|name| *name == row[0]);
    rows[1..].sort_by_key(place);
    rows
}

fn severities(report: &Report) -> Rows {
    let rows = group_rows("", &report.detectors[0].score.by_severity);
    in_order(rows, &SEVERITIES.map(|(_, name)| name))
}

fn slowdowns(report: &Report) -> Rows {
    let rows = group_rows("", &report.detectors[0].score.by_slowdown);
    let mut order = SLOWDOWNS.map(|(_, name)| name).to_vec();
    order.push(STANDS_STILL);
    in_order(rows, &order)
}

/// Cause by severity: how many were named.
fn matrix(report: &Report) -> Rows {
    let mut rows = vec![columns(&["cause"])];
    rows[0].extend(SEVERITIES.map(|(_, name)| name.to_owned()));
    for (cause, by_severity) in &report.detectors[0].score.by_cause_and_severity {
        let mut row = vec![(*cause).to_owned()];
        row.extend(SEVERITIES.map(|(_, name)| {
            let score = by_severity.get(name);
            score.map_or_else(|| "-".to_owned(), |score| counted(score.top1))
        }));
        rows.push(row);
    }
    rows
}

/// Of each class how sure its alarms were, and how often they were right; then all of them by how sure.
fn sureness(report: &Report) -> Rows {
    let mut rows = vec![columns(&["alarms", "mean posterior", "right", "Brier"])];
    let score = &report.detectors[0].score;
    let three = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    let row = |name: &str, of: &Calibration| {
        let right = with_interval(of.right);
        vec![name.to_owned(), three(of.said), right, three(of.brier)]
    };
    let all = score.alarms.calibration;
    rows.push(row("all", &all));
    for of in all.reliability.iter().filter(|of| of.right.of > 0) {
        let name = format!("up to {}", of.up_to);
        rows.push(vec![
            name,
            three(of.said),
            with_interval(of.right),
            String::new(),
        ]);
    }
    let by_class: &BTreeMap<_, _> = &score.calibration_by_class;
    rows.extend(by_class.iter().map(|(class, of)| row(class, of)));
    rows
}

/// What went wrong, how often in each scenario.
fn wrong(report: &Report) -> Rows {
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for wrong in &report.wrong {
        *counts.entry(wrong.group()).or_default() += 1;
    }
    let mut rows = vec![columns(&["", "what", "scenario", "times"])];
    rows.extend(counts.into_iter().map(|((kind, what, scenario), times)| {
        let [what, scenario] = [what, scenario].map(str::to_owned);
        vec![kind.to_string(), what, scenario, times.to_string()]
    }));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anew(old: &str) -> anyhow::Result<String> {
        renewed(old, &|name| {
            (name == "goals").then(|| String::from("new\n"))
        })
    }

    #[test]
    fn what_stands_between_marks_is_made_anew_and_nothing_else() {
        let page = "a\n<!-- eval goals -->\nold\nolder\n<!-- end -->\nb\n";
        let expected = "a\n<!-- eval goals -->\nnew\n<!-- end -->\nb\n";
        assert_eq!(anew(page).expect("sound"), expected);
        assert_eq!(anew(expected).expect("sound"), expected, "twice is once");
    }

    #[test]
    fn a_mark_that_is_wrong_is_said_with_its_line() {
        for (page, said) in [
            (
                "a\n<!-- eval gols -->\n<!-- end -->\n",
                "line 2: no table is named \"gols\"",
            ),
            ("<!-- eval goals -->\nx\n", "line 1: goals has no end"),
        ] {
            let error = anew(page).expect_err(said).to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_table_has_a_heading_and_keeps_its_columns() {
        let rows = vec![columns(&["a", "b"]), columns(&["1|2", "3"])];
        assert_eq!(table(&rows), "| a | b |\n|---|---|\n| 1\\|2 | 3 |\n");
    }
}
