//! What every node and every switch said lately: a short window for each series, by speaker and metric.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};

use railscope_model::exposition::{self, Line, ParseError, Series};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, RdmaDevice, SwitchName};
use railscope_model::metric::{HistogramPart, Kind, Metric, Writer};
use railscope_model::reading::{Labels, NodeReading, Sample, Value};

use super::speaker::Speaker;

mod points;

/// Points kept for a series: at 5 s scrapes, two and a half minutes. Long queries are Prometheus' work.
pub const WINDOW_POINTS: usize = 30;
/// Series kept for one node. The full page of an 8-GPU, 8-NIC node has about 2,500; a page of more is
/// some other exporter's or broken, and must not eat the collector's memory.
pub const NODE_SERIES_LIMIT: usize = 20_000;
/// A node that was not heard for so long says nothing about now.
pub const STALE_AFTER_SECONDS: f64 = 60.0;

/// The last points of one series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    points: VecDeque<(Timestamp, f64)>,
}

impl Window {
    fn push(&mut self, at: Timestamp, value: f64) {
        // A scrape that comes twice or late never rewrites what was judged already.
        if self.points.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        if self.points.len() == WINDOW_POINTS {
            self.points.pop_front();
        }
        self.points.push_back((at, value));
    }

    /// The newest point.
    pub fn latest(&self) -> Option<(Timestamp, f64)> {
        self.points.back().copied()
    }

    /// The newest value.
    pub fn value(&self) -> Option<f64> {
        self.latest().map(|(_, value)| value)
    }

    /// How much a counter rose within the last `seconds` before its newest point, and over how many
    /// seconds that was seen. A fall is a reset: what was counted after it counts, as in Prometheus.
    /// `None` with fewer than two points.
    pub fn increase(&self, seconds: f64) -> Option<Increase> {
        let (end, _) = self.latest()?;
        let inside = |(at, _): &&(Timestamp, f64)| end.seconds_since(*at) <= seconds;
        let first = self.points.iter().find(inside)?;
        let mut before = first.1;
        let mut amount = 0.0;
        for (_, value) in self.points.iter().filter(inside) {
            amount += if *value >= before {
                value - before
            } else {
                *value
            };
            before = *value;
        }
        let seconds = end.seconds_since(first.0);
        (seconds > 0.0).then_some(Increase { amount, seconds })
    }
}

/// How much a counter rose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Increase {
    /// The rise, in the counter's unit.
    pub amount: f64,
    /// The time over which it was seen.
    pub seconds: f64,
}

impl Increase {
    /// Rise per second.
    pub fn rate(self) -> f64 {
        self.amount / self.seconds
    }
}

/// One series of a node.
#[derive(Debug, Clone)]
struct Slot {
    labels: Labels,
    window: Window,
    /// Place in [`NodeHistory::voices`] of the one that tells it.
    speaker: u16,
}

/// One exporter that speaks for a node.
#[derive(Debug, Clone)]
struct Voice {
    speaker: Speaker,
    heard: Timestamp,
    /// Where the window of each sample of its last reading is, by its position in it.
    positions: Vec<(u16, u32)>,
}

/// What one node said lately; a switch is kept in the same way.
#[derive(Debug, Clone, Default)]
pub struct NodeHistory {
    /// Hash of a line up to its value -> where its window is; `None` for names that no catalogue row has.
    lines: HashMap<u64, Option<(u16, u32)>, foldhash::fast::FixedState>,
    /// Those that speak for the node, in the order in which they were first heard.
    voices: Vec<Voice>,
    /// Series by the metric's place in the catalogue.
    metrics: BTreeMap<u16, Vec<Slot>>,
    series: usize,
    /// Counted up when the node is first heard, a series of kind info appears or any series is forgotten:
    /// its parts may have changed.
    identity: u64,
}

