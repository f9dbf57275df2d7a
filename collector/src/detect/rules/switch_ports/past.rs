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
/// How long is remembered what a port did before, after packets last waited there.
const REMEMBERED_SECONDS: f64 = 600.0;

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
