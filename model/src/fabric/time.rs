//! Moments.

use serde::{Deserialize, Serialize};

/// A moment: milliseconds of Unix time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Seconds from an earlier moment to this one; zero if it is not earlier.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e3
    }

    /// The moment so many seconds later.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Self {
        Self(self.0 + (seconds * 1e3) as u64)
    }

    /// Seconds of Unix time.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }
}
