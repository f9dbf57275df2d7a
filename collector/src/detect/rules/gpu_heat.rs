//! GPUs that run far hotter than those at the same place in other nodes which draw as much power: not throttled yet.
//!
//! A GPU is warmer or cooler by its place in the airflow or coolant loop of the node, and by its power.
//! The rest is its own cooling: paste, heat sink, cold plate, a separate fan. A cooling that has just failed shows
//! earlier, by how the GPU's temperature changes against the others of its node ([`risen`]).

mod risen;

use std::cell::OnceCell;
use std::collections::BTreeMap;

use railscope_model::identity::{GpuIndex, NodeName};
use railscope_model::metric::{GPU_POWER, GPU_TEMPERATURE};

use self::risen::{Risen, Rises};
use crate::classes::{Class, GPU_THERMAL};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::Listed;
use crate::detect::peers::{self, MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};

/// The time for which a GPU must have been as hot. A GPU warms up in less than half of it.
const HOT_SECONDS: f64 = 60.0;
/// Excess over its peers, in kelvin. Healthy GPUs of recorded and simulated nodes differ by 6 at most.
const MIN_EXCESS: f64 = 15.0;
/// How far the power of peers may be off, as a share.
const ALIKE_POWER: f64 = 0.1;
/// Most peers whose power is compared.
const MOST_PEERS: usize = 64;

#[derive(Default)]
struct GpuHeat {
    rises: Rises,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuHeat>::default()
}

/// Product, and place in the node.
type Slot<'a> = (&'a str, GpuIndex);

/// A GPU and how hot it is now.
struct Warm<'a> {
    gpu: Listed<'a>,
    celsius: f64,
}

impl Detector for GpuHeat {
    fn name(&self) -> &'static str {
        "gpu-heat"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut slots: BTreeMap<Slot<'_>, Vec<Warm<'_>>> = BTreeMap::new();
        let gpus = view.gpus.listed(view);
        let risen = self.rises.find(view, &gpus);
        for gpu in gpus {
            let celsius = gpu.window(&GPU_TEMPERATURE);
            if let Some(celsius) = celsius.and_then(|celsius| celsius.value()) {
                let slot = slots.entry((gpu.product, gpu.index)).or_default();
                slot.push(Warm { gpu, celsius });
            }
        }
        slots.retain(|_, warm| warm.len() > MIN_PEERS);
        let slots: Vec<(f64, Vec<Warm<'_>>)> = slots
            .into_values()
            .filter_map(|warm| Some((median(warm.iter().map(|own| own.celsius))?, warm)))
            .collect();
        // Evaluated only where one stands out.
        let by_node = OnceCell::new();
        for (usual, warm) in &slots {
            for own in warm {
                let excess = own.celsius - usual;
                if excess < MIN_EXCESS {
                    continue;
                }
                // Where all GPUs of a node are hot it is the node's air.
                let by_node = by_node.get_or_init(|| excess_of_nodes(&slots));
                let of_node = by_node[own.gpu.node].max(0.0);
                if excess - of_node >= MIN_EXCESS {
                    out.extend(evidence(view, own, warm, of_node));
                }
            }
        }
        out.extend(risen.iter().map(has_risen));
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A GPU is far hotter than GPUs at the same place in other nodes that draw the same power, or has become hotter against the other GPUs of its node.",
            threshold: format!(
                "{MIN_EXCESS:.0} K above the median of at least {MIN_PEERS} peers that draw the same power within {:.0} %, and above the GPUs of its own node as a whole, for {HOT_SECONDS:.0} s; {}",
                100.0 * ALIKE_POWER,
                risen::words()
            ),
            clears: "Its temperature matches that of its peers.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let mut thresholds = peers::thresholds();
        thresholds.truncate(1);
        thresholds.extend([
            Threshold::new(
                "excess over its peers",
                MIN_EXCESS,
                "K",
                "healthy GPUs at the same place and power differed by at most 6 K in recordings and simulations (a choice)",
            ),
            Threshold::new(
                "for",
                HOT_SECONDS,
                "s",
                "twice the warm-up time of a GPU (a choice)",
            ),
            Threshold::new(
                "largest power difference of peers",
                ALIKE_POWER,
                "ratio",
                "about 5 K at full load (a choice)",
            ),
            Threshold::new(
                "maximum number of peers whose power is compared",
                MOST_PEERS as f64,
                "components",
                "more peers add no information (a choice)",
            ),
        ]);
        thresholds.extend(risen::numbers());
        vec![Rule::new(&GPU_THERMAL, thresholds)]
    }
}

/// Excess of a node's GPUs over the usual temperature of their places: that of the median GPU.
fn excess_of_nodes<'a>(slots: &[(f64, Vec<Warm<'a>>)]) -> BTreeMap<&'a NodeName, f64> {
    let mut by_node: BTreeMap<&NodeName, Vec<f64>> = BTreeMap::new();
    for (usual, warm) in slots {
        for own in warm {
            let excess = own.celsius - usual;
            by_node.entry(own.gpu.node).or_default().push(excess);
        }
    }
    let of_node = |(node, excesses)| Some((node, median(excesses)?));
    by_node.into_iter().filter_map(of_node).collect()
}

/// What a GPU has drawn on average.
fn watts(view: &View<'_>, gpu: &Listed<'_>) -> Option<f64> {
    gpu.mean(&GPU_POWER, view.now, [0.0, HOT_SECONDS])
}

fn evidence(view: &View<'_>, own: &Warm<'_>, warm: &[Warm<'_>], of_node: f64) -> Option<Evidence> {
    let gpu = &own.gpu;
    let watts_of_own = watts(view, gpu)?;
    let others = warm.iter().filter(|peer| peer.gpu.node != gpu.node);
    let alike = others.take(MOST_PEERS).filter(|peer| {
        let watts = watts(view, &peer.gpu);
        watts.is_some_and(|watts| (watts / watts_of_own - 1.0).abs() <= ALIKE_POWER)
    });
    let alike: Vec<f64> = alike.map(|peer| peer.celsius).collect();
    if alike.len() < MIN_PEERS {
        return None;
    }
    let usual = median(alike.iter().copied())?;
    let limit = usual + of_node + MIN_EXCESS;
    let window = gpu.window(&GPU_TEMPERATURE)?;
    let mut is_hot_so_long = false;
    for (at, celsius) in window.told() {
        if celsius < limit {
            return None;
        }
        if view.now.seconds_since(at) >= HOT_SECONDS {
            is_hot_so_long = true;
            break;
        }
    }
    if !is_hot_so_long {
        return None;
    }
    let statement = format!(
        "GPU {} of {} is at {:.0} degrees Celsius; the {} at the same place in other nodes that draw the same {watts_of_own:.0} W are at {usual:.0}.",
        gpu.index,
        gpu.node,
        own.celsius,
        alike.len()
    );
    Some(hot(gpu, statement))
}

fn has_risen(risen: &Risen<'_>) -> Evidence {
    let gpu = &risen.gpu;
    let statement = format!(
        "GPU {} of {} has become {:.0} K hotter than before against the other GPUs of its node, and draws no more power.",
        gpu.index, gpu.node, risen.by
    );
    hot(gpu, statement)
}

fn hot(gpu: &Listed<'_>, statement: String) -> Evidence {
    let part = gpu.part();
    Evidence {
        detector: "gpu-heat",
        signal: GPU_TEMPERATURE.name,
        class: &GPU_THERMAL,
        // Nothing is slower yet.
        effect: 0.0,
        statement,
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}
