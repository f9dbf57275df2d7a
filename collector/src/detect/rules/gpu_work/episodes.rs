//! For how long GPUs have been behind: work that is spread unevenly moves from GPU to GPU, a slow GPU stays slow.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName};

use super::{
    HELD_SECONDS, MOVED_SECONDS, UNEQUAL_FOR_SECONDS, UNEQUAL_ON_NODE_SECONDS, UNEQUAL_SECONDS,
    UNEQUAL_SHARE,
};
use crate::detect::gpus::Listed;
use crate::jobs::job::Job;

/// A GPU.
pub(super) type Key = (NodeName, GpuIndex);

/// A slow GPU, and its [`cohort`].
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

/// What a GPU's work is compared within: its job, or its node if no job is known.
pub(super) fn cohort(gpu: &Listed<'_>) -> String {
    match gpu.job {
        Some(job) => format!("job {}", job.name),
        None => of_node(gpu),
    }
}

fn of_node(gpu: &Listed<'_>) -> String {
    format!("node {}", gpu.node)
}

/// Of all GPUs.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    current: BTreeMap<Key, Episode>,
    /// Ends of short ones by cohort, with the GPU.
    ended: BTreeMap<String, Vec<(Timestamp, Key)>>,
    /// Jobs and nodes of which several GPUs had more work than the others at once, and until when that is remembered.
    unequal: BTreeMap<String, Timestamp>,
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

    /// Notes the jobs and the nodes of which several of these GPUs, which have more work than the others, have had it for a while. Those
    /// of a node may belong to another job than the rest: jobs may not be known, or not exactly.
    pub(super) fn note_work<'a>(
        &mut self,
        now: Timestamp,
        behind: impl Iterator<Item = (&'a Key, Listed<'a>)>,
    ) {
        let mut cohorts: BTreeMap<String, (usize, Option<&Job>)> = BTreeMap::new();
        for (key, gpu) in behind {
            let lasts = |episode: &Episode| episode.seconds() >= UNEQUAL_FOR_SECONDS;
            if self.current.get(key).is_some_and(lasts) {
                cohorts.entry(of_node(&gpu)).or_default().0 += 1;
                if gpu.job.is_some() {
                    cohorts.entry(cohort(&gpu)).or_insert((0, gpu.job)).0 += 1;
                }
            }
        }
        for (cohort, (gpus, job)) in cohorts {
            let (least, seconds) = match job {
                Some(job) => (UNEQUAL_SHARE * job.gpus() as f64, UNEQUAL_SECONDS),
                None => (0.0, UNEQUAL_ON_NODE_SECONDS),
            };
            if gpus > 1 && gpus as f64 >= least {
                self.unequal.insert(cohort, now.plus_seconds(seconds));
            }
        }
        self.unequal.retain(|_, until| now <= *until);
    }

    /// Whether the GPUs of this one's job or node do unequal work.
    pub(super) fn is_unequal(&self, gpu: &Listed<'_>) -> bool {
        [cohort(gpu), of_node(gpu)]
            .iter()
            .any(|cohort| self.unequal.contains_key(cohort))
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
