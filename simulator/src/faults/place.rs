//! Parts by name -> what they are in a cluster.

use railscope_model::identity::Part;

use crate::faults::{Healthy, Pick};
use crate::spec::Transport;
use crate::traffic::router::Routing;
use crate::wiring::{Device, Nic, Tier, Wiring};

/// What a fault names, found in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A NIC, by index into [`Wiring::nics`].
    Nic(usize),
    /// Two NICs whose cables are mixed up.
    Nics(usize, usize),
    /// A GPU, by index over all nodes.
    Gpu(usize),
    /// A node.
    Host(usize),
    /// So many nodes, from the first on.
    FirstHosts(usize),
    /// A cable between switches, by index into [`Wiring::cables`].
    Cable(usize),
    /// A switch, by index into [`Wiring::switches`].
    Switch(usize),
}

impl Target {
    /// The NICs among the targets.
    pub(crate) fn nics(self) -> Vec<usize> {
        match self {
            Self::Nic(nic) => vec![nic],
            Self::Nics(one, other) => vec![one, other],
            Self::Gpu(_)
            | Self::Host(_)
            | Self::FirstHosts(_)
            | Self::Cable(_)
            | Self::Switch(_) => Vec::new(),
        }
    }
}

/// A cluster, for faults that search it for their parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) plan: &'a Wiring,
    pub(crate) transport: Transport,
    pub(crate) routing: Routing,
}

impl<'a> Place<'a> {
    /// Nothing, if the cluster is no cloud's; else why it cannot be there.
    pub(crate) fn not_on_efa(&self, why: &str) -> Result<(), String> {
        match self.transport {
            Transport::Infiniband | Transport::Roce => Ok(()),
            Transport::Efa => Err(format!("expected transport infiniband or roce: {why}")),
        }
    }

