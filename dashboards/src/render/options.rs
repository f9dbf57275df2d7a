//! What each kind of panel needs of Grafana.

use serde_json::{Value, json};

use crate::panel::{Kind, Panel};
use crate::query::Format;

/// Columns of the grid below which a legend goes under the curves.
const NARROW: u64 = 12;
/// Narrowest column of a matrix, in pixels. Grafana's own 150 would hide half of 8 rails.
const MATRIX_COLUMN: u64 = 48;

pub(super) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Row => "row",
        Kind::Stat { .. } => "stat",
        Kind::Table { .. } | Kind::Matrix { .. } => "table",
        Kind::Curves { .. } | Kind::Bars => "timeseries",
        Kind::Heatmap => "heatmap",
        Kind::States => "state-timeline",
        Kind::NodeGraph => "nodeGraph",
    }
}

pub(super) fn format(kind: Kind) -> Format {
    match kind {
        Kind::Table { .. } | Kind::Matrix { .. } | Kind::NodeGraph => Format::Table,
        Kind::Heatmap => Format::Heatmap,
        _ => Format::Series,
    }
}

pub(super) fn begins_at_zero(kind: Kind) -> bool {
    matches!(kind, Kind::Curves { .. } | Kind::Bars | Kind::Matrix { .. })
}

/// Color of values: by thresholds where there are some, else by size (matrix) or fixed (number).
pub(super) fn color(panel: &Panel) -> Option<Value> {
    match panel.kind {
        Kind::Stat { is_name: true } => Some(json!({ "mode": "fixed", "fixedColor": "blue" })),
        Kind::Stat { is_name: false } | Kind::States => Some(json!({ "mode": "thresholds" })),
        Kind::Matrix { .. } if panel.thresholds.is_empty() => {
            // From 0 to the largest value that is there: the data are the scale. No warning color, for equal values
            // are all the largest.
            Some(json!({ "mode": "continuous-blues" }))
        }
        Kind::Matrix { .. } => Some(json!({ "mode": "thresholds" })),
        _ => None,
    }
}

pub(super) fn custom(kind: Kind) -> Option<Value> {
    Some(match kind {
        Kind::Table { .. } => json!({ "align": "auto", "cellOptions": { "type": "auto" } }),
        Kind::Matrix { .. } => json!({
            "align": "center",
            "minWidth": MATRIX_COLUMN,
            "cellOptions": { "type": "color-background", "mode": "basic" },
        }),
        Kind::Curves { is_stacked } => json!({
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": if is_stacked { 40 } else { 0 },
            "showPoints": "never",
            "spanNulls": false,
            "stacking": { "mode": if is_stacked { "normal" } else { "none" }, "group": "A" },
        }),
        Kind::Bars => json!({
            "drawStyle": "bars",
            "lineWidth": 0,
            "fillOpacity": 80,
            "showPoints": "never",
            "stacking": { "mode": "normal", "group": "A" },
        }),
        Kind::Heatmap => json!({
            "hideFrom": { "legend": false, "tooltip": false, "viz": false },
            "scaleDistribution": { "type": "linear" },
        }),
        Kind::States => json!({ "lineWidth": 0, "fillOpacity": 80 }),
        Kind::Row | Kind::Stat { .. } | Kind::NodeGraph => return None,
    })
}

/// Curves named "median …", "limit …" or "link speed" are what the others are compared with: dashed.
pub(super) fn limit_lines() -> Value {
    json!({
        "matcher": { "id": "byRegexp", "options": "/^(median|limit|link speed)/" },
        "properties": [
            { "id": "custom.lineStyle", "value": { "fill": "dash", "dash": [8, 6] } },
            { "id": "custom.stacking", "value": { "mode": "none", "group": "A" } },
            { "id": "color", "value": { "mode": "fixed", "fixedColor": "text" } },
        ],
    })
}

pub(super) fn options(panel: &Panel) -> Value {
    match panel.kind {
        Kind::Stat { is_name } => json!({
            "colorMode": "background",
            "graphMode": if is_name { "none" } else { "area" },
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
            "textMode": if is_name { "name" } else { "auto" },
        }),
        Kind::Table { sorted_by } => table(Some(sorted_by)),
        Kind::Matrix { .. } => table(None),
        Kind::Curves { .. } | Kind::Bars => json!({
            "legend": legend(panel),
            "tooltip": { "mode": "multi", "sort": "desc" },
        }),
        Kind::Heatmap => heatmap(panel),
        Kind::States => json!({
            "mergeValues": true,
            "showValue": "never",
            "alignValue": "left",
            "rowHeight": 0.8,
            "perPage": 20,
            "legend": { "displayMode": "list", "placement": "bottom", "showLegend": false },
            "tooltip": { "mode": "single", "sort": "none" },
        }),
        Kind::NodeGraph => json!({ "nodes": {}, "edges": {} }),
        Kind::Row => json!({}),
    }
}

/// Numbers at the right where there is room; in a narrow panel they would leave a third of it to the curves.
fn legend(panel: &Panel) -> Value {
    if panel.width < NARROW {
        return json!({ "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] });
    }
    let calculated = match panel.kind {
        Kind::Bars => json!(["sum"]),
        _ => json!(["mean", "max"]),
    };
    json!({ "displayMode": "table", "placement": "right", "showLegend": true, "calcs": calculated })
}

fn table(sorted_by: Option<&str>) -> Value {
    let mut options = json!({
        "showHeader": true,
        "cellHeight": "sm",
    });
    if let Some(title) = sorted_by {
        options["sortBy"] = json!([{ "displayName": title, "desc": true }]);
    }
    options
}

fn heatmap(panel: &Panel) -> Value {
    json!({
        "calculate": false,
        "cellGap": 1,
        "cellValues": { "unit": "cps" },
        "color": {
            "mode": "scheme",
            "scheme": "Oranges",
            "fill": "dark-orange",
            "scale": "exponential",
            // Low rates stay visible: they are the tail.
            "exponent": 0.25,
            "reverse": false,
            "steps": 64,
        },
        "exemplars": { "color": "rgba(255,0,255,0.7)" },
        "filterValues": { "le": 1e-9 },
        "legend": { "show": true },
        "rowsFrame": { "layout": "auto" },
        "showValue": "never",
        "tooltip": { "mode": "single", "showColorScale": true, "yHistogram": false },
        "yAxis": { "axisPlacement": "left", "reverse": false, "unit": panel.unit.grafana() },
    })
}
