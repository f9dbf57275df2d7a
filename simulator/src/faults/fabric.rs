//! Faults of switches and of the cables between them.

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::Conditions;
use crate::faults::place::{Place, Target, cables_at};

/// The cable between two switches goes dark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkDown {}

impl UplinkDown {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((place.uplink(pick)?, Effect::UplinkDown(Self {})))
    }
}

impl Kind for UplinkDown {
    fn class(&self) -> &'static str {
        "uplink-down"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.uplink_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Cable(cable) = target {
            now.wiring.cables[cable].lit = false;
        }
    }

    fn sentence(&self) -> String {
        "goes dark".to_owned()
    }
}

/// The cable between two switches drops packets without any error counter: a gray failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkLossy {
    /// Share of the packets that are lost, up to 0.05.
    pub loss_ratio: f64,
}

impl UplinkLossy {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let lossy = Self { loss_ratio: 1e-3 };
        Some((place.uplink(pick)?, Effect::UplinkLossy(lossy)))
    }
}

impl Kind for UplinkLossy {
    fn class(&self) -> &'static str {
        "uplink-lossy"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(self.loss_ratio > 0.0 && self.loss_ratio <= 0.05) {
            return Err(format!(
                "found loss_ratio {}, expected more than 0 and at most 0.05",
                self.loss_ratio
            ));
        }
        place.uplink_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.loss_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Cable(cable) = target {
            now.losses.push((cable, self.loss_ratio));
            now.vanishing.push((cable, self.loss_ratio));
        }
    }

    fn sentence(&self) -> String {
        format!("loses {} % of its packets", self.loss_ratio * 100.0)
    }
}

/// The cable between two switches holds some packets up: its link trains again briefly, or a queue
/// stands before it. Few packets are delayed, so that no bandwidth is lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UplinkJitter {
    /// Share of the packets that are delayed, up to 0.5.
    pub packet_ratio: f64,
    /// For how long.
    pub seconds: f64,
}

impl UplinkJitter {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let jitter = Self {
            packet_ratio: 0.1,
            seconds: 1e-3,
        };
        Some((place.uplink(pick)?, Effect::UplinkJitter(jitter)))
    }
}

impl Kind for UplinkJitter {
    fn class(&self) -> &'static str {
        "uplink-jitter"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let Self {
            packet_ratio,
            seconds,
        } = *self;
        if !(packet_ratio > 0.0 && packet_ratio <= 0.5 && seconds > 0.0 && seconds < 0.1) {
            return Err(format!(
                "found {seconds} s for {packet_ratio} of the packets, expected at most 0.5 of them and less than 0.1 s"
            ));
        }
        place.uplink_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.packet_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Cable(cable) = target {
            now.delays.push((cable, self.packet_ratio, self.seconds));
        }
    }

    fn sentence(&self) -> String {
        format!(
            "delays {} % of its packets by {} ms",
            self.packet_ratio * 100.0,
            self.seconds * 1e3
        )
    }
}

/// A switch goes away with all of its links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchDown {}

impl SwitchDown {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((place.leaf(pick)?, Effect::SwitchDown(Self {})))
    }
}

impl Kind for SwitchDown {
    fn class(&self) -> &'static str {
        "switch-down"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.switch_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        let Target::Switch(switch) = target else {
            return;
        };
        let cables: Vec<usize> = cables_at(&now.wiring, switch).collect();
        for cable in cables {
            now.wiring.cables[cable].lit = false;
            if let Some(port) = now.ports.get_mut(cable) {
                port.speed = None;
            }
        }
    }

    fn sentence(&self) -> String {
        "fails with all of its links".to_owned()
    }

    fn replugs(&self) -> bool {
        true
    }
}
