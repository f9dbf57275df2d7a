//! What detectors keep between ticks: it may change what a tick costs, and never what they say.

use railscope_collector::core::ablation::LeftOut;
use railscope_collector::core::analyzer::{Analyzer, ClusterView};
use railscope_collector::core::detector::{DETECTORS, Detector, View};

/// Detectors that have seen every tick.
pub(crate) struct Memory(Vec<Box<dyn Detector>>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(DETECTORS.iter().map(|build| build()).collect())
    }

    /// Shows them a tick; they say what those say that have never seen one.
    pub(crate) fn look(&mut self, analyzer: &Analyzer, view: &ClusterView) {
        let seen = View {
            fabric: &view.fabric,
            epoch: analyzer.epoch(),
            history: analyzer.history(),
            jobs: &view.jobs,
            waiting: &view.waiting,
            misplaced: &view.verdict.wiring.misplaced,
            subnet_seen: view.subnet_seen,
            left_out: LeftOut::default(),
            now: view.now,
        };
        for (detector, build) in self.0.iter_mut().zip(DETECTORS) {
            let (mut said, mut expected) = (Vec::new(), Vec::new());
            detector.observe(&seen, &mut said);
            build().observe(&seen, &mut expected);
            assert_eq!(said, expected, "{} at {:?}", detector.name(), view.now);
        }
    }
}
