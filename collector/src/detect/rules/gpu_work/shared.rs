//! GPUs that hold more in their memory than the others of their node: another process shares them, or their rank has more data.
//! Either makes them work for longer, as a slow GPU does.

use railscope_model::metric::GPU_MEMORY_USED;

use crate::detect::gpus::Listed;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::Threshold;

/// Bytes beyond the fullest other GPU: the context of a process alone takes half of it.
const MIN_MORE: f64 = 1e9;
/// How many times the range of the others.
const ABOVE_RANGE: f64 = 2.0;

/// The numbers.
pub(super) fn thresholds() -> [Threshold; 2] {
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
