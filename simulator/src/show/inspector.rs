//! What NCCL's Inspector plugin would write on the nodes of a job: a line for each rank and step, with the time that the rank
//! spent in the step's collectives.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::cluster::Cluster;

/// Number of the process that drives the first GPU of a node.
const FIRST_PID: usize = 1000;
/// Size of the message that every line names: gradients of one bucket.
const MESSAGE_BYTES: u64 = 25 << 20;

/// Writes dumps; remembers which steps it has written.
#[derive(Debug, Default)]
pub struct Inspector {
    written: BTreeMap<Arc<str>, u64>,
}

impl Inspector {
    /// Lines of the steps that jobs are in now, by file, if they were not written before. A caller
    /// that calls it more often than a step is long misses none. `micros` is the current time,
    /// microseconds of Unix time.
    pub fn lines(&mut self, cluster: &Cluster, micros: u64) -> BTreeMap<String, String> {
        let new: BTreeMap<Arc<str>, (u64, usize)> = cluster
            .jobs()
            .zip(cluster.current_steps())
            .map(|(job, step)| (Arc::from(job.name.as_str()), (step, job.nodes.len())))
            .filter(|(job, (step, _))| self.written.get(job) != Some(step))
            .collect();
        let mut ranks: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let mut times = cluster.rank_times();
        for node in cluster.nodes() {
            for gpu in 0..node.gpus.len() {
                let times = times.next().flatten();
                let Some((job, (step, nodes))) =
                    node.job.as_ref().and_then(|job| new.get_key_value(job))
                else {
                    continue;
                };
                let rank = ranks.entry(job).or_default();
                let (number, all) = (*rank, nodes * node.gpus.len());
                *rank += 1;
                let Some(times) = times else { continue };
                let waited = times.communication_seconds + times.wait_seconds;
                let pid = FIRST_PID + gpu;
                let file = files
                    .entry(format!("{}-pid{pid}.log", node.name))
                    .or_default();
                // Writing to a string cannot fail.
                writeln!(
                    file,
                    "{{\"header\":{{\"id\":\"0x{:x}\",\"rank\":{number},\"n_ranks\":{all},\"nnodes\":{nodes}}},\"metadata\":{{\"inspector_output_format_version\":\"v4.0\",\"git_rev\":\"\",\"rec_mechanism\":\"nccl_profiler_interface\",\"dump_timestamp_us\":{micros},\"hostname\":\"{}\",\"pid\":{pid}}},\"coll_perf\":{{\"coll\":\"AllReduce\",\"coll_sn\":{step},\"coll_msg_size_bytes\":{MESSAGE_BYTES},\"coll_exec_time_us\":{:.0},\"coll_timing_source\":\"kernel_gpu\"}}}}",
                    hash(job),
                    node.name,
                    1e6 * waited,
                )
                .ok();
            }
        }
        let steps = new.into_iter().map(|(job, (step, _))| (job, step));
        self.written.extend(steps);
        files
    }
}

/// What distinguishes the communicator of one job from those of others.
fn hash(job: &str) -> u64 {
    let mix = |hash: u64, byte: u8| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
    job.bytes().fold(7, mix)
}
