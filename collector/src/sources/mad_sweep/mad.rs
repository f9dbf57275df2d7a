//! Management datagrams (MADs): the few requests that a sweep sends, and the fields of their replies.
//!
//! Offsets are those of the InfiniBand Architecture Specification, volume 1: 13.4 (common header), 14.2.1 (directed
//! routes), 14.2.5 (subnet management attributes) and 16.1.3 (performance management attributes).
//! Only the method Get is implemented: a sweep cannot write.

use railscope_model::identity::Guid;
use railscope_model::units::LinkSpeed;

use crate::fabric::subnet::NodeKind;
use crate::fabric::subnet::forwarding::BLOCK_LIDS;

/// Bytes of every MAD.
pub const MAD_BYTES: usize = 256;
/// Ports in a directed route; the first field of the 64 is not one.
pub const MAX_HOPS: usize = 63;
/// A MAD as it is on the wire.
pub type Bytes = [u8; MAD_BYTES];

const CLASS_SUBNET_DIRECTED: u8 = 0x81;
const CLASS_PERFORMANCE: u8 = 0x04;
const METHOD_GET: u8 = 0x01;
const METHOD_GET_RESPONSE: u8 = 0x81;
/// Where a directed route does not begin or end with a LID.
const PERMISSIVE_LID: [u8; 2] = [0xff, 0xff];
/// Where the attribute is in the MADs of both classes.
const DATA: usize = 64;
const INITIAL_PATH: usize = 128;

/// A directed route: the ports to leave by, from the sweeping host on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path {
    hops: u8,
    ports: [u8; MAX_HOPS],
}

impl Path {
    /// To the sweeping host itself.
    pub const HERE: Self = Self {
        hops: 0,
        ports: [0; MAX_HOPS],
    };

    /// The route one hop further, out of a port of its last device; none where it would get too long.
    pub fn through(mut self, port: u8) -> Option<Self> {
        *self.ports.get_mut(usize::from(self.hops))? = port;
        self.hops += 1;
        Some(self)
    }

    /// Ports in order.
    pub fn ports(&self) -> &[u8] {
        &self.ports[..usize::from(self.hops)]
    }
}

impl std::fmt::Debug for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Path{:?}", self.ports())
    }
}

/// Destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To the subnet management agent (queue pair 0) at the end of a directed route.
    Directed(Path),
    /// To the performance management agent (queue pair 1) of a LID.
    Lid(u16),
}

/// The attribute requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// Subnet: what the device is, and the port by which the question came in.
    NodeInfo,
    /// Subnet: its name.
    NodeDescription,
    /// Subnet: state, width, speed and LID of a port; 0 is a switch's own.
    PortInfo(u8),
    /// Subnet: the size of a switch's forwarding table, and whether the subnet manager has seen its ports' last change.
    SwitchInfo,
    /// Subnet: 64 entries of a switch's linear forwarding table, by their number.
    LinearForwarding(u16),
    /// Performance: what the agent can count.
    ClassPortInfo,
    /// Performance: the counters of a port, 4 to 32 bits wide. [`ALL_PORTS`] sums them up.
    PortCounters(u8),
    /// Performance: the 64-bit counters of a port.
    PortCountersExtended(u8),
}

/// The port number that means all ports of a switch (AllPortSelect).
pub const ALL_PORTS: u8 = 0xff;

impl Attribute {
    /// Attribute id and modifier.
    fn number(self) -> (u16, u32) {
        match self {
            Self::NodeDescription => (0x10, 0),
            Self::NodeInfo => (0x11, 0),
            Self::SwitchInfo => (0x12, 0),
            Self::PortInfo(port) => (0x15, u32::from(port)),
            Self::LinearForwarding(block) => (0x19, u32::from(block)),
            Self::ClassPortInfo => (0x01, 0),
            Self::PortCounters(_) => (0x12, 0),
            Self::PortCountersExtended(_) => (0x1d, 0),
        }
    }

    /// The port that a performance question selects, in the attribute itself.
    fn selected_port(self) -> Option<u8> {
        match self {
            Self::PortCounters(port) | Self::PortCountersExtended(port) => Some(port),
            _ => None,
        }
    }
}

