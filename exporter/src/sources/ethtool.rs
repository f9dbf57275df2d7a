//! What the driver of a network interface reports about it: counters, pause, PFC, FEC and why a link is
//! down.

mod addresses;
mod ioctl;
mod kernel;
mod recorded;
mod vf;

pub use kernel::Kernel;
pub use recorded::Recorded;
pub use vf::{Counts, VirtualFunction, counted};

use std::net::IpAddr;
use std::path::PathBuf;

use super::sysfs::Miss;

/// Priorities of an Ethernet link (IEEE 802.1Q).
pub const PRIORITIES: usize = 8;

/// The source to read from.
#[derive(Debug, Clone)]
pub enum NetworkAccess {
    /// The kernel, about the interfaces of this process's own network namespace; neighbors from this
    /// program (`lldpctl`, by name or path), or from packets if it does not reply.
    Kernel {
        /// The program.
        lldpctl: PathBuf,
    },
    /// Recordings below a directory, as `ethtool`, `dcb` and `lldpctl` print them: see [`Recorded`].
    Recorded(PathBuf),
}

impl NetworkAccess {
    /// The kernel, and `lldpctl` wherever it is installed.
    pub fn kernel() -> Self {
        Self::Kernel {
            lldpctl: "lldpctl".into(),
        }
    }

    /// The source that this is.
    pub fn nics(&self) -> Box<dyn NicSource> {
        match self {
            Self::Kernel { .. } => Box::new(Kernel::default()),
            Self::Recorded(root) => Box::new(Recorded::new(root)),
        }
    }
}

/// A network interface, so that its name cannot mean another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Its index, where the kernel's own sysfs gave it; a tree of files reports nothing about the
    /// interfaces of this machine, even if names are equal.
    pub index: Option<u32>,
}

/// Global pause frames (IEEE 802.3x).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Whether received ones are obeyed.
    pub receive: bool,
    /// Whether they are sent.
    pub transmit: bool,
    /// Frames received, where the driver counts them.
    pub received_frames: Option<u64>,
    /// Frames sent, where the driver counts them.
    pub transmitted_frames: Option<u64>,
}

/// Forward error correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fec {
    /// The code in use: `off`, `rs`, `baser`, `llrs`; none where the driver does not report it.
    pub active: Option<&'static str>,
    /// Blocks that had errors and were corrected.
    pub corrected_blocks: Option<u64>,
    /// Blocks that could not be corrected.
    pub uncorrectable_blocks: Option<u64>,
    /// Bits that were corrected.
    pub corrected_bits: Option<u64>,
}

/// Data center bridging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bridging {
    /// Whether PFC is enabled, by priority.
    pub pfc_enabled: [bool; PRIORITIES],
    /// PFC frames sent, by priority.
    pub pfc_requests: [u64; PRIORITIES],
    /// PFC frames received, by priority.
    pub pfc_indications: [u64; PRIORITIES],
    /// Whether a table from DSCP to priority is set; none where it was not requested.
    pub has_dscp_table: Option<bool>,
    /// How priorities share the link; none where the driver does not report it.
    pub classes: Option<TrafficClasses>,
}

/// Traffic classes, by which priorities share the link when it sends (IEEE 802.1Qaz, ETS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficClasses {
    /// The class that sends each priority.
    pub of_priority: [u8; PRIORITIES],
    /// Percent of the link that each class is guaranteed; none where it is not shared out by ETS but, for
    /// example, strictly before others.
    pub guaranteed_percent: [Option<u8>; PRIORITIES],
}

/// Names and values that a driver counts, in the driver's order, and what it reports about its
/// configuration.
pub trait NicSource: Send {
    /// Names of the driver's counters.
    ///
    /// # Errors
    /// The driver has none, or did not reply.
    fn names(&mut self, nic: &Nic) -> Result<Vec<String>, Miss>;

    /// Values of the driver's counters, as many as there are names.
    ///
    /// # Errors
    /// The driver has none, or did not reply.
    fn values(&mut self, nic: &Nic, into: &mut Vec<u64>) -> Result<(), Miss>;

    /// Global pause.
    ///
    /// # Errors
    /// The driver does not support it, or did not reply.
    fn pause(&mut self, nic: &Nic) -> Result<Pause, Miss>;

    /// Forward error correction.
    ///
    /// # Errors
    /// The driver does not support it, or did not reply.
    fn fec(&mut self, nic: &Nic) -> Result<Fec, Miss>;

    /// Data center bridging.
    ///
    /// # Errors
    /// The driver does not support it, or did not reply.
    fn bridging(&mut self, nic: &Nic) -> Result<Bridging, Miss>;

    /// Why the link is down, where it is and the driver reports it.
    ///
    /// # Errors
    /// The kernel did not reply.
    fn down_reason(&mut self, nic: &Nic) -> Result<Option<&'static str>, Miss>;

    /// The virtual functions of a physical one, as the kernel sees them; none where the driver
    /// reports nothing of any.
    ///
    /// # Errors
    /// The kernel did not reply, or its reply is invalid.
    fn virtual_functions(&mut self, nic: &Nic) -> Result<Vec<VirtualFunction>, Miss>;

    /// IP addresses by which others may reach the interface: no link-local, temporary or unusable ones.
    ///
    /// # Errors
    /// The kernel did not reply, or its reply is invalid.
    fn addresses(&mut self, nic: &Nic) -> Result<Vec<IpAddr>, Miss>;
}
