//! ibsim's own protocol over datagram sockets in the abstract name space: a whole subnet for tests, without hardware.
//!
//! Structs of ibsim 0.10's `sim.h`: 80 bytes of control, 288 bytes around a MAD.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use super::mad::{Bytes, Destination};
use super::transport::{Received, Transport};

const CONTROL_BYTES: usize = 80;
const MAGIC: u32 = 0xdead_beef;
const CONNECT: u32 = 1;
const DISCONNECT: u32 = 2;
/// Bytes of a connect message behind its header.
const CONNECT_BYTES: u32 = 44;
/// Longest name of a host: 32 bytes with the NUL.
const MAX_HOST: usize = 31;
const HEADER: usize = 32;
/// Clients of one process must have different numbers; this many are tried.
const CLIENTS: u32 = 64;
/// Header field that marks a MAD that ibsim has dropped (ETIMEDOUT).
const NO_STATUS: u32 = 0;
const SUBNET_QP: u32 = 0;
const PERFORMANCE_QP: u32 = 1;
/// How long ibsim may take to accept a client.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to ibsim, as one of its hosts.
#[derive(Debug)]
pub struct Ibsim {
    data: UnixDatagram,
    control: UnixDatagram,
    client: u32,
    wait: Duration,
}

/// ibsim counts the NUL of its names.
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{name}\0"))
}

fn control(kind: u32, client: u32, bytes: u32) -> [u8; CONTROL_BYTES] {
    let mut message = [0; CONTROL_BYTES];
    for (at, word) in [MAGIC, client, kind, bytes].into_iter().enumerate() {
        message[4 * at..][..4].copy_from_slice(&word.to_ne_bytes());
    }
    message
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

impl Ibsim {
    /// Connects to the simulator with this socket name (`IBSIM_SOCKNAME`) as this host (`SIM_HOST`).
    ///
    /// # Errors
    /// No such simulator, or it refuses clients: an unknown host, or ten clients already.
    pub fn connect(simulator: &str, host: &str) -> io::Result<Self> {
        if host.is_empty() || host.len() > MAX_HOST {
            let said = format!("host {host:?}: expected 1 to {MAX_HOST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
        }
        let (number, control_socket) = bind_control(simulator)?;
        control_socket.connect_addr(&address(&format!("{simulator}:ctl"))?)?;
        control_socket.set_read_timeout(Some(PATIENCE))?;
        let data = UnixDatagram::bind_addr(&address(&format!("{simulator}:in{number}"))?)?;
        let mut message = control(CONNECT, 0, CONNECT_BYTES);
        message[16..20].copy_from_slice(&number.to_ne_bytes());
        message[28..28 + host.len()].copy_from_slice(host.as_bytes());
        control_socket.send(&message)?;
        control_socket.recv(&mut message)?;
        if word(&message, 8) != CONNECT {
            let said = format!(
                "ibsim {simulator} refuses host {host:?}: it does not know it, or has ten clients"
            );
            return Err(io::Error::other(said));
        }
        let client = word(&message, 16);
        data.connect_addr(&address(&format!("{simulator}:out{client}"))?)?;
        data.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            data,
            control: control_socket,
            client,
            wait: PATIENCE,
        })
    }
}

/// The control socket under the first free number.
fn bind_control(simulator: &str) -> io::Result<(u32, UnixDatagram)> {
    let first = std::process::id() * CLIENTS % (i32::MAX as u32 / 2);
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for number in first..first + CLIENTS {
        match UnixDatagram::bind_addr(&address(&format!("{simulator}:ctl{number}"))?) {
            Ok(socket) => return Ok((number, socket)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Drop for Ibsim {
    fn drop(&mut self) {
        // A simulator that has ended needs no farewell.
        let mut answer = [0; CONTROL_BYTES];
        if self
            .control
            .send(&control(DISCONNECT, self.client, 0))
            .is_ok()
        {
            self.control.recv(&mut answer).ok();
        }
    }
}

impl Transport for Ibsim {
    fn send(&mut self, to: &Destination, mad: &Bytes) -> io::Result<()> {
        let mut packet = [0; HEADER + 256];
        let (lid, source, queue_pair) = match to {
            Destination::Directed(_) => (0xffff, 0xffff, SUBNET_QP),
            Destination::Lid(lid) => (u32::from(lid.to_be()), 0, PERFORMANCE_QP),
        };
        packet[0..4].copy_from_slice(&lid.to_ne_bytes());
        packet[4..8].copy_from_slice(&u32::to_ne_bytes(source));
        packet[8..12].copy_from_slice(&queue_pair.to_be_bytes());
        packet[12..16].copy_from_slice(&queue_pair.to_be_bytes());
        packet[24..32].copy_from_slice(&256u64.to_be_bytes());
        packet[HEADER..].copy_from_slice(mad);
        self.data.send(&packet).map(|_| ())
    }

    fn receive(&mut self, mad: &mut Bytes, wait: Duration) -> io::Result<Received> {
        if wait != self.wait {
            self.data.set_read_timeout(Some(wait))?;
            self.wait = wait;
        }
        let mut packet = [0; HEADER + 256];
        match self.data.recv(&mut packet) {
            Ok(bytes) if bytes == packet.len() => {
                mad.copy_from_slice(&packet[HEADER..]);
                let status = word(&packet, 16);
                Ok(if status == NO_STATUS {
                    Received::Answer
                } else {
                    Received::TimedOut
                })
            }
            Ok(_) => Ok(Received::Nothing),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(Received::Nothing),
                _ => Err(error),
            },
        }
    }
}
