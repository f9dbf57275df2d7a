//! Result of the ingestion of one scrape body, and its limits.

use railscope_model::exposition::ParseError;

use super::node::NODE_SERIES_LIMIT;

/// Maximum number of invalid lines of one scrape body; the rest of it is not read.
pub const BAD_LINES_LIMIT: usize = 10_000;
/// Maximum number of stored errors.
const MAX_ERRORS: usize = 8;

/// Number of samples of one scrape body by result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Stored samples.
    pub kept: usize,
    /// Ignored samples: series that the collector does not use.
    pub unread: usize,
    /// Samples of unknown series.
    pub unknown: usize,
    /// Samples above [`NODE_SERIES_LIMIT`], and the remaining lines of a scrape body that was not read completely.
    pub over_limit: usize,
    /// Samples of series that a source of higher precedence also reports.
    pub overruled: usize,
    /// Out-of-order or duplicate samples; analyzed samples are never overwritten.
    pub late: usize,
    /// Samples of a third-party exporter whose type, labels or value do not match their mapped metric, and invalid values.
    pub unfit: usize,
    /// Description of the first of them.
    pub first_unfit: Option<String>,
    /// Invalid lines.
    pub malformed: usize,
    /// Errors of the first of them.
    pub errors: Vec<ParseError>,
}

impl Ingested {
    /// Counts an invalid line.
    pub(crate) fn refuse_line(&mut self, error: ParseError) {
        self.malformed += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// Whether ingestion stops, because more lines were rejected than a valid scrape body has.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.over_limit >= NODE_SERIES_LIMIT || self.malformed >= BAD_LINES_LIMIT
    }

    /// Counts the remaining lines of a scrape body that is not read completely.
    pub(crate) fn leave(&mut self, rest: &str) {
        self.over_limit += rest.bytes().filter(|byte| *byte == b'\n').count();
    }
}
