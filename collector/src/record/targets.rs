//! The targets of a recording: the labels by which its lines name them, and when each was in the list.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use railscope_model::fabric::Timestamp;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::writer::seconds;
use crate::config::Target;
use crate::config::file_sd::{ABOUT, KIND, LISTED, SWITCH};
use crate::mapping::{Mappings, OWN_KIND};
use crate::replay::recorded::{Span, parse_spans};
use crate::store::source_id::Subject;

/// How long a target is kept after its end: the file of a segment is named by whole seconds.
const SLACK_SECONDS: f64 = 60.0;
const PATH: &str = "__metrics_path__";

/// A group of a file_sd file.
#[derive(Serialize, Deserialize)]
struct Group {
    targets: Vec<String>,
    labels: BTreeMap<String, String>,
}

/// Labels `job` and `instance`.
type Key = (String, String);

#[derive(Debug)]
struct Entry {
    address: String,
    /// All but `__railscope_listed`.
    labels: BTreeMap<String, String>,
    spans: Vec<Span>,
    is_listed: bool,
}

/// All targets, also former ones.
#[derive(Debug, Default)]
pub(super) struct TargetLog {
    entries: BTreeMap<Key, Entry>,
    /// Those in the list: the members of a line that name them.
    listed: HashMap<Target, (Arc<str>, Key)>,
    /// Counts the changes.
    version: u64,
    saved: u64,
}

impl TargetLog {
    /// Adds the targets of an earlier recording in the same folder: older lines refer to them.
    pub(super) fn load(&mut self, text: &str, mappings: &Mappings, now: Timestamp) {
        let groups: Vec<Group> = match serde_json::from_str(text) {
            Ok(groups) => groups,
            Err(error) => {
                tracing::warn!("recording: targets of an earlier recording are lost: {error}");
                return;
            }
        };
        for Group {
            targets,
            mut labels,
        } in groups
        {
            let Some(address) = targets.into_iter().next() else {
                continue;
            };
            let label = |name| labels.get(name).cloned().unwrap_or_default();
            let key = (label("job"), label("instance"));
            // Its mapping is no longer configured: without one it is detected.
            if labels
                .get(KIND)
                .is_some_and(|kind| mappings.check_kind(kind).is_err())
            {
                labels.remove(KIND);
                labels.remove(ABOUT);
            }
            let listed = labels.remove(LISTED).unwrap_or_default();
            let spans = parse_spans(&listed).unwrap_or_default();
            let spans = spans.into_iter();
            let entry = Entry {
                address,
                labels,
                spans: spans
                    .map(|(from, until)| (from, until.or(Some(now.max(from)))))
                    .collect(),
                is_listed: false,
            };
            self.entries.insert(key, entry);
        }
    }

    /// The members of a line that name the target; none if it is not in the list.
    pub(super) fn members(&self, target: &Target) -> Option<Arc<str>> {
        let (members, _) = self.listed.get(target)?;
        Some(Arc::clone(members))
    }

    /// Replaces the targets that are scraped, or those that are pushed.
    pub(super) fn set(&mut self, targets: &[Target], are_pushed: bool, now: Timestamp) {
        let new: BTreeSet<_> = targets.iter().collect();
        let entries = &mut self.entries;
        let before = self.listed.len();
        self.listed.retain(|target, (_, key)| {
            let stays = target.is_pushed() != are_pushed || new.contains(target);
            if !stays && let Some(entry) = entries.get_mut(key) {
                entry.is_listed = false;
                if let Some((from, until)) = entry.spans.last_mut() {
                    *until = Some(now.max(*from));
                }
            }
            stays
        });
        let mut has_changed = self.listed.len() < before;
        for target in new {
            if !self.listed.contains_key(target) {
                has_changed |= self.add(target, now);
            }
        }
        self.version += u64::from(has_changed);
    }

