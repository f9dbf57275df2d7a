//! Addresses of RDMA ports: our own GIDs, destinations and sources of datagrams.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use railscope_model::rdma_probe::Endpoint;

/// A datagram's first bytes are its global route header, or room for it.
pub const HEADER: usize = 40;
/// Where the header of an IPv4 packet begins in that room.
const IPV4_HEADER: usize = 20;

/// Destination of datagrams, and how they travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The other port's GID.
    pub gid: [u8; 16],
    /// Index of our GID to send from.
    pub from: u8,
    /// The other port's LID; 0 on Ethernet.
    pub lid: u16,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub service_level: u8,
    /// Whether packets carry a global header. On Ethernet they always do.
    pub global: bool,
}

/// From where a packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its global route header, if it has one; on RoCE v2 over IPv4 the last 20 bytes are its IPv4 header.
    pub header: [u8; HEADER],
    /// Whether it has one.
    pub global: bool,
    /// The sender's queue pair.
    pub queue_pair: u32,
    /// The sender's LID; 0 on Ethernet.
    pub lid: u16,
    /// Service level.
    pub service_level: u8,
}

/// A GID of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the port's table.
    pub index: u8,
    /// The GID.
    pub gid: Ipv6Addr,
}

/// The GIDs of a port that probes can use, the advertised one first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gids(Vec<Gid>);

/// Of which kind a GID is: two ends need one of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ipv4,
    Global,
    LinkLocal,
}

fn kind(gid: Ipv6Addr) -> Kind {
    match gid.to_ipv4_mapped() {
        Some(_) => Kind::Ipv4,
        None if gid.is_unicast_link_local() => Kind::LinkLocal,
        None => Kind::Global,
    }
}

impl Gids {
    /// Reads the table of a port, `count` entries at most, from `/sys/class/infiniband/DEVICE/ports/NUMBER`. On Ethernet only
    /// RoCE v2 counts: its packets are routed, and hashed by their UDP source port.
    ///
    /// # Errors
    /// There is no table.
    pub fn read(port: &Path, count: u32, ethernet: bool) -> io::Result<Self> {
        let mut gids = Vec::new();
        for index in 0..=u8::try_from(count.saturating_sub(1)).unwrap_or(u8::MAX) {
            let text = match fs::read_to_string(port.join(format!("gids/{index}"))) {
                Ok(text) => text,
                Err(error) if index == 0 => return Err(error),
                Err(_) => break,
            };
            let Some(gid) = text.trim().parse().ok().filter(|gid| !unset(gid)) else {
                continue;
            };
            // Of an entry that is not in use it cannot be read.
            let of_type = fs::read_to_string(port.join(format!("gid_attrs/types/{index}")));
            let is_v2 = || of_type.is_ok_and(|kind| kind.trim() == "RoCE v2");
            if !ethernet || is_v2() {
                gids.push(Gid { index, gid });
            }
        }
        // InfiniBand's first is the port's own; what is sorted stays in order otherwise.
        if ethernet {
            gids.sort_by_key(|gid| kind(gid.gid));
        }
        Ok(Self(gids))
    }

    /// The one that is advertised.
    pub fn own(&self) -> Option<Gid> {
        self.0.first().copied()
    }

    /// The one to send to this GID from.
    pub fn towards(&self, peer: Ipv6Addr) -> Option<Gid> {
        let mut same = self.0.iter().filter(|gid| kind(gid.gid) == kind(peer));
        same.next().copied()
    }

    /// How to reach the other end of a flow; none without a GID of its kind.
    pub fn route(
        &self,
        to: &Endpoint,
        flow_label: u32,
        (class, level): (u8, u8),
        ethernet: bool,
    ) -> Option<Route> {
        let from = if ethernet {
            self.towards(to.gid)?
        } else {
            self.own()?
        };
        Some(Route {
            gid: to.gid.octets(),
            from: from.index,
            lid: to.lid,
            flow_label: flow_label & 0xf_ffff,
            traffic_class: class,
            service_level: level,
            global: ethernet,
        })
    }

    /// How to answer a packet.
    pub fn back(&self, source: &Source, ethernet: bool) -> Option<Route> {
        let (gid, class, flow_label) = match source.global.then(|| ends(&source.header)) {
            Some(ends) => ends?,
            None if ethernet => return None,
            None => (Ipv6Addr::UNSPECIFIED, 0, 0),
        };
        let from = if ethernet {
            self.towards(gid)?
        } else {
            self.own()?
        };
        Some(Route {
            gid: gid.octets(),
            from: from.index,
            lid: source.lid,
            flow_label,
            traffic_class: class,
            service_level: source.service_level,
            global: source.global,
        })
    }
}

/// Unused entries are zero, or have nothing but the prefix of link-local addresses.
fn unset(gid: &Ipv6Addr) -> bool {
    gid.octets()[8..] == [0; 8]
}

