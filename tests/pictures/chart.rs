//! Curves, stacks and bars over time, with their legend.

use std::fmt::Write as _;

use serde_json::Value;

use super::Filled;
use super::data::Curve;
use super::look::{cut, escaped, list, number, series, text};
use super::unit::{Unit, clock};

/// Space for the numbers at the left, and for the times below.
const LEFT: f64 = 70.0;
const BELOW: f64 = 20.0;
const ABOVE: f64 = 6.0;
/// Of the legend: height of a line, width of a character and of a column of numbers, as in `style.css`.
const LINE: f64 = 17.0;
const CHARACTER: f64 = 6.7;
const NUMBER: f64 = 66.0;
/// Grafana gives a legend at most so much of a panel.
const WIDEST_LEGEND: f64 = 0.6;
const HIGHEST_LEGEND: f64 = 0.35;

/// A series with its name, and the panel's settings for drawing it.
struct Line<'a> {
    name: &'a str,
    curve: &'a Curve,
    color: &'static str,
    is_dashed: bool,
}

/// From data to pixels.
pub(crate) struct Plane {
    pub(crate) time: (f64, f64),
    pub(crate) values: (f64, f64),
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Plane {
    pub(crate) fn x(&self, time: f64) -> f64 {
        let (from, to) = self.time;
        LEFT + (time - from) / (to - from).max(1.0) * (self.width - LEFT - 8.0)
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        let share = (value - low) / (high - low);
        ABOVE + (1.0 - share) * (self.height - ABOVE - BELOW)
    }

    /// Grid, times, and numbers in the unit.
    fn axes(&self, unit: Unit<'_>, ticks: &[f64]) -> String {
        let mut svg = format!(
            "<svg width=\"{:.0}\" height=\"{:.0}\">",
            self.width, self.height
        );
        let right = self.width - 8.0;
        for tick in ticks {
            let (y, label) = (self.y(*tick), escaped(&unit.shown(*tick)));
            write!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right:.1}\" stroke=\"#e3e5e8\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            )
            .expect("text");
        }
        svg + &self.times()
    }

    /// Times below, at least 80 pixels apart.
    pub(crate) fn times(&self) -> String {
        let (from, to) = self.time;
        let most = ((self.width - LEFT) / 80.0).max(1.0);
        let steps = [
            15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0,
        ];
        let step = steps
            .into_iter()
            .find(|step| (to - from) / step <= most)
            .unwrap_or(172_800.0);
        let mut svg = String::new();
        let mut at = (from / step).ceil() * step;
        while at <= to {
            let label = clock(at);
            let label = if step < 60.0 { &label } else { &label[..5] };
            let (x, y) = (self.x(at), self.height - 5.0);
            write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
            )
            .expect("text");
            at += step;
        }
        svg
    }

    /// A line where each incident begins, and below how long it was open.
    fn incidents(&self, incidents: &[Curve]) -> String {
        let mut svg = String::new();
        for incident in incidents {
            let Some(((first, _), (last, _))) = incident.points.first().zip(incident.points.last())
            else {
                continue;
            };
            let (x, end, y) = (self.x(*first), self.x(*last), self.height - BELOW);
            write!(
                svg,
                "<path d=\"M{x:.1} {ABOVE}V{y:.1}\" stroke=\"#c9263f\" stroke-dasharray=\"3 3\"/>\
                 <path d=\"M{x:.1} {y:.1}H{end:.1}\" stroke=\"#c9263f\" stroke-width=\"3\"/>"
            )
            .expect("text");
        }
        svg
    }
}

pub(super) fn draw(panel: &Filled<'_>) -> String {
    let custom = panel.field("custom");
    let is_stacked = custom["stacking"]["mode"] == "normal";
    let is_bars = custom["drawStyle"] == "bars";
    let named = panel.named();
    let lines: Vec<_> = named
        .iter()
        .enumerate()
        .map(|(at, (name, curve))| line(panel, at, name, curve))
        .collect();
    let (legend, width, height) = legend(panel, &lines);
    let layers = layers(&lines, is_stacked);
    let (ticks, low, high) = scale(panel, &layers, height);
    let plane = Plane {
        time: panel.time,
        values: (low, high),
        width,
        height,
    };
    let mut svg = plane.axes(panel.unit(), &ticks) + &plane.incidents(panel.incidents);
    // The lowest layer last, so that no area hides a line.
    for (line, (base, top)) in lines.iter().zip(&layers).rev() {
        svg += &match (is_bars, is_stacked && !line.is_dashed) {
            (true, _) => bars(&plane, line, base, top),
            (false, true) => area(&plane, line, base, top) + &path(&plane, line, top),
            (false, false) => path(&plane, line, top),
        };
    }
    let place = text(panel.json, "/options/legend/placement");
    format!(
        "<div class=\"chart {}\">{svg}</svg>{legend}</div>",
        if place == "bottom" { "below" } else { "" }
    )
}

