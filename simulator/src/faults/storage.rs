//! Faults of the storage that many nodes share.

use railscope_model::identity::Part;
use serde::{Deserialize, Serialize};

use super::{Effect, Healthy, Kind, Pick};
use crate::conditions::Conditions;
use crate::faults::place::{Place, Target};

/// The storage of checkpoints hangs repeatedly, for all nodes that write to it at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageStall {
    /// Nodes that write to it, from the first on.
    pub nodes: u16,
    /// Time from one stall to the next.
    pub every_seconds: f64,
    /// How long each lasts: bursts of 0.1 to 60 s.
    pub seconds: f64,
}

impl StorageStall {
    pub(crate) fn example(place: &Place<'_>, _: Pick) -> Option<(Part, Effect)> {
        let nodes = place.plan.nics.last()?.node + 1;
        let stall = Self {
            nodes,
            every_seconds: 60.0,
            seconds: 20.0,
        };
        Some((Part::SharedStorage, Effect::StorageStall(stall)))
    }
}

impl Kind for StorageStall {
    fn class(&self) -> &'static str {
        "storage-stall"
    }

    fn target(&self, part: &Part, place: &Place<'_>) -> Result<Target, String> {
        let (every, lasts) = (self.every_seconds, self.seconds);
        if !((0.1..=60.0).contains(&lasts) && every > lasts && every.is_finite()) {
            return Err(format!(
                "found {lasts} s every {every} s, expected 0.1 to 60 s and less than all of the time"
            ));
        }
        if *part != Part::SharedStorage {
            return Err(format!("expected {}", Part::SharedStorage));
        }
        let most = place.plan.hosts.len();
        let count = usize::from(self.nodes);
        if (1..=most).contains(&count) {
            Ok(Target::FirstHosts(count))
        } else {
            Err(format!("found {count} nodes, expected 1 to {most}"))
        }
    }

    fn severity(&self, _: &Healthy) -> f64 {
        self.seconds / self.every_seconds
    }

    fn apply(&self, target: Target, now: &mut Conditions) {
        if let Target::FirstHosts(count) = target {
            for host in &mut now.hosts[..count] {
                host.storage_hangs = true;
            }
        }
    }

    fn sentence(&self) -> String {
        format!(
            "keeps {} nodes waiting for {} s every {} s",
            self.nodes, self.seconds, self.every_seconds
        )
    }

    fn period(&self) -> Option<(f64, f64)> {
        Some((self.every_seconds, self.seconds))
    }
}
