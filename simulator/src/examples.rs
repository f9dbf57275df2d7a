//! A typical fault of each kind, at a part that the seed picks: for demos and tests.

use railscope_model::units::LinkSpeed;

use crate::cluster::Cluster;
use crate::fault::{Effect, Fault};
use crate::noise::Noise;
use crate::wiring::Nic;

/// Causes that [`fault`] knows.
pub const CAUSES: &[&str] = &[
    "pcie-degraded",
    "port-down",
    "port-degraded",
    "link-errors",
    "miscabled-rail",
    "gpu-thermal",
];

/// A typical fault, at a part that the seed picks. None if there is no such cause, or if the
/// cluster has nothing that could fail so: cables of one rail alone cannot be mixed up.
pub fn fault(cluster: &Cluster, cause: &str, seed: u64, onset_seconds: f64) -> Option<Fault> {
    let noise = Noise::new(seed);
    let pick = |index: u64, below: usize| (noise.bits(index) % below.max(1) as u64) as usize;
    let plan = cluster.plan();
    let nic = plan.nics.get(pick(0, plan.nics.len()))?;
    let (part, effect) = match cause {
        // Half of the lanes: a bad riser or a dirty contact. The link stays up and nothing logs it.
        "pcie-degraded" => (
            nic.pcie_part(),
            Effect::PcieDegraded {
                lanes: 8,
                generation: 5,
            },
        ),
        "port-down" => (nic.link_part(), Effect::PortDown),
        "port-degraded" => {
            let rate = LinkSpeed {
                lanes: 1,
                ..cluster.spec().speed.link()
            };
            (nic.link_part(), Effect::PortRateDegraded { rate })
        }
        "link-errors" => (
            nic.link_part(),
            Effect::LinkErrors {
                symbol_errors_per_second: 120.0,
            },
        ),
        "miscabled-rail" => {
            let of_other_rail = |other: &&Nic| other.node == nic.node && other.rail != nic.rail;
            let others: Vec<&Nic> = plan.nics.iter().filter(of_other_rail).collect();
            let with = others.get(pick(1, others.len()))?.link_part();
            (nic.link_part(), Effect::Miscabled { with })
        }
        "gpu-thermal" => {
            let gpu = pick(2, usize::from(cluster.spec().gpus_per_node)) as u8;
            let part = cluster.gpu_part(nic.node, gpu)?;
            (part, Effect::GpuThermal { clock_ratio: 0.5 })
        }
        _ => return None,
    };
    Some(Fault {
        part,
        onset_seconds,
        end_seconds: None,
        effect,
    })
}
