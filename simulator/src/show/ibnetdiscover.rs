//! The fabric as subnet tools print it: `ibnetdiscover`'s text, and the net file that ibsim reads.

use std::fmt::Write as _;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use crate::wiring::{Device, Socket, Wiring};

/// Vendor id of NVIDIA (Mellanox) and device id of Quantum-2, as on captured fabrics.
const VENDOR: &str = "0x2c9";
const QUANTUM_2: &str = "0xd2f2";

/// The text of `ibnetdiscover`: every device with every connected port, so each cable from both ends.
pub fn ibnetdiscover(wiring: &Wiring, generated: Timestamp) -> String {
    let mut text = String::new();
    let first = wiring.nics.first().map_or(Guid(0), |nic| nic.guid);
    let date = ctime(generated);
    let _infallible = write!(
        text,
        "#\n# Topology file: generated on {date}\n#\n# Initiated from node {0:016x} port {0:016x}\n",
        first.0
    );
    write_devices(&mut text, wiring, Dialect::Ibnetdiscover);
    text
}

/// The net file that ibsim loads: the same devices and cables under names that its console accepts
/// (`Unlink "leaf-su0-r3"[5]`; NICs are `gpu-node-00-mlx5_3`). ibsim 0.10 knows no NDR, so cables
/// faster than HDR report HDR; it assigns LIDs only through a subnet manager, so all are 0 here.
pub fn ibsim_net(wiring: &Wiring) -> String {
    let mut text = String::new();
    write_devices(&mut text, wiring, Dialect::Ibsim);
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Ibnetdiscover,
    Ibsim,
}

impl Dialect {
    /// Node id between the quotes. ibsim's console and `SIM_HOST` take at most 31 characters.
    fn id(self, wiring: &Wiring, device: Device) -> String {
        match (self, device) {
            (Self::Ibnetdiscover, Device::Nic(index)) => {
                format!("H-{:016x}", wiring.nics[index].guid.0)
            }
            (Self::Ibnetdiscover, Device::Switch(index)) => {
                format!("S-{:016x}", wiring.switches[index].guid.0)
            }
            (Self::Ibsim, Device::Nic(index)) => {
                let nic = &wiring.nics[index];
                format!("{}-{}", nic.node_name, nic.device)
            }
            (Self::Ibsim, Device::Switch(index)) => wiring.switches[index].name.to_string(),
        }
    }

    fn lid(self, lid: u16) -> u16 {
        if self == Self::Ibsim { 0 } else { lid }
    }

    /// ibnetdiscover adds the port GUID behind a NIC's end.
    fn port_guid(self, guid: Guid) -> String {
        match self {
            Self::Ibnetdiscover => format!("({:x})", guid.0),
            Self::Ibsim => String::new(),
        }
    }

    fn speed(self, speed: LinkSpeed) -> LinkSpeed {
        match (self, speed.speed) {
            (Self::Ibsim, "NDR" | "XDR") => LinkSpeed {
                speed: "HDR",
                ..speed
            },
            _ => speed,
        }
    }
}

/// Node description, LID and GUID.
pub(crate) fn describe(wiring: &Wiring, device: Device) -> (String, u16, Guid) {
    match device {
        Device::Nic(index) => {
            let nic = &wiring.nics[index];
            (nic.description(), nic.lid, nic.guid)
        }
        Device::Switch(index) => {
            let switch = &wiring.switches[index];
            (switch.description(), switch.lid, switch.guid)
        }
    }
}

fn write_devices(text: &mut String, wiring: &Wiring, dialect: Dialect) {
    let ports = wiring.ports();
    let switches = (0..wiring.switches.len()).map(Device::Switch);
    for device in switches.chain((0..wiring.nics.len()).map(Device::Nic)) {
        let cabled = ports.get(&device).map_or(&[][..], Vec::as_slice);
        // The sweep follows cables: it does not find devices without one. ibsim keeps a switch whose cables are to be joined later.
        let is_kept = dialect == Dialect::Ibsim && matches!(device, Device::Switch(_));
        if cabled.is_empty() && !is_kept {
            continue;
        }
        text.push('\n');
        write_device(text, wiring, dialect, device);
        for (port, far, speed) in cabled {
            write_port(text, wiring, dialect, (device, *port), *far, *speed);
        }
    }
}

