//! What one node or switch said lately: pages and readings taken up, each series from one speaker.

use std::hash::{BuildHasher, Hasher};

use railscope_model::exposition::{self, Line, ParseError, Series};
use railscope_model::fabric::Timestamp;
use railscope_model::metric::{HistogramPart, Kind, Metric};
use railscope_model::reading::{Labels, NodeReading, Value};

use super::axis::{Axis, FEWEST_SLOTS};
use super::column::{Column, Turn};
use super::names::{Meaning, Shared, is_unread, meaning};
use super::window::Window;
use crate::core::speaker::Speaker;

/// Series kept for one node. The full page of an 8-GPU, 8-NIC node has 4,000 to 5,000; a page of more is
/// some other exporter's or broken, and must not eat the collector's memory.
pub const NODE_SERIES_LIMIT: usize = 20_000;
/// A node that was not heard for so long says nothing about now.
pub const STALE_AFTER_SECONDS: f64 = 60.0;

/// One exporter that speaks for a node.
#[derive(Debug, Clone)]
struct Voice {
    speaker: Speaker,
    axis: Axis,
}

/// What one node said lately; a switch is kept in the same way.
#[derive(Debug, Clone, Default)]
pub struct NodeHistory {
    /// Those that speak for the node, in the order in which they were first heard.
    voices: Vec<Voice>,
    /// Series by the metric's place in the catalogue.
    columns: Vec<Column>,
    /// The column of the newest sample: samples of one metric stand together.
    at_column: usize,
    /// Pages that a window holds.
    slots: u32,
    pub(super) series: usize,
    /// Counted up when the node is first heard, a series of kind info appears or any series is forgotten:
    /// its parts may have changed.
    identity: u64,
    shared: Shared,
}

/// What became of the samples of one page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Samples taken up.
    pub kept: usize,
    /// Samples of series that nothing in the collector reads.
    pub unread: usize,
    /// Samples of series that Railscope does not know.
    pub unknown: usize,
    /// Samples beyond [`NODE_SERIES_LIMIT`].
    pub over_limit: usize,
    /// Samples of series that a speaker who is believed before this one tells too.
    pub overruled: usize,
    /// Samples of pages older than one that was taken up before, or that a page tells twice. What was judged
    /// already is never rewritten.
    pub late: usize,
    /// Samples of another exporter whose type, labels or value do not fit the metric that they are mapped to.
    pub unfit: usize,
    /// Lines that could not be read.
    pub errors: Vec<ParseError>,
}

/// The page that is being taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    voice: u16,
    order: Order,
}

/// How a page stands to that which the speaker told before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Newer,
    /// Of the very same time.
    Same,
    Late,
}

impl NodeHistory {
    pub(super) fn sharing(shared: &Shared) -> Self {
        Self {
            shared: shared.clone(),
            ..Self::default()
        }
    }

    /// Takes up a page of an exporter, read at `at`. Lines that cannot be read are returned; they hide no other line.
    pub fn ingest(&mut self, page: &str, at: Timestamp) -> Ingested {
        let arrival = self.arrive(&Speaker::default(), at);
        let mut result = Ingested::default();
        let mut name = "";
        let mut means = Meaning::Unknown;
        for line in exposition::parse(page) {
            match line {
                Ok(Line::Series(series)) => {
                    // The series of one metric stand together.
                    if series.name != name {
                        (name, means) = (series.name, meaning(series.name));
                    }
                    match means {
                        Meaning::Kept(metric, part) => {
                            self.ingest_series(arrival, &series, (metric, part), &mut result);
                        }
                        Meaning::Unread => result.unread += 1,
                        Meaning::Unknown => result.unknown += 1,
                    }
                }
                Ok(Line::Type(..) | Line::End) => {}
                Err(error) => result.errors.push(error),
            }
        }
        self.finish(at);
        result
    }

    /// Takes up a reading as it is, without the way through text.
    pub fn ingest_reading(&mut self, reading: &NodeReading, at: Timestamp) {
        self.ingest_from(&Speaker::default(), reading, at);
    }

    /// Takes up what one of several speakers says of the node. Of each series one speaker is believed:
    /// another takes its place if it has precedence, or once that one has not told the series for as long
    /// as a node may be silent.
    pub fn ingest_from(
        &mut self,
        speaker: &Speaker,
        reading: &NodeReading,
        at: Timestamp,
    ) -> Ingested {
        let arrival = self.arrive(speaker, at);
        let mut result = Ingested::default();
        for sample in reading.samples() {
            let metric = sample.metric;
            if let Value::Histogram(histogram) = &sample.value {
                for (part, bound, value) in histogram.series() {
                    let labels = sample.labels.with(part_label(part, bound));
                    let row = self.row(arrival, metric, &labels);
                    self.push(arrival, row, value, &mut result);
                }
            } else if !self.stands_at(metric) && is_unread(metric) {
                result.unread += 1;
            } else {
                let row = self.row(arrival, metric, &sample.labels);
                self.push(arrival, row, sample.value.as_f64(), &mut result);
            }
        }
        self.finish(at);
        result
    }

