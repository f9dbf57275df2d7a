//! How flows share cables: max-min fairness, which lossless fabrics with congestion control come near to.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::traffic::router::Lane;

/// Traffic that moves as one: a flow, or a collective whose flows wait for each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Bytes that cross each lane for each byte of progress.
    pub use_of: Vec<(Lane, f64)>,
    /// Bytes per second that it could make at most, were the fabric empty: what its ends can do.
    pub limit: f64,
}

/// A positive number that orders; no level is ever NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level(f64);

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Remaining capacity of a lane.
#[derive(Debug, Clone, Copy, Default)]
struct Lending {
    /// Bytes per second that no settled stream uses.
    free: f64,
    /// Use by the streams that still grow, in bytes for each byte of progress.
    growing: f64,
}

impl Lending {
    /// Rate of the growing streams at which the lane is full.
    fn full_at(self) -> f64 {
        // What is left of sums that should be zero is no traffic.
        if self.growing < 1e-9 {
            f64::INFINITY
        } else {
            self.free.max(0.0) / self.growing
        }
    }
}

/// Rate of each stream, bytes per second: no stream can have more without another of the same rate or
/// less having less. `capacity` is by lane, bytes per second.
///
/// All streams grow alike until a lane is full; those that cross it are settled, and the others grow on
/// (progressive filling: Bertsekas and Gallager, "Data Networks", section 6.5.2).
pub fn max_min(capacity: &[f64], streams: &[Stream]) -> Vec<f64> {
    let mut lanes: Vec<Lending> = capacity
        .iter()
        .map(|free| Lending {
            free: *free,
            growing: 0.0,
        })
        .collect();
    let mut users: Vec<Vec<u32>> = vec![Vec::new(); capacity.len()];
    for (number, stream) in (0..).zip(streams) {
        for (lane, share) in &stream.use_of {
            lanes[lane.index()].growing += share;
            users[lane.index()].push(number);
        }
    }
    let mut rates: Vec<Option<f64>> = vec![None; streams.len()];
    // The next to fill: a lane, or, numbered after the lanes, a stream that reaches its own limit. A lane
    // fills later, never earlier, when a stream is settled, so an entry that is too early is put back.
    let mut next: BinaryHeap<Reverse<(Level, usize)>> = BinaryHeap::new();
    let full_at = |lanes: &[Lending], lane: usize| Level(lanes[lane].full_at());
    for lane in (0..capacity.len()).filter(|lane| !users[*lane].is_empty()) {
        next.push(Reverse((full_at(&lanes, lane), lane)));
    }
    for (number, stream) in streams.iter().enumerate() {
        next.push(Reverse((Level(stream.limit), capacity.len() + number)));
    }
    while let Some(Reverse((level, which))) = next.pop() {
        let settled: &[u32] = if let Some(number) = which.checked_sub(capacity.len()) {
            &[number as u32]
        } else {
            let now = full_at(&lanes, which);
            if now.0 == f64::INFINITY {
                continue;
            }
            if now > level {
                next.push(Reverse((now, which)));
                continue;
            }
            &users[which]
        };
        for number in settled {
            let rate = &mut rates[*number as usize];
            if rate.is_some() {
                continue;
            }
            *rate = Some(level.0);
            for (lane, share) in &streams[*number as usize].use_of {
                let lane = &mut lanes[lane.index()];
                lane.growing -= share;
                lane.free -= share * level.0;
            }
        }
    }
    rates.into_iter().map(|rate| rate.unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Noise;

    fn stream(lanes: &[u32], limit: f64) -> Stream {
        Stream {
            use_of: lanes.iter().map(|lane| (Lane(*lane), 1.0)).collect(),
            limit,
        }
    }

    #[test]
    fn the_textbook_line_network_shares_as_in_the_textbook() {
        // Three streams in a row share lanes 0 and 1; the long one is held by the narrow lane, and the
        // short one on the wide lane takes the rest.
        let rates = max_min(
            &[10.0, 4.0],
            &[
                stream(&[0, 1], f64::INFINITY),
                stream(&[1], f64::INFINITY),
                stream(&[0], f64::INFINITY),
            ],
        );
        assert_eq!(rates, [2.0, 2.0, 8.0]);
    }

    #[test]
    fn a_stream_that_cannot_use_its_share_leaves_it_to_others() {
        let rates = max_min(
            &[9.0],
            &[stream(&[0], 1.0), stream(&[0], 100.0), stream(&[0], 100.0)],
        );
        assert_eq!(rates, [1.0, 4.0, 4.0]);
    }

    #[test]
    fn a_dark_lane_stops_its_streams_and_nobody_else() {
        let rates = max_min(&[0.0, 5.0], &[stream(&[0, 1], 9.0), stream(&[1], 9.0)]);
        assert_eq!(rates, [0.0, 5.0]);
    }

    /// The definition itself: feasible, and every stream has a reason not to be faster.
    #[test]
    fn rates_are_feasible_and_every_stream_meets_a_full_lane_where_nobody_is_faster() {
        for seed in 0..200 {
            let noise = Noise::new(seed);
            let capacity: Vec<f64> = (0..12)
                .map(|lane| 1.0 + 9.0 * noise.part(1).uniform(lane))
                .collect();
            let streams: Vec<Stream> = (0..20)
                .map(|number| {
                    let noise = noise.part(2).part(number);
                    let lanes = 1 + noise.bits(0) % 4;
                    let mut use_of: Vec<_> = (0..lanes)
                        .map(|draw| {
                            (
                                Lane((noise.bits(1 + draw) % 12) as u32),
                                0.25 + noise.uniform(9 + draw),
                            )
                        })
                        .collect();
                    use_of.sort_by_key(|(lane, _)| *lane);
                    use_of.dedup_by_key(|(lane, _)| *lane);
                    Stream {
                        use_of,
                        limit: 0.2 + 4.0 * noise.uniform(20),
                    }
                })
                .collect();
            let rates = max_min(&capacity, &streams);
            let mut load = vec![0.0; capacity.len()];
            for (stream, rate) in streams.iter().zip(&rates) {
                for (lane, share) in &stream.use_of {
                    load[lane.index()] += share * rate;
                }
            }
            for (load, capacity) in load.iter().zip(&capacity) {
                assert!(
                    *load <= capacity * (1.0 + 1e-9),
                    "seed {seed}: {load} of {capacity}"
                );
            }
            for (number, (stream, rate)) in streams.iter().zip(&rates).enumerate() {
                let is_held = |lane: Lane| {
                    let full = load[lane.index()] >= capacity[lane.index()] * (1.0 - 1e-9);
                    let fastest = streams.iter().zip(&rates).all(|(other, others)| {
                        !other.use_of.iter().any(|(used, _)| *used == lane)
                            || *others <= rate * (1.0 + 1e-9)
                    });
                    full && fastest
                };
                let held = *rate >= stream.limit * (1.0 - 1e-9)
                    || stream.use_of.iter().any(|(lane, _)| is_held(*lane));
                assert!(
                    held,
                    "seed {seed}: stream {number} could be faster than {rate}"
                );
            }
        }
    }
}
