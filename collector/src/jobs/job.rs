//! Jobs: which GPUs and NICs of which nodes each holds, by what exporters report about the users of
//! their devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{GPU, GPU_NIC, WORKLOAD};
use railscope_model::reading::Labels;

use crate::assemble::node_parts::read;
use crate::diagnose::incident::{Incident, worst_first};
use crate::store::{History, NodeHistory};

/// Share of a job's nodes that must have been seen lately before its parts are compared with each other.
const MIN_PRESENT: f64 = 0.7;
/// Suffixes by which launchers on Kubernetes distinguish the pods of one job.
const ROLES: [&str; 5] = ["master", "worker", "launcher", "leader", "head"];

/// Name of a job: its id in the batch system, or namespace and name that its pods share.
pub type JobName = Arc<str>;

/// A job and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: JobName,
    /// GPUs by node, in order; none where it is not known on which GPUs a node runs it.
    pub nodes: BTreeMap<NodeName, Vec<GpuIndex>>,
    /// NICs by node: those that it holds, and those nearest to its GPUs.
    pub nics: BTreeMap<NodeName, BTreeSet<RdmaDevice>>,
    /// When it was first seen.
    pub since: Timestamp,
    /// Whether enough of its nodes were seen lately to compare its parts with each other.
    pub is_heard: bool,
}

impl Job {
    /// How many GPUs it holds.
    pub fn gpus(&self) -> usize {
        self.nodes.values().map(Vec::len).sum()
    }

    /// Its GPUs as parts.
    pub fn gpu_parts(&self) -> impl Iterator<Item = Part> {
        let of = |(node, gpus): (&NodeName, &Vec<GpuIndex>)| {
            let part = |gpu: &GpuIndex| Part::Gpu(node.clone(), *gpu);
            gpus.iter().map(part).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of)
    }
}

/// Which job holds which devices on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    /// GPUs and their jobs; a shared GPU is listed once for each.
    gpus: Vec<(GpuIndex, JobName)>,
    nics: BTreeSet<(RdmaDevice, JobName)>,
    /// All jobs, including those without a device.
    jobs: BTreeSet<JobName>,
}

/// All jobs at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Jobs {
    jobs: BTreeMap<JobName, Job>,
    held: BTreeMap<NodeName, Held>,
}

impl Jobs {
    /// All jobs by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Job> {
        self.jobs.values()
    }

    /// The jobs that run on a node.
    pub fn of_node<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a Job> {
        self.iter().filter(|job| job.nodes.contains_key(node))
    }

    /// The job of this name.
    pub fn get(&self, name: &str) -> Option<&Job> {
        self.jobs.get(name)
    }

    /// The job of each GPU of a node; of a shared GPU the first by name.
    pub fn on<'a>(&'a self, node: &NodeName) -> impl Fn(GpuIndex) -> Option<&'a Job> + use<'a> {
        let held = self.held.get(node);
        move |gpu| {
            let (_, job) = held?.gpus.iter().find(|(held, _)| *held == gpu)?;
            self.jobs.get(job)
        }
    }

    /// The job that a NIC of a node serves; none if it serves several. Where no exporter reports which GPUs a NIC serves, it is
    /// that of the node, if there is only one.
    pub fn of_nic(&self, node: &NodeName, device: &RdmaDevice) -> Option<&Job> {
        let held = self.held.get(node)?;
        let of_device = held.nics.iter().filter(|(held, _)| held == device);
        let mut jobs: BTreeSet<&JobName> = of_device.map(|(_, job)| job).collect();
        if held.nics.is_empty() {
            jobs.extend(&held.jobs);
        }
        let job = jobs.pop_first()?;
        jobs.is_empty().then(|| self.jobs.get(job))?
    }

    /// How many GPUs these jobs hold together with others, each once; one that several of the jobs share counts for each.
    pub fn gpus_of<'a>(
        &self,
        names: impl Iterator<Item = &'a JobName>,
        others: impl Iterator<Item = (&'a NodeName, GpuIndex)>,
    ) -> usize {
        let jobs: BTreeMap<&JobName, &Job> = names
            .filter_map(|name| Some((name, self.get(name)?)))
            .collect();
        let is_of_none = |(node, gpu): &(&NodeName, GpuIndex)| {
            let held = self.held.get(*node).into_iter().flat_map(|held| &held.gpus);
            let mut holders = held.filter(|(held, _)| held == gpu);
            !holders.any(|(_, job)| jobs.contains_key(job))
        };
        let others: BTreeSet<_> = others.filter(is_of_none).collect();
        jobs.values().map(|job| job.gpus()).sum::<usize>() + others.len()
    }

    /// Jobs that wait for an incident's part: those on its GPUs, or on the node of a part that no GPU is behind.
    fn waiting(&self, incident: &Incident) -> BTreeSet<JobName> {
        let mut jobs = BTreeSet::new();
        for (node, gpu) in incident.gpus_behind() {
            let held = self.held.get(node).into_iter().flat_map(|held| &held.gpus);
            let of_gpu = held.filter(|(held, _)| *held == gpu);
            jobs.extend(of_gpu.map(|(_, job)| Arc::clone(job)));
        }
        if jobs.is_empty()
            && incident.gpus_behind().next().is_none()
            && let Some(held) = incident.root.node().and_then(|node| self.held.get(node))
        {
            jobs.extend(held.jobs.iter().cloned());
        }
        jobs
    }
}

