//! GPUs as their exporters show them: what the detectors of GPUs begin with.

use std::collections::BTreeMap;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{GpuIndex, NodeName, Part, RdmaDevice};
use railscope_model::label;
use railscope_model::metric::{
    GPU, GPU_CLOCK, GPU_DRAM_BANDWIDTH, GPU_MEMORY_UTILIZATION, GPU_MONITORED_SECONDS, GPU_NIC,
    GPU_POWER, GPU_POWER_LIMIT, GPU_SM_ACTIVE, GPU_TEMPERATURE, GPU_TENSOR_ACTIVE,
    GPU_TENSOR_ACTIVE_CYCLES, GPU_TENSOR_ACTIVE_SECONDS, GPU_UTILIZATION, Metric,
};
use railscope_model::reading::Labels;

use crate::detect::detector::View;
use crate::detect::registry::Threshold;
use crate::jobs::job::{Job, JobName};
use crate::store::per_node_cache::Kept;
use crate::store::{History, NodeHistory, Place, Window};

/// Utilization from which a GPU counts as running a job: an idle GPU's clock is low by design.
const BUSY_UTILIZATION: f64 = 0.5;

/// From when on a GPU is evaluated.
pub(crate) fn busy() -> Threshold {
    Threshold::new(
        "utilization from which a GPU is evaluated",
        BUSY_UTILIZATION,
        "ratio",
        "an idle GPU's clock is low by design (a choice)",
    )
}

/// Whether one of a node's GPUs runs a job.
pub(crate) fn any_is_busy(node: &NodeHistory) -> bool {
    let mut gpus = node.series(&GPU_UTILIZATION);
    gpus.any(|(_, window)| {
        window
            .value()
            .is_some_and(|share| share >= BUSY_UTILIZATION)
    })
}

/// How long the GPUs of a node must have done nothing until it is idle: longer than a checkpoint's pause.
pub(crate) const IDLE_SECONDS: f64 = 120.0;
/// Utilization below which a GPU does nothing: one that waits for a slow host still does something (a choice).
const IDLE_UTILIZATION: f64 = 0.05;

/// Whether a node reports what its GPUs do, and all of them have done nothing lately.
pub(crate) fn are_all_idle(node: &NodeHistory, now: Timestamp) -> bool {
    idle_for(node, now, IDLE_SECONDS)
}

fn idle_for(node: &NodeHistory, until: Timestamp, seconds: f64) -> bool {
    let mut gpus = node.series(&GPU_UTILIZATION).peekable();
    gpus.peek().is_some()
        && gpus.all(|(_, window)| {
            let mut lately = window.told_within(until, seconds).peekable();
            lately.peek().is_some() && lately.all(|(_, share)| share < IDLE_UTILIZATION)
        })
}

/// Start and end of the time in which half of a node's GPUs were busy; a GPU is not if its two newest samples are idle. A single
/// idle sample falls between two steps. A GPU that is busy in its newest sample is busy until now.
pub(crate) fn busy_span(node: &NodeHistory, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let spans = node.series(&GPU_UTILIZATION).filter_map(|(_, window)| {
        let mut was_idle = false;
        let lately = window.told().take_while(|(_, share)| {
            let is_idle = *share < BUSY_UTILIZATION;
            !(std::mem::replace(&mut was_idle, is_idle) && is_idle)
        });
        let mut busy = lately.filter(|(_, share)| *share >= BUSY_UTILIZATION);
        let (newest, _) = busy.next()?;
        let since = busy.last().map_or(newest, |(since, _)| since);
        let is_newest = window.latest().is_some_and(|(at, _)| at == newest);
        Some((since, if is_newest { now } else { newest }))
    });
    let mut spans: Vec<_> = spans.collect();
    spans.sort_unstable();
    let half = node.series(&GPU_UTILIZATION).count().div_ceil(2);
    spans.into_iter().nth(half.checked_sub(1)?)
}

/// From when on a node is compared.
pub(crate) fn busy_node() -> Threshold {
    Threshold::new(
        "utilization of its busiest GPU from which a node is compared",
        BUSY_UTILIZATION,
        "ratio",
        "an idle node, or one that prepares or ends a job, does other work at another clock (a choice)",
    )
}

/// For how long the GPUs of a node do nothing before it is shut down.
const DRAINED_SECONDS: f64 = 60.0;
/// How long a drained node may take to start again: firmware updates and memory tests take minutes.
const RESTART_SECONDS: f64 = 900.0;

/// The numbers of [`is_restarting`].
pub(crate) fn restarts() -> [Threshold; 2] {
    [
        Threshold::new(
            "time for which the GPUs of a node were idle before it was shut down",
            DRAINED_SECONDS,
            "s",
            "a failure ends a job together with its node (a choice)",
        ),
        Threshold::new(
            "time that such a node may take to start again",
            RESTART_SECONDS,
            "s",
            "firmware updates and memory tests take minutes (a choice)",
        ),
    ]
}

