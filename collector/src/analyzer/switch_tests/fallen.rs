//! Ports that go down at switches whose cables no source reports.

use railscope_model::metric::{
    SWITCH_PORT_ENABLED, SWITCH_PORT_RECEIVE_BYTES, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_UP,
};

use crate::analyzer::switch_tests::Lab;
use crate::detect::rules::degraded_link;

/// A port, the round in which it goes down, and the bytes that it sends and receives in ten seconds.
type Fall = (&'static str, &'static str, u32, [f64; 2]);

const MANY: f64 = 2e11;
const FEW: f64 = 5e10;
const OF_LEAF: Fall = ("leaf", "Eth1/31", 12, [MANY, FEW]);
const OF_SPINE: Fall = ("spine", "Eth1/3", 12, [FEW, MANY]);

fn named(falls: &[Fall]) -> Vec<String> {
    named_where(falls, true)
}

/// What is named where the ports go down, and the first of them stays enabled or not.
fn named_where(falls: &[Fall], is_enabled: bool) -> Vec<String> {
    let mut lab = Lab::default();
    for round in 0..19 {
        for (number, (switch, port, begin, [sent, received])) in falls.iter().enumerate() {
            let is_up = round < *begin;
            let up = match round {
                0 => 1.0,
                _ if round == *begin => -1.0,
                _ => 0.0,
            };
            lab.add(switch, &SWITCH_PORT_UP, &[port], up);
            let disabled = number == 0 && !is_enabled && round == *begin;
            let enabled = f64::from(u8::from(round == 0)) - f64::from(u8::from(disabled));
            lab.add(switch, &SWITCH_PORT_ENABLED, &[port], enabled);
            for (metric, bytes) in [
                (&SWITCH_PORT_TRANSMIT_BYTES, sent),
                (&SWITCH_PORT_RECEIVE_BYTES, received),
            ] {
                lab.add(switch, metric, &[port], if is_up { *bytes } else { 0.0 });
            }
        }
        lab.read();
    }
    lab.said_by(degraded_link::build)
}

#[test]
fn two_ports_that_go_down_together_have_a_cable_if_each_received_what_the_other_sent() {
    assert_eq!(
        named(&[OF_LEAF, OF_SPINE]),
        ["uplink-down link/leaf[Eth1/31]"]
    );
    let none: [(&[Fall], &str); 6] = [
        (&[OF_LEAF], "a host may have been switched off"),
        (
            &[OF_LEAF, ("spine", "Eth1/3", 14, [FEW, MANY])],
            "at another time",
        ),
        (
            &[OF_LEAF, ("spine", "Eth1/3", 12, [MANY, FEW])],
            "both sent more",
        ),
        (
            &[
                ("leaf", "Eth1/31", 12, [1e6, 1e6]),
                ("spine", "Eth1/3", 12, [1e6, 1e6]),
            ],
            "idle ports",
        ),
        (
            &[OF_LEAF, OF_SPINE, ("spine", "Eth1/4", 12, [FEW, MANY])],
            "which of two is not known",
        ),
        (
            &[OF_LEAF, OF_SPINE, ("other", "Eth1/9", 12, [1e6, 1e6])],
            "a switch or a host between them failed",
        ),
    ];
    for (falls, why) in none {
        assert_eq!(named(falls), Vec::<String>::new(), "{why}");
    }
    let disabled = named_where(&[OF_LEAF, OF_SPINE], false);
    assert_eq!(disabled, Vec::<String>::new(), "by its operator");
}
