//! Ranks that the others of their role wait for, by timings of collectives, and that compute meanwhile: a slow GPU.
//!
//! Evaluated in `jobs/straggler`. A rank that is late and does not compute is a hint on
//! the job, not evidence: on public traces such rules named victims.

use railscope_model::identity::Part;

use crate::classes::{Class, GPU_SLOW};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::{Rule, Threshold};
use crate::jobs::straggler::{
    ALARM, Basis, Cause, MIN_MISSING_WAIT, MIN_PRESENT, MIN_RANKS, REPAID, Ranked, Waiting,
};

/// Signal of its findings: what ranks report of their collectives.
pub(crate) const SIGNAL: &str = "collectives";

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

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "A rank waits less in collectives than other ranks of its role, in many rounds, and its GPU's tensor cores are active longer.",
            threshold: format!(
                "the lowest wait time of its cohort by {:.0} % of a round, more than half of it spent computing, in so many rounds that among equal ranks one of {ALARM:.0e} would be reported (docs/collectives.md)",
                100.0 * MIN_MISSING_WAIT
            ),
            clears: "About 30 rounds pass in which it is not the straggler.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "wait deficit as a share of a step",
                MIN_MISSING_WAIT,
                "ratio",
                "healthy ranks of public traces differ by less than 1 %",
            ),
            Threshold::new(
                "share of the wait deficit that is spent computing",
                REPAID,
                "ratio",
                "more than half, so that one step cannot have both causes",
            ),
            Threshold::new(
                "evidence, as odds against equal ranks",
                ALARM,
                "times",
                "one false finding per day among 100,000 ranks with 8,640 steps per day",
            ),
            Threshold::new(
                "minimum number of ranks of a role",
                MIN_RANKS as f64,
                "ranks",
                "a median of fewer ranks is not reliable (a choice)",
            ),
            Threshold::new(
                "share of the ranks that must report a step",
                MIN_PRESENT,
                "ratio",
                "a choice",
            ),
        ];
        vec![Rule::new(&GPU_SLOW, thresholds)]
    }
}

fn evidence(waiting: &Waiting, rank: &Ranked) -> Option<Evidence> {
    let (Some(part @ Part::Gpu(..)), Some(Cause::Gpu)) = (&rank.part, rank.cause) else {
        return None;
    };
    Some(Evidence {
        detector: "late-rank",
        signal: SIGNAL,
        class: &GPU_SLOW,
        effect: rank.excess.clamp(0.0, 1.0),
        statement: format!(
            "{part} waits {:.0} % of a step less in collectives than the {} ranks of its job, and computes during that time.",
            100.0 * rank.excess,
            waiting.ranks
        ),
        victims: vec![part.clone()],
        related: Vec::new(),
        alike: Vec::new(),
        part: part.clone(),
    })
}
