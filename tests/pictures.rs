//! Draws dashboards as web pages, with data of a real Prometheus: for inspection where there is no Grafana.
//!
//! What decides whether a panel can be read follows Grafana: the grid, the width of columns and legends, units, colors
//! of thresholds, steps of queries. What it looks like otherwise is ours.

#![allow(dead_code)] // the quick tests draw no heat map, the others use all

mod chart;
mod data;
mod grid;
mod heat;
mod look;
mod states;
mod table;
mod unit;

use std::fmt::Write as _;

use serde_json::Value;

pub(crate) use data::Prometheus;
pub(crate) use grid::WIDTH;

use data::{Curve, chosen};
use grid::{Place, places};
use look::{escaped, list, text};
use unit::Unit;

const STYLE: &str = include_str!("pictures/style.css");
/// Height of the title and the variables above the panels.
const HEAD: f64 = 66.0;
/// Height of a panel's title.
pub(crate) const TITLE: f64 = 30.0;
/// Space between a panel's border and its content.
pub(crate) const PADDING: f64 = 8.0;

/// A dashboard as a web page.
pub(crate) struct Picture {
    /// The web page, which is self-contained.
    pub(crate) html: String,
    /// Height in pixels, of 1440 in width.
    pub(crate) height: f64,
    /// Panels with data.
    pub(crate) filled: usize,
    /// Titles of panels without data.
    pub(crate) empty: Vec<String>,
    /// Queries that Prometheus did not serve.
    pub(crate) errors: Vec<String>,
}

/// One panel with the results of its queries.
pub(crate) struct Filled<'a> {
    /// As in the dashboard.
    pub(crate) json: &'a Value,
    /// One list for each query.
    pub(crate) answers: Vec<Vec<Curve>>,
    /// Width and height of what is below the title.
    pub(crate) size: (f64, f64),
    /// Beginning and end of the time axis, seconds.
    pub(crate) time: (f64, f64),
    /// When incidents were open.
    pub(crate) incidents: &'a [Curve],
}

impl Filled<'_> {
    /// A default of its fields.
    pub(crate) fn field(&self, name: &str) -> &Value {
        &self.json["fieldConfig"]["defaults"][name]
    }

    pub(crate) fn unit(&self) -> Unit<'_> {
        Unit {
            id: self.field("unit").as_str().unwrap_or("short"),
            decimals: self.field("decimals").as_u64(),
        }
    }

    /// All series, each with the name that its legend gives it.
    pub(crate) fn named(&self) -> Vec<(String, &Curve)> {
        let targets = list(self.json, "/targets").iter();
        let pairs = targets.zip(&self.answers);
        let named = pairs.flat_map(|(target, answer)| {
            let legend = text(target, "/legendFormat");
            answer.iter().map(move |curve| (curve.name(legend), curve))
        });
        named.collect()
    }

    fn is_empty(&self) -> bool {
        self.answers.iter().all(Vec::is_empty)
    }
}

/// Draws a dashboard. `set` sets variables; the others have their first value, or all.
pub(crate) fn draw(
    dashboard: &Value,
    prometheus: &Prometheus<'_>,
    set: &[(&str, &str)],
) -> Picture {
    let mut errors = Vec::new();
    let variables = chosen(dashboard, prometheus, set, &mut errors);
    let mut ask = |target: &Value, width: f64| {
        let answer = prometheus.curves(target, &variables, width);
        answer.unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        })
    };
    let annotations = list(dashboard, "/annotations/list").iter();
    let incidents: Vec<_> = annotations.flat_map(|all| ask(all, WIDTH)).collect();
    let (mut body, mut empty, mut filled) = (String::new(), Vec::new(), 0);
    let mut bottom = 0.0_f64;
    for (panel, place, repeated) in places(dashboard, &variables) {
        bottom = bottom.max(place.y + place.height);
        let own = repeated.map_or_else(|| variables.clone(), |one| variables.with(one));
        let title = own.put_into_title(text(panel, "/title"));
        if panel["type"] == "row" {
            heading(&mut body, &title, place);
            continue;
        }
        let size = (place.width - 2.0 * PADDING, place.height - TITLE - PADDING);
        let targets = list(panel, "/targets").iter();
        let answers = targets.map(|target| {
            let mut target = target.clone();
            target["expr"] = Value::from(own.put_into(text(&target, "/expr")));
            ask(&target, size.0)
        });
        let panel = Filled {
            json: panel,
            answers: answers.collect(),
            size,
            time: (prometheus.from, prometheus.to),
            incidents: &incidents,
        };
        if panel.is_empty() {
            empty.push(title.clone());
        } else {
            filled += 1;
        }
        frame(&mut body, &title, place, &content(&panel));
    }
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}<small>{question}</small></h1><p class=\"variables\">{variables}</p>\
         <main style=\"height:{bottom}px\">{body}</main></html>",
        title = escaped(text(dashboard, "/title")),
        question = escaped(text(dashboard, "/description")),
        variables = variables.shown(dashboard),
    );
    Picture {
        html,
        height: HEAD + bottom + PADDING,
        filled,
        empty,
        errors,
    }
}

fn heading(body: &mut String, title: &str, Place { x, y, .. }: Place) {
    let title = escaped(title);
    write!(body, "<h2 style=\"left:{x}px;top:{y}px\">{title}</h2>").expect("text");
}

fn frame(body: &mut String, title: &str, place: Place, content: &str) {
    let Place {
        x,
        y,
        width,
        height,
    } = place;
    write!(
        body,
        "<section style=\"left:{x:.1}px;top:{y}px;width:{width:.1}px;height:{height}px\"><h3>{}</h3>{content}</section>",
        escaped(title)
    )
    .expect("text");
}

fn content(panel: &Filled<'_>) -> String {
    let kind = text(panel.json, "/type");
    if panel.is_empty() {
        return String::from("<p class=\"none\">No data</p>");
    }
    match kind {
        "stat" => stat(panel),
        "table" => table::draw(panel),
        "timeseries" => chart::draw(panel),
        "heatmap" => heat::draw(panel),
        "state-timeline" => states::draw(panel),
        "nodeGraph" => states::graph(panel),
        _ => format!("<p class=\"none\">{}: not drawn</p>", escaped(kind)),
    }
}

/// Numbers side by side, or names, each over the color of its threshold and its curve.
fn stat(panel: &Filled<'_>) -> String {
    let named = panel.named();
    let (width, height) = panel.size;
    let width = width / named.len() as f64;
    let is_name = panel.json["options"]["textMode"] == "name";
    let mut html = String::from("<div class=\"stats\">");
    for (name, curve) in &named {
        let value = curve.last();
        let shown = match value {
            _ if is_name => name.clone(),
            Some(value) => panel.unit().shown(value),
            None => String::from("No data"),
        };
        let color = match text(panel.json, "/fieldConfig/defaults/color/fixedColor") {
            "" => look::threshold(panel.field("thresholds"), value.unwrap_or(0.0)),
            fixed => look::color(fixed),
        };
        let space = width - 2.0 * PADDING;
        let size = (space / (0.72 * shown.chars().count().max(1) as f64)).min(height / 2.2);
        let label = if named.len() > 1 && !is_name {
            name.as_str()
        } else {
            ""
        };
        write!(
            html,
            "<div class=\"{}\" style=\"background:{color}\"><small>{}</small><b style=\"font-size:{size:.0}px\">{}</b></div>",
            if color == look::TRANSPARENT { "plain" } else { "" },
            escaped(label),
            escaped(&shown)
        )
        .expect("text");
    }
    html + "</div>"
}
