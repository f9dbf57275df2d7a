//! `railscope explain`: an incident as text, from a collector, or what the detectors check.

mod detectors;

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::topology::remote::ask_within;

/// Longest wait for the collector's response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Parts of a list that are named, without `--all`.
const SHOWN_PARTS: usize = 5;
/// Checks whose findings are shown, without `--all`: a dead leaf of 64 ports fits on a screen of 40 lines.
const SHOWN_CHECKS: usize = 2;

/// Explain an incident: component, probability, evidence, affected jobs, what clears it, and what to do. Exit status 1 if
/// it is not open. With --detectors, print what the detectors check; this needs no collector.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// ID of an open incident, as in alerts, the API and the web page.
    #[arg(required_unless_present = "detectors", conflicts_with = "detectors")]
    incident: Option<String>,
    /// Print every finding and every component; by default, findings of one check are grouped and lists are shortened.
    #[arg(long, conflicts_with = "detectors")]
    all: bool,
    /// Print what every detector checks, each threshold with its source, what clears it, and its runbook; with a name, only
    /// that detector, or the detectors of that class.
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    detectors: Option<Option<String>>,
    /// Output format of the detectors.
    #[arg(long, value_enum, default_value_t = Format::Text, requires = "detectors")]
    format: Format,
    /// Address of the collector.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:10661")]
    collector: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// The fields of the API's response that are used here.
#[derive(Debug, Deserialize)]
struct Incident {
    id: String,
    fault_domain: String,
    part: String,
    class: String,
    title: String,
    severity: String,
    at: f64,
    since: f64,
    last_seen: f64,
    posterior: f64,
    reopenings: u32,
    gpus_affected: usize,
    gpus_behind: usize,
    jobs: Vec<String>,
    slowdown: Option<f64>,
    summary: String,
    action: String,
    runbook: String,
    maintenance: Option<Maintenance>,
    candidates: Vec<Candidate>,
    no_part: Option<f64>,
    evidence: Vec<Evidence>,
    #[serde(default)]
    alternatives: Vec<String>,
    related: Vec<String>,
    victims: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Maintenance {
    until: f64,
    why: String,
}

#[derive(Debug, Deserialize)]
struct Candidate {
    fault_domain: String,
    part: String,
    posterior: f64,
    nats: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    detector: String,
    part: String,
    statement: String,
    check: String,
    threshold: String,
    clears: String,
}

/// Queries the collector, or the built-in detectors, and prints the result.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let text = match (&args.detectors, &args.incident) {
        (Some(name), _) => detectors::tell(name.as_deref(), args.format)?,
        (None, Some(incident)) => of_incident(args, incident)?,
        (None, None) => bail!("an incident or --detectors: expected one of them"),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot print")
}

fn of_incident(args: &ExplainArgs, id: &str) -> anyhow::Result<String> {
    let path = ["incidents", id];
    let answer = ask_within(PATIENCE, &args.collector, &path, &[])?;
    let incident = serde_json::from_str(&answer)
        .with_context(|| format!("{}: incident {id}: not an incident", args.collector))?;
    let mut text = String::new();
    let shown = if args.all { Shown::ALL } else { Shown::FEW };
    explain(&mut text, &incident, shown)?;
    Ok(text)
}

/// How much of an incident is printed.
#[derive(Debug, Clone, Copy)]
struct Shown {
    checks: usize,
    /// Findings of each check.
    findings: usize,
    /// Parts of each list.
    parts: usize,
}

impl Shown {
    const ALL: Self = Self {
        checks: usize::MAX,
        findings: usize::MAX,
        parts: usize::MAX,
    };
    const FEW: Self = Self {
        checks: SHOWN_CHECKS,
        findings: 1,
        parts: SHOWN_PARTS,
    };
}

/// The incident as text.
fn explain(out: &mut String, incident: &Incident, shown: Shown) -> fmt::Result {
    writeln!(out, "{} ({})", incident.title, incident.severity)?;
    writeln!(out, "{}\n", incident.part)?;
    let age = incident.at - incident.since;
    writeln!(out, "Incident     {}", incident.id)?;
    writeln!(out, "Part         {}", incident.fault_domain)?;
    writeln!(out, "Class        {}", incident.class)?;
    let last_seen = incident.at - incident.last_seen;
    write!(
        out,
        "Since        {} ago, last seen {} ago",
        span(age),
        span(last_seen)
    )?;
    match incident.reopenings {
        0 => writeln!(out)?,
        1 => writeln!(out, "; it closed and came back once")?,
        times => writeln!(out, "; it closed and came back {times} times")?,
    }
    writeln!(
        out,
        "Probability  {:.1} %: that this component is the cause, given the evidence",
        100.0 * incident.posterior
    )?;
    if let Some(work) = &incident.maintenance {
        let why = if work.why.is_empty() {
            "no reason given"
        } else {
            &work.why
        };
        let left = work.until - incident.at;
        let when = if left > 0.0 {
            format!("for another {}", span(left))
        } else {
            format!("until {} ago", span(-left))
        };
        writeln!(out, "Maintenance  {why}, {when}: no page is sent")?;
    }
    candidates(out, incident, shown)?;
    evidence(out, incident, shown)?;
    out.push('\n');
    parts(out, "May also be", &incident.alternatives, shown)?;
    parts(out, "Shares the fault", &incident.related, shown)?;
    parts(out, "Behind it", &incident.victims, shown)?;
    parts(out, "Jobs that use it", &incident.jobs, shown)?;
    impact(out, incident)?;
    writeln!(out, "\nWhat to do\n  {}", incident.action)?;
    writeln!(out, "  Runbook: {}", incident.runbook)
}

