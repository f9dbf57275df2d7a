//! What a thing is called: one spelling for each, everywhere.
//!
//! Every type parses the spellings that kernels, drivers and tools use, and prints one.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

mod port;

pub use port::{PortName, PortWord, natural};

/// Text that is not the identity it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}")]
pub struct IdentityError {
    /// What was read.
    pub found: String,
    /// What was expected there, with an example.
    pub expected: &'static str,
}

impl IdentityError {
    fn new(found: &str, expected: &'static str) -> Self {
        Self {
            found: found.to_owned(),
            expected,
        }
    }
}

/// Serde by way of `Display` and `FromStr`: identities are strings on every wire.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// A PCI function: `dddd:bb:dd.f`, lower case. The domain has more digits only where it needs them
/// (Intel VMD counts from `10000`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI segment group.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device (slot) number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

impl PciAddress {
    const EXPECTED: &'static str = "a PCI address such as 0000:8d:00.0";
}

impl FromStr for PciAddress {
    type Err = IdentityError;

    /// Reads the kernel's `0000:8d:00.0`, NVML's `00000000:8D:00.0` and lspci's short `8d:00.0`.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::new(text, Self::EXPECTED);
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            let plain = digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
            if plain {
                u32::from_str_radix(part, 16).map_err(|_| bad())
            } else {
                Err(bad())
            }
        };
        let (slot, function) = text.trim().rsplit_once('.').ok_or_else(bad)?;
        let mut parts = slot.rsplitn(3, ':');
        let device = hex(parts.next().unwrap_or_default(), 1..=2)?;
        let bus = hex(parts.next().ok_or_else(bad)?, 1..=2)?;
        let domain = parts.next().map_or(Ok(0), |domain| hex(domain, 1..=8))?;
        let function = hex(function, 1..=1)?;
        if device > 31 || function > 7 {
            return Err(bad());
        }
        // The checks above leave each of these inside a byte.
        Ok(Self {
            domain,
            bus: bus as u8,
            device: device as u8,
            function: function as u8,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// An InfiniBand EUI-64: node, port or system image GUID. Prints as `0x` and 16 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub u64);

impl FromStr for Guid {
    type Err = IdentityError;

    /// Reads `0x1c34da0300728866`, sysfs' `1c34:da03:0072:8866` and bare hex (tools drop leading zeros).
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::new(text, "a GUID such as 0x1c34da0300728866");
        let text = text.trim();
        let mut digits = text.strip_prefix("0x").unwrap_or(text).to_owned();
        if digits.contains(':') {
            if digits.len() != 19 || digits.split(':').any(|group| group.len() != 4) {
                return Err(bad());
            }
            digits.retain(|char| char != ':');
        }
        if !(1..=16).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u64::from_str_radix(&digits, 16)
            .map(Self)
            .map_err(|_| bad())
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// A cheap-to-clone name: one allocation however many series, parts and findings carry it.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// A name is equal to another, and hashes, as its text does.
        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = IdentityError;

            /// Trims white space; refuses an empty name and control characters.
            fn from_str(text: &str) -> Result<Self, IdentityError> {
                let text = text.trim();
                if text.is_empty() || text.chars().any(char::is_control) {
                    return Err(IdentityError::new(text, $expected));
                }
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        serde_as_text!($type);
    };
}

name! {
    /// A host's name in the cluster: its host name, or the target's `node` label.
    NodeName, "a node name"
}
name! {
    /// An RDMA device of one node: `mlx5_0`, `rdmap16s27`.
    RdmaDevice, "an RDMA device name such as mlx5_0"
}
name! {
    /// A switch: its node description without the vendor's decoration, or its GUID where that is not unique.
    SwitchName, "a switch name"
}

/// A host name without its domain: what is before the first dot.
pub fn without_domain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(short, _)| short)
}

/// One port of an RDMA device of one node: `mlx5_0/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RdmaPort {
    /// The device that the port belongs to.
    pub device: RdmaDevice,
    /// Port number, from 1.
    pub port: u8,
}

impl FromStr for RdmaPort {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::new(text, "an RDMA port such as mlx5_0/1");
        let (device, port) = text.rsplit_once('/').ok_or_else(bad)?;
        Ok(Self {
            device: device.parse()?,
            port: port.parse().map_err(|_| bad())?,
        })
    }
}

impl fmt::Display for RdmaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.device, self.port)
    }
}

/// A GPU of one node: its ordinal in PCI address order, which is the order of `nvidia-smi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuIndex(pub u16);

