//! The analysis with what surrounds it: targets, maintenance windows, the state file, the snapshot for the API.
//!
//! It reads no clock: what a tick finds depends on the events and their times alone. So a recording can be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;
use railscope_model::plan::WiringPlan;
use tokio::time::Instant;
use tracing::field::Empty;

use super::Event;
use crate::analyzer::Analyzer;
use crate::analyzer::freshness::SourceIntervals;
use crate::config::{Config, SubnetFrom, SubnetSource, SwitchSource, Target};
use crate::fabric::addresses::Addresses;
use crate::maintenance::Announced;
use crate::mapping::{ReportedHost, Translation};
use crate::persist::Past;
use crate::serve::otlp::IncidentEvents;
use crate::sources::identity::Identities;
use crate::sources::node_names::{ReportedNames, names_host};
use crate::sources::targets::{KnownTargets, Replaced, own_on_switch};
use crate::status::{ScrapeResult, Snapshot, State};
use crate::store::source_id::{Speaker, Subject};
use crate::store::{Ingested, NODE_SERIES_LIMIT};

/// The addresses of switches, as configured.
fn addresses(switches: &[SwitchSource]) -> Addresses {
    let of = |switch: &SwitchSource| {
        let name = switch.name.clone();
        let all = switch.addresses.clone().into_iter();
        all.map(move |(address, port)| (address, (name.clone(), port)))
    };
    switches.iter().flat_map(of).collect()
}

/// Read intervals of the sources; the age of a file depends on its writer.
fn source_intervals(config: &Config) -> SourceIntervals {
    let usual = SourceIntervals::default();
    let of = |source: &SubnetSource| match source.from {
        SubnetFrom::File(_) => source.interval.as_secs_f64().max(usual.subnet),
        SubnetFrom::Command(_) | SubnetFrom::Device(..) => source.interval.as_secs_f64(),
    };
    let switches = config.switches.iter();
    let switches = switches.filter_map(|switch| switch.source.as_ref().map(of));
    SourceIntervals {
        subnet: config.subnet.as_ref().map_or(usual.subnet, of),
        switches: switches.reduce(f64::max).unwrap_or(usual.switches),
    }
}

/// The analysis of one cluster.
pub(crate) struct Analysis {
    analyzer: Analyzer,
    targets: KnownTargets,
    identities: Identities,
    /// Those of other projects' exporters, by their rank.
    foreign_identities: BTreeMap<u8, Identities>,
    names: ReportedNames,
    /// Whether names were reported since the last cycle: at the start all are, one by one.
    has_new_names: bool,
    announced: Announced,
    past: Past,
    incidents: Option<IncidentEvents>,
}

impl Analysis {
    /// As configured, with the configuration's maintenance windows.
    pub(crate) fn new(
        config: &mut Config,
        plan: Option<WiringPlan>,
        incidents: Option<IncidentEvents>,
    ) -> Self {
        let switches: Vec<_> = config.switches.iter().map(|one| one.name.clone()).collect();
        let mut analyzer = Analyzer::default();
        analyzer.set_source_intervals(source_intervals(config));
        analyzer.set_switches(&switches);
        analyzer.set_plan(plan);
        analyzer.set_addresses(addresses(&config.switches));
        let windows = std::mem::take(&mut config.maintenance);
        Self {
            analyzer,
            targets: KnownTargets::default(),
            identities: Identities::default(),
            foreign_identities: BTreeMap::new(),
            names: ReportedNames::default(),
            has_new_names: false,
            announced: Announced::new(windows, config.maintenance_file.take()),
            past: Past::of(config.state_dir.clone()),
            incidents,
        }
    }

    /// Restores what an earlier run wrote to the state file.
    pub(crate) fn restore(&mut self, state: &State) {
        self.past.restore(&mut self.analyzer);
        self.past.restore_incidents(&mut self.analyzer, state);
    }

    /// Adds what an event brings; returns the nodes to scrape again at once.
    pub(crate) fn take(&mut self, event: Event, state: &State) -> BTreeSet<NodeName> {
        match event {
            Event::Targets(new) => self.set_targets(new, false, state),
            Event::PushedTargets(new) => self.set_targets(new, true, state),
            // A scrape of a former target arrived too late.
            Event::Page { target, .. } | Event::Foreign { target, .. }
                if !self.targets.holds(&target) => {}
            Event::Page {
                target,
                page,
                at,
                held: _held,
            } => return self.take_own(&target, &page, at, state),
            Event::Foreign {
                target,
                speaker,
                translation,
                at,
                held: _held,
            } => return self.take_foreign(&target, &speaker, translation, at, state),
            Event::Subnet {
                subnet,
                readings,
                at,
            } => {
                self.analyzer.take_subnet(*subnet, at);
                self.analyzer.take_readings(readings, at);
            }
            Event::Collectives { found, at } => {
                self.analyzer
                    .take_collectives(found.operations, found.stuck, at);
            }
            Event::Neighbors { switch, told, at } => self.analyzer.take_switch(&switch, told, at),
            // Its time is the caller's: `tick`.
            Event::Tick(_) => {}
        }
        BTreeSet::new()
    }

