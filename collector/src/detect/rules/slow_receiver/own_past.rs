//! What switch ports waited for their NICs before they stood out: some always wait longer than others, without a fault.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::credits::Waits;
use super::{BUSY, WINDOW_SECONDS};
use crate::detect::registry::Threshold;
use crate::store::Window;

/// Wait per byte, compared with that of the same port before, above which it is new.
const NEW: f64 = 3.0;
/// Wait of a port whose past is not known, compared with the median port, from which a NIC is slow all the same.
const WITHOUT_PAST: f64 = 50.0;
/// Share of either factor that is enough for a NIC to stay slow.
const STILL: f64 = 0.5;
/// How old the past is at least: by then a wait that is new has been noticed.
const AGO_SECONDS: f64 = 50.0;
/// Shortest time of it that is enough.
const SPAN_SECONDS: f64 = 15.0;
/// How long the past of a port that stood out is remembered.
const REMEMBERED_SECONDS: f64 = 3600.0;

/// Of ports that stand out, or did, what they waited for each byte before that.
#[derive(Debug, Default)]
pub(super) struct OwnPast(BTreeMap<Part, Past>);

#[derive(Debug)]
struct Past {
    /// When the port last stood out.
    last: Timestamp,
    /// Ticks for each byte, if it had about as much traffic before.
    wait: Option<f64>,
    /// When its NIC was last called slow.
    slow: Option<Timestamp>,
}

impl OwnPast {
    /// Forgets ports that have not stood out for long.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, past| now.seconds_since(past.last) <= REMEMBERED_SECONDS);
    }

    /// Whether the port before a NIC waits longer than it did, or, where that is not known, very much longer than the median
    /// port.
    pub(super) fn is_new(
        &mut self,
        nic: &Part,
        own: &Waits<'_>,
        usual: f64,
        now: Timestamp,
    ) -> bool {
        if own.bytes.is_none() {
            return true;
        }
        let past = self.0.entry(nic.clone()).or_insert(Past {
            last: now,
            wait: None,
            slow: None,
        });
        past.last = now;
        // Once it was called slow, its past would be that of a slow NIC.
        if past.wait.is_none() && past.slow.is_none() {
            past.wait = before(own, now);
        }
        let lately = |slow: Timestamp| now.seconds_since(slow) <= WINDOW_SECONDS;
        let share = if past.slow.is_some_and(lately) {
            STILL
        } else {
            1.0
        };
        let sent = own.sent().filter(|sent| *sent > 0.0);
        let is_new = past.wait.zip(sent).map_or_else(
            || own.ticks > share * WITHOUT_PAST * usual,
            |(wait, sent)| own.ticks > share * NEW * wait * sent,
        );
        if is_new {
            past.slow = Some(now);
        }
        is_new
    }
}

/// What a port waited for each byte before it stood out.
fn before(own: &Waits<'_>, now: Timestamp) -> Option<f64> {
    let until = now.plus_seconds(-AGO_SECONDS);
    let rate = |window: Window<'_>| {
        let mut counts = window.counts().filter(|count| count.at <= until);
        let newest = counts.next()?;
        let oldest = counts.last()?;
        let seconds = newest.at.seconds_since(oldest.at);
        let rate = (newest.count - oldest.count) / seconds;
        // A counter that was cleared has no number before that.
        (seconds >= SPAN_SECONDS && rate.is_finite()).then_some(rate)
    };
    let (waited, sent) = rate(own.wait).zip(rate(own.bytes?))?;
    (sent > 0.0 && sent >= BUSY * own.sent()?).then_some(waited / sent)
}

/// The numbers.
pub(super) fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "wait per byte, compared with the same port before, InfiniBand",
            NEW,
            "times",
            "some ports always wait longer than others, without a fault (a choice)",
        ),
        Threshold::new(
            "wait above the median port, if the port had no such traffic before, InfiniBand",
            WITHOUT_PAST,
            "times",
            "of 13 recorded slow NICs 10 make their port wait longer than that (a choice)",
        ),
        Threshold::new(
            "share of either factor that is enough for a NIC to stay slow, InfiniBand",
            STILL,
            "ratio",
            "a wait near its limit is one incident (a choice)",
        ),
        Threshold::new(
            "age of the past that is compared, at least",
            AGO_SECONDS,
            "s",
            "a new wait is noticed earlier (a choice)",
        ),
        Threshold::new(
            "length of that past, at least",
            SPAN_SECONDS,
            "s",
            "several scrapes (a choice)",
        ),
        Threshold::new(
            "time for which the past of a port that waits is remembered",
            REMEMBERED_SECONDS,
            "s",
            "jobs pause and begin again (a choice)",
        ),
    ]
}
