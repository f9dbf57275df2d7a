//! Translates the scrapes of one target into our readings. The series are matched once, then
//! cached.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use railscope_model::exposition::{self, Line, Series, Type};
use railscope_model::fabric::Timestamp;
use railscope_model::metric::{Kind, Metric};
use railscope_model::reading::{Labels, NodeReading};

use crate::mapping::combined::Combined;
use crate::mapping::rows::{Answer, Found, Mapping, Row};
use crate::store::source_id::Subject;
use crate::store::{Ingested, NODE_SERIES_LIMIT};

/// Keys are hashes already, or short: one fixed hasher, so that equal input gives equal output.
type Fixed = foldhash::fast::FixedState;

/// Maximum number of metric names that are stored for a target. Real exporters have less than 2,000.
const NAMES_LIMIT: usize = 10_000;

/// How long the value of a series that is no longer exported is reported: as long as a lost cable is remembered. After that it counts
/// as removed.
const ABSENT_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// Number of consecutive expositions from which a series must be missing: a device may fail to answer one query.
const ABSENT_EXPOSITIONS: u32 = 3;

/// Maximum number of series that are remembered for that: switch ports of 100,000 GPUs, and more.
const ABSENT_LIMIT: usize = 1 << 19;

/// Labels of a series that stand elsewhere: in its name, or on a joined series.
type Pairs = Vec<(String, String)>;

/// The name of a host as a scrape body reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedHost {
    /// The name.
    pub name: String,
    /// Whether it is the kernel's: others may be of pods.
    pub is_kernels: bool,
}

/// What a scrape reported, by the part that it reported about.
#[derive(Debug, Default)]
pub struct Translation {
    /// Readings, in the order in which their subjects were first met.
    pub readings: Vec<(Subject, NodeReading)>,
    /// What became of the samples; those that are kept are counted where they are ingested.
    pub counts: Ingested,
    /// Why the first sample that a row wanted could not be taken.
    pub unfit: Option<String>,
    /// The host that it names, of a target about a node.
    pub host: Option<ReportedHost>,
}

/// Translates the scrapes of one target.
#[derive(Debug)]
pub struct Translator {
    mapping: Arc<Mapping>,
    /// The part that the target reports about; none where every series must name it.
    about: Option<Subject>,
    /// Hash of a name -> the rows that match it.
    names: HashMap<u64, Arc<[Candidate]>, Fixed>,
    /// Hash of a line up to its value -> its series.
    lines: HashMap<u64, Arc<Placed>, Fixed>,
    /// Labels that joins found in the scrape before: if they change, lines mean something else.
    joined: Joined,
    subjects: Vec<Subject>,
    series: Vec<Ours>,
    /// Where subjects and series are in these two.
    subject_places: HashMap<Subject, usize, Fixed>,
    series_places: HashMap<(usize, u16, Labels), usize, Fixed>,
}

/// (join, values of its `on` labels) -> labels.
type Joined = HashMap<(usize, Vec<String>), Pairs, Fixed>;

/// The values of these labels, if the series has them all.
fn values<'a>(
    series: &Series<'_>,
    labels: impl Iterator<Item = &'a String>,
) -> Option<Vec<String>> {
    labels
        .map(|label| series.label(label).map(Into::into))
        .collect()
}

/// A row that matches a name.
#[derive(Debug)]
struct Candidate {
    row: usize,
    captured: Pairs,
    /// Why none of its samples can be used.
    unfit: Option<String>,
}

/// The series that a line maps to.
#[derive(Debug, Default)]
struct Placed {
    places: Vec<Place>,
    /// Why a row that matches cannot use it.
    unfit: Option<String>,
}

/// One of our series that a line maps to.
#[derive(Debug)]
struct Place {
    row: usize,
    series: usize,
    /// The value, where it is in the labels.
    fixed: Option<f64>,
}

/// One series of ours.
#[derive(Debug)]
struct Ours {
    subject: usize,
    metric: &'static Metric,
    labels: Labels,
    value: Combined,
    /// Its value while it is not exported, when it was last exported, and the number of expositions without it since.
    absent: Option<f64>,
    seen: Option<Timestamp>,
    missed: u32,
}

impl Translator {
    /// Translates scrapes of a target that reports about `about`, or about the parts that its
    /// series name.
    pub fn new(mapping: Arc<Mapping>, about: Option<Subject>) -> Self {
        Self {
            mapping,
            about,
            names: HashMap::default(),
            lines: HashMap::default(),
            joined: Joined::default(),
            subjects: Vec::new(),
            series: Vec::new(),
            subject_places: HashMap::default(),
            series_places: HashMap::default(),
        }
    }