impl FromStr for GpuIndex {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        text.parse()
            .map(Self)
            .map_err(|_| IdentityError::new(text, "a GPU ordinal such as 3"))
    }
}

impl fmt::Display for GpuIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One NVLink of one GPU of one node: `3/17`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NvLink {
    /// The GPU whose end of the link this is.
    pub gpu: GpuIndex,
    /// Link number as NVML counts it.
    pub link: u8,
}

impl FromStr for NvLink {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::new(text, "an NVLink such as 3/17");
        let (gpu, link) = text.split_once('/').ok_or_else(bad)?;
        Ok(Self {
            gpu: gpu.parse()?,
            link: link.parse().map_err(|_| bad())?,
        })
    }
}

impl fmt::Display for NvLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.gpu, self.link)
    }
}

/// A physical part with a stable name: the subject of an incident, and something that an operator can touch.
///
/// Its text is the *fault domain* of an alert: `gpu/n7:3`, `nic/n7:mlx5_4`, `pcie/n7:0000:1a:00.0`,
/// `link/n7:mlx5_4/1`, `link/leaf-03:33`, `link/leaf-03[swp33]`, `switch/leaf-03`, `host/n7`, `nvlink/n7:3/17`,
/// `storage/shared`.
/// A port with a name is in brackets, as Batfish writes it: names hold colons and slashes themselves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A whole server.
    Host(NodeName),
    /// One GPU of a server.
    Gpu(NodeName, GpuIndex),
    /// One NVLink of one GPU.
    NvLink(NodeName, NvLink),
    /// The PCIe link above one function: the slot, riser or cable between it and its parent.
    PcieLink(NodeName, PciAddress),
    /// One RDMA device.
    Nic(NodeName, RdmaDevice),
    /// The cable at one host port, transceivers included. A cable with a host end is named by that end.
    HostLink(NodeName, RdmaPort),
    /// The cable between two switches, named by its lower end.
    SwitchLink(SwitchName, PortName),
    /// A whole switch.
    Switch(SwitchName),
    /// The storage that the nodes of a cluster share, with its servers and the path to them. Nodes report only that they
    /// wait for it, not which server or volume: it has no name.
    SharedStorage,
}

impl Part {
    const EXPECTED: &'static str = "a part such as gpu/n7:3, link/n7:mlx5_4/1 or switch/leaf-03";
    const SHARED: &'static str = "shared";

    /// The class of the part, the text before the slash: `gpu`, `link`, `switch` …
    pub fn class(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::Gpu(..) => "gpu",
            Self::NvLink(..) => "nvlink",
            Self::PcieLink(..) => "pcie",
            Self::Nic(..) => "nic",
            Self::HostLink(..) | Self::SwitchLink(..) => "link",
            Self::Switch(_) => "switch",
            Self::SharedStorage => "storage",
        }
    }

    /// The node that contains the part or is connected to it; none for switches, the cables between them, and storage.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Host(node)
            | Self::Gpu(node, _)
            | Self::NvLink(node, _)
            | Self::PcieLink(node, _)
            | Self::Nic(node, _)
            | Self::HostLink(node, _) => Some(node),
            Self::SwitchLink(..) | Self::Switch(_) | Self::SharedStorage => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.class())?;
        match self {
            Self::Host(node) => write!(f, "{node}"),
            Self::Gpu(node, gpu) => write!(f, "{node}:{gpu}"),
            Self::NvLink(node, link) => write!(f, "{node}:{link}"),
            Self::PcieLink(node, pci) => write!(f, "{node}:{pci}"),
            Self::Nic(node, device) => write!(f, "{node}:{device}"),
            Self::HostLink(node, port) => write!(f, "{node}:{port}"),
            Self::SwitchLink(switch, PortName::Number(port)) => write!(f, "{switch}:{port}"),
            Self::SwitchLink(switch, PortName::Name(port)) => write!(f, "{switch}[{port}]"),
            Self::Switch(switch) => write!(f, "{switch}"),
            Self::SharedStorage => write!(f, "{}", Self::SHARED),
        }
    }
}

