//! Link messages in a log of Junos: restarts and mass events are distinguished from links that
//! flap.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{MONTHS, days_from_civil};

use super::{SwitchReport, some};
use crate::fabric::plans::Source;

/// Seconds within which links go down together.
const TOGETHER: i64 = 10;
/// Fewest links of a mass event, and the share of all links of the switch that the log names.
const FEWEST_TOGETHER: usize = 4;
const SHARE_TOGETHER: f64 = 0.3;
/// Seconds between a restart's message and the links that it takes down or brings up.
const RESTART: i64 = 300;
/// Link downs from which a link flaps: one is an event, two are a repair.
const FLAPS: usize = 3;
/// A date without a year that is this many seconds earlier than the line before is of the next year.
const NEW_YEAR: i64 = 180 * 86_400;

/// Messages of a switch or line card that begins or ends to run.
const RESTARTS: [&str; 4] = [
    "SYSTEM_OPERATIONAL",
    "SYSTEM_ABNORMAL_SHUTDOWN",
    "/kernel: Copyright (c)",
    "CHASSISD_FRU_OFFLINE_NOTICE",
];

pub(super) fn is_event(line: &str) -> bool {
    line.contains("SNMP_TRAP_LINK_DOWN: ifIndex") || line.contains("SNMP_TRAP_LINK_UP: ifIndex")
}

/// A time at the beginning of a text: `Apr  9 12:41:18`, also with a year behind it, or `2025-04-09 12:41:18`.
pub(super) struct Stamp<'a> {
    /// Seconds; from one to another of the same log only.
    pub(super) seconds: i64,
    shown: &'a str,
    rest: &'a str,
}

impl<'a> Stamp<'a> {
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let word_ends: Vec<usize> = text
            .char_indices()
            .filter(|(at, letter)| {
                let before = text.get(..*at).and_then(|before| before.chars().last());
                letter.is_whitespace() && before.is_some_and(|before| !before.is_whitespace())
            })
            .map(|(at, _)| at)
            .take(3)
            .collect();
        let upto = |word: usize| text.get(..word_ends.get(word).copied().unwrap_or(text.len()));
        let (date, of_day, shown) = if text.starts_with(|first: char| first.is_ascii_digit()) {
            let separated = upto(0)?;
            let (date, of_day, shown) = match separated.split_once('T') {
                Some((date, of_day)) => (date, of_day, separated),
                None => (
                    separated,
                    upto(1)?.get(separated.len()..)?.trim_start(),
                    upto(1)?,
                ),
            };
            let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
            (
                days_from_civil(parts.next()??, parts.next()??, parts.next()??)?,
                of_day,
                shown,
            )
        } else {
            let shown = upto(2)?;
            let mut words = shown.split_whitespace();
            let month = words.next()?;
            let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
            // A leap year, so that no date is lost.
            (
                days_from_civil(2000, month, words.next()?.parse().ok()?)?,
                words.next()?,
                shown,
            )
        };
        let mut parts = of_day
            .get(..8)?
            .split(':')
            .map(|part| part.parse::<i64>().ok());
        let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
        let rest = text.get(shown.len()..)?;
        Some(Self {
            seconds: i64::try_from(date).ok()? * 86_400 + hour * 3_600 + minute * 60 + second,
            shown,
            rest,
        })
    }
}

/// One message about a link, or about a restart.
struct Event<'a> {
    at: i64,
    shown: &'a str,
    /// The switch that the log names, empty if it names none.
    switch: &'a str,
    /// The port; none for a restart.
    port: Option<&'a str>,
    up: bool,
    /// Down because an operator switched it off.
    by_hand: bool,
}

pub(super) fn read(source: &mut Source<'_>, report: &mut SwitchReport) {
    let text = source.text;
    let mut events: Vec<Event<'_>> = Vec::new();
    let mut years = 0;
    let mut last = i64::MIN;
    for (at, line) in text.lines().enumerate() {
        let restarted = RESTARTS.iter().any(|mark| line.contains(mark));
        if !restarted && !is_event(line) {
            continue;
        }
        let event = Stamp::of(line.trim_start()).and_then(|stamp| event(&stamp, restarted));
        let Some(mut event) = event else {
            if !restarted {
                let expected = "a time, as Apr  9 12:41:18, and a message with ifName";
                source.problem(at + 1, "message", line.trim(), expected);
            }
            continue;
        };
        if event.at + years + NEW_YEAR < last {
            years += 366 * 86_400;
        }
        event.at += years;
        last = event.at;
        // A port's units go down with it.
        if event.port.is_none_or(|port| !port.contains('.')) {
            events.push(event);
        }
    }
    if events.iter().any(|event| event.port.is_some()) {
        // Logs of several switches in one file are in the order in which they came in.
        events.sort_by_key(|event| event.at);
        Log::of(&events).judge(report);
    }
}

fn event<'a>(stamp: &Stamp<'a>, restarted: bool) -> Option<Event<'a>> {
    let rest = stamp.rest.trim_start_matches(|letter: char| {
        letter == '.' || letter.is_ascii_digit() || letter.is_whitespace()
    });
    // `leaf-1 mib2d[4086]: ...`; without a host the process comes first.
    let first = rest.split_whitespace().next()?;
    let switch = if first.ends_with(':') { "" } else { first };
    let port = rest.rsplit_once("ifName ").map(|(_, name)| name.trim());
    let port = port.and_then(|name| name.split_whitespace().next());
    if port.is_none() && !restarted {
        return None;
    }
    Some(Event {
        at: stamp.seconds,
        shown: stamp.shown,
        switch,
        port: port.filter(|_| !restarted),
        up: rest.contains("SNMP_TRAP_LINK_UP"),
        by_hand: rest.contains("ifAdminStatus down"),
    })
}