    /// Some NIC.
    pub(crate) fn nic(&self, pick: Pick) -> Option<&'a Nic> {
        self.plan.nics.get(pick.below(0, self.plan.nics.len()))
    }

    /// Some GPU.
    pub(crate) fn gpu(&self, pick: Pick) -> Option<Part> {
        let nic = self.nic(pick)?;
        let gpus = &self.plan.hosts[usize::from(nic.node)].gpus;
        let gpu = pick.below(2, gpus.len());
        Some(Part::Gpu(
            nic.node_name.clone(),
            railscope_model::identity::GpuIndex(gpu as u16),
        ))
    }

    /// Some node.
    pub(crate) fn host(&self, pick: Pick) -> Option<Part> {
        Some(Part::Host(self.nic(pick)?.node_name.clone()))
    }

    /// Some cable between two switches.
    pub(crate) fn uplink(&self, pick: Pick) -> Option<Part> {
        let uplinks = self.plan.cables.len() - self.plan.nics.len();
        if uplinks == 0 {
            return None;
        }
        let cable = self.plan.nics.len() + pick.below(3, uplinks);
        Some(self.plan.cable_part(cable))
    }

    /// Some switch with hosts.
    pub(crate) fn leaf(&self, pick: Pick) -> Option<Part> {
        let leaves = self
            .plan
            .switches
            .iter()
            .filter(|switch| matches!(switch.tier, Tier::Leaf { .. } | Tier::Router { .. }));
        let leaves: Vec<_> = leaves.collect();
        let leaf = leaves.get(pick.below(4, leaves.len()))?;
        Some(Part::Switch(leaf.name.clone()))
    }

    fn example_of_cable(&self) -> String {
        let nic = self.plan.nics.first();
        nic.map_or_else(String::new, |nic| nic.link_part().to_string())
    }

    /// The NIC whose cable the part is.
    pub(crate) fn host_cable(&self, part: &Part) -> Result<usize, String> {
        match part {
            Part::HostLink(..) => self.plan.cable_named(part),
            _ => None,
        }
        .ok_or_else(|| {
            format!(
                "no cable {part}; cables with a host end are named as {}",
                self.example_of_cable()
            )
        })
    }

    /// The cable between two switches that the part is.
    pub(crate) fn uplink_named(&self, part: &Part) -> Result<Target, String> {
        match part {
            Part::SwitchLink(..) => self.plan.cable_named(part).map(Target::Cable),
            _ => None,
        }
        .ok_or_else(|| {
            let first = self.plan.nics.len();
            let known = first < self.plan.cables.len();
            let example = known.then(|| format!(", named as {}", self.plan.cable_part(first)));
            format!(
                "expected a cable between two switches{}",
                example.unwrap_or_default()
            )
        })
    }

    /// The NIC that the part is.
    pub(crate) fn nic_named(&self, part: &Part) -> Result<Target, String> {
        let is = |nic: &&Nic| match part {
            Part::Nic(node, device) => nic.node_name == *node && nic.device == *device,
            _ => false,
        };
        let nic = self.plan.nics.iter().position(|nic| is(&nic));
        nic.map(Target::Nic)
            .ok_or_else(|| "expected a NIC, such as nic/gpu-node-00:mlx5_0".to_owned())
    }

    /// The first port of the adapter below the PCIe link that the part is.
    pub(crate) fn slot(&self, part: &Part) -> Result<Target, String> {
        let nic = self
            .plan
            .nics
            .iter()
            .position(|nic| nic.pcie_part() == *part);
        nic.map(Target::Nic).ok_or_else(|| {
            let nic = self.plan.nics.first();
            let example = nic.map_or_else(String::new, |nic| nic.pcie_part().to_string());
            format!("no NIC has this PCIe link; they are named as {example}")
        })
    }

    /// The node that the part is.
    pub(crate) fn host_named(&self, part: &Part) -> Result<Target, String> {
        match part {
            Part::Host(name) => self.plan.nics.iter().find(|nic| nic.node_name == *name),
            _ => None,
        }
        .map(|nic| Target::Host(nic.node.into()))
        .ok_or_else(|| "expected a node, such as host/gpu-node-00".to_owned())
    }

    /// The GPU that the part is.
    pub(crate) fn gpu_named(&self, part: &Part) -> Result<Target, String> {
        let Part::Gpu(name, gpu) = part else {
            return Err("expected a GPU, such as gpu/gpu-node-00:3".to_owned());
        };
        let gpu = usize::from(gpu.0);
        let nic = self.plan.nics.iter().find(|nic| nic.node_name == *name);
        let mut gpus = nic.map_or(0..0, |nic| {
            self.plan.hosts[usize::from(nic.node)].gpus.clone()
        });
        let count = gpus.len();
        gpus.nth(gpu)
            .map(Target::Gpu)
            .ok_or_else(|| format!("no such GPU; {name} has {count}"))
    }

    /// What a target does when it is healthy.
    pub(crate) fn healthy(&self, target: Target) -> Healthy {
        let (host, cable) = match target {
            Target::Nic(nic) | Target::Nics(nic, _) => (self.plan.nics[nic].node.into(), nic),
            Target::Gpu(gpu) => (self.plan.host_of_gpu(gpu), 0),
            Target::Host(host) => (host, self.plan.hosts[host].nics.start),
            Target::Cable(cable) => (0, cable),
            Target::Switch(_) | Target::FirstHosts(_) => (0, 0),
        };
        let shape = self.plan.hosts[host].kind.shape();
        Healthy {
            cable: self.plan.cables[cable].speed,
            pcie: shape.pcie,
            nvlinks: shape.gpu.nvlinks,
        }
    }

    /// The switch that the part is.
    pub(crate) fn switch_named(&self, part: &Part) -> Result<Target, String> {
        let switches = &self.plan.switches;
        match part {
            Part::Switch(name) => switches.iter().position(|switch| switch.name == *name),
            _ => None,
        }
        .map(Target::Switch)
        .ok_or_else(|| {
            let example = switches.first().map(|switch| switch.name.to_string());
            format!(
                "expected a switch, such as switch/{}",
                example.unwrap_or_default()
            )
        })
    }
}

/// Cables that end at a switch.
pub(crate) fn cables_at(wiring: &Wiring, switch: usize) -> impl Iterator<Item = usize> {
    let ends_here = move |index: &usize| {
        let ends = wiring.cables[*index].ends;
        ends.iter()
            .any(|(device, _)| *device == Device::Switch(switch))
    };
    (0..wiring.cables.len()).filter(ends_here)
}

/// NICs on a switch: the cable of a NIC has the NIC's number.
pub(crate) fn nics_at(wiring: &Wiring, switch: usize) -> impl Iterator<Item = usize> {
    cables_at(wiring, switch).take_while(|cable| *cable < wiring.nics.len())
}
