//! Cables of a switch that are lost at once.

use super::{Lab, leaves};
use crate::classes::{Class, PORT_DOWN, PORT_FLAPPING};
use crate::detect::found::found;
use crate::diagnose::incident::group;
use crate::stages::LeftOut;

/// What is named where so many of eight hosts at a leaf lose their link, and the leaf's ports are still reported or not.
fn named(class: &'static Class, lost: u16, answers: Option<bool>) -> Vec<String> {
    let mut lab: Lab = leaves();
    for host in 0..8 {
        lab.host(&format!("n{host}"), ("a", 10 + host));
    }
    let down = |host| found("port-state", class, &format!("link/n{host}:mlx5_0/1"), &[]);
    let groups = group(
        &lab.fabric,
        (0..lost).map(down).collect(),
        &Default::default(),
        |_| answers,
        LeftOut::default(),
    );
    groups.keys().map(ToString::to_string).collect()
}

#[test]
fn a_switch_that_answers_is_down_only_where_half_of_its_cables_are() {
    assert_eq!(named(&PORT_DOWN, 4, None), ["switch/a"]);
    assert_eq!(named(&PORT_DOWN, 4, Some(false)), ["switch/a"]);
    assert_eq!(named(&PORT_DOWN, 4, Some(true)).len(), 4);
    assert_eq!(named(&PORT_DOWN, 8, Some(true)), ["switch/a"]);
    // It answers while its cables flap.
    assert_eq!(named(&PORT_FLAPPING, 4, Some(true)), ["switch/a"]);
}
