//! Control messages of a datagram, as the kernel lays them out: received and sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::sources::netlink::fixed;

/// `sizeof(struct cmsghdr)` on 64-bit machines: length, level, type.
const HEADER: usize = 16;
/// Room for the control messages of one datagram; those that are requested take 128 bytes.
pub(super) const ROOM: usize = 256;

/// `SO_EE_ORIGIN_*` of `uapi/linux/errqueue.h`, and what `ICMP` calls time exceeded in both versions.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
const ORIGIN_TIMESTAMPING: u8 = 4;
const TIME_EXCEEDED_V4: u8 = 11;
const TIME_EXCEEDED_V6: u8 = 3;
/// `sizeof(struct sock_extended_err)`; followed by the address of the reporting router.
const EXTENDED_ERROR: usize = 16;

const SOL_IP: i32 = libc::IPPROTO_IP;
const SOL_IPV6: i32 = libc::IPPROTO_IPV6;

/// When a datagram left or arrived, by each clock that took the time; nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamps {
    /// By the kernel, of the system's clock.
    pub kernel: Option<u64>,
    /// By the NIC and its clock: comparable only with times of the same NIC.
    pub nic: Option<u64>,
}

/// What the kernel reports about one datagram besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// When it arrived or left. The kernel reports the two times of a departure in two messages.
    pub at: Stamps,
    /// Which of our addresses it was sent to, and by which interface it came.
    pub to: Option<(IpAddr, u32)>,
    /// Its type of service (traffic class).
    pub class: Option<u8>,
    /// What the error queue reports about a datagram of ours.
    pub report: Option<Report>,
}

/// What became of a datagram of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It left; by its number among those that this socket has sent.
    Left(u32),
    /// Its time to live was over at this router.
    Expired(IpAddr),
    /// Something else.
    Other,
}

/// Reads control messages; one that is cut short ends them.
pub(super) fn read(bytes: &[u8]) -> Told {
    let mut told = Told::default();
    let mut rest = bytes;
    while let Some((level, kind, data)) = message(rest) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => told.at = stamps(data),
            (SOL_IP, libc::IP_PKTINFO) => {
                told.to = fixed::<4>(data, 4)
                    .zip(fixed(data, 0))
                    .map(|(ip, index)| (Ipv4Addr::from(ip).into(), u32::from_ne_bytes(index)));
            }
            (SOL_IPV6, libc::IPV6_PKTINFO) => {
                told.to = fixed::<16>(data, 0)
                    .zip(fixed(data, 16))
                    .map(|(ip, index)| (Ipv6Addr::from(ip).into(), u32::from_ne_bytes(index)));
            }
            (SOL_IP, libc::IP_TOS) => told.class = data.first().copied(),
            (SOL_IPV6, libc::IPV6_TCLASS) => {
                told.class = fixed(data, 0)
                    .map(i32::from_ne_bytes)
                    .and_then(|class| u8::try_from(class).ok());
            }
            (SOL_IP, libc::IP_RECVERR) | (SOL_IPV6, libc::IPV6_RECVERR) => {
                told.report = report(data);
            }
            _ => {}
        }
        let length = HEADER + data.len();
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    told
}

/// The first message: level, type, data.
fn message(bytes: &[u8]) -> Option<(i32, i32, &[u8])> {
    let length = usize::try_from(u64::from_ne_bytes(fixed(bytes, 0)?)).ok()?;
    let level = i32::from_ne_bytes(fixed(bytes, 8)?);
    let kind = i32::from_ne_bytes(fixed(bytes, 12)?);
    Some((level, kind, bytes.get(HEADER..length)?))
}

/// `struct scm_timestamping`: three times, of which the first is the kernel's, the last the NIC's.
fn stamps(data: &[u8]) -> Stamps {
    Stamps {
        kernel: time(data, 0),
        nic: time(data, 32),
    }
}

/// `struct timespec` at this place. Zero is none.
fn time(data: &[u8], at: usize) -> Option<u64> {
    let seconds = i64::from_ne_bytes(fixed(data, at)?);
    let nanos = i64::from_ne_bytes(fixed(data, at + 8)?);
    let nanos = u64::try_from(nanos).ok()?;
    let seconds = u64::try_from(seconds).ok()?;
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (time != 0).then_some(time)
}

/// `struct sock_extended_err`: error, origin, type, code, padding, info, data.
fn report(data: &[u8]) -> Option<Report> {
    let origin: [u8; 4] = fixed(data, 4)?;
    let key = u32::from_ne_bytes(fixed(data, 12)?);
    let report = match origin {
        [ORIGIN_TIMESTAMPING, ..] => Report::Left(key),
        [ORIGIN_ICMP, TIME_EXCEEDED_V4, ..] | [ORIGIN_ICMP6, TIME_EXCEEDED_V6, ..] => {
            let from = data.get(EXTENDED_ERROR..).and_then(socket_address);
            from.map_or(Report::Other, |from| Report::Expired(from.ip()))
        }
        _ => Report::Other,
    };
    Some(report)
}

/// An address as the kernel writes it: `struct sockaddr_in` or `sockaddr_in6`.
pub(super) fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(fixed(bytes, 0)?);
    let port = u16::from_be_bytes(fixed(bytes, 2)?);
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => fixed::<4>(bytes, 4).map(Ipv4Addr::from)?.into(),
        libc::AF_INET6 => fixed::<16>(bytes, 8).map(Ipv6Addr::from)?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Control messages to send with a datagram.