/// Writes a request. `transaction` comes back with the reply.
pub fn get(destination: &Destination, attribute: Attribute, transaction: u32) -> Bytes {
    let mut mad = [0; MAD_BYTES];
    let (id, modifier) = attribute.number();
    mad[0] = 1; // base version
    mad[2] = 1; // class version
    mad[3] = METHOD_GET;
    // The upper half belongs to the kernel, which routes replies by it.
    mad[12..16].copy_from_slice(&transaction.to_be_bytes());
    mad[16..18].copy_from_slice(&id.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    match destination {
        Destination::Directed(path) => {
            mad[1] = CLASS_SUBNET_DIRECTED;
            mad[7] = path.hops;
            mad[32..34].copy_from_slice(&PERMISSIVE_LID);
            mad[34..36].copy_from_slice(&PERMISSIVE_LID);
            mad[INITIAL_PATH + 1..][..path.ports().len()].copy_from_slice(path.ports());
        }
        Destination::Lid(_) => {
            mad[1] = CLASS_PERFORMANCE;
            mad[DATA + 1] = attribute.selected_port().unwrap_or(0);
        }
    }
    mad
}

/// The transaction of a request or its reply.
pub fn transaction(mad: &Bytes) -> u32 {
    be32(mad, 12)
}

/// Whether a MAD is a reply to this kind of request.
pub fn answers(mad: &Bytes, attribute: Attribute) -> bool {
    mad[3] == METHOD_GET_RESPONSE && be16(mad, 16) == attribute.number().0
}

/// The status in a device's reply; 0 is success. The highest bit of a directed reply is its direction.
pub fn status(mad: &Bytes) -> u16 {
    let mask = if mad[1] == CLASS_SUBNET_DIRECTED {
        0x7fff
    } else {
        0xffff
    };
    be16(mad, 4) & mask
}

/// The bit of a status with which a device reports that it is busy and the request should be repeated.
pub const STATUS_BUSY: u16 = 1;

fn be16(mad: &Bytes, at: usize) -> u16 {
    u16::from_be_bytes([mad[at], mad[at + 1]])
}

fn be32(mad: &Bytes, at: usize) -> u32 {
    u32::from(be16(mad, at)) << 16 | u32::from(be16(mad, at + 2))
}

fn be64(mad: &Bytes, at: usize) -> u64 {
    u64::from(be32(mad, at)) << 32 | u64::from(be32(mad, at + 4))
}

/// NodeInfo: what a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInfo {
    /// Switch, channel adapter or router.
    pub kind: NodeKind,
    /// Ports that it has, without a switch's own port 0.
    pub ports: u8,
    /// System image GUID.
    pub system_guid: Guid,
    /// Node GUID.
    pub guid: Guid,
    /// Device id of the vendor.
    pub device: u16,
    /// The port by which the question came in.
    pub local_port: u8,
    /// Vendor id, an IEEE company id of 24 bits.
    pub vendor: u32,
}

impl NodeInfo {
    /// Reads a reply; none for a kind of node that the specification does not have.
    pub fn read(mad: &Bytes) -> Option<Self> {
        let kind = match mad[DATA + 2] {
            1 => NodeKind::Ca,
            2 => NodeKind::Switch,
            3 => NodeKind::Router,
            _ => return None,
        };
        let last = be32(mad, DATA + 36);
        Some(Self {
            kind,
            ports: mad[DATA + 3],
            system_guid: Guid(be64(mad, DATA + 4)),
            guid: Guid(be64(mad, DATA + 12)),
            device: be16(mad, DATA + 30),
            local_port: (last >> 24) as u8,
            vendor: last & 0x00ff_ffff,
        })
    }
}

/// NodeDescription: text of up to 64 bytes, which may hold anything.
pub fn node_description(mad: &Bytes) -> String {
    let text = &mad[DATA..DATA + 64];
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(64);
    String::from_utf8_lossy(&text[..end]).trim().to_owned()
}

/// PortInfo: what a port is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortInfo {
    /// Local identifier of the port; of a switch only port 0 has one.
    pub lid: u16,
    /// Logical state: 1 Down, 2 Initialize, 3 Armed, 4 Active.
    pub state: u8,
    /// Physical state: 5 LinkUp.
    pub physical_state: u8,
    /// Whether the port (of a switch: its port 0) supports the speeds from FDR on.
    pub extended_speeds: bool,
    width: u8,
    speed: u8,
    extended: u8,
    extended_2: u8,
}