    fn add(&mut self, target: &Target, now: Timestamp) -> bool {
        let Some(described) = Described::of(target) else {
            return false;
        };
        // Several targets may differ by what is not recorded, such as the query: they get a number.
        let mut number = 1;
        let (key, entry) = loop {
            let (key, new) = described.entry(number);
            let is_free = |entry: &Entry| {
                !entry.is_listed && entry.address == new.address && entry.labels == new.labels
            };
            match self.entries.get(&key) {
                Some(entry) if !is_free(entry) => number += 1,
                _ => break (key, new),
            }
        };
        let members = format!(
            "\"job\":{},\"instance\":{}",
            serde_json::Value::from(&*key.0),
            serde_json::Value::from(&*key.1)
        );
        let entry = self.entries.entry(key.clone()).or_insert(entry);
        entry.is_listed = true;
        match entry.spans.last_mut() {
            Some((_, until)) if *until == Some(now) => *until = None,
            _ => entry.spans.push((now, None)),
        }
        self.listed.insert(target.clone(), (members.into(), key));
        true
    }

    /// The file, if it is to be written; it omits what ended before the oldest scrape.
    pub(super) fn unsaved(&mut self, oldest: Option<Timestamp>) -> Option<(u64, String)> {
        if self.version == self.saved {
            return None;
        }
        let is_used = |(_, until): &Span| match (until, oldest) {
            (Some(until), Some(oldest)) => oldest.seconds_since(*until) <= SLACK_SECONDS,
            _ => true,
        };
        self.entries.retain(|_, entry| {
            entry.spans.retain(is_used);
            entry.is_listed || !entry.spans.is_empty()
        });
        let groups = self.entries.values().map(|entry| {
            let spans = entry.spans.iter().map(|(from, until)| {
                let until = until.map(seconds).unwrap_or_default();
                format!("{}-{until}", seconds(*from))
            });
            let spans: Vec<_> = spans.collect();
            let mut labels = entry.labels.clone();
            labels.insert(LISTED.to_owned(), spans.join(" "));
            Group {
                targets: vec![entry.address.clone()],
                labels,
            }
        });
        let groups: Vec<_> = groups.collect();
        let text = serde_json::to_string_pretty(&groups).ok()?;
        Some((self.version, text + "\n"))
    }

    /// Notes that this version was written.
    pub(super) fn saved(&mut self, version: u64) {
        self.saved = version;
    }
}

/// A target without what may be secret: user, password and query of its URL.
struct Described {
    job: String,
    instance: String,
    address: String,
    path: String,
    labels: BTreeMap<String, String>,
}

impl Described {
    fn of(target: &Target) -> Option<Self> {
        let mut labels = BTreeMap::new();
        let mut label = |name: &str, value: &str| labels.insert(name.to_owned(), value.to_owned());
        match &target.about {
            Some(Subject::Node(node)) => label("node", node.as_str()),
            Some(Subject::Switch(switch)) => label(SWITCH, switch.as_str()),
            None => label(ABOUT, "series"),
        };
        if let Some(kind) = &target.kind {
            label(KIND, kind);
        }
        if let Some((job, instance)) = target.pushed_labels() {
            // Nothing responds there: the address only has to be unique for each target.
            let mut url = Url::parse("http://pushed/").ok()?;
            url.path_segments_mut()
                .ok()?
                .clear()
                .push(job)
                .push(instance);
            return Some(Self {
                job: job.to_owned(),
                instance: instance.to_owned(),
                address: String::from("pushed:80"),
                path: url.path().to_owned(),
                labels,
            });
        }
        let url = Url::parse(&target.url).ok()?;
        let address = format!("{}:{}", url.host_str()?, url.port_or_known_default()?);
        if url.scheme() != "http" {
            label("__scheme__", url.scheme());
        }
        let path = url.path().to_owned();
        Some(Self {
            job: target.kind.as_deref().unwrap_or(OWN_KIND).to_owned(),
            instance: match &*path {
                "/metrics" => address.clone(),
                path => format!("{address}{path}"),
            },
            address,
            path,
            labels,
        })
    }

    fn entry(&self, number: usize) -> (Key, Entry) {
        let suffix = match number {
            1 => String::new(),
            number => format!("#{number}"),
        };
        let mut labels = self.labels.clone();
        let instance = format!("{}{suffix}", self.instance);
        let path = format!("{}{suffix}", self.path);
        labels.insert(String::from("job"), self.job.clone());
        labels.insert(String::from("instance"), instance.clone());
        if path != "/metrics" {
            labels.insert(PATH.to_owned(), path);
        }
        let entry = Entry {
            address: self.address.clone(),
            labels,
            spans: Vec::new(),
            is_listed: false,
        };
        ((self.job.clone(), instance), entry)
    }
}
