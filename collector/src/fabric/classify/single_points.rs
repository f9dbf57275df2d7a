//! Single points of failure: switches and cables without which hosts are cut off from most others.
//!
//! Bridges and articulation points by depth-first search (Tarjan 1972; Hopcroft and Tarjan 1973), with an
//! explicit stack instead of recursion, and distinguished by the edge that led to a vertex, not by the
//! vertex: of two parallel cables neither is a bridge.

use railscope_model::fabric::{Fabric, PartId};

use super::structure::{MAX_SINGLE_POINTS, SinglePoint, SinglePoints};
use crate::fabric::graph::frozen::Graph;

const NONE: u32 = u32::MAX;

/// Hosts cut off by the loss of each vertex and of each edge.
#[derive(Debug, Default)]
struct Cuts {
    vertices: Vec<u32>,
    edges: Vec<u32>,
}

/// Search state of a vertex.
#[derive(Debug, Clone, Copy)]
struct Visit {
    /// Its number in the order of the search.
    found: u32,
    /// The earliest vertex that its subtree is joined to.
    low: u32,
    /// Hosts in its subtree, itself included.
    hosts: u32,
    /// Hosts in those parts of its subtree that only it joins to the rest: all, and in the largest.
    detached: (u32, u32),
    /// The edge that led to it.
    by: u32,
    /// The first vertex of its network.
    root: u32,
}

const UNSEEN: Visit = Visit {
    found: NONE,
    low: NONE,
    hosts: 0,
    detached: (0, 0),
    by: NONE,
    root: NONE,
};

struct Search<'a> {
    graph: &'a Graph,
    visits: Vec<Visit>,
    found: u32,
    /// Vertices on the current path, and the place in the row of each.
    way: Vec<(u32, u32)>,
}

impl Search<'_> {
    fn is_host(&self, vertex: usize) -> bool {
        vertex >= self.graph.switches
    }

    fn enter(&mut self, vertex: u32, by: u32, root: u32) {
        self.visits[vertex as usize] = Visit {
            found: self.found,
            low: self.found,
            hosts: u32::from(self.is_host(vertex as usize)),
            by,
            root,
            ..UNSEEN
        };
        self.found += 1;
        self.way.push((vertex, 0));
    }

    fn walk_from(&mut self, root: u32) {
        self.enter(root, NONE, root);
        while let Some((vertex, place)) = self.way.last().copied() {
            let row = self.graph.row(vertex as usize);
            let Some(near) = row.get(place as usize).copied() else {
                self.way.pop();
                self.leave(vertex);
                continue;
            };
            if let Some(last) = self.way.last_mut() {
                last.1 += 1;
            }
            if near.edge == self.visits[vertex as usize].by {
                continue;
            }
            let peer = self.visits[near.peer as usize].found;
            if peer == NONE {
                self.enter(near.peer, near.edge, root);
            } else {
                let own = &mut self.visits[vertex as usize];
                own.low = own.low.min(peer);
            }
        }
    }

    /// Passes the result of this vertex's subtree to the vertex before.
    fn leave(&mut self, vertex: u32) {
        let Some((before, _)) = self.way.last().copied() else {
            return;
        };
        let own = self.visits[vertex as usize];
        let before = &mut self.visits[before as usize];
        before.low = before.low.min(own.low);
        before.hosts += own.hosts;
        if own.low >= before.found {
            before.detached.0 += own.hosts;
            before.detached.1 = before.detached.1.max(own.hosts);
        }
    }
}

fn cuts(graph: &Graph) -> Cuts {
    let mut search = Search {
        graph,
        visits: vec![UNSEEN; graph.vertices()],
        found: 0,
        way: Vec::new(),
    };
    for vertex in 0..graph.vertices() {
        if search.visits[vertex].found == NONE {
            search.walk_from(vertex as u32);
        }
    }
    let mut cuts = Cuts {
        vertices: vec![0; graph.vertices()],
        edges: vec![0; graph.ends.len()],
    };
    for (vertex, visit) in search.visits.iter().enumerate() {
        let all = search.visits[visit.root as usize].hosts;
        let own = u32::from(search.is_host(vertex));
        let rest = all - visit.detached.0 - own;
        // The first vertex of the search has nothing but detached parts.
        cuts.vertices[vertex] = all - own - rest.max(visit.detached.1);
        if visit.by != NONE && visit.low == visit.found {
            cuts.edges[visit.by as usize] = visit.hosts.min(all - visit.hosts);
        }
    }
    cuts
}

