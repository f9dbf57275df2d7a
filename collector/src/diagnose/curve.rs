//! The deciding counter of each open incident around its onset: the part's own series beside those of its peers.
//!
//! The history keeps minutes and forgets; a reader wants to see the counter before the incident
//! and since. So each open incident has a recording, bounded in points and in peers.

mod series;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;
use railscope_model::metric::{Kind, Metric};
use railscope_model::reading::Labels;

use self::series::{Found, Series, find, history_of, reading};
use crate::classes::Class;
use crate::detect::detector::{Evidence, Plotted, View};
use crate::diagnose::incident::Incident;
use crate::jobs::job::Jobs;
use crate::store::{History, NodeHistory};

/// Most incidents that are recorded, the worst first: a mass link loss has one root cause, and an operator does not read
/// more.
pub const MOST_RECORDED: usize = 64;
/// Most points of one curve: two pixels each on a phone.
pub const MOST_POINTS: usize = 120;
/// Most peers of one curve: the 10th and 90th percentile of so many are within 2 % of those of all.
pub const MOST_PEERS: usize = 256;
/// How long before the onset a curve begins, limited by the history.
pub const BEFORE_SECONDS: f64 = 60.0;
/// How long after the onset no point is thinned out while there are others.
pub const AROUND_SECONDS: f64 = 180.0;
/// Pieces of evidence that are tried for a series, the strongest first.
const MOST_ASKED: usize = 8;
/// Fewest peers that make a median.
const FEWEST_PEERS: usize = 3;
/// A part that has not been read for so long has a gap in its curve.
const GAP_SECONDS: f64 = 30.0;

/// The input of a tick.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The graph of parts.
    pub fabric: &'a Fabric,
    /// What nodes and switches reported lately.
    pub history: &'a History,
    /// Peers are of the same job where there is one.
    pub jobs: &'a Jobs,
    /// Time of the tick.
    pub now: Timestamp,
}

impl<'a> Seen<'a> {
    /// What detectors saw.
    pub(crate) fn of(view: &View<'a>) -> Self {
        Self {
            fabric: view.fabric,
            history: view.history,
            jobs: view.jobs,
            now: view.now,
        }
    }
}

/// The values of a part's peers at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// 10th percentile.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub high: f64,
}

/// One sample of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When.
    pub at: Timestamp,
    /// Value of the part; none while it was not read, or its counter was reset.
    pub own: Option<f64>,
    /// Values of its peers; none while there are too few.
    pub peers: Option<Band>,
}

/// The deciding counter of one incident.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// The part that the series is of.
    pub part: Part,
    /// The metric. Of a counter the points are rates per second.
    pub metric: &'static Metric,
    /// Its labels' values.
    pub labels: Labels,
    /// First evidence.
    pub onset: Timestamp,
    /// What the value must not pass, where the rule has such a number.
    pub limit: Option<f64>,
    /// How many peers there are.
    pub peers: usize,
    /// In order of time, [`MOST_POINTS`] at most.
    pub points: Vec<Point>,
}

impl Curve {
    /// Whether its values are rates of a counter.
    pub fn is_rate(&self) -> bool {
        self.metric.kind == Kind::Counter
    }
}

/// Curves by the id of their incident.
pub type Curves = BTreeMap<String, Arc<Curve>>;

/// One incident's curve and where its points come from.
#[derive(Debug)]
struct Recording {
    /// The class for which it was begun: another one has another counter.
    class: &'static Class,
    own: Series,
    peers: Vec<Series>,
    /// Shortest time between two points past those around the onset, seconds.
    step: f64,
    curve: Arc<Curve>,
}

/// Records the curves of open incidents.
#[derive(Debug, Default)]
pub struct Recorder(BTreeMap<String, Recording>);

impl Recorder {
    /// Adds what is new to the curves of these incidents, the worst of which come first, and forgets all others.
    pub fn tick(
        &mut self,
        seen: Seen<'_>,
        incidents: &[Incident],
        plotted: impl Fn(&Evidence) -> Option<Plotted>,
    ) -> Curves {
        let mut before = std::mem::take(&mut self.0);
        for incident in incidents.iter().take(MOST_RECORDED) {
            let known = before.remove(&incident.id);
            let kept = known
                .as_ref()
                .is_some_and(|known| known.class == incident.class);
            let begun = (!kept).then(|| Recording::begin(seen, incident, &plotted));
            if let Some(mut recording) = begun.flatten().or(known) {
                recording.extend(seen);
                self.0.insert(incident.id.clone(), recording);
            }
        }
        let told = self
            .0
            .iter()
            .filter(|(_, recording)| !recording.curve.points.is_empty());
        told.map(|(id, recording)| (id.clone(), Arc::clone(&recording.curve)))
            .collect()
    }
}

