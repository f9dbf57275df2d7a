//! Cohorts: the peers that a part is compared with, those of its own job first.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;

use crate::jobs::job::{Job, JobName};

/// Baselines of parts of one role, by job: jobs differ in what they do, and their parts are only
/// comparable within one job. Where a job has too few parts of the role, or too few of its
/// nodes are seen, those of all jobs and of none are used in place of it; where there are too few
/// of these, there is no baseline.
#[derive(Debug)]
pub struct Usual<R, V = f64> {
    of_job: HashMap<(JobName, R), V, FixedState>,
    of_all: HashMap<R, V, FixedState>,
}

impl<R: Hash + Eq + Clone, V> Usual<R, V> {
    /// Receives job, role and value of each part; `usual` computes one value from many, none from too few.
    pub fn new<'a, T: Copy>(
        parts: impl IntoIterator<Item = (Option<&'a Job>, R, T)>,
        usual: impl Fn(Vec<T>) -> Option<V>,
    ) -> Self {
        let mut of_job: HashMap<(JobName, R), Vec<T>, FixedState> = HashMap::default();
        let mut of_all: HashMap<R, Vec<T>, FixedState> = HashMap::default();
        for (job, role, value) in parts {
            if let Some(job) = job.filter(|job| job.is_heard) {
                let key = (JobName::clone(&job.name), role.clone());
                of_job.entry(key).or_default().push(value);
            }
            of_all.entry(role).or_default().push(value);
        }
        let usual = &usual;
        Self {
            of_job: kept(of_job, usual),
            of_all: kept(of_all, usual),
        }
    }

    /// What is usual in this role in a job.
    pub fn of_job(&self, job: Option<&Job>, role: &R) -> Option<&V> {
        let key = (JobName::clone(&job?.name), role.clone());
        self.of_job.get(&key)
    }

    /// What is usual in this role in all jobs and outside them.
    pub fn of_all(&self, role: &R) -> Option<&V> {
        self.of_all.get(role)
    }

    /// What is usual in this role in a part's job, if it is of one, and then in all.
    pub fn cohorts(&self, job: Option<&Job>, role: &R) -> impl Iterator<Item = &V> {
        let own = self.of_job(job, role);
        own.into_iter().chain(self.of_all(role))
    }

    /// Baseline of a part of a job, or of none, in this role.
    pub fn of(&self, job: Option<&Job>, role: &R) -> Option<V>
    where
        V: Copy,
    {
        self.cohorts(job, role).next().copied()
    }
}

fn kept<K: Hash + Eq, T, V>(
    cohorts: HashMap<K, Vec<T>, FixedState>,
    usual: impl Fn(Vec<T>) -> Option<V>,
) -> HashMap<K, V, FixedState> {
    let cohorts = cohorts.into_iter();
    cohorts
        .filter_map(|(key, values)| Some((key, usual(values)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn job(name: &str, is_heard: bool) -> Job {
        Job {
            name: name.into(),
            nodes: BTreeMap::new(),
            nics: BTreeMap::new(),
            since: railscope_model::fabric::Timestamp(0),
            is_heard,
        }
    }

    #[test]
    fn a_part_is_held_against_its_job_then_against_all_then_against_nobody() {
        let (large, small, silent) = (job("a", true), job("b", true), job("c", false));
        let parts = |job, value: f64, count| (0..count).map(move |_| (Some(job), "gpu", value));
        let parts = parts(&large, 1.0, 4)
            .chain(parts(&small, 2.0, 2))
            .chain(parts(&silent, 3.0, 5));
        let usual = Usual::new(parts.chain([(None, "nic", 7.0)]), |values| {
            (values.len() >= 4).then(|| values.iter().sum::<f64>() / values.len() as f64)
        });
        let all = (4.0 + 4.0 + 15.0) / 11.0;
        for (of, role, expected) in [
            (Some(&large), "gpu", Some(1.0)),
            (Some(&small), "gpu", Some(all)),
            (Some(&silent), "gpu", Some(all)),
            (None, "gpu", Some(all)),
            (None, "nic", None),
        ] {
            assert_eq!(usual.of(of, &role), expected, "{of:?} {role}");
        }
    }
}
