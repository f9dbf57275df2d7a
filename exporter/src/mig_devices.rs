//! MIG devices by UUID: the GPU sampler learns them of NVML, and samplers that are given UUIDs need them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use railscope_model::metric::MIG;
use railscope_model::reading::NodeReading;

/// Which GPU each MIG device belongs to, as NVML last reported. All clones share what is known.
#[derive(Debug, Clone, Default)]
pub struct MigDevices(Arc<Mutex<BTreeMap<String, u16>>>);

impl MigDevices {
    /// Forgets all and reads what these readings report about MIG devices.
    pub fn learn<'a>(&self, readings: impl IntoIterator<Item = &'a NodeReading>) {
        let samples = readings.into_iter().flat_map(NodeReading::samples);
        let migs = samples.filter(|sample| *sample.metric == MIG);
        let known = migs.filter_map(|sample| {
            let labels: Vec<_> = sample.labels.values().collect();
            let [gpu, _, _, uuid, _] = labels[..] else {
                return None;
            };
            // A device that went away between two calls has no UUID.
            (!uuid.is_empty()).then_some(())?;
            Some((uuid.to_owned(), gpu.parse().ok()?))
        });
        let known = known.collect();
        // Nothing is left half changed by a panic.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// GPU ordinals by UUID.
    pub fn known(&self) -> BTreeMap<String, u16> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::reading::Labels;

    #[test]
    fn the_last_readings_are_all_that_is_known() {
        let migs = MigDevices::default();
        let reading = |rows: &[[&str; 5]]| {
            let mut reading = NodeReading::default();
            for row in rows {
                reading.push(&MIG, &Labels::new(row), true);
            }
            reading
        };
        let of_0 = reading(&[
            ["0", "1", "0", "MIG-a", "3g.40gb"],
            ["0", "2", "0", "", "3g.40gb"],
        ]);
        let of_12 = reading(&[["12", "1", "0", "MIG-b", ""]]);
        migs.clone().learn([&of_0, &of_12]);
        let expected = [("MIG-a".to_owned(), 0), ("MIG-b".to_owned(), 12)];
        assert_eq!(migs.known(), BTreeMap::from(expected));
        migs.learn([&NodeReading::default()]);
        assert!(migs.known().is_empty());
    }
}
