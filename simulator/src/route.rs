//! Which cables a flow crosses: shortest paths, and how switches choose among equals.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::wiring::{Device, Wiring};

/// How a switch chooses among ports that are equally near to the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routing {
    /// Packet by packet, the least loaded: every flow is spread evenly over all of them (InfiniBand
    /// adaptive routing, packet spraying).
    #[default]
    Adaptive,
    /// By the destination alone: its number modulo the ports (InfiniBand d-mod-k).
    Static,
    /// By a hash of the flow, drawn anew at each switch (ECMP over UDP source ports).
    Ecmp,
}

/// One direction of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

impl Lane {
    /// From the lower end of a cable, by index into [`Wiring::cables`], to the upper one.
    pub const fn up(cable: usize) -> Self {
        Self(cable as u32 * 2)
    }

    /// From the upper end to the lower one.
    pub const fn down(cable: usize) -> Self {
        Self(cable as u32 * 2 + 1)
    }

    /// The cable.
    pub const fn cable(self) -> usize {
        self.0 as usize / 2
    }

    /// Place in a table with an entry for each lane.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Lanes that a flow crosses, each with the share of the flow that crosses it.
pub type Path = Vec<(Lane, f64)>;

/// A way from a switch to the next.
#[derive(Debug, Clone, Copy)]
struct Hop {
    lane: Lane,
    to: u32,
}

/// Marks a switch from which there is no way.
const UNREACHED: u8 = u8::MAX;

/// Every shortest path of a fabric as it is lit now.
#[derive(Debug)]
pub struct Router {
    routing: Routing,
    /// By switch: cables to other switches, in the order of its ports.
    hops: Vec<Vec<Hop>>,
    /// By NIC: its cable's switch.
    leaf: Vec<Option<u32>>,
    /// By switch: its row in `distance`; none if no NIC hangs on it.
    row: Vec<Option<u32>>,
    /// By row: cables left to walk from each switch to that one.
    distance: Vec<Vec<u8>>,
}

impl Router {
    /// Finds all shortest paths between switches with NICs.
    pub fn new(wiring: &Wiring, routing: Routing) -> Self {
        let count = wiring.switches.len();
        let mut hops: Vec<Vec<(u16, Hop)>> = vec![Vec::new(); count];
        let mut leaf = vec![None; wiring.nics.len()];
        for (index, cable) in wiring.cables.iter().enumerate().filter(|(_, c)| c.lit) {
            let [(lower, port), (upper, far)] = cable.ends;
            match (lower, upper) {
                (Device::Switch(a), Device::Switch(b)) => {
                    let (to, lane) = (b as u32, Lane::up(index));
                    hops[a].push((port, Hop { lane, to }));
                    let (to, lane) = (a as u32, Lane::down(index));
                    hops[b].push((far, Hop { lane, to }));
                }
                (Device::Nic(nic), Device::Switch(switch)) => leaf[nic] = Some(switch as u32),
                // Two NICs back to back have no switch to route them.
                (_, Device::Nic(_)) => {}
            }
        }
        let hops: Vec<Vec<Hop>> = hops
            .into_iter()
            .map(|mut hops| {
                hops.sort_by_key(|(port, _)| *port);
                hops.into_iter().map(|(_, hop)| hop).collect()
            })
            .collect();
        let mut row = vec![None; count];
        let mut distance = Vec::new();
        for switch in leaf.iter().flatten() {
            let row = &mut row[*switch as usize];
            if row.is_none() {
                *row = Some(distance.len() as u32);
                distance.push(distances_to(*switch, &hops));
            }
        }
        Self {
            routing,
            hops,
            leaf,
            row,
            distance,
        }
    }

    /// Ports of a switch that lead to the leaf of that row by a shortest way.
    fn nearest(&self, switch: u32, row: &[u8]) -> impl Iterator<Item = Hop> + Clone {
        let left = row[switch as usize];
        self.hops[switch as usize]
            .iter()
            .copied()
            .filter(move |hop| row[hop.to as usize] < left)
    }

