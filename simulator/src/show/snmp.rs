//! Counters of Ethernet switches, as Prometheus' snmp_exporter shows them with its module `if_mib`.

use railscope_model::identity::SwitchName;

use crate::cluster::{Cluster, LaneCount};
use crate::spec::Transport;

/// Object of IF-MIB (RFC 2863), its type in the module, and its value of a port.
type Object = (&'static str, &'static str, fn(&Port) -> f64);

/// A port of a switch.
struct Port {
    /// Number, from 1.
    index: u16,
    name: String,
    sent: LaneCount,
    received: LaneCount,
    /// Bits per second; none without an optical signal.
    rate: Option<f64>,
}

const OBJECTS: &[Object] = &[
    ("ifOperStatus", "gauge", |port| {
        if port.rate.is_some() { 1.0 } else { 2.0 }
    }),
    // In units of 1,000,000 bits per second; a port without an optical signal has 0.
    ("ifHighSpeed", "gauge", |port| {
        port.rate.unwrap_or_default() / 1e6
    }),
    ("ifHCInOctets", "counter", |port| {
        port.received.bytes_arrived()
    }),
    ("ifHCOutOctets", "counter", |port| port.sent.bytes),
    ("ifHCInUcastPkts", "counter", |port| {
        port.received.packets_arrived()
    }),
    ("ifHCOutUcastPkts", "counter", |port| port.sent.packets()),
    ("ifOutDiscards", "counter", |port| port.sent.discards),
];

/// The exposition of one switch; none where it does not respond: it is off, unknown, or not of an
/// Ethernet.
pub fn if_mib(cluster: &Cluster, switch: &SwitchName) -> Option<String> {
    if cluster.spec().transport != Transport::Roce {
        return None;
    }
    let wiring = cluster.wiring();
    let mut switches = wiring.switches.iter();
    let switch = switches.position(|known| known.name == *switch)?;
    let ports: Vec<_> = cluster
        .ports_of_switch(switch)
        .map(|port| {
            let cable = &wiring.cables[port.cable];
            Port {
                index: port.port,
                name: wiring.port_name(port.port).to_string(),
                sent: cluster.lane_count(port.sends),
                received: cluster.lane_count(port.receives()),
                rate: cable.lit.then(|| cable.speed.bytes_per_second() * 8.0),
            }
        })
        .collect();
    ports
        .iter()
        .any(|port| port.rate.is_some())
        .then(|| write(&ports))
}

fn write(ports: &[Port]) -> String {
    let mut page = String::new();
    for (object, kind, value) in OBJECTS {
        page += &format!("# TYPE {object} {kind}\n");
        for port in ports {
            let (index, name, value) = (port.index, &port.name, value(port).floor());
            page += &format!(
                "{object}{{ifAlias=\"\",ifDescr=\"{name}\",ifIndex=\"{index}\",ifName=\"{name}\"}} {value}\n"
            );
        }
    }
    page
}
