//! Rebuilds the scrapes of one target from its series in a slice of time. Pure.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;

use super::client::{Labels, RawSeries};
use crate::sources::push::fragments::{HIDDEN, is_name, write_escaped, write_value};

/// The longest time that a scrape may have taken: a larger value is not one.
const MOST_SECONDS: f64 = 300.0;

/// One scrape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scrape {
    /// The time of its samples: when it began.
    at: Timestamp,
    /// When its response was complete.
    pub(super) done: Timestamp,
    /// Whether there was a response.
    pub(super) is_up: bool,
}

/// A series as the exporter wrote it, and its samples.
#[derive(Debug)]
struct Series {
    /// Name, labels, and a space.
    line: String,
    samples: Vec<(Timestamp, f64)>,
    next: usize,
}

/// Samples with a timestamp of the exporter that no scrape of the slice had: the next scrape has them.
pub(super) type Carry = BTreeMap<String, (Timestamp, f64)>;

/// The scrapes of one target in a slice of time.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// In order of time.
    pub(super) scrapes: Vec<Scrape>,
    series: Vec<Series>,
    /// Number of samples.
    pub(super) samples: usize,
    /// Label sets of `up` that were omitted: the same scrapes, as another server stored them.
    pub(super) replicas: usize,
}

fn value_of<'a>(labels: &'a Labels, wanted: &str) -> Option<&'a str> {
    let found = labels.iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| &**value)
}

fn name_of(series: &RawSeries) -> &str {
    value_of(&series.metric, "__name__").unwrap_or_default()
}

fn timestamp(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1e3).round().max(0.0) as u64)
}

/// First and last time of a series.
fn extent(series: &RawSeries) -> (f64, f64) {
    let at = |sample: Option<&(f64, _)>| sample.map_or(0.0, |(at, _)| *at);
    (at(series.values.first()), at(series.values.last()))
}

impl Slice {
    /// The scrapes of these series with times after `after`. `names_parts`: whether the series name nodes and switches, so that
    /// labels of the target belong to them.
    pub(super) fn of(
        all: Vec<RawSeries>,
        after: Timestamp,
        names_parts: bool,
        carry: Carry,
    ) -> Self {
        let ups = all.iter().filter(|series| name_of(series) == "up");
        let (ups, omitted) = one_replica(ups.collect());
        let mut slice = Self {
            scrapes: scrapes(&ups, &all, after),
            replicas: omitted.len(),
            ..Self::default()
        };
        let known: Vec<_> = ups.iter().map(|up| up.metric.clone()).collect();
        let omitted: Vec<_> = omitted.iter().map(|up| up.metric.clone()).collect();
        let labels = TargetLabels::of(&known, &omitted, names_parts);
        let mut carry = carry;
        for series in all {
            let name = name_of(&series);
            // `up`, what Prometheus adds to each scrape, and series of rules.
            let is_scraped = name != "up"
                && !name.starts_with("scrape_")
                && is_name(name)
                && !name.contains(':')
                && !matches!(name, "ALERTS" | "ALERTS_FOR_STATE");
            if !is_scraped || labels.is_of_replica(&series.metric) {
                continue;
            }
            let line = labels.line(name, &series.metric);
            let carried = carry.remove(&line);
            let samples = series.values.iter();
            let samples = samples.map(|(at, value)| (timestamp(*at), value.0));
            let samples = samples.filter(|(at, value)| *at > after && !value.is_nan());
            let samples: Vec<_> = carried.into_iter().chain(samples).collect();
            slice.samples += samples.len();
            slice.series.push(Series {
                line,
                samples,
                next: 0,
            });
        }
        slice
            .series
            .extend(carry.into_iter().map(|(line, sample)| Series {
                line,
                samples: vec![sample],
                next: 0,
            }));
        // The order of servers differs.
        slice.series.sort_by(|one, other| one.line.cmp(&other.line));
        slice
    }

    /// Appends a later part of the same slice.
    pub(super) fn append(&mut self, later: Self) {
        if self.scrapes.is_empty() && self.series.is_empty() {
            *self = later;
            return;
        }
        self.scrapes.extend(later.scrapes);
        self.samples += later.samples;
        self.replicas = self.replicas.max(later.replicas);
        let mut new = Vec::new();
        for series in later.series {
            let found = self
                .series
                .binary_search_by(|one| one.line.cmp(&series.line));
            match found {
                Ok(index) => self.series[index].samples.extend(series.samples),
                Err(_) => new.push(series),
            }
        }
        self.series.extend(new);
        self.series.sort_by(|one, other| one.line.cmp(&other.line));
    }

    /// The exposition of a scrape. Each is built once, in order of time.
    pub(super) fn exposition(&mut self, index: usize) -> String {
        let mut text = String::new();
        let Some(scrape) = self.scrapes.get(index).copied() else {
            return text;
        };
        for series in &mut self.series {
            let rest = series.samples.get(series.next..).unwrap_or_default();
            let due = rest.iter().take_while(|(at, _)| *at <= scrape.at).count();
            series.next += due;
            if let Some((_, value)) = due.checked_sub(1).and_then(|last| rest.get(last)) {
                text.push_str(&series.line);
                write_value(&mut text, *value);
            }
        }
        text
    }

