//! Rules from the literature on the same data: what the collector must beat.
//!
//! Each is a re-implementation of the rule as published, not of the product around it. Constants are the
//! published ones; where none is published, the doc comment reports it.

use std::sync::Arc;

use super::alarm::Naming;
use super::frame::{Frame, Layout};
use super::judge::Names;

mod bouncer;
mod delays;
mod greyhound;
mod minder;
mod pingmesh;
mod ratios;
mod thresholds;
mod votes;
mod zscore;

/// A rule that names parts, tick after tick.
pub(super) trait Baseline: Send {
    /// Evaluates one tick and reports the current faults.
    fn observe(&mut self, frame: &Frame) -> Vec<Naming>;
}

/// A baseline and what one must know about it.
pub(super) struct Rule {
    /// Name in tables.
    pub(super) name: &'static str,
    /// How precisely it names.
    pub(super) names: Names,
    /// What it is, and where from.
    pub(super) source: &'static str,
    /// Builds it.
    pub(super) build: fn(Arc<Layout>) -> Box<dyn Baseline>,
}

/// Every baseline that the simulated signals can feed.
pub(super) const BASELINES: &[Rule] = &[
    Rule {
        name: "thresholds",
        names: Names::Part,
        source: "fixed limits of NVSentinel's NIC checks",
        build: |layout| Box::new(thresholds::Thresholds::new(layout)),
    },
    Rule {
        name: "z > 3",
        names: Names::Part,
        source: "any signal 3 standard deviations from its peers, once",
        build: |layout| Box::new(zscore::ZScore::new(layout, 3.0)),
    },
    Rule {
        name: "z > 6",
        names: Names::Part,
        source: "any signal 6 standard deviations from its peers, once",
        build: |layout| Box::new(zscore::ZScore::new(layout, 6.0)),
    },
    Rule {
        name: "NVRx-like",
        names: Names::Part,
        source: "kernel speed below 0.75 of the best rank's, or of the rank's own best; speed is the SM clock here",
        build: |layout| Box::new(ratios::NvrxLike::new(layout)),
    },
    Rule {
        name: "MegaScale-like",
        names: Names::Node,
        source: "RDMA rates or GPU clock of a machine 10 % below the median machine",
        build: |layout| Box::new(ratios::MegaScaleLike::new(layout)),
    },
    Rule {
        name: "Minder-like",
        names: Names::Node,
        source: "the machine farthest from all others in one metric for 4 minutes; no VAE",
        build: |layout| Box::new(minder::MinderLike::new(layout)),
    },
    Rule {
        name: "Greyhound-like",
        names: Names::Part,
        source: "step time 10 % longer over 10 steps, then the GPU whose GEMM takes 1.1 times the median, and the pairs of neighbors whose transfer does",
        build: |layout| Box::new(greyhound::GreyhoundLike::new(layout)),
    },
    Rule {
        name: "007-like",
        names: Names::Part,
        source: "each retransmitting flow votes 1/length for the cables of its path",
        build: |layout| Box::new(votes::Votes::new(layout)),
    },
    Rule {
        name: "R-Pingmesh-like",
        names: Names::Part,
        source: "a NIC with more than 10 % time-outs within its leaf; else probes that are lost between leaves vote for the cables of their paths",
        build: |layout| Box::new(pingmesh::PingmeshLike::new(layout)),
    },
    Rule {
        name: "NetBouncer-like",
        names: Names::Part,
        source: "probes that return at the highest tier; the delivery probability of each cable by regularized least squares, and switches with only bad cables",
        build: |layout| Box::new(bouncer::BouncerLike::new(layout)),
    },
    Rule {
        name: "C4D-like",
        names: Names::Part,
        source: "times of messages by sender and receiver: a slow row indicates the sender, a slow column the receiver, one cell both of its ends; slow is 1.2 times the median",
        build: |layout| Box::new(delays::DelaysLike::new(layout)),
    },
];

/// What cannot be run yet, and the signal that it lacks: nothing is faked.
pub(super) const MISSING: &[(&str, &str)] = &[
    (
        "R-Pingmesh-like, host half",
        "needs a published limit of processing delays",
    ),
    (
        "Holmes-like",
        "names operators by a model trained on its authors' traces, which are not published with it",
    ),
];
