//! GPUs that are no longer exported while others of their node are: some exporters drop the series of a lost GPU.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part};
use railscope_model::metric::GPU;

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, GPU_LOST};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::Listed;
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS};
use crate::detect::registry::{Rule, Threshold};
use crate::store::NodeHistory;

const NAME: &str = "gpu-presence";

/// A GPU that worked so recently was not given away: drivers release only idle GPUs, to a virtual machine for example.
const BUSY_BEFORE_SECONDS: f64 = 120.0;
/// A node with a smaller share of its peers' GPUs was built or partitioned that way.
const MOST_MISSING: f64 = 0.25;
/// For how long the GPUs that a node missed are remembered while it restarts (a choice).
const RESTART_SECONDS: f64 = 900.0;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<GpuPresence>::default()
}

/// The GPUs that each node had.
#[derive(Default)]
struct GpuPresence {
    /// By history: a node without scrapes for long is compared from scratch.
    nodes: HashMap<u64, Node, FixedState>,
    /// The GPUs that each node last missed, and when: a node that is restarted is compared from scratch.
    missed: BTreeMap<NodeName, (Vec<GpuIndex>, Timestamp)>,
    tick: u64,
}

#[derive(Debug, Default)]
struct Node {
    /// In the order in which the node lists them, with their keys.
    present: Vec<(String, Had)>,
    /// Those that the node had, by key, and since when they are missing.
    missing: BTreeMap<String, (Had, Timestamp)>,
    /// Number of GPUs listed; 0 while nothing is known of the node's GPUs: then none is missing.
    listed: usize,
    /// Most GPUs at once.
    most: usize,
    /// The product, if all are alike.
    product: Option<String>,
    /// What the list rests on.
    values: Option<u64>,
    tick: u64,
}

#[derive(Debug)]
struct Had {
    index: GpuIndex,
    busy_at: Option<Timestamp>,
}

impl Had {
    /// Whether it worked shortly before this time.
    fn was_busy(&self, before: Timestamp) -> bool {
        self.busy_at
            .is_some_and(|busy| before.seconds_since(busy) <= BUSY_BEFORE_SECONDS)
    }
}

impl Detector for GpuPresence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.tick += 1;
        let tick = self.tick;
        for (node, history) in view.history.fresh_nodes(view.now) {
            let known = self.nodes.entry(history.born()).or_default();
            known.tick = tick;
            let values = Some(history.values_since(&GPU));
            if known.values != values {
                known.values = values;
                let listed: Vec<_> = view.gpus.of_node(view, node, history).collect();
                known.relist(&listed, view.now);
            }
            if known.listed > 0 {
                let listed = view.gpus.of_node(view, node, history);
                known.note_work(listed, view.now);
            }
        }
        self.nodes.retain(|_, node| node.tick == tick);
        let usual = self.usual_counts();
        let restarted = |at: Timestamp| view.now.seconds_since(at) <= RESTART_SECONDS;
        self.missed.retain(|_, (_, at)| restarted(*at));
        for (node, history) in view.history.fresh_nodes(view.now) {
            let Some(known) = self.nodes.get(&history.born()) else {
                continue;
            };
            let usual = known
                .product
                .as_ref()
                .and_then(|product| usual.get(product));
            let usual = usual.copied().unwrap_or(0);
            let before = self.missed.remove(node).map(|(gpus, _)| gpus);
            let mut missed: Vec<_> = known.missing.values().map(|(had, _)| had.index).collect();
            if missed.is_empty() {
                missed = before.unwrap_or_default();
            }
            // All may be back, or the others have been renumbered.
            if known
                .present
                .iter()
                .any(|(_, had)| missed.contains(&had.index))
            {
                missed.clear();
            }
            known.missing(usual, &missed, (node, history, view), out);
            if !missed.is_empty() {
                self.missed.insert(node.clone(), (missed, view.now));
            }
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A GPU that the node exported is no longer exported, while other GPUs of the node are.",
            threshold: format!(
                "the GPU was active less than {BUSY_BEFORE_SECONDS} s before, or {:.0} % of at least {MIN_PEERS} nodes of the same product have more GPUs, by at most {:.0} %",
                100.0 * MAJORITY,
                100.0 * MOST_MISSING
            ),
            clears: "The GPU is exported again, or another one has replaced it.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let own = [
            Threshold::new(
                "longest time between its last activity and its absence",
                BUSY_BEFORE_SECONDS,
                "s",
                "a driver releases only idle GPUs, for example to a virtual machine (a choice)",
            ),
            Threshold::new(
                "largest share of its GPUs that a node can lack, compared with its peers",
                MOST_MISSING,
                "ratio",
                "a node with fewer was built or partitioned that way (a choice)",
            ),
            Threshold::new(
                "time for which the missing GPUs of a restarting node are remembered",
                RESTART_SECONDS,
                "s",
                "a GPU server needs ten minutes to boot (a choice)",
            ),
        ];
        let thresholds = own.into_iter().chain(peers::thresholds());
        vec![Rule::new(&GPU_LOST, thresholds.collect())]
    }
}

