//! What went over one cable, and what of it never arrived: its counters over three equal times.

use railscope_model::fabric::{LinkId, PartId, Timestamp};

use super::{GAP, MIN_PACKETS, MIN_PACKETS_LOST, OF_EACH_THIRD, SCALES};
use crate::store::{Count, Window};

/// What a port has counted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Port<'a> {
    pub(super) sent: Option<Window<'a>>,
    pub(super) received: Option<Window<'a>>,
    pub(super) dropped: Option<Window<'a>>,
}

/// A cable between switches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cable {
    pub(super) id: LinkId,
    /// Switches and their ports.
    pub(super) ends: [(PartId, u16); 2],
}

/// One direction of a cable over one span.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Flow {
    pub(super) sent: f64,
    pub(super) lost: f64,
}

impl Flow {
    pub(super) fn share(self) -> f64 {
        self.lost / self.sent.max(1.0)
    }
}

impl std::iter::Sum for Flow {
    fn sum<I: Iterator<Item = Self>>(flows: I) -> Self {
        flows.fold(Self::default(), |sum, flow| Self {
            sent: sum.sent + flow.sent,
            lost: sum.lost + flow.lost,
        })
    }
}

/// A cable over some time, in thirds, the newest first.
#[derive(Debug, Clone)]
pub(super) struct Balance {
    pub(super) cable: Cable,
    /// By third: from the first end and from the second, where they carry something.
    thirds: [[Option<Flow>; 2]; 3],
    pub(super) seconds: f64,
}

impl Balance {
    /// Directions with traffic in all thirds: from the first end, and from the second.
    pub(super) fn busy(&self) -> [bool; 2] {
        [0, 1].map(|way| self.thirds.iter().all(|flows| flows[way].is_some()))
    }

    /// Share of the packets that is missing, by busy direction.
    pub(super) fn shares(&self) -> [Option<f64>; 2] {
        let busy = self.busy();
        [0, 1].map(|way| busy[way].then(|| self.total(way).share()))
    }

    pub(super) fn loses(&self, limit: f64) -> bool {
        let (busy, all) = (self.busy(), missing(self.shares()));
        let lost: f64 = (0..2)
            .filter(|way| busy[*way])
            .map(|way| self.total(way).lost)
            .sum();
        let steady = self.thirds.iter().all(|flows| {
            let ways = flows.iter().zip(busy).filter(|(_, busy)| *busy);
            let share: f64 = ways.filter_map(|(flow, _)| *flow).map(Flow::share).sum();
            share > OF_EACH_THIRD * all
        });
        all > limit && lost >= MIN_PACKETS_LOST && steady
    }

    /// All of the time.
    pub(super) fn total(&self, way: usize) -> Flow {
        self.thirds.iter().filter_map(|flows| flows[way]).sum()
    }
}

/// Share of the packets that is missing, of both directions that are busy together.
pub(super) fn missing(shares: [Option<f64>; 2]) -> f64 {
    shares.into_iter().flatten().sum()
}

/// What the two ends of one cable have counted: read once, and balanced over several times. Made once, for its room is
/// used again for the next cable.
#[derive(Debug)]
pub(super) struct Sheets {
    /// Scrape by scrape, newest first: sent and received by one end and by the other, and dropped by
    /// each.
    pages: [Vec<Count>; 6],
    /// Where spans of [`SCALES`] and their thirds begin and end, in scrapes of the series that was reported most
    /// rarely: the newest first.
    places: Vec<usize>,
    /// By scale: where among the places its thirds begin and end.
    spans: [[usize; 4]; SCALES.len()],
    /// When those were read, if there are as many.
    moments: Vec<Timestamp>,
    /// The value of each series then; no number where unknown.
    stood: [Vec<f64>; 6],
}

impl Default for Sheets {
    fn default() -> Self {
        let mut places: Vec<usize> = SCALES
            .iter()
            .flat_map(|scale| [0, 1, 2, 3].map(|third| third * scale))
            .collect();
        places.sort_unstable();
        places.dedup();
        let spans = SCALES.map(|scale| {
            let place = |third: usize| places.partition_point(|place| *place < third * scale);
            [place(0), place(1), place(2), place(3)]
        });
        Self {
            pages: Default::default(),
            places,
            spans,
            moments: Vec::new(),
            stood: Default::default(),
        }
    }
}