/// The events, and which of them belong to one restart or mass event.
struct Log<'a> {
    events: &'a [Event<'a>],
    /// By event: whether it is explained by a restart, a mass event or an operator.
    explained: Vec<bool>,
    answer: Vec<String>,
    findings: Vec<String>,
}

impl<'a> Log<'a> {
    fn of(events: &'a [Event<'a>]) -> Self {
        let by_hand = |event: &Event<'_>| event.port.is_some() && event.by_hand;
        Self {
            events,
            explained: events.iter().map(by_hand).collect(),
            answer: Vec::new(),
            findings: Vec::new(),
        }
    }

    fn judge(mut self, report: &mut SwitchReport) {
        let ports: BTreeSet<_> = self.ports().collect();
        let downs = |event: &&Event<'_>| event.port.is_some() && !event.up;
        let number = self.events.iter().filter(downs).count();
        let switches: BTreeSet<&str> = self.events.iter().map(|event| event.switch).collect();
        for switch in switches {
            self.together(switch);
        }
        self.links();
        let first = self.events.first().map_or("", |event| event.shown);
        let last = self.events.last().map_or("", |event| event.shown);
        let mut answer = format!(
            "link messages from {first} to {last}: {number} times down at {} ports",
            ports.len()
        );
        let by_hand = self
            .events
            .iter()
            .filter(|event| downs(event) && event.by_hand)
            .count();
        if by_hand > 0 {
            answer += &format!(", {by_hand} of them switched off by an operator");
        }
        report.answer.push(answer);
        report.answer.append(&mut self.answer);
        report.findings.append(&mut self.findings);
    }

    fn ports(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let events = self.events.iter();
        events.filter_map(|event| Some((event.switch, event.port?)))
    }

    /// Links of a switch that go down together.
    fn together(&mut self, switch: &str) {
        let named: BTreeSet<_> = self.ports().filter(|(of, _)| *of == switch).collect();
        let fewest = ((named.len() as f64 * SHARE_TOGETHER).ceil() as usize).max(FEWEST_TOGETHER);
        let downs: Vec<usize> = (0..self.events.len())
            .filter(|at| {
                let event = &self.events[*at];
                event.switch == switch && event.port.is_some() && !event.up && !self.explained[*at]
            })
            .collect();
        let mut from = 0;
        while let Some(begin) = downs.get(from) {
            let begin = &self.events[*begin];
            let until = downs.partition_point(|at| self.events[*at].at <= begin.at + TOGETHER);
            let group = &downs[from..until];
            let links: BTreeSet<_> = group
                .iter()
                .filter_map(|at| self.events[*at].port)
                .collect();
            if links.len() < fewest {
                from += 1;
                continue;
            }
            let names: Vec<String> = links.iter().map(|name| (*name).to_owned()).collect();
            self.name_group(begin, &names);
            for at in group {
                self.explained[*at] = true;
            }
            from = until;
        }
    }

    fn name_group(&mut self, begin: &Event<'_>, names: &[String]) {
        let near = |event: &&Event<'_>| {
            event.port.is_none()
                && event.switch == begin.switch
                && (event.at - begin.at).abs() <= RESTART
        };
        let of = if begin.switch.is_empty() {
            "the switch"
        } else {
            begin.switch
        };
        let (at, count, some) = (begin.shown, names.len(), some(names));
        if let Some(restart) = self.events.iter().find(near) {
            self.answer.push(format!(
                "{at}: {count} links of {of} went down ({some}) with a restart at {}: no fault of the links",
                restart.shown
            ));
        } else {
            self.findings.push(format!(
                "{at}: {count} links of {of} went down within {TOGETHER} s ({some}) without a message of a restart: a common cause, such as power, a line card or the configuration, not {count} bad cables"
            ));
        }
    }

    /// Links that go down alone: those that flap, and those that stayed down.
    fn links(&mut self) {
        let mut by_port: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (at, event) in self.events.iter().enumerate() {
            if let Some(port) = event.port {
                by_port.entry((event.switch, port)).or_default().push(at);
            }
        }
        let mut single = 0;
        for ((switch, port), places) in by_port {
            let name = if switch.is_empty() {
                port.to_owned()
            } else {
                format!("{switch} {port}")
            };
            let is_own = |at: &&usize| !self.events[**at].up && !self.explained[**at];
            let downs: Vec<&Event<'_>> = places
                .iter()
                .filter(is_own)
                .map(|at| &self.events[*at])
                .collect();
            let still = places
                .last()
                .is_some_and(|at| !self.events[*at].up && !self.events[*at].by_hand);
            let (Some(first), Some(last)) = (downs.first(), downs.last()) else {
                if still {
                    self.findings
                        .push(format!("{name}: still down at the end of the log"));
                }
                continue;
            };
            let end = if still {
                ", and is down at the end of the log"
            } else {
                ""
            };
            match downs.len() {
                number if number >= FLAPS => self.findings.push(format!(
                    "{name}: flaps, {number} times down alone from {} to {}{end}: reseat or replace cable and modules",
                    first.shown, last.shown
                )),
                _ if still => self.findings.push(format!(
                    "{name}: down since {}: check the device at the other end, then cable and modules",
                    last.shown
                )),
                number => single += number,
            }
        }
        if single > 0 {
            self.answer
                .push(format!("{single} single downs that ended by themselves"));
        }
    }
}