/// What became of the samples of one page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Samples taken up.
    pub kept: usize,
    /// Samples of series that Railscope does not know.
    pub unknown: usize,
    /// Samples beyond [`NODE_SERIES_LIMIT`].
    pub over_limit: usize,
    /// Samples of series that a speaker who is believed before this one tells too.
    pub overruled: usize,
    /// Samples of another exporter whose type, labels or value do not fit the metric that they are mapped to.
    pub unfit: usize,
    /// Lines that could not be read.
    pub errors: Vec<ParseError>,
}

impl NodeHistory {
    /// Takes up a page of an exporter, read at `at`. Lines that cannot be read are returned; they hide no other line.
    pub fn ingest(&mut self, page: &str, at: Timestamp) -> Ingested {
        let voice = self.voice(&Speaker::default(), at);
        let mut result = Ingested::default();
        for line in exposition::parse(page) {
            match line {
                Ok(Line::Series(series)) => self.ingest_series(voice, &series, at, &mut result),
                Ok(Line::Type(..) | Line::End) => {}
                Err(error) => result.errors.push(error),
            }
        }
        self.finish(voice, at);
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
        let voice = self.voice(speaker, at);
        let mut result = Ingested::default();
        for (position, sample) in reading.samples().iter().enumerate() {
            if let Value::Histogram(histogram) = &sample.value {
                for (part, bound, value) in histogram.series() {
                    let labels = sample.labels.with(part_label(part, bound));
                    let index = self.slot(voice, sample.metric, &labels);
                    let place = index.map(|index| (sample.metric.index, index));
                    self.push(voice, place, at, value, &mut result);
                }
            } else {
                let place = self.place_at(voice, position, sample);
                self.push(voice, place, at, sample.value.as_f64(), &mut result);
            }
        }
        self.finish(voice, at);
        result
    }

    /// The place of a speaker among the voices.
    fn voice(&mut self, speaker: &Speaker, at: Timestamp) -> u16 {
        let known = self
            .voices
            .iter()
            .position(|known| known.speaker == *speaker);
        let place = known.unwrap_or_else(|| {
            // A node that speaks for the first time is a part itself, whatever it says.
            self.identity += u64::from(self.voices.is_empty());
            self.voices.push(Voice {
                speaker: speaker.clone(),
                heard: at,
                positions: Vec::new(),
            });
            self.voices.len() - 1
        });
        u16::try_from(place).unwrap_or(u16::MAX)
    }

    fn push(
        &mut self,
        voice: u16,
        place: Option<(u16, u32)>,
        at: Timestamp,
        value: f64,
        result: &mut Ingested,
    ) {
        let slot = place
            .and_then(|(metric, index)| self.metrics.get_mut(&metric)?.get_mut(index as usize));
        let Some(slot) = slot else {
            result.over_limit += 1;
            return;
        };
        if slot.speaker != voice {
            let speaker = |place: u16| self.voices.get(usize::from(place)).map(|one| &one.speaker);
            if speaker(voice) > speaker(slot.speaker) {
                result.overruled += 1;
                return;
            }
            // Another's count of the same thing began elsewhere.
            slot.speaker = voice;
            slot.window = Window::default();
        }
        slot.window.push(at, value);
        result.kept += 1;
    }

    /// The window of a sample: most often that of the same position in the reading before.
    fn place_at(&mut self, voice: u16, position: usize, sample: &Sample) -> Option<(u16, u32)> {
        let metric = sample.metric.index;
        let positions = &self.voices.get(usize::from(voice))?.positions;
        if let Some(known) = positions.get(position).filter(|(at, _)| *at == metric)
            && let Some(slot) = self.metrics.get(&metric)?.get(known.1 as usize)
            && slot.labels == sample.labels
        {
            return Some(*known);
        }
        let place = (metric, self.slot(voice, sample.metric, &sample.labels)?);
        let positions = &mut self.voices.get_mut(usize::from(voice))?.positions;
        if position >= positions.len() {
            positions.resize(position + 1, place);
        }
        positions[position] = place;
        Some(place)
    }

