//! Buckets of a classic histogram: cumulative in Prometheus, one by one in OTLP.

use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;

/// Sets bounds and counts of a point from pairs of upper bound and cumulative count, in any order.
pub(super) fn fill(point: &mut HistogramDataPoint, mut cumulative: Vec<(f64, f64)>) {
    if cumulative.is_empty() {
        return;
    }
    cumulative.sort_by(|a, b| a.0.total_cmp(&b.0));
    cumulative.dedup_by(|a, b| a.0 == b.0);
    let all = match cumulative.last() {
        Some((bound, count)) if bound.is_infinite() => *count,
        _ => point.count as f64,
    };
    point.count = all as u64;
    let mut below = 0.0;
    for (bound, count) in cumulative
        .into_iter()
        .filter(|(bound, _)| bound.is_finite())
    {
        point.explicit_bounds.push(bound);
        point.bucket_counts.push((count - below) as u64);
        below = f64::max(below, count);
    }
    point.bucket_counts.push((all - below) as u64);
}
