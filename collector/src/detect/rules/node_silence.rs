//! Hosts that stopped responding in the middle of their work: all of their exporters at once.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::Part;
use railscope_model::metric::{
    CPU_IOWAIT, FAN_SPEED, GPU_UTILIZATION, HOST_PRESSURE, Metric, NODE_BOOT_TIME, NODE_POWER_ON,
    RDMA_PORT_UP, SENSOR_ALARM, SENSOR_TEMPERATURE,
};

use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, NODE_SILENT};
use crate::detect::detector::{Detector, Evidence, Explanation, View};
use crate::detect::gpus::{self, busy_span};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{LastSample, NodeHistory};

const NAME: &str = "node-silence";

/// How long no exporter of a host has responded.
const SILENT_SECONDS: f64 = 60.0;
/// The same in scrape intervals: single scrapes fail.
const SILENT_INTERVALS: f64 = 4.0;
/// Exporters that fail together on a host: one alone may have crashed.
const MIN_EXPORTERS: usize = 2;
/// Exporters of a host, or hosts, whose last samples are so many scrape intervals apart stopped together: one may be due an
/// interval after the other, and may be late.
const TOGETHER_INTERVALS: f64 = 1.5;
/// Scrape intervals after which an exporter is late.
const LATE_INTERVALS: f64 = 1.25;
/// How long half of the GPUs were busy before: a drained node becomes idle before it is restarted.
const BUSY_SECONDS: f64 = 60.0;
/// Most hosts that stop responding together; more share a cause, such as a rack's power or management switch.
const MOST_HOSTS: usize = 3;

/// Series that only an exporter on the host itself has, and no BMC.
const OF_HOST: [&Metric; 5] = [
    &GPU_UTILIZATION,
    &NODE_BOOT_TIME,
    &HOST_PRESSURE,
    &CPU_IOWAIT,
    &RDMA_PORT_UP,
];
/// Series of a BMC, which responds without its host.
const OF_BMC: [&Metric; 4] = [
    &SENSOR_ALARM,
    &SENSOR_TEMPERATURE,
    &FAN_SPEED,
    &NODE_POWER_ON,
];

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<NodeSilence>::default()
}

/// State of late hosts, by history: what a silent exporter has reported is soon discarded where another continues.
#[derive(Default)]
struct NodeSilence(HashMap<u64, Late, FixedState>);

/// A host whose exporters may have stopped.
#[derive(Debug)]
struct Late {
    /// The last sample of the exporter that reports its GPUs.
    last: LastSample,
    /// Whether half of its GPUs had been busy for some time by then.
    was_busy: bool,
    /// Places of its sources that are not on the host itself.
    of_bmc: Vec<usize>,
}

impl Detector for NodeSilence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let mut late: HashMap<_, Late, FixedState> = HashMap::default();
        let mut silent = Vec::new();
        for (node, history) in view.history.nodes() {
            if !history.last_samples().any(|last| is_late(&last, view.now)) {
                continue;
            }
            let known = self.0.remove(&history.born());
            let known = known.filter(|known| known.sources_silent(history, is_any) > 0);
            let Some(host) = known.or_else(|| Late::of(history, view.now)) else {
                continue;
            };
            let exporters = host.sources_silent(history, |last| is_silent(last, view.now));
            if host.was_busy && exporters >= MIN_EXPORTERS {
                silent.push((node, host.last));
            }
            late.insert(history.born(), host);
        }
        self.0 = late;
        for (node, last) in &silent {
            let together = self
                .0
                .values()
                .filter(|host| are_together(last, &host.last));
            if together.count() > MOST_HOSTS {
                continue;
            }
            let part = Part::Host((*node).clone());
            out.push(Evidence {
                detector: NAME,
                signal: GPU_UTILIZATION.name,
                class: &NODE_SILENT,
                effect: 1.0,
                statement: format!(
                    "no exporter on {node} has responded for {:.0} s, and its GPUs were busy until then",
                    view.now.seconds_since(last.at)
                ),
                victims: gpus_behind(view.fabric, &part),
                part,
                related: Vec::new(),
                alike: Vec::new(),
            });
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "All exporters on the host stopped responding at the same time, while its GPUs were busy.",
            threshold: format!(
                "at least {MIN_EXPORTERS} exporters, for {SILENT_SECONDS} s and {SILENT_INTERVALS} scrape intervals; GPUs busy for {BUSY_SECONDS} s before; at most {MOST_HOSTS} hosts at once"
            ),
            clears: "An exporter on the host responds, or the host is no longer a target.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        vec![Rule::new(&NODE_SILENT, thresholds())]
    }
}

