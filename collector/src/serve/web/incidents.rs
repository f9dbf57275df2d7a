//! Incidents: a card for each on the overview, a page for each with all details.

use std::fmt::{self, Write};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::html::Esc;
use super::{Look, curve, evidence, home, known, matrix};
use crate::classes::Severity;
use crate::clock::unix_seconds;
use crate::diagnose::incident::Incident;
use crate::diagnose::stages::maintenance::Window;
use crate::jobs::straggler::Answer;
use crate::serve::phrases;
use crate::serve::router::runbook;

/// Cards on the overview. More incidents than this are read as a list.
const MAX_CARDS: usize = 50;
/// Sentences of evidence on a card.
const CARD_EVIDENCE: usize = 2;
/// Jobs named in one place.
const SHOWN_JOBS: usize = 5;
/// Parts named in one list.
const MAX_PARTS: usize = 256;
/// Nodes shown on the page of an incident.
const MAX_NODES: usize = 64;

pub(super) fn list(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let incidents = &look.snapshot.view.incidents;
    out.push_str("<section class=\"what\" aria-label=\"Incidents\">\n");
    if incidents.is_empty() {
        calm(out, look)?;
    }
    for incident in incidents.iter().take(MAX_CARDS) {
        card(out, look, incident)?;
    }
    if incidents.len() > MAX_CARDS {
        write!(
            out,
            "<p class=\"more\">and {} more, <a href=\"{}api/v1/incidents\">all as JSON</a></p>",
            incidents.len() - MAX_CARDS,
            look.root
        )?;
    }
    known::unreadable(out, look)?;
    announced(out, look)?;
    out.push_str("</section>\n");
    Ok(())
}

/// Work that is announced and not over.
fn announced(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let windows = &look.snapshot.view.maintenance;
    if windows.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<details data-key=\"maintenance\"><summary>{}</summary><ul>",
        phrases::count(windows.len(), "maintenance window")
    )?;
    for window in windows.iter().take(MAX_PARTS) {
        write!(out, "<li>{}: ", work(window, look.snapshot.view.now))?;
        for part in window.parts.iter().take(MAX_PARTS) {
            write!(out, "<code>{}</code> ", Esc(part))?;
        }
        out.push_str("</li>");
    }
    out.push_str("</ul></details>");
    Ok(())
}

/// A window as text; when it begins, if it has not yet.
fn work(window: &Window, now: Timestamp) -> String {
    let [from, until] = [window.from, window.until].map(|at| phrases::utc(unix_seconds(at)));
    let from = if window.from > now {
        format!("from {from} ")
    } else {
        String::new()
    };
    let why = if window.why.is_empty() {
        "maintenance"
    } else {
        window.why.as_str()
    };
    format!("{}, {from}until {until}", Esc(why))
}

fn calm(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let (targets, up) = {
        let targets = look.state.targets();
        (targets.count(), targets.up())
    };
    let layout = &look.snapshot.layout;
    let unknown = layout.has_unknown();
    let mark = if unknown { "?" } else { "✓" };
    write!(
        out,
        "<article class=\"calm\"><h2><span aria-hidden=\"true\">{mark}</span> No open incidents</h2><p>",
    )?;
    match (targets, up) {
        (0, _) => out.push_str("No exporter is configured, so this is not meaningful: add targets or file_sd."),
        (all, up) if up < all => {
            write!(out, "But only {up} of {all} exporters respond: the state of the other nodes is unknown.")?;
        }
        _ if unknown => out.push_str("But the state of some components is unknown: their faults are not detected."),
        _ => out.push_str("No hardware cause for a slow job was found. If a job is slow, check its code, its input or its schedule next."),
    }
    write!(out, "<br>This is based on {}.", known::rests_on(layout))?;
    uneven_jobs(out, look)?;
    out.push_str("</p></article>\n");
    Ok(())
}

/// Jobs that wait for something that is no part, for readers with a slow job.
fn uneven_jobs(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let waiting = look.snapshot.view.waiting.iter();
    let uneven = waiting.filter(|one| one.answer == Answer::SoftwareImbalance);
    for waiting in uneven.take(SHOWN_JOBS) {
        let job = waiting.job.as_deref().unwrap_or("of unknown name");
        write!(out, "<br>Job {}: {}", Esc(job), Esc(&waiting.sentence))?;
    }
    Ok(())
}

