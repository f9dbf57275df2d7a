//! Means over causes: each cause alike, and weighted by how often such causes were seen in the field.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::columns;
use super::score::FaultScore;

/// A published year of 400 servers with 584 faults: the number of each kind that is given.
const FIELD: [(&str, f64); 7] = [
    ("GPU", 158.0),
    ("cable, link down", 40.0),
    ("fan", 33.0),
    ("NIC", 30.0),
    ("PSU", 26.0),
    ("software", 24.0),
    ("other", 262.0),
];

/// The kind in the field of a cause of the simulator.
fn kind(cause: &str) -> &'static str {
    match cause {
        "gpu-slow" | "gpu-lost" | "gpu-memory" | "gpu-power-cap" | "nvlink-down" => "GPU",
        "port-down" | "port-flapping" | "uplink-down" => "cable, link down",
        // What a node without a fan shows.
        "gpu-thermal" => "fan",
        "pcie-degraded" | "pcie-errors" | "pfc-storm" => "NIC",
        // What a node with a weak power supply shows.
        "gpu-power-brake" => "PSU",
        "numa-affinity" | "pcie-redirected" | "switch-qos" | "ecmp-polarized" | "host-stalls" => {
            "software"
        }
        _ => "other",
    }
}

/// A mean over causes; none without cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Mean {
    /// Each cause alike.
    pub(super) alike: Option<f64>,
    /// Weighted by the field.
    pub(super) weighted: Option<f64>,
    /// Share of the field's faults whose kind has cases.
    pub(super) covered: f64,
    /// Number of causes with cases.
    pub(super) causes: usize,
    /// Number of cases.
    pub(super) cases: usize,
}

/// Means over causes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Means {
    recall: Mean,
    top1: Mean,
    class: Mean,
}

impl Mean {
    fn of(shares: &[(&str, f64, usize)]) -> Self {
        let mean = |values: &[f64]| {
            let sum: f64 = values.iter().sum();
            (!values.is_empty()).then(|| sum / values.len() as f64)
        };
        let values: Vec<_> = shares.iter().map(|(_, value, _)| *value).collect();
        let of_kind = |wanted: &str| {
            let of_it = shares.iter().filter(|(cause, ..)| kind(cause) == wanted);
            mean(&of_it.map(|(_, value, _)| *value).collect::<Vec<_>>())
        };
        let seen = FIELD
            .iter()
            .filter_map(|(kind, count)| Some((of_kind(kind)?, *count)));
        let seen: Vec<_> = seen.collect();
        let count: f64 = seen.iter().map(|(_, count)| count).sum();
        let all: f64 = FIELD.iter().map(|(_, count)| count).sum();
        let weighted: f64 = seen.iter().map(|(value, count)| value * count).sum();
        Self {
            alike: mean(&values),
            weighted: (count > 0.0).then(|| weighted / count),
            covered: count / all,
            causes: shares.len(),
            cases: shares.iter().map(|(.., of)| of).sum(),
        }
    }
}

impl Means {
    /// Of the scores by cause.
    pub(super) fn of(by_cause: &BTreeMap<&'static str, FaultScore>) -> Self {
        let mean = |share: &dyn Fn(&FaultScore) -> super::statistics::Ratio| {
            let shares = by_cause.iter().filter_map(|(cause, score)| {
                let ratio = share(score);
                Some((*cause, ratio.value()?, ratio.of))
            });
            Mean::of(&shares.collect::<Vec<_>>())
        };
        Self {
            recall: mean(&|score| score.recall),
            top1: mean(&|score| score.top1),
            class: mean(&|score| score.class),
        }
    }

    /// A table with its heading.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![columns(&[
            "mean over causes",
            "unweighted",
            "weighted by field frequency",
            "causes",
            "cases",
        ])];
        let shown =
            |value: Option<f64>| value.map_or_else(|| String::from("-"), |one| format!("{one:.3}"));
        for (name, mean) in [
            ("recall", self.recall),
            ("top-1", self.top1),
            ("class", self.class),
        ] {
            let covered = 100.0 * mean.covered;
            rows.push(vec![
                name.to_owned(),
                shown(mean.alike),
                format!("{} ({covered:.0} % of field faults)", shown(mean.weighted)),
                mean.causes.to_string(),
                mean.cases.to_string(),
            ]);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use railscope_simulator::examples;

    use super::*;

    #[test]
    fn a_kind_counts_as_often_as_in_the_field() {
        let mean = Mean::of(&[
            ("gpu-slow", 0.0, 4),
            ("gpu-lost", 1.0, 4),
            ("port-down", 1.0, 2),
        ]);
        assert_eq!(mean.alike, Some(2.0 / 3.0));
        assert_eq!(mean.weighted, Some((0.5 * 158.0 + 40.0) / 198.0));
        assert_eq!((mean.causes, mean.cases), (3, 10));
        assert!((mean.covered - 198.0 / 573.0).abs() < 1e-12);
        let none = Mean::of(&[]);
        assert_eq!((none.alike, none.weighted, none.covered), (None, None, 0.0));
    }

    #[test]
    fn every_kind_of_the_field_has_a_cause() {
        for (wanted, _) in FIELD {
            let has_one = examples::CAUSES.iter().any(|cause| kind(cause) == wanted);
            assert!(has_one, "{wanted}");
        }
    }
}
