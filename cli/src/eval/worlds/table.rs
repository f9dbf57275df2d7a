//! Adds up the results of all worlds: by world, by kind of fault and by dialect of the sources.

use std::collections::BTreeMap;

use serde::Serialize;

use super::classes;
use super::incidents::Incident;
use super::judge::{Verdict, detection, judge};
use super::truth::Truth;
use crate::eval::statistics::{Ratio, quantile};

/// Row of incidents that belong to no event of the truth.
const NO_EVENT: &str = "(no event)";

/// The result of one world.
#[derive(Debug)]
pub(super) struct World {
    /// Name of the pack.
    pub(super) name: String,
    /// Kinds of its targets.
    pub(super) dialect: String,
    /// Recorded time.
    pub(super) hours: f64,
    faults: Vec<FaultRow>,
    incidents: Vec<IncidentRow>,
}

/// One fault.
#[derive(Debug, Clone, Serialize)]
pub(super) struct FaultRow {
    /// World.
    pub(super) world: String,
    /// Kind.
    pub(super) kind: String,
    /// What is faulty.
    pub(super) component: String,
    /// Onset, in seconds since the begin of the recording.
    pub(super) onset_seconds: f64,
    #[serde(skip)]
    is_observable: bool,
    /// Whether an incident is about it.
    pub(super) found: bool,
    /// Whether one names its component.
    pub(super) exact: bool,
    /// Whether one has the right class.
    pub(super) class_fits: bool,
    detection_seconds: Option<f64>,
    /// Main classes of the incidents.
    pub(super) classes: Vec<String>,
}

/// One incident.
#[derive(Debug, Clone, Serialize)]
pub(super) struct IncidentRow {
    /// World.
    pub(super) world: String,
    /// Kind of its event, benign ones marked.
    event: String,
    /// Component of its event.
    pub(super) event_component: Option<String>,
    /// What it turned out to be.
    pub(super) outcome: Verdict,
    /// Its component.
    pub(super) component: String,
    /// Its classes in order.
    pub(super) classes: String,
    /// Whether it was critical at any time.
    pub(super) critical: bool,
    drifted: bool,
    /// When it opened, in seconds since the begin of the recording.
    pub(super) opened_seconds: f64,
    /// When it closed, or the recording ended.
    pub(super) closed_seconds: f64,
}

impl IncidentRow {
    /// Kind and component of its event, if it belongs to one.
    pub(super) fn of_event(&self) -> Option<(&str, &str)> {
        let component = self.event_component.as_deref()?;
        Some((&self.event, component))
    }
}

impl World {
    /// Compares the incidents of a replay with the truth.
    pub(super) fn new(
        name: String,
        dialect: String,
        truth: &Truth,
        incidents: &[Incident],
    ) -> Self {
        let judged = judge(truth, incidents);
        let faults = truth.events.iter().enumerate();
        let faults = faults.filter(|(_, event)| event.is_fault);
        let faults = faults.map(|(index, event)| {
            let found = detection(truth, index, &judged);
            FaultRow {
                world: name.clone(),
                kind: event.kind.clone(),
                component: event.component.to_string(),
                onset_seconds: event.start - truth.start,
                is_observable: event.is_observable,
                found: found.is_found,
                exact: found.is_exact,
                class_fits: found.class_fits,
                detection_seconds: found.seconds,
                classes: found.classes,
            }
        });
        let faults = faults.collect();
        let incidents = judged.iter().map(|one| {
            let event = one.event.map(|index| &truth.events[index]);
            IncidentRow {
                world: name.clone(),
                event: event.map_or_else(
                    || NO_EVENT.to_owned(),
                    |event| kind_row(&event.kind, event.is_fault),
                ),
                event_component: event.map(|event| event.component.to_string()),
                outcome: one.verdict,
                component: one.incident.component.clone(),
                classes: one.incident.class_history(),
                critical: one.incident.is_critical,
                drifted: one.has_drifted,
                opened_seconds: one.incident.first - truth.start,
                closed_seconds: one.incident.last - truth.start,
            }
        });
        let incidents = incidents.collect();
        Self {
            name,
            dialect,
            hours: (truth.end - truth.start) / 3600.0,
            faults,
            incidents,
        }
    }
}

fn kind_row(kind: &str, is_fault: bool) -> String {
    if is_fault {
        kind.to_owned()
    } else {
        format!("{kind} (benign)")
    }
}

/// The figures of some faults and incidents.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Score {
    /// Observable faults, and those that were found.
    pub(super) recall: Ratio,
    /// Found faults, and those whose component an incident names.
    pub(super) right_component: Ratio,
    /// Found faults, and those for which an incident has the right class.
    pub(super) right_class: Ratio,
    /// Median of the time to detection of found faults.
    pub(super) detection_seconds_p50: Option<f64>,
    /// Its 90th percentile.
    pub(super) detection_seconds_p90: Option<f64>,
    /// Incidents that no benign event explains, and those that are true.
    pub(super) precision: Ratio,
    /// The same for incidents that were critical at any time.
    pub(super) precision_critical: Ratio,
    /// Incidents that no benign event explains, and those that name a victim.
    pub(super) victims_blamed: Ratio,
    /// Incidents that no benign event explains, and those that opened after the end of their fault.
    pub(super) after_the_end: Ratio,
    /// Incidents that belong to an event, and those whose class became wrong.
    pub(super) class_drift: Ratio,
}

