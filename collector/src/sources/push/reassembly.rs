//! Reassembles the scrapes of each target from write requests. Pure.
//!
//! A sender splits a scrape into several requests, sends them in parallel, and they arrive in any order. All samples of a scrape
//! have the same timestamp, so a scrape is complete once it has as many samples as the previous one of the target, or after the
//! longest time for which a sender buffers samples. If `up` is sent for a target, only a timestamp with `up` is a scrape: rules
//! write series with the labels of a target and their own timestamps.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{IdentityError, SwitchName};

use super::fragments::{Fragment, Origin};
use crate::config::{About, Push, Target};
use crate::mapping::{Mappings, Reader};
use crate::service::Event;
use crate::store::source_id::Subject;

/// How long an incomplete scrape is buffered: Prometheus sends an incomplete batch after 5 s (`batch_send_deadline`).
const WAIT_SECONDS: f64 = 6.0;
/// A target without samples for this long is removed.
const FORGOTTEN_SECONDS: f64 = 3_600.0;
/// Limit on the number of targets. Samples of further ones are ignored.
const MOST_TARGETS: usize = 100_000;
/// Limit on the buffered text. Above it all scrapes are passed on incomplete; the store adds later samples to them.
const MOST_BYTES: usize = 256 << 20;

/// What the analysis receives.
#[derive(Debug)]
pub(super) enum Output {
    /// The new list of targets.
    Targets(Vec<Target>),
    /// A scrape, and the detected kind of its exporter.
    Scrape(Box<Event>, Option<Arc<str>>),
    /// The text of the scrape that follows, for a recording: target and time of the samples.
    Recorded(Arc<Target>, Timestamp, String),
    /// A target that the sender could not scrape.
    Down(Arc<Target>),
}

/// A scrape that may be incomplete.
#[derive(Debug, Default)]
struct Pending {
    text: String,
    samples: usize,
    /// Whether it includes `up`.
    is_up: bool,
    /// When its first fragment arrived.
    since: Timestamp,
}

/// The target of a source. It is resolved with the first scrape, since `up`, whose labels name it, may arrive last.
#[derive(Debug, Default)]
enum Naming {
    #[default]
    Unresolved,
    Resolved(Arc<Target>, Box<Reader>),
    Invalid,
}

#[derive(Debug, Default)]
struct Source {
    /// The node or switch by its label, if there is one.
    part: Option<String>,
    naming: Naming,
    /// Whether its exporter is a supported one. Samples of others are ignored.
    is_target: bool,
    /// Whether `up` is sent for it.
    has_up: bool,
    /// Incomplete scrapes.
    pending: BTreeMap<Timestamp, Pending>,
    /// The latest scrape that was passed on, and its number of samples.
    latest: (Timestamp, usize),
    /// When its last fragment arrived.
    last_seen: Timestamp,
}

/// The incomplete scrapes of all targets.
#[derive(Debug)]
pub(super) struct Reassembly {
    config: Arc<Push>,
    mappings: Mappings,
    /// Whether the text of scrapes is passed on, too.
    is_recorded: bool,
    sources: BTreeMap<Origin, Source>,
    /// Whether the list of targets differs from the last one that was passed on.
    targets_changed: bool,
    /// Size of all buffered text.
    bytes: usize,
}

impl Reassembly {
    /// Without any target.
    pub(super) fn new(config: Arc<Push>, mappings: Mappings) -> Self {
        Self {
            config,
            mappings,
            is_recorded: false,
            sources: BTreeMap::new(),
            targets_changed: false,
            bytes: 0,
        }
    }

    /// Passes on the text of scrapes, too.
    pub(super) fn record(&mut self) {
        self.is_recorded = true;
    }

    /// Adds the fragments of a request that arrived at `now`; returns the scrapes that are complete with them.
    pub(super) fn add(
        &mut self,
        fragments: BTreeMap<(Origin, Timestamp), Fragment>,
        now: Timestamp,
    ) -> Vec<Output> {
        let mut outputs = Vec::new();
        for ((origin, at), fragment) in fragments {
            if fragment.has_ended {
                self.forget(&origin);
            } else {
                self.add_one(&origin, at, &fragment, now, &mut outputs);
            }
        }
        self.pass_on_targets(&mut outputs);
        if self.bytes > MOST_BYTES {
            outputs.extend(self.release(now, 0.0));
        }
        outputs
    }