    fn ingest_series(
        &mut self,
        voice: u16,
        series: &Series<'_>,
        at: Timestamp,
        result: &mut Ingested,
    ) {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(series.name.as_bytes());
        hasher.write(series.raw_labels().as_bytes());
        let line = hasher.finish();
        let place = match self.lines.get(&line) {
            Some(place) => *place,
            None => {
                if self.lines.len() >= NODE_SERIES_LIMIT {
                    result.over_limit += 1;
                    return;
                }
                let place = self.place(voice, series);
                self.lines.insert(line, place);
                place
            }
        };
        match place {
            Some(_) => self.push(voice, place, at, series.value, result),
            None => result.unknown += 1,
        }
    }

    /// Finds or makes the window of a series; `None` if no catalogue row of the exporter has its name.
    fn place(&mut self, voice: u16, series: &Series<'_>) -> Option<(u16, u32)> {
        let (metric, part) = match Metric::by_name(series.name) {
            Some(metric) => (metric, None),
            None => Metric::of_part(series.name).map(|(metric, part)| (metric, Some(part)))?,
        };
        if metric.writer != Writer::Exporter {
            return None;
        }
        let value = |name: &&str| series.label(name).unwrap_or_default();
        let mut labels = Labels::new(metric.labels.iter().map(value));
        if let Some(part) = part {
            let bound = series.label("le").and_then(|bound| bound.parse().ok());
            labels = labels.with(part_label(part, bound));
        }
        Some((metric.index, self.slot(voice, metric, &labels)?))
    }

    fn slot(&mut self, voice: u16, metric: &'static Metric, labels: &Labels) -> Option<u32> {
        let slots = self.metrics.entry(metric.index).or_default();
        if let Some(index) = slots.iter().position(|slot| slot.labels == *labels) {
            return u32::try_from(index).ok();
        }
        if self.series >= NODE_SERIES_LIMIT {
            return None;
        }
        self.series += 1;
        self.identity += u64::from(metric.kind == Kind::Info);
        slots.push(Slot {
            labels: labels.clone(),
            window: Window::default(),
            speaker: voice,
        });
        u32::try_from(slots.len() - 1).ok()
    }

    /// Ends one page: series that have been away for longer than a node may be silent are forgotten.
    fn finish(&mut self, voice: u16, at: Timestamp) {
        if let Some(voice) = self.voices.get_mut(usize::from(voice)) {
            voice.heard = voice.heard.max(at);
        }
        let gone = |slot: &Slot| {
            slot.window
                .latest()
                .is_none_or(|(seen, _)| at.seconds_since(seen) > STALE_AFTER_SECONDS)
        };
        if self.metrics.values().flatten().any(gone) {
            self.metrics
                .values_mut()
                .for_each(|slots| slots.retain(|slot| !gone(slot)));
            self.series = self.metrics.values().map(Vec::len).sum();
            self.lines.clear(); // the places in it have moved
            self.voices
                .iter_mut()
                .for_each(|voice| voice.positions.clear());
            self.identity += 1;
        }
    }

    /// Changes whenever what the node says it is made of changes.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// When the node was last heard.
    pub fn heard(&self) -> Option<Timestamp> {
        self.voices.iter().map(|voice| voice.heard).max()
    }

