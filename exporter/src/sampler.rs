//! The exporter's plug-in interface: a sampler turns one source into readings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use railscope_model::reading::{NodeReading, Status};

use crate::mig_devices::MigDevices;
use crate::samplers;
use crate::sources::ethtool::NetworkAccess;
use crate::sources::probe::ProbeAccess;

/// Where the machine is: every root can be moved, for containers and for tests.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Root of sysfs, `/sys` on a real machine.
    pub sysfs: PathBuf,
    /// Root of procfs, `/proc` on a real machine.
    pub procfs: PathBuf,
    /// The kernel log, `/dev/kmsg` on a real machine; none disables it.
    pub kmsg: Option<PathBuf>,
    /// How to reach NVML; none disables GPUs.
    pub nvml: Option<NvmlAccess>,
    /// Source of network drivers' counters, and of neighbors.
    pub network: NetworkAccess,
    /// Whether to watch timers on each NUMA node, with a thread that wakes up to 1000 times a second.
    /// Several exporters in one process, or on a machine that is not the one below the roots, leave it out.
    pub jitter_probe: bool,
    /// The root file system that the exporter itself sees, `/`: what it runs in is there.
    pub rootfs: PathBuf,
    /// Source of the jobs and pods that run on the devices.
    pub workloads: WorkloadAccess,
    /// What NVML reports about MIG devices, for samplers that read other sources than NVML.
    pub mig_devices: MigDevices,
    /// Whether to respond to probes of other nodes, and which targets to probe.
    pub probes: ProbeAccess,
    /// Result of what is sent by OTLP; none if nothing is sent.
    pub otlp: Option<railscope_otlp::StatsReader>,
}

impl Machine {
    /// A machine whose files all stand at their usual places below `root`. It reports nothing of this
    /// machine: GPUs are omitted, networks are read from recordings below `network`, and timers are not
    /// watched.
    pub fn below(root: &Path) -> Self {
        Self {
            sysfs: root.join("sys"),
            procfs: root.join("proc"),
            kmsg: Some(root.join("dev/kmsg")),
            nvml: None,
            network: NetworkAccess::Recorded(root.join("network")),
            jitter_probe: false,
            rootfs: root.to_owned(),
            workloads: WorkloadAccess::below(root),
            mig_devices: MigDevices::default(),
            probes: ProbeAccess::default(),
            otlp: None,
        }
    }
}

/// Sources of the jobs and pods that run on the node's devices. Missing ones are not used.
#[derive(Debug, Clone)]
pub struct WorkloadAccess {
    /// The kubelet's pod-resources socket.
    pub kubelet_socket: PathBuf,
    /// A directory in which the prolog of a batch system writes job ids into one file a GPU, named by its
    /// ordinal (`3`) or ordinal and MIG instance (`3.1`): dcgm-exporter's job mapping. None reads no
    /// mapping.
    pub job_mapping: Option<PathBuf>,
    /// A directory in which jobs write how long their steps took; read where it exists.
    pub step_times: PathBuf,
}

impl WorkloadAccess {
    /// The usual places below `root`, and no job mapping, which has none.
    pub fn below(root: &Path) -> Self {
        Self {
            kubelet_socket: root.join("var/lib/kubelet/pod-resources/kubelet.sock"),
            job_mapping: None,
            step_times: root.join("run/railscope/steps"),
        }
    }
}

/// How to reach NVML. The library runs in a child process, so that a driver that blocks or crashes
/// affects only that child.
#[derive(Debug, Clone)]
pub struct NvmlAccess {
    /// The library to load, by name or path.
    pub library: PathBuf,
    /// Program and leading arguments of the child: this very binary and its hidden subcommand.
    pub worker: Vec<PathBuf>,
    /// Time between two readings. Polling NVML much faster slows the jobs that run on the GPU.
    pub period: Duration,
}

/// Whether the machine has what a sampler reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It has, and the reading holds it.
    Present,
    /// It has not, or does not show it, for this reason.
    Absent(Status),
}

/// A source that exists but could not be read at all. Single values that fail are counted in the
/// reading's status instead, and cost only themselves.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {cause}")]
pub struct SampleError {
    /// What was read, a path or a call.
    pub what: String,
    /// Why it failed.
    #[source]
    pub cause: std::io::Error,
}

/// Turns one source into readings.
pub trait Sampler: Send {
    /// Config key, label and file name.
    fn name(&self) -> &'static str;

    /// How often to sample: every second, or slower with the measured reason beside it.
    fn period(&self) -> Duration;

    /// Reads the source once, from its first to its last value.
    ///
    /// # Errors
    /// The source could not be read at all.
    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError>;
}

/// Builds a sampler for a machine. Building reads nothing that can block.
pub type Build = fn(&Machine) -> Box<dyn Sampler>;

/// Every sampler of the exporter.
pub const SAMPLERS: &[Build] = &[
    samplers::cpu::build,
    samplers::deployment::build,
    samplers::ethernet::build,
    samplers::gpu::build,
    samplers::host::build,
    samplers::kernel_log::build,
    samplers::lldp::build,
    samplers::jitter::build,
    samplers::memory::build,
    samplers::pcie::build,
    samplers::placement::build,
    samplers::rdma::build,
    samplers::scheduler::build,
    samplers::sensors::build,
    samplers::step_times::build,
    samplers::storage::build,
    samplers::vf::build,
    samplers::workload::build,
];

/// Builds a sampler for a machine that enables it.
pub type BuildOnDemand = fn(&Machine) -> Option<Box<dyn Sampler>>;

/// Samplers that send packets, respond to them, or count what is sent: they run only if the machine enables
/// them; otherwise no exposition contains them.
pub const ON_DEMAND: &[BuildOnDemand] = &[
    samplers::otlp::build,
    samplers::prober::build,
    samplers::prober::build_rdma,
    samplers::responder::build,
];

/// Samples every source of a machine once, in this thread, and puts the samples in exposition order:
/// the input of the golden files. A source that blocks blocks the caller.
pub fn sample_once(machine: &Machine) -> NodeReading {
    let mut all = NodeReading::default();
    // Those on demand have nothing to report about one instant.
    for build in SAMPLERS {
        let mut sampler = build(machine);
        let mut reading = NodeReading::default();
        let status = sample_into(sampler.as_mut(), &mut reading);
        all.extend(&reading);
        all.push_status(sampler.name(), "", status);
    }
    all.normalize();
    all
}

/// Samples one source once; the reading is empty where that fails.
pub(crate) fn sample_into(sampler: &mut dyn Sampler, reading: &mut NodeReading) -> Status {
    match sampler.sample(reading) {
        Ok(Presence::Present) => Status::Ok,
        Ok(Presence::Absent(why)) => why,
        Err(error) => {
            tracing::warn!(source = sampler.name(), %error, "not read");
            *reading = NodeReading::default();
            Status::Failed
        }
    }
}