impl Sheets {
    /// Adds another cable. `None` if one of its ends does not count packets.
    pub(super) fn read(&mut self, [one, other]: [&Port<'_>; 2]) -> Option<()> {
        // A constant counter means no drops.
        let dropped = [one, other].map(|port| port.dropped.filter(|window| window.moves()));
        let traffic = [one.sent?, one.received?, other.sent?, other.received?].map(Some);
        let windows = traffic.into_iter().chain(dropped);
        for (pages, window) in self.pages.iter_mut().zip(windows) {
            pages.clear();
            if let Some(window) = window {
                window.counts().for_each(|count| pages.push(count));
            }
        }
        let told = most_rarely_read(&self.pages[..4])?;
        self.moments.clear();
        let counts = self.places.iter().map_while(|place| told.get(*place));
        self.moments.extend(counts.map(|count| count.at));
        for (stood, pages) in self.stood.iter_mut().zip(&self.pages) {
            stand_at(pages, &self.moments, stood);
        }
        Some(())
    }

    /// Three times of so many readings. `None` if a counter fell or its history is too short.
    pub(super) fn balance(&self, cable: Cable, scale: usize) -> Option<Balance> {
        let places = self.spans[SCALES.iter().position(|known| *known == scale)?];
        let (begin, end) = (self.moments.get(places[3])?, self.moments.get(places[0])?);
        let rises = |series: usize| rises(&self.stood[series], places);
        let flows = |from: usize, to: usize| -> Option<[Option<Flow>; 3]> {
            let (sent, received) = (rises(2 * from)?, rises(2 * to + 1)?);
            // A port that reports no drops has none to subtract.
            let dropped = rises(4 + to).unwrap_or_default();
            Some([0, 1, 2].map(|third| {
                let flow = Flow {
                    sent: sent[third],
                    lost: sent[third] - received[third] - dropped[third],
                };
                // A third with almost no packets is no evidence.
                (flow.sent >= MIN_PACKETS).then_some(flow)
            }))
        };
        let (there, back) = (flows(0, 1)?, flows(1, 0)?);
        Some(Balance {
            cable,
            thirds: [0, 1, 2].map(|third| [there[third], back[third]]),
            seconds: end.seconds_since(*begin),
        })
    }
}

/// The readings of the series that was read most rarely in the time that all have, and what it has from before; none that is
/// newer than the newest of any. Between its readings nothing is known of it, however often the other end is read.
fn most_rarely_read(traffic: &[Vec<Count>]) -> Option<&[Count]> {
    let newest = traffic.iter().map(|pages| Some(pages.first()?.at));
    let oldest = traffic.iter().map(|pages| Some(pages.last()?.at));
    let (newest, oldest) = (newest.min()??, oldest.max()??);
    let until_newest = traffic.iter().map(|pages| {
        let newer = pages.iter().take_while(|page| page.at > newest);
        &pages[newer.count()..]
    });
    until_newest.min_by_key(|pages| pages.iter().take_while(|page| page.at >= oldest).count())
}

/// The value of a series at each of these times, the newest first. Across readings that are missing it is not known: traffic may
/// have begun in between.
fn stand_at(pages: &[Count], moments: &[Timestamp], stood: &mut Vec<f64>) {
    stood.clear();
    let mut place = 0;
    let ends = pages.first().zip(pages.last());
    let span = ends.map_or(0.0, |(newest, oldest)| newest.at.seconds_since(oldest.at));
    let longest = GAP * span / pages.len().saturating_sub(1).max(1) as f64;
    for at in moments {
        while pages.get(place).is_some_and(|page| page.at > *at) {
            place += 1;
        }
        let later = place.checked_sub(1).and_then(|later| pages.get(later));
        let page = pages.get(place).filter(|page| {
            let step = later.map_or(0.0, |later| later.at.seconds_since(page.at));
            page.at == *at || step <= longest
        });
        let count = page.and_then(|page| page.until(later.copied(), *at));
        stood.push(count.unwrap_or(f64::NAN));
    }
}

/// Increase of a counter in each third between four times, the newest first. `None` if it fell or is unknown.
fn rises(stood: &[f64], places: [usize; 4]) -> Option<[f64; 3]> {
    let [a, b, c, d] = places.map(|place| stood.get(place).copied().unwrap_or(f64::NAN));
    let rises = [a - b, b - c, c - d];
    rises.iter().all(|rise| *rise >= 0.0).then_some(rises)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many readings of each are kept, which reach back further where they are rarer.
    #[test]
    fn the_end_that_is_read_most_rarely_says_when_cables_are_compared() {
        let read_every = |seconds: u32, first: u32| -> Vec<Count> {
            let page = |index: u32| Count {
                at: Timestamp(1_700_000_000_000 - u64::from(1000 * (first + seconds * index))),
                count: 0.0,
                rise: 0.0,
            };
            (0..29).map(page).collect()
        };
        let traffic = [
            read_every(10, 0),
            read_every(10, 0),
            read_every(30, 5),
            read_every(30, 5),
        ];
        let told = most_rarely_read(&traffic).expect("readings");
        assert_eq!((told[0].at, told.len()), (traffic[2][0].at, 29));
        let traffic = [read_every(30, 0), read_every(10, 5)];
        let told = most_rarely_read(&traffic).expect("readings");
        assert_eq!((told[0].at, told.len()), (traffic[0][1].at, 28));
    }

    #[test]
    fn across_a_missing_reading_a_count_is_not_known() {
        let at = |seconds: f64| Timestamp(1_700_000_000_000).plus_seconds(seconds);
        let page = |seconds: f64| Count {
            at: at(seconds),
            count: 10.0 * seconds,
            rise: 0.0,
        };
        // Newest first; that of second 30 is missing.
        let pages: Vec<Count> = [75.0, 60.0, 45.0, 15.0, 0.0].map(page).to_vec();
        let mut stood = Vec::new();
        stand_at(&pages, &[50.0, 45.0, 30.0, 15.0, 5.0].map(at), &mut stood);
        let known: Vec<bool> = stood.iter().map(|count| count.is_finite()).collect();
        assert_eq!(known, [true, true, false, true, true], "{stood:?}");
    }
}
