//! The series of one metric of one node as a column: rows of labels, and a matrix of row by slot of time.

mod index;
mod keys;
mod turn;

use railscope_model::metric::{Kind, Metric};
use railscope_model::reading::Labels;

use self::index::{Index, Search};
pub(super) use self::keys::SharedKeys;
use self::keys::{Key, Keys};
use self::turn::Told;
pub(super) use self::turn::{Changes, Turn};
use super::window::{Cell, Seen, Window};
use crate::store::time_axis::{Axis, moved};

/// Where a row's slots are.
#[derive(Debug, Clone, Copy)]
enum Track {
    /// Nowhere: the value has been the same on every scrape since this one. Most series of a healthy
    /// node.
    Still { since: u32 },
    /// In this line of the matrix.
    Moves { line: u32 },
}

/// The state of one series.
#[derive(Debug, Clone)]
struct Row {
    latest: f64,
    /// Its source's scrape that reported it last.
    told: u32,
    track: Track,
    /// Place of the one that reports it among the node's voices.
    speaker: u16,
}

/// All series of one metric.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) metric: &'static Metric,
    /// Which series they are.
    keys: Keys,
    rows: Vec<Row>,
    /// Lines of as many cells as there are slots, one behind the other.
    cells: Vec<Cell>,
    /// Lines of no row.
    free: Vec<u32>,
    /// The row after that which was found last: scrapes keep their order.
    next: usize,
    search: Search,
    /// The arrivals that last changed what may be kept of the column.
    changes: Changes,
    told: Told,
}

impl Column {
    pub(super) fn new(metric: &'static Metric) -> Self {
        Self {
            metric,
            keys: Keys::default(),
            rows: Vec::new(),
            cells: Vec::new(),
            free: Vec::new(),
            next: 0,
            search: Search::default(),
            changes: Changes::default(),
            // None, so that the first scrape begins again.
            told: Told {
                speaker: u16::MAX,
                ..Told::default()
            },
        }
    }

    pub(super) const fn changes(&self) -> Changes {
        self.changes
    }

    /// Total comparisons and index lookups.
    #[cfg(test)]
    pub(super) fn work(&self) -> usize {
        self.search.work
    }

    /// Whether any row has slots: constant rows have none.
    pub(super) fn moves(&self, slots: u32) -> bool {
        self.cells.len() > self.free.len() * slots as usize
    }

    /// A row is reported by a scrape for the first time.
    #[inline]
    fn count(&mut self, turn: Turn<'_>) {
        let page = turn.axis.newest();
        if (self.told.speaker, self.told.page) != (turn.speaker, page) {
            self.told = Told {
                speaker: turn.speaker,
                page,
                rows: 0,
                arrival: turn.number,
            };
        }
        self.told.rows += 1;
    }

    fn tells_otherwise(&mut self, turn: Turn<'_>, presence: bool) {
        self.changes.values = turn.number;
        if presence {
            self.changes.presence = turn.number;
        }
    }

