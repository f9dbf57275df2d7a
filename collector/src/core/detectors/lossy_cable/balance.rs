//! What went over one cable, and what of it never arrived: its counters over three equal times.

use railscope_model::fabric::{LinkId, PartId, Timestamp};

use super::{MIN_PACKETS, MIN_PACKETS_LOST, OF_EACH_THIRD};
use crate::core::history::{Count, Window};

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
    /// Ways that carry something in all thirds: from the first end, and from the second.
    pub(super) fn busy(&self) -> [bool; 2] {
        [0, 1].map(|way| self.thirds.iter().all(|flows| flows[way].is_some()))
    }

    /// Share of the packets that is missing, by way that is busy.
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

/// Share of the packets that is missing, of both ways that are busy together.
pub(super) fn missing(shares: [Option<f64>; 2]) -> f64 {
    shares.into_iter().flatten().sum()
}

/// What the two ends of one cable have counted, page by page: read once, and balanced over several times. Made once, for
/// its room is used again for the next cable.
#[derive(Debug, Default)]
pub(super) struct Sheets {
    /// Sent and received by one end, and by the other: newest first.
    traffic: [Vec<Count>; 4],
    /// Dropped by each. Who tells no drops has none that could be told.
    dropped: [Vec<Count>; 2],
    /// The series that was told most rarely, and how many of its pages are newer than the newest of all four.
    rarest: usize,
    newer: usize,
}

impl Sheets {
    /// Takes up another cable. `None` if one of its ends does not count packets.
    pub(super) fn read(&mut self, [one, other]: [&Port<'_>; 2]) -> Option<()> {
        let windows = [one.sent?, one.received?, other.sent?, other.received?];
        for (sheet, window) in self.traffic.iter_mut().zip(windows) {
            sheet.clear();
            sheet.extend(window.counts());
        }
        for (sheet, port) in self.dropped.iter_mut().zip([one, other]) {
            sheet.clear();
            // What stands still has dropped nothing.
            let dropped = port.dropped.filter(|window| window.moves());
            sheet.extend(dropped.into_iter().flat_map(Window::counts));
        }
        let newest = self.traffic.iter().map(|sheet| sheet.first());
        let newest = newest.map(|count| count.map(|count| count.at)).min()??;
        let newer = |sheet: &Vec<Count>| sheet.iter().take_while(|one| one.at > newest).count();
        let told = |place: &usize| self.traffic[*place].len() - newer(&self.traffic[*place]);
        self.rarest = (0..self.traffic.len()).min_by_key(told)?;
        self.newer = newer(&self.traffic[self.rarest]);
        Some(())
    }

    /// Three times of so many readings. `None`: nobody can say, for a counter fell or does not reach back so far.
    pub(super) fn balance(&self, cable: Cable, scale: usize) -> Option<Balance> {
        let places = [0, scale, 2 * scale, 3 * scale].map(|back| self.newer + back);
        let [a, b, c, d] = places.map(|place| self.traffic[self.rarest].get(place));
        let moments = [a?.at, b?.at, c?.at, d?.at];
        let rises = |sheet: &[Count]| rises(sheet, moments, places);
        let flows = |from: usize, to: usize| -> Option<[Option<Flow>; 3]> {
            let sent = rises(&self.traffic[2 * from])?;
            let received = rises(&self.traffic[2 * to + 1])?;
            let dropped = rises(&self.dropped[to]).unwrap_or_default();
            Some([0, 1, 2].map(|third| {
                let flow = Flow {
                    sent: sent[third],
                    lost: sent[third] - received[third] - dropped[third],
                };
                // A third in which next to nothing went says nothing.
                (flow.sent >= MIN_PACKETS).then_some(flow)
            }))
        };
        let (there, back) = (flows(0, 1)?, flows(1, 0)?);
        Some(Balance {
            cable,
            thirds: [0, 1, 2].map(|third| [there[third], back[third]]),
            seconds: moments[0].seconds_since(moments[3]),
        })
    }
}

/// How much a counter rose in each third between four moments, which are likely those of its pages at these places.
fn rises(sheet: &[Count], moments: [Timestamp; 4], places: [usize; 4]) -> Option<[f64; 3]> {
    let count = |third: usize| {
        let (at, place) = (moments[third], places[third]);
        let likely = sheet.get(place).filter(|count| count.at == at);
        let place = likely.map_or_else(|| sheet.partition_point(|one| one.at > at), |_| place);
        let later = place.checked_sub(1).and_then(|later| sheet.get(later));
        sheet.get(place)?.until(later.copied(), at)
    };
    let (a, b, c, d) = (count(0)?, count(1)?, count(2)?, count(3)?);
    let rises = [a - b, b - c, c - d];
    rises.iter().all(|rise| *rise >= 0.0).then_some(rises)
}
