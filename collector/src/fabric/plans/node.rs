//! GPUs and NICs inside one node, and how far they are from each other.

mod verdict;

use std::collections::BTreeMap;

use railscope_model::identity::PciAddress;
use railscope_model::plan::PlanError;

use super::Source;

/// How far two devices are from each other on PCIe, in `nvidia-smi`'s words, nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// Behind one PCIe switch.
    Pix,
    /// Over several PCIe switches, without the CPU.
    Pxb,
    /// Over the host bridge of one CPU.
    Phb,
    /// Over several host bridges of one NUMA node.
    Node,
    /// Over the link between NUMA nodes.
    Sys,
}

impl Distance {
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Pix, Self::Pxb, Self::Phb, Self::Node, Self::Sys]
            .into_iter()
            .find(|distance| distance.word() == word)
    }
}

/// A GPU or a NIC.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endpoint {
    /// Its name: `GPU0`, `mlx5_0`; its PCI address where it has no other.
    pub name: String,
    /// Where it sits.
    pub pci: Option<PciAddress>,
    /// NUMA node.
    pub numa: Option<u16>,
}

/// The inside of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeTopology {
    /// The name of the node in a text with several nodes.
    pub host: Option<String>,
    /// GPUs, in the order of the text.
    pub gpus: Vec<Endpoint>,
    /// RDMA NICs, in the order of the text.
    pub nics: Vec<Endpoint>,
    /// Distance of a GPU from a NIC, both by place.
    pub distances: BTreeMap<(usize, usize), Distance>,
    /// NVLinks between two GPUs, both by place, the lower first.
    pub nvlinks: BTreeMap<(usize, usize), u16>,
    /// NVLinks of each GPU whose far end is an NVSwitch or is not reported, by place.
    pub switched: BTreeMap<usize, u16>,
    /// GPUs of which the text reports that all NVLinks are inactive, and whether their model should have active
    /// ones.
    pub inactive: BTreeMap<usize, bool>,
    /// Errors of NVLinks by GPU and link: their kind and number.
    pub link_errors: BTreeMap<(usize, u8), Vec<(String, u64)>>,
    /// Whether the text counts errors of NVLinks.
    pub tells_errors: bool,
    /// Whether the text would have reported it if there were a NIC.
    pub tells_nics: bool,
    /// PCI functions of which the text does not report what they are.
    pub unknown: usize,
    /// Network functions that are not RDMA NICs: management ports of NVSwitches, and functions without an RDMA device.
    pub other_ports: usize,
}

/// One step on the path from the PCIe root to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A CPU package or NUMA node, by its place in the text.
    Cpu(usize),
    /// A host bridge.
    HostBridge(usize),
    /// A bridge within PCIe: a switch, or one port of it.
    Bridge(usize),
}

/// Distance between the devices at the end of two paths. `ports`: number of bridges of one PCIe switch between it
/// and a device (hwloc shows each port of a switch, NCCL the switch only).
pub(super) fn distance(a: &[Step], b: &[Step], ports: usize) -> Distance {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let last = common.checked_sub(1).map(|last| a[last]);
    match last {
        Some(Step::Bridge(_)) if a.len() - common <= ports && b.len() - common <= ports => {
            Distance::Pix
        }
        Some(Step::Bridge(_)) => Distance::Pxb,
        Some(Step::HostBridge(_)) => Distance::Phb,
        Some(Step::Cpu(_)) => {
            let bridged = |way: &[Step]| {
                way[common..]
                    .iter()
                    .any(|step| matches!(step, Step::HostBridge(_)))
            };
            if bridged(a) || bridged(b) {
                Distance::Node
            } else {
                Distance::Phb
            }
        }
        None => Distance::Sys,
    }
}

/// GPUs, and NICs, of one node; every GPU is compared with every NIC. The largest servers have 16 of each,
/// virtual functions come on top.
const MOST_DEVICES: usize = 512;

impl NodeTopology {
    /// Refuses more devices than a node has.
    pub(super) fn fits(&self, source: &Source<'_>) -> Result<(), Vec<PlanError>> {
        let (gpus, nics) = (self.gpus.len(), self.nics.len());
        if gpus.max(nics) <= MOST_DEVICES {
            return Ok(());
        }
        let found = format!("{gpus} GPUs and {nics} NICs");
        Err(vec![source.error(
            1,
            "text",
            &found,
            "at most 512 of each in a node",
        )])
    }

    /// Fills in all distances from the paths to GPUs and NICs.
    pub(super) fn measure(&mut self, gpus: &[Vec<Step>], nics: &[Vec<Step>], ports: usize) {
        for (gpu, way) in gpus.iter().enumerate() {
            for (nic, other) in nics.iter().enumerate() {
                self.distances
                    .insert((gpu, nic), distance(way, other, ports));
            }
        }
    }

    /// NICs at the least distance of a GPU, and that distance.
    pub fn nearest(&self, gpu: usize) -> Option<(Distance, Vec<usize>)> {
        let own =
            (0..self.nics.len()).filter_map(|nic| Some((*self.distances.get(&(gpu, nic))?, nic)));
        let own: Vec<_> = own.collect();
        let least = own.iter().map(|(distance, _)| *distance).min()?;
        let nics = own.into_iter().filter(|(distance, _)| *distance == least);
        Some((least, nics.map(|(_, nic)| nic).collect()))
    }

    /// For each GPU its nearest NICs by name, as two nodes are compared by it.
    pub fn affinity(&self) -> Vec<(Option<Distance>, Vec<&str>)> {
        let near = |gpu| self.nearest(gpu);
        let one = |near: Option<(Distance, Vec<usize>)>| match near {
            Some((distance, nics)) => {
                let names = nics.iter().map(|nic| self.nics[*nic].name.as_str());
                (Some(distance), names.collect())
            }
            None => (None, Vec::new()),
        };
        (0..self.gpus.len()).map(|gpu| one(near(gpu))).collect()
    }

    /// NVLinks of a GPU, wherever they lead.
    pub fn links_of(&self, gpu: usize) -> u16 {
        let direct = self
            .nvlinks
            .iter()
            .filter(|((a, b), _)| *a == gpu || *b == gpu);
        let all = direct
            .map(|(_, links)| links)
            .chain(self.switched.get(&gpu));
        all.fold(0, |sum: u16, links| sum.saturating_add(*links))
    }
}
