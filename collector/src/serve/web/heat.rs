//! Leaves by rails as a heat map: units from left to right, a row for each rail, marks only where something is wrong.

use std::fmt::{self, Write};

use super::Look;
use super::fabric::{describe, incident_link, mark};
use super::html::Esc;
use crate::serve::layout::{Condition, Health, Layout, Switch, Unit};
use crate::serve::phrases;

/// Units side by side: on a phone a cell is then still ten pixels wide. The style sheet cuts rows into as many cells.
const ACROSS: usize = 32;
/// Units that are drawn: 128,000 GPUs of a usual fabric.
const MOST_UNITS: usize = 512;
/// Height of a row, pixels.
const ROW: u32 = 14;

/// Every unit, or the first of very many.
pub(super) fn map(out: &mut String, look: &Look<'_>, rails: u16) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let drawn = &layout.units[..layout.units.len().min(MOST_UNITS)];
    out.push_str("<table class=\"heat\">");
    for units in drawn.chunks(ACROSS) {
        let names = units.first().zip(units.last());
        let names = names.map_or_else(String::new, |(first, last)| {
            format!("{} to {}", first.name, last.name)
        });
        write!(
            out,
            "<tbody><tr class=\"unit\"><th scope=\"col\">rail</th><th scope=\"col\">{}</th></tr>",
            Esc(&names)
        )?;
        for rail in 0..rails {
            row(out, look, (units, &names), rail)?;
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table>\n");
    if layout.units.len() > MOST_UNITS {
        writeln!(
            out,
            "<p class=\"more\">and {} more, not drawn</p>",
            phrases::count(layout.units.len() - MOST_UNITS, "unit")
        )?;
    }
    Ok(())
}

/// The worst leaf of a unit on a rail.
fn worst<'a>(layout: &'a Layout, unit: &Unit, rail: u16) -> Option<&'a Switch> {
    let leaves = unit.leaves.iter().map(|leaf| &layout.switches[*leaf]);
    let of_rail = leaves.filter(|leaf| leaf.rail == Some(rail));
    of_rail.max_by_key(|leaf| leaf.condition.health)
}

/// One rail: a run of healthy leaves is one box, anything else has its own.
fn row(
    out: &mut String,
    look: &Look<'_>,
    (units, names): (&[Unit], &str),
    rail: u16,
) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let cells: Vec<Option<&Switch>> = units.iter().map(|unit| worst(layout, unit, rail)).collect();
    let leaves = cells.iter().flatten().count();
    let mut said = format!("Rail {rail}, {names}: {}", phrases::count(leaves, "leaf"));
    for health in [Health::Down, Health::Degraded, Health::Unknown] {
        let such = cells.iter().flatten();
        let such = such.filter(|leaf| leaf.condition.health == health);
        match such.count() {
            0 => {}
            many => write!(said, ", {many} {}", health.as_str())?,
        }
    }
    write!(
        out,
        "<tr><th scope=\"row\">{rail}</th><td><svg class=\"cells\" width=\"100%\" height=\"{ROW}\" role=\"group\" aria-label=\"{}\">",
        Esc(said)
    )?;
    let is_well = |cell: &Option<&Switch>| {
        cell.is_some_and(|leaf| leaf.condition == Condition::plain(Health::Ok))
    };
    let mut first = 0;
    for run in cells.chunk_by(|a, b| is_well(a) && is_well(b)) {
        if is_well(&run[0]) {
            let (x, width) = (across(first), across(run.len()));
            write!(
                out,
                "<rect class=\"ok\" x=\"{x:.2}%\" width=\"{width:.2}%\" height=\"{ROW}\"/>"
            )?;
        } else if let Some(leaf) = run[0] {
            cell(out, look, leaf, first)?;
        }
        first += run.len();
    }
    out.push_str("</svg></td></tr>");
    Ok(())
}

/// Where a place is, or how wide so many are, in percent.
fn across(places: usize) -> f64 {
    100.0 * places as f64 / ACROSS as f64
}

/// A leaf that is not healthy: its color, its mark, and the link to its incident.
fn cell(out: &mut String, look: &Look<'_>, leaf: &Switch, place: usize) -> fmt::Result {
    let health = leaf.condition.health;
    let link = incident_link(look, leaf.condition);
    if let Some(link) = &link {
        let name = Esc(describe(leaf, &look.snapshot.layout));
        write!(out, "<a href=\"{}\" aria-label=\"{name}\">", Esc(link))?;
    }
    write!(
        out,
        "<g class=\"{0}\"><title>{1}</title><rect x=\"{2:.2}%\" width=\"{3:.2}%\" height=\"{ROW}\"/><text x=\"{4:.2}%\" y=\"11\">{5}</text></g>",
        health.as_str(),
        Esc(describe(leaf, &look.snapshot.layout)),
        across(place),
        across(1),
        across(place) + across(1) / 2.0,
        mark(health)
    )?;
    if link.is_some() {
        out.push_str("</a>");
    }
    Ok(())
}
