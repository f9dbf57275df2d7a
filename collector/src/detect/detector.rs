//! The one kind of plug of the collector: a detector reads fabric and history and emits evidence.

use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::{
    GPU_DRAM_BANDWIDTH, GPU_MEMORY_USED, GPU_MEMORY_UTILIZATION, GPU_TENSOR_ACTIVE, Kind, Metric,
    NIC_PFC_FRAMES, RDMA_RETRANSMITS, SENSOR_ALARM, SWITCH_PORT_DISCARDS, SWITCH_PORT_PFC_FRAMES,
};

use crate::classes::{Class, EDGE_LOSSY, GPU_ERROR, GPU_SLOW, Severity};
use crate::detect::gpus::Gpus;
use crate::detect::registry::{self, Rule};
use crate::detect::rules;
use crate::detect::tails::Tails;
use crate::fabric::addresses::Addresses;
use crate::fabric::{Misplaced, Routes};
use crate::jobs::job::Jobs;
use crate::jobs::straggler::Waiting;
use crate::stages::LeftOut;
use crate::store::History;

/// The input of a detector. Time is `now`, never a clock.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The graph of parts.
    pub fabric: &'a Fabric,
    /// Another number whenever the fabric was built again: what was found in it may be kept as long as it is the
    /// same.
    pub epoch: u64,
    /// The shortest paths between its leaves.
    pub routes: &'a Routes,
    /// Addresses and their owners.
    pub addresses: &'a Addresses,
    /// What the nodes reported lately.
    pub history: &'a History,
    /// GPUs that the nodes list.
    pub(crate) gpus: &'a Gpus,
    /// Which job runs on which GPUs.
    pub jobs: &'a Jobs,
    /// The straggler that the ranks of each job wait for.
    pub waiting: &'a [Waiting],
    /// Host ports that are connected to a leaf of another rail.
    pub misplaced: &'a [Misplaced],
    /// When the subnet was last read completely; a cable that was seen only before is lost.
    pub subnet_seen: Option<Timestamp>,
    /// Steps of the method that are omitted, to see what they are worth.
    pub left_out: LeftOut,
    /// Time of this tick.
    pub now: Timestamp,
}

/// What one detector saw about one part in one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Name of the detector.
    pub detector: &'static str,
    /// The signal that it rests on: a metric's name, the kind of an error, `subnet` or `lldp`.
    pub signal: &'static str,
    /// The part that the evidence is about.
    pub part: Part,
    /// What the evidence reports is wrong with it.
    pub class: &'static Class,
    /// Size of the deviation: 0.5 is half of what its peers give or twice what they suffer; 1 is all of it.
    pub effect: f64,
    /// One sentence with the values that were seen and those that were expected.
    pub statement: String,
    /// Parts that the fault slows, if the topology is known.
    pub victims: Vec<Part>,
    /// Parts that share this very fault, such as the other end of two swapped cables.
    pub related: Vec<Part>,
    /// Parts that it may be as well as `part`, and as likely: the evidence cannot distinguish them.
    pub alike: Vec<Part>,
}

impl Evidence {
    /// Severity if it is true: that of its class, or a ticket where healthy hardware looks the same.
    pub(crate) fn severity(&self) -> Severity {
        // Tensor cores and memory of a rank that has more to do, or more data, are active for longer, too, as is a GPU that is shared.
        let of_work = [
            &GPU_TENSOR_ACTIVE,
            &GPU_DRAM_BANDWIDTH,
            &GPU_MEMORY_USED,
            &GPU_MEMORY_UTILIZATION,
        ]
        .map(|metric| metric.name);
        let may_be_work = self.class == &GPU_SLOW && of_work.contains(&self.signal);
        // EFA retransmits at once, over other paths; and nodes have more fans than they need.
        let is_redundant = [&RDMA_RETRANSMITS, &SENSOR_ALARM].map(|metric| metric.name);
        // Frames do not show for how long they pause, and drops not whether the sender should have been paused.
        let frames = [&SWITCH_PORT_PFC_FRAMES, &NIC_PFC_FRAMES].map(|metric| metric.name);
        let is_vague = frames.contains(&self.signal)
            || self.class == &EDGE_LOSSY && self.signal == SWITCH_PORT_DISCARDS.name;
        // An error after which the GPU goes on.
        let is_harmless = self.class == &GPU_ERROR && self.effect == 0.0;
        if may_be_work || is_vague || is_harmless || is_redundant.contains(&self.signal) {
            Severity::Warning
        } else {
            self.class.severity
        }
    }
}

