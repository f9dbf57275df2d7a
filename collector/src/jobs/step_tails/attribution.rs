//! Share of a job's excess step time that correlates with slow probes and late timers of the same windows: least squares with
//! coefficients that are not negative, and a moving-block bootstrap for the interval (Kunsch 1989).
//!
//! `excess = a + b * slow_probes + c * late_timers` over all windows; the share of the fabric is `b * sum(slow_probes)` of the
//! sum of the excess, that of the hosts likewise. What is slow in all windows alike is in `a`: only what changes over the hour
//! can be attributed. Errors in both counts (few probes, scrapes a few seconds apart) make the shares smaller, not larger.

/// Fewest windows of an estimate: ten minutes.
const MIN_WINDOWS: usize = 20;
/// Windows that are drawn together: two minutes, longer than most bursts.
const BLOCK: usize = 4;
/// Draws of the bootstrap.
const DRAWS: usize = 200;
/// Share of the draws beyond each end of the interval: 95 % lie within.
const BEYOND: f64 = 0.025;

/// A share with its interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The estimate, 0 to 1.
    pub value: f64,
    /// Lower end of the interval.
    pub at_least: f64,
    /// Upper end.
    pub at_most: f64,
}

/// What explains the excess.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explained {
    /// Slow and lost probes of the job's nodes; none where none of them probes, or where they are as many in all windows.
    pub fabric: Option<Share>,
    /// Late timers of the job's nodes; none where none of them watches timers, or where they are as many in all windows.
    pub hosts: Option<Share>,
}

/// Windows in the order of time, all of one length.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Seconds by which long steps exceeded the median.
    pub(super) excess: Vec<f64>,
    pub(super) slow_probes: Vec<Option<f64>>,
    pub(super) late_timers: Vec<Option<f64>>,
}

impl Windows {
    /// What explains the excess; none with too few windows or without excess.
    pub(super) fn explained(&self) -> Option<Explained> {
        let known =
            [&self.slow_probes, &self.late_timers].map(|counts| counts.iter().any(Option::is_some));
        let rows: Vec<Row> = (0..self.excess.len())
            .filter_map(|at| self.row(at, known))
            .collect();
        let excess: f64 = rows.iter().map(|row| row.excess).sum();
        if rows.len() < MIN_WINDOWS || excess <= 0.0 {
            return None;
        }
        let value = shares(&rows);
        let mut drawn = [Vec::with_capacity(DRAWS), Vec::with_capacity(DRAWS)];
        let mut random = SplitMix(rows.len() as u64);
        for _ in 0..DRAWS {
            let draw = shares(&random.blocks(&rows));
            drawn[0].push(draw[0]);
            drawn[1].push(draw[1]);
        }
        let share = |cause: usize| {
            let mut drawn = drawn[cause].clone();
            drawn.sort_by(f64::total_cmp);
            let beyond = (BEYOND * DRAWS as f64) as usize;
            Some(Share {
                value: value[cause],
                at_least: drawn[beyond].min(value[cause]),
                at_most: drawn[DRAWS - 1 - beyond].max(value[cause]),
            })
            .filter(|_| known[cause] && can_tell(&rows, cause))
        };
        Some(Explained {
            fabric: share(0),
            hosts: share(1),
        })
    }

    /// A window in which all that is known otherwise is known, too.
    fn row(&self, at: usize, known: [bool; 2]) -> Option<Row> {
        let count = |of_cause: &[Option<f64>], is_known: bool| match of_cause[at] {
            None if is_known => None,
            count => Some(count.unwrap_or_default()),
        };
        Some(Row {
            excess: self.excess[at],
            counts: [
                count(&self.slow_probes, known[0])?,
                count(&self.late_timers, known[1])?,
            ],
        })
    }
}

/// One window: excess, slow probes and late timers.
#[derive(Debug, Clone, Copy)]
struct Row {
    excess: f64,
    counts: [f64; 2],
}

/// Whether a cause can be distinguished from a constant slowdown: it was absent, or its count differs between windows.
fn can_tell(rows: &[Row], cause: usize) -> bool {
    let mut counts = rows.iter().map(|row| row.counts[cause]);
    let first = counts.next().unwrap_or_default();
    first == 0.0 || counts.any(|count| count != first)
}

/// Share of the excess that each cause explains; together at most 1.
fn shares(rows: &[Row]) -> [f64; 2] {
    let excess: f64 = rows.iter().map(|row| row.excess).sum();
    if excess <= 0.0 {
        return [0.0; 2];
    }
    let slopes = slopes(rows);
    let shares = [0, 1].map(|cause| {
        let count: f64 = rows.iter().map(|row| row.counts[cause]).sum();
        slopes[cause] * count / excess
    });
    let all = (shares[0] + shares[1]).max(1.0);
    shares.map(|share| share / all)
}