/// Switches and cables that cut off hosts, the worst of them by name.
pub(crate) fn single_points(graph: &Graph, fabric: &Fabric, switches: &[PartId]) -> SinglePoints {
    let cuts = cuts(graph);
    let of_switches = (0..graph.switches).filter(|switch| cuts.vertices[*switch] > 0);
    let of_trunks = (0..graph.trunks).filter(|edge| cuts.edges[*edge] > 0);
    let mut worst: Vec<SinglePoint> = of_switches
        .clone()
        .map(|switch| {
            (
                fabric.vertex(switches[switch]).part.clone(),
                cuts.vertices[switch],
            )
        })
        .chain(
            of_trunks
                .clone()
                .filter_map(|edge| Some((fabric.cable_part(graph.links[edge])?, cuts.edges[edge]))),
        )
        .map(|(part, hosts)| SinglePoint {
            part,
            hosts: hosts as usize,
        })
        .collect();
    worst.sort_by(|a, b| b.hosts.cmp(&a.hosts).then_with(|| a.part.cmp(&b.part)));
    worst.truncate(MAX_SINGLE_POINTS);
    SinglePoints {
        switches: of_switches.count(),
        trunks: of_trunks.count(),
        single_homed: (graph.trunks..graph.ends.len())
            .filter(|edge| cuts.edges[*edge] > 0)
            .count(),
        worst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Switches are named by letters, hosts by digits; each pair of characters is a cable.
    fn check(text: &str, vertices: &[(char, u32)], edges: &[(&str, u32)]) {
        let cables: Vec<Vec<char>> = text.split(' ').map(|pair| pair.chars().collect()).collect();
        let mut names: Vec<char> = cables.iter().flatten().copied().collect();
        names.sort_unstable_by_key(|name| (name.is_ascii_digit(), *name));
        names.dedup();
        let number = |name: &char| names.iter().position(|own| own == name).unwrap_or(0) as u32;
        let ends: Vec<[u32; 2]> = cables
            .iter()
            .map(|pair| [number(&pair[0]), number(&pair[1])])
            .collect();
        let switches = names.iter().filter(|name| name.is_alphabetic()).count();
        let graph = Graph::new(switches, names.len(), &ends);
        let cuts = cuts(&graph);
        let found: Vec<(char, u32)> = names[..switches]
            .iter()
            .copied()
            .zip(cuts.vertices)
            .filter(|(_, hosts)| *hosts > 0)
            .collect();
        assert_eq!(found, vertices, "{text}");
        let found: Vec<(&str, u32)> = text
            .split(' ')
            .zip(cuts.edges)
            .filter(|(_, hosts)| *hosts > 0)
            .collect();
        assert_eq!(found, edges, "{text}");
    }

    #[test]
    fn a_part_is_a_single_point_when_hosts_hang_by_it() {
        // A leaf with two hosts by one cable to a spine that joins two others.
        check(
            "1a 2a as 3b 4b 5b bs",
            &[('a', 2), ('b', 3), ('s', 2)],
            &[
                ("1a", 1),
                ("2a", 1),
                ("as", 2),
                ("3b", 1),
                ("4b", 1),
                ("5b", 1),
                ("bs", 2),
            ],
        );
    }

    #[test]
    fn of_parallel_cables_none_is_a_single_point() {
        check(
            "1a 2b ab ab",
            &[('a', 1), ('b', 1)],
            &[("1a", 1), ("2b", 1)],
        );
    }

    #[test]
    fn hosts_on_two_leaves_hang_by_neither() {
        check("1a 1b 2a 2b 3a 3b as bs", &[], &[]);
    }

    #[test]
    fn a_ring_has_no_single_point_and_what_hangs_on_it_has() {
        check(
            "ab bc ca 1a 1b 2c 2a dc 3d 4d",
            &[('c', 2), ('d', 2)],
            &[("dc", 2), ("3d", 1), ("4d", 1)],
        );
    }

    #[test]
    fn a_way_of_a_hundred_thousand_switches_needs_no_deep_stack() {
        let switches = 100_000;
        let mut ends: Vec<[u32; 2]> = (1..switches).map(|n| [n - 1, n]).collect();
        ends.extend([[0, switches], [switches - 1, switches + 1]]);
        let graph = Graph::new(switches as usize, switches as usize + 2, &ends);
        let cuts = cuts(&graph);
        assert!(
            cuts.vertices[..switches as usize]
                .iter()
                .all(|hosts| *hosts == 1)
        );
        assert!(cuts.edges.iter().all(|hosts| *hosts == 1));
    }
}
