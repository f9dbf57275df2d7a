//! Faults as data: which part fails, how and when, and what is true of it then.
//!
//! A kind of fault is a struct with its numbers and a [`Kind`]: one place for all that there is to know
//! about it. The kinds are in files by the parts that fail.

use std::fmt;

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

use crate::conditions::{Conditions, PcieLink};
use crate::faults::place::{Place, Target};
use crate::noise::Noise;

pub mod fabric;
pub mod gpu;
pub mod host;
pub mod link;
pub mod pcie;
pub(crate) mod place;
pub mod roce;
pub mod site;
pub mod storage;

/// One fault of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The faulty component.
    pub part: Part,
    /// When it begins, seconds after the start of the simulation.
    pub onset_seconds: f64,
    /// Its end, seconds after the start of the simulation; none lasts until the end.
    #[serde(default)]
    pub end_seconds: Option<f64>,
    /// What happens to the part.
    pub effect: Effect,
}

/// All that there is to know about a kind of fault.
pub(crate) trait Kind {
    /// Class that an incident about it has. Several causes may share one: what is found is a slow GPU, why
    /// it is slow is in the evidence.
    fn class(&self) -> &'static str;

    /// What the part is in the cluster, if it is one that can fail so and the numbers are sound; else what
    /// was expected.
    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String>;

    /// Share of the part's capability that is lost, 0 to 1, given what a healthy part does.
    fn severity(&self, healthy: &Healthy) -> f64;

    /// What it does to the cluster while it lasts.
    fn apply(&self, target: Target, now: &mut Conditions);

    /// What happens, as the end of a sentence that begins with the part.
    fn sentence(&self) -> String;

    /// Other components that the fault involves as well as the faulty component.
    fn accomplices(&self, _target: Target, _place: &Place<'_>) -> Vec<Part> {
        Vec::new()
    }

    /// Whether links of the target go down briefly when it begins.
    fn replugs(&self) -> bool {
        false
    }

    /// XID that the driver reports when it begins.
    fn xid(&self) -> Option<u16> {
        None
    }

    /// Length of one period and of the active part of it, in seconds, if it is
    /// intermittent.
    fn period(&self) -> Option<(f64, f64)> {
        None
    }
}

/// What a part does when it is healthy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Healthy {
    /// Width and speed of the cable.
    pub(crate) cable: LinkSpeed,
    /// The PCIe link of the card.
    pub(crate) pcie: PcieLink,
    /// NVLinks of the GPU.
    pub(crate) nvlinks: u8,
}

/// Picks a typical part and effect; none if the cluster has no such component.
type Example = fn(&Place<'_>, Pick) -> Option<(Part, Effect)>;

/// Draws places of lists for examples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick(pub(crate) Noise);

impl Pick {
    /// A number below `count`, another for each `draw`.
    pub(crate) fn below(self, draw: u64, count: usize) -> usize {
        (self.0.bits(draw) % count.max(1) as u64) as usize
    }
}

/// Turns a table of kinds into the enumeration of effects.
macro_rules! effects {
    ($($cause:literal $kind:ident in $file:ident: $what:literal;)+) => {
        /// What happens to a part, in the units in which hardware shows it.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "cause")]
        pub enum Effect {
            $(
                #[doc = $what]
                #[serde(rename = $cause)]
                $kind($file::$kind),
            )+
        }

        /// Every cause, by name.
        pub const CAUSES: &[&str] = &[$($cause),+];

        impl Effect {
            /// Its name, as fault files and `--fault` use it.
            pub const fn cause(&self) -> &'static str {
                match self { $(Self::$kind(_) => $cause),+ }
            }

            pub(crate) fn kind(&self) -> &dyn Kind {
                match self { $(Self::$kind(kind) => kind),+ }
            }
        }

        pub(crate) fn example(cause: &str) -> Option<Example> {
            match cause { $($cause => Some($file::$kind::example),)+ _ => None }
        }
    };
}