/// Seconds of excess for each slow probe and each late timer: least squares with a constant, none negative.
fn slopes(rows: &[Row]) -> [f64; 2] {
    let mean =
        |value: &dyn Fn(&Row) -> f64| rows.iter().map(value).sum::<f64>() / rows.len() as f64;
    let y = mean(&|row| row.excess);
    let x = [0, 1].map(|cause| mean(&|row| row.counts[cause]));
    let product = |a: &dyn Fn(&Row) -> f64, b: &dyn Fn(&Row) -> f64| mean(&|row| a(row) * b(row));
    let centered = |cause: usize| move |row: &Row| row.counts[cause] - x[cause];
    let centered_y = move |row: &Row| row.excess - y;
    let with_y = [0, 1].map(|cause| product(&centered(cause), &centered_y));
    let own = [0, 1].map(|cause| product(&centered(cause), &centered(cause)));
    let both = product(&centered(0), &centered(1));
    let determinant = own[0] * own[1] - both * both;
    // Two causes that rise and fall together cannot be distinguished: the one that fits better represents both.
    if determinant > 1e-9 * own[0] * own[1] {
        let slopes = [
            (with_y[0] * own[1] - with_y[1] * both) / determinant,
            (with_y[1] * own[0] - with_y[0] * both) / determinant,
        ];
        if slopes.iter().all(|slope| *slope >= 0.0) {
            return slopes;
        }
    }
    let alone = [0, 1].map(|cause| {
        let slope = if own[cause] > 0.0 {
            with_y[cause] / own[cause]
        } else {
            0.0
        };
        slope.max(0.0)
    });
    // What a cause explains of the variance by itself.
    let explains = [0, 1].map(|cause| alone[cause] * with_y[cause]);
    if explains[0] >= explains[1] {
        [alone[0], 0.0]
    } else {
        [0.0, alone[1]]
    }
}

/// Draws blocks of windows. Seeded by the data, so that the same windows give the same interval.
struct SplitMix(u64);

impl SplitMix {
    /// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// As many rows as there are, in blocks that begin anywhere and wrap around at the end.
    fn blocks(&mut self, rows: &[Row]) -> Vec<Row> {
        let mut drawn = Vec::with_capacity(rows.len() + BLOCK);
        while drawn.len() < rows.len() {
            let begin = (self.next() % rows.len() as u64) as usize;
            drawn.extend((begin..begin + BLOCK).map(|at| rows[at % rows.len()]));
        }
        drawn.truncate(rows.len());
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour in which bursts of slow probes cost `fabric` seconds each, late timers `host`, and everything else `other`.
    fn hour(fabric: f64, host: f64, other: f64) -> Windows {
        let mut windows = Windows::default();
        let mut random = SplitMix(7);
        let mut one_in = |n: u64| f64::from(random.next().is_multiple_of(n));
        for _ in 0..120 {
            let (slow, late, pause) = (one_in(6), one_in(5), one_in(4));
            windows
                .excess
                .push(fabric * slow + host * late + other * pause);
            windows.slow_probes.push(Some(40.0 * slow + 2.0));
            windows.late_timers.push(Some(300.0 * late + 10.0));
        }
        windows
    }

    fn explained(windows: &Windows) -> [Share; 2] {
        let explained = windows.explained().expect("an hour with excess");
        [explained.fabric, explained.hosts].map(|share| share.expect("is known"))
    }

    #[test]
    fn the_shares_are_those_of_the_causes_within_their_intervals() {
        for (fabric, host, other) in [
            (2.0, 0.0, 0.0),
            (0.0, 2.0, 0.0),
            (2.0, 1.0, 0.0),
            (2.0, 0.0, 2.0),
            (1.0, 1.0, 1.0),
            (0.0, 0.0, 2.0),
        ] {
            let windows = hour(fabric, host, other);
            let all: f64 = windows.excess.iter().sum();
            let count = |counts: &[Option<f64>], more: f64| {
                counts
                    .iter()
                    .flatten()
                    .filter(|count| **count > more)
                    .count() as f64
            };
            let truth = [
                fabric * count(&windows.slow_probes, 2.0) / all,
                host * count(&windows.late_timers, 10.0) / all,
            ];
            for (truth, share) in truth.iter().zip(explained(&windows)) {
                let case = format!("{fabric} {host} {other}: {truth:.3} {share:?}");
                assert!(
                    share.at_least <= share.value && share.value <= share.at_most,
                    "{case}"
                );
                // Two slow probes in each quiet window are usual and cost nothing.
                assert!((share.value - truth).abs() < 0.2, "{case}");
                assert!(
                    share.at_least - 0.05 <= *truth && *truth <= share.at_most + 0.05,
                    "{case}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_measured_is_not_said() {
        let mut windows = hour(2.0, 0.0, 0.0);
        windows.slow_probes.fill(None);
        let explained = windows.explained().expect("an hour with excess");
        assert_eq!(explained.fabric, None);
        assert!(explained.hosts.is_some_and(|hosts| hosts.value < 0.2));
        assert_eq!(hour(0.0, 0.0, 0.0).explained(), None);
        windows.excess.truncate(MIN_WINDOWS - 1);
        windows.late_timers.truncate(MIN_WINDOWS - 1);
        windows.slow_probes.truncate(MIN_WINDOWS - 1);
        assert_eq!(windows.explained(), None);
    }

    #[test]
    fn slow_probes_in_all_windows_alike_cannot_be_told_apart() {
        let mut windows = hour(0.0, 0.0, 2.0);
        windows.slow_probes.fill(Some(1000.0));
        let explained = windows.explained().expect("an hour with excess");
        assert_eq!(explained.fabric, None);
        windows.slow_probes.fill(Some(0.0));
        let [fabric, _] = self::explained(&windows);
        assert_eq!((fabric.value, fabric.at_most), (0.0, 0.0));
    }
}