/// GPUs behind the part, jobs that use it, and their slowdown, if that was measured.
fn impact(out: &mut String, incident: &Incident) -> fmt::Result {
    if !incident.jobs.is_empty() {
        let measured = match incident.slowdown {
            Some(slowdown) if slowdown >= 0.005 => {
                format!(
                    "The slowest is {:.0} % slower than usual.",
                    100.0 * slowdown
                )
            }
            Some(_) => String::from("None is slower than usual."),
            None => String::from("The slowdown cannot be measured yet."),
        };
        writeln!(out, "{measured}")?;
    }
    writeln!(
        out,
        "GPUs behind it: {}; with all GPUs of the jobs that use it: {}",
        incident.gpus_behind, incident.gpus_affected
    )
}

/// A probability with its significant digits: ` 99.0 %`, `< 0.1 %`.
fn percent(chance: f64) -> String {
    match 100.0 * chance {
        little if little < 0.1 => String::from("< 0.1 %"),
        share => format!("{share:>5.1} %"),
    }
}

/// The part and its alternatives, each with its evidence.
fn candidates(out: &mut String, incident: &Incident, shown: Shown) -> fmt::Result {
    let Some(no_part) = incident.no_part else {
        return Ok(());
    };
    out.push_str("\nCandidates (evidence as log-likelihood ratio to no faulty component, nats)\n");
    for one in incident.candidates.iter().take(shown.parts) {
        let chance = percent(one.posterior);
        let weighed = one.nats.iter().enumerate();
        let weights = weighed.map(|(place, nats)| format!("{}: {nats:+.1}", place + 1));
        let weights: Vec<String> = weights.collect();
        let domain = &one.fault_domain;
        writeln!(
            out,
            "  {chance}  {} ({domain}); {}",
            one.part,
            few(&weights, shown)
        )?;
    }
    let chance = percent(no_part);
    writeln!(
        out,
        "  {chance}  no component: software, or a transient condition"
    )
}

/// Findings of one check stand together, numbered as the weights of the candidates are.
fn evidence(out: &mut String, incident: &Incident, shown: Shown) -> fmt::Result {
    out.push_str("\nEvidence\n");
    if incident.evidence.is_empty() {
        return writeln!(out, "  {}", incident.summary);
    }
    let mut checks: Vec<Vec<(usize, &Evidence)>> = Vec::new();
    for (number, seen) in (1..).zip(&incident.evidence) {
        let is_alike = |(_, other): &(usize, &Evidence)| {
            (&seen.detector, &seen.check, &seen.threshold)
                == (&other.detector, &other.check, &other.threshold)
        };
        match checks.iter_mut().find(|alike| is_alike(&alike[0])) {
            Some(alike) => alike.push((number, seen)),
            None => checks.push(vec![(number, seen)]),
        }
    }
    for alike in checks.iter().take(shown.checks) {
        for (number, seen) in alike.iter().take(shown.findings) {
            writeln!(out, "  {number}. {}", seen.statement)?;
            write!(out, "     part        {}", seen.part)?;
            match alike.len().saturating_sub(shown.findings) {
                0 => writeln!(out)?,
                more => writeln!(out, ", and {more} more like it")?,
            }
        }
        let (_, seen) = alike[0];
        writeln!(out, "     checked     {} ({})", seen.check, seen.detector)?;
        writeln!(out, "     threshold   {}", seen.threshold)?;
        writeln!(out, "     clears when {}", seen.clears)?;
    }
    let left = checks
        .iter()
        .skip(shown.checks)
        .map(Vec::len)
        .sum::<usize>();
    if left > 0 {
        writeln!(out, "  and {left} findings of other checks (--all)")?;
    }
    Ok(())
}

/// A list of parts in one line.
fn parts(out: &mut String, title: &str, parts: &[String], shown: Shown) -> fmt::Result {
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title} ({}): {}", parts.len(), few(parts, shown))
}