    /// Whether the node was heard lately enough to say something about now.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.heard()
            .is_some_and(|heard| now.seconds_since(heard) <= STALE_AFTER_SECONDS)
    }

    /// Series of one metric that were on their speaker's last page: label values and window. What a thing
    /// is, one speaker says alone: two would name it twice, each with the labels that it knows.
    pub fn series(&self, metric: &'static Metric) -> impl Iterator<Item = (&Labels, &Window)> {
        let slots = self
            .metrics
            .get(&metric.index)
            .map_or(&[][..], Vec::as_slice);
        let voice = |slot: &Slot| self.voices.get(usize::from(slot.speaker));
        let current = move |slot: &&Slot| {
            slot.window.latest().map(|(at, _)| at) == voice(slot).map(|voice| voice.heard)
        };
        let first = (metric.kind == Kind::Info && self.voices.len() > 1)
            .then(|| {
                slots
                    .iter()
                    .filter(current)
                    .filter_map(voice)
                    .map(|voice| &voice.speaker)
                    .min()
            })
            .flatten();
        let told_by_first = move |slot: &&Slot| {
            first.is_none_or(|first| voice(slot).is_some_and(|voice| voice.speaker == *first))
        };
        slots
            .iter()
            .filter(current)
            .filter(told_by_first)
            .map(|slot| (&slot.labels, &slot.window))
    }

    /// The window of one series that was on the node's last page.
    pub fn window<'a>(&'a self, metric: &'static Metric, labels: &[&str]) -> Option<&'a Window> {
        self.series(metric)
            .find(|(found, _)| found.values().eq(labels.iter().copied()))
            .map(|(_, window)| window)
    }

    /// The newest value of one series that was on the node's last page.
    pub fn value(&self, metric: &'static Metric, labels: &[&str]) -> Option<f64> {
        self.window(metric, labels)?.value()
    }
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

/// What all nodes and switches said lately.
#[derive(Debug, Clone, Default)]
pub struct History {
    nodes: BTreeMap<NodeName, NodeHistory>,
    switches: BTreeMap<SwitchName, NodeHistory>,
    /// Adapters of hosts without an exporter, as a sweep of the subnet reads them.
    adapters: BTreeMap<(NodeName, RdmaDevice), NodeHistory>,
}

impl History {
    /// The history of one node, begun if there is none.
    pub fn node_mut(&mut self, node: &NodeName) -> &mut NodeHistory {
        self.nodes.entry(node.clone()).or_default()
    }

    /// Forgets nodes that are no longer targets.
    pub fn retain(&mut self, keep: impl Fn(&NodeName) -> bool) {
        self.nodes.retain(|node, _| keep(node));
    }

    /// The history of one node.
    pub fn node(&self, node: &NodeName) -> Option<&NodeHistory> {
        self.nodes.get(node)
    }

    /// All nodes by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.nodes.iter()
    }

    /// Nodes that were heard lately enough to say something about now.
    pub fn fresh_nodes(&self, now: Timestamp) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.nodes
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
    }

    /// The history of one switch, begun if there is none.
    pub fn switch_mut(&mut self, switch: &SwitchName) -> &mut NodeHistory {
        self.switches.entry(switch.clone()).or_default()
    }

    /// The history of one switch.
    pub fn switch(&self, switch: &SwitchName) -> Option<&NodeHistory> {
        self.switches.get(switch)
    }

    /// Switches that were heard lately enough to say something about now.
    pub fn fresh_switches(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&SwitchName, &NodeHistory)> {
        self.switches
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
    }

    /// The history of an adapter whose host has no exporter, begun if there is none.
    pub fn adapter_mut(&mut self, node: &NodeName, device: &RdmaDevice) -> &mut NodeHistory {
        self.adapters
            .entry((node.clone(), device.clone()))
            .or_default()
    }

    /// Adapters whose hosts have no exporter and that were heard lately: node and history.
    pub fn fresh_adapters(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&NodeName, &NodeHistory)> {
        self.adapters
            .iter()
            .filter(move |(_, history)| history.is_fresh(now))
            .map(|((node, _), history)| (node, history))
    }

    /// Forgets switches and adapters that were silent for too long: unlike nodes, no list says which there are.
    pub fn forget_silent(&mut self, now: Timestamp) {
        self.switches.retain(|_, history| history.is_fresh(now));
        self.adapters.retain(|_, history| history.is_fresh(now));
    }
}

#[cfg(test)]
mod tests;
