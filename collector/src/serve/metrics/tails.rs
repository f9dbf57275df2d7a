//! Components and pairs of NICs with the most slow probes.

use railscope_model::metric::{PROBE_COMPONENT_SLOW, PROBE_PAIR_SLOW};
use railscope_model::reading::{Labels, NodeReading};

use crate::detect::tails::{Pair, Tails};

pub(super) fn push(reading: &mut NodeReading, tails: &Tails) {
    for slow in &tails.components {
        let labels = Labels::new([&slow.of]);
        reading.push(&PROBE_COMPONENT_SLOW, &labels, slow.ratio());
    }
    for slow in &tails.pairs {
        let Pair {
            node,
            device,
            peer_node,
            peer_device,
            path_class,
        } = &slow.of;
        let labels = [
            node.as_str(),
            device.as_str(),
            peer_node.as_str(),
            peer_device.as_str(),
            path_class.name(),
        ];
        reading.push(&PROBE_PAIR_SLOW, &Labels::new(labels), slow.ratio());
    }
}