fn thresholds() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "time without an answer",
            SILENT_SECONDS,
            "s",
            "the age at which a node is no longer evaluated",
        ),
        Threshold::new(
            "the same in scrape intervals",
            SILENT_INTERVALS,
            "intervals",
            "single scrapes fail (a choice)",
        ),
        Threshold::new(
            "scrape intervals after which a host's state is kept",
            LATE_INTERVALS,
            "intervals",
            "before the last data is discarded (a choice)",
        ),
        Threshold::new(
            "fewest exporters that fail together",
            MIN_EXPORTERS as f64,
            "exporters",
            "one alone may have crashed",
        ),
        Threshold::new(
            "longest time between the last samples of what fails together",
            TOGETHER_INTERVALS,
            "intervals",
            "scrapes of one interval, half an interval late (a choice)",
        ),
        Threshold::new(
            "time for which half of its GPUs were busy before",
            BUSY_SECONDS,
            "s",
            "a drained node becomes idle before it is restarted (a choice)",
        ),
        Threshold::new(
            "most hosts that stop responding together",
            MOST_HOSTS as f64,
            "hosts",
            "more share a cause, such as a rack's power or management switch (a choice)",
        ),
        gpus::busy(),
    ]
}

impl Late {
    /// A host whose exporter of GPUs is late.
    fn of(history: &NodeHistory, now: Timestamp) -> Option<Self> {
        let of_gpus = history.sources_of(&GPU_UTILIZATION).next()?;
        let last = history.last_samples().nth(of_gpus)?;
        if !is_late(&last, now) {
            return None;
        }
        let of_host = |place: &usize| history.is_source_of(*place, &OF_HOST);
        let of_bmc = OF_BMC.iter().flat_map(|metric| history.sources_of(metric));
        Some(Self {
            last,
            was_busy: was_busy(history, last.at),
            of_bmc: of_bmc.filter(|place| !of_host(place)).collect(),
        })
    }

    /// Number of its exporters that stopped together with that of its GPUs and meet a condition, as all that are on the host must;
    /// 0 if one does not.
    fn sources_silent(&self, history: &NodeHistory, is: impl Fn(&LastSample) -> bool) -> usize {
        let mut together = 0;
        for (place, last) in history.last_samples().enumerate() {
            if self.of_bmc.contains(&place) {
                continue;
            }
            let is_together = are_together(&self.last, &last);
            if !is(&last) || last.at > self.last.at && !is_together {
                return 0;
            }
            together += usize::from(is_together);
        }
        together
    }
}

/// No condition.
fn is_any(_: &LastSample) -> bool {
    true
}

/// Whether a scrape is overdue.
fn is_late(last: &LastSample, now: Timestamp) -> bool {
    let overdue = |step| now.seconds_since(last.at) > LATE_INTERVALS * step;
    last.interval.is_some_and(overdue)
}

fn is_silent(last: &LastSample, now: Timestamp) -> bool {
    let patience = last
        .interval
        .map_or(SILENT_SECONDS, |step| SILENT_INTERVALS * step);
    now.seconds_since(last.at) > patience.max(SILENT_SECONDS)
}

/// Whether the last samples of two sources are of the same time.
fn are_together(one: &LastSample, other: &LastSample) -> bool {
    let Some(interval) = one.interval.zip(other.interval).map(|(a, b)| a.max(b)) else {
        return false;
    };
    let (early, late) = (one.at.min(other.at), one.at.max(other.at));
    late.seconds_since(early) <= TOGETHER_INTERVALS * interval
}

fn was_busy(history: &NodeHistory, until: Timestamp) -> bool {
    busy_span(history, until)
        .is_some_and(|(since, end)| end == until && until.seconds_since(since) >= BUSY_SECONDS)
}

#[cfg(test)]
mod tests {
    use railscope_model::identity::NodeName;
    use railscope_model::metric::{GPU, SENSOR_ALARM};
    use railscope_model::reading::{Labels, NodeReading};

    use super::*;
    use crate::analyzer::Analyzer;
    use crate::store::source_id::{Speaker, Subject};