/// Whether a node's exporters stopped responding lately, after its GPUs had done nothing for some time.
pub(crate) fn is_restarting(node: &NodeHistory, now: Timestamp) -> bool {
    let silent = node.heard().filter(|_| !node.is_current(now));
    silent.is_some_and(|last| {
        now.seconds_since(last) <= RESTART_SECONDS && idle_for(node, last, DRAINED_SECONDS)
    })
}

/// Series that detectors read of every GPU, and the label behind the GPU where there is one.
const READ: [(&Metric, Option<&str>); 13] = [
    (&GPU_UTILIZATION, None),
    (&GPU_CLOCK, Some("sm")),
    (&GPU_CLOCK, Some("memory")),
    (&GPU_SM_ACTIVE, None),
    (&GPU_DRAM_BANDWIDTH, None),
    (&GPU_MEMORY_UTILIZATION, None),
    (&GPU_TENSOR_ACTIVE, None),
    (&GPU_TENSOR_ACTIVE_CYCLES, None),
    (&GPU_TENSOR_ACTIVE_SECONDS, None),
    (&GPU_MONITORED_SECONDS, None),
    (&GPU_TEMPERATURE, Some("gpu")),
    (&GPU_POWER, None),
    (&GPU_POWER_LIMIT, None),
];

/// A GPU that a node lists, and where the series of [`READ`] are.
#[derive(Debug)]
struct Known {
    labels: Labels,
    index: GpuIndex,
    places: [Option<Place>; READ.len()],
}

/// The GPUs of all nodes: looked up once, as a node's list is constant.
#[derive(Debug, Default)]
pub(crate) struct Gpus {
    /// Rests on the GPUs that are listed, and on rows.
    kept: Kept<(u64, [u64; READ.len()]), Vec<Known>>,
}

impl Gpus {
    /// Begins a tick.
    pub(crate) fn refresh(&mut self, history: &History, now: Timestamp) {
        self.kept.begin();
        for (_, history) in history.fresh_nodes(now) {
            let rows = READ.map(|(metric, _)| history.rows_since(metric));
            let rests_on = (history.values_since(&GPU), rows);
            self.kept.refresh(history, rests_on, || known(history));
        }
    }

    /// Every GPU of every node that was seen lately, by node.
    pub(crate) fn listed<'a>(&'a self, view: &View<'a>) -> Vec<Listed<'a>> {
        let nodes = view.history.fresh_nodes(view.now);
        nodes
            .flat_map(|(node, history)| self.of_node(view, node, history))
            .collect()
    }

    /// Those of one node.
    pub(crate) fn of_node<'a>(
        &'a self,
        view: &View<'a>,
        node: &'a NodeName,
        history: &'a NodeHistory,
    ) -> impl Iterator<Item = Listed<'a>> + use<'a> {
        let place = |wanted: &str| GPU.labels.iter().position(|label| *label == wanted);
        let (name, uuid) = (place("name"), place("uuid"));
        let job_of = view.jobs.on(node);
        let known = self.kept.of(history).into_iter().flatten();
        known.map(move |known| {
            let label = |place: Option<usize>| known.labels.values().nth(place?);
            Listed {
                node,
                history,
                index: known.index,
                product: label(name).unwrap_or_default(),
                uuid: label(uuid).unwrap_or_default(),
                job: job_of(known.index),
                known,
            }
        })
    }
}

fn known(history: &NodeHistory) -> Vec<Known> {
    let place = |label: &str, (metric, behind): (&'static Metric, Option<&str>)| {
        let labels = behind.map_or_else(|| vec![label], |behind| vec![label, behind]);
        history.place(metric, &labels)
    };
    let series = history.series(&GPU);
    series
        .filter_map(|(labels, _)| {
            let label = labels.values().next().unwrap_or_default();
            Some(Known {
                labels: labels.clone(),
                index: label.parse().ok()?,
                places: READ.map(|read| place(label, read)),
            })
        })
        .collect()
}

/// A GPU that its node's driver lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'a> {
    pub(crate) node: &'a NodeName,
    pub(crate) history: &'a NodeHistory,
    pub(crate) index: GpuIndex,
    /// Product name: only equal chips are peers.
    pub(crate) product: &'a str,
    uuid: &'a str,
    /// The job that runs on it.
    pub(crate) job: Option<&'a Job>,
    known: &'a Known,
}

