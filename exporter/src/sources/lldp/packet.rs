//! A packet socket that receives the LLDP frames of one interface.
#![allow(
    unsafe_code,
    reason = "the address and the multicast membership of a packet socket have no safe wrapper"
)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

/// EtherType of LLDP (IEEE 802.1AB).
const LLDP: u16 = 0x88cc;
/// The group "nearest bridge", to which LLDP is sent; bridges do not pass it on.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];

/// A socket bound to one interface.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket on the interface with this index; it needs `CAP_NET_RAW`.
    pub(super) fn open(index: u32) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it receives nothing until it is bound: no frame of another interface.
        let none: Option<Protocol> = None;
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, none)?;
        let index = i32::try_from(index).map_err(|_| Errno::NODEV)?;
        bind(&socket, index)?;
        join(&socket, index)?;
        Ok(Self(socket))
    }

    /// The next frame behind its Ethernet header; none when there is no more.
    pub(super) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Errno> {
        match recv(&self.0, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _)) => Ok(Some(&buffer[..length])),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

fn bind(socket: &OwnedFd, index: i32) -> Result<(), Errno> {
    // SAFETY: all-zero bytes are a valid `sockaddr_ll`, which is made of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = LLDP.to_be();
    address.sll_ifindex = index;
    // SAFETY: the socket is open, and the address is valid for its whole length during the call.
    let result = unsafe {
        libc::bind(
            socket.as_fd().as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    outcome(result)
}

/// Has the interface let the group through, which its filter would else keep out.
fn join(socket: &OwnedFd, index: i32) -> Result<(), Errno> {
    let mut request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_MULTICAST as libc::c_ushort,
        mr_alen: NEAREST_BRIDGE.len() as libc::c_ushort,
        mr_address: [0; 8],
    };
    request.mr_address[..NEAREST_BRIDGE.len()].copy_from_slice(&NEAREST_BRIDGE);
    // SAFETY: the socket is open, and the request is valid for its whole length during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of_val(&request) as libc::socklen_t,
        )
    };
    outcome(result)
}

fn outcome(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
