//! How far each NIC is from each GPU, from the PCI hierarchy and NUMA nodes in `/sys/devices`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use railscope_model::identity::PciAddress;
use railscope_model::metric::{GPU_NIC, Profile};
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::REDISCOVER;
use super::host::online;
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::pci::{self, Function};
use crate::sources::rdma;
use crate::sources::sysfs::{Buffer, Dir, Miss, Root};

/// Source label.
const NAME: &str = "placement";

struct Placement {
    root: Root,
    management: Management,
}

/// Devices that represent NVSwitches and carry no traffic of a GPU, by name and identity. The check needs a read
/// of vital product data from the card, so each device is checked once.
type Management = BTreeMap<(String, Option<(u64, u64)>), bool>;

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Placement {
        root: Root::new(&machine.sysfs),
        management: Management::new(),
    })
}

impl Sampler for Placement {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Changes only when devices come and go.
    fn period(&self) -> Duration {
        REDISCOVER
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let management = &mut self.management;
        let parts = self
            .root
            .open()
            .and_then(|sysfs| Parts::read(&sysfs, management, &mut buffer));
        let parts = match parts {
            Ok(parts) => parts,
            Err(miss) => return Ok(Presence::Absent(miss.into())),
        };
        let nearest = parts.nearest();
        for (gpu, end) in parts.gpus.iter().enumerate() {
            for (place, nic) in parts.nics.iter().enumerate() {
                let is_nearest = nearest[gpu] == place;
                let hop = parts.hop(end, &nic.end);
                let labels = [&gpu as &dyn fmt::Display, &nic.name, &hop, &is_nearest];
                let profile = Profile::default_if(is_nearest);
                reading.push_in(profile, &GPU_NIC, &Labels::new(labels), true);
            }
        }
        Ok(Presence::Present)
    }
}

/// How far apart two functions are, nearest first: the classes of `nvidia-smi topo -m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hop {
    /// At most one PCIe switch between.
    Pix,
    /// Several PCIe switches, but not the host bridge.
    Pxb,
    /// The host bridge of one root complex.
    Phb,
    /// Two host bridges of one NUMA node.
    Node,
    /// The interconnect between NUMA nodes.
    Sys,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        })
    }
}

/// Where one function is connected.
struct End {
    host_bridge: String,
    bridges: Vec<PciAddress>,
    numa_node: Option<u32>,
}

impl End {
    fn new(function: &Function, buffer: &mut Buffer) -> Self {
        Self {
            host_bridge: function.host_bridge.clone(),
            bridges: function.bridges.clone(),
            numa_node: function.numa_node(buffer),
        }
    }
}

struct Nic {
    name: String,
    end: End,
    address: PciAddress,
    /// What ranks below its equals: a virtual function or a subfunction below the physical one, a port
    /// that is not InfiniBand below one that is, as that is then the compute fabric and the other is storage.
    /// Neither changes with the health of a link; a port's rate does.
    rank: (bool, bool),
}

struct Parts {
    gpus: Vec<End>,
    nics: Vec<Nic>,
    one_numa_node: bool,
}

impl Parts {
    fn read(sysfs: &Dir, management: &mut Management, buffer: &mut Buffer) -> Result<Self, Miss> {
        let gpus: Vec<_> = pci::gpus(sysfs, buffer)?
            .iter()
            .map(|gpu| End::new(gpu, buffer))
            .collect();
        let mut nics = Vec::new();
        for device in rdma::devices(sysfs)? {
            let Some(function) = &device.function else {
                continue;
            };
            let is_management = management
                .entry((device.name.clone(), device.dir.id()))
                .or_insert_with(|| device.is_switch_management(buffer));
            if *is_management {
                continue;
            }
            let infiniband = device.ports().iter().any(|(_, port)| {
                port.text("link_layer", buffer)
                    .is_ok_and(|layer| layer == "InfiniBand")
            });
            nics.push(Nic {
                end: End::new(function, buffer),
                address: function.address,
                rank: (
                    function.is_virtual() || device.is_subfunction(),
                    !infiniband,
                ),
                name: device.name,
            });
        }
        if gpus.is_empty() || nics.is_empty() {
            return Err(Miss::Absent);
        }
        nics.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        let nodes = sysfs
            .dir("devices/system/node")
            .and_then(|nodes| online(&nodes, buffer));
        Ok(Self {
            gpus,
            nics,
            one_numa_node: nodes.is_ok_and(|nodes| nodes == 1),
        })
    }

    fn hop(&self, a: &End, b: &End) -> Hop {
        if a.host_bridge != b.host_bridge {
            let same_node = match (a.numa_node, b.numa_node) {
                (Some(a), Some(b)) => a == b,
                // A firmware that names no node on a machine that has but one.
                _ => self.one_numa_node,
            };
            return if same_node { Hop::Node } else { Hop::Sys };
        }
        let common = a
            .bridges
            .iter()
            .zip(&b.bridges)
            .take_while(|(a, b)| a == b)
            .count();
        // A switch is one upstream port and a downstream port for each branch. Below the deepest common
        // port, one port a side is that switch's own; more are a further switch.
        let branch = a.bridges.len().max(b.bridges.len()) - common;
        match (common, branch) {
            (0, _) => Hop::Phb,
            (_, 0 | 1) => Hop::Pix,
            _ => Hop::Pxb,
        }
    }

