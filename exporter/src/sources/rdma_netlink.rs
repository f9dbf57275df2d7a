//! RDMA counters by netlink (`NETLINK_RDMA`, device interface): every counter of a port in one request.
//!
//! Numbers of commands and attributes are those of the kernel's `include/uapi/rdma/rdma_netlink.h`,
//! which never change. Only read requests are sent: `STAT_SET` would replace an
//! operator's choice of optional counters.

use super::netlink::{Attributes, Request, Socket};
use super::sysfs::Miss;

/// `RDMA_NL_NLDEV`, shifted as `RDMA_NL_GET_TYPE` does.
const NLDEV: u16 = 5 << 10;

const GET: u16 = 1;
const STAT_GET: u16 = 17;
const STAT_GET_STATUS: u16 = 24;

const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
/// Attribute for the statistics of a single resource, and the resource "queue pair".
const STAT_RES: u16 = 75;
const RES_QP: u32 = 19;
const STAT_MODE: u16 = 74;
const HWCOUNTERS: u16 = 80;
const ENTRY_NAME: u16 = 82;
const ENTRY_VALUE: u16 = 83;
/// Only optional counters have it: 1 where switched on.
const ENTRY_DYNAMIC: u16 = 95;

/// A conversation with the RDMA device interface of the kernel that runs here.
#[derive(Debug)]
pub struct Nldev(Socket);

impl Nldev {
    /// Opens the conversation. Needs no privilege.
    ///
    /// # Errors
    /// [`Miss::Unsupported`] where the kernel has no RDMA or the service may not use netlink.
    pub fn open() -> Result<Self, Miss> {
        Socket::rdma().map(Self)
    }

    /// Uses a socket whose other end replies like the kernel.
    pub fn over(socket: Socket) -> Self {
        Self(socket)
    }

    /// Every RDMA device that this network namespace may see, with its index.
    ///
    /// # Errors
    /// The kernel replied with an error, not at all, or with something else.
    pub fn devices(&mut self) -> Result<Vec<(u32, String)>, Miss> {
        let mut devices = Vec::new();
        self.ask(NLDEV | GET, Request::dump(NLDEV | GET, &[]), |answer| {
            let index = answer.number(DEV_INDEX);
            let index = index.and_then(|index| u32::try_from(index).ok());
            let name = answer.get(DEV_NAME).and_then(|name| name.text());
            let (index, name) = index.zip(name).ok_or(Miss::Unparsed)?;
            devices.push((index, name.to_owned()));
            Ok(())
        })?;
        Ok(devices)
    }

    /// Passes on every counter of a port that counts: name and value. Optional counters are among
    /// them while they are switched on.
    ///
    /// # Errors
    /// As [`Nldev::devices`]; then `each` may have received a part.
    pub fn counters(
        &mut self,
        index: u32,
        port: u8,
        mut each: impl FnMut(&str, u64),
    ) -> Result<(), Miss> {
        self.ask_port(STAT_GET, index, port, &[], |answer| {
            entries(answer, |name, entry| {
                each(name, entry.number(ENTRY_VALUE).ok_or(Miss::Unparsed)?);
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
            entries(answer, |name, entry| {
                if let Some(on) = entry.number(ENTRY_DYNAMIC) {
                    optional.push((name.to_owned(), on != 0));
                }
                Ok(())
            })
        })?;
        Ok(optional)
    }

    /// How queue pairs of a port are bound to their own counters: `none`, `auto` or `manual`.
    ///
    /// # Errors
    /// As [`Nldev::devices`].
    pub fn counter_mode(&mut self, index: u32, port: u8) -> Result<&'static str, Miss> {
        let mut mode = Err(Miss::Unparsed);
        let question = [(STAT_RES, RES_QP), (STAT_MODE, 0)];
        self.ask_port(STAT_GET, index, port, &question, |answer| {
            mode = match answer.number(STAT_MODE) {
                Some(0) => Ok("none"),
                Some(1) => Ok("auto"),
                Some(2) => Ok("manual"),
                _ => Err(Miss::Unparsed),
            };
            Ok(())
        })?;
        mode
    }

    /// Requests one port's data and accepts only a reply about it.
    fn ask_port(
        &mut self,
        command: u16,
        index: u32,
        port: u8,
        more: &[(u16, u32)],
        mut each: impl FnMut(Attributes<'_>) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        let about = [(DEV_INDEX, index), (PORT_INDEX, u32::from(port))];
        let request = Request::new(NLDEV | command, &[]);
        let question = about.iter().chain(more);
        let request = question.fold(request, |request, (kind, value)| {
            request.word(*kind, *value)
        });
        self.ask(NLDEV | command, request, |answer| {
            for (kind, asked) in about {
                if answer.number(kind) != Some(asked.into()) {
                    return Err(Miss::Unparsed);
                }
            }
            each(answer)
        })
    }

    /// Sends one request and passes on each message of its reply, which is of the request's type.
    fn ask(
        &mut self,
        kind: u16,
        request: Request,
        mut each: impl FnMut(Attributes<'_>) -> Result<(), Miss>,
    ) -> Result<(), Miss> {
        self.0.ask(request, |message| {
            if message.kind != kind {
                return Err(Miss::Unparsed);
            }
            each(message.attributes(0)?)
        })
    }
}

/// Passes on each entry of the table of counters: its name and what else it reports.
fn entries(
    answer: Attributes<'_>,
    mut each: impl FnMut(&str, Attributes<'_>) -> Result<(), Miss>,
) -> Result<(), Miss> {
    for entry in answer.inside(HWCOUNTERS).ok_or(Miss::Unparsed)? {
        let entry = entry.inside().ok_or(Miss::Unparsed)?;
        let name = entry.get(ENTRY_NAME).and_then(|name| name.text());
        each(name.ok_or(Miss::Unparsed)?, entry)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