    /// The mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Reads a scrape that was fetched at `at`.
    pub fn translate(&mut self, page: &str, at: Timestamp) -> Translation {
        let mut out = Translation::default();
        self.join(page);
        let mut types = HashMap::new();
        let mut samples = 0;
        let mut lines = exposition::parse(page);
        while let Some(line) = lines.next() {
            match line {
                Ok(Line::Series(series)) => {
                    samples += 1;
                    self.take(&series, &types, &mut out);
                }
                Ok(Line::Type(family, kind)) => {
                    types.insert(family, kind);
                }
                Ok(Line::End) => {}
                Err(error) => out.counts.refuse_line(error),
            }
            if out.counts.is_hopeless() {
                out.counts.leave(lines.rest());
                break;
            }
        }
        let is_whole = out.counts.errors.is_empty() && out.counts.over_limit == 0;
        out.readings = self.readings(at, is_whole);
        // Series with ever-changing labels must not accumulate, nor displace others.
        let is_full = out.counts.over_limit > 0 || self.names.len() >= NAMES_LIMIT;
        if is_full || self.lines.len() > 4 * samples + 64 {
            self.forget();
        }
        out
    }

    /// Maximum number of cached lines and joined labels: the history of one node or switch stores no more. A scrape body about
    /// several nodes is bounded by its size.
    fn lines_limit(&self) -> usize {
        match self.about {
            Some(_) => 2 * NODE_SERIES_LIMIT,
            None => usize::MAX,
        }
    }

    /// Forgets everything except series that have a value while they are not exported.
    fn forget(&mut self) {
        self.names.clear();
        self.lines.clear();
        self.series_places.clear();
        self.subject_places.clear();
        let subjects = std::mem::take(&mut self.subjects);
        let series = std::mem::take(&mut self.series);
        let kept = series.into_iter().filter(|ours| ours.absent.is_some());
        for ours in kept.take(ABSENT_LIMIT) {
            self.enlist(subjects[ours.subject].clone(), ours);
        }
    }

    /// Collects the labels of joined series before any line needs them.
    fn join(&mut self, page: &str) {
        if self.mapping.joins.is_empty() {
            return;
        }
        let mut joined = Joined::default();
        for line in exposition::parse(page) {
            let Ok(Line::Series(series)) = line else {
                continue;
            };
            for (index, join) in self.mapping.joins.iter().enumerate() {
                if !join.from.is_match(series.name) {
                    continue;
                }
                let Some(key) = values(&series, join.on.keys()) else {
                    continue;
                };
                if joined.len() < self.lines_limit() {
                    joined.insert((index, key), join.given(&series));
                }
            }
        }
        if joined != self.joined {
            self.forget();
            self.joined = joined;
        }
    }

    fn take(&mut self, series: &Series<'_>, types: &HashMap<&str, Type>, out: &mut Translation) {
        let hash = |text: &[&str]| {
            let mut hasher = Fixed::default().build_hasher();
            text.iter().for_each(|text| hasher.write(text.as_bytes()));
            hasher.finish()
        };
        let name = hash(&[series.name]);
        let candidates = match self.names.get(&name) {
            Some(candidates) => Arc::clone(candidates),
            None if self.names.len() >= NAMES_LIMIT => Arc::default(),
            None => {
                let candidates = self.candidates(series.name, types);
                self.names.insert(name, Arc::clone(&candidates));
                candidates
            }
        };
        if candidates.is_empty() {
            out.counts.unknown += 1;
            return;
        }
        let line = hash(&[series.name, "{", series.raw_labels()]);
        let placed = match self.lines.get(&line) {
            Some(placed) => Arc::clone(placed),
            None if self.lines.len() >= self.lines_limit() => {
                out.counts.over_limit += 1;
                return;
            }
            None => {
                let placed = Arc::new(self.place(series, &candidates));
                self.lines.insert(line, Arc::clone(&placed));
                placed
            }
        };
        match &placed.unfit {
            Some(why) => out.refuse(|| why.clone()),
            None if placed.places.is_empty() => out.counts.unknown += 1,
            None => {}
        }
        for place in &placed.places {
            let row = &self.mapping.rows[place.row];
            match place.fixed.or_else(|| row.value(series.value)) {
                Some(value) => self.series[place.series].value.add(value, row.combine),
                None => out.refuse(|| format!("{} has the value {}", series.name, series.value)),
            }
        }
    }

    fn joined_labels(&self, series: &Series<'_>) -> Pairs {
        let found = |(index, join): (usize, &crate::mapping::rows::Join)| {
            self.joined.get(&(index, values(series, join.on.values())?))
        };
        let joins = self.mapping.joins.iter().enumerate();
        joins.filter_map(found).flatten().cloned().collect()
    }

    /// Rows that match this name.
    fn candidates(&self, name: &str, types: &HashMap<&str, Type>) -> Arc<[Candidate]> {
        let declared = types
            .get(name)
            .or_else(|| types.get(name.strip_suffix("_total")?));
        let rows = self.mapping.rows.iter().enumerate();
        rows.filter_map(|(index, row)| {
            let captures = row.from.captures(name)?;
            let groups = row.from.capture_names().flatten();
            let pair =
                |group: &str| Some((group.to_owned(), captures.name(group)?.as_str().into()));
            Some(Candidate {
                row: index,
                captured: groups.filter_map(pair).collect(),
                unfit: mistyped(row, declared.copied()),
            })
        })
        .collect()
    }