/// The jobs, kept up to date: a node is read again only when it reports something else.
#[derive(Debug, Default)]
pub struct JobTable {
    read: BTreeMap<NodeName, (u64, Held)>,
    jobs: Arc<Jobs>,
    /// By incident: jobs that waited for it since it opened, with the GPUs that they had. A job that a fault has
    /// killed has waited for it all the same.
    waited: BTreeMap<String, BTreeMap<JobName, usize>>,
}

impl JobTable {
    /// The current jobs.
    pub fn refresh(&mut self, history: &History, now: Timestamp) -> Arc<Jobs> {
        if self.read_again(history) {
            self.jobs = Arc::new(self.gather(now));
        }
        let is_heard = |job: &Job| {
            let fresh = |node: &&NodeName| {
                let said = history.node(node);
                said.is_some_and(|said| said.is_fresh(now))
            };
            let heard = job.nodes.keys().filter(fresh).count();
            heard as f64 >= MIN_PRESENT * job.nodes.len() as f64
        };
        if self.jobs.iter().any(|job| job.is_heard != is_heard(job)) {
            for job in Arc::make_mut(&mut self.jobs).jobs.values_mut() {
                job.is_heard = is_heard(job);
            }
        }
        Arc::clone(&self.jobs)
    }

    /// Reads nodes that report something else than before; whether anything is held by others now.
    fn read_again(&mut self, history: &History) -> bool {
        let before = self.read.len();
        self.read.retain(|node, _| history.node(node).is_some());
        let mut changed = before != self.read.len();
        for (node, said) in history.nodes() {
            let (identity, known) = self.read.entry(node.clone()).or_default();
            if *identity != said.identity() {
                *identity = said.identity();
                let held = held(said);
                changed |= held != *known;
                *known = held;
            }
        }
        changed
    }

    fn gather(&self, now: Timestamp) -> Jobs {
        let mut jobs = Jobs::default();
        for (node, (_, held)) in &self.read {
            for name in &held.jobs {
                let since = self.jobs.get(name).map_or(now, |known| known.since);
                let job = jobs.jobs.entry(Arc::clone(name)).or_insert_with(|| Job {
                    name: Arc::clone(name),
                    nodes: BTreeMap::new(),
                    nics: BTreeMap::new(),
                    since,
                    is_heard: true,
                });
                let gpus = held.gpus.iter().filter(|(_, of)| of == name);
                let nics = held.nics.iter().filter(|(_, of)| of == name);
                job.nodes
                    .insert(node.clone(), gpus.map(|(gpu, _)| *gpu).collect());
                job.nics
                    .insert(node.clone(), nics.map(|(nic, _)| nic.clone()).collect());
            }
            if !held.jobs.is_empty() {
                jobs.held.insert(node.clone(), held.clone());
            }
        }
        jobs
    }

    /// Sets for each incident which jobs wait for its part, and with how many GPUs: in a synchronous job, all ranks
    /// wait. Sorts the worst first again.
    pub fn hold_up(&mut self, incidents: &mut [Incident]) {
        let mut waited = BTreeMap::new();
        for incident in &mut *incidents {
            let mut jobs = self.waited.remove(&incident.id).unwrap_or_default();
            for name in self.jobs.waiting(incident) {
                let gpus = self.jobs.get(&name).map_or(0, Job::gpus);
                jobs.insert(name, gpus);
            }
            let ended = jobs
                .iter()
                .filter(|(name, _)| self.jobs.get(name).is_none());
            let ended = ended.map(|(_, gpus)| gpus).sum::<usize>();
            let affected = ended + self.jobs.gpus_of(jobs.keys(), incident.gpus_behind());
            incident.gpus_affected = affected;
            incident.jobs = jobs.keys().cloned().collect();
            waited.insert(incident.id.clone(), jobs);
        }
        self.waited = waited;
        worst_first(incidents);
    }
}

