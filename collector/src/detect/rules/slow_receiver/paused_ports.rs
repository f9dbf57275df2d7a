//! Ethernet: NICs that pause the switch port before them, by the switch's own counter.

use std::collections::HashMap;

use railscope_model::fabric::{Equipment, PartId};
use railscope_model::identity::{Part, PortName, SwitchName};
use railscope_model::metric::{
    SWITCH_PORT_PFC_PAUSE_SECONDS, SWITCH_PORT_SPEED, SWITCH_PORT_TRANSMIT_BYTES,
};

use super::own_past::{BackPressure, OwnPast, Storms};
use super::pauses::{NOTHING, Pausing, far, is_narrow, pauses_idle, share, stalled_share};
use super::{Holds, MIN_PAUSE};
use crate::assemble::netdev::address_of;
use crate::detect::detector::View;
use crate::store::{NodeHistory, Window};

/// A switch port before a NIC, on one priority.
struct Port<'a> {
    history: &'a NodeHistory,
    switch: &'a SwitchName,
    nic: PartId,
    /// Its name and the priority.
    labels: [&'a str; 2],
    window: Window<'a>,
    /// Share of the time for which it was paused.
    share: f64,
}

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
    let ports = switches.filter_map(|(switch, history)| ports(view, switch, history));
    let ports: Vec<_> = ports.flatten().collect();
    let (usual, far) = far(&ports, |port| port.share);
    far.filter_map(|port| holds(view, port, usual, (past, storms)))
        .collect()
}

/// The ports of a switch before NICs, by priority, with how long they were paused; `None` of one without such ports.
fn ports<'a>(
    view: &View<'a>,
    switch: &'a SwitchName,
    history: &'a NodeHistory,
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
    let series = history.series(&SWITCH_PORT_PFC_PAUSE_SECONDS);
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
            share: share(window)?,
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
    let vertex = view.fabric.vertex(port.nic);
    let (Part::Nic(node, device), Equipment::Nic { pci, .. }) = (&vertex.part, &vertex.equipment)
    else {
        return None;
    };
    let [name, priority] = port.labels;
    let bytes = port.history.window(&SWITCH_PORT_TRANSMIT_BYTES, &[name]);
    let speed = port.history.value(&SWITCH_PORT_SPEED, &[name]);
    let carried = bytes.and_then(share).zip(speed);
    let nic = view.history.node(node);
    let nic = nic.filter(|nic| nic.is_current(view.now));
    let pci = pci.or_else(|| address_of(nic?, device));
    let pausing = Pausing {
        back_pressure: BackPressure {
            rate: port.share,
            counter: port.window,
            bytes,
        },
        receives_nothing: carried.is_some_and(|(bytes, speed)| bytes < NOTHING * speed),
        pauses_idle: bytes.is_some_and(|bytes| pauses_idle(port.window, &[vec![bytes]])),
        is_stormy: false,
        stalled: nic.and_then(|nic| stalled_share(nic, device)),
        has_narrow_link: nic.zip(pci).is_some_and(|(nic, pci)| is_narrow(nic, pci)),
    };
    let (storm, share) = pausing.classify((&vertex.part, priority), (past, storms), view.now)?;
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
