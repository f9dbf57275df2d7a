//! What was reported about one series lately, slot by slot, and the quality of each sample.

use std::ops::Add;

use railscope_model::fabric::Timestamp;
use railscope_model::reading::Labels;

use crate::store::time_axis::Axis;

/// A longer step between two samples of a series, in usual ones of its source, is a gap: two scrapes in a row that failed.
pub const MAX_STEP: f64 = 2.5;
/// Age of the newest sample, in usual steps, from which it is late: at its next scrape it is one step old.
pub(super) const LATE_STEPS: f64 = 1.5;
/// The same from which its next one is overdue: scrapes are not exactly one step apart.
pub(super) const OVERDUE_STEPS: f64 = 1.2;

/// How good what a slot holds is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    /// Reported; for a counter: continued from the value before.
    Ok,
    /// Not reported, although its source was seen.
    Gap,
    /// A counter fell. The count since its reset is known, the count before is not. A wrapped counter
    /// of few bits looks the same here; exporters know the width and unwrap.
    Reset,
}

/// One slot of a series, quality included: a gauge's value, or the increase of a counter. Increases keep seven digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell(f32);

impl Cell {
    /// Nothing was reported.
    pub(super) const GAP: Self = Self(f32::NAN);

    pub(super) const fn value(value: f64) -> Self {
        Self(value as f32)
    }

    /// A counter's rise. A fall is a reset: what was counted after it counts, as in Prometheus; its sign reports
    /// it.
    pub(super) fn rise(before: f64, after: f64) -> Self {
        if after >= before {
            Self((after - before) as f32)
        } else {
            Self(-(after.max(0.0) as f32))
        }
    }

    /// What two scrapes reported that share a slot.
    pub(super) fn followed_by(self, next: Self, counts: bool) -> Self {
        if !counts || !self.is_told() {
            next
        } else if self.0.is_sign_negative() || next.0.is_sign_negative() {
            Self(-(self.0.abs() + next.0.abs()))
        } else {
            Self(self.0 + next.0)
        }
    }

    #[inline]
    pub(super) fn is_told(self) -> bool {
        !self.0.is_nan()
    }

    /// Whether a series has reported the same all the time.
    pub(super) fn are_still(cells: &[Self], counts: bool) -> bool {
        let bits = |cell: &Self| cell.0.to_bits();
        let first = cells.first().filter(|cell| cell.is_told());
        first.is_some_and(|first| {
            cells.iter().all(|cell| bits(cell) == bits(first)) && (!counts || bits(first) == 0)
        })
    }
}

/// Where the slots of a window are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Seen<'a> {
    /// The same value on every scrape since this one.
    Still {
        since: u32,
    },
    Cells(&'a [Cell]),
}

/// Slots of a window, oldest first.
#[derive(Debug, Clone)]
struct Slots<'a> {
    times: &'a [Timestamp],
    seen: Seen<'a>,
    /// The value of a constant series.
    still: Cell,
    /// Scrapes that are left, and their places in the ring.
    front: u32,
    end: u32,
    at_front: usize,
    at_end: usize,
}

impl Slots<'_> {
    #[inline]
    fn slot(&self, page: u32, place: usize) -> Option<(Timestamp, Cell)> {
        let cell = match self.seen {
            Seen::Still { since } if page < since => Cell::GAP,
            Seen::Still { .. } => self.still,
            Seen::Cells(cells) => cells.get(place).copied().unwrap_or(Cell::GAP),
        };
        Some((*self.times.get(place)?, cell))
    }
}

impl Iterator for Slots<'_> {
    type Item = (Timestamp, Cell);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.front >= self.end {
            return None;
        }
        let slot = self.slot(self.front, self.at_front);
        self.front += 1;
        self.at_front += 1;
        if self.at_front >= self.times.len() {
            self.at_front = 0;
        }
        slot
    }
}

