//! How faults end: in half of the runs, some come back, some overlap with another; and what detectors report after an end.

use railscope_simulator::faults::Fault;
use railscope_simulator::noise::Noise;
use serde::Serialize;

use super::alarm::{Alarm, Level};
use super::judge::{About, Event, Names, is_culprit, is_victim};
use super::report::{columns, with_interval};
use super::score::Judged;
use super::statistics::Ratio;

/// The part of the noise that ends are drawn from: no other draw depends on them.
pub(super) const DRAWS: u64 = 0xe2d5;
/// A fault is there for at least this long: evidence of some classes needs one minute.
const LEAST_SECONDS: f64 = 120.0;
/// How long each run continues after the last end.
const AFTER_SECONDS: f64 = 180.0;
/// Shortest and longest time until a fault comes back.
const PAUSE_SECONDS: [f64; 2] = [30.0, 90.0];
/// An alarm that opens later than this after the end of its fault is wrong, as in recordings (`worlds/judge.rs`).
const LATE_SECONDS: f64 = 60.0;
/// A further alarm of a fault that opens later than this after its end is wrong: the fault is known and over.
const AGAIN_SECONDS: f64 = 10.0;
/// Longest time after the end of a fault at which an alarm about its part is about it.
const BELONGS_SECONDS: f64 = 180.0;

/// What becomes of the faults of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// They last to its end.
    Stays,
    /// They end.
    Ends,
    /// They end, and the first one comes back.
    ComesBack,
    /// They end, and the first one overlaps with another fault, which lasts.
    Overlaps,
}

impl Course {
    /// That of a run: faults end with every second seed.
    pub(super) fn of(seed: u64, noise: Noise) -> Self {
        // The noise has the seed in it: what is the same for all seeds decides nothing here.
        match (seed % 2, noise.bits(0) % 3) {
            (0, _) => Self::Stays,
            (_, 0) => Self::Ends,
            (_, 1) => Self::ComesBack,
            _ => Self::Overlaps,
        }
    }
}

/// Lets the faults that have no end and enough time end, and the first of them come back.
pub(super) fn apply(course: Course, duration: f64, noise: Noise, faults: &mut Vec<Fault>) {
    if course == Course::Stays {
        return;
    }
    let mut again = None;
    for (number, fault) in (0..).zip(faults.iter_mut()) {
        let (from, until) = (
            fault.onset_seconds + LEAST_SECONDS,
            duration - AFTER_SECONDS,
        );
        if fault.end_seconds.is_some() || from > until {
            continue;
        }
        let noise = noise.part(number);
        let end = from + (until - from) * noise.uniform(0);
        fault.end_seconds = Some(end);
        if course == Course::ComesBack && again.is_none() {
            let [shortest, longest] = PAUSE_SECONDS;
            let onset = end + shortest + (longest - shortest) * noise.uniform(1);
            again = Some(Fault {
                onset_seconds: onset,
                end_seconds: None,
                ..fault.clone()
            });
        }
    }
    faults.extend(again);
}

/// When the fault begins that overlaps with one that ends: in its second half.
pub(super) fn overlapping_onset(first: &Fault, noise: Noise) -> f64 {
    let end = first.end_seconds.unwrap_or(first.onset_seconds);
    let half = 0.5 * (end - first.onset_seconds);
    end - half * noise.uniform(2)
}

/// Whether an alarm is about a part of a fault that had ended before it opened, and about no current one.
pub(super) fn is_after_end(
    alarm: &Alarm,
    events: &[Event],
    alarms: &[Alarm],
    names: Names,
) -> bool {
    let belongs = |event: &&Event| {
        is_culprit(&alarm.naming.part, event, names)
            || is_victim(alarm, event, names)
            || Names::Node.same(&alarm.naming.part, &event.truth.part)
    };
    let is_there = |event: &Event| (event.onset..=event.end).contains(&alarm.opened);
    if events.iter().filter(belongs).any(is_there) {
        return false;
    }
    events.iter().filter(belongs).any(|event| {
        let is_known = || {
            let named = alarms
                .iter()
                .filter(|other| is_culprit(&other.naming.part, event, names));
            named
                .into_iter()
                .any(|other| other.opened < alarm.opened && other.opened >= event.onset)
        };
        let late = alarm.opened - event.end;
        event.has_ended
            && late <= BELONGS_SECONDS
            && (late > LATE_SECONDS || (late > AGAIN_SECONDS && is_known()))
    })
}

