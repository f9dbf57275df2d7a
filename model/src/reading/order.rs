//! The order of the page, remembered: readings of one node nearly always hold the same series as the last ones.

use super::{Labels, NodeReading, Sample};

/// Puts readings into the order of the page as [`NodeReading::normalise`] does. Where one holds the same series
/// in the same sequence as the one before, nothing is sorted: that is one comparison a sample in place of a
/// dozen, and of addresses mostly, as samplers keep the labels of a series.
#[derive(Debug, Default)]
pub struct PageOrder {
    /// The series of the last reading, in the sequence in which they came.
    came: Vec<(u16, Labels)>,
    /// Places in `came` in the order of the page, those of duplicates left out.
    places: Vec<usize>,
}

impl PageOrder {
    /// Puts the samples into page order and drops those whose series already stands there; the first one
    /// stays. Returns how many it dropped.
    pub fn normalise(&mut self, reading: &mut NodeReading) -> usize {
        let same = self.came.len() == reading.samples.len()
            && self
                .came
                .iter()
                .zip(&reading.samples)
                .all(|((index, labels), sample)| (*index, labels) == sample.key());
        if !same {
            self.learn(&reading.samples);
        }
        let samples = std::mem::take(&mut reading.samples);
        let mut samples: Vec<Option<Sample>> = samples.into_iter().map(Some).collect();
        let ordered = self
            .places
            .iter()
            .filter_map(|place| samples[*place].take());
        reading.samples = ordered.collect();
        self.came.len() - self.places.len()
    }

    fn learn(&mut self, samples: &[Sample]) {
        let series = samples
            .iter()
            .map(|sample| (sample.metric.index, sample.labels.clone()));
        self.came = series.collect();
        self.places = (0..samples.len()).collect();
        self.places
            .sort_by(|a, b| samples[*a].key().cmp(&samples[*b].key()));
        self.places
            .dedup_by(|later, first| samples[*later].key() == samples[*first].key());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU_ENERGY, GPU_POWER};

    /// A remembered order gives what sorting gives, whatever came before.
    #[test]
    fn readings_in_any_sequence_are_ordered_as_by_sorting() {
        let mut order = PageOrder::default();
        let (power, energy) = (&GPU_POWER, &GPU_ENERGY);
        for series in [
            vec![(energy, "1"), (power, "1"), (power, "0")],
            vec![(energy, "1"), (power, "1"), (power, "0")],
            vec![(power, "1"), (energy, "1"), (power, "0")],
            vec![(power, "1"), (power, "1"), (energy, "1"), (power, "1")],
            vec![(power, "1"), (power, "1"), (energy, "1"), (power, "2")],
            vec![],
            vec![(power, "1")],
        ] {
            let mut sorted = NodeReading::default();
            for (place, (metric, gpu)) in series.iter().enumerate() {
                sorted.push(metric, &Labels::new([gpu]), place as f64);
            }
            let mut ordered = sorted.clone();
            let dropped = sorted.normalise();
            assert_eq!(order.normalise(&mut ordered), dropped, "{series:?}");
            assert_eq!(ordered, sorted, "{series:?}");
        }
    }

    #[test]
    fn a_value_is_set_where_its_series_stands_and_nowhere_else() {
        let mut reading = NodeReading::default();
        for gpu in ["2", "0", "1"] {
            reading.push(&GPU_POWER, &Labels::new([gpu]), 0.0);
        }
        reading.normalise();
        reading.set(&GPU_POWER, &Labels::new(["1"]), 7.0);
        reading.set(&GPU_POWER, &Labels::new(["3"]), 9.0);
        let values: Vec<_> = reading
            .samples()
            .iter()
            .map(|sample| sample.value.as_f64())
            .collect();
        assert_eq!(values, [0.0, 7.0, 0.0]);
    }
}
