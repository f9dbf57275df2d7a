//! Reads a node's history: series with their windows, and whether anything is new since the last read.

use railscope_model::fabric::Timestamp;
use railscope_model::metric::{Kind, Metric};
use railscope_model::reading::Labels;

use super::super::column::Column;
use super::super::window::Window;
use super::{NodeHistory, STALE_AFTER_SECONDS, UNKNOWN_INTERVALS, Voice, fresh_seconds};
use crate::store::series_names::is_unread;
use crate::store::source_id::Speaker;
use crate::store::time_axis::Axis;

impl NodeHistory {
    /// Distinguishes the history from every other in the same collector.
    pub fn born(&self) -> u64 {
        self.born
    }

    /// Is another number whenever the newest values of a metric's series, or which of them there are, may be others.
    pub fn values_since(&self, metric: &'static Metric) -> u64 {
        self.column(metric)
            .map_or(0, |column| column.changes().values)
    }

    /// As [`Self::values_since`], but only of which series there are, and whether they report a
    /// number.
    pub fn presence_since(&self, metric: &'static Metric) -> u64 {
        self.column(metric)
            .map_or(0, |column| column.changes().presence)
    }

    /// Is another number whenever [`Rows`] may stand otherwise.
    pub fn rows_since(&self, metric: &'static Metric) -> u64 {
        self.column(metric)
            .map_or(0, |column| column.changes().rows)
    }

    /// Changes whenever what the node reports it is made of changes.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The newest sample of each source; a source keeps its place.
    pub fn last_samples(&self) -> impl Iterator<Item = LastSample> {
        self.voices.iter().map(|voice| LastSample {
            at: voice.axis.heard(),
            interval: voice.axis.usual_step(),
        })
    }

    /// Places in [`Self::last_samples`] of the sources of a metric, one for each of its series.
    pub fn sources_of(&self, metric: &'static Metric) -> impl Iterator<Item = usize> {
        self.told(metric).map(|(.., voice)| usize::from(voice))
    }

    /// Whether a source, by its place in [`Self::last_samples`], reported series of any of these metrics when it was last scraped.
    pub(crate) fn is_source_of(&self, place: usize, metrics: &[&'static Metric]) -> bool {
        let mut sources = metrics.iter().flat_map(|metric| self.sources_of(metric));
        sources.any(|source| source == place)
    }

    /// When the node was last seen.
    pub fn heard(&self) -> Option<Timestamp> {
        self.voices.iter().map(|voice| voice.axis.heard()).max()
    }

    /// Whether the newest scrape is recent enough to describe the present: 60 s, or 90 s of a source that is scraped once a minute.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.voices
            .iter()
            .any(|Voice { axis, .. }| now.seconds_since(axis.heard()) <= fresh_seconds(axis))
    }

