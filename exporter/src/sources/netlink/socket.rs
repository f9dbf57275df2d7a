//! A conversation with one family of the kernel.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with, sockopt,
};

use super::message::{Message, Messages, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, Request, verdict};
use crate::sources::sysfs::Miss;

/// How long the kernel may take for one reply. It replies in microseconds, unless a driver is blocked under
/// the lock that all network configuration shares.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest datagram that is read. Lists come in parts of at most 32 KiB; the largest reply to a
/// single request is that of an interface with its virtual functions, in which one attribute of at most
/// 64 KiB holds all of them. Memory that is never touched costs nothing.
const LARGEST: usize = 128 * 1024;

/// A socket to one family of the kernel.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket to generic netlink.
    ///
    /// # Errors
    /// [`Miss::Unsupported`] where the kernel has no such family, or it forbids it.
    pub fn generic() -> Result<Self, Miss> {
        Self::open(Some(netlink::GENERIC))
    }

    /// Opens a socket to the routing family, which also serves data center bridging.
    ///
    /// # Errors
    /// As [`Socket::generic`].
    pub fn route() -> Result<Self, Miss> {
        Self::open(None)
    }

    /// Opens a socket to RDMA. Needs no privilege.
    ///
    /// # Errors
    /// As [`Socket::generic`].
    pub fn rdma() -> Result<Self, Miss> {
        Self::open(Some(netlink::RDMA))
    }

    fn open(family: Option<Protocol>) -> Result<Self, Miss> {
        let (domain, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        match socket_with(domain, kind, SocketFlags::CLOEXEC, family) {
            Ok(descriptor) => Self::over(descriptor),
            Err(Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) => Err(Miss::Unsupported),
            Err(other) => Err(other.into()),
        }
    }

    /// Uses a socket whose other end replies like the kernel.
    ///
    /// # Errors
    /// The descriptor is not a socket.
    pub fn over(descriptor: OwnedFd) -> Result<Self, Miss> {
        sockopt::set_socket_timeout(&descriptor, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            descriptor,
            sequence: 0,
            buffer: vec![0; LARGEST],
        })
    }

    /// Sends a request and passes each message of the reply to `take`.
    ///
    /// # Errors
    /// The kernel's error reply, or an error of `take`; [`Miss::Unparsed`]
    /// where a message is cut short; [`Miss::Failed`] after two seconds.
    pub fn ask(
        &mut self,
        request: Request,
        mut take: impl FnMut(&Message<'_>) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        self.sequence = self.sequence.wrapping_add(1);
        let is_dump = request.is_dump();
        let request = request.finish(self.sequence);
        send(&self.descriptor, &request, SendFlags::NOSIGNAL)?;
        let begun = Instant::now();
        // Replies to a request that an earlier call gave up are skipped, but not indefinitely.
        while begun.elapsed() < PATIENCE {
            let length = self.receive()?;
            let mut answered = false;
            for message in Messages(&self.buffer[..length]) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                match message.kind {
                    NLMSG_ERROR => return verdict(message.payload),
                    NLMSG_DONE => return Ok(()),
                    _ => take(&message)?,
                }
                answered = !is_dump && message.flags & NLM_F_MULTI == 0;
            }
            if answered {
                return Ok(());
            }
        }
        Err(Miss::Failed)
    }

    /// One datagram into the buffer; returns its length.
    fn receive(&mut self) -> Result<usize, Miss> {
        let (descriptor, buffer) = (&self.descriptor, &mut self.buffer[..]);
        let received =
            rustix::io::retry_on_intr(|| recv(descriptor, &mut *buffer, RecvFlags::TRUNC));
        match received? {
            // The other end of a pair is gone, or the datagram is longer than the room for it.
            (_, sent) if sent == 0 || sent > buffer.len() => Err(Miss::Failed),
            (_, sent) => Ok(sent),
        }
    }
}
