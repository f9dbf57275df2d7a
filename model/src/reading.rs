//! What one node reported at one instant: samples of catalogue metrics, and why others are missing.

mod changes;
mod histogram;
mod latencies;

use std::fmt;
use std::sync::Arc;

use compact_str::{CompactString, ToCompactString as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use changes::{Changes, NotItsChanges};
pub use histogram::{Histogram, HistogramError, Native};
pub use latencies::{Latencies, NATIVE_SCHEMA, NATIVE_ZERO_SECONDS};

use crate::metric::{Kind, Label, Metric, Profile, SOURCE_STATUS};

/// Label values of one series, in the order of [`Metric::labels`]. Built once a series, then shared; values of up to 24
/// bytes, which most are, stand side by side.
#[derive(Debug, Clone, Eq, PartialOrd, Ord, Hash, Default)]
#[allow(
    clippy::derived_hash_with_manual_eq,
    reason = "equal by address is equal by value"
)]
pub struct Labels(Arc<[CompactString]>);

/// Shared labels are mostly compared with themselves. `Arc` compares addresses first only where its content has a
/// fixed size, and text that was not accessed for a second costs a cache miss each.
impl PartialEq for Labels {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Labels {
    /// Label values in the order of the metric's label names.
    pub fn new<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> Self {
        Self(
            values
                .into_iter()
                .map(|value| value.to_compact_string())
                .collect(),
        )
    }

    /// These labels and one more value behind them.
    #[must_use]
    pub fn with(&self, value: impl fmt::Display) -> Self {
        Self(
            self.0
                .iter()
                .cloned()
                .chain([value.to_compact_string()])
                .collect(),
        )
    }

    /// One of them; empty labels mean "unknown" and are omitted.
    #[inline]
    pub fn get(&self, label: Label) -> Option<&str> {
        let value: &str = self.0.get(label.place())?;
        (!value.is_empty()).then_some(value)
    }

    /// The values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|value| &**value)
    }
}

/// A sample's value: whole numbers stay exact beyond 2^53.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Int(u64),
    /// A measurement.
    Float(f64),
    /// How often a measurement fell between bounds; only for metrics of that kind.
    Histogram(Box<Histogram>),
}

impl Value {
    /// The value as the 64-bit float that Prometheus stores; of a histogram, how many measurements.
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Int(value) => *value as f64,
            Self::Float(value) => *value,
            Self::Histogram(histogram) => histogram.count() as f64,
        }
    }

    /// The histogram, if it is one.
    pub fn as_histogram(&self) -> Option<&Histogram> {
        match self {
            Self::Histogram(histogram) => Some(histogram),
            Self::Int(_) | Self::Float(_) => None,
        }
    }

    /// Whether a metric of this kind can have the value.
    fn fits(&self, kind: Kind) -> bool {
        matches!(self, Self::Histogram(_)) == (kind == Kind::Histogram)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Histogram> for Value {
    fn from(value: Histogram) -> Self {
        Self::Histogram(Box::new(value))
    }
}

/// Why a source, or one device of it, returned a value or none.
///
/// Absent, zero and failed differ: a zero is a sample, and what is absent or failed has
/// no sample but a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Read successfully.
    Ok,
    /// The machine has none: no such directory, library or device.
    Absent,
    /// The device or driver does not support this.
    Unsupported,
    /// A permission is missing.
    Denied,
    /// Something was read that is not what it should be.
    Unparsed,
    /// Timed out.
    Timeout,
    /// Any other error.
    Failed,
}

impl Status {
    /// The status as a label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Unparsed => "unparsed",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }
}

/// One value of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The catalogue row.
    pub metric: &'static Metric,
    /// Values of the row's labels.
    pub labels: Labels,
    /// The value, in the row's unit.
    pub value: Value,
    /// The smallest profile that shows it, at least the row's own.
    pub profile: Profile,
}

impl Sample {
    /// Its position in the exposition: what distinguishes its series from every other.
    pub(crate) fn key(&self) -> (u16, &Labels) {
        (self.metric.index, &self.labels)
    }

    /// Number of its series in the exposition.
    pub fn series(&self) -> usize {
        match &self.value {
            Value::Int(_) | Value::Float(_) => 1,
            Value::Histogram(histogram) => histogram.series().count(),
        }
    }
}

/// What one node reported at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeReading {
    samples: Vec<Sample>,
}

impl NodeReading {
    /// Adds a value. `labels` are in the order of the metric's label names.
    pub fn push(&mut self, metric: &'static Metric, labels: &Labels, value: impl Into<Value>) {
        self.push_in(metric.profile, metric, labels, value);
    }

