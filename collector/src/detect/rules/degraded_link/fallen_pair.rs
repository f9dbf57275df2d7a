//! Cables between switches that no source reports: the only two ports that went down at a time, each of which had received what the
//! other sent. A switch or a host that fails takes more ports with it, or one.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;
use railscope_model::metric::{
    NIC_CARRIER, RDMA_PORT_UP, SWITCH_PORT_ENABLED, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_UP,
};

use super::{DOWN_KEPT_SECONDS, are_alike, evidence};
use crate::classes::UPLINK_DOWN;
use crate::detect::detector::{Evidence, View};
use crate::detect::port_series::{cable_at, link_at};
use crate::detect::registry::Threshold;
use crate::store::{NodeHistory, Window};

/// Bytes a second that both directions carried: keep-alives of two idle ports are alike, too.
const BUSY: f64 = 1e7;
/// Smallest of the two rates of one direction, as a share of the largest: switches are read at different times.
const ALIKE: f64 = 0.8;
/// For how long rates are averaged at least.
const SPAN_SECONDS: f64 = 30.0;

/// A host's exporter ends when the host begins to shut down, its links when it ends.
const SHUTDOWN_SECONDS: f64 = 60.0;

/// Most ports that are compared: where more go down, more than a cable has failed.
const MOST: usize = 64;

/// These as thresholds.
pub(super) fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "bytes per second in each direction of two ports that go down together",
            BUSY,
            "bytes/s",
            "idle ports are alike, too (a choice)",
        ),
        Threshold::new(
            "what one of them receives, compared with what the other sends",
            ALIKE,
            "ratio",
            "the switches are read at different times (a choice)",
        ),
        Threshold::new(
            "over at least",
            SPAN_SECONDS,
            "s",
            "one reading may be off (a choice)",
        ),
        Threshold::new(
            "time from the last report of a host to the loss of its ports, at most",
            SHUTDOWN_SECONDS,
            "s",
            "its exporter ends when it begins to shut down (a choice)",
        ),
        Threshold::new(
            "ports that are compared at most",
            MOST as f64,
            "ports",
            "where more go down, more than a cable has failed (a choice)",
        ),
    ]
}

/// A switch and the name of its port.
type Port = (SwitchName, String);

/// A port that went down.
struct Fallen {
    port: Port,
    /// Newest reading with the port up, and the next one.
    between: [Timestamp; 2],
    /// What it had sent and received, bytes per second.
    rates: [f64; 2],
}

/// Cables that were found so, by their ends, and when: later readings no longer show it.
#[derive(Debug, Default)]
pub(super) struct FallenPairs(BTreeMap<[Port; 2], Timestamp>);

impl FallenPairs {
    pub(super) fn find(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let is_down = |(switch, port): &Port| {
            let history = view.history.switch(switch);
            history.is_some_and(|own| own.value(&SWITCH_PORT_UP, &[port]) == Some(0.0))
        };
        self.0.retain(|ends, since| {
            ends.iter().all(is_down) && view.now.seconds_since(*since) <= DOWN_KEPT_SECONDS
        });
        let fallen = fallen(view);
        for one in &fallen {
            let Some(other) = other_end(&fallen, one).filter(|other| one.port < other.port) else {
                continue;
            };
            let ends = [one, other].map(|end| end.port.clone());
            if !self.0.contains_key(&ends)
                && have_been_read_since(view, [one, other])
                && !a_host_failed_with(view, [one, other])
            {
                self.0.insert(ends, view.now);
            }
        }
        for [(switch, port), (peer, far)] in self.0.keys() {
            let ends = [(switch, port), (peer, far)];
            let [Some(part), Some(related)] = ends.map(|(of, port)| link_at(view.fabric, of, port))
            else {
                continue;
            };
            let statement = format!(
                "Port {port} of {switch} and port {far} of {peer} went down at the same time; each had received what the other sent."
            );
            let signal = SWITCH_PORT_UP.name;
            let mut found = evidence(view, part, &UPLINK_DOWN, signal, 1.0, statement);
            found.related.push(related);
            out.push(found);
        }
    }
}

