//! GPUs of which one sample alone shows that they are throttled.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::GPU_CLOCK_EVENT_SECONDS;

use super::Held;
use crate::detect::registry::Threshold;

/// How long a GPU that a sample showed to be throttled is remembered: it may be idle meanwhile.
const REMEMBERED_SECONDS: f64 = 300.0;

/// The number.
pub(super) fn threshold() -> Threshold {
    Threshold::new(
        "where the time of clock events is not counted: time within which two samples must show it",
        REMEMBERED_SECONDS,
        "s",
        "when power limits of a site change, a node that was read before still shows the old ones (a choice)",
    )
}

/// When GPUs were first and last found to be throttled by a sample.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<(NodeName, GpuIndex), [Timestamp; 2]>);

impl Samples {
    /// Omits GPUs of which one sample alone shows it: nodes are read one after another.
    pub(super) fn retain_seen_twice(&mut self, held: &mut Vec<Held<'_>>, now: Timestamp) {
        self.0
            .retain(|_, [_, last]| now.seconds_since(*last) <= REMEMBERED_SECONDS);
        held.retain(|held| {
            let labels = [held.gpu.label(), held.why.reason];
            let counted = held.gpu.history.window(&GPU_CLOCK_EVENT_SECONDS, &labels);
            let newest = held.gpu.clock().and_then(|clock| clock.latest());
            let (None, Some((newest, _))) = (counted, newest) else {
                return true;
            };
            let key = (held.gpu.node.clone(), held.gpu.index);
            let [first, last] = self.0.entry(key).or_insert([newest; 2]);
            *last = newest;
            *first < newest
        });
    }
}
