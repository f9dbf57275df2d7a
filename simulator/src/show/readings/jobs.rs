//! Whose work runs on a node, as a batch system's job mapping lets its exporter report it.

use railscope_model::identity::PciAddress;
use railscope_model::metric::{WORKLOAD, WORKLOAD_DEVICES};
use railscope_model::reading::{Labels, NodeReading};

/// One series for each GPU of a node with a job, and how many devices are held.
pub(super) fn push(reading: &mut NodeReading, job: Option<&str>, gpus: &[PciAddress]) {
    let mut named = 0_u64;
    for (gpu, pci) in gpus.iter().enumerate() {
        let Some(job) = job else { break };
        let (gpu, pci) = (gpu.to_string(), pci.to_string());
        let held = [&gpu, "", "", &pci, "", "", "", "", job];
        reading.push(&WORKLOAD, &Labels::new(held), true);
        named += 1;
    }
    for (state, count) in [
        ("named", named),
        ("unknown", 0),
        ("stale", 0),
        ("dropped", 0),
    ] {
        reading.push(&WORKLOAD_DEVICES, &Labels::new([state]), count);
    }
}