/// The only other port that went down with this one, if it may be at the other end of its cable.
fn other_end<'a>(all: &'a [Fallen], one: &Fallen) -> Option<&'a Fallen> {
    let only = |one: &Fallen| {
        let with = |other: &&Fallen| other.port != one.port && fell_together(one, other);
        let mut others = all.iter().filter(with);
        others.next().filter(|_| others.next().is_none())
    };
    let other = only(one)?;
    only(other).filter(|back| back.port == one.port)?;
    may_be_joined(one, other).then_some(other)
}

fn fell_together(one: &Fallen, other: &Fallen) -> bool {
    let [[up, down], [other_up, other_down]] = [one.between, other.between];
    up.max(other_up) <= down.min(other_down)
}

fn may_be_joined(one: &Fallen, other: &Fallen) -> bool {
    let [sent, received] = other.rates;
    one.port.0 != other.port.0
        && [one, other]
            .iter()
            .all(|end| end.rates.iter().all(|rate| *rate >= BUSY))
        && are_alike(&one.rates, &[received, sent], ALIKE)
}

/// Whether every switch that still reports has done so since: another port may have gone down with them.
fn have_been_read_since(view: &View<'_>, ends: [&Fallen; 2]) -> bool {
    let down = ends.map(|end| end.between[1]).into_iter().max();
    let mut switches = view.history.fresh_switches(view.now);
    switches.all(|(_, history)| history.heard() >= down)
}

/// Whether a host without known cables lost a port, or stopped reporting, when they went down.
fn a_host_failed_with(view: &View<'_>, ends: [&Fallen; 2]) -> bool {
    let [up, down] = [0, 1].map(|at| ends.map(|end| end.between[at]).into_iter().max());
    // One that still runs reports again.
    let just_before = |heard: Timestamp| {
        down.is_some_and(|down| heard < down && down.seconds_since(heard) <= SHUTDOWN_SECONDS)
    };
    let mut hosts = view.history.nodes();
    hosts.any(|(node, history)| {
        let mut devices = view.fabric.devices(node);
        if devices.any(|device| view.fabric.cables(device).next().is_some()) {
            return false;
        }
        let is_silent = history.heard().is_some_and(just_before);
        let ports = [&RDMA_PORT_UP, &NIC_CARRIER].map(|metric| history.moving(metric));
        let fell =
            |window: Window<'_>| fell_between(window).is_some_and(|[_, down]| Some(down) >= up);
        is_silent || ports.into_iter().flatten().any(|(_, window)| fell(window))
    })
}

/// Ports without a known cable that went down; none where they are too many.
fn fallen(view: &View<'_>) -> Vec<Fallen> {
    let switches = view.history.fresh_switches(view.now);
    let ports = switches.flat_map(|(switch, history)| {
        let moving = history.moving(&SWITCH_PORT_UP);
        moving.filter_map(move |(labels, window)| {
            let name = labels.values().next()?;
            let between = fell_between(window)?;
            if cable_at(view.fabric, switch, name).is_some() || is_disabled(history, name) {
                return None;
            }
            let bytes = [&SWITCH_PORT_TRANSMIT_BYTES, &SWITCH_PORT_RECEIVE_BYTES];
            let [sent, received] = bytes.map(|metric| {
                let window = history.window(metric, &[name])?;
                window.rate_until(between[0], SPAN_SECONDS)
            });
            Some(Fallen {
                port: (switch.clone(), name.to_owned()),
                between,
                rates: [sent.unwrap_or(0.0), received.unwrap_or(0.0)],
            })
        })
    });
    let ports: Vec<_> = ports.take(MOST + 1).collect();
    if ports.len() > MOST {
        Vec::new()
    } else {
        ports
    }
}

/// The newest reading of a port that was up, and the oldest one since, if it is down.
fn fell_between(up: Window<'_>) -> Option<[Timestamp; 2]> {
    let mut down = None;
    for (at, value) in up.told() {
        if value != 0.0 {
            return Some([at, down?]);
        }
        down = Some(at);
    }
    None
}

fn is_disabled(history: &NodeHistory, port: &str) -> bool {
    history.value(&SWITCH_PORT_ENABLED, &[port]) == Some(0.0)
}
