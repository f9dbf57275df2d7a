//! Converts an exposition in the Prometheus text format to OTLP metrics.

mod attributes;
mod buckets;
mod split;

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use foldhash::fast::{FixedState, RandomState};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    Summary, SummaryDataPoint,
};
use railscope_model::exposition::{Line, Series, Type, parse};
use railscope_model::metric::{self, CATALOGUE};

use crate::names::{Instrument, Mapping, otlp_name};
pub(crate) use split::requests;

/// A counter that no exposition has shown for so long is forgotten: then a reset is not detected.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// An exposition as OTLP metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Converted {
    /// Each metric once, with all of its points.
    pub metrics: Vec<Metric>,
    /// Points in all metrics.
    pub points: u64,
    /// Lines that could not be converted: not in the format, or with a value that is not finite.
    pub unreadable: u64,
}

/// Converts one exposition after another; remembers counters between them to detect resets.
#[derive(Debug)]
pub struct Converter {
    start: u64,
    counters: HashMap<u64, Counted, RandomState>,
}

/// The last sight of a counter or histogram.
#[derive(Debug)]
struct Counted {
    value: f64,
    start: u64,
    at: u64,
}

/// Which points a series makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    Counter,
    UpDownCounter,
    Gauge,
    Histogram,
    Summary,
}

/// The metric that series of one name go to.
#[derive(Debug, Clone, Copy)]
struct Slot {
    metric: usize,
    shape: Shape,
    mapping: Option<&'static Mapping>,
}

/// Which of a histogram's or summary's series a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Value,
    Bucket,
    Sum,
    Count,
}

/// The metrics of one exposition, while they are built.
#[derive(Debug, Default)]
struct Build {
    metrics: Vec<Metric>,
    by_name: HashMap<(String, Shape), usize, RandomState>,
    /// The points of histograms and summaries, by metric and the hash of their labels.
    points: HashMap<(usize, u64), usize, RandomState>,
    buckets: HashMap<(usize, usize), Vec<(f64, f64)>, RandomState>,
    unreadable: u64,
}

impl Converter {
    /// `start` is the start of the process, from which its counters count.
    pub fn new(start: SystemTime) -> Self {
        Self {
            start: nanos(start),
            counters: HashMap::default(),
        }
    }

    /// Converts the exposition that was written at `at`. Points have this time unless their line has its own.
    ///
    /// A counter that falls was reset after the previous exposition: its new start is the time of that exposition.
    pub fn convert(&mut self, exposition: &str, at: SystemTime) -> Converted {
        let now = nanos(at);
        let mut build = Build::default();
        let (mut family, mut kind) = ("", Type::Unknown);
        let mut last: Option<(&str, Slot, Part)> = None;
        for line in parse(exposition) {
            match line {
                Ok(Line::Type(name, of)) => (family, kind, last) = (name, of, None),
                Ok(Line::Series(series)) => {
                    let known = last.filter(|(name, ..)| *name == series.name);
                    let Some((_, slot, part)) = known.or_else(|| {
                        let (base, shape, part) = shape(&series, family, kind)?;
                        Some((series.name, build.slot(base, shape), part))
                    }) else {
                        continue;
                    };
                    last = Some((series.name, slot, part));
                    self.point(&mut build, &series, slot, part, now);
                }
                Ok(Line::End) => {}
                Err(_) => build.unreadable += 1,
            }
        }
        let converted = self.finish(build);
        let oldest = now.saturating_sub(u64::try_from(REMEMBERED.as_nanos()).unwrap_or(u64::MAX));
        self.counters.retain(|_, counted| counted.at >= oldest);
        converted
    }

