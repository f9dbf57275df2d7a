//! What holds at a moment: the hardware's capabilities under the faults of that moment, and the pace
//! of the job that follows.

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;

use crate::fault::{Effect, ErrorRates, Fault, FaultError};
use crate::machine::layout::{PcieGeneration, nic_address};
use crate::route::Lane;
use crate::wiring::Wiring;
use crate::workload::Towards;

/// Share of a link's data rate that RDMA moves as payload: 49 of 50 GB/s at 400 Gb/s (headers of 4 KiB
/// packets; `ib_write_bw` on NDR shows the same).
const WIRE_EFFICIENCY: f64 = 0.98;
/// Share of a PCIe link's data rate that DMA moves: 26 of 31.5 GB/s on 16 lanes of generation 4.
const PCIE_EFFICIENCY: f64 = 0.825;
/// Share of its bandwidth that a NIC keeps on another rail's leaf: its flows cross the spines, where
/// they meet others (an engineering estimate inside the 0 to 10 % of miswired rails).
const FOREIGN_LEAF_EFFICIENCY: f64 = 0.95;

/// The PCIe link above a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieLink {
    /// Generation now.
    pub generation: PcieGeneration,
    /// Lanes now.
    pub lanes: u8,
}

impl PcieLink {
    /// 16 lanes of generation 5, as a ConnectX-7 trains to.
    pub const FULL: Self = Self {
        generation: PcieGeneration::GEN5,
        lanes: 16,
    };
}

/// What a fault names, found in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A NIC, by index into [`Wiring::nics`].
    Nic(usize),
    /// Two NICs whose cables are mixed up.
    Nics(usize, usize),
    /// A GPU, by index over all nodes.
    Gpu(usize),
}

impl Target {
    /// The NICs among the targets.
    pub(crate) fn nics(self) -> Vec<usize> {
        match self {
            Self::Nic(nic) => vec![nic],
            Self::Nics(one, other) => vec![one, other],
            Self::Gpu(_) => Vec::new(),
        }
    }
}

/// What holds at a moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    /// Cables as they run now.
    pub(crate) wiring: Wiring,
    /// By NIC: its PCIe link.
    pub(crate) pcie: Vec<PcieLink>,
    /// By NIC: width and speed of its port; none while the port is down.
    pub(crate) speed: Vec<Option<LinkSpeed>>,
    /// By NIC: what its cable corrupts.
    pub(crate) errors: Vec<Option<ErrorRates>>,
    /// By GPU: clock that the hardware's heat protection leaves, as a share; none where it does not act.
    pub(crate) thermal: Vec<Option<f64>>,
    /// By lane: bytes per second that it can move.
    pub(crate) capacity: Vec<f64>,
}

impl Conditions {
    /// Conditions of a cluster with these faults.
    pub(crate) fn of<'a>(
        built: &Wiring,
        gpus: usize,
        faults: impl Iterator<Item = (&'a Effect, Target)>,
    ) -> Self {
        let nics = built.nics.len();
        let mut now = Self {
            wiring: built.clone(),
            pcie: vec![PcieLink::FULL; nics],
            speed: (0..nics)
                .map(|nic| built.cable_of(nic).map(|cable| cable.speed))
                .collect(),
            errors: vec![None; nics],
            thermal: vec![None; gpus],
            capacity: Vec::new(),
        };
        for (effect, target) in faults {
            now.apply(effect, target);
        }
        // Dark cables go last: those that are swapped must still be there.
        for nic in (0..nics).filter(|nic| now.speed[*nic].is_none()) {
            now.wiring.cables[nic].lit = false;
        }
        now.capacity = now.capacities();
        now
    }

    fn apply(&mut self, effect: &Effect, target: Target) {
        match (effect, target) {
            (Effect::PcieDegraded { lanes, generation }, Target::Nic(nic)) => {
                let link = PcieLink {
                    generation: PcieGeneration::new(*generation).unwrap_or(PcieGeneration::GEN5),
                    lanes: *lanes,
                };
                for port in self.wiring.ports_of_adapter(nic) {
                    self.pcie[port] = link;
                }
            }
            (Effect::PortDown, Target::Nic(nic)) => self.speed[nic] = None,
            (Effect::PortRateDegraded { rate }, Target::Nic(nic)) => {
                // A port that is down stays down.
                self.speed[nic] = self.speed[nic].map(|_| *rate);
                self.wiring.cables[nic].speed = *rate;
            }
            (
                Effect::LinkErrors {
                    symbol_errors_per_second,
                },
                Target::Nic(nic),
            ) => self.errors[nic] = Some(ErrorRates::of(*symbol_errors_per_second)),
            (Effect::Miscabled { .. }, Target::Nics(a, b)) => self.wiring.swap(a, b),
            (Effect::GpuThermal { clock_ratio }, Target::Gpu(gpu)) => {
                self.thermal[gpu] = Some(*clock_ratio);
            }
            // `resolve` gives every effect a target of its kind.
            _ => {}
        }
    }

