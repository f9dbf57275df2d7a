//! Sensors of the board, its fans and its power supplies, from `/sys/class/hwmon` and `/sys/class/power_supply`.

use std::collections::BTreeMap;

use super::sysfs::{Buffer, Dir, Miss};

/// Base classes of PCI devices with their own sensors: storage, network, display, accelerator.
const ENDPOINTS: [&str; 4] = ["0x01", "0x02", "0x03", "0x12"];
/// Classes and buses of devices that do so, too. A read of such a sensor is a command to the device, and
/// waits as long as the device does: 60 s of an NVMe drive that has stopped.
const ENDPOINT_SUBSYSTEMS: [&str; 5] = ["nvme", "scsi", "net", "ieee80211", "drm"];
/// Quantities that are read, as file names begin.
const QUANTITIES: [Quantity; 5] = [
    Quantity::Fan,
    Quantity::Temperature,
    Quantity::Voltage,
    Quantity::Current,
    Quantity::Power,
];

/// What a channel measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// `fan*`, revolutions per minute.
    Fan,
    /// `temp*`, thousandths of a degree Celsius.
    Temperature,
    /// `in*`, millivolts.
    Voltage,
    /// `curr*`, milliamperes.
    Current,
    /// `power*`, microwatts.
    Power,
}

impl Quantity {
    fn prefix(self) -> &'static str {
        match self {
            Self::Fan => "fan",
            Self::Temperature => "temp",
            Self::Voltage => "in",
            Self::Current => "curr",
            Self::Power => "power",
        }
    }
}

/// A chip with sensors.
#[derive(Debug, Clone)]
pub struct Chip {
    /// Bus and device, as node_exporter names it: `platform_nct6775_2560`.
    pub name: String,
    /// What its driver calls it, `nct6775`; several chips may share it.
    pub driver: String,
    /// Its files.
    pub dir: Dir,
}

/// One sensor of a chip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// How its files begin, `fan1`.
    pub name: String,
    /// What it measures.
    pub quantity: Quantity,
    /// What the board's maker or the driver calls it; empty if neither names it.
    pub label: String,
    /// What there is of it, sorted: `alarm`, `input`, `max`.
    pub properties: Vec<String>,
}

/// Names of what may be a chip.
///
/// # Errors
/// [`Miss::Absent`] on a machine without sensors.
pub fn names(sysfs: &Dir) -> Result<Vec<String>, Miss> {
    sysfs.dir("class/hwmon")?.names()
}

/// Every chip by name, without those of drives, NICs and GPUs.
///
/// # Errors
/// [`Miss::Absent`] on a machine without sensors.
pub fn chips(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Chip>, Miss> {
    let class = sysfs.dir("class/hwmon")?;
    let mut found: BTreeMap<String, Chip> = BTreeMap::new();
    for entry in class.names()? {
        let Ok(dir) = class.dir(&entry) else {
            continue; // gone by now
        };
        let device = dir.dir("device").ok();
        if device.as_ref().is_some_and(|it| is_endpoint(it, buffer)) {
            continue;
        }
        let driver = dir.text("name", buffer).unwrap_or_default();
        let mut name = chip_name(device.as_ref(), &driver).unwrap_or_else(|| entry.clone());
        if found.contains_key(&name) {
            name = format!("{name}_{entry}");
        }
        let chip = Chip {
            name: name.clone(),
            driver,
            dir,
        };
        found.insert(name, chip);
    }
    Ok(found.into_values().collect())
}

/// Whether a sensor's device is a drive, a NIC or a GPU.
fn is_endpoint(device: &Dir, buffer: &mut Buffer) -> bool {
    match device.link_name("subsystem").as_deref() {
        Some("pci") => device
            .text("class", buffer)
            .is_ok_and(|class| ENDPOINTS.iter().any(|base| class.starts_with(base))),
        Some(subsystem) => ENDPOINT_SUBSYSTEMS.contains(&subsystem),
        None => false,
    }
}

/// As node_exporter (`collector/hwmon_linux.go`): the device and the directory above it, else the driver's
/// name, so that both exporters report the same series.
fn chip_name(device: Option<&Dir>, driver: &str) -> Option<String> {
    let of_device = device.and_then(|device| {
        let path = device.components();
        let (name, above) = path.split_last()?;
        let words = [clean(above.last().unwrap_or(&"")), clean(name)];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        Some(words.join("_"))
    });
    let mut names = [of_device, Some(clean(driver))].into_iter().flatten();
    names.find(|name| !name.is_empty())
}

/// Lower case; everything but letters, digits, `:` and `_` becomes `_`, and none is at the ends.
fn clean(name: &str) -> String {
    let lower = name.to_lowercase();
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, ':' | '_');
    let replaced = lower.replace(|char| !fits(char), "_");
    replaced.trim_matches('_').to_owned()
}