impl FromStr for Part {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = || IdentityError::new(text, Self::EXPECTED);
        let (class, rest) = text.split_once('/').ok_or_else(bad)?;
        // Node names hold no colon; switch names may, so their port is split off at the last one.
        let on_node = || {
            let (node, rest) = rest.split_once(':').ok_or_else(bad)?;
            Ok::<_, IdentityError>((node.parse::<NodeName>()?, rest))
        };
        Ok(match class {
            "host" => Self::Host(rest.parse()?),
            "switch" => Self::Switch(rest.parse()?),
            "storage" if rest == Self::SHARED => Self::SharedStorage,
            "gpu" => on_node().and_then(|(node, gpu)| Ok(Self::Gpu(node, gpu.parse()?)))?,
            "nvlink" => on_node().and_then(|(node, link)| Ok(Self::NvLink(node, link.parse()?)))?,
            "pcie" => on_node().and_then(|(node, pci)| Ok(Self::PcieLink(node, pci.parse()?)))?,
            "nic" => on_node().and_then(|(node, device)| Ok(Self::Nic(node, device.parse()?)))?,
            "link" => {
                let named = rest.strip_suffix(']');
                if let Some((switch, port)) = named.and_then(|rest| rest.rsplit_once('[')) {
                    return Ok(Self::SwitchLink(switch.parse()?, port.parse()?));
                }
                let (switch, port) = rest.rsplit_once(':').ok_or_else(bad)?;
                match port.parse() {
                    Ok(port) => Self::SwitchLink(switch.parse()?, PortName::Number(port)),
                    Err(_) => on_node()
                        .and_then(|(node, port)| Ok(Self::HostLink(node, port.parse()?)))?,
                }
            }
            _ => return Err(bad()),
        })
    }
}

serde_as_text!(PciAddress);
serde_as_text!(Guid);
serde_as_text!(RdmaPort);
serde_as_text!(GpuIndex);
serde_as_text!(NvLink);
serde_as_text!(Part);
serde_as_text!(PortName);

#[cfg(test)]
mod tests {
    use super::*;

    fn reads_as<T: FromStr<Err = IdentityError> + fmt::Display>(text: &str, expected: &str) {
        assert_eq!(
            text.parse::<T>().map(|value| value.to_string()),
            Ok(expected.to_owned()),
            "{text}"
        );
    }

    fn refuses<T: FromStr<Err = IdentityError> + fmt::Debug>(text: &str) {
        let error = text.parse::<T>().expect_err(text);
        assert!(error.to_string().contains("is not a"), "{error}");
    }

    #[test]
    fn every_spelling_of_a_pci_address_reads_as_the_kernels() {
        reads_as::<PciAddress>("0000:8d:00.0", "0000:8d:00.0");
        reads_as::<PciAddress>("00000000:8D:00.0", "0000:8d:00.0");
        reads_as::<PciAddress>("8d:1f.7", "0000:8d:1f.7");
        reads_as::<PciAddress>("10000:e1:00.0", "10000:e1:00.0");
        for text in [
            "",
            "8d",
            "0000:8d:00",
            "0000:8d:20.0",
            "0000:8d:00.8",
            "x:8d:00.0",
            "0000:+d:00.0",
            "0:0:0:0.0",
        ] {
            refuses::<PciAddress>(text);
        }
    }

    #[test]
    fn every_spelling_of_a_guid_reads_as_one() {
        for text in [
            "0x1c34da0300728866",
            "1c34:da03:0072:8866",
            "1c34da0300728866",
        ] {
            reads_as::<Guid>(text, "0x1c34da0300728866");
        }
        reads_as::<Guid>("0xc42a1030079aeec", "0x0c42a1030079aeec");
        for text in [
            "",
            "0x",
            "1c34:da03:0072",
            "0x1c34da03007288661",
            "guid",
            "1c34:da03:+072:8866",
        ] {
            refuses::<Guid>(text);
        }
    }

    #[test]
    fn every_part_reads_back_what_it_prints() {
        for text in [
            "host/n7",
            "gpu/n7:3",
            "nvlink/n7:3/17",
            "pcie/n7:0000:1a:00.0",
            "nic/n7:mlx5_4",
            "link/n7:mlx5_4/1",
            "link/leaf-03:33",
            "link/MF0;core:1:MQM8700/U1:40",
            "link/leaf-03[swp1s2]",
            "link/leaf:03[et-0/0/1:2]",
            "switch/MF0;core:1:MQM8700/U1",
            "storage/shared",
        ] {
            reads_as::<Part>(text, text);
        }
        for text in [
            "gpu/n7",
            "gpu/n7:x",
            "cable/n7:1",
            "link/",
            "link/leaf[]",
            "link/[swp1]",
            "host/",
            "nic/:mlx5_0",
        ] {
            refuses::<Part>(text);
        }
    }
}