    /// Bytes per second of each lane: cables first, then PCIe links.
    fn capacities(&self) -> Vec<f64> {
        let mut capacity = vec![0.0; self.wiring.lanes()];
        for (index, cable) in self.wiring.cables.iter().enumerate().filter(|(_, c)| c.lit) {
            let wire = cable.speed.bytes_per_second() * WIRE_EFFICIENCY * self.share_left(index);
            capacity[Lane::up(index).index()] = wire;
            capacity[Lane::down(index).index()] = wire;
        }
        for (nic, PcieLink { generation, lanes }) in self.pcie.iter().enumerate() {
            let link = generation.bytes_per_second(*lanes) * PCIE_EFFICIENCY;
            for towards in [Towards::Fabric, Towards::Host] {
                capacity[self.wiring.pcie_lane(nic, towards).index()] = link;
            }
        }
        capacity
    }

    /// Share of its bandwidth that a cable still delivers.
    fn share_left(&self, cable: usize) -> f64 {
        // The cable of a NIC has the NIC's number.
        let goodput = self.errors.get(cable).copied().flatten();
        let goodput = goodput.map_or(1.0, ErrorRates::goodput);
        let foreign = cable < self.errors.len() && self.wiring.on_own_rail(cable) == Some(false);
        if foreign {
            goodput * FOREIGN_LEAF_EFFICIENCY
        } else {
            goodput
        }
    }

    /// Bytes per second that a NIC can move in each direction.
    pub(crate) fn limit_of(&self, nic: usize) -> f64 {
        let wire = self.capacity[Lane::up(nic).index()];
        let slot = self.capacity[self.wiring.pcie_lane(nic, Towards::Host).index()];
        // The ports of an adapter share its slot.
        wire.min(slot / self.wiring.ports_of_adapter(nic).len() as f64)
    }

    /// Clock of the slowest GPU of each node as a share of the full clock.
    pub(crate) fn node_clocks(&self, chip_clock: &[f64], gpus_per_node: usize) -> Vec<f64> {
        let clocks: Vec<f64> = self.clocks(chip_clock).collect();
        clocks
            .chunks(gpus_per_node)
            .map(|node| node.iter().copied().fold(f64::INFINITY, f64::min))
            .collect()
    }

    /// Clock of each GPU as a share of the full clock.
    pub(crate) fn clocks(&self, chip_clock: &[f64]) -> impl Iterator<Item = f64> {
        chip_clock
            .iter()
            .zip(&self.thermal)
            .map(|(chip, thermal)| chip * thermal.unwrap_or(1.0))
    }
}

/// Finds what a fault names and checks its numbers.
pub(crate) fn resolve(
    plan: &Wiring,
    gpus_per_node: u8,
    healthy: LinkSpeed,
    fault: &Fault,
) -> Result<Target, FaultError> {
    let refuse = |problem: String| FaultError {
        cause: fault.effect.cause(),
        part: fault.part.clone(),
        problem,
    };
    if let Some(problem) = fault.effect.problem(healthy) {
        return Err(refuse(problem));
    }
    if !fault.onset_seconds.is_finite()
        || fault
            .end_seconds
            .is_some_and(|end| end <= fault.onset_seconds)
    {
        return Err(refuse(
            "expected an onset_seconds before end_seconds".into(),
        ));
    }
    let cable = |part: &Part| {
        plan.nics
            .iter()
            .position(|nic| nic.link_part() == *part)
            .ok_or_else(|| {
                refuse(format!(
                    "no cable {part}; cables with a host end are named as {}",
                    example(plan)
                ))
            })
    };
    match &fault.effect {
        Effect::PcieDegraded { .. } => plan
            .nics
            .iter()
            .position(|nic| nic.pcie_part() == fault.part)
            .map(Target::Nic)
            .ok_or_else(|| {
                refuse(format!(
                    "no NIC has this PCIe link; mlx5_0 of each node is at {}",
                    nic_address(0, 0)
                ))
            }),
        Effect::PortDown | Effect::PortRateDegraded { .. } | Effect::LinkErrors { .. } => {
            cable(&fault.part).map(Target::Nic)
        }
        Effect::Miscabled { with } => {
            let (one, other) = (cable(&fault.part)?, cable(with)?);
            if plan.nics[one].rail == plan.nics[other].rail {
                return Err(refuse(format!(
                    "expected cables of two rails, {with} is on the same"
                )));
            }
            Ok(Target::Nics(one, other))
        }
        Effect::GpuThermal { .. } => {
            let Part::Gpu(node, gpu) = &fault.part else {
                return Err(refuse("expected a GPU, such as gpu/gpu-node-00:3".into()));
            };
            let nic = plan.nics.iter().find(|nic| nic.node_name == *node);
            match nic {
                Some(nic) if gpu.0 < u16::from(gpus_per_node) => Ok(Target::Gpu(
                    usize::from(nic.node) * usize::from(gpus_per_node) + usize::from(gpu.0),
                )),
                _ => Err(refuse(format!(
                    "no such GPU; each node has {gpus_per_node}"
                ))),
            }
        }
    }
}

fn example(plan: &Wiring) -> String {
    plan.nics
        .first()
        .map_or_else(String::new, |nic| nic.link_part().to_string())
}