    /// Whether the data of one source is newer than [`UNKNOWN_INTERVALS`] of its interval, which is measured after three
    /// scrapes.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.voices.iter().any(|voice| is_current(voice, now))
    }

    /// Places in [`Self::last_samples`] of the targets whose data is older than that.
    pub(crate) fn silent_sources(&self, now: Timestamp) -> impl Iterator<Item = usize> {
        let voices = self.voices.iter().enumerate();
        let silent = voices.filter(move |(_, voice)| voice.is_target && !is_current(voice, now));
        silent.map(|(place, _)| place)
    }

    /// Mean time between two scrapes, seconds, and their times, the newest first: of the source that is scraped most
    /// often. None before the third.
    pub fn scrapes(&self) -> Option<(f64, impl Iterator<Item = Timestamp>)> {
        let axes = self.voices.iter().map(|voice| &voice.axis);
        let axes = axes.filter_map(|axis| Some((axis.usual_step()?, axis)));
        let (interval, axis) = axes.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some((interval, axis.scrapes()))
    }

    /// Series of one metric that were on their source's last scrape: label values and window. An
    /// info series is taken from one source: two would name a thing twice, each with its own labels.
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

    /// Series of a metric whose first label is the NUMA node, without that of the whole node where there are others: a node
    /// may run exporters of both kinds.
    pub fn by_numa_node(
        &self,
        metric: &'static Metric,
    ) -> impl Iterator<Item = (&Labels, Window<'_>)> {
        let has_numa_node = |labels: &Labels| labels.values().next() != Some("");
        let is_split = self.series(metric).any(|(labels, _)| has_numa_node(labels));
        self.series(metric)
            .filter(move |(labels, _)| !is_split || has_numa_node(labels))
    }

    /// Those of [`Self::series`] that were not constant for the whole window. Not for metrics of kind info.
    pub fn moving(&self, metric: &'static Metric) -> impl Iterator<Item = (&Labels, Window<'_>)> {
        let column = self.column(metric);
        let column = column.filter(|column| column.moves(self.slots));
        self.current(column)
            .filter(|(_, window, _)| window.moves())
            .map(|(labels, window, _)| (labels, window))
    }

    /// The rows of a metric, for callers that select rows themselves.
    pub fn rows(&self, metric: &'static Metric) -> Option<Rows<'_>> {
        debug_assert!(!is_unread(metric), "{} is not kept", metric.name);
        let column = self.column(metric)?;
        Some(Rows { node: self, column })
    }

    #[inline]
    fn column(&self, metric: &Metric) -> Option<&Column> {
        self.columns.find(metric)
    }

    /// Series that were on their source's last scrape, with its place among the voices.
    fn told(&self, metric: &Metric) -> impl Iterator<Item = (&Labels, Window<'_>, u16)> {
        self.current(self.column(metric))
    }

    fn current<'a>(
        &'a self,
        column: Option<&'a Column>,
    ) -> impl Iterator<Item = (&'a Labels, Window<'a>, u16)> {
        let columns = column.into_iter();
        columns.flat_map(move |column| column.current(|voice| self.axis(voice), self.slots))
    }

    #[inline]
    fn axis(&self, voice: u16) -> Option<&Axis> {
        self.voices.get(usize::from(voice)).map(|one| &one.axis)
    }

    fn speaker(&self, voice: u16) -> Option<&Speaker> {
        self.voices.get(usize::from(voice)).map(|one| &one.speaker)
    }

    /// Place of the series of a metric with these label values, whether or not it was on the last scrape.
    pub(crate) fn place(&self, metric: &'static Metric, labels: &[&str]) -> Option<Place> {
        let column = self.columns.place(metric)?;
        let row = self.columns.at(column)?.place(labels)?;
        Some(Place { column, row })
    }

    /// As [`Self::window`], of a series whose place is known.
    #[inline]
    pub(crate) fn window_at(&self, metric: &'static Metric, place: Place) -> Option<Window<'_>> {
        let known = self.columns.at(place.column);
        let known = known.filter(|column| column.metric == metric);
        let column = known.or_else(|| self.column(metric))?;
        column.window(place.row, |voice| self.axis(voice), self.slots)
    }

    /// The window of one series that was on the node's last scrape. Not for metrics of kind info, which only one source reports.
    #[inline]
    pub fn window(&self, metric: &'static Metric, labels: &[&str]) -> Option<Window<'_>> {
        debug_assert!(!is_unread(metric), "{} is not kept", metric.name);
        debug_assert!(metric.kind != Kind::Info, "{} has no value", metric.name);
        let column = self.column(metric)?;
        column.window(column.place(labels)?, |voice| self.axis(voice), self.slots)
    }

    /// The newest value of one series that was on the node's last scrape.
    pub fn value(&self, metric: &'static Metric, labels: &[&str]) -> Option<f64> {
        self.window(metric, labels)?.value()
    }
}

fn is_current(Voice { axis, .. }: &Voice, now: Timestamp) -> bool {
    let usual = axis.usual_step();
    let patience = usual.map_or(STALE_AFTER_SECONDS, |usual| UNKNOWN_INTERVALS * usual);
    now.seconds_since(axis.heard()) <= patience
}

/// When a source was last sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastSample {
    /// The time of its newest scrape.
    pub at: Timestamp,
    /// Mean time between its scrapes, seconds. None before the third.
    pub interval: Option<f64>,
}

/// Place of a series in a node's history: valid as long as [`NodeHistory::rows_since`] of its metric is the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Place of its metric then; other metrics may have come before it since.
    column: usize,
    row: usize,
}

/// Series of one metric by number. They stand where they stand as long as [`NodeHistory::rows_since`] is the same.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    node: &'a NodeHistory,
    column: &'a Column,
}

impl<'a> Rows<'a> {
    /// Label values of all of them, in order.
    pub fn labels(self) -> impl Iterator<Item = &'a Labels> {
        self.column.labels()
    }

    /// Whether any of them was not constant for the whole window.
    pub fn any_moves(&self) -> bool {
        self.column.moves(self.node.slots)
    }

    /// The window of one, if it was on its source's last scrape.
    #[inline]
    pub fn window(self, row: u32) -> Option<Window<'a>> {
        let node = self.node;
        self.column
            .window(row as usize, |voice| node.axis(voice), node.slots)
    }
}
