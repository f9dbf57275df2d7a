//! Switches that count pause frames and no time in pause, as SNMP of most vendors: how often a port pauses another switch, and not
//! for how long.

use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_PFC_FRAMES, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED,
};

use super::{BEYOND_PAUSED, HALTED, OF_HALTED, any_port_is_full, any_port_marks, storm};
use crate::detect::detector::{Evidence, View};
use crate::detect::pause_graph::WINDOW_SECONDS;
use crate::detect::peers::MIN_PEERS;
use crate::detect::port_series::cable_at;
use crate::detect::registry::Threshold;
use crate::store::NodeHistory;

/// Bit times of the longest pause that one frame asks for: 65,535 quanta of 512 (IEEE 802.1Q, PFC).
const LONGEST_PAUSE: f64 = 65_535.0 * 512.0;

/// Share of the time for which so many frames a second of a port of this speed, bytes a second, can pause at most.
pub(in crate::detect::rules) fn longest_share(rate: f64, speed: f64) -> f64 {
    rate * LONGEST_PAUSE / (8.0 * speed)
}

/// The number.
pub(in crate::detect::rules) fn threshold() -> Threshold {
    Threshold::new(
        "longest pause of one frame, where frames are counted and no time",
        LONGEST_PAUSE,
        "bit times",
        "IEEE 802.1Q: 65,535 quanta of 512",
    )
}

/// A port that sends pause frames.
struct Sends<'a> {
    port: &'a str,
    priority: &'a str,
    /// Frames a second.
    rate: f64,
}

/// The only port of a switch that sends as many frames as halting another switch takes, while no port is full or has a queue, and
/// few frames come in. Fewer would not halt it; that as many do is not certain.
pub(super) fn alone(
    view: &View<'_>,
    switch: &SwitchName,
    history: &NodeHistory,
) -> Option<Evidence> {
    let tells_time = history
        .series(&SWITCH_PORT_PFC_PAUSE_SECONDS)
        .next()
        .is_some();
    if tells_time {
        return None;
    }
    let (mut sends, mut received): (Vec<Sends<'_>>, f64) = (Vec::new(), 0.0);
    for (labels, window) in history.moving(&SWITCH_PORT_PFC_FRAMES) {
        let labels: Vec<&str> = labels.values().collect();
        let Some(rise) = window.newest_increase(WINDOW_SECONDS) else {
            continue;
        };
        match labels[..] {
            [port, priority, "transmit"] => sends.push(Sends {
                port,
                priority,
                rate: rise.rate(),
            }),
            _ => received = received.max(rise.rate()),
        }
    }
    let first = sends.iter().max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    let speed = history.value(&SWITCH_PORT_SPEED, &[first.port])?;
    if first.rate < HALTED * 8.0 * speed / LONGEST_PAUSE || BEYOND_PAUSED * received > first.rate {
        return None;
    }
    let near = cable_at(view.fabric, switch, first.port)?;
    let peer = &view.fabric.vertex(near.peer).part;
    let others = sends.iter().filter(|other| other.port != first.port);
    let most = others.map(|other| other.rate).fold(0.0, f64::max);
    let counted = history.series(&SWITCH_PORT_PFC_FRAMES).count();
    let is_alone = most <= OF_HALTED * first.rate && counted >= MIN_PEERS;
    if !matches!(peer, Part::Switch(_))
        || !is_alone
        || any_port_is_full(history, HALTED)?
        || any_port_marks(history) == Some(true)
    {
        return None;
    }
    let statement = format!(
        "Port {} of {switch} has sent {:.0} pause frames a second on priority {} to {peer} for {WINDOW_SECONDS:.0} s, enough to halt it most of the time; no other port has sent more than {most:.0}, the switch has received no more than {received:.0}, and none of its ports is full.",
        first.port, first.rate, first.priority
    );
    let mut evidence = storm(view, view.fabric.cable_part(near.id)?, statement);
    evidence.signal = SWITCH_PORT_PFC_FRAMES.name;
    Some(evidence)
}