impl Score {
    fn of(faults: &[&FaultRow], incidents: &[&IncidentRow]) -> Self {
        let faults = faults.iter().filter(|fault| fault.is_observable);
        let faults: Vec<_> = faults.collect();
        let found = || faults.iter().filter(|fault| fault.found);
        let seconds: Vec<f64> = found()
            .filter_map(|fault| fault.detection_seconds)
            .collect();
        let counted = || {
            let incidents = incidents.iter();
            incidents.filter(|incident| incident.outcome != Verdict::Explained)
        };
        let share = |verdict| Ratio::count(counted().map(|incident| incident.outcome == verdict));
        let critical = counted().filter(|incident| incident.critical);
        let assigned = incidents
            .iter()
            .filter(|incident| incident.event_component.is_some());
        Self {
            recall: Ratio::count(faults.iter().map(|fault| fault.found)),
            right_component: Ratio::count(found().map(|fault| fault.exact)),
            right_class: Ratio::count(found().map(|fault| fault.class_fits)),
            detection_seconds_p50: quantile(&seconds, 0.5),
            detection_seconds_p90: quantile(&seconds, 0.9),
            precision: share(Verdict::True),
            precision_critical: Ratio::count(
                critical.map(|incident| incident.outcome == Verdict::True),
            ),
            victims_blamed: share(Verdict::VictimBlamed),
            after_the_end: share(Verdict::AfterTheEnd),
            class_drift: Ratio::count(assigned.map(|incident| incident.drifted)),
        }
    }

    /// Recall and precision together: the lower, the worse. Without faults or incidents nothing is wrong.
    fn goodness(&self) -> f64 {
        let share = |ratio: Ratio| ratio.value().unwrap_or(1.0);
        share(self.recall) + share(self.precision)
    }
}

/// A row of a table.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    /// World, kind of fault or dialect.
    pub(super) name: String,
    /// Its figures.
    pub(super) score: Score,
}

/// The results of all worlds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What each reader must know.
    pub(super) note: &'static str,
    /// Number of worlds.
    pub(super) worlds: usize,
    /// Recorded time of all.
    pub(super) hours: f64,
    /// Faults, also those that no recorded series shows.
    pub(super) faults: usize,
    /// Incidents.
    pub(super) incidents: usize,
    /// Incidents that a benign event explains.
    pub(super) explained: usize,
    /// All worlds together.
    pub(super) total: Score,
    /// By world, the worst first.
    pub(super) by_world: Vec<Group>,
    /// By kind of fault, the worst first.
    pub(super) by_kind: Vec<Group>,
    /// By dialect, the worst first.
    pub(super) by_dialect: Vec<Group>,
    /// Kinds of faults for which no class is known to be right.
    pub(super) unknown_kinds: Vec<String>,
    /// Observable faults that were missed, or found with another component or class.
    pub(super) missed: Vec<FaultRow>,
    /// Incidents that should not have opened.
    pub(super) wrong: Vec<IncidentRow>,
}

impl Report {
    /// Adds up worlds.
    pub(super) fn new(note: &'static str, worlds: &[World]) -> Self {
        let faults = || worlds.iter().flat_map(|world| &world.faults);
        let incidents = || worlds.iter().flat_map(|world| &world.incidents);
        let mut by_world = Groups::default();
        let mut by_dialect = Groups::default();
        let mut by_kind = Groups::default();
        for world in worlds {
            by_world.add(&world.name, &world.faults, &world.incidents);
            by_dialect.add(&world.dialect, &world.faults, &world.incidents);
        }
        for fault in faults().filter(|fault| fault.is_observable) {
            by_kind.add(&fault.kind, [fault], []);
        }
        for incident in incidents() {
            by_kind.add(&incident.event, [], [incident]);
        }
        let unknown = faults().map(|fault| &fault.kind);
        let mut unknown: Vec<_> = unknown
            .filter(|kind| !classes::is_known(kind))
            .cloned()
            .collect();
        unknown.sort();
        unknown.dedup();
        let is_missed = |fault: &&FaultRow| {
            fault.is_observable && !(fault.found && fault.exact && fault.class_fits)
        };
        let explained = incidents().filter(|incident| incident.outcome == Verdict::Explained);
        Self {
            note,
            worlds: worlds.len(),
            hours: worlds.iter().map(|world| world.hours).sum(),
            faults: faults().count(),
            incidents: incidents().count(),
            explained: explained.count(),
            total: Score::of(
                &faults().collect::<Vec<_>>(),
                &incidents().collect::<Vec<_>>(),
            ),
            by_world: by_world.worst_first(),
            by_kind: by_kind.worst_first(),
            by_dialect: by_dialect.worst_first(),
            unknown_kinds: unknown,
            missed: faults().filter(is_missed).cloned().collect(),
            wrong: incidents()
                .filter(|incident| incident.outcome.is_wrong())
                .cloned()
                .collect(),
        }
    }
}

