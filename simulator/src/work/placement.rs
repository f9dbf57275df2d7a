//! Jobs as users request them, so many nodes and a kind of model, placed on nodes as by a scheduler.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::noise::Noise;
use crate::spec::SpecError;
use crate::wiring::{Device, Wiring};
use crate::work::schedule::Schedule;
use crate::work::workload::{Collective, JobSpec, Pattern, Workload};

/// A job before it has nodes.
///
/// ```toml
/// name = "pretrain"
/// nodes = 16              # or a list of ordinals, in the order of ranks
/// placement = "slurm"
/// model = "dense"         # or a whole [workload]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Name; replicas of a service are numbered: `chat-0`, `chat-1`.
    pub name: String,
    /// Nodes.
    pub nodes: Wanted,
    /// The scheduler that selects them, if they are not listed.
    #[serde(default)]
    pub placement: Placement,
    /// What it does in a step; [`Workload::default`] if neither this nor `workload` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// What it does in a step, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// What it does besides steps.
    #[serde(default)]
    pub schedule: Schedule,
}

/// Nodes that a job requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of nodes, or a list of their ordinals")]
pub enum Wanted {
    /// So many.
    Count(u16),
    /// These, in the order of ranks.
    These(Vec<u16>),
}

/// The scheduler that selects nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Slurm with `topology/tree`: under the one leaf block that fits best, else under as few blocks as can be,
    /// those with most free nodes first; ranks in the order of nodes (Slurm Topology Guide: "best fit").
    #[default]
    Slurm,
    /// Kubernetes without a topology-aware queue: free nodes are all alike to the default scheduler, which takes
    /// any of those with the highest score (`selectHost` draws among them); ranks in the order of binding.
    Kubernetes,
}

/// Kinds of models, as the parallelism that they are run with. The figures are choices of the size that public
/// descriptions have (a fifth to a third of a step exposed), so that each pattern can be felt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Tensor parallel in the node, pipeline of four nodes, data parallel: Megatron's shape.
    Dense,
    /// Parameters sharded over all ranks: an exposed third of gathering 7e9 parameters of 2 bytes three times a step.
    Fsdp,
    /// Experts spread over groups of eight nodes, all to all, and a data-parallel rest.
    Moe,
    /// A service: each node serves alone, requests differ in length, nothing crosses the fabric.
    Inference,
}

impl Model {
    /// What it does in a step.
    pub fn workload(self) -> Workload {
        let collective = |pattern, bytes| Collective { pattern, bytes };
        match self {
            Self::Dense => Workload {
                compute_seconds: 0.45,
                stages: 4,
                microbatches: 8,
                collectives: vec![
                    collective(Pattern::Pipeline, 1e9),
                    collective(Pattern::Ring, 7.35e9),
                ],
                ..Workload::default()
            },
            Self::Fsdp => Workload {
                compute_seconds: 1.2,
                collectives: vec![collective(Pattern::Ring, 14e9)],
                ..Workload::default()
            },
            Self::Moe => Workload {
                compute_seconds: 0.3,
                collectives: vec![
                    collective(Pattern::AllToAll { nodes: 8 }, 6e9),
                    collective(Pattern::Ring, 2e9),
                ],
                ..Workload::default()
            },
            Self::Inference => Workload {
                compute_seconds: 0.02,
                inside_bytes: 1e9,
                imbalance: 0.1,
                collectives: Vec::new(),
                ..Workload::default()
            },
        }
    }
}

/// Assigns nodes to each job, one job after the other. The seed decides where the scheduler has no preference.
///
/// # Errors
/// A job specifies its work twice, requests a node that is taken or does not exist, or more than are free.
pub fn place(
    requests: &[JobRequest],
    wiring: &Wiring,
    seed: u64,
) -> Result<Vec<JobSpec>, SpecError> {
    let blocks = leaf_blocks(wiring);
    let mut free: BTreeSet<u16> = (0..).take(blocks.len()).collect();
    let mut jobs = Vec::new();
    for (number, request) in (0..).zip(requests) {
        let nodes = choose(request, &free, &blocks, Noise::new(seed).part(number))?;
        for node in &nodes {
            if !free.remove(node) {
                let problem = format!(
                    "found node {node} in {}, expected one that is there and in no other job",
                    request.name
                );
                return Err(SpecError::new("jobs.nodes", problem));
            }
        }
        jobs.extend(jobs_on(request, nodes)?);
    }
    Ok(jobs)
}

/// By node: the switch that its first NIC is connected to.
fn leaf_blocks(wiring: &Wiring) -> Vec<usize> {
    let leaf = |node| match wiring.cables[wiring.nic_index(node, 0)].ends[1].0 {
        Device::Switch(leaf) => leaf,
        Device::Nic(_) => 0,
    };
    (0..).take(wiring.hosts.len()).map(leaf).collect()
}

fn choose(
    request: &JobRequest,
    free: &BTreeSet<u16>,
    blocks: &[usize],
    noise: Noise,
) -> Result<Vec<u16>, SpecError> {
    let wanted = match &request.nodes {
        Wanted::These(nodes) => return Ok(nodes.clone()),
        Wanted::Count(wanted) => usize::from(*wanted),
    };
    if wanted == 0 || wanted > free.len() {
        let problem = format!(
            "found {wanted} for {}, expected 1 to the {} that are free",
            request.name,
            free.len()
        );
        return Err(SpecError::new("jobs.nodes", problem));
    }
    Ok(match request.placement {
        Placement::Slurm => best_fit(wanted, free, blocks),
        Placement::Kubernetes => {
            let mut nodes: Vec<u16> = free.iter().copied().collect();
            nodes.sort_by_key(|node| noise.bits(u64::from(*node)));
            nodes.truncate(wanted);
            nodes
        }
    })
}

