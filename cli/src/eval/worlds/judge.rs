//! Assigns each incident to an event of the truth, and finds which faults were detected.

use std::cmp::Ordering;

use serde::Serialize;

use super::classes::class_fits;
use super::incidents::Incident;
use super::matching::{Level, level};
use super::truth::{ComponentType, Event, Truth};

/// Seconds by which an incident may precede the onset of its event: clocks of exporters and generator differ.
const EARLY_SECONDS: f64 = 2.0;
/// An incident that opens later than this after the end of an event does not belong to it.
const BELONGS_SECONDS: f64 = 180.0;
/// An incident that opens later than this after the end of its fault is wrong: evidence of some classes needs one minute.
const LATE_SECONDS: f64 = 60.0;
/// A further incident of a fault that opens later than this after its end is wrong: the fault is known and over.
const AGAIN_SECONDS: f64 = 10.0;

/// What an incident turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// It is about a fault.
    True,
    /// It is about a benign event and has a class that describes it. Neither right nor wrong.
    Explained,
    /// It is about nothing that happened.
    False,
    /// It names a victim of a fault.
    VictimBlamed,
    /// It names a component for a benign event.
    BenignBlamed,
    /// It is about a fault that was over when it opened.
    AfterTheEnd,
}

impl Verdict {
    /// As it is printed.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::Explained => "explained",
            Self::False => "false",
            Self::VictimBlamed => "victim blamed",
            Self::BenignBlamed => "benign event blamed",
            Self::AfterTheEnd => "after the end",
        }
    }

    /// Whether the incident should not have opened.
    pub(super) fn is_wrong(self) -> bool {
        !matches!(self, Self::True | Self::Explained)
    }
}

/// An incident and its event.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    /// The incident.
    pub(super) incident: &'a Incident,
    /// Index of its event in the truth; none if it belongs to no event.
    pub(super) event: Option<usize>,
    /// How close its component is to that of the event.
    pub(super) level: Level,
    /// Whether its main class describes the event.
    pub(super) class_fits: bool,
    /// What it turned out to be.
    pub(super) verdict: Verdict,
    /// Whether its first class describes the event and its last one does not.
    pub(super) has_drifted: bool,
}

/// A fault and what was found of it.
#[derive(Debug, PartialEq)]
pub(super) struct Detection {
    /// Whether an incident is about it.
    pub(super) is_found: bool,
    /// Whether one of them names its component.
    pub(super) is_exact: bool,
    /// Whether one of them has a class that describes it.
    pub(super) class_fits: bool,
    /// Seconds from its onset to the first of them.
    pub(super) seconds: Option<f64>,
    /// Main classes of the incidents.
    pub(super) classes: Vec<String>,
}

/// Assigns incidents, which are in the order in which they opened, to events.
pub(super) fn judge<'a>(truth: &Truth, incidents: &'a [Incident]) -> Vec<Judged<'a>> {
    let mut judged: Vec<Judged<'_>> = Vec::with_capacity(incidents.len());
    for incident in incidents {
        let next = match Match::best(truth, incident) {
            Some(best) => best.judge(truth, incident, &judged),
            None => Judged {
                incident,
                event: None,
                level: Level::Unrelated,
                class_fits: false,
                verdict: Verdict::False,
                has_drifted: false,
            },
        };
        judged.push(next);
    }
    judged
}

/// What the incidents found of the event at this place of the truth.
pub(super) fn detection(truth: &Truth, index: usize, judged: &[Judged<'_>]) -> Detection {
    let fault = &truth.events[index];
    let of_it = |one: &&Judged<'_>| {
        one.verdict == Verdict::True
            && (one.event == Some(index) || is_known_before(fault, one.incident))
    };
    let found: Vec<_> = judged.iter().filter(of_it).collect();
    let seconds = found
        .iter()
        .map(|one| (one.incident.first - fault.start).max(0.0));
    Detection {
        is_found: !found.is_empty(),
        is_exact: found.iter().any(|one| one.level == Level::Exact),
        class_fits: found.iter().any(|one| one.class_fits),
        seconds: seconds.min_by(f64::total_cmp),
        classes: found
            .iter()
            .map(|one| one.incident.main_class(fault.end).to_owned())
            .collect(),
    }
}

