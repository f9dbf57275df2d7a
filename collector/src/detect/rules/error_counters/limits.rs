//! How many errors of each kind are too many.

use railscope_model::identity::{Part, RdmaPort};
use railscope_model::metric::{
    GPU_ECC_ERRORS, GPU_NVLINK_ERRORS, GPU_PCIE_REPLAYS, Metric, NIC_PHY_CRC_ERRORS,
    NIC_PHY_LINK_DOWN, NIC_PHY_SYMBOL_ERRORS, NIC_RECEIVE_ERRORS, PCIE_ERRORS, RDMA_NO_BUFFER,
    RDMA_PORT_ERRORS, RDMA_PORT_SPEED, SWITCH_PORT_ERRORS,
};

use super::{DEVIATIONS, Rise, WINDOW_SECONDS};
use crate::classes::{
    Class, GPU_MEMORY, LINK_ERRORS, NVLINK_ERRORS as BAD_NVLINK, PCIE_ERRORS as BAD_PCIE,
    RECEIVER_NOT_READY,
};
use crate::detect::detector::View;
use crate::detect::registry::Threshold;

/// What the labels of a counter name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// `device` and `port`: the cable at it.
    Cable,
    /// `port` of a switch: the cable at it.
    SwitchPort,
    /// `netdev`: the cable at the RDMA port that it belongs to.
    Netdev,
    /// `pci`: the link above it.
    PcieLink,
    /// `gpu`: the GPU.
    Gpu,
    /// `gpu`: the PCIe link above it, or the GPU where its address is not known.
    GpuLink,
    /// `device` and `port` of a NIC that lacks receive buffers: all of a node's together, of the node or of the one NIC that has
    /// nearly all of them.
    Receiver,
}

/// Bit errors of a link over all bits, from which it is bad.
const BIT_ERROR_RATE: f64 = 1e-12;

/// It as a threshold.
pub(super) fn bit_errors() -> Threshold {
    Threshold::new(
        "bit error rate of a link of known speed",
        BIT_ERROR_RATE,
        "ratio",
        "the most that InfiniBand allows, and the objective of Ethernet up to 100 Gb/s: 1440 errors per hour at 400 Gb/s",
    )
}

/// Limit above which an error is reported.
pub(super) struct Limit {
    pub(super) metric: &'static Metric,
    /// The last label; empty for a metric that has none but those that name the part.
    pub(super) kind: &'static str,
    pub(super) names: Names,
    pub(super) class: &'static Class,
    /// Most errors per hour; of bits, on a link of unknown speed.
    pub(super) per_hour: f64,
    /// Whether errors are of single bits, so that a faster link may have more of them.
    pub(super) of_bits: bool,
    /// Whether each one is a fault, however many parts have one.
    pub(super) is_fatal: bool,
    /// Fewest errors in the window that are evaluated.
    pub(super) at_least: f64,
    /// Whether it counts lost links: those wait, and are not reported where the switch is down.
    pub(super) of_losses: bool,
    /// Where the number comes from.
    pub(super) source: &'static str,
}

impl Limit {
    const fn of_cable(
        kind: &'static str,
        per_hour: f64,
        at_least: f64,
        source: &'static str,
    ) -> Self {
        Self {
            metric: &RDMA_PORT_ERRORS,
            kind,
            names: Names::Cable,
            class: &LINK_ERRORS,
            per_hour,
            of_bits: false,
            is_fatal: false,
            at_least,
            of_losses: false,
            source,
        }
    }

    /// Of a port of a switch.
    const fn of_switch(
        kind: &'static str,
        per_hour: f64,
        at_least: f64,
        source: &'static str,
    ) -> Self {
        Self {
            metric: &SWITCH_PORT_ERRORS,
            names: Names::SwitchPort,
            ..Self::of_cable(kind, per_hour, at_least, source)
        }
    }

    /// Of an Ethernet interface, as the port on InfiniBand counts it.
    const fn of_netdev(
        metric: &'static Metric,
        per_hour: f64,
        at_least: f64,
        source: &'static str,
    ) -> Self {
        Self {
            metric,
            names: Names::Netdev,
            ..Self::of_cable("", per_hour, at_least, source)
        }
    }