    fn set_targets(&mut self, new: Vec<Target>, are_pushed: bool, state: &State) {
        let Replaced {
            nodes,
            gone,
            own_gone,
        } = self.targets.replace(new, are_pushed);
        let own_gone: BTreeSet<_> = own_gone.iter().map(|node| self.names.of(node)).collect();
        self.analyzer
            .release_sources(|node, speaker| match &*speaker.name {
                "" => own_gone.contains(node),
                address => gone.contains(address),
            });
        self.identities.retain(&nodes);
        let foreign = self.foreign_identities.values_mut();
        foreign.for_each(|identities| identities.retain(&nodes));
        self.names.set_listed(&nodes);
        self.publish_names(state);
    }

    fn take_own(
        &mut self,
        target: &Arc<Target>,
        page: &str,
        at: Timestamp,
        state: &State,
    ) -> BTreeSet<NodeName> {
        let node = match &target.about {
            Some(Subject::Node(node)) => node,
            Some(Subject::Switch(switch)) => {
                let why = own_on_switch(switch);
                refuse(state, target, ScrapeResult::Malformed, &why);
                return BTreeSet::new();
            }
            // The kind of such a target is configured, and it is another one.
            None => return BTreeSet::new(),
        };
        if let Some(why) = self.targets.refusal(node, target, at) {
            refuse(state, target, ScrapeResult::Malformed, &why);
            return BTreeSet::new();
        }
        if let Some(why) = self.identities.refusal(node, page) {
            refuse(state, target, ScrapeResult::OtherNode, &why);
            return BTreeSet::new();
        }
        if let Some(name) = self.identities.reported(node) {
            let (name, is_kernels) = (name.to_owned(), true);
            let host = ReportedHost { name, is_kernels };
            self.has_new_names |= self.names.note(node, &host);
        }
        let name = self.names.of(node);
        let ingested = self.analyzer.ingest(name, page, at);
        if ingested.kept > 0 {
            self.targets.taken(node, target, at);
        }
        note(state, target, &ingested, at);
        self.names.as_listed(self.analyzer.second_look(name))
    }

    fn publish_names(&mut self, state: &State) {
        self.names.settle();
        self.analyzer.set_targets(&self.names.nodes());
        state.set_addresses(self.names.by_address());
    }

    fn take_foreign(
        &mut self,
        target: &Target,
        speaker: &Speaker,
        translation: Translation,
        at: Timestamp,
        state: &State,
    ) -> BTreeSet<NodeName> {
        if let (Some(Subject::Node(listed)), Some(host)) = (&target.about, &translation.host) {
            let of_kind = self.foreign_identities.entry(speaker.precedence);
            if names_host(&host.name)
                && let Some(why) = of_kind.or_default().refusal_by_name(listed, &host.name)
            {
                refuse(state, target, ScrapeResult::OtherNode, &why);
                return BTreeSet::new();
            }
            self.has_new_names |= self.names.note(listed, host);
        }
        let mut ingested = translation.counts;
        let mut again = BTreeSet::new();
        for (subject, reading) in &translation.readings {
            let subject = &*self.names.subject(subject);
            let from_afar = target.about.is_none();
            let taken = self
                .analyzer
                .ingest_from(speaker, subject, reading, at, from_afar);
            ingested.kept += taken.kept;
            ingested.unread += taken.unread;
            ingested.late += taken.late;
            ingested.overruled += taken.overruled;
            ingested.over_limit += taken.over_limit;
            ingested.unfit += taken.unfit;
            ingested.first_unfit = ingested.first_unfit.or(taken.first_unfit);
            if let Subject::Node(node) = subject {
                again.extend(self.analyzer.second_look(node));
            }
        }
        // What a mapping refuses is nearer to what the scrape reports.
        ingested.first_unfit = translation.unfit.or(ingested.first_unfit);
        note(state, target, &ingested, at);
        self.names.as_listed(again)
    }

    /// One cycle of the analysis: what it finds is kept, sent and published.
    pub(crate) fn tick(&mut self, now: Timestamp, state: &State) {
        let windows = self.announced.windows(now, state);
        if let Some(recorder) = &state.recorder {
            recorder.cycle(now, &windows);
        }
        self.analyzer.set_maintenance(windows);
        if std::mem::take(&mut self.has_new_names) {
            self.publish_names(state);
        }
        let begun = Instant::now();
        let span = tracing::info_span!("tick", late_targets = Empty, incidents = Empty);
        let _within = span.enter();
        let mut snapshot = Snapshot::new(self.analyzer.tick(now));
        log_suspension(state.snapshot().as_deref(), &snapshot);
        snapshot.tick_seconds = begun.elapsed().as_secs_f64();
        self.past.keep(&snapshot.view, state);
        self.past.keep_incidents(&snapshot.view, state);
        span.record("late_targets", snapshot.view.observation.late_targets);
        span.record("incidents", snapshot.view.incidents.len());
        if let Some(incidents) = &mut self.incidents {
            incidents.follow(&snapshot.view, state);
        }
        state.publish(snapshot);
    }
}

