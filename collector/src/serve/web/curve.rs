//! The deciding counter of an incident around its onset, as a drawing that needs no script and scales no text.

use std::fmt::{self, Write};

use railscope_model::fabric::Timestamp;

use super::Look;
use super::html::Esc;
use crate::clock::unix_seconds;
use crate::diagnose::curve::{AROUND_SECONDS, BEFORE_SECONDS, Curve, Point};
use crate::diagnose::incident::Incident;
use crate::jobs::straggler::median;
use crate::serve::phrases::{self, amount};

/// A curve that is longer than this is drawn twice: around the onset, and in full.
const LONG_SECONDS: f64 = 15.0 * 60.0;
/// The drawing, in pixels: two lines of text, the plot, one line of text.
const TOP: f64 = 34.0;
const PLOT: f64 = 170.0;
const HEIGHT: f64 = TOP + PLOT + 20.0;
/// Width of the stretched part, in its own units.
const WIDE: f64 = 1000.0;
/// Width of the labels at the left of the plot, pixels.
const LABELS: u32 = 52;
/// Most horizontal lines above zero.
const LINES: f64 = 3.0;

/// The deciding counter, where it is recorded.
pub(super) fn section(out: &mut String, look: &Look<'_>, incident: &Incident) -> fmt::Result {
    let Some(curve) = look.snapshot.view.curves.get(&incident.id) else {
        return Ok(());
    };
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else {
        return Ok(());
    };
    let part = phrases::part(&curve.part, &look.snapshot.layout);
    let (what, unit) = phrases::measured(curve.metric);
    let shown = Shown {
        curve,
        what: &what,
        unit: &unit,
    };
    let said = shown.sentence(&part);
    write!(
        out,
        "<h2>Deciding counter: {}</h2><p class=\"hint\">{} <code>{}</code></p>",
        Esc(&what),
        Esc(&said),
        Esc(series(curve))
    )?;
    let long = last.at.seconds_since(first.at) > LONG_SECONDS;
    let around = curve.onset.plus_seconds(AROUND_SECONDS);
    let before = Timestamp(curve.onset.0.saturating_sub((BEFORE_SECONDS * 1e3) as u64));
    if long && before <= around && first.at <= curve.onset {
        let of_onset = Range::of(first.at.max(before), around);
        shown.figure(out, "Around the onset", of_onset, &said)?;
        shown.figure(out, "Until now", Range::of(first.at, last.at), &said)?;
    } else {
        shown.figure(out, "Around the onset", Range::of(first.at, last.at), &said)?;
    }
    shown.legend(out)
}

/// The series as Prometheus writes it.
fn series(curve: &Curve) -> String {
    let labels = curve.metric.labels.iter().zip(curve.labels.values());
    let labels: Vec<_> = labels
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    let series = format!("{}{{{}}}", curve.metric.name, labels.join(","));
    if curve.is_rate() {
        format!("rate({series})")
    } else {
        series
    }
}

/// A value beside its line; the unit is above the plot.
fn label(value: f64, unit: &str) -> String {
    let is_word = unit.ends_with("s/s");
    amount(value, if is_word { "" } else { unit })
}

/// Hours, minutes and seconds of a timestamp.
fn clock(at: Timestamp) -> String {
    let text = phrases::utc(unix_seconds(at));
    text.get(11..19).unwrap_or_default().to_owned()
}

/// A curve with its text.
struct Shown<'a> {
    curve: &'a Curve,
    what: &'a str,
    unit: &'a str,
}

/// The time that is drawn.
#[derive(Debug, Clone, Copy)]
struct Range {
    from: Timestamp,
    seconds: f64,
}

impl Range {
    fn of(from: Timestamp, until: Timestamp) -> Self {
        Self {
            from,
            seconds: until.seconds_since(from).max(1.0),
        }
    }

    /// Position of a timestamp, from 0 at the left to 1 at the right; none outside.
    fn place(self, at: Timestamp) -> Option<f64> {
        let place = at.seconds_since(self.from) / self.seconds;
        (at >= self.from && place <= 1.0).then_some(place)
    }
}

/// Values from 0 to the top, and the distance of the lines between them.
#[derive(Debug, Clone, Copy)]
struct Scale {
    top: f64,
    step: f64,
}

