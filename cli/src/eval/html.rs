//! The scores as one self-contained web page: tables of bars, drawn as SVG.

use std::collections::BTreeMap;

use super::report::{DetectorReport, Report};
use super::score::FaultScore;

/// Geometry in pixels.
const LABEL_WIDTH: f64 = 115.0;
const PLOT_WIDTH: f64 = 250.0;
const ROW_HEIGHT: f64 = 18.0;
/// The longest time that a plot shows; longer bars are cut there and report their value.
const LONGEST_SECONDS: f64 = 300.0;

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>railscope eval</title><style>\
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1b1f24}\
h2{margin:1.6em 0 .3em}svg{display:block;margin:.2em 0 1em}pre{overflow-x:auto;font-size:12px}\
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(510px,1fr))}\
.own{fill:#0b66c3}.other{fill:#9aa7b4}.whisker{stroke:#1b1f24;stroke-width:1}text{font:12px system-ui,sans-serif;fill:#1b1f24}\
@media(prefers-color-scheme:dark){body{background:#12161b;color:#e6edf3}text{fill:#e6edf3}.whisker{stroke:#e6edf3}}\
</style></head><body>";

/// The web page.
pub(super) fn page(report: &Report) -> String {
    let mut page = format!(
        "{HEAD}<h1>railscope eval</h1><p>{}</p>",
        escaped(&report.headline())
    );
    for (title, about, bar) in [
        (
            "Recall by cause",
            "Share of the faults whose root cause was named, with the 95 % Wilson interval.",
            recall as fn(&FaultScore) -> Option<Bar>,
        ),
        (
            "Time to detect by cause",
            "From onset to the first alarm about the root cause, its node or its victims: the bar ends at the median, the line at the 90th percentile. A time can be present although the root cause was not named.",
            time_to_detect,
        ),
    ] {
        page += &format!("<h2>{title}</h2><p>{about}</p><div class=\"plots\">");
        page += &plot("all", &report.detectors, |detector| {
            bar(&detector.score.faults)
        });
        let causes: BTreeMap<_, _> = report.detectors[0].score.by_cause.iter().collect();
        for cause in causes.into_keys() {
            page += &plot(cause, &report.detectors, |detector| {
                detector.score.by_cause.get(cause).and_then(bar)
            });
        }
        page += "</div>";
    }
    page += "<h2>False pages on a simulated day</h2><p>Exact 95 % Poisson interval; the scale is logarithmic, from 0.1 to 100,000.</p>";
    page += &plot("all", &report.detectors, false_pages);
    page += &format!(
        "<h2>Figures</h2><pre>{}</pre></body></html>\n",
        escaped(&report.table())
    );
    page
}

/// One bar: shares of the plot's width, and its value as text.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    length: f64,
    whisker: (f64, f64),
    said: String,
}

fn recall(score: &FaultScore) -> Option<Bar> {
    let length = score.recall.value()?;
    Some(Bar {
        length,
        whisker: score.recall.interval()?,
        said: format!("{length:.2} ({}/{})", score.recall.hits, score.recall.of),
    })
}

fn time_to_detect(score: &FaultScore) -> Option<Bar> {
    let times = score.detect_seconds;
    let (p50, p90) = (times.p50?, times.p90?);
    let share = |seconds: f64| (seconds / LONGEST_SECONDS).min(1.0);
    Some(Bar {
        length: share(p50),
        whisker: (share(p50), share(p90)),
        said: format!("{p50:.0} s / {p90:.0} s"),
    })
}

fn false_pages(detector: &DetectorReport) -> Option<Bar> {
    let rate = detector.score.alarms.false_pages;
    let (value, (low, high)) = (rate.per_day()?, rate.interval()?);
    // 0.1 a day is the left end, 100,000 the right one.
    let share = |rate: f64| ((rate.max(0.1).log10() + 1.0) / 6.0).min(1.0);
    Some(Bar {
        length: share(value),
        whisker: (share(low), share(high)),
        said: format!("{value:.1} a day ({})", rate.count),
    })
}

fn plot(
    title: &str,
    detectors: &[DetectorReport],
    bar: impl Fn(&DetectorReport) -> Option<Bar>,
) -> String {
    let height = ROW_HEIGHT * (detectors.len() + 1) as f64;
    let width = LABEL_WIDTH + PLOT_WIDTH + 130.0;
    let mut svg = format!(
        "<svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\"><text x=\"0\" y=\"13\" font-weight=\"bold\">{title}</text>",
        title = escaped(title)
    );
    for (row, detector) in (1_u32..).zip(detectors) {
        let top = ROW_HEIGHT * f64::from(row);
        let (text, middle) = (top + 13.0, top + 9.0);
        let class = if row == 1 { "own" } else { "other" };
        svg += &format!(
            "<text x=\"0\" y=\"{text}\">{}</text>",
            escaped(&detector.name)
        );
        let Some(bar) = bar(detector) else {
            svg += &format!("<text x=\"{LABEL_WIDTH}\" y=\"{text}\">-</text>");
            continue;
        };
        let at = |share: f64| LABEL_WIDTH + PLOT_WIDTH * share;
        let (from, to) = (at(bar.whisker.0), at(bar.whisker.1));
        svg += &format!(
            "<rect class=\"{class}\" x=\"{LABEL_WIDTH}\" y=\"{}\" width=\"{:.1}\" height=\"12\"/><line class=\"whisker\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" y2=\"{middle}\"/><text x=\"{:.1}\" y=\"{text}\">{}</text>",
            top + 3.0,
            PLOT_WIDTH * bar.length,
            at(1.0) + 8.0,
            escaped(&bar.said)
        );
    }
    svg + "</svg>"
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
