//! How much NICs back-pressured their switches before they stood out: for some a higher level is normal.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;

use super::{BUSY, WINDOW_SECONDS};
use crate::detect::registry::Threshold;
use crate::store::{Increase, Window};

/// Wait or pause per byte, compared with that of the same port before, above which it is new.
pub(super) const NEW: f64 = 3.0;
/// InfiniBand: wait of a port whose past is not known, compared with the median port, from which a NIC is slow all the same.
pub(super) const WAIT_WITHOUT_PAST: f64 = 50.0;
/// Ethernet: the same as a share of the time in pause.
pub(super) const PAUSE_WITHOUT_PAST: f64 = 0.1;
/// Ethernet: the same of a NIC whose past is known, where nothing shows that what is behind it is slow: what many send to one host
/// at once makes it pause, too.
pub(super) const PAUSE_UNEXPLAINED: f64 = 0.06;
/// Share of these limits that is enough for a NIC to stay slow.
pub(super) const STILL: f64 = 0.5;
/// Minimum age of the baseline: by then a new wait has been noticed.
const AGO_SECONDS: f64 = 50.0;
/// Shortest time of it that is enough.
const SPAN_SECONDS: f64 = 15.0;
/// Time after a storm in which its NIC is not called slow: two scrapes at 30 s.
const AFTER_STORM_SECONDS: f64 = 60.0;
/// How long the baseline of an outlier port is kept.
const REMEMBERED_SECONDS: f64 = 3600.0;

/// How much a NIC back-pressures its switch, and what it receives.
#[derive(Debug, Clone, Copy)]
pub(super) struct BackPressure<'a> {
    /// Wait of its switch, or pause that it sends, a second: in ticks or seconds.
    pub(super) rate: f64,
    /// Counter of that wait or pause.
    pub(super) counter: Window<'a>,
    /// Bytes that the switch sends to it.
    pub(super) bytes: Option<Window<'a>>,
}

impl BackPressure<'_> {
    /// Bytes a second that the switch sends to it.
    pub(super) fn sent(&self) -> Option<f64> {
        let lately = self.bytes?.newest_increase(WINDOW_SECONDS);
        lately.map(Increase::rate)
    }
}

/// For NICs that are or were outliers, how much they back-pressured their switches for each byte before, by priority; empty on
/// InfiniBand.
#[derive(Debug, Default)]
pub(super) struct OwnPast(BTreeMap<(Part, String), Past>);

#[derive(Debug)]
struct Past {
    /// When the port was last an outlier.
    last: Timestamp,
    /// Ticks or seconds for each byte, if it had about as much traffic before.
    by_byte: Option<f64>,
    /// Whether its pause has been a storm.
    was_storm: bool,
    /// When its NIC was last called slow.
    slow: Option<Timestamp>,
}

/// When the pause of each NIC was last a storm, and the share of the time in pause from which it was one.
#[derive(Debug, Default)]
pub(super) struct Storms(BTreeMap<Part, (Timestamp, f64)>);

impl Storms {
    pub(super) fn note(&mut self, nic: &Part, least: f64, now: Timestamp) {
        let noted = self.0.entry(nic.clone()).or_insert((now, least));
        *noted = (now, noted.1.min(least));
    }

    /// If its pause was a storm so lately that what is left of it in the window of counters may be the storm's, the share from which
    /// it was one.
    pub(super) fn lately(&self, nic: &Part, now: Timestamp) -> Option<f64> {
        let (storm, least) = self.0.get(nic)?;
        (now.seconds_since(*storm) <= AFTER_STORM_SECONDS).then_some(*least)
    }

    /// Drops those that are over.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, (storm, _)| now.seconds_since(*storm) <= AFTER_STORM_SECONDS);
    }
}

