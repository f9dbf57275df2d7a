//! What is reported of throttled GPUs: one of them, or their node.

use railscope_model::identity::Part;
use railscope_model::metric::{GPU_CLOCK, GPU_CLOCK_EVENT_SECONDS};

use super::{Held, NAME};
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, GPU_SLOW};
use crate::detect::detector::{Evidence, View};
use crate::detect::peers::{MAJORITY, MIN_PEERS};

/// What is wrong with a node, if it throttles most of its busy GPUs.
pub(super) fn shared_cause(held: &[&Held<'_>], gpus: usize) -> Option<&'static Class> {
    let first = held.first()?.why;
    let alike = held
        .iter()
        .filter(|held| held.why.reason == first.reason)
        .count();
    let most = gpus >= MIN_PEERS && alike as f64 >= MAJORITY * gpus as f64;
    most.then_some(first.of_node)
}

/// Evidence against a node.
pub(super) fn of_whole_node(
    class: &'static Class,
    held: &[&Held<'_>],
    gpus: usize,
    view: &View<'_>,
) -> Evidence {
    let mut held = held.to_vec();
    held.sort_by(|a, b| b.drop().total_cmp(&a.drop()));
    let worst = held[0];
    let host = Part::Host(worst.gpu.node.clone());
    Evidence {
        detector: NAME,
        signal: GPU_CLOCK_EVENT_SECONDS.name,
        class,
        effect: worst.drop(),
        statement: format!(
            "{} of {gpus} busy GPUs of {} run slower than their peers, the slowest at {:.0} MHz, {:.0} % below {} {:.0} MHz of {} peers; {}.",
            held.len(),
            worst.gpu.node,
            worst.clock_hertz * 1e-6,
            100.0 * worst.drop(),
            worst.norm,
            worst.norm_hertz * 1e-6,
            worst.peers,
            worst.words
        ),
        victims: gpus_behind(view.fabric, &host),
        related: Vec::new(),
        alike: Vec::new(),
        part: host,
    }
}

/// Evidence against one GPU.
pub(super) fn of_one(held: &Held<'_>) -> Evidence {
    let part = held.gpu.part();
    Evidence {
        detector: NAME,
        signal: GPU_CLOCK.name,
        class: &GPU_SLOW,
        effect: held.drop(),
        statement: format!(
            "GPU {} of {} runs at {:.0} MHz, {:.0} % below {} {:.0} MHz of {} busy peers; {}.",
            held.gpu.index,
            held.gpu.node,
            held.clock_hertz * 1e-6,
            100.0 * held.drop(),
            held.norm,
            held.norm_hertz * 1e-6,
            held.peers,
            held.words
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
