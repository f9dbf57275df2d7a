//! Deterministic noise: the same seed, part and tick give the same value, independent of earlier calls.

/// A stream of noise, named by a seed and by what it belongs to.
///
/// Values are drawn by index and not one after the other, so that parts may be computed in any order
/// and on any number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise(u64);

/// Output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014; constants as in Vigna's public-domain splitmix64.c).
const fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Increment of SplitMix64: 2^64 divided by the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Noise {
    /// The stream of a whole run.
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    /// The stream of one part of what this stream belongs to.
    #[must_use]
    pub const fn part(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number.wrapping_add(GOLDEN))))
    }

    /// 64 random bits.
    pub const fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// Evenly spread in `0.0..1.0`.
    pub fn uniform(self, index: u64) -> f64 {
        // 53 bits are what a 64-bit float holds exactly.
        (self.bits(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Bell-shaped with mean 0 and standard deviation 1, never beyond 3.5.
    ///
    /// The sum of four even variables (Irwin-Hall) rather than Box-Muller: logarithm and cosine differ
    /// between C libraries, and the same seed must give the same bytes everywhere.
    pub fn normal(self, index: u64) -> f64 {
        let bits = self.bits(index);
        let sum: f64 = (0..4)
            .map(|piece| f64::from((bits >> (16 * piece)) as u16) / 65_536.0)
            .sum();
        // Four even variables have mean 2 and variance 4/12.
        (sum - 2.0) * 3.0_f64.sqrt()
    }

    /// With mean 0 and standard deviation 1, and tails as heavy as Student's t with 4 degrees of freedom.
    pub fn heavy(self, index: u64) -> f64 {
        let stream = self.part(index);
        let square = |draw: u64| stream.normal(draw).powi(2);
        let spread: f64 = (1..=4).map(square).sum::<f64>() / 4.0;
        // Its variance is n / (n - 2), which is 2.
        stream.normal(0) / spread.max(1e-3).sqrt() / 2.0_f64.sqrt()
    }

    /// As [`Noise::heavy`], and a value is like those before it: half of it lasts for 4 indices, half of that
    /// for 16.
    pub fn slow(self, index: u64) -> f64 {
        // Weights whose squares add up to 1.
        let part = |scale: u64, weight: f64| weight * self.part(scale).heavy(index / scale);
        part(1, 0.5_f64.sqrt()) + part(4, 0.5) + part(16, 0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs of splitmix64.c for seed 1234567, a published test vector.
        let mut state = 1_234_567_u64;
        let outputs: Vec<u64> = (0..3)
            .map(|_| {
                state = state.wrapping_add(GOLDEN);
                mix(state)
            })
            .collect();
        assert_eq!(
            outputs,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn noise_has_the_promised_moments() {
        let noise = Noise::new(1).part(2);
        let count = 20_000;
        let mean = |values: &dyn Fn(u64) -> f64| (0..count).map(values).sum::<f64>() / count as f64;
        assert!((mean(&|i| noise.uniform(i)) - 0.5).abs() < 0.01);
        assert!(mean(&|i| noise.normal(i)).abs() < 0.03);
        assert!((mean(&|i| noise.normal(i).powi(2)) - 1.0).abs() < 0.05);
        for value in [Noise::heavy as fn(Noise, u64) -> f64, Noise::slow] {
            assert!(mean(&|i| value(noise, i)).abs() < 0.05);
            assert!((mean(&|i| value(noise, i).powi(2)) - 1.0).abs() < 0.15);
            // Beyond 4 standard deviations: 1 in 16,000 of a bell, 1 in 200 of Student's t with 4 degrees.
            let far = (0..count).filter(|i| value(noise, *i).abs() > 4.0).count();
            assert!(far > 10, "{far}");
        }
        let together = mean(&|i| noise.slow(i) * noise.slow(i + 1));
        assert!((0.25..0.6).contains(&together), "{together}");
    }
}
