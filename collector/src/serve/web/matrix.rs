//! Matrices instead of a tangle of links: nodes by rails, and leaves by rails where nodes are too many.

use std::fmt::{self, Write};

use super::Look;
use super::fabric::{incident_link, mark, tile};
use super::heat;
use super::html::{Esc, scrolling};
use crate::serve::layout::{Condition, Health, Host, Layout, Nic, Unit};
use crate::serve::wire::witnesses;
use crate::serve::{phrases, wire};

/// Nodes that are shown one by one; beyond, leaves by rails, and the nodes of affected leaves.
const MAX_ROWS: usize = 128;
/// Units of which each has a row; beyond, all are in a heat map and only those with a fault have one.
const MAX_UNITS: usize = 48;
/// Nodes shown below the matrix of leaves.
const MAX_AFFECTED_ROWS: usize = 64;

pub(super) fn matrix(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let layout = &look.snapshot.layout;
    if layout.hosts.is_empty() {
        out.push_str("<h2>Nodes</h2><p class=\"hint\">No node is known yet.</p>\n");
        return Ok(());
    }
    if layout.hosts.len() <= MAX_ROWS {
        out.push_str("<h2>Nodes by rail</h2>\n");
        let all: Vec<usize> = (0..layout.hosts.len()).collect();
        return nodes(out, look, &all, MAX_ROWS);
    }
    if shows_leaves(layout) {
        out.push_str("<h2>Leaves by rail</h2>\n");
        leaves(out, look)?;
    }
    let affected: Vec<usize> = (0..layout.hosts.len())
        .filter(|place| layout.hosts[*place].worst().health > Health::Unknown)
        .collect();
    let silent = layout
        .hosts
        .iter()
        .filter(|host| host.heard == Some(false))
        .count();
    writeln!(
        out,
        "<h2>Affected nodes</h2><p class=\"hint\">{} of {}{}</p>",
        affected.len(),
        phrases::count(layout.hosts.len(), "node"),
        if silent > 0 {
            format!("; {silent} without data")
        } else {
            String::new()
        }
    )?;
    if affected.is_empty() {
        return Ok(());
    }
    nodes(out, look, &affected, MAX_AFFECTED_ROWS)
}

/// Whether leaves are in a separate matrix.
pub(super) fn shows_leaves(layout: &Layout) -> bool {
    layout.hosts.len() > MAX_ROWS && !layout.units.is_empty()
}

/// Leaves: units by rails.
fn leaves(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let rails = layout
        .switches
        .iter()
        .filter_map(|switch| switch.rail)
        .max()
        .map_or(0, |rail| rail + 1);
    // Where there are many, all units are a heat map, and only those with a fault have a row.
    let many = layout.units.len() > MAX_UNITS;
    if many {
        heat::map(out, look, rails)?;
    }
    out.push_str(&scrolling("Leaves by rail"));
    out.push_str("<table class=\"matrix\"><thead><tr><th scope=\"col\">unit</th>");
    for rail in 0..rails {
        write!(out, "<th scope=\"col\">{rail}</th>")?;
    }
    out.push_str("<th scope=\"col\" class=\"note\">nodes</th></tr></thead><tbody>");
    let is_well = |unit: &&Unit| {
        let mut leaves = unit.leaves.iter();
        leaves.all(|leaf| layout.switches[*leaf].condition.health == Health::Ok)
    };
    let shown: Vec<&Unit> = layout
        .units
        .iter()
        .filter(|unit| !many || !is_well(unit))
        .collect();
    for unit in shown.iter().take(MAX_UNITS) {
        write!(out, "<tr><th scope=\"row\">{}</th>", Esc(&unit.name))?;
        for rail in 0..rails {
            out.push_str("<td>");
            let of_rail = unit
                .leaves
                .iter()
                .map(|leaf| &layout.switches[*leaf])
                .filter(|leaf| leaf.rail == Some(rail));
            for leaf in of_rail {
                tile(out, look, leaf)?;
            }
            out.push_str("</td>");
        }
        let names = unit.hosts.first().zip(unit.hosts.last());
        let names = names.map(|(first, last)| {
            format!(
                "{} ({} – {})",
                unit.hosts.len(),
                layout.hosts[*first].name,
                layout.hosts[*last].name
            )
        });
        write!(
            out,
            "<td class=\"note\">{}</td></tr>",
            Esc(names.unwrap_or_default())
        )?;
    }
    out.push_str("</tbody></table></div>\n");
    let ill = layout.units.iter().filter(|unit| !is_well(unit)).count();
    if many {
        writeln!(
            out,
            "<p class=\"more\">{} of {} have a leaf that is not ok</p>",
            ill,
            phrases::count(layout.units.len(), "unit")
        )?;
    }
    Ok(())
}

