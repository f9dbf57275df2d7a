//! Host ports that hang on a leaf of another rail.

use railscope_model::identity::{Part, RdmaPort};

use crate::core::classes::MISCABLED_RAIL;
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::inventory::gpus_behind;
use crate::topology::rails::Misplaced;

struct MiscabledRail;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(MiscabledRail)
}

impl Detector for MiscabledRail {
    fn name(&self) -> &'static str {
        "miscabled-rail"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        for wrong in view.misplaced {
            out.push(evidence(view, wrong));
        }
    }

    fn explain(&self, _evidence: &Evidence) -> Explanation {
        Explanation {
            check: "A host port hangs on a leaf whose other ports belong to another rail.",
            threshold: String::from("the fabric is rail-optimised by the great majority of its leaves, and this cable is not"),
            clears: "The subnet shows the cable at a leaf of its own rail.",
        }
    }
}
