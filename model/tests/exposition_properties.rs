//! Properties of every exposition: it reads back as written, and no text makes the parser panic or lose a line.
#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use prost::Message as _;
use railscope_model::exposition::protobuf::{self, Buckets, MetricFamily};
use railscope_model::exposition::{Format, Line, MediaType, Page, parse};
use railscope_model::metric::{CATALOGUE, HistogramPart, Kind, Metric, Profile};
use railscope_model::reading::{
    Histogram, Labels, Latencies, NATIVE_SCHEMA, NATIVE_ZERO_SECONDS, Native, NodeReading, Value,
};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::Int),
        any::<f64>().prop_map(Value::Float)
    ]
}

/// A histogram that is native, too.
fn native_histogram() -> impl Strategy<Value = Histogram> {
    prop::collection::vec(any::<u64>(), 0..20).prop_map(|bits| {
        let mut latencies = Latencies::default();
        // All powers of two are as probable.
        bits.iter()
            .for_each(|bits| latencies.note(bits >> (bits % 64)));
        latencies.histogram().expect("few")
    })
}

/// Bounds that rise, with counts that fit 64 bits together.
fn classic_histogram() -> impl Strategy<Value = Histogram> {
    let buckets = prop::collection::vec((any::<f64>(), any::<u32>()), 0..20);
    (buckets, any::<u64>(), -1e300..1e300_f64).prop_map(|(buckets, beyond, sum)| {
        let mut bounds: Vec<f64> = buckets.iter().map(|(bound, _)| *bound).collect();
        bounds.retain(|bound| bound.is_finite());
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let counts = buckets.iter().map(|(_, count)| u64::from(*count));
        let counts = counts.take(bounds.len()).chain([beyond >> 1]);
        Histogram::new(&bounds, counts.collect(), sum).expect("rising bounds")
    })
}

fn reading() -> impl Strategy<Value = NodeReading> {
    let places = 0..CATALOGUE.len();
    // Few metrics are histograms; with uniform choice, they would hardly be tested.
    let is_histogram = |place: &usize| CATALOGUE[*place].kind == Kind::Histogram;
    let histograms: Vec<_> = places.clone().filter(is_histogram).collect();
    let sample = (
        prop_oneof![4 => places, 1 => prop::sample::select(histograms)],
        prop::collection::vec(any::<String>(), 10),
        value(),
        prop_oneof![classic_histogram(), native_histogram()],
    );
    prop::collection::vec(sample, 0..40).prop_map(|samples| {
        let mut reading = NodeReading::default();
        for (index, labels, value, histogram) in samples {
            let metric = CATALOGUE[index];
            let value = match metric.kind {
                Kind::Info => Value::Int(1),
                Kind::Histogram => histogram.into(),
                Kind::Counter | Kind::Gauge => value,
            };
            reading.push(
                metric,
                &Labels::new(labels.into_iter().take(metric.labels.len())),
                value,
            );
        }
        reading.normalize();
        reading
    })
}

fn same(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan()
}

/// The same but for the last bits, in which serde_json may read a float wrongly.
fn nearly(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= a.abs() * 1e-15
}

/// Every series of a value, in the order of the exposition.
fn parts(value: &Value) -> Vec<(Option<HistogramPart>, Option<f64>, f64)> {
    match value {
        Value::Int(_) | Value::Float(_) => vec![(None, None, value.as_f64())],
        Value::Histogram(histogram) => histogram
            .series()
            .map(|(part, bound, value)| (Some(part), bound, value))
            .collect(),
    }
}

/// A series of any exposition: name, labels, bound of a bucket, value.
type Flat = (String, Vec<(String, String)>, Option<f64>, f64);

