//! What a sweep of the fabric, or another exporter, would report about a switch.

use railscope_model::identity::SwitchName;
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_RECEIVE_PACKETS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
    SWITCH_PORT_TRANSMIT_PACKETS, SWITCH_PORT_TRANSMIT_WAIT, SWITCH_PORT_UP,
};
use railscope_model::reading::{Labels, NodeReading};

use crate::cluster::{Cluster, LaneCount, SwitchPort};
use crate::parts::ethernet::LOSSLESS;
use crate::spec::Transport;

/// Counters of what a port sends and of what it receives.
type Row = (&'static Metric, fn(LaneCount) -> f64);

const SENT: &[Row] = &[
    (&SWITCH_PORT_TRANSMIT_BYTES, |lane| lane.bytes),
    (&SWITCH_PORT_TRANSMIT_PACKETS, |lane| lane.packets()),
    (&SWITCH_PORT_TRANSMIT_WAIT, |lane| lane.wait_ticks),
];
/// What vanishes on the cable, the end that sends has counted and this one has not.
const RECEIVED: &[Row] = &[
    (&SWITCH_PORT_RECEIVE_BYTES, |lane| lane.bytes_arrived()),
    (&SWITCH_PORT_RECEIVE_PACKETS, |lane| lane.packets_arrived()),
];

/// What each switch that is lit reports now, by name. Switches of EFA are not visible.
pub fn switches(cluster: &Cluster) -> Vec<(SwitchName, NodeReading)> {
    if cluster.spec().transport == Transport::Efa {
        return Vec::new();
    }
    let cables = &cluster.wiring().cables;
    let all = cluster.plan().switches.iter().zip(cluster.switch_ports());
    all.filter(|(_, ports)| ports.iter().any(|port| cables[port.cable].lit))
        .map(|(switch, ports)| (switch.name.clone(), reading(cluster, &ports)))
        .collect()
}

fn reading(cluster: &Cluster, ports: &[SwitchPort]) -> NodeReading {
    let is_ethernet = cluster.spec().transport == Transport::Roce;
    let mut reading = NodeReading::default();
    for port in ports {
        let labels = Labels::new([cluster.wiring().port_name(port.port).to_string()]);
        let cable = &cluster.wiring().cables[port.cable];
        reading.push(&SWITCH_PORT_UP, &labels, cable.lit);
        if cable.lit {
            reading.push(&SWITCH_PORT_SPEED, &labels, cable.speed.bytes_per_second());
        }
        let (sent, received) = (
            cluster.lane_count(port.sends),
            cluster.lane_count(port.receives()),
        );
        for (rows, count) in [(SENT, sent), (RECEIVED, received)] {
            for (metric, value) in rows {
                // Ethernet has no credits to wait for.
                if !(is_ethernet && std::ptr::eq(*metric, &SWITCH_PORT_TRANSMIT_WAIT)) {
                    reading.push(metric, &labels, value(count).floor());
                }
            }
        }
        if is_ethernet {
            // A port is paused by its peer, or pauses it.
            for (direction, count) in [("receive", sent), ("transmit", received)] {
                let labels = labels.with(LOSSLESS).with(direction);
                reading.push(
                    &SWITCH_PORT_PFC_PAUSE_SECONDS,
                    &labels,
                    count.paused_seconds,
                );
            }
        }
        let dropped = labels.with("transmit");
        reading.push(&SWITCH_PORT_DISCARDS, &dropped, sent.discards.floor());
    }
    reading
}
