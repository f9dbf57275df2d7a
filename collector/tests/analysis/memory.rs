//! What detectors keep between ticks: unless they declare that they remember, it changes only what a tick costs.

use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::detect::detector::{DETECTORS, Detector};

/// Detectors that have seen every tick.
pub(crate) struct Memory(Vec<Box<dyn Detector>>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(DETECTORS.iter().map(|build| build()).collect())
    }

    /// Runs a tick with them; the results equal those of new detectors.
    pub(crate) fn look(&mut self, analyzer: &Analyzer, view: &ClusterView) {
        let seen = analyzer.seen(view);
        for (detector, build) in self.0.iter_mut().zip(DETECTORS) {
            if detector.remembers() {
                continue;
            }
            let (mut said, mut expected) = (Vec::new(), Vec::new());
            detector.observe(&seen, &mut said);
            build().observe(&seen, &mut expected);
            assert_eq!(said, expected, "{} at {:?}", detector.name(), view.now);
        }
    }
}
