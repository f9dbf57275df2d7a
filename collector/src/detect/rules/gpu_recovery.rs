//! GPUs for which the driver asks for a recovery action: a reset, a reboot of the node, a drain.

use std::collections::BTreeSet;

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::GPU_RECOVERY_ACTION;

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, GPU_ERROR, GPU_MEMORY, NVLINK_DOWN};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::Rule;
use crate::detect::rules::gpu_xid::has_nvlink_xid;
use crate::store::per_node_cache::Kept;

const NAME: &str = "gpu-recovery";

/// Actions that the driver can request: `nvmlDeviceGpuRecoveryAction_t` from 1 on; 0 is nothing.
const ACTIONS: &[Action] = &[
    Action {
        class: &GPU_ERROR,
        what: "end its processes and reset the GPU",
        ends_peer_traffic: false,
    },
    Action {
        class: &GPU_ERROR,
        what: "reboot the node",
        ends_peer_traffic: false,
    },
    Action {
        class: &GPU_ERROR,
        what: "end the GPU's peer-to-peer traffic, then read the recovery action again",
        ends_peer_traffic: true,
    },
    // The GPU works with less capacity, and its processes may end first.
    Action {
        class: &GPU_MEMORY,
        what: "drain the GPU, and reset it when its processes have ended",
        ends_peer_traffic: false,
    },
];
/// Numbers above those: releases of NVML differ in what they mean.
const OTHER: Action = Action {
    class: &GPU_ERROR,
    what: "not known to this version of Railscope; `nvidia-smi -q` names it",
    ends_peer_traffic: false,
};

#[derive(Debug)]
struct Action {
    class: &'static Class,
    what: &'static str,
    /// The action may concern NVLinks: an XID shows whether it does.
    ends_peer_traffic: bool,
}

/// The number of an action; other numbers mean that the value is absent.
fn number(value: f64) -> Option<u8> {
    (1.0..16.0).contains(&value).then_some(value as u8)
}

/// The GPUs that need something, by node.
#[derive(Default)]
struct GpuRecovery {
    /// Rests on the recovery actions of the node's GPUs.
    kept: Kept<u64, Vec<(GpuIndex, u8)>>,
    /// GPUs that an XID of NVLinks was reported for while the action is requested. Later XIDs may be its consequences.
    of_nvlink: BTreeSet<(NodeName, GpuIndex)>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuRecovery>::default()
}

impl Detector for GpuRecovery {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.kept.begin();
        let before = std::mem::take(&mut self.of_nvlink);
        for (node, history) in view.history.fresh_nodes(view.now) {
            let values = history.values_since(&GPU_RECOVERY_ACTION);
            self.kept.refresh(history, values, || {
                let series = history.series(&GPU_RECOVERY_ACTION);
                let needed = series.filter_map(|(labels, window)| {
                    let action = number(window.value()?)?;
                    Some((labels.values().next()?.parse().ok()?, action))
                });
                needed.collect()
            });
            for (gpu, number) in self.kept.of(history).into_iter().flatten() {
                let action = ACTIONS.get(usize::from(*number) - 1).unwrap_or(&OTHER);
                let key = (node.clone(), *gpu);
                let is_of_nvlink = action.ends_peer_traffic
                    && (before.contains(&key) || has_nvlink_xid(history, *gpu));
                let part = Part::Gpu(node.clone(), *gpu);
                let found = evidence(part, *number, action, view);
                if is_of_nvlink {
                    self.of_nvlink.insert(key);
                    let class = &NVLINK_DOWN;
                    out.push(Evidence { class, ..found });
                } else {
                    out.push(found);
                }
            }
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "The driver requests a recovery action for the GPU: a reset, a reboot of the node, an end of its peer-to-peer traffic, or a drain (NVML with driver 570 or newer, or DCGM).",
            threshold: String::from("any"),
            clears: "The driver no longer requests an action.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        vec![
            Rule::new(&GPU_ERROR, Vec::new()),
            Rule::new(&GPU_MEMORY, Vec::new()),
            Rule::new(&NVLINK_DOWN, Vec::new()),
        ]
    }
}

fn evidence(part: Part, number: u8, action: &Action, view: &View<'_>) -> Evidence {
    let stops = action.class == &GPU_ERROR;
    Evidence {
        detector: NAME,
        signal: GPU_RECOVERY_ACTION.name,
        class: action.class,
        effect: f64::from(u8::from(stops)),
        statement: format!(
            "The driver requests recovery action {number} for {part}: {}.",
            action.what
        ),
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
