//! Intervals and quantiles of the small counts that a harness sees.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

/// Two-sided 95 % of a normal distribution.
const Z_95: f64 = 1.959_963_984_540_054;
/// What is left on each side of a two-sided 95 % interval.
const TAIL: f64 = 0.025;

/// Some of a number of trials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ratio {
    /// Trials that hit.
    pub(super) hits: usize,
    /// All trials.
    pub(super) of: usize,
}

impl Ratio {
    /// Number of successes.
    pub(super) fn count(answers: impl IntoIterator<Item = bool>) -> Self {
        answers
            .into_iter()
            .fold(Self::default(), |ratio, hit| Self {
                hits: ratio.hits + usize::from(hit),
                of: ratio.of + 1,
            })
    }

    /// The share; none without trials.
    pub(super) fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.hits as f64 / self.of as f64)
    }

    /// Wilson's score interval at 95 % (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927); none without trials.
    pub(super) fn interval(self) -> Option<(f64, f64)> {
        let share = self.value()?;
        let (n, z2) = (self.of as f64, Z_95 * Z_95);
        let middle = share + z2 / (2.0 * n);
        let half = Z_95 * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z2 / n;
        let low = ((middle - half) / scale).max(0.0);
        Some((low, ((middle + half) / scale).min(1.0)))
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Ratio", 5)?;
        fields.serialize_field("hits", &self.hits)?;
        fields.serialize_field("of", &self.of)?;
        fields.serialize_field("value", &self.value())?;
        fields.serialize_field("low", &self.interval().map(|(low, _)| low))?;
        fields.serialize_field("high", &self.interval().map(|(_, high)| high))?;
        fields.end()
    }
}

/// Events in a span of simulated time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rate {
    /// Events.
    pub(super) count: usize,
    /// Simulated days in which they were counted.
    pub(super) days: f64,
}

impl Rate {
    /// Events per day; none without time.
    pub(super) fn per_day(self) -> Option<f64> {
        (self.days > 0.0).then(|| self.count as f64 / self.days)
    }

    /// Exact Poisson interval of the events per day at 95 %; none without time.
    pub(super) fn interval(self) -> Option<(f64, f64)> {
        let (low, high) = poisson_interval(self.count);
        (self.days > 0.0).then(|| (low / self.days, high / self.days))
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("Rate", 5)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("days", &self.days)?;
        fields.serialize_field("per_day", &self.per_day())?;
        fields.serialize_field("low", &self.interval().map(|(low, _)| low))?;
        fields.serialize_field("high", &self.interval().map(|(_, high)| high))?;
        fields.end()
    }
}

/// The means under which seeing so many events, or more, or fewer, is no rarer than [`TAIL`]
/// (F. Garwood, Biometrika 28, 1936), found by halving.
fn poisson_interval(count: usize) -> (f64, f64) {
    let n = count as f64;
    let most = n + 10.0 * n.sqrt() + 20.0;
    // At most `upto` events: falls as the mean rises.
    let solve = |upto: f64, chance: f64| {
        let (mut low, mut high) = (0.0, most);
        for _ in 0..100 {
            let mean = 0.5 * (low + high);
            if poisson_at_most(upto, mean) > chance {
                low = mean;
            } else {
                high = mean;
            }
        }
        low
    };
    let low = if count == 0 {
        0.0
    } else {
        solve(n - 1.0, 1.0 - TAIL)
    };
    (low, solve(n, TAIL))
}

/// Probability of at most so many events under a mean.
fn poisson_at_most(upto: f64, mean: f64) -> f64 {
    if mean <= 0.0 {
        return 1.0;
    }
    let (mut sum, mut log_term, mut k) = (0.0, -mean, 0.0);
    while k <= upto {
        sum += f64::exp(log_term);
        k += 1.0;
        log_term += f64::ln(mean / k);
    }
    f64::min(sum, 1.0)
}

/// The smallest value that at least the share `q` of the values does not exceed; none without values.
pub(super) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: (f64, f64), low: f64, high: f64) {
        let near = |a: f64, b: f64| (a - b).abs() < 5e-4;
        assert!(near(found.0, low) && near(found.1, high), "{found:?}");
    }

    #[test]
    fn wilsons_interval_is_that_of_published_tables() {
        // Newcombe, Statistics in Medicine 17, 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (hits, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            close(Ratio { hits, of }.interval().expect("trials"), low, high);
        }
        assert_eq!(Ratio::default().interval(), None);
    }

    #[test]
    fn the_poisson_interval_is_garwoods() {
        for (count, low, high) in [
            (0, 0.0, 3.6889),
            (1, 0.0253, 5.5716),
            (5, 1.6235, 11.6683),
            (50, 37.1110, 65.9188),
        ] {
            close(poisson_interval(count), low, high);
        }
        let rate = Rate {
            count: 0,
            days: 2.0,
        };
        close(rate.interval().expect("time"), 0.0, 1.8444);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.5), Some(2.0));
        assert_eq!(quantile(&values, 0.9), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
