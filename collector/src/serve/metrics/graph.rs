//! The fabric as a graph of bounded size for Grafana's node graph: as fine as its series are allowed to be many.

use std::collections::BTreeMap;

use railscope_model::metric::{GRAPH_EDGE, GRAPH_EDGE_LOST, GRAPH_VERTEX, GRAPH_VERTEX_FAULTY};
use railscope_model::reading::{Labels, NodeReading};

use crate::serve::layout::{Condition, Health, Layout, Switch, tier_name};

/// Granularity of a vertex, from fine to coarse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grain {
    /// A switch; the nodes of a unit.
    Switch,
    /// The leaves of a unit, its nodes; above them a tier.
    Unit,
    /// A tier; all nodes.
    Tier,
}

/// Series of a vertex, and of an edge.
const SERIES_EACH: usize = 2;
const NODES: &str = "nodes";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Vertex {
    id: String,
    title: String,
    tier: &'static str,
}

/// Parts and those of them that are ill; cables and those that are lost.
type Pair = [u64; 2];

/// Vertices by number, so that a cable costs no text.
#[derive(Debug, Default)]
struct Graph {
    vertices: Vec<(Vertex, Pair)>,
    numbers: BTreeMap<Vertex, usize>,
    edges: BTreeMap<[usize; 2], Pair>,
}

impl Graph {
    fn series(&self) -> usize {
        SERIES_EACH * (self.vertices.len() + self.edges.len())
    }

    fn of(layout: &Layout, grain: Grain) -> Self {
        let mut graph = Self::default();
        let hosts = layout.hosts.iter();
        let hosts: Vec<usize> = hosts
            .map(|host| graph.part(of_nodes(layout, host.unit, grain), host.worst()))
            .collect();
        let switches = layout.switches.iter();
        let switches: Vec<usize> = switches
            .map(|switch| graph.part(of_switch(layout, switch, grain), switch.condition))
            .collect();
        for (place, switch) in layout.switches.iter().enumerate() {
            for (host, nic) in &switch.hosts {
                let uplinks = layout.hosts[*host].nics[*nic].uplinks.iter();
                for uplink in uplinks.filter(|uplink| uplink.switch == place) {
                    let cables = if uplink.present { [1, 0] } else { [0, 1] };
                    graph.edge([hosts[*host], switches[place]], cables);
                }
            }
            for trunk in &switch.trunks {
                let upper = (layout.switches[trunk.switch].tier, trunk.switch);
                // Each pair of switches has a trunk at both.
                if (switch.tier, place) < upper {
                    let cables = [trunk.present as u64, trunk.lost as u64];
                    graph.edge([switches[place], switches[trunk.switch]], cables);
                }
            }
        }
        graph
    }

    /// Adds a part to its vertex, and returns the vertex's number.
    fn part(&mut self, vertex: Vertex, condition: Condition) -> usize {
        let next = self.vertices.len();
        let number = *self.numbers.entry(vertex.clone()).or_insert(next);
        if number == next {
            self.vertices.push((vertex, [0, 0]));
        }
        let parts = &mut self.vertices[number].1;
        parts[0] += 1;
        parts[1] += u64::from(condition.health >= Health::Degraded);
        number
    }

    fn edge(&mut self, ends: [usize; 2], cables: Pair) {
        if ends[0] != ends[1] {
            let known = self.edges.entry(ends).or_default();
            (known[0], known[1]) = (known[0] + cables[0], known[1] + cables[1]);
        }
    }
}

fn of_nodes(layout: &Layout, unit: Option<usize>, grain: Grain) -> Vertex {
    let unit = unit.filter(|_| grain != Grain::Tier);
    let name = unit.map_or("all", |unit| &layout.units[unit].name);
    Vertex {
        id: format!("{NODES}/{name}"),
        title: if unit.is_some() {
            name.to_owned()
        } else {
            NODES.to_owned()
        },
        tier: NODES,
    }
}

fn of_switch(layout: &Layout, switch: &Switch, grain: Grain) -> Vertex {
    let tier = tier_name(switch.tier, layout.levels());
    let unit = switch.unit.filter(|_| grain == Grain::Unit);
    let (id, title) = match (grain, unit) {
        (Grain::Switch, _) => (format!("switch/{}", switch.name), switch.name.to_string()),
        (_, Some(unit)) => {
            let name = &layout.units[unit].name;
            (format!("{tier}/{name}"), format!("{name} {tier}"))
        }
        _ => (format!("tier/{}", switch.tier), tier.to_owned()),
    };
    Vertex { id, title, tier }
}

/// Exports the finest graph within that number of series; with 0, none.
pub(crate) fn push(reading: &mut NodeReading, layout: &Layout, most: usize) {
    let finest = [Grain::Switch, Grain::Unit, Grain::Tier]
        .into_iter()
        // What cannot fit is not made first: of 100,000 GPUs it would be a graph of millions.
        .filter(|grain| *grain != Grain::Switch || SERIES_EACH * layout.switches.len() <= most)
        .map(|grain| Graph::of(layout, grain))
        .find(|graph| graph.series() <= most);
    let Some(graph) = finest else { return };
    for (vertex, [parts, faulty]) in &graph.vertices {
        let labels = Labels::new([&vertex.id, &vertex.title, vertex.tier]);
        reading.push(&GRAPH_VERTEX, &labels, *parts);
        reading.push(&GRAPH_VERTEX_FAULTY, &labels, *faulty);
    }
    for (ends, [cables, lost]) in &graph.edges {
        let labels = Labels::new(ends.map(|end| &graph.vertices[end].0.id));
        reading.push(&GRAPH_EDGE, &labels, *cables);
        reading.push(&GRAPH_EDGE_LOST, &labels, *lost);
    }
}
