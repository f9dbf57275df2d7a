//! State timelines, and graphs of nodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Filled;
use super::chart::Plane;
use super::look::{self, TRANSPARENT, cut, escaped};

const ROW: f64 = 26.0;
/// Tiers of a fabric, the upper ones first.
const TIERS: &[&str] = &["core", "spine", "leaf"];

/// A bar for each series, colored by its thresholds.
pub(super) fn draw(panel: &Filled<'_>) -> String {
    let (width, height) = panel.size;
    let named = panel.named();
    let longest = named
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let left = (7.0 * longest as f64).min(width / 3.0);
    let plane = Plane {
        time: panel.time,
        values: (0.0, 1.0),
        width: width - left,
        height,
    };
    let mut svg = format!("<div class=\"chart\"><svg width=\"{width:.0}\" height=\"{height:.0}\">");
    let fits = ((height - 20.0) / ROW) as usize;
    let row_height = ((height - 20.0) / named.len().max(1) as f64).clamp(ROW, 60.0);
    let bar = 0.8 * row_height;
    for (row, (name, curve)) in named.iter().enumerate().take(fits) {
        let y = row_height * row as f64 + 3.0;
        let name = escaped(&cut(name, (left / 6.6) as usize + 8));
        write!(
            svg,
            "<text x=\"0\" y=\"{:.0}\">{name}</text>",
            y + row_height / 2.0
        )
        .expect("text");
        for (time, value) in &curve.points {
            let color = look::threshold(panel.field("thresholds"), *value);
            if color == TRANSPARENT {
                continue;
            }
            let (x, end) = (
                left + plane.x(*time),
                left + plane.x((time + curve.step).min(panel.time.1)),
            );
            write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{bar:.0}\" fill=\"{color}\"/>",
                end - x + 0.3
            )
            .expect("text");
        }
    }
    write!(
        svg,
        "<g transform=\"translate({left:.0})\">{}</g></svg></div>",
        plane.times()
    )
    .expect("text");
    if named.len() > fits {
        write!(svg, "<p class=\"more\">{} more</p>", named.len() - fits).expect("text");
    }
    svg
}

/// Vertices in a row for each tier, and edges with their numbers.
pub(super) fn graph(panel: &Filled<'_>) -> String {
    let (width, height) = panel.size;
    let [vertices, edges] = [0, 1].map(|at| panel.answers.get(at).map_or(&[][..], Vec::as_slice));
    let mut tiers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for vertex in vertices {
        let label = |name: &str| vertex.labels.get(name).cloned().unwrap_or_default();
        let tier = TIERS
            .iter()
            .position(|tier| *tier == label("tier"))
            .unwrap_or(TIERS.len());
        tiers.entry(tier).or_default().push((
            label("id"),
            label("title"),
            label("color"),
            vertex.last(),
        ));
    }
    let mut places = BTreeMap::new();
    let mut circles = String::new();
    let rows = tiers.len() as f64;
    for (row, tier) in tiers.values_mut().enumerate() {
        tier.sort_by(|left, right| left.0.cmp(&right.0));
        let space = width / tier.len() as f64;
        for (at, (id, title, color, count)) in tier.iter().enumerate() {
            let (x, y) = (
                space * (at as f64 + 0.5),
                height * (row as f64 + 0.5) / rows,
            );
            places.insert(id.clone(), (x, y));
            let title = escaped(&cut(title, (space / 6.5) as usize));
            write!(
                circles,
                "<circle cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"14\" fill=\"#fff\" stroke=\"{}\" stroke-width=\"4\"/>\
                 <text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text><text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{title}</text>",
                look::color(color),
                y + 4.0,
                count.map_or_else(String::new, |count| panel.unit().shown(count)),
                y + 32.0
            )
            .expect("text");
        }
    }
    let mut svg = format!("<div class=\"chart\"><svg width=\"{width:.0}\" height=\"{height:.0}\">");
    for edge in edges {
        let end = |name: &str| edge.labels.get(name).and_then(|id| places.get(id));
        if let Some(((x, y), (to_x, to_y))) = end("source").zip(end("target")) {
            write!(
                svg,
                "<path d=\"M{x:.0} {y:.0}L{to_x:.0} {to_y:.0}\" stroke=\"#b6bcc4\"/>"
            )
            .expect("text");
        }
    }
    svg + &circles + "</svg></div>"
}
