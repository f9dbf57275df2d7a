//! RDMA counters by netlink (`NETLINK_RDMA`, device interface): every counter of a port in one question.
//!
//! Numbers of commands and attributes are those of the kernel's `include/uapi/rdma/rdma_netlink.h`,
//! which never change. Only questions are asked here, never a setting made: `STAT_SET` would replace an
//! operator's choice of optional counters.

mod wire;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use self::wire::{Attributes, Messages, message, number, text};
use super::sysfs::Miss;

/// `NLMSG_ERROR` and `NLMSG_DONE`: the end of an answer.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, and `NLM_F_ROOT | NLM_F_MATCH` for a list of all.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
/// `RDMA_NL_NLDEV`, shifted as `RDMA_NL_GET_TYPE` does.
const NLDEV: u16 = 5 << 10;

const GET: u16 = 1;
const STAT_GET: u16 = 17;
const STAT_GET_STATUS: u16 = 24;

const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
/// What statistics of a single resource are asked about, and the resource "queue pair".
const STAT_RES: u16 = 75;
const RES_QP: u32 = 19;
const STAT_MODE: u16 = 74;
const HWCOUNTERS: u16 = 80;
const ENTRY_NAME: u16 = 82;
const ENTRY_VALUE: u16 = 83;
/// Only optional counters have it: 1 where switched on.
const ENTRY_DYNAMIC: u16 = 95;

/// Room for one datagram; the kernel answers in pages of 32 KiB at most.
const ROOM: usize = 32 * 1024;
/// The kernel answers inside `send`: nothing to read by then is no answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A conversation with the RDMA device interface of the kernel that runs here.
#[derive(Debug)]
pub struct Nldev {
    socket: OwnedFd,
    sequence: u32,
    room: Vec<u8>,
}

