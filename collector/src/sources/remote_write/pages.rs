//! Puts pages together again out of what write requests bring of each target. Pure.
//!
//! A sender splits what it scraped over several requests, which it may send side by side and in any order. All samples of one
//! scrape have the same time, so a page is whole once it has as many samples as the target's page before it; if that never comes,
//! it waits as long as a sender may hold a part back. Of a target whose `up` is sent, only what has the time of an `up` is a page:
//! rules give series with the same labels and times of their own.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{IdentityError, SwitchName};

use super::portions::{Origin, Portion};
use crate::config::{About, RemoteWrite, Target};
use crate::mapping::{Mappings, Reader};
use crate::service::Event;
use crate::store::source_id::Subject;

/// How long a page waits for its last sample: Prometheus sends what it has after 5 s (`batch_send_deadline`).
const WAIT_SECONDS: f64 = 6.0;
/// A target of which nothing was pushed for so long is none any more.
const FORGOTTEN_SECONDS: f64 = 3_600.0;
/// Most targets that are told apart.
const MOST_TARGETS: usize = 100_000;
/// Most text that waits. Beyond it all pages go as they are; what follows is added to them.
const MOST_BYTES: usize = 256 << 20;

/// What pushed samples amount to.
#[derive(Debug)]
pub(super) enum Told {
    /// These are the targets now.
    Targets(Vec<Target>),
    /// A page of one, and which exporter it was recognised to be.
    Page(Event, Option<Arc<str>>),
    /// The sender could not scrape it.
    Down(Arc<Target>),
}

/// A page that may lack samples.
#[derive(Debug, Default)]
struct Pending {
    text: String,
    samples: usize,
    /// Whether `up` came with it.
    is_up: bool,
    since: Timestamp,
}

/// Whether a target could be named; that waits for its first page, for its `up` may come late.
#[derive(Debug, Default)]
enum Naming {
    #[default]
    NotYet,
    Named(Arc<Target>, Box<Reader>),
    Impossible,
}

#[derive(Debug, Default)]
struct Source {
    /// What it speaks for, as far as a label says that.
    part: Option<String>,
    naming: Naming,
    /// Whether its pages are of an exporter that is known: of others nothing is taken up.
    is_target: bool,
    /// Whether `up` is sent of it.
    has_up: bool,
    pending: BTreeMap<Timestamp, Pending>,
    /// The newest page that went, and how many samples it had.
    newest: (Timestamp, usize),
    /// When something of it came last.
    heard: Timestamp,
}

/// All targets of which something was pushed.
#[derive(Debug)]
pub(super) struct Pages {
    config: Arc<RemoteWrite>,
    mappings: Mappings,
    sources: BTreeMap<Origin, Source>,
    /// Targets as they were last told.
    told: Vec<Target>,
    bytes: usize,
}

impl Pages {
    /// Without targets yet.
    pub(super) fn new(config: Arc<RemoteWrite>, mappings: Mappings) -> Self {
        Self {
            config,
            mappings,
            sources: BTreeMap::new(),
            told: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes up what a request that came at `now` brought, and returns what is whole by it.
    pub(super) fn take(
        &mut self,
        portions: BTreeMap<(Origin, Timestamp), Portion>,
        now: Timestamp,
    ) -> Vec<Told> {
        let mut told = Vec::new();
        for ((origin, at), portion) in portions {
            if portion.has_ended {
                self.forget(&origin);
            } else {
                self.add(&origin, at, &portion, now, &mut told);
            }
        }
        self.tell_targets(&mut told);
        if self.bytes > MOST_BYTES {
            told.extend(self.release(now, 0.0));
        }
        told
    }

    /// Pages that have waited for long enough, and targets that are none any more.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Told> {
        let mut told = self.release(now, WAIT_SECONDS);
        let lately = |source: &Source| now.seconds_since(source.heard) <= FORGOTTEN_SECONDS;
        self.sources.retain(|_, source| lately(source));
        self.tell_targets(&mut told);
        told
    }

    fn add(
        &mut self,
        origin: &Origin,
        at: Timestamp,
        portion: &Portion,
        now: Timestamp,
        told: &mut Vec<Told>,
    ) {
        let is_full = self.sources.len() >= MOST_TARGETS;
        let source = match self.sources.entry(origin.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(place) => place.insert(Source::default()),
        };
        source.heard = now;
        let is_up = portion.is_up.is_some();
        source.rename(portion);
        if portion.is_up == Some(false) {
            let known = source.name(origin, &self.config, &self.mappings);
            let target = known.then(|| source.target()).flatten();
            self.tell_targets(told);
            told.extend(target.map(Told::Down));
            return;
        }
        if portion.samples == 0 && !is_up {
            return;
        }
        source.has_up |= is_up;
        self.bytes += portion.text.len();
        let pending = source.pending.entry(at).or_insert_with(|| Pending {
            since: now,
            ..Pending::default()
        });
        pending.text += &portion.text;
        pending.samples += portion.samples;
        pending.is_up |= is_up;
        let (newest, expected) = source.newest;
        let is_scrape = pending.is_up || !source.has_up;
        if at > newest && expected > 0 && pending.samples >= expected && is_scrape {
            let (pages, is_new) = source.release(origin, at, &self.config, &self.mappings);
            self.tell(pages, is_new, told);
        }
    }

    /// Pages that have waited for so many seconds.
    fn release(&mut self, now: Timestamp, seconds: f64) -> Vec<Told> {
        let mut told = Vec::new();
        let mut released = Vec::new();
        for (origin, source) in &mut self.sources {
            let waits = |pending: &Pending| now.seconds_since(pending.since) >= seconds;
            let due = source.pending.iter().rev();
            let due = due.filter(|(_, pending)| waits(pending)).map(|(at, _)| *at);
            if let Some(until) = due.max() {
                released.push(source.release(origin, until, &self.config, &self.mappings));
            }
        }
        for (pages, is_new) in released {
            self.tell(pages, is_new, &mut told);
        }
        told
    }

    fn tell(&mut self, pages: Released, is_new: bool, told: &mut Vec<Told>) {
        self.bytes -= pages.bytes;
        if is_new {
            // The analysis hears of a node before its first page arrives.
            self.tell_targets(told);
        }
        told.extend(pages.told);
    }

    fn forget(&mut self, origin: &Origin) {
        if let Some(source) = self.sources.remove(origin) {
            let pending = source.pending.values();
            self.bytes -= pending.map(|pending| pending.text.len()).sum::<usize>();
        }
    }

    /// Tells which targets there are, if they are others than before.
    fn tell_targets(&mut self, told: &mut Vec<Told>) {
        let targets = self.sources.values().filter(|source| source.is_target);
        let targets = targets.filter_map(Source::target);
        let mut targets: Vec<_> = targets.map(|target| Target::clone(&target)).collect();
        targets.sort();
        targets.dedup();
        if targets != self.told {
            self.told.clone_from(&targets);
            told.push(Told::Targets(targets));
        }
    }
}

/// Pages that go.
#[derive(Debug, Default)]
struct Released {
    told: Vec<Told>,
    bytes: usize,
}

impl Source {
    /// Takes up what a portion says of what the target speaks for. Labels of `up` count; without any, those of the first series.
    fn rename(&mut self, portion: &Portion) {
        let is_up = portion.is_up.is_some();
        let is_open = !self.has_up && self.part.is_none() && matches!(self.naming, Naming::NotYet);
        if portion.part != self.part && (is_up || is_open) {
            self.part.clone_from(&portion.part);
            (self.naming, self.is_target) = (Naming::NotYet, false);
        }
    }