impl Scale {
    /// A scale that contains all of these.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        if most <= 0.0 {
            return Self {
                top: 1.1,
                step: 1.0,
            };
        }
        let least = most / LINES;
        let power = 10_f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let fits = steps.into_iter().find(|step| *step >= 0.999 * least);
        Self {
            top: 1.1 * most,
            step: fits.unwrap_or(10.0 * power),
        }
    }

    /// How far below the upper border of the plot a value is, pixels.
    fn below(self, value: f64) -> f64 {
        PLOT * (1.0 - (value / self.top).clamp(0.0, 1.0))
    }

    fn lines(self) -> impl Iterator<Item = f64> {
        let lines = (0..=LINES as u32).map(move |number| f64::from(number) * self.step);
        lines.take_while(move |line| *line <= self.top)
    }
}

impl Shown<'_> {
    /// What there is to see, in a sentence.
    fn sentence(&self, part: &str) -> String {
        let (curve, unit) = (self.curve, self.unit);
        let before = curve.points.iter().filter(|point| point.at < curve.onset);
        let before = median(before.filter_map(|point| point.own));
        let last = curve.points.last();
        let mut said = format!("{part}: ");
        if let Some(before) = before {
            said += &format!("{} before the onset, ", amount(before, unit));
        }
        said += &match last.and_then(|last| last.own) {
            Some(now) => format!("{} now", amount(now, unit)),
            None => String::from("no reading now"),
        };
        if let Some(peers) = last.and_then(|last| last.peers) {
            said += &format!(
                "; its {} peers: median {}, 10th to 90th percentile {} to {}",
                curve.peers,
                amount(peers.median, unit),
                amount(peers.low, unit),
                amount(peers.high, unit)
            );
        }
        if let Some(limit) = curve.limit {
            said += &format!("; threshold {}", amount(limit, unit));
        }
        said + &format!(". Onset {}.", phrases::utc(unix_seconds(curve.onset)))
    }

    fn figure(&self, out: &mut String, title: &str, range: Range, said: &str) -> fmt::Result {
        let curve = self.curve;
        let is_drawn = |point: &&Point| range.place(point.at).is_some();
        let points: Vec<&Point> = curve.points.iter().filter(is_drawn).collect();
        let own = points.iter().filter_map(|point| point.own);
        let peers = points.iter().filter_map(|point| point.peers);
        let all = own.chain(peers.map(|peers| peers.high)).chain(curve.limit);
        let scale = Scale::of(all);
        write!(
            out,
            "<figure><figcaption>{title}</figcaption><div class=\"axes\">"
        )?;
        self.labels(out, scale)?;
        write!(
            out,
            "<svg class=\"plot\" width=\"100%\" height=\"{HEIGHT}\" role=\"img\" aria-label=\"{}\"><title>{} of {}</title>",
            Esc(said),
            Esc(self.what),
            Esc(&curve.part),
        )?;
        for line in scale.lines() {
            let y = TOP + scale.below(line);
            write!(
                out,
                "<line class=\"grid\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            )?;
        }
        write!(
            out,
            "<svg y=\"{TOP}\" width=\"100%\" height=\"{PLOT}\" viewBox=\"0 0 {WIDE} {PLOT}\" preserveAspectRatio=\"none\">"
        )?;
        band(out, &points, range, scale)?;
        let median = |point: &Point| point.peers.map(|peers| peers.median);
        line(out, "med", &points, median, range, scale)?;
        line(out, "own", &points, |point| point.own, range, scale)?;
        out.push_str("</svg>");
        self.marks(out, range, scale)?;
        out.push_str("</svg></div></figure>\n");
        Ok(())
    }

    /// The vertical axis: a separate drawing, so that the other can be as wide as there is room.
    fn labels(&self, out: &mut String, scale: Scale) -> fmt::Result {
        let axis = match self.unit {
            "" => self.what.to_owned(),
            "ratio" => format!("{}, %", self.what),
            unit => format!("{}, {unit}", self.what),
        };
        write!(
            out,
            "<svg class=\"plot labels\" width=\"{LABELS}\" height=\"{HEIGHT}\" aria-hidden=\"true\"><text y=\"11\">{}</text>",
            Esc(axis)
        )?;
        for line in scale.lines() {
            let y = TOP + scale.below(line) + 4.0;
            let label = Esc(label(line, self.unit));
            write!(
                out,
                "<text class=\"label\" x=\"{LABELS}\" y=\"{y:.1}\">{label}</text>"
            )?;
        }
        out.push_str("</svg>");
        Ok(())
    }

    /// Threshold, onset and time.
    fn marks(&self, out: &mut String, range: Range, scale: Scale) -> fmt::Result {
        if let Some(limit) = self.curve.limit {
            let y = TOP + scale.below(limit);
            write!(
                out,
                "<line class=\"thr\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"halo\" x=\"99%\" y=\"{:.1}\" text-anchor=\"end\">threshold {}</text>",
                y - 4.0,
                Esc(amount(limit, self.unit))
            )?;
        }
        if let Some(place) = range.place(self.curve.onset) {
            let x = 100.0 * place;
            let (anchor, shift) = if place < 0.5 {
                ("start", 4)
            } else {
                ("end", -4)
            };
            write!(
                out,
                "<line class=\"onset\" x1=\"{x:.1}%\" x2=\"{x:.1}%\" y1=\"16\" y2=\"{:.1}\"/><text class=\"halo\" x=\"{x:.1}%\" dx=\"{shift}\" y=\"27\" text-anchor=\"{anchor}\">onset {}</text>",
                TOP + PLOT,
                clock(self.curve.onset)
            )?;
        }
        let y = HEIGHT - 4.0;
        write!(
            out,
            "<text y=\"{y}\">{}</text><text x=\"50%\" y=\"{y}\" text-anchor=\"middle\">time, UTC</text><text x=\"100%\" y=\"{y}\" text-anchor=\"end\">{}</text>",
            clock(range.from),
            clock(range.from.plus_seconds(range.seconds))
        )
    }

    fn legend(&self, out: &mut String) -> fmt::Result {
        let swatch = |out: &mut String, drawn: &str, said: &str| {
            write!(
                out,
                "<span><svg class=\"plot swatch\" width=\"16\" height=\"12\" aria-hidden=\"true\">{drawn}</svg>{said}</span>"
            )
        };
        out.push_str("<p class=\"legend\">");
        let part = Esc(&self.curve.part).to_string();
        swatch(out, "<path class=\"own\" d=\"M1 6h14\"/>", &part)?;
        if self.curve.points.iter().any(|point| point.peers.is_some()) {
            let peers = format!("median of {} peers", self.curve.peers);
            swatch(out, "<path class=\"med\" d=\"M1 6h14\"/>", &peers)?;
            let band = "<rect class=\"band\" width=\"16\" height=\"12\"/>";
            swatch(out, band, "10th to 90th percentile")?;
        }
        if self.curve.limit.is_some() {
            swatch(out, "<path class=\"thr\" d=\"M0 6h16\"/>", "threshold")?;
        }
        out.push_str("</p>\n");
        Ok(())
    }
}

