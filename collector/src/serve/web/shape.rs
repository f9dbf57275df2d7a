//! What the fabric is made of and what changed in it: a few lines, folded away.

use std::fmt::{self, Write};

use super::Look;
use super::html::Esc;
use crate::fabric::{LeafCapacity, Structure};
use crate::serve::phrases;

/// Changes and single points that the page shows; the API returns more.
const SHOWN: usize = 8;
/// Leaves that the page shows: those with the highest ratio.
const SHOWN_LEAVES: usize = 4;

pub(super) fn shape(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let view = &look.snapshot.view;
    let structure = &view.verdict.structure;
    if !structure.leaves.is_empty() {
        out.push_str("<details data-key=\"structure\"><summary>Structure</summary><ul>");
        for line in lines(structure) {
            write!(out, "<li>{}</li>", Esc(line))?;
        }
        for reason in &view.verdict.ruled_out {
            write!(out, "<li>No {}</li>", Esc(reason))?;
        }
        writeln!(
            out,
            "<li><a href=\"{}api/v1/topology/structure\">Complete structure as JSON</a></li></ul></details>",
            look.root
        )?;
    }
    let changes = &view.changes.entries;
    if changes.is_empty() {
        return Ok(());
    }
    let all = changes.len() as u64 + view.changes.forgotten;
    write!(
        out,
        "<details data-key=\"changes\"><summary>Fabric changes: {all}</summary><ul>"
    )?;
    for logged in changes.iter().rev().take(SHOWN) {
        write!(
            out,
            "<li>{} ago: {}</li>",
            phrases::span(look.state.now().seconds_since(logged.at)),
            Esc(phrases::change(&logged.change))
        )?;
    }
    writeln!(
        out,
        "<li><a href=\"{}api/v1/topology/changes\">All stored changes as JSON</a></li></ul></details>",
        look.root
    )
}

fn lines(structure: &Structure) -> Vec<String> {
    let mut lines = Vec::new();
    if structure.planes() > 1 {
        lines.push(phrases::count(structure.planes(), "plane"));
    }
    if !structure.groups.is_empty() {
        lines.push(phrases::count(structure.groups.len(), "group"));
    }
    if !structure.units.is_empty() {
        let sizes = structure.units.iter().map(|unit| unit.hosts.len());
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        let of = if least == most {
            phrases::count(most, "node")
        } else {
            format!("{least} to {}", phrases::count(most, "node"))
        };
        lines.push(format!(
            "{} of {of}",
            phrases::count(structure.units.len(), "unit")
        ));
    }
    for tier in &structure.tiers {
        if let Some(ratio) = tier.ratio() {
            lines.push(format!(
                "Tier {}: {ratio:.2} downlink/uplink bandwidth",
                tier.tier
            ));
        }
    }
    let mut leaves: Vec<(f64, &LeafCapacity)> = structure
        .leaves
        .iter()
        .filter_map(|leaf| Some((leaf.ratio()?, leaf)))
        .filter(|(ratio, _)| *ratio > 1.0)
        .collect();
    leaves.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.leaf.cmp(&b.1.leaf)));
    for (ratio, leaf) in leaves.iter().take(SHOWN_LEAVES) {
        lines.push(format!(
            "Leaf {}: {ratio:.2} downlink/uplink bandwidth, {} and {}",
            leaf.leaf,
            phrases::count(leaf.nics, "NIC"),
            phrases::count(leaf.uplinks, "uplink")
        ));
    }
    if let Some(bisection) = &structure.bisection {
        lines.push(format!(
            "Bisection: {:.0} % of what half of the nodes can send",
            100.0 * bisection.share()
        ));
    }
    let points = &structure.single_points;
    for point in points.worst.iter().take(SHOWN) {
        lines.push(format!(
            "Single point of failure: {} cuts off {}",
            point.part,
            phrases::count(point.hosts, "node")
        ));
    }
    let more = (points.switches + points.trunks).saturating_sub(SHOWN);
    if more > 0 {
        lines.push(phrases::count(more, "more single point"));
    }
    lines
}
