//! What is in every node's exposition alike: names of metrics, and label values that nodes share.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use railscope_model::metric::{
    CATALOGUE, GPU_NVLINK_PEAK_RECEIVE, GPU_NVLINK_PEAK_TRANSMIT, GPU_PCIE_ERRORS,
    GPU_PCIE_LANE_ERRORS, GPU_POWER_LIMIT_RANGE, GPU_PROCESSES, GPU_STATISTIC_SOURCE,
    GPU_TEMPERATURE_LIMIT, HistogramPart, Kind, Metric, NVLINK_ERRORS, NVLINK_PEER,
    NVLINK_RECEIVE_BYTES, NVLINK_SPEED, NVLINK_STATE, NVLINK_TRANSMIT_BYTES, NVML_CALL_SECONDS,
    NVML_CALLS, SOURCE_DURATION, SOURCE_ERRORS, SOURCE_READS, Writer,
};
use railscope_model::reading::Labels;

use crate::store::column::SharedKeys;
use crate::store::page_cache::Templates;

/// Series that no detector reads, of which a node has dozens or hundreds: half of its full-profile
/// scrape. They are for Prometheus and for people, and are counted but ignored. A detector that
/// needs one removes it here.
static UNREAD: &[&Metric] = &[
    &GPU_NVLINK_PEAK_RECEIVE,
    &GPU_NVLINK_PEAK_TRANSMIT,
    &GPU_PCIE_ERRORS,
    &GPU_PCIE_LANE_ERRORS,
    &GPU_POWER_LIMIT_RANGE,
    &GPU_PROCESSES,
    &GPU_STATISTIC_SOURCE,
    &GPU_TEMPERATURE_LIMIT,
    &NVLINK_ERRORS,
    &NVLINK_PEER,
    &NVLINK_RECEIVE_BYTES,
    &NVLINK_SPEED,
    &NVLINK_STATE,
    &NVLINK_TRANSMIT_BYTES,
    &NVML_CALLS,
    &NVML_CALL_SECONDS,
    &SOURCE_DURATION,
    &SOURCE_ERRORS,
    &SOURCE_READS,
];
/// Sets of label values that are shared. A fabric of equal nodes has some thousands; beyond it each node
/// keeps its own.
const MOST_SHARED: usize = 100_000;

/// What a series of an exposition is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Meaning {
    /// A series of this metric, or a part of a histogram.
    Kept(&'static Metric, Option<HistogramPart>),
    /// One that nothing here reads.
    Unread,
    /// Not in the catalogue, or not written by any exporter.
    Unknown,
}

/// Meanings by the name of a series. Most scrapes are of our own exporter, and hold nearly all of
/// them.
static MEANINGS: LazyLock<HashMap<String, Meaning, foldhash::fast::FixedState>> =
    LazyLock::new(|| {
        let written = CATALOGUE.iter().copied();
        let written = written.filter(|metric| metric.writer == Writer::Exporter);
        let names = |metric: &'static Metric| -> Vec<(String, Meaning)> {
            if is_unread(metric) {
                return vec![(metric.name.to_owned(), Meaning::Unread)];
            }
            let whole = (metric.name.to_owned(), Meaning::Kept(metric, None));
            let parts = HistogramPart::SUFFIXES
                .into_iter()
                .filter(|_| metric.kind == Kind::Histogram)
                .map(|(suffix, part)| {
                    let name = format!("{}{suffix}", metric.name);
                    (name, Meaning::Kept(metric, Some(part)))
                });
            parts.chain([whole]).collect()
        };
        written.flat_map(names).collect()
    });

/// What a series of this name is.
pub(super) fn meaning(name: &str) -> Meaning {
    MEANINGS.get(name).copied().unwrap_or(Meaning::Unknown)
}

/// Whether series of the metric are ignored.
pub(super) fn is_unread(metric: &Metric) -> bool {
    UNREAD.iter().any(|unread| unread.index == metric.index)
}

/// Label values that many nodes have alike, kept once: a cluster has millions of series, and most nodes'
/// ports have the same names.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared {
    labels: Arc<Mutex<BTreeSet<Labels>>>,
    templates: Templates,
    keys: SharedKeys,
}

impl Shared {
    /// These label values, as another node has them if one does.
    pub(super) fn of(&self, metric: &Metric, labels: Labels) -> Labels {
        // What a thing is differs from node to node.
        if metric.kind == Kind::Info {
            return labels;
        }
        let mut known = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&labels) {
            return known.clone();
        }
        if known.len() < MOST_SHARED {
            known.insert(labels.clone());
        }
        labels
    }

    pub(super) const fn templates(&self) -> &Templates {
        &self.templates
    }

    pub(super) const fn keys(&self) -> &SharedKeys {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::{GPU, GPU_POWER};

    #[test]
    fn equal_labels_of_two_nodes_are_kept_once_but_not_those_that_say_what_a_thing_is() {
        let shared = Shared::default();
        let of = |metric| shared.of(metric, Labels::new(["0"]));
        let same = |a: &Labels, b: &Labels| {
            let at = |labels: &Labels| labels.values().next().map(str::as_ptr);
            at(a) == at(b)
        };
        assert!(same(&of(&GPU_POWER), &of(&GPU_POWER)));
        assert!(!same(&of(&GPU), &of(&GPU)));
    }

    #[test]
    fn a_name_means_its_row_its_part_or_nothing() {
        assert_eq!(meaning(GPU_POWER.name), Meaning::Kept(&GPU_POWER, None));
        assert_eq!(meaning(NVML_CALLS.name), Meaning::Unread);
        for unknown in ["node_load1", "railscope_tick_duration_seconds", ""] {
            assert_eq!(meaning(unknown), Meaning::Unknown, "{unknown}");
        }
    }
}
