//! Components with fresh data. A component without fresh data from any source is unknown, not healthy.

use std::collections::BTreeSet;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};
use railscope_model::metric::{
    CPU_IOWAIT, GPU, GPU_UTILIZATION, HOST_PRESSURE, Metric, NODE_BOOT_TIME, RDMA_PORT,
    RDMA_PORT_UP,
};

use super::Analyzer;
use crate::store::UNKNOWN_INTERVALS;

/// Series that an exporter of GPUs or of the host itself has, and no BMC.
const OF_HOST: [&Metric; 5] = [
    &GPU,
    &GPU_UTILIZATION,
    &NODE_BOOT_TIME,
    &HOST_PRESSURE,
    &CPU_IOWAIT,
];
/// Series of NICs.
const OF_NICS: [&Metric; 2] = [&RDMA_PORT, &RDMA_PORT_UP];

/// Read intervals in seconds of sources whose interval is not visible in their data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceIntervals {
    /// The subnet.
    pub subnet: f64,
    /// The LLDP neighbors of switches.
    pub switches: f64,
}

impl Default for SourceIntervals {
    /// For sources without a configuration.
    fn default() -> Self {
        Self {
            subnet: 200.0,
            switches: 200.0,
        }
    }
}

/// Components whose newest data is older than [`UNKNOWN_INTERVALS`] of its source, and components with fresh data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Nodes with their own exporter and without fresh data from it.
    pub unheard: BTreeSet<NodeName>,
    /// Nodes with fresh data and with an exporter of their GPUs, or of the host itself, that has none.
    pub in_part: BTreeSet<NodeName>,
    /// The same of their NICs.
    pub without_nics: BTreeSet<NodeName>,
    /// Nodes with fresh adapter counters from a sweep.
    pub swept: BTreeSet<NodeName>,
    /// Switches with fresh data from themselves, or about more than their cables.
    pub switches: BTreeSet<SwitchName>,
    /// Whether the last complete sweep is fresh.
    pub subnet: bool,
}

impl Analyzer {
    /// Sets the read intervals of sources.
    pub fn set_source_intervals(&mut self, intervals: SourceIntervals) {
        self.source_intervals = intervals;
    }

    pub(super) fn freshness(&self, now: Timestamp) -> Freshness {
        let history = &self.history;
        let within =
            |at: Timestamp, interval: f64| now.seconds_since(at) <= UNKNOWN_INTERVALS * interval;
        let unheard = history.nodes().filter(|(_, node)| !node.is_current(now));
        let in_part = history
            .nodes()
            .filter(|(_, node)| node.is_current(now) && node.silent_sources(now).next().is_some());
        let in_part: Vec<_> = in_part.collect();
        let silent = |of: &[&'static Metric]| {
            let nodes = in_part.iter().filter(|(_, node)| {
                let mut silent = node.silent_sources(now);
                silent.any(|source| node.is_source_of(source, of))
            });
            nodes.map(|(node, _)| (*node).clone()).collect()
        };
        let swept = history.adapters().filter(|(_, node)| node.is_current(now));
        let counted = history.switches().filter(|(_, node)| node.is_current(now));
        let with_neighbors = self.switches.told.iter().filter(|(_, neighbors)| {
            let at = neighbors.as_ref().map(|(_, at)| *at);
            at.is_some_and(|at| within(at, self.source_intervals.switches))
        });
        let with_exporter = self.switch_nodes.iter().filter_map(|node| {
            let fresh = history.node(node).filter(|history| history.is_current(now));
            fresh.and_then(|_| node.as_str().parse().ok())
        });
        let named = counted.map(|(switch, _)| switch);
        let named = named
            .chain(with_neighbors.map(|(switch, _)| switch))
            .cloned();
        Freshness {
            unheard: unheard.map(|(node, _)| node.clone()).collect(),
            in_part: silent(&OF_HOST),
            without_nics: silent(&OF_NICS),
            swept: swept.map(|(node, _)| node.clone()).collect(),
            switches: named.chain(with_exporter).collect(),
            subnet: (self.subnet_seen)
                .is_some_and(|seen| within(seen, self.source_intervals.subnet)),
        }
    }
}

#[cfg(test)]
mod tests {
    use railscope_model::reading::{Labels, NodeReading};

    use super::*;
    use crate::serve::layout::{Health, Layout};
    use crate::store::source_id::{Speaker, Subject};

    const STEP_SECONDS: u64 = 10;

    /// The exporters of the node, with one series of each.
    fn exporters() -> [(Speaker, NodeReading); 3] {
        let rows: [(&'static Metric, &[&str]); 3] = [
            (&GPU_UTILIZATION, &["0"]),
            (&RDMA_PORT, &["mlx5_0", "1", "0000:18:00.0"]),
            (
                &railscope_model::metric::SENSOR_ALARM,
                &["bmc", "FAN1", "fan"],
            ),
        ];
        let mut precedence = 0;
        rows.map(|(metric, labels)| {
            precedence += 1;
            let mut reading = NodeReading::default();
            let labels = labels.iter().copied().chain(std::iter::repeat(""));
            let labels = labels.take(metric.labels.len());
            reading.push(metric, &Labels::new(labels), true);
            let name = metric.name.into();
            (Speaker { precedence, name }, reading)
        })
    }

    /// State of the node and of its NIC after one of its exporters stops, and is then taken from the targets if `released`.
    fn without(stops: Option<usize>, released: bool) -> [Health; 2] {
        let node: NodeName = "n1".parse().expect("a name");
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(std::slice::from_ref(&node));
        let at = |step: u64| Timestamp(1_000 * STEP_SECONDS * step);
        for step in 1..=12 {
            for (place, (speaker, reading)) in exporters().iter().enumerate() {
                if step <= 6 || stops != Some(place) {
                    let subject = Subject::Node(node.clone());
                    analyzer.ingest_from(speaker, &subject, reading, at(step), false);
                }
            }
            if step == 7 && released {
                let gone = stops.map(|place| exporters()[place].0.clone());
                analyzer.release_sources(|_, speaker| Some(speaker) == gone.as_ref());
            }
            analyzer.tick(at(step));
        }
        let layout = Layout::of(&analyzer.tick(at(12)));
        let host = &layout.hosts[0];
        [host.inside, host.nics[0].condition].map(|condition| condition.health)
    }

    #[test]
    fn what_one_of_a_nodes_exporters_no_longer_reports_is_unknown_until_it_is_no_target() {
        let [ok, unknown] = [Health::Ok, Health::Unknown];
        assert_eq!(without(None, false), [ok, ok]);
        assert_eq!(without(Some(0), false), [unknown, ok], "of its GPUs");
        assert_eq!(without(Some(0), true), [ok, ok], "no target");
        assert_eq!(without(Some(1), false), [ok, unknown], "of its NICs");
        assert_eq!(without(Some(2), false), [ok, ok], "of its BMC");
    }
}
