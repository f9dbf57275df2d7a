//! Faults of GPUs and their NVLinks.

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::Conditions;
use crate::faults::place::{Place, Target};
use crate::parts::gpu::ClockEvent;

/// XIDs: GPU has fallen off the bus; row remapper: a row was replaced; NVLink error (NVIDIA XID catalogue).
const XID_OFF_THE_BUS: u16 = 79;
const XID_ROW_REMAPPED: u16 = 63;
const XID_NVLINK: u16 = 74;

fn ratio(name: &str, found: f64, least: f64) -> Result<(), String> {
    if (least..1.0).contains(&found) {
        Ok(())
    } else {
        Err(format!("found {name} {found}, expected {least} to 1"))
    }
}

/// A throttled clock, and why.
fn hold(target: Target, now: &mut Conditions, clock: f64, event: ClockEvent) {
    if let Target::Gpu(gpu) = target {
        let gpu = &mut now.gpus[gpu];
        gpu.clock = gpu.clock.min(clock);
        gpu.event = Some(event);
    }
}

/// The clock of a GPU is throttled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held<const BY_HEAT: bool> {
    /// Clock that is left under load, as a share of the full clock.
    pub clock_ratio: f64,
}

/// By its hardware, because it is too hot.
pub type Thermal = Held<true>;
/// By a power limit that is lower than that of its peers.
pub type PowerCap = Held<false>;

impl Thermal {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let thermal = Self { clock_ratio: 0.5 };
        Some((place.gpu(pick)?, Effect::Thermal(thermal)))
    }
}

impl PowerCap {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let cap = Self { clock_ratio: 0.85 };
        Some((place.gpu(pick)?, Effect::PowerCap(cap)))
    }
}

impl<const BY_HEAT: bool> Kind for Held<BY_HEAT> {
    fn class(&self) -> &'static str {
        "gpu-slow"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        ratio("clock_ratio", self.clock_ratio, 0.05)?;
        place.gpu_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.clock_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        let event = if BY_HEAT {
            ClockEvent::HwThermal
        } else {
            ClockEvent::SwPowerCap
        };
        hold(target, now, self.clock_ratio, event);
        if let (false, Target::Gpu(gpu)) = (BY_HEAT, target) {
            let gpu = &mut now.gpus[gpu];
            gpu.limit_watts = gpu.limit_watts.min(gpu.model.watts_at(self.clock_ratio));
        }
    }

    fn sentence(&self) -> String {
        let percent = self.clock_ratio * 100.0;
        if BY_HEAT {
            format!("overheats, and its hardware slows it to {percent:.0} % of its clock")
        } else {
            format!("is held to {percent:.0} % of its clock by its power limit")
        }
    }
}

/// The power supply asks all GPUs of a node to brake.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PowerBrake {
    /// Clock that is left, as a share of the full clock: a half or less, as the hardware brakes.
    pub clock_ratio: f64,
}

impl PowerBrake {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let brake = Self { clock_ratio: 0.5 };
        Some((place.host(pick)?, Effect::PowerBrake(brake)))
    }
}

impl Kind for PowerBrake {
    fn class(&self) -> &'static str {
        "host-power"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        ratio("clock_ratio", self.clock_ratio, 0.05)?;
        place.host_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.clock_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Host(host) = target {
            for gpu in now.gpus_of(host) {
                hold(
                    Target::Gpu(gpu),
                    now,
                    self.clock_ratio,
                    ClockEvent::HwPowerBrake,
                );
            }
        }
    }

    fn sentence(&self) -> String {
        let percent = self.clock_ratio * 100.0;
        format!("throttles all of its GPUs to {percent:.0} % of their clock")
    }
}

/// A GPU computes more slowly at its full clock, and nothing of it reports why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slow {
    /// Work that it does in a time, as a share of what its peers do.
    pub speed_ratio: f64,
}

impl Slow {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let slow = Self { speed_ratio: 0.85 };
        Some((place.gpu(pick)?, Effect::Slow(slow)))
    }
}

impl Kind for Slow {
    fn class(&self) -> &'static str {
        "gpu-slow"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        ratio("speed_ratio", self.speed_ratio, 0.05)?;
        place.gpu_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.speed_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Gpu(gpu) = target {
            now.gpus[gpu].speed *= self.speed_ratio;
        }
    }

    fn sentence(&self) -> String {
        let percent = self.speed_ratio * 100.0;
        format!("does {percent:.0} % of the work of its peers at its full clock")
    }
}

/// A GPU falls off its bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lost {}

impl Lost {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((place.gpu(pick)?, Effect::Lost(Self {})))
    }
}

impl Kind for Lost {
    fn class(&self) -> &'static str {
        "gpu-lost"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.gpu_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Gpu(gpu) = target {
            now.gpus[gpu].lost = true;
        }
    }

    fn sentence(&self) -> String {
        "falls off its bus".to_owned()
    }

    fn xid(&self) -> Option<u16> {
        Some(XID_OFF_THE_BUS)
    }
}

/// A GPU must replace a row of its memory, and waits for a reset to do so. Nothing is slower yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {}

impl Memory {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        Some((place.gpu(pick)?, Effect::Memory(Self {})))
    }
}

impl Kind for Memory {
    fn class(&self) -> &'static str {
        "gpu-memory"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        place.gpu_named(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        0.0
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Gpu(gpu) = target {
            now.gpus[gpu].row_remap_pending = true;
        }
    }

    fn sentence(&self) -> String {
        "needs a reset to remap a row of its memory".to_owned()
    }

    fn xid(&self) -> Option<u16> {
        Some(XID_ROW_REMAPPED)
    }
}

/// NVLinks of a GPU go away: what is inside the node moves over those that are left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLinkDown {
    /// How many of its links, from the last one.
    pub links: u8,
}

impl NvLinkDown {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        // One third of them.
        let part = place.gpu(pick)?;
        let links = place.healthy(place.gpu_named(&part).ok()?).nvlinks / 3;
        Some((part, Effect::NvLinkDown(Self { links })))
    }
}

impl Kind for NvLinkDown {
    fn class(&self) -> &'static str {
        "nvlink-down"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let gpu = place.gpu_named(part)?;
        let nvlinks = place.healthy(gpu).nvlinks;
        if self.links == 0 || self.links >= nvlinks {
            return Err(format!(
                "found {} links, expected 1 to {}",
                self.links,
                nvlinks.saturating_sub(1)
            ));
        }
        Ok(gpu)
    }

    fn severity(&self, healthy: &Healthy) -> f64 {
        f64::from(self.links) / f64::from(healthy.nvlinks)
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::Gpu(gpu) = target {
            let gpu = &mut now.gpus[gpu];
            gpu.nvlinks = gpu.nvlinks.min(gpu.model.nvlinks - self.links);
        }
    }

    fn sentence(&self) -> String {
        format!("loses {} of its NVLinks", self.links)
    }

    fn xid(&self) -> Option<u16> {
        Some(XID_NVLINK)
    }
}
