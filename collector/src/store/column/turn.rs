//! One scrape, as the columns that ingest it see it.

use crate::store::time_axis::Axis;

/// The node's arrivals, by number, that last changed a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::store) struct Changes {
    /// What its series report, or which of them report anything.
    pub(in crate::store) values: u64,
    /// Which of them report anything, or that this is no number.
    pub(in crate::store) presence: u64,
    /// Which rows it has.
    pub(in crate::store) rows: u64,
}

/// How many rows one scrape has reported.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) speaker: u16,
    pub(super) page: u32,
    pub(super) rows: usize,
    /// Number of the arrival that began to report the scrape.
    pub(super) arrival: u64,
}

/// A scrape that is being ingested.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Turn<'a> {
    pub(in crate::store) speaker: u16,
    pub(in crate::store) axis: &'a Axis,
    pub(in crate::store) slots: u32,
    /// Whether a scrape of the very same time was ingested before: what that one reported stands.
    pub(in crate::store) again: bool,
    /// Number of the arrival among all of the node.
    pub(in crate::store) number: u64,
    /// The source's newest scrape when it came: several arrivals may share one.
    pub(in crate::store) before: u32,
}
