//! The tiers of switches: a drawing with cables while it can be read, tiles beyond.

use std::fmt::{self, Write};

use super::html::Esc;
use super::{Look, matrix};
use crate::serve::layout::{Condition, Health, Layout, Switch, tier_name};
use crate::serve::phrases;
use crate::serve::wire::witnesses;

/// Switches of one tier that still fit side by side.
const MAX_DRAWN: usize = 40;
/// Tiles of one tier; beyond, only those that are not healthy.
const MAX_TILES: usize = 512;
/// The drawing, in its own units.
const WIDTH: f64 = 640.0;
const LABEL_WIDTH: f64 = 58.0;
const BOX_HEIGHT: f64 = 26.0;
const TIER_HEIGHT: f64 = 84.0;

pub(super) fn tiers(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let layout = &look.snapshot.layout;
    if layout.switches.is_empty() {
        let said = if look.state.has_subnet {
            "No switch is known yet: the subnet has not been read."
        } else {
            "No switch is known: there is no subnet source."
        };
        return writeln!(out, "<h2>Switches</h2><p class=\"hint\">{said}</p>");
    }
    out.push_str("<h2>Switches</h2>\n");
    let widest = (1..=layout.levels())
        .map(|tier| layout.tier(tier).count())
        .max()
        .unwrap_or(0);
    if widest > MAX_DRAWN || layout.levels() < 2 {
        return tiles(out, look);
    }
    drawing(out, look)
}

/// A switch in one line, for tooltips.
pub(super) fn describe(switch: &Switch, layout: &Layout) -> String {
    let mut said = vec![format!(
        "{} {}",
        tier_name(switch.tier, layout.levels()),
        switch.name
    )];
    said.extend(switch.rail.map(|rail| format!("rail {rail}")));
    said.extend(switch.unit.map(|unit| layout.units[unit].name.clone()));
    if !switch.hosts.is_empty() {
        said.push(phrases::count(switch.hosts.len(), "NIC"));
    }
    let cables: usize = switch.trunks.iter().map(|trunk| trunk.present).sum();
    let lost: usize = switch.trunks.iter().map(|trunk| trunk.lost).sum();
    if cables + lost > 0 {
        said.push(format!(
            "{} to other switches",
            phrases::count(cables, "cable")
        ));
    }
    if lost > 0 {
        said.push(format!("{lost} lost"));
    }
    said.push(switch.condition.health.as_str().to_owned());
    said.join(", ")
}

/// Link to an incident's page, if there is one.
pub(super) fn incident_link(look: &Look<'_>, condition: Condition) -> Option<String> {
    let incident = look.snapshot.view.incidents.get(condition.incident?)?;
    Some(format!("{}incidents/{}", look.root, incident.id))
}

/// The mark of a state: color is not the only sign.
pub(super) fn mark(health: Health) -> &'static str {
    match health {
        Health::Ok => "",
        Health::Unknown => "?",
        Health::Degraded => "▼",
        Health::Down => "✕",
    }
}

fn drawing(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let levels = layout.levels();
    let height = f64::from(levels - 1) * TIER_HEIGHT + BOX_HEIGHT + 4.0;
    let mut spots = vec![None; layout.switches.len()];
    for tier in 1..=levels {
        let members: Vec<_> = layout.tier(tier).map(|(place, _)| place).collect();
        let step = ((WIDTH - LABEL_WIDTH) / members.len().max(1) as f64).min(120.0);
        let left = LABEL_WIDTH + (WIDTH - LABEL_WIDTH - step * members.len() as f64) / 2.0;
        for (number, place) in members.into_iter().enumerate() {
            spots[place] = Some(Spot {
                x: left + step * number as f64 + 1.5,
                y: f64::from(levels - tier) * TIER_HEIGHT + 2.0,
                width: step - 3.0,
            });
        }
    }
    write!(
        out,
        "<svg class=\"tiers\" viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" aria-label=\"Tiers of switches and the cables between them\">"
    )?;
    cables(out, look, &spots)?;
    for tier in 1..=levels {
        let names: Vec<_> = layout
            .tier(tier)
            .map(|(_, switch)| switch.name.as_str())
            .collect();
        let prefix = common_prefix(&names);
        let y = f64::from(levels - tier) * TIER_HEIGHT + 2.0 + BOX_HEIGHT / 2.0;
        write!(
            out,
            "<text class=\"tier\" x=\"0\" y=\"{y}\">{}</text>",
            tier_name(tier, levels)
        )?;
        for (place, switch) in layout.tier(tier) {
            if let Some(spot) = &spots[place] {
                switch_box(out, look, switch, spot, prefix)?;
            }
        }
    }
    out.push_str("</svg>\n");
    Ok(())
}

/// Where a switch is drawn.
#[derive(Debug, Clone)]
struct Spot {
    x: f64,
    y: f64,
    width: f64,
}

