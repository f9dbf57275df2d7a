//! What became of the samples of one page, and how much of a page is read at all.

use railscope_model::exposition::ParseError;

use super::node::NODE_SERIES_LIMIT;

/// Lines of one page that cannot be read before the rest of it is left unread: it is no page of metrics.
pub const BAD_LINES_LIMIT: usize = 10_000;
/// How many of them are kept in words.
const BAD_LINES_TOLD: usize = 8;

/// What became of the samples of one page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Samples taken up.
    pub kept: usize,
    /// Samples of series that nothing in the collector reads.
    pub unread: usize,
    /// Samples of series that Railscope does not know.
    pub unknown: usize,
    /// Samples beyond [`NODE_SERIES_LIMIT`], and lines of a page that was not read to its end because of them.
    pub over_limit: usize,
    /// Samples of series that a speaker who is believed before this one tells too.
    pub overruled: usize,
    /// Samples of pages older than one that was taken up before, or that a page tells twice. What was judged
    /// already is never rewritten.
    pub late: usize,
    /// Samples of another exporter whose type, labels or value do not fit the metric that they are mapped to, and values that
    /// the metric cannot have.
    pub unfit: usize,
    /// The first of them, in words.
    pub first_unfit: Option<String>,
    /// Lines that could not be read.
    pub malformed: usize,
    /// The first few of them.
    pub errors: Vec<ParseError>,
}

impl Ingested {
    /// Counts a line that cannot be read.
    pub(crate) fn refuse_line(&mut self, error: ParseError) {
        self.malformed += 1;
        if self.errors.len() < BAD_LINES_TOLD {
            self.errors.push(error);
        }
    }

    /// Whether reading on costs time and brings nothing: more is refused already than an honest page has.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.over_limit >= NODE_SERIES_LIMIT || self.malformed >= BAD_LINES_LIMIT
    }

    /// Counts what is left of a page that is not read to its end.
    pub(crate) fn leave(&mut self, rest: &str) {
        self.over_limit += rest.bytes().filter(|byte| *byte == b'\n').count();
    }
}
