//! The top of the web page: the fabric's classification, counts, and the age of the data.

use std::fmt::{self, Write};

use railscope_model::fabric::Timestamp;

use super::Look;
use super::html::Esc;
use crate::classes::Severity;
use crate::clock::unix_seconds;
use crate::diagnose::observer::Late;
use crate::serve::{phrases, wire};

/// An analysis older than this is not "now": several ticks were missed.
const TICK_STALE_SECONDS: f64 = 30.0;
/// A sweep older than so many intervals does not show the cables of now, as for the alert `RailscopeSubnetStale`.
const SUBNET_STALE_INTERVALS: u32 = 5;

pub(super) fn header(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let view = &look.snapshot.view;
    let age = look.state.now().seconds_since(view.now);
    if age > TICK_STALE_SECONDS {
        writeln!(
            out,
            "<p class=\"banner\" role=\"alert\">The analysis last ran {} ago: the data below is outdated.</p>",
            phrases::span(age)
        )?;
    }
    if let Some(open) = view.observation.suspension {
        let cause = match open.late {
            Late::Targets => format!(
                "Samples of many nodes are late ({} now)",
                view.observation.late_targets
            ),
            Late::Analysis => String::from("The collector itself is late"),
        };
        writeln!(
            out,
            "<p class=\"banner\" role=\"alert\">{cause}: no new incident opens since {}, until two intervals are complete.</p>",
            phrases::span(view.now.seconds_since(open.since))
        )?;
    }
    out.push_str("<section class=\"top\" aria-label=\"Summary\">\n");
    verdict(out, look)?;
    facts(out, look)?;
    out.push_str("</section>\n");
    Ok(())
}

fn verdict(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let view = &look.snapshot.view;
    let layout = &look.snapshot.layout;
    let verdict = &view.verdict;
    let kind = verdict.kind.to_string();
    let mut chars = kind.chars();
    let capital: String = chars
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .chain(chars)
        .collect();
    write!(out, "<div class=\"verdict\"><h1>{}", Esc(capital))?;
    if verdict.levels > 0 {
        write!(out, ", {}", phrases::count(verdict.levels, "tier"))?;
    }
    let rails = layout
        .hosts
        .iter()
        .flat_map(|host| &host.nics)
        .filter_map(|nic| nic.rail)
        .max();
    let mut said = vec![
        phrases::count(layout.hosts.len(), "node"),
        phrases::count(layout.gpus, "GPU"),
        phrases::count(layout.nics(), "NIC"),
    ];
    said.extend(rails.map(|rail| phrases::count(usize::from(rail) + 1, "rail")));
    if !layout.units.is_empty() {
        said.push(phrases::count(layout.units.len(), "unit"));
    }
    for tier in 1..=layout.levels() {
        let name = crate::serve::layout::tier_name(tier, layout.levels());
        said.push(phrases::count(layout.tier(tier).count(), name));
    }
    write!(
        out,
        "</h1>\n<p class=\"counts\">{}</p>\n",
        Esc(said.join(" · "))
    )?;
    let (evidence, doubts) = (&verdict.evidence, &verdict.doubts);
    if !evidence.is_empty() || !doubts.is_empty() {
        write!(
            out,
            "<details data-key=\"verdict\"><summary>Why: confidence {}",
            Esc(verdict.confidence)
        )?;
        if !doubts.is_empty() {
            write!(
                out,
                ", <strong>{}</strong>",
                phrases::count(doubts.len(), "doubt")
            )?;
        }
        out.push_str("</summary><ul>");
        for sentence in evidence {
            write!(out, "<li>{}</li>", Esc(sentence))?;
        }
        for sentence in doubts {
            write!(
                out,
                "<li class=\"doubt\"><strong>Doubt:</strong> {}</li>",
                Esc(sentence)
            )?;
        }
        out.push_str("</ul></details>");
    }
    out.push_str("</div>\n");
    Ok(())
}

fn facts(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let (view, layout) = (&look.snapshot.view, &look.snapshot.layout);
    let now = look.state.now();
    let of = |severity| {
        view.incidents
            .iter()
            .filter(|incident| incident.severity == severity)
            .count()
    };
    let (critical, warning) = (of(Severity::Critical), of(Severity::Warning));
    let (targets, up) = {
        let targets = look.state.targets();
        (targets.count(), targets.up())
    };
    let affected = wire::gpus_affected(view);
    out.push_str("<dl class=\"facts\">");
    fact(
        out,
        if critical > 0 { "bad" } else { "" },
        &critical,
        "critical",
    )?;
    fact(
        out,
        if warning > 0 { "warn" } else { "" },
        &warning,
        "warning",
    )?;
    fact(
        out,
        "",
        &format_args!("{affected}<small> / {}</small>", layout.gpus),
        "GPUs affected",
    )?;
    let class = if up < targets { "warn" } else { "" };
    fact(
        out,
        class,
        &format_args!("{up}<small> / {targets}</small>"),
        "exporters up",
    )?;
    match view.subnet_seen {
        Some(seen) => {
            let age = now.seconds_since(seen);
            let limit = (look.state.subnet_interval).map(|own| own * SUBNET_STALE_INTERVALS);
            let is_stale = limit.is_some_and(|limit| age > limit.as_secs_f64());
            let class = if is_stale { "warn" } else { "" };
            fact(out, class, &phrases::span(age), "subnet age")?;
        }
        None if look.state.has_subnet => fact(out, "warn", &"none", "complete sweep")?,
        None if view.lldp.cables > 0 => {
            fact(out, "", &view.lldp.cables, "cables known by LLDP")?;
        }
        None => fact(out, "", &"–", "no subnet source")?,
    }
    fact(out, "", &clock(view.now), "analyzed, UTC")?;
    out.push_str("</dl>\n");
    Ok(())
}

/// One figure with its name. The value is ours: numbers and times.
fn fact(out: &mut String, class: &str, value: &dyn fmt::Display, name: &str) -> fmt::Result {
    write!(
        out,
        "<div class=\"{class}\"><dd>{value}</dd><dt>{name}</dt></div>"
    )
}

fn clock(at: Timestamp) -> String {
    let utc = phrases::utc(unix_seconds(at));
    utc.split(' ').nth(1).unwrap_or_default().to_owned()
}
