//! Netlink, as much of it as asking the kernel a question takes: one request, its answers, a time limit.
//!
//! Numbers are in the byte order of the machine, lengths are padded to four bytes (the kernel's
//! `uapi/linux/netlink.h`). What the kernel sends is read within its bounds, and taken whole or not at
//! all: half a table of counters would look like counters that are gone.

mod message;
mod socket;

pub use message::{Attribute, Attributes, Message, Request, fixed};
pub use socket::Socket;

#[cfg(test)]
pub(crate) mod tests;
