//! What switch ports waited for their NICs before they stood out: some always wait longer than others, without a fault.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::BUSY;
use super::credits::Waits;
use crate::detect::registry::Threshold;
use crate::store::Window;

/// Wait per byte, compared with that of the same port before, above which it is new.
const NEW: f64 = 3.0;
/// Wait of a port whose past is not known, compared with the median port, from which a NIC is slow all the same.
const WITHOUT_PAST: f64 = 50.0;
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
    /// Whether its NIC was called slow: what it waits since then is no past of a healthy one.
    is_slow: bool,
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
        let first = || Past {
            last: now,
            wait: None,
            is_slow: false,
        };
        let past = self.0.entry(nic.clone()).or_insert_with(first);
        past.last = now;
        if past.wait.is_none() && !past.is_slow {
            past.wait = before(own, now);
        }
        let sent = own.sent().filter(|sent| *sent > 0.0);
        let is_new = past.wait.zip(sent).map_or_else(
            || own.ticks > WITHOUT_PAST * usual,
            |(wait, sent)| own.ticks > NEW * wait * sent,
        );
        past.is_slow |= is_new;
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
        (seconds >= SPAN_SECONDS).then(|| (newest.count - oldest.count) / seconds)
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
            "of recorded slow NICs most make their port wait more than 30 times as long as the median, of healthy ones few (a choice)",
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