    /// Passes on scrapes that were buffered for long enough, and removes targets without samples.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<Output> {
        let mut outputs = self.release(now, WAIT_SECONDS);
        let before = self.sources.len();
        let is_alive = |source: &Source| now.seconds_since(source.last_seen) <= FORGOTTEN_SECONDS;
        self.sources.retain(|_, source| is_alive(source));
        self.targets_changed |= self.sources.len() < before;
        self.pass_on_targets(&mut outputs);
        outputs
    }

    fn add_one(
        &mut self,
        origin: &Origin,
        at: Timestamp,
        fragment: &Fragment,
        now: Timestamp,
        outputs: &mut Vec<Output>,
    ) {
        let is_full = self.sources.len() >= MOST_TARGETS;
        let source = match self.sources.entry(origin.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(place) => place.insert(Source::default()),
        };
        source.last_seen = now;
        let is_up = fragment.is_up.is_some();
        let was_target = source.is_target;
        source.rename(fragment);
        self.targets_changed |= was_target && !source.is_target;
        if fragment.is_up == Some(false) {
            source.resolve(origin, &self.config, &self.mappings);
            self.targets_changed |= source.is_target && !was_target;
            let target = source.target().filter(|_| source.is_target);
            self.pass_on_targets(outputs);
            outputs.extend(target.map(Output::Down));
            return;
        }
        if fragment.samples == 0 && !is_up {
            return;
        }
        source.has_up |= is_up;
        self.bytes += fragment.text.len();
        let pending = source.pending.entry(at).or_insert_with(|| Pending {
            since: now,
            ..Pending::default()
        });
        pending.text += &fragment.text;
        pending.samples += fragment.samples;
        pending.is_up |= is_up;
        let (latest, expected) = source.latest;
        let is_scrape = pending.is_up || !source.has_up;
        if at > latest && expected > 0 && pending.samples >= expected && is_scrape {
            let released =
                source.release(origin, at, &self.config, &self.mappings, self.is_recorded);
            self.pass_on(vec![released], outputs);
        }
    }

    /// Passes on scrapes that were buffered for at least this many seconds.
    fn release(&mut self, now: Timestamp, seconds: f64) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut released = Vec::new();
        for (origin, source) in &mut self.sources {
            let waits = |pending: &Pending| now.seconds_since(pending.since) >= seconds;
            let mut from_latest = source.pending.iter().rev();
            if let Some((&until, _)) = from_latest.find(|(_, pending)| waits(pending)) {
                released.push(source.release(
                    origin,
                    until,
                    &self.config,
                    &self.mappings,
                    self.is_recorded,
                ));
            }
        }
        self.pass_on(released, &mut outputs);
        outputs
    }

    fn pass_on(&mut self, released: Vec<(Released, bool)>, outputs: &mut Vec<Output>) {
        for (scrapes, is_new) in &released {
            self.bytes -= scrapes.bytes;
            self.targets_changed |= is_new;
        }
        // The analysis receives a target before its first scrape.
        self.pass_on_targets(outputs);
        outputs.extend(
            released
                .into_iter()
                .flat_map(|(scrapes, _)| scrapes.outputs),
        );
    }

    fn forget(&mut self, origin: &Origin) {
        if let Some(source) = self.sources.remove(origin) {
            self.targets_changed |= source.is_target;
            let pending = source.pending.values();
            self.bytes -= pending.map(|pending| pending.text.len()).sum::<usize>();
        }
    }

    /// Passes on the list of targets if it has changed.
    fn pass_on_targets(&mut self, outputs: &mut Vec<Output>) {
        if !std::mem::take(&mut self.targets_changed) {
            return;
        }
        let targets = self.sources.values().filter(|source| source.is_target);
        let targets = targets.filter_map(Source::target);
        let mut targets: Vec<_> = targets.map(|target| Target::clone(&target)).collect();
        targets.sort();
        targets.dedup();
        outputs.push(Output::Targets(targets));
    }
}