    /// Begins a page: finds the speaker's place among the voices, and a slot for the page.
    fn arrive(&mut self, speaker: &Speaker, at: Timestamp) -> Arrival {
        let known = self.voices.iter().position(|one| one.speaker == *speaker);
        let mut order = Order::Newer;
        if let Some(known) = known {
            let axis = &self.voices[known].axis;
            order = match at.cmp(&axis.heard()) {
                std::cmp::Ordering::Greater => Order::Newer,
                std::cmp::Ordering::Equal => Order::Same,
                std::cmp::Ordering::Less => Order::Late,
            };
            if order == Order::Newer {
                let slots = axis.slots_for(at);
                self.widen(slots);
                self.voices[known].axis.advance(at);
            }
        } else {
            // A node that speaks for the first time is a part itself, whatever it says.
            self.identity += u64::from(self.voices.is_empty());
            self.slots = self.slots.max(FEWEST_SLOTS);
            self.voices.push(Voice {
                speaker: speaker.clone(),
                axis: Axis::beginning(at, self.slots),
            });
        }
        let place = known.unwrap_or(self.voices.len() - 1);
        Arrival {
            voice: u16::try_from(place).unwrap_or(u16::MAX),
            order,
        }
    }

    /// Makes room for more pages in all windows.
    fn widen(&mut self, slots: u32) {
        if slots <= self.slots {
            return;
        }
        let voices = &self.voices;
        let axis = |voice: u16| voices.get(usize::from(voice)).map(|voice| &voice.axis);
        for column in &mut self.columns {
            column.resize(axis, (self.slots, slots));
        }
        for voice in &mut self.voices {
            voice.axis.resize(slots);
        }
        self.slots = slots;
    }

    /// Whether the newest sample's column is this metric's.
    fn stands_at(&self, metric: &Metric) -> bool {
        let column = self.columns.get(self.at_column);
        column.is_some_and(|column| column.metric.index == metric.index)
    }

    /// Goes to the column of a metric, begun if there is none.
    fn go_to(&mut self, metric: &'static Metric) {
        if !self.stands_at(metric) {
            let place = self
                .columns
                .binary_search_by_key(&metric.index, |column| column.metric.index);
            self.at_column = place.unwrap_or_else(|place| {
                self.columns.insert(place, Column::new(metric));
                place
            });
        }
    }

    fn push(&mut self, arrival: Arrival, row: Option<usize>, value: f64, result: &mut Ingested) {
        if arrival.order == Order::Late {
            result.late += 1;
            return;
        }
        let turn = turn(&self.voices, self.slots, arrival);
        let column = self.columns.get_mut(self.at_column);
        let (Some(row), Some(turn), Some(column)) = (row, turn, column) else {
            result.over_limit += 1;
            return;
        };
        if let Some(other) = column.speaker(row).filter(|other| *other != arrival.voice) {
            let speaker = |place: u16| self.voices.get(usize::from(place)).map(|one| &one.speaker);
            if speaker(arrival.voice) > speaker(other) {
                result.overruled += 1;
                return;
            }
            column.hand_over(row, turn);
        }
        if column.push(row, turn, value) {
            result.kept += 1;
        } else {
            result.late += 1;
        }
    }

