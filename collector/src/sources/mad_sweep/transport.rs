//! How MADs get onto the fabric and back.

use std::io;
use std::time::Duration;

use super::mad::{Bytes, Destination};

/// What came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A reply.
    Answer,
    /// This request, whose transaction the MAD holds, has timed out.
    TimedOut,
    /// Nothing, for as long as was waited.
    Nothing,
}

/// A port of the fabric to send questions from.
pub trait Transport: Send {
    /// Sends a MAD.
    ///
    /// # Errors
    /// The port cannot send. A MAD that is lost in transit is not an error.
    fn send(&mut self, to: &Destination, mad: &Bytes) -> io::Result<()>;

    /// Waits at most so long for a MAD, and puts it there.
    ///
    /// # Errors
    /// The port cannot receive.
    fn receive(&mut self, mad: &mut Bytes, wait: Duration) -> io::Result<Received>;
}