/// A line through those points that have a value; it breaks where one has none.
fn line(
    out: &mut String,
    class: &str,
    points: &[&Point],
    value: impl Fn(&Point) -> Option<f64>,
    range: Range,
    scale: Scale,
) -> fmt::Result {
    write!(out, "<path class=\"{class}\" d=\"")?;
    let mut begun = false;
    for point in points {
        let (Some(place), Some(value)) = (range.place(point.at), value(point)) else {
            begun = false;
            continue;
        };
        let (x, y) = (WIDE * place, scale.below(value));
        // A point alone is a dot.
        let (letter, dot) = if begun { ("L", "") } else { ("M", "h.1") };
        write!(out, "{letter}{x:.1} {y:.1}{dot}")?;
        begun = true;
    }
    out.push_str("\"/>");
    Ok(())
}

/// The area between the percentiles of the peers.
fn band(out: &mut String, points: &[&Point], range: Range, scale: Scale) -> fmt::Result {
    let runs = points.chunk_by(|a, b| a.peers.is_some() == b.peers.is_some());
    for run in runs {
        let corners = run.iter().filter_map(|point| {
            let x = WIDE * range.place(point.at)?;
            let peers = point.peers?;
            Some((x, scale.below(peers.low), scale.below(peers.high)))
        });
        let corners: Vec<_> = corners.collect();
        if corners.is_empty() {
            continue;
        }
        out.push_str("<path class=\"band\" d=\"");
        let upper = corners.iter().map(|(x, _, high)| (x, high));
        let lower = corners.iter().rev().map(|(x, low, _)| (x, low));
        for (number, (x, y)) in upper.chain(lower).enumerate() {
            let letter = if number == 0 { "M" } else { "L" };
            write!(out, "{letter}{x:.1} {y:.1}")?;
        }
        out.push_str("Z\"/>");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use railscope_model::metric::RDMA_PORT_ERRORS;
    use railscope_model::reading::Labels;

    use super::*;
    use crate::diagnose::curve::Band;

    fn curve(seconds: u64) -> Curve {
        let onset = Timestamp(1_700_000_000_000);
        let points = (0..=seconds).step_by(10).map(|second| {
            let at = Timestamp(onset.0 - 60_000 + second * 1000);
            let peers = Band {
                low: 0.0,
                median: 0.1,
                high: 0.2,
            };
            Point {
                at,
                own: (second != 30).then_some(if at < onset { 0.0 } else { 6.0 }),
                peers: Some(peers),
            }
        });
        Curve {
            part: "link/n1:mlx5_0/1".parse().expect("a part"),
            metric: &RDMA_PORT_ERRORS,
            labels: Labels::new(["mlx5_0", "1", "<b>"]),
            onset,
            limit: Some(1.0 / 30.0),
            peers: 12,
            points: points.collect(),
        }
    }

    fn drawn(curve: &Curve) -> String {
        let (what, unit) = phrases::measured(curve.metric);
        let shown = Shown {
            curve,
            what: &what,
            unit: &unit,
        };
        let mut out = String::new();
        let range = Range::of(curve.points[0].at, curve.points.last().expect("points").at);
        let said = shown.sentence("The <cable>");
        shown
            .figure(&mut out, "Around the onset", range, &said)
            .expect("text");
        shown.legend(&mut out).expect("text");
        out
    }

    #[test]
    fn a_plot_has_axes_with_units_the_onset_the_threshold_and_a_sentence_for_who_does_not_see_it() {
        let svg = drawn(&curve(240));
        for said in [
            "role=\"img\" aria-label=\"The &lt;cable&gt;: 0 errors/s before the onset, 6 errors/s now; its 12 peers: median 0.1 errors/s, 10th to 90th percentile 0 errors/s to 0.2 errors/s; threshold 0.0333 errors/s. Onset 2023-11-14 22:13:20 UTC.\"",
            "<text y=\"11\">RDMA port errors, errors/s</text>",
            "<text class=\"label\" x=\"52\" y=\"208.0\">0</text>",
            ">2</text>",
            ">6</text>",
            ">onset 22:13:20</text>",
            "class=\"onset\" x1=\"25.0%\"",
            ">threshold 0.0333 errors/s</text>",
            ">time, UTC</text>",
            "median of 12 peers",
            "22:16:20</text>",
        ] {
            assert!(svg.contains(said), "{said}\n{svg}");
        }
        let own = svg.split("class=\"own\" d=\"").nth(1).expect("a line");
        let own = own.split('"').next().expect("a path");
        assert_eq!(own.matches('M').count(), 2, "a gap: {own}");
        for never in ["style=", "<script", "<b>", "NaN", "inf"] {
            assert!(!svg.contains(never), "{never}: {svg}");
        }
    }

    #[test]
    fn lines_lie_at_round_numbers_below_the_top() {
        for (most, step, lines) in [
            (1.98e9, 1e9, 3),
            (6.0, 2.0, 4),
            (0.0, 1.0, 2),
            (1.0, 0.5, 3),
            (3e-7, 1e-7, 4),
        ] {
            let scale = Scale::of([most].into_iter());
            assert!((scale.step / step - 1.0).abs() < 1e-9, "{most}: {scale:?}");
            assert!(scale.lines().count() <= lines, "{most}: {scale:?}");
            assert!(scale.lines().count() >= 2, "{most}: {scale:?}");
        }
    }
}
