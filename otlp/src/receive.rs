//! Reads OTLP metrics as series of the Prometheus text format, as the OpenTelemetry Collector's Prometheus exporter
//! names them.

mod names;
mod origin;

use std::borrow::Cow;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, SummaryDataPoint,
};
use prost::{DecodeError, Message as _};

use crate::wire::answer::RpcStatus;
pub use crate::wire::grpc::BytesCodec;
pub use origin::Origin;

/// Points of a resource this close to its newest one are of one collection. The SDKs read the clock once per instrument.
const ONE_COLLECTION_NANOS: u64 = 500_000_000;

/// One sample of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    /// The name of the series.
    pub name: &'a str,
    /// Names and values of its labels.
    pub labels: &'a [(Cow<'a, str>, Cow<'a, str>)],
    /// Its value; none if the series has ended (flag `NO_RECORDED_VALUE`).
    pub value: Option<f64>,
    /// Milliseconds since 1970. Equal for all points of one collection.
    pub millis: u64,
    /// If the value is the change since an earlier point: the end of the interval that it covers, in nanoseconds since 1970.
    pub delta_until: Option<u64>,
}

/// A request to store metrics.
#[derive(Debug)]
pub struct Request(ExportMetricsServiceRequest);

/// The metrics of one resource.
#[derive(Debug)]
pub struct Resource<'a> {
    /// Which resource it is.
    pub origin: Origin,
    metrics: &'a ResourceMetrics,
}

impl Request {
    /// Decodes a request.
    ///
    /// # Errors
    /// The body is no `ExportMetricsServiceRequest`.
    pub fn decode(body: Bytes) -> Result<Self, DecodeError> {
        ExportMetricsServiceRequest::decode(body).map(Self)
    }

    /// Its resources.
    pub fn resources(&self) -> impl Iterator<Item = Resource<'_>> {
        self.0.resource_metrics.iter().map(|metrics| {
            let attributes = metrics
                .resource
                .as_ref()
                .map(|resource| &*resource.attributes);
            Resource {
                origin: Origin::of(attributes.unwrap_or_default()),
                metrics,
            }
        })
    }
}

impl Resource<'_> {
    /// Calls `each` with every sample; returns the number of points that have no equivalent in the text format (exponential
    /// histograms, and points without a value).
    pub fn read(&self, each: impl FnMut(&Point<'_>)) -> u64 {
        let mut reading = Reading {
            collected_at: collected_at(self.metrics),
            unsupported: 0,
            each,
        };
        for metric in metrics(self.metrics) {
            reading.take(metric);
        }
        reading.unsupported
    }
}

/// The response body for a request with rejected points, for this reason. Empty if none was.
pub fn response(rejected: u64, reason: &str) -> Bytes {
    let partial = ExportMetricsPartialSuccess {
        rejected_data_points: i64::try_from(rejected).unwrap_or(i64::MAX),
        error_message: reason.to_owned(),
    };
    let response = ExportMetricsServiceResponse {
        partial_success: (rejected > 0).then_some(partial),
    };
    response.encode_to_vec().into()
}

/// The response body for a request that failed for this reason: a `google.rpc.Status`.
pub fn failure(reason: String) -> Bytes {
    RpcStatus::new(reason).encode_to_vec().into()
}

fn metrics(resource: &ResourceMetrics) -> impl Iterator<Item = &Metric> {
    resource
        .scope_metrics
        .iter()
        .flat_map(|scope| &scope.metrics)
}

/// When the points of a resource were collected. None if they have the time of a scrape: then points with other times are
/// of other scrapes.
fn collected_at(resource: &ResourceMetrics) -> Option<u64> {
    if metrics(resource).any(|metric| metric.name == "up") {
        return None;
    }
    let newest = |metric: &Metric| match metric.data.as_ref()? {
        Data::Gauge(data) => newest(&data.data_points, |point| point.time_unix_nano),
        Data::Sum(data) => newest(&data.data_points, |point| point.time_unix_nano),
        Data::Histogram(data) => newest(&data.data_points, |point| point.time_unix_nano),
        Data::Summary(data) => newest(&data.data_points, |point| point.time_unix_nano),
        Data::ExponentialHistogram(_) => None,
    };
    metrics(resource).filter_map(newest).max()
}

fn newest<P>(points: &[P], time: impl Fn(&P) -> u64) -> Option<u64> {
    points.iter().map(time).max()
}

struct Reading<F> {
    collected_at: Option<u64>,
    unsupported: u64,
    each: F,
}

/// What the series of one point have in common.
#[derive(Clone, Copy)]
struct Head<'a> {
    name: &'a str,
    millis: u64,
    is_over: bool,
    delta_until: Option<u64>,
}