/// Parts that a sentence reports one by one.
const TOLD: usize = 4;

/// Parts in a sentence: the first of many, and how many more there are.
pub(crate) fn list(parts: &[Part]) -> String {
    let told: Vec<String> = parts.iter().take(TOLD).map(ToString::to_string).collect();
    match parts.len().saturating_sub(TOLD) {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

/// Why a detector reports what it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What was checked.
    pub check: &'static str,
    /// The threshold and where its number comes from.
    pub threshold: String,
    /// What would clear the evidence.
    pub clears: &'static str,
}

/// Which series a signal refers to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plotted {
    /// Its metric: a counter or a gauge.
    pub metric: &'static Metric,
    /// The value of the last label, where the signal is of one kind.
    pub kind: Option<&'static str>,
    /// What its rate, of a counter, must not pass, where the rule has one such number.
    pub limit: Option<f64>,
}

/// Reads fabric and history, emits evidence.
pub trait Detector: Send {
    /// Name in API, docs and runbooks.
    fn name(&self) -> &'static str;

    /// Evaluates one tick. Pure but for the detector's own memory.
    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>);

    /// Whether its findings depend on earlier ticks: on events that are over, or on what is gone. The memory of others
    /// only saves time.
    fn remembers(&self) -> bool {
        false
    }

    /// Latency of paths as of its last tick; none from detectors that do not measure it.
    fn tails(&self) -> Option<Arc<Tails>> {
        None
    }

    /// Explains its own evidence: of a class, by a signal.
    fn explain(&self, class: &Class, signal: &str) -> Explanation;

    /// The classes that it names, each with its parameters.
    fn rules(&self) -> Vec<Rule>;

    /// The series that a signal of its evidence refers to; none if the signal is not a series.
    fn plotted(&self, class: &Class, signal: &str) -> Option<Plotted> {
        let metric = Metric::by_name(signal)?;
        let is_plain = matches!(metric.kind, Kind::Counter | Kind::Gauge);
        is_plain.then(|| Plotted {
            metric,
            kind: None,
            limit: registry::limit_of_rate(&self.rules(), (class, signal), metric),
        })
    }
}

/// Builds a detector.
pub type Build = fn() -> Box<dyn Detector>;

/// Every detector of the collector.
pub const DETECTORS: &[Build] = &[
    rules::degraded_link::build,
    rules::flapping_port::build,
    rules::error_counters::build,
    rules::miscabled_rail::build,
    rules::gpu_health::build,
    rules::gpu_presence::build,
    rules::nic_presence::build,
    rules::gpu_xid::build,
    rules::gpu_recovery::build,
    rules::slow_gpu::build,
    rules::gpu_heat::build,
    rules::gpu_work::build,
    rules::lone_worker::build,
    rules::late_rank::build,
    rules::host_health::build,
    rules::node_hardware::build,
    rules::node_silence::build,
    rules::storage_stall::build,
    rules::slow_receiver::build,
    rules::pause_circle::build,
    rules::marked_nics::build,
    rules::switch_ports::build,
    rules::lossy_cable::build,
    rules::fabric_loss::build,
    rules::probe_paths::build,
    rules::uneven_ports::build,
    rules::odd_config::build,
];
