//! Several values of a scrape that become one.

use railscope_model::fabric::Timestamp;

use super::rows::Combine;
use crate::store::STALE_AFTER_SECONDS;

/// The value of one of our series, of one or more samples.
#[derive(Debug)]
pub(super) struct Combined {
    combine: Combine,
    value: f64,
    /// Samples that came together in the value on this scrape, and how many there should be.
    terms: usize,
    expected: usize,
    /// When a sum lost a term. It is omitted then: a sum without a term is not a smaller sum.
    torn: Option<Timestamp>,
}

impl Combined {
    pub(super) const fn new(combine: Combine) -> Self {
        Self {
            combine,
            value: 0.0,
            terms: 0,
            expected: 0,
            torn: None,
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.value = match self.terms {
            0 => value,
            _ => self.combine.apply(self.value, value),
        };
        self.terms += 1;
    }

    /// Whether the scrape has any sample of it.
    pub(super) const fn is_there(&self) -> bool {
        self.terms > 0
    }

    /// Ends a scrape: the value, if it is whole.
    pub(super) fn take(&mut self, at: Timestamp) -> Option<f64> {
        let terms = std::mem::take(&mut self.terms);
        let is_whole = terms > 0 && (self.combine != Combine::Sum || self.is_whole(terms, at));
        is_whole.then_some(self.value)
    }

    /// Whether a sum has all its terms. After a term has been away for so long that the history has
    /// forgotten the sum, it begins again without it.
    fn is_whole(&mut self, terms: usize, at: Timestamp) -> bool {
        if terms < self.expected {
            let since = *self.torn.get_or_insert(at);
            if at.seconds_since(since) <= 2.0 * STALE_AFTER_SECONDS {
                return false;
            }
        }
        self.torn = None;
        self.expected = terms;
        true
    }
}