fn card(out: &mut String, look: &Look<'_>, incident: &Incident) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let id = Esc(&incident.id);
    let root = look.root;
    write!(
        out,
        "<article class=\"card {}\" id=\"i{id}\">",
        incident.severity.as_str()
    )?;
    head(out, look, incident, true)?;
    write!(
        out,
        "<p class=\"part\">{}</p>",
        Esc(phrases::part(&incident.root, layout))
    )?;
    out.push_str("<ul class=\"evidence\">");
    for finding in incident.findings.iter().take(CARD_EVIDENCE) {
        write!(out, "<li>{}</li>", Esc(&finding.evidence.statement))?;
    }
    out.push_str("</ul>");
    jobs(out, incident)?;
    action(out, look, incident)?;
    write!(
        out,
        "<div class=\"links\"><a href=\"{root}incidents/{id}\">All evidence ({})</a>",
        incident.findings.len()
    )?;
    related_and_victims(out, incident, false)?;
    out.push_str("</div>");
    out.push_str("</article>\n");
    Ok(())
}

/// What waits for the part.
fn jobs(out: &mut String, incident: &Incident) -> fmt::Result {
    let names: Vec<&str> = incident
        .jobs
        .iter()
        .take(SHOWN_JOBS)
        .map(|job| &**job)
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    write!(
        out,
        "<p class=\"jobs\">{} of {}: {}{}",
        phrases::count(incident.gpus_affected, "GPU"),
        phrases::count(incident.jobs.len(), "job"),
        Esc(names.join(", ")),
        if incident.jobs.len() > SHOWN_JOBS {
            " …"
        } else {
            ""
        },
    )?;
    match incident.slowdown {
        Some(slowdown) if slowdown >= 0.005 => {
            write!(out, "; {:.0} % slower than usual", 100.0 * slowdown)?;
        }
        Some(_) => out.push_str("; not slower than usual"),
        None => out.push_str("; slowdown not measurable yet"),
    }
    out.push_str("</p>");
    Ok(())
}

fn head(out: &mut String, look: &Look<'_>, incident: &Incident, link: bool) -> fmt::Result {
    let now = look.state.now();
    let mark = match incident.severity {
        Severity::Critical => "✕",
        Severity::Warning => "▲",
    };
    write!(
        out,
        "<header><span class=\"badge\"><span aria-hidden=\"true\">{mark}</span> {}</span>",
        incident.severity.as_str()
    )?;
    if let Some(window) = &incident.maintenance {
        let work = work(window, look.snapshot.view.now);
        write!(out, "<span class=\"aside\">{work}</span>")?;
    }
    let title = Esc(incident.class.title);
    if link {
        write!(
            out,
            "<h2><a href=\"{}incidents/{}\">{title}</a></h2>",
            look.root,
            Esc(&incident.id)
        )?;
    } else {
        write!(out, "<h1>{title}</h1>")?;
    }
    write!(
        out,
        "<span class=\"aside\"><time title=\"since {}\">for {}</time>{}</span></header>",
        phrases::utc(unix_seconds(incident.since)),
        phrases::span(now.seconds_since(incident.since)),
        match incident.gpus_behind().count() {
            0 => String::new(),
            gpus => format!("<b>{} behind it</b>", phrases::count(gpus, "GPU")),
        },
    )
}

fn action(out: &mut String, look: &Look<'_>, incident: &Incident) -> fmt::Result {
    write!(
        out,
        "<p class=\"action\"><span aria-hidden=\"true\">→</span> {}",
        Esc(&phrases::action(
            incident.class,
            &incident.root,
            &look.snapshot.layout
        ))
    )?;
    let address = runbook(&look.state.runbook, incident.class.name);
    // The pattern is the operator's, but only addresses of the web become links.
    if address.starts_with("https://") || address.starts_with("http://") || address.starts_with('/')
    {
        write!(out, " <a href=\"{}\">Runbook</a>", Esc(&address))?;
    }
    out.push_str("</p>");
    Ok(())
}

fn related_and_victims(out: &mut String, incident: &Incident, open: bool) -> fmt::Result {
    let (related, victims) = (&incident.related, &incident.victims);
    let others = &incident.alternatives;
    let title = format!(
        "{} that may be the cause instead",
        phrases::count(others.len(), "component")
    );
    parts(out, incident, ("alternatives", &title), others, open)?;
    let title = format!(
        "{} of the same fault",
        phrases::count(related.len(), "component")
    );
    parts(out, incident, ("related", &title), related, open)?;
    let title = format!("{} behind it", phrases::count(victims.len(), "component"));
    parts(out, incident, ("victims", &title), victims, open)
}

