//! The numbers that probes are compared with.

use super::{
    APART_SECONDS, LEAST_LOSS, LEAST_TAIL, LEAST_TAIL_OF_FABRIC, LEAST_TAIL_OF_NODE,
    MAX_TABLES_AGE_SECONDS, MOST_FLOWS, MOST_USUAL, OVER_SECONDS, SETTLE_SECONDS,
    SUSPICIOUS_NATS_OF_LEAF, SUSPICIOUS_NATS_OF_NODE, WINDOW_SECONDS,
};
use crate::classes::{Class, EDGE_LOSSY, HOST_STALLS, PATH_SLOW, UPLINK_JITTER, UPLINK_LOSSY};
use crate::detect::registry::{Rule, Threshold};
use crate::detect::tomography::{ALIKE_NATS, Kind, MIN_HITS, MOST_BROKEN};

const METHOD: &str = "after Flock (CoNEXT 2023); the value is a choice";

/// Whether a class is about probes that are lost, not slow.
pub(super) fn is_loss(class: &Class) -> bool {
    [&EDGE_LOSSY, &UPLINK_LOSSY].contains(&class)
}

/// One for each class.
pub(super) fn rules() -> Vec<Rule> {
    let classes = [
        &EDGE_LOSSY,
        &UPLINK_LOSSY,
        &UPLINK_JITTER,
        &PATH_SLOW,
        &HOST_STALLS,
    ];
    let rule = |class| Rule::new(class, [of_probes(class), of_parts(), of_time()].concat());
    classes.into_iter().map(rule).collect()
}

fn of_probes(class: &Class) -> Vec<Threshold> {
    let of_signal = if is_loss(class) {
        vec![Threshold::new(
            "share of probes lost without a fault",
            LEAST_LOSS,
            "ratio",
            METHOD,
        )]
    } else {
        vec![
            Threshold::new(
                "minimum share of slow probes without a fault",
                LEAST_TAIL,
                "ratio",
                "so that in a quiet fabric not every slow probe is evidence (a choice)",
            ),
            Threshold::new(
                "share of slow probes from which a cable or switch is reported",
                LEAST_TAIL_OF_FABRIC,
                "ratio",
                "half of a jitter that affects 1 % of the packets (a choice)",
            ),
            Threshold::new(
                "share of slow probes from which a NIC or host is reported",
                LEAST_TAIL_OF_NODE,
                "ratio",
                "twice the 1 % by which healthy hosts differ (a choice)",
            ),
        ]
    };
    let of_both = [
        Threshold::new(
            "share of lost or slow probes on most flows, from which nothing is reported",
            MOST_USUAL,
            "ratio",
            "no single component explains a problem of all flows (a choice)",
        ),
        Threshold::new(
            "excess of lost or slow probes at a leaf from which its flows are explained",
            SUSPICIOUS_NATS_OF_LEAF,
            "nats",
            "half of the gain that an edge needs (a choice)",
        ),
        Threshold::new(
            "the same at a NIC or host",
            SUSPICIOUS_NATS_OF_NODE,
            "nats",
            "all its flows cross it; two nats below the gain that an edge needs (a choice)",
        ),
        Threshold::new(
            "flows that are explained together, at most",
            MOST_FLOWS as f64,
            "flows",
            "those at the leaves with the largest excess: more are hit only where much is wrong at once (a choice)",
        ),
        Threshold::new(
            "minimum number of lost or slow probes over a component",
            MIN_HITS,
            "probes",
            "two do not exceed any prior",
        ),
    ];
    of_signal.into_iter().chain(of_both).collect()
}

fn of_parts() -> Vec<Threshold> {
    let prior = |what: &str, kind: Kind, source| {
        let what = format!("log-likelihood gain that {what} needs");
        Threshold::new(what, kind.prior_nats(), "nats", source)
    };
    vec![
        prior("an edge", Kind::Edge, METHOD),
        prior("a cable between switches", Kind::Cable, METHOD),
        prior("a host", Kind::Host, "between cable and switch (a choice)"),
        prior("a switch", Kind::Switch, METHOD),
        Threshold::new(
            "difference in gain below which components are indistinguishable",
            ALIKE_NATS,
            "nats",
            "odds of 20 to 1",
        ),
        Threshold::new(
            "maximum number of faulty components at once",
            MOST_BROKEN as f64,
            "components",
            "four times 0.5 % of the hosts of 100,000 GPUs",
        ),
    ]
}

fn of_time() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "window",
            WINDOW_SECONDS,
            "s",
            "length of the stored history",
        ),
        Threshold::new(
            "minimum run time of an exporter before its missing replies count",
            SETTLE_SECONDS,
            "s",
            "other nodes' scrapes show its absence one scrape later (a choice)",
        ),
        Threshold::new(
            "maximum age of InfiniBand forwarding tables that probe paths follow",
            MAX_TABLES_AGE_SECONDS,
            "s",
            "three times the interval at which the sweep reads them (a choice)",
        ),
        Threshold::new(
            "minimum time between the first and the last lost or slow probe",
            APART_SECONDS,
            "s",
            "a fabric that reroutes loses packets briefly (a choice)",
        ),
        Threshold::new(
            "maximum age of the last lost or slow probe",
            OVER_SECONDS,
            "s",
            "six scrapes of 10 s (a choice)",
        ),
    ]
}