/// Sender, traffic class and flow label of a header. An IPv4 one is in its second half, and the first half is undefined:
/// it is one if its checksum is right.
fn ends(header: &[u8; HEADER]) -> Option<(Ipv6Addr, u8, u32)> {
    let ipv4 = header.last_chunk::<IPV4_HEADER>()?;
    let is_ipv4 = ipv4[0] == 0x45;
    let is_ipv6 = header[0] >> 4 == 6;
    if is_ipv4 && (!is_ipv6 || checksum_is_right(ipv4)) {
        let sender = Ipv4Addr::new(ipv4[12], ipv4[13], ipv4[14], ipv4[15]);
        return Some((sender.to_ipv6_mapped(), ipv4[1], 0));
    }
    if !is_ipv6 {
        return None;
    }
    let first = u32::from_be_bytes(*header.first_chunk()?);
    let sender: [u8; 16] = header[8..24].try_into().ok()?;
    Some((sender.into(), (first >> 20) as u8, first & 0xf_ffff))
}

fn checksum_is_right(header: &[u8; IPV4_HEADER]) -> bool {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, &str)]) -> tempfile::TempDir {
        let port = tempfile::tempdir().expect("a temporary directory");
        for folder in ["gids", "gid_attrs/types"] {
            fs::create_dir_all(port.path().join(folder)).expect("a folder");
        }
        for (index, (gid, kind)) in entries.iter().enumerate() {
            let file = |name: &str| port.path().join(format!("{name}/{index}"));
            fs::write(file("gids"), format!("{gid}\n")).expect("written");
            if !kind.is_empty() {
                fs::write(file("gid_attrs/types"), format!("{kind}\n")).expect("written");
            }
        }
        port
    }

    /// As a ConnectX-6 shows it, with synthetic addresses.
    const ROCE: [(&str, &str); 6] = [
        ("fe80:0000:0000:0000:0a00:00ff:fe00:0001", "IB/RoCE v1"),
        ("fe80:0000:0000:0000:0a00:00ff:fe00:0001", "RoCE v2"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1"),
        ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),
        ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
        ("fd00:0000:0000:0000:0000:0000:0000:0001", "RoCE v2"),
    ];

    #[test]
    fn the_gid_of_an_ipv4_address_comes_first_and_each_end_uses_one_of_the_others_kind() {
        let port = table(&ROCE);
        let gids = Gids::read(port.path(), 1_024, true).expect("a table");
        assert_eq!(gids.own().map(|gid| gid.index), Some(3));
        for (peer, index) in [("::ffff:10.0.0.9", 3), ("fe80::9", 1), ("fd00::9", 5)] {
            let peer: Ipv6Addr = peer.parse().expect("an address");
            assert_eq!(
                gids.towards(peer).map(|gid| gid.index),
                Some(index),
                "{peer}"
            );
        }
        let port = table(&ROCE[..2]);
        let gids = Gids::read(port.path(), 2, true).expect("a table");
        assert_eq!(gids.own().map(|gid| gid.index), Some(1));
        assert_eq!(
            gids.towards("::ffff:10.0.0.9".parse().expect("an address")),
            None
        );
        assert!(Gids::read(Path::new("/nowhere"), 2, true).is_err());
    }

    #[test]
    fn on_infiniband_the_first_counts_whatever_it_is_and_answers_go_to_the_lid() {
        let port = table(&[("fe80:0000:0000:0000:0002:c903:0000:1491", "IB/RoCE v1")]);
        let gids = Gids::read(port.path(), 1, false).expect("a table");
        let source = Source {
            header: [0; HEADER],
            global: false,
            queue_pair: 9,
            lid: 17,
            service_level: 2,
        };
        let back = gids.back(&source, false).expect("a way back");
        assert_eq!((back.lid, back.service_level, back.global), (17, 2, false));
        assert_eq!(gids.back(&source, true), None, "Ethernet has no LIDs");
    }

    #[test]
    fn an_answer_goes_to_the_sender_with_its_traffic_class() {
        let mut ipv4 = [0; HEADER];
        // Version 4, traffic class 104, from 10.0.0.2 to 10.0.0.1; what is before it looks like IPv6.
        ipv4[20..].copy_from_slice(&[
            0x45, 104, 0, 112, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1,
        ]);
        ipv4[0] = 0x60;
        let words = ipv4[20..].chunks_exact(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let checksum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        ipv4[30..32].copy_from_slice(&checksum.to_be_bytes());
        let mut ipv6 = [0; HEADER];
        ipv6[..4].copy_from_slice(&(6 << 28 | 104 << 20 | 77_u32).to_be_bytes());
        ipv6[8] = 0xfd;
        ipv6[23] = 2;
        for (header, sender, label) in [(ipv4, "::ffff:10.0.0.2", 0), (ipv6, "fd00::2", 77)] {
            let expected = (sender.parse().expect("an address"), 104, label);
            assert_eq!(ends(&header), Some(expected));
        }
        assert_eq!(ends(&[0; HEADER]), None);
        let mut forged = ipv4;
        forged[0] = 0;
        forged[20] = 0x55;
        assert_eq!(ends(&forged), None);
    }
}
