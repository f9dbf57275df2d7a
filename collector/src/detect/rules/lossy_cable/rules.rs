//! The numbers that a loss on a cable is compared with.

use super::{
    ABOVE_OWN, ABOVE_PEERS, ABOVE_SUM, ABOVE_SURPLUS, BEYOND, BROKEN, COMPENSATE, GAP, MIN_LOST,
    MIN_PACKETS, MIN_PACKETS_LOST, OF_EACH_THIRD, OF_SWITCH, SCALES,
};
use crate::classes::{LINK_ERRORS, UPLINK_LOSSY};
use crate::detect::registry::{Rule, Threshold};

/// Both classes are named by the same numbers; what is counted as broken is an error of the link.
pub(super) fn rules() -> Vec<Rule> {
    [&UPLINK_LOSSY, &LINK_ERRORS]
        .into_iter()
        .map(|class| Rule::new(class, thresholds()))
        .collect()
}

fn thresholds() -> Vec<Threshold> {
    [of_a_loss(), of_time_and_place()].concat()
}

fn of_a_loss() -> Vec<Threshold> {
    let readings = "a reading error shows on every cable, a loss on one (docs/detectors.md)";
    vec![
        Threshold::new(
            "share of its packets that a cable loses",
            MIN_LOST,
            "ratio",
            "at this loss, go-back-N at 400 Gb/s costs 0.25 %",
        ),
        Threshold::new(
            "minimum number of lost packets",
            MIN_PACKETS_LOST,
            "packets",
            "fewer can be a time offset between readings (a choice)",
        ),
        Threshold::new(
            "minimum number of packets in each third of the time",
            MIN_PACKETS,
            "packets",
            "keep-alives alone are no evidence (a choice)",
        ),
        Threshold::new(
            "step between two readings, compared with the mean one, within which nothing is known",
            GAP,
            "times",
            "traffic may begin or end while a reading is missing (a choice)",
        ),
        Threshold::new(
            "above the largest surplus of any cable",
            ABOVE_SURPLUS,
            "times",
            "the largest of 300 normally distributed errors is three standard deviations",
        ),
        Threshold::new(
            "which is, also where there are fewer cables",
            BEYOND,
            "standard deviations",
            "many cables are compared at each of many moments (a choice)",
        ),
        Threshold::new(
            "above the error of the cable's own readings",
            ABOVE_OWN,
            "standard deviations",
            readings,
        ),
        Threshold::new(
            "the same, of the sum, where successive errors do not compensate",
            ABOVE_SUM,
            "standard deviations",
            "counters that are updated late add independent errors (a choice)",
        ),
        Threshold::new(
            "correlation of successive differences from which they do",
            COMPENSATE,
            "1",
            "half way between errors of readings, -0.5, and independent ones, 0",
        ),
    ]
}

fn of_time_and_place() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of the cables whose surplus is ignored",
            BROKEN,
            "ratio",
            "their counters may be broken (a choice)",
        ),
        Threshold::new(
            "minimum share of the loss in each third of the time",
            OF_EACH_THIRD,
            "ratio",
            "a jump of a counter is in one third only (a choice)",
        ),
        Threshold::new(
            "above the median cable",
            ABOVE_PEERS,
            "times",
            "an equal loss on every cable means that its ends count differently (a choice)",
        ),
        Threshold::new(
            "shortest observed time",
            3.0 * SCALES[0] as f64,
            "readings",
            "one reading in each third",
        ),
        Threshold::new(
            "longest observed time",
            3.0 * SCALES[SCALES.len() - 1] as f64,
            "readings",
            "the number of stored readings",
        ),
        Threshold::new(
            "share of a switch's cables from which the switch is reported",
            OF_SWITCH.0,
            "ratio",
            "a choice",
        ),
        Threshold::new(
            "minimum number of cables from which the switch is reported",
            OF_SWITCH.1 as f64,
            "cables",
            "a choice",
        ),
    ]
}
