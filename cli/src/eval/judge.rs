//! Compares alarms with the ground truth: what was found, where, how soon, and which parts were
//! named wrongly.
//!
//! Pure: hand-made alarms and events give the same results as those of a run.

use std::cmp::Ordering;

use railscope_model::identity::Part;
use railscope_simulator::cluster::Maintenance;
use railscope_simulator::faults::Truth;

use super::alarm::{Alarm, Level};
use super::ends;

/// An alarm is about a fault if it overlaps it, within this tolerance.
pub(super) const SLACK_SECONDS: f64 = 60.0;

/// A fault as it was: what is true of it, and when.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    /// Root cause, class, victims.
    pub(super) truth: Truth,
    /// Seconds after the start of the run.
    pub(super) onset: f64,
    /// The end of the fault, or of the run.
    pub(super) end: f64,
    /// Whether the fault ended before the run.
    pub(super) has_ended: bool,
}

/// How precisely a detector names at all; it is evaluated by no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// The part to replace.
    Part,
    /// The machine that it is in.
    Node,
}

impl Names {
    /// Whether two parts are one to such a detector.
    pub(super) fn same(self, one: &Part, other: &Part) -> bool {
        match self {
            Self::Part => one == other,
            Self::Node => one.node().is_some() && one.node() == other.node(),
        }
    }

    /// The granularity in a table.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Part => "part",
            Self::Node => "node",
        }
    }
}

/// What became of one fault.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FaultVerdict {
    /// What happened: `gpu-thermal`.
    pub(super) cause: &'static str,
    /// Share of the part's capability that was lost.
    pub(super) severity: f64,
    /// Step time with the fault over step time without; none if the job is stalled.
    pub(super) slowdown: Option<f64>,
    /// Whether the part is of the network: a cable, a switch, an adapter.
    pub(super) is_network: bool,
    /// Whether an alarm named it.
    pub(super) found: bool,
    /// Whether the first, or one of the first three, of what was named at its time and is not another
    /// fault's was the root cause.
    pub(super) top: [bool; 2],
    /// The same, for the kind of part: GPU, PCIe link, cable, leaf.
    pub(super) top_tier: [bool; 2],
    /// Whether the alarm that named it reported the right class; none if it was not found or names no
    /// class.
    pub(super) class_right: Option<bool>,
    /// From onset to the first alarm about the root cause, its victims or its node.
    pub(super) detect_seconds: Option<f64>,
    /// From onset to the first alarm about the root cause.
    pub(super) localise_seconds: Option<f64>,
    /// Whether the fault ended before the run.
    pub(super) has_ended: bool,
    /// Whether the alarm that named it changed its class after the end of the fault; none if no alarm with a class was open then.
    pub(super) class_drifted: Option<bool>,
}

/// What an alarm was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// A fault that was there.
    Fault,
    /// A part that only suffered from one.
    Victim,
    /// A fault that had ended before the alarm opened.
    AfterEnd,
    /// Work of the site's people, and it reports it: a ticket that is right, and about no fault.
    Work,
    /// Nothing.
    Nothing,
}

/// What became of one alarm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AlarmVerdict {
    /// Its severity.
    pub(super) level: Level,
    /// What it was about.
    pub(super) about: About,
    /// Whether its part is of the network.
    pub(super) is_network: bool,
    /// Whether the site's people worked on the part at its time.
    pub(super) in_maintenance: bool,
    /// Class that it named.
    pub(super) class: Option<&'static str>,
    /// How sure it was, 0 to 1.
    pub(super) posterior: Option<f64>,
}

/// What became of everything in one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Verdicts {
    /// By event.
    pub(super) faults: Vec<FaultVerdict>,
    /// By alarm.
    pub(super) alarms: Vec<AlarmVerdict>,
}

/// Evaluates the alarms of one run. `tier` reports what kind of part a part is.
pub(super) fn judge(
    events: &[Event],
    maintenance: &[Maintenance],
    alarms: &[Alarm],
    names: Names,
    tier: &dyn Fn(&Part) -> &'static str,
) -> Verdicts {
    let faults = events
        .iter()
        .map(|event| judge_fault(event, events, alarms, names, tier));
    let all = alarms;
    let alarms = alarms.iter().map(|alarm| {
        let in_maintenance = maintenance.iter().any(|work| explains(work, alarm));
        let ticket = alarm.naming.level == Level::Ticket;
        let about = match about(alarm, events, all, names) {
            About::Nothing if in_maintenance && ticket && alarm.naming.announced => About::Work,
            about => about,
        };
        AlarmVerdict {
            level: alarm.naming.level,
            about,
            is_network: is_network(&alarm.naming.part),
            in_maintenance,
            class: alarm.naming.class,
            posterior: alarm.naming.posterior,
        }
    });
    Verdicts {
        faults: faults.collect(),
        alarms: alarms.collect(),
    }
}