    fn point(&mut self, build: &mut Build, series: &Series<'_>, slot: Slot, part: Part, now: u64) {
        if !series.value.is_finite() {
            build.unreadable += 1;
            return;
        }
        // The text format has milliseconds.
        let at = series.timestamp.map_or(now, |millis| (millis * 1e6) as u64);
        match slot.shape {
            Shape::Histogram | Shape::Summary => build.part(series, slot, part, at),
            shape => {
                let start_time_unix_nano = match shape {
                    Shape::Counter => self.start_of(hash(series.head()), series.value, at),
                    Shape::UpDownCounter => self.start.min(at),
                    _ => 0,
                };
                let point = NumberDataPoint {
                    attributes: attributes::of(series, slot.mapping, None),
                    start_time_unix_nano,
                    time_unix_nano: at,
                    value: Some(Value::AsDouble(series.value)),
                    ..NumberDataPoint::default()
                };
                match &mut build.metrics[slot.metric].data {
                    Some(
                        Data::Gauge(Gauge { data_points }) | Data::Sum(Sum { data_points, .. }),
                    ) => {
                        data_points.push(point);
                    }
                    _ => build.unreadable += 1,
                }
            }
        }
    }

    /// The instant from which a cumulative value counts.
    fn start_of(&mut self, key: u64, value: f64, at: u64) -> u64 {
        let first = self.start.min(at);
        let counted = self.counters.entry(key).or_insert(Counted {
            value,
            start: first,
            at,
        });
        if value < counted.value {
            counted.start = counted.at;
        }
        counted.value = value;
        counted.at = at;
        counted.start
    }

    /// Completes histograms, sets the starts of cumulative points and counts all points.
    fn finish(&mut self, mut build: Build) -> Converted {
        for (&(metric, labels), &at) in &build.points {
            let name = hash(&build.metrics[metric].name);
            let key = name ^ labels.rotate_left(17);
            match &mut build.metrics[metric].data {
                Some(Data::Histogram(histogram)) => {
                    let point = &mut histogram.data_points[at];
                    let cumulative = build.buckets.remove(&(metric, at)).unwrap_or_default();
                    buckets::fill(point, cumulative);
                    point.start_time_unix_nano =
                        self.start_of(key, point.count as f64, point.time_unix_nano);
                }
                Some(Data::Summary(summary)) => {
                    let point = &mut summary.data_points[at];
                    point.start_time_unix_nano =
                        self.start_of(key, point.count as f64, point.time_unix_nano);
                }
                _ => {}
            }
        }
        build.metrics.retain(|metric| split::points(metric) > 0);
        Converted {
            points: build
                .metrics
                .iter()
                .map(|metric| split::points(metric) as u64)
                .sum(),
            metrics: build.metrics,
            unreadable: build.unreadable,
        }
    }
}

impl Build {
    /// The metric of a name, created at its first series.
    fn slot(&mut self, series: &str, shape: Shape) -> Slot {
        let name = otlp_name(series);
        let shape = match name.mapping.map(|mapping| mapping.instrument) {
            Some(Instrument::Counter) => Shape::Counter,
            Some(Instrument::UpDownCounter) => Shape::UpDownCounter,
            Some(Instrument::Gauge) => Shape::Gauge,
            None => shape,
        };
        let metrics = &mut self.metrics;
        let metric = *self
            .by_name
            .entry((name.name.into_owned(), shape))
            .or_insert_with_key(|(name_text, _)| {
                metrics.push(Metric {
                    name: name_text.clone(),
                    // Several metrics of the catalogue can share one mapped name.
                    description: name.mapping.map_or_else(|| help(series), |_| String::new()),
                    unit: name.unit.to_owned(),
                    metadata: Vec::new(),
                    data: Some(empty(shape)),
                });
                metrics.len() - 1
            });
        Slot {
            metric,
            shape,
            mapping: name.mapping,
        }
    }

