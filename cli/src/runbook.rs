//! `railscope runbook`: prints a runbook embedded in the binary, so that it is available without a network.

mod table;

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, bail};
use clap::Args;
use strsim::levenshtein;

use table::RUNBOOKS;

/// The alert rules, which link each alert to its runbook.
const RULES: &str = include_str!("../../alerts/railscope.rules.yml");
/// Edit distance up to which a known name is suggested for a short unknown one; for longer names, half of its letters.
const MOST_CHANGED: usize = 3;

/// Print the runbook of a fault class or an alert: meaning, impact, urgency, diagnosis, evidence to save, mitigation,
/// escalation. Without a name, list all. Needs no network.
#[derive(Debug, Args)]
pub(crate) struct RunbookArgs {
    /// Fault class, such as pcie-degraded, or alert, such as RailscopeCollectorDown.
    name: Option<String>,
}

/// Prints the runbook; a closed pipe is not an error.
pub(crate) fn run(args: &RunbookArgs) -> anyhow::Result<()> {
    let text = match &args.name {
        Some(name) => find(name)?.to_owned(),
        None => list(),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot print"),
    }
}

/// Names of all runbooks with their titles.
fn list() -> String {
    let mut text = String::new();
    let widest = RUNBOOKS.iter().map(|(name, _)| name.len()).max();
    for (name, runbook) in RUNBOOKS {
        let title = runbook.lines().next().unwrap_or_default();
        let title = title.split_once(": ").map_or(title, |(_, about)| about);
        let width = widest.unwrap_or_default();
        // Writing to a String does not fail.
        writeln!(text, "{name:width$}  {title}").ok();
    }
    text
}

fn find(wanted: &str) -> anyhow::Result<&'static str> {
    let key = key(wanted);
    if ["incidentcritical", "incidentwarning", "incident"].contains(&&*key) {
        bail!(
            "{wanted} has the runbook of its fault class, which is the annotation class of the alert: use, for example, railscope \
             runbook pcie-degraded"
        );
    }
    let names = RUNBOOKS.iter().map(|(name, _)| *name);
    let known: Vec<(&str, &str)> = names.map(|name| (name, name)).chain(alerts()).collect();
    let found = known.iter().find(|(name, _)| self::key(name) == key);
    if let Some((_, runbook)) = found {
        let runbook = RUNBOOKS.iter().find(|(name, _)| name == runbook);
        return Ok(runbook.context("an alert without a runbook")?.1);
    }
    let nearest = known
        .iter()
        .map(|(name, _)| (levenshtein(&self::key(name), &key), *name))
        .min()
        .filter(|(distance, _)| *distance <= (key.chars().count() / 2).max(MOST_CHANGED));
    match nearest {
        Some((_, name)) => {
            bail!("no runbook {wanted:?}; did you mean {name}? railscope runbook lists all")
        }
        None => bail!("no runbook {wanted:?}: railscope runbook lists all"),
    }
}

/// All alerts with the names of their runbooks.
fn alerts() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rules = RULES.split("- alert: ").skip(1);
    rules.filter_map(|rule| {
        let url = rule
            .lines()
            .find_map(|line| line.trim().strip_prefix("runbook_url: '"))?;
        let (_, file) = url.rsplit_once("}}/").or_else(|| url.rsplit_once('/'))?;
        Some((rule.lines().next()?.trim(), file.split_once(".md")?.0))
    })
}

/// A name in lower case without hyphens and without the prefix of alerts.
fn key(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let key: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    match key.strip_prefix("railscope") {
        Some(rest) if !rest.is_empty() => rest.to_owned(),
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_runbook_of_the_folder_is_in_the_binary_in_order() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../alerts/runbooks");
        let files = folder.read_dir().expect("runbooks").map(|entry| {
            let name = entry.expect("entry").file_name();
            name.to_string_lossy().trim_end_matches(".md").to_owned()
        });
        let files: BTreeSet<String> = files.collect();
        let here: Vec<String> = RUNBOOKS
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        assert_eq!(here, files.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn classes_and_alerts_are_found_in_any_spelling() {
        for (name, title) in [
            ("pcie-degraded", "# pcie-degraded: "),
            ("PCIE_Degraded", "# pcie-degraded: "),
            ("RailscopeCollectorDown", "# RailscopeCollectorDown: "),
            ("collector-down", "# RailscopeCollectorDown: "),
            (
                "railscopetaillatencyburnslow",
                "# RailscopeTailLatencyBurnFast, RailscopeTailLatencyBurnSlow: ",
            ),
            // The runbook of a class.
            ("RailscopeGpuXidNeedsNodeRestart", "# gpu-lost: "),
        ] {
            let text = find(name).expect(name);
            assert!(text.starts_with(title), "{name}: {text}");
        }
    }

    #[test]
    fn every_alert_but_those_of_incidents_has_a_runbook() {
        let alerts: Vec<_> = alerts().collect();
        assert_eq!(alerts.len(), RULES.matches("- alert: ").count() - 2);
        for (alert, _) in alerts {
            assert!(find(alert).is_ok(), "{alert}");
        }
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_as_a_suggestion() {
        let error = |name| find(name).expect_err(name).to_string();
        assert!(error("pcie-degarded").contains("did you mean pcie-degraded?"));
        assert!(
            error("RailscopeExporterDown").contains("did you mean"),
            "{}",
            error("RailscopeExporterDown")
        );
        assert!(
            error("zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz")
                .contains("railscope runbook lists all")
        );
        assert!(error("RailscopeIncidentCritical").contains("runbook of its fault class"));
        assert!(error("").contains("railscope runbook lists all"));
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let list = list();
        assert_eq!(list.lines().count(), RUNBOOKS.len());
        assert!(list.contains("pcie-degraded"), "{list}");
    }

    #[test]
    fn distances_count_changes() {
        for (a, b, changes) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(levenshtein(a, b), changes, "{a} {b}");
        }
    }
}
