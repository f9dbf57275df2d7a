//! Shapes of nodes: what is in a node of each kind, in one table. No figure of a product stands elsewhere.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::conditions::PcieLink;
use crate::spec::pci_layout::PcieGeneration;
use crate::spec::{Speed, Transport};

use crate::spec::products::{
    A100, AMAZON, B200, CONNECTX_6, CONNECTX_7, EFA, GB200, GRACE, GpuModel, H100, H200, Host,
    MILAN, NicDriver, NicModel, ROME, SAPPHIRE_RAPIDS,
};

/// Turns a table of kinds into their enumeration, their names and their shapes.
macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident $name:literal = $shape:ident;)+) => {
        /// What kind of node: the key of the table of shapes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum NodeKind { $(#[doc = $name] $(#[$meta])* $kind),+ }

        impl NodeKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its name in files.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// What is in it.
            pub const fn shape(self) -> &'static Shape {
                match self { $(Self::$kind => &$shape),+ }
            }
        }
    };
}

kinds! {
    #[default]
    HgxH100 "hgx-h100" = HGX_H100;
    HgxH200 "hgx-h200" = HGX_H200;
    HgxB200 "hgx-b200" = HGX_B200;
    Gb200Nvl72 "gb200-nvl72" = GB200_NVL72;
    DgxA100 "dgx-a100" = DGX_A100;
    EfaP5 "efa-p5" = EFA_P5;
}

/// A kind of node that the simulator does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "found node {found:?}, expected {}",
    NodeKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownKind {
    /// What was requested.
    pub found: String,
}

impl NodeKind {
    /// The default protocol of its NICs.
    pub const fn transport(self) -> Transport {
        match self.shape().nic.driver {
            NicDriver::Mlx5 => Transport::Infiniband,
            NicDriver::Efa => Transport::Efa,
        }
    }
}

impl FromStr for NodeKind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let mut kinds = Self::ALL.iter().copied();
        kinds
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownKind {
                found: name.to_owned(),
            })
    }
}

impl TryFrom<String> for NodeKind {
    type Error = UnknownKind;

    fn try_from(name: String) -> Result<Self, UnknownKind> {
        name.parse()
    }
}

impl From<NodeKind> for String {
    fn from(kind: NodeKind) -> Self {
        kind.name().to_owned()
    }
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is in a node.
#[derive(Debug, PartialEq)]
pub struct Shape {
    /// Its vendor, in its DMI.
    pub vendor: &'static str,
    /// Name of the product in its DMI.
    pub product: &'static str,
    /// Its GPUs.
    pub gpu: GpuModel,
    /// Its NICs of the compute fabric.
    pub nic: NicModel,
    /// Its processors.
    pub host: Host,
    /// The PCIe link of every GPU and NIC, and of the bridges above them.
    pub pcie: PcieLink,
    /// Root ports with GPUs or NICs, by address.
    pub branches: &'static [Branch],
    /// PCI device of its NVSwitches; none where they are no PCI functions of the node.
    pub nvswitch: Option<u16>,
    /// Nodes of one NVLink domain; 1 where NVLinks end in the node. NVML reports it; collectives between the
    /// nodes of a domain go over their NICs all the same, as with `NCCL_MNNVL_ENABLE=0`.
    pub nvlink_domain_nodes: u16,
}

/// What is connected to one root port.
#[derive(Debug, PartialEq, Eq)]
pub struct Branch {
    /// PCI domain.
    pub domain: u32,
    /// Bus of the root port.
    pub bus: u8,
    /// NUMA node of its socket.
    pub numa_node: u8,
    /// Vendor and device of the switch below the root port; none where a card is in its slot.
    pub switch: Option<(u16, u16)>,
    /// What is below, in the order of its slots.
    pub slots: &'static [Slot],
}

/// What is in a slot. GPUs and NICs are numbered in the order of branches and slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// A GPU.
    Gpu,
    /// A NIC.
    Nic,
}

impl Shape {
    /// GPUs per node.
    pub fn gpus(&self) -> u8 {
        self.count(Slot::Gpu)
    }

    /// NICs per node.
    pub fn nics(&self) -> u8 {
        self.count(Slot::Nic)
    }

    /// Fastest link of its NICs.
    pub const fn speed(&self) -> Speed {
        self.nic.speed
    }

    /// NICs over which the traffic of one GPU is spread.
    pub fn nics_per_gpu(&self) -> u8 {
        (self.nics() / self.gpus()).max(1)
    }

    /// Whether its NICs can be on such a fabric.
    pub fn speaks(&self, transport: Transport) -> bool {
        (self.nic.driver == NicDriver::Efa) == (transport == Transport::Efa)
    }

    fn count(&self, what: Slot) -> u8 {
        let slots = self.branches.iter().flat_map(|branch| branch.slots);
        slots.filter(|slot| **slot == what).count() as u8
    }
}

/// In the DMI of nodes that are no product.
const SIMULATED: &str = "Railscope";

const GEN4_X16: PcieLink = PcieLink {
    generation: PcieGeneration::GEN4,
    lanes: 16,
};
const GEN5_X16: PcieLink = PcieLink {
    generation: PcieGeneration::GEN5,
    lanes: 16,
};

const fn pair_of_each(bus: u8, numa_node: u8, switch: (u16, u16)) -> Branch {
    Branch {
        domain: 0,
        bus,
        numa_node,
        switch: Some(switch),
        slots: &[Slot::Gpu, Slot::Nic, Slot::Gpu, Slot::Nic],
    }
}

