//! Heat maps of histograms: a row for each bucket.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Filled;
use super::chart::Plane;
use super::data::Curve;
use super::look::{escaped, yellow_to_red};
use super::unit::Unit;

/// What a heat map shows: bounds of its rows, and cells by row and second, with what was counted there alone.
struct Buckets {
    bounds: Vec<f64>,
    cells: Vec<(f64, f64, f64)>,
    step: f64,
}

/// Buckets of a histogram count all values below their bound: each is less what the one below has.
fn buckets(panel: &Filled<'_>) -> Buckets {
    let all = panel.answers.iter().flatten();
    let bound = |curve: &Curve| curve.labels.get("le").and_then(|le| le.parse().ok());
    let mut curves: Vec<_> = all
        .map(|curve| (bound(curve).unwrap_or(f64::INFINITY), curve))
        .collect();
    curves.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut below: BTreeMap<u64, f64> = BTreeMap::new();
    let mut cells = Vec::new();
    for (row, (_, curve)) in curves.iter().enumerate() {
        for (time, value) in curve.points.iter().filter(|(_, value)| value.is_finite()) {
            let counted = value - below.insert(time.to_bits(), *value).unwrap_or(0.0);
            if counted > 1e-9 {
                cells.push((row as f64, *time, counted));
            }
        }
    }
    Buckets {
        step: curves.first().map_or(1.0, |(_, curve)| curve.step),
        bounds: curves.into_iter().map(|(bound, _)| bound).collect(),
        cells,
    }
}

pub(super) fn draw(panel: &Filled<'_>) -> String {
    let Buckets {
        bounds,
        cells,
        step,
    } = buckets(panel);
    let (width, height) = panel.size;
    let plane = Plane {
        time: panel.time,
        values: (0.0, bounds.len() as f64),
        width,
        height,
    };
    let most = cells
        .iter()
        .map(|(_, _, counted)| *counted)
        .fold(0.0, f64::max);
    let mut svg = format!(
        "<div class=\"chart\"><svg width=\"{width:.0}\" height=\"{height:.0}\">{}",
        plane.times()
    );
    for (row, time, counted) in cells {
        let (x, y) = (plane.x(time), plane.y(row + 1.0));
        let color = yellow_to_red((counted / most).powf(0.25));
        let (width, height) = ((plane.x(time + step) - x).max(1.0), plane.y(row) - y - 1.0);
        write!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>").expect("text");
    }
    let unit = Unit {
        id: panel.json["options"]["yAxis"]["unit"]
            .as_str()
            .unwrap_or("s"),
        decimals: None,
    };
    let every = (bounds.len() as f64 / (height / 16.0)).ceil().max(1.0) as usize;
    for (row, bound) in bounds.iter().enumerate().step_by(every) {
        let label = if bound.is_finite() {
            unit.shown(*bound)
        } else {
            String::from("more")
        };
        let y = plane.y(row as f64 + 0.5) + 4.0;
        write!(
            svg,
            "<text x=\"64\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            escaped(&label)
        )
        .expect("text");
    }
    svg + "</svg></div>"
}

#[test]
fn a_bucket_is_less_what_is_below_it() {
    let curve = |le: &str, value| Curve {
        labels: [(String::from("le"), le.to_owned())].into(),
        points: vec![(5.0, value)],
        step: 5.0,
    };
    let panel = Filled {
        json: &serde_json::Value::Null,
        answers: vec![vec![
            curve("+Inf", 7.0),
            curve("0.1", 2.0),
            curve("0.2", 7.0),
        ]],
        size: (100.0, 100.0),
        time: (0.0, 10.0),
        incidents: &[],
    };
    let found = buckets(&panel);
    assert_eq!(found.bounds, [0.1, 0.2, f64::INFINITY]);
    assert_eq!(found.cells, [(0.0, 5.0, 2.0), (1.0, 5.0, 5.0)]);
}
