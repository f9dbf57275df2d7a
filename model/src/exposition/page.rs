//! An exposition: the readings of one node in order, by reference.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::metric::{Metric, Profile};
use crate::reading::{Labels, NodeReading, Sample, Value};

/// Readings in the order of the exposition: catalogue, then labels; each series once, the first one stays.
///
/// It refers to the readings' samples and copies none. Its order is remembered: readings of one node nearly always
/// hold the same series as the last ones, so that an exposition [after](Self::after) another rarely sorts anything.
#[derive(Debug, Clone, Default)]
pub struct Page {
    readings: Vec<Arc<NodeReading>>,
    /// Positions of the samples, in the order of the exposition. Shared by all expositions of the same series.
    places: Arc<[Place]>,
}

/// Where a sample stands: which reading, and which sample of it.
#[derive(Debug, Clone, Copy)]
struct Place {
    reading: u32,
    sample: u32,
}

impl Page {
    /// The exposition of one reading.
    pub fn new(reading: Arc<NodeReading>) -> Self {
        Self::default().after([reading])
    }

    /// The exposition of these readings. If they hold the same series as this one, in the same
    /// sequence, nothing is sorted: that is one comparison a sample, and of addresses mostly, as samplers
    /// keep the labels of a series.
    #[must_use]
    pub fn after(&self, readings: impl IntoIterator<Item = Arc<NodeReading>>) -> Self {
        let readings: Vec<_> = readings.into_iter().collect();
        let known = |(old, new): (&Arc<NodeReading>, _)| Arc::ptr_eq(old, new) || same(old, new);
        let places = if self.readings.len() == readings.len()
            && self.readings.iter().zip(&readings).all(known)
        {
            Arc::clone(&self.places)
        } else {
            sorted(&readings)
        };
        Self { readings, places }
    }

    /// The samples in order.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.places.iter().map(|place| self.sample(*place))
    }

    /// Every metric of which a profile includes a sample, with these samples, in order.
    pub(super) fn families(
        &self,
        profile: Profile,
    ) -> impl Iterator<Item = (&'static Metric, impl Iterator<Item = &Sample> + Clone)> {
        let of_one = |a: &Place, b: &Place| self.sample(*a).metric == self.sample(*b).metric;
        self.places.chunk_by(of_one).filter_map(move |places| {
            let samples = places.iter().map(|place| self.sample(*place));
            let mut shown = samples
                .filter(move |sample| sample.profile <= profile)
                .peekable();
            Some((shown.peek()?.metric, shown))
        })
    }

    /// Samples whose series is already in the exposition.
    pub fn dropped(&self) -> usize {
        let all = self.readings.iter().map(|reading| reading.samples().len());
        all.sum::<usize>() - self.places.len()
    }

    /// How many series a profile shows.
    pub fn series(&self, profile: Profile) -> usize {
        let shown = self.samples().filter(|sample| sample.profile <= profile);
        shown.map(Sample::series).sum()
    }

    /// Sets the value of a series; nothing if the exposition does not contain it. Copies its
    /// reading if others hold that, too.
    pub fn set(&mut self, metric: &'static Metric, labels: &Labels, value: impl Into<Value>) {
        let wanted = (metric.index, labels);
        let places = Arc::clone(&self.places);
        let found = places.binary_search_by(|place| self.sample(*place).key().cmp(&wanted));
        if let Ok(found) = found {
            let place = places[found];
            let reading = Arc::make_mut(&mut self.readings[place.reading as usize]);
            reading.set(place.sample as usize, value.into());
        }
    }

    fn sample(&self, place: Place) -> &Sample {
        &self.readings[place.reading as usize].samples()[place.sample as usize]
    }
}

/// Whether both readings hold the same series in the same sequence.
fn same(old: &NodeReading, new: &NodeReading) -> bool {
    let (old, new) = (old.samples(), new.samples());
    let same = |(old, new): (&Sample, &Sample)| {
        std::ptr::eq(old.metric, new.metric) && old.labels == new.labels
    };
    old.len() == new.len() && old.iter().zip(new).all(same)
}

/// The order of the exposition.
fn sorted(readings: &[Arc<NodeReading>]) -> Arc<[Place]> {
    let places = (0..).zip(readings).flat_map(|(reading, of)| {
        let samples = 0..of.samples().len() as u32;
        samples.map(move |sample| Place { reading, sample })
    });
    let key = |place: &Place| {
        let reading = &readings[place.reading as usize];
        reading.samples()[place.sample as usize].key()
    };
    let mut places: Vec<_> = places.collect();
    places.sort_by(|a, b| key(a).cmp(&key(b)));
    places.dedup_by(|later, first| key(later).cmp(&key(first)) == Ordering::Equal);
    places.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GPU_ENERGY, GPU_POWER};

    /// Series with values 0, 1, … in the sequence given.
    fn reading(series: &[(&'static Metric, &str)]) -> NodeReading {
        let mut reading = NodeReading::default();
        for (place, (metric, gpu)) in series.iter().enumerate() {
            reading.push(metric, &Labels::new([gpu]), place as f64);
        }
        reading
    }

    /// A remembered order equals sorting, whatever came before and however it is split.
    #[test]
    fn readings_in_any_sequence_are_ordered_as_by_sorting() {
        let mut page = Page::default();
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
            for split in 0..=series.len() {
                let (left, right) = series.split_at(split);
                let parts = [reading(left), reading(right)];
                let mut sorted = parts[0].clone();
                sorted.extend(&parts[1]);
                let dropped = sorted.normalize();
                page = page.after(parts.map(Arc::new));
                assert!(page.samples().eq(sorted.samples()), "{series:?} at {split}");
                assert_eq!(page.dropped(), dropped, "{series:?} at {split}");
            }
        }
    }

    #[test]
    fn a_page_refers_to_its_readings_and_its_order_is_shared_while_series_stay() {
        let series = [(&GPU_POWER, "1"), (&GPU_POWER, "0")];
        let first = Arc::new(reading(&series));
        let page = Page::new(Arc::clone(&first));
        let mut shown: Vec<_> = page.samples().map(std::ptr::from_ref).collect();
        shown.reverse();
        let samples: Vec<_> = first.samples().iter().map(std::ptr::from_ref).collect();
        assert_eq!(shown, samples);
        let order = |page: &Page| Arc::as_ptr(&page.places);
        let next = page.after([Arc::new(reading(&series))]);
        assert_eq!(order(&next), order(&page));
        let other = page.after([Arc::new(reading(&series[..1]))]);
        assert_ne!(order(&other), order(&page));
    }

    #[test]
    fn a_value_is_set_where_its_series_stands_and_nowhere_else() {
        let series = ["2", "0", "1"].map(|gpu| (&GPU_POWER, gpu));
        let shared = Arc::new(reading(&series));
        let mut page = Page::new(Arc::clone(&shared));
        page.set(&GPU_POWER, &Labels::new(["1"]), 7.0);
        page.set(&GPU_POWER, &Labels::new(["3"]), 9.0);
        let values: Vec<_> = page.samples().map(|sample| sample.value.as_f64()).collect();
        assert_eq!(values, [1.0, 7.0, 0.0]);
        assert_eq!(*shared, reading(&series), "others' readings stay");
    }
}
