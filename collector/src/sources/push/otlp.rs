//! Metrics by OTLP, as series of Prometheus targets.

use std::io::Read as _;
use std::sync::{Mutex, PoisonError};

use flate2::read::MultiGzDecoder;
use prost::DecodeError;
use prost::bytes::Bytes;
use railscope_model::fabric::Timestamp;
use railscope_otlp::receive::{self, Origin, Point};

use super::deltas::Deltas;
use super::fragments::STALE_BITS;
use super::remote_write::Sample;
use super::{BodyError, Series};

/// Points of a request that are no sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Without an equivalent in the text format.
    pub unsupported: u64,
    /// Changes that are not after the previous change of the series.
    pub out_of_order: u64,
}

/// Decompresses gzip, up to a limit in bytes.
///
/// # Errors
/// Invalid, or larger than the limit.
pub fn decompress(body: &[u8], most_bytes: usize) -> Result<Bytes, BodyError> {
    let mut message = Vec::new();
    let limit = u64::try_from(most_bytes)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let read = MultiGzDecoder::new(body)
        .take(limit)
        .read_to_end(&mut message);
    read.map_err(BodyError::Gzip)?;
    if message.len() > most_bytes {
        return Err(BodyError::TooLarge(most_bytes));
    }
    Ok(message.into())
}

/// Calls `each` with every series of a request that arrived at `now`.
///
/// # Errors
/// The body is no request.
pub fn read(
    body: Bytes,
    deltas: &Mutex<Deltas>,
    now: Timestamp,
    mut each: impl FnMut(&Series<'_>),
) -> Result<Omitted, DecodeError> {
    let mut omitted = Omitted::default();
    let request = receive::Request::decode(body)?;
    for resource in request.resources() {
        let target = target(&resource.origin);
        omitted.unsupported += resource.read(|point| {
            let named = [("__name__", point.name)];
            let labels = point.labels.iter().map(|(name, value)| (&**name, &**value));
            let labels: Vec<_> = named.into_iter().chain(labels).collect();
            let Some(value) = value(point, (&target, &labels), deltas, now) else {
                omitted.out_of_order += 1;
                return;
            };
            let millis = i64::try_from(point.millis).unwrap_or(i64::MAX);
            each(&Series {
                labels: &labels,
                target: &target,
                samples: &[Sample { value, millis }],
                histograms: 0,
            });
        });
    }
    Ok(omitted)
}

/// The labels of the target: `instance` and `job`, the attributes of the resource, and the host's name under the default
/// labels of nodes and switches. The first of equal names counts.
fn target(origin: &Origin) -> Vec<(&str, &str)> {
    let instance = origin
        .instance
        .as_deref()
        .map(|instance| ("instance", instance));
    let named = instance.into_iter().chain([("job", &*origin.job)]);
    let attributes = origin
        .labels
        .iter()
        .map(|(name, value)| (&**name, &**value));
    let host = origin
        .host
        .iter()
        .flat_map(|host| [("node", &**host), ("switch", host)]);
    named.chain(attributes).chain(host).collect()
}

type Labels<'a> = [(&'a str, &'a str)];

/// The cumulative value of a point; none for a delta that was counted before.
fn value(
    point: &Point<'_>,
    series: (&Labels<'_>, &Labels<'_>),
    deltas: &Mutex<Deltas>,
    now: Timestamp,
) -> Option<f64> {
    match (point.value, point.delta_until) {
        (None, _) => Some(f64::from_bits(STALE_BITS)),
        (Some(change), Some(until)) => {
            let mut deltas = deltas.lock().unwrap_or_else(PoisonError::into_inner);
            deltas.add(series, change, until, now)
        }
        (Some(value), None) => Some(value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, SystemTime};

    use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use railscope_otlp::{Converted, Converter};

    use super::super::Format;
    use super::super::fragments::Batch;
    use super::*;
    use crate::config::{About, Push, PushedJob};

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn converted(exposition: &str, seconds_ago: u64) -> Converted {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW.0 - seconds_ago * 1_000);
        Converter::new(at).convert(exposition, at)
    }

    fn body(converted: Converted, resource: &[(&str, &str)]) -> Bytes {
        let attributes = resource
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let attributes: Vec<_> = attributes.collect();
        converted.request(&attributes).into()
    }

    fn batch(body: &Bytes, config: &Push, deltas: &Mutex<Deltas>) -> Batch {
        Batch::read(Format::Otlp, body, (config, deltas), NOW).expect("a request")
    }

    #[test]
    fn the_resource_identifies_the_target_and_is_no_label_of_series() {
        let resource = [("service.name", "dcgm"), ("host.name", "n1")];
        // The labels of a series do not rename its target.
        let exposition = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",job=\"train\",node=\"x\"} 45\n";
        let body = body(converted(exposition, 1), &resource);
        let batch = batch(&body, &Push::default(), &Mutex::default());
        let ((origin, _), fragment) = batch.fragments.first_key_value().expect("a fragment");
        assert_eq!((&*origin.job, &*origin.instance), ("dcgm", "n1"));
        assert_eq!(fragment.part.as_deref(), Some("n1"));
        assert_eq!(fragment.text, exposition);
    }

    #[test]
    fn series_of_many_switches_keep_the_attributes_of_the_resource() {
        let job = PushedJob {
            kind: None,
            about: About::Series,
        };
        let config = Push {
            jobs: BTreeMap::from([(String::from("cumulus"), job)]),
            ..Push::default()
        };
        let resource = [("service.name", "cumulus"), ("net.host.name", "leaf-1")];
        let exposition = "nvswitch_interface_oper_state{interface=\"swp1\"} 1\n";
        let body = body(converted(exposition, 1), &resource);
        let batch = batch(&body, &config, &Mutex::default());
        let (_, fragment) = batch.fragments.first_key_value().expect("a fragment");
        assert!(fragment.text.contains("interface=\"swp1\""), "{fragment:?}");
        assert!(
            fragment.text.contains("net_host_name=\"leaf-1\""),
            "{fragment:?}"
        );
        assert_eq!(
            fragment.text.matches("instance=").count(),
            1,
            "{fragment:?}"
        );
    }

    #[test]
    fn delta_sums_add_up_and_a_retry_is_out_of_window() {
        let deltas = Mutex::default();
        let mut texts = Vec::new();
        let mut omitted = 0;
        for seconds_ago in [3, 2, 2, 1] {
            let mut change = converted("# TYPE drops_total counter\ndrops_total 5\n", seconds_ago);
            if let Some(Data::Sum(sum)) = &mut change.metrics[0].data {
                sum.aggregation_temporality = AggregationTemporality::Delta as i32;
            }
            let batch = batch(
                &body(change, &[("host.name", "n1")]),
                &Push::default(),
                &deltas,
            );
            texts.extend(batch.fragments.into_values().map(|fragment| fragment.text));
            omitted += batch.counts.out_of_window;
        }
        assert_eq!(
            (texts.concat().as_str(), omitted),
            ("drops{} 5\ndrops{} 10\ndrops{} 15\n", 1)
        );
    }
}
