//! Ethernet: NICs that pause the switch port before them, by the switch's own counter.

use std::collections::HashMap;

use railscope_model::fabric::{Equipment, PartId};
use railscope_model::identity::{NodeName, Part, PciAddress, PortName, RdmaDevice, SwitchName};
use railscope_model::metric::{
    Metric, SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
};

use super::own_past::{BackPressure, OwnPast, Storms};
use super::pauses::{NOTHING, Pausing, far, is_narrow, pauses_idle, share, stalled_share};
use super::{Holds, MIN_PAUSE};
use crate::assemble::netdev::address_of;
use crate::detect::detector::View;
use crate::store::{NodeHistory, Window};

/// A switch port before a NIC, on one priority.
pub(super) struct Port<'a> {
    history: &'a NodeHistory,
    switch: &'a SwitchName,
    nic: PartId,
    /// Its name and the priority.
    labels: [&'a str; 2],
    pub(super) window: Window<'a>,
    /// Rate of the counter: of one of pause, the share of the time for which it was paused.
    pub(super) rate: f64,
}

impl<'a> Port<'a> {
    /// Bytes a second.
    pub(super) fn speed(&self) -> Option<f64> {
        self.history.value(&SWITCH_PORT_SPEED, &[self.labels[0]])
    }

    /// The NIC's node, device, PCI address, and the node's history if that is current.
    pub(super) fn nic(&self, view: &View<'a>) -> Option<Nic<'a>> {
        let vertex = view.fabric.vertex(self.nic);
        let (Part::Nic(node, device), Equipment::Nic { pci, .. }) =
            (&vertex.part, &vertex.equipment)
        else {
            return None;
        };
        let history = view.history.node(node);
        let history = history.filter(|history| history.is_current(view.now));
        let pci = pci.or_else(|| address_of(history?, device));
        Some((node, device, pci, history))
    }
}

type Nic<'a> = (
    &'a NodeName,
    &'a RdmaDevice,
    Option<PciAddress>,
    Option<&'a NodeHistory>,
);

/// NICs that pause their switch ports.
pub(super) fn pausing<'a>(
    view: &View<'a>,
    past: &mut OwnPast,
    storms: &mut Storms,
) -> Vec<Holds<'a>> {
    past.forget(view.now);
    let mut switches = view.history.fresh_switches(view.now);
    let is_paused = |(_, history): (_, &'a NodeHistory)| {
        let mut moving = history.moving(&SWITCH_PORT_PFC_PAUSE_SECONDS);
        moving.any(|(_, window)| share(window).is_some_and(|share| share > MIN_PAUSE))
    };
    if !switches.any(is_paused) {
        return Vec::new();
    }
    let switches = view.history.fresh_switches(view.now);
    let metric = &SWITCH_PORT_PFC_PAUSE_SECONDS;
    let ports = switches.filter_map(|(switch, history)| ports(view, switch, history, metric));
    let ports: Vec<_> = ports.flatten().collect();
    let (usual, far) = far(&ports, |port| port.rate);
    far.filter_map(|port| holds(view, port, usual, (past, storms)))
        .collect()
}

/// The ports of a switch before NICs, by priority, with a counter of the pause that they receive; `None` of one without such ports.
pub(super) fn ports<'a>(
    view: &View<'a>,
    switch: &'a SwitchName,
    history: &'a NodeHistory,
    metric: &'static Metric,
) -> Option<Vec<Port<'a>>> {
    let part = view.fabric.find(&Part::Switch(switch.clone()))?;
    let cables = view.fabric.cables(part);
    let nics: HashMap<u16, PartId> = cables
        .filter(|near| matches!(view.fabric.vertex(near.peer).part, Part::Nic(..)))
        .map(|near| (near.port, near.peer))
        .collect();
    if nics.is_empty() {
        return None;
    }
    let series = history.series(metric);
    let ports = series.filter_map(|(labels, window)| {
        let mut labels = labels.values();
        let (name, priority) = (labels.next()?, labels.next()?);
        if labels.next() != Some("receive") {
            return None;
        }
        let port = view
            .fabric
            .find_port(part, &name.parse::<PortName>().ok()?)?;
        Some(Port {
            history,
            switch,
            nic: *nics.get(&port)?,
            labels: [name, priority],
            window,
            rate: share(window)?,
        })
    });
    Some(ports.collect())
}

fn holds<'a>(
    view: &View<'a>,
    port: &Port<'a>,
    usual: f64,
    (past, storms): (&mut OwnPast, &mut Storms),
) -> Option<Holds<'a>> {
    let (node, device, pci, nic) = port.nic(view)?;
    let [name, priority] = port.labels;
    let bytes = port.history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[name]);
    let carried = bytes.and_then(share).zip(port.speed());
    let pausing = Pausing {
        back_pressure: BackPressure {
            rate: port.rate,
            counter: port.window,
            bytes,
        },
        receives_nothing: carried.is_some_and(|(bytes, speed)| bytes < NOTHING * speed),
        pauses_idle: bytes.is_some_and(|bytes| pauses_idle(port.window, &[vec![bytes]])),
        is_stormy: false,
        stalled: nic.and_then(|nic| stalled_share(nic, device)),
        has_narrow_link: nic.zip(pci).is_some_and(|(nic, pci)| is_narrow(nic, pci)),
    };
    let (storm, share) = pausing.classify(
        (&view.fabric.vertex(port.nic).part, priority),
        (past, storms),
        view.now,
    )?;
    Some(Holds {
        node,
        words: format!(
            "Port {name} of {} is paused by {device} of {node} {:.0} % of the time on priority {priority}; the median port before a NIC is paused {:.1} %",
            port.switch,
            100.0 * share,
            100.0 * usual
        ),
        device: device.clone(),
        pci,
        signal: &SWITCH_PORT_PFC_PAUSE_SECONDS,
        share: Some(share.min(1.0)),
        ticks: 0.0,
        storm,
    })
}
