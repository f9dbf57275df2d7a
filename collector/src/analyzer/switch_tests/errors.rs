//! Errors that switches count on the cables between them.

use railscope_model::metric::SWITCH_PORT_ERRORS;

use crate::analyzer::switch_tests::Lab;
use crate::detect::rules::error_counters;

const LEAVES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What is named where these leaves count symbol errors on their port to the first of two spines.
fn named(leaves: &[&str]) -> Vec<String> {
    let mut lab = Lab::default();
    for (place, leaf) in (1..).zip(LEAVES) {
        lab.cable((leaf, 1), ("first", place));
        lab.cable((leaf, 2), ("second", place));
    }
    for _ in 0..12 {
        for (place, leaf) in LEAVES.iter().enumerate() {
            for port in ["1", "2"] {
                let is_bad = port == "1" && leaves.contains(leaf);
                let errors = if is_bad { 500.0 } else { 0.0 };
                lab.add(leaf, &SWITCH_PORT_ERRORS, &[port, "symbol_error"], errors);
                // Both ends count.
                let (spine, far) = ("first", (place + 1).to_string());
                if port == "1" {
                    let errors = 0.9 * errors;
                    lab.add(spine, &SWITCH_PORT_ERRORS, &[&far, "symbol_error"], errors);
                }
            }
        }
        lab.read();
    }
    lab.said_by(error_counters::build)
}

/// Two switches with four cables between them, all with errors: which of the two has failed is not known.
#[test]
fn errors_on_all_cables_between_two_switches_are_of_the_cables() {
    let mut lab = Lab::default();
    for port in 1..=4 {
        lab.cable(("a", port), ("b", port));
        lab.cable(("c", port), ("d", port));
    }
    for _ in 0..12 {
        for switch in ["a", "c"] {
            for port in ["1", "2", "3", "4"] {
                let errors = if switch == "a" { 500.0 } else { 0.0 };
                lab.add(switch, &SWITCH_PORT_ERRORS, &[port, "symbol_error"], errors);
            }
        }
        for port in ["1", "2", "3", "4"] {
            lab.add("d", &SWITCH_PORT_ERRORS, &[port, "symbol_error"], 0.0);
        }
        lab.read();
    }
    assert_eq!(lab.said_by(error_counters::build).len(), 4);
}

#[test]
fn errors_on_most_cables_of_a_switch_are_its_own() {
    assert_eq!(named(&["a", "b", "d"]), ["link-errors switch/first"]);
    assert_eq!(
        named(&["a", "b"]),
        ["link-errors link/a:1", "link-errors link/b:1"]
    );
}