/// A series with the overrides of the panel.
fn line<'a>(panel: &Filled<'_>, at: usize, name: &'a str, curve: &'a Curve) -> Line<'a> {
    let is_limit = list(panel.json, "/fieldConfig/overrides")
        .iter()
        .any(|field| {
            let pattern = text(field, "/matcher/options");
            let beginnings = pattern
                .strip_prefix("/^(")
                .and_then(|rest| rest.strip_suffix(")/"));
            beginnings
                .is_some_and(|all| all.split('|').any(|beginning| name.starts_with(beginning)))
        });
    let color = if is_limit { "#24292e" } else { series(at) };
    Line {
        name,
        curve,
        color,
        is_dashed: is_limit,
    }
}

/// Points of a layer, without those that are no number.
type Points = Vec<(f64, f64)>;

/// Lower and upper edge of each series.
fn layers(lines: &[Line<'_>], is_stacked: bool) -> Vec<(Points, Points)> {
    let mut sums = std::collections::BTreeMap::new();
    let layer = |line: &Line<'_>| {
        let points = line
            .curve
            .points
            .iter()
            .filter(|(_, value)| value.is_finite());
        let points = points.copied();
        if !is_stacked || line.is_dashed {
            return (
                points.clone().map(|(time, _)| (time, 0.0)).collect(),
                points.collect(),
            );
        }
        let edges = points.map(|(time, value)| {
            let sum: &mut f64 = sums.entry(time.to_bits()).or_insert(0.0);
            let base = *sum;
            *sum += value;
            ((time, base), (time, *sum))
        });
        edges.unzip()
    };
    lines.iter().map(layer).collect()
}

/// Ticks, and the lowest and highest value of the axis.
fn scale(panel: &Filled<'_>, layers: &[(Points, Points)], height: f64) -> (Vec<f64>, f64, f64) {
    let values = layers
        .iter()
        .flat_map(|(_, top)| top)
        .map(|(_, value)| *value);
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    let low = panel.field("min").as_f64().unwrap_or(low);
    let high = panel.field("max").as_f64().unwrap_or(high);
    let (low, high) = if low.is_finite() && high > low {
        (low, high)
    } else {
        (0.0_f64.min(high), 1.0)
    };
    let most = (height / 34.0).max(2.0);
    let rough = (high - low) / most;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let step = step
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let step = match panel.field("decimals").as_u64() {
        Some(0) => step.max(1.0),
        _ => step,
    };
    let (first, last) = ((low / step).floor(), (high / step).ceil());
    let ticks = (first as i64..=last as i64).map(|at| at as f64 * step);
    (ticks.collect(), first * step, last * step)
}

/// Points to be joined: a gap of more than two steps parts them.
fn pieces(points: &[(f64, f64)], step: f64) -> impl Iterator<Item = &[(f64, f64)]> {
    points.chunk_by(move |left, right| right.0 - left.0 < 2.0 * step.max(1.0))
}

fn path(plane: &Plane, line: &Line<'_>, top: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for piece in pieces(top, line.curve.step) {
        for (at, (time, value)) in piece.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            write!(d, "{letter}{:.1} {:.1}", plane.x(*time), plane.y(*value)).expect("text");
        }
        // A single point would be invisible.
        d += if piece.len() == 1 { "h2" } else { "" };
    }
    let dashes = if line.is_dashed {
        " stroke-dasharray=\"8 6\""
    } else {
        ""
    };
    format!(
        "<path d=\"{d}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"{dashes}/>",
        line.color
    )
}

fn area(plane: &Plane, line: &Line<'_>, base: &[(f64, f64)], top: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (at, (time, value)) in top.iter().chain(base.iter().rev()).enumerate() {
        let letter = if at == 0 { 'M' } else { 'L' };
        write!(d, "{letter}{:.1} {:.1}", plane.x(*time), plane.y(*value)).expect("text");
    }
    format!(
        "<path d=\"{d}Z\" fill=\"{}\" fill-opacity=\".4\"/>",
        line.color
    )
}

