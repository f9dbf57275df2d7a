//! What one node or switch reported lately: scrapes and readings ingested, each series from one
//! source.

mod read;

use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::metric::{Kind, Metric, PROBE_HOP};
use railscope_model::reading::{Labels, NodeReading, Value};

use super::column::{Column, Turn};
use super::columns::Columns;
use super::ingested::Ingested;
use crate::fabric::subnet::counters::DeviceReading;
use crate::store::page_cache::{HEAD_LIMIT, Reader, Template, Told, part_label};
use crate::store::series_names::{Meaning, Shared, is_unread};
use crate::store::source_id::Speaker;
use crate::store::time_axis::{Axis, FEWEST_SLOTS, Reach};
use crate::store::window::LATE_STEPS;
pub(crate) use read::Place;
pub use read::{LastSample, Rows};

/// Series kept for one node. The full-profile scrape of an 8-GPU, 8-NIC node has 4,000 to 5,000; a
/// scrape of more is some other exporter's or broken, and must not eat the collector's memory.
pub const NODE_SERIES_LIMIT: usize = 20_000;
/// Age of the newest scrape above which a node is not evaluated; 1.5 times as much if its scrapes are a minute apart.
pub const STALE_AFTER_SECONDS: f64 = 60.0;

/// Age of the newest data, in intervals of its source, above which a state is unknown.
pub const UNKNOWN_INTERVALS: f64 = 3.0;

/// One exporter that is a source of a node.
#[derive(Debug, Clone)]
struct Voice {
    speaker: Speaker,
    axis: Axis,
    /// Whether it is still a target, as far as is known.
    is_target: bool,
}

/// Recent samples of one node; a switch is stored in the same way.
#[derive(Debug, Clone, Default)]
pub struct NodeHistory {
    /// The node's sources, in the order in which they were first seen.
    voices: Vec<Voice>,
    columns: Columns,
    /// The column of the newest sample: samples of one metric stand together.
    at_column: usize,
    /// Scrapes that a window holds.
    slots: u32,
    reach: Reach,
    pub(super) series: usize,
    /// Counted up when the node is first seen, a series of kind info appears or any series is forgotten:
    /// its parts may have changed.
    identity: u64,
    /// Scrapes and readings that came so far.
    arrivals: u64,
    /// Number among all histories that there ever were.
    born: u64,
    pub(super) shared: Shared,
    /// What its last scrape has followed.
    pub(super) template: Option<Arc<Template>>,
}

/// The scrape that is being ingested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    voice: u16,
    /// Among all of the node.
    number: u64,
    /// The voice's newest scrape before.
    before: u32,
    order: Order,
    /// Whether it is known to report no series twice.
    distinct: bool,
}

/// How a scrape stands to that which the source reported before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Newer,
    /// Of the very same time.
    Same,
    Late,
}

impl NodeHistory {
    pub(super) fn sharing(shared: &Shared, reach: Reach, born: u64) -> Self {
        Self {
            born,
            reach,
            shared: shared.clone(),
            ..Self::default()
        }
    }

    /// Ingests a scrape of an exporter, read at `at`. Lines that cannot be read are returned; they hide no other
    /// line.
    pub fn ingest(&mut self, page: &str, at: Timestamp) -> Ingested {
        // A scrape body without samples does not update the time of the last data.
        let mut arrival = None;
        let mut result = Ingested::default();
        let shared = self.shared.clone();
        let mut reader = Reader::new(page, self.template.take(), &shared);
        while let Some(read) = reader.next(&shared) {
            match read {
                Ok(Told {
                    means: Meaning::Unknown,
                    ..
                }) => result.unknown += 1,
                Ok(Told { head_bytes, .. }) if head_bytes > HEAD_LIMIT => result.over_limit += 1,
                Ok(told) => {
                    let arrival =
                        *arrival.get_or_insert_with(|| self.arrive(&Speaker::default(), at));
                    match told.means {
                        Meaning::Kept(metric, _) => {
                            self.ingest_told(arrival, &told, metric, &mut result);
                        }
                        _ => result.unread += 1,
                    }
                }
                Err(error) => result.refuse_line(error),
            }
            if result.is_hopeless() {
                result.leave(reader.rest());
                break;
            }
        }
        self.template = reader.end(&shared);
        if let Some(arrival) = arrival {
            self.finish(arrival, at);
        }
        result
    }