fn write_device(text: &mut String, wiring: &Wiring, dialect: Dialect, device: Device) {
    let (description, lid, guid) = describe(wiring, device);
    let (id, lid) = (dialect.id(wiring, device), dialect.lid(lid));
    let _infallible = match device {
        Device::Switch(index) => {
            let port_guid = dialect.port_guid(guid);
            write!(
                text,
                "vendid={VENDOR}\ndevid={QUANTUM_2}\nsysimgguid=0x{guid:x}\nswitchguid=0x{guid:x}{port_guid}\n\
                 Switch\t{} \"{id}\"\t\t# \"{description}\" enhanced port 0 lid {lid} lmc 0\n",
                wiring.switches[index].ports,
                guid = guid.0,
            )
        }
        Device::Nic(index) => write!(
            text,
            "vendid={VENDOR}\ndevid={device:#x}\nsysimgguid=0x{guid:x}\ncaguid=0x{guid:x}\n\
             Ca\t1 \"{id}\"\t\t# \"{description}\"\n",
            device = wiring.nics[index].kind.shape().nic.pci_device,
            guid = guid.0,
        ),
    };
}

fn write_port(
    text: &mut String,
    wiring: &Wiring,
    dialect: Dialect,
    (device, port): Socket,
    (far, far_port): Socket,
    speed: LinkSpeed,
) {
    let (far_description, far_lid, far_guid) = describe(wiring, far);
    let (far_id, far_lid) = (dialect.id(wiring, far), dialect.lid(far_lid));
    let speed = dialect.speed(speed);
    let _infallible = match (device, far) {
        (Device::Nic(_), _) => {
            let (_, lid, guid) = describe(wiring, device);
            writeln!(
                text,
                "[{port}]{} \t\"{far_id}\"[{far_port}]\t\t# lid {} lmc 0 \"{far_description}\" lid {far_lid} {speed}",
                dialect.port_guid(guid),
                dialect.lid(lid),
            )
        }
        (Device::Switch(_), Device::Nic(_)) => writeln!(
            text,
            "[{port}]\t\"{far_id}\"[{far_port}]{} \t\t# \"{far_description}\" lid {far_lid} {speed}",
            dialect.port_guid(far_guid),
        ),
        (Device::Switch(_), Device::Switch(_)) => writeln!(
            text,
            "[{port}]\t\"{far_id}\"[{far_port}]\t\t# \"{far_description}\" lid {far_lid} {speed}"
        ),
    };
}

/// A timestamp as C's `ctime` prints it, in UTC: `Tue Feb 23 14:02:06 2021`.
fn ctime(moment: Timestamp) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
    ];
    let seconds = moment.0 / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, "chrono-compatible low-level date algorithms", civil_from_days: years that start
    // in March have their leap day last.
    let since_era = days + 719_468;
    let day_of_era = since_era % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + since_era / 146_097 * 400 + u64::from(month >= 10);
    format!(
        "{} {} {day:>2} {:02}:{:02}:{:02} {year}",
        WEEKDAYS[(days % 7) as usize],
        MONTHS[month as usize],
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_ctime() {
        for (seconds, expected) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (1_614_088_926, "Tue Feb 23 14:02:06 2021"),
            (1_709_164_800, "Thu Feb 29 00:00:00 2024"),
            (1_754_493_083, "Wed Aug  6 15:11:23 2025"),
        ] {
            assert_eq!(ctime(Timestamp(seconds * 1000)), expected);
        }
    }
}
