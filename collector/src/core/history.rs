//! What every node said lately: a short window for each series, by node and metric.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};

use railscope_model::exposition::{self, Line, ParseError, Series};
use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;
use railscope_model::metric::{HistogramPart, Kind, Metric, Writer};
use railscope_model::reading::{Labels, NodeReading, Sample, Value};

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

    /// Values, oldest first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = f64> + '_ {
        self.points.iter().map(|(_, value)| *value)
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
}

/// What one node said lately.
#[derive(Debug, Clone, Default)]
pub struct NodeHistory {
    /// Hash of a line up to its value -> where its window is; `None` for names that no catalogue row has.
    lines: HashMap<u64, Option<(u16, u32)>, foldhash::fast::FixedState>,
    /// Where the window of each sample of the last reading is, by its position in it.
    positions: Vec<(u16, u32)>,
    /// Series by the metric's place in the catalogue.
    metrics: BTreeMap<u16, Vec<Slot>>,
    series: usize,
    heard: Option<Timestamp>,
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
    /// Lines that could not be read.
    pub errors: Vec<ParseError>,
}

impl NodeHistory {
    /// Takes up a page of an exporter, read at `at`. Lines that cannot be read are returned; they hide no other line.
    pub fn ingest(&mut self, page: &str, at: Timestamp) -> Ingested {
        let mut result = Ingested::default();
        for line in exposition::parse(page) {
            match line {
                Ok(Line::Series(series)) => self.ingest_series(&series, at, &mut result),
                Ok(Line::Type(..) | Line::End) => {}
                Err(error) => result.errors.push(error),
            }
        }
        self.finish(at);
        result
    }

    /// Takes up a reading as it is, without the way through text.
    pub fn ingest_reading(&mut self, reading: &NodeReading, at: Timestamp) {
        for (position, sample) in reading.samples().iter().enumerate() {
            if let Value::Histogram(histogram) = &sample.value {
                for (part, bound, value) in histogram.series() {
                    let labels = sample.labels.with(part_label(part, bound));
                    if let Some(index) = self.slot(sample.metric, &labels) {
                        self.push((sample.metric.index, index), at, value);
                    }
                }
            } else if let Some(place) = self.place_at(position, sample) {
                self.push(place, at, sample.value.as_f64());
            }
        }
        self.finish(at);
    }

    fn push(&mut self, (metric, index): (u16, u32), at: Timestamp, value: f64) {
        if let Some(slots) = self.metrics.get_mut(&metric) {
            slots[index as usize].window.push(at, value);
        }
    }

    /// The window of a sample: most often that of the same position in the reading before.
    fn place_at(&mut self, position: usize, sample: &Sample) -> Option<(u16, u32)> {
        let metric = sample.metric.index;
        if let Some(known) = self.positions.get(position).filter(|(at, _)| *at == metric)
            && let Some(slot) = self.metrics.get(&metric)?.get(known.1 as usize)
            && slot.labels == sample.labels
        {
            return Some(*known);
        }
        let place = (metric, self.slot(sample.metric, &sample.labels)?);
        if position >= self.positions.len() {
            self.positions.resize(position + 1, place);
        }
        self.positions[position] = place;
        Some(place)
    }

