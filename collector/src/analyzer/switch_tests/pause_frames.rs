//! Ports that halt another switch, where pause frames are counted and no time in pause.

use railscope_model::metric::{
    SWITCH_PORT_PFC_FRAMES, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES,
};

use super::{Lab, leaves};
use crate::detect::rules::pause_circle;

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