    fn counts(&self) -> bool {
        matches!(self.metric.kind, Kind::Counter | Kind::Histogram)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row of a line whose hash is known.
    #[inline]
    pub(super) fn by_line(&mut self, line: u64) -> Option<usize> {
        self.find(|key| key.line == line, |index| index.by_line(line))
    }

    /// The row with these labels.
    #[inline]
    pub(super) fn by_labels(&mut self, labels: &Labels) -> Option<usize> {
        self.find(|key| key.labels == *labels, |index| index.by_labels(labels))
    }

    #[inline]
    fn find(
        &mut self,
        is_it: impl Fn(&Key) -> bool,
        look_up: impl FnOnce(&Index) -> Option<usize>,
    ) -> Option<usize> {
        let next = self.keys.get(self.next).is_some_and(&is_it);
        let found = if next {
            self.next
        } else {
            self.find_elsewhere(is_it, look_up)?
        };
        self.next = (found + 1) % self.rows.len();
        Some(found)
    }

    /// Searches for a row when the order differs from the previous scrape.
    fn find_elsewhere(
        &mut self,
        is_it: impl Fn(&Key) -> bool,
        look_up: impl FnOnce(&Index) -> Option<usize>,
    ) -> Option<usize> {
        let keys = &self.keys;
        let rows = keys.iter().map(|key| (&key.labels, key.line));
        if let Some(index) = self.search.index(rows) {
            let found = look_up(index)?;
            return keys.get(found).is_some_and(is_it).then_some(found);
        }
        let found = keys.iter().position(is_it);
        self.search.count(found.unwrap_or(self.rows.len()));
        found
    }

    /// Whether the arrival that is being ingested has reported every row already.
    #[inline]
    pub(super) fn is_told_whole(&self, turn: Turn<'_>) -> bool {
        self.told.arrival == turn.number && self.told.rows == self.rows.len()
    }

    /// Adds a row without a value yet.
    pub(super) fn add(&mut self, labels: Labels, turn: Turn<'_>) -> usize {
        let page = turn.axis.newest();
        if let Some(index) = self.search.index_mut() {
            index.add(&labels, self.rows.len());
        }
        self.keys.to_mut().push(Key { labels, line: 0 });
        self.rows.push(Row {
            latest: f64::NAN,
            told: page,
            track: Track::Still { since: page },
            speaker: turn.speaker,
        });
        self.count(turn);
        self.tells_otherwise(turn, true);
        self.changes.rows = turn.number;
        self.rows.len() - 1
    }

    pub(super) fn set_line(&mut self, row: usize, line: u64) {
        if let Some(index) = self.search.index_mut() {
            index.set_line(line, row);
        }
        if let Some(key) = self.keys.to_mut().get_mut(row) {
            key.line = line;
        }
    }

    /// Ends a scrape: new keys are shared with other nodes, and spare room is released.
    pub(super) fn settle(&mut self, shared: &SharedKeys) {
        if !self.keys.are_new() {
            return;
        }
        self.rows.shrink_to_fit();
        // What a thing is differs from node to node.
        if self.metric.kind == Kind::Info {
            self.keys.keep();
        } else {
            shared.share(&mut self.keys);
        }
    }

    #[inline]
    pub(super) fn speaker(&self, row: usize) -> Option<u16> {
        self.rows.get(row).map(|row| row.speaker)
    }

    /// Restarts a row with another source, whose count of the same thing began elsewhere.
    pub(super) fn hand_over(&mut self, row: usize, turn: Turn<'_>) {
        self.release(row);
        if let Some(row) = self.rows.get_mut(row) {
            let page = turn.axis.newest();
            row.speaker = turn.speaker;
            row.told = page;
            row.track = Track::Still { since: page };
            row.latest = f64::NAN;
        }
        self.count(turn);
        self.tells_otherwise(turn, true);
    }

    fn release(&mut self, row: usize) {
        if let Some(Track::Moves { line }) = self.rows.get(row).map(|row| row.track) {
            self.free.push(line);
        }
    }

    /// Ingests what a scrape reports about a row; `false` if that scrape reported it already.
    #[inline]
    pub(super) fn push(&mut self, row: usize, turn: Turn<'_>, value: f64) -> bool {
        let (page, counts) = (turn.axis.newest(), self.counts());
        let Some(known) = self.rows.get_mut(row) else {
            return false;
        };
        let begins = known.latest.is_nan();
        if known.told == page && turn.again && !begins {
            return false;
        }
        let unbroken = page - known.told <= 1;
        let is_first = known.told != page;
        let was_told = known.told == turn.before;
        let before = std::mem::replace(&mut known.latest, value);
        let still = matches!(known.track, Track::Still { .. }) && unbroken;
        known.told = if begins { page } else { known.told };
        if is_first {
            self.count(turn);
        }
        if begins || !was_told || before != value {
            self.tells_otherwise(turn, begins || !was_told || value.is_nan());
        }
        let known = &mut self.rows[row];
        if begins {
            // Nothing was reported about it before that a value could be compared with.
            let since = page;
            self.release(row);
            self.rows[row].track = Track::Still { since };
            return true;
        }
        if still && before == value {
            known.told = page;
            return true;
        }
        let cell = if counts {
            Cell::rise(before, value)
        } else {
            Cell::value(value)
        };
        self.write(row, turn, before, cell);
        true
    }

    /// Writes the newest cell of a row, and gaps for the scrapes since it was reported last.
    fn write(&mut self, row: usize, turn: Turn<'_>, before: f64, cell: Cell) {
        let (page, slots, counts) = (turn.axis.newest(), turn.slots as usize, self.counts());
        let first = self.line(row, turn, before) as usize * slots;
        let known = &mut self.rows[row];
        let Some(cells) = self.cells.get_mut(first..first + slots) else {
            return;
        };
        for missed in (known.told + 1).max(turn.axis.oldest())..page {
            cells[missed as usize % slots] = Cell::GAP;
        }
        let newest = &mut cells[page as usize % slots];
        *newest = if known.told == page {
            newest.followed_by(cell, counts)
        } else {
            cell
        };
        known.told = page;
        // Once per cycle of the ring, a row that has become constant releases its line.
        let turned = page % turn.slots == 0 && page >= turn.slots;
        if turned && Cell::are_still(cells, counts) {
            let since = turn.axis.oldest();
            self.release(row);
            self.rows[row].track = Track::Still { since };
        }
    }

    /// The line of a row; a new one is filled with what was still until now.
    fn line(&mut self, row: usize, turn: Turn<'_>, before: f64) -> u32 {
        let slots = turn.slots as usize;
        let since = match self.rows[row].track {
            Track::Moves { line } => return line,
            Track::Still { since } => since,
        };
        let line = self.free.pop().unwrap_or_else(|| {
            let line = self.cells.len() / slots.max(1);
            let cells = &mut self.cells;
            // Windows are most of a node's memory: 12.5 % spare room, not 100 %.
            if cells.capacity() < cells.len() + slots {
                cells.reserve_exact(slots.max(cells.len() / 8));
            }
            cells.resize((line + 1) * slots, Cell::GAP);
            line as u32
        });
        let still = if self.counts() {
            Cell::rise(before, before)
        } else {
            Cell::value(before)
        };
        let first = line as usize * slots;
        if let Some(cells) = self.cells.get_mut(first..first + slots) {
            cells.fill(Cell::GAP);
            for page in since.max(turn.axis.oldest())..=self.rows[row].told {
                cells[page as usize % slots] = still;
            }
        }
        self.rows[row].track = Track::Moves { line };
        line
    }

    /// The series of the newest scrape: labels, window and source.
    pub(super) fn current<'a>(
        &'a self,
        axis_of: impl Fn(u16) -> Option<&'a Axis> + 'a,
        slots: u32,
    ) -> impl Iterator<Item = (&'a Labels, Window<'a>, u16)> {
        let rows = self.keys.iter().zip(&self.rows);
        rows.filter_map(move |(key, row)| {
            let window = self.window_of(row, &axis_of, slots)?;
            Some((&key.labels, window, row.speaker))
        })
    }

