//! What changed between two readings of the same series: nearly all values of a source stay as they were.

use serde::{Deserialize, Serialize};

use super::{NodeReading, Value};

/// Values that differ from those of an earlier reading, each with its place there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changes(Vec<(usize, Value)>);

/// Changes that belong to another reading.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a value for place {place} of {samples}, or one that its metric cannot have")]
pub struct NotItsChanges {
    /// Where the value should go.
    pub place: usize,
    /// Samples of the reading.
    pub samples: usize,
}

impl NodeReading {
    /// What changed since an earlier reading; none unless both hold the same series in the same sequence.
    pub fn changes_since(&self, before: &Self) -> Option<Changes> {
        if self.samples.len() != before.samples.len() {
            return None;
        }
        let mut changes = Vec::new();
        for (place, (now, before)) in self.samples.iter().zip(&before.samples).enumerate() {
            if now.key() != before.key() || now.profile != before.profile {
                return None;
            }
            if now.value != before.value {
                changes.push((place, now.value.clone()));
            }
        }
        Some(Changes(changes))
    }

    /// Makes the later reading out of the earlier one.
    ///
    /// # Errors
    /// They are changes of another reading; those before the first that does not fit are made.
    pub fn apply(&mut self, changes: Changes) -> Result<(), NotItsChanges> {
        let samples = self.samples.len();
        for (place, value) in changes.0 {
            match self.samples.get_mut(place) {
                Some(sample) if value.fits(sample.metric.kind) => sample.value = value,
                _ => return Err(NotItsChanges { place, samples }),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU_ENERGY, GPU_POWER, GPU_TEMPERATURE};
    use crate::reading::Labels;

    fn reading(values: &[f64]) -> NodeReading {
        let mut reading = NodeReading::default();
        for (metric, value) in [&GPU_POWER, &GPU_ENERGY].into_iter().zip(values) {
            reading.push(metric, &Labels::new(["0"]), *value);
        }
        reading
    }

    #[test]
    fn changes_make_the_later_reading_out_of_the_earlier_one_and_hold_nothing_else() {
        for (before, after, changed) in [
            ([1.0, 2.0], [1.0, 2.0], 0),
            ([1.0, 2.0], [1.0, 3.0], 1),
            ([1.0, 2.0], [0.0, 0.0], 2),
        ] {
            let (mut before, after) = (reading(&before), reading(&after));
            let changes = after.changes_since(&before).expect("the same series");
            assert_eq!(changes.0.len(), changed);
            let text = serde_json::to_string(&changes).expect("text");
            before
                .apply(serde_json::from_str(&text).expect("changes"))
                .expect("fits");
            assert_eq!(before, after);
        }
    }

    #[test]
    fn readings_of_other_series_have_no_changes_between_them() {
        let mut other = NodeReading::default();
        other.push(&GPU_POWER, &Labels::new(["0"]), 1.0);
        other.push(&GPU_TEMPERATURE, &Labels::new(["0", "gpu"]), 2.0);
        let mut full = reading(&[1.0]);
        full.push_full(&GPU_ENERGY, &Labels::new(["0"]), 2.0);
        for later in [reading(&[1.0]), NodeReading::default(), other, full] {
            assert_eq!(later.changes_since(&reading(&[1.0, 2.0])), None);
        }
    }

    #[test]
    fn changes_of_another_reading_are_refused() {
        let mut whole = reading(&[1.0]);
        let outside = Changes(vec![(1, Value::Int(3))]);
        let error = whole.apply(outside).expect_err("there is no second sample");
        assert_eq!((error.place, error.samples), (1, 1));
    }
}