    /// Total comparisons and index lookups.
    #[cfg(test)]
    pub(super) fn work(&self) -> usize {
        self.columns.iter().map(Column::work).sum()
    }

    /// Ingests a reading as it is, without the text format.
    pub fn ingest_reading(&mut self, reading: &NodeReading, at: Timestamp) {
        self.ingest_from(&Speaker::default(), reading, at);
    }

    /// Ingests what one of several sources reports about the node. Each series is taken from one source:
    /// another replaces it if it has precedence, or once that one has not reported the series for the
    /// time after which a node is stale.
    pub fn ingest_from(
        &mut self,
        speaker: &Speaker,
        reading: &NodeReading,
        at: Timestamp,
    ) -> Ingested {
        let arrival = self.arrive(speaker, at);
        let mut result = Ingested::default();
        for sample in reading.samples() {
            if let Value::Histogram(histogram) = &sample.value {
                for (part, bound, value) in histogram.series() {
                    let labels = sample.labels.with(part_label(part, bound));
                    let row = self.row(arrival, sample.metric, &labels);
                    self.push(arrival, row, value, &mut result);
                }
            } else {
                let value = sample.value.as_f64();
                self.ingest_sample(arrival, (sample.metric, &sample.labels), value, &mut result);
            }
        }
        self.finish(arrival, at);
        result
    }

    /// Ingests what a sweep has read of a switch at `at`.
    pub fn ingest_switch(&mut self, reading: &DeviceReading, at: Timestamp) {
        let arrival = Arrival {
            distinct: true,
            ..self.arrive(&Speaker::default(), at)
        };
        let mut result = Ingested::default();
        reading.for_switch(|metric, labels, value| {
            self.ingest_sample(arrival, (metric, labels), value, &mut result);
        });
        self.finish(arrival, at);
    }