/// Whether the incident of an earlier fault of the same component and class is still open when the fault begins. A collector
/// does not open a second one, and the operator is aware of it.
fn is_known_before(fault: &Event, incident: &Incident) -> bool {
    let latest = incident.classes.last();
    incident.first < fault.start
        && fault.start < incident.last
        && level(fault, &incident.component) == Level::Exact
        && latest.is_some_and(|(_, class)| class_fits(&fault.kind, class))
}

/// An event to which an incident may belong.
struct Match {
    event: usize,
    is_fault: bool,
    level: Level,
    class_fits: bool,
    /// Seconds between the onset and the opening, whichever is first.
    distance: f64,
}

impl Match {
    /// The event to which an incident belongs.
    fn best(truth: &Truth, incident: &Incident) -> Option<Self> {
        let events = truth.events.iter().enumerate();
        let matches = events.filter_map(|(index, event)| Self::new(index, event, incident));
        // Of equal ones the first.
        matches.reduce(
            |best, next| {
                if next.rank(&best).is_gt() { next } else { best }
            },
        )
    }

    fn new(index: usize, event: &Event, incident: &Incident) -> Option<Self> {
        let begins = event.start - EARLY_SECONDS;
        let opens_in_time = (begins..=event.end + BELONGS_SECONDS).contains(&incident.first);
        if incident.last < event.start || !opens_in_time {
            return None;
        }
        let class_fits = class_fits(&event.kind, incident.main_class(event.end));
        let level = match level(event, &incident.component) {
            // A host has many GPUs and NICs: another class on the same host is about another component.
            Level::Host if !class_fits && event.component_type == ComponentType::Small => {
                if event.is_fault {
                    Level::Victim
                } else {
                    Level::Unrelated
                }
            }
            level => level,
        };
        (level > Level::Unrelated).then_some(Self {
            event: index,
            is_fault: event.is_fault,
            level,
            class_fits,
            distance: (incident.first - event.start).abs(),
        })
    }

    /// A fault before a benign event, then by component, class and time.
    fn rank(&self, other: &Self) -> Ordering {
        let key = |one: &Self| (one.is_fault, one.level, one.class_fits);
        let by_key = key(self).cmp(&key(other));
        by_key.then(other.distance.total_cmp(&self.distance))
    }

    fn judge<'a>(
        &self,
        truth: &Truth,
        incident: &'a Incident,
        earlier: &[Judged<'_>],
    ) -> Judged<'a> {
        let event = &truth.events[self.event];
        let fits = |class: Option<&(f64, String)>| {
            class.is_some_and(|(_, class)| class_fits(&event.kind, class))
        };
        let verdict = match (self.is_fault, self.class_fits, self.level) {
            (false, true, _) => Verdict::Explained,
            (false, false, _) => Verdict::BenignBlamed,
            (true, _, Level::Victim) => Verdict::VictimBlamed,
            _ if self.is_after_end(event, incident, earlier) => Verdict::AfterTheEnd,
            _ => Verdict::True,
        };
        Judged {
            incident,
            event: Some(self.event),
            level: self.level,
            class_fits: self.class_fits,
            verdict,
            has_drifted: fits(incident.classes.first()) && !fits(incident.classes.last()),
        }
    }

    fn is_after_end(&self, event: &Event, incident: &Incident, earlier: &[Judged<'_>]) -> bool {
        let late = incident.first - event.end;
        let is_again = || {
            earlier.iter().any(|one| {
                one.event == Some(self.event)
                    && one.incident.first < incident.first
                    && one.level >= Level::Host
            })
        };
        late > LATE_SECONDS || (late > AGAIN_SECONDS && is_again())
    }
}

#[cfg(test)]
mod tests;
