//! Grafana's grid in pixels, and panels that are repeated for each value of a variable.

use serde_json::Value;

use super::data::Variables;
use super::look::{list, number, text};

/// Width of the picture.
pub(crate) const WIDTH: f64 = 1440.0;
const COLUMNS: f64 = 24.0;
/// Grafana's: height of a grid row, space between panels and around them.
const ROW: f64 = 30.0;
const GAP: f64 = 8.0;
const MARGIN: f64 = 16.0;

/// Where a panel stands, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Pixels of a place in the grid.
fn pixels(x: f64, y: f64, width: f64, height: f64) -> Place {
    let column = (WIDTH - 2.0 * MARGIN + GAP) / COLUMNS;
    Place {
        x: MARGIN + x * column,
        y: y * (ROW + GAP),
        width: width * column - GAP,
        height: height * (ROW + GAP) - GAP,
    }
}

/// A variable and the value for which a panel is drawn.
pub(crate) type Repeated = (String, String);

/// Every panel and its position. A repeated one is shown once for each value, side by side as far as they fit;
/// what is below moves down.
pub(crate) fn places<'a>(
    dashboard: &'a Value,
    variables: &Variables,
) -> Vec<(&'a Value, Place, Option<Repeated>)> {
    let mut places = Vec::new();
    let mut moved = 0.0;
    for panel in list(dashboard, "/panels") {
        let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| number(&panel["gridPos"][key]));
        let y = y + moved;
        let name = text(panel, "/repeat");
        if name.is_empty() {
            places.push((panel, pixels(x, y, width, height), None));
            continue;
        }
        let values = variables.values(name);
        let beside = values
            .len()
            .clamp(1, panel["maxPerRow"].as_u64().unwrap_or(4) as usize);
        let width = (COLUMNS / beside as f64).floor();
        for (at, value) in values.iter().enumerate() {
            let (column, line) = (at % beside, at / beside);
            let place = pixels(
                column as f64 * width,
                y + line as f64 * height,
                width,
                height,
            );
            places.push((panel, place, Some((name.to_owned(), value.clone()))));
        }
        let lines = values.len().div_ceil(beside);
        moved += (lines as f64 - 1.0) * height;
    }
    places
}

#[test]
fn the_grid_fills_the_width_with_gaps_of_eight_pixels() {
    let whole = pixels(0.0, 0.0, 24.0, 4.0);
    assert_eq!((whole.x, whole.width, whole.height), (16.0, 1408.0, 144.0));
    let (left, right) = (pixels(0.0, 4.0, 12.0, 8.0), pixels(12.0, 4.0, 12.0, 8.0));
    assert_eq!(left.x + left.width + GAP, right.x);
    assert_eq!(right.x + right.width, WIDTH - MARGIN);
    assert_eq!(left.y, whole.y + whole.height + GAP);
}

#[test]
fn a_repeated_panel_moves_what_is_below_it() {
    let dashboard = serde_json::json!({ "panels": [
        { "repeat": "class", "maxPerRow": 2, "gridPos": { "x": 0, "y": 0, "w": 24, "h": 2 } },
        { "gridPos": { "x": 0, "y": 2, "w": 24, "h": 1 } },
    ] });
    let variables = Variables::of("class", &["a", "b", "c"]);
    let found = places(&dashboard, &variables);
    let at: Vec<_> = found
        .iter()
        .map(|(_, place, _)| (place.x, place.y))
        .collect();
    assert_eq!(at, [(16.0, 0.0), (724.0, 0.0), (16.0, 76.0), (16.0, 152.0)]);
    assert_eq!(found[2].2, Some((String::from("class"), String::from("c"))));
}
