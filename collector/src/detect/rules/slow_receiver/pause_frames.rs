//! Ethernet: NICs that pause their switch, where they or the switch count pause frames and no time in pause.

use railscope_model::identity::{NodeName, Part, SwitchName};
use railscope_model::metric::{
    Metric, NIC_PAUSE_SECONDS, NIC_PFC_FRAMES, NIC_PFC_PAUSE_SECONDS, NIC_SPEED,
    SWITCH_PORT_PFC_FRAMES, SWITCH_PORT_PFC_PAUSE_SECONDS,
};

use super::Holds;
use super::own_past::Storms;
use super::paused_ports::{self, Port};
use super::pauses::{far, has_settled, is_narrow, share};
use crate::assemble::netdev::nic_of;
use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::detect::rules::pause_circle::frames;
use crate::store::{NodeHistory, Window};

/// Longest time for which the frames of a NIC can pause its switch, as a share of the time, from which it stands out.
const MOSTLY: f64 = 0.5;
/// The same from which it is a storm. A slow receiver also sends frames that end its pause: with many it sends more.
const ALWAYS: f64 = 1.0;

/// The numbers.
pub(super) fn numbers() -> [Threshold; 3] {
    [
        frames::threshold(),
        Threshold::new(
            "longest time in pause that a NIC's frames allow, where they are counted and no time, at least",
            MOSTLY,
            "ratio",
            "half of the time is enough to slow a job (a choice)",
        ),
        Threshold::new(
            "the same of a storm",
            ALWAYS,
            "ratio",
            "frames that follow each other without a gap",
        ),
    ]
}

/// A NIC whose pause frames are counted, of all priorities together or of one.
struct Sender<'a> {
    by: Counter<'a>,
    /// Frames a second.
    rate: f64,
    /// Longest share of the time in pause that they allow.
    longest: f64,
    has_settled: bool,
}

enum Counter<'a> {
    /// Its own, by the name of its interface.
    Own(&'a NodeName, &'a NodeHistory, &'a str),
    /// That of the switch port before it.
    Switch(Port<'a>),
}

/// NICs that send so many pause frames that they can halt their switch.
pub(super) fn pausing<'a>(view: &View<'a>, storms: &mut Storms) -> Vec<Holds<'a>> {
    let nodes = view.history.fresh_nodes(view.now);
    let own = nodes.flat_map(|(node, history)| by_interface(node, history));
    let switches = view.history.fresh_switches(view.now);
    let switches = switches.flat_map(|(switch, history)| by_port(view, switch, history));
    let mut holding = Vec::new();
    for senders in [own.collect::<Vec<_>>(), switches.collect()] {
        let (_, far) = far(&senders, |sender| sender.longest);
        holding.extend(far.filter_map(|sender| holds(view, sender, storms)));
    }
    holding
}

fn counts(history: &NodeHistory, metrics: &[&'static Metric]) -> bool {
    let mut metrics = metrics.iter();
    metrics.any(|metric| history.series(metric).next().is_some())
}

fn by_interface<'a>(
    node: &'a NodeName,
    history: &'a NodeHistory,
) -> impl Iterator<Item = Sender<'a>> {
    let times = counts(history, &[&NIC_PFC_PAUSE_SECONDS, &NIC_PAUSE_SECONDS]);
    let series = history.series(&NIC_PFC_FRAMES).filter(move |_| !times);
    series.filter_map(move |(labels, window)| {
        let labels: Vec<&str> = labels.values().collect();
        let [netdev, _, "transmit"] = labels[..] else {
            return None;
        };
        let speed = history.value(&NIC_SPEED, &[netdev])?;
        Sender::new(Counter::Own(node, history, netdev), window, speed)
    })
}

fn by_port<'a>(
    view: &View<'a>,
    switch: &'a SwitchName,
    history: &'a NodeHistory,
) -> Vec<Sender<'a>> {
    // Most switches count neither, as those of InfiniBand: their ports are not looked up.
    let has_frames_alone = counts(history, &[&SWITCH_PORT_PFC_FRAMES])
        && !counts(history, &[&SWITCH_PORT_PFC_PAUSE_SECONDS]);
    if !has_frames_alone {
        return Vec::new();
    }
    let ports = paused_ports::ports(view, switch, history, &SWITCH_PORT_PFC_FRAMES);
    let senders = ports.into_iter().flatten().filter_map(|port| {
        let (window, speed) = (port.window, port.speed()?);
        Sender::new(Counter::Switch(port), window, speed)
    });
    senders.collect()
}

impl<'a> Sender<'a> {
    fn new(by: Counter<'a>, window: Window<'a>, speed: f64) -> Option<Self> {
        let rate = share(window)?;
        Some(Self {
            by,
            rate,
            longest: frames::longest_share(rate, speed),
            has_settled: has_settled(window),
        })
    }
}

fn holds<'a>(view: &View<'a>, sender: &Sender<'a>, storms: &mut Storms) -> Option<Holds<'a>> {
    let Sender { rate, longest, .. } = *sender;
    if longest < MOSTLY || !sender.has_settled {
        return None;
    }
    let (node, device, pci, history, signal) = match &sender.by {
        Counter::Own(node, history, netdev) => {
            let (pci, device) = nic_of(history, netdev)?;
            (*node, device, pci, Some(*history), &NIC_PFC_FRAMES)
        }
        Counter::Switch(port) => {
            let (node, device, pci, history) = port.nic(view)?;
            // The node's own counters of time decide.
            if history.is_some_and(|own| counts(own, &[&NIC_PFC_PAUSE_SECONDS])) {
                return None;
            }
            let device = device.clone();
            (node, device, pci, history, &SWITCH_PORT_PFC_FRAMES)
        }
    };
    let nic = Part::Nic(node.clone(), device.clone());
    let narrow = history
        .zip(pci)
        .is_some_and(|(own, pci)| is_narrow(own, pci));
    let storm = longest >= ALWAYS && !narrow;
    if storm {
        storms.note(&nic, ALWAYS, view.now);
    } else if storms.lately(&nic, view.now).is_some() {
        return None;
    }
    Some(Holds {
        node,
        words: format!(
            "{device} of {node} sends {rate:.0} pause frames a second, which can pause its switch {:.0} % of the time",
            100.0 * longest.min(1.0)
        ),
        device,
        pci,
        signal,
        share: None,
        ticks: 0.0,
        storm,
    })
}
