//! What every detector checks, with its thresholds, whether it has seen something or not: the same for API, command line and docs.

use railscope_model::metric::{Kind, Metric};

use super::detector::{DETECTORS, Detector, Explanation};
use crate::classes::{Class, FABRIC_STORM, HOST_DOWN, SWITCH_DOWN};
use crate::diagnose::stages::lost_links::{
    ANSWERING_PARENT_SHARE, FLAP_TOGETHER_SECONDS, PARENT_MIN_CHILDREN, PARENT_SHARE,
    SILENT_HOST_MIN_CHILDREN,
};
use crate::diagnose::stages::mass_link_loss::{STILL_A_STORM, STORM_CABLES};

/// What a threshold limits that is a share of the time in pause.
pub const SHARE_IN_PAUSE: &str = "share of the time in pause";

/// A threshold of a detector.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// What it limits, in a few words.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit: `s`, `1/s`, `ratio`, `times`, or of what it is a count.
    pub unit: &'static str,
    /// Where the number comes from.
    pub source: &'static str,
}

impl Threshold {
    /// A threshold.
    pub fn new(
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self {
            what: what.into(),
            value,
            unit,
            source,
        }
    }

    /// The number as a limit of a counter's rate per second, if it is one.
    fn of_rate(&self, metric: &Metric) -> Option<f64> {
        let is_share = metric.unit == Some("seconds") && self.what == SHARE_IN_PAUSE;
        match self.unit {
            "1/h" => Some(self.value / 3600.0),
            _ => is_share.then_some(self.value),
        }
    }
}

/// The limit of a counter's rate by the rule of a class and a signal, where the rule has exactly one.
pub(crate) fn limit_of_rate(
    rules: &[Rule],
    (class, signal): (&Class, &str),
    metric: &Metric,
) -> Option<f64> {
    let is_of = |rule: &&Rule| rule.class == class && ["", signal].contains(&rule.signal);
    let rule = rules.iter().find(is_of)?;
    let limits = rule.thresholds.iter();
    let mut limits = limits.filter_map(|threshold| threshold.of_rate(metric));
    let limit = limits.next().filter(|_| metric.kind == Kind::Counter);
    limit.filter(|_| limits.next().is_none())
}

/// One class that a detector names, by one signal.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The class.
    pub class: &'static Class,
    /// The signal of its evidence where the explanation depends on it; else nothing.
    pub signal: &'static str,
    /// Its parameters.
    pub thresholds: Vec<Threshold>,
}

impl Rule {
    /// A rule whose explanation depends on its class alone.
    pub fn new(class: &'static Class, thresholds: Vec<Threshold>) -> Self {
        Self {
            class,
            signal: "",
            thresholds,
        }
    }
}

/// A rule with its owner and its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// The detector, or the step of the root cause.
    pub detector: &'static str,
    /// The rule.
    pub rule: Rule,
    /// What is checked, the threshold as text, what would clear it.
    pub explanation: Explanation,
}

/// Detector name of findings that come from the root-cause analysis: one cause of many findings.
pub const ROOT_CAUSE: &str = "root-cause";

/// Every rule of every detector, in the order of [`DETECTORS`], then those of the root cause.
pub fn describe() -> Vec<Described> {
    let detectors: Vec<Box<dyn Detector>> = DETECTORS.iter().map(|build| build()).collect();
    let of_detectors = detectors.iter().flat_map(|detector| {
        detector.rules().into_iter().map(|rule| Described {
            detector: detector.name(),
            explanation: detector.explain(rule.class, rule.signal),
            rule,
        })
    });
    of_detectors.chain(of_root_cause()).collect()
}

fn fewest_cables() -> Threshold {
    Threshold::new(
        "minimum number of cables that are down",
        PARENT_MIN_CHILDREN as f64,
        "cables",
        "one is a cable fault, and two can be a card fault (a choice)",
    )
}

/// When a switch is what is lost.
fn of_switch() -> Vec<Threshold> {
    vec![
        fewest_cables(),
        Threshold::new(
            "share of the switch's cables",
            PARENT_SHARE,
            "ratio",
            "fewer can be separate cable faults (a choice)",
        ),
        Threshold::new(
            "the same of a switch whose ports are still reported, where most of these cables are down and do not flap",
            ANSWERING_PARENT_SHARE,
            "ratio",
            "it is not down as a whole (a choice)",
        ),
        Threshold::new(
            "time for which a flapping cable counts",
            FLAP_TOGETHER_SECONDS,
            "s",
            "links of one switch flap together (a choice)",
        ),
    ]
}

/// What becomes of many lost cables.
fn of_root_cause() -> Vec<Described> {
    let of = |class, check, thresholds, clears| Described {
        detector: ROOT_CAUSE,
        explanation: Explanation {
            check,
            threshold: String::from(
                "see the numbers; docs/incidents.md explains which of the two ends is reported",
            ),
            clears,
        },
        rule: Rule::new(class, thresholds),
    };
    vec![
        of(
            &FABRIC_STORM,
            "Cables of many switches or hosts went down within two analysis cycles.",
            vec![
                Threshold::new(
                    "cables that go down at once",
                    STORM_CABLES as f64,
                    "cables",
                    "fewer can be separate faults (a choice)",
                ),
                Threshold::new(
                    "cables that must still be down for it to stay open",
                    STILL_A_STORM as f64,
                    "cables",
                    "half of the initial number, so that it does not flap (a choice)",
                ),
            ],
            "Fewer than half of the cables that make a storm are still down.",
        ),
        of(
            &SWITCH_DOWN,
            "A large share of a switch's cables is down.",
            of_switch(),
            "Its cables are up again.",
        ),
        of(
            &HOST_DOWN,
            "All cables of a host are down.",
            vec![
                fewest_cables(),
                Threshold::new(
                    "the same for a host whose exporter no longer responds",
                    SILENT_HOST_MIN_CHILDREN as f64,
                    "cables",
                    "a failed card leaves the host alive (a choice)",
                ),
                Threshold::new(
                    "share of the host's cables",
                    1.0,
                    "ratio",
                    "only some of several rails means several faults, or a card fault (a choice)",
                ),
            ],
            "Its cables are up again.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::classes::CLASSES;

    #[test]
    fn every_class_is_explained_and_every_threshold_has_a_source() {
        let all = describe();
        let named: BTreeSet<&str> = all.iter().map(|one| one.rule.class.name).collect();
        let known: BTreeSet<&str> = CLASSES.iter().map(|class| class.name).collect();
        assert_eq!(named, known);
        let names: BTreeSet<&str> = all.iter().map(|one| one.detector).collect();
        assert_eq!(names.len(), DETECTORS.len() + 1, "and the root cause");
        let keys: BTreeSet<_> = all
            .iter()
            .map(|one| (one.detector, one.rule.class.name, one.rule.signal))
            .collect();
        assert_eq!(keys.len(), all.len(), "none is explained as another");
        for one in &all {
            let Explanation {
                check,
                threshold,
                clears,
            } = &one.explanation;
            for said in [check, threshold.as_str(), clears] {
                assert!(!said.is_empty(), "{one:?}");
            }
            for threshold in &one.rule.thresholds {
                assert!(threshold.value.is_finite(), "{one:?}");
                let words = [&*threshold.what, threshold.unit, threshold.source];
                assert!(words.iter().all(|word| !word.is_empty()), "{threshold:?}");
            }
        }
    }
}