fn best_fit(wanted: usize, free: &BTreeSet<u16>, blocks: &[usize]) -> Vec<u16> {
    let mut of_block: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
    for node in free {
        of_block
            .entry(blocks[usize::from(*node)])
            .or_default()
            .push(*node);
    }
    let mut of_block: Vec<Vec<u16>> = of_block.into_values().collect();
    let fits = of_block.iter().filter(|nodes| nodes.len() >= wanted);
    if let Some(best) = fits.min_by_key(|nodes| nodes.len()) {
        return best[..wanted].to_vec();
    }
    of_block.sort_by_key(|nodes| Reverse(nodes.len()));
    let mut nodes: Vec<u16> = of_block.iter().flatten().copied().take(wanted).collect();
    nodes.sort_unstable();
    nodes
}

/// One job, or one for each node of a service.
fn jobs_on(request: &JobRequest, nodes: Vec<u16>) -> Result<Vec<JobSpec>, SpecError> {
    let workload = match (&request.workload, request.model) {
        (Some(_), Some(_)) => {
            let problem = format!(
                "{}: found both, expected one of model and workload",
                request.name
            );
            return Err(SpecError::new("jobs.model", problem));
        }
        (Some(workload), None) => workload.clone(),
        (None, model) => model.map_or_else(Workload::default, Model::workload),
    };
    let job = |name, nodes| JobSpec {
        name,
        nodes,
        workload: workload.clone(),
        schedule: request.schedule,
    };
    if request.model != Some(Model::Inference) {
        return Ok(vec![job(request.name.clone(), nodes)]);
    }
    let replica =
        |(number, node): (usize, u16)| job(format!("{}-{number}", request.name), vec![node]);
    Ok(nodes.into_iter().enumerate().map(replica).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ClusterSpec;

    /// 12 nodes under leaves of four.
    fn wiring() -> Wiring {
        let text = "nodes = 12\nwiring = { kind = \"rail-optimized\", nodes_per_su = 4 }\n";
        let spec: ClusterSpec = toml::from_str(text).expect("a description");
        Wiring::plan(&spec).expect("a wiring")
    }

    fn requests(text: &str) -> Vec<JobRequest> {
        #[derive(Deserialize)]
        struct File {
            jobs: Vec<JobRequest>,
        }
        toml::from_str::<File>(text).expect("jobs").jobs
    }

    fn nodes(text: &str, seed: u64) -> Result<Vec<Vec<u16>>, String> {
        let jobs = place(&requests(text), &wiring(), seed).map_err(|error| error.to_string())?;
        Ok(jobs.into_iter().map(|job| job.nodes).collect())
    }

    #[test]
    fn slurm_fills_the_block_that_fits_best_and_else_few_blocks() {
        for (sizes, expected) in [
            (
                vec![4, 4, 4],
                vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11]],
            ),
            // Two remain of the first block: they fit the second job best.
            (vec![2, 2, 3], vec![vec![0, 1], vec![2, 3], vec![4, 5, 6]]),
            // No block has six: two whole ones rather than three.
            (vec![1, 6], vec![vec![0], vec![4, 5, 6, 7, 8, 9]]),
        ] {
            let text: String = (0..)
                .zip(&sizes)
                .map(|(job, size)| format!("[[jobs]]\nname = \"{job}\"\nnodes = {size}\n"))
                .collect();
            assert_eq!(nodes(&text, 1), Ok(expected), "{sizes:?}");
        }
    }

    #[test]
    fn kubernetes_scatters_as_the_seed_says() {
        let text = "[[jobs]]\nname = \"a\"\nnodes = 6\nplacement = \"kubernetes\"\n";
        let (one, again, other) = (nodes(text, 1), nodes(text, 1), nodes(text, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        let placed = &one.expect("room")[0];
        let distinct: BTreeSet<u16> = placed.iter().copied().collect();
        assert_eq!(
            (distinct.len(), placed.iter().all(|node| *node < 12)),
            (6, true)
        );
        assert_ne!(*placed, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_service_is_one_job_on_each_node() {
        let text = "[[jobs]]\nname = \"chat\"\nnodes = 3\nmodel = \"inference\"\n";
        let jobs = place(&requests(text), &wiring(), 1).expect("room");
        let names: Vec<_> = jobs
            .iter()
            .map(|job| (job.name.as_str(), &job.nodes[..]))
            .collect();
        assert_eq!(
            names,
            [("chat-0", &[0][..]), ("chat-1", &[1]), ("chat-2", &[2])]
        );
    }

    #[test]
    fn what_cannot_be_placed_says_why() {
        let job = |rest: &str| format!("[[jobs]]\nname = \"a\"\n{rest}\n");
        for (text, said) in [
            (
                job("nodes = 13"),
                "jobs.nodes: found 13 for a, expected 1 to the 12 that are free",
            ),
            (
                job("nodes = 0"),
                "jobs.nodes: found 0 for a, expected 1 to the 12 that are free",
            ),
            (
                job("nodes = [12]"),
                "jobs.nodes: found node 12 in a, expected one that is there and in no other job",
            ),
            (
                job("nodes = [3, 3]"),
                "jobs.nodes: found node 3 in a, expected one that is there and in no other job",
            ),
            (
                job(
                    "nodes = 2\nmodel = \"moe\"\nworkload = { compute_seconds = 1.0, collectives = [] }",
                ),
                "jobs.model: a: found both, expected one of model and workload",
            ),
        ] {
            assert_eq!(nodes(&text, 1), Err(said.to_owned()), "{text}");
        }
    }
}