fn cables(out: &mut String, look: &Look<'_>, spots: &[Option<Spot>]) -> fmt::Result {
    let (layout, now) = (&look.snapshot.layout, look.state.now());
    // Healthy ones first, so that the others are drawn above them.
    for well in [true, false] {
        for (place, switch) in layout.switches.iter().enumerate() {
            for trunk in switch.trunks.iter().filter(|trunk| trunk.switch < place) {
                let (Some(top), Some(bottom)) = (&spots[place], &spots[trunk.switch]) else {
                    continue;
                };
                if well != (trunk.condition.health == Health::Ok) {
                    continue;
                }
                let x = |spot: &Spot| spot.x + spot.width / 2.0;
                write!(
                    out,
                    "<path class=\"{}\" d=\"M{:.0} {:.0}L{:.0} {:.0}\"><title>{} – {}: {}{}, {}</title></path>",
                    trunk.condition.health.as_str(),
                    x(top),
                    top.y + BOX_HEIGHT,
                    x(bottom),
                    bottom.y,
                    Esc(&switch.name),
                    Esc(&layout.switches[trunk.switch].name),
                    phrases::count(trunk.present, "cable"),
                    if trunk.lost > 0 {
                        format!(", {} lost", trunk.lost)
                    } else {
                        String::new()
                    },
                    witnesses::together_in_words(&trunk.seen_by, now),
                )?;
            }
        }
    }
    Ok(())
}

fn switch_box(
    out: &mut String,
    look: &Look<'_>,
    switch: &Switch,
    spot: &Spot,
    prefix: &str,
) -> fmt::Result {
    let layout = &look.snapshot.layout;
    let link = incident_link(look, switch.condition);
    if let Some(link) = &link {
        write!(out, "<a href=\"{}\">", Esc(link))?;
    }
    let Spot { x, y, width } = spot;
    let full = switch.name.as_str();
    let short = full
        .strip_prefix(prefix)
        .filter(|short| !short.is_empty())
        .unwrap_or(full);
    // About six units a letter, at the size that the style sheet gives.
    let room = ((width - 4.0) / 6.0) as usize;
    let name = [full, short]
        .into_iter()
        .find(|name| name.chars().count() <= room)
        .unwrap_or("");
    write!(
        out,
        "<g class=\"switch {}\"><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"4\"/><text x=\"{:.1}\" y=\"{:.1}\">{}{}</text></g>",
        switch.condition.health.as_str(),
        Esc(describe(switch, layout)),
        x + width / 2.0,
        y + BOX_HEIGHT / 2.0,
        mark(switch.condition.health),
        Esc(name),
    )?;
    if link.is_some() {
        out.push_str("</a>");
    }
    Ok(())
}

/// Common prefix of all names, up to a letter before the first difference; numbers are not split.
fn common_prefix<'a>(names: &[&'a str]) -> &'a str {
    let Some(first) = names.first() else {
        return "";
    };
    let same = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let shared = names
        .iter()
        .map(|name| same(first, name))
        .min()
        .unwrap_or(0);
    let end = first.as_bytes()[..shared]
        .iter()
        .rposition(|byte| !byte.is_ascii_digit())
        .map_or(0, |at| at + 1);
    // Inside a character of several bytes there is no border to cut at.
    first.get(..end).unwrap_or("")
}

/// Tiers without cables: a tile for each switch, only those that are not well where there are too many.
fn tiles(out: &mut String, look: &Look<'_>) -> fmt::Result {
    let layout = &look.snapshot.layout;
    out.push_str("<table class=\"tiles\">");
    // Leaves are in a separate matrix where there is one.
    let leaves_below = matrix::shows_leaves(layout);
    for tier in (0..=layout.levels())
        .rev()
        .filter(|tier| *tier != 1 || !leaves_below)
    {
        let all: Vec<_> = layout.tier(tier).map(|(_, switch)| switch).collect();
        if all.is_empty() {
            continue;
        }
        let cut = all.len() > MAX_TILES;
        let ill = all
            .iter()
            .filter(|switch| switch.condition.health != Health::Ok)
            .count();
        write!(
            out,
            "<tr><th scope=\"row\">{}<small>{}{}</small></th><td>",
            tier_name(tier, layout.levels()),
            all.len(),
            if ill > 0 {
                format!(", {ill} not ok")
            } else {
                String::new()
            }
        )?;
        let shown = all
            .iter()
            .filter(|switch| !cut || switch.condition.health != Health::Ok);
        for switch in shown.take(MAX_TILES) {
            tile(out, look, switch)?;
        }
        out.push_str("</td></tr>");
    }
    out.push_str("</table>\n");
    Ok(())
}

/// One switch as a tile.
pub(super) fn tile(out: &mut String, look: &Look<'_>, switch: &Switch) -> fmt::Result {
    let health = switch.condition.health;
    let title = describe(switch, &look.snapshot.layout);
    match incident_link(look, switch.condition) {
        Some(link) => write!(
            out,
            "<a class=\"t {}\" href=\"{}\" title=\"{}\">{}</a>",
            health.as_str(),
            Esc(link),
            Esc(title),
            mark(health)
        ),
        None => write!(
            out,
            "<span class=\"t {}\" title=\"{}\">{}</span>",
            health.as_str(),
            Esc(title),
            mark(health)
        ),
    }
}