/// Which job holds which devices of a node. A job that runs there on unknown devices holds all of its GPUs if it is
/// alone.
fn held(said: &NodeHistory) -> Held {
    let mut held = Held::default();
    for (labels, _) in said.series(&WORKLOAD) {
        let Some(job) = job_of(labels) else { continue };
        if let Some(gpu) = read(labels, label!(WORKLOAD, "gpu")) {
            held.gpus.push((gpu, Arc::clone(&job)));
        }
        if let Some(device) = read(labels, label!(WORKLOAD, "device")) {
            held.nics.insert((device, Arc::clone(&job)));
        }
        held.jobs.insert(job);
    }
    if let (1, Some(only), true) = (held.jobs.len(), held.jobs.first(), held.gpus.is_empty()) {
        let gpus = said
            .series(&GPU)
            .filter_map(|(labels, _)| read(labels, label!(GPU, "gpu")));
        held.gpus = gpus.map(|gpu| (gpu, Arc::clone(only))).collect();
    }
    held.gpus.sort();
    held.gpus.dedup();
    for (labels, _) in said.series(&GPU_NIC) {
        let pair =
            read(labels, label!(GPU_NIC, "gpu")).zip(read(labels, label!(GPU_NIC, "device")));
        if let (Some((gpu, device)), Some("true")) = (pair, labels.get(label!(GPU_NIC, "nearest")))
        {
            let (gpu, device): (GpuIndex, RdmaDevice) = (gpu, device);
            let of_gpu = held.gpus.iter().filter(|(held, _)| *held == gpu);
            let nics = of_gpu.map(|(_, job)| (device.clone(), Arc::clone(job)));
            held.nics.extend(nics.collect::<Vec<_>>());
        }
    }
    held
}

/// The job of a series: the batch system's, or what is left of a pod's name without what
/// distinguishes it from others of its job.
fn job_of(labels: &Labels) -> Option<JobName> {
    if let Some(job) = labels.get(label!(WORKLOAD, "hpc_job")) {
        return Some(job.into());
    }
    let pod = labels.get(label!(WORKLOAD, "workload"))?;
    let namespace = labels
        .get(label!(WORKLOAD, "namespace"))
        .unwrap_or_default();
    Some(format!("{namespace}/{}", shared_name(pod)).into())
}

