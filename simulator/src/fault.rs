//! Faults as data: which part fails, how and when, and what is true of it then.

use std::fmt;

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;
use serde::{Deserialize, Serialize};

use crate::machine::layout::PcieGeneration;

/// One fault of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The culprit.
    pub part: Part,
    /// When it begins, seconds after the start of the simulation.
    pub onset_seconds: f64,
    /// When it is over, seconds after the start of the simulation; none lasts for good.
    #[serde(default)]
    pub end_seconds: Option<f64>,
    /// What happens to the part.
    pub effect: Effect,
}

/// What happens to a part, in the units in which hardware shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// The PCIe link above a NIC trains to fewer lanes or a lower generation.
    PcieDegraded {
        /// Lanes that are left, 1 to 16.
        lanes: u8,
        /// Generation that is left, 1 to 5.
        generation: u8,
    },
    /// The port of a NIC loses its link.
    PortDown,
    /// The link of a NIC's port comes up narrower or slower.
    #[serde(rename = "port-degraded")]
    PortRateDegraded {
        /// Width and speed that are left, such as `1xNDR` or `4xHDR`.
        #[serde(with = "as_text")]
        rate: LinkSpeed,
    },
    /// The cable at a NIC's port corrupts data.
    LinkErrors {
        /// Symbols that error correction gave up on, per second.
        symbol_errors_per_second: f64,
    },
    /// Two cables of different rails are in each other's leaf.
    #[serde(rename = "miscabled-rail")]
    Miscabled {
        /// The other cable.
        with: Part,
    },
    /// A GPU overheats and its hardware slows the clock.
    GpuThermal {
        /// Clock that is left, as a share of the full clock.
        clock_ratio: f64,
    },
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

/// What is true while a fault lasts: what a detector is judged by.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// The culprit.
    pub part: Part,
    /// What happened to it: `gpu-thermal`.
    pub cause: &'static str,
    /// Class that an incident about it has: `gpu-slow`.
    pub class: &'static str,
    /// Share of the part's capability that is lost, 0 to 1; 1 if it does nothing any more.
    pub severity: f64,
    /// Step time with the fault over step time without; none if the job stands still.
    pub slowdown: Option<f64>,
    /// Parts that show symptoms of their own besides the slower step of everybody: never culprits.
    pub victims: Vec<Part>,
    /// Other parts that are as much the fault as the culprit: the second cable of a pair.
    pub accomplices: Vec<Part>,
}

/// Longest step of a link error recovery: retraining of the lanes (an engineering estimate).
const RECOVERY_SECONDS: f64 = 5e-3;
/// Cost of one lost packet: one window of go-back-N at 400 Gb/s (an engineering estimate; the round
/// trip that it waits for is 10 to 50 microseconds).
const RETRANSMISSION_SECONDS: f64 = 20e-6;

/// Rates that a corrupting cable shows at its receiving port, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorRates {
    /// Symbols that error correction gave up on.
    pub symbol_errors: f64,
    /// Packets thrown away for a wrong CRC.
    pub receive_errors: f64,
    /// Retrainings of the link.
    pub recoveries: f64,
}

impl ErrorRates {
    /// What follows from so many symbol errors per second: every fifth falls into a data packet, every
    /// hundredth makes the link retrain (both engineering estimates).
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

impl Effect {
    /// Its name, as fault files and `--fault` say it.
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::PcieDegraded { .. } => "pcie-degraded",
            Self::PortDown => "port-down",
            Self::PortRateDegraded { .. } => "port-degraded",
            Self::LinkErrors { .. } => "link-errors",
            Self::Miscabled { .. } => "miscabled-rail",
            Self::GpuThermal { .. } => "gpu-thermal",
        }
    }

    /// Class that an incident about it has. Several causes may share one: what is found is a slow GPU,
    /// why it is slow is in the evidence.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::GpuThermal { .. } => "gpu-slow",
            _ => self.cause(),
        }
    }

    /// Share of the part's capability that is lost, given the speed of a healthy cable.
    pub(crate) fn severity(&self, healthy: LinkSpeed) -> f64 {
        match *self {
            Self::PcieDegraded { lanes, generation } => {
                let full = PcieGeneration::GEN5.bytes_per_second(16);
                let left = PcieGeneration::new(generation)
                    .map_or(0.0, |generation| generation.bytes_per_second(lanes));
                1.0 - left / full
            }
            Self::PortDown | Self::Miscabled { .. } => 1.0,
            Self::PortRateDegraded { rate } => {
                1.0 - rate.bytes_per_second() / healthy.bytes_per_second()
            }
            Self::LinkErrors {
                symbol_errors_per_second,
            } => 1.0 - ErrorRates::of(symbol_errors_per_second).goodput(),
            Self::GpuThermal { clock_ratio } => 1.0 - clock_ratio,
        }
    }

    /// Checks the numbers; the cluster checks the parts.
    pub(crate) fn problem(&self, healthy: LinkSpeed) -> Option<String> {
        match *self {
            Self::PcieDegraded { lanes, generation } => {
                let sound = matches!(lanes, 1 | 2 | 4 | 8 | 16)
                    && PcieGeneration::new(generation).is_some()
                    && (lanes < 16 || generation < 5);
                (!sound).then(|| {
                    format!("found {lanes} lanes of generation {generation}, expected 1, 2, 4, 8 or 16 lanes of generation 1 to 5, and less than 16 of 5")
                })
            }
            Self::PortRateDegraded { rate } => {
                let slower = rate.bytes_per_second() < healthy.bytes_per_second();
                (!slower).then(|| format!("found rate {rate}, expected less than {healthy}"))
            }
            Self::LinkErrors {
                symbol_errors_per_second: rate,
            } => {
                let sound = rate.is_finite() && rate > 0.0;
                (!sound)
                    .then(|| format!("found {rate} symbol errors per second, expected more than 0"))
            }
            Self::GpuThermal { clock_ratio } => {
                let sound = (0.05..1.0).contains(&clock_ratio);
                (!sound).then(|| format!("found clock_ratio {clock_ratio}, expected 0.05 to 1"))
            }
            Self::PortDown | Self::Miscabled { .. } => None,
        }
    }
}

impl fmt::Display for Effect {
    /// What happens, as the end of a sentence that begins with the part.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PcieDegraded { lanes, generation } => {
                write!(f, "trains to {lanes} lanes of PCIe generation {generation}")
            }
            Self::PortDown => f.write_str("goes dark"),
            Self::PortRateDegraded { rate } => write!(f, "comes up at {rate}"),
            Self::LinkErrors {
                symbol_errors_per_second,
            } => write!(f, "corrupts {symbol_errors_per_second} symbols per second"),
            Self::Miscabled { with } => write!(f, "is exchanged with {with}"),
            Self::GpuThermal { clock_ratio } => {
                let percent = clock_ratio * 100.0;
                write!(
                    f,
                    "overheats, and its hardware slows it to {percent:.0} % of its clock"
                )
            }
        }
    }
}

impl Fault {
    /// Whether the fault is there at a moment, seconds after the start of the simulation.
    pub fn lasts_at(&self, seconds: f64) -> bool {
        self.onset_seconds <= seconds && self.end_seconds.is_none_or(|end| seconds < end)
    }
}
