//! For how long GPUs have been behind: work that is spread unevenly moves from GPU to GPU, a slow GPU stays slow.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};

use super::{HELD_SECONDS, MOVED_SECONDS};

/// A GPU.
pub(super) type Key = (NodeName, GpuIndex);

/// A GPU that is behind, and its cohort: its job, or if none is known its node.
#[derive(Debug)]
struct Episode {
    since: Timestamp,
    /// For how long it had been behind then.
    seconds_before: f64,
    /// When it was last seen behind.
    last: Timestamp,
    cohort: String,
}

impl Episode {
    /// For how long it was seen behind.
    fn seconds(&self) -> f64 {
        self.seconds_before + self.last.seconds_since(self.since)
    }
}

/// Of all GPUs.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    current: BTreeMap<Key, Episode>,
    /// Ends of short ones by cohort, with the GPU.
    ended: BTreeMap<String, Vec<(Timestamp, Key)>>,
}

impl Episodes {
    /// GPUs whose episode may have ended: they were behind at the tick before.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.current.keys()
    }

    /// Adds the GPUs that are behind now, with their cohort and the seconds that it has been so at
    /// least, and GPUs that were compared and are not. Of others nothing is known, such as while a
    /// job writes a checkpoint: they stay what they were for [`MOVED_SECONDS`].
    pub(super) fn update(
        &mut self,
        now: Timestamp,
        behind: &BTreeMap<Key, (String, f64)>,
        recovered: &BTreeSet<Key>,
    ) {
        for (key, (cohort, seconds)) in behind {
            let begun = || Episode {
                since: now,
                seconds_before: *seconds,
                last: now,
                cohort: cohort.clone(),
            };
            self.current.entry(key.clone()).or_insert_with(begun).last = now;
        }
        let ended = &mut self.ended;
        self.current.retain(|key, episode| {
            let is_short = episode.seconds() < MOVED_SECONDS;
            if recovered.contains(key) && is_short {
                let ends = ended.entry(episode.cohort.clone()).or_default();
                ends.push((now, key.clone()));
            }
            !recovered.contains(key) && now.seconds_since(episode.last) <= MOVED_SECONDS
        });
        ended.retain(|_, ends| {
            ends.retain(|(at, _)| now.seconds_since(*at) <= MOVED_SECONDS);
            !ends.is_empty()
        });
    }

    /// Whether a GPU has been behind for so long that uneven work would have moved on to another GPU.
    pub(super) fn is_lasting(&self, key: &Key) -> bool {
        let Some(episode) = self.current.get(key) else {
            return false;
        };
        let ends = self.ended.get(&episode.cohort).into_iter().flatten();
        let moves = ends.into_iter().any(|(_, other)| other != key);
        episode.seconds() >= if moves { MOVED_SECONDS } else { HELD_SECONDS }
    }
}
