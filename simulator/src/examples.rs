//! A typical fault of each kind, at a part that the seed picks: for demos and tests.

use crate::cluster::Cluster;
use crate::faults::{Fault, Pick, example};
use crate::noise::Noise;

pub use crate::faults::CAUSES;

/// A typical fault, at a part that the seed picks. None if there is no such cause, or if the
/// cluster has no such component: cables of one rail alone cannot be swapped.
pub fn fault(cluster: &Cluster, cause: &str, seed: u64, onset_seconds: f64) -> Option<Fault> {
    let (part, effect) = example(cause)?(&cluster.place(), Pick(Noise::new(seed)))?;
    Some(Fault {
        part,
        onset_seconds,
        end_seconds: None,
        effect,
    })
}