    /// Finds the series that a line maps to.
    fn place(&mut self, series: &Series<'_>, candidates: &[Candidate]) -> Placed {
        let joined = self.joined_labels(series);
        let mapping = Arc::clone(&self.mapping);
        let mut placed = Placed::default();
        for candidate in candidates {
            let row = &mapping.rows[candidate.row];
            let found = Found {
                series,
                captured: &candidate.captured,
                joined: &joined,
            };
            let answer = match &candidate.unfit {
                Some(why) => Answer::Unfit(why.clone()),
                None => row.translate(&found),
            };
            match answer {
                Answer::Taken {
                    subject,
                    labels,
                    fixed,
                } => {
                    let subject = subject.or_else(|| self.about.clone());
                    match subject.filter(|subject| row.is_about(subject)) {
                        Some(subject) => placed.places.push(Place {
                            row: candidate.row,
                            series: self.ours(subject, row, labels),
                            fixed,
                        }),
                        None => {
                            let name = row.to.name;
                            placed.refuse(|| {
                                format!(
                                    "{name} is about neither a node nor a switch that can have it"
                                )
                            });
                        }
                    }
                }
                Answer::NotMine => {}
                Answer::Unfit(why) => placed.refuse(|| format!("{}: {why}", series.name)),
            }
        }
        placed
    }

    /// Finds or makes a series of ours.
    fn ours(&mut self, subject: Subject, row: &Row, labels: Labels) -> usize {
        let ours = Ours {
            subject: 0,
            metric: row.to,
            labels,
            value: Combined::new(row.combine),
            absent: row.absent,
            seen: None,
            missed: 0,
        };
        self.enlist(subject, ours)
    }

    /// Finds a series of this subject, or adds this one.
    fn enlist(&mut self, subject: Subject, ours: Ours) -> usize {
        let next = self.subjects.len();
        let place = *self
            .subject_places
            .entry(subject)
            .or_insert_with_key(|subject| {
                self.subjects.push(subject.clone());
                next
            });
        let next = self.series.len();
        let key = (place, ours.metric.index, ours.labels.clone());
        *self.series_places.entry(key).or_insert_with(|| {
            self.series.push(Ours {
                subject: place,
                ..ours
            });
            next
        })
    }

    /// Ends a scrape: the readings of what it reported, and if it was read whole, of what it lacks.
    fn readings(&mut self, at: Timestamp, is_whole: bool) -> Vec<(Subject, NodeReading)> {
        let mut readings: Vec<_> = self
            .subjects
            .iter()
            .map(|subject| (subject.clone(), NodeReading::default()))
            .collect();
        for ours in &mut self.series {
            if ours.value.is_there() {
                (ours.seen, ours.missed) = (Some(at), 0);
            }
            if let Some(value) = ours.value.take(at) {
                let (_, reading) = &mut readings[ours.subject];
                reading.push(ours.metric, &ours.labels, value);
            }
        }
        if is_whole && self.series.iter().any(|ours| ours.absent.is_some()) {
            self.add_absent(&mut readings, at);
        }
        readings.retain(|(_, reading)| !reading.samples().is_empty());
        readings
    }

    /// Adds the values of series that are no longer exported, if something else of their node or switch is. `readings`: those of
    /// all subjects, in their order.
    fn add_absent(&mut self, readings: &mut [(Subject, NodeReading)], at: Timestamp) {
        let is_there: Vec<bool> = readings
            .iter()
            .map(|(_, reading)| !reading.samples().is_empty())
            .collect();
        for ours in self.series.iter_mut().filter(|ours| is_there[ours.subject]) {
            let (Some(value), Some(seen)) = (ours.absent, ours.seen) else {
                continue;
            };
            let away = at.seconds_since(seen);
            if away > 0.0 && away <= ABSENT_KEPT_SECONDS {
                ours.missed = ours.missed.saturating_add(1);
                if ours.missed >= ABSENT_EXPOSITIONS {
                    readings[ours.subject]
                        .1
                        .push(ours.metric, &ours.labels, value);
                }
            }
        }
    }
}

impl Placed {
    fn refuse(&mut self, why: impl FnOnce() -> String) {
        self.unfit.get_or_insert_with(why);
    }
}

impl Translation {
    fn refuse(&mut self, why: impl FnOnce() -> String) {
        self.counts.unfit += 1;
        self.unfit.get_or_insert_with(why);
    }
}

/// Why a name cannot be taken: the scrape declares another type than the mapping expects.
fn mistyped(row: &Row, declared: Option<Type>) -> Option<String> {
    let (Some(expected), Some(declared)) = (row.declared, declared) else {
        return None;
    };
    let same = declared == expected || declared == Type::Unknown || row.to.kind == Kind::Info;
    (!same).then(|| {
        format!("declared as {declared:?}, the mapping expects {expected:?}").to_lowercase()
    })
}
