//! Faults of whole nodes: processors that stand still, memory that is too slow.

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

use super::{Effect, Kind, Pick};
use crate::conditions::{Conditions, Standstill};
use crate::place::{Place, Target};

/// The processors of a node stand still for moments: interrupts, firmware, housekeeping.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stalls {
    /// How often the threads that feed the GPUs are held up, per second.
    pub per_second: f64,
    /// For how long each time.
    pub seconds: f64,
}

impl Stalls {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let stalls = Self {
            per_second: 20.0,
            seconds: 3e-3,
        };
        Some((place.host(pick)?, Effect::Stalls(stalls)))
    }
}

/// The hypervisor takes the processors of a node away for moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steal {
    /// How often, per second.
    pub per_second: f64,
    /// For how long each time.
    pub seconds: f64,
}

impl Steal {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let steal = Self {
            per_second: 100.0,
            seconds: 5e-4,
        };
        Some((place.host(pick)?, Effect::Steal(steal)))
    }
}

fn check(per_second: f64, seconds: f64) -> Result<(), String> {
    let share = per_second * seconds;
    if per_second > 0.0 && seconds > 0.0 && share < 0.9 {
        return Ok(());
    }
    Err(format!(
        "found {seconds} s {per_second} times a second, expected more than 0 and less than 0.9 of the time"
    ))
}

fn stand_still(target: Target, now: &mut Conditions, standstill: Standstill) {
    if let Target::Host(host) = target {
        now.hosts[host].standstills.push(standstill);
    }
}

impl Kind for Stalls {
    fn class(&self) -> &'static str {
        "host-stalls"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        check(self.per_second, self.seconds)?;
        place.host_named(part)
    }

    fn severity(&self, _: LinkSpeed) -> f64 {
        self.per_second * self.seconds
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        let standstill = Standstill {
            per_second: self.per_second,
            seconds: self.seconds,
            stolen: false,
        };
        stand_still(target, now, standstill);
    }

    fn sentence(&self) -> String {
        format!(
            "stands still for {} ms {} times a second",
            self.seconds * 1e3,
            self.per_second
        )
    }
}

impl Kind for Steal {
    fn class(&self) -> &'static str {
        "host-steal"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        check(self.per_second, self.seconds)?;
        place.host_named(part)
    }

    fn severity(&self, _: LinkSpeed) -> f64 {
        self.per_second * self.seconds
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        let standstill = Standstill {
            per_second: self.per_second,
            seconds: self.seconds,
            stolen: true,
        };
        stand_still(target, now, standstill);
    }

    fn sentence(&self) -> String {
        format!(
            "loses its processors to the hypervisor for {} ms {} times a second",
            self.seconds * 1e3,
            self.per_second
        )
    }
}

/// The memory of a node takes what its NICs receive more slowly than they receive it: a congested memory
/// bus, or reads from the wrong socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowReceiver {
    /// Share of what its NICs can receive that its memory takes, 0.05 to 1.
    pub drain_ratio: f64,
}

impl SlowReceiver {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let slow = Self { drain_ratio: 0.5 };
        Some((place.host(pick)?, Effect::SlowReceiver(slow)))
    }
}

impl Kind for SlowReceiver {
    fn class(&self) -> &'static str {
        "slow-receiver"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(0.05..1.0).contains(&self.drain_ratio) {
            return Err(format!(
                "found drain_ratio {}, expected 0.05 to 1",
                self.drain_ratio
            ));
        }
        place.host_named(part)
    }

    fn severity(&self, _: LinkSpeed) -> f64 {
        1.0 - self.drain_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Host(host) = target {
            now.hosts[host].drain *= self.drain_ratio;
        }
    }

    fn sentence(&self) -> String {
        let percent = self.drain_ratio * 100.0;
        format!("takes only {percent:.0} % of what its NICs could receive")
    }
}