    const fn of_pcie(
        kind: &'static str,
        per_hour: f64,
        at_least: f64,
        source: &'static str,
    ) -> Self {
        Self {
            metric: &PCIE_ERRORS,
            names: Names::PcieLink,
            class: &BAD_PCIE,
            ..Self::of_cable(kind, per_hour, at_least, source)
        }
    }

    const fn of_nvlink(
        kind: &'static str,
        per_hour: f64,
        at_least: f64,
        source: &'static str,
    ) -> Self {
        Self {
            metric: &GPU_NVLINK_ERRORS,
            names: Names::Gpu,
            class: &BAD_NVLINK,
            ..Self::of_cable(kind, per_hour, at_least, source)
        }
    }

    /// The same of a counter of lost links.
    const fn of_losses(self) -> Self {
        Self {
            of_losses: true,
            ..self.fatal()
        }
    }

    /// The same of errors each of which is a fault.
    const fn fatal(self) -> Self {
        Self {
            is_fatal: true,
            ..self
        }
    }

    /// The same of errors of single bits.
    const fn of_bits(self) -> Self {
        Self {
            of_bits: true,
            ..self
        }
    }

    /// Most errors per hour of a part: of bits, more on a fast link.
    fn per_hour_of(&self, view: &View<'_>, part: &Part) -> f64 {
        let speed = self.of_bits.then(|| speed(view, part)).flatten();
        let of_speed = |speed| 8.0 * speed * BIT_ERROR_RATE * 3600.0;
        self.per_hour.max(speed.map_or(0.0, of_speed))
    }

    /// Whether it exceeds the limit: initially by more than chance, which would otherwise end an incident at a rate near the limit
    /// and open the next.
    pub(super) fn is_passed_by(&self, view: &View<'_>, rise: &Rise, is_reported: bool) -> bool {
        if rise.amount < self.at_least {
            return false;
        }
        // Evaluated over the whole window: two errors in the first five seconds do not make a rate.
        let seconds = rise.seconds.max(WINDOW_SECONDS);
        let expected = self.per_hour_of(view, &rise.part) * seconds / 3600.0;
        let deviations = if is_reported { 0.0 } else { DEVIATIONS };
        rise.amount > expected + deviations * expected.sqrt()
    }

    /// What evidence of it is called.
    pub(super) fn signal(&self) -> &'static str {
        match (self.names, self.kind) {
            (Names::SwitchPort, "symbol_error") => "symbol_error of a switch",
            (Names::SwitchPort, "link_error_recovery") => "link_error_recovery of a switch",
            (Names::SwitchPort, "local_link_integrity_errors") => {
                "local_link_integrity_errors of a switch"
            }
            (Names::SwitchPort, "port_rcv_errors") => "port_rcv_errors of a switch",
            (_, "") => self.metric.name,
            (_, kind) => kind,
        }
    }
}

/// The speed of a link in bytes per second, where a sweep or its host gives it.
fn speed(view: &View<'_>, link: &Part) -> Option<f64> {
    let cable = view.fabric.find_cable(link);
    let swept = cable.and_then(|(_, far)| Some(far.link.speed?.bytes_per_second()));
    swept.or_else(|| {
        let Part::HostLink(node, RdmaPort { device, port }) = link else {
            return None;
        };
        let labels = [&*device.to_string(), &*port.to_string()];
        let history = view.history.node(node)?;
        history
            .value(&RDMA_PORT_SPEED, &labels)
            .filter(|speed| *speed > 0.0)
    })
}

