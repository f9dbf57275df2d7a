//! UDP sockets that report when a datagram left and arrived, by the clocks of the kernel and of the NIC, and which router
//! dropped it.
#![allow(
    unsafe_code,
    reason = "socket options without a safe wrapper, and messages with control data"
)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use super::control::{self, Outgoing, ROOM, Told};
use super::wire;

/// Datagrams that one call receives at most.
pub(super) const BATCH: usize = 8;
/// Bytes of a datagram that are kept: what is longer is no probe of ours, or nothing behind this reports
/// anything.
const KEPT: usize = 2 * wire::LENGTH;
/// Room for an address: `sizeof(struct sockaddr_storage)`.
const NAME: usize = 128;
/// Timestamps that are requested: the kernel's, of arrival and of departure, the latter by number and without the
/// bytes that left.
const STAMPS: u32 = libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;
/// Besides those, times of the NIC's clock, where its timestamps are switched on (`SIOCSHWTSTAMP`, by `ptp4l` for example): that
/// is a setting of the NIC for all its traffic, so it is only used here, never changed.
const NIC_STAMPS: u32 = libc::SOF_TIMESTAMPING_RAW_HARDWARE
    | libc::SOF_TIMESTAMPING_RX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_OPT_TX_SWHW;

/// Where datagrams wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// Those that arrived.
    Arrived,
    /// What became of those that were sent.
    Errors,
}

/// A UDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    v6: bool,
    /// Flags of `SO_TIMESTAMPING`.
    stamps: u32,
}

impl Socket {
    /// A socket that probes one peer, by one interface, from one address and port, and never waits. It requests the NIC's
    /// timestamps too if the NIC can take them of every packet. Needs no
    /// capability since Linux 5.7; before, binding to the interface needs `CAP_NET_RAW`.
    pub(super) fn asking(
        interface: &str,
        stamps_all: bool,
        local: SocketAddr,
        peer: SocketAddr,
        dscp: u8,
    ) -> Result<Self, Errno> {
        let stamps = if stamps_all {
            STAMPS | NIC_STAMPS
        } else {
            STAMPS
        };
        let socket = Self::open(local.is_ipv6(), SocketFlags::NONBLOCK, stamps)?;
        socket.set(
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            interface.as_bytes(),
        )?;
        if socket.v6 {
            socket.switch_on(libc::IPPROTO_IPV6, libc::IPV6_RECVERR)?;
            sockopt::set_ipv6_tclass(&socket.descriptor, u32::from(dscp) << 2)?;
        } else {
            socket.switch_on(libc::IPPROTO_IP, libc::IP_RECVERR)?;
            sockopt::set_ip_tos(&socket.descriptor, dscp << 2)?;
        }
        rustix::net::bind(&socket.descriptor, &local)?;
        rustix::net::connect(&socket.descriptor, &peer)?;
        socket.count_from_zero()?;
        Ok(socket)
    }

    /// A socket that replies at an address, and waits at most so long for a request.
    pub(super) fn answering(local: SocketAddr, patience: Duration) -> Result<Self, Errno> {
        // The processing time must be known when the reply is sent, before the NIC's timestamp: by the kernel's clock only.
        let stamps = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RX_SOFTWARE;
        let socket = Self::open(local.is_ipv6(), SocketFlags::empty(), stamps)?;
        let descriptor = &socket.descriptor;
        if socket.v6 {
            // A separate address, and port, for each version.
            sockopt::set_ipv6_v6only(descriptor, true)?;
            sockopt::set_ipv6_recvtclass(descriptor, true)?;
            socket.switch_on(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)?;
        } else {
            sockopt::set_ip_recvtos(descriptor, true)?;
            socket.switch_on(libc::IPPROTO_IP, libc::IP_PKTINFO)?;
        }
        socket.stamp(stamps)?;
        sockopt::set_socket_timeout(descriptor, sockopt::Timeout::Recv, Some(patience))?;
        rustix::net::bind(descriptor, &local)?;
        Ok(socket)
    }

    /// Numbers departures from 0 again. After a failed send it is unknown whether the kernel has counted it.
    pub(super) fn count_from_zero(&self) -> Result<(), Errno> {
        self.stamp(self.stamps)?;
        self.stamp(self.stamps | libc::SOF_TIMESTAMPING_OPT_ID)
    }

    /// Sends to the peer; with a separate time to live if one is given.
    pub(super) fn send(&self, bytes: &[u8], hop: Option<u8>) -> Result<(), Errno> {
        let mut control = Outgoing::new();
        if let Some(hop) = hop {
            control.hop(self.v6, hop);
        }
        self.send_message(bytes, &[], &control)
    }

