//! Counters of errors that rise faster than their limit and their peers': of ports, PCIe links, GPUs and nodes.

mod chance;
mod limits;
mod receiver;
mod switches;

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::{NodeName, Part, RdmaPort, SwitchName};
use railscope_model::label;
use railscope_model::metric::{GPU, NIC_CARRIER, NIC_PHY_LINK_DOWN};
use railscope_model::reading::Labels;

use self::chance::Background;
use self::limits::{LIMITS, Limit, Names};
use crate::assemble::netdev::{self, is_bond};
use crate::assemble::node_parts::{gpus_behind, read};
use crate::classes::Class;
use crate::detect::detector::{Detector, Evidence, Explanation, Plotted, View};
use crate::detect::peers::median;
use crate::detect::registry::{Rule, Threshold};
use crate::diagnose::stages::lost_links::{PARENT_SHARE, are_the_switchs, cables_of_switches};
use crate::store::{Count, Increase, NodeHistory, Window};

/// A component whose true rate equals the limit exceeds it by chance occasionally: errors are counted, so the number in a window
/// has a Poisson distribution. Five standard deviations keep 100,000 such ports quiet for most windows (a choice).
const DEVIATIONS: f64 = 5.0;
/// The window in which errors are counted: as long as the history reaches at 5 s scrapes.
pub(crate) const WINDOW_SECONDS: f64 = 120.0;
/// A cable that is moved loses its link once, and a sweep or LLDP soon shows where it is connected.
/// To wait longer would be to report nothing of a port that flaps, and holds its job up each time,
/// before its second loss.
const LOSS_WAIT_SECONDS: f64 = 15.0;
/// Scrapes between which replays of a GPU's PCIe link, and corrected errors of its memory, must have risen: a link that trains retransmits
/// at once, and a driver may report what it found in one scan.
const MIN_STEPS: usize = 3;
/// Errors that rise everywhere are the fabric's or the scheduler's doing: a part must stand out by this factor.
const ABOVE_PEERS: f64 = 5.0;

const NAME: &str = "error-counters";

#[derive(Default)]
struct ErrorCounters {
    /// Parts that were reported for each limit, and when last.
    reported: [BTreeMap<Part, Timestamp>; LIMITS.len()],
    /// What all parts have of each limit.
    background: [Background; LIMITS.len()],
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<ErrorCounters>::default()
}

/// Increase of a counter of one component.
struct Rise {
    part: Part,
    /// The switch that counted, if it was one.
    seen_at: Option<SwitchName>,
    amount: f64,
    seconds: f64,
}

impl Rise {
    fn per_hour(&self) -> f64 {
        3600.0 * self.amount / self.seconds
    }
}

