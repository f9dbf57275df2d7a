//! Tables: columns, their order, and matrices of two labels.

use serde_json::{Map, Value, json};

use crate::board::Board;
use crate::link::From;
use crate::panel::{Kind, Panel, Unit};
use crate::table::{Cell, Column, Field};

use super::{links_json, ref_id, thresholds};

/// The name that Grafana gives to the field of a column.
fn field(panel: &Panel, field: Field) -> String {
    match field {
        Field::Label(label) => label.to_owned(),
        Field::Value(_) if panel.queries.len() == 1 => String::from("Value"),
        Field::Value(query) => format!("Value #{}", ref_id(query)),
    }
}

pub(super) fn transformations(panel: &Panel) -> Vec<Value> {
    match panel.kind {
        Kind::Table { .. } => {
            let mut order = Map::new();
            for (at, column) in panel.columns.iter().enumerate() {
                order.insert(field(panel, column.field), json!(at));
            }
            let organize = json!({
                "id": "organize",
                "options": {
                    "excludeByName": { "Time": true },
                    "indexByName": order,
                    "renameByName": {},
                },
            });
            if panel.queries.len() > 1 {
                vec![json!({ "id": "merge", "options": {} }), organize]
            } else {
                vec![organize]
            }
        }
        Kind::Matrix { row, column } => matrix(row, column),
        Kind::NodeGraph => vec![json!({
            "id": "renameByRegex",
            "options": { "regex": "^Value.*", "renamePattern": "mainstat" },
        })],
        _ => Vec::new(),
    }
}

/// Rows and columns in the order of their names: the matrix takes both as they come, and Prometheus promises no order.
fn matrix(row: &str, column: &str) -> Vec<Value> {
    let sorted_by =
        |field: &str| json!({ "id": "sortBy", "options": { "sort": [{ "field": field }] } });
    let matrix = json!({
        "id": "groupingToMatrix",
        "options": {
            "columnField": column,
            "rowField": row,
            "valueField": "Value",
            "emptyValue": "null",
        },
    });
    vec![sorted_by(row), sorted_by(column), matrix]
}

pub(super) fn columns(board: Board, panel: &Panel) -> Vec<Value> {
    let override_of = |column: &Column| {
        json!({
            "matcher": { "id": "byName", "options": field(panel, column.field) },
            "properties": properties(board, column),
        })
    };
    panel.columns.iter().map(override_of).collect()
}

/// Width of a column with short text, so that names have the rest; Grafana's default for all is 150 pixels.
fn width(column: &Column) -> Option<usize> {
    const SHORT: &[&str] = &[
        "gpu", "port", "rail", "device", "kind", "name", "pci", "severity", "cluster",
    ];
    const NARROWEST: usize = 80;
    let heading = 8 * column.title.len() + 24;
    match column.field {
        Field::Value(_) if column.unit == Some(Unit::Time) => Some(160),
        Field::Value(_) => Some(heading.max(if column.cell == Cell::Gauge { 160 } else { 100 })),
        Field::Label(label) => SHORT.contains(&label).then_some(heading.max(NARROWEST)),
    }
}

fn properties(board: Board, column: &Column) -> Vec<Value> {
    let mut properties = vec![json!({ "id": "displayName", "value": column.title })];
    let mut add = |id: &str, value: Value| properties.push(json!({ "id": id, "value": value }));
    if let Some(width) = width(column) {
        add("custom.width", json!(width));
    }
    if let Some(unit) = column.unit {
        add("unit", json!(unit.grafana()));
    }
    if !column.thresholds.is_empty() {
        add("thresholds", thresholds(&column.thresholds));
        add("color", json!({ "mode": "thresholds" }));
    }
    match column.cell {
        Cell::Plain => {}
        Cell::ColoredText => add("custom.cellOptions", json!({ "type": "color-text" })),
        Cell::ColoredBackground => add(
            "custom.cellOptions",
            json!({ "type": "color-background", "mode": "basic" }),
        ),
        Cell::Gauge => {
            add(
                "custom.cellOptions",
                json!({ "type": "gauge", "mode": "basic" }),
            );
            add("min", json!(0));
            add("max", json!(1));
        }
    }
    if column.is_severity {
        let colors = json!({
            "critical": { "color": "red", "index": 0 },
            "warning": { "color": "orange", "index": 1 },
        });
        add("mappings", json!([{ "type": "value", "options": colors }]));
    }
    if !column.links.is_empty() {
        add(
            "links",
            json!(links_json(board, &column.links, From::Table)),
        );
    }
    properties
}

/// The first column of a matrix: names of rows, with the links of the panel.
pub(super) fn row_names(board: Board, panel: &Panel, row: &str, column: &str) -> Value {
    json!({
        "matcher": { "id": "byName", "options": format!("{row}\\{column}") },
        "properties": [
            { "id": "displayName", "value": format!("{row} \\ {column}") },
            { "id": "custom.cellOptions", "value": { "type": "auto" } },
            { "id": "custom.align", "value": "left" },
            { "id": "custom.minWidth", "value": 130 },
            { "id": "links", "value": links_json(board, &panel.links, From::Table) },
        ],
    })
}
