//! Faults of the cables at hosts.

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick, as_text};
use crate::conditions::Conditions;
use crate::faults::place::{Place, Target};

/// The link of a NIC's port is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDown {}

impl PortDown {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((place.nic(pick)?.link_part(), Effect::PortDown(Self {})))
    }
}

impl Kind for PortDown {
    fn class(&self) -> &'static str {
        "port-down"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.host_cable(part).map(Target::Nic)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            now.ports[nic].speed = None;
        }
    }

    fn sentence(&self) -> String {
        "goes dark".to_owned()
    }

    fn replugs(&self) -> bool {
        true
    }
}

/// The link of a NIC's port flaps: an optic that is not well seated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortFlapping {
    /// Time from one loss to the next.
    pub every_seconds: f64,
    /// Time for which the link is away each time.
    pub down_seconds: f64,
}

impl PortFlapping {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        // Retraining takes seconds; a marginal optic drops a few times an hour to a few times a minute.
        let flapping = Self {
            every_seconds: 40.0,
            down_seconds: 4.0,
        };
        Some((place.nic(pick)?.link_part(), Effect::PortFlapping(flapping)))
    }
}

impl Kind for PortFlapping {
    fn class(&self) -> &'static str {
        "port-flapping"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(self.down_seconds > 0.0 && self.every_seconds > self.down_seconds) {
            return Err(format!(
                "found {} s down every {} s, expected more than 0 and less than all of the time",
                self.down_seconds, self.every_seconds
            ));
        }
        place.host_cable(part).map(Target::Nic)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.down_seconds / self.every_seconds
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        PortDown {}.apply(target, now);
    }

    fn sentence(&self) -> String {
        format!(
            "goes dark for {} s every {} s",
            self.down_seconds, self.every_seconds
        )
    }

    fn replugs(&self) -> bool {
        true
    }

    fn period(&self) -> Option<(f64, f64)> {
        Some((self.every_seconds, self.down_seconds))
    }
}

/// The link of a NIC's port comes up narrower or slower.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortDegraded {
    /// Width and speed that are left, such as `1xNDR` or `4xHDR`.
    #[serde(with = "as_text")]
    pub rate: LinkSpeed,
}

impl PortDegraded {
    const NOT_ON_EFA: &str = "a device of EFA has the rate that its driver reports";

    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        place.not_on_efa(Self::NOT_ON_EFA).ok()?;
        let part = place.nic(pick)?.link_part();
        let rate = LinkSpeed {
            lanes: 1,
            ..place.plan.cables[place.plan.cable_named(&part)?].speed
        };
        Some((part, Effect::PortDegraded(Self { rate })))
    }
}

impl Kind for PortDegraded {
    fn class(&self) -> &'static str {
        "port-degraded"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.not_on_efa(Self::NOT_ON_EFA)?;
        let nic = place.host_cable(part)?;
        let (rate, healthy) = (self.rate, place.plan.cables[nic].speed);
        if rate.bytes_per_second() >= healthy.bytes_per_second() {
            return Err(format!("found rate {rate}, expected less than {healthy}"));
        }
        Ok(Target::Nic(nic))
    }

    fn severity(&self, healthy: &Healthy) -> f64 {
        1.0 - self.rate.bytes_per_second() / healthy.cable.bytes_per_second()
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            // A port that is down stays down.
            now.ports[nic].speed = now.ports[nic].speed.map(|_| self.rate);
            now.wiring.cables[nic].speed = self.rate;
        }
    }

    fn sentence(&self) -> String {
        format!("comes up at {}", self.rate)
    }

    fn replugs(&self) -> bool {
        true
    }
}

/// The cable at a NIC's port corrupts data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkErrors {
    /// Symbols that error correction gave up on, per second.
    pub symbol_errors_per_second: f64,
}

impl LinkErrors {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let errors = Self {
            symbol_errors_per_second: 120.0,
        };
        Some((place.nic(pick)?.link_part(), Effect::LinkErrors(errors)))
    }

    const fn rates(&self) -> ErrorRates {
        ErrorRates::of(self.symbol_errors_per_second)
    }
}

impl Kind for LinkErrors {
    fn class(&self) -> &'static str {
        "link-errors"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let rate = self.symbol_errors_per_second;
        if !(rate.is_finite() && rate > 0.0) {
            return Err(format!(
                "found {rate} symbol errors per second, expected more than 0"
            ));
        }
        place.host_cable(part).map(Target::Nic)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.rates().goodput()
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            now.ports[nic].errors = Some(self.rates());
        }
    }

    fn sentence(&self) -> String {
        format!(
            "corrupts {} symbols per second",
            self.symbol_errors_per_second
        )
    }
}

/// The cable at a NIC's port drops packets without any error counter: a gray failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeLossy {
    /// Share of the packets that are lost, up to 0.5.
    pub loss_ratio: f64,
}