impl<F: FnMut(&Point<'_>)> Reading<F> {
    fn take(&mut self, metric: &Metric) {
        match &metric.data {
            Some(Data::Gauge(data)) => self.numbers(metric, &data.data_points, false),
            Some(Data::Sum(data)) => {
                self.numbers(
                    metric,
                    &data.data_points,
                    is_delta(data.aggregation_temporality),
                );
            }
            Some(Data::Histogram(data)) => {
                let (name, is_delta) = (names::of(metric), is_delta(data.aggregation_temporality));
                let points = data.data_points.iter();
                points.for_each(|point| self.histogram(&name, point, is_delta));
            }
            Some(Data::Summary(data)) => {
                let name = names::of(metric);
                let points = data.data_points.iter();
                points.for_each(|point| self.summary(&name, point));
            }
            Some(Data::ExponentialHistogram(data)) => {
                self.unsupported += data.data_points.len() as u64;
            }
            None => {}
        }
    }

    fn head<'a>(&self, name: &'a str, nanos: u64, flags: u32, is_delta: bool) -> Head<'a> {
        let collected_at = self
            .collected_at
            .filter(|at| at.saturating_sub(nanos) < ONE_COLLECTION_NANOS);
        Head {
            name,
            millis: collected_at.unwrap_or(nanos) / 1_000_000,
            is_over: flags & DataPointFlags::NoRecordedValueMask as u32 != 0,
            delta_until: is_delta.then_some(nanos),
        }
    }

    fn emit(&mut self, head: Head<'_>, labels: &[(Cow<'_, str>, Cow<'_, str>)], value: f64) {
        (self.each)(&Point {
            name: head.name,
            labels,
            value: (!head.is_over).then_some(value),
            millis: head.millis,
            delta_until: head.delta_until,
        });
    }

    fn numbers(&mut self, metric: &Metric, points: &[NumberDataPoint], is_delta: bool) {
        let name = names::of(metric);
        for point in points {
            let head = self.head(&name, point.time_unix_nano, point.flags, is_delta);
            let value = match point.value {
                Some(Number::AsDouble(value)) => value,
                Some(Number::AsInt(value)) => value as f64,
                None if head.is_over => 0.0,
                None => {
                    self.unsupported += 1;
                    continue;
                }
            };
            // Several metrics of the catalogue share one name of the conventions; attributes identify each.
            match names::own(&metric.name, &point.attributes) {
                Some((name, labels)) => self.emit(Head { name, ..head }, &labels, value),
                None => self.emit(head, &labels(&point.attributes), value),
            }
        }
    }

    fn histogram(&mut self, name: &str, point: &HistogramDataPoint, is_delta: bool) {
        let head = self.head(name, point.time_unix_nano, point.flags, is_delta);
        let mut labels = labels(&point.attributes);
        let of = |suffix: &str| format!("{}{suffix}", head.name);
        let (bucket, sum, count) = (of("_bucket"), of("_sum"), of("_count"));
        if let Some(value) = point.sum {
            self.emit(Head { name: &sum, ..head }, &labels, value);
        }
        self.emit(
            Head {
                name: &count,
                ..head
            },
            &labels,
            point.count as f64,
        );
        let mut below = 0;
        let finite = point.bucket_counts.iter().zip(&point.explicit_bounds);
        labels.push((Cow::Borrowed("le"), Cow::Borrowed("+Inf")));
        let at = labels.len() - 1;
        let head = Head {
            name: &bucket,
            ..head
        };
        self.emit(head, &labels, point.count as f64);
        for (count, bound) in finite {
            below = count.saturating_add(below);
            labels[at].1 = Cow::Owned(bound.to_string());
            self.emit(head, &labels, below as f64);
        }
    }

    fn summary(&mut self, name: &str, point: &SummaryDataPoint) {
        let head = self.head(name, point.time_unix_nano, point.flags, false);
        let mut labels = labels(&point.attributes);
        let of = |suffix: &str| format!("{}{suffix}", head.name);
        let (sum, count) = (of("_sum"), of("_count"));
        self.emit(Head { name: &sum, ..head }, &labels, point.sum);
        self.emit(
            Head {
                name: &count,
                ..head
            },
            &labels,
            point.count as f64,
        );
        labels.push((Cow::Borrowed("quantile"), Cow::Borrowed("")));
        let at = labels.len() - 1;
        for part in &point.quantile_values {
            labels[at].1 = Cow::Owned(part.quantile.to_string());
            self.emit(head, &labels, part.value);
        }
    }
}

fn is_delta(temporality: i32) -> bool {
    temporality == AggregationTemporality::Delta as i32
}

fn labels(attributes: &[KeyValue]) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    attributes.iter().filter_map(label).collect()
}

fn label(attribute: &KeyValue) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let value = text(attribute.value.as_ref())?;
    Some((names::label(&attribute.key), value))
}

/// The text of an attribute; none for an empty one and for arrays, maps and bytes.
fn text(value: Option<&AnyValue>) -> Option<Cow<'_, str>> {
    match value?.value.as_ref()? {
        Value::StringValue(text) if text.is_empty() => None,
        Value::StringValue(text) => Some(Cow::Borrowed(text)),
        Value::BoolValue(value) => Some(Cow::Owned(value.to_string())),
        Value::IntValue(value) => Some(Cow::Owned(value.to_string())),
        Value::DoubleValue(value) => Some(Cow::Owned(value.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
