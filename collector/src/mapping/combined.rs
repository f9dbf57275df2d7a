//! Several values of a scrape that become one.

use std::mem;

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
    /// Whether a row that adds nothing up gave the value on this scrape, and on the one before: some devices report a total as well
    /// as its terms.
    has_total: bool,
    had_total: bool,
    /// When a sum lost a term, or its total. It is omitted then: a sum without a term is not a smaller sum.
    torn: Option<Timestamp>,
}

impl Combined {
    pub(super) const fn new(combine: Combine) -> Self {
        Self {
            combine,
            value: 0.0,
            terms: 0,
            expected: 0,
            has_total: false,
            had_total: false,
            torn: None,
        }
    }

    /// One more sample, of a row that combines so.
    pub(super) fn add(&mut self, value: f64, combine: Combine) {
        let is_total = combine == Combine::First;
        self.value = match (self.terms, self.has_total) {
            (0, _) => value,
            (_, true) => self.value,
            (_, false) if is_total => value,
            (_, false) => combine.apply(self.value, value),
        };
        self.has_total |= is_total;
        self.terms += 1;
    }

    /// Whether the scrape has any sample of it.
    pub(super) const fn is_there(&self) -> bool {
        self.terms > 0
    }

    /// Ends a scrape: the value, if it is whole.
    pub(super) fn take(&mut self, at: Timestamp) -> Option<f64> {
        let terms = mem::take(&mut self.terms);
        let has_total = mem::take(&mut self.has_total);
        (terms > 0 && self.is_whole(terms, has_total, at)).then_some(self.value)
    }

    /// Whether a sum has all its terms, or its total if it had one. After they have been away for so long that the history has
    /// forgotten the sum, it begins again without them.
    fn is_whole(&mut self, terms: usize, has_total: bool, at: Timestamp) -> bool {
        let lacks = match self.had_total {
            true => !has_total,
            false => self.combine == Combine::Sum && terms < self.expected,
        };
        if lacks {
            let since = *self.torn.get_or_insert(at);
            if at.seconds_since(since) <= 2.0 * STALE_AFTER_SECONDS {
                return false;
            }
        }
        self.torn = None;
        (self.expected, self.had_total) = (terms, has_total);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_counts_in_place_of_its_terms_wherever_it_stands() {
        let at = |seconds: f64| Timestamp(1_700_000_000_000).plus_seconds(seconds);
        let term = |value| (value, Combine::Sum);
        let total = (10.0, Combine::First);
        let mut value = Combined::new(Combine::Sum);
        for (seconds, samples, expected) in [
            (0.0, &[term(2.0), term(3.0)][..], Some(5.0)),
            (5.0, &[term(2.0), total, term(3.0)], Some(10.0)),
            (10.0, &[total, term(2.0), term(3.0)], Some(10.0)),
            // The total is missing, and none of the terms is it.
            (15.0, &[term(2.0), term(3.0)], None),
            (20.0, &[], None),
            (25.0, &[term(2.0), term(3.0), total], Some(10.0)),
            (30.0, &[term(2.0), term(3.0)], None),
            // The history has forgotten the total.
            (230.0, &[term(2.0), term(3.0)], Some(5.0)),
        ] {
            for (sample, combine) in samples {
                value.add(*sample, *combine);
            }
            assert_eq!(value.take(at(seconds)), expected, "at {seconds} s");
        }
    }
}
