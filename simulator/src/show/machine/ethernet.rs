//! Ethernet interfaces as sysfs shows them, and recordings of what `ethtool`, `dcb` and `lldpctl` print.

use super::files::{LiveFile, Tree, TreeError};
use crate::parts::ethernet::{EthernetCounter, LOSSLESS, Neighbor, Netdev, PRIORITIES, Source};
use crate::parts::port::Port;
use crate::show::lldp::{Heard, json0};
use crate::wiring::Nic;

/// Settings of DCQCN in the `ecn` directory of NVIDIA's driver packages, by point: the drivers' defaults.
const DCQCN: &[(&str, &str, &str)] = &[
    ("roce_np", "cnp_802p_prio", "6"),
    ("roce_np", "cnp_dscp", "48"),
    ("roce_np", "min_time_between_cnps", "4"),
    ("roce_rp", "dce_tcp_g", "1019"),
    ("roce_rp", "initial_alpha_value", "1023"),
    ("roce_rp", "rpg_ai_rate", "5"),
    ("roce_rp", "rpg_hai_rate", "50"),
    ("roce_rp", "rpg_min_rate", "1"),
    ("roce_rp", "rpg_time_reset", "300"),
];

/// Live files of one interface.
#[derive(Debug, Clone)]
pub(super) struct NetdevFiles {
    carrier: LiveFile,
    changes: LiveFile,
    speed: LiveFile,
    mtu: LiveFile,
    statistics: LiveFile,
    pfc: LiveFile,
}

impl NetdevFiles {
    pub(super) fn set(&mut self, port: &Port) -> Result<(), TreeError> {
        let Some(netdev) = &port.netdev else {
            return Ok(());
        };
        self.carrier.set(carrier(netdev))?;
        self.changes.set(&netdev.carrier_changes.to_string())?;
        self.speed.set(&netdev.speed(port.speed))?;
        self.mtu.set(&netdev.mtu.to_string())?;
        self.statistics.set(&statistics(netdev))?;
        self.pfc.set(&pfc(netdev))
    }
}

/// Writes one interface. `sys` and `network` are roots, `function` is the folder of its PCI function below
/// `sys`.
pub(super) fn write(
    (sys, network): (&Tree, &Tree),
    function: &str,
    (nic, index): (&Nic, usize),
    (port, netdev): (&Port, &Netdev),
) -> Result<NetdevFiles, TreeError> {
    let name = &netdev.name;
    let folder = format!("{function}/net/{name}");
    // An Ethernet controller, not one of InfiniBand.
    sys.line(&format!("{function}/class"), "0x020000")?;
    for (file, text) in [
        ("address", netdev.mac.as_str()),
        ("type", "1"),
        ("duplex", "full"),
        ("dev_port", "0"),
        ("ifindex", &(index + 2).to_string()),
        ("phys_port_name", &format!("p{}", nic.plane)),
    ] {
        sys.line(&format!("{folder}/{file}"), text)?;
    }
    for (point, setting, value) in DCQCN {
        sys.line(&format!("{folder}/ecn/{point}/{setting}"), value)?;
        for priority in 0..PRIORITIES {
            let enabled = u8::from(netdev.dcqcn && priority == LOSSLESS);
            let file = format!("{folder}/ecn/{point}/enable/{priority}");
            sys.line(&file, &enabled.to_string())?;
        }
    }
    sys.link(&format!("{folder}/device"), function)?;
    sys.link(&format!("{folder}/subsystem"), "class/net")?;
    sys.link(&format!("class/net/{name}"), &folder)?;
    for (file, text) in [
        (
            "pause",
            "Pause parameters:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n",
        ),
        ("app", "dscp-prio 26:3 48:6\n"),
        (
            "ets",
            "willing off ets-cap 8 cbs off\ntc-bw 0:0 1:0 2:0 3:50 4:0 5:50 6:0 7:0\n\
             tc-tsa 0:strict 1:strict 2:strict 3:ets 4:strict 5:ets 6:strict 7:strict\n\
             prio-tc 0:5 1:5 2:5 3:3 4:5 5:5 6:6 7:5\n",
        ),
        (
            "fec",
            "FEC parameters:\nSupported/Configured FEC encodings: Auto RS\nActive FEC encoding: RS\n",
        ),
    ] {
        network.file(&format!("{name}/{file}"), text)?;
    }
    let live = |file: &str, text: &str| sys.live(&format!("{folder}/{file}"), text);
    let recorded = |file: &str, text: &str| network.live(&format!("{name}/{file}"), text);
    Ok(NetdevFiles {
        carrier: live("carrier", carrier(netdev))?,
        changes: live("carrier_changes", &netdev.carrier_changes.to_string())?,
        speed: live("speed", &netdev.speed(port.speed))?,
        mtu: live("mtu", &netdev.mtu.to_string())?,
        statistics: recorded("stats", &statistics(netdev))?,
        pfc: recorded("pfc", &pfc(netdev))?,
    })
}

const fn carrier(netdev: &Netdev) -> &'static str {
    if netdev.carrier { "1" } else { "0" }
}

/// As `ethtool -S` prints it, without the last line end.
fn statistics(netdev: &Netdev) -> String {
    let mut text = "NIC statistics:".to_owned();
    for counter in EthernetCounter::ALL {
        if counter.source() == Source::Driver {
            text.push_str(&format!(
                "\n     {}: {}",
                counter.name(),
                netdev.get(*counter)
            ));
        }
    }
    text
}

/// As `dcb -s pfc show` prints it, without the last line end.
fn pfc(netdev: &Netdev) -> String {
    let row = |of: &dyn Fn(usize) -> String| {
        let words = (0..PRIORITIES).map(|priority| format!("{priority}:{}", of(priority)));
        words.collect::<Vec<_>>().join(" ")
    };
    let is_on = |priority| if priority == LOSSLESS { "on" } else { "off" };
    let frames = |counter: EthernetCounter| {
        let of = move |priority| {
            let count = if priority == LOSSLESS {
                netdev.get(counter)
            } else {
                0
            };
            count.to_string()
        };
        row(&of)
    };
    format!(
        "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc {}\nrequests {}\nindications {}",
        row(&|priority| is_on(priority).to_owned()),
        frames(EthernetCounter::TxPrio3Pause),
        frames(EthernetCounter::RxPrio3Pause),
    )
}

/// All neighbors as `lldpctl -f json0` prints them, without the last line end.
pub(super) fn neighbors(ports: &[Port]) -> String {
    let netdevs = ports.iter().filter_map(|port| port.netdev.as_deref());
    let heard = netdevs.filter_map(|netdev| {
        let Neighbor {
            chassis,
            system,
            port,
        } = netdev.neighbor.as_ref()?;
        Some(Heard {
            local: netdev.name.clone(),
            chassis: chassis.clone(),
            system: system.clone(),
            port: ("ifname", port.clone()),
            description: port.clone(),
            forwards: true,
        })
    });
    json0(heard)
}
