//! Ranks that the others of their role wait for, by timings of collectives, and that compute meanwhile: a slow GPU.
//!
//! The judgement is made in `core/wait`. A rank that is late and does not compute is a hint on the job, not evidence: on
//! public traces such rules have named victims.

use railscope_model::identity::Part;

use crate::core::classes::GPU_SLOW;
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::wait::{ALARM, Basis, Cause, MIN_MISSING_WAIT, Ranked, Waiting};

struct LateRank;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(LateRank)
}

impl Detector for LateRank {
    fn name(&self) -> &'static str {
        "late-rank"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let timed = view.waiting.iter();
        for waiting in timed.filter(|one| one.basis == Basis::Collectives) {
            out.extend(
                waiting
                    .ranking
                    .iter()
                    .filter_map(|rank| evidence(waiting, rank)),
            );
        }
    }

    fn explain(&self, _evidence: &Evidence) -> Explanation {
        Explanation {
            check: "A rank waits less in collectives than those of its role, round after round, and its GPU's tensor cores are active longer.",
            threshold: format!(
                "the least of its cohort by {:.0} % of a round, more than half of it spent computing, in so many rounds that among equal ranks one of {ALARM:.0e} would be named (docs/collectives.md)",
                100.0 * MIN_MISSING_WAIT
            ),
            clears: "About thirty rounds in which it is not the one.",
        }
    }
}

fn evidence(waiting: &Waiting, rank: &Ranked) -> Option<Evidence> {
    let (Some(part @ Part::Gpu(..)), Some(Cause::Gpu)) = (&rank.part, rank.cause) else {
        return None;
    };
    Some(Evidence {
        detector: "late-rank",
        signal: "collectives",
        class: &GPU_SLOW,
        effect: rank.excess.clamp(0.0, 1.0),
        statement: format!(
            "{part} waits {:.0} % of a step less in collectives than the {} ranks of its job do, and computes meanwhile.",
            100.0 * rank.excess,
            waiting.ranks
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        part: part.clone(),
    })
}
