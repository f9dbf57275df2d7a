//! The conditions at one time: the hardware's capabilities under the current faults.

use railscope_model::units::LinkSpeed;

use crate::faults::Effect;
use crate::faults::link::ErrorRates;
use crate::faults::place::Target;
use crate::faults::site;
use crate::parts::gpu::ClockEvent;
use crate::spec::pci_layout::PcieGeneration;
use crate::spec::products::GpuModel;
use crate::traffic::router::Lane;
use crate::wiring::{Host, Wiring};
use crate::work::workload::{Towards, Workload};

/// Share of a link's data rate that RDMA moves as payload: 49 of 50 GB/s at 400 Gb/s (headers of 4 KiB
/// packets; `ib_write_bw` on NDR shows the same).
pub(crate) const WIRE_EFFICIENCY: f64 = 0.98;
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
    /// Bytes per second on the wire in each direction.
    pub fn bytes_per_second(self) -> f64 {
        self.generation.bytes_per_second(self.lanes)
    }
}

/// A port of a NIC and what is above it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PortCondition {
    pub(crate) pcie: PcieLink,
    /// Share of the PCIe link's bandwidth that is left.
    pub(crate) pcie_share: f64,
    /// Correctable errors of the PCIe link.
    pub(crate) pcie_errors_per_second: f64,
    /// Whether the bridge above it sends packets for its peers up to the root complex.
    pub(crate) redirected: bool,
    /// Width and speed; none while the port is down.
    pub(crate) speed: Option<LinkSpeed>,
    /// What the cable corrupts.
    pub(crate) errors: Option<ErrorRates>,
    /// What becomes of packets that arrive.
    pub(crate) receive: Receive,
    /// Share of the port's bandwidth, in each direction, that another function of the same NIC uses.
    pub(crate) neighbor: f64,
}

/// What a NIC does with packets that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receive {
    /// Transfers them to memory.
    Works,
    /// Nothing: its receive pipe is stuck, and it pauses its switch for ever.
    Stuck,
    /// Throws away all that are longer than this MTU: those of RoCE are.
    TooLong(u32),
}

/// A GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GpuCondition {
    /// Product.
    pub(crate) model: &'static GpuModel,
    /// Clock that it may run at, as a share of its full clock.
    pub(crate) clock: f64,
    /// Why it may run at no more.
    pub(crate) event: Option<ClockEvent>,
    /// Power that it may draw, W.
    pub(crate) limit_watts: f64,
    /// Coolant above its mean, degrees.
    pub(crate) coolant_celsius: f64,
    /// Work that it does at its full clock, as a share of what an H100 does.
    pub(crate) speed: f64,
    /// NVLinks that are up.
    pub(crate) nvlinks: u8,
    /// Whether it has fallen off its bus.
    pub(crate) lost: bool,
    /// Whether a row of its memory waits for a reset to be replaced.
    pub(crate) row_remap_pending: bool,
}

impl GpuCondition {
    fn healthy(model: &'static GpuModel) -> Self {
        Self {
            model,
            clock: 1.0,
            event: None,
            limit_watts: model.limit_watts,
            coolant_celsius: 0.0,
            speed: model.relative_speed(),
            nvlinks: model.nvlinks,
            lost: false,
            row_remap_pending: false,
        }
    }
}

/// Intervals in which the processors of a node do nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standstill {
    pub(crate) per_second: f64,
    pub(crate) seconds: f64,
    /// Whether the hypervisor took them, and counts it.
    pub(crate) stolen: bool,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostCondition {
    pub(crate) standstills: Vec<Standstill>,
    /// Share of its NICs' receive rate that its memory can absorb.
    pub(crate) drain: f64,
    /// Messages per second, and for each port, that find no receive buffer.
    pub(crate) not_ready_per_second: f64,
    /// Whether it waits for its storage.
    pub(crate) storage_hangs: bool,
}

impl HostCondition {
    /// Share of the time in which the threads that feed the GPUs run.
    pub(crate) fn awake(&self) -> f64 {
        let lost = self.standstills.iter().map(|s| s.per_second * s.seconds);
        (1.0 - lost.sum::<f64>()).max(0.05)
    }
}