/// Four root ports, each with one PCIe switch, each switch with two GPUs and two NICs; two root ports to a
/// CPU socket. Bus numbers are in the manner of a real Sapphire Rapids H100 server (`lspci` of an 8-GPU
/// host), not those of one product.
const HGX_BRANCHES: &[Branch] = &[
    pair_of_each(0x15, 0, (0x1000, 0xc030)),
    pair_of_each(0x48, 0, (0x1000, 0xc030)),
    pair_of_each(0x97, 1, (0x1000, 0xc030)),
    pair_of_each(0xc7, 1, (0x1000, 0xc030)),
];

const HGX_H100: Shape = Shape {
    vendor: SIMULATED,
    product: "Simulated HGX H100",
    gpu: H100,
    nic: CONNECTX_7,
    host: SAPPHIRE_RAPIDS,
    pcie: GEN5_X16,
    branches: HGX_BRANCHES,
    nvswitch: Some(0x22a3),
    nvlink_domain_nodes: 1,
};

const HGX_H200: Shape = Shape {
    product: "Simulated HGX H200",
    gpu: H200,
    ..HGX_H100
};

/// NICs as in a DGX B200 (user guide: eight ConnectX-7 of 400 Gb/s). Its NVLink switches are no PCI functions.
const HGX_B200: Shape = Shape {
    product: "Simulated HGX B200",
    gpu: B200,
    nvswitch: None,
    ..HGX_H100
};

/// NUMA nodes as on a DGX A100 (user guide, topology: four to a socket, of which one has a switch).
const DGX_A100: Shape = Shape {
    vendor: SIMULATED,
    product: "Simulated DGX A100",
    gpu: A100,
    nic: CONNECTX_6,
    host: ROME,
    pcie: GEN4_X16,
    branches: &[
        pair_of_each(0x01, 3, (0x1000, 0xc010)),
        pair_of_each(0x40, 1, (0x1000, 0xc010)),
        pair_of_each(0x80, 7, (0x1000, 0xc010)),
        pair_of_each(0xb0, 5, (0x1000, 0xc010)),
    ],
    nvswitch: Some(0x1af1),
    nvlink_domain_nodes: 1,
};

const fn alone(domain: u32, slots: &'static [Slot]) -> Branch {
    Branch {
        domain,
        bus: 0,
        numa_node: (domain >= 0x10) as u8,
        switch: None,
        slots,
    }
}

/// A compute tray: each root complex of Grace is a separate PCI domain. Four ConnectX-7 to a tray
/// (NVIDIA DGX GB200 user guide: 72 ports of 400 Gb/s to a rack); NVLink switches are in trays of their
/// own, which no PCI function of the node shows.
const GB200_NVL72: Shape = Shape {
    vendor: SIMULATED,
    product: "Simulated GB200 NVL72",
    gpu: GB200,
    nic: CONNECTX_7,
    host: GRACE,
    pcie: GEN5_X16,
    branches: &[
        alone(0x00, &[Slot::Nic]),
        alone(0x02, &[Slot::Nic]),
        alone(0x08, &[Slot::Gpu]),
        alone(0x09, &[Slot::Gpu]),
        alone(0x10, &[Slot::Nic]),
        alone(0x12, &[Slot::Nic]),
        alone(0x18, &[Slot::Gpu]),
        alone(0x19, &[Slot::Gpu]),
    ],
    nvswitch: None,
    nvlink_domain_nodes: 18,
};

/// Four NICs and a GPU behind one switch.
const fn four_and_one(place: u8) -> Branch {
    Branch {
        domain: 0,
        bus: 0x44 + 0x11 * place,
        numa_node: place / 4,
        switch: Some((AMAZON, 0x0200)),
        slots: &[Slot::Nic, Slot::Nic, Slot::Nic, Slot::Nic, Slot::Gpu],
    }
}

/// A cloud instance, by what it reports about itself (Amazon EC2 user guide: 8 H100, 32 EFA devices). Bus
/// numbers are those of the fixture machine of this name.
const EFA_P5: Shape = Shape {
    vendor: "Amazon EC2",
    product: "p5.48xlarge",
    gpu: H100,
    nic: EFA,
    host: MILAN,
    pcie: GEN5_X16,
    branches: &[
        four_and_one(0),
        four_and_one(1),
        four_and_one(2),
        four_and_one(3),
        four_and_one(4),
        four_and_one(5),
        four_and_one(6),
        four_and_one(7),
    ],
    nvswitch: Some(0x22a3),
    nvlink_domain_nodes: 1,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_parts_of_their_products() {
        for (kind, gpus, nics) in [
            (NodeKind::HgxH100, 8, 8),
            (NodeKind::HgxH200, 8, 8),
            (NodeKind::HgxB200, 8, 8),
            (NodeKind::Gb200Nvl72, 4, 4),
            (NodeKind::DgxA100, 8, 8),
            (NodeKind::EfaP5, 8, 32),
        ] {
            let shape = kind.shape();
            assert_eq!((shape.gpus(), shape.nics()), (gpus, nics), "{kind}");
            assert_eq!(kind.name().parse(), Ok(kind));
            let nodes = shape.host.cpu_lists.len();
            for branch in shape.branches {
                assert!(usize::from(branch.numa_node) < nodes, "{kind}: {branch:?}");
            }
        }
    }

    #[test]
    fn an_unknown_kind_is_refused_with_those_that_are_known() {
        let refused = |name: &str| name.parse::<NodeKind>().expect_err(name).to_string();
        assert_eq!(
            refused("hgx-h1"),
            "found node \"hgx-h1\", expected hgx-h100, hgx-h200, hgx-b200, gb200-nvl72, dgx-a100, efa-p5"
        );
    }
}
