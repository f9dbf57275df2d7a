//! MADs through the kernel: `/dev/infiniband/umad*`, one character device for each InfiniBand port of this host.

mod device;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mad::{Bytes, Destination, MAD_BYTES};
use super::transport::{Received, Transport};
use device::Device;

/// Bytes of `struct ib_user_mad_hdr`, with the index of the P_Key.
const HEADER: usize = 64;
/// Bytes of `struct ib_user_mad_hdr_old`, which all kernels still support.
const OLD_HEADER: usize = 56;
const SUBNET_CLASS: u8 = 0x81;
const PERFORMANCE_CLASS: u8 = 0x04;
/// The key of every general service queue pair (InfiniBand Architecture Specification, volume 1, 10.2.4).
const GENERAL_SERVICE_KEY: u32 = 0x8001_0000;

/// Why a port cannot be swept from.
#[derive(Debug, thiserror::Error)]
pub enum UmadError {
    /// The kernel has no such port.
    #[error("no InfiniBand port {wanted} on this host; there are: {}", if found.is_empty() { "none (is the module ib_umad loaded?)" } else { found })]
    NoPort {
        /// The request.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// The device cannot be opened.
    #[error("{}: {source}{}", path.display(), hint(source))]
    Open {
        /// The device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refuses to register.
    #[error("{}: {what}: {source}{}", path.display(), hint(source))]
    Setup {
        /// The device.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ": questions to the subnet need read and write access to this device: run as root, or give the service group access by a udev rule"
        }
        io::ErrorKind::NotFound => ": is the module ib_umad loaded?",
        _ => "",
    }
}

/// A port that the kernel offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UmadPort {
    /// RDMA device: `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// Its character device.
    pub path: PathBuf,
    /// Whether it is an InfiniBand port that carries traffic.
    pub active: bool,
    /// Place of the default partition's key in its table.
    pub pkey_index: u16,
}

/// Every InfiniBand port under a `/sys` and a `/dev`, by device and port.
pub fn ports(sys: &Path, dev: &Path) -> Vec<UmadPort> {
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    let entries = fs::read_dir(sys.join("class/infiniband_mad"));
    let names = entries.into_iter().flatten().flatten();
    let mut ports: Vec<UmadPort> = names
        .filter_map(|entry| {
            let device = read(entry.path().join("ibdev"))?.trim().to_owned();
            let port: u8 = read(entry.path().join("port"))?.trim().parse().ok()?;
            let name = entry.file_name();
            let about = sys
                .join("class/infiniband")
                .join(&device)
                .join("ports")
                .join(port.to_string());
            let layer = read(about.join("link_layer")).unwrap_or_default();
            if layer.trim() == "Ethernet" {
                return None; // RoCE has no subnet to sweep
            }
            let state = read(about.join("state")).unwrap_or_default();
            Some(UmadPort {
                device,
                port,
                path: dev.join("infiniband").join(name),
                active: state.trim_start().starts_with("4:"),
                pkey_index: default_pkey(&about.join("pkeys")),
            })
        })
        .filter(|port| {
            port.path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("umad"))
        })
        .collect();
    ports.sort_by(|a, b| (&a.device, a.port).cmp(&(&b.device, b.port)));
    ports
}