/// All of them.
pub(super) const LIMITS: &[Limit] = &[
    Limit::of_cable(
        "symbol_error",
        120.0,
        5.0,
        "NVSentinel, for a link of unknown speed: a bit error rate of 1e-12 at 33 Gb/s",
    )
    .of_bits(),
    Limit::of_cable(
        "link_error_recovery",
        300.0,
        2.0,
        "NVSentinel: 5 per minute",
    ),
    Limit::of_cable("link_downed", 0.0, 1.0, "NVSentinel: any").of_losses(),
    Limit::of_cable(
        "local_link_integrity_errors",
        0.0,
        4.0,
        "NVSentinel: any; infiniband-diags suggests 10 in all; healthy links have single ones, and the counter has 4 bits (a choice)",
    ),
    Limit::of_cable(
        "excessive_buffer_overrun_errors",
        0.0,
        1.0,
        "NVSentinel: any",
    ),
    Limit::of_cable(
        "port_rcv_errors",
        36_000.0,
        10.0,
        "NVSentinel: 10 per second",
    ),
    Limit::of_switch("symbol_error", 120.0, 5.0, "as for a host port").of_bits(),
    Limit::of_switch("link_error_recovery", 300.0, 2.0, "as for a host port"),
    Limit::of_switch(
        "local_link_integrity_errors",
        0.0,
        4.0,
        "as for a host port",
    ),
    Limit::of_switch("port_rcv_errors", 36_000.0, 10.0, "as for a host port"),
    Limit::of_switch(
        "receive",
        120.0,
        5.0,
        "IEEE 802.3 allows a frame loss ratio of 6.2e-10: 107 per hour at 400 Gb/s and 1 KB frames",
    ),
    Limit::of_netdev(
        &NIC_PHY_SYMBOL_ERRORS,
        120.0,
        5.0,
        "as for an InfiniBand port: symbols that error correction could not correct",
    )
    .of_bits(),
    Limit::of_netdev(&NIC_PHY_CRC_ERRORS, 36_000.0, 10.0, "as port_rcv_errors"),
    Limit::of_netdev(
        &NIC_RECEIVE_ERRORS,
        3_600.0,
        10.0,
        "one per second; frames of a wrong length count, too (an engineering choice)",
    ),
    Limit::of_netdev(&NIC_PHY_LINK_DOWN, 0.0, 1.0, "as link_downed").of_losses(),
    Limit::of_pcie(
        "correctable",
        3_600.0,
        10.0,
        "one per second; a healthy link has a few per day (an engineering choice)",
    ),
    Limit::of_pcie(
        "nonfatal",
        0.0,
        1.0,
        "any: a packet was lost (PCI Express Base Specification, section 6.2)",
    )
    .fatal(),
    Limit {
        metric: &GPU_PCIE_REPLAYS,
        names: Names::GpuLink,
        ..Limit::of_pcie(
            "",
            120.0,
            5.0,
            "2 per minute, and so 7 to begin with: DCGM's PCIe health check warns above 8 (an engineering choice)",
        )
    },
    Limit::of_nvlink("recovery", 0.0, 1.0, "DCGM NVLink health check: any"),
    Limit::of_nvlink(
        "replay",
        60.0,
        5.0,
        "one per minute: DCGM warns at the first, and data is only late (an engineering choice)",
    ),
    Limit::of_nvlink(
        "crc_flit",
        36_000.0,
        100.0,
        "10 per second: a bit error ratio of 1e-12 causes 4 on the links of a GPU at 450 GB/s; DCGM's health check warns at 100 (an engineering choice)",
    ),
    Limit::of_nvlink("crc_data", 36_000.0, 100.0, "as crc_flit"),
    Limit::of_nvlink(
        "recovery_event",
        0.0,
        1.0,
        "DCGM NVLink health check, from NVLink 5 on: any",
    ),
    Limit::of_nvlink(
        "symbol",
        3_600.0,
        100.0,
        "one per second: DCGM's NVLink health check fails at the first, from NVLink 5 on, and most are corrected (an engineering choice)",
    ),
    Limit {
        metric: &GPU_ECC_ERRORS,
        names: Names::Gpu,
        class: &GPU_MEMORY,
        ..Limit::of_cable("uncorrected", 0.0, 1.0, "DCGM memory health check: any").fatal()
    },
    Limit {
        metric: &GPU_ECC_ERRORS,
        names: Names::Gpu,
        class: &GPU_MEMORY,
        ..Limit::of_cable(
            "corrected",
            600.0,
            10.0,
            "10 per minute: a failed cell is corrected at each access, healthy GPUs have a few per day (an engineering choice)",
        )
    },
    Limit {
        metric: &RDMA_NO_BUFFER,
        names: Names::Receiver,
        class: &RECEIVER_NOT_READY,
        ..Limit::of_cable(
            "",
            36_000.0,
            100.0,
            "10 per second: NCCL uses writes, which need no receive buffer, so any rate is suspicious (an engineering choice)",
        )
    },
];