/// Scrapes that are passed on, and their size.
#[derive(Debug, Default)]
struct Released {
    outputs: Vec<Output>,
    bytes: usize,
}

impl Source {
    /// Updates the label of the node or switch: from `up`, or without `up` from the first series that has the label.
    fn rename(&mut self, fragment: &Fragment) {
        let is_up = fragment.is_up.is_some();
        let is_open =
            !self.has_up && self.part.is_none() && matches!(self.naming, Naming::Unresolved);
        if fragment.part != self.part && (is_up || is_open) {
            self.part.clone_from(&fragment.part);
            (self.naming, self.is_target) = (Naming::Unresolved, false);
        }
    }

    /// Resolves the target, once. One with a configured kind needs no detection.
    fn resolve(&mut self, origin: &Origin, config: &Push, mappings: &Mappings) {
        if let Naming::Unresolved = self.naming {
            self.naming = match target_of(origin, self.part.as_deref(), config) {
                Ok(target) => {
                    let target = Arc::new(target);
                    let reader = Reader::new(Arc::clone(&target), mappings.clone());
                    Naming::Resolved(target, Box::new(reader))
                }
                Err(why) => {
                    let (job, instance) = (&origin.job, &origin.instance);
                    tracing::warn!(
                        job,
                        instance,
                        "pushed samples: no valid name of a node or switch, they are ignored: {why}"
                    );
                    Naming::Invalid
                }
            };
        }
        self.is_target |= self.target().is_some_and(|target| target.kind.is_some());
    }

    fn target(&self) -> Option<Arc<Target>> {
        match &self.naming {
            Naming::Resolved(target, _) => Some(Arc::clone(target)),
            _ => None,
        }
    }

    /// Scrapes up to this timestamp, in order, and whether the target is new with them.
    fn release(
        &mut self,
        origin: &Origin,
        until: Timestamp,
        config: &Push,
        mappings: &Mappings,
        is_recorded: bool,
    ) -> (Released, bool) {
        let later = self.pending.split_off(&Timestamp(until.0 + 1));
        let mut out = Released::default();
        let was_target = self.is_target;
        self.resolve(origin, config, mappings);
        for (at, pending) in std::mem::replace(&mut self.pending, later) {
            out.bytes += pending.text.len();
            let is_scrape = pending.is_up || !self.has_up || at == self.latest.0;
            if pending.samples == 0 || !is_scrape {
                continue;
            }
            match at.cmp(&self.latest.0) {
                Ordering::Greater => self.latest = (at, pending.samples),
                Ordering::Equal => self.latest.1 += pending.samples,
                Ordering::Less => {}
            }
            let Naming::Resolved(target, reader) = &mut self.naming else {
                continue;
            };
            self.is_target = self.is_target || mappings.recognize(&pending.text).is_some();
            if self.is_target {
                if is_recorded {
                    let text = pending.text.clone();
                    out.outputs
                        .push(Output::Recorded(Arc::clone(target), at, text));
                }
                let event = reader.event(pending.text, at, None);
                out.outputs
                    .push(Output::Scrape(Box::new(event), reader.kind().cloned()));
            }
        }
        (out, self.is_target && !was_target)
    }
}

/// The target of a sender's labels.
pub(crate) fn target_of(
    origin: &Origin,
    part: Option<&str>,
    config: &Push,
) -> Result<Target, IdentityError> {
    let host = origin.instance.rsplit_once(':');
    let host = host.map_or(&*origin.instance, |(host, _)| host);
    let part = part.unwrap_or(host);
    Ok(Target {
        about: match config.about(&origin.job) {
            About::Node => Some(Subject::Node(part.parse()?)),
            About::Switch => Some(Subject::Switch(part.parse::<SwitchName>()?)),
            About::Series => None,
        },
        url: Target::pushed_url(&origin.job, &origin.instance),
        kind: config.kind(&origin.job),
    })
}

#[cfg(test)]
mod tests;