impl DoubleEndedIterator for Slots<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.end {
            return None;
        }
        self.end -= 1;
        self.at_end = self
            .at_end
            .checked_sub(1)
            .unwrap_or(self.times.len().saturating_sub(1));
        self.slot(self.end, self.at_end)
    }

    /// The ring in its two pieces, so that no slot has to check for the end of the ring.
    #[inline]
    fn rfold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut each: F) -> B {
        let pages = (self.end - self.front) as usize;
        let newer = pages.min(self.at_end);
        let slots = self.times.len();
        let pieces = [
            self.at_end - newer..self.at_end,
            slots.saturating_sub(pages - newer)..slots,
        ];
        let places = pieces.into_iter().flat_map(Iterator::rev);
        match self.seen {
            Seen::Cells(cells) => {
                let slot = |place: usize| Some((*self.times.get(place)?, *cells.get(place)?));
                places.filter_map(slot).fold(init, each)
            }
            Seen::Still { since } => {
                let pages = (self.front..self.end).rev().zip(places);
                pages.fold(init, |folded, (page, place)| {
                    let cell = if page < since { Cell::GAP } else { self.still };
                    match self.times.get(place) {
                        Some(time) => each(folded, (*time, cell)),
                        None => folded,
                    }
                })
            }
        }
    }
}

/// What was reported about one series in the last [`WINDOW_SECONDS`](super::WINDOW_SECONDS), or on
/// the last [`WINDOW_PAGES`](super::WINDOW_PAGES). It ends with its source's newest scrape.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    axis: &'a Axis,
    /// Whether the series only counts up.
    counts: bool,
    latest: f64,
    seen: Seen<'a>,
}

/// The sign with which a series of a histogram counts towards the observations above a bound in seconds: all observations
/// less those up to the bound. None of series that do not count.
pub(crate) fn sign_above(labels: &Labels, seconds: f64) -> Option<f64> {
    match labels.values().last()? {
        "count" => Some(1.0),
        part => {
            let bound: f64 = part.parse().ok()?;
            ((bound / seconds - 1.0).abs() < 1e-9).then_some(-1.0)
        }
    }
}

/// Increase of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Increase {
    /// The rise, in the counter's unit.
    pub amount: f64,
    /// The time over which it was seen.
    pub seconds: f64,
}

/// Of two counters of one scrape.
impl Add for Increase {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            amount: self.amount + other.amount,
            seconds: self.seconds.max(other.seconds),
        }
    }
}

/// Value of a counter on one scrape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// When the scrape was read.
    pub at: Timestamp,
    /// Its value; no number before a reset.
    pub count: f64,
    /// Its increase from then to the next scrape that reported it.
    pub rise: f64,
}

impl Count {
    /// Value of the counter on this scrape or after it, `later` being the next that reported it. `None`
    /// after the newest scrape, and before a reset.
    pub fn until(self, later: Option<Self>, at: Timestamp) -> Option<f64> {
        if self.count.is_nan() {
            return None;
        }
        if self.at == at {
            return Some(self.count);
        }
        let later = later?;
        let share = at.seconds_since(self.at) / later.at.seconds_since(self.at);
        Some(self.count + share * self.rise)
    }
}

impl Increase {
    /// Rise per second.
    pub fn rate(self) -> f64 {
        self.amount / self.seconds
    }
}

impl<'a> Window<'a> {
    pub(super) const fn new(axis: &'a Axis, counts: bool, latest: f64, seen: Seen<'a>) -> Self {
        Self {
            axis,
            counts,
            latest,
            seen,
        }
    }

    /// The newest value, as exact as it was reported; none if that is no number.
    pub fn value(&self) -> Option<f64> {
        (!self.latest.is_nan()).then_some(self.latest)
    }

    /// When the newest value was reported, and that.
    pub fn latest(&self) -> Option<(Timestamp, f64)> {
        Some((self.axis.heard(), self.value()?))
    }

    /// Whether the series has reported anything but one value since it was first reported, or since the
    /// window began.
    #[inline]
    pub fn moves(self) -> bool {
        matches!(self.seen, Seen::Cells(_))
    }