    /// Finds out which target this is, once; whether it is one: its kind is told, or its pages were recognised.
    fn name(&mut self, origin: &Origin, config: &RemoteWrite, mappings: &Mappings) -> bool {
        if let Naming::NotYet = self.naming {
            self.naming = match target(origin, self.part.as_deref(), config) {
                Ok(target) => {
                    let target = Arc::new(target);
                    let reader = Reader::new(Arc::clone(&target), mappings.clone());
                    Naming::Named(target, Box::new(reader))
                }
                Err(why) => {
                    let (job, instance) = (&origin.job, &origin.instance);
                    tracing::warn!(
                        job,
                        instance,
                        "pushed samples of no part that can be named: {why}"
                    );
                    Naming::Impossible
                }
            };
        }
        self.is_target |= self.target().is_some_and(|target| target.kind.is_some());
        self.is_target
    }

    fn target(&self) -> Option<Arc<Target>> {
        match &self.naming {
            Naming::Named(target, _) => Some(Arc::clone(target)),
            _ => None,
        }
    }

    /// Pages up to this time, in order, and whether the target is known by them only now.
    fn release(
        &mut self,
        origin: &Origin,
        until: Timestamp,
        config: &RemoteWrite,
        mappings: &Mappings,
    ) -> (Released, bool) {
        let later = self.pending.split_off(&Timestamp(until.0 + 1));
        let mut out = Released::default();
        let was_target = self.is_target;
        self.name(origin, config, mappings);
        for (at, pending) in std::mem::replace(&mut self.pending, later) {
            out.bytes += pending.text.len();
            let is_scrape = pending.is_up || !self.has_up || at == self.newest.0;
            if pending.samples == 0 || !is_scrape {
                continue;
            }
            match at.cmp(&self.newest.0) {
                Ordering::Greater => self.newest = (at, pending.samples),
                Ordering::Equal => self.newest.1 += pending.samples,
                Ordering::Less => {}
            }
            let Naming::Named(_, reader) = &mut self.naming else {
                continue;
            };
            self.is_target = self.is_target || mappings.recognise(&pending.text).is_some();
            if self.is_target {
                let event = reader.event(pending.text, at);
                out.told.push(Told::Page(event, reader.kind().cloned()));
            }
        }
        (out, self.is_target && !was_target)
    }
}

/// The target that its sender names so.
fn target(
    origin: &Origin,
    part: Option<&str>,
    config: &RemoteWrite,
) -> Result<Target, IdentityError> {
    let job = config.job(&origin.job);
    let host = origin.instance.rsplit_once(':');
    let host = host.map_or(&*origin.instance, |(host, _)| host);
    let part = part.unwrap_or(host);
    Ok(Target {
        about: match job.about {
            About::Node => Some(Subject::Node(part.parse()?)),
            About::Switch => Some(Subject::Switch(part.parse::<SwitchName>()?)),
            About::Series => None,
        },
        url: Target::pushed_url(&origin.job, &origin.instance),
        kind: job.kind,
    })
}

#[cfg(test)]
mod tests;
