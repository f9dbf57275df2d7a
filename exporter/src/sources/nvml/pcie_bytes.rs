//! Bytes that a GPU moved over PCIe: from performance monitoring where it has them, otherwise from field values.

use nvml_wrapper::Device;
use nvml_wrapper::sys_exports::field_id as fi;
use railscope_model::metric as m;
use railscope_model::metric::Metric;
use railscope_model::reading::{Labels, NodeReading};

use super::calls::{Calls, Of};
use super::gpm::{Counter, Gpm, PCIE_RECEIVE, PCIE_TRANSMIT};
use super::raw::{Field, Number};

/// One direction.
struct Direction {
    /// The counter's name in labels, and the call's.
    name: &'static str,
    metric: &'static Metric,
    /// NVML field, and the source label of its series.
    field: u32,
    field_name: &'static str,
    /// Number in performance monitoring.
    counter: u32,
}
const DIRECTIONS: [Direction; 2] = [
    Direction {
        name: "pcie_transmit_bytes",
        metric: &m::GPU_PCIE_TRANSMIT_BYTES,
        field: fi::NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        field_name: "field_197",
        counter: PCIE_TRANSMIT,
    },
    Direction {
        name: "pcie_receive_bytes",
        metric: &m::GPU_PCIE_RECEIVE_BYTES,
        field: fi::NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        field_name: "field_198",
        counter: PCIE_RECEIVE,
    },
];

/// Samples to wait for performance monitoring that neither reports nor refuses before fields are
/// taken.
const PATIENCE: u32 = 5;

/// Which counters hold the bytes. Decided once: the two began at different times, and a series that jumped
/// between them would look like traffic or a reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Counters {
    #[default]
    Unknown,
    Gpm,
    Fields,
}

/// Bytes over PCIe, as long as they are plausible.
#[derive(Debug, Default)]
pub(super) struct PcieBytes {
    counters: Counters,
    /// Samples without a decision.
    waited: u32,
    last: [Option<u64>; 2],
    wrapped: [bool; 2],
    energy: Option<u64>,
}

impl PcieBytes {
    /// Adds the bytes. `energy` is the GPU's energy counter, which a reset clears along with the bytes of the
    /// fields: it distinguishes a reset from a wrap.
    pub(super) fn sample(
        &mut self,
        device: &Device<'_>,
        gpu: &Labels,
        energy: Option<u64>,
        gpm: &Gpm,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        calls.section("pcie_bytes");
        let counted = DIRECTIONS.map(|direction| gpm.counter(direction.counter, calls));
        self.counters = choose(self.counters, counted, self.waited);
        self.waited = self.waited.saturating_add(1);
        match self.counters {
            Counters::Unknown => {}
            Counters::Gpm => {
                for (direction, counter) in DIRECTIONS.iter().zip(counted) {
                    let Counter::Count(bytes) = counter else {
                        continue;
                    };
                    reading.push(direction.metric, gpu, bytes);
                    push_source(direction.name, "gpm", gpu, reading);
                }
            }
            Counters::Fields => self.read_fields(device, gpu, energy, calls, reading),
        }
    }

    fn read_fields(
        &mut self,
        device: &Device<'_>,
        gpu: &Labels,
        energy: Option<u64>,
        calls: &mut Calls,
        reading: &mut NodeReading,
    ) {
        let wanted = DIRECTIONS.map(|Direction { name, field, .. }| {
            let (id, scope) = (field, 0);
            ((name, Of::Feature), Field { id, scope })
        });
        let reset = matches!((self.energy, energy), (Some(before), Some(now)) if now < before);
        self.energy = energy.or(self.energy);
        for (place, number) in calls.fields(device, &wanted).into_iter().enumerate() {
            let direction = &DIRECTIONS[place];
            let Some(bytes) = number.and_then(Number::count) else {
                continue;
            };
            if self.believes(place, bytes, reset) {
                reading.push(direction.metric, gpu, bytes);
                push_source(direction.name, direction.field_name, gpu, reading);
            } else {
                reading.push(&m::GPU_STATISTIC_WRAPPED, &gpu.with(direction.name), true);
            }
        }
    }

    /// Whether the counter still counts bytes. One that fell from a value that 32 bits can hold, without a
    /// reset of the GPU, wraps: at the 60 GB/s of PCIe 5 as often as 14 times a second.
    fn believes(&mut self, direction: usize, bytes: u64, reset: bool) -> bool {
        let before = self.last[direction].replace(bytes);
        let fell = before.is_some_and(|before| bytes < before && before <= u64::from(u32::MAX));
        self.wrapped[direction] |= fell && !reset;
        !self.wrapped[direction]
    }
}

/// Adds which of NVML's counters a metric shows.
pub(super) fn push_source(name: &str, source: &str, gpu: &Labels, reading: &mut NodeReading) {
    reading.push(&m::GPU_STATISTIC_SOURCE, &gpu.with(name).with(source), true);
}

/// Performance monitoring, as soon as it reports any direction; fields, once it is known to report none or
/// reported nothing for too many samples.
fn choose(before: Counters, counted: [Counter; 2], waited: u32) -> Counters {
    if before != Counters::Unknown {
        before
    } else if counted.iter().any(|one| matches!(one, Counter::Count(_))) {
        Counters::Gpm
    } else if counted == [Counter::Missing; 2] || waited >= PATIENCE {
        Counters::Fields
    } else {
        Counters::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_counter_that_wraps_is_not_believed_and_one_that_was_reset_is() {
        let high = 4_000_000_000;
        let cases = [
            (
                "rises",
                vec![(5, false), (9, false), (1 << 40, false)],
                true,
            ),
            (
                "wraps at 32 bits",
                vec![(high, false), (7, false), (9, false)],
                false,
            ),
            (
                "reset with the GPU",
                vec![(high, false), (7, true), (9, false)],
                true,
            ),
            (
                "too wide for 32 bits",
                vec![(1 << 40, false), (7, false)],
                true,
            ),
            ("stands", vec![(5, false), (5, false)], true),
        ];
        for (name, samples, expected) in cases {
            let mut bytes = PcieBytes::default();
            let believed = samples
                .iter()
                .map(|(value, reset)| bytes.believes(0, *value, *reset));
            assert_eq!(believed.last(), Some(expected), "{name}");
        }
    }

    #[test]
    fn the_counters_are_chosen_once_and_not_before_it_is_known_what_there_is() {
        use Counter::{Count, Missing, Unknown};
        for (answers, expected) in [
            (vec![[Unknown; 2]], Counters::Unknown),
            (vec![[Unknown; 2], [Count(1), Count(2)]], Counters::Gpm),
            (vec![[Count(1), Missing], [Missing; 2]], Counters::Gpm),
            (vec![[Missing, Unknown]], Counters::Unknown),
            (vec![[Unknown; 2]; 5], Counters::Unknown),
            (vec![[Unknown; 2]; 6], Counters::Fields),
            (vec![[Missing; 2], [Count(1), Count(2)]], Counters::Fields),
        ] {
            let waited = (0..).zip(&answers);
            let chosen = waited.fold(Counters::Unknown, |before, (waited, now)| {
                choose(before, *now, waited)
            });
            assert_eq!(chosen, expected, "{answers:?}");
        }
    }
}