    /// What is left for the next slice.
    pub(super) fn carry(self) -> Carry {
        let left = self.series.into_iter().filter_map(|series| {
            let last = series.samples.get(series.next..)?.last().copied()?;
            Some((series.line, last))
        });
        left.collect()
    }
}

/// The label sets of `up` that are used, and those of other servers that scraped the same target at the same time.
fn one_replica(mut ups: Vec<&RawSeries>) -> (Vec<&RawSeries>, Vec<&RawSeries>) {
    ups.retain(|up| !up.values.is_empty());
    ups.sort_by(|one, other| {
        let order = other.values.len().cmp(&one.values.len());
        order.then_with(|| one.metric.cmp(&other.metric))
    });
    let (mut used, mut omitted) = (Vec::<&RawSeries>::new(), Vec::new());
    for up in ups {
        let (first, last) = extent(up);
        let overlaps = |other: &&RawSeries| {
            let (from, until) = extent(other);
            first <= until && from <= last
        };
        // Labels of a target that change begin where the old ones end.
        if used.iter().any(overlaps) {
            omitted.push(up);
        } else {
            used.push(up);
        }
    }
    (used, omitted)
}

/// The scrapes by the samples of `up`.
fn scrapes(ups: &[&RawSeries], all: &[RawSeries], after: Timestamp) -> Vec<Scrape> {
    let durations = all
        .iter()
        .filter(|series| name_of(series) == "scrape_duration_seconds");
    let took: BTreeMap<_, _> = durations
        .flat_map(|series| &series.values)
        .map(|(at, took)| (timestamp(*at), took.0))
        .filter(|(_, took)| (0.0..=MOST_SECONDS).contains(took))
        .collect();
    let values = ups.iter().flat_map(|up| &up.values);
    let values = values.map(|(at, value)| (timestamp(*at), value.0));
    let values = values.filter(|(at, value)| *at > after && !value.is_nan());
    let by_time: BTreeMap<_, _> = values.collect();
    let mut latest = Timestamp(0);
    let scrapes = by_time.into_iter().map(|(at, value)| {
        let took = took.get(&at).copied().unwrap_or(0.0);
        latest = at.plus_seconds(took).max(latest);
        Scrape {
            at,
            done: latest,
            is_up: value != 0.0,
        }
    });
    scrapes.collect()
}

/// The labels that Prometheus adds to the series of a target.
struct TargetLabels<'a> {
    names: BTreeSet<&'a str>,
    pairs: BTreeSet<(&'a str, &'a str)>,
    /// By omitted replica: the labels in which it differs.
    replicas: Vec<Vec<(&'a str, &'a str)>>,
}

impl<'a> TargetLabels<'a> {
    fn of(used: &'a [Labels], omitted: &'a [Labels], names_parts: bool) -> Self {
        let all = used.iter().flatten();
        let all = all.map(|(name, value)| (&**name, &**value));
        let all = all.filter(|(name, _)| *name != "__name__");
        let pairs: BTreeSet<_> = all.collect();
        let names = pairs.iter().map(|(name, _)| *name).collect();
        let differs = |labels: &'a Labels| {
            let labels = labels.iter().map(|(name, value)| (&**name, &**value));
            let labels = labels.filter(|label| label.0 != "__name__" && !pairs.contains(label));
            labels.collect::<Vec<_>>()
        };
        let replicas = omitted.iter().map(differs);
        let replicas = replicas.filter(|labels| !labels.is_empty()).collect();
        let is_added = |label: &(&str, &str)| !names_parts || matches!(label.0, "job" | "instance");
        Self {
            names,
            replicas,
            pairs: pairs
                .iter()
                .filter(|label| is_added(label))
                .copied()
                .collect(),
        }
    }

    fn is_of_replica(&self, labels: &Labels) -> bool {
        let has = |(name, value): &(&str, &str)| value_of(labels, name) == Some(*value);
        self.replicas.iter().any(|replica| replica.iter().all(has))
    }

    /// Name and labels as the exporter wrote them: without labels of the target; those that these replaced get their names back.
    fn line(&self, name: &str, labels: &Labels) -> String {
        let mut line = format!("{name}{{");
        let mut first = true;
        for (label, value) in labels {
            let original = label.strip_prefix(HIDDEN);
            let original = original.filter(|original| self.names.contains(original));
            let shown = original.unwrap_or(label);
            let is_replaced = || {
                let of_it =
                    |(other, _): &(String, String)| other.strip_prefix(HIDDEN) == Some(&**label);
                self.names.contains(&**label) && labels.iter().any(of_it)
            };
            let is_added = original.is_none() && self.pairs.contains(&(&**label, &**value));
            // Names with other characters, which Prometheus 3 allows, are in no mapping.
            if label == "__name__" || is_added || is_replaced() || !is_name(shown) {
                continue;
            }
            if !first {
                line.push(',');
            }
            first = false;
            line.push_str(shown);
            line.push_str("=\"");
            write_escaped(&mut line, value);
            line.push('"');
        }
        line.push_str("} ");
        line
    }
}