/// The conditions at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Conditions {
    /// Cables as they run now.
    pub(crate) wiring: Wiring,
    /// By NIC.
    pub(crate) ports: Vec<PortCondition>,
    /// By GPU over all nodes.
    pub(crate) gpus: Vec<GpuCondition>,
    /// By node.
    pub(crate) hosts: Vec<HostCondition>,
    /// Cables that lose packets silently, and the share of packets that they lose.
    pub(crate) losses: Vec<(usize, f64)>,
    /// Cables on which packets vanish after the one end has counted them and before the other does, and the share
    /// of packets.
    pub(crate) vanishing: Vec<(usize, f64)>,
    /// Cables that delay packets: the share of packets, and for how many seconds.
    pub(crate) delays: Vec<(usize, f64, f64)>,
    /// Lanes at whose beginning a switch drops packets and counts them, and the share of packets.
    pub(crate) discards: Vec<(Lane, f64)>,
    /// Switches whose hash uses only so many of the ports among which it should choose.
    pub(crate) polarized: Vec<(usize, usize)>,
    /// Lanes that wait for each other in a cycle.
    pub(crate) deadlocked: Vec<Lane>,
    /// By lane: bytes per second that it can move.
    pub(crate) capacity: Vec<f64>,
}

impl Conditions {
    /// Conditions of a cluster with these faults at such a site.
    pub(crate) fn of<'a>(
        built: &Wiring,
        faults: impl Iterator<Item = (&'a Effect, Target)>,
        site: &site::Now,
    ) -> Self {
        let port = |nic: usize| PortCondition {
            pcie: built.nics[nic].kind.shape().pcie,
            pcie_share: 1.0,
            pcie_errors_per_second: 0.0,
            redirected: false,
            speed: built.cable_of(nic).map(|cable| cable.speed),
            errors: None,
            receive: Receive::Works,
            neighbor: 0.0,
        };
        let gpus = |host: &Host| {
            let healthy = GpuCondition::healthy(&host.kind.shape().gpu);
            std::iter::repeat_n(healthy, host.gpus.len())
        };
        let host = HostCondition {
            standstills: Vec::new(),
            drain: 1.0,
            not_ready_per_second: 0.0,
            storage_hangs: false,
        };
        let mut now = Self {
            wiring: built.clone(),
            ports: (0..built.nics.len()).map(port).collect(),
            gpus: built.hosts.iter().flat_map(gpus).collect(),
            hosts: vec![host; built.hosts.len()],
            losses: Vec::new(),
            vanishing: Vec::new(),
            delays: Vec::new(),
            discards: Vec::new(),
            polarized: Vec::new(),
            deadlocked: Vec::new(),
            capacity: Vec::new(),
        };
        for (effect, target) in faults {
            effect.kind().apply(target, &mut now);
        }
        site.apply(&mut now);
        // Dark cables go last: those that are swapped must still be there.
        for (nic, port) in now.ports.iter().enumerate() {
            now.wiring.cables[nic].lit &= port.speed.is_some();
        }
        now.capacity = now.capacities();
        now
    }

    /// GPUs of a node.
    pub(crate) fn gpus_of(&self, host: usize) -> std::ops::Range<usize> {
        self.wiring.hosts[host].gpus.clone()
    }

    /// Bytes per second of each lane: cables first, then PCIe links.
    fn capacities(&self) -> Vec<f64> {
        let mut capacity = vec![0.0; self.wiring.lanes()];
        for (index, cable) in self.wiring.cables.iter().enumerate().filter(|(_, c)| c.lit) {
            let wire = cable.speed.bytes_per_second() * WIRE_EFFICIENCY * self.share_left(index);
            capacity[Lane::up(index).index()] = wire;
            capacity[Lane::down(index).index()] = wire;
        }
        for (nic, port) in self.ports.iter().enumerate() {
            let link = port.pcie.bytes_per_second() * PCIE_EFFICIENCY * port.pcie_share;
            let drain = self.hosts[usize::from(self.wiring.nics[nic].node)].drain;
            // The memory is measured against what comes off the wire, not against its own link.
            let wire = self.wiring.cables[nic].speed.bytes_per_second() * WIRE_EFFICIENCY;
            let ports = self.wiring.ports_of_adapter(nic).len() as f64;
            let taken = if drain < 1.0 {
                wire * ports * drain
            } else {
                link
            };
            for (towards, capable) in [(Towards::Fabric, link), (Towards::Host, link.min(taken))] {
                capacity[self.wiring.pcie_lane(nic, towards).index()] = capable;
            }
            if port.receive != Receive::Works {
                capacity[Lane::down(nic).index()] = 0.0;
            }
        }
        for lane in &self.deadlocked {
            capacity[lane.index()] = 0.0;
        }
        capacity
    }

