//! Line charts as SVG text.

use std::fmt::Write as _;

/// One line of a chart.
pub(crate) struct Line {
    pub(crate) name: String,
    /// Simulated lines are dashed.
    pub(crate) dashed: bool,
    pub(crate) color: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A chart with its text.
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    /// Whether distances on the x axis are ratios.
    pub(crate) log_x: bool,
    pub(crate) lines: Vec<Line>,
}

/// Colors that are distinguishable for color-blind people (Okabe and Ito).
pub(crate) const COLORS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];

const LEFT: f64 = 60.0;
const TOP: f64 = 34.0;
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;

impl Chart {
    /// The chart as a file.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let scale = |value: f64| if self.log_x { value.log10() } else { value };
        let xs = bounds(points().map(|point| scale(point.0)));
        let ys = bounds(points().map(|point| point.1).chain([0.0]));
        let place_x = |x: f64| LEFT + WIDTH * (scale(x) - xs.0) / (xs.1 - xs.0);
        let place_y = |y: f64| TOP + HEIGHT * (1.0 - (y - ys.0) / (ys.1 - ys.0));
        let mut text = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"350\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"760\" height=\"350\" fill=\"#fff\"/>\n",
        );
        let mut label = |x: f64, y: f64, anchor: &str, words: &str| {
            writeln!(
                text,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
            )
            .ok(); // writing into a string does not fail
        };
        label(LEFT, 18.0, "start", &format!("{}: {}", self.title, self.y));
        label(LEFT + WIDTH / 2.0, 342.0, "middle", self.x);
        for step in 0..=4 {
            let share = f64::from(step) / 4.0;
            let (x, y) = (xs.0 + share * (xs.1 - xs.0), ys.0 + share * (ys.1 - ys.0));
            let shown = if self.log_x { 10_f64.powf(x) } else { x };
            label(
                LEFT + share * WIDTH,
                TOP + HEIGHT + 18.0,
                "middle",
                &number(shown),
            );
            label(LEFT - 6.0, place_y(y) + 4.0, "end", &number(y));
        }
        for (row, line) in (0..).zip(&self.lines) {
            let y = TOP + 14.0 + 18.0 * f64::from(row);
            label(LEFT + WIDTH + 44.0, y + 4.0, "start", &line.name);
        }
        writeln!(
            text,
            "<path d=\"M{LEFT} {TOP}v{HEIGHT}h{WIDTH}\" fill=\"none\" stroke=\"#888\"/>"
        )
        .ok(); // as above
        for (row, line) in (0..).zip(&self.lines) {
            let dash = if line.dashed {
                " stroke-dasharray=\"6 3\""
            } else {
                ""
            };
            let mut path = String::new();
            for (x, y) in &line.points {
                let begin = if path.is_empty() { 'M' } else { 'L' };
                write!(path, "{begin}{:.1} {:.1}", place_x(*x), place_y(*y)).ok(); // as above
            }
            let y = TOP + 14.0 + 18.0 * f64::from(row);
            let key = format!("M{} {y}h28", LEFT + WIDTH + 12.0);
            writeln!(
                text,
                "<path d=\"{path}{key}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"{dash}/>",
                line.color
            )
            .ok(); // as above
        }
        text.push_str("</svg>\n");
        text
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if high > low {
        (low, high)
    } else {
        (low, low + 1.0)
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 20.0 => format!("{value:.0}"),
        size if size >= 2.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
