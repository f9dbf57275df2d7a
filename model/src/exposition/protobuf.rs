//! Readings in Prometheus' protobuf format: the messages of its client model that Railscope writes, each behind its length.
//!
//! It is the only format of Prometheus with native histograms. Scrapers read the numbers of fields, which are those of
//! `metrics.proto` of `prometheus/client_model`; names of fields are free.

use prost::{Enumeration, Message};

use super::Page;
use crate::metric::{Kind, Metric, Profile};
use crate::reading::{Histogram, NATIVE_SCHEMA, NATIVE_ZERO_SECONDS, Native, Sample};

/// All series of one name.
#[derive(Clone, PartialEq, Message)]
pub struct MetricFamily {
    /// Name of the series, of a histogram without suffix.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it is.
    #[prost(string, tag = "2")]
    pub help: String,
    /// Which field of a series holds its value.
    #[prost(enumeration = "MetricType", tag = "3")]
    pub kind: i32,
    /// The series.
    #[prost(message, repeated, tag = "4")]
    pub series: Vec<Series>,
    /// Unit of the values.
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// Which value series have. What the text formats call info is a gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum MetricType {
    /// Rises until it is reset.
    Counter = 0,
    /// Can rise and fall.
    Gauge = 1,
    /// Classic, native, or both in one.
    Histogram = 4,
}

/// One series: labels and one of the values.
#[derive(Clone, PartialEq, Message)]
pub struct Series {
    /// Names and values of its labels.
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    /// The value of a gauge.
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Number>,
    /// The value of a counter.
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Number>,
    /// The value of a histogram.
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<Buckets>,
}

/// One label.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LabelPair {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The value of a gauge or of a counter.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Number {
    /// The value.
    #[prost(double, tag = "1")]
    pub value: f64,
}

/// A histogram. Readers treat it as a native one if `zero_threshold` is above 0.
#[derive(Clone, PartialEq, Message)]
pub struct Buckets {
    /// Number of measurements.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// All measurements added up.
    #[prost(double, tag = "2")]
    pub sum: f64,
    /// Classic buckets, without the one that has no upper bound.
    #[prost(message, repeated, tag = "3")]
    pub classic: Vec<ClassicBucket>,
    /// Bounds of native buckets are powers of `2^(2^-schema)`.
    #[prost(sint32, tag = "5")]
    pub schema: i32,
    /// Up to this a measurement counts as zero.
    #[prost(double, tag = "6")]
    pub zero_threshold: f64,
    /// Measurements that count as zero.
    #[prost(uint64, tag = "7")]
    pub zero_count: u64,
    /// Where native buckets stand that are not empty.
    #[prost(message, repeated, tag = "12")]
    pub spans: Vec<Span>,
    /// Count of each of them less the count of the one before.
    #[prost(sint64, repeated, tag = "13")]
    pub deltas: Vec<i64>,
}

/// A classic bucket.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ClassicBucket {
    /// Measurements up to the bound.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// The bound.
    #[prost(double, tag = "2")]
    pub bound: f64,
}

/// Native buckets with consecutive indexes.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Span {
    /// Empty buckets since the span before; of the first span, the index of its first bucket.
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    /// Number of buckets.
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// One series as a piece of its family: pieces of a message that follow each other are one message.
#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(message, required, tag = "4")]
    series: Series,
}

/// The exposition, each family behind its length. Holds no more than one series as a message at any time.
pub(super) fn encode(page: &Page, profile: Profile) -> Vec<u8> {
    let (mut body, mut family) = (Vec::new(), Vec::new());
    for (metric, samples) in page.families(profile) {
        family.clear();
        MetricFamily::of(metric).encode_raw(&mut family);
        // Prometheus treats a family as native if its first series is.
        let mut values = samples.clone().map(|sample| sample.value.as_histogram());
        let is_native = values.all(|value| value.is_some_and(|value| value.native().is_some()));
        let names = metric.labels.iter().map(|name| LabelPair {
            name: (*name).to_owned(),
            value: String::new(),
        });
        let mut piece = Piece::default();
        piece.series.labels = names.collect();
        for sample in samples {
            piece.series.set(sample, is_native);
            piece.encode_raw(&mut family);
        }
        prost::encoding::encode_varint(family.len() as u64, &mut body);
        body.extend_from_slice(&family);
    }
    body
}

impl MetricFamily {
    /// The metric's metadata, once for all series.
    fn of(metric: &Metric) -> Self {
        let kind = match metric.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge | Kind::Info => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        Self {
            name: metric.name.to_owned(),
            help: metric.help.to_owned(),
            kind: kind.into(),
            series: Vec::new(),
            unit: metric.unit.unwrap_or_default().to_owned(),
        }
    }
}

impl Series {
    /// Becomes another series of the same metric.
    fn set(&mut self, sample: &Sample, is_native: bool) {
        for (pair, value) in self.labels.iter_mut().zip(sample.labels.values()) {
            pair.value.clear();
            pair.value.push_str(value);
        }
        let value = sample.value.as_f64();
        match sample.metric.kind {
            Kind::Counter => self.counter = Some(Number { value }),
            Kind::Gauge => self.gauge = Some(Number { value }),
            Kind::Info => self.gauge = Some(Number { value: 1.0 }),
            Kind::Histogram => {
                let histogram = sample.value.as_histogram();
                self.histogram = histogram.map(|histogram| Buckets::of(histogram, is_native));
            }
        }
    }
}