impl EdgeLossy {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let lossy = Self { loss_ratio: 0.01 };
        Some((place.nic(pick)?.link_part(), Effect::EdgeLossy(lossy)))
    }
}

impl Kind for EdgeLossy {
    fn class(&self) -> &'static str {
        "edge-lossy"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(self.loss_ratio > 0.0 && self.loss_ratio <= 0.5) {
            return Err(format!(
                "found loss_ratio {}, expected more than 0 and at most 0.5",
                self.loss_ratio
            ));
        }
        place.host_cable(part).map(Target::Nic)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.loss_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            now.losses.push((nic, self.loss_ratio));
            now.vanishing.push((nic, self.loss_ratio));
        }
    }

    fn sentence(&self) -> String {
        format!("loses {} % of its packets", self.loss_ratio * 100.0)
    }
}

/// Longest step of a link error recovery: retraining of the lanes (an engineering estimate).
pub(crate) const RECOVERY_SECONDS: f64 = 5e-3;
/// Cost of one lost packet: one window of go-back-N at 400 Gb/s (an engineering estimate; the round
/// trip that it waits for is 10 to 50 microseconds).
pub(crate) const RETRANSMISSION_SECONDS: f64 = 20e-6;

/// Rates that a corrupting cable shows at its receiving port, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorRates {
    /// Symbols that error correction gave up on.
    pub symbol_errors: f64,
    /// Packets discarded for a wrong CRC.
    pub receive_errors: f64,
    /// Retrainings of the link.
    pub recoveries: f64,
}

impl ErrorRates {
    /// What follows from so many symbol errors per second: every fifth falls into a data packet, every
    /// 1 % of them makes the link retrain (both engineering estimates).
    pub const fn of(symbol_errors: f64) -> Self {
        Self {
            symbol_errors,
            receive_errors: symbol_errors / 5.0,
            recoveries: symbol_errors / 100.0,
        }
    }

    /// Share of its bandwidth that the link still delivers.
    pub fn goodput(self) -> f64 {
        let lost =
            self.recoveries * RECOVERY_SECONDS + self.receive_errors * RETRANSMISSION_SECONDS;
        1.0 - lost.min(0.9)
    }
}

/// Two cables of different rails are in each other's leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miscabled {
    /// The other cable.
    pub with: Part,
}

impl Miscabled {
    const NOT_ON_EFA: &str = "the cables behind the nodes of a cloud are not visible";

    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        place.not_on_efa(Self::NOT_ON_EFA).ok()?;
        let nic = place.nic(pick)?;
        let others: Vec<_> = place
            .plan
            .nics
            .iter()
            .filter(|other| other.node == nic.node && other.rail != nic.rail)
            .collect();
        let with = others.get(pick.below(1, others.len()))?.link_part();
        Some((nic.link_part(), Effect::Miscabled(Self { with })))
    }
}

impl Kind for Miscabled {
    fn class(&self) -> &'static str {
        "miscabled-rail"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.not_on_efa(Self::NOT_ON_EFA)?;
        let (one, other) = (place.host_cable(part)?, place.host_cable(&self.with)?);
        if place.plan.nics[one].rail == place.plan.nics[other].rail {
            return Err(format!(
                "expected cables of two rails, {} is on the same",
                self.with
            ));
        }
        Ok(Target::Nics(one, other))
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Nics(one, other) = target {
            now.wiring.swap(one, other);
        }
    }

    fn sentence(&self) -> String {
        format!("is exchanged with {}", self.with)
    }

    fn accomplices(&self, _: Target, _: &Place<'_>) -> Vec<Part> {
        vec![self.with.clone()]
    }

    fn replugs(&self) -> bool {
        true
    }
}

/// Another virtual function of the NIC moves bytes through the same port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoisyNeighbour {
    /// Share of what the port can move that the neighbor takes, in each direction, more than 0 and less than 1.
    pub share: f64,
}

impl NoisyNeighbour {
    const NOT_ON_EFA: &str = "a device of EFA has no virtual functions";

    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        place.not_on_efa(Self::NOT_ON_EFA).ok()?;
        let neighbor = Self { share: 0.4 };
        Some((
            place.nic(pick)?.link_part(),
            Effect::NoisyNeighbour(neighbor),
        ))
    }
}

impl Kind for NoisyNeighbour {
    fn class(&self) -> &'static str {
        "noisy-neighbour"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.not_on_efa(Self::NOT_ON_EFA)?;
        if !(self.share > 0.0 && self.share < 1.0) {
            return Err(format!(
                "found share {}, expected more than 0 and less than 1",
                self.share
            ));
        }
        place.host_cable(part).map(Target::Nic)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.share
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for nic in target.nics() {
            let left = (1.0 - now.ports[nic].neighbor) * (1.0 - self.share);
            now.ports[nic].neighbor = 1.0 - left;
        }
    }

    fn sentence(&self) -> String {
        let percent = self.share * 100.0;
        format!("carries {percent:.0} % for another virtual function")
    }
}