    const NODES: usize = 8;
    const GPUS: usize = 2;
    const STEP_SECONDS: u64 = 5;
    /// When exporters stop responding.
    const STOP_SECONDS: u64 = 120;
    const END_SECONDS: u64 = 300;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_700_000_000_000 + 1000 * seconds)
    }

    fn node(index: usize) -> NodeName {
        format!("n{index}").parse().expect("a name")
    }

    fn of_gpus(node: usize, utilization: f64) -> NodeReading {
        let mut reading = NodeReading::default();
        for gpu in 0..GPUS {
            let (index, uuid) = (gpu.to_string(), format!("GPU-{node}-{gpu}"));
            let info = [&*index, &uuid, "", "H100", "", "", "", "", ""];
            reading.push(&GPU, &Labels::new(info), true);
            reading.push(&GPU_UTILIZATION, &Labels::new([&*index]), utilization);
        }
        reading
    }

    fn of_host(seconds: u64) -> NodeReading {
        let mut reading = NodeReading::default();
        let waited = 0.001 * seconds as f64;
        reading.push(&HOST_PRESSURE, &Labels::new(["io", "some"]), waited);
        reading
    }

    fn of_bmc() -> NodeReading {
        let mut reading = NodeReading::default();
        let labels = Labels::new(["bmc", "FAN1", "fan"]);
        reading.push(&SENSOR_ALARM, &labels, false);
        reading
    }

    /// Whether an exporter of a node (`gpu`, `host`, `bmc`) responds at this time.
    type Responds = dyn Fn(usize, &str, u64) -> bool;

    /// Silent hosts of the last tick, with the utilization that GPUs have until then.
    fn silent(responds: &Responds, utilization: impl Fn(u64) -> f64) -> Vec<String> {
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&(0..NODES).map(node).collect::<Vec<_>>());
        let mut found = Vec::new();
        for seconds in (STEP_SECONDS..=END_SECONDS).step_by(STEP_SECONDS as usize) {
            for index in 0..NODES {
                let readings = [
                    ("gpu", 10, of_gpus(index, utilization(seconds))),
                    ("host", 20, of_host(seconds)),
                    ("bmc", 30, of_bmc()),
                ];
                for (name, precedence, reading) in readings {
                    if responds(index, name, seconds) {
                        let speaker = Speaker {
                            precedence,
                            name: name.into(),
                        };
                        let subject = Subject::Node(node(index));
                        analyzer.ingest_from(&speaker, &subject, &reading, at(seconds), false);
                    }
                }
            }
            let view = analyzer.tick(at(seconds));
            let lines = view
                .incidents
                .iter()
                .map(|incident| format!("{} {}", incident.class.name, incident.root));
            found = lines.collect();
        }
        found
    }

    #[test]
    fn a_host_whose_exporters_all_stop_while_its_gpus_are_busy_is_silent_though_its_bmc_responds() {
        let stops =
            |index, name: &str, seconds| index != 3 || name == "bmc" || seconds < STOP_SECONDS;
        assert_eq!(silent(&stops, |_| 0.97), ["node-silent host/n3"]);
        // One exporter is asked just before the other.
        let late = |index, name: &str, seconds| {
            let last = STOP_SECONDS + if name == "gpu" { STEP_SECONDS } else { 0 };
            index != 3 || name == "bmc" || seconds < last
        };
        assert_eq!(silent(&late, |_| 0.97), ["node-silent host/n3"]);
    }

    #[test]
    fn a_host_that_was_idle_that_responds_or_that_fails_with_many_others_is_not_silent() {
        let stops = |index, _: &str, seconds| index != 3 || seconds < STOP_SECONDS;
        let drained = |seconds| {
            if seconds < STOP_SECONDS - 15 {
                0.97
            } else {
                0.0
            }
        };
        assert!(silent(&stops, drained).is_empty(), "drained");
        let one =
            |index, name: &str, seconds| index != 3 || name != "gpu" || seconds < STOP_SECONDS;
        assert!(silent(&one, |_| 0.97).is_empty(), "one exporter");
        let last = |index: usize| STOP_SECONDS + STEP_SECONDS * (index as u64 % 2);
        let rack = move |index, _: &str, seconds| index > MOST_HOSTS || seconds < last(index);
        assert!(silent(&rack, |_| 0.97).is_empty(), "a rack");
        let again = |index, _: &str, seconds: u64| {
            index != 3 || !(STOP_SECONDS..END_SECONDS - 100).contains(&seconds)
        };
        assert!(silent(&again, |_| 0.97).is_empty(), "it responds again");
    }
}
