//! Packets that a leaf drops at its ports to hosts.

use railscope_model::metric::{
    SWITCH_PORT_DISCARDS, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES,
};

use crate::analyzer::switch_tests::Lab;
use crate::detect::rules::switch_ports;

/// Bytes a second of a port of 400 Gb/s.
const SPEED: f64 = 5e10;
const ROUNDS: u32 = 20;
/// In the last minute.
const LATELY: std::ops::Range<u32> = 13..20;

/// What is named of a leaf with ten hosts. `drops`: packets a second of a host's port in a round. Each sends this share of its speed,
/// and the first is paused for a share of the time.
fn named(drops: impl Fn(u16, u32) -> f64, sent: f64, paused: f64) -> Vec<String> {
    let mut lab = Lab::default();
    for port in 1..=10 {
        lab.host(&format!("n{port}"), ("leaf", port));
    }
    for round in 0..ROUNDS {
        for port in 1..=10 {
            let name = port.to_string();
            let mut add =
                |metric, labels: &[&str], value: f64| lab.add("leaf", metric, labels, value);
            if round == 0 {
                add(&SWITCH_PORT_SPEED, &[&name], SPEED);
            }
            let dropped = 10.0 * drops(port, round);
            add(&SWITCH_PORT_DISCARDS, &[&name, "transmit"], dropped);
            add(&SWITCH_PORT_TRANSMIT_BYTES, &[&name], 10.0 * sent * SPEED);
            let seconds = if port == 1 { 10.0 * paused } else { 0.0 };
            add(
                &SWITCH_PORT_PFC_PAUSE_SECONDS,
                &[&name, "3", "receive"],
                seconds,
            );
        }
        lab.read();
    }
    let said = lab.said_by(switch_ports::build);
    said.into_iter()
        .filter(|one| one.starts_with("edge-lossy"))
        .collect()
}

#[test]
fn a_port_to_a_host_that_drops_alone_although_it_could_send_more_is_named() {
    let one = |port, round| f64::from(u8::from(port == 1 && LATELY.contains(&round))) * 3_000.0;
    assert_eq!(named(one, 0.15, 0.0), ["edge-lossy link/n1:mlx5_0/1"]);
    assert_eq!(
        named(one, 0.15, 0.2),
        Vec::<String>::new(),
        "its NIC pauses it"
    );
    assert_eq!(named(one, 0.9, 0.0), Vec::<String>::new(), "it is full");
    let few = |port, round| one(port, round) / 1_000.0;
    assert_eq!(named(few, 0.15, 0.0), Vec::<String>::new(), "a small share");
    let always = |port, _| one(port, ROUNDS - 1);
    assert_eq!(named(always, 0.15, 0.0), Vec::<String>::new(), "as before");
    let burst = |port, round| if round < 16 { one(port, round) } else { 0.0 };
    assert_eq!(named(burst, 0.15, 0.0), Vec::<String>::new(), "a burst");
    let several = |port: u16, round| one(if port < 5 { 1 } else { port }, round);
    assert_eq!(
        named(several, 0.15, 0.0),
        Vec::<String>::new(),
        "at several ports"
    );
}