impl Detector for ErrorCounters {
    fn name(&self) -> &'static str {
        NAME
    }

    fn remembers(&self) -> bool {
        true
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut all: [Vec<Rise>; LIMITS.len()] = Default::default();
        // Node by node: what is known of one is in the processor's cache for all limits.
        for (node, history) in view.history.fresh_nodes(view.now) {
            for (limit, high) in LIMITS.iter().zip(&mut all) {
                // Errors that have not risen for the whole window need no evaluation, and on most nodes none have.
                if history.moving(limit.metric).next().is_some() {
                    let part = |labels: &Labels| part(node, history, labels, limit.names);
                    rises_of(history, limit, limit.at_least, part, high);
                }
            }
        }
        switches::observe(view, &mut all);
        let known = self.reported.iter_mut().zip(&mut self.background);
        for ((limit, mut high), (reported, background)) in LIMITS.iter().zip(all).zip(known) {
            background.begin(view.now);
            reported.retain(|_, last| view.now.seconds_since(*last) <= WINDOW_SECONDS);
            high.retain(|rise| limit.is_passed_by(view, rise, reported.contains_key(&rise.part)));
            if limit.of_losses {
                leave_out_shared(view.fabric, &mut high);
                leave_out_moved(view, &mut high);
                leave_out_bonds(view, &mut high);
            }
            if limit.names == Names::SwitchPort {
                switches::leave_out_passed_on(view.fabric, &mut high);
            }
            if high.is_empty() {
                continue;
            }
            let peers = all_rises(view, limit);
            let usual = median(peers.iter().map(Rise::per_hour)).unwrap_or(0.0);
            high.retain(|rise| rise.per_hour() > ABOVE_PEERS * usual);
            if !limit.is_fatal {
                let usual = background.note(&peers, view.now);
                high.retain(|rise| reported.contains_key(&rise.part) || !usual.has(rise));
            }
            reported.extend(high.iter().map(|rise| (rise.part.clone(), view.now)));
            if limit.names == Names::SwitchPort {
                let whole = switches::take_whole(view.fabric, &mut high).into_iter();
                out.extend(whole.map(|switch| switch.evidence(view, limit, usual)));
            }
            out.extend(
                high.into_iter()
                    .map(|rise| evidence(view, rise, limit, usual)),
            );
        }
    }

    fn explain(&self, class: &Class, signal: &str) -> Explanation {
        let of_it = |limit: &&Limit| (limit.signal(), limit.class) == (signal, class);
        Explanation {
            check: "An error counter rises faster than its limit, and faster than the same counter of other components.",
            threshold: LIMITS.iter().find(of_it).map_or_else(String::new, |limit| {
                let wait = if limit.of_losses {
                    format!(", at least {LOSS_WAIT_SECONDS} s ago and not together with its switch")
                } else {
                    String::new()
                };
                let speed = if limit.of_bits {
                    " (a faster link: a bit error rate of 1e-12)"
                } else {
                    ""
                };
                let chance = if limit.is_fatal {
                    ""
                } else {
                    ", and more than a component has by chance where others have such errors, too"
                };
                format!(
                    "more than {} per hour{speed}, to begin with by {DEVIATIONS} standard deviations, and at least {} in {WINDOW_SECONDS} s{wait} ({}), and more than {ABOVE_PEERS} times the median{chance}",
                    limit.per_hour, limit.at_least, limit.source
                )
            }),
            clears: "The counter stays at its limit or below, or below the minimum, for the whole window.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |limit: &Limit| {
            let mut thresholds = vec![
                Threshold::new("errors", limit.per_hour, "1/h", limit.source),
                Threshold::new(
                    "minimum in the window",
                    limit.at_least,
                    "errors",
                    limit.source,
                ),
                Threshold::new(
                    "window",
                    WINDOW_SECONDS,
                    "s",
                    "length of the stored history at 5 s scrapes",
                ),
                Threshold::new(
                    "above the limit by",
                    DEVIATIONS,
                    "standard deviations",
                    "a component at its limit exceeds it by chance: counts have a Poisson distribution (a choice)",
                ),
                Threshold::new(
                    "above the median",
                    ABOVE_PEERS,
                    "times",
                    "the fabric or the scheduler causes an increase on all components (a choice)",
                ),
            ];
            if limit.of_bits {
                thresholds.push(limits::bit_errors());
            }
            if !limit.is_fatal {
                thresholds.extend(chance::numbers());
            }
            if limit.of_losses {
                thresholds.push(Threshold::new(
                    "minimum time since the link failure",
                    LOSS_WAIT_SECONDS,
                    "s",
                    "the link of a moved cable also fails, until the cable is seen at its new port (a choice)",
                ));
                thresholds.push(Threshold::new(
                    "share of the switch's hosts whose links also failed, less than",
                    PARENT_SHARE,
                    "of all",
                    "otherwise the switch failed (a choice)",
                ));
            }
            if limit.names == Names::SwitchPort {
                thresholds.extend(switches::thresholds());
            }
            if [Names::GpuLink, Names::Gpu].contains(&limit.names) && limit.at_least > 1.0 {
                thresholds.push(Threshold::new(
                    "scrapes between which they rose",
                    MIN_STEPS as f64,
                    "scrapes",
                    "what is counted once, such as by a link that trains, is over (a choice)",
                ));
            }
            if limit.names == Names::Receiver {
                thresholds.extend(receiver::thresholds());
            }
            Rule {
                class: limit.class,
                signal: limit.signal(),
                thresholds,
            }
        };
        LIMITS.iter().map(rule).collect()
    }

    fn plotted(&self, class: &Class, signal: &str) -> Option<Plotted> {
        let of_it = |limit: &&Limit| (limit.signal(), limit.class) == (signal, class);
        let limit = LIMITS.iter().find(of_it)?;
        Some(Plotted {
            metric: limit.metric,
            kind: (!limit.kind.is_empty()).then_some(limit.kind),
            limit: (!limit.of_bits).then_some(limit.per_hour / 3600.0),
        })
    }
}

