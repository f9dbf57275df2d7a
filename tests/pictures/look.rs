//! Colors, thresholds, and reading of JSON.

use serde_json::Value;

pub(crate) const TRANSPARENT: &str = "transparent";
/// Colors of series, in this order. They differ in lightness too.
const SERIES: &[&str] = &[
    "#3f8f3a", "#d9a300", "#1f9bb5", "#e0672b", "#c4314b", "#1f5fa8", "#a63d97", "#63518f",
    "#8a6d3b", "#5a7a00",
];

/// A color by Grafana's name of it.
pub(crate) fn color(name: &str) -> &'static str {
    match name {
        "green" => "#2f8f46",
        "blue" => "#2f6fc4",
        "orange" => "#d9730d",
        "red" => "#c9263f",
        "text" => "#24292e",
        _ => TRANSPARENT,
    }
}

/// Color of the series at a place of the legend.
pub(crate) fn series(at: usize) -> &'static str {
    SERIES[at % SERIES.len()]
}

/// The color of a value by thresholds.
pub(crate) fn threshold(thresholds: &Value, value: f64) -> &'static str {
    let steps = list(thresholds, "/steps").iter();
    let mut reached = steps.filter(|step| step["value"].as_f64().is_none_or(|from| value >= from));
    reached
        .next_back()
        .map_or(TRANSPARENT, |step| color(text(step, "/color")))
}

/// From pale yellow to dark red.
pub(crate) fn yellow_to_red(share: f64) -> String {
    mixed(share, [255.0, 247.0, 205.0], [177.0, 24.0, 38.0])
}

/// From white to dark blue.
pub(crate) fn blues(share: f64) -> String {
    mixed(share, [247.0, 251.0, 255.0], [8.0, 81.0, 156.0])
}

fn mixed(share: f64, low: [f64; 3], high: [f64; 3]) -> String {
    let share = share.clamp(0.0, 1.0);
    let [red, green, blue] =
        std::array::from_fn(|at| (low[at] + (high[at] - low[at]) * share).round());
    format!("rgb({red},{green},{blue})")
}

pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Text as HTML.
pub(crate) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Text of at most so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    kept + "…"
}

#[test]
fn the_last_threshold_that_a_value_reaches_colors_it() {
    let steps = serde_json::json!({ "steps": [
        { "color": "green", "value": null },
        { "color": "red", "value": 1.0 },
    ] });
    let colors = [0.0, 1.0, 7.0].map(|value| threshold(&steps, value));
    assert_eq!(colors, [color("green"), color("red"), color("red")]);
    assert_eq!(threshold(&Value::Null, 1.0), TRANSPARENT);
}