    fn ingest_series(
        &mut self,
        arrival: Arrival,
        series: &Series<'_>,
        (metric, part): (&'static Metric, Option<HistogramPart>),
        result: &mut Ingested,
    ) {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        if part.is_some() {
            hasher.write(series.name.as_bytes());
        }
        hasher.write(series.raw_labels().as_bytes());
        let line = hasher.finish();
        self.go_to(metric);
        let column = &mut self.columns[self.at_column];
        let row = column.by_line(line).or_else(|| {
            let value = |name: &&str| series.label(name).unwrap_or_default();
            let mut labels = Labels::new(metric.labels.iter().map(value));
            if let Some(part) = part {
                let bound = series.label("le").and_then(|bound| bound.parse().ok());
                labels = labels.with(part_label(part, bound));
            }
            let labels = self.shared.of(metric, labels);
            let row = self.row(arrival, metric, &labels)?;
            self.columns[self.at_column].set_line(row, line);
            Some(row)
        });
        self.push(arrival, row, series.value, result);
    }

    /// The row of a series in its column, made if there is none and room for it.
    fn row(&mut self, arrival: Arrival, metric: &'static Metric, labels: &Labels) -> Option<usize> {
        self.go_to(metric);
        let column = self.columns.get_mut(self.at_column)?;
        if let Some(row) = column.by_labels(labels) {
            return Some(row);
        }
        if self.series >= NODE_SERIES_LIMIT || arrival.order == Order::Late {
            return None;
        }
        self.series += 1;
        self.identity += u64::from(metric.kind == Kind::Info);
        let turn = turn(&self.voices, self.slots, arrival)?;
        Some(column.add(labels.clone(), turn))
    }

    /// Ends one page: series that have been away for longer than a node may be silent are forgotten.
    fn finish(&mut self, at: Timestamp) {
        let voices = &self.voices;
        let gone = |speaker: u16, told: u32| {
            let axis = voices.get(usize::from(speaker)).map(|voice| &voice.axis);
            axis.is_none_or(|axis| {
                told < axis.oldest() || at.seconds_since(axis.time(told)) > STALE_AFTER_SECONDS
            })
        };
        let mut any = false;
        for column in &mut self.columns {
            any |= column.forget(gone);
        }
        if any {
            self.columns.retain(|column| column.len() > 0);
            self.at_column = 0;
            self.series = self.columns.iter().map(Column::len).sum();
            self.identity += 1;
        }
    }

    /// Changes whenever what the node says it is made of changes.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// When the node was last heard.
    pub fn heard(&self) -> Option<Timestamp> {
        self.voices.iter().map(|voice| voice.axis.heard()).max()
    }

    /// Whether the node was heard lately enough to say something about now.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.heard()
            .is_some_and(|heard| now.seconds_since(heard) <= STALE_AFTER_SECONDS)
    }

    /// Series of one metric that were on their speaker's last page: label values and window. What a thing
    /// is, one speaker says alone: two would name it twice, each with the labels that it knows.
    pub fn series(&self, metric: &'static Metric) -> impl Iterator<Item = (&Labels, Window<'_>)> {
        debug_assert!(!is_unread(metric), "{} is not kept", metric.name);
        let first = (metric.kind == Kind::Info && self.voices.len() > 1)
            .then(|| {
                let told = self.told(metric);
                told.filter_map(|(.., voice)| self.speaker(voice)).min()
            })
            .flatten();
        self.told(metric)
            .filter(move |(.., voice)| {
                first.is_none_or(|first| self.speaker(*voice) == Some(first))
            })
            .map(|(labels, window, _)| (labels, window))
    }

    /// Series that were on their speaker's last page, with its place among the voices.
    fn told(&self, metric: &Metric) -> impl Iterator<Item = (&Labels, Window<'_>, u16)> {
        let column = self
            .columns
            .binary_search_by_key(&metric.index, |column| column.metric.index);
        let column = column.ok().and_then(|place| self.columns.get(place));
        let axis = |voice: u16| self.voices.get(usize::from(voice)).map(|one| &one.axis);
        column
            .into_iter()
            .flat_map(move |column| column.current(axis, self.slots))
    }

    fn speaker(&self, voice: u16) -> Option<&Speaker> {
        self.voices.get(usize::from(voice)).map(|one| &one.speaker)
    }

    /// The window of one series that was on the node's last page.
    pub fn window(&self, metric: &'static Metric, labels: &[&str]) -> Option<Window<'_>> {
        self.series(metric)
            .find(|(found, _)| found.values().eq(labels.iter().copied()))
            .map(|(_, window)| window)
    }

    /// The newest value of one series that was on the node's last page.
    pub fn value(&self, metric: &'static Metric, labels: &[&str]) -> Option<f64> {
        self.window(metric, labels)?.value()
    }
}

/// The page that is being taken up, as columns see it.
fn turn(voices: &[Voice], slots: u32, arrival: Arrival) -> Option<Turn<'_>> {
    Some(Turn {
        speaker: arrival.voice,
        axis: &voices.get(usize::from(arrival.voice))?.axis,
        slots,
        again: arrival.order == Order::Same,
    })
}

/// The series of a histogram are kept under its metric with one more label value: `sum`, `count`, or for a
/// bucket its bound in the metric's unit, `0.0002` or `inf`. What counts up to it is a counter like others.
fn part_label(part: HistogramPart, bound: Option<f64>) -> String {
    match (part, bound) {
        (HistogramPart::Bucket, Some(bound)) => bound.to_string(),
        (HistogramPart::Bucket, None) => "bucket".to_owned(),
        (HistogramPart::Sum, _) => "sum".to_owned(),
        (HistogramPart::Count, _) => "count".to_owned(),
    }
}
