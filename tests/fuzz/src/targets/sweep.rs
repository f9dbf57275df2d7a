//! An own sweep of a fabric that replies with anything.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use railscope_collector::sources::mad_sweep::mad::{Bytes, Destination};
use railscope_collector::sources::mad_sweep::transport::{Received, Transport};
use railscope_collector::sources::mad_sweep::{Settings, Sweeper};

/// Where the attribute of a reply begins, after what must match its request.
const DATA: usize = 64;
const GET_RESPONSE: u8 = 0x81;
/// Replies of one sweep; an endless fabric is cut off there.
const MOST: usize = 4_096;

/// Replies to each request with the next bytes of the input.
struct Anything {
    bytes: VecDeque<u8>,
    asked: VecDeque<Bytes>,
    answered: usize,
}

impl Transport for Anything {
    fn send(&mut self, _: &Destination, mad: &Bytes) -> io::Result<()> {
        self.asked.push_back(*mad);
        Ok(())
    }

    fn receive(&mut self, mad: &mut Bytes, _: Duration) -> io::Result<Received> {
        let Some(question) = self.asked.pop_front() else {
            return Ok(Received::Nothing);
        };
        *mad = question;
        self.answered += 1;
        let Some(how) = self.bytes.pop_front().filter(|_| self.answered < MOST) else {
            return Ok(Received::TimedOut);
        };
        mad[3] = GET_RESPONSE;
        match how {
            // The status, or something else that must fit, is wrong.
            0..8 => mad[usize::from(how)] ^= self.bytes.pop_front().unwrap_or(0),
            8 => return Ok(Received::TimedOut),
            // As many bytes of the attribute as that, from its beginning.
            _ => {
                let count = usize::from(how).min(mad.len() - DATA);
                for byte in &mut mad[DATA..DATA + count] {
                    *byte = self.bytes.pop_front().unwrap_or(0);
                }
            }
        }
        Ok(Received::Answer)
    }
}

/// Sweeps twice: what agents can count is remembered.
pub(crate) fn mad(bytes: &[u8]) {
    let transport = Anything {
        bytes: bytes.iter().copied().collect(),
        asked: VecDeque::new(),
        answered: 0,
    };
    let settings = Settings {
        mads_per_second: None,
        timeout: Duration::from_millis(1),
        retries: 1,
        limit: Duration::from_millis(500),
        forwarding: true,
        ..Settings::default()
    };
    let mut sweeper = Sweeper::new(Box::new(transport), settings);
    for _ in 0..2 {
        if let Ok(swept) = sweeper.sweep() {
            assert!(swept.stats.answered <= swept.stats.sent);
        }
    }
}
