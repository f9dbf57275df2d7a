//! What ports did before packets began to wait there: for some a higher level is normal.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;

use crate::detect::registry::Threshold;
use crate::store::Window;

/// How much more than the same port before is new, in times.
pub(super) const NEW: f64 = 3.0;
/// Least age of the time before that is compared, and its least length.
const AGO_SECONDS: [f64; 2] = [75.0, 30.0];
/// The shortest time at the end of that in which is compared what a port sent: longer than a pause between steps.
const SENT_SECONDS: f64 = 60.0;
/// How long is remembered what a port did before, after packets last waited there.
pub(super) const REMEMBERED_SECONDS: f64 = 600.0;

/// Most that a port sends, compared with before, and least that packets wait there in all: then its traffic does not explain why.
const LESS: (f64, f64) = (0.7, 1.5);

/// Whether a port sends less than before, and packets wait there more all the same. `waits`: how many times as much for each
/// packet or byte as before; `sent`: bytes, likewise.
pub(super) fn sends_less(waits: Option<f64>, sent: Option<f64>) -> bool {
    let (most_sent, least_waits) = LESS;
    let both = waits.zip(sent);
    both.is_some_and(|(waits, sent)| sent <= most_sent && waits * sent >= least_waits)
}

/// A switch, a port of it and a priority; the last is empty where all are counted together.
pub(super) type Lane = (SwitchName, String, String);

/// What ports did before packets waited there.
#[derive(Default)]
pub(super) struct Pasts(BTreeMap<Lane, Past>);

struct Past {
    /// How much they waited; `None` where that is not known.
    before: Option<f64>,
    /// When packets last waited there.
    last: Timestamp,
}

impl Pasts {
    /// Drops ports where nothing has waited for long.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.0
            .retain(|_, past| now.seconds_since(past.last) <= REMEMBERED_SECONDS);
    }

    /// How many times as much as before packets wait; `None` where that is not known. `before` is asked when they begin to wait.
    pub(super) fn times_before(
        &mut self,
        lane: &Lane,
        now: Timestamp,
        level: f64,
        before: impl FnOnce() -> Option<f64>,
    ) -> Option<f64> {
        let past = self.0.entry(lane.clone()).or_insert_with(|| Past {
            before: before(),
            last: now,
        });
        past.last = now;
        past.before.map(|before| level / before)
    }
}

/// Rate of a counter before the time in which packets wait.
pub(super) fn before(counter: Window<'_>, now: Timestamp) -> Option<f64> {
    let [ago, span] = AGO_SECONDS;
    counter.rate_until(now.plus_seconds(-ago), span)
}

/// Bytes a second that a port sent at the end of that time: jobs begin and end.
pub(super) fn sent_before(bytes: Window<'_>, now: Timestamp) -> Option<f64> {
    bytes.rate_just_before(now.plus_seconds(-AGO_SECONDS[0]), SENT_SECONDS)
}

/// The numbers.
pub(super) fn numbers() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "compared with the same port before",
            NEW,
            "times",
            "a job may send so that packets always wait (a choice)",
        ),
        Threshold::new(
            "age of what was before, at least",
            AGO_SECONDS[0],
            "s",
            "longer than the window (a choice)",
        ),
        Threshold::new(
            "length of that time, at least",
            AGO_SECONDS[1],
            "s",
            "several readings (a choice)",
        ),
        Threshold::new(
            "time after packets last waited for which that is remembered",
            REMEMBERED_SECONDS,
            "s",
            "a job pauses for checkpoints (a choice)",
        ),
    ]
}

/// The numbers of [`sends_less`].
pub(super) fn numbers_of_less() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "or, whatever the others send: bytes sent, compared with before, at most",
            LESS.0,
            "times",
            "flows that come to share the port send more (a choice)",
        ),
        Threshold::new(
            "length of the end of the time before in which it sent that, at least",
            SENT_SECONDS,
            "s",
            "longer than a pause between steps (a choice)",
        ),
        Threshold::new(
            "and packets that wait, compared with before, at least",
            LESS.1,
            "times",
            "with less traffic fewer wait, unless the cable is slower (a choice)",
        ),
    ]
}

/// How much a counter has risen lately, if it rose in each of these equal parts of so many seconds: a burst is in one or two.
pub(super) fn steady_rise(counter: Window<'_>, seconds: f64, parts: usize) -> Option<f64> {
    let (end, _) = counter.latest()?;
    let part = seconds / parts as f64;
    let moments = (0..=parts).map(|back| end.plus_seconds(-part * back as f64));
    let counts: Option<Vec<f64>> = moments.map(|at| counter.count_at(at)).collect();
    let counts = counts?;
    let is_steady = counts.windows(2).all(|later| later[0] > later[1]);
    is_steady.then(|| counts[0] - counts[parts])
}

#[cfg(test)]
mod tests {
    use super::sends_less;

    #[test]
    fn a_port_that_sends_less_while_more_waits_is_not_explained_by_its_traffic() {
        for (waits, sent, expected) in [
            (Some(4.0), Some(0.5), true),
            (Some(f64::INFINITY), Some(0.5), true),
            // With half of the traffic half as much waits.
            (Some(1.0), Some(0.5), false),
            (Some(4.0), Some(0.9), false),
            (None, Some(0.5), false),
            (Some(4.0), None, false),
        ] {
            assert_eq!(sends_less(waits, sent), expected, "{waits:?} {sent:?}");
        }
    }
}