/// Omits cables whose links went down with so many others of a switch that it was restarted, or was down.
fn leave_out_shared(fabric: &Fabric, losses: &mut Vec<Rise>) {
    let lost: BTreeSet<&Part> = losses.iter().map(|loss| &loss.part).collect();
    let switches = cables_of_switches(fabric, &lost).into_values();
    let shared = switches.filter_map(|cables| {
        let cables = cables.into_iter().map(|(cable, _)| cable);
        let of_hosts: Vec<Part> = cables.filter(|cable| cable.node().is_some()).collect();
        let gone = of_hosts.iter().filter(|cable| lost.contains(cable)).count();
        are_the_switchs(gone, of_hosts.len()).then_some(of_hosts)
    });
    let shared: BTreeSet<Part> = shared.flatten().collect();
    losses.retain(|loss| !shared.contains(&loss.part));
}

/// Omits cables that are connected to a wrong leaf: their links went down when they were moved there.
fn leave_out_moved(view: &View<'_>, losses: &mut Vec<Rise>) {
    losses.retain(|loss| {
        let Part::HostLink(node, RdmaPort { device, .. }) = &loss.part else {
            return true;
        };
        let mut misplaced = view.misplaced.iter();
        !misplaced.any(|wrong| wrong.host == *node && wrong.device == *device)
    });
}

/// Omits bonds, such as `mlx5_bond_0`, where an interface of the node whose link went down is reported itself.
fn leave_out_bonds(view: &View<'_>, losses: &mut Vec<Rise>) {
    losses.retain(|loss| {
        let Part::HostLink(node, RdmaPort { device, .. }) = &loss.part else {
            return true;
        };
        let history = view.history.node(node).filter(|_| is_bond(device.as_str()));
        !history.is_some_and(|history| reports_interface(node, history))
    });
}

/// Whether the link of an interface of a node went down, and the interface is reported for it.
fn reports_interface(node: &NodeName, history: &NodeHistory) -> bool {
    let counts = netdev::without_port_state(history);
    let is_down = |netdev: &str| history.value(&NIC_CARRIER, &[netdev]) == Some(0.0);
    let is_named = |labels: &Labels| match part(node, history, labels, Names::Netdev) {
        Some(Part::HostLink(_, port)) => !is_bond(port.device.as_str()),
        _ => {
            let mut netdev = labels.values().take(1).filter(|netdev| is_down(netdev));
            netdev.any(|netdev| counts.as_ref().is_some_and(|counts| counts(netdev)))
        }
    };
    let has_lost = |window| losses(window).is_some_and(|lost| lost.amount > 0.0);
    let mut lost = history.moving(&NIC_PHY_LINK_DOWN);
    lost.any(|(labels, window)| has_lost(window) && is_named(labels))
}

/// What the counter of a limit does on all parts.
fn all_rises(view: &View<'_>, limit: &Limit) -> Vec<Rise> {
    let mut rises = Vec::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        let part = |labels: &Labels| part(node, history, labels, limit.names);
        rises_of(history, limit, 0.0, part, &mut rises);
    }
    switches::rises(view, limit, 0.0, &mut rises);
    rises
}

/// Increases of one node or switch that a limit evaluates; of single components only those of at least `least`.
fn rises_of(
    history: &NodeHistory,
    limit: &Limit,
    least: f64,
    part: impl Fn(&Labels) -> Option<Part>,
    rises: &mut Vec<Rise>,
) {
    let of_kind =
        |labels: &Labels| limit.kind.is_empty() || labels.values().last() == Some(limit.kind);
    let mut found = Vec::new();
    for (labels, window) in history.series(limit.metric).filter(|(l, _)| of_kind(l)) {
        let rise = if limit.of_losses {
            losses(window)
        } else {
            window.increase(WINDOW_SECONDS)
        };
        let Some(rise) = rise else { continue };
        let is_of_receiver = limit.names == Names::Receiver;
        if !is_of_receiver && rise.amount < least {
            continue;
        }
        if is_of_receiver && least > 0.0 && receiver::loses_both_ways(history, labels, &rise) {
            continue;
        }
        // What others have counts however it rose.
        let may_be_burst = [Names::GpuLink, Names::Gpu].contains(&limit.names) && least > 1.0;
        if may_be_burst && rising_steps(window) < MIN_STEPS {
            continue;
        }
        let Some(part) = part(labels) else {
            continue;
        };
        found.push(Rise {
            part,
            seen_at: None,
            amount: rise.amount,
            seconds: rise.seconds,
        });
    }
    if limit.names == Names::Receiver {
        rises.extend(receiver::of_node(found));
    } else {
        rises.append(&mut found);
    }
}

