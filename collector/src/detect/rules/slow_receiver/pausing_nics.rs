//! Ethernet: NICs that pause their switches, by their own counters.

use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{Metric, NIC_PAUSE_SECONDS, NIC_PAUSE_STORMS, NIC_PFC_PAUSE_SECONDS};

use super::own_past::{BackPressure, OwnPast, Storms};
use super::pauses::{
    Pausing, far, is_narrow, is_pausing, pause_of, paused_words, pauses_idle_itself, received,
    receives_nothing, share, stalled_share,
};
use super::{Holds, WINDOW_SECONDS};
use crate::assemble::netdev::{fabric_nic_of, nic_of};
use crate::detect::detector::View;
use crate::stages::Step;
use crate::store::{NodeHistory, Window};

/// Both end with the direction.
const PAUSE: [&Metric; 2] = [&NIC_PFC_PAUSE_SECONDS, &NIC_PAUSE_SECONDS];

/// An interface that counts the pause that it sends.
struct Sender<'a> {
    node: &'a NodeName,
    history: &'a NodeHistory,
    netdev: &'a str,
    direction: &'a str,
    priority: &'a str,
    window: Window<'a>,
    /// Share of the time.
    share: f64,
}

fn senders<'a>(view: &View<'a>) -> Vec<Sender<'a>> {
    // A port that is paused waits for another receiver.
    let is_sent = |direction| direction == "transmit" || view.left_out.has(Step::PauseWalk);
    let nodes = view.history.fresh_nodes(view.now);
    let senders = nodes.flat_map(|(node, history)| {
        let sent = pause_of(history).filter(|([.., direction], _)| is_sent(*direction));
        sent.filter_map(move |([netdev, priority, direction], window)| {
            Some(Sender {
                node,
                history,
                netdev,
                direction,
                priority,
                window,
                share: share(window)?,
            })
        })
    });
    senders.collect()
}

/// NICs that send pause.
pub(super) fn pausing<'a>(
    view: &View<'a>,
    past: &mut OwnPast,
    storms: &mut Storms,
) -> Vec<Holds<'a>> {
    past.forget(view.now);
    let mut nodes = view.history.fresh_nodes(view.now);
    let pauses = |series| is_pausing(view, series);
    let moving = |(_, history): (_, &'a NodeHistory)| {
        let moving = PAUSE.into_iter().flat_map(|metric| history.moving(metric));
        moving.into_iter().any(pauses)
    };
    if !nodes.any(moving) {
        return Vec::new();
    }
    let senders = senders(view);
    let (usual, far) = far(&senders, |sender| sender.share);
    far.filter_map(|sender| holds(view, sender, usual, (past, storms)))
        .collect()
}

fn holds<'a>(
    view: &View<'a>,
    sender: &Sender<'a>,
    usual: f64,
    (past, storms): (&mut OwnPast, &mut Storms),
) -> Option<Holds<'a>> {
    let Sender {
        node,
        history,
        netdev,
        priority,
        ..
    } = *sender;
    let (pci, device) = nic_of(history, netdev)?;
    // Ports for storage and management often use global pause.
    if priority.is_empty() && fabric_nic_of(history, netdev).is_none() {
        return None;
    }
    let warnings = history.window(&NIC_PAUSE_STORMS, &[netdev, "warning"]);
    let is_stormy = warnings
        .and_then(|window| window.newest_increase(WINDOW_SECONDS))
        .is_some_and(|rise| rise.amount > 0.0);
    let pausing = Pausing {
        back_pressure: BackPressure {
            rate: sender.share,
            counter: sender.window,
            bytes: received(history, &device),
        },
        receives_nothing: receives_nothing(history, &device),
        pauses_idle: pauses_idle_itself(history, &device, sender.window),
        is_stormy,
        stalled: stalled_share(history, &device),
        has_narrow_link: pci.is_some_and(|pci| is_narrow(history, pci)),
    };
    let nic = Part::Nic(node.clone(), device.clone());
    let (storm, share) = pausing.classify((&nic, priority), (past, storms), view.now)?;
    Some(Holds {
        node,
        words: format!(
            "{device} of {node} {}; the median port does so {:.1} %",
            paused_words(sender.direction, priority, share),
            100.0 * usual
        ),
        device,
        pci,
        // The NIC's watchdog has counted a separate event.
        signal: if storm && is_stormy {
            &NIC_PAUSE_STORMS
        } else if priority.is_empty() {
            &NIC_PAUSE_SECONDS
        } else {
            &NIC_PFC_PAUSE_SECONDS
        },
        share: Some(share.min(1.0)),
        ticks: 0.0,
        storm,
    })
}