    /// Share of its bandwidth that a cable still delivers.
    fn share_left(&self, cable: usize) -> f64 {
        // The cable of a NIC has the NIC's number.
        let Some(port) = self.ports.get(cable) else {
            return 1.0;
        };
        let goodput = port.errors.map_or(1.0, ErrorRates::goodput) * (1.0 - port.neighbor);
        if self.wiring.on_own_rail(cable) == Some(false) {
            goodput * FOREIGN_LEAF_EFFICIENCY
        } else {
            goodput
        }
    }

    /// Bytes per second that a NIC can send.
    pub(crate) fn sends(&self, nic: usize) -> f64 {
        let wire = self.capacity[Lane::up(nic).index()];
        let slot = self.capacity[self.wiring.pcie_lane(nic, Towards::Fabric).index()];
        wire.min(slot / self.wiring.ports_of_adapter(nic).len() as f64)
    }

    /// Bytes per second that a neighbor moves through a port in each direction.
    pub(crate) fn neighbor_of(&self, nic: usize) -> f64 {
        let port = &self.ports[nic];
        let wire = port.speed.map_or(0.0, LinkSpeed::bytes_per_second);
        wire * WIRE_EFFICIENCY * port.neighbor
    }

    /// Whether the receiver behind a NIC drains less than its cable delivers.
    pub(crate) fn host_is_slower(&self, nic: usize) -> bool {
        let wire = self.capacity[Lane::down(nic).index()];
        let slot = self.capacity[self.wiring.pcie_lane(nic, Towards::Host).index()];
        slot / (self.wiring.ports_of_adapter(nic).len() as f64) < wire
    }

    /// Bytes per second that a NIC can move in each direction.
    pub(crate) fn limit_of(&self, nic: usize) -> f64 {
        let wire = self.capacity[Lane::up(nic).index()];
        let slot = self.capacity[self.wiring.pcie_lane(nic, Towards::Host).index()];
        // The ports of an adapter share its slot.
        wire.min(slot / self.wiring.ports_of_adapter(nic).len() as f64)
    }

    /// Share of the work of a full clock that each GPU does, given the clock that each chip reaches.
    pub(crate) fn speeds(&self, chip_clock: &[f64]) -> impl Iterator<Item = f64> {
        let of = |(chip, gpu): (&f64, &GpuCondition)| chip * gpu.clock * gpu.speed;
        chip_clock.iter().zip(&self.gpus).map(of)
    }

    /// Time that a GPU needs in a step for its kernels and for what moves inside the node. Infinite if it is lost.
    pub(crate) fn gpu_seconds(
        &self,
        workload: &Workload,
        chip_clock: f64,
        gpu: usize,
    ) -> (f64, f64) {
        let gpu = &self.gpus[gpu];
        if gpu.lost {
            return (f64::INFINITY, 0.0);
        }
        let inside = gpu.model.nvlinks_bytes_per_second(gpu.nvlinks);
        let speed = chip_clock * gpu.clock * gpu.speed;
        (
            workload.compute_seconds / speed,
            workload.inside_bytes / inside,
        )
    }

    /// Time that each node needs for the compute of a step: its slowest GPU, what moves inside the node, and
    /// the times in which its processors are stalled. Infinite if a GPU is lost.
    pub(crate) fn node_seconds(&self, workload: &Workload, chip_clock: &[f64], node: usize) -> f64 {
        if self.hosts[node].storage_hangs {
            return f64::INFINITY;
        }
        let seconds = self.gpus_of(node).map(|gpu| {
            let (compute, inside) = self.gpu_seconds(workload, chip_clock[gpu], gpu);
            compute + inside
        });
        seconds.fold(0.0, f64::max) / self.hosts[node].awake()
    }

    /// Whether packets take the same paths and are lost on the same of them as under other conditions.
    pub(crate) fn has_ways_of(&self, other: &Self) -> bool {
        // How fast a cable is matters only to those whose packets are lost.
        let speeds_matter = !self.losses.is_empty();
        let cables = self.wiring.cables.iter().zip(&other.wiring.cables);
        let alike = |(a, b): (&crate::wiring::Cable, &crate::wiring::Cable)| {
            (a.ends, a.lit) == (b.ends, b.lit) && (!speeds_matter || a.speed == b.speed)
        };
        self.losses == other.losses
            && self.polarized == other.polarized
            && cables.into_iter().all(alike)
    }
}
