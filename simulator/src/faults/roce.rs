//! Faults that only a lossless Ethernet has.

use std::collections::BTreeSet;

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::{Conditions, Receive};
use crate::faults::place::{Place, Target, cables_at};
use crate::spec::Transport;
use crate::traffic::router::{Lane, Router, Routing};
use crate::wiring::{Device, Wiring};

/// Nothing, if the cables carry Ethernet; else why it cannot be.
fn on_ethernet(place: &Place<'_>) -> Result<(), String> {
    match place.transport {
        Transport::Roce => Ok(()),
        Transport::Infiniband => Err("expected transport roce: InfiniBand has no pause".to_owned()),
        Transport::Efa => Err("expected transport roce: EFA has no pause".to_owned()),
    }
}

/// Some NIC of an Ethernet.
fn some_nic(place: &Place<'_>, pick: Pick) -> Option<Part> {
    on_ethernet(place).ok()?;
    let nic = place.nic(pick)?;
    Some(Part::Nic(nic.node_name.clone(), nic.device.clone()))
}

/// The receive pipe of a NIC is stuck: it takes nothing and pauses its switch without end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfcStorm {}

impl PfcStorm {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((some_nic(place, pick)?, Effect::PfcStorm(Self {})))
    }
}

impl Kind for PfcStorm {
    fn class(&self) -> &'static str {
        "pfc-storm"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        on_ethernet(place)?;
        place.nic_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            now.ports[nic].receive = Receive::Stuck;
        }
    }

    fn sentence(&self) -> String {
        "accepts no packets and pauses its switch continuously".to_owned()
    }
}

/// The interface of a NIC takes smaller packets than the others send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MtuMismatch {
    /// Its MTU in bytes, 576 to 4096: RoCE sends 4 KiB and headers.
    pub mtu: u32,
}

impl MtuMismatch {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let usual = Self { mtu: 1500 };
        Some((some_nic(place, pick)?, Effect::MtuMismatch(usual)))
    }
}

impl Kind for MtuMismatch {
    fn class(&self) -> &'static str {
        "mtu-mismatch"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        on_ethernet(place)?;
        if !(576..=4096).contains(&self.mtu) {
            return Err(format!("found mtu {}, expected 576 to 4096", self.mtu));
        }
        place.nic_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            now.ports[nic].receive = Receive::TooLong(self.mtu);
        }
    }

    fn sentence(&self) -> String {
        format!("accepts no packet of more than {} bytes", self.mtu)
    }
}

/// The hash by which a switch chooses among its uplinks uses only a part of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcmpPolarized {
    /// Share of its uplinks that it uses, more than 0 and less than 1; rounded up to whole ones.
    pub uplink_share: f64,
}

impl EcmpPolarized {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let part = place.leaf(pick)?;
        // As if two switches in a row used the same two bits of the hash.
        let quarter = Self { uplink_share: 0.25 };
        quarter.target(&part, place).ok()?;
        Some((part, Effect::EcmpPolarized(quarter)))
    }

    /// Uplinks that are used of so many.
    fn used(&self, uplinks: usize) -> usize {
        (uplinks as f64 * self.uplink_share).ceil() as usize
    }
}

/// Cables from a switch to those above it.
fn uplinks_of(wiring: &Wiring, switch: usize) -> usize {
    let lower = |cable: &usize| wiring.cables[*cable].ends[0].0 == Device::Switch(switch);
    cables_at(wiring, switch).filter(lower).count()
}

impl Kind for EcmpPolarized {
    fn class(&self) -> &'static str {
        "ecmp-polarized"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        on_ethernet(place)?;
        if place.routing != Routing::Ecmp {
            return Err("expected routing ecmp: others have no hash".to_owned());
        }
        let target = place.switch_named(part)?;
        let count = match target {
            Target::Switch(switch) => uplinks_of(place.plan, switch),
            _ => 0,
        };
        if !(self.uplink_share > 0.0 && self.used(count) < count) {
            return Err(format!(
                "found uplink_share {}, expected more than 0 and fewer than all of its {count} uplinks",
                self.uplink_share
            ));
        }
        Ok(target)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.uplink_share
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Switch(switch) = target {
            let used = self.used(uplinks_of(&now.wiring, switch));
            now.polarized.push((switch, used));
        }
    }

    fn sentence(&self) -> String {
        format!(
            "sends all of its flows over {} % of its uplinks",
            self.uplink_share * 100.0
        )
    }
}

