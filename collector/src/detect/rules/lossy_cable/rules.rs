//! The numbers that a loss on a cable is held against.

use super::{
    ABOVE_OWN, ABOVE_PEERS, ABOVE_SURPLUS, BROKEN, MIN_LOST, MIN_PACKETS, MIN_PACKETS_LOST,
    OF_EACH_THIRD, OF_SWITCH, SCALES,
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
    let readings = "a reading's error shows on every cable, a loss on one (docs/detectors.md)";
    vec![
        Threshold::new(
            "share of its packets that a cable loses",
            MIN_LOST,
            "ratio",
            "go-back-N at 400 Gb/s costs a quarter of a percent at it (detection method, section 3.5)",
        ),
        Threshold::new(
            "fewest lost packets",
            MIN_PACKETS_LOST,
            "packets",
            "fewer are a moment's difference between readings (a choice)",
        ),
        Threshold::new(
            "fewest packets in a third of the time",
            MIN_PACKETS,
            "packets",
            "keep-alives say nothing (a choice)",
        ),
        Threshold::new(
            "above the largest surplus of any cable",
            ABOVE_SURPLUS,
            "times",
            "of a hundred normal errors the largest is 2.5 standard deviations",
        ),
        Threshold::new(
            "above the error of the cable's own readings",
            ABOVE_OWN,
            "standard deviations",
            readings,
        ),
    ]
}

fn of_time_and_place() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of the cables whose surplus is left out",
            BROKEN,
            "ratio",
            "their counters may be broken (a choice)",
        ),
        Threshold::new(
            "least of the loss that each third of the time shows",
            OF_EACH_THIRD,
            "ratio",
            "a step in a counter is in one third only (a choice)",
        ),
        Threshold::new(
            "above the median cable",
            ABOVE_PEERS,
            "times",
            "what every cable seems to lose its ends count differently (a choice)",
        ),
        Threshold::new(
            "shortest time that is looked at",
            3.0 * SCALES[0] as f64,
            "readings",
            "one in each third",
        ),
        Threshold::new(
            "longest time that is looked at",
            3.0 * SCALES[SCALES.len() - 1] as f64,
            "readings",
            "the readings that are kept",
        ),
        Threshold::new(
            "share of a switch's cables from which it is the switch",
            OF_SWITCH.0,
            "ratio",
            "a choice",
        ),
        Threshold::new(
            "fewest cables from which it is the switch",
            OF_SWITCH.1 as f64,
            "cables",
            "a choice",
        ),
    ]
}