impl Nldev {
    /// Opens the conversation. Needs no privilege.
    ///
    /// # Errors
    /// [`Miss::Unsupported`] where the kernel has no RDMA or the service may not use netlink.
    pub fn open() -> Result<Self, Miss> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::RDMA),
        );
        let socket = socket.map_err(|errno| match errno {
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => Miss::Unsupported,
            other => other.into(),
        })?;
        Self::over(socket)
    }

    /// Speaks over a socket whose other end answers like the kernel.
    ///
    /// # Errors
    /// The descriptor is no socket.
    pub fn over(socket: OwnedFd) -> Result<Self, Miss> {
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            socket,
            sequence: 0,
            room: vec![0; ROOM],
        })
    }

    /// Every RDMA device that this network namespace may see, with its index.
    ///
    /// # Errors
    /// The kernel answered with an error, not at all, or not what was asked for.
    pub fn devices(&mut self) -> Result<Vec<(u32, String)>, Miss> {
        let mut devices = Vec::new();
        self.ask(GET, DUMP, &[], |answer| {
            let index = answer.find(DEV_INDEX)?.and_then(number);
            let name = answer.find(DEV_NAME)?.and_then(text);
            let device = index.zip(name).ok_or(Miss::Unparsed)?;
            devices.push((device.0 as u32, device.1.to_owned()));
            Ok(())
        })?;
        Ok(devices)
    }

    /// Hands over every counter of a port that counts: name and value. Optional counters are among
    /// them while they are switched on.
    ///
    /// # Errors
    /// As [`Nldev::devices`]; then `each` may have seen a part.
    pub fn counters(
        &mut self,
        index: u32,
        port: u8,
        mut each: impl FnMut(&str, u64),
    ) -> Result<(), Miss> {
        self.ask_port(STAT_GET, index, port, &[], |answer| {
            answer.entries(HWCOUNTERS, |entry| {
                let name = entry.find(ENTRY_NAME)?.and_then(text);
                let value = entry.find(ENTRY_VALUE)?.and_then(number);
                let (name, value) = name.zip(value).ok_or(Miss::Unparsed)?;
                each(name, value);
                Ok(())
            })
        })
    }

    /// The optional counters of a port, and whether an operator has switched them on. Linux 5.16.
    ///
    /// # Errors
    /// As [`Nldev::devices`]; [`Miss::Unsupported`] on an older kernel.
    pub fn optional_counters(&mut self, index: u32, port: u8) -> Result<Vec<(String, bool)>, Miss> {
        let mut optional = Vec::new();
        self.ask_port(STAT_GET_STATUS, index, port, &[], |answer| {
            answer.entries(HWCOUNTERS, |entry| {
                let name = entry
                    .find(ENTRY_NAME)?
                    .and_then(text)
                    .ok_or(Miss::Unparsed)?;
                if let Some(on) = entry.find(ENTRY_DYNAMIC)?.and_then(number) {
                    optional.push((name.to_owned(), on != 0));
                }
                Ok(())
            })
        })?;
        Ok(optional)
    }

    /// How queue pairs of a port are bound to counters of their own: `none`, `auto` or `manual`.
    ///
    /// # Errors
    /// As [`Nldev::devices`].
    pub fn counter_mode(&mut self, index: u32, port: u8) -> Result<&'static str, Miss> {
        let mut mode = Err(Miss::Unparsed);
        let question = [(STAT_RES, RES_QP), (STAT_MODE, 0)];
        self.ask_port(STAT_GET, index, port, &question, |answer| {
            mode = match answer.find(STAT_MODE)?.and_then(number) {
                Some(0) => Ok("none"),
                Some(1) => Ok("auto"),
                Some(2) => Ok("manual"),
                _ => Err(Miss::Unparsed),
            };
            Ok(())
        })?;
        mode
    }

    /// Asks about one port and takes only an answer that is about it.
    fn ask_port(
        &mut self,
        command: u16,
        index: u32,
        port: u8,
        more: &[(u16, u32)],
        mut each: impl FnMut(Attributes<'_>) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let about = [(DEV_INDEX, index), (PORT_INDEX, u32::from(port))];
        let question: Vec<_> = about.iter().chain(more).copied().collect();
        self.ask(command, 0, &question, |answer| {
            for (kind, asked) in about {
                if answer.find(kind)?.and_then(number) != Some(asked.into()) {
                    return Err(Miss::Unparsed);
                }
            }
            each(answer)
        })
    }

    /// Sends one question and hands over each message of its answer.
    fn ask(
        &mut self,
        command: u16,
        flags: u16,
        question: &[(u16, u32)],
        mut each: impl FnMut(Attributes<'_>) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let kind = NLDEV | command;
        let attributes = question
            .iter()
            .map(|(kind, value)| (*kind, value.to_ne_bytes()));
        let attributes: Vec<_> = attributes.collect();
        let slices = attributes.iter().map(|(kind, value)| (*kind, &value[..]));
        let question = message(kind, REQUEST | flags, sequence, slices);
        send(&self.socket, &question, SendFlags::NOSIGNAL)?;
        loop {
            let length = receive(self.socket.as_fd(), &mut self.room)?;
            for message in Messages(&self.room[..length]) {
                let message = message?;
                if message.sequence != sequence {
                    continue; // late, for a question that was given up
                }
                match message.kind {
                    DONE => return Ok(()),
                    ERROR => return error(message.body),
                    other if other == kind => each(Attributes(message.body))?,
                    _ => return Err(Miss::Unparsed),
                }
                if flags & DUMP == 0 {
                    return Ok(());
                }
            }
        }
    }
}

fn receive(socket: impl AsFd, room: &mut [u8]) -> Result<usize, Miss> {
    let received = rustix::io::retry_on_intr(|| recv(&socket, &mut *room, RecvFlags::TRUNC));
    match received? {
        // The other end of a pair is gone; the kernel never sends nothing.
        (_, 0) => Err(Miss::Failed),
        (_, length) if length > room.len() => Err(Miss::Unparsed),
        (_, length) => Ok(length),
    }
}

/// What an error message says; 0 only acknowledges.
fn error(body: &[u8]) -> Result<(), Miss> {
    let code = body.first_chunk().ok_or(Miss::Unparsed)?;
    match i32::from_ne_bytes(*code) {
        0 => Ok(()),
        code => Err(Miss::from(&io::Error::from_raw_os_error(
            code.wrapping_neg(),
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests;