/// Nodes by rails: a row for each of these nodes, in groups by unit.
pub(super) fn nodes(
    out: &mut String,
    look: &Look<'_>,
    places: &[usize],
    limit: usize,
) -> fmt::Result {
    let layout = &look.snapshot.layout;
    legend(out, layout)?;
    out.push_str(&scrolling("Nodes by rail"));
    out.push_str("<table class=\"matrix\"><thead><tr><th scope=\"col\">node</th><th scope=\"col\" title=\"the node itself: GPUs, PCIe, power\">host</th>");
    for column in &layout.columns {
        write!(
            out,
            "<th scope=\"col\">{}</th>",
            Esc(column.strip_prefix("rail ").unwrap_or(column))
        )?;
    }
    out.push_str("</tr></thead>");
    let mut shown: Vec<usize> = places.iter().copied().take(limit).collect();
    shown.sort_by_key(|place| (layout.hosts[*place].unit.unwrap_or(usize::MAX), *place));
    let grouped = layout.units.len() > 1;
    for group in shown.chunk_by(|a, b| layout.hosts[*a].unit == layout.hosts[*b].unit) {
        out.push_str("<tbody>");
        let unit = group.first().and_then(|place| layout.hosts[*place].unit);
        if grouped {
            let name = unit.map_or("unknown unit", |unit| &layout.units[unit].name);
            write!(
                out,
                "<tr class=\"unit\"><th colspan=\"{}\" scope=\"rowgroup\">{}</th></tr>",
                layout.columns.len() + 2,
                Esc(name)
            )?;
        }
        for place in group {
            row(out, look, &layout.hosts[*place])?;
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table></div>\n");
    if places.len() > limit {
        writeln!(
            out,
            "<p class=\"more\">and {} more</p>",
            phrases::count(places.len() - limit, "node")
        )?;
    }
    Ok(())
}

fn row(out: &mut String, look: &Look<'_>, host: &Host) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let name = Esc(&host.name);
    let silent = if host.heard == Some(false) {
        " <small>no data</small>"
    } else {
        ""
    };
    write!(out, "<tr><th scope=\"row\">{name}{silent}</th>")?;
    let title = format!(
        "{}: {}, {}",
        host.name,
        phrases::count(host.gpus, "GPU"),
        host.inside.health.as_str()
    );
    cell(out, look, &[host.inside], &title)?;
    for column in 0..layout.columns.len() {
        let nics: Vec<&Nic> = host
            .nics
            .iter()
            .filter(|nic| nic.column == column)
            .collect();
        let titles: Vec<_> = nics.iter().map(|nic| describe(nic, look)).collect();
        let conditions: Vec<_> = nics.iter().map(|nic| nic.condition).collect();
        cell(out, look, &conditions, &titles.join("\n"))?;
    }
    out.push_str("</tr>");
    Ok(())
}

/// A NIC and its cables; its row says of which node it is.
fn describe(nic: &Nic, look: &Look<'_>) -> String {
    let (layout, now) = (&look.snapshot.layout, look.state.now());
    let mut said = nic.device.clone();
    for uplink in &nic.uplinks {
        let leaf = &layout.switches[uplink.switch].name;
        let lost = if uplink.present { "" } else { " (cable gone)" };
        said.push_str(&format!(" → {leaf} port {}{lost}", uplink.switch_port));
        if let Some(speed) = &uplink.speed {
            said.push_str(&format!(", {speed}"));
        }
        said.push_str(&format!(", {}", witnesses::in_words(&uplink.seen_by, now)));
    }
    format!("{said}: {}", nic.condition.health.as_str())
}

/// A cell with the worst of what is in it.
fn cell(out: &mut String, look: &Look<'_>, conditions: &[Condition], title: &str) -> fmt::Result {
    let Some(first) = conditions.first() else {
        out.push_str("<td><span class=\"t none\" title=\"no NIC\"></span></td>");
        return Ok(());
    };
    let mut worst = *first;
    conditions
        .iter()
        .for_each(|condition| worst.worsen(*condition));
    let (class, mark) = (worst.health.as_str(), mark(worst.health));
    match incident_link(look, worst) {
        Some(link) => write!(
            out,
            "<td><a class=\"t {class}\" href=\"{}\" title=\"{}\">{mark}</a></td>",
            Esc(link),
            Esc(title)
        ),
        None => write!(
            out,
            "<td><span class=\"t {class}\" title=\"{}\">{mark}</span></td>",
            Esc(title)
        ),
    }
}

fn legend(out: &mut String, layout: &Layout) -> fmt::Result {
    let counts = wire::by_health(
        layout
            .hosts
            .iter()
            .flat_map(|host| &host.nics)
            .map(|nic| nic.condition),
    );
    out.push_str("<p class=\"legend\">NICs:");
    for (health, count) in Health::ALL.into_iter().zip(counts) {
        write!(
            out,
            " <span><span class=\"t {0}\">{1}</span> {count} {0}</span>",
            health.as_str(),
            mark(health)
        )?;
    }
    out.push_str("</p>\n");
    Ok(())
}
