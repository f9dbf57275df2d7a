//! Faults of the PCIe links above NICs.

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::{Conditions, PcieLink};
use crate::faults::place::{Place, Target};
use crate::spec::pci_layout::PcieGeneration;

/// The PCIe link above a NIC trains to fewer lanes or a lower generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieDegraded {
    /// Lanes that are left, 1 to 16.
    pub lanes: u8,
    /// Generation that is left, 1 to 5.
    pub generation: u8,
}

impl PcieDegraded {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        // Half of the lanes: a bad riser or a dirty contact. The link stays up and nothing logs it.
        let nic = place.nic(pick)?;
        let full = nic.kind.shape().pcie;
        let half = Self {
            lanes: full.lanes / 2,
            generation: full.generation.number(),
        };
        Some((nic.pcie_part(), Effect::PcieDegraded(half)))
    }

    fn link(&self) -> Option<PcieLink> {
        Some(PcieLink {
            generation: PcieGeneration::new(self.generation)?,
            lanes: self.lanes,
        })
    }
}

impl Kind for PcieDegraded {
    fn class(&self) -> &'static str {
        "pcie-degraded"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let Self { lanes, generation } = *self;
        let slot = place.slot(part)?;
        let full = place.healthy(slot).pcie;
        let sound = matches!(lanes, 1 | 2 | 4 | 8 | 16)
            && self.link().is_some_and(|link| {
                link != full && link.lanes <= full.lanes && link.generation <= full.generation
            });
        if !sound {
            return Err(format!(
                "found {lanes} lanes of generation {generation}, expected 1, 2, 4, 8 or 16 lanes of generation 1 to {most}, and less than {} of {most}",
                full.lanes,
                most = full.generation.number(),
            ));
        }
        Ok(slot)
    }

    fn severity(&self, healthy: &Healthy) -> f64 {
        let left = self.link().map_or(0.0, PcieLink::bytes_per_second);
        1.0 - left / healthy.pcie.bytes_per_second()
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for port in ports_of(target, now) {
            now.ports[port].pcie = self.link().unwrap_or(now.ports[port].pcie);
        }
    }

    fn sentence(&self) -> String {
        format!(
            "trains to {} lanes of PCIe generation {}",
            self.lanes, self.generation
        )
    }
}

/// All ports of the adapters among the targets.
fn ports_of(target: Target, now: &Conditions) -> Vec<usize> {
    let nics = target.nics().into_iter();
    nics.flat_map(|nic| now.wiring.ports_of_adapter(nic))
        .collect()
}

/// The PCIe link above a NIC corrupts packets and sends them again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieErrors {
    /// Correctable errors per second.
    pub errors_per_second: f64,
    /// Share of the link's bandwidth that sending again costs, 0 to 0.5.
    pub cost: f64,
}

impl PcieErrors {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let errors = Self {
            errors_per_second: 200.0,
            cost: 0.1,
        };
        Some((place.nic(pick)?.pcie_part(), Effect::PcieErrors(errors)))
    }
}

impl Kind for PcieErrors {
    fn class(&self) -> &'static str {
        "pcie-errors"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let Self {
            errors_per_second,
            cost,
        } = *self;
        if !(errors_per_second.is_finite()
            && errors_per_second > 0.0
            && (0.0..=0.5).contains(&cost))
        {
            return Err(format!(
                "found {errors_per_second} errors per second at a cost of {cost}, expected more than 0 at 0 to 0.5"
            ));
        }
        place.slot(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.cost
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for port in ports_of(target, now) {
            now.ports[port].pcie_share *= 1.0 - self.cost;
        }
        // The adapter counts for all of its ports.
        for nic in target.nics() {
            now.ports[nic].pcie_errors_per_second += self.errors_per_second;
        }
    }

    fn sentence(&self) -> String {
        format!("retransmits {} packets per second", self.errors_per_second)
    }
}

/// Packets between NIC and GPUs take a way that is longer than it should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Detour<const BETWEEN_SOCKETS: bool> {
    /// Share of the bandwidth that is left, 0.1 to 1.
    pub bandwidth_ratio: f64,
}

/// Up to the root complex and through the IOMMU: access control is on at the bridge above the NIC, which its
/// configuration space reports. 0.3 to 0.7 of the bandwidth are left, as studies of host congestion find it.
pub type PcieRedirected = Detour<false>;
/// To a GPU of the other socket, because processes are bound wrongly. 0.5 to 0.8 of the bandwidth are left (an
/// engineering estimate).
pub type NumaAffinity = Detour<true>;

impl PcieRedirected {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let redirected = Self {
            bandwidth_ratio: 0.5,
        };
        Some((
            place.nic(pick)?.pcie_part(),
            Effect::PcieRedirected(redirected),
        ))
    }
}

impl NumaAffinity {
    pub(crate) fn example(place: &Place<'_>, pick: Pick) -> Option<(Part, Effect)> {
        let crossed = Self {
            bandwidth_ratio: 0.65,
        };
        Some((place.nic(pick)?.pcie_part(), Effect::NumaAffinity(crossed)))
    }
}

impl<const BETWEEN_SOCKETS: bool> Kind for Detour<BETWEEN_SOCKETS> {
    fn class(&self) -> &'static str {
        if BETWEEN_SOCKETS {
            "slow-receiver" // no counter shows the cause
        } else {
            "pcie-redirected"
        }
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        if !(0.1..1.0).contains(&self.bandwidth_ratio) {
            return Err(format!(
                "found bandwidth_ratio {}, expected 0.1 to 1",
                self.bandwidth_ratio
            ));
        }
        place.slot(part)
    }

    fn severity(&self, _: &Healthy) -> f64 {
        1.0 - self.bandwidth_ratio
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        for port in ports_of(target, now) {
            now.ports[port].pcie_share *= self.bandwidth_ratio;
            now.ports[port].redirected |= !BETWEEN_SOCKETS;
        }
    }

    fn sentence(&self) -> String {
        let over = if BETWEEN_SOCKETS {
            "the other socket"
        } else {
            "the root complex"
        };
        format!("sends its packets for GPUs over {over}")
    }
}
