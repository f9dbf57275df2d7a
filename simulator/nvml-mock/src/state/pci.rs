//! A PCI address: read in every spelling that NVML and sysfs use, written as sysfs writes it.

use std::fmt;
use std::str::FromStr;

use super::values::Value;

/// Domain, bus, device and function.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PciAddress {
    /// 0 on almost every machine; some clouds give each GPU its own.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, below 32.
    pub device: u8,
    /// Function number, below 8.
    pub function: u8,
}

impl PciAddress {
    /// Function 0 of a device in domain 0.
    #[must_use]
    pub const fn new(bus: u8, device: u8) -> Self {
        Self {
            domain: 0,
            bus,
            device,
            function: 0,
        }
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

impl FromStr for PciAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parts(text).ok_or_else(|| "a PCI address such as 0000:1b:00.0".into())
    }
}

fn parts(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
    let byte = |text| u8::from_str_radix(text, 16).ok();
    let address = PciAddress {
        domain: u32::from_str_radix(domain, 16).ok()?,
        bus: byte(bus)?,
        device: byte(device)?,
        function: byte(function)?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

impl Value for PciAddress {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn render(&self) -> String {
        self.to_string()
    }
}
