//! Alarms: what a detector named, from when to when. The one form in which all detectors are
//! evaluated.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use serde::Serialize;

/// Severity of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    /// An operator in working hours.
    Ticket,
    /// The person on call, now.
    Page,
}

/// What a detector names at one time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Naming {
    /// The root cause.
    pub(super) part: Part,
    /// What it may be instead, the likeliest first, of detectors that report it.
    pub(super) instead: Vec<Part>,
    /// What is wrong with it, of detectors that report it.
    pub(super) class: Option<&'static str>,
    /// Its severity.
    pub(super) level: Level,
    /// How sure the detector is that this is a fault, 0 to 1, if it reports it.
    pub(super) posterior: Option<f64>,
    /// Whether the detector reports that a maintenance window explains it.
    pub(super) announced: bool,
    /// The higher, the surer or the worse: orders what one detector names at one time.
    pub(super) score: f64,
}

impl Naming {
    /// A page about one part, from a detector without further details.
    pub(super) fn page(part: Part, score: f64) -> Self {
        Self {
            part,
            instead: Vec::new(),
            class: None,
            level: Level::Page,
            posterior: None,
            announced: false,
            score,
        }
    }
}

/// A naming over time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Alarm {
    /// What it reported last; level and score are the highest that it had.
    pub(super) naming: Naming,
    /// Seconds after the start of the run.
    pub(super) opened: f64,
    /// The first time without it; none if it is open at the end of the run.
    pub(super) closed: Option<f64>,
    /// Its classes, each with its start time.
    pub(super) classes: Vec<(f64, &'static str)>,
}

/// Makes alarms out of what a detector names tick after tick.
#[derive(Debug)]
pub(super) struct AlarmLog {
    /// Ticks without a naming after which an alarm is over.
    hold_ticks: u32,
    open: BTreeMap<Part, (Alarm, u32)>,
    done: Vec<Alarm>,
}

impl AlarmLog {
    /// `hold_ticks` joins namings that come and go into one alarm; 1 joins none.
    pub(super) fn new(hold_ticks: u32) -> Self {
        Self {
            hold_ticks,
            open: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// Adds what is named at a given time.
    pub(super) fn tick(&mut self, seconds: f64, named: Vec<Naming>) {
        for (_, missed) in self.open.values_mut() {
            *missed += 1;
        }
        for naming in named {
            let (alarm, missed) = self.open.entry(naming.part.clone()).or_insert_with(|| {
                let alarm = Alarm {
                    naming: naming.clone(),
                    opened: seconds,
                    closed: None,
                    classes: Vec::new(),
                };
                (alarm, 0)
            });
            *missed = 0;
            let (level, score) = (alarm.naming.level, alarm.naming.score);
            if let Some(class) = naming.class
                && alarm.classes.last().is_none_or(|(_, last)| *last != class)
            {
                alarm.classes.push((seconds, class));
            }
            alarm.naming = naming;
            alarm.naming.level = alarm.naming.level.max(level);
            alarm.naming.score = alarm.naming.score.max(score);
        }
        let (hold, done) = (self.hold_ticks, &mut self.done);
        self.open.retain(|_, (alarm, missed)| {
            let over = *missed >= hold;
            if over {
                alarm.closed = Some(seconds);
                done.push(alarm.clone());
            }
            !over
        });
    }

    /// All alarms in the order in which they opened.
    pub(super) fn finish(mut self) -> Vec<Alarm> {
        self.done
            .extend(self.open.into_values().map(|(alarm, _)| alarm));
        self.done.sort_by(|a, b| {
            let by_time = a.opened.total_cmp(&b.opened);
            by_time.then_with(|| a.naming.part.cmp(&b.naming.part))
        });
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(score: f64) -> Naming {
        Naming::page("gpu/n1:0".parse().expect("a part"), score)
    }

    #[test]
    fn namings_that_come_and_go_are_one_alarm_within_the_hold_and_two_beyond() {
        for (hold, expected) in [
            (1, vec![(1.0, Some(2.0)), (3.0, None)]),
            (2, vec![(1.0, None)]),
        ] {
            let mut log = AlarmLog::new(hold);
            log.tick(1.0, vec![naming(5.0)]);
            log.tick(2.0, vec![]);
            log.tick(3.0, vec![naming(2.0)]);
            let alarms = log.finish();
            let times: Vec<_> = alarms.iter().map(|a| (a.opened, a.closed)).collect();
            assert_eq!(times, expected, "hold {hold}");
            assert_eq!(alarms[0].naming.score, 5.0);
        }
    }
}
