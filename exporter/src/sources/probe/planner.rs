//! Reads the list and finds our NICs that are on it, on a separate thread: neither a blocked file system nor a driver
//! blocked under the lock of all network configuration delays probes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::list::{ListAccess, ListError, ProbeList};
use super::nics::{self, LocalNic};
use crate::sources::ethtool::NicSource;
use crate::sources::sysfs::{Miss, Root};
use crate::sources::web_files::{self, Stamp};

/// Interval at which the list is checked for changes.
const LOOK: Duration = Duration::from_secs(1);
/// Interval at which addresses are read again: they change when an operator configures the node.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The same while a NIC of the list is not found, or has no address.
const ASK_SOON: Duration = Duration::from_secs(5);

/// Which targets to probe, and from where.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Plan {
    /// The last list that could be read.
    pub list: Option<Arc<ProbeList>>,
    /// Why the newest could not.
    pub miss: Option<Miss>,
    /// Our NICs that are on it.
    pub nics: BTreeMap<String, Result<LocalNic, Miss>>,
}

/// The plan as it is now, shared between the planner and the prober.
#[derive(Debug, Default)]
pub(super) struct Shared {
    plan: Mutex<Arc<Plan>>,
    generation: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    /// The plan if it is not the one of this generation any more.
    pub(super) fn newer(&self, generation: &mut u64) -> Option<Arc<Plan>> {
        let now = self.generation.load(Ordering::Acquire);
        let is_new = now != *generation;
        *generation = now;
        is_new.then(|| Arc::clone(&self.plan.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Ends both threads.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether they are to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn publish(&self, plan: Plan) {
        let mut shared = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        if **shared != plan {
            *shared = Arc::new(plan);
            self.generation.fetch_add(1, Ordering::Release);
        }
    }
}

/// Keeps the plan up to date until it is to end.
pub(super) struct Planner {
    pub(super) list: ListAccess,
    pub(super) sysfs: Root,
    pub(super) network: Box<dyn NicSource>,
    pub(super) shared: Arc<Shared>,
}

impl Planner {
    /// Runs until stopped.
    pub(super) fn run(mut self) {
        let mut reader = Reader::default();
        let mut plan = Plan::default();
        let mut ask_at = Instant::now();
        while !self.shared.is_stopped() {
            let changed = reader.read(&self.list, &mut plan);
            let now = Instant::now();
            if changed || now >= ask_at {
                plan.nics = self.find(plan.list.as_deref());
                let all = plan.nics.values().all(Result::is_ok);
                ask_at = now + if all { ASK_AGAIN } else { ASK_SOON };
            }
            self.shared.publish(plan.clone());
            thread::sleep(LOOK);
        }
    }

    fn find(&mut self, list: Option<&ProbeList>) -> BTreeMap<String, Result<LocalNic, Miss>> {
        let targets = list.map_or(&[][..], |list| &list.targets);
        let mut found = BTreeMap::new();
        if targets.is_empty() {
            return found;
        }
        let network = self.network.as_mut();
        let known = nics::of_rdma(&self.sysfs, network).unwrap_or_default();
        for target in targets {
            if !found.contains_key(&target.device) {
                let nic = nics::named(&known, &self.sysfs, network, &target.device);
                found.insert(target.device.clone(), nic);
            }
        }
        found
    }
}

/// What was last read of a list.
#[derive(Default)]
struct Reader {
    stamp: Option<Stamp>,
    problem: Option<ListError>,
}

impl Reader {
    /// Reads the list if it may be another one; true if it is.
    fn read(&mut self, access: &ListAccess, plan: &mut Plan) -> bool {
        let said = match access {
            ListAccess::File(path) => self.read_file(path),
            ListAccess::Told(told) => told.said(),
        };
        match said {
            None => false,
            Some(Ok(list)) => {
                self.problem = None;
                plan.miss = None;
                let same = plan.list.as_deref() == Some(&*list);
                if !same {
                    tracing::info!(targets = list.targets.len(), "list of probes");
                    plan.list = Some(list);
                }
                !same
            }
            Some(Err(problem)) => {
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(%problem, "cannot use the probe list; keeping the previous one");
                }
                plan.miss = Some(match &problem {
                    ListError::Unreadable { .. } => Miss::Failed,
                    ListError::Malformed { .. } | ListError::Refused { .. } => Miss::Unparsed,
                });
                self.problem = Some(problem);
                false
            }
        }
    }

    fn read_file(&mut self, path: &Path) -> Option<Result<Arc<ProbeList>, ListError>> {
        let stamp = Some(web_files::stamp(path));
        if stamp == self.stamp {
            return None;
        }
        self.stamp = stamp;
        Some(ProbeList::load(path).map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::probe::Told;

    const LIST: &str = r#"{"targets":[{"device":"d","peer_node":"n","peer_device":"d","address":"10.0.0.1:1","flows":2}]}"#;

    #[test]
    fn a_list_stays_until_there_is_a_better_one() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("list.json");
        let access = ListAccess::File(path.clone());
        let (mut reader, mut plan) = (Reader::default(), Plan::default());
        // None yet.
        assert!(!reader.read(&access, &mut plan));
        assert_eq!(
            (plan.list.is_some(), plan.miss),
            (false, Some(Miss::Failed))
        );
        std::fs::write(&path, LIST).expect("write");
        assert!(reader.read(&access, &mut plan));
        assert_eq!((plan.list.is_some(), plan.miss), (true, None));
        assert!(!reader.read(&access, &mut plan));
        // A bad one.
        std::fs::write(&path, "{").expect("write");
        assert!(!reader.read(&access, &mut plan));
        let targets = plan.list.as_ref().map(|list| list.targets.len());
        assert_eq!((targets, plan.miss), (Some(1), Some(Miss::Unparsed)));
        // The same as before, written again.
        std::fs::write(&path, format!("{LIST}\n")).expect("write");
        assert!(!reader.read(&access, &mut plan));
        assert_eq!(plan.miss, None);
        std::fs::write(&path, r#"{"targets":[]}"#).expect("write");
        assert!(reader.read(&access, &mut plan));
    }

    #[test]
    fn a_list_that_is_told_is_taken_and_one_that_cannot_be_had_is_not() {
        let told = Told::default();
        let access = ListAccess::Told(told.clone());
        let (mut reader, mut plan) = (Reader::default(), Plan::default());
        assert!(!reader.read(&access, &mut plan));
        assert_eq!(plan, Plan::default());
        told.tell(ProbeList::parse("url", LIST));
        assert!(reader.read(&access, &mut plan));
        told.tell(Err(ListError::Unreadable {
            file: "url".to_owned(),
            problem: "connection refused".to_owned(),
        }));
        assert!(!reader.read(&access, &mut plan));
        assert_eq!((plan.list.is_some(), plan.miss), (true, Some(Miss::Failed)));
    }
}
