//! Cables between switches whose links go down repeatedly.

use railscope_model::metric::{SWITCH_PORT_LINK_DOWNED, SWITCH_PORT_UP};

use super::leaves;
use crate::detect::rules::flapping_port;

/// What is named after ten readings, in which port 1 of `a` is down in these, and its other end counts losses in those.
fn named(down: &[usize], counted: &[usize]) -> Vec<String> {
    let mut lab = leaves();
    let ends = [("a", "1"), ("s", "1"), ("b", "2")];
    for (switch, port) in ends {
        lab.add(switch, &SWITCH_PORT_UP, &[port], 1.0);
        lab.add(switch, &SWITCH_PORT_LINK_DOWNED, &[port], 4.0);
    }
    for reading in 0..10 {
        let is_down = |reading| down.contains(&reading);
        let was_down = reading > 0 && is_down(reading - 1);
        let change = f64::from(was_down) - f64::from(is_down(reading));
        lab.add("a", &SWITCH_PORT_UP, &["1"], change);
        let losses = f64::from(counted.contains(&reading));
        lab.add("s", &SWITCH_PORT_LINK_DOWNED, &["1"], 2.0 * losses);
        lab.read();
    }
    lab.said_by(flapping_port::build)
}

#[test]
fn a_cable_between_switches_that_goes_down_twice_flaps_by_either_end() {
    let flaps = ["port-flapping link/a:1"];
    assert_eq!(named(&[3, 6, 7], &[]), flaps);
    assert_eq!(named(&[], &[3, 6]), flaps);
    assert_eq!(named(&[3, 6], &[3, 6]), flaps, "once");
    assert!(named(&[3, 4, 5], &[]).is_empty(), "moved");
    assert!(named(&[], &[3]).is_empty(), "it bounced");
}
