//! GPUs that hold more in their memory than the others of their node: another process shares them, or their rank has more data.
//! Either makes them work for longer, as a slow GPU does. So does another job on several GPUs of the node.

use railscope_model::metric::GPU_MEMORY_USED;

use super::Behind;
use crate::detect::gpus::Listed;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::Threshold;

/// Bytes beyond the fullest other GPU: the context of a process alone takes half of it.
const MIN_MORE: f64 = 1e9;
/// How many times the range of the others.
const ABOVE_RANGE: f64 = 2.0;
/// Largest share of the GPUs of a node and job that may be slow at once, if several are.
const MOST_OF_NODE: f64 = 0.25;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 3] {
    [
        Threshold::new(
            "memory in use beyond the fullest other GPU of the node, from which another process may share the GPU",
            MIN_MORE,
            "bytes",
            "the context of a process takes half of it (a choice)",
        ),
        Threshold::new(
            "and beyond the range of the others",
            ABOVE_RANGE,
            "times",
            "ranks hold different amounts (a choice)",
        ),
        Threshold::new(
            "largest share of a node's GPUs whose SMs are active for longer at once, if several are",
            MOST_OF_NODE,
            "ratio",
            "where more are, they belong to another job, such as inference (a choice)",
        ),
    ]
}

/// Bytes that a GPU holds beyond the fullest other GPU of its node, if these hold about the same.
pub(super) fn more_memory(gpu: &Listed<'_>) -> Option<f64> {
    let own = gpu.value(&GPU_MEMORY_USED)?;
    let series = gpu.history.series(&GPU_MEMORY_USED);
    let others = series.filter(|(labels, _)| labels.values().next() != Some(gpu.label()));
    let others: Vec<f64> = others.filter_map(|(_, window)| window.value()).collect();
    let fullest = others.iter().copied().reduce(f64::max)?;
    let emptiest = others.iter().copied().reduce(f64::min)?;
    let more = own - fullest;
    let is_far = more >= MIN_MORE.max(ABOVE_RANGE * (fullest - emptiest));
    (is_far && others.len() + 1 >= MIN_PEERS).then_some(more)
}

/// Discards slow GPUs that are too many of their node: they run another job than the others, such as inference, and its tensor
/// work is the same by chance.
pub(super) fn discard_many(behind: &mut Behind<'_>, gpus: &[Listed<'_>]) {
    let keys = gpus.iter().map(|gpu| (gpu.node.clone(), gpu.index));
    let slow: Vec<_> = keys.filter(|key| behind.contains_key(key)).collect();
    if slow.len() > 1 && slow.len() as f64 > MOST_OF_NODE * gpus.len() as f64 {
        behind.retain(|key, _| !slow.contains(key));
    }
}
