//! Faults of whole nodes: processors that stall, memory that is too slow.

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::{Conditions, Standstill};
use crate::faults::place::{Place, Target};

/// The processors of a node stall briefly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standstills<const STOLEN: bool> {
    /// How often the threads that feed the GPUs are delayed, per second.
    pub per_second: f64,
    /// For how long each time.
    pub seconds: f64,
}

/// Interrupts, firmware, housekeeping.
pub type Stalls = Standstills<false>;
/// The hypervisor runs something else, and counts it.
pub type Steal = Standstills<true>;

impl Stalls {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let stalls = Self {
            per_second: 20.0,
            seconds: 3e-3,
        };
        Some((place.host(pick)?, Effect::Stalls(stalls)))
    }
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

impl<const STOLEN: bool> Kind for Standstills<STOLEN> {
    fn class(&self) -> &'static str {
        if STOLEN { "host-steal" } else { "host-stalls" }
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let Self {
            per_second,
            seconds,
        } = *self;
        if !(per_second > 0.0 && seconds > 0.0 && per_second * seconds < 0.9) {
            return Err(format!(
                "found {seconds} s {per_second} times a second, expected more than 0 and less than 0.9 of the time"
            ));
        }
        place.host_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.per_second * self.seconds
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Host(host) = target {
            now.hosts[host].standstills.push(Standstill {
                per_second: self.per_second,
                seconds: self.seconds,
                stolen: STOLEN,
            });
        }
    }

    fn sentence(&self) -> String {
        let what = if STOLEN {
            "loses its processors to the hypervisor"
        } else {
            "stalls"
        };
        let milliseconds = self.seconds * 1e3;
        format!(
            "{what} for {milliseconds} ms {} times a second",
            self.per_second
        )
    }
}

/// The memory of a node absorbs data more slowly than its NICs receive it: a congested memory
/// bus, or reads from the wrong socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowReceiver {
    /// Share of its NICs' receive rate that its memory can absorb, 0.05 to 1.
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

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.drain_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Host(host) = target {
            now.hosts[host].drain *= self.drain_ratio;
        }
    }

    fn sentence(&self) -> String {
        let percent = self.drain_ratio * 100.0;
        format!("accepts only {percent:.0} % of what its NICs could receive")
    }
}

/// Time for which a sender waits after each message that found no buffer: NCCL asks for the RNR timer 12, 0.64 ms
/// (InfiniBand Architecture Specification, volume 1, table 46).
const NOT_READY_SECONDS: f64 = 0.64e-3;

/// The software of a node posts receive buffers too late, so that senders must wait (RNR NAK).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotReady {
    /// Messages per second, and for each of its ports, that find no buffer.
    pub per_second: f64,
}

impl NotReady {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let not_ready = Self { per_second: 200.0 };
        Some((place.host(pick)?, Effect::NotReady(not_ready)))
    }

    /// Share of the time in which nothing is sent.
    fn lost(&self) -> f64 {
        self.per_second * NOT_READY_SECONDS
    }
}

impl Kind for NotReady {
    fn class(&self) -> &'static str {
        "receiver-not-ready"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(self.per_second > 0.0 && self.lost() <= 0.9) {
            return Err(format!(
                "found {} per second, expected more than 0 and at most {:.0}",
                self.per_second,
                0.9 / NOT_READY_SECONDS
            ));
        }
        place.host_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.lost()
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Host(host) = target {
            let host = &mut now.hosts[host];
            host.drain *= 1.0 - self.lost();
            host.not_ready_per_second += self.per_second;
        }
    }

    fn sentence(&self) -> String {
        format!(
            "has no receive buffer {} times a second at each port",
            self.per_second
        )
    }
}