    /// For each GPU the place of its NIC: the closest. GPUs that share their closest NICs spread over
    /// them in order, so that the first of the group takes the first NIC; over all adapters before the
    /// second port of any.
    fn nearest(&self) -> Vec<usize> {
        let mut group_sizes: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let spread = self.gpus.iter().map(|gpu| {
            let distance = |nic: &Nic| (self.hop(gpu, &nic.end), nic.rank);
            let least = self.nics.iter().map(distance).min();
            let mut closest: Vec<usize> = (0..self.nics.len())
                .filter(|nic| Some(distance(&self.nics[*nic])) == least)
                .collect();
            closest.sort_by_key(|nic| self.nics[*nic].address.function);
            let place = group_sizes.entry(closest.clone()).or_default();
            *place += 1;
            closest[(*place - 1) % closest.len()]
        });
        spread.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pci0000:15 01.0 16:00.0` …: host bridge, then bridges, then `@` and the NUMA node.
    fn end(text: &str) -> End {
        let (path, node) = text.split_once('@').unwrap_or((text, ""));
        let mut words = path.split_whitespace();
        End {
            host_bridge: words.next().expect("a host bridge").to_owned(),
            bridges: words.map(|word| word.parse().expect(word)).collect(),
            numa_node: node.parse().ok(),
        }
    }

    #[test]
    fn hop_classes_are_those_of_nvidia_smi() {
        let root = "pci0000:15 15:01.0";
        let switch = "pci0000:15 15:01.0 16:00.0";
        for (a, b, one_numa_node, expected) in [
            (
                format!("{switch} 17:00.0"),
                format!("{switch} 17:01.0"),
                false,
                Hop::Pix,
            ),
            (root.to_owned(), root.to_owned(), false, Hop::Pix),
            (
                format!("{switch} 17:00.0 18:00.0 19:00.0"),
                format!("{switch} 17:01.0"),
                false,
                Hop::Pxb,
            ),
            (
                root.to_owned(),
                "pci0000:15 15:03.0".to_owned(),
                false,
                Hop::Phb,
            ),
            (
                "pci0000:00".to_owned(),
                "pci0000:00".to_owned(),
                false,
                Hop::Phb,
            ),
            (
                "pci0000:15@0".to_owned(),
                "pci0000:37@0".to_owned(),
                false,
                Hop::Node,
            ),
            (
                "pci0000:15@0".to_owned(),
                "pci0000:97@1".to_owned(),
                false,
                Hop::Sys,
            ),
            (
                "pci0000:15".to_owned(),
                "pci0000:37".to_owned(),
                false,
                Hop::Sys,
            ),
            (
                "pci0000:15".to_owned(),
                "pci0000:37".to_owned(),
                true,
                Hop::Node,
            ),
        ] {
            let parts = Parts {
                gpus: vec![],
                nics: vec![],
                one_numa_node,
            };
            assert_eq!(parts.hop(&end(&a), &end(&b)), expected, "{a} | {b}");
            assert_eq!(parts.hop(&end(&b), &end(&a)), expected, "{b} | {a}");
        }
    }

    fn nearest(gpus: &[&str], nics: &[(&str, bool, bool)]) -> Vec<usize> {
        let nic = |(place, (path, is_virtual, ethernet)): (usize, &(&str, bool, bool))| Nic {
            name: format!("mlx5_{place}"),
            end: end(path.split('#').next().unwrap_or(path)),
            // `#1` is the second port of an adapter.
            address: match path.split_once('#') {
                Some((_, port)) => format!("00:00.{port}").parse().expect("an address"),
                None => "00:00.0".parse().expect("an address"),
            },
            rank: (*is_virtual, *ethernet),
        };
        let parts = Parts {
            gpus: gpus.iter().map(|gpu| end(gpu)).collect(),
            nics: nics.iter().enumerate().map(nic).collect(),
            one_numa_node: false,
        };
        parts.nearest()
    }

    #[test]
    fn gpus_spread_over_equally_close_nics() {
        let a = "pci0000:15 15:01.0 16:00.0 17:00.0@0";
        let b = "pci0000:37 37:01.0 38:00.0 39:00.0@0";
        let ib = |path| (path, false, false);
        // Two GPUs and two NICs behind each of two switches.
        assert_eq!(
            nearest(&[a, a, b, b], &[ib(a), ib(a), ib(b), ib(b)]),
            [0, 1, 2, 3]
        );
        // One NIC for two GPUs (DGX H100 with four NICs).
        assert_eq!(nearest(&[a, a, b, b], &[ib(a), ib(b)]), [0, 0, 1, 1]);
        // A flat virtual machine: all pairs are equal.
        let flat = "pci0000:00";
        assert_eq!(nearest(&[flat; 4], &[ib(flat); 2]), [0, 1, 0, 1]);
        // Two adapters of two ports each behind one switch: a GPU for each adapter.
        let (first, second) = (ib(a), ib("pci0000:15 15:01.0 16:00.0 17:00.0@0#1"));
        assert_eq!(nearest(&[a, a], &[first, second, first, second]), [0, 2]);
        // Storage and virtual functions do not take a GPU's place.
        let nics = [
            (flat, false, true),
            (flat, false, false),
            (flat, true, false),
            (flat, false, false),
        ];
        assert_eq!(nearest(&[flat; 2], &nics), [1, 3]);
    }
}