impl Chip {
    /// Its sensors, by quantity and number.
    ///
    /// # Errors
    /// The chip is gone.
    pub fn channels(&self, buffer: &mut Buffer) -> Result<Vec<Channel>, Miss> {
        let mut found: BTreeMap<(Quantity, u32), Vec<String>> = BTreeMap::new();
        for file in self.dir.names()? {
            if let Some((quantity, number, property)) = parse(&file) {
                let properties = found.entry((quantity, number)).or_default();
                properties.push(property.to_owned());
            }
        }
        let channels = found.into_iter().map(|((quantity, number), properties)| {
            let name = format!("{}{number}", quantity.prefix());
            let label = self.dir.text(&format!("{name}_label"), buffer);
            Channel {
                label: label.unwrap_or_default(),
                name,
                quantity,
                properties,
            }
        });
        Ok(channels.collect())
    }
}

/// Quantity, number and property of `fan1_alarm`.
fn parse(file: &str) -> Option<(Quantity, u32, &str)> {
    let (channel, property) = file.split_once('_')?;
    let mut found = QUANTITIES.into_iter().filter_map(|quantity| {
        let number = channel.strip_prefix(quantity.prefix())?;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((quantity, number.parse().ok().filter(|_| is_plain)?))
    });
    let (quantity, number) = found.next()?;
    Some((quantity, number, property))
}

/// Inputs from the mains as the firmware reports them (ACPI), by name; without batteries.
pub fn mains(sysfs: &Dir, buffer: &mut Buffer) -> Vec<(String, Dir)> {
    let Ok(class) = sysfs.dir("class/power_supply") else {
        return Vec::new();
    };
    let names = class.names().unwrap_or_default().into_iter();
    names
        .filter_map(|name| Some((name.clone(), class.dir(&name).ok()?)))
        .filter(|(_, dir)| dir.text("type", buffer).as_deref() == Ok("Mains"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_says_what_is_measured() {
        for (file, expected) in [
            ("fan1_alarm", Some((Quantity::Fan, 1, "alarm"))),
            (
                "temp12_crit_alarm",
                Some((Quantity::Temperature, 12, "crit_alarm")),
            ),
            ("in0_input", Some((Quantity::Voltage, 0, "input"))),
            ("curr1_label", Some((Quantity::Current, 1, "label"))),
            ("power1_cap_alarm", Some((Quantity::Power, 1, "cap_alarm"))),
            ("intrusion0_alarm", None),
            ("fan_input", None),
            ("fan+1_input", None),
            ("fan99999999999_input", None),
            ("pwm1_enable", None),
            ("fan1", None),
            ("name", None),
        ] {
            assert_eq!(parse(file), expected, "{file}");
        }
    }

    #[test]
    fn names_are_those_of_node_exporter() {
        for (name, expected) in [
            ("nct6775.2560", "nct6775_2560"),
            ("0000:00:18.3", "0000:00:18_3"),
            ("3-0058", "3_0058"),
            ("-X-", "x"),
            ("", ""),
        ] {
            assert_eq!(clean(name), expected, "{name}");
        }
    }
}
