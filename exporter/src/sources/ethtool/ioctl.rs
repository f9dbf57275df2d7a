//! The ethtool ioctls that have no netlink form: names and values of a driver's own counters.
#![allow(
    unsafe_code,
    reason = "SIOCETHTOOL takes a pointer to memory that the kernel fills; no crate wraps it"
)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Commands and the string set of `uapi/linux/ethtool.h`.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETH_SS_STATS: u32 = 1;
/// `ETH_GSTRING_LEN`.
pub(super) const NAME_BYTES: usize = 32;
/// Names of a driver that are taken; mlx5 with 128 channels has a few thousand.
const MOST: usize = 1 << 14;
/// Room for four times as many names, in words of the memory. Kernels write as many elements as the driver
/// has at that instant, whatever room the caller states that there is; between counting and reading their
/// number may grow, when channels or PFC are switched on. It does not grow fourfold, and memory that is
/// never touched costs nothing.
const ROOM: usize = 4 * MOST * NAME_BYTES / size_of::<u64>();

/// A socket to call on, and the memory that the kernel fills.
pub(super) struct Ioctl {
    socket: OwnedFd,
    /// `u64` because `struct ethtool_stats` holds those, behind a header of 8 bytes.
    memory: Vec<u64>,
}

impl Ioctl {
    pub(super) fn open() -> Result<Self, Errno> {
        let (family, kind) = (AddressFamily::INET, SocketType::DGRAM);
        Ok(Self {
            socket: socket_with(family, kind, SocketFlags::CLOEXEC, None)?,
            memory: vec![0; 2 + ROOM],
        })
    }

    /// The index of the interface that has this name in our network namespace.
    pub(super) fn index(&self, name: &str) -> Result<u32, Errno> {
        rustix::net::netdevice::name_to_index(&self.socket, name)
    }

    /// The driver's counters: `ETHTOOL_GSTATS`.
    pub(super) fn values(&mut self, name: &str, into: &mut Vec<u64>) -> Result<(), Errno> {
        let count = self.count(name)?;
        self.set_header(ETHTOOL_GSTATS, count);
        self.call(name)?;
        let count = (self.word(1) as usize).min(ROOM);
        into.clear();
        into.extend_from_slice(&self.memory[1..=count]);
        Ok(())
    }

    /// The names of the driver's counters, in the order of the values: `ETHTOOL_GSTRINGS`.
    pub(super) fn names(&mut self, name: &str) -> Result<Vec<String>, Errno> {
        let count = self.count(name)?;
        // `struct ethtool_gstrings`: command, set, length, then the strings.
        self.set_header(ETHTOOL_GSTRINGS, ETH_SS_STATS as usize);
        self.memory[1] = u64::from_ne_bytes(pair(count as u32, 0));
        self.call(name)?;
        let count = (self.word(2) as usize).min(MOST);
        let words = &self.memory[1..];
        let bytes: Vec<u8> = words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .skip(4)
            .take(count * NAME_BYTES)
            .collect();
        Ok(bytes.chunks_exact(NAME_BYTES).map(text).collect())
    }

    /// How many counters the driver has: `ETHTOOL_GSSET_INFO`.
    fn count(&mut self, name: &str) -> Result<usize, Errno> {
        // `struct ethtool_sset_info`: command, reserved, mask of sets, then one count a set.
        self.set_header(ETHTOOL_GSSET_INFO, 0);
        self.memory[1] = 1 << ETH_SS_STATS;
        self.memory[2] = 0;
        self.call(name)?;
        if self.memory[1] == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let count = self.word(4) as usize;
        if count > MOST {
            tracing::warn!(
                netdev = name,
                count,
                most = MOST,
                "too many counters: not read"
            );
            return Err(Errno::NOBUFS);
        }
        Ok(count)
    }

    fn set_header(&mut self, command: u32, second: usize) {
        self.memory[0] = u64::from_ne_bytes(pair(command, second as u32));
    }

    /// The `index`-th 32-bit word of the memory.
    fn word(&self, index: usize) -> u32 {
        let bytes = self.memory[index / 2].to_ne_bytes();
        let half = if index.is_multiple_of(2) {
            &bytes[..4]
        } else {
            &bytes[4..]
        };
        half.try_into().map_or(0, u32::from_ne_bytes)
    }

    fn call(&mut self, name: &str) -> Result<(), Errno> {
        // SAFETY: all-zero bytes are a valid `ifreq`: arrays and a union of numbers and pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte less than there is room for: the name ends with a zero.
        if name.len() >= request.ifr_name.len() {
            return Err(Errno::NODEV);
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = self.memory.as_mut_ptr().cast();
        let socket = self.socket.as_fd().as_raw_fd();
        // SAFETY: the socket is open, `request` is a valid `ifreq` whose name ends with a zero, and its
        // data points to memory of our own that nothing else refers to during the call. The three
        // commands above write a header and as many elements as the driver has: at most `MOST` by the
        // count that was read right before, in memory for four times as many of the largest.
        let result = unsafe { libc::ioctl(socket, libc::SIOCETHTOOL as _, &raw mut request) };
        if result == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    bytes
}

/// A name as the driver wrote it, up to its first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let name = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(name).into_owned()
}