    /// Slots, oldest first: when the last scrape of each was read, and what it reported.
    #[inline]
    fn slots(self) -> Slots<'a> {
        let times = self.axis.times();
        let (first, end) = (self.axis.first(), self.axis.newest() + 1);
        let slots = times.len().max(1);
        Slots {
            times,
            seen: self.seen,
            still: Cell::value(if self.counts { 0.0 } else { self.latest }),
            front: first,
            end,
            at_front: first as usize % slots,
            at_end: end as usize % slots,
        }
    }

    /// Reported values of a gauge, oldest first, to seven digits; of a counter, its
    /// increase before each of them. Resets and gaps are omitted.
    pub fn values(self) -> impl DoubleEndedIterator<Item = f64> + 'a {
        let counts = self.counts;
        self.slots()
            .map(|(_, cell)| cell)
            .filter(move |cell| cell.is_told() && !(counts && cell.0.is_sign_negative()))
            .map(|cell| f64::from(cell.0))
    }

    /// What scrapes reported about a gauge and when, newest first, to seven digits.
    pub fn told(self) -> impl Iterator<Item = (Timestamp, f64)> + 'a {
        let told = self.slots().rev().filter(|(_, cell)| cell.is_told());
        told.map(|(at, cell)| (at, f64::from(cell.0)))
    }

    /// As [`Self::told`], of the newest `seconds` before `now` only.
    pub fn told_within(
        self,
        now: Timestamp,
        seconds: f64,
    ) -> impl Iterator<Item = (Timestamp, f64)> + 'a {
        self.told()
            .take_while(move |(at, _)| now.seconds_since(*at) <= seconds)
    }

    /// As [`Self::told`], up to the first gap: a step between two samples of more than [`MAX_STEP`] usual ones.
    pub fn unbroken(self) -> impl Iterator<Item = (Timestamp, f64)> + 'a {
        let longest = self
            .axis
            .usual_step()
            .map_or(f64::INFINITY, |step| MAX_STEP * step);
        let mut later: Option<Timestamp> = None;
        self.told().take_while(move |(at, _)| {
            let step = later
                .replace(*at)
                .map_or(0.0, |later| later.seconds_since(*at));
            step <= longest
        })
    }

    /// Longest time between two samples, in seconds, of which the later is one of the newest `seconds`; 0 if there is none.
    pub fn longest_step(self, seconds: f64) -> f64 {
        let newest = self.axis.heard();
        let mut later: Option<Timestamp> = None;
        let steps = self.slots().rev().filter(|(_, cell)| cell.is_told());
        let steps = steps.map_while(|(at, _)| match later.replace(at) {
            Some(later) if newest.seconds_since(later) >= seconds => None,
            Some(later) => Some(later.seconds_since(at)),
            None => Some(0.0),
        });
        steps.fold(0.0, f64::max)
    }

    /// Whether the source of the samples has missed a scrape: its last report is from another
    /// time than the current reports of others.
    pub fn is_late(self, now: Timestamp) -> bool {
        self.has_been_silent_for(LATE_STEPS, now)
    }

    /// Whether its next report is overdue: it may be on its way, or the source may have ended.
    pub fn is_overdue(self, now: Timestamp) -> bool {
        self.has_been_silent_for(OVERDUE_STEPS, now)
    }

    fn has_been_silent_for(self, steps: f64, now: Timestamp) -> bool {
        let usual = self.axis.usual_step();
        usual.is_some_and(|step| now.seconds_since(self.axis.heard()) > steps * step)
    }

    /// Whether samples reach back at least so many seconds from the newest, or as far as the window does, without a gap.
    pub fn is_unbroken(self, seconds: f64) -> bool {
        let newest = self.axis.heard();
        let reached = self.unbroken().last().map(|(at, _)| at);
        let oldest = self.told().last().map(|(at, _)| at);
        reached == oldest || reached.is_some_and(|at| newest.seconds_since(at) >= seconds)
    }

    /// Values of a counter on each scrape that reported it, newest first.
    pub fn counts(self) -> impl Iterator<Item = Count> + 'a {
        let mut later: Option<(f64, Cell)> = None;
        let newest = self.latest;
        let told = self.slots().rev().filter(|(_, cell)| cell.is_told());
        told.map(move |(at, cell)| {
            let (count, rise) = later.map_or((newest, 0.0), |(count, rise)| {
                // Its value before it fell is not known, nor any earlier one.
                let is_reset = rise.0.is_sign_negative();
                let rise = f64::from(rise.0);
                (if is_reset { f64::NAN } else { count - rise }, rise)
            });
            later = Some((count, cell));
            Count { at, count, rise }
        })
    }

    /// Value of a counter, interpolated linearly between two scrapes. `None` outside of the window,
    /// and before a reset.
    pub fn count_at(self, at: Timestamp) -> Option<f64> {
        let mut later: Option<Count> = None;
        for told in self.counts() {
            if told.at <= at {
                return told.until(later, at);
            }
            later = Some(told);
        }
        None
    }

    /// Rate of a counter over all scrapes until then, if these span at least `seconds`. `None` of a counter that was reset.
    pub fn rate_until(self, until: Timestamp, seconds: f64) -> Option<f64> {
        let mut counts = self.counts().filter(|count| count.at <= until);
        let newest = counts.next()?;
        let oldest = counts.last()?;
        let span = newest.at.seconds_since(oldest.at);
        let rate = (newest.count - oldest.count) / span;
        (span >= seconds && rate.is_finite()).then_some(rate)
    }

    /// Rate of a counter over the shortest time until then that spans at least `seconds`. `None` if none does, and of a counter that was
    /// reset.
    pub fn rate_just_before(self, until: Timestamp, seconds: f64) -> Option<f64> {
        let mut counts = self.counts().filter(|count| count.at <= until);
        let newest = counts.next()?;
        let span = |count: &Count| newest.at.seconds_since(count.at);
        let oldest = counts.find(|count| span(count) >= seconds)?;
        let rate = (newest.count - oldest.count) / span(&oldest);
        rate.is_finite().then_some(rate)
    }

    /// How good each slot is, oldest first: of the time since the series was first reported.
    pub fn quality(self) -> impl Iterator<Item = Quality> + 'a {
        let counts = self.counts;
        let slots = self.slots().map(|(_, cell)| cell);
        slots
            .skip_while(|cell| !cell.is_told())
            .map(move |cell| match cell {
                cell if !cell.is_told() => Quality::Gap,
                cell if counts && cell.0.is_sign_negative() => Quality::Reset,
                _ => Quality::Ok,
            })
    }

    /// Increase of a counter within the last `seconds` before its newest point, and the seconds
    /// over which it was seen. `None` with fewer than two points, and if it is not a counter.
    #[inline]
    pub fn increase(self, seconds: f64) -> Option<Increase> {
        let end = self.axis.heard();
        let (mut since, mut amount, mut earliest) = (end, 0.0, Cell::value(0.0));
        let within = |(at, _): &(Timestamp, Cell)| end.seconds_since(*at) <= seconds;
        let told = |(_, cell): &(Timestamp, Cell)| cell.is_told();
        for (at, cell) in self.slots().rev().take_while(within).filter(told) {
            // What rose before the earliest point rose outside.
            amount += f64::from(earliest.0.abs());
            (since, earliest) = (at, cell);
        }
        let seconds = end.seconds_since(since);
        (self.counts && seconds > 0.0).then_some(Increase { amount, seconds })
    }

    /// As [`Self::increase`]; where scrapes are farther apart than that, of the newest step between two of them, if it is no
    /// gap. For single evaluations: differences of two such increases mean nothing.
    pub fn newest_increase(self, seconds: f64) -> Option<Increase> {
        self.increase(seconds).or_else(|| {
            let step = self.axis.usual_step()?;
            let mut within = [LATE_STEPS, MAX_STEP].into_iter();
            within.find_map(|steps| self.increase(steps * step))
        })
    }
}
