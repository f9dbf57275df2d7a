//! `/dev/infiniband/umad*` by the C library's own calls, which tests can replace.
//!
//! Layouts are those of the kernel's `rdma/ib_user_mad.h`. Not epoll: a stand-in (`libumad2sim`) supports only poll.

#![allow(unsafe_code)] // each call is one line, with its reason

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

/// `_IOWR(0x1b, 1, struct ib_user_mad_reg_req)`.
const REGISTER_AGENT: libc::c_ulong = 0xc01c_1b01;
/// `_IO(0x1b, 3)`: from then on headers have 64 bytes and name the P_Key.
const ENABLE_PKEY: libc::c_ulong = 0x1b03;
/// `struct ib_user_mad_reg_req`.
const REGISTRATION_BYTES: usize = 28;

/// An open device.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

impl Device {
    /// Opens the device for reading and writing, without waiting.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the path ends with a NUL and outlives the call.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made the descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    #[cfg(test)]
    pub(super) fn over(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Requests headers that name the P_Key.
    pub(super) fn enable_pkey(&self) -> io::Result<()> {
        // SAFETY: the request takes no argument.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), ENABLE_PKEY as _) };
        outcome(result as isize).map(|_| ())
    }

    /// Registers to send requests of a management class, and to receive only replies. Returns the agent's
    /// number.
    pub(super) fn register(&self, queue_pair: u8, class: u8) -> io::Result<u32> {
        let mut request = [0_u8; REGISTRATION_BYTES];
        // Number, four words of methods to receive unasked, queue pair, class, version, vendor, RMPP
        // version.
        request[20..23].copy_from_slice(&[queue_pair, class, 1]);
        // SAFETY: the request reads and writes the 28 bytes that its number encodes, and the array has
        // them.
        let result = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                REGISTER_AGENT as _,
                request.as_mut_ptr(),
            )
        };
        outcome(result as isize)?;
        let [a, b, c, d, ..] = request;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    pub(super) fn write(&self, packet: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length are those of one slice.
        let result =
            unsafe { libc::write(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len()) };
        match outcome(result)? {
            written if written == packet.len() => Ok(()),
            written => Err(io::Error::other(format!(
                "{written} of {} bytes written",
                packet.len()
            ))),
        }
    }

    /// Reads one packet, waiting at most so long; none if there is none by then.
    pub(super) fn read(&self, packet: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let wait = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, as the length states.
        let ready = match outcome(unsafe { libc::poll(&raw mut poll, 1, wait) } as isize) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            ready => ready?,
        };
        if ready == 0 {
            return Ok(None);
        }
        // SAFETY: pointer and length are those of one slice.
        let result =
            unsafe { libc::read(self.0.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len()) };
        match outcome(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            read => read.map(Some),
        }
    }
}

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
