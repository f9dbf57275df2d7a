//! The metric catalogue: every series that Railscope writes stands here once.
//!
//! HELP and UNIT lines, METRICS.md and the checks on dashboards and alerts derive from it.
//! A new series is one row here and one row in the sampler that reads it.

#[macro_use]
mod table;

mod catalogue;

pub use catalogue::{
    CATALOGUE, collector::*, ethernet::*, gpu::*, host::*, node::*, nvlink::*, pcie::*, probe::*,
    rdma::*, switch::*, workload::*,
};

/// Type of a metric, in OpenMetrics' terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that only rises until it is reset; the name ends in `_total`.
    Counter,
    /// A value that can rise and fall.
    Gauge,
    /// The constant 1 with labels that describe a thing; the name ends in `_info`.
    Info,
    /// How often a measurement fell between fixed bounds: three kinds of series, see [`HistogramPart`].
    Histogram,
}

impl Kind {
    /// The type as the exposition format spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
            Self::Histogram => "histogram",
        }
    }
}

/// Which of a histogram's series a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HistogramPart {
    /// `_bucket`: measurements up to the bound in the label `le`.
    Bucket,
    /// `_sum`: all measurements added up.
    Sum,
    /// `_count`: how many measurements.
    Count,
}

impl HistogramPart {
    /// Every part with what it adds to the metric's name.
    pub const SUFFIXES: [(&'static str, Self); 3] = [
        ("_bucket", Self::Bucket),
        ("_sum", Self::Sum),
        ("_count", Self::Count),
    ];
}

/// Level of detail of an exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Profile {
    /// What Prometheus stores: at most 600 series on a node with 8 GPUs x 18 NVLinks and 8 NICs.
    #[default]
    Default,
    /// Every link and every hop, for the collector and for digging: `/metrics?profile=full`.
    Full,
}

impl Profile {
    /// The default profile for what is worth a series there, else the full one.
    pub fn default_if(is_worth_it: bool) -> Self {
        if is_worth_it {
            Self::Default
        } else {
            Self::Full
        }
    }
}

/// Upper bounds of the buckets of all histograms of latencies, nanoseconds: 5 us to 100 ms. A round trip in an idle
/// fabric takes 5 to 50 us with software timestamps at both ends; a hypervisor's delay of a guest is between 50 us and
/// 500 us; a full switch buffer of 64 MB takes 1.3 ms to drain at 400 Gb/s. So stalls above 50, 200 and 1000 us can be
/// counted. Few, as the default profile has one series for each.
pub const LATENCY_BOUNDS_NANOS: [u64; 10] = [
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// Component that exports a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The node exporter.
    Exporter,
    /// The collector, in its own exposition.
    Collector,
    /// Not exported: what the collector reads of a switch, by its own sweep or out of another exporter.
    Switch,
}

/// One row of the catalogue.
#[derive(Debug)]
pub struct Metric {
    /// Place in the catalogue, which is the order of the exposition.
    pub index: u16,
    /// Full series name: prefix, base unit, `_total` or `_info`.
    pub name: &'static str,
    /// Counter, gauge, info or histogram.
    pub kind: Kind,
    /// Base unit, where there is one: the last word of the name before `_total`.
    pub unit: Option<&'static str>,
    /// Label names, in the order in which label values are given.
    pub labels: &'static [&'static str],
    /// The smallest profile that includes it; a single sample may require a larger one.
    pub profile: Profile,
    /// Component that exports it.
    pub writer: Writer,
    /// HELP text: what it is, where it comes from, what to know before trusting it.
    pub help: &'static str,
}

/// Where a label stands among those of its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

impl Label {
    /// Its place, from 0.
    pub const fn place(self) -> usize {
        self.0
    }
}

/// A label of a metric by its name; a name that the metric does not have does not compile.
///
/// ```
/// use railscope_model::{label, metric::GPU, reading::Labels};
///
/// let labels = Labels::new(["0", "GPU-1"]);
/// assert_eq!(labels.get(label!(GPU, "uuid")), Some("GPU-1"));
/// ```
#[macro_export]
macro_rules! label {
    ($metric:ident, $name:literal) => {
        const { $metric.label($name).expect("a label of the metric") }
    };
}

