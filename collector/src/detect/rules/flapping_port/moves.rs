//! Links that go down because somebody moves their cable, or because they train to another speed: each change explains one loss.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkKind, PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::RDMA_PORT_SPEED;

use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::store::{NodeHistory, Window};

/// How long a moved cable is remembered: longer than any window of losses.
const KEPT_SECONDS: f64 = 3_600.0;

/// That time as a threshold.
pub(super) fn kept() -> Threshold {
    Threshold::new(
        "time for which it is remembered that a cable was moved, which explains one failure, as a change of speed does",
        KEPT_SECONDS,
        "s",
        "longer than any window of failures (a choice)",
    )
}

/// Where cables of NICs lead, and when they were last moved.
#[derive(Debug, Default)]
pub(super) struct Moves {
    epoch: Option<u64>,
    /// By NIC, the far end of its cable, both as hashes: there may be 100,000.
    ends: HashMap<u64, u64, FixedState>,
    moved: HashMap<u64, Vec<Timestamp>, FixedState>,
}

impl Moves {
    /// Begins a tick.
    pub(super) fn refresh(&mut self, view: &View<'_>) {
        if self.epoch.replace(view.epoch) == Some(view.epoch) {
            return;
        }
        self.moved.retain(|_, times| {
            let last = times.last();
            last.is_some_and(|last| view.now.seconds_since(*last) <= KEPT_SECONDS)
        });
        let nics = view.fabric.vertices();
        for (nic, vertex) in nics.filter(|(_, vertex)| matches!(vertex.part, Part::Nic(..))) {
            let Some(end) = far_end(view, nic) else {
                continue;
            };
            let nic = hash(&vertex.part);
            if self
                .ends
                .insert(nic, end)
                .is_some_and(|before| before != end)
            {
                self.moved.entry(nic).or_default().push(view.now);
            }
        }
    }

    /// How often the cable of a NIC was moved since then.
    pub(super) fn since(&self, nic: &Part, since: Timestamp) -> usize {
        let times = self.moved.get(&hash(nic)).into_iter().flatten();
        times.filter(|time| **time >= since).count()
    }
}

/// The port at the other end of a NIC's cable, as a hash; none while it has no cable.
fn far_end(view: &View<'_>, nic: PartId) -> Option<u64> {
    let mut cables = view.fabric.neighbours(nic);
    let cable = cables.find(|near| near.link.kind == LinkKind::Cable && near.link.is_present())?;
    let port = (&view.fabric.vertex(cable.peer).part, cable.peer_port);
    Some(FixedState::default().hash_one(port))
}

fn hash(nic: &Part) -> u64 {
    FixedState::default().hash_one(nic)
}

/// How often a port of a node changed its speed while it was up: a link that trains anew goes down.
pub(super) fn changes_of_speed(history: &NodeHistory, up: Window<'_>, port: [&str; 2]) -> usize {
    let Some(speed) = history.window(&RDMA_PORT_SPEED, &port) else {
        return 0;
    };
    let mut is_up = up
        .told()
        .filter(|(_, up)| *up == 1.0)
        .map(|(at, _)| at)
        .peekable();
    // Both newest first. A port that is down shows a speed that means nothing.
    let speeds: Vec<f64> = speed
        .told()
        .filter(|(at, _)| {
            while is_up.next_if(|up| up > at).is_some() {}
            is_up.peek() == Some(at)
        })
        .map(|(_, speed)| speed)
        .collect();
    speeds.windows(2).filter(|pair| pair[0] != pair[1]).count()
}
