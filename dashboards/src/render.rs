//! Dashboards as JSON of Grafana: the classic model, schema 39, as Grafana 10.4 and newer read it.

use serde_json::{Map, Value, json};

use crate::board::{Board, Dashboard};
use crate::layout::places;
use crate::link::{self, From, Link};
use crate::panel::{Kind, Panel, Threshold};
use crate::query::{Format, Query};
use crate::variable;

mod options;
mod tables;

/// The data source that the reader chooses at the top.
pub(crate) fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// The file of a dashboard.
pub(crate) fn dashboard(dashboard: &Dashboard) -> String {
    let board = dashboard.board;
    let placed = dashboard.panels.iter().zip(places(&dashboard.panels));
    let panels: Vec<_> = placed
        .map(|(panel, place)| panel_json(board, panel, place))
        .collect();
    let mut variables = vec![variable::data_source()];
    variables.extend(board.variables().iter().map(|variable| variable.json()));
    let value = json!({
        "uid": board.uid(),
        "title": format!("Railscope / {}", board.title()),
        "description": board.question(),
        "tags": ["railscope"],
        "schemaVersion": 39,
        "version": 1,
        "editable": false,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": { "from": board.time_from(), "to": "now" },
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "liveNow": false,
        "weekStart": "",
        "links": link::at_the_top(board),
        "annotations": { "list": [incidents(board)] },
        "templating": { "list": variables },
        "panels": panels,
    });
    format!("{value:#}\n")
}

/// Open incidents on every curve. On the dashboard of one incident or node, only its own.
fn incidents(board: Board) -> Value {
    let selector = match board {
        Board::Incident => "@incident",
        Board::Node => "@node",
        _ => "@cluster",
    };
    // Their alerts have neither class nor id: those may change while an alert fires.
    let incidents = format!(
        "max by (cluster, fault_domain, class, severity, incident) (railscope_incident_active{{{selector}}})"
    );
    json!({
        "name": "Incidents",
        "datasource": source(),
        "enable": true,
        "hide": false,
        "iconColor": "red",
        "expr": Query::new(&incidents).expression,
        "titleFormat": "{{class}}",
        "textFormat": "{{fault_domain}}",
        "step": "60s",
    })
}

fn panel_json(board: Board, panel: &Panel, (x, y): (u64, u64)) -> Value {
    let place = json!({ "x": x, "y": y, "w": panel.width, "h": panel.height });
    if panel.kind == Kind::Row {
        return json!({
            "id": panel.id(),
            "type": "row",
            "title": panel.title,
            "gridPos": place,
            "collapsed": false,
            "panels": [],
        });
    }
    let mut value = json!({
        "id": panel.id(),
        "type": options::kind(panel.kind),
        "title": panel.title,
        "description": panel.description,
        "datasource": source(),
        "gridPos": place,
        "fieldConfig": {
            "defaults": defaults(board, panel),
            "overrides": overrides(board, panel),
        },
        "options": options::options(panel),
        "targets": targets(panel),
    });
    let transformations = tables::transformations(panel);
    if !transformations.is_empty() {
        value["transformations"] = Value::Array(transformations);
    }
    if let Some(variable) = panel.repeat {
        value["repeat"] = json!(variable);
        value["repeatDirection"] = json!("h");
        value["maxPerRow"] = json!(4);
    }
    value
}

fn targets(panel: &Panel) -> Vec<Value> {
    let target = |(at, query): (usize, &Query)| {
        let format = options::format(panel.kind);
        let is_instant = query.is_instant || format == Format::Table;
        let mut target = json!({
            "refId": query.name.map_or_else(|| ref_id(at), String::from),
            "datasource": source(),
            "expr": query.expression,
            "editorMode": "code",
            "range": !is_instant,
            "instant": is_instant,
        });
        match format {
            Format::Series => {}
            Format::Table => target["format"] = json!("table"),
            Format::Heatmap => target["format"] = json!("heatmap"),
        }
        if !query.legend.is_empty() {
            target["legendFormat"] = json!(query.legend);
        }
        if let Some(interval) = query.interval {
            target["interval"] = json!(interval);
        }
        target
    };
    panel.queries.iter().enumerate().map(target).collect()
}

/// A, B, C.
fn ref_id(at: usize) -> String {
    let letters = b'A'..=b'Z';
    letters
        .map(char::from)
        .nth(at)
        .map_or_else(|| format!("Q{at}"), String::from)
}

pub(crate) fn thresholds(steps: &[Threshold]) -> Value {
    let step = |threshold: &Threshold| json!({ "color": threshold.color.grafana(), "value": threshold.from });
    json!({ "mode": "absolute", "steps": steps.iter().map(step).collect::<Vec<_>>() })
}

fn links_json(board: Board, links: &[Link], from: From) -> Vec<Value> {
    links.iter().map(|link| link.json(board, from)).collect()
}

fn defaults(board: Board, panel: &Panel) -> Value {
    let mut defaults = Map::new();
    defaults.insert("unit".into(), json!(panel.unit.grafana()));
    if let Some(custom) = options::custom(panel.kind) {
        defaults.insert("custom".into(), custom);
    }
    if let Some(decimals) = panel.decimals {
        defaults.insert("decimals".into(), json!(decimals));
    }
    if options::begins_at_zero(panel.kind) {
        defaults.insert("min".into(), json!(0));
    }
    if let Some(max) = panel.max {
        defaults.insert("max".into(), json!(max));
    }
    if let Some(color) = options::color(panel) {
        defaults.insert("color".into(), color);
    }
    if !panel.thresholds.is_empty() {
        defaults.insert("thresholds".into(), thresholds(&panel.thresholds));
    }
    if panel.kind == Kind::States {
        let open = json!({ "text": "open", "color": "red", "index": 0 });
        let mapping = json!([{ "type": "value", "options": { "1": open } }]);
        defaults.insert("mappings".into(), mapping);
    }
    let is_matrix = matches!(panel.kind, Kind::Matrix { .. });
    if !panel.links.is_empty() && !is_matrix {
        let from = match panel.kind {
            Kind::NodeGraph => From::Table,
            _ => From::Curve,
        };
        let links = links_json(board, &panel.links, from);
        defaults.insert("links".into(), json!(links));
    }
    Value::Object(defaults)
}

fn overrides(board: Board, panel: &Panel) -> Vec<Value> {
    match panel.kind {
        Kind::Table { .. } => tables::columns(board, panel),
        Kind::Matrix { row, column } => vec![tables::row_names(board, panel, row, column)],
        Kind::Curves { .. } => vec![options::limit_lines()],
        _ => Vec::new(),
    }
}
