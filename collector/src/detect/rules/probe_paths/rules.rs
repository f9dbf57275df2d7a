//! The numbers that probes are held against.

use super::{
    APART_SECONDS, LEAST_LOSS, LEAST_TAIL, LEAST_TAIL_OF_FABRIC, LEAST_TAIL_OF_NODE, MOST_USUAL,
    OVER_SECONDS, SETTLE_SECONDS, SUSPICIOUS_NATS, WINDOW_SECONDS,
};
use crate::classes::{Class, EDGE_LOSSY, HOST_STALLS, PATH_SLOW, UPLINK_JITTER, UPLINK_LOSSY};
use crate::detect::registry::{Rule, Threshold};
use crate::detect::tomography::{ALIKE_NATS, Kind, MIN_HITS, MOST_BROKEN};

const METHOD: &str = "detection method, section 3.5";

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
            "share of probes lost while nothing is broken",
            LEAST_LOSS,
            "ratio",
            METHOD,
        )]
    } else {
        vec![
            Threshold::new(
                "share of probes slow while nothing is broken, at least",
                LEAST_TAIL,
                "ratio",
                "keeps a quiet fabric from making every slow probe a sign (a choice)",
            ),
            Threshold::new(
                "share of slow probes from which a cable or switch is named",
                LEAST_TAIL_OF_FABRIC,
                "ratio",
                "half of a jitter of 1 % of the packets (a choice)",
            ),
            Threshold::new(
                "share of slow probes from which a NIC or host is named",
                LEAST_TAIL_OF_NODE,
                "ratio",
                "twice p0 of 1e-2 of the detection method, section 3.5, by which healthy hosts differ (a choice)",
            ),
        ]
    };
    let of_both = [
        Threshold::new(
            "share of probes hit on most flows, from which nothing is said",
            MOST_USUAL,
            "ratio",
            "what everybody suffers is no single part's doing (a choice)",
        ),
        Threshold::new(
            "excess of hits at a NIC, host or leaf from which its flows are explained",
            SUSPICIOUS_NATS,
            "nats",
            "half of what an edge must explain (a choice)",
        ),
        Threshold::new(
            "fewest hits over a part",
            MIN_HITS,
            "probes",
            "two pass no prior",
        ),
    ];
    of_signal.into_iter().chain(of_both).collect()
}

fn of_parts() -> Vec<Threshold> {
    let prior = |what: &str, kind: Kind, source| {
        let what = format!("what {what} must explain");
        Threshold::new(what, kind.prior_nats(), "nats", source)
    };
    vec![
        prior("an edge", Kind::Edge, METHOD),
        prior("a cable between switches", Kind::Cable, METHOD),
        prior("a host", Kind::Host, "between cable and switch (a choice)"),
        prior("a switch", Kind::Switch, METHOD),
        Threshold::new(
            "parts that explain as much cannot be told apart",
            ALIKE_NATS,
            "nats",
            "odds of 20 to 1",
        ),
        Threshold::new(
            "most parts at once",
            MOST_BROKEN as f64,
            "parts",
            "four times half a percent of the hosts of 100,000 GPUs",
        ),
    ]
}

fn of_time() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "window",
            WINDOW_SECONDS,
            "s",
            "as far back as the history reaches",
        ),
        Threshold::new(
            "time for which an exporter must run to be missed",
            SETTLE_SECONDS,
            "s",
            "that it was away shows on others' pages one scrape later (a choice)",
        ),
        Threshold::new(
            "time between first and last hit",
            APART_SECONDS,
            "s",
            "a fabric that finds other ways loses for a moment (a choice)",
        ),
        Threshold::new(
            "age of the last hit",
            OVER_SECONDS,
            "s",
            "six scrapes of 10 s (a choice)",
        ),
    ]
}
