//! Where GPUs and NICs sit on the PCIe of a node, by its shape.

use railscope_model::identity::PciAddress;

use crate::spec::products::NicDriver;
use crate::spec::shape::{Branch, Shape, Slot};

/// What a PCI function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// Root port of a CPU socket.
    RootPort,
    /// Upstream port of a PCIe switch.
    SwitchUpstream,
    /// Downstream port of a PCIe switch.
    SwitchDownstream,
    /// GPU, by ordinal.
    Gpu(u8),
    /// Port of a NIC, by the NIC's ordinal and the port's number.
    Nic(u8, u8),
}

/// A PCIe generation's transfer rate per lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PcieGeneration(u8);

impl PcieGeneration {
    /// 8 GT/s.
    pub const GEN3: Self = Self(3);
    /// 16 GT/s.
    pub const GEN4: Self = Self(4);
    /// 32 GT/s.
    pub const GEN5: Self = Self(5);

    /// Generation by number; none beyond 1 to 5.
    pub fn new(number: u8) -> Option<Self> {
        (1..=5).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Billions of transfers per second and lane (PCI Express Base Specification).
    pub const fn gigatransfers(self) -> f64 {
        match self.0 {
            1 => 2.5,
            2 => 5.0,
            3 => 8.0,
            4 => 16.0,
            _ => 32.0,
        }
    }

    /// Bytes per second of so many lanes on the wire: 8b/10b coding up to generation 2, 128b/130b after.
    pub fn bytes_per_second(self, lanes: u8) -> f64 {
        let coding = if self.0 <= 2 { 0.8 } else { 128.0 / 130.0 };
        self.gigatransfers() * 1e9 * coding * f64::from(lanes) / 8.0
    }
}

/// One PCI function of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Address.
    pub pci: PciAddress,
    /// The bridge above it; none above a root port.
    pub parent: Option<PciAddress>,
    /// What it is.
    pub kind: FunctionKind,
    /// NUMA node of its socket.
    pub numa_node: u8,
    /// Fastest generation of its upward link.
    pub generation: PcieGeneration,
    /// Most lanes of its upward link.
    pub lanes: u8,
    /// Vendor and device.
    pub ids: (u16, u16),
    /// Driver of the node's NICs.
    pub nic: NicDriver,
}

impl Function {
    /// PCI class code as the kernel prints it.
    pub const fn class(&self) -> &'static str {
        match self.kind {
            FunctionKind::RootPort
            | FunctionKind::SwitchUpstream
            | FunctionKind::SwitchDownstream => "0x060400",
            FunctionKind::Gpu(_) => "0x030200",
            FunctionKind::Nic(..) => self.nic.class(),
        }
    }

    /// Its driver.
    pub const fn driver(&self) -> &'static str {
        match self.kind {
            FunctionKind::RootPort
            | FunctionKind::SwitchUpstream
            | FunctionKind::SwitchDownstream => "pcieport",
            FunctionKind::Gpu(_) => "nvidia",
            FunctionKind::Nic(..) => self.nic.name(),
        }
    }
}

/// Vendor of GPUs.
pub(crate) const NVIDIA: u16 = 0x10de;

impl Branch {
    const fn at(&self, bus: u8, device: u8) -> PciAddress {
        PciAddress {
            domain: self.domain,
            bus: self.bus + bus,
            device,
            function: 0,
        }
    }

    /// The root port: the first device is taken where a switch is below it.
    const fn root_port(&self) -> PciAddress {
        self.at(0, self.switch.is_some() as u8)
    }

    /// All of its cards.
    pub(crate) fn cards(&self) -> impl Iterator<Item = PciAddress> {
        (0..self.slots.len() as u8).map(|slot| self.card(slot))
    }

    /// The card in a slot.
    const fn card(&self, slot: u8) -> PciAddress {
        // Below a switch the buses of the upstream and of the downstream ports come first.
        let first = if self.switch.is_some() { 3 } else { 1 };
        self.at(first + slot, 0)
    }
}

/// Addresses of all cards of one sort, in the order in which they are numbered.
fn cards(shape: &Shape, what: Slot) -> impl Iterator<Item = PciAddress> {
    let branches = shape.branches.iter();
    branches.flat_map(move |branch| {
        let slots = (0..).zip(branch.slots);
        slots
            .filter(move |(_, slot)| **slot == what)
            .map(|(number, _)| branch.card(number))
    })
}

