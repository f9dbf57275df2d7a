//! Index of a column's rows by line and labels, for scrapes in a different order than the previous one. It keeps the cost of
//! a scrape proportional to its bytes.

use std::collections::BTreeMap;

use railscope_model::reading::Labels;

/// Comparisons in one scrape above which an index is built, as a multiple of the column's rows.
const COMPARED: usize = 16;
/// Minimum number of rows for that limit.
const FEW_ROWS: usize = 64;

/// Positions of rows, for the ingestion of one scrape. Trees instead of hash tables, so that no choice of labels makes it slow.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// By hash of the line up to the value; the row may have a newer line.
    lines: BTreeMap<u64, u32>,
    labels: BTreeMap<Labels, u32>,
}

impl Index {
    pub(super) fn of<'a>(rows: impl Iterator<Item = (&'a Labels, u64)>) -> Self {
        let mut index = Self::default();
        for (row, (labels, line)) in rows.enumerate() {
            index.add(labels, row);
            index.set_line(line, row);
        }
        index
    }

    pub(super) fn add(&mut self, labels: &Labels, row: usize) {
        self.labels.insert(labels.clone(), row as u32);
    }

    pub(super) fn set_line(&mut self, line: u64, row: usize) {
        self.lines.insert(line, row as u32);
    }

    pub(super) fn by_line(&self, line: u64) -> Option<usize> {
        self.lines.get(&line).map(|row| *row as usize)
    }

    pub(super) fn by_labels(&self, labels: &Labels) -> Option<usize> {
        self.labels.get(labels).map(|row| *row as usize)
    }
}

/// Row search: comparison while a scrape keeps the order of rows, an index after too many comparisons.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    /// Comparisons in this scrape.
    compared: usize,
    index: Option<Box<Index>>,
    /// Total comparisons and index lookups.
    #[cfg(test)]
    pub(super) work: usize,
}

impl Search {
    /// The index, built after too many comparisons in this scrape.
    pub(super) fn index<'a>(
        &mut self,
        rows: impl ExactSizeIterator<Item = (&'a Labels, u64)>,
    ) -> Option<&Index> {
        let count = rows.len();
        if self.index.is_none() && self.compared > COMPARED * count.max(FEW_ROWS) {
            self.index = Some(Box::new(Index::of(rows)));
            self.count(count);
        }
        if self.index.is_some() {
            self.count(1);
        }
        self.index.as_deref()
    }

    pub(super) fn index_mut(&mut self) -> Option<&mut Index> {
        self.index.as_deref_mut()
    }

    pub(super) fn count(&mut self, compared: usize) {
        self.compared += compared;
        #[cfg(test)]
        {
            self.work += compared;
        }
    }

    /// Ends a scrape.
    pub(super) fn end(&mut self) {
        self.compared = 0;
        self.index = None;
    }
}
