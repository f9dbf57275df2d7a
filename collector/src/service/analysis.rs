//! The analysis with what surrounds it: targets, maintenance windows, the state file, the snapshot for the API.
//!
//! It reads no clock: what a tick finds depends on the events and their times alone. So a recording can be replayed.

use std::collections::BTreeSet;
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::NodeName;
use railscope_model::plan::WiringPlan;
use tokio::time::Instant;
use tracing::field::Empty;

use super::Event;
use crate::analyzer::Analyzer;
use crate::config::{Config, SwitchSource, Target};
use crate::fabric::addresses::Addresses;
use crate::maintenance::Announced;
use crate::mapping::Translation;
use crate::persist::Past;
use crate::serve::otlp::IncidentEvents;
use crate::sources::targets::{KnownTargets, own_on_switch};
use crate::status::{ScrapeResult, Snapshot, State};
use crate::store::Ingested;
use crate::store::source_id::{Speaker, Subject};

/// The addresses of switches, as configured.
fn addresses(switches: &[SwitchSource]) -> Addresses {
    let of = |switch: &SwitchSource| {
        let name = switch.name.clone();
        let all = switch.addresses.clone().into_iter();
        all.map(move |(address, port)| (address, (name.clone(), port)))
    };
    switches.iter().flat_map(of).collect()
}

/// The analysis of one cluster.
pub(crate) struct Analysis {
    analyzer: Analyzer,
    targets: KnownTargets,
    announced: Announced,
    past: Past,
    incidents: Option<IncidentEvents>,
}

impl Analysis {
    /// As configured; takes the maintenance windows from the configuration.
    pub(crate) fn new(
        config: &mut Config,
        plan: Option<WiringPlan>,
        incidents: Option<IncidentEvents>,
    ) -> Self {
        let switches: Vec<_> = config.switches.iter().map(|one| one.name.clone()).collect();
        let mut analyzer = Analyzer::default();
        analyzer.set_switches(&switches);
        analyzer.set_plan(plan);
        analyzer.set_addresses(addresses(&config.switches));
        let windows = std::mem::take(&mut config.maintenance);
        Self {
            analyzer,
            targets: KnownTargets::default(),
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
            Event::Targets(new) => self.set_targets(new, false),
            Event::PushedTargets(new) => self.set_targets(new, true),
            // A scrape of a former target arrived too late.
            Event::Page { target, .. } | Event::Foreign { target, .. }
                if !self.targets.holds(&target) => {}
            Event::Page { target, page, at } => return self.take_own(&target, &page, at, state),
            Event::Foreign {
                target,
                speaker,
                translation,
                at,
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
            Event::Neighbours { switch, told, at } => self.analyzer.take_switch(&switch, told, at),
            // Its time is the caller's: `tick`.
            Event::Tick => {}
        }
        BTreeSet::new()
    }

    fn set_targets(&mut self, new: Vec<Target>, are_pushed: bool) {
        let nodes = self.targets.replace(new, are_pushed);
        self.analyzer.set_targets(&nodes);
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
                refuse(state, target, &own_on_switch(switch));
                return BTreeSet::new();
            }
            // The kind of such a target is configured, and it is another one.
            None => return BTreeSet::new(),
        };
        if let Some(why) = self.targets.refusal(node, target, at) {
            refuse(state, target, &why);
            return BTreeSet::new();
        }
        let ingested = self.analyzer.ingest(node, page, at);
        if ingested.kept > 0 {
            self.targets.taken(node, target, at);
        }
        note(state, target, &ingested, at);
        self.analyzer.second_look(node)
    }

    fn take_foreign(
        &mut self,
        target: &Target,
        speaker: &Speaker,
        translation: Translation,
        at: Timestamp,
        state: &State,
    ) -> BTreeSet<NodeName> {
        let mut ingested = translation.counts;
        let mut again = BTreeSet::new();
        for (subject, reading) in &translation.readings {
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
        // What a mapping refuses is nearer to what the page says.
        ingested.first_unfit = translation.unfit.or(ingested.first_unfit);
        note(state, target, &ingested, at);
        again
    }

    /// One cycle of the analysis: what it finds is kept, sent and published.
    pub(crate) fn tick(&mut self, now: Timestamp, state: &State) {
        let windows = self.announced.windows(now, state);
        if let Some(recorder) = &state.recorder {
            recorder.cycle(now, &windows);
        }
        self.analyzer.set_maintenance(windows);
        let begun = Instant::now();
        let span = tracing::info_span!("tick", late_targets = Empty, incidents = Empty);
        let _within = span.enter();
        let mut snapshot = Snapshot::new(self.analyzer.tick(now));
        log_suspension(state.snapshot().as_deref(), &snapshot);
        snapshot.tick_seconds = begun.elapsed().as_secs_f64();
        self.past.keep(&snapshot.view);
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
fn refuse(state: &State, target: &Target, why: &str) {
    if state.record_scrape(target, ScrapeResult::Malformed, None, Some(why.to_owned())) {
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

/// Counts the samples of a scrape, and logs invalid lines when they begin.
fn note(state: &State, target: &Target, ingested: &Ingested, at: Timestamp) {
    state.record_samples(ingested);
    let kept = ingested.kept + ingested.unread + ingested.late;
    let understood = kept + ingested.overruled + ingested.over_limit;
    let samples = understood + ingested.unknown + ingested.unfit;
    let problem = match ingested.errors.first() {
        Some(error) => Some(format!(
            "{} lines cannot be read, the first at {error}",
            ingested.errors.len()
        )),
        None if samples == 0 => Some(String::from("the page holds no samples")),
        None if understood == 0 => Some(format!(
            "none of the page's {samples} samples is known: is it another exporter (kind)?"
        )),
        None => None,
    };
    let result = if problem.is_some() {
        ScrapeResult::Malformed
    } else {
        ScrapeResult::Ok
    };
    // Worth a look, but the page itself is sound.
    let problem = problem.or_else(|| {
        let why = ingested.first_unfit.as_ref()?;
        Some(format!(
            "{} samples do not fit their metrics, the first: {why}",
            ingested.unfit
        ))
    });
    let said = problem.clone().unwrap_or_default();
    let taken_up = (samples > 0).then_some(at);
    if state.record_scrape(target, result, taken_up, problem) && result != ScrapeResult::Ok {
        tracing::warn!(target = target.name(), "{said}");
    }
    if ingested.over_limit > 0 {
        tracing::debug!(
            target = target.name(),
            samples = ingested.over_limit,
            "samples beyond the limit of a node"
        );
    }
}