    fn ingest_series(&mut self, series: &Series<'_>, at: Timestamp, result: &mut Ingested) {
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
                let place = self.place(series);
                self.lines.insert(line, place);
                place
            }
        };
        let slot = place
            .and_then(|(metric, index)| self.metrics.get_mut(&metric)?.get_mut(index as usize));
        match slot {
            Some(slot) => {
                slot.window.push(at, series.value);
                result.kept += 1;
            }
            None => result.unknown += 1,
        }
    }

    /// Finds or makes the window of a series; `None` if no catalogue row of the exporter has its name.
    fn place(&mut self, series: &Series<'_>) -> Option<(u16, u32)> {
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
        Some((metric.index, self.slot(metric, &labels)?))
    }

    fn slot(&mut self, metric: &'static Metric, labels: &Labels) -> Option<u32> {
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
        });
        u32::try_from(slots.len() - 1).ok()
    }

    /// Ends one page: series that have been away for longer than a node may be silent are forgotten.
    fn finish(&mut self, at: Timestamp) {
        // A node that speaks for the first time is a part itself, whatever it says.
        self.identity += u64::from(self.heard.is_none());
        self.heard = self.heard.max(Some(at));
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
            self.positions.clear();
            self.identity += 1;
        }
    }

    /// Changes whenever what the node says it is made of changes.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// When the node was last heard.
    pub fn heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// Whether the node was heard lately enough to say something about now.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.heard
            .is_some_and(|heard| now.seconds_since(heard) <= STALE_AFTER_SECONDS)
    }

    /// Series of one metric that were on the node's last page: label values and window.
    pub fn series(&self, metric: &'static Metric) -> impl Iterator<Item = (&Labels, &Window)> {
        let current = |slot: &&Slot| slot.window.latest().map(|(at, _)| at) == self.heard;
        self.metrics
            .get(&metric.index)
            .into_iter()
            .flatten()
            .filter(current)
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

/// What all nodes said lately.
#[derive(Debug, Clone, Default)]
pub struct History {
    nodes: BTreeMap<NodeName, NodeHistory>,
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::exposition::{Format, Page};
    use railscope_model::metric::{HOST_TIMER_DELAY, Profile, RDMA_PORT_ERRORS, RDMA_PORT_UP};
    use railscope_model::reading::Histogram;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    #[test]
    fn known_series_are_kept_foreign_ones_counted_and_bad_lines_returned() {
        let mut node = NodeHistory::default();
        let page =
            "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\nnode_load1 3\nbroken{\n";
        let result = node.ingest(page, at(1));
        assert_eq!(
            (result.kept, result.unknown, result.errors.len()),
            (1, 1, 1)
        );
        assert_eq!(node.value(&RDMA_PORT_UP, &["mlx5_0", "1"]), Some(1.0));
    }

    #[test]
    fn a_histogram_is_kept_alike_as_text_and_as_a_reading() {
        let histogram = Histogram::new(&[50e-6, 200e-6, 1.0], vec![3, 2, 1, 4], 9.5);
        let mut reading = NodeReading::default();
        let labels = Labels::new(["1"]);
        reading.push(&HOST_TIMER_DELAY, &labels, histogram.expect("a histogram"));
        let mut by_reading = NodeHistory::default();
        by_reading.ingest_reading(&reading, at(1));
        let page = Page::new(std::sync::Arc::new(reading));
        for format in [Format::Text, Format::OpenMetrics] {
            let mut by_text = NodeHistory::default();
            let result = by_text.ingest(&page.write(format, Profile::Full), at(1));
            assert_eq!((result.kept, result.unknown), (6, 0));
            assert_eq!(result.errors, []);
            for (part, expected) in [
                ("0.00005", 3.0),
                ("0.0002", 5.0),
                ("1", 6.0),
                ("inf", 10.0),
                ("count", 10.0),
                ("sum", 9.5),
            ] {
                for node in [&by_text, &by_reading] {
                    let value = node.value(&HOST_TIMER_DELAY, &["1", part]);
                    assert_eq!(value, Some(expected), "{part}");
                }
            }
        }
    }

    #[test]
    fn rows_of_a_reading_that_come_and_go_never_take_each_others_place() {
        let mut node = NodeHistory::default();
        let rows = |devices: &[&str], second: u64| {
            let mut reading = NodeReading::default();
            for device in devices {
                let value = device.len() as u64 + second;
                reading.push(&RDMA_PORT_UP, &Labels::new([device, "1"]), value);
            }
            reading
        };
        for (second, devices) in [
            (1, &["a", "ccc"][..]),
            (2, &["a", "bb", "ccc"]),
            (3, &["bb", "ccc"]),
            (100, &["ccc", "a"]),
            (101, &["a", "bb", "ccc"]),
        ] {
            node.ingest_reading(&rows(devices, second), at(second));
            for device in ["a", "bb", "ccc"] {
                let expected = devices.contains(&device);
                let expected = expected.then_some(device.len() as f64 + second as f64);
                assert_eq!(node.value(&RDMA_PORT_UP, &[device, "1"]), expected);
            }
        }
    }

    #[test]
    fn a_series_that_left_the_page_is_not_current() {
        let mut node = NodeHistory::default();
        node.ingest("railscope_rdma_port_up{device=\"a\",port=\"1\"} 1\n", at(1));
        node.ingest("railscope_rdma_port_up{device=\"b\",port=\"1\"} 1\n", at(2));
        assert_eq!(node.value(&RDMA_PORT_UP, &["a", "1"]), None);
        assert_eq!(node.value(&RDMA_PORT_UP, &["b", "1"]), Some(1.0));
        node.ingest(
            "railscope_rdma_port_up{device=\"b\",port=\"1\"} 0\n",
            at(100),
        );
        assert_eq!(node.series, 1, "forgotten after the stale time");
        assert_eq!(
            node.value(&RDMA_PORT_UP, &["b", "1"]),
            Some(0.0),
            "places are found anew"
        );
    }

    #[test]
    fn an_increase_survives_a_reset_and_ignores_what_is_older() {
        let mut node = NodeHistory::default();
        for (second, value) in [(0, 100), (10, 110), (20, 4), (30, 6), (30, 99), (25, 99)] {
            let page = format!(
                "railscope_rdma_port_errors_total{{device=\"a\",port=\"1\",kind=\"symbol_error\"}} {value}\n"
            );
            node.ingest(&page, at(second));
        }
        let window = node
            .window(&RDMA_PORT_ERRORS, &["a", "1", "symbol_error"])
            .expect("series");
        assert_eq!(
            window.increase(60.0),
            Some(Increase {
                amount: 16.0,
                seconds: 30.0
            })
        );
        assert_eq!(
            window.increase(10.0),
            Some(Increase {
                amount: 2.0,
                seconds: 10.0
            })
        );
    }
}