impl Buckets {
    fn of(histogram: &Histogram, is_native: bool) -> Self {
        let classic = histogram
            .cumulative()
            .filter(|(bound, _)| bound.is_finite());
        let mut buckets = Self {
            count: histogram.count(),
            sum: histogram.sum(),
            classic: classic
                .map(|(bound, count)| ClassicBucket { count, bound })
                .collect(),
            ..Self::default()
        };
        if let Some(native) = histogram.native().filter(|_| is_native) {
            buckets.set_native(native);
        }
        buckets
    }

    fn set_native(&mut self, native: &Native) {
        self.schema = NATIVE_SCHEMA.cast_signed();
        self.zero_threshold = NATIVE_ZERO_SECONDS;
        self.zero_count = native.zero;
        let (mut end, mut before) = (0, 0);
        for run in native.buckets.chunk_by(|one, next| one.0 + 1 == next.0) {
            self.spans.push(Span {
                offset: run[0].0.saturating_sub(end),
                length: run.len() as u32,
            });
            end = run[0].0.saturating_add(run.len() as i32);
        }
        for (_, count) in &native.buckets {
            self.deltas.push(count.wrapping_sub(before).cast_signed());
            before = *count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU_POWER, HOST_TIMER_DELAY};
    use crate::reading::{Labels, Latencies, NodeReading};
    use std::sync::Arc;

    /// A field of bytes: its key, its length and what it holds.
    fn field(key: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        [&[key, length], bytes].concat()
    }

    #[test]
    fn a_family_stands_behind_its_length_with_the_fields_that_prometheus_reads() {
        let mut reading = NodeReading::default();
        let labels = ["0", "1"].map(|gpu| Labels::new([gpu]));
        reading.push(&GPU_POWER, &labels[0], 71.5);
        reading.push_full(&GPU_POWER, &labels[1], 3_u32);
        let page = Page::new(Arc::new(reading));
        let series = |gpu: &[u8], watts: f64| {
            let label = [field(0x0a, b"gpu"), field(0x12, gpu)].concat();
            let value = [&[0x09], &watts.to_le_bytes()[..]].concat();
            field(0x22, &[field(0x0a, &label), field(0x12, &value)].concat())
        };
        let head = [
            field(0x0a, GPU_POWER.name.as_bytes()),
            field(0x12, GPU_POWER.help.as_bytes()),
            vec![0x18, 1],
            field(0x2a, b"watts"),
        ];
        let head = head.concat();
        for (profile, series) in [
            (Profile::Default, series(b"0", 71.5)),
            (
                Profile::Full,
                [series(b"0", 71.5), series(b"1", 3.0)].concat(),
            ),
        ] {
            let family = [&head[..], &series].concat();
            let mut expected = Vec::new();
            prost::encoding::encode_varint(family.len() as u64, &mut expected);
            expected.extend(family);
            assert_eq!(encode(&page, profile), expected);
        }
    }

    #[test]
    fn native_buckets_are_spans_and_differences() {
        let histogram = Histogram::new(&[0.5], vec![30, 0], 1.0).expect("a histogram");
        let native = Native {
            zero: 2,
            buckets: vec![(-3, 5), (-2, 4), (1, 19)],
        };
        let histogram = histogram.with_native(native).expect("a native one");
        let bucket = [&[0x08, 30, 0x11][..], &0.5_f64.to_le_bytes()].concat();
        let classic = [
            [&[0x08, 30, 0x11][..], &1_f64.to_le_bytes()].concat(),
            field(0x1a, &bucket),
        ];
        // Signed numbers are in zigzag: 0, -1, 1, -2, 2, …
        let native = [
            vec![0x28, 8],
            [&[0x31], &NATIVE_ZERO_SECONDS.to_le_bytes()[..]].concat(),
            vec![0x38, 2],
            field(0x62, &[0x08, 5, 0x10, 2]),
            field(0x62, &[0x08, 4, 0x10, 1]),
            field(0x6a, &[10, 1, 30]),
        ];
        let message = |is_native| Buckets::of(&histogram, is_native).encode_to_vec();
        assert_eq!(message(false), classic.concat());
        assert_eq!(message(true), [classic.concat(), native.concat()].concat());
    }

    #[test]
    fn a_family_is_native_if_all_of_its_series_are_even_without_a_measurement() {
        let classic = Histogram::new(&[0.5], vec![30, 0], 1.0).expect("a histogram");
        let native = Latencies::default().histogram().expect("a histogram");
        for (histograms, is_native) in [
            (vec![&native, &native], true),
            (vec![&native, &classic], false),
        ] {
            let mut reading = NodeReading::default();
            for (node, histogram) in histograms.into_iter().enumerate() {
                reading.push(&HOST_TIMER_DELAY, &Labels::new([node]), histogram.clone());
            }
            let body = encode(&Page::new(Arc::new(reading)), Profile::Full);
            let family = MetricFamily::decode_length_delimited(&*body).expect("a family");
            assert_eq!(family.series.len(), 2);
            for series in family.series {
                let buckets = series.histogram.expect("a histogram");
                assert_eq!(buckets.zero_threshold > 0.0, is_native);
            }
        }
    }
}
