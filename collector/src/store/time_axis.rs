//! When a source's scrapes were read: the slots of time that all of its series share.

use railscope_model::fabric::Timestamp;

/// How far back a window of a node reaches: the longest question of a detector, 120 s, and some scrapes more. Long
/// queries are Prometheus' work.
pub const WINDOW_SECONDS: f64 = 150.0;
/// The same of a switch: what a cable loses shows the finer the longer both of its ends are counted.
pub const SWITCH_WINDOW_SECONDS: f64 = 290.0;
/// Minimum number of scrapes that it holds: switches are read more rarely than nodes, and comparing
/// three times of nine readings needs 28.
pub const WINDOW_PAGES: u32 = 30;
/// Scrapes that come sooner one after the other share a slot: exporters sample once a second. With the window
/// it bounds the memory of a series.
pub const MIN_STEP_SECONDS: f64 = 1.0;
/// How many slots windows begin with, and by how many they grow until they hold all scrapes that they reach back
/// to.
pub(super) const FEWEST_SLOTS: u32 = 8;

/// Scrapes by number. The newest `slots` of them have a slot each.
#[derive(Debug, Clone, Default)]
pub(super) struct Axis {
    /// When a slot's last scrape was read, by scrape number modulo slots.
    times: Vec<Timestamp>,
    newest: u32,
    /// When it was read.
    heard: Timestamp,
    /// The oldest scrape within the window.
    first: u32,
    /// When the first scrape of the newest slot was read.
    begun: Timestamp,
    /// How far back windows reach.
    reach: Reach,
}

/// How far back windows reach, seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach(pub(super) f64);

impl Default for Reach {
    fn default() -> Self {
        Self(WINDOW_SECONDS)
    }
}

impl Axis {
    /// An axis that begins with a scrape.
    pub(super) fn beginning(at: Timestamp, slots: u32, reach: Reach) -> Self {
        Self {
            reach,
            times: vec![at; slots as usize],
            newest: 0,
            heard: at,
            first: 0,
            begun: at,
        }
    }

    /// Number of the newest scrape.
    #[inline]
    pub(super) const fn newest(&self) -> u32 {
        self.newest
    }

    /// When the newest scrape was read.
    #[inline]
    pub(super) const fn heard(&self) -> Timestamp {
        self.heard
    }

    /// The oldest scrape that has a slot.
    pub(super) fn oldest(&self) -> u32 {
        (self.newest + 1).saturating_sub(self.times.len() as u32)
    }

    /// When a scrape that has a slot was read.
    #[inline]
    pub(super) fn time(&self, page: u32) -> Timestamp {
        let slots = self.times.len().max(1);
        self.times
            .get(page as usize % slots)
            .copied()
            .unwrap_or_default()
    }

    /// Ingests a scrape that is newer than all before.
    pub(super) fn advance(&mut self, at: Timestamp) {
        if at.seconds_since(self.begun) >= MIN_STEP_SECONDS {
            self.newest += 1;
            self.begun = at;
        }
        let slots = self.times.len().max(1);
        if let Some(time) = self.times.get_mut(self.newest as usize % slots) {
            *time = at;
        }
        self.heard = at;
        self.first = self.first.max(self.oldest());
        while !self.is_within(self.first) {
            self.first += 1;
        }
    }

    /// The oldest scrape within the window.
    #[inline]
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// When scrapes were read, by scrape number modulo slots.
    #[inline]
    pub(super) fn times(&self) -> &[Timestamp] {
        &self.times
    }

    fn is_within(&self, page: u32) -> bool {
        self.newest - page < WINDOW_PAGES
            || self.heard().seconds_since(self.time(page)) <= self.reach.0
    }

    /// When the scrapes within the window were read, the newest first.
    pub(super) fn scrapes(&self) -> impl Iterator<Item = Timestamp> {
        let pages = (self.first..=self.newest).rev();
        pages.map(|page| self.time(page))
    }

    /// Mean time between two scrapes within the window, seconds; none before the third.
    pub(super) fn usual_step(&self) -> Option<f64> {
        let steps = self.newest - self.first;
        let seconds = self.heard.seconds_since(self.time(self.first));
        (steps >= 2).then(|| seconds / f64::from(steps))
    }

    /// Number of slots needed so that a scrape read `at` drives none out that is within the
    /// window.
    pub(super) fn slots_for(&self, at: Timestamp) -> u32 {
        let slots = self.times.len() as u32;
        let drives_out = self.newest + 1 - self.oldest() >= slots
            && at.seconds_since(self.begun) >= MIN_STEP_SECONDS;
        let young = at.seconds_since(self.time(self.oldest())) <= self.reach.0;
        if drives_out && (young || slots < WINDOW_PAGES) {
            slots + FEWEST_SLOTS
        } else {
            slots
        }
    }

    /// Makes room for more scrapes.
    pub(super) fn resize(&mut self, slots: u32) {
        self.times = moved(
            &self.times,
            self.oldest()..=self.newest,
            slots,
            self.heard(),
        );
    }
}

/// The slots of some scrapes in a longer ring.
pub(super) fn moved<T: Copy>(
    old: &[T],
    pages: std::ops::RangeInclusive<u32>,
    slots: u32,
    empty: T,
) -> Vec<T> {
    let mut new = vec![empty; slots as usize];
    for page in pages {
        let from = old.get(page as usize % old.len().max(1));
        let to = new.get_mut((page % slots.max(1)) as usize);
        if let (Some(from), Some(to)) = (from, to) {
            *to = *from;
        }
    }
    new
}