/// Whether an alarm that was open when its fault ended changed its class after that; none if it was not, or has no class.
pub(super) fn class_drifted(alarm: &Alarm, event: &Event) -> Option<bool> {
    let was_open = alarm.closed.is_none_or(|closed| closed > event.end);
    if !event.has_ended || !was_open {
        return None;
    }
    let before = alarm.classes.iter().rev().find(|(at, _)| *at <= event.end);
    let (_, before) = before?;
    Some(alarm.classes.last().is_some_and(|(_, last)| last != before))
}

/// What followed the end of faults.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Ends {
    /// Share of the faults that ended before their run.
    pub(super) ended: Ratio,
    /// Of all alarms: share that opened after the end of a fault, about its part.
    pub(super) opened_after: Ratio,
    /// Pages among them.
    pub(super) pages_after: usize,
    /// Of faults that an alarm with a class named until they ended: share whose class changed after that.
    pub(super) class_drift: Ratio,
}

impl Ends {
    /// Of all runs.
    pub(super) fn of(runs: &[Judged<'_>]) -> Self {
        let faults = || runs.iter().flat_map(|run| &run.verdicts.faults);
        let alarms = || {
            let all = runs.iter().flat_map(|run| &run.verdicts.alarms);
            // Tickets about a maintenance window are apart, as in the precision.
            all.filter(|alarm| alarm.about != About::Work)
        };
        let is_after = |about: About| about == About::AfterEnd;
        Self {
            ended: Ratio::count(faults().map(|fault| fault.has_ended)),
            opened_after: Ratio::count(alarms().map(|alarm| is_after(alarm.about))),
            pages_after: alarms()
                .filter(|alarm| is_after(alarm.about) && alarm.level == Level::Page)
                .count(),
            class_drift: Ratio::count(faults().filter_map(|fault| fault.class_drifted)),
        }
    }

    /// A table with its heading.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let row = |what: &str, ratio| vec![what.to_owned(), with_interval(ratio)];
        vec![
            columns(&["after the end of a fault", "share"]),
            row("faults that end before their run, of all", self.ended),
            row(
                "incidents that open after an end, of all",
                self.opened_after,
            ),
            vec![
                String::from("of these, pages"),
                self.pages_after.to_string(),
            ],
            row(
                "incidents whose class changes while their fault fades",
                self.class_drift,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use railscope_simulator::faults::Truth;

    use super::super::alarm::Naming;
    use super::*;

    fn fault(onset: f64) -> Fault {
        let text = format!(
            "part = 'gpu/n1:3'\nonset_seconds = {onset}\neffect = {{ cause = 'gpu-slow', speed_ratio = 0.9 }}"
        );
        toml::from_str(&text).expect("a fault")
    }

    fn event(part: &str, (onset, end): (f64, f64), has_ended: bool) -> Event {
        let truth = Truth {
            part: part.parse().expect("a part"),
            cause: "a-cause",
            class: "a-class",
            severity: 0.5,
            slowdown: None,
            victims: Vec::new(),
            accomplices: Vec::new(),
        };
        Event {
            truth,
            onset,
            end,
            has_ended,
        }
    }

    fn alarm(part: &str, opened: f64, classes: &[(f64, &'static str)]) -> Alarm {
        Alarm {
            naming: Naming::page(part.parse().expect("a part"), 1.0),
            opened,
            closed: None,
            classes: classes.to_vec(),
        }
    }

    #[test]
    fn faults_end_with_every_second_seed_and_some_of_them_come_back_or_overlap() {
        let courses: Vec<_> = (1000..1120)
            .map(|seed| Course::of(seed, Noise::new(seed).part(DRAWS)))
            .collect();
        let count = |wanted| courses.iter().filter(|course| **course == wanted).count();
        assert_eq!(count(Course::Stays), 60);
        for course in [Course::Ends, Course::ComesBack, Course::Overlaps] {
            assert!(count(course) >= 10, "{course:?}: {}", count(course));
        }
    }

    #[test]
    fn an_end_leaves_time_before_and_after_it() {
        for seed in 0..50 {
            let noise = Noise::new(seed);
            let mut faults = vec![fault(60.0), fault(250.0), fault(400.0)];
            faults[1].end_seconds = Some(300.0);
            apply(Course::ComesBack, 600.0, noise, &mut faults);
            assert_eq!(faults.len(), 4);
            let end = faults[0].end_seconds.expect("an end");
            assert!((180.0..=420.0).contains(&end), "{end}");
            assert_eq!(faults[1].end_seconds, Some(300.0), "as it was");
            assert_eq!(faults[2].end_seconds, None, "too late to end");
            let again = &faults[3];
            assert_eq!((&again.part, again.end_seconds), (&faults[0].part, None));
            let pause = again.onset_seconds - end;
            assert!((30.0..=90.0).contains(&pause), "{pause}");
            let onset = overlapping_onset(&faults[0], noise);
            assert!((0.5 * (60.0 + end)..=end).contains(&onset), "{onset}");
        }
        let mut faults = vec![fault(60.0)];
        apply(Course::Stays, 600.0, Noise::new(1), &mut faults);
        apply(Course::Ends, 240.0, Noise::new(1), &mut faults);
        assert_eq!(faults[0].end_seconds, None);
    }

    #[test]
    fn an_alarm_after_the_end_is_of_the_fault_if_it_is_the_first_and_not_late() {
        let over = [event("gpu/n1:3", (100.0, 200.0), true)];
        let early = alarm("gpu/n1:3", 130.0, &[]);
        for (part, opened, is_known, expected) in [
            ("gpu/n1:3", 150.0, false, false),
            ("gpu/n1:3", 230.0, false, false),
            ("gpu/n1:3", 230.0, true, true),
            ("gpu/n1:3", 205.0, true, false),
            ("gpu/n1:3", 270.0, false, true),
            ("gpu/n1:4", 270.0, true, true),
            ("gpu/n2:4", 270.0, true, false),
            ("gpu/n1:3", 390.0, true, false),
        ] {
            let one = alarm(part, opened, &[]);
            let mut all = vec![one.clone()];
            all.extend(is_known.then(|| early.clone()));
            let found = is_after_end(&one, &over, &all, Names::Part);
            assert_eq!(found, expected, "{part} {opened} {is_known}");
        }
        // One that comes back is there again.
        let again = [over[0].clone(), event("gpu/n1:3", (250.0, 600.0), false)];
        let one = alarm("gpu/n1:3", 270.0, &[]);
        assert!(!is_after_end(&one, &again, &[early], Names::Part));
    }

    #[test]
    fn a_class_drifts_if_it_changes_after_the_end() {
        let over = event("gpu/n1:3", (100.0, 200.0), true);
        for (classes, expected) in [
            (&[(120.0, "a")][..], Some(false)),
            (&[(120.0, "b"), (150.0, "a")], Some(false)),
            (&[(120.0, "a"), (210.0, "b")], Some(true)),
            (&[(120.0, "a"), (210.0, "b"), (240.0, "a")], Some(false)),
            (&[(210.0, "a")], None),
        ] {
            assert_eq!(
                class_drifted(&alarm("gpu/n1:3", 120.0, classes), &over),
                expected
            );
        }
        let mut closed = alarm("gpu/n1:3", 120.0, &[(120.0, "a")]);
        closed.closed = Some(190.0);
        assert_eq!(class_drifted(&closed, &over), None);
        let stays = event("gpu/n1:3", (100.0, 200.0), false);
        assert_eq!(
            class_drifted(&alarm("gpu/n1:3", 120.0, &[(120.0, "a")]), &stays),
            None
        );
    }
}
