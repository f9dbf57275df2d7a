//! Links that go down because somebody moves their cable, or because they train to another speed: each change explains one loss.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use railscope_model::fabric::{PartId, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::RDMA_PORT_SPEED;

use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::store::{NodeHistory, Window};

/// How long a moved cable is remembered: longer than any window of losses.
const KEPT_SECONDS: f64 = 3_600.0;

/// Changes of speed that explain losses: down and back. A bad cable changes its speed each time.
const MOST_CHANGES: usize = 2;

/// These as thresholds.
pub(super) fn numbers() -> [Threshold; 2] {
    let changes = Threshold::new(
        "changes of a port's speed that explain a failure each, at most",
        MOST_CHANGES as f64,
        "changes",
        "down and back; a bad cable changes its speed each time (a choice)",
    );
    let kept = Threshold::new(
        "time for which it is remembered that a cable was moved, which explains one failure of a node's port",
        KEPT_SECONDS,
        "s",
        "longer than any window of failures (a choice)",
    );
    [kept, changes]
}

/// Where cables of NICs lead, and when they were last moved.
#[derive(Debug, Default)]
pub(super) struct Moves {
    epoch: Option<u64>,
    /// By port of a NIC, the far end of its cable, both as hashes: there may be 100,000.
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
            for (port, end) in far_ends(view, nic) {
                let port = hash((&vertex.part, port));
                if self
                    .ends
                    .insert(port, end)
                    .is_some_and(|before| before != end)
                {
                    self.moved.entry(port).or_default().push(view.now);
                }
            }
        }
    }

    /// How often the cable of a NIC's port was moved since then.
    pub(super) fn since(&self, (nic, port): (&Part, u16), since: Timestamp) -> usize {
        let times = self.moved.get(&hash((nic, port))).into_iter().flatten();
        times.filter(|time| **time >= since).count()
    }
}

/// By port of a NIC that has one cable, the port at its other end, as a hash.
fn far_ends(view: &View<'_>, nic: PartId) -> BTreeMap<u16, u64> {
    let cables = view.fabric.cables(nic);
    let cables = cables.filter(|near| near.link.is_present());
    let mut ends: BTreeMap<u16, Option<u64>> = BTreeMap::new();
    for cable in cables {
        let end = hash((&view.fabric.vertex(cable.peer).part, cable.peer_port));
        let only = ends.insert(cable.port, Some(end)).is_none();
        if !only {
            ends.insert(cable.port, None);
        }
    }
    let ends = ends.into_iter();
    ends.filter_map(|(port, end)| Some((port, end?))).collect()
}

fn hash(port: (&Part, u16)) -> u64 {
    FixedState::default().hash_one(port)
}

/// How often a port of a node changed its speed while it was up, at most [`MOST_CHANGES`]: a link that trains anew goes down.
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
    let changes = speeds.windows(2).filter(|pair| pair[0] != pair[1]).count();
    changes.min(MOST_CHANGES)
}
