//! Back-pressure on a lossless Ethernet: lanes that are paused, and the lanes that may cause it.
//!
//! A lane is one direction of a cable on one priority. It is paused because the receiver behind it does not drain, so
//! that it waits for those lanes of the switch at its end that are paused themselves.
//! Polling is too slow to see which port began; the graph needs no order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use railscope_model::fabric::{Fabric, LinkId, LinkKind, PartId};
use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
};

use super::detector::View;
use crate::stages::Step;
use crate::store::{Increase, NodeHistory};

/// The time over which pause is counted.
pub const WINDOW_SECONDS: f64 = 30.0;
/// Share of the time in pause from which a lane waits.
pub const MIN_PAUSE: f64 = 0.01;
/// Share of the time in pause from which nothing gets through, the window in which it is measured, and the most of its
/// speed that such a lane carries.
pub const DEAD: f64 = 0.9;
/// See [`DEAD`].
pub const DEAD_SECONDS: f64 = 20.0;
/// See [`DEAD`].
pub const MOST_CARRIED: f64 = 0.01;
/// Most switches with dead lanes among which cycles are searched: paths between them are tried one by one.
const MOST_SWITCHES: usize = 512;

/// One direction of a cable on one priority.
#[derive(Debug, Clone, PartialEq)]
struct Lane<'a> {
    cable: LinkId,
    from: PartId,
    to: PartId,
    priority: &'a str,
    /// Whether it is stalled: paused nearly all of the time, with almost no traffic.
    is_dead: bool,
}

/// The lanes that are paused.
#[derive(Debug, Clone, Default)]
pub struct PauseGraph<'a> {
    lanes: Vec<Lane<'a>>,
    /// By part and priority: lanes from it.
    from: HashMap<(PartId, &'a str), Vec<usize>>,
    /// Switches that report how long they were paused.
    telling: BTreeSet<PartId>,
}

impl<'a> PauseGraph<'a> {
    /// The graph of what switches report now. Empty if none of them reports its time in
    /// pause.
    pub fn of(view: &View<'a>) -> Self {
        let mut graph = Self::default();
        if view.left_out.has(Step::PauseWalk) {
            return graph;
        }
        for (switch, history) in view.history.fresh_switches(view.now) {
            graph.add_switch(view, switch, history);
        }
        for (place, lane) in graph.lanes.iter().enumerate() {
            let of_part = graph.from.entry((lane.from, lane.priority)).or_default();
            of_part.push(place);
        }
        graph
    }

    fn add_switch(&mut self, view: &View<'a>, switch: &SwitchName, history: &'a NodeHistory) {
        if history.rows(&SWITCH_PORT_PFC_PAUSE_SECONDS).is_none() {
            return;
        }
        let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
            return;
        };
        self.telling.insert(id);
        // A counter that is constant means no pause.
        let mut pauses = history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS).peekable();
        if pauses.peek().is_none() {
            return;
        }
        let cables = view.fabric.cables(id);
        let peers = cables.map(|near| (near.port, (near.peer, near.id)));
        let peers: HashMap<u16, (PartId, LinkId)> = peers.collect();
        for (labels, window) in pauses {
            let labels: Vec<&str> = labels.values().collect();
            let [port, priority, direction] = labels[..] else {
                continue;
            };
            let share = |seconds| window.newest_increase(seconds).map_or(0.0, Increase::rate);
            if share(WINDOW_SECONDS) <= MIN_PAUSE {
                continue;
            }
            let handle = port.parse::<PortName>().ok();
            let handle = handle.and_then(|port| view.fabric.find_port(id, &port));
            let Some((peer, cable)) = handle.and_then(|handle| peers.get(&handle).copied()) else {
                continue;
            };
            let (from, to) = match direction {
                "receive" => (id, peer),
                // A switch reports itself that it is paused, for a NIC there may be no source that
                // reports it.
                "transmit" if !is_switch(view.fabric, peer) => (peer, id),
                _ => continue,
            };
            let is_dead = share(DEAD_SECONDS) > DEAD
                && from == id
                && stands(history, port, &SWITCH_PORT_TRANSMIT_BYTES);
            self.lanes.push(Lane {
                cable,
                from,
                to,
                priority,
                is_dead,
            });
        }
    }

    /// Paused lanes for which a lane may wait: those from its end, but not straight back.
    fn next(&self, lane: &Lane<'a>) -> impl Iterator<Item = usize> + '_ {
        let back = lane.from;
        let next = self.from.get(&(lane.to, lane.priority));
        let next = next.into_iter().flatten().copied();
        next.filter(move |next| self.lanes[*next].to != back)
    }

    /// NICs that are paused and whose pause leads, from lane to lane, to this NIC, which is not among them.
    pub fn held_by(&self, nic: PartId) -> BTreeSet<PartId> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.lanes.len()];
        for (place, lane) in self.lanes.iter().enumerate() {
            for next in self.next(lane) {
                before[next].push(place);
            }
        }
        let into = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.to == nic);
        let mut way: Vec<usize> = into.map(|(place, _)| place).collect();
        let mut seen: BTreeSet<usize> = way.iter().copied().collect();
        while let Some(place) = way.pop() {
            way.extend(before[place].iter().filter(|lane| seen.insert(**lane)));
        }
        // What nothing waits for before it begins at a NIC.
        let ends = seen.into_iter().map(|place| self.lanes[place].from);
        let switches: BTreeSet<PartId> = self.lanes.iter().map(|lane| lane.to).collect();
        ends.filter(|part| *part != nic && !switches.contains(part))
            .collect()
    }

    /// Cycles of switches whose lanes to each other are stalled, each waiting for the next. One that also waits for
    /// a NIC is the NIC's doing.
    pub fn circles(&self, fabric: &Fabric) -> Vec<BTreeSet<PartId>> {
        let dead: Vec<usize> = (0..self.lanes.len())
            .filter(|at| self.lanes[*at].is_dead)
            .collect();
        let ends = dead
            .iter()
            .flat_map(|at| [self.lanes[*at].from, self.lanes[*at].to]);
        let switches: BTreeSet<PartId> = ends.filter(|end| is_switch(fabric, *end)).collect();
        if dead.len() < 2 || switches.len() > MOST_SWITCHES {
            return Vec::new();
        }
        let ways = Ways::between(fabric, &switches);
        let mut graph: DiGraph<usize, ()> = DiGraph::new();
        let nodes: BTreeMap<usize, NodeIndex> =
            dead.iter().map(|at| (*at, graph.add_node(*at))).collect();
        for (at, node) in &nodes {
            let lane = &self.lanes[*at];
            for next in self.next(lane) {
                let to = self.lanes[next].to;
                let leads = !is_switch(fabric, to) || ways.lead_over(lane.from, lane.to, to);
                if let (Some(next), true) = (nodes.get(&next), leads) {
                    graph.add_edge(*node, *next, ());
                }
            }
        }
        let knots = kosaraju_scc(&graph)
            .into_iter()
            .filter(|knot| knot.len() > 1);
        let closed = knots.filter(|knot| !self.leads_to_nic(fabric, &graph, knot));
        let switches_of = |knot: Vec<NodeIndex>| {
            let lanes = knot.into_iter().map(|node| &self.lanes[graph[node]]);
            lanes.flat_map(|lane| [lane.from, lane.to]).collect()
        };
        closed.map(switches_of).collect()
    }

    /// Cables on which a switch pauses another all of the time, and nothing pauses that switch: the port that sends pause is
    /// stuck.
    pub fn stuck(&self, fabric: &Fabric) -> BTreeSet<LinkId> {
        let dead = self.lanes.iter().filter(|lane| lane.is_dead);
        let stuck = dead.filter(|lane| {
            is_switch(fabric, lane.to)
                && self.telling.contains(&lane.to)
                && self.next(lane).next().is_none()
        });
        stuck.map(|lane| lane.cable).collect()
    }

    fn leads_to_nic(
        &self,
        fabric: &Fabric,
        graph: &DiGraph<usize, ()>,
        knot: &[NodeIndex],
    ) -> bool {
        let mut way = knot.to_vec();
        let mut seen: BTreeSet<NodeIndex> = way.iter().copied().collect();
        while let Some(node) = way.pop() {
            if !is_switch(fabric, self.lanes[graph[node]].to) {
                return true;
            }
            way.extend(graph.neighbors(node).filter(|next| seen.insert(*next)));
        }
        false
    }
}

