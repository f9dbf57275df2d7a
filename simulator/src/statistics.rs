//! Statistics that show whether two recordings of a cluster are alike: of counters, and of step
//! times.

/// Rates of a counter in windows of equal length, in units of the counter per second.
///
/// `samples` are times in seconds and the counter then, in order of time. Between two samples it is taken
/// to have grown evenly, so a hole shows as its mean. Only whole windows between `from` and `to` count;
/// none if the samples do not span them.
pub fn rates(samples: &[(f64, f64)], from: f64, to: f64, window: f64) -> Vec<f64> {
    let spanned = samples.first().is_some_and(|first| first.0 <= from)
        && samples.last().is_some_and(|last| last.0 >= to);
    if !spanned || window <= 0.0 {
        return Vec::new();
    }
    // A millionth of a window is rounding.
    let windows = ((to - from) / window + 1e-6).floor() as usize;
    let edges = (0..=windows).map(|edge| from + edge as f64 * window);
    let totals: Vec<f64> = edges.map(|edge| at(samples, edge)).collect();
    totals
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) / window)
        .collect()
}

/// The counter at a time that the samples span.
fn at(samples: &[(f64, f64)], moment: f64) -> f64 {
    let after = samples.partition_point(|sample| sample.0 < moment);
    let right = samples[after.min(samples.len() - 1)];
    let left = samples[after.saturating_sub(1)];
    if right.0 <= left.0 {
        return right.1;
    }
    left.1 + (right.1 - left.1) * ((moment - left.0) / (right.0 - left.0)).clamp(0.0, 1.0)
}

/// Arithmetic mean; none of an empty list.
pub fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

/// Coefficient of variation: standard deviation (of the population) over mean. None of an empty list, or if the
/// mean is zero.
pub fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / values.len() as f64).sqrt() / mean)
}

/// A quantile, interpolated between neighbors; none of an empty list.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    Some(low + (high - low) * place.fract())
}

/// Middle value; none of an empty list.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Correlation of a value with the one `lag` places before it: 1 the same, 0 unrelated, -1 opposite. None if
/// there are not twice as many values as the lag, or they are all the same.
pub fn autocorrelation(values: &[f64], lag: usize) -> Option<f64> {
    let mean = mean(values)?;
    let off: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let own: f64 = off.iter().map(|value| value * value).sum();
    if off.len() < 2 * lag.max(1) || own <= 0.0 {
        return None;
    }
    let count = off.len() - lag;
    let both: f64 = off.iter().zip(&off[lag..]).map(|(a, b)| a * b).sum();
    Some(both / count as f64 / (own / off.len() as f64))
}

/// How long something is on and off without a break, in values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runs {
    /// Lengths of the runs above the threshold, in order.
    pub on: Vec<usize>,
    /// Lengths of the others.
    pub off: Vec<usize>,
}

impl Runs {
    /// Runs of values above a threshold, and of the others.
    pub fn of(values: &[f64], threshold: f64) -> Self {
        let mut runs = Self::default();
        for run in values.chunk_by(|a, b| (*a > threshold) == (*b > threshold)) {
            let lengths = if run[0] > threshold {
                &mut runs.on
            } else {
                &mut runs.off
            };
            lengths.push(run.len());
        }
        runs
    }

    /// Share of the values above the threshold; none of an empty list.
    pub fn share_on(&self) -> Option<f64> {
        let sum = |lengths: &[usize]| lengths.iter().sum::<usize>();
        let (on, off) = (sum(&self.on), sum(&self.off));
        (on + off > 0).then(|| on as f64 / (on + off) as f64)
    }
}

/// Balance of load over parts that share it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Balance {
    /// Coefficient of variation over the parts: 0 is even, `sqrt(n - 1)` is all on one of `n`.
    pub variation: f64,
    /// Load of the busiest part as a multiple of the mean.
    pub most: f64,
}

