//! What a window holds point by point, and what its counter stood at between two points.

use railscope_model::fabric::Timestamp;

use super::Window;

impl Window {
    /// Values, oldest first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = f64> + '_ {
        self.points.iter().map(|(_, value)| *value)
    }

    /// Moments of the points, oldest first.
    pub fn moments(&self) -> impl DoubleEndedIterator<Item = Timestamp> + ExactSizeIterator + '_ {
        self.points.iter().map(|(at, _)| *at)
    }

    /// What a counter stood at, as if it had risen evenly between two points. `None` outside of the window.
    pub fn count_at(&self, at: Timestamp) -> Option<f64> {
        let after = self.points.partition_point(|(point, _)| *point < at);
        let (later, value) = *self.points.get(after)?;
        if later == at {
            return Some(value);
        }
        let (earlier, before) = *self.points.get(after.checked_sub(1)?)?;
        let share = at.seconds_since(earlier) / later.seconds_since(earlier);
        Some(before + share * (value - before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_between_two_points_is_on_the_line_and_outside_is_unknown() {
        let mut window = Window::default();
        for (at, value) in [(1_000, 10.0), (3_000, 30.0), (4_000, 30.0)] {
            window.push(Timestamp(at), value);
        }
        for (at, expected) in [
            (999, None),
            (1_000, Some(10.0)),
            (2_500, Some(25.0)),
            (3_000, Some(30.0)),
            (3_500, Some(30.0)),
            (4_001, None),
        ] {
            assert_eq!(window.count_at(Timestamp(at)), expected, "{at}");
        }
    }
}
