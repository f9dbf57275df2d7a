//! Where GPUs and NICs sit on the PCIe of an HGX H100 server.
//!
//! Four root ports, each with one PCIe switch, each switch with two GPUs and two NICs; two root ports
//! to a CPU socket. Bus numbers and ids are in the manner of a real Sapphire Rapids H100 server
//! (`lspci` of an 8-GPU host), not those of one product.

use railscope_model::identity::PciAddress;

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

/// One PCI function of the server.
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
}

impl Function {
    /// PCI class code, vendor and device id as the kernel prints them.
    pub const fn ids(&self) -> (&'static str, &'static str, &'static str) {
        match self.kind {
            FunctionKind::RootPort => ("0x060400", "0x8086", "0x352a"),
            FunctionKind::SwitchUpstream | FunctionKind::SwitchDownstream => {
                ("0x060400", "0x1000", "0xc030")
            }
            FunctionKind::Gpu(_) => ("0x030200", "0x10de", "0x2330"),
            FunctionKind::Nic(..) => ("0x020700", "0x15b3", "0x1021"),
        }
    }
}

/// First bus of each root complex, and the socket that it belongs to.
const ROOTS: [(u8, u8); 4] = [(0x15, 0), (0x48, 0), (0x97, 1), (0xc7, 1)];

const fn at(bus: u8, device: u8) -> PciAddress {
    PciAddress {
        domain: 0,
        bus,
        device,
        function: 0,
    }
}

/// All PCI functions of a server with up to 8 GPUs and 8 NICs, parents before children. A NIC has a
/// function for each of its ports.
pub fn hgx_h100(gpus: u8, nics: u8, ports_per_nic: u8) -> Vec<Function> {
    let mut functions = Vec::new();
    for (switch, (root, numa_node)) in (0_u8..).zip(ROOTS) {
        let mut add = |pci, parent, kind| {
            functions.push(Function {
                pci,
                parent,
                kind,
                numa_node,
                generation: PcieGeneration::GEN5,
                lanes: 16,
            });
        };
        let (root_port, upstream) = (at(root, 1), at(root + 1, 0));
        add(root_port, None, FunctionKind::RootPort);
        add(upstream, Some(root_port), FunctionKind::SwitchUpstream);
        for slot in 0..4 {
            let ordinal = 2 * switch + slot / 2;
            let downstream = at(root + 2, slot);
            add(downstream, Some(upstream), FunctionKind::SwitchDownstream);
            if slot % 2 == 0 && ordinal < gpus {
                add(
                    gpu_address(ordinal),
                    Some(downstream),
                    FunctionKind::Gpu(ordinal),
                );
            }
            if slot % 2 == 1 && ordinal < nics {
                for port in 0..ports_per_nic {
                    let kind = FunctionKind::Nic(ordinal, port);
                    add(nic_address(ordinal, port), Some(downstream), kind);
                }
            }
        }
    }
    functions
}

/// Address of GPU `ordinal` in [`hgx_h100`].
pub fn gpu_address(ordinal: u8) -> PciAddress {
    endpoint(ordinal, 0)
}

/// Address of a port of NIC `ordinal` in [`hgx_h100`]: a function of its own.
pub fn nic_address(ordinal: u8, port: u8) -> PciAddress {
    PciAddress {
        function: port,
        ..endpoint(ordinal, 1)
    }
}

fn endpoint(ordinal: u8, offset: u8) -> PciAddress {
    let (root, _) = ROOTS[usize::from(ordinal / 2) % ROOTS.len()];
    at(root + 3 + 2 * (ordinal % 2) + offset, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_agree_with_the_layout() {
        let functions = hgx_h100(8, 8, 2);
        for function in &functions {
            match function.kind {
                FunctionKind::Gpu(ordinal) => assert_eq!(gpu_address(ordinal), function.pci),
                FunctionKind::Nic(ordinal, port) => {
                    assert_eq!(nic_address(ordinal, port), function.pci);
                }
                _ => {}
            }
        }
        let mut addresses: Vec<_> = functions.iter().map(|function| function.pci).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), functions.len());
    }

    #[test]
    fn half_the_lanes_carry_half_the_bytes() {
        let full = PcieGeneration::GEN5.bytes_per_second(16);
        assert!((full / 1e9 - 63.0).abs() < 0.1, "{full}");
        assert_eq!(PcieGeneration::GEN5.bytes_per_second(8) * 2.0, full);
    }
}