impl Balance {
    /// Balance of parts by their loads; none if nothing is loaded.
    pub fn of(loads: &[f64]) -> Option<Self> {
        let variation = variation(loads)?;
        let most = loads.iter().copied().fold(0.0, f64::max) / mean(loads)?;
        Some(Self { variation, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Option<f64>, expected: f64) {
        assert!(
            found.is_some_and(|found| (found - expected).abs() < 1e-9),
            "{found:?} is not {expected}"
        );
    }

    #[test]
    fn a_rate_is_what_a_counter_grows_in_a_window_wherever_it_was_read() {
        let steady: Vec<(f64, f64)> = [0.0, 0.7, 1.1, 2.9, 4.0].map(|t| (t, 1e6 + 5.0 * t)).into();
        for window in [0.5, 1.0, 2.0] {
            for rate in rates(&steady, 0.0, 4.0, window) {
                near(Some(rate), 5.0);
            }
        }
        assert_eq!(rates(&steady, 0.0, 4.0, 1.5).len(), 2);
        // A register that is read more often than it moves: windows longer than its period do not see that.
        let stale = [(0.0, 0.0), (1.0, 0.0), (2.0, 8.0), (3.0, 8.0), (4.0, 16.0)];
        assert_eq!(rates(&stale, 0.0, 4.0, 1.0), [0.0, 8.0, 0.0, 8.0]);
        assert_eq!(rates(&stale, 0.0, 4.0, 2.0), [4.0, 4.0]);
        assert_eq!(rates(&stale, 0.0, 5.0, 1.0), Vec::<f64>::new());
        assert_eq!(rates(&[], 0.0, 1.0, 1.0), Vec::<f64>::new());
    }

    #[test]
    fn moments_and_quantiles_are_those_of_the_textbook() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        near(mean(&values), 5.0);
        near(variation(&values), 0.4);
        for (share, expected) in [(0.0, 2.0), (0.5, 4.5), (0.9, 7.6), (1.0, 9.0)] {
            near(quantile(&values, share), expected);
        }
        near(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!((mean(&[]), median(&[]), variation(&[])), (None, None, None));
        assert_eq!(variation(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_square_wave_is_like_itself_a_period_later_and_opposite_half_a_period_later() {
        let wave: Vec<f64> = (0..400).map(|i| f64::from(u8::from(i % 10 < 5))).collect();
        near(autocorrelation(&wave, 0), 1.0);
        near(autocorrelation(&wave, 10), 1.0);
        near(autocorrelation(&wave, 5), -1.0);
        assert_eq!(autocorrelation(&wave, 201), None);
        assert_eq!(autocorrelation(&[1.0; 9], 1), None);
        let runs = Runs::of(&wave, 0.5);
        assert_eq!((runs.on, runs.off), (vec![5; 40], vec![5; 40]));
    }

    #[test]
    fn runs_are_counted_at_both_ends_too() {
        let runs = Runs::of(&[3.0, 0.0, 0.0, 2.0, 2.0, 1.0, 0.0], 1.0);
        assert_eq!((&runs.on, &runs.off), (&vec![1, 2], &vec![2, 2]));
        near(runs.share_on(), 3.0 / 7.0);
        assert_eq!(Runs::of(&[], 1.0).share_on(), None);
    }

    #[test]
    fn balance_is_zero_where_load_is_even_and_most_where_one_part_has_it_all() {
        for (loads, variation, most) in [
            (&[3.0, 3.0, 3.0, 3.0, 3.0][..], 0.0, 1.0),
            (&[0.0, 0.0, 5.0, 0.0, 0.0], 2.0, 5.0),
        ] {
            let balance = Balance::of(loads);
            near(balance.map(|balance| balance.variation), variation);
            near(balance.map(|balance| balance.most), most);
        }
        assert_eq!(Balance::of(&[0.0, 0.0]), None);
        assert_eq!(Balance::of(&[]), None);
    }
}