    fn ingest_sample(
        &mut self,
        arrival: Arrival,
        (metric, labels): (&'static Metric, &Labels),
        value: f64,
        result: &mut Ingested,
    ) {
        if !self.stands_at(metric) && is_unread(metric) {
            result.unread += 1;
        } else {
            let row = self.row(arrival, metric, labels);
            self.push(arrival, row, value, result);
        }
    }

    /// Begins a scrape: finds the source's place among the voices, and a slot for the scrape.
    fn arrive(&mut self, speaker: &Speaker, at: Timestamp) -> Arrival {
        self.arrivals += 1;
        let known = self.voices.iter().position(|one| one.speaker == *speaker);
        let (mut order, mut before) = (Order::Newer, 0);
        if let Some(known) = known {
            self.voices[known].is_target = true;
            let axis = &self.voices[known].axis;
            before = axis.newest();
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
            // The node reports for the first time; its parts may have changed.
            self.identity += u64::from(self.voices.is_empty());
            self.slots = self.slots.max(FEWEST_SLOTS);
            self.voices.push(Voice {
                speaker: speaker.clone(),
                axis: Axis::beginning(at, self.slots, self.reach),
                is_target: true,
            });
        }
        let place = known.unwrap_or(self.voices.len() - 1);
        Arrival {
            voice: u16::try_from(place).unwrap_or(u16::MAX),
            number: self.arrivals,
            before,
            order,
            distinct: false,
        }
    }

    /// Notes which sources are no longer targets: nothing more is expected of them.
    pub(crate) fn release(&mut self, is_gone: impl Fn(&Speaker) -> bool) {
        for voice in &mut self.voices {
            voice.is_target &= !is_gone(&voice.speaker);
        }
    }

    /// Makes room for more scrapes in all windows.
    fn widen(&mut self, slots: u32) {
        if slots <= self.slots {
            return;
        }
        let voices = &self.voices;
        let axis = |voice: u16| voices.get(usize::from(voice)).map(|voice| &voice.axis);
        for column in self.columns.iter_mut() {
            column.resize(axis, (self.slots, slots));
        }
        for voice in &mut self.voices {
            voice.axis.resize(slots);
        }
        self.slots = slots;
    }

    /// Whether the newest sample's column is this metric's.
    #[inline]
    fn stands_at(&self, metric: &Metric) -> bool {
        let column = self.columns.at(self.at_column);
        column.is_some_and(|column| column.metric.index == metric.index)
    }

    /// Goes to the column of a metric, created if missing.
    fn go_to(&mut self, metric: &'static Metric) {
        if !self.stands_at(metric) {
            self.at_column = self.columns.place_or_insert(metric);
        }
    }

    #[inline]
    fn push(&mut self, arrival: Arrival, row: Option<usize>, value: f64, result: &mut Ingested) {
        if arrival.order == Order::Late {
            result.late += 1;
            return;
        }
        let turn = turn(&self.voices, self.slots, arrival);
        let column = self.columns.at_mut(self.at_column);
        let (Some(row), Some(turn), Some(column)) = (row, turn, column) else {
            result.over_limit += 1;
            return;
        };
        if !column.metric.can_be(value) {
            result.unfit += 1;
            let why = || format!("{} is {value}", column.metric.name);
            result.first_unfit.get_or_insert_with(why);
            return;
        }
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

    fn ingest_told(
        &mut self,
        arrival: Arrival,
        told: &Told<'_, '_>,
        metric: &'static Metric,
        result: &mut Ingested,
    ) {
        self.go_to(metric);
        let column = self.columns.at_mut(self.at_column);
        let mut row = column.and_then(|column| column.by_line(told.line));
        // Above the limit, reject before further work.
        if row.is_none() && !is_full(self.series, arrival) {
            let labels = told.labels(&self.shared);
            row = self.row(arrival, metric, &labels);
            if let (Some(row), Some(column)) = (row, self.columns.at_mut(self.at_column)) {
                column.set_line(row, told.line);
            }
        }
        self.push(arrival, row, told.value, result);
    }

    /// The row of a series in its column, created if missing and there is room for it.
    fn row(&mut self, arrival: Arrival, metric: &'static Metric, labels: &Labels) -> Option<usize> {
        self.go_to(metric);
        let turn = turn(&self.voices, self.slots, arrival)?;
        let column = self.columns.at_mut(self.at_column)?;
        // Once all known rows are reported, a source that reports none twice reports a new one: no need to search
        // for it.
        let is_another = arrival.distinct && column.is_told_whole(turn);
        let known = (!is_another).then(|| column.by_labels(labels)).flatten();
        if known.is_some() {
            return known;
        }
        if is_full(self.series, arrival) || bytes(labels) > HEAD_LIMIT {
            return None;
        }
        self.series += 1;
        // Which routers probes pass is no part of the node.
        let is_part = metric.kind == Kind::Info && metric != &PROBE_HOP;
        self.identity += u64::from(is_part);
        Some(column.add(labels.clone(), turn))
    }

    /// Ends one scrape: series that have been absent for longer than it takes a node to become stale are
    /// dropped.
    fn finish(&mut self, arrival: Arrival, at: Timestamp) {
        let voices = &self.voices;
        let axis = |speaker: u16| voices.get(usize::from(speaker)).map(|voice| &voice.axis);
        let gone = |speaker: u16, told: u32| {
            axis(speaker).is_none_or(|axis| {
                told < axis.oldest() || at.seconds_since(axis.time(told)) > fresh_seconds(axis)
            })
        };
        let newest = axis(arrival.voice).map_or(0, Axis::newest);
        let mut any = false;
        for column in self.columns.iter_mut() {
            any |= column.finish((arrival.voice, newest), arrival.number, gone);
            column.settle(self.shared.keys());
        }
        if any {
            self.columns.drop_empty();
            self.at_column = 0;
            self.series = self.columns.iter().map(Column::len).sum();
            self.identity += 1;
        }
    }
}

/// Age up to which what a source reported is fresh.
fn fresh_seconds(axis: &Axis) -> f64 {
    let usual = axis.usual_step().unwrap_or(0.0);
    STALE_AFTER_SECONDS.max(LATE_STEPS * usual.min(STALE_AFTER_SECONDS))
}

/// Whether new series are rejected.
fn is_full(series: usize, arrival: Arrival) -> bool {
    series >= NODE_SERIES_LIMIT || arrival.order == Order::Late
}

fn bytes(labels: &Labels) -> usize {
    labels.values().map(str::len).sum()
}

/// The scrape that is being ingested, as columns see it.
fn turn(voices: &[Voice], slots: u32, arrival: Arrival) -> Option<Turn<'_>> {
    Some(Turn {
        speaker: arrival.voice,
        axis: &voices.get(usize::from(arrival.voice))?.axis,
        slots,
        again: arrival.order == Order::Same,
        number: arrival.number,
        before: arrival.before,
    })
}
