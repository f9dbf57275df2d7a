//! How switches are read: one after another, so that the two ends of a cable are read at different
//! times.

use std::collections::HashMap;

use railscope_model::identity::SwitchName;
use railscope_model::metric::Kind;
use railscope_model::reading::NodeReading;
use railscope_simulator::cluster::Cluster;
use railscope_simulator::noise::Noise;
use railscope_simulator::show::readings::switches;

/// Separate random stream for these times.
const ROUNDS: u64 = 0x5eed;
/// Maximum excess of a lane's traffic in a short time over its share of the time: collectives come
/// in bursts, about half of each step.
const BURST: f64 = 2.0;
/// How far lanes of one switch differ in that: not all of them carry the same collective.
const UNLIKE: f64 = 0.2;

/// Reads the switches of one run.
#[derive(Debug)]
pub(super) struct Rounds {
    noise: Noise,
    skew_seconds: f64,
    /// Value of each counter in the previous round, in the order of the switch's samples.
    before: HashMap<SwitchName, Vec<f64>>,
    /// Time and number of that round.
    last: (f64, u64),
}

impl Rounds {
    /// Reads within so many seconds.
    pub(super) fn new(seed: u64, skew_seconds: f64) -> Self {
        Self {
            noise: Noise::new(seed).part(ROUNDS),
            skew_seconds,
            before: HashMap::new(),
            last: (0.0, 0),
        }
    }

    /// What each switch reports: some of it a little earlier than `seconds`, by what it was in the round
    /// before.
    pub(super) fn read(
        &mut self,
        cluster: &Cluster,
        seconds: f64,
    ) -> Vec<(SwitchName, NodeReading)> {
        let interval = seconds - self.last.0;
        self.last = (seconds, self.last.1 + 1);
        let all = switches(cluster).into_iter().enumerate();
        all.map(|(number, (switch, reading))| {
            let noise = self.noise.part(number as u64);
            let of_round = noise.part(self.last.1);
            // Mostly the same order in each round.
            let early = self.skew_seconds * (0.9 * noise.uniform(0) + 0.1 * of_round.uniform(0));
            let share = early * BURST * of_round.uniform(1) / interval.max(early);
            let now: Vec<f64> = reading.samples().iter().map(|s| s.value.as_f64()).collect();
            let before = self.before.insert(switch.clone(), now);
            let before = before.filter(|old| old.len() == reading.samples().len());
            (
                switch,
                earlier(&reading, before.as_deref(), share, of_round),
            )
        })
        .collect()
    }
}

/// A reading whose counters lack such a share of what they rose by since the reading before.
fn earlier(reading: &NodeReading, before: Option<&[f64]>, share: f64, noise: Noise) -> NodeReading {
    let mut earlier = NodeReading::default();
    for (place, sample) in reading.samples().iter().enumerate() {
        let value = sample.value.as_f64();
        let old = before.map_or(value, |before| before[place]);
        let unlike = 1.0 + UNLIKE * (2.0 * noise.uniform(2 + place as u64) - 1.0);
        let lacks = (value - old).max(0.0) * (share * unlike).min(1.0);
        let is_counter = sample.metric.kind == Kind::Counter;
        let value = if is_counter { value - lacks } else { value };
        // Times have fractions, all other values are integers.
        let is_time = sample.metric.unit == Some("seconds");
        let value = if is_counter && !is_time {
            value.floor()
        } else {
            value
        };
        earlier.push(sample.metric, &sample.labels, value);
    }
    earlier
}

#[cfg(test)]
mod tests {
    use super::*;
    use railscope_model::metric::{SWITCH_PORT_TRANSMIT_PACKETS, SWITCH_PORT_UP};
    use railscope_model::reading::Labels;

    #[test]
    fn counters_are_read_early_and_never_fall_and_states_are_as_they_are() {
        let reading = |packets: f64| {
            let mut reading = NodeReading::default();
            let labels = Labels::new(["1"]);
            reading.push(&SWITCH_PORT_TRANSMIT_PACKETS, &labels, packets);
            reading.push(&SWITCH_PORT_UP, &labels, true);
            reading
        };
        let values = |reading: &NodeReading| -> Vec<f64> {
            reading.samples().iter().map(|s| s.value.as_f64()).collect()
        };
        let noise = Noise::new(1);
        for (share, least, most) in [
            (0.0, 2000.0, 2000.0),
            (0.1, 1880.0, 1920.0),
            (5.0, 1000.0, 1000.0),
        ] {
            let early = values(&earlier(
                &reading(2000.0),
                Some(&[1000.0, 1.0]),
                share,
                noise,
            ));
            assert!((least..=most).contains(&early[0]), "{share}: {early:?}");
            assert_eq!(early[1], 1.0);
        }
        assert_eq!(
            values(&earlier(&reading(7.0), None, 0.5, noise)),
            [7.0, 1.0]
        );
    }
}