/// The series of a text exposition.
fn flat_text(text: &str) -> Vec<Flat> {
    let series = parse(text).filter_map(|line| match line.expect("a line of ours") {
        Line::Series(series) => Some(series),
        Line::Type(..) | Line::End => None,
    });
    let flat = series.map(|series| {
        let labels = series.labels().filter(|(name, _)| name != &"le");
        let labels = labels.map(|(name, value)| (name.to_owned(), value.into_owned()));
        let bound = series
            .label("le")
            .map(|bound| bound.parse().expect("a number"));
        (
            series.name.to_owned(),
            labels.collect(),
            bound,
            series.value,
        )
    });
    flat.collect()
}

/// The families of a protobuf exposition.
fn families(mut body: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !body.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut body).expect("a message"));
    }
    families
}

/// The same series, as Prometheus names those that protobuf does not name.
fn flat_protobuf(families: &[MetricFamily]) -> Vec<Flat> {
    let mut flat = Vec::new();
    for (family, series) in families
        .iter()
        .flat_map(|family| family.series.iter().map(move |series| (family, series)))
    {
        let labels: Vec<_> = series
            .labels
            .iter()
            .map(|pair| (pair.name.clone(), pair.value.clone()))
            .collect();
        let mut push = |suffix: &str, bound, value| {
            flat.push((
                format!("{}{suffix}", family.name),
                labels.clone(),
                bound,
                value,
            ));
        };
        match (series.gauge.or(series.counter), &series.histogram) {
            (Some(number), None) => push("", None, number.value),
            (None, Some(buckets)) => {
                push("_sum", None, buckets.sum);
                push("_count", None, buckets.count as f64);
                for bucket in &buckets.classic {
                    push("_bucket", Some(bucket.bound), bucket.count as f64);
                }
                push("_bucket", Some(f64::INFINITY), buckets.count as f64);
            }
            values => panic!("{values:?}"),
        }
    }
    flat
}

/// The native buckets of a message, if it has any.
fn native(buckets: &Buckets) -> Option<Native> {
    let indexes = buckets.spans.iter().scan(0, |end, span| {
        let begin = *end + span.offset;
        *end = begin + span.length as i32;
        Some(begin..*end)
    });
    let counts = buckets.deltas.iter().scan(0, |count, delta| {
        *count += delta;
        Some(u64::try_from(*count).expect("no bucket holds less than nothing"))
    });
    let is_native =
        buckets.schema == NATIVE_SCHEMA as i32 && buckets.zero_threshold == NATIVE_ZERO_SECONDS;
    is_native.then(|| Native {
        zero: buckets.zero_count,
        buckets: indexes.flatten().zip(counts).collect(),
    })
}

