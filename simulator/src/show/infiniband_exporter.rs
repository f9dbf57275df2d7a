//! Counters of InfiniBand switches, as treydock's infiniband_exporter shows them: of the whole subnet at once.
//!
//! It walks the subnet by `ibnetdiscover` and `perfquery`, so that a port without an optical signal, and a switch that
//! is off, are not in its exposition. Names, labels and units as in its `collectors/switch.go`.

use railscope_model::identity::Guid;

use crate::cluster::{Cluster, LaneCount, SwitchPort};
use crate::show::ibnetdiscover::describe;
use crate::spec::Transport;
use crate::wiring::Device;

/// A series of a port, without the prefix that all have; its type, and its value.
type Series = (&'static str, &'static str, fn(&Port) -> f64);

/// A port of a switch with an optical signal.
struct Port {
    /// Node GUID of the switch.
    guid: Guid,
    /// Number, from 1.
    number: u16,
    /// Labels that report what is at the other end of the cable.
    uplink: String,
    bytes_per_second: f64,
    sent: LaneCount,
    received: LaneCount,
}

const SERIES: &[Series] = &[
    ("rate_bytes_per_second", "gauge", |port| {
        port.bytes_per_second
    }),
    ("transmit_data_bytes_total", "counter", |port| {
        port.sent.bytes
    }),
    ("receive_data_bytes_total", "counter", |port| {
        port.received.bytes_arrived()
    }),
    ("transmit_packets_total", "counter", |port| {
        port.sent.packets()
    }),
    ("receive_packets_total", "counter", |port| {
        port.received.packets_arrived()
    }),
    ("transmit_wait_total", "counter", |port| {
        port.sent.wait_ticks
    }),
    ("transmit_discards_total", "counter", |port| {
        port.sent.discards
    }),
];

impl Port {
    /// None without an optical signal.
    fn new(cluster: &Cluster, guid: Guid, port: SwitchPort) -> Option<Self> {
        let wiring = cluster.wiring();
        let cable = &wiring.cables[port.cable];
        let (device, number) = cable.ends[port.sends.far_end()];
        let (name, lid, far) = describe(wiring, device);
        let kind = match device {
            Device::Switch(_) => "SW",
            Device::Nic(_) => "CA",
        };
        cable.lit.then(|| Self {
            guid,
            number: port.port,
            uplink: format!(
                "uplink=\"{name}\",uplink_guid=\"{far}\",uplink_lid=\"{lid}\",uplink_port=\"{number}\",uplink_type=\"{kind}\""
            ),
            bytes_per_second: cable.speed.bytes_per_second(),
            sent: cluster.lane_count(port.sends),
            received: cluster.lane_count(port.receives()),
        })
    }
}

/// The exposition of the subnet; none where there is no InfiniBand.
pub fn infiniband_exporter(cluster: &Cluster) -> Option<String> {
    if cluster.spec().transport != Transport::Infiniband {
        return None;
    }
    let mut names = String::from("# TYPE infiniband_switch_info gauge\n");
    let mut uplinks = String::from("# TYPE infiniband_switch_uplink_info gauge\n");
    let mut ports = Vec::new();
    for (switch, all) in cluster.plan().switches.iter().zip(cluster.switch_ports()) {
        let (guid, lid, name) = (switch.guid, switch.lid, switch.description());
        let all = all.into_iter();
        let lit: Vec<_> = all
            .filter_map(|port| Port::new(cluster, guid, port))
            .collect();
        if !lit.is_empty() {
            names += &format!(
                "infiniband_switch_info{{guid=\"{guid}\",lid=\"{lid}\",switch=\"{name}\"}} 1\n"
            );
        }
        for Port { number, uplink, .. } in &lit {
            uplinks += &format!(
                "infiniband_switch_uplink_info{{guid=\"{guid}\",port=\"{number}\",switch=\"{name}\",{uplink}}} 1\n"
            );
        }
        ports.extend(lit);
    }
    Some(names + &uplinks + &counters(&ports))
}

fn counters(ports: &[Port]) -> String {
    let mut page = String::new();
    for (name, kind, value) in SERIES {
        page += &format!("# TYPE infiniband_switch_port_{name} {kind}\n");
        for port in ports {
            let (guid, number, value) = (port.guid, port.number, value(port).floor());
            page += &format!(
                "infiniband_switch_port_{name}{{guid=\"{guid}\",port=\"{number}\"}} {value}\n"
            );
        }
    }
    page
}
