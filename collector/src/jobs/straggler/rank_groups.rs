//! Ranks of one role: only those may be compared with each other.

use std::collections::BTreeMap;

use super::MIN_RANKS;

/// One rank of a job, from its launcher or its communicators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Its number in the job.
    pub number: u32,
    /// Its pipeline stage; none where the job has no pipeline.
    pub stage: Option<u32>,
    /// Its place in its tensor-parallel group; none where the job has none.
    pub tensor: Option<u32>,
    /// Its data-parallel replica: the pipeline column that it is in.
    pub replica: Option<u32>,
    /// Its kind of GPU, as a number: different ones are never compared.
    pub hardware: u32,
}

/// Cohorts of indexes: by stage, place in the tensor-parallel group and kind of GPU; where that leaves fewer than
/// [`MIN_RANKS`], without the place in the group. The stage is never dropped: stages that differ by design would
/// name the ranks of the longest (ByteDance ST). A rank with too few peers is in no cohort.
pub fn cohorts(ranks: &[Rank]) -> Vec<Vec<usize>> {
    let mut roles: BTreeMap<(u32, Option<u32>, Option<u32>), Vec<usize>> = BTreeMap::new();
    for (index, rank) in ranks.iter().enumerate() {
        let role = (rank.hardware, rank.stage, rank.tensor);
        roles.entry(role).or_default().push(index);
    }
    let mut cohorts = Vec::new();
    let mut small: BTreeMap<(u32, Option<u32>), Vec<usize>> = BTreeMap::new();
    for ((hardware, stage, _), members) in roles {
        if members.len() >= MIN_RANKS {
            cohorts.push(members);
        } else {
            small.entry((hardware, stage)).or_default().extend(members);
        }
    }
    cohorts.extend(
        small
            .into_values()
            .filter(|members| members.len() >= MIN_RANKS),
    );
    cohorts
}