/// A switch discards packets of the lossless priority instead of pausing their senders: its buffers are
/// configured for another priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchQos {
    /// Share of the packets through it that are lost, up to 0.05.
    pub loss_ratio: f64,
}

impl SwitchQos {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        on_ethernet(place).ok()?;
        let lossy = Self { loss_ratio: 1e-3 };
        Some((place.leaf(pick)?, Effect::SwitchQos(lossy)))
    }
}

impl Kind for SwitchQos {
    fn class(&self) -> &'static str {
        "switch-qos"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        on_ethernet(place)?;
        if !(self.loss_ratio > 0.0 && self.loss_ratio <= 0.05) {
            return Err(format!(
                "found loss_ratio {}, expected more than 0 and at most 0.05",
                self.loss_ratio
            ));
        }
        place.switch_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.loss_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Switch(switch) = target {
            // A packet arrives on one of its cables and leaves on another: half of it at each.
            let cables = cables_at(&now.wiring, switch).map(|cable| (cable, self.loss_ratio / 2.0));
            let cables: Vec<_> = cables.collect();
            for (cable, _) in &cables {
                let lower = now.wiring.cables[*cable].ends[0].0 == Device::Switch(switch);
                let sends = if lower {
                    Lane::up(*cable)
                } else {
                    Lane::down(*cable)
                };
                now.discards.push((sends, self.loss_ratio));
            }
            now.losses.extend(cables);
        }
    }

    fn sentence(&self) -> String {
        format!(
            "discards {} % of the packets that should be lossless",
            self.loss_ratio * 100.0
        )
    }
}

/// A cyclic buffer dependency: each switch waits for the next one to drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfcDeadlock {}

impl PfcDeadlock {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let part = place.leaf(pick)?;
        Self {}.target(&part, place).ok()?;
        Some((part, Effect::PfcDeadlock(Self {})))
    }
}

impl Kind for PfcDeadlock {
    fn class(&self) -> &'static str {
        "pfc-deadlock"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        on_ethernet(place)?;
        if matches!(place.routing, Routing::Static | Routing::Minhop) {
            return Err(
                "expected routing adaptive or ecmp: the circle of others is not looked for"
                    .to_owned(),
            );
        }
        let target = place.switch_named(part)?;
        let router = Router::new(place.plan, place.routing);
        match target {
            Target::Switch(switch) if router.circle_through(switch).is_some() => Ok(target),
            _ => Err(
                "expected a switch on a circle of cables that wait for each other: shortest paths that go up and then down have none, those of a dragonfly may"
                    .to_owned(),
            ),
        }
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Switch(switch) = target {
            let router = Router::new(&now.wiring, Routing::Adaptive);
            let circle = router.circle_through(switch).unwrap_or_default();
            now.deadlocked.extend(circle);
        }
    }

    fn sentence(&self) -> String {
        "is part of a cyclic buffer dependency: switches that pause each other permanently"
            .to_owned()
    }

    /// The other switches of the cycle: all of them are equally faulty.
    fn accomplices(&self, target: Target, place: &Place<'_>) -> Vec<Part> {
        let Target::Switch(own) = target else {
            return Vec::new();
        };
        let circle = Router::new(place.plan, Routing::Adaptive).circle_through(own);
        let ends = circle.unwrap_or_default().into_iter().flat_map(|lane| {
            let ends = place.plan.cables[lane.cable()].ends;
            ends.map(|(device, _)| device)
        });
        let switches: BTreeSet<usize> = ends
            .filter_map(|device| match device {
                Device::Switch(switch) if switch != own => Some(switch),
                _ => None,
            })
            .collect();
        let name = |switch: usize| place.plan.switches[switch].name.clone();
        switches
            .into_iter()
            .map(|switch| Part::Switch(name(switch)))
            .collect()
    }
}
