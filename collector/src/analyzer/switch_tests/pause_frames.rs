//! Ports that halt another switch, where pause frames are counted and no time in pause.

use railscope_model::metric::{
    SWITCH_PORT_PFC_FRAMES, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES,
};

use super::{Lab, leaves};
use crate::detect::rules::{pause_circle, slow_receiver};

/// Of `s`: frames a second that port 5, to `b`, and port 2 send, and that port 1 receives; bytes a second that port 1 sends.
struct Does {
    halts: f64,
    other: f64,
    received: f64,
    bytes: f64,
}

const STUCK: Does = Does {
    halts: 20_000.0,
    other: 100.0,
    received: 100.0,
    bytes: 5e9,
};

fn lab_of(does: &Does) -> Lab {
    let mut lab = leaves();
    let ports = ["1", "2", "3", "4", "5"];
    for port in ports {
        lab.add("s", &SWITCH_PORT_SPEED, &[port], 50e9);
    }
    for _ in 0..9 {
        let frames = [
            ("5", "transmit", does.halts),
            ("2", "transmit", does.other),
            ("3", "transmit", 0.0),
            ("1", "receive", does.received),
        ];
        for (port, direction, rate) in frames {
            let labels = [port, "3", direction];
            lab.add("s", &SWITCH_PORT_PFC_FRAMES, &labels, 10.0 * rate);
        }
        for port in ports {
            let bytes = if port == "1" { does.bytes } else { 1e9 };
            lab.add("s", &SWITCH_PORT_TRANSMIT_BYTES, &[port], 10.0 * bytes);
        }
        lab.read();
    }
    lab
}

#[test]
fn a_port_that_alone_sends_as_many_frames_as_halting_a_switch_takes_is_stuck() {
    let told = |does: Does| lab_of(&does).said_by(pause_circle::build);
    assert_eq!(told(STUCK), ["pfc-storm link/b:1"]);
    // At 400 Gb/s one frame pauses for 84 us at most.
    let halts = |halts| told(Does { halts, ..STUCK });
    assert_eq!(halts(6_000.0), ["pfc-storm link/b:1"]);
    assert!(halts(5_900.0).is_empty(), "at most half of the time");
    let other = Does {
        other: 3_000.0,
        ..STUCK
    };
    assert!(told(other).is_empty(), "another, too");
    let passed_on = Does {
        received: 7_000.0,
        ..STUCK
    };
    assert!(told(passed_on).is_empty(), "it passes pause on");
    let full = Does {
        bytes: 30e9,
        ..STUCK
    };
    assert!(told(full).is_empty(), "a port is full");
    let mut timed = lab_of(&STUCK);
    let labels = ["5", "3", "transmit"];
    timed.add("s", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 0.0);
    timed.read();
    assert!(
        timed.said_by(pause_circle::build).is_empty(),
        "time decides"
    );
}

/// What is named of a leaf with four hosts that counts the pause frames that each sends, a second, and whether it counts their time.
fn of_hosts(rates: [f64; 4], counts_time: bool) -> Vec<String> {
    let mut lab = leaves();
    for host in 0..4_u16 {
        lab.host(&format!("n{host}"), ("b", 10 + host));
    }
    for reading in 0..9 {
        for (port, rate) in ["10", "11", "12", "13"].into_iter().zip(rates) {
            let labels = [port, "3", "receive"];
            if reading == 0 {
                lab.add("b", &SWITCH_PORT_SPEED, &[port], 50e9);
            }
            lab.add("b", &SWITCH_PORT_PFC_FRAMES, &labels, 10.0 * rate);
            if counts_time {
                lab.add("b", &SWITCH_PORT_PFC_PAUSE_SECONDS, &labels, 0.0);
            }
        }
        lab.read();
    }
    lab.said_by(slow_receiver::build)
}

#[test]
fn a_nic_is_named_by_the_frames_that_its_switch_counts() {
    let storm = of_hosts([0.0, 15_000.0, 2.0, 0.0], false);
    assert_eq!(storm, ["pfc-storm nic/n1:mlx5_0"]);
    let slow = of_hosts([0.0, 9_000.0, 2.0, 0.0], false);
    assert_eq!(slow, ["slow-receiver nic/n1:mlx5_0"]);
    let all = of_hosts([9_000.0, 15_000.0, 9_000.0, 9_000.0], false);
    assert!(all.is_empty(), "all do: {all:?}");
    let timed = of_hosts([0.0, 15_000.0, 2.0, 0.0], true);
    assert!(timed.is_empty(), "time decides: {timed:?}");
}