/// Faults and incidents by the name of their row.
#[derive(Default)]
struct Groups<'a>(BTreeMap<&'a str, (Vec<&'a FaultRow>, Vec<&'a IncidentRow>)>);

impl<'a> Groups<'a> {
    fn add(
        &mut self,
        name: &'a str,
        faults: impl IntoIterator<Item = &'a FaultRow>,
        incidents: impl IntoIterator<Item = &'a IncidentRow>,
    ) {
        let group = self.0.entry(name).or_default();
        group.0.extend(faults);
        group.1.extend(incidents);
    }

    /// Equal ones by name.
    fn worst_first(self) -> Vec<Group> {
        let groups = self.0.into_iter().map(|(name, (faults, incidents))| Group {
            name: name.to_owned(),
            score: Score::of(&faults, &incidents),
        });
        let mut groups: Vec<_> = groups.collect();
        groups.sort_by(|a, b| a.score.goodness().total_cmp(&b.score.goodness()));
        groups
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two faults, of which the first is found, an explained incident and a false one.
    pub(in super::super) fn world(name: &str, dialect: &str) -> World {
        let truth = Truth::parse(
            r#"{"world": "w", "start": 800, "end": 1520,
                "faults": [
                  {"id": "f0", "kind": "xid79", "part_type": "gpu", "start": 1000, "end": 1200,
                   "culprit": {"node": "n1", "gpu": 3}},
                  {"id": "f1", "kind": "solar_flare", "part_type": "node", "start": 1000, "end": 1200,
                   "culprit": {"node": "n2"}},
                  {"id": "f2", "kind": "steal", "part_type": "node", "start": 1000, "end": 1200,
                   "culprit": {"node": "n3"}, "observable": false}],
                "benign": [
                  {"id": "b0", "kind": "checkpoint", "part_type": "node", "start": 1000, "end": 1100,
                   "culprit": {"node": "n5"}}]}"#,
        );
        let incident = |component: &str, class: &str, is_critical| Incident {
            component: component.to_owned(),
            first: 1012.0,
            last: 1100.0,
            classes: vec![(1012.0, class.to_owned())],
            is_critical,
        };
        let incidents = [
            incident("gpu/n1:3", "gpu-lost", true),
            incident("host/n5", "storage-stall", false),
            incident("host/n7", "host-steal", false),
        ];
        let truth = truth.expect("valid");
        World::new(name.to_owned(), dialect.to_owned(), &truth, &incidents)
    }

    #[test]
    fn counts_leave_explained_incidents_and_unobservable_faults_aside() {
        let report = Report::new("", &[world("a", "x"), world("b", "y")]);
        let of = |hits, of| Ratio { hits, of };
        let total = &report.total;
        assert_eq!(total.recall, of(2, 4));
        assert_eq!(total.precision, of(2, 4));
        assert_eq!(total.precision_critical, of(2, 2));
        assert_eq!(total.right_component, of(2, 2));
        assert_eq!(total.right_class, of(2, 2));
        assert_eq!(total.victims_blamed, of(0, 4));
        assert_eq!(total.after_the_end, of(0, 4));
        assert_eq!(total.class_drift, of(0, 4));
        assert_eq!(total.detection_seconds_p50, Some(12.0));
        assert_eq!(
            (report.faults, report.incidents, report.explained),
            (6, 6, 2)
        );
        assert!((report.hours - 0.4).abs() < 1e-9);
        assert_eq!(report.unknown_kinds, ["solar_flare"]);
        assert_eq!((report.missed.len(), report.wrong.len()), (2, 2));
    }

    #[test]
    fn rows_of_kinds_add_up_to_the_total() {
        let report = Report::new("", &[world("a", "x")]);
        let names: Vec<_> = report.by_kind.iter().map(|group| &*group.name).collect();
        let expected = ["(no event)", "solar_flare", "checkpoint (benign)", "xid79"];
        assert_eq!(names, expected);
        let recall = report.by_kind.iter().map(|group| group.score.recall.of);
        assert_eq!(recall.sum::<usize>(), report.total.recall.of);
        let precision = report.by_kind.iter().map(|group| group.score.precision.of);
        assert_eq!(precision.sum::<usize>(), report.total.precision.of);
    }

    #[test]
    fn the_worst_world_is_first_and_equal_ones_are_in_order_of_name() {
        let mut good = world("a", "x");
        good.incidents.pop();
        let report = Report::new("", &[good, world("c", "x"), world("b", "y")]);
        let names: Vec<_> = report.by_world.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["b", "c", "a"]);
        let names: Vec<_> = report.by_dialect.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["y", "x"]);
    }
}