    /// Replies to a datagram: to its source, from its destination, in its class.
    pub(super) fn answer(&self, bytes: &[u8], question: &Datagram<'_>) -> Result<(), Errno> {
        let mut control = Outgoing::new();
        if let Some((ip, interface)) = question.told.to {
            control.from(ip, interface);
        }
        if let Some(class) = question.told.class {
            control.class(self.v6, class);
        }
        self.send_message(bytes, question.name, &control)
    }

    /// Receives what is queued, at most [`BATCH`] datagrams; none if there are none, after as long as the socket waits.
    pub(super) fn receive(&self, queue: Queue, inbox: &mut Inbox) -> Result<usize, Errno> {
        inbox.filled = 0;
        let flags = match queue {
            Queue::Arrived => libc::MSG_WAITFORONE,
            Queue::Errors => libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        };
        let socket = self.descriptor.as_fd().as_raw_fd();
        // SAFETY: all-zero bytes are valid for both, which are made of numbers and pointers.
        let (mut parts, mut headers): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { std::mem::zeroed() };
        let slots = inbox.slots.iter_mut();
        for ((slot, part), header) in slots.zip(&mut parts).zip(&mut headers) {
            part.iov_base = slot.data.as_mut_ptr().cast();
            part.iov_len = KEPT;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = slot.name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME as libc::socklen_t;
            header.msg_hdr.msg_control = slot.control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = ROOM as _;
        }
        // SAFETY: the socket is open; each header points to a part and to a slot of `inbox`, all of which outlive the
        // call, are not referred to otherwise during it and are as long as the header states.
        let received = unsafe {
            libc::recvmmsg(
                socket,
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                flags,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            return match last_error() {
                Errno::AGAIN | Errno::INTR => Ok(0),
                other => Err(other),
            };
        };
        for (slot, header) in inbox.slots.iter_mut().zip(&headers).take(received) {
            slot.bytes = (header.msg_len as usize).min(KEPT);
            slot.name_bytes = (header.msg_hdr.msg_namelen as usize).min(NAME);
            slot.control_bytes = header.msg_hdr.msg_controllen.min(ROOM);
        }
        inbox.filled = received;
        Ok(received)
    }

    fn open(v6: bool, flags: SocketFlags, stamps: u32) -> Result<Self, Errno> {
        let family = if v6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let flags = flags | SocketFlags::CLOEXEC;
        let descriptor = socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        Ok(Self {
            descriptor,
            v6,
            stamps,
        })
    }

    fn stamp(&self, what: u32) -> Result<(), Errno> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &what.to_ne_bytes())
    }

    fn switch_on(&self, level: i32, option: i32) -> Result<(), Errno> {
        self.set(level, option, &1_i32.to_ne_bytes())
    }

    fn set(&self, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
        let socket = self.descriptor.as_fd().as_raw_fd();
        // SAFETY: the socket is open, and the value is valid for its whole length during the call.
        let result = unsafe {
            libc::setsockopt(
                socket,
                level,
                option,
                value.as_ptr().cast(),
                value.len() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(last_error())
        }
    }

    fn send_message(&self, bytes: &[u8], name: &[u8], control: &Outgoing) -> Result<(), Errno> {
        let socket = self.descriptor.as_fd().as_raw_fd();
        let (words, length) = control.raw();
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: all-zero bytes are valid for it: it is made of numbers and pointers.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !name.is_empty() {
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len() as libc::socklen_t;
        }
        if length > 0 {
            header.msg_control = words.cast_mut().cast();
            header.msg_controllen = length as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the socket is open; the header points to bytes, name and control messages that outlive the call, are
        // as long as it reports and are only read.
        let sent = unsafe { libc::sendmsg(socket, &raw const header, flags) };
        if sent >= 0 { Ok(()) } else { Err(last_error()) }
    }
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Room for what one call receives.
#[derive(Debug)]
pub(super) struct Inbox {
    slots: Vec<Slot>,
    filled: usize,
}

/// Room for one datagram and for what the kernel reports with it.
#[derive(Debug, Clone)]
struct Slot {
    data: [u8; KEPT],
    bytes: usize,
    name: [u8; NAME],
    name_bytes: usize,
    /// Words, aligned as the kernel requires.
    control: [u64; ROOM / 8],
    control_bytes: usize,
}

/// A datagram and what the kernel reports with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram<'a> {
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Whence it came, as the kernel writes addresses.
    name: &'a [u8],
    /// The rest.
    pub told: Told,
}

impl Inbox {
    /// Room for [`BATCH`] datagrams.
    pub(super) fn new() -> Self {
        let slot = Slot {
            data: [0; KEPT],
            bytes: 0,
            name: [0; NAME],
            name_bytes: 0,
            control: [0; ROOM / 8],
            control_bytes: 0,
        };
        Self {
            slots: vec![slot; BATCH],
            filled: 0,
        }
    }

    /// What the last call received.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.slots.iter().take(self.filled).map(|slot| {
            let mut control = [0; ROOM];
            for (to, word) in control.chunks_exact_mut(8).zip(&slot.control) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            Datagram {
                bytes: &slot.data[..slot.bytes],
                name: &slot.name[..slot.name_bytes],
                told: control::read(&control[..slot.control_bytes]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock;
    use super::super::control::Report;
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant;

    fn wait(socket: &Socket, queue: Queue, inbox: &mut Inbox) {
        let begun = Instant::now();
        while socket.receive(queue, inbox) == Ok(0) {
            assert!(begun.elapsed() < Duration::from_secs(20), "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The kernel starts taking timestamps shortly after the request.
    fn warm_up(asking: &Socket, answering: &Socket) {
        let mut inbox = Inbox::new();
        let begun = Instant::now();
        let mut stamped = false;
        while !stamped {
            assert!(begun.elapsed() < Duration::from_secs(20), "no timestamps");
            asking.send(b"ready?", None).expect("sent");
            wait(answering, Queue::Arrived, &mut inbox);
            stamped = inbox.datagrams().all(|one| one.told.at.kernel.is_some());
            wait(asking, Queue::Errors, &mut inbox);
        }
        asking.count_from_zero().expect("counted anew");
    }

    /// A request and its reply over the loopback of this machine.
    fn check(any: &str) {
        let any: SocketAddr = any.parse().expect("an address");
        // A port that is free now, and most likely still when it is used.
        let Ok(taken) = UdpSocket::bind(any) else {
            println!("SKIPPED: no {any} here");
            return;
        };
        let peer = taken.local_addr().expect("an address");
        drop(taken);
        let answering = Socket::answering(peer, Duration::from_secs(20)).expect("a socket");
        let asking = Socket::asking("lo", true, any, peer, 26).expect("a socket");
        warm_up(&asking, &answering);
        let (mut there, mut here) = (Inbox::new(), Inbox::new());
        let before = clock::system();
        asking.send(b"what?", None).expect("sent");

        wait(&answering, Queue::Arrived, &mut there);
        let question = there.datagrams().next().expect("a question");
        assert_eq!(question.bytes, b"what?");
        assert_eq!(question.told.class, Some(26 << 2));
        assert_eq!(question.told.to.map(|(ip, _)| ip), Some(peer.ip()));
        let arrived = question.told.at.kernel.expect("a timestamp");
        answering.answer(b"that", &question).expect("answered");

        wait(&asking, Queue::Errors, &mut here);
        let left = here.datagrams().next().expect("a departure").told;
        assert_eq!(left.report, Some(Report::Left(0)));
        wait(&asking, Queue::Arrived, &mut here);
        let answer = here.datagrams().next().expect("an answer");
        assert_eq!(answer.bytes, b"that");
        let times = [
            Some(before),
            left.at.kernel,
            Some(arrived),
            answer.told.at.kernel,
            Some(clock::system()),
        ];
        let times: Option<Vec<u64>> = times.into_iter().collect();
        assert!(times.expect("timestamps").is_sorted());

        asking.send(b"again", Some(1)).expect("sent");
        wait(&asking, Queue::Errors, &mut here);
        let left = here.datagrams().next().expect("a departure").told;
        assert_eq!(left.report, Some(Report::Left(1)));
        asking.count_from_zero().expect("counted anew");
        asking.send(b"and again", None).expect("sent");
        wait(&asking, Queue::Errors, &mut here);
        let left = here.datagrams().next().expect("a departure").told;
        assert_eq!(left.report, Some(Report::Left(0)));
    }

    #[test]
    fn an_answer_goes_in_the_class_of_its_question() {
        let asking = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let free = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let peer = free.local_addr().expect("an address");
        drop(free);
        let answering = Socket::answering(peer, Duration::from_secs(20)).expect("a socket");
        asking.connect(peer).expect("connected");
        sockopt::set_ip_tos(&asking, 26 << 2).expect("a class");
        sockopt::set_ip_recvtos(&asking, true).expect("its class");
        let asking = Socket {
            descriptor: asking.into(),
            v6: false,
            stamps: STAMPS,
        };
        asking.send(b"what?", None).expect("sent");
        let mut inbox = Inbox::new();
        wait(&answering, Queue::Arrived, &mut inbox);
        let question = inbox.datagrams().next().expect("a question");
        answering.answer(b"that", &question).expect("answered");
        wait(&asking, Queue::Arrived, &mut inbox);
        let answer = inbox.datagrams().next().expect("an answer");
        assert_eq!(answer.told.class, Some(26 << 2));
    }

    #[test]
    fn the_kernel_says_when_a_datagram_left_and_when_it_arrived() {
        check("127.0.0.1:0");
        check("[::1]:0");
    }
}
