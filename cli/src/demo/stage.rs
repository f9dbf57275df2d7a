//! The stage of the demo: what was broken and repaired, and what Railscope found of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, bail};
use railscope_model::identity::{NodeName, Part};
use railscope_simulator::spec::ClusterSpec;
use serde::Serialize;

use super::clock::{Broken, Hand, Order};
use super::wanted::{Wanted, is_found, named_as};

/// A cluster in which parts can be broken and repaired while it runs.
pub(super) struct Stage {
    hand: Hand,
    seed: u64,
    exporters: BTreeMap<NodeName, String>,
    causes: Vec<&'static str>,
    fabric: ClusterSpec,
    acts: Mutex<Vec<Act>>,
}

/// One fault that was injected.
#[derive(Debug, Clone)]
pub(super) struct Act {
    pub(super) broken: Broken,
    /// Class by which the collector names it; none where it does not.
    named_as: Option<&'static str>,
    pub(super) since: Instant,
    pub(super) ended: Option<Instant>,
    pub(super) found: Option<Found>,
    /// Whether it was reported that nothing was found.
    missed: bool,
}

/// The incident that names a fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Found {
    pub(super) incident: String,
    pub(super) title: String,
    /// Time from the fault to the incident.
    pub(super) after_seconds: f64,
}

/// An act as the API reports it: the truth, and what was found.
#[derive(Debug, Serialize)]
pub(super) struct Said {
    cause: &'static str,
    part: String,
    what: String,
    /// Class by which the collector names it; none where it does not.
    named_as: Option<&'static str>,
    broken_seconds_ago: f64,
    ended_seconds_ago: Option<f64>,
    found: Option<Found>,
}

impl Stage {
    /// The stage of a cluster that can have these causes.
    pub(super) fn new(
        hand: Hand,
        seed: u64,
        exporters: BTreeMap<NodeName, String>,
        (causes, fabric): (Vec<&'static str>, ClusterSpec),
    ) -> Self {
        Self {
            hand,
            seed,
            exporters,
            causes,
            fabric,
            acts: Mutex::default(),
        }
    }

    /// The class by which the collector names a cause on this fabric, if it does.
    pub(super) fn named_as(&self, cause: &str) -> Option<&'static str> {
        named_as(cause, &self.fabric)
    }

    /// What can break here.
    pub(super) fn causes(&self) -> &[&'static str] {
        &self.causes
    }

    fn acts(&self) -> MutexGuard<'_, Vec<Act>> {
        // A panic elsewhere leaves complete entries behind.
        self.acts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Breaks something now and reports about it.
    ///
    /// # Errors
    /// There is no such fault or part, or the part is broken so already.
    pub(super) async fn inject(&self, wanted: &Wanted) -> anyhow::Result<Said> {
        let order = self.order(wanted);
        let broken = self.hand.inject(order).await?;
        println!("\n  BROKEN: {} {}.", broken.truth.part, broken.what);
        match broken.truth.slowdown {
            Some(slowdown) if slowdown > 1.005 => println!(
                "    Every GPU of its job waits for the slowest in each step: all of them now take {slowdown:.2} times as long."
            ),
            Some(_) => println!("    No step takes longer because of it."),
            None => println!("    Every GPU waits in its collective: the job has stalled."),
        }
        let of_node = |node: &NodeName| self.exporters.get(node);
        if let Some(url) = broken.truth.part.node().and_then(of_node) {
            println!("    Exporter of the faulty component: {url}?profile=full");
        }
        let named_as = self.named_as(broken.truth.cause);
        if named_as.is_none() {
            println!("    Railscope does not name this yet: look for its symptoms.");
        }
        let act = Act {
            broken,
            named_as,
            since: Instant::now(),
            ended: None,
            found: None,
            missed: false,
        };
        let said = act.say();
        self.acts().push(act);
        Ok(said)
    }

    fn order(&self, wanted: &Wanted) -> Order {
        let acts = self.acts();
        let lasting = acts.iter().filter(|act| act.is(&wanted.cause, None));
        Order {
            taken: lasting.map(|act| act.broken.truth.part.clone()).collect(),
            // Another part for each of several faults of one cause.
            seed: self.seed + acts.len() as u64,
            wanted: wanted.clone(),
        }
    }

    /// Ends a fault that lasts: the last one of the cause, if no part is given.
    ///
    /// # Errors
    /// There is no such fault.
    pub(super) async fn end(&self, cause: &str, part: Option<&Part>) -> anyhow::Result<Said> {
        let (part, cause) = self.lasting(cause, part)?;
        if !self.hand.end(part.clone(), cause).await? {
            bail!("{part} has no {cause}");
        }
        println!("\n  CLEARED: {part} ({cause}).");
        let mut acts = self.acts();
        let act = acts.iter_mut().rev().find(|act| act.is(cause, Some(&part)));
        let act = act.context("the fault is no longer on the list")?;
        act.ended = Some(Instant::now());
        Ok(act.say())
    }