/// Counts a scrape that cannot be ingested, and logs the reason if it is new.
fn refuse(state: &State, target: &Target, result: ScrapeResult, why: &str) {
    if state.record_scrape(target, result, None, Some(why.to_owned())) {
        tracing::warn!(target = target.name(), "{why}");
    }
}

/// Logs when the opening of incidents is suspended, and when that ends.
fn log_suspension(before: Option<&Snapshot>, now: &Snapshot) {
    let suspension = |snapshot: &Snapshot| snapshot.view.observation.suspension;
    match (before.and_then(suspension), suspension(now)) {
        (None, Some(new)) => tracing::warn!(
            cause = new.late.as_str(),
            late_targets = now.view.observation.late_targets,
            "observation is late: no new incident opens until two intervals are complete"
        ),
        (Some(old), None) => tracing::info!(
            seconds = now.view.now.seconds_since(old.since),
            "observation is complete again: incidents open"
        ),
        _ => {}
    }
}

/// Counts the samples of a scrape, and logs a new problem once.
fn note(state: &State, target: &Target, ingested: &Ingested, at: Timestamp) {
    state.record_samples(ingested);
    let (result, problem) = judge(ingested);
    let said = problem.clone().unwrap_or_default();
    let taken_up = (!result.is_unreadable()).then_some(at);
    if state.record_scrape(target, result, taken_up, problem) && result != ScrapeResult::Ok {
        tracing::warn!(target = target.name(), "{said}");
    }
}

/// Result and problem of a scrape.
fn judge(ingested: &Ingested) -> (ScrapeResult, Option<String>) {
    let kept = ingested.kept + ingested.unread + ingested.late;
    let understood = kept + ingested.overruled;
    let samples = understood + ingested.over_limit + ingested.unknown + ingested.unfit;
    let bad_lines = ingested.errors.first().map(|error| {
        let count = ingested.malformed;
        format!("{count} invalid lines, the first at {error}")
    });
    let unfit = ingested.first_unfit.as_ref().map(|why| {
        let count = ingested.unfit;
        format!("{count} samples do not match their metrics, the first: {why}")
    });
    let over_limit = || {
        let (count, most) = (ingested.over_limit, NODE_SERIES_LIMIT);
        let sentence = format!(
            "{count} samples above the limit of {most} for a node, or with too long labels"
        );
        (count > 0).then_some(sentence)
    };
    if understood > 0 {
        let dropped = bad_lines.or_else(over_limit);
        // Samples that do not match are reported, but the scrape is valid.
        return match dropped {
            Some(dropped) => (ScrapeResult::Partial, Some(dropped)),
            None => (ScrapeResult::Ok, unfit),
        };
    }
    let is_html = ingested
        .errors
        .iter()
        .any(|error| error.found.trim_start().starts_with('<'));
    if is_html {
        let problem = "the response is HTML, not metrics; check the exporter's address and path";
        (ScrapeResult::Html, Some(problem.to_owned()))
    } else if let Some(problem) = over_limit() {
        (ScrapeResult::Malformed, Some(problem))
    } else if samples > 0 {
        let none = || format!("none of the {samples} samples is known; check the kind of exporter");
        (ScrapeResult::Unrecognized, Some(unfit.unwrap_or_else(none)))
    } else if bad_lines.is_some() {
        (ScrapeResult::Malformed, bad_lines)
    } else {
        let problem = "the response has no samples";
        (ScrapeResult::Empty, Some(problem.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NodeHistory;

    #[test]
    fn each_response_is_classified() {
        const KNOWN: &str = "railscope_gpu_power_watts{gpu=\"0\"} 300\n";
        for (page, result, expected) in [
            (KNOWN.to_owned(), ScrapeResult::Ok, ""),
            (
                format!("{KNOWN}broken{{\n"),
                ScrapeResult::Partial,
                "1 invalid lines, the first at line 2",
            ),
            (String::new(), ScrapeResult::Empty, "has no samples"),
            (
                String::from("# HELP a b\n"),
                ScrapeResult::Empty,
                "has no samples",
            ),
            (
                String::from("<!DOCTYPE html>\n<html><body>404 200</body></html>\n"),
                ScrapeResult::Html,
                "the response is HTML",
            ),
            (
                String::from("node_load1 3\n"),
                ScrapeResult::Unrecognized,
                "none of the 1 samples is known",
            ),
            (
                String::from("broken{\n{\n"),
                ScrapeResult::Malformed,
                "2 invalid lines",
            ),
        ] {
            let mut node = NodeHistory::default();
            let (was, problem) = judge(&node.ingest(&page, Timestamp(1_000)));
            assert_eq!(was, result, "{page}");
            assert!(problem.unwrap_or_default().contains(expected), "{page}");
            // An unreadable response is not evidence.
            assert_eq!(node.heard().is_none(), result.is_unreadable(), "{page}");
        }
    }
}