impl Recording {
    /// The recording of the strongest evidence that rests on a series.
    fn begin(
        seen: Seen<'_>,
        incident: &Incident,
        plotted: impl Fn(&Evidence) -> Option<Plotted>,
    ) -> Option<Self> {
        let asked = incident.findings.iter().take(MOST_ASKED);
        let mut found = asked.filter_map(|finding| {
            let evidence = &finding.evidence;
            let plotted = plotted(evidence)?;
            Some((evidence, plotted, find(seen, &evidence.part, plotted)?))
        });
        let (evidence, plotted, Found { own, peers }) = found.next()?;
        Some(Self {
            class: incident.class,
            step: 0.0,
            curve: Arc::new(Curve {
                part: evidence.part.clone(),
                metric: plotted.metric,
                labels: own.labels.clone(),
                onset: incident.since,
                limit: plotted.limit.filter(|limit| *limit > 0.0),
                peers: peers.len(),
                points: Vec::new(),
            }),
            own,
            peers,
        })
    }

    /// Adds a point for each time at which the part was read since the last.
    fn extend(&mut self, seen: Seen<'_>) {
        let times = self.new_times(seen);
        if times.is_empty() {
            return;
        }
        let metric = self.curve.metric;
        let own = self.own.window(seen.history, metric);
        let peers = self.peers.iter();
        let peers = peers.filter_map(|peer| peer.window(seen.history, metric));
        let peers: Vec<_> = peers.collect();
        let curve = Arc::make_mut(&mut self.curve);
        for at in times {
            let all = peers.iter().filter_map(|peer| reading(*peer, metric, at));
            let point = Point {
                at,
                own: own.and_then(|own| reading(own, metric, at)),
                peers: band(all.collect()),
            };
            curve.push(point, &mut self.step);
        }
    }

    /// Times at which the part was read since the last point; occasionally while it is stale.
    fn new_times(&self, seen: Seen<'_>) -> Vec<Timestamp> {
        let curve = &self.curve;
        let begin = Timestamp(
            curve
                .onset
                .0
                .saturating_sub((BEFORE_SECONDS * 1e3) as u64 + 1),
        );
        let last = curve.points.last().map_or(begin, |last| last.at);
        let history = history_of(seen.history, &self.own.owner);
        let mut times: Vec<Timestamp> = match history.and_then(|history| history.scrapes()) {
            Some((_, scrapes)) => scrapes.take_while(|at| *at > last).collect(),
            None => {
                let heard = history.and_then(NodeHistory::heard);
                heard.filter(|at| *at > last).into_iter().collect()
            }
        };
        times.reverse();
        let newest = times.last().copied().unwrap_or(last);
        if seen.now.seconds_since(newest) >= GAP_SECONDS && seen.now > newest {
            times.push(seen.now);
        }
        times
    }
}

impl Curve {
    /// Adds a point. A full curve drops every second point after those around the onset, and from then on takes
    /// half as many; the newest always stays.
    fn push(&mut self, point: Point, step: &mut f64) {
        let around = self.onset.plus_seconds(AROUND_SECONDS);
        let before_last = self.points.iter().rev().nth(1).map(|before| before.at);
        let is_close = before_last
            .is_some_and(|before| before > around && point.at.seconds_since(before) < *step);
        match self.points.last_mut() {
            Some(last) if is_close => *last = point,
            _ => self.points.push(point),
        }
        if self.points.len() <= MOST_POINTS {
            return;
        }
        let of_onset = self.points.iter().filter(|point| point.at <= around);
        let of_onset = of_onset.count();
        // Read every second, the time around the onset alone would fill it.
        let from = if of_onset > MOST_POINTS / 2 {
            0
        } else {
            of_onset
        };
        let last = self.points.len() - 1;
        let mut place = 0;
        self.points.retain(|_| {
            let stays = place < from || place == last || (place - from).is_multiple_of(2);
            place += 1;
            stays
        });
        let span = self.points[from..].first().zip(self.points.last());
        let span = span.map_or(0.0, |(first, last)| last.at.seconds_since(first.at));
        *step = 0.9 * span / (self.points.len() - from).max(1) as f64;
    }
}

/// Median and percentiles of values; none of too few.
fn band(mut values: Vec<f64>) -> Option<Band> {
    if values.len() < FEWEST_PEERS {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (values.len() - 1) as f64;
        let (low, rest) = (place as usize, place.fract());
        let high = (low + 1).min(values.len() - 1);
        values[low] + rest * (values[high] - values[low])
    };
    Some(Band {
        low: at(0.1),
        median: at(0.5),
        high: at(0.9),
    })
}