impl PortInfo {
    /// Reads a reply.
    pub fn read(mad: &Bytes) -> Self {
        // CapabilityMask.IsExtendedSpeedsSupported
        const EXTENDED_SPEEDS: u32 = 1 << 14;
        Self {
            lid: be16(mad, DATA + 16),
            state: mad[DATA + 32] & 0xf,
            physical_state: mad[DATA + 33] >> 4,
            extended_speeds: be32(mad, DATA + 20) & EXTENDED_SPEEDS != 0,
            width: mad[DATA + 31],
            speed: mad[DATA + 35] >> 4,
            extended: mad[DATA + 62] >> 4,
            extended_2: mad[DATA + 56] >> 3 & 0b11,
        }
    }

    /// Whether a cable leads from the port to something that is switched on.
    pub fn link_up(&self) -> bool {
        self.physical_state == 5
    }

    /// Whether the port carries traffic.
    pub fn active(&self) -> bool {
        self.state == 4
    }

    /// Width and speed now. `extended` is whether the device supports the speeds from FDR on
    /// ([`Self::extended_speeds`] of a switch's port 0). FDR10 shows only in an attribute of one vendor; here it is
    /// QDR, which is as fast.
    pub fn link_speed(&self, extended: bool) -> Option<LinkSpeed> {
        let lanes = match self.width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => return None,
        };
        let extended_speed = match (self.extended_2, self.extended) {
            (1, _) => Some("XDR"),
            (_, 1) => Some("FDR"),
            (_, 2) => Some("EDR"),
            (_, 4) => Some("HDR"),
            (_, 8) => Some("NDR"),
            _ => None,
        };
        let speed = match (extended_speed.filter(|_| extended), self.speed) {
            (Some(speed), _) => speed,
            (None, 1) => "SDR",
            (None, 2) => "DDR",
            (None, 4) => "QDR",
            _ => return None,
        };
        Some(LinkSpeed { lanes, speed })
    }
}

/// SwitchInfo: what a switch reports about its forwarding table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchInfo {
    /// Entries that its linear table can have; 0 where it has none of that kind.
    pub linear_cap: u16,
    /// The highest LID of the linear table that is in use.
    pub linear_top: u16,
    /// A port has changed its state since the subnet manager last checked.
    pub port_state_change: bool,
}

impl SwitchInfo {
    /// Reads a reply.
    pub fn read(mad: &Bytes) -> Self {
        Self {
            linear_cap: be16(mad, DATA),
            linear_top: be16(mad, DATA + 6),
            port_state_change: mad[DATA + 11] & 1 << 2 != 0,
        }
    }
}

/// LinearForwardingTable: the ports of one block of LIDs.
pub fn linear_forwarding(mad: &Bytes) -> [u8; BLOCK_LIDS] {
    let mut ports = [0; BLOCK_LIDS];
    ports.copy_from_slice(&mad[DATA..DATA + BLOCK_LIDS]);
    ports
}

/// ClassPortInfo of the performance management agent: what it can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Port 255 sums up all ports (AllPortSelect).
    pub all_ports: bool,
    /// PortCountersExtended has 64-bit bytes and packets.
    pub extended: bool,
    /// PortCounters has PortXmitWait.
    pub transmit_wait: bool,
    /// PortCountersExtended also has the error counters, 64 bits wide.
    pub extended_errors: bool,
}

impl Capabilities {
    /// Reads a reply.
    pub fn read(mad: &Bytes) -> Self {
        let mask = be16(mad, DATA + 2);
        // 27 bits, above the 5 of the response time.
        let mask_2 = be32(mad, DATA + 4) >> 5;
        let has = |bit: u16| mask & 1 << bit != 0;
        Self {
            all_ports: has(8),
            // Bit 10: without the packets by cast, which are not used here.
            extended: has(9) || has(10),
            transmit_wait: has(12),
            extended_errors: mask_2 & 1 << 1 != 0,
        }
    }
}

/// Where a counter is in PortCounters and in PortCountersExtended.
pub(crate) struct Field {
    /// Bits from the beginning of PortCounters, and width.
    pub(crate) narrow: (usize, u32),
    /// Bytes from the beginning of PortCountersExtended.
    pub(crate) wide: usize,
}

impl Field {
    /// The value in PortCounters.
    pub(crate) fn narrow(&self, mad: &Bytes) -> u64 {
        let (bit, width) = self.narrow;
        let word = be64(mad, DATA + bit / 8);
        // The widest has 32 bits and begins within the first byte.
        word << (bit % 8) >> (64 - width)
    }

    /// The value in PortCountersExtended.
    pub(crate) fn wide(&self, mad: &Bytes) -> u64 {
        be64(mad, DATA + self.wide)
    }
}

#[cfg(test)]
mod tests;
