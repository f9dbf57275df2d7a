//! Which cables a flow crosses: shortest paths, and how switches choose among equals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// By the destination alone: each to the port with the fewest of those before it (InfiniBand, opensm's `minhop`).
    Minhop,
    /// By a hash of the flow, drawn again at each switch (ECMP over UDP source ports).
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

    /// The other direction of its cable.
    pub(crate) const fn back(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The end of its cable that receives, as an index into [`crate::wiring::Cable::ends`].
    pub(crate) const fn far_end(self) -> usize {
        1 - self.0 as usize % 2
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

/// A path from a switch to the next.
#[derive(Debug, Clone, Copy)]
struct Hop {
    lane: Lane,
    to: u32,
}

/// Marks a switch from which there is no path.
const UNREACHED: u8 = u8::MAX;

/// Every shortest path of a fabric as it is lit now.
#[derive(Debug)]
pub struct Router {
    routing: Routing,
    /// By switch: cables to other switches, in the order of its ports.
    hops: Vec<Vec<Hop>>,
    /// By NIC: its cable's switch.
    leaf: Vec<Option<u32>>,
    /// By switch: its row in `distance`; none if no NIC is connected to it.
    row: Vec<Option<u32>>,
    /// By row: cables left to walk from each switch to that one.
    distance: Vec<Vec<u8>>,
    /// Switches that use only so many of their nearest ports.
    polarized: Vec<(usize, usize)>,
    /// By NIC: its number among those of its leaf.
    place: Vec<u32>,
    /// With [`Routing::Minhop`], by switch and row: NICs of rows before that leave by the same ports.
    turns: Vec<Vec<u32>>,
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
        let mut router = Self {
            routing,
            hops,
            leaf,
            row,
            distance,
            polarized: Vec::new(),
            place: Vec::new(),
            turns: Vec::new(),
        };
        if routing == Routing::Minhop {
            router.take_turns();
        }
        router
    }

    fn take_turns(&mut self) {
        let mut nics = vec![0; self.distance.len()];
        for leaf in &self.leaf {
            let row = leaf.and_then(|leaf| self.row[leaf as usize]);
            let place = row.map_or(0, |row| {
                nics[row as usize] += 1;
                nics[row as usize] - 1
            });
            self.place.push(place);
        }
        for switch in 0..self.hops.len() {
            let mut sent: BTreeMap<(Option<Lane>, usize), u32> = BTreeMap::new();
            let rows = self.distance.iter().zip(&nics);
            let turns = rows.map(|(row, nics)| {
                let ports = self.nearest(switch as u32, row);
                let ports = (ports.clone().next().map(|hop| hop.lane), ports.count());
                let before = sent.entry(ports).or_default();
                *before += nics;
                *before - nics
            });
            self.turns.push(turns.collect());
        }
    }

    /// Which of its nearest ports a switch takes to a NIC behind the leaf of that row, before the number of ports is known;
    /// none where the destination alone does not decide.
    fn turn(&self, switch: u32, row: u32, to: usize) -> Option<usize> {
        match self.routing {
            Routing::Static => Some(to),
            Routing::Minhop => {
                Some((self.turns[switch as usize][row as usize] + self.place[to]) as usize)
            }
            Routing::Adaptive | Routing::Ecmp => None,
        }
    }

    /// The same with switches, by index, whose hash uses only so many of the ports that are equally near.
    #[must_use]
    pub(crate) fn polarized(mut self, switches: &[(usize, usize)]) -> Self {
        self.polarized = switches.to_vec();
        self
    }

    /// Ports of a switch that lead to the leaf of that row by a shortest path.
    fn nearest(&self, switch: u32, row: &[u8]) -> impl Iterator<Item = Hop> + Clone {
        let left = row[switch as usize];
        let polarized = self
            .polarized
            .iter()
            .find(|(which, _)| *which == switch as usize);
        self.hops[switch as usize]
            .iter()
            .copied()
            .filter(move |hop| row[hop.to as usize] < left)
            .take(polarized.map_or(usize::MAX, |(_, ports)| *ports))
    }

    /// The path of a flow from one NIC to another, both by index into [`Wiring::nics`]; `flow`
    /// distinguishes flows between the same two. None if there is no path: a dark cable, or
    /// another fabric.
    pub fn path(&self, from: usize, to: usize, flow: u64) -> Option<Path> {
        let (first, last) = (self.leaf[from]?, self.leaf[to]?);
        let number = self.row[last as usize]?;
        let row = &self.distance[number as usize];
        if row[first as usize] == UNREACHED {
            return None;
        }
        let mut path = vec![(Lane::up(from), 1.0)];
        match self.routing {
            Routing::Adaptive => self.spread(first, row, &mut path),
            Routing::Static | Routing::Minhop => {
                self.walk(first, row, &mut path, |switch, ports| {
                    self.turn(switch, number, to).unwrap_or(0) % ports
                });
            }
            Routing::Ecmp => self.walk(first, row, &mut path, |switch, ports| {
                let flow = crate::noise::Noise::new(flow).part(switch.into());
                (flow.bits((from as u64) << 32 | to as u64) % ports as u64) as usize
            }),
        }
        path.push((Lane::down(to), 1.0));
        Some(path)
    }

    /// The lane by which a switch sends what goes to a NIC, both by index; none where no path leads there, or where
    /// the destination alone does not decide.
    pub(crate) fn forwards(&self, switch: usize, to: usize) -> Option<Lane> {
        let last = self.leaf[to]?;
        let number = self.row[last as usize]?;
        let turn = self.turn(switch as u32, number, to)?;
        let row = &self.distance[number as usize];
        if row[switch] == 0 {
            return Some(Lane::down(to));
        }
        let mut ports = self.nearest(switch as u32, row);
        let count = ports.clone().count();
        ports.nth(turn.checked_rem(count)?).map(|hop| hop.lane)
    }

    /// A shortest path from a NIC up to a switch, for packets that carry their paths with them; `flow`
    /// chooses among equals. None if there is no path.
    pub(crate) fn path_to_switch(&self, nic: usize, switch: usize, flow: u64) -> Option<Vec<Lane>> {
        let leaf = self.leaf[nic]?;
        let row = &self.distance[self.row[leaf as usize]? as usize];
        if row[switch] == UNREACHED {
            return None;
        }
        // Distances are known to leaves only: found from the other end, and turned round.
        let mut down = Path::new();
        self.walk(switch as u32, row, &mut down, |at, ports| {
            let noise = crate::noise::Noise::new(flow).part(at.into());
            (noise.bits(nic as u64) % ports as u64) as usize
        });
        let up = down.iter().rev().map(|(lane, _)| lane.back());
        Some(std::iter::once(Lane::up(nic)).chain(up).collect())
    }

    /// The shortest circle of lanes through a switch in which each lane may have to wait for the next to move:
    /// where there is one, pause can lock all of them (Dally and Seitz, "Deadlock-free message routing in
    /// multiprocessor interconnection networks", 1987).
    pub(crate) fn circle_through(&self, switch: usize) -> Option<Vec<Lane>> {
        let next = self.dependencies();
        let first = self.hops[switch].iter().map(|hop| hop.lane);
        let circles = first.filter_map(|lane| circle(lane, &next));
        circles.min_by_key(Vec::len)
    }

    /// By lane: the possible next lanes of packets on it.
    fn dependencies(&self) -> BTreeMap<Lane, BTreeSet<Lane>> {
        let mut next: BTreeMap<Lane, BTreeSet<Lane>> = BTreeMap::new();
        let sources: BTreeSet<u32> = self.leaf.iter().flatten().copied().collect();
        for row in &self.distance {
            // Switches that packets to this one come through.
            let reached = |switch: &u32| row[*switch as usize] != UNREACHED;
            let mut left: Vec<u32> = sources.iter().copied().filter(reached).collect();
            let mut seen: BTreeSet<u32> = left.iter().copied().collect();
            while let Some(switch) = left.pop() {
                for hop in self.nearest(switch, row) {
                    let beyond = self.nearest(hop.to, row).map(|hop| hop.lane);
                    next.entry(hop.lane).or_default().extend(beyond);
                    if seen.insert(hop.to) {
                        left.push(hop.to);
                    }
                }
            }
        }
        next
    }

    /// The path of each of so many flows from one NIC to another, as [`Self::paths`] adds them up; one for all
    /// where switches do not distinguish them, none if there is no path.
    pub(crate) fn ways(&self, from: usize, to: usize, seed: u64, flows: u16) -> Vec<Path> {
        if self.routing != Routing::Ecmp || flows < 2 {
            return self.path(from, to, seed).into_iter().collect();
        }
        let noise = crate::noise::Noise::new(seed);
        let way = |flow: u16| self.path(from, to, noise.bits(flow.into()));
        (0..flows).filter_map(way).collect()
    }

    /// The lanes of the traffic from one NIC to another if so many flows have an equal part of it each; `seed`
    /// distinguishes flows of one job from those of another. None if there is no path.
    pub fn paths(&self, from: usize, to: usize, seed: u64, flows: u16) -> Option<Path> {
        // Only a hash distinguishes flows between the same two NICs.
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
            // All switches of a level are equally far: the paths are shortest.
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

/// The shortest path from a lane back to it.
fn circle(lane: Lane, next: &BTreeMap<Lane, BTreeSet<Lane>>) -> Option<Vec<Lane>> {
    let mut before: BTreeMap<Lane, Lane> = BTreeMap::new();
    let mut queue = VecDeque::from([lane]);
    while let Some(at) = queue.pop_front() {
        for to in next.get(&at).into_iter().flatten() {
            if *to == lane {
                let back = std::iter::successors(Some(at), |at| before.get(at).copied());
                return Some(back.collect());
            }
            if *to != lane && !before.contains_key(to) {
                before.insert(*to, at);
                queue.push_back(*to);
            }
        }
    }
    None
}

/// Cables to walk from each switch to one of them.
fn distances_to(switch: u32, hops: &[Vec<Hop>]) -> Vec<u8> {
    let mut distance = vec![UNREACHED; hops.len()];
    distance[switch as usize] = 0;
    let mut queue = VecDeque::from([switch]);
    while let Some(at) = queue.pop_front() {
        let next = distance[at as usize] + 1;
        // No fabric has a diameter of 255 hops; farther switches count as unreachable.
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
