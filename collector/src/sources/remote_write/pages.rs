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

#[derive(Debug)]
struct Source {
    target: Arc<Target>,
    reader: Reader,
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
    /// None for one whose name is none.
    sources: BTreeMap<Origin, Option<Source>>,
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
                self.add(origin, at, &portion, now, &mut told);
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
        self.sources.retain(|_, source| {
            let heard = source.as_ref().map_or(now, |source| source.heard);
            now.seconds_since(heard) <= FORGOTTEN_SECONDS
        });
        self.tell_targets(&mut told);
        told
    }

    fn add(
        &mut self,
        origin: Origin,
        at: Timestamp,
        portion: &Portion,
        now: Timestamp,
        told: &mut Vec<Told>,
    ) {
        let is_full = self.sources.len() >= MOST_TARGETS;
        let source = match self.sources.entry(origin) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(place) => {
                let source = Source::of(place.key(), &self.config, &self.mappings, now);
                let source = source.inspect_err(|why| {
                    tracing::warn!(origin = ?place.key(), "pushed samples of no part that can be named: {why}");
                });
                place.insert(source.ok())
            }
        };
        let Some(source) = source else { return };
        source.heard = now;
        if portion.is_up == Some(false) {
            let is_new = !source.is_target && source.target.kind.is_some();
            source.is_target |= is_new;
            let target = source.is_target.then(|| Arc::clone(&source.target));
            if is_new {
                self.tell_targets(told);
            }
            told.extend(target.map(Told::Down));
            return;
        }
        let is_up = portion.is_up.is_some();
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
            let (pages, is_new) = source.release(at, &self.mappings);
            self.tell(pages, is_new, told);
        }
    }

    /// Pages that have waited for so many seconds.
    fn release(&mut self, now: Timestamp, seconds: f64) -> Vec<Told> {
        let mut told = Vec::new();
        let mut released = Vec::new();
        for source in self.sources.values_mut().flatten() {
            let waits = |pending: &Pending| now.seconds_since(pending.since) >= seconds;
            let due = source.pending.iter().rev();
            let due = due.filter(|(_, pending)| waits(pending)).map(|(at, _)| *at);
            if let Some(until) = due.max() {
                released.push(source.release(until, &self.mappings));
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
        if let Some(Some(source)) = self.sources.remove(origin) {
            let pending = source.pending.values();
            self.bytes -= pending.map(|pending| pending.text.len()).sum::<usize>();
        }
    }

    /// Tells which targets there are, if they are others than before.
    fn tell_targets(&mut self, told: &mut Vec<Told>) {
        let sources = self.sources.values().flatten();
        let targets = sources.filter(|source| source.is_target);
        let mut targets: Vec<_> = targets
            .map(|source| Target::clone(&source.target))
            .collect();
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
    fn of(
        origin: &Origin,
        config: &RemoteWrite,
        mappings: &Mappings,
        now: Timestamp,
    ) -> Result<Self, IdentityError> {
        let job = config.job(&origin.job);
        let host = origin.instance.rsplit_once(':');
        let host = host.map_or(&*origin.instance, |(host, _)| host);
        let part = origin.part.as_deref().unwrap_or(host);
        let target = Arc::new(Target {
            about: match job.about {
                About::Node => Some(Subject::Node(part.parse()?)),
                About::Switch => Some(Subject::Switch(part.parse::<SwitchName>()?)),
                About::Series => None,
            },
            url: Target::pushed_url(&origin.job, &origin.instance),
            kind: job.kind,
        });
        Ok(Self {
            reader: Reader::new(Arc::clone(&target), mappings.clone()),
            is_target: false,
            target,
            has_up: false,
            pending: BTreeMap::new(),
            newest: (Timestamp(0), 0),
            heard: now,
        })
    }

    /// Pages up to this time, in order, and whether the target is known by them only now.
    fn release(&mut self, until: Timestamp, mappings: &Mappings) -> (Released, bool) {
        let later = self.pending.split_off(&Timestamp(until.0 + 1));
        let mut out = Released::default();
        let was_target = self.is_target;
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
            self.is_target = self.is_target
                || self.target.kind.is_some()
                || mappings.recognise(&pending.text).is_some();
            if self.is_target {
                let event = self.reader.event(pending.text, at);
                out.told
                    .push(Told::Page(event, self.reader.kind().cloned()));
            }
        }
        (out, self.is_target && !was_target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const OWN: &str = "railscope_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1\n";

    fn after(seconds: u64) -> Timestamp {
        Timestamp(NOW.0 + seconds * 1_000)
    }

    fn origin(instance: &str) -> Origin {
        Origin {
            job: String::from("gpu"),
            instance: instance.to_owned(),
            part: None,
        }
    }

    fn portion(text: &str) -> Portion {
        Portion {
            text: text.to_owned(),
            samples: text.lines().count(),
            ..Portion::default()
        }
    }

    fn pages() -> Pages {
        Pages::new(Arc::default(), Mappings::default())
    }

    /// Takes up one portion; what it makes whole, in words.
    fn take(pages: &mut Pages, instance: &str, at: Timestamp, portion: Portion) -> Vec<String> {
        let portions = BTreeMap::from([((origin(instance), at), portion)]);
        said(pages.take(portions, at))
    }

    fn said(told: Vec<Told>) -> Vec<String> {
        let said = |told| match told {
            Told::Targets(targets) => {
                let names: Vec<_> = targets.iter().map(Target::name).collect();
                format!("targets {}", names.join(" "))
            }
            Told::Page(Event::Page { target, page, at }, _) => {
                format!(
                    "{} {} lines at {}",
                    target.name(),
                    page.lines().count(),
                    at.0
                )
            }
            Told::Page(Event::Foreign { target, .. }, kind) => {
                format!("{} {}", target.name(), kind.as_deref().unwrap_or_default())
            }
            Told::Page(..) => String::from("another event"),
            Told::Down(target) => format!("{} is down", target.name()),
        };
        told.into_iter().map(said).collect()
    }

    #[test]
    fn a_page_is_whole_with_as_many_samples_as_the_one_before_whatever_the_order() {
        let mut pages = pages();
        // Of the first one nobody knows how long it will be.
        assert!(take(&mut pages, "n1:1", NOW, portion(OWN)).is_empty());
        assert!(take(&mut pages, "n1:1", NOW, portion(OWN)).is_empty());
        assert!(said(pages.due(after(5))).is_empty());
        let first = ["targets n1", "n1 2 lines at 1000000"];
        assert_eq!(said(pages.due(after(6))), first);
        // Two scrapes side by side, in pieces.
        for at in [after(20), after(10)] {
            assert!(take(&mut pages, "n1:1", at, portion(OWN)).is_empty());
        }
        let whole = take(&mut pages, "n1:1", after(10), portion(OWN));
        assert_eq!(whole, ["n1 2 lines at 1010000"]);
        let whole = take(&mut pages, "n1:1", after(20), portion(&OWN.repeat(2)));
        assert_eq!(whole, ["n1 3 lines at 1020000"], "it has grown");
        // What follows is added, and the next page waits for it.
        assert!(take(&mut pages, "n1:1", after(20), portion(OWN)).is_empty());
        assert_eq!(said(pages.due(after(27))), ["n1 1 lines at 1020000"]);
        assert!(take(&mut pages, "n1:1", after(30), portion(&OWN.repeat(3))).is_empty());
        assert_eq!(pages.bytes, 3 * OWN.len());
        let whole = take(&mut pages, "n1:1", after(30), portion(OWN));
        assert_eq!(whole, ["n1 4 lines at 1030000"]);
        assert_eq!(pages.bytes, 0);
    }

    #[test]
    fn what_has_no_time_of_an_up_is_no_page_once_up_is_sent() {
        let mut pages = pages();
        let up = || Portion {
            is_up: Some(true),
            ..Portion::default()
        };
        let whole = || Portion {
            is_up: Some(true),
            ..portion(&OWN.repeat(2))
        };
        take(&mut pages, "n1:1", NOW, whole());
        take(&mut pages, "n1:1", after(1), portion(OWN));
        let first = ["targets n1", "n1 2 lines at 1000000"];
        assert_eq!(
            said(pages.due(after(7))),
            first,
            "a rule's series are left out"
        );
        // What a rule makes is as long as a page; the page waits for its `up`.
        assert!(take(&mut pages, "n1:1", after(9), portion(&OWN.repeat(2))).is_empty());
        assert!(take(&mut pages, "n1:1", after(10), portion(&OWN.repeat(2))).is_empty());
        let whole = take(&mut pages, "n1:1", after(10), up());
        assert_eq!(whole, ["n1 2 lines at 1010000"]);
        assert_eq!(pages.bytes, 0);
        // What comes behind is of the same scrape.
        take(&mut pages, "n1:1", after(10), portion(OWN));
        assert_eq!(said(pages.due(after(16))), ["n1 1 lines at 1010000"]);
    }

    #[test]
    fn another_exporter_is_recognised_and_what_nobody_knows_is_no_target() {
        let mut pages = pages();
        let dcgm = "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\",Hostname=\"n2\"} 40\n";
        take(&mut pages, "n2:9400", NOW, portion(dcgm));
        take(&mut pages, "n3:80", NOW, portion("http_requests_total 4\n"));
        take(&mut pages, "", NOW, portion(OWN));
        take(
            &mut pages,
            "c:1",
            NOW,
            portion("railscope_incident_active{node=\"n9\"} 1\n"),
        );
        let told = said(pages.due(after(6)));
        assert_eq!(told, ["targets n2", "n2 dcgm-exporter"]);
    }

    #[test]
    fn a_target_is_down_when_its_sender_says_so_and_ends_with_it_or_with_time() {
        let mut pages = pages();
        for instance in ["n1:1", "n2:1"] {
            take(&mut pages, instance, NOW, portion(OWN));
        }
        pages.due(after(6));
        let down = || Portion {
            is_up: Some(false),
            ..Portion::default()
        };
        assert_eq!(take(&mut pages, "n1:1", after(10), down()), ["n1 is down"]);
        let ended = Portion {
            has_ended: true,
            ..Portion::default()
        };
        let told = take(&mut pages, "n1:1", after(20), ended);
        assert_eq!(told, ["targets n2"]);
        assert!(said(pages.due(after(3_600))).is_empty());
        assert_eq!(said(pages.due(after(3_601))), ["targets "]);
    }
}