const fn is_network(part: &Part) -> bool {
    matches!(
        part,
        Part::HostLink(..) | Part::SwitchLink(..) | Part::Switch(_) | Part::Nic(..)
    )
}

fn overlaps(alarm: &Alarm, event: &Event) -> bool {
    let ended_before = alarm
        .closed
        .is_some_and(|closed| closed < event.onset - SLACK_SECONDS);
    !ended_before && alarm.opened <= event.end + SLACK_SECONDS
}

/// Whether an alarm is of what maintenance shows: of its parts, or of what is in a node of them, from its begin until
/// a while after its end.
fn explains(work: &Maintenance, alarm: &Alarm) -> bool {
    let (begin, end) = work.seconds;
    let part = &alarm.naming.part;
    let node = part.node().map(|node| Part::Host(node.clone()));
    let is_of = |of: &Part| of == part || Some(of) == node.as_ref();
    (begin..=end + SLACK_SECONDS).contains(&alarm.opened) && work.parts.iter().any(is_of)
}

pub(super) fn is_culprit(named: &Part, event: &Event, names: Names) -> bool {
    let mut culprits = std::iter::once(&event.truth.part).chain(&event.truth.accomplices);
    culprits.any(|part| names.same(part, named))
}

pub(super) fn is_victim(alarm: &Alarm, event: &Event, names: Names) -> bool {
    let mut victims = event.truth.victims.iter();
    victims.any(|part| names.same(part, &alarm.naming.part))
}

fn finds(alarm: &Alarm, event: &Event, names: Names) -> bool {
    overlaps(alarm, event) && is_culprit(&alarm.naming.part, event, names)
}

fn about(alarm: &Alarm, events: &[Event], alarms: &[Alarm], names: Names) -> About {
    let found = events.iter().any(|event| finds(alarm, event, names));
    if ends::is_after_end(alarm, events, alarms, names) {
        return About::AfterEnd;
    }
    if found {
        return About::Fault;
    }
    let suffers = |event: &Event| overlaps(alarm, event) && is_victim(alarm, event, names);
    if events.iter().any(suffers) {
        About::Victim
    } else {
        About::Nothing
    }
}

/// Worst first, as a person on call would read them.
fn rank(one: &Alarm, other: &Alarm) -> Ordering {
    let (a, b) = (&one.naming, &other.naming);
    (b.level.cmp(&a.level))
        .then_with(|| b.score.total_cmp(&a.score))
        .then_with(|| one.opened.total_cmp(&other.opened))
        .then_with(|| a.part.cmp(&b.part))
}

