//! What is ingested of nodes, switches and subnets, when each node and switch was last seen, and which are forgotten.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};
use railscope_model::reading::NodeReading;

use super::Analyzer;
use crate::fabric::Told;
use crate::fabric::subnet::Subnet;
use crate::fabric::subnet::counters::DeviceReading;
use crate::store::Ingested;
use crate::store::source_id::{Speaker, Subject};

/// Consecutive sweeps without the node they started from, after which the site is taken to omit it on purpose: a sweep that was
/// truncated by accident is followed by a complete one.
const CUT_ON_PURPOSE: u32 = 3;

impl Analyzer {
    /// Ingests a scrape of a node's exporter, read at `at`.
    pub fn ingest(&mut self, node: &NodeName, page: &str, at: Timestamp) -> Ingested {
        self.history.node_mut(node).ingest(page, at)
    }

    /// Ingests a node's reading as it is, without the text format: for simulations that have no scrape.
    pub fn ingest_reading(&mut self, node: &NodeName, reading: &NodeReading, at: Timestamp) {
        self.history.node_mut(node).ingest_reading(reading, at);
    }

    /// Ingests what was read of a switch at `at`: rows of the catalogue's switch table.
    pub fn ingest_switch(&mut self, switch: &SwitchName, reading: &NodeReading, at: Timestamp) {
        self.history.switch_mut(switch).ingest_reading(reading, at);
    }

    /// Ingests what one of several exporters reports about a part, read at `at`. Those of a whole subnet
    /// (`from_afar`) are ignored for nodes that have their own exporters: they call devices by other names.
    pub fn ingest_from(
        &mut self,
        speaker: &Speaker,
        subject: &Subject,
        reading: &NodeReading,
        at: Timestamp,
        from_afar: bool,
    ) -> Ingested {
        match subject {
            Subject::Switch(switch) => self
                .history
                .switch_mut(switch)
                .ingest_from(speaker, reading, at),
            Subject::Node(node) if from_afar && self.targets.contains(node) => Ingested {
                overruled: reading.samples().len(),
                ..Ingested::default()
            },
            Subject::Node(node) => {
                if from_afar {
                    self.spoken_of.insert(node.clone());
                }
                self.history
                    .node_mut(node)
                    .ingest_from(speaker, reading, at)
            }
        }
    }

    /// Ingests a sweep of the subnet, read at `at`. A partial sweep never replaces a settled one: what it
    /// does not show is not taken as removed. Nor is what is behind ports that did not answer.
    pub fn take_subnet(&mut self, mut subnet: Subnet, at: Timestamp) {
        let known = self.subnet.as_ref();
        self.sweeps_without_start =
            match known.is_some_and(|known| subnet.has_lost_its_start(known)) {
                true => self.sweeps_without_start + 1,
                false => 0,
            };
        let was_cut = (1..CUT_ON_PURPOSE).contains(&self.sweeps_without_start);
        let settled = subnet.is_settled() && !was_cut;
        if settled || self.subnet_seen.is_none() {
            let older = self.subnet.as_ref().filter(|_| self.subnet_seen.is_some());
            subnet.recall(older);
            self.subnet = Some(subnet);
            self.subnet_changed = true;
            self.subnet_seen = settled.then_some(at);
        } else if let Some(known) = &mut self.subnet {
            // Switches may route by another shape than the one that is kept.
            self.subnet_changed |= known.forwarding.take().is_some();
        }
    }

    /// Ingests what the ports of a swept subnet have counted at `at`.
    pub fn take_readings(&mut self, readings: Vec<DeviceReading>, at: Timestamp) {
        let readings = readings.into_iter();
        self.unnamed.extend(readings.map(|reading| (reading, at)));
    }

    /// Sets which switches there are besides those that nodes and subnet report; what the others
    /// reported is forgotten. One of them may be a target: then it is no host.
    pub fn set_switches(&mut self, switches: &[SwitchName]) {
        let old = std::mem::take(&mut self.switches);
        for switch in switches {
            let told = old.told.get(switch).cloned().flatten();
            self.switches.told.insert(switch.clone(), told);
        }
        self.switches_changed = true;
    }

    /// Ingests what a switch reported about its neighbors at `at`, or why it could not be read: then what it
    /// reported before stays.
    pub fn take_switch(&mut self, switch: &SwitchName, told: Result<Told, String>, at: Timestamp) {
        let known = self.switches.told.entry(switch.clone()).or_default();
        let before = (
            known.as_ref().map(|(told, _)| told),
            self.switches.problems.get(switch),
        );
        self.switches_changed |= match &told {
            Ok(told) => before != (Some(told), None),
            Err(problem) => before.1 != Some(problem),
        };
        match told {
            Ok(told) => {
                *known = Some((told, at));
                self.switches.problems.remove(switch);
            }
            Err(problem) => {
                self.switches.problems.insert(switch.clone(), problem);
            }
        }
    }

    /// Forgets nodes that no list names and no source has reported for too long.
    pub(super) fn forget_unspoken(&mut self, now: Timestamp) {
        let history = &self.history;
        let silent = |node: &NodeName| history.node(node).is_none_or(|node| !node.is_fresh(now));
        let silent: BTreeSet<_> = self
            .spoken_of
            .iter()
            .filter(|node| silent(node))
            .cloned()
            .collect();
        if !silent.is_empty() {
            self.spoken_of.retain(|node| !silent.contains(node));
            self.history.retain(|node| !silent.contains(node));
        }
    }

    /// When each switch that reports its neighbors was last seen.
    pub(super) fn switches_heard(&self) -> BTreeMap<SwitchName, Timestamp> {
        let told = self.switches.told.iter();
        let told = told.filter_map(|(switch, told)| Some((switch.clone(), told.as_ref()?.1)));
        let nodes = self.switch_nodes.iter().filter_map(|node| {
            let heard = self.history.node(node)?.heard()?;
            Some((node.as_str().parse().ok()?, heard))
        });
        told.chain(nodes).collect()
    }
}
