//! Signs: which parts other than the named one may cause a finding, as a log-likelihood in nats by
//! kind of part.
//!
//! The values are initial choices; 0 where nothing is known. Only differences within a row count: the probability
//! of the named part is in [`belief`](super::belief).

use railscope_model::identity::Part;
use railscope_model::metric::{GPU_CLOCK, GPU_CLOCK_EVENT_SECONDS};

use crate::classes::{
    Class, EDGE_LOSSY, GPU_ERROR, GPU_LOST, GPU_MEMORY, GPU_SLOW, GPU_THERMAL, HOST_COOLING,
    HOST_POWER, HOST_STALLS, HOST_STEAL, LINK_ERRORS, NOISY_NEIGHBOR, NUMA_AFFINITY, NVLINK_DOWN,
    NVLINK_ERRORS, PATH_SLOW, PCIE_DEGRADED, PCIE_ERRORS, PCIE_REDIRECTED, PFC_STORM,
    PORT_DEGRADED, PORT_DOWN, PORT_FLAPPING, POWER_LIMIT, RECEIVER_NOT_READY, SLOW_RECEIVER,
    STORAGE_STALL, UPLINK_DOWN, UPLINK_JITTER, UPLINK_LOSSY,
};
use crate::detect::detector::Evidence;
use crate::detect::rules::{marked_nics, probe_paths};

/// How much a kind of finding supports parts of each kind, as a log-likelihood in nats.
#[derive(Debug)]
pub(crate) struct Signs {
    gpu: f64,
    nvlink: f64,
    pcie: f64,
    nic: f64,
    cable: f64,
    switch: f64,
    host: f64,
    storage: f64,
    /// For no part at all: load imbalance, a transient state.
    pub(crate) no_part: f64,
}

impl Signs {
    const SILENT: Self = Self {
        gpu: 0.0,
        nvlink: 0.0,
        pcie: 0.0,
        nic: 0.0,
        cable: 0.0,
        switch: 0.0,
        host: 0.0,
        storage: 0.0,
        no_part: 0.0,
    };

    /// Log-likelihood for this part.
    pub(crate) const fn of(&self, part: &Part) -> f64 {
        match part {
            Part::Gpu(..) => self.gpu,
            Part::NvLink(..) => self.nvlink,
            Part::PcieLink(..) => self.pcie,
            Part::Nic(..) => self.nic,
            Part::HostLink(..) | Part::SwitchLink(..) => self.cable,
            Part::Switch(_) => self.switch,
            Part::Host(_) => self.host,
            Part::SharedStorage => self.storage,
        }
    }
}

/// A GPU computes longer than others with as much to do.
const COMPUTES: Signs = Signs {
    gpu: 4.0,
    nic: -2.0,
    cable: -2.0,
    switch: -3.0,
    host: -1.0,
    no_part: 1.0,
    ..Signs::SILENT
};
/// A GPU's clock is throttled.
const CLOCK: Signs = Signs {
    gpu: 6.0,
    no_part: -1.0,
    ..Signs::SILENT
};
const NVLINK: Signs = Signs {
    nvlink: 6.0,
    ..Signs::SILENT
};
/// Width, speed, stalls and replays of a PCIe link.
const PCIE: Signs = Signs {
    pcie: 6.0,
    nic: 1.0,
    ..Signs::SILENT
};
/// Pause begins at a host.
const PAUSE: Signs = Signs {
    pcie: 3.0,
    nic: 3.0,
    cable: -1.0,
    switch: -3.0,
    host: 1.0,
    no_part: 1.0,
    ..Signs::SILENT
};
/// Bit errors, loss of the optical signal.
const LIGHT: Signs = Signs {
    nic: 1.0,
    cable: 5.0,
    switch: 1.0,
    ..Signs::SILENT
};
/// Tomography names an edge, a cable between switches, a switch.
const PROBED_EDGE: Signs = Signs {
    gpu: -2.0,
    nvlink: -1.0,
    pcie: 1.0,
    nic: 3.0,
    cable: 3.0,
    switch: -2.0,
    host: 1.0,
    ..Signs::SILENT
};
/// See [`PROBED_EDGE`].
const PROBED_CABLE: Signs = Signs {
    nic: -2.0,
    cable: 4.0,
    switch: 3.0,
    host: -3.0,
    ..PROBED_EDGE
};
/// See [`PROBED_EDGE`].
const PROBED_SWITCH: Signs = Signs {
    nic: -2.0,
    cable: 0.0,
    switch: 6.0,
    host: -3.0,
    ..PROBED_EDGE
};
/// A host stalls briefly.
const STALLS: Signs = Signs {
    nic: -1.0,
    cable: -2.0,
    switch: -3.0,
    host: 5.0,
    storage: 5.0,
    ..Signs::SILENT
};

