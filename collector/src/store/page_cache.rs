//! Lines that the expositions of equal nodes have in common: parsed once for one node, recognized by their bytes on all
//! others.
//!
//! A template is the exposition of one node: every series by the text before its value, in order, with its
//! meaning. An exposition that follows it is compared with it and not parsed again, except for its values. Lines that
//! differ, such as those with serial numbers, are parsed as they are; what an exposition reports never depends on
//! a template.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;
use railscope_model::exposition::{self, Line, ParseError, Parser, Series};
use railscope_model::metric::{HistogramPart, Metric};
use railscope_model::reading::Labels;

use super::node::NODE_SERIES_LIMIT;
use crate::store::series_names::{Meaning, Shared, meaning};

/// Templates of a cluster: one for each kind of node and version of its exporter.
const MOST_TEMPLATES: usize = 16;
/// Shorter scrapes cost little as they are.
const SHORTEST: usize = 64;
/// One of so many lines is checked, to find the template that a scrape follows.
const SAMPLED: usize = 16;
/// Maximum bytes of name and labels of a stored series, so that labels cannot exhaust memory. Railscope's have less than
/// 300 bytes.
pub(super) const HEAD_LIMIT: usize = 2_048;

/// One series of a template.
#[derive(Debug)]
pub(super) struct Known {
    head: Box<str>,
    means: Meaning,
    line: u64,
    labels: Labels,
}

/// The series of one scrape, in order.
#[derive(Debug)]
pub(super) struct Template {
    lines: Vec<Known>,
    /// By hash of what stands before the value: the place behind it.
    behind: HashMap<u64, usize, FixedState>,
}

/// The templates that nodes share.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates(Arc<Mutex<Vec<Arc<Template>>>>);

impl Templates {
    /// The one that a scrape follows, by a part of its lines.
    fn followed_by(&self, page: &str) -> Option<Arc<Template>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return None;
        }
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let sampled: Vec<u64> = lines
            .step_by(SAMPLED)
            .take(NODE_SERIES_LIMIT / SAMPLED)
            .filter_map(|line| match exposition::parse(line).next()? {
                Ok(Line::Series(series)) => Some(hash(series.head())),
                _ => None,
            })
            .collect();
        let alike = |template: &&Arc<Template>| {
            let has = |line: &&u64| template.behind.contains_key(line);
            sampled.iter().filter(has).count()
        };
        let best = known.iter().max_by_key(alike)?;
        (2 * alike(&best) >= sampled.len()).then(|| Arc::clone(best))
    }

    /// Keeps the lines of a scrape as another template, in place of one that no node follows any more if there are
    /// many.
    fn add(&self, lines: Vec<Known>) -> Option<Arc<Template>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_TEMPLATES {
            known.retain(|one| Arc::strong_count(one) > 1);
        }
        if known.len() >= MOST_TEMPLATES || lines.len() < SHORTEST {
            return None;
        }
        let places = lines.iter().zip(1..);
        let behind = places.map(|(known, place)| (known.line, place)).collect();
        let template = Arc::new(Template { lines, behind });
        known.push(Arc::clone(&template));
        Some(template)
    }
}

/// One sample of a scrape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'r, 'p> {
    pub(super) means: Meaning,
    /// Hash of what stands before the value.
    pub(super) line: u64,
    pub(super) value: f64,
    /// Bytes before the value.
    pub(super) head_bytes: usize,
    labels: Source<'r, 'p>,
}

/// Where the labels of a sample are to be had.
#[derive(Debug, Clone, Copy)]
enum Source<'r, 'p> {
    Known(&'r Labels),
    Line(Series<'p>),
}

impl Told<'_, '_> {
    /// The labels of the sample's series.
    pub(super) fn labels(&self, shared: &Shared) -> Labels {
        match (self.labels, self.means) {
            (Source::Known(labels), _) => labels.clone(),
            (Source::Line(series), Meaning::Kept(metric, part)) => {
                shared.of(metric, labels_of(&series, metric, part))
            }
            _ => Labels::default(),
        }
    }
}

/// Reads a scrape sample by sample.
pub(super) struct Reader<'p> {
    parser: Parser<'p>,
    template: Option<Arc<Template>>,
    /// The line of the template that should come next.
    place: usize,
    /// Samples so far, and how many of them the template had.
    samples: usize,
    known: usize,
    /// The lines of a scrape that follows no template.
    recorded: Option<Vec<Known>>,
    /// The newest name, and what it means: the series of one metric stand together.
    name: &'p str,
    means: Meaning,
}

impl<'p> Reader<'p> {
    /// Begins a scrape. `template` is that which the node's last scrape has followed.
    pub(super) fn new(page: &'p str, template: Option<Arc<Template>>, shared: &Shared) -> Self {
        let template = template.or_else(|| shared.templates().followed_by(page));
        Self {
            parser: exposition::parse(page),
            recorded: template.is_none().then(Vec::new),
            template,
            place: 0,
            samples: 0,
            known: 0,
            name: "",
            means: Meaning::Unknown,
        }
    }