impl<'a> Listed<'a> {
    /// Its number as label value.
    pub(crate) fn label(&self) -> &'a str {
        self.known.labels.values().next().unwrap_or_default()
    }

    /// The newest value of a series that has no label but the GPU.
    pub(crate) fn value(&self, metric: &'static Metric) -> Option<f64> {
        self.history.value(metric, &[self.label()])
    }

    /// Its UUID; empty where the exporter has none.
    pub(crate) fn uuid(&self) -> &'a str {
        self.uuid
    }

    /// What it reported about a metric of [`READ`]; of several entries for it, the first.
    pub(crate) fn window(&self, metric: &'static Metric) -> Option<Window<'a>> {
        self.window_where(|(read, _)| *read == metric)
    }

    fn window_where(
        &self,
        is_it: impl FnMut(&(&'static Metric, Option<&str>)) -> bool,
    ) -> Option<Window<'a>> {
        let number = READ.iter().position(is_it)?;
        self.history
            .window_at(READ[number].0, self.known.places[number]?)
    }

    /// Whether it runs a job.
    pub(crate) fn is_busy(&self) -> bool {
        self.window(&GPU_UTILIZATION)
            .and_then(|utilization| utilization.value())
            .is_some_and(|utilization| utilization >= BUSY_UTILIZATION)
    }

    /// When it reported, newest first, and whether it ran a job then, in so many seconds before the newest.
    pub(crate) fn busy_within(
        &self,
        seconds: f64,
    ) -> impl Iterator<Item = (Timestamp, bool)> + use<'a> {
        let utilization = self.lately(&GPU_UTILIZATION, seconds);
        utilization.map(|(at, utilization)| (at, utilization >= BUSY_UTILIZATION))
    }

    /// What it reported about a metric of [`READ`] and when, newest first, in so many seconds before the newest.
    pub(crate) fn lately(
        &self,
        metric: &'static Metric,
        seconds: f64,
    ) -> impl Iterator<Item = (Timestamp, f64)> + use<'a> {
        let window = self.window(metric);
        let newest = window.and_then(|window| window.latest());
        let lately = window
            .zip(newest)
            .map(|(window, (newest, _))| window.told_within(newest, seconds));
        lately.into_iter().flatten()
    }

    /// The mean of what it reported about a metric of [`READ`] between two ages, in seconds.
    pub(crate) fn mean(
        &self,
        metric: &'static Metric,
        now: Timestamp,
        [from, to]: [f64; 2],
    ) -> Option<f64> {
        let samples = self.window(metric)?.told_within(now, to);
        let samples = samples.filter(|(at, _)| now.seconds_since(*at) >= from);
        let (sum, count) = samples.fold((0.0, 0.0), |(sum, count), (_, value)| {
            (sum + value, count + 1.0)
        });
        (count > 0.0).then(|| sum / count)
    }

    /// The clock of its SMs, Hz.
    pub(crate) fn clock(&self) -> Option<Window<'a>> {
        self.window(&GPU_CLOCK)
    }

    /// The clock of its memory, Hz.
    pub(crate) fn memory_clock(&self) -> Option<Window<'a>> {
        self.window_where(|read| *read == (&GPU_CLOCK, Some("memory")))
    }

    /// The newest of the clock of its SMs.
    pub(crate) fn clock_hertz(&self) -> Option<f64> {
        self.clock()?.value()
    }

    pub(crate) fn part(&self) -> Part {
        Part::Gpu(self.node.clone(), self.index)
    }
}

/// Runs of GPUs of one node.
pub(crate) fn by_node<'a, 'b>(gpus: &'b [Listed<'a>]) -> impl Iterator<Item = &'b [Listed<'a>]> {
    gpus.chunk_by(|a, b| a.node == b.node)
}

/// The GPUs of one node, by job: several may share a node.
pub(crate) fn by_job<'a>(node: &[Listed<'a>]) -> Vec<Vec<Listed<'a>>> {
    let name = |gpu: &Listed<'a>| gpu.job.map(|job| &job.name);
    if node.iter().all(|gpu| name(gpu) == name(&node[0])) {
        return vec![node.to_vec()];
    }
    let mut jobs: BTreeMap<Option<&JobName>, Vec<Listed<'a>>> = BTreeMap::new();
    for gpu in node {
        jobs.entry(name(gpu)).or_default().push(*gpu);
    }
    jobs.into_values().collect()
}

/// The GPU that has this NIC for its nearest although it is on another socket, where most GPUs of the node have one on
/// their own.
pub(in crate::detect) fn across_sockets<'a>(
    history: &'a NodeHistory,
    nic: &RdmaDevice,
) -> Option<&'a str> {
    let all = history.series(&GPU_NIC).map(|(labels, _)| labels);
    let nearest = all.filter(|labels| labels.get(label!(GPU_NIC, "nearest")) == Some("true"));
    let (far, near): (Vec<&Labels>, Vec<_>) =
        nearest.partition(|labels| labels.get(label!(GPU_NIC, "hop")) == Some("SYS"));
    let device = nic.to_string();
    let mut own = far
        .iter()
        .filter(|labels| labels.get(label!(GPU_NIC, "device")) == Some(&device));
    let own = own.next().filter(|_| near.len() > far.len())?;
    own.get(label!(GPU_NIC, "gpu"))
}
