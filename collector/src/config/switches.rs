//! `[[switches]]`: which switches report their LLDP neighbors, and where that is read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use railscope_model::identity::{PortName, SwitchName};
use serde::Deserialize;
use toml::Spanned;

use super::raw::{Subnet, Wrong};
use super::values::{Argv, Period};
use super::{SubnetFrom, SubnetSource, SwitchSource};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {
    name: Spanned<SwitchName>,
    lldp_file: Option<PathBuf>,
    lldp_command: Option<Argv>,
    #[serde(default)]
    addresses: Vec<Spanned<IpAddr>>,
    #[serde(default)]
    port_addresses: BTreeMap<PortName, Spanned<IpAddr>>,
    #[serde(default = "Subnet::default_period")]
    interval: Period,
    #[serde(default = "Subnet::default_period")]
    timeout: Period,
}

pub(super) fn check_switches(
    raw: Vec<Spanned<RawSwitch>>,
    beside: &Path,
) -> Result<Vec<SwitchSource>, Wrong> {
    let (mut seen, mut owners) = (BTreeMap::new(), BTreeMap::new());
    let mut switches = Vec::with_capacity(raw.len());
    for (index, switch) in raw.into_iter().enumerate() {
        let (span, switch) = (switch.span(), switch.into_inner());
        let wrong = |span, field: &str, message| Wrong {
            span,
            field: format!("switches[{index}]{field}"),
            message,
        };
        let (name_span, name) = (switch.name.span(), switch.name.into_inner());
        if let Some(first) = seen.insert(name.clone(), index) {
            let message = format!(
                "{:?} is already the name of switches[{first}]: expected each switch once",
                name.as_str()
            );
            return Err(wrong(name_span, ".name", message));
        }
        let from = match (switch.lldp_file, switch.lldp_command) {
            (Some(_), Some(_)) => {
                let message = "both stand here: expected lldp_file, lldp_command or neither";
                return Err(wrong(span, "", message.to_owned()));
            }
            (Some(file), None) => Some(SubnetFrom::File(beside.join(file))),
            (None, Some(Argv(command))) => Some(SubnetFrom::Command(command)),
            (None, None) => None,
        };
        let own = switch.addresses.into_iter().map(|address| (address, None));
        let of_ports = switch.port_addresses.into_iter();
        let of_ports = of_ports.map(|(port, address)| (address, Some(port)));
        let mut addresses = Vec::new();
        for (address, port) in own.chain(of_ports) {
            let (span, address) = (address.span(), address.into_inner());
            if let Some(other) = owners.insert(address, name.clone()) {
                let message =
                    format!("{address} is already an address of {other}: expected each once");
                return Err(wrong(span, ".addresses", message));
            }
            addresses.push((address.to_string(), port));
        }
        let source = from.map(|from| SubnetSource {
            from,
            interval: switch.interval.0,
            timeout: switch.timeout.0,
            node_name_map: None,
            forwarding_file: None,
        });
        switches.push(SwitchSource {
            name,
            source,
            addresses,
        });
    }
    Ok(switches)
}
