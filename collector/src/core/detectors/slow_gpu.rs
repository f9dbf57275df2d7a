//! GPUs that their driver holds back while their peers run free.

use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::{
    GPU, GPU_CLOCK, GPU_CLOCK_EVENT, GPU_CLOCK_EVENT_SECONDS, GPU_UTILIZATION,
};

use super::peers::{MIN_PEERS, median};
use crate::core::classes::GPU_SLOW;
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::history::NodeHistory;

/// Smallest drop of the SM clock below the median peer that is a fault: below it, chips simply differ
/// (detection method, section 3.2, D2: 5 % for compute).
const MIN_DROP: f64 = 0.05;
/// Utilisation from which a GPU counts as running a job: an idle GPU's clock is low by design.
const BUSY_UTILIZATION: f64 = 0.5;
/// The window over which clock events are summed.
const WINDOW_SECONDS: f64 = 60.0;
/// Share of that window in which an event must have been active.
const MIN_EVENT_SHARE: f64 = 0.05;
/// Events that slow a GPU down, worst first. `sw_power_cap` is normal under load, so it counts only
/// together with the drop below peers, as all of them do.
const SLOWDOWNS: &[&str] = &[
    "hw_power_brake",
    "hw_thermal",
    "hw_slowdown",
    "sw_thermal",
    "sw_power_cap",
];

struct SlowGpu;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(SlowGpu)
}

/// A busy GPU with its clock.
struct BusyGpu<'a> {
    node: &'a NodeName,
    history: &'a NodeHistory,
    gpu: GpuIndex,
    /// Product name: only equal chips are peers.
    product: &'a str,
    clock_hertz: f64,
}

impl Detector for SlowGpu {
    fn name(&self) -> &'static str {
        "slow-gpu"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let gpus = busy_gpus(view);
        let mut products: Vec<_> = gpus.iter().map(|gpu| gpu.product).collect();
        products.sort_unstable();
        products.dedup();
        for product in products {
            let peers: Vec<_> = gpus.iter().filter(|gpu| gpu.product == product).collect();
            let Some(norm) = median(peers.iter().map(|gpu| gpu.clock_hertz))
                .filter(|_| peers.len() >= MIN_PEERS)
            else {
                continue;
            };
            for gpu in &peers {
                let drop = 1.0 - gpu.clock_hertz / norm;
                if let Some(event) = slowdown(gpu).filter(|_| drop >= MIN_DROP) {
                    out.push(evidence(gpu, &event, drop, norm, peers.len() - 1));
                }
            }
        }
    }

    fn explain(&self, _evidence: &Evidence) -> Explanation {
        Explanation {
            check: "A busy GPU's SM clock is below that of equal busy GPUs, and the driver names a reason for it.",
            threshold: format!(
                "{:.0} % below the median of at least {MIN_PEERS} peers (chips differ by less), with a clock event for {:.0} % of {WINDOW_SECONDS:.0} s",
                100.0 * MIN_DROP,
                100.0 * MIN_EVENT_SHARE
            ),
            clears: "The clock is back within 5 % of the median, or the driver no longer holds it down.",
        }
    }
}

fn busy_gpus<'a>(view: &View<'a>) -> Vec<BusyGpu<'a>> {
    let name = GPU.labels.iter().position(|label| *label == "name");
    let mut gpus = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        for (labels, _) in history.series(&GPU) {
            let index = labels.values().next().unwrap_or_default();
            let product = name
                .and_then(|name| labels.values().nth(name))
                .unwrap_or_default();
            let busy = history
                .value(&GPU_UTILIZATION, &[index])
                .is_some_and(|u| u >= BUSY_UTILIZATION);
            let clock = history.value(&GPU_CLOCK, &[index, "sm"]);
            if let (true, Some(clock_hertz), Ok(gpu)) = (busy, clock, index.parse()) {
                gpus.push(BusyGpu {
                    node,
                    history,
                    gpu,
                    product,
                    clock_hertz,
                });
            }
        }
    }
    gpus
}

/// The worst clock event of the GPU and how long it was active, in words.
fn slowdown(gpu: &BusyGpu<'_>) -> Option<String> {
    let index = gpu.gpu.to_string();
    SLOWDOWNS.iter().find_map(|reason| {
        let labels = [index.as_str(), reason];
        let seconds = gpu.history.window(&GPU_CLOCK_EVENT_SECONDS, &labels);
        match seconds.and_then(|window| window.increase(WINDOW_SECONDS)) {
            // The duration is the better witness: it misses nothing between two samples.
            Some(rise) => (rise.rate() >= MIN_EVENT_SHARE).then(|| {
                format!(
                    "{reason} held it down for {:.0} % of the last {:.0} s",
                    100.0 * rise.rate(),
                    rise.seconds
                )
            }),
            None => (gpu.history.value(&GPU_CLOCK_EVENT, &labels) == Some(1.0))
                .then(|| format!("{reason} holds it down")),
        }
    })
}

fn evidence(gpu: &BusyGpu<'_>, event: &str, drop: f64, norm_hertz: f64, peers: usize) -> Evidence {
    let part = Part::Gpu(gpu.node.clone(), gpu.gpu);
    Evidence {
        detector: "slow-gpu",
        signal: GPU_CLOCK.name,
        class: &GPU_SLOW,
        effect: drop,
        statement: format!(
            "GPU {} of {} runs at {:.0} MHz, {:.0} % below the median {:.0} MHz of {peers} busy peers; {event}.",
            gpu.gpu,
            gpu.node,
            gpu.clock_hertz * 1e-6,
            100.0 * drop,
            norm_hertz * 1e-6
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        part,
    }
}