fn judge_fault(
    event: &Event,
    events: &[Event],
    alarms: &[Alarm],
    names: Names,
    tier: &dyn Fn(&Part) -> &'static str,
) -> FaultVerdict {
    let of_another = |alarm: &Alarm| {
        let others = events.iter().filter(|other| *other != event);
        !finds(alarm, event, names) && others.into_iter().any(|other| finds(alarm, other, names))
    };
    let mut named: Vec<&Alarm> = alarms
        .iter()
        .filter(|alarm| overlaps(alarm, event) && !of_another(alarm))
        .collect();
    named.sort_by(|a, b| rank(a, b));
    let culprit = |alarm: &&Alarm| is_culprit(&alarm.naming.part, event, names);
    let first = |alarms: &mut dyn Iterator<Item = &&Alarm>| {
        let after = alarms.map(|alarm| (alarm.opened - event.onset).max(0.0));
        after.min_by(f64::total_cmp)
    };
    let near = |alarm: &&&Alarm| {
        culprit(alarm)
            || is_victim(alarm, event, names)
            || Names::Node.same(&alarm.naming.part, &event.truth.part)
    };
    let finder = named.iter().copied().find(culprit);
    // A detector with few alarms reports the alternatives of the first.
    let instead = named.iter().take(1).flat_map(|alarm| &alarm.naming.instead);
    let parts = named.iter().map(|alarm| &alarm.naming.part).chain(instead);
    let parts: Vec<&Part> = parts.collect();
    let within =
        |test: &dyn Fn(&Part) -> bool| [1, 3].map(|k| parts.iter().take(k).any(|part| test(part)));
    FaultVerdict {
        cause: event.truth.cause,
        severity: event.truth.severity,
        slowdown: event.truth.slowdown,
        is_network: is_network(&event.truth.part),
        found: finder.is_some(),
        top: within(&|part| is_culprit(part, event, names)),
        top_tier: within(&|part| tier(part) == tier(&event.truth.part)),
        class_right: finder
            .and_then(|alarm| alarm.naming.class)
            .map(|class| class == event.truth.class),
        detect_seconds: first(&mut named.iter().filter(near)),
        localise_seconds: first(&mut named.iter().filter(|alarm| culprit(alarm))),
        has_ended: event.has_ended,
        class_drifted: finder.and_then(|alarm| ends::class_drifted(alarm, event)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::alarm::Naming;
    use super::*;

    fn part(text: &str) -> Part {
        text.parse().expect(text)
    }

    fn event(culprit: &str, victims: &[&str], onset: f64, end: f64) -> Event {
        let truth = Truth {
            part: part(culprit),
            cause: "a-cause",
            class: "a-class",
            severity: 0.5,
            slowdown: None,
            victims: victims.iter().map(|text| part(text)).collect(),
            accomplices: Vec::new(),
        };
        Event {
            truth,
            onset,
            end,
            has_ended: false,
        }
    }

    fn alarm(named: &str, score: f64, opened: f64, closed: Option<f64>) -> Alarm {
        let mut naming = Naming::page(part(named), score);
        naming.class = Some("a-class");
        Alarm {
            naming,
            opened,
            closed,
            classes: Vec::new(),
        }
    }

    fn tier(part: &Part) -> &'static str {
        part.class()
    }

    fn check(events: &[Event], alarms: &[Alarm], names: Names) -> Verdicts {
        judge(events, &[], alarms, names, &tier)
    }

    #[test]
    fn maintenance_explains_alarms_of_its_parts_while_it_lasts_and_a_minute_longer() {
        let work = Maintenance {
            seconds: (100.0, 200.0),
            parts: vec![part("host/n1"), part("switch/leaf-1")],
        };
        for (named, opened, explained) in [
            ("link/n1:mlx5_0/1", 100.0, true),
            ("host/n1", 260.0, true),
            ("switch/leaf-1", 150.0, true),
            ("host/n1", 99.0, false),
            ("host/n1", 261.0, false),
            ("link/n2:mlx5_0/1", 150.0, false),
        ] {
            let alarms = [alarm(named, 1.0, opened, None)];
            let work = std::slice::from_ref(&work);
            let verdicts = judge(&[], work, &alarms, Names::Part, &tier);
            assert_eq!(
                verdicts.alarms[0].in_maintenance, explained,
                "{named} {opened}"
            );
            assert_eq!(verdicts.alarms[0].about, About::Nothing);
            // A ticket about it is correct; a page never is.
            for (level, about) in [(Level::Ticket, About::Work), (Level::Page, About::Nothing)] {
                let mut said = alarms.clone();
                (said[0].naming.level, said[0].naming.announced) = (level, true);
                let verdicts = judge(&[], work, &said, Names::Part, &tier);
                let about = if explained { about } else { About::Nothing };
                assert_eq!(verdicts.alarms[0].about, about, "{named} {opened}");
            }
        }
    }

    #[test]
    fn the_right_part_at_the_right_time_is_found_with_its_delay() {
        let events = [event("gpu/n1:3", &[], 100.0, 200.0)];
        let verdicts = check(&events, &[alarm("gpu/n1:3", 1.0, 130.0, None)], Names::Part);
        let fault = &verdicts.faults[0];
        assert!(fault.found && fault.top == [true; 2] && fault.top_tier == [true; 2]);
        assert_eq!(fault.class_right, Some(true));
        assert_eq!(fault.localise_seconds, Some(30.0));
        assert_eq!(verdicts.alarms[0].about, About::Fault);
    }

    #[test]
    fn the_match_reaches_a_minute_beyond_the_fault_and_no_further() {
        let events = [event("gpu/n1:3", &[], 100.0, 200.0)];
        for (opened, closed, found) in [
            (10.0, Some(39.0), false),
            (10.0, Some(40.0), true),
            (260.0, None, true),
            (261.0, None, false),
        ] {
            let alarms = [alarm("gpu/n1:3", 1.0, opened, closed)];
            let verdicts = check(&events, &alarms, Names::Part);
            assert_eq!(verdicts.faults[0].found, found, "{opened} {closed:?}");
            assert_eq!(verdicts.alarms[0].about == About::Fault, found);
        }
    }

    #[test]
    fn a_wrong_part_of_the_right_kind_hits_the_tier_only() {
        let events = [event("gpu/n1:3", &[], 0.0, 100.0)];
        let verdicts = check(&events, &[alarm("gpu/n1:4", 1.0, 10.0, None)], Names::Part);
        let fault = &verdicts.faults[0];
        assert!(!fault.found && fault.top == [false; 2] && fault.top_tier == [true; 2]);
        // Something was reported about the node, so it was detected, though not localized.
        assert_eq!(
            (fault.detect_seconds, fault.localise_seconds),
            (Some(10.0), None)
        );
        assert_eq!(verdicts.alarms[0].about, About::Nothing);
    }

    #[test]
    fn who_names_machines_is_judged_by_machines() {
        let events = [event("gpu/n1:3", &["link/n2:mlx5_0/1"], 0.0, 100.0)];
        for (named, about) in [
            ("host/n1", About::Fault),
            ("host/n2", About::Victim),
            ("host/n3", About::Nothing),
        ] {
            let alarms = [alarm(named, 1.0, 10.0, None)];
            let verdicts = check(&events, &alarms, Names::Node);
            assert_eq!(verdicts.alarms[0].about, about, "{named}");
            assert_eq!(verdicts.faults[0].found, about == About::Fault);
        }
    }

    #[test]
    fn the_worst_alarm_is_the_first_answer_and_a_culprit_behind_it_is_in_the_first_three() {
        let events = [event("link/n1:mlx5_0/1", &["link/n0:mlx5_0/1"], 0.0, 100.0)];
        let alarms = [
            alarm("link/n0:mlx5_0/1", 9.0, 10.0, None),
            alarm("link/n1:mlx5_0/1", 2.0, 20.0, None),
        ];
        let verdicts = check(&events, &alarms, Names::Part);
        let fault = &verdicts.faults[0];
        assert_eq!((fault.top, fault.top_tier), ([false, true], [true, true]));
        assert_eq!(
            (fault.detect_seconds, fault.localise_seconds),
            (Some(10.0), Some(20.0))
        );
        assert_eq!(verdicts.alarms[0].about, About::Victim);
    }

    #[test]
    fn what_the_first_alarm_may_be_instead_is_in_the_first_three_and_no_finding() {
        let events = [event("link/n1:mlx5_0/1", &[], 0.0, 100.0)];
        let mut leaf = alarm("switch/leaf-1", 9.0, 10.0, None);
        leaf.naming.instead = vec![part("link/n2:mlx5_0/1"), part("link/n1:mlx5_0/1")];
        let verdicts = check(&events, &[leaf.clone()], Names::Part);
        let fault = &verdicts.faults[0];
        assert_eq!((fault.top, fault.found), ([false, true], false));
        // Two more alarms come before what it may be instead.
        let more = [
            leaf,
            alarm("gpu/n1:3", 2.0, 10.0, None),
            alarm("gpu/n1:4", 1.0, 10.0, None),
        ];
        assert_eq!(check(&events, &more, Names::Part).faults[0].top, [false; 2]);
    }

    #[test]
    fn the_alarm_of_one_fault_does_not_stand_in_the_way_of_another() {
        let events = [
            event("gpu/n1:3", &[], 0.0, 100.0),
            event("link/n7:mlx5_0/1", &[], 0.0, 100.0),
        ];
        let alarms = [
            alarm("gpu/n1:3", 9.0, 10.0, None),
            alarm("link/n7:mlx5_0/1", 1.0, 10.0, None),
        ];
        let verdicts = check(&events, &alarms, Names::Part);
        assert!(verdicts.faults.iter().all(|fault| fault.top == [true; 2]));
    }

    #[test]
    fn silence_finds_nothing_and_blames_nobody() {
        let verdicts = check(&[event("gpu/n1:3", &[], 0.0, 100.0)], &[], Names::Part);
        let fault = &verdicts.faults[0];
        assert!(!fault.found && fault.detect_seconds.is_none());
        assert_eq!(verdicts.alarms, []);
    }
}
