//! What ports of switches tell of the switch: packets that it drops, and uplinks of which it uses only some.

use railscope_model::fabric::LinkKind;
use railscope_model::identity::{Part, SwitchName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_DISCARDS, SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS,
};

use super::peers::{MIN_PEERS, median};
use crate::core::classes::{Class, ECMP_POLARISED, SWITCH_QOS};
use crate::core::detector::{Detector, Evidence, Explanation, View};
use crate::core::history::NodeHistory;
use crate::core::inventory::gpus_behind;
use crate::core::rules::{Rule, Threshold};

/// The window over which ports are compared.
const WINDOW_SECONDS: f64 = 60.0;
/// Share of its packets that a switch may drop: what lossless traffic bears before collectives feel it (detection
/// method, section 3.5: p0).
const MAX_DROPPED: f64 = 1e-5;
/// Fewest dropped packets that are looked at.
const MIN_DROPPED: f64 = 100.0;
/// Share of a switch's busy ports that drop, from which it is the switch and not what is behind a port.
const MIN_DROPPING: f64 = 0.3;
/// What every switch does is the load: one must stand out by this factor.
const ABOVE_PEERS: f64 = 10.0;
/// An uplink with less than this of the mean of its switch's uplinks is not used.
const UNUSED: f64 = 0.05;
/// Share of a switch's uplinks that are not used from which its hash is at fault, and most of its peers' that
/// may be.
const MIN_UNUSED: f64 = 0.5;
/// Fewest uplinks that a hash chooses among.
const MIN_UPLINKS: usize = 4;
/// A leaf that sends less than this of what the median leaf sends upwards has fewer flows than its peers: few large
/// flows leave uplinks unused by chance, and are no fault.
const MIN_UPWARDS: f64 = 0.5;

struct SwitchPorts;

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::new(SwitchPorts)
}

impl Detector for SwitchPorts {
    fn name(&self) -> &'static str {
        "switch-ports"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        dropping(view, out);
        polarised(view, out);
    }

    fn explain(&self, class: &Class, _: &str) -> Explanation {
        if class == &SWITCH_QOS {
            Explanation {
                check: "A switch drops packets at many of its ports.",
                threshold: format!(
                    "more than {MAX_DROPPED} of its packets and {MIN_DROPPED} in {WINDOW_SECONDS:.0} s, at {:.0} % of its busy ports, and {ABOVE_PEERS} times the median switch",
                    100.0 * MIN_DROPPING
                ),
                clears: "It drops no more than other switches.",
            }
        } else {
            Explanation {
                check: "A leaf sends over some of its uplinks only, while other leaves use theirs.",
                threshold: format!(
                    "{:.0} % of at least {MIN_UPLINKS} uplinks carry less than {:.0} % of the mean over {WINDOW_SECONDS:.0} s, on the median leaf fewer than half as many, and the leaf sends upwards at least {:.0} % of what the median leaf does",
                    100.0 * MIN_UNUSED,
                    100.0 * UNUSED,
                    100.0 * MIN_UPWARDS
                ),
                clears: "It uses its uplinks as other leaves do.",
            }
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let window = || {
            Threshold::new(
                "window",
                WINDOW_SECONDS,
                "s",
                "several readings of every switch (a choice)",
            )
        };
        let drops = vec![
            Threshold::new(
                "share of its packets that a switch drops",
                MAX_DROPPED,
                "ratio",
                "what lossless traffic bears before collectives feel it (detection method, section 3.5)",
            ),
            Threshold::new(
                "fewest dropped packets",
                MIN_DROPPED,
                "packets",
                "fewer are a moment, not a setting (a choice)",
            ),
            Threshold::new(
                "share of its busy ports that drop",
                MIN_DROPPING,
                "ratio",
                "fewer are what is behind a port (a choice)",
            ),
            Threshold::new(
                "above the median switch",
                ABOVE_PEERS,
                "times",
                "what every switch does is the load (a choice)",
            ),
            window(),
        ];
        let hash = "few large flows leave uplinks unused by chance (a choice)";
        let uplinks = vec![
            Threshold::new(
                "share of the mean below which an uplink is not used",
                UNUSED,
                "ratio",
                hash,
            ),
            Threshold::new(
                "share of the uplinks that are not used",
                MIN_UNUSED,
                "ratio",
                hash,
            ),
            Threshold::new("fewest uplinks", MIN_UPLINKS as f64, "uplinks", hash),
            Threshold::new(
                "bytes upwards, as a share of the median leaf's",
                MIN_UPWARDS,
                "ratio",
                hash,
            ),
            window(),
        ];
        vec![
            Rule::new(&SWITCH_QOS, drops),
            Rule::new(&ECMP_POLARISED, uplinks),
        ]
    }
}

fn evidence(
    view: &View<'_>,
    switch: &SwitchName,
    class: &'static Class,
    signal: &'static Metric,
    effect: f64,
    statement: String,
) -> Evidence {
    let part = Part::Switch(switch.clone());
    Evidence {
        detector: "switch-ports",
        signal: signal.name,
        class,
        effect,
        statement,
        victims: gpus_behind(view.fabric, &part),
        related: Vec::new(),
        part,
    }
}

