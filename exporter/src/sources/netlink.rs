//! Netlink, as much of it as a request to the kernel needs: one request, its replies, a timeout.
//!
//! Numbers are in the byte order of the machine, lengths are padded to four bytes (the kernel's
//! `uapi/linux/netlink.h`). What the kernel sends is read within its bounds, and used completely or not at
//! all: a partial table of counters would look like missing counters.

mod message;
mod socket;

pub use message::{Attribute, Attributes, Message, Request, fixed};
pub use socket::Socket;

#[cfg(test)]
pub(crate) mod tests;