/// All PCI functions of a node with up to so many of its GPUs and NICs, parents before children. A NIC has
/// a function for each of its ports.
pub fn functions(shape: &Shape, gpus: u8, nics: u8, ports_per_nic: u8) -> Vec<Function> {
    let mut functions = Vec::new();
    let (mut gpu, mut nic) = (0..gpus, 0..nics);
    for branch in shape.branches {
        let mut add = |pci, parent, kind, ids| {
            functions.push(Function {
                pci,
                parent,
                kind,
                numa_node: branch.numa_node,
                generation: shape.pcie.generation,
                lanes: shape.pcie.lanes,
                ids,
                nic: shape.nic.driver,
            });
        };
        let mut above = branch.root_port();
        add(above, None, FunctionKind::RootPort, shape.host.root_port);
        if let Some(ids) = branch.switch {
            let upstream = branch.at(1, 0);
            add(upstream, Some(above), FunctionKind::SwitchUpstream, ids);
            above = upstream;
        }
        for (number, slot) in (0..).zip(branch.slots) {
            let mut bridge = above;
            if let Some(ids) = branch.switch {
                bridge = branch.at(2, number);
                add(bridge, Some(above), FunctionKind::SwitchDownstream, ids);
            }
            let card = branch.card(number);
            match slot {
                Slot::Gpu => gpu.by_ref().take(1).for_each(|gpu| {
                    let ids = (NVIDIA, shape.gpu.pci_device);
                    add(card, Some(bridge), FunctionKind::Gpu(gpu), ids);
                }),
                Slot::Nic => nic.by_ref().take(1).for_each(|nic| {
                    let ids = (shape.nic.driver.vendor(), shape.nic.pci_device);
                    for port in 0..ports_per_nic {
                        let kind = FunctionKind::Nic(nic, port);
                        add(port_of(card, port), Some(bridge), kind, ids);
                    }
                }),
            }
        }
    }
    functions
}

/// Address of GPU `ordinal`.
pub fn gpu_address(shape: &Shape, ordinal: u8) -> PciAddress {
    numbered(cards(shape, Slot::Gpu), ordinal)
}

/// Address of a port of NIC `ordinal`: a separate function.
pub fn nic_address(shape: &Shape, ordinal: u8, port: u8) -> PciAddress {
    port_of(numbered(cards(shape, Slot::Nic), ordinal), port)
}

fn port_of(card: PciAddress, port: u8) -> PciAddress {
    PciAddress {
        function: port,
        ..card
    }
}

const NOWHERE: PciAddress = PciAddress {
    domain: 0,
    bus: 0,
    device: 0,
    function: 0,
};

/// A description with more cards than the shape has slots is rejected at once.
fn numbered(mut cards: impl Iterator<Item = PciAddress>, ordinal: u8) -> PciAddress {
    cards.nth(ordinal.into()).unwrap_or(NOWHERE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::shape::NodeKind;

    #[test]
    fn addresses_agree_with_the_layout() {
        for kind in NodeKind::ALL {
            let shape = kind.shape();
            let functions = functions(shape, shape.gpus(), shape.nics(), 2);
            let mut cards = 0;
            for function in &functions {
                match function.kind {
                    FunctionKind::Gpu(ordinal) => {
                        cards += 1;
                        assert_eq!(gpu_address(shape, ordinal), function.pci, "{kind}");
                    }
                    FunctionKind::Nic(ordinal, port) => {
                        cards += 1;
                        assert_eq!(nic_address(shape, ordinal, port), function.pci, "{kind}");
                    }
                    _ => {}
                }
            }
            assert_eq!(cards, shape.gpus() + 2 * shape.nics(), "{kind}");
            let mut addresses: Vec<_> = functions.iter().map(|function| function.pci).collect();
            addresses.sort();
            addresses.dedup();
            assert_eq!(addresses.len(), functions.len(), "{kind}");
        }
    }

    #[test]
    fn half_the_lanes_carry_half_the_bytes() {
        let full = PcieGeneration::GEN5.bytes_per_second(16);
        assert!((full / 1e9 - 63.0).abs() < 0.1, "{full}");
        assert_eq!(PcieGeneration::GEN5.bytes_per_second(8) * 2.0, full);
    }
}