/// `train` of `train-worker-3` (Kubeflow, MPI operator), `train-0-3` (sets of leaders and workers) and `train-3-x7k2p` (indexed
/// jobs, whose pods end in five random letters), also where these stand behind a role (`train-worker-x7k2p`); the whole name if
/// nothing is left.
fn shared_name(pod: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut pieces: Vec<&str> = pod.split('-').collect();
    let random = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if let [_, .., before, last] = pieces[..]
        && (is_number(before) || ROLES.contains(&before))
        && random(last)
    {
        pieces.pop();
    }
    while let [_, .., last] = pieces[..]
        && (is_number(last) || ROLES.contains(&last))
    {
        pieces.pop();
    }
    let length = pieces.iter().map(|piece| piece.len() + 1).sum::<usize>();
    &pod[..length - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_of_a_job_share_what_is_left_of_their_names() {
        for (pod, expected) in [
            ("train-worker-3", "train"),
            ("train-master-0", "train"),
            ("llama-70b-worker-12", "llama-70b"),
            ("train-0-3", "train"),
            ("train-3-x7k2p", "train"),
            ("train-17-worker-x7k2p", "train"),
            ("train-17-x7k2pq", "train-17-x7k2pq"),
            ("train", "train"),
            ("7", "7"),
            ("worker-1", "worker"),
            ("etcd-main", "etcd-main"),
        ] {
            assert_eq!(shared_name(pod), expected, "{pod}");
        }
    }

    fn node(name: &str) -> NodeName {
        name.parse().expect(name)
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_000_000 + seconds * 1000)
    }

    /// GPU, job of a batch system, pod.
    type Lines<'a> = &'a [(&'a str, &'a str, &'a str)];

    /// Device holders as lines of a scrape.
    fn page(lines: Lines<'_>) -> String {
        let line = |(gpu, job, pod): &(&str, &str, &str)| {
            format!(
                "railscope_workload_info{{gpu=\"{gpu}\",mig=\"\",device=\"\",pci=\"\",claim=\"\",namespace=\"ml\",workload=\"{pod}\",container=\"\",hpc_job=\"{job}\"}} 1\n"
            )
        };
        let gpu = |gpu: u16| {
            format!(
                "railscope_gpu_info{{gpu=\"{gpu}\",uuid=\"\",pci=\"\",name=\"H100\",serial=\"\",vbios=\"\",driver=\"\",architecture=\"\",numa_node=\"0\"}} 1\n\
                 railscope_gpu_nic_info{{gpu=\"{gpu}\",device=\"mlx5_{gpu}\",hop=\"PIX\",nearest=\"true\"}} 1\n"
            )
        };
        lines.iter().map(line).chain((0..2).map(gpu)).collect()
    }

    /// Jobs as `name: node gpus/nics, ...` after each node has reported its scrape.
    fn check(pages: &[(&str, Lines<'_>)], expected: &[&str]) {
        let mut history = History::default();
        for (name, lines) in pages {
            let result = history.node_mut(&node(name)).ingest(&page(lines), at(0));
            assert_eq!((result.unknown, result.errors), (0, vec![]));
        }
        let jobs = JobTable::default().refresh(&history, at(1));
        let line = |job: &Job| {
            let node = |(name, gpus): (&NodeName, &Vec<GpuIndex>)| {
                format!("{name} {}/{}", gpus.len(), job.nics[name].len())
            };
            let nodes: Vec<_> = job.nodes.iter().map(node).collect();
            format!("{}: {}", job.name, nodes.join(", "))
        };
        assert_eq!(jobs.iter().map(line).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_job_holds_what_exporters_say_and_the_nics_beside_it() {
        check(
            &[
                ("n1", &[("0", "17", ""), ("1", "17", "")]),
                ("n2", &[("0", "17", ""), ("1", "18", "")]),
                (
                    "n3",
                    &[("0", "", "train-worker-0"), ("1", "", "train-worker-1")],
                ),
                // Where only the job is known, it has all if it is alone.
                ("n4", &[("", "19", "")]),
                ("n5", &[("", "19", ""), ("", "20", "")]),
                ("n6", &[]),
            ],
            &[
                "17: n1 2/2, n2 1/1",
                "18: n2 1/1",
                "19: n4 2/2, n5 0/0",
                "20: n5 0/0",
                "ml/train: n3 2/2",
            ],
        );
    }

    #[test]
    fn a_nic_serves_the_only_job_of_its_node_where_nobody_says_whose_it_is() {
        let mut history = History::default();
        let alone = |page: String| -> String {
            let lines = page.lines().filter(|line| !line.contains("gpu_nic"));
            lines.map(|line| format!("{line}\n")).collect()
        };
        for (name, lines) in [
            ("n1", &[("0", "17", ""), ("1", "17", "")]),
            ("n2", &[("0", "17", ""), ("1", "18", "")]),
        ] {
            let page = alone(page(lines));
            history.node_mut(&node(name)).ingest(&page, at(0));
        }
        let jobs = JobTable::default().refresh(&history, at(1));
        let nic = "mlx5_5".parse().expect("a device");
        let of = |name| Some(&*jobs.of_nic(&node(name), &nic)?.name);
        assert_eq!((of("n1"), of("n2")), (Some("17"), None));
    }

    #[test]
    fn a_job_of_which_too_few_nodes_are_heard_is_not_held_against_itself() {
        let mut history = History::default();
        let mut table = JobTable::default();
        let names: Vec<NodeName> = (0..4).map(|n| node(&format!("n{n}"))).collect();
        let said = page(&[("0", "17", "")]);
        let mut heard = Vec::new();
        for (seconds, speaking) in [(0, 4), (100, 3), (200, 2)] {
            for name in &names[..speaking] {
                history.node_mut(name).ingest(&said, at(seconds));
            }
            let jobs = table.refresh(&history, at(seconds));
            let job = jobs.get("17").expect("known");
            heard.push((job.is_heard, job.nodes.len(), job.since));
        }
        // A stale node still has its job.
        let since = at(0);
        assert_eq!(
            heard,
            [(true, 4, since), (true, 4, since), (false, 4, since)]
        );
    }
}