/// By class; settings and what only one part can show give no evidence about others.
const BY_CLASS: &[(&Class, &Signs)] = &[
    (&GPU_SLOW, &COMPUTES),
    (&GPU_LOST, &CLOCK),
    (&GPU_ERROR, &CLOCK),
    (&GPU_MEMORY, &CLOCK),
    (&HOST_POWER, &CLOCK),
    (&HOST_COOLING, &CLOCK),
    (&POWER_LIMIT, &CLOCK),
    (&GPU_THERMAL, &CLOCK),
    (&NVLINK_DOWN, &NVLINK),
    (&NVLINK_ERRORS, &CLOCK),
    (&PCIE_DEGRADED, &PCIE),
    (&PCIE_ERRORS, &PCIE),
    (&PCIE_REDIRECTED, &PCIE),
    (&NUMA_AFFINITY, &PCIE),
    (&PFC_STORM, &PAUSE),
    (&SLOW_RECEIVER, &PAUSE),
    (&RECEIVER_NOT_READY, &PAUSE),
    (&NOISY_NEIGHBOR, &PAUSE),
    (&PORT_DOWN, &LIGHT),
    (&PORT_DEGRADED, &LIGHT),
    (&PORT_FLAPPING, &LIGHT),
    (&UPLINK_DOWN, &LIGHT),
    (&LINK_ERRORS, &LIGHT),
    (&EDGE_LOSSY, &PROBED_EDGE),
    (&HOST_STALLS, &STALLS),
    (&HOST_STEAL, &STALLS),
    (&STORAGE_STALL, &STALLS),
];

/// Whether a GPU is called slow for its clock: then it is slower by what the clock is, and not for what it waits for.
pub(crate) fn is_of_clock(evidence: &Evidence) -> bool {
    let of_clock = [GPU_CLOCK.name, GPU_CLOCK_EVENT_SECONDS.name];
    evidence.class == &GPU_SLOW && of_clock.contains(&evidence.signal)
}

/// Whether a finding shows where packets are lost or late, but not why: all of probes, and loss or marked packets at a NIC that its
/// transport counts.
pub(crate) fn is_of_ends(evidence: &Evidence) -> bool {
    evidence.detector == probe_paths::NAME || evidence.class == &EDGE_LOSSY || is_marked(evidence)
}

/// Whether a finding is of packets that are marked on their way to a NIC.
pub(crate) fn is_marked(evidence: &Evidence) -> bool {
    evidence.detector == marked_nics::NAME
}

/// What a finding reports about parts that it does not name.
pub(crate) fn signs_of(evidence: &Evidence) -> &'static Signs {
    let class = evidence.class;
    if is_of_clock(evidence) {
        return &CLOCK;
    }
    // For packets lost or late in transit it matters which part is named.
    if [&UPLINK_LOSSY, &UPLINK_JITTER, &PATH_SLOW].contains(&class) {
        return match evidence.part {
            Part::Switch(_) => &PROBED_SWITCH,
            Part::SwitchLink(..) => &PROBED_CABLE,
            _ => &PROBED_EDGE,
        };
    }
    let row = BY_CLASS.iter().find(|(known, _)| *known == class);
    row.map_or(&Signs::SILENT, |(_, signs)| *signs)
}