proptest! {
    #[test]
    fn protobuf_has_the_samples_of_the_text_and_native_buckets(reading in reading()) {
        let page = Page::new(Arc::new(reading.clone()));
        let read = families(&page.encode(MediaType::Protobuf, Profile::Full));
        let (found, expected) = (flat_protobuf(&read), flat_text(&page.write(Format::Text, Profile::Full)));
        prop_assert_eq!(found.len(), expected.len());
        for (found, expected) in found.into_iter().zip(expected) {
            prop_assert_eq!((&found.0, &found.1, found.2), (&expected.0, &expected.1, expected.2));
            prop_assert!(same(found.3, expected.3), "{} {}", found.3, expected.3);
        }
        let (metrics, samples) = (|family: &MetricFamily| Metric::by_name(&family.name).expect("ours"), reading.samples());
        for family in &read {
            let metric = metrics(family);
            let of_family: Vec<_> = samples.iter().filter(|sample| sample.metric == metric).collect();
            prop_assert_eq!(of_family.len(), family.series.len());
            let kind = match metric.kind {
                Kind::Counter => protobuf::MetricType::Counter,
                Kind::Gauge | Kind::Info => protobuf::MetricType::Gauge,
                Kind::Histogram => protobuf::MetricType::Histogram,
            };
            prop_assert_eq!((family.kind(), &*family.help), (kind, metric.help));
            let expected: Vec<_> = of_family.iter().map(|sample| sample.value.as_histogram()?.native().cloned()).collect();
            let found = family.series.iter().map(|series| native(series.histogram.as_ref()?));
            // Either all series of a family or none.
            let is_native = expected.iter().all(Option::is_some);
            let expected = expected.into_iter().map(|native| native.filter(|_| is_native));
            prop_assert!(found.eq(expected), "{family:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back(reading in reading(), open_metrics: bool) {
        let format = if open_metrics { Format::OpenMetrics } else { Format::Text };
        let text = Page::new(Arc::new(reading.clone())).write(format, Profile::Full);
        let mut read = parse(&text).filter_map(|line| match line.expect("a line of ours") {
            Line::Series(series) => Some(series),
            Line::Type(..) | Line::End => None,
        });
        for sample in reading.samples() {
            for (part, bound, value) in parts(&sample.value) {
                let series = read.next().expect("a series for each value");
                let (metric, found) = match part {
                    None => (Metric::by_name(series.name), None),
                    Some(_) => Metric::of_part(series.name).map(|(metric, part)| (Some(metric), Some(part))).unwrap_or_default(),
                };
                prop_assert_eq!((metric, found), (Some(sample.metric), part));
                let labels: Vec<_> = series.labels().filter(|(name, _)| name != &"le").map(|(_, value)| value.into_owned()).collect();
                prop_assert_eq!(labels, sample.labels.values().map(str::to_owned).collect::<Vec<_>>());
                let read_bound = series.label("le").map(|bound| bound.parse().expect("a number"));
                prop_assert_eq!(read_bound, bound);
                prop_assert!(same(series.value, value), "{} {:?}", series.value, sample.value);
            }
        }
        prop_assert!(read.next().is_none());
    }

    #[test]
    fn the_wire_between_processes_keeps_every_sample(reading in reading()) {
        // JSON cannot represent them; no source returns such a value.
        let finite = |value: &Value| !matches!(value, Value::Float(value) if !value.is_finite());
        prop_assume!(reading.samples().iter().all(|sample| finite(&sample.value)));
        let wire = serde_json::to_string(&reading).expect("JSON");
        let read: NodeReading = serde_json::from_str(&wire).expect("a reading");
        prop_assert_eq!(read.samples().len(), reading.samples().len());
        for (read, sent) in read.samples().iter().zip(reading.samples()) {
            prop_assert_eq!((read.metric, &read.labels, read.profile), (sent.metric, &sent.labels, sent.profile));
            let (read, sent) = (parts(&read.value), parts(&sent.value));
            prop_assert_eq!(read.len(), sent.len());
            for ((part, bound, value), sent) in read.into_iter().zip(sent) {
                prop_assert_eq!(part, sent.0);
                prop_assert!(nearly(bound.unwrap_or_default(), sent.1.unwrap_or_default()));
                prop_assert!(nearly(value, sent.2), "{value} {sent:?}");
            }
        }
    }

    #[test]
    fn no_text_panics_and_every_line_is_read_or_reported_once(text: String) {
        let spoken = parse(&text).count();
        prop_assert!(spoken <= text.lines().count());
        for line in parse(&text) {
            match line {
                Ok(Line::Series(series)) => prop_assert!(series.labels().all(|(name, _)| !name.is_empty())),
                Ok(_) => {}
                Err(error) => prop_assert!(error.line >= 1 && error.column >= 1),
            }
        }
    }

    #[test]
    fn a_broken_line_hides_no_other(
        reading in reading(), cut in any::<prop::sample::Index>(), junk in "[a-z{}\",= 0-9\\\\]{0,12}",
    ) {
        let text = Page::new(Arc::new(reading)).write(Format::Text, Profile::Full);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        prop_assume!(!lines.is_empty());
        let whole = parse(&text).count();
        let at = cut.index(lines.len());
        lines[at] = format!("{{{junk}");
        let broken = lines.join("\n");
        let spoken = parse(&broken).count();
        let was_comment = text.lines().nth(at).is_some_and(|line| line.starts_with("# HELP"));
        prop_assert_eq!(spoken, whole + usize::from(was_comment));
        prop_assert!(parse(&broken).filter(Result::is_err).count() <= 1);
    }
}