#[derive(Debug)]
pub(super) struct Outgoing {
    bytes: [u64; ROOM / 8],
    length: usize,
}

impl Outgoing {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; ROOM / 8],
            length: 0,
        }
    }

    /// Sends with this time to live.
    pub(super) fn hop(&mut self, v6: bool, hop: u8) {
        let (level, kind) = if v6 {
            (SOL_IPV6, libc::IPV6_HOPLIMIT)
        } else {
            (SOL_IP, libc::IP_TTL)
        };
        self.push(level, kind, &i32::from(hop).to_ne_bytes());
    }

    /// Sends with this type of service (traffic class).
    pub(super) fn class(&mut self, v6: bool, class: u8) {
        let (level, kind) = if v6 {
            (SOL_IPV6, libc::IPV6_TCLASS)
        } else {
            (SOL_IP, libc::IP_TOS)
        };
        self.push(level, kind, &i32::from(class).to_ne_bytes());
    }

    /// Sends from this address of ours, by this interface.
    pub(super) fn from(&mut self, ip: IpAddr, interface: u32) {
        match ip {
            IpAddr::V4(ip) => {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&interface.to_ne_bytes());
                info[4..8].copy_from_slice(&ip.octets());
                self.push(SOL_IP, libc::IP_PKTINFO, &info);
            }
            IpAddr::V6(ip) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                info[16..].copy_from_slice(&interface.to_ne_bytes());
                self.push(SOL_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// Their memory, in whole words as the kernel requires: start and length.
    pub(super) fn raw(&self) -> (*const u64, usize) {
        (self.bytes.as_ptr(), self.length)
    }

    /// Adds a message of at most 24 bytes; of these there are at most three, which is far less than the room.
    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let mut message = [0; HEADER + 24];
        let length = HEADER + data.len();
        message[..8].copy_from_slice(&(length as u64).to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..length].copy_from_slice(data);
        let words = message.chunks_exact(8).take(length.div_ceil(8));
        for (to, from) in self.bytes[self.length / 8..].iter_mut().zip(words) {
            *to = u64::from_ne_bytes(from.try_into().unwrap_or_default());
        }
        self.length += length.next_multiple_of(8);
    }

    #[cfg(test)]
    fn to_vec(&self) -> Vec<u8> {
        let words = &self.bytes[..self.length / 8];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn one(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((HEADER as u64 + data.len() as u64).to_ne_bytes());
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// `sock_extended_err` followed by the reporting router.
    fn error(origin: u8, kind: u8, key: u32, from: &[u8]) -> Vec<u8> {
        let mut data = vec![0; 4];
        data.extend([origin, kind, 0, 0]);
        data.extend([0; 4]);
        data.extend(key.to_ne_bytes());
        data.extend(from);
        data
    }

    #[test]
    fn what_is_sent_with_a_datagram_is_what_the_other_end_is_told() {
        for address in ["10.0.1.2", "fd00::2"] {
            let v6 = address.contains(':');
            let mut out = Outgoing::new();
            out.class(v6, 104);
            out.from(ip(address), 7);
            let told = read(&out.to_vec());
            assert_eq!(told.to, Some((ip(address), 7)));
            // Sent as a number of four bytes; received as one byte over IPv4.
            assert_eq!(told.class, Some(104));
            out.hop(v6, 3);
            assert!(out.length <= ROOM);
        }
    }

    #[test]
    fn reports_are_told_apart() {
        let mut router = vec![0; 16];
        router[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        router[4..8].copy_from_slice(&[10, 0, 0, 1]);
        for (origin, kind, expected) in [
            (ORIGIN_TIMESTAMPING, 0, Report::Left(9)),
            (ORIGIN_ICMP, 11, Report::Expired(ip("10.0.0.1"))),
            (ORIGIN_ICMP, 3, Report::Other),
            (1, 11, Report::Other),
        ] {
            let bytes = one(SOL_IP, libc::IP_RECVERR, &error(origin, kind, 9, &router));
            assert_eq!(read(&bytes).report, Some(expected), "{origin} {kind}");
        }
        let nobody = one(SOL_IP, libc::IP_RECVERR, &error(ORIGIN_ICMP, 11, 9, &[]));
        assert_eq!(read(&nobody).report, Some(Report::Other));
    }

    #[test]
    fn the_kernels_time_is_the_first_and_the_nics_the_last_and_zero_is_none() {
        for (words, kernel, nic) in [
            ([2, 5, 0, 0, 0, 0], Some(2_000_000_005), None),
            ([0, 0, 0, 0, 3, 7], None, Some(3_000_000_007)),
            // An arrival has both; the middle one is no longer used by any kernel.
            ([2, 5, 9, 9, 3, 7], Some(2_000_000_005), Some(3_000_000_007)),
            ([0; 6], None, None),
            ([-1, 0, 0, 0, -1, 0], None, None),
        ] {
            let data: Vec<u8> = words.into_iter().flat_map(i64::to_ne_bytes).collect();
            let told = read(&one(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &data));
            assert_eq!(told.at, Stamps { kernel, nic }, "{words:?}");
        }
        let short = one(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &[1; 16]);
        assert_eq!(read(&short).at.nic, None);
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_says_is_read_or_left(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&bytes);
            socket_address(&bytes);
        }
    }
}