/// By port: how much a counter rose, of series whose other labels are these.
fn rises<'a>(
    history: &'a NodeHistory,
    metric: &'static Metric,
    rest: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, f64)> + 'a {
    history.series(metric).filter_map(move |(labels, window)| {
        let mut labels = labels.values();
        let port = labels.next()?;
        let alike = labels.eq(rest.iter().copied());
        let rise = window.increase(WINDOW_SECONDS).filter(|_| alike)?;
        Some((port, rise.amount))
    })
}

/// What a switch has dropped.
struct Drops<'a> {
    switch: &'a SwitchName,
    dropped: f64,
    sent: f64,
    /// Ports that dropped, of those that sent.
    ports: (usize, usize),
}

impl Drops<'_> {
    fn share(&self) -> f64 {
        self.dropped / (self.sent + self.dropped).max(1.0)
    }
}

fn dropping(view: &View<'_>, out: &mut Vec<Evidence>) {
    let all: Vec<_> = view
        .history
        .fresh_switches(view.now)
        .map(|(switch, history)| {
            let dropped = rises(history, &SWITCH_PORT_DISCARDS, &["transmit"]);
            let dropped: Vec<f64> = dropped.map(|(_, amount)| amount).collect();
            let sent = rises(history, &SWITCH_PORT_TRANSMIT_PACKETS, &[]);
            let sent: Vec<f64> = sent.map(|(_, amount)| amount).collect();
            let some = |values: &[f64]| values.iter().filter(|value| **value > 0.0).count();
            Drops {
                switch,
                ports: (some(&dropped), some(&sent)),
                dropped: dropped.iter().sum(),
                sent: sent.iter().sum(),
            }
        })
        .collect();
    let usual = median(all.iter().map(Drops::share)).unwrap_or(0.0);
    for drops in all {
        let (dropping, busy) = drops.ports;
        let many = dropping > 2 && dropping as f64 >= MIN_DROPPING * busy as f64;
        let share = drops.share();
        if many
            && drops.dropped >= MIN_DROPPED
            && share > MAX_DROPPED
            && share > ABOVE_PEERS * usual
        {
            let statement = format!(
                "{} has dropped {:.0} packets in {WINDOW_SECONDS:.0} s, one in {:.0}, at {dropping} of its {busy} busy ports.",
                drops.switch,
                drops.dropped,
                1.0 / share
            );
            out.push(evidence(
                view,
                drops.switch,
                &SWITCH_QOS,
                &SWITCH_PORT_DISCARDS,
                share,
                statement,
            ));
        }
    }
}

/// Leaves that leave most of their uplinks unused while others use theirs.
fn polarised(view: &View<'_>, out: &mut Vec<Evidence>) {
    let mut leaves = Vec::new();
    for (switch, history) in view.history.fresh_switches(view.now) {
        let uplinks = uplinks_of_leaf(view, switch);
        let sent: Vec<f64> = rises(history, &SWITCH_PORT_TRANSMIT_BYTES, &[])
            .filter(|(port, _)| uplinks.iter().any(|uplink| uplink == port))
            .map(|(_, bytes)| bytes)
            .collect();
        let all: f64 = sent.iter().sum();
        let mean = all / sent.len().max(1) as f64;
        if sent.len() >= MIN_UPLINKS && mean > 0.0 {
            let unused = sent.iter().filter(|bytes| **bytes < UNUSED * mean).count();
            leaves.push((switch, unused, sent.len(), all));
        }
    }
    if leaves.len() < MIN_PEERS {
        return;
    }
    let share = |unused: usize, all: usize| unused as f64 / all as f64;
    let shares = leaves
        .iter()
        .map(|(_, unused, all, _)| share(*unused, *all));
    let usual = median(shares).unwrap_or(1.0);
    let upwards = median(leaves.iter().map(|(.., bytes)| *bytes)).unwrap_or(0.0);
    for (switch, unused, all, bytes) in leaves {
        let of_it = share(unused, all);
        let has_flows = bytes >= MIN_UPWARDS * upwards;
        if of_it >= MIN_UNUSED && of_it >= 2.0 * usual && has_flows {
            let statement = format!(
                "{switch} sends nothing over {unused} of its {all} uplinks; the median leaf leaves {:.0} % of its own unused.",
                100.0 * usual
            );
            out.push(evidence(
                view,
                switch,
                &ECMP_POLARISED,
                &SWITCH_PORT_TRANSMIT_BYTES,
                of_it,
                statement,
            ));
        }
    }
}

/// Names of the ports of a switch that lead to other switches, if it has ports that lead to hosts.
fn uplinks_of_leaf(view: &View<'_>, switch: &SwitchName) -> Vec<String> {
    let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
        return Vec::new();
    };
    let cables: Vec<_> = view
        .fabric
        .neighbours(id)
        .filter(|near| near.link.kind == LinkKind::Cable)
        .collect();
    let leads_to_switch = |peer| matches!(view.fabric.vertex(peer).part, Part::Switch(_));
    if cables.iter().all(|near| leads_to_switch(near.peer)) {
        return Vec::new();
    }
    cables
        .iter()
        .filter(|near| leads_to_switch(near.peer))
        .map(|near| view.fabric.port_name(id, near.port).to_string())
        .collect()
}
