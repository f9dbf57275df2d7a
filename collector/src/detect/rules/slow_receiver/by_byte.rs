//! What ports before NICs wait for each byte, by how busy they are.

use super::credits::Waits;
use super::{BUSY, SAMPLE};
use crate::detect::peers::{MIN_PEERS, median};

/// Ports that send, the busiest first: bytes a second, and ticks that they wait for each byte.
pub(super) struct ByByte(Vec<(f64, f64)>);

impl ByByte {
    pub(super) fn of(ports: &[Waits<'_>]) -> Self {
        let sending = ports.iter().filter_map(|own| {
            let sent = own.sent().filter(|sent| *sent > 0.0)?;
            Some((sent, own.ticks / sent))
        });
        let mut sending: Vec<_> = sending.collect();
        sending.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self(sending)
    }

    /// The median wait for each byte of ports that are about as busy as one with this rate, or of a sample of them: a port
    /// without traffic does not wait. `None` where they are few.
    pub(super) fn usual(&self, sent: f64) -> Option<f64> {
        let busy = self.0.partition_point(|(bytes, _)| *bytes >= BUSY * sent);
        let step = busy.div_ceil(SAMPLE).max(1);
        let waits = self.0[..busy].iter().step_by(step).map(|(_, wait)| *wait);
        (busy >= MIN_PEERS).then(|| median(waits))?
    }
}