fn bars(plane: &Plane, line: &Line<'_>, base: &[(f64, f64)], top: &[(f64, f64)]) -> String {
    let bar = |((time, low), (_, high)): (&(f64, f64), &(f64, f64))| {
        let width = 0.8 * (plane.x(time + line.curve.step) - plane.x(*time));
        let (x, y) = (plane.x(*time) - width / 2.0, plane.y(*high));
        format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            plane.y(*low) - y,
            line.color
        )
    };
    base.iter().zip(top).map(bar).collect()
}

/// The legend, and width and height that it leaves to the curves.
fn legend(panel: &Filled<'_>, lines: &[Line<'_>]) -> (String, f64, f64) {
    let (width, height) = panel.size;
    let options = &panel.json["options"]["legend"];
    let calculated: Vec<_> = list(options, "/calcs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let is_below = options["placement"] == "bottom";
    if options["displayMode"] == "list" {
        let mut items: String = lines
            .iter()
            .map(|line| format!("<span>{}</span> ", mark(line, 60)))
            .collect();
        items = format!(
            "<div class=\"items\" style=\"height:{}px;overflow:hidden\">{items}</div>",
            2.0 * LINE
        );
        return (items, width, height - 2.0 * LINE);
    }
    let numbers = NUMBER * calculated.len() as f64;
    let longest = lines
        .iter()
        .map(|line| line.name.chars().count())
        .max()
        .unwrap_or(0);
    let wanted = 30.0 + CHARACTER * longest as f64 + numbers;
    let (own, most) = if is_below {
        (width, HIGHEST_LEGEND * height)
    } else {
        (wanted.min(WIDEST_LEGEND * width), height)
    };
    let fits = ((most / LINE) as usize).saturating_sub(1).max(1);
    let characters = ((own - numbers - 30.0) / CHARACTER).max(4.0).round() as usize;
    let mut rows = String::new();
    for line in lines.iter().take(fits) {
        let cells = calculated.iter().map(|calc| {
            format!(
                "<td>{}</td>",
                escaped(&calculation(panel.unit(), line.curve, calc))
            )
        });
        write!(
            rows,
            "<tr><td>{}</td>{}</tr>",
            mark(line, characters),
            cells.collect::<String>()
        )
        .expect("text");
    }
    let heads: String = calculated
        .iter()
        .map(|calc| format!("<th>{calc}</th>"))
        .collect();
    let more = match lines.len().saturating_sub(fits) {
        0 => String::new(),
        more => format!("<p class=\"more\">{more} more</p>"),
    };
    let html = format!(
        "<div style=\"width:{own:.0}px\"><table class=\"legend\"><tr><th></th>{heads}</tr>{rows}</table>{more}</div>"
    );
    if is_below {
        let used = LINE * (lines.len().min(fits) + 1) as f64;
        (html, width, height - used - 4.0)
    } else {
        (html, width - own, height)
    }
}

fn mark(line: &Line<'_>, characters: usize) -> String {
    format!(
        "<i style=\"background:{}\"></i>{}",
        line.color,
        escaped(&cut(line.name, characters))
    )
}

fn calculation(unit: Unit<'_>, curve: &Curve, which: &str) -> String {
    let values: Vec<_> = curve
        .points
        .iter()
        .map(|(_, value)| *value)
        .filter(|value| value.is_finite())
        .collect();
    let sum: f64 = values.iter().sum();
    let value = match which {
        _ if values.is_empty() => return String::new(),
        "mean" => sum / values.len() as f64,
        "max" => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "min" => values.iter().copied().fold(f64::INFINITY, f64::min),
        "sum" => sum,
        _ => curve.last().unwrap_or(number(&Value::Null)),
    };
    unit.shown(value)
}

#[test]
fn series_are_stacked_at_equal_times_and_gaps_part_curves() {
    let curve = |points: &[(f64, f64)]| Curve {
        points: points.to_vec(),
        step: 5.0,
        ..Curve::default()
    };
    let curves = [
        curve(&[(0.0, 1.0), (5.0, 2.0)]),
        curve(&[(5.0, 3.0), (10.0, f64::NAN)]),
    ];
    let lines = curves.iter().map(|curve| Line {
        name: "",
        curve,
        color: "",
        is_dashed: false,
    });
    let layers = layers(&lines.collect::<Vec<_>>(), true);
    assert_eq!(layers[1], (vec![(5.0, 2.0)], vec![(5.0, 5.0)]));
    let points = [(0.0, 1.0), (5.0, 1.0), (30.0, 1.0)];
    assert_eq!(
        pieces(&points, 5.0).map(<[_]>::len).collect::<Vec<_>>(),
        [2, 1]
    );
}