/// The first of a list, and how many are left.
fn few(items: &[String], shown: Shown) -> String {
    let first = items[..items.len().min(shown.parts)].join(", ");
    match items.len().saturating_sub(shown.parts) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// A span of time in one unit.
fn span(seconds: f64) -> String {
    match seconds.max(0.0) {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
        seconds => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incident_is_told_with_its_evidence_and_what_to_do() {
        let answer = r#"{"id": "0a1b2c3d", "fault_domain": "link/n3:mlx5_2/1", "part": "Cable from n3 mlx5_2/1",
            "class": "port-down", "title": "Link is down", "severity": "warning", "at": 1000, "since": 700,
            "last_seen": 995, "posterior": 0.95, "reopenings": 1, "gpus_affected": 512, "gpus_behind": 1, "jobs": ["4711"], "slowdown": 0.12, "summary": "down",
            "action": "Reseat it.", "runbook": "/port-down.md", "maintenance": {"until": 1600, "why": "new cable"},
            "candidates": [{"fault_domain": "link/n3:mlx5_2/1", "part": "Cable from n3 mlx5_2/1", "posterior": 0.95, "nats": [5.0]},
            {"fault_domain": "nic/n3:mlx5_2", "part": "NIC mlx5_2 of n3", "posterior": 0.02, "nats": [1.0]}], "no_part": 0.01,
            "evidence": [{"detector": "degraded-link", "part": "link/n3:mlx5_2/1", "statement": "It is down.",
            "check": "Looked.", "threshold": "any", "clears": "It is up."}], "alternatives": ["link/n3:mlx5_3/1"], "related": [], "victims": ["gpu/n3:2"]}"#;
        let incident: Incident = serde_json::from_str(answer).expect("as the API answers");
        let mut text = String::new();
        explain(&mut text, &incident, Shown::FEW).expect("told");
        for said in [
            "Since        5 min ago, last seen 5 s ago; it closed and came back once",
            "Probability  95.0 %",
            "Maintenance  new cable, for another 10 min: no page is sent",
            "   95.0 %  Cable from n3 mlx5_2/1 (link/n3:mlx5_2/1); 1: +5.0",
            "    2.0 %  NIC mlx5_2 of n3",
            "    1.0 %  no component",
            "1. It is down.",
            "threshold   any",
            "May also be (1): link/n3:mlx5_3/1",
            "Behind it (1): gpu/n3:2",
            "Jobs that use it (1): 4711",
            "The slowest is 12 % slower than usual.",
            "GPUs behind it: 1; with all GPUs of the jobs that use it: 512",
            "What to do\n  Reseat it.",
        ] {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }

    #[test]
    fn a_dead_leaf_of_64_ports_fits_on_a_screen_and_all_of_it_is_there_on_request() {
        let names = |kind: &str| (0..64).map(|n| format!("{kind}/n{n}")).collect::<Vec<_>>();
        let found = |detector: &str| {
            let of = |part: String| {
                serde_json::json!({"detector": detector, "part": part, "statement": format!("{part} is down."),
                    "check": detector, "threshold": "any", "clears": "It is up."})
            };
            names("link").into_iter().map(of).collect::<Vec<_>>()
        };
        let evidence = [
            found("degraded-link"),
            found("flapping-port"),
            found("switch-ports"),
        ];
        let candidate = |part: &str| serde_json::json!({"fault_domain": part, "part": part, "posterior": 0.5, "nats": vec![1.0; 192]});
        let candidates = ["a", "b", "c"].map(candidate);
        let incident = serde_json::json!({"id": "0a1b2c3d", "fault_domain": "switch/leaf1", "part": "Switch leaf1",
            "class": "switch-down", "title": "Switch is down", "severity": "critical", "at": 1000, "since": 700,
            "last_seen": 995, "posterior": 0.95, "reopenings": 1, "gpus_affected": 512, "gpus_behind": 64, "jobs": names("job"),
            "slowdown": 0.12, "summary": "down", "action": "Look.", "runbook": "/switch-down.md",
            "maintenance": {"until": 1600, "why": "new"}, "candidates": candidates, "no_part": 0.01,
            "evidence": evidence.concat(), "alternatives": names("switch"), "related": names("link"), "victims": names("gpu")});
        let incident: Incident = serde_json::from_value(incident).expect("as the API answers");
        let told = |shown| {
            let mut text = String::new();
            explain(&mut text, &incident, shown).expect("told");
            text
        };
        let few = told(Shown::FEW);
        assert!(
            few.lines().count() <= 40,
            "{} lines\n{few}",
            few.lines().count()
        );
        assert!(
            few.contains("part        link/n0, and 63 more like it"),
            "{few}"
        );
        assert!(
            few.contains("and 64 findings of other checks (--all)"),
            "{few}"
        );
        assert!(told(Shown::ALL).contains("192. link/n63 is down."));
    }
}
