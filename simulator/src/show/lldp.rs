//! What the LLDP daemons of nodes and of Ethernet switches receive, as `lldpctl -f json0` prints
//! it.

use railscope_model::identity::SwitchName;

use crate::cluster::Cluster;
use crate::parts::ethernet::mac;
use crate::spec::Transport;
use crate::wiring::{Device, Socket, Wiring};

/// One neighbor as its LLDP packets describe it.
pub(crate) struct Heard {
    /// The port that receives it.
    pub(crate) local: String,
    /// MAC address of the neighbor.
    pub(crate) chassis: String,
    /// Its name.
    pub(crate) system: String,
    /// Its port: `ifname` or `mac`, and which.
    pub(crate) port: (&'static str, String),
    /// What its port is for; lldpd reports the interface's name.
    pub(crate) description: String,
    /// Whether it bridges and routes.
    pub(crate) forwards: bool,
}

/// Neighbors as text, without the last line end.
pub(crate) fn json0(heard: impl Iterator<Item = Heard>) -> String {
    let interfaces: Vec<_> = (1..)
        .zip(heard)
        .map(|(rid, heard)| interface(rid, &heard))
        .collect();
    format!(r#"{{"lldp":[{{"interface":[{}]}}]}}"#, interfaces.join(","))
}

fn interface(rid: usize, heard: &Heard) -> String {
    let Heard {
        local,
        chassis,
        system,
        port: (kind, port),
        description,
        forwards,
    } = heard;
    let capability =
        |name: &str, enabled: bool| format!(r#"{{"type":"{name}","enabled":{enabled}}}"#);
    let capabilities = [
        capability("Bridge", *forwards),
        capability("Router", *forwards),
        capability("Station", !forwards),
    ];
    format!(
        r#"{{"name":"{local}","via":"LLDP","rid":"{rid}","age":"3 days, 00:00:00","chassis":[{{"id":[{{"type":"mac","value":"{chassis}"}}],"name":[{{"value":"{system}"}}],"descr":[{{"value":"Simulated OS"}}],"capability":[{}]}}],"port":[{{"id":[{{"type":"{kind}","value":"{port}"}}],"descr":[{{"value":"{description}"}}],"ttl":[{{"value":"120"}}]}}]}}"#,
        capabilities.join(",")
    )
}

/// What each running switch receives, by name; switches of other fabrics than Ethernet do not use LLDP. As
/// lldpd does, they drop a neighbor when the link goes down.
pub fn switches(cluster: &Cluster) -> Vec<(SwitchName, String)> {
    if cluster.spec().transport != Transport::Roce {
        return Vec::new();
    }
    let wiring = cluster.wiring();
    let mut heard: Vec<Vec<(u16, Heard)>> = wiring.switches.iter().map(|_| Vec::new()).collect();
    for cable in wiring.lit() {
        let [a, b] = cable.ends;
        for (near, far) in [(a, b), (b, a)] {
            if let (Device::Switch(switch), port) = near {
                heard[switch].push((port, neighbor(cluster, wiring, port, far)));
            }
        }
    }
    let all = wiring.switches.iter().zip(heard);
    all.filter(|(_, heard)| !heard.is_empty())
        .map(|(switch, mut heard)| {
            heard.sort_by_key(|(port, _)| *port);
            let text = json0(heard.into_iter().map(|(_, heard)| heard));
            (switch.name.clone(), text)
        })
        .collect()
}

fn neighbor(cluster: &Cluster, wiring: &Wiring, port: u16, far: Socket) -> Heard {
    let local = wiring.port_name(port).to_string();
    match far {
        (Device::Switch(switch), port) => {
            let port = wiring.port_name(port).to_string();
            let switch = &wiring.switches[switch];
            Heard {
                local,
                chassis: mac(switch.guid),
                system: switch.name.to_string(),
                port: ("ifname", port.clone()),
                description: port,
                forwards: true,
            }
        }
        // lldpd of a host reports the MAC address of its port, and of its first port as that of the
        // chassis.
        (Device::Nic(nic), _) => {
            let first = wiring.hosts[usize::from(wiring.nics[nic].node)].nics.start;
            let slot = wiring.slot(nic);
            let node = &cluster.nodes()[usize::from(wiring.nics[nic].node)];
            let netdev = node.ports[slot].netdev.as_deref();
            Heard {
                local,
                chassis: mac(wiring.nics[first].guid),
                system: node.name.to_string(),
                port: ("mac", mac(wiring.nics[nic].guid)),
                description: netdev.map_or_else(String::new, |netdev| netdev.name.clone()),
                forwards: false,
            }
        }
    }
}
