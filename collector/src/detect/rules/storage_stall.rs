//! Storage that keeps many nodes waiting at once.

use railscope_model::identity::Part;
use railscope_model::metric::HOST_PRESSURE;

use crate::classes::{Class, STORAGE_STALL};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::peers;
use crate::detect::peers::MIN_PEERS;
use crate::detect::registry::{Rule, Threshold};

/// The window over which waiting is counted.
const WINDOW_SECONDS: f64 = 120.0;
/// Share of that window in which every process of a node must have waited. A checkpoint to healthy storage takes
/// seconds and comes every half an hour (detection method, section 4).
const MIN_SHARE: f64 = 0.1;
/// Share of the nodes that must wait together: one alone has a disk of its own that is slow.
const MIN_NODES: f64 = 0.25;

struct StorageStall;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(StorageStall)
}

impl Detector for StorageStall {
    fn name(&self) -> &'static str {
        "storage-stall"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let waited: Vec<_> = view
            .history
            .fresh_nodes(view.now)
            .filter_map(|(node, history)| {
                let io = history.window(&HOST_PRESSURE, &["io", "full"])?;
                Some((node, io.increase(WINDOW_SECONDS)?))
            })
            .collect();
        let long: Vec<_> = waited
            .iter()
            .filter(|(_, rise)| rise.amount >= MIN_SHARE * WINDOW_SECONDS)
            .collect();
        let enough =
            long.len() >= MIN_PEERS && long.len() as f64 >= MIN_NODES * waited.len() as f64;
        let Some((first, rise)) = long.first().filter(|_| enough) else {
            return;
        };
        let effect = rise.amount / rise.seconds;
        out.push(Evidence {
            detector: "storage-stall",
            signal: HOST_PRESSURE.name,
            class: &STORAGE_STALL,
            effect,
            statement: format!(
                "{} of {} nodes waited for input and output at once, {first} for {:.0} s of the last {:.0} s.",
                long.len(),
                waited.len(),
                rise.amount,
                rise.seconds
            ),
            victims: long
                .iter()
                .skip(1)
                .map(|(node, _)| Part::Host((*node).clone()))
                .collect(),
            related: Vec::new(),
            alike: Vec::new(),
            part: Part::Host((*first).clone()),
        });
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "All processes of many nodes waited for input and output in the same minutes.",
            threshold: format!(
                "{:.0} % of {WINDOW_SECONDS:.0} s on at least {MIN_PEERS} nodes and {:.0} % of all (a healthy checkpoint takes seconds every half an hour)",
                100.0 * MIN_SHARE,
                100.0 * MIN_NODES
            ),
            clears: "Fewer nodes wait, or each for less.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "share of the window in which all processes of a node wait",
                MIN_SHARE,
                "ratio",
                "a healthy checkpoint takes seconds every half an hour (detection method, section 4)",
            ),
            Threshold::new(
                "window",
                WINDOW_SECONDS,
                "s",
                "longer than a checkpoint to healthy storage (a choice)",
            ),
            Threshold::new(
                "share of the nodes that wait together",
                MIN_NODES,
                "ratio",
                "one alone has a disk of its own that is slow (a choice)",
            ),
        ];
        let fewest = peers::thresholds().into_iter().take(1);
        vec![Rule::new(
            &STORAGE_STALL,
            thresholds.into_iter().chain(fewest).collect(),
        )]
    }
}
