//! The series of one metric of one node as a column: rows of labels, and a matrix of row by slot of time.

use railscope_model::metric::{Kind, Metric};
use railscope_model::reading::Labels;

use super::axis::{Axis, moved};
use super::window::{Cell, Seen, Window};

/// Where a row's slots are.
#[derive(Debug, Clone, Copy)]
enum Track {
    /// Nowhere: the value has been the same on every page since this one. Most series of a healthy node.
    Still { since: u32 },
    /// In this line of the matrix.
    Moves { line: u32 },
}

/// One series.
#[derive(Debug, Clone)]
struct Row {
    labels: Labels,
    /// Hash of its line up to the value; 0 if it came otherwise.
    line: u64,
    latest: f64,
    /// Its speaker's page that told it last.
    told: u32,
    track: Track,
    /// Place of the one that tells it among the node's voices.
    speaker: u16,
}

/// All series of one metric.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) metric: &'static Metric,
    rows: Vec<Row>,
    /// Lines of as many cells as there are slots, one behind the other.
    cells: Vec<Cell>,
    /// Lines of no row.
    free: Vec<u32>,
    /// The row after that which was found last: pages keep their order.
    next: usize,
}

/// A page that is being taken up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) speaker: u16,
    pub(super) axis: &'a Axis,
    pub(super) slots: u32,
    /// Whether a page of the very same time was taken up before: what that one told stands.
    pub(super) again: bool,
}

impl Column {
    pub(super) const fn new(metric: &'static Metric) -> Self {
        Self {
            metric,
            rows: Vec::new(),
            cells: Vec::new(),
            free: Vec::new(),
            next: 0,
        }
    }

    fn counts(&self) -> bool {
        matches!(self.metric.kind, Kind::Counter | Kind::Histogram)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row of a line whose hash is known.
    pub(super) fn by_line(&mut self, line: u64) -> Option<usize> {
        self.find(|row| row.line == line)
    }

    /// The row with these labels.
    pub(super) fn by_labels(&mut self, labels: &Labels) -> Option<usize> {
        self.find(|row| row.labels == *labels)
    }

    fn find(&mut self, is_it: impl Fn(&Row) -> bool) -> Option<usize> {
        let next = self.rows.get(self.next).is_some_and(&is_it);
        let found = if next {
            self.next
        } else {
            self.rows.iter().position(is_it)?
        };
        self.next = (found + 1) % self.rows.len();
        Some(found)
    }

    /// Adds a row, which is told nothing yet.
    pub(super) fn add(&mut self, labels: Labels, turn: Turn<'_>) -> usize {
        let page = turn.axis.newest();
        self.rows.push(Row {
            labels,
            line: 0,
            latest: f64::NAN,
            told: page,
            track: Track::Still { since: page },
            speaker: turn.speaker,
        });
        self.rows.len() - 1
    }

    pub(super) fn set_line(&mut self, row: usize, line: u64) {
        if let Some(row) = self.rows.get_mut(row) {
            row.line = line;
        }
    }

    pub(super) fn speaker(&self, row: usize) -> Option<u16> {
        self.rows.get(row).map(|row| row.speaker)
    }

    /// Begins a row anew with another speaker: its count of the same thing began elsewhere.
    pub(super) fn hand_over(&mut self, row: usize, turn: Turn<'_>) {
        self.release(row);
        if let Some(row) = self.rows.get_mut(row) {
            let page = turn.axis.newest();
            row.speaker = turn.speaker;
            row.told = page;
            row.track = Track::Still { since: page };
            row.latest = f64::NAN;
        }
    }

    fn release(&mut self, row: usize) {
        if let Some(Track::Moves { line }) = self.rows.get(row).map(|row| row.track) {
            self.free.push(line);
        }
    }

    /// Takes up what a page tells of a row; `false` if that page told it already.
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
        let before = std::mem::replace(&mut known.latest, value);
        if begins {
            // Nothing was told of it before that a value could be held against.
            let since = page;
            known.told = page;
            self.release(row);
            self.rows[row].track = Track::Still { since };
            return true;
        }
        let still = matches!(known.track, Track::Still { .. }) && unbroken;
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

    /// Writes the newest cell of a row, and gaps for the pages since it was told last.
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
        // Once a turn of the ring, a row that has come to rest gives its line back.
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
            let lines = self.cells.len() / slots.max(1);
            self.cells.resize((lines + 1) * slots, Cell::GAP);
            lines as u32
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

    /// The series of the newest pages: labels, window and speaker.
    pub(super) fn current<'a>(
        &'a self,
        axis_of: impl Fn(u16) -> Option<&'a Axis> + 'a,
        slots: u32,
    ) -> impl Iterator<Item = (&'a Labels, Window<'a>, u16)> {
        let (counts, slots) = (self.counts(), slots as usize);
        self.rows.iter().filter_map(move |row| {
            let axis = axis_of(row.speaker).filter(|axis| axis.newest() == row.told)?;
            let seen = match row.track {
                Track::Still { since } => Seen::Still { since },
                Track::Moves { line } => {
                    let first = line as usize * slots;
                    Seen::Cells(self.cells.get(first..first + slots)?)
                }
            };
            let window = Window::new(axis, counts, row.latest, seen);
            Some((&row.labels, window, row.speaker))
        })
    }

    /// Forgets rows; whether there were any of them.
    pub(super) fn forget(&mut self, gone: impl Fn(u16, u32) -> bool) -> bool {
        // Of nearly every page the answer is no.
        if !self.rows.iter().any(|row| gone(row.speaker, row.told)) {
            return false;
        }
        let free = &mut self.free;
        self.rows.retain(|row| {
            let gone = gone(row.speaker, row.told);
            if let (true, Track::Moves { line }) = (gone, row.track) {
                free.push(line);
            }
            !gone
        });
        self.next = 0;
        true
    }

    /// Makes room for more pages.
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
        // By now a node has told most of what it ever will.
        self.rows.shrink_to_fit();
    }
}
