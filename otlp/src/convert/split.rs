//! Splits metrics into requests of bounded size.

use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;

/// Points in one request. Points of a whole node take 80 to 120 bytes on average, those of info metrics up to 500, and
/// the OpenTelemetry Collector accepts 4 MiB by gRPC unless it is configured otherwise.
const POINTS_PER_REQUEST: usize = 8_000;

/// Points of a metric.
pub(super) fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(Data::ExponentialHistogram(histogram)) => histogram.data_points.len(),
        Some(Data::Summary(summary)) => summary.data_points.len(),
        None => 0,
    }
}

/// The metrics by request, each with the number of its points.
pub(crate) fn requests(metrics: Vec<Metric>) -> Vec<(Vec<Metric>, u64)> {
    let mut all = Vec::new();
    let (mut request, mut filled) = (Vec::new(), 0);
    for mut metric in metrics {
        while filled + points(&metric) > POINTS_PER_REQUEST {
            let rest = split_off(&mut metric, POINTS_PER_REQUEST - filled);
            let full = points(&metric) + filled;
            request.push(metric);
            all.push((std::mem::take(&mut request), full as u64));
            (metric, filled) = (rest, 0);
        }
        filled += points(&metric);
        request.push(metric);
    }
    if filled > 0 {
        all.push((request, filled as u64));
    }
    all
}

/// Leaves the first points in the metric and returns one like it with the others.
fn split_off(metric: &mut Metric, first: usize) -> Metric {
    let data = metric.data.as_mut().map(|data| match data {
        Data::Gauge(gauge) => {
            let data_points = gauge.data_points.split_off(first);
            Data::Gauge(opentelemetry_proto::tonic::metrics::v1::Gauge { data_points })
        }
        Data::Sum(sum) => {
            let data_points = sum.data_points.split_off(first);
            Data::Sum(opentelemetry_proto::tonic::metrics::v1::Sum {
                data_points,
                ..*sum
            })
        }
        Data::Histogram(histogram) => {
            let data_points = histogram.data_points.split_off(first);
            Data::Histogram(opentelemetry_proto::tonic::metrics::v1::Histogram {
                data_points,
                ..*histogram
            })
        }
        Data::ExponentialHistogram(histogram) => {
            let data_points = histogram.data_points.split_off(first);
            Data::ExponentialHistogram(
                opentelemetry_proto::tonic::metrics::v1::ExponentialHistogram {
                    data_points,
                    ..*histogram
                },
            )
        }
        Data::Summary(summary) => {
            let data_points = summary.data_points.split_off(first);
            Data::Summary(opentelemetry_proto::tonic::metrics::v1::Summary { data_points })
        }
    });
    Metric {
        name: metric.name.clone(),
        description: metric.description.clone(),
        unit: metric.unit.clone(),
        metadata: metric.metadata.clone(),
        data,
    }
}