fn parts(
    out: &mut String,
    incident: &Incident,
    (key, title): (&str, &str),
    parts: &[Part],
    open: bool,
) -> fmt::Result {
    if parts.is_empty() {
        return Ok(());
    }
    let open = if open { " open" } else { "" };
    write!(
        out,
        "<details data-key=\"{}-{key}\"{open}><summary>{title}</summary><p class=\"parts\">",
        Esc(&incident.id)
    )?;
    for part in parts.iter().take(MAX_PARTS) {
        write!(out, "<code>{}</code> ", Esc(part))?;
    }
    if parts.len() > MAX_PARTS {
        write!(out, "and {} more", parts.len() - MAX_PARTS)?;
    }
    out.push_str("</p></details>");
    Ok(())
}

/// The page of one incident.
pub(super) fn page(out: &mut String, look: &Look<'_>, incident: &Incident) -> fmt::Result {
    let layout = &look.snapshot.layout;
    write!(
        out,
        "<p class=\"back\"><a href=\"{}\">← All incidents</a></p>",
        home(look.root)
    )?;
    write!(
        out,
        "<article class=\"card full {}\">",
        incident.severity.as_str()
    )?;
    head(out, look, incident, false)?;
    write!(
        out,
        "<p class=\"part\">{}</p>",
        Esc(phrases::part(&incident.root, layout))
    )?;
    action(out, look, incident)?;
    facts(out, incident)?;
    curve::section(out, look, incident)?;
    candidates(out, look, incident)?;
    evidence::section(out, incident)?;
    related_and_victims(out, incident, true)?;
    out.push_str("</article>\n");
    let places = touched(look, incident);
    if !places.is_empty() {
        out.push_str("<section class=\"where\"><h2>Location</h2>");
        matrix::nodes(out, look, &places, MAX_NODES)?;
        out.push_str("</section>\n");
    }
    Ok(())
}

/// Alternatives, where their probability is relevant.
fn candidates(out: &mut String, look: &Look<'_>, incident: &Incident) -> fmt::Result {
    let Some(weighed) = &incident.weighed else {
        return Ok(());
    };
    out.push_str("<h2>Probability</h2><table class=\"chances\"><tbody>");
    let percent = |chance: f64| match 100.0 * chance {
        little if little < 0.1 => String::from("&lt; 0.1 %"),
        share => format!("{share:.1} %"),
    };
    for one in &weighed.candidates {
        write!(
            out,
            "<tr><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            percent(one.posterior),
            Esc(phrases::part(&one.part, &look.snapshot.layout)),
            Esc(&one.part)
        )?;
    }
    write!(
        out,
        "<tr><td>{}</td><td>No component: software, or a transient condition</td><td></td></tr></tbody></table>",
        percent(weighed.no_part)
    )
}

fn facts(out: &mut String, incident: &Incident) -> fmt::Result {
    write!(
        out,
        "<dl class=\"small\"><div><dt>Fault domain</dt><dd><code>{}</code></dd></div><div><dt>Class</dt><dd>{}</dd></div>\
         <div><dt>Since</dt><dd>{}</dd></div><div><dt>Last seen</dt><dd>{}</dd></div><div><dt>Effect</dt><dd>{}</dd></div>\
         <div><dt>Incident</dt><dd><code>{}</code></dd></div></dl>",
        Esc(&incident.root),
        incident.class.name,
        phrases::utc(unix_seconds(incident.since)),
        phrases::utc(unix_seconds(incident.last_seen)),
        if incident.effect > 0.0 {
            format!("{:.0} % different from its peers", 100.0 * incident.effect)
        } else {
            String::from("unknown")
        },
        Esc(&incident.id),
    )
}

/// Nodes that the incident names, by place.
fn touched(look: &Look<'_>, incident: &Incident) -> Vec<usize> {
    let layout = &look.snapshot.layout;
    let parts = [&incident.root]
        .into_iter()
        .chain(&incident.related)
        .chain(&incident.victims);
    let mut places: Vec<_> = parts
        .filter_map(Part::node)
        .filter_map(|node| layout.host_place(node))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_work_says_when_it_ends_and_before_it_begins_when_that_is() {
        let raw = r#"{"parts": ["host/n1"], "from": 100, "until": 200, "why": "<new> fan"}"#;
        let raw: crate::maintenance::RawWindow = serde_json::from_str(raw).expect("JSON");
        let window = raw.check(Timestamp(0)).expect("a window");
        let until = "until 1970-01-01 00:03:20 UTC";
        for (now, said) in [
            (
                99_999,
                format!("&lt;new&gt; fan, from 1970-01-01 00:01:40 UTC {until}"),
            ),
            (100_000, format!("&lt;new&gt; fan, {until}")),
        ] {
            assert_eq!(work(&window, Timestamp(now)), said);
        }
    }
}
