//! Network interfaces of a device in switchdev mode: its uplink, and those that represent its functions.

use railscope_model::reading::Labels;

use crate::sources::rdma::Device;
use crate::sources::sysfs::Buffer;

/// Label values of one interface each; none outside switchdev mode, where no interface has a switch id.
pub(super) fn ports(device: &Device, buffer: &mut Buffer) -> Vec<Labels> {
    let net = device.hardware.as_ref().and_then(|dir| dir.dir("net").ok());
    let Some(net) = net else {
        return Vec::new();
    };
    let names = net.names().unwrap_or_default();
    let port = |netdev: String| {
        let dir = net.dir(&netdev).ok()?;
        let switch = dir.text("phys_switch_id", buffer).ok()?;
        let port = dir.text("phys_port_name", buffer).unwrap_or_default();
        let role = role(&port);
        Some(Labels::new([&device.name, &netdev, &switch, &port, role]))
    };
    names.into_iter().filter_map(port).collect()
}

/// What a port name of the kernel's devlink reports: `p0`, `pf0`, `pf0vf3`, `c1pf0sf88`.
fn role(port_name: &str) -> &'static str {
    let name = port_name.strip_prefix('c').unwrap_or(port_name);
    let name = name.trim_start_matches(|char: char| char.is_ascii_digit());
    let Some(rest) = name.strip_prefix("pf") else {
        return if name.starts_with('p') { "uplink" } else { "" };
    };
    let rest = rest.trim_start_matches(|char: char| char.is_ascii_digit());
    match rest.get(..2) {
        Some("vf") => "vf",
        Some("sf") => "sf",
        _ => "pf",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_name_tells_the_role() {
        for (name, expected) in [
            ("p0", "uplink"),
            ("p12s1", "uplink"),
            ("pf0", "pf"),
            ("pf0hpf", "pf"),
            ("pf0vf3", "vf"),
            ("c1pf1vf120", "vf"),
            ("pf0sf88", "sf"),
            ("", ""),
            ("swp1", ""),
        ] {
            assert_eq!(role(name), expected, "{name}");
        }
    }
}