    fn lasting(&self, cause: &str, part: Option<&Part>) -> anyhow::Result<(Part, &'static str)> {
        let acts = self.acts();
        let act = acts.iter().rev().find(|act| act.is(cause, part));
        let act = act.with_context(|| match part {
            Some(part) => format!("{part} has no {cause} that could end"),
            None => format!("nothing has {cause} that could end"),
        })?;
        Ok((act.broken.truth.part.clone(), act.broken.truth.cause))
    }

    /// All that was broken, in order, with what was found of it.
    pub(super) fn say(&self) -> Vec<Said> {
        self.acts().iter().map(Act::say).collect()
    }

    /// Whether anything was broken.
    pub(super) fn is_touched(&self) -> bool {
        !self.acts().is_empty()
    }

    /// Adds an open incident. If it is the first that names a fault, returns the time since the fault began.
    pub(super) fn take(&self, id: &str, title: &str, part: &str, class: &str) -> Option<f64> {
        let mut acts = self.acts();
        let mut named = acts
            .iter_mut()
            .filter(|act| act.ended.is_none() && is_found(&act.broken.truth, part, class));
        let act = named.find(|act| act.found.is_none())?;
        let after_seconds = act.since.elapsed().as_secs_f64();
        act.found = Some(Found {
            incident: id.to_owned(),
            title: title.to_owned(),
            after_seconds,
        });
        Some(after_seconds)
    }

    /// Whether an incident names something that was broken.
    pub(super) fn explains(&self, part: &str, class: &str) -> bool {
        let acts = self.acts();
        acts.iter()
            .any(|act| is_found(&act.broken.truth, part, class))
    }

    /// Parts of faults that should have been named by now and were not; each is reported once.
    pub(super) fn missed(&self, patience: std::time::Duration) -> Vec<Part> {
        let mut missed = Vec::new();
        for act in self.acts().iter_mut() {
            let truth = &act.broken.truth;
            let due = act.named_as.is_some() && act.ended.is_none();
            if due && act.found.is_none() && !act.missed && act.since.elapsed() > patience {
                act.missed = true;
                missed.push(truth.part.clone());
            }
        }
        missed
    }
}

impl Act {
    /// Whether it lasts and is of this cause, and of this part if one is given.
    fn is(&self, cause: &str, part: Option<&Part>) -> bool {
        let truth = &self.broken.truth;
        self.ended.is_none() && truth.cause == cause && part.is_none_or(|part| truth.part == *part)
    }

    fn say(&self) -> Said {
        let truth = &self.broken.truth;
        Said {
            cause: truth.cause,
            part: truth.part.to_string(),
            what: self.broken.what.clone(),
            named_as: self.named_as,
            broken_seconds_ago: self.since.elapsed().as_secs_f64(),
            ended_seconds_ago: self.ended.map(|at| at.elapsed().as_secs_f64()),
            found: self.found.clone(),
        }
    }
}

impl Said {
    /// Short text of what was found.
    pub(super) fn verdict(&self) -> String {
        match (&self.found, self.named_as) {
            (Some(found), _) => format!("{}, after {:.1} s", found.title, found.after_seconds),
            (None, None) => "not named: only its symptoms show here".to_owned(),
            (None, Some(_)) if self.ended_seconds_ago.is_some() => "not found".to_owned(),
            (None, Some(_)) => "not found yet".to_owned(),
        }
    }

    /// Its state, its times and its part, as cells of a table.
    pub(super) fn cells(&self) -> [String; 4] {
        let ago = |seconds: f64| format!("{seconds:.0} s ago");
        let lasting = self.ended_seconds_ago.map_or_else(
            || "lasts".to_owned(),
            |seconds| format!("cleared {}", ago(seconds)),
        );
        [
            format!("{} {}", self.part, self.what),
            ago(self.broken_seconds_ago),
            lasting,
            self.verdict(),
        ]
    }

    /// Its cause and part, for as long as it can be repaired.
    pub(super) fn lasting(&self) -> Option<(&str, &str)> {
        let lasts = self.ended_seconds_ago.is_none();
        lasts.then_some((self.cause, self.part.as_str()))
    }

    /// Web page of the incident that names it, without a leading slash.
    pub(super) fn incident_path(&self) -> Option<String> {
        let found = self.found.as_ref()?;
        Some(format!("incidents/{}", found.incident))
    }
}