impl GpuPresence {
    /// How many GPUs most nodes with a product have, where most agree.
    fn usual_counts(&self) -> HashMap<String, usize> {
        let mut counts: HashMap<&String, BTreeMap<usize, usize>> = HashMap::new();
        for node in self.nodes.values() {
            if let Some(product) = &node.product {
                *counts
                    .entry(product)
                    .or_default()
                    .entry(node.most)
                    .or_default() += 1;
            }
        }
        let usual = counts.into_iter().filter_map(|(product, counts)| {
            let nodes: usize = counts.values().sum();
            let (count, alike) = counts.into_iter().max_by_key(|(_, nodes)| *nodes)?;
            let agree = nodes >= MIN_PEERS && alike as f64 >= MAJORITY * nodes as f64;
            agree.then(|| (product.clone(), count))
        });
        usual.collect()
    }
}

impl Node {
    /// Compares the GPUs that the node lists now with those that it had.
    fn relist(&mut self, listed: &[Listed<'_>], now: Timestamp) {
        self.listed = listed.len();
        let Some(first) = listed.first() else {
            return;
        };
        let missing = std::mem::take(&mut self.missing).into_iter();
        let missing = missing.map(|(key, (had, since))| (key, (had, Some(since))));
        let present = self.present.drain(..);
        let present = present.map(|(key, had)| (key, (had, None)));
        let mut before: BTreeMap<_, _> = missing.chain(present).collect();
        let present = listed.iter().map(|gpu| {
            let key = key(gpu);
            let known = before.remove(&key);
            let busy_at = known.and_then(|(had, _)| had.busy_at);
            let index = gpu.index;
            (key, Had { index, busy_at })
        });
        self.present = present.collect();
        // A GPU that took the place of another: nothing is missing.
        if listed.len() >= self.most {
            self.most = listed.len();
            before.clear();
        }
        let missing = before.into_iter();
        let missing = missing.map(|(key, (had, since))| (key, (had, since.unwrap_or(now))));
        self.missing = missing.collect();
        let are_alike = listed.iter().all(|gpu| gpu.product == first.product);
        self.product = are_alike.then(|| first.product.to_owned());
    }

    /// Notes which GPUs work now, in the order of the list.
    fn note_work<'a>(&mut self, listed: impl Iterator<Item = Listed<'a>>, now: Timestamp) {
        for ((_, had), gpu) in self.present.iter_mut().zip(listed) {
            if gpu.is_busy() {
                had.busy_at = Some(now);
            }
        }
    }

    fn missing(
        &self,
        usual: usize,
        missed: &[GpuIndex],
        (node, history, view): (&NodeName, &NodeHistory, &View<'_>),
        out: &mut Vec<Evidence>,
    ) {
        if self.listed == 0 {
            return;
        }
        let of_peers = usual.saturating_sub(self.listed);
        let is_few = of_peers as f64 <= MOST_MISSING * usual as f64;
        let is_expected = self.most <= usual && of_peers > 0 && is_few;
        let mut named = 0;
        for (had, since) in self.missing.values() {
            if is_expected || had.was_busy(*since) {
                named += 1;
                let gpu = Part::Gpu(node.clone(), had.index);
                let statement = format!(
                    "GPU {} of {node} is no longer exported; {} other GPUs of the node are.",
                    had.index, self.listed
                );
                out.push(lost(gpu, node, view, statement));
            }
        }
        // It was missing before the collector started.
        if is_expected && named == 0 {
            let statement = format!(
                "{node} has {} GPUs; most nodes with the same product have {usual}.",
                self.listed
            );
            let again = match missed {
                [gpu] if of_peers == 1 => Some(*gpu),
                _ => None,
            };
            let gap = again.or_else(|| self.only_gap(usual, history));
            let part = gap.map_or_else(
                || Part::Host(node.clone()),
                |index| Part::Gpu(node.clone(), index),
            );
            out.push(lost(part, node, view, statement));
        }
    }

    /// The number that is missing, if one is and the others were not renumbered.
    fn only_gap(&self, usual: usize, history: &NodeHistory) -> Option<GpuIndex> {
        let numbers: Vec<usize> = history
            .series(&GPU)
            .filter_map(|(labels, _)| labels.values().next()?.parse().ok())
            .collect();
        let mut gaps = (0..usual).filter(|number| !numbers.contains(number));
        let gap = gaps.next().filter(|gap| gap + 1 < usual)?;
        gaps.next()
            .is_none()
            .then(|| gap.to_string().parse().ok())?
    }
}

fn lost(part: Part, node: &NodeName, view: &View<'_>, statement: String) -> Evidence {
    Evidence {
        detector: NAME,
        signal: GPU.name,
        class: &GPU_LOST,
        effect: 1.0,
        statement,
        victims: gpus_behind(view.fabric, &Part::Host(node.clone())),
        related: Vec::new(),
        alike: Vec::new(),
        part,
    }
}

fn key(gpu: &Listed<'_>) -> String {
    let uuid = gpu.uuid();
    if uuid.is_empty() { gpu.label() } else { uuid }.to_owned()
}