    /// Adds a value that only the full profile shows, whatever its metric's own profile.
    pub fn push_full(&mut self, metric: &'static Metric, labels: &Labels, value: impl Into<Value>) {
        self.push_in(Profile::Full, metric, labels, value);
    }

    /// Adds a flag that healthy parts do not set: only the full profile shows one that is not set.
    pub fn push_flag(&mut self, metric: &'static Metric, labels: &Labels, is_set: bool) {
        self.push_in(Profile::default_if(is_set), metric, labels, is_set);
    }

    /// Adds a value that only this profile and larger ones show, whatever its metric's own profile.
    pub fn push_in(
        &mut self,
        profile: Profile,
        metric: &'static Metric,
        labels: &Labels,
        value: impl Into<Value>,
    ) {
        debug_assert_eq!(
            labels.0.len(),
            metric.labels.len(),
            "label values of {}",
            metric.name
        );
        let value = value.into();
        debug_assert!(value.fits(metric.kind), "value of {}", metric.name);
        let profile = profile.max(metric.profile);
        self.samples.push(Sample {
            metric,
            labels: labels.clone(),
            value,
            profile,
        });
    }

    /// Records how a source (empty `device`) or one device of it was read.
    pub fn push_status(&mut self, source: &str, device: &str, status: Status) {
        self.push(
            &SOURCE_STATUS,
            &Labels::new([source, device, status.as_str()]),
            true,
        );
    }

    /// Adds all samples of another reading.
    pub fn extend(&mut self, other: &Self) {
        self.samples.extend_from_slice(&other.samples);
    }

    /// Removes the samples that `wanted` selects; the others stay in their order.
    pub fn take(&mut self, wanted: impl Fn(&Sample) -> bool) -> Vec<Sample> {
        self.samples
            .extract_if(.., |sample| wanted(sample))
            .collect()
    }

    /// Sets the value of the sample at an index of [`Self::samples`].
    pub(crate) fn set(&mut self, place: usize, value: Value) {
        self.samples[place].value = value;
    }

    /// The samples, in no particular order.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Sorts samples in the order of the exposition (catalogue, then labels) and drops those whose series
    /// is already there; the first one stays. Returns how many it dropped.
    pub fn normalize(&mut self) -> usize {
        let before = self.samples.len();
        self.samples.sort_by(|a, b| a.key().cmp(&b.key()));
        self.samples
            .dedup_by(|later, first| later.key() == first.key());
        before - self.samples.len()
    }
}

/// A sample on the wire between a source's child process and the exporter: metric by name.
#[derive(Serialize, Deserialize)]
struct WireSample<'a>(
    #[serde(borrow)] std::borrow::Cow<'a, str>,
    #[serde(borrow)] Vec<std::borrow::Cow<'a, str>>,
    Value,
    bool,
);

impl Serialize for NodeReading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.samples.iter().map(|sample| {
            let labels = sample.labels.values().map(Into::into).collect();
            WireSample(
                sample.metric.name.into(),
                labels,
                sample.value.clone(),
                sample.profile == Profile::Full,
            )
        }))
    }
}

impl<'de> Deserialize<'de> for NodeReading {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut reading = Self::default();
        for WireSample(name, labels, value, full) in
            Vec::<WireSample<'de>>::deserialize(deserializer)?
        {
            let metric = Metric::by_name(&name)
                .ok_or_else(|| D::Error::custom(format!("no metric {name:?}")))?;
            if labels.len() != metric.labels.len() {
                return Err(D::Error::custom(format!(
                    "{name}: expected labels {:?}",
                    metric.labels
                )));
            }
            if !value.fits(metric.kind) {
                let kind = metric.kind.as_str();
                return Err(D::Error::custom(format!("{name}: no value of a {kind}")));
            }
            let profile = Profile::default_if(!full);
            reading.push_in(profile, metric, &Labels::new(labels), value);
        }
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU_ENERGY, GPU_POWER};

    #[test]
    fn normalize_orders_by_catalogue_and_labels_and_counts_what_it_drops() {
        let mut reading = NodeReading::default();
        reading.push(&GPU_ENERGY, &Labels::new(["1"]), 2.0);
        reading.push(&GPU_POWER, &Labels::new(["1"]), 3.0);
        reading.push(&GPU_POWER, &Labels::new(["0"]), 1.0);
        reading.push(&GPU_POWER, &Labels::new(["0"]), 9.0);
        assert_eq!(reading.normalize(), 1);
        let order: Vec<_> = reading
            .samples()
            .iter()
            .map(|s| (s.metric.name, s.value.as_f64()))
            .collect();
        assert_eq!(
            order,
            [
                (GPU_POWER.name, 1.0),
                (GPU_POWER.name, 3.0),
                (GPU_ENERGY.name, 2.0)
            ]
        );
    }
}
