//! Collects the incidents of a replay from their changes.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use railscope_otlp::{EventKind, IncidentEvent, Severity};

/// One incident from its opening to its end; an incident that opens again is another one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Incident {
    /// Its component when it opened, of a cable between switches with the other end.
    pub(super) component: String,
    /// When it opened, in seconds of Unix time.
    pub(super) first: f64,
    /// When it closed; infinite while it is open.
    pub(super) last: f64,
    /// Its classes, each with the time from which it had it; at least one.
    pub(super) classes: Vec<(f64, String)>,
    /// Whether it was critical at any time.
    pub(super) is_critical: bool,
}

impl Incident {
    /// The class that it had for the longest time until then; of equal ones, the first.
    pub(super) fn main_class(&self, until: f64) -> &str {
        let mut seconds: Vec<(&str, f64)> = Vec::new();
        let ends = self.classes.iter().skip(1).map(|(begin, _)| *begin);
        let ends = ends.chain([self.last]);
        for ((begin, class), end) in self.classes.iter().zip(ends) {
            let span = (end.min(until) - begin).max(0.0);
            match seconds.iter_mut().find(|(known, _)| known == class) {
                Some((_, sum)) => *sum += span,
                None => seconds.push((class, span)),
            }
        }
        let longest = seconds
            .into_iter()
            .reduce(|best, next| if next.1 > best.1 { next } else { best });
        longest.map_or("", |(class, _)| class)
    }

    /// Its classes in order, such as `port-down > port-flapping`.
    pub(super) fn class_history(&self) -> String {
        let names: Vec<_> = self.classes.iter().map(|(_, name)| &**name).collect();
        names.join(" > ")
    }
}

/// The incidents of a replay so far.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    all: Vec<Incident>,
    /// By id, the place of an open incident in `all`.
    open: HashMap<String, usize>,
}

impl Incidents {
    /// Records a change.
    pub(super) fn record(&mut self, event: &IncidentEvent) {
        let at = event.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = at.as_secs_f64();
        let changed = &event.incident;
        if event.kind == EventKind::Closed {
            if let Some(index) = self.open.remove(&changed.id) {
                self.all[index].last = at;
            }
            return;
        }
        let index = *self.open.entry(changed.id.clone()).or_insert_with(|| {
            self.all.push(Incident {
                component: component(changed),
                first: at,
                last: f64::INFINITY,
                classes: Vec::new(),
                is_critical: false,
            });
            self.all.len() - 1
        });
        let incident = &mut self.all[index];
        incident.is_critical |= changed.severity == Severity::Critical;
        let latest = incident.classes.last();
        if latest.is_none_or(|(_, class)| *class != changed.class) {
            incident.classes.push((at, changed.class.clone()));
        }
    }

    /// All incidents in the order in which they opened. Those that are still open last until `end`.
    pub(super) fn finish(self, end: f64) -> Vec<Incident> {
        let mut all = self.all;
        for incident in &mut all {
            if incident.last.is_infinite() {
                incident.last = end;
            }
        }
        all.sort_by(|a, b| a.first.total_cmp(&b.first));
        all
    }
}

/// All names of faulty components in an incident.
fn component(incident: &railscope_otlp::Incident) -> String {
    let names = [&incident.component].into_iter();
    let names = names.chain(&incident.far_end).chain(&incident.alternatives);
    let names: Vec<&str> = names.map(String::as_str).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn change(kind: EventKind, at: u64, class: &str, severity: Severity) -> IncidentEvent {
        IncidentEvent {
            kind,
            at: UNIX_EPOCH + Duration::from_secs(at),
            incident: railscope_otlp::Incident {
                id: "i1".to_owned(),
                cluster: String::new(),
                component: "gpu/n1:3".to_owned(),
                far_end: None,
                alternatives: Vec::new(),
                related: Vec::new(),
                class: class.to_owned(),
                severity,
                posterior: 0.9,
                runbook: String::new(),
                summary: String::new(),
                since: UNIX_EPOCH,
                victims: 0,
                gpus: 1,
                jobs: 0,
                is_suppressed: false,
            },
        }
    }

    #[test]
    fn an_incident_that_opens_again_is_another_one() {
        use EventKind::{Changed, Closed, Opened};
        let mut incidents = Incidents::default();
        for (kind, at, class, severity) in [
            (Opened, 10, "gpu-slow", Severity::Warning),
            (Changed, 20, "gpu-slow", Severity::Critical),
            (Changed, 30, "gpu-lost", Severity::Warning),
            (Closed, 40, "gpu-lost", Severity::Warning),
            (Opened, 50, "gpu-slow", Severity::Warning),
        ] {
            incidents.record(&change(kind, at, class, severity));
        }
        let all = incidents.finish(90.0);
        let [first, second] = &*all else {
            panic!("{all:?}")
        };
        assert_eq!((first.first, first.last), (10.0, 40.0));
        assert_eq!(first.class_history(), "gpu-slow > gpu-lost");
        assert!(first.is_critical && !second.is_critical);
        assert_eq!((second.first, second.last), (50.0, 90.0));
    }

    #[test]
    fn the_main_class_is_that_of_the_longest_time_until_the_end_of_the_fault() {
        let incident = Incident {
            component: "gpu/n1:3".to_owned(),
            first: 10.0,
            last: 100.0,
            classes: vec![(10.0, "a".to_owned()), (30.0, "b".to_owned())],
            is_critical: false,
        };
        assert_eq!(incident.main_class(100.0), "b");
        assert_eq!(incident.main_class(45.0), "a");
        assert_eq!(incident.main_class(0.0), "a", "the first of equal ones");
    }
}
