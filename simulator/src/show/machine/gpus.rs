//! A node's GPUs as its NVML reports them: the simulated values in the mock library's state.

use railscope_model::identity::PciAddress;

use crate::cluster::Node;
use crate::noise::Noise;
use crate::parts::gpu::{ClockEvent, Gpu};
use crate::show::nvml;
use crate::show::nvml::{Event, Fault, GpuState, NodeGpus};
use crate::spec::pci_layout::{NVIDIA, gpu_address};
use crate::spec::shape::{Branch, Shape};

/// `NVML_ERROR_GPU_IS_LOST`.
const GPU_IS_LOST: u32 = 15;

/// UUID of a GPU. The same for the same place in the cluster.
pub fn uuid(node: u16, gpu: u8) -> String {
    let noise = Noise::new(u64::from(node) << 8 | u64::from(gpu));
    let (high, low) = (noise.bits(0), noise.bits(1));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// What NVML reports about a node's GPUs before anything happened. `ordinal` is the node's.
pub(crate) fn fitted(node: &Node, ordinal: u16) -> NodeGpus {
    let shape = node.kind.shape();
    let domain = Domain::of(node, ordinal);
    let mut state = NodeGpus::h100(node.gpus.len());
    for (number, gpu) in (0..).zip(&mut state.gpus) {
        let PciAddress {
            domain: segment,
            bus,
            device,
            function,
        } = gpu_address(shape, number);
        gpu.pci_address = nvml::PciAddress {
            domain: segment,
            bus,
            device,
            function,
        };
        gpu.uuid = uuid(ordinal, number);
        gpu.serial = format!("1650{ordinal:04}{number:05}");
        gpu.host_numa_node = numa_node(shape, number);
        fit(gpu, number, shape);
        if let Some(domain) = &domain {
            domain.show(gpu);
        }
    }
    state
}

/// NUMA node of the socket that a GPU is connected to.
fn numa_node(shape: &Shape, number: u8) -> u32 {
    let address = gpu_address(shape, number);
    let on = |branch: &&Branch| branch.cards().any(|card| card == address);
    let branch = shape.branches.iter().find(on);
    branch.map_or(0, |branch| branch.numa_node.into())
}

/// Sets the values of a GPU's product.
fn fit(gpu: &mut GpuState, number: u8, shape: &Shape) {
    let model = &shape.gpu;
    model.name.clone_into(&mut gpu.name);
    model.vbios.clone_into(&mut gpu.vbios_version);
    gpu.pci_device_id = u32::from(model.pci_device) << 16 | u32::from(NVIDIA);
    gpu.architecture = model.architecture_number;
    (gpu.cuda_capability_major, gpu.cuda_capability_minor) = model.capability;
    gpu.memory_total_bytes = model.memory_mebibytes << 20;
    let (clock, memory_clock) = (model.full_clock_mhz as u32, model.memory_clock_mhz);
    (gpu.clock_graphics_max_mhz, gpu.clock_sm_max_mhz) = (clock, clock);
    (gpu.clock_memory_mhz, gpu.clock_memory_max_mhz) = (memory_clock, memory_clock);
    let limit = (model.limit_watts * 1e3) as u32;
    gpu.power_limit_milliwatts = limit;
    gpu.power_limit_enforced_milliwatts = limit;
    gpu.power_limit_max_milliwatts = limit;
    gpu.power_limit_default_milliwatts = limit;
    let generation = shape.pcie.generation.number().into();
    (gpu.pcie_generation, gpu.pcie_generation_max) = (generation, generation);
    gpu.gpm = model.has_gpm;
    if !model.has_fabric {
        gpu.fabric_state = 0;
    }
    (gpu.c2c_links, gpu.c2c_speed_megabytes_per_second) = model.c2c;
    gpu.set_link_count(number.into(), model.nvlinks.into());
    for link in &mut gpu.links {
        link.version = model.nvlink_version;
        link.speed_megabytes_per_second = model.nvlink_megabytes_per_second;
        match shape.nvswitch {
            Some(device) => {
                link.remote_pci_device_id = u32::from(device) << 16 | u32::from(NVIDIA);
            }
            None => link.remote_pci_address = nvml::PciAddress::default(),
        }
    }
}

/// A node's place in an NVLink domain of several nodes.
struct Domain {
    /// Ordinal of the domain's first node.
    first: u16,
    /// Tray in the domain.
    tray: u16,
}

/// Clique of all GPUs of a domain that is not partitioned, as on a GB200 NVL72.
const WHOLE_DOMAIN: u32 = 32_766;
/// Keeps the noise of domains apart from that of GPUs.
const DOMAINS: u64 = 1 << 32;
/// Every two-bit field of the health mask is "no", and the configuration is right.
const HEALTHY: u32 = 0x1aa;

impl Domain {
    fn of(node: &Node, ordinal: u16) -> Option<Self> {
        let nodes = node.kind.shape().nvlink_domain_nodes;
        (nodes > 1).then(|| Self {
            first: ordinal - node.place % nodes,
            tray: node.place % nodes,
        })
    }

    fn show(&self, gpu: &mut GpuState) {
        let noise = Noise::new(DOMAINS | u64::from(self.first));
        let (high, low) = (noise.bits(0).to_be_bytes(), noise.bits(1).to_be_bytes());
        let (first, second) = gpu.fabric_cluster_uuid.split_at_mut(8);
        first.copy_from_slice(&high);
        second.copy_from_slice(&low);
        gpu.fabric_clique_id = WHOLE_DOMAIN;
        (gpu.fabric_health_mask, gpu.fabric_health_summary) = (HEALTHY, 1);
        gpu.platform_chassis_serial = format!("18201{:08}", self.first);
        gpu.platform_tray = self.tray as u8;
        // The nine NVLink switch trays of the rack are in the middle of the eighteen.
        gpu.platform_slot = self.tray as u8 + if self.tray < 8 { 1 } else { 10 };
        gpu.platform_host = 1;
    }
}

/// Brings the state up to what the GPUs show now.
pub(super) fn show(state: &mut NodeGpus, gpus: &[Gpu]) {
    for (to, from) in state.gpus.iter_mut().zip(gpus) {
        let (watts, clock) = (from.power_watts, from.clock_mhz.round() as u32);
        to.gpu_utilization_percent = (from.utilization * 100.0).round() as u32;
        to.clock_sm_mhz = clock;
        to.clock_graphics_mhz = clock;
        to.power_milliwatts = (watts * 1e3) as u32;
        to.power_instant_milliwatts = to.power_milliwatts;
        let limit = (from.limit_watts * 1e3) as u32;
        (
            to.power_limit_milliwatts,
            to.power_limit_enforced_milliwatts,
        ) = (limit, limit);
        to.energy_millijoules = (from.energy_joules * 1e3) as u64;
        to.temperature_celsius = from.temperature_celsius.round() as u32;
        let nanoseconds = from.event_seconds.map(|seconds| (seconds * 1e9) as u64);
        [
            to.sw_power_cap_nanoseconds,
            to.hw_thermal_nanoseconds,
            to.hw_power_brake_nanoseconds,
        ] = nanoseconds;
        to.clocks_event_reasons = from.event.map_or(0, ClockEvent::bits);
        to.gpm_tensor_active_permille = (from.tensor_active * 1e3).round() as u32;
        to.gpm_tensor_active_nanoseconds = (from.tensor_seconds * 1e9) as u64;
        to.gpm_nanoseconds = (from.monitored_seconds * 1e9) as u64;
        to.remapped_rows_pending = from.row_remap_pending;
        for (number, link) in (0..).zip(&mut to.links) {
            link.state = u32::from(number < from.nvlinks);
        }
        to.events = (1..)
            .zip(&from.xids)
            .map(|(sequence, xid)| Event::xid((*xid).into(), sequence))
            .collect();
        to.faults = if from.lost {
            vec![Fault::fail("*", GPU_IS_LOST)]
        } else {
            Vec::new()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::spec::shape::NodeKind;
    use crate::spec::{ClusterSpec, Group};

    /// GPUs of the first of each node of a cluster of two racks and a half, behind two other nodes.
    fn racks() -> Vec<GpuState> {
        let spec = ClusterSpec {
            node: NodeKind::Gb200Nvl72,
            groups: vec![Group {
                node: NodeKind::HgxH100,
                nodes: 2,
            }],
            gpus_per_node: Some(1),
            nics_per_node: Some(1),
            ..ClusterSpec::demo(2 + 45).expect("spec")
        };
        let cluster = Cluster::new(spec, 1).expect("cluster");
        let nodes = (0..).zip(cluster.nodes());
        nodes
            .map(|(ordinal, node)| fitted(node, ordinal).gpus[0].clone())
            .collect()
    }

    #[test]
    fn the_trays_of_a_rack_are_one_nvlink_domain() {
        let gpus = racks();
        let domain = |node: usize| {
            let gpu = &gpus[node];
            let clique = (gpu.fabric_cluster_uuid, gpu.fabric_clique_id);
            (clique, gpu.platform_chassis_serial.clone())
        };
        assert_eq!(gpus[1].fabric_cluster_uuid, [0; 16]);
        assert!((3..20).all(|node| domain(node) == domain(2)));
        assert!((21..38).all(|node| domain(node) == domain(20)));
        assert_ne!(domain(20), domain(2));
        assert_ne!(domain(38), domain(20));
        let slots: Vec<u8> = (2..20).map(|node| gpus[node].platform_slot).collect();
        assert_eq!(slots[..9], [1, 2, 3, 4, 5, 6, 7, 8, 18]);
        assert_eq!((slots[17], gpus[19].platform_tray), (27, 17));
    }

    #[test]
    fn products_differ_as_their_data_sheets_do() {
        for (kind, name, links, speed, fabric) in [
            (NodeKind::HgxH200, "NVIDIA H200", 18, 26_562, 3),
            (NodeKind::HgxB200, "NVIDIA B200", 18, 53_125, 3),
            (NodeKind::DgxA100, "NVIDIA A100-SXM4-80GB", 12, 25_000, 0),
        ] {
            let spec = ClusterSpec {
                node: kind,
                ..ClusterSpec::demo(1).expect("spec")
            };
            let cluster = Cluster::new(spec, 1).expect("cluster");
            let gpu = &fitted(&cluster.nodes()[0], 0).gpus[5];
            assert_eq!((gpu.name.as_str(), gpu.links.len()), (name, links));
            assert_eq!(gpu.links[0].speed_megabytes_per_second, speed, "{name}");
            assert_eq!(gpu.fabric_state, fabric, "{name}");
        }
    }
}
