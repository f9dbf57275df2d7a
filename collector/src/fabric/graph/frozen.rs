//! The frozen graph that every analysis walks: switches and hosts by number, each cable an edge, in compressed rows.

use railscope_model::fabric::LinkId;

use crate::fabric::graph::index::Survey;

/// One cable seen from one of its ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    /// The vertex at the far end.
    pub(crate) peer: u32,
    /// The cable.
    pub(crate) edge: u32,
}

/// Switches are the vertices from 0, hosts follow them. Parallel cables are separate edges; cables
/// from a switch to itself are omitted: they join nothing.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// Where the row of each vertex begins, and the end of the last.
    rows: Vec<u32>,
    near: Vec<Near>,
    /// Ends of each edge: cables between switches first, then those to hosts.
    pub(crate) ends: Vec<[u32; 2]>,
    /// The link that each edge is.
    pub(crate) links: Vec<LinkId>,
    /// Switches among the vertices.
    pub(crate) switches: usize,
    /// Edges between two switches.
    pub(crate) trunks: usize,
}

impl Graph {
    pub(crate) fn of(survey: &Survey<'_>) -> Self {
        let switches = survey.switches.len();
        let host = |end: u32| switches as u32 + end;
        let trunks = survey.trunks.iter().map(|cable| (cable.id, cable.ends));
        let drops = survey
            .drops
            .iter()
            .map(|cable| (cable.id, [cable.ends[0], host(cable.ends[1])]));
        let (links, ends): (Vec<_>, Vec<_>) = trunks.chain(drops).unzip();
        Self {
            links,
            ..Self::new(switches, switches + survey.hosts.len(), &ends)
        }
    }

    /// A graph of so many switches among so many vertices; cables between switches come first. Its edges
    /// are no links.
    pub(crate) fn new(switches: usize, vertices: usize, ends: &[[u32; 2]]) -> Self {
        let (rows, near) = compress(vertices, ends);
        let is_trunk = |ends: &&[u32; 2]| ends.iter().all(|end| (*end as usize) < switches);
        Self {
            rows,
            near,
            trunks: ends.iter().filter(is_trunk).count(),
            ends: ends.to_vec(),
            links: Vec::new(),
            switches,
        }
    }

    /// Number of vertices.
    pub(crate) fn vertices(&self) -> usize {
        self.rows.len().saturating_sub(1)
    }

    /// Cables at a vertex: those to switches first, as the edges are numbered.
    pub(crate) fn row(&self, vertex: usize) -> &[Near] {
        &self.near[self.rows[vertex] as usize..self.rows[vertex + 1] as usize]
    }

    /// Cables of a switch to other switches.
    pub(crate) fn trunks_of(&self, switch: usize) -> &[Near] {
        let row = self.row(switch);
        let hosts = row.partition_point(|near| (near.edge as usize) < self.trunks);
        &row[..hosts]
    }

    /// Cables of a switch to hosts.
    pub(crate) fn drops_of(&self, switch: usize) -> &[Near] {
        &self.row(switch)[self.trunks_of(switch).len()..]
    }

    /// The edge of a link, found from one of its ends.
    pub(crate) fn edge_at(&self, vertex: usize, link: LinkId) -> Option<usize> {
        let row = self.row(vertex).iter();
        row.map(|near| near.edge as usize)
            .find(|edge| self.links[*edge] == link)
    }
}

/// Rows of all vertices by one counting sort: within a row, edges keep their order.
fn compress(vertices: usize, ends: &[[u32; 2]]) -> (Vec<u32>, Vec<Near>) {
    let mut rows = vec![0u32; vertices + 1];
    for end in ends.iter().flatten() {
        rows[*end as usize + 1] += 1;
    }
    for vertex in 0..vertices {
        rows[vertex + 1] += rows[vertex];
    }
    let mut free = rows.clone();
    let mut near = vec![Near { peer: 0, edge: 0 }; ends.len() * 2];
    for (edge, [a, b]) in (0u32..).zip(ends) {
        for (own, peer) in [(*a, *b), (*b, *a)] {
            let slot = &mut free[own as usize];
            near[*slot as usize] = Near { peer, edge };
            *slot += 1;
        }
    }
    (rows, near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_both_ends_of_every_edge_in_order_and_parallel_ones_twice() {
        let ends = [[0, 1], [2, 1], [0, 1], [3, 0]];
        let (rows, near) = compress(5, &ends);
        let row = |vertex: usize| -> Vec<(u32, u32)> {
            near[rows[vertex] as usize..rows[vertex + 1] as usize]
                .iter()
                .map(|near| (near.peer, near.edge))
                .collect()
        };
        assert_eq!(row(0), [(1, 0), (1, 2), (3, 3)]);
        assert_eq!(row(1), [(0, 0), (2, 1), (0, 2)]);
        assert_eq!(row(2), [(1, 1)]);
        assert_eq!(row(3), [(0, 3)]);
        assert_eq!(row(4), []);
    }
}