/// Where the default partition (0xffff, or 0x7fff for a limited member) is; agents reply in it.
fn default_pkey(table: &Path) -> u16 {
    let key = |index: &u16| {
        let text = fs::read_to_string(table.join(index.to_string())).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    // The table has a gap nowhere: the first missing file is its end.
    (0..128)
        .map_while(|index| key(&index).map(|key| (index, key)))
        .find(|(_, key)| key & 0x7fff == 0x7fff)
        .map_or(0, |(index, _)| index)
}

/// The port that a configuration means: `mlx5_0`, `mlx5_0:2`, or `auto` for the first that carries traffic.
///
/// # Errors
/// There is no such port.
pub fn choose(ports: &[UmadPort], wanted: &str) -> Result<UmadPort, UmadError> {
    let found = match wanted.rsplit_once(':') {
        Some((device, number)) => ports
            .iter()
            .find(|port| port.device == device && port.port.to_string() == number),
        None if wanted == "auto" => ports.iter().find(|port| port.active),
        // Of a device with several ports, the one that carries traffic.
        None => {
            let mut of_device = ports.iter().filter(|port| port.device == wanted);
            let first = of_device.clone().next();
            of_device.find(|port| port.active).or(first)
        }
    };
    found.cloned().ok_or_else(|| {
        let words = ports.iter().map(|port| {
            let state = if port.active { "" } else { " (not active)" };
            format!("{}:{}{state}", port.device, port.port)
        });
        UmadError::NoPort {
            wanted: wanted.to_owned(),
            found: words.collect::<Vec<_>>().join(", "),
        }
    })
}

/// A port that is open.
#[derive(Debug)]
pub struct Umad {
    device: Device,
    header: usize,
    pkey_index: u16,
    timeout: Duration,
    subnet_agent: u32,
    performance_agent: u32,
}

impl Umad {
    /// Opens a port. Each question is waited for so long.
    ///
    /// # Errors
    /// Why it cannot be used, with what to do about it.
    pub fn open(port: &UmadPort, timeout: Duration) -> Result<Self, UmadError> {
        let path = &port.path;
        let device = Device::open(path).map_err(|source| UmadError::Open {
            path: path.clone(),
            source,
        })?;
        let setup = |what: &'static str| {
            let path = path.clone();
            move |source| UmadError::Setup { path, what, source }
        };
        // Must come first. A kernel without it uses the old header, and sends in partition 0.
        let header = device.enable_pkey().map_or(OLD_HEADER, |()| HEADER);
        Ok(Self {
            header,
            pkey_index: port.pkey_index,
            timeout,
            subnet_agent: device
                .register(0, SUBNET_CLASS)
                .map_err(setup("register for subnet management"))?,
            performance_agent: device
                .register(1, PERFORMANCE_CLASS)
                .map_err(setup("register for performance management"))?,
            device,
        })
    }
}

impl Transport for Umad {
    fn send(&mut self, to: &Destination, mad: &Bytes) -> io::Result<()> {
        let mut packet = [0; HEADER + MAD_BYTES];
        let (agent, queue_pair, key, lid) = match to {
            Destination::Directed(_) => (self.subnet_agent, 0_u32, 0, 0xffff_u16),
            Destination::Lid(lid) => (self.performance_agent, 1, GENERAL_SERVICE_KEY, *lid),
        };
        let milliseconds = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
        packet[0..4].copy_from_slice(&agent.to_ne_bytes());
        packet[8..12].copy_from_slice(&milliseconds.to_ne_bytes());
        // Byte 12, the kernel's own repetitions, stays 0: they would slip past window and rate.
        packet[20..24].copy_from_slice(&queue_pair.to_be_bytes());
        packet[24..28].copy_from_slice(&key.to_be_bytes());
        packet[28..30].copy_from_slice(&lid.to_be_bytes());
        if self.header == HEADER {
            packet[56..58].copy_from_slice(&self.pkey_index.to_ne_bytes());
        }
        packet[self.header..][..MAD_BYTES].copy_from_slice(mad);
        self.device.write(&packet[..self.header + MAD_BYTES])
    }

    fn receive(&mut self, mad: &mut Bytes, wait: Duration) -> io::Result<Received> {
        let mut packet = [0; HEADER + MAD_BYTES];
        let Some(bytes) = self.device.read(&mut packet, wait)? else {
            return Ok(Received::Nothing);
        };
        if bytes < self.header {
            return Ok(Received::Nothing);
        }
        // After a time-out the kernel returns the request, at least its header.
        mad.copy_from_slice(&packet[self.header..][..MAD_BYTES]);
        let status = u32::from_ne_bytes([packet[4], packet[5], packet[6], packet[7]]);
        Ok(if status == 0 {
            Received::Answer
        } else {
            Received::TimedOut
        })
    }
}

#[cfg(test)]
mod tests;