    /// Adds one series of a histogram or summary to its point.
    fn part(&mut self, series: &Series<'_>, slot: Slot, part: Part, at: u64) {
        let own = match slot.shape {
            Shape::Histogram => "le",
            _ => "quantile",
        };
        let key = labels_hash(series, own);
        let place = self.points.get(&(slot.metric, key)).copied();
        let bound = || series.label(own).and_then(|text| text.parse::<f64>().ok());
        match &mut self.metrics[slot.metric].data {
            Some(Data::Histogram(histogram)) => {
                let place = place.unwrap_or_else(|| {
                    histogram.data_points.push(HistogramDataPoint {
                        attributes: attributes::of(series, slot.mapping, Some(own)),
                        time_unix_nano: at,
                        ..HistogramDataPoint::default()
                    });
                    histogram.data_points.len() - 1
                });
                self.points.insert((slot.metric, key), place);
                let point = &mut histogram.data_points[place];
                match (part, bound()) {
                    (Part::Sum, _) => point.sum = Some(series.value),
                    (Part::Count, _) => point.count = series.value as u64,
                    (Part::Bucket, Some(bound)) => {
                        self.buckets
                            .entry((slot.metric, place))
                            .or_default()
                            .push((bound, series.value));
                    }
                    _ => self.unreadable += 1,
                }
            }
            Some(Data::Summary(summary)) => {
                let place = place.unwrap_or_else(|| {
                    summary.data_points.push(SummaryDataPoint {
                        attributes: attributes::of(series, slot.mapping, Some(own)),
                        time_unix_nano: at,
                        ..SummaryDataPoint::default()
                    });
                    summary.data_points.len() - 1
                });
                self.points.insert((slot.metric, key), place);
                let point = &mut summary.data_points[place];
                match (part, bound()) {
                    (Part::Sum, _) => point.sum = series.value,
                    (Part::Count, _) => point.count = series.value as u64,
                    (Part::Value, Some(quantile)) => point.quantile_values.push(ValueAtQuantile {
                        quantile,
                        value: series.value,
                    }),
                    _ => self.unreadable += 1,
                }
            }
            _ => self.unreadable += 1,
        }
    }
}

/// The name that series are grouped under, the shape of their points and which part a series is; none for a series that
/// OTLP does not need (`_created`).
fn shape<'a>(series: &Series<'a>, family: &str, kind: Type) -> Option<(&'a str, Shape, Part)> {
    let name = series.name;
    let suffix = name.strip_prefix(family).filter(|_| !family.is_empty());
    let base = |suffix: &str| name.strip_suffix(suffix).unwrap_or(name);
    match (kind, suffix) {
        (Type::Counter | Type::Histogram | Type::Summary, Some("_created")) => None,
        (Type::Counter, Some("" | "_total")) => Some((name, Shape::Counter, Part::Value)),
        (Type::Histogram, Some("_bucket")) => {
            Some((base("_bucket"), Shape::Histogram, Part::Bucket))
        }
        (Type::Histogram, Some("_sum")) => Some((base("_sum"), Shape::Histogram, Part::Sum)),
        (Type::Histogram, Some("_count")) => Some((base("_count"), Shape::Histogram, Part::Count)),
        (Type::Summary, Some("")) => Some((name, Shape::Summary, Part::Value)),
        (Type::Summary, Some("_sum")) => Some((base("_sum"), Shape::Summary, Part::Sum)),
        (Type::Summary, Some("_count")) => Some((base("_count"), Shape::Summary, Part::Count)),
        _ => Some((name, Shape::Gauge, Part::Value)),
    }
}

fn empty(shape: Shape) -> Data {
    let aggregation_temporality = AggregationTemporality::Cumulative as i32;
    match shape {
        Shape::Gauge => Data::Gauge(Gauge::default()),
        Shape::Counter | Shape::UpDownCounter => Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality,
            is_monotonic: shape == Shape::Counter,
        }),
        Shape::Histogram => Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality,
        }),
        Shape::Summary => Data::Summary(Summary::default()),
    }
}

/// The catalogue's text about a metric.
fn help(series: &str) -> String {
    static HELP: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let rows = CATALOGUE.iter().copied();
        rows.map(|row: &metric::Metric| (row.name, row.help))
            .collect()
    });
    HELP.get(series).copied().unwrap_or_default().to_owned()
}

fn hash(text: &str) -> u64 {
    FixedState::default().hash_one(text)
}

/// The hash of all labels but one.
fn labels_hash(series: &Series<'_>, without: &str) -> u64 {
    let labels = series.labels().filter(|(name, _)| *name != without);
    labels.fold(0, |all, label| all ^ FixedState::default().hash_one(label))
}

/// Nanoseconds since 1970, as OTLP counts time.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