/// Between how many scrapes of the window a counter has risen.
fn rising_steps(window: Window<'_>) -> usize {
    let mut newest = None;
    let counts = window.counts().take_while(|count| {
        newest.get_or_insert(count.at).seconds_since(count.at) <= WINDOW_SECONDS
    });
    counts.filter(|count| count.rise > 0.0).count()
}

/// How often a link went down while it was observed, and at least [`LOSS_WAIT_SECONDS`] ago. A node or driver
/// that starts again loses its links meanwhile, and counts from 0 or 1: neither that nor what was before is a
/// fault of a cable.
fn losses(window: Window<'_>) -> Option<Increase> {
    let newest = window.counts().next()?.at;
    let watched = window.unbroken().last()?.0;
    let is_recent =
        |count: &Count| count.at >= watched && newest.seconds_since(count.at) <= WINDOW_SECONDS;
    let (mut amount, mut since) = (0.0, newest);
    let mut later: Option<Count> = None;
    for count in window.counts().take_while(is_recent) {
        if let Some(later) = later.replace(count) {
            if count.count.is_nan() {
                break;
            }
            if newest.seconds_since(later.at) >= LOSS_WAIT_SECONDS {
                amount += count.rise;
            }
        }
        since = count.at;
    }
    let seconds = newest.seconds_since(since);
    (seconds > 0.0).then_some(Increase { amount, seconds })
}

/// The part that the labels of a counter name.
fn part(node: &NodeName, history: &NodeHistory, labels: &Labels, names: Names) -> Option<Part> {
    let mut labels = labels.values();
    Some(match names {
        Names::SwitchPort => return None,
        Names::Receiver => Part::Nic(node.clone(), labels.next()?.parse().ok()?),
        Names::Gpu => Part::Gpu(node.clone(), labels.next()?.parse().ok()?),
        Names::PcieLink => Part::PcieLink(node.clone(), labels.next()?.parse().ok()?),
        Names::GpuLink => {
            let gpu = labels.next()?;
            let mut listed = history.series(&GPU).map(|(labels, _)| labels);
            let listed = listed.find(|labels| labels.get(label!(GPU, "gpu")) == Some(gpu));
            match listed.and_then(|labels| read(labels, label!(GPU, "pci"))) {
                Some(pci) => Part::PcieLink(node.clone(), pci),
                None => Part::Gpu(node.clone(), gpu.parse().ok()?),
            }
        }
        Names::Netdev => {
            let netdev = labels.next()?;
            let port = netdev::port_of(history, netdev)
                .or_else(|| netdev::port_without_rdma(history, netdev));
            Part::HostLink(node.clone(), port?)
        }
        Names::Cable => {
            let (device, port) = (labels.next()?.parse().ok()?, labels.next()?.parse().ok()?);
            Part::HostLink(node.clone(), RdmaPort { device, port })
        }
    })
}

fn evidence(view: &View<'_>, rise: Rise, limit: &Limit, usual_per_hour: f64) -> Evidence {
    let what = if limit.kind.is_empty() {
        limit.metric.name
    } else {
        limit.kind
    };
    Evidence {
        detector: NAME,
        signal: limit.signal(),
        class: limit.class,
        // Errors slow no job until they cause retransmissions; how much cannot be determined from the
        // counter alone.
        effect: 0.0,
        statement: format!(
            "{what} of {} rose by {:.0} in {:.0} s ({:.0} per hour); at the median component it rises by {usual_per_hour:.0} per hour.",
            rise.part,
            rise.amount,
            rise.seconds,
            rise.per_hour()
        ),
        victims: gpus_behind(view.fabric, &rise.part),
        related: Vec::new(),
        alike: Vec::new(),
        part: rise.part,
    }
}
