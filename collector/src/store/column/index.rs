//! Rows of a column by line and labels, for pages that do not keep the order of the one before: no page costs more than its bytes.

use std::collections::BTreeMap;

use railscope_model::reading::Labels;

/// Rows that may be compared for one page before an index is worth its memory, in rows of the column.
const COMPARED: usize = 16;
/// A column of fewer rows counts as one of so many.
const FEW_ROWS: usize = 64;

/// Where rows are. It lives while one page is taken up. Trees, not hashes: nobody can choose labels that make one slow.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// By hash of the line up to the value; a row may have another line by now.
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

/// How a column finds its rows: by comparing while a page keeps its order, by an index once comparing has cost too much.
#[derive(Debug, Clone, Default)]
pub(super) struct Search {
    /// Rows that were compared for the page.
    compared: usize,
    index: Option<Box<Index>>,
    /// Rows that were ever compared, and look-ups in an index.
    #[cfg(test)]
    pub(super) work: usize,
}

impl Search {
    /// The index, built if the page has had so many rows compared that it pays.
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

    /// Ends a page.
    pub(super) fn end(&mut self) {
        self.compared = 0;
        self.index = None;
    }
}