impl OwnPast {
    /// Drops ports that have not been outliers for long.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, past| now.seconds_since(past.last) <= REMEMBERED_SECONDS);
    }

    /// What is known of an outlier, with what it did before. Once it was called slow, or its pause a storm, its past would be that of
    /// a faulty NIC.
    fn of(
        &mut self,
        (nic, priority): (&Part, &str),
        own: BackPressure<'_>,
        now: Timestamp,
    ) -> &mut Past {
        let lane = (nic.clone(), priority.to_owned());
        let past = self.0.entry(lane).or_insert(Past {
            last: now,
            by_byte: None,
            was_storm: false,
            slow: None,
        });
        past.last = now;
        if past.by_byte.is_none() && past.slow.is_none() && !past.was_storm {
            past.by_byte = before(own, now);
        }
        past
    }

    /// Notes that the pause of a NIC is a storm.
    pub(super) fn note_storm(
        &mut self,
        lane: (&Part, &str),
        own: BackPressure<'_>,
        now: Timestamp,
    ) {
        self.of(lane, own, now).was_storm = true;
    }

    /// Whether a NIC back-pressures its switch at more than the first of these rates, and more than it did before. If its traffic is not
    /// known, now or then: at more than both.
    pub(super) fn is_new(
        &mut self,
        lane: (&Part, &str),
        own: BackPressure<'_>,
        (least, without_past): (f64, f64),
        now: Timestamp,
    ) -> bool {
        let past = self.of(lane, own, now);
        let lately = |slow: Timestamp| now.seconds_since(slow) <= WINDOW_SECONDS;
        let share = if past.slow.is_some_and(lately) {
            STILL
        } else {
            1.0
        };
        let sent = own.sent().filter(|sent| *sent > 0.0);
        let is_new = past.by_byte.zip(sent).map_or_else(
            || own.rate > share * least.max(without_past),
            |(by_byte, sent)| own.rate > share * least.max(NEW * by_byte * sent),
        );
        if is_new {
            past.slow = Some(now);
        }
        is_new
    }
}

/// How much a NIC back-pressured its switch for each byte before it became an outlier.
fn before(own: BackPressure<'_>, now: Timestamp) -> Option<f64> {
    let until = now.plus_seconds(-AGO_SECONDS);
    let rate = |window: Window<'_>| window.rate_until(until, SPAN_SECONDS);
    let (held, sent) = rate(own.counter).zip(rate(own.bytes?))?;
    (sent > 0.0 && sent >= BUSY * own.sent()?).then_some(held / sent)
}

/// The numbers.
pub(super) fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "wait or pause per received byte, compared with the same port before",
            NEW,
            "times",
            "some ports always wait longer than others, without a fault (a choice)",
        ),
        Threshold::new(
            "wait above the median port, if the port had no such traffic before, InfiniBand",
            WAIT_WITHOUT_PAST,
            "times",
            "of 13 slow NICs in simulated clusters of other authors 10 make their port wait longer than that (a choice)",
        ),
        Threshold::new(
            "share of the time in pause, if the port had no such traffic before, or its traffic is not counted, Ethernet",
            PAUSE_WITHOUT_PAST,
            "ratio",
            "of 2,000 healthy NICs in 25 simulated clusters of other authors none pauses for more than 0.095 of the time; 8 of 9 slow ones do (a choice)",
        ),
        Threshold::new(
            "share of the time in pause, if the port had such traffic before, and its PCIe link neither is narrow nor lacks credits, Ethernet",
            PAUSE_UNEXPLAINED,
            "ratio",
            "in 31 simulated clusters of other authors slow receivers pause for 0.08 of the time or more, or have such a link; receivers of bursts for at most 0.05",
        ),
        Threshold::new(
            "share of these limits that is enough for a NIC to stay slow",
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
            "time after a storm in which its NIC is not slow",
            AFTER_STORM_SECONDS,
            "s",
            "two scrapes at 30 s, the first of which has part of the storm (a choice)",
        ),
        Threshold::new(
            "time for which the past of a port that waits is remembered",
            REMEMBERED_SECONDS,
            "s",
            "jobs pause and begin again (a choice)",
        ),
    ]
}