    /// The window of a row that was on its source's last scrape.
    #[inline]
    pub(super) fn window<'a>(
        &'a self,
        row: usize,
        axis_of: impl Fn(u16) -> Option<&'a Axis>,
        slots: u32,
    ) -> Option<Window<'a>> {
        self.window_of(self.rows.get(row)?, &axis_of, slots)
    }

    /// The row of these labels, reported or not.
    pub(super) fn place(&self, labels: &[&str]) -> Option<usize> {
        self.keys.find(labels)
    }

    /// Labels of all rows, reported or not.
    pub(super) fn labels(&self) -> impl Iterator<Item = &Labels> {
        self.keys.iter().map(|key| &key.labels)
    }

    #[inline]
    fn window_of<'a>(
        &'a self,
        row: &Row,
        axis_of: &impl Fn(u16) -> Option<&'a Axis>,
        slots: u32,
    ) -> Option<Window<'a>> {
        let axis = axis_of(row.speaker).filter(|axis| axis.newest() == row.told)?;
        let seen = match row.track {
            Track::Still { since } => Seen::Still { since },
            Track::Moves { line } => {
                let first = line as usize * slots as usize;
                Seen::Cells(self.cells.get(first..first + slots as usize)?)
            }
        };
        Some(Window::new(axis, self.counts(), row.latest, seen))
    }

    /// Ends a scrape; whether rows were forgotten. `newest` is the scrape, `gone` reports about a source's scrape
    /// whether it is too long ago.
    pub(super) fn finish(
        &mut self,
        (speaker, newest): (u16, u32),
        number: u64,
        gone: impl Fn(u16, u32) -> bool,
    ) -> bool {
        self.search.end();
        if self.rows.is_empty() {
            return false;
        }
        // In nearly every scrape all rows of a column are reported, and the rest can be skipped.
        let Told { page, .. } = self.told;
        let (is_whole, own) = (
            self.told.rows == self.rows.len(),
            self.told.speaker == speaker,
        );
        if is_whole && own && page == newest {
            return false;
        }
        if own || !is_whole {
            (self.changes.values, self.changes.presence) = (number, number);
        }
        let any = if is_whole {
            gone(self.told.speaker, page)
        } else {
            self.rows.iter().any(|row| gone(row.speaker, row.told))
        };
        if any {
            self.forget(gone);
            // As if no scrape had reported any: the next to come is counted from its beginning.
            self.told = Told {
                speaker: u16::MAX,
                rows: usize::MAX,
                ..self.told
            };
            (self.changes.values, self.changes.presence) = (number, number);
            self.changes.rows = number;
        }
        any
    }

    /// Forgets rows.
    fn forget(&mut self, gone: impl Fn(u16, u32) -> bool) {
        let mut rows = self.rows.iter();
        let stays = |row: &Row| !gone(row.speaker, row.told);
        self.keys
            .to_mut()
            .retain(|_| rows.next().is_some_and(stays));
        let free = &mut self.free;
        self.rows.retain(|row| {
            let gone = gone(row.speaker, row.told);
            if let (true, Track::Moves { line }) = (gone, row.track) {
                free.push(line);
            }
            !gone
        });
        self.next = 0;
    }

    /// Makes room for more scrapes.
    pub(super) fn resize<'a>(
        &mut self,
        axis_of: impl Fn(u16) -> Option<&'a Axis>,
        (old, new): (u32, u32),
    ) {
        let mut cells = Vec::with_capacity(self.cells.len() / old.max(1) as usize * new as usize);
        for row in &mut self.rows {
            let Track::Moves { line } = row.track else {
                continue;
            };
            let first = line as usize * old as usize;
            let own = self.cells.get(first..first + old as usize);
            if let (Some(own), Some(axis)) = (own, axis_of(row.speaker)) {
                let line = (cells.len() / new.max(1) as usize) as u32;
                let pages = axis.oldest()..=row.told;
                cells.extend(moved(own, pages, new, Cell::GAP));
                row.track = Track::Moves { line };
            }
        }
        self.cells = cells;
        self.free.clear();
    }
}