    /// Where a flow from one NIC to another goes, both by index into [`Wiring::nics`]; `flow` tells flows
    /// between the same two apart. None if there is no way: a dark cable, or another fabric.
    pub fn path(&self, from: usize, to: usize, flow: u64) -> Option<Path> {
        let (first, last) = (self.leaf[from]?, self.leaf[to]?);
        let row = &self.distance[self.row[last as usize]? as usize];
        if row[first as usize] == UNREACHED {
            return None;
        }
        let mut path = vec![(Lane::up(from), 1.0)];
        match self.routing {
            Routing::Adaptive => self.spread(first, row, &mut path),
            Routing::Static => self.walk(first, row, &mut path, |_, ports| to % ports),
            Routing::Ecmp => self.walk(first, row, &mut path, |switch, ports| {
                let flow = crate::noise::Noise::new(flow).part(switch.into());
                (flow.bits((from as u64) << 32 | to as u64) % ports as u64) as usize
            }),
        }
        path.push((Lane::down(to), 1.0));
        Some(path)
    }

    /// Where the traffic from one NIC to another goes if so many flows have an equal part of it each; `seed`
    /// tells flows of one job from those of another. None if there is no way.
    pub fn paths(&self, from: usize, to: usize, seed: u64, flows: u16) -> Option<Path> {
        // Only a hash tells flows between the same two NICs apart.
        if self.routing != Routing::Ecmp || flows < 2 {
            return self.path(from, to, seed);
        }
        let part = 1.0 / f64::from(flows);
        let noise = crate::noise::Noise::new(seed);
        let mut all = Path::new();
        for flow in 0..flows {
            let path = self.path(from, to, noise.bits(flow.into()))?;
            all.extend(path.into_iter().map(|(lane, share)| (lane, share * part)));
        }
        Some(summed(all))
    }

    /// One port at each switch.
    fn walk(
        &self,
        mut switch: u32,
        row: &[u8],
        path: &mut Path,
        choose: impl Fn(u32, usize) -> usize,
    ) {
        while row[switch as usize] > 0 {
            let ports = self.nearest(switch, row);
            let chosen = choose(switch, ports.clone().count());
            // There is a port: the distance was found over it.
            let Some(hop) = ports.clone().nth(chosen) else {
                return;
            };
            path.push((hop.lane, 1.0));
            switch = hop.to;
        }
    }

    /// All ports at each switch, evenly.
    fn spread(&self, first: u32, row: &[u8], path: &mut Path) {
        let mut level = vec![(first, 1.0)];
        while let Some((switch, _)) = level.first()
            && row[*switch as usize] > 0
        {
            // All switches of a level are equally far: the ways are shortest.
            let mut next: Vec<(u32, f64)> = Vec::new();
            for (switch, share) in level {
                let ports = self.nearest(switch, row);
                let share = share / ports.clone().count() as f64;
                for hop in ports {
                    path.push((hop.lane, share));
                    next.push((hop.to, share));
                }
            }
            level = summed(next);
        }
    }
}

/// Cables to walk from each switch to one of them.
fn distances_to(switch: u32, hops: &[Vec<Hop>]) -> Vec<u8> {
    let mut distance = vec![UNREACHED; hops.len()];
    distance[switch as usize] = 0;
    let mut queue = VecDeque::from([switch]);
    while let Some(at) = queue.pop_front() {
        let next = distance[at as usize] + 1;
        // A fabric of 255 hops across is none; what lies beyond counts as out of reach.
        if next == UNREACHED {
            continue;
        }
        for hop in &hops[at as usize] {
            if distance[hop.to as usize] == UNREACHED {
                distance[hop.to as usize] = next;
                queue.push_back(hop.to);
            }
        }
    }
    distance
}

/// Adds up what belongs to the same key, in the order of keys.
pub(crate) fn summed<K: Ord + Copy>(mut parts: Vec<(K, f64)>) -> Vec<(K, f64)> {
    parts.sort_by_key(|(key, _)| *key);
    parts.dedup_by(|other, kept| {
        let same = other.0 == kept.0;
        if same {
            kept.1 += other.1;
        }
        same
    });
    parts
}
