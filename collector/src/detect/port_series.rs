//! Series of switches' ports by what the fabric calls the ports: found once, and kept while fabric and switch are the same.

use railscope_model::fabric::{Fabric, Neighbor};
use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_model::metric::Metric;

use super::detector::View;
use crate::store::per_node_cache::Kept;
use crate::store::{NodeHistory, Rows, Window};

/// A metric of ports, and the value of the label behind the port where it has one.
pub type OfPort = (&'static Metric, Option<&'static str>);

/// By port of one switch, in order: rows of its series.
type PortRows<const N: usize> = Vec<(u16, [Option<u32>; N])>;

/// Some series of every port of every switch.
#[derive(Debug)]
pub struct PortSeries<const N: usize> {
    wanted: [OfPort; N],
    /// Rests on fabric and rows.
    kept: Kept<(u64, [u64; N]), PortRows<N>>,
}

impl<const N: usize> PortSeries<N> {
    /// Nothing is known yet.
    pub fn new(wanted: [OfPort; N]) -> Self {
        Self {
            wanted,
            kept: Kept::default(),
        }
    }

    /// Begins a tick.
    pub fn refresh(&mut self, view: &View<'_>) {
        self.kept.begin();
        let wanted = self.wanted;
        for (switch, history) in view.history.fresh_switches(view.now) {
            let rests_on = wanted.map(|(metric, _)| history.rows_since(metric));
            self.kept.refresh(history, (view.epoch, rests_on), || {
                found(view, switch, history, wanted)
            });
        }
    }

    /// The series of a switch that was seen lately.
    pub fn of<'a>(&'a self, view: &View<'a>, switch: &SwitchName) -> Option<SwitchSeries<'a, N>> {
        let history = view.history.switch(switch)?;
        Some(SwitchSeries {
            ports: self.kept.of(history)?,
            wanted: self.wanted,
            rows: self.wanted.map(|(metric, _)| history.rows(metric)),
        })
    }
}

/// Some series of the ports of one switch.
#[derive(Debug, Clone, Copy)]
pub struct SwitchSeries<'a, const N: usize> {
    ports: &'a [(u16, [Option<u32>; N])],
    wanted: [OfPort; N],
    rows: [Option<Rows<'a>>; N],
}

impl<'a, const N: usize> SwitchSeries<'a, N> {
    /// The same without those of a metric, if all of them were constant lately.
    #[must_use]
    pub fn moving(mut self, metric: &Metric) -> Self {
        for (rows, (of, _)) in self.rows.iter_mut().zip(self.wanted) {
            *rows = rows.filter(|rows| *of != *metric || rows.any_moves());
        }
        self
    }

    /// The series of a port, in the order in which they are wanted.
    #[inline]
    pub fn of(&self, port: u16) -> [Option<Window<'a>>; N] {
        let place = self.ports.binary_search_by_key(&port, |(port, _)| *port);
        let mut windows = [None; N];
        if let Some((_, places)) = place.ok().and_then(|place| self.ports.get(place)) {
            for ((window, rows), row) in windows.iter_mut().zip(self.rows).zip(places) {
                *window = rows.zip(*row).and_then(|(rows, row)| rows.window(row));
            }
        }
        windows
    }
}

fn found<const N: usize>(
    view: &View<'_>,
    switch: &SwitchName,
    history: &NodeHistory,
    wanted: [OfPort; N],
) -> PortRows<N> {
    let mut ports: PortRows<N> = Vec::new();
    let Some(id) = view.fabric.find(&Part::Switch(switch.clone())) else {
        return ports;
    };
    for (place, (metric, behind)) in wanted.into_iter().enumerate() {
        let labels = history.rows(metric).into_iter().flat_map(Rows::labels);
        for (row, labels) in (0..).zip(labels) {
            let mut labels = labels.values();
            let port = labels.next().and_then(|name| name.parse::<PortName>().ok());
            let port = port.and_then(|port| view.fabric.find_port(id, &port));
            if let (Some(port), true) = (port, labels.next() == behind) {
                let known = ports.binary_search_by_key(&port, |(port, _)| *port);
                let at = known.unwrap_or_else(|at| {
                    ports.insert(at, (port, [None; N]));
                    at
                });
                ports[at].1[place] = Some(row);
            }
        }
    }
    ports.shrink_to_fit();
    ports
}

/// The cable at a port of a switch, and what is at its other end.
pub(crate) fn cable_at<'a>(
    fabric: &'a Fabric,
    switch: &SwitchName,
    port: &str,
) -> Option<Neighbor<'a>> {
    let id = fabric.find(&Part::Switch(switch.clone()))?;
    let port = fabric.find_port(id, &port.parse::<PortName>().ok()?)?;
    fabric.cables(id).find(|far| far.port == port)
}

/// The component of a switch's port: its cable, or the port itself if no cable is known.
pub(crate) fn link_at(fabric: &Fabric, switch: &SwitchName, port: &str) -> Option<Part> {
    match cable_at(fabric, switch, port) {
        Some(far) => fabric.cable_part(far.id),
        None => Some(Part::SwitchLink(switch.clone(), port.parse().ok()?)),
    }
}
