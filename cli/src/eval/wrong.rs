//! The collector's errors, run by run: where to improve next.

use std::fmt;

use serde::Serialize;

use super::alarm::{Alarm, Level};
use super::draw::Plan;
use super::judge::{About, Verdicts};
use super::simulate::Outcome;

/// Most alarms that are reported beside what went wrong.
const TOLD: usize = 4;

/// How it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A fault whose root cause nothing named.
    Missed,
    /// A fault whose root cause was named after another part.
    NotFirst,
    /// A fault that was named with another class.
    WrongClass,
    /// A page about no fault.
    FalsePage,
    /// A ticket about no fault.
    FalseTicket,
    /// A page or ticket about a fault that had ended.
    AfterEnd,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missed => "missed",
            Self::NotFirst => "not first",
            Self::WrongClass => "wrong class",
            Self::FalsePage => "false page",
            Self::FalseTicket => "false ticket",
            Self::AfterEnd => "after the end",
        })
    }
}

/// One thing that went wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Wrong {
    kind: Kind,
    /// Scenario, with its cause where it draws each.
    scenario: String,
    seed: u64,
    /// Cause and root cause of a fault, class and part of an alarm.
    what: String,
    part: String,
    /// Seconds after the start of the run: onset, or when the alarm opened.
    at_seconds: f64,
    /// A fault that no job and no other part felt.
    unfelt: bool,
    /// What was reported about other parts then.
    said: Vec<String>,
}

impl Wrong {
    /// What it has in common with others: how, what and where.
    pub(super) fn group(&self) -> (Kind, &str, &str) {
        (self.kind, &self.what, &self.scenario)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            scenario,
            seed,
            what,
            part,
            at_seconds,
            unfelt,
            said,
        } = self;
        write!(
            f,
            "{kind}: {what} {part} at {at_seconds:.0} s, {scenario}, seed {seed}"
        )?;
        if *unfelt {
            f.write_str("; no job or other component was affected")?;
        }
        if !said.is_empty() {
            write!(f, "; reported {}", said.join(", "))?;
        }
        Ok(())
    }
}

/// All of a run. `alarms` are those that the results are on.
pub(super) fn of_run(
    plan: &Plan<'_>,
    run: &Outcome,
    alarms: &[Alarm],
    verdicts: &Verdicts,
) -> Vec<Wrong> {
    let wrong = |kind, what: &str, part: String, at_seconds, said| Wrong {
        kind,
        scenario: plan.name(),
        seed: plan.seed,
        what: what.to_owned(),
        part,
        at_seconds,
        unfelt: false,
        said,
    };
    let faults = run.events.iter().zip(&verdicts.faults);
    let of_faults = faults.filter_map(|(event, verdict)| {
        let kind = match (verdict.found, verdict.top[0], verdict.class_right) {
            (false, ..) => Kind::Missed,
            (_, false, _) => Kind::NotFirst,
            (.., Some(false)) => Kind::WrongClass,
            _ => return None,
        };
        let part = event.truth.part.to_string();
        let told = alarms.iter().filter(|alarm| {
            // Of a class that is wrong, what was reported about the part itself.
            (alarm.naming.part == event.truth.part) == (kind == Kind::WrongClass)
        });
        let told = told.take(TOLD).map(told_of).collect();
        Some(Wrong {
            unfelt: !event.truth.is_felt(),
            ..wrong(kind, event.truth.cause, part, event.onset, told)
        })
    });
    let of_alarms = alarms.iter().zip(&verdicts.alarms);
    let of_alarms = of_alarms.filter(|(_, verdict)| {
        // An alarm that names a victim is as wrong as one about nothing.
        matches!(
            verdict.about,
            About::Victim | About::Nothing | About::AfterEnd
        )
    });
    let of_alarms = of_alarms.map(|(alarm, verdict)| {
        let kind = match (verdict.about, verdict.level) {
            (About::AfterEnd, _) => Kind::AfterEnd,
            (_, Level::Page) => Kind::FalsePage,
            (_, Level::Ticket) => Kind::FalseTicket,
        };
        let class = alarm.naming.class.unwrap_or("-");
        let part = alarm.naming.part.to_string();
        let truth = run.events.iter();
        let truth = truth.map(|event| format!("truth {} {}", event.truth.cause, event.truth.part));
        wrong(kind, class, part, alarm.opened, truth.collect())
    });
    of_faults.chain(of_alarms).collect()
}

/// `port-down link/n1:mlx5_0/1 at 120 s`.
fn told_of(alarm: &Alarm) -> String {
    let class = alarm.naming.class.unwrap_or("-");
    format!("{class} {} at {:.0} s", alarm.naming.part, alarm.opened)
}