impl Metric {
    /// Whether the metric can have this value: no counter is above 64 bits, and only temperatures are negative. NaN
    /// means that there is no value.
    pub fn can_be(&self, value: f64) -> bool {
        const LARGEST: f64 = u64::MAX as f64;
        (0.0..=LARGEST).contains(&value)
            || value.is_nan()
            || (self.unit == Some("celsius") && (-LARGEST..0.0).contains(&value))
    }

    /// One of its labels by name, if it has it.
    pub const fn label(&self, name: &str) -> Option<Label> {
        let mut place = 0;
        while place < self.labels.len() {
            if is_same(self.labels[place].as_bytes(), name.as_bytes()) {
                return Some(Label(place));
            }
            place += 1;
        }
        None
    }

    /// The row with this series name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        // The catalogue is small and this runs once a series, not once a sample.
        CATALOGUE.iter().copied().find(|metric| metric.name == name)
    }

    /// The histogram that a series of this name is part of, and which part.
    pub fn of_part(series: &str) -> Option<(&'static Self, HistogramPart)> {
        HistogramPart::SUFFIXES
            .into_iter()
            .find_map(|(suffix, part)| {
                let metric = Self::by_name(series.strip_suffix(suffix)?)?;
                (metric.kind == Kind::Histogram).then_some((metric, part))
            })
    }

    /// OpenMetrics' family name: without `_total` or `_info`.
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Info => self.name.strip_suffix("_info").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }
}

/// Whether two texts are equal: `==` cannot be used in constants yet.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([a, rest @ ..], [b, others @ ..]) => *a == *b && is_same(rest, others),
        _ => false,
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Metric {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const BASE_UNITS: &[&str] = &[
        "bytes", "seconds", "joules", "celsius", "hertz", "ratio", "watts",
    ];

    #[test]
    fn no_series_of_a_histogram_has_the_name_of_another_row() {
        for metric in CATALOGUE.iter().filter(|row| row.kind == Kind::Histogram) {
            for (suffix, part) in HistogramPart::SUFFIXES {
                let series = format!("{}{suffix}", metric.name);
                assert_eq!(Metric::of_part(&series), Some((*metric, part)));
                assert_eq!(Metric::by_name(&series), None, "{series}");
            }
        }
        assert_eq!(Metric::of_part("railscope_gpu_power_watts_sum"), None);
    }

    #[test]
    fn every_row_keeps_the_naming_rules() {
        let mut names = HashSet::new();
        for (index, metric) in CATALOGUE.iter().enumerate() {
            let name = metric.name;
            assert_eq!(usize::from(metric.index), index, "{name}");
            assert!(names.insert(name), "{name} stands twice");
            assert!(name.starts_with("railscope_"), "{name}");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{name}"
            );
            assert_eq!(
                metric.kind == Kind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(metric.kind == Kind::Info, name.ends_with("_info"), "{name}");
            assert!(metric.labels.len() <= 10, "{name}: too many labels");
            assert!(
                metric.help.ends_with('.') && !metric.help.contains('\n'),
                "{name}: help is one sentence or more"
            );
            if let Some(unit) = metric.unit {
                assert!(
                    metric.family().ends_with(&format!("_{unit}")),
                    "{name}: the unit stands last"
                );
            }
            let last = metric.family().rsplit('_').next().unwrap_or_default();
            if BASE_UNITS.contains(&last) && !metric.family().ends_with("_bytes_per_second") {
                let per_second = metric.family().ends_with("per_second")
                    || metric.family().ends_with("per_seconds");
                assert!(
                    metric.unit == Some(last) || per_second,
                    "{name}: ends in {last} but names no unit"
                );
            }
            // As promtool's linter requires: the type is on the TYPE line.
            for kind in ["counter", "gauge", "histogram", "summary", "untyped"] {
                assert!(
                    !name.split('_').any(|word| word == kind),
                    "{name}: names its type"
                );
            }
            for label in metric.labels {
                assert!(
                    !["instance", "job", "pod", "le", "quantile", "cluster"].contains(label),
                    "{name}: label {label}"
                );
            }
        }
    }
}