/// Whether a port carries almost nothing, by its bytes sent or received. False if its bytes or its
/// speed are unknown.
pub(crate) fn stands(history: &NodeHistory, port: &str, bytes: &'static Metric) -> bool {
    let bytes = history.window(bytes, &[port]);
    let rate = bytes
        .and_then(|bytes| bytes.newest_increase(DEAD_SECONDS))
        .map(Increase::rate);
    let speed = history.value(&SWITCH_PORT_SPEED, &[port]);
    rate.zip(speed)
        .is_some_and(|(rate, speed)| rate < MOST_CARRIED * speed)
}

/// Largest share of some seconds for which a priority of a port was paused; 0 where that is not counted.
pub(crate) fn share_in_pause(history: &NodeHistory, port: &str, seconds: f64) -> f64 {
    let mut most: f64 = 0.0;
    for (labels, window) in history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS) {
        let labels: Vec<&str> = labels.values().collect();
        if let [of, _, "receive"] = labels[..]
            && of == port
        {
            let rise = window.newest_increase(seconds);
            most = most.max(rise.map_or(0.0, Increase::rate));
        }
    }
    most.min(1.0)
}

fn is_switch(fabric: &Fabric, part: PartId) -> bool {
    matches!(fabric.vertex(part).part, Part::Switch(_))
}

/// Cables from some switches to all that NICs are connected to.
struct Ways {
    /// By switch: the distance of each leaf.
    distance: BTreeMap<PartId, HashMap<PartId, usize>>,
}

impl Ways {
    fn between(fabric: &Fabric, switches: &BTreeSet<PartId>) -> Self {
        let all = switches.iter();
        Self {
            distance: all
                .map(|switch| (*switch, to_leaves(fabric, *switch)))
                .collect(),
        }
    }

    /// Whether a shortest path to some leaf leads over these three, one after another: what came down to a leaf
    /// does not go up again.
    fn lead_over(&self, first: PartId, second: PartId, third: PartId) -> bool {
        let of = |switch| self.distance.get(&switch);
        let (Some(first), Some(second), Some(third)) = (of(first), of(second), of(third)) else {
            return false;
        };
        third.iter().any(|(leaf, left)| {
            first.get(leaf) == Some(&(left + 2)) && second.get(leaf) == Some(&(left + 1))
        })
    }
}

fn to_leaves(fabric: &Fabric, switch: PartId) -> HashMap<PartId, usize> {
    let mut distance = HashMap::from([(switch, 0)]);
    let mut leaves = HashMap::new();
    let mut queue = VecDeque::from([switch]);
    while let Some(at) = queue.pop_front() {
        let far = distance[&at];
        for near in fabric.neighbors(at) {
            if near.link.kind != LinkKind::Cable || !near.link.is_present() {
                continue;
            }
            if !is_switch(fabric, near.peer) {
                leaves.insert(at, far);
            } else if let Entry::Vacant(unseen) = distance.entry(near.peer) {
                unseen.insert(far + 1);
                queue.push_back(near.peer);
            }
        }
    }
    leaves
}
