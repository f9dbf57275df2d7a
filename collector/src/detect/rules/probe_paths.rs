//! Loss and delay on the paths of probes: which edge, cable, switch or host drops them or
//! delays them.
//!
//! Probes are few, and a path has many parts: so all flows are evaluated together
//! ([`tomography`](crate::detect::tomography)). Loss below a percent on one of many cables is found sooner by
//! switches that count packets; probes find it where nothing counts, and on paths that no job uses.

mod causes;
mod evidence;
mod flows;
pub(crate) mod paths;
mod problem;
mod rules;
mod tails;

use std::sync::Arc;

use crate::classes::{Class, EDGE_LOSSY};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::registry::Rule;
use crate::detect::rules::probe_paths::paths::Ways;
use crate::detect::tails::{SUMMED_EVERY_SECONDS, Tails};
use crate::detect::tomography::explain;
use crate::stages::Step;
use evidence::evidence;
use flows::Flows;
use problem::{Signal, pose};

/// Time over which probes are counted: as far back as the history reaches.
pub(crate) const WINDOW_SECONDS: f64 = 150.0;
/// How long an exporter must run before unanswered probes to it count: that it was away shows
/// on others' scrapes one scrape later.
const SETTLE_SECONDS: f64 = 20.0;
/// Share of its probes that a flow may lose while nothing is broken.
const LEAST_LOSS: f64 = 1e-4;
/// Share of its probes that may be slow while nothing is broken, where most flows have fewer. The usual share of each kind of
/// flow is measured; this only keeps a quiet fabric from making every slow probe a sign.
const LEAST_TAIL: f64 = 1e-3;
/// Share of the probes over a cable or a switch that must be slow before it is named: a jitter of 1 % of the packets has to be
/// found, and half of them may be other flows' by chance (a choice).
const LEAST_TAIL_OF_FABRIC: f64 = 5e-3;
/// The same of a NIC or a host: healthy hosts differ by up to 1e-2 (twice that, a choice).
const LEAST_TAIL_OF_NODE: f64 = 2e-2;
/// Where most flows suffer more than this, they report nothing of single parts.
const MOST_USUAL: f64 = 0.1;
/// How much hits at a leaf must exceed what is usual before anything is explained: half of what the most likely
/// component must explain, as a cable between leaves is only one of those that a leaf's flows take.
const SUSPICIOUS_NATS_OF_LEAF: f64 = 6.0;
/// The same at a NIC or host, which all of its flows cross: nearly what an edge must explain. What is usual differs
/// by kind of flow, so that the sum of all may exceed it by less than they do. Chance alone exceeds it at one place in 90,000, and
/// 6 nats at one in 3,700: at 27 NICs of 100,000.
const SUSPICIOUS_NATS_OF_NODE: f64 = 9.0;
/// Flows that are explained together; those at the leaves with the largest excess come first. A leaf of 32 NICs with 32 flows each
/// has 2,000, with those of others to it. More are hit only where much is wrong at once, and the worst is mended first.
const MOST_FLOWS: usize = 100_000;
/// Minimum time between hits: when a fabric reroutes, it loses packets briefly, and scrapes
/// see that at different times.
const APART_SECONDS: f64 = 15.0;
/// How old forwarding tables may be: an own sweep reads them every five minutes.
const MAX_TABLES_AGE_SECONDS: f64 = 900.0;
/// What was not seen again for so long is over.
const OVER_SECONDS: f64 = 60.0;

/// Name of the detector.
pub const NAME: &str = "probe-paths";

#[derive(Default)]
struct ProbePaths {
    flows: Flows,
    ways: Ways,
    /// What flows measured, as it was last summed up.
    tails: Option<Arc<Tails>>,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(ProbePaths::default())
}

impl Detector for ProbePaths {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        self.flows.refresh(view, &mut self.ways);
        if view.left_out.has(Step::Probes) {
            return;
        }
        let counted = self.flows.count(view);
        let is_due = |tails: &Arc<Tails>| view.now.seconds_since(tails.at) >= SUMMED_EVERY_SECONDS;
        let is_due = self.tails.as_ref().is_none_or(is_due);
        let mut causes = None;
        for signal in [Signal::Loss, Signal::Tail] {
            // Mostly there is nothing to explain.
            let Some(posed) = pose(view, &mut self.ways, &counted, signal) else {
                continue;
            };
            let broken = explain(&posed.problem);
            if is_due && signal == Signal::Tail {
                causes = Some(causes::causes(view, &posed, &broken));
            }
            let said = broken.iter();
            out.extend(said.filter_map(|one| evidence(view, &self.ways, &posed, one, signal)));
        }
        if is_due {
            let slow = counted.iter().map(|one| one.slow.count).sum();
            let causes = causes.unwrap_or_default().of_all(slow);
            let tails = tails::tails(view, &mut self.ways, &counted, causes);
            self.tails = Some(Arc::new(tails));
        }
    }

    fn tails(&self) -> Option<Arc<Tails>> {
        self.tails.clone()
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        let tails = !rules::is_loss(class);
        let (what, least) = if tails {
            ("slow", LEAST_TAIL)
        } else {
            ("lost", LEAST_LOSS)
        };
        Explanation {
            check: if tails {
                "Probes over a component are slow, and probes that do not cross it are not."
            } else if class == &EDGE_LOSSY {
                "Probes to and from a NIC are lost, and probes of other NICs are not."
            } else {
                "Probes over a component between NICs are lost, and probes that do not cross it are not."
            },
            threshold: format!(
                "more than {least} of the probes, and a larger share than at the median source, are {what}, and the log-likelihood gain of the component exceeds its prior: 11 nats for an edge, 12 for a cable, 13 for a host, 16 for a switch; the first and the last such probe are at least {APART_SECONDS} s apart, the last within {OVER_SECONDS} s"
            ),
            clears: "No probe over it is lost or slow for 1 minute.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        rules::rules()
    }
}
