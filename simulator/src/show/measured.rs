//! What programs on the nodes measure, which no file of the kernel holds: probes of each other's NICs, and how late timers
//! fire. One file for each node, with the reading of the exporter's own samplers as JSON.

use std::path::Path;

use railscope_model::metric::{HOST_STALLS, HOST_TIMER_DELAY, LATENCY_BOUNDS_NANOS};
use railscope_model::reading::{Histogram, Labels, NodeReading};

use crate::cluster::{Cluster, Node};
use crate::show::machine::{TreeError, at};
use crate::show::readings::{Probes, Probing, STALLS};
use crate::show::tree::replace;

/// Name of the file below the folder of a node.
pub const FILE: &str = "measured.json";
/// Timers that a probe of timers watches a second: one every 10 ms.
const TIMERS_PER_SECOND: f64 = 100.0;
/// Where the wake-ups that are no stalls stand: up to 20 us.
const USUAL_BUCKET: usize = 2;

/// The measurements of all nodes.
#[derive(Debug)]
pub struct Measured {
    probes: Probes,
}

impl Measured {
    /// Those of a cluster whose nodes probe each other so.
    pub fn of(cluster: &Cluster, probing: Probing) -> Self {
        Self {
            probes: Probes::new(cluster, probing),
        }
    }

    /// Adds what happened since the last call.
    pub fn follow(&mut self, cluster: &Cluster) {
        self.probes.follow(cluster);
    }

    /// What a node has measured so far.
    pub fn reading(&self, cluster: &Cluster, node: usize) -> NodeReading {
        let mut reading = NodeReading::default();
        self.probes.push(&mut reading, node);
        push_timers(&mut reading, &cluster.nodes()[node], cluster.seconds());
        reading
    }

    /// Writes the file of a node below its folder.
    pub(super) fn write(
        &self,
        cluster: &Cluster,
        node: usize,
        root: &Path,
    ) -> Result<(), TreeError> {
        let file = root.join(FILE);
        let text = serde_json::to_string(&self.reading(cluster, node));
        let text = text.map_err(std::io::Error::from).map_err(at(&file))?;
        replace(&file, &text)
    }
}

/// How late timers were on each NUMA node; all of them see the same stalls.
fn push_timers(reading: &mut NodeReading, node: &Node, seconds: f64) {
    let [above_50us, above_200us, above_1000us] = node.stalls;
    let mut counts = [0; LATENCY_BOUNDS_NANOS.len() + 1];
    counts[USUAL_BUCKET] = ((seconds * TIMERS_PER_SECOND) as u64).saturating_sub(above_50us);
    // Those between two thresholds count below the upper one; the longest take up to 10 ms.
    for (bound, count) in [
        (200_000, above_50us - above_200us),
        (1_000_000, above_200us - above_1000us),
        (10_000_000, above_1000us),
    ] {
        let place = LATENCY_BOUNDS_NANOS.partition_point(|nanos| *nanos < bound);
        counts[place] += count;
    }
    let bounds = LATENCY_BOUNDS_NANOS.map(|nanos| nanos as f64 / 1e9);
    let sum = bounds
        .iter()
        .zip(counts)
        .map(|(bound, count)| bound * count as f64)
        .sum();
    for numa_node in 0..node.kind.shape().host.cpu_lists.len() {
        let labels = Labels::new([numa_node]);
        // Counts fit the bounds by their type.
        if let Ok(histogram) = Histogram::new(&bounds, counts.to_vec(), sum) {
            reading.push(&HOST_TIMER_DELAY, &labels, histogram);
        }
        for (threshold, read) in STALLS {
            reading.push(&HOST_STALLS, &labels.with(threshold), read(node));
        }
    }
}