effects! {
    "pcie-degraded" PcieDegraded in pcie: "The PCIe link above a NIC trains to fewer lanes or a lower generation.";
    "pcie-errors" PcieErrors in pcie: "The PCIe link above a NIC corrupts packets and retransmits them.";
    "pcie-redirected" PcieRedirected in pcie: "Packets between NIC and GPUs are redirected through the root complex and the IOMMU.";
    "numa-affinity" NumaAffinity in pcie: "A NIC serves a GPU of the other socket.";
    "port-down" PortDown in link: "The link of a NIC's port is down.";
    "port-flapping" PortFlapping in link: "The link of a NIC's port flaps.";
    "port-degraded" PortDegraded in link: "The link of a NIC's port comes up narrower or slower.";
    "edge-lossy" EdgeLossy in link: "The cable at a NIC's port drops packets without any error counter.";
    "link-errors" LinkErrors in link: "The cable at a NIC's port corrupts data.";
    "noisy-neighbour" NoisyNeighbour in link: "Another virtual function of a NIC sends traffic through its port.";
    "miscabled-rail" Miscabled in link: "Two cables of different rails are connected to each other's leaf.";
    "uplink-down" UplinkDown in fabric: "The link between two switches is down.";
    "uplink-lossy" UplinkLossy in fabric: "The cable between two switches drops packets without any error counter.";
    "uplink-jitter" UplinkJitter in fabric: "The cable between two switches delays some packets.";
    "switch-down" SwitchDown in fabric: "A switch fails, and all of its links are down.";
    "gpu-thermal" Thermal in gpu: "A GPU overheats and its hardware slows the clock.";
    "gpu-power-cap" PowerCap in gpu: "A GPU has a lower power limit than its peers.";
    "gpu-power-brake" PowerBrake in gpu: "The power supply signals all GPUs of a node to throttle (power brake).";
    "gpu-slow" Slow in gpu: "A GPU computes more slowly at its full clock.";
    "gpu-lost" Lost in gpu: "A GPU falls off its bus.";
    "gpu-memory" Memory in gpu: "A GPU must remap a row of its memory, and needs a reset to do so.";
    "nvlink-down" NvLinkDown in gpu: "NVLinks of a GPU are down.";
    "host-stalls" Stalls in host: "The processors of a node stall briefly: interrupts, firmware, housekeeping.";
    "host-steal" Steal in host: "The hypervisor takes the processors of a node away briefly (steal time).";
    "slow-receiver" SlowReceiver in host: "The memory of a node accepts data more slowly than its NICs receive it.";
    "pfc-storm" PfcStorm in roce: "The receive pipe of a NIC is stuck, and it pauses its switch continuously.";
    "ecmp-polarized" EcmpPolarized in roce: "The ECMP hash of a switch uses only some of its uplinks.";
    "switch-qos" SwitchQos in roce: "A switch discards packets of the priority that should be lossless.";
    "pfc-deadlock" PfcDeadlock in roce: "Switches pause each other permanently: a cyclic buffer dependency.";
    "mtu-mismatch" MtuMismatch in roce: "The interface of a NIC accepts smaller packets than its peers send.";
    "receiver-not-ready" NotReady in host: "The software of a node posts receive buffers too late.";
    "storage-stall" StorageStall in storage: "The storage of checkpoints hangs for many nodes at once.";
}

mod as_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error};

    use super::LinkSpeed;

    pub(super) fn serialize<S: Serializer>(rate: &LinkSpeed, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(rate)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LinkSpeed, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A fault that the cluster cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault {cause} of {part}: {problem}")]
pub struct FaultError {
    /// What should have happened.
    pub cause: &'static str,
    /// The part that should have failed.
    pub part: Part,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// What is true while a fault lasts: what a detector is evaluated by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// The faulty component.
    pub part: Part,
    /// What happened to it: `gpu-thermal`.
    pub cause: &'static str,
    /// Class that an incident about it has: `gpu-slow`.
    pub class: &'static str,
    /// Share of the part's capability that is lost, 0 to 1; 1 if it does nothing any more.
    pub severity: f64,
    /// Step time with the fault over step time without; none if the job is stalled.
    pub slowdown: Option<f64>,
    /// Parts with symptoms other than the slower step of all: never faulty themselves.
    pub victims: Vec<Part>,
    /// Other components that the fault involves as well: the second cable of a pair.
    pub accomplices: Vec<Part>,
}

impl Truth {
    /// Whether anything but the faulty component's own counters can show it: a job is slower by it,
    /// or other parts have symptoms. A cable that loses packets and carries none has no effect.
    pub fn is_felt(&self) -> bool {
        !self.victims.is_empty() || self.slowdown.is_none_or(|slowdown| slowdown > 1.0)
    }
}

impl Effect {
    /// Class that an incident about it has.
    pub fn class(&self) -> &'static str {
        self.kind().class()
    }
}

impl fmt::Display for Effect {
    /// What happens, as the end of a sentence that begins with the part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind().sentence())
    }
}

impl Fault {
    /// Whether it has begun at a given time and is not over, including the pauses of an intermittent fault.
    pub(crate) fn is_there(&self, seconds: f64) -> bool {
        seconds >= self.onset_seconds && self.end_seconds.is_none_or(|end| seconds < end)
    }

    /// Whether the fault is active at a given time, seconds after the start of the simulation.
    pub fn lasts_at(&self, seconds: f64) -> bool {
        let since = seconds - self.onset_seconds;
        self.is_there(seconds)
            && self.effect.kind().period().is_none_or(|(period, there)| {
                // A millionth of a second is far above rounding and far below any period.
                (since + 1e-6) % period < there
            })
    }

    /// The next time at which the fault begins or ends.
    pub(crate) fn next_change(&self, seconds: f64) -> Option<f64> {
        let mut changes = vec![Some(self.onset_seconds), self.end_seconds];
        if let Some((period, there)) = self.effect.kind().period() {
            let periods = ((seconds - self.onset_seconds + 1e-6) / period).floor();
            let began = self.onset_seconds + periods.max(0.0) * period;
            changes.extend([Some(began + there), Some(began + period)]);
        }
        let after = changes
            .into_iter()
            .flatten()
            .filter(|change| *change > seconds + 1e-6);
        after.min_by(f64::total_cmp)
    }
}
