//! The columns of one node by metric.

use railscope_model::metric::{CATALOGUE, Metric};

use super::column::Column;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = CATALOGUE.len().div_ceil(WORD_BITS);

/// Columns in the order of the catalogue. Detectors ask most nodes for most metrics that they do not have: a bit
/// for each metric answers without a look at the columns, and the bits before it are the column's place.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    columns: Vec<Column>,
    present: [u64; WORDS],
}

impl Columns {
    /// Place of a metric's column.
    #[inline]
    pub(super) fn place(&self, metric: &Metric) -> Option<usize> {
        let (word, bit) = position(metric);
        (self.present[word] & bit != 0).then(|| self.before(word, bit))
    }

    #[inline]
    pub(super) fn find(&self, metric: &Metric) -> Option<&Column> {
        self.columns.get(self.place(metric)?)
    }

    #[inline]
    pub(super) fn at(&self, place: usize) -> Option<&Column> {
        self.columns.get(place)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, place: usize) -> Option<&mut Column> {
        self.columns.get_mut(place)
    }

    /// Place of a metric's column, which is created if missing.
    pub(super) fn place_or_insert(&mut self, metric: &'static Metric) -> usize {
        let (word, bit) = position(metric);
        let place = self.before(word, bit);
        if self.present[word] & bit == 0 {
            self.present[word] |= bit;
            self.columns.insert(place, Column::new(metric));
        }
        place
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Column> {
        self.columns.iter_mut()
    }

    /// Drops the columns without rows.
    pub(super) fn drop_empty(&mut self) {
        self.columns.retain(|column| column.len() > 0);
        self.present = [0; WORDS];
        for column in &self.columns {
            let (word, bit) = position(column.metric);
            self.present[word] |= bit;
        }
    }

    /// The number of columns before a metric's.
    #[inline]
    fn before(&self, word: usize, bit: u64) -> usize {
        let earlier: u32 = self.present[..word]
            .iter()
            .map(|word| word.count_ones())
            .sum();
        (earlier + (self.present[word] & (bit - 1)).count_ones()) as usize
    }
}

/// Word and bit of a metric.
#[inline]
fn position(metric: &Metric) -> (usize, u64) {
    let index = usize::from(metric.index);
    (index / WORD_BITS, 1 << (index % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_at_their_places_in_the_order_of_the_catalogue() {
        let mut columns = Columns::default();
        // Of the first, the second and the last word, in no order.
        let indices = [CATALOGUE.len() - 1, 0, WORD_BITS, WORD_BITS - 1];
        for index in indices {
            let place = columns.place_or_insert(CATALOGUE[index]);
            assert_eq!(columns.place(CATALOGUE[index]), Some(place));
            assert_eq!(columns.place_or_insert(CATALOGUE[index]), place);
        }
        let places = indices.map(|index| columns.place(CATALOGUE[index]));
        assert_eq!(places, [Some(3), Some(0), Some(2), Some(1)]);
        for index in indices {
            let found = columns.find(CATALOGUE[index]);
            assert_eq!(
                found.map(|column| column.metric.index),
                Some(CATALOGUE[index].index)
            );
        }
        assert!(columns.find(CATALOGUE[1]).is_none());
        columns.drop_empty();
        assert!(
            indices
                .iter()
                .all(|index| columns.find(CATALOGUE[*index]).is_none())
        );
    }
}