    /// The next sample, or a line that cannot be read. It hides no other.
    pub(super) fn next(&mut self, shared: &Shared) -> Option<Result<Told<'_, 'p>, ParseError>> {
        let series = loop {
            let known = self.template.as_ref();
            let known = known.and_then(|template| template.lines.get(self.place));
            if let Some(value) = known.and_then(|known| self.parser.next_behind(&known.head)) {
                return self.recognized(value).map(Ok);
            }
            match self.parser.next()? {
                Ok(Line::Series(series)) => break series,
                Ok(Line::Type(..) | Line::End) => {}
                Err(error) => return Some(Err(error)),
            }
        };
        if series.name != self.name {
            (self.name, self.means) = (series.name, meaning(series.name));
        }
        self.samples += 1;
        let told = Told {
            means: self.means,
            line: hash(series.head()),
            value: series.value,
            head_bytes: series.head().len(),
            labels: Source::Line(series),
        };
        if let Some(template) = &self.template {
            // Another line stands here, or lines have gone or come.
            let behind = template.behind.get(&told.line);
            self.place = behind.copied().unwrap_or(self.place + 1);
        }
        // A scrape body above the limits of a node is not cached as a layout.
        let fits =
            |lines: &Vec<Known>| lines.len() < NODE_SERIES_LIMIT && told.head_bytes <= HEAD_LIMIT;
        self.recorded = self.recorded.take().filter(fits);
        if let Some(recorded) = &mut self.recorded {
            recorded.push(Known {
                head: series.head().into(),
                means: told.means,
                line: told.line,
                labels: told.labels(shared),
            });
        }
        Some(Ok(told))
    }

    fn recognized(&mut self, value: f64) -> Option<Told<'_, 'p>> {
        let known = self.template.as_ref()?.lines.get(self.place)?;
        self.place += 1;
        self.samples += 1;
        self.known += 1;
        Some(Told {
            means: known.means,
            line: known.line,
            value,
            head_bytes: known.head.len(),
            labels: Source::Known(&known.labels),
        })
    }

    /// The unread rest.
    pub(super) fn rest(&self) -> &'p str {
        self.parser.rest()
    }

    /// Ends the scrape: the template that the next one should follow. One that most lines were not of is given
    /// up.
    pub(super) fn end(self, shared: &Shared) -> Option<Arc<Template>> {
        match self.recorded {
            Some(recorded) => shared.templates().add(recorded),
            None => self.template.filter(|_| 2 * self.known >= self.samples),
        }
    }
}

fn labels_of(series: &Series<'_>, metric: &Metric, part: Option<HistogramPart>) -> Labels {
    let value = |name: &&str| series.label(name).unwrap_or_default();
    let labels = Labels::new(metric.labels.iter().map(value));
    part.map_or_else(
        || labels.clone(),
        |part| {
            let bound = series.label("le").and_then(|bound| bound.parse().ok());
            labels.with(part_label(part, bound))
        },
    )
}

/// The series of a histogram are kept under its metric with one more label value: `sum`, `count`, or for a
/// bucket its bound in the metric's unit, `0.0002` or `inf`. What counts up to it is a counter like others.
pub(super) fn part_label(part: HistogramPart, bound: Option<f64>) -> String {
    match (part, bound) {
        (HistogramPart::Bucket, Some(bound)) => bound.to_string(),
        (HistogramPart::Bucket, None) => "bucket".to_owned(),
        (HistogramPart::Sum, _) => "sum".to_owned(),
        (HistogramPart::Count, _) => "count".to_owned(),
    }
}

fn hash(head: &str) -> u64 {
    FixedState::default().hash_one(head)
}
