//! Counters of one port: read from files or from netlink, compared with what they reported before.

use railscope_model::metric::{
    Metric, Profile, RDMA_DEVICE_EVENTS, RDMA_PORT_ERROR_SATURATED, RDMA_PORT_ERRORS,
    RDMA_PORT_TRANSMIT_WAIT, RDMA_TRANSPORT_EVENTS, RDMA_VPORT_EVENTS,
};
use railscope_model::reading::{Labels, NodeReading, Value};
use railscope_model::units::MILLIS;

use super::super::discovery::Misses;
use super::tables::{COUNTERS, DRIVERS, Driver, LIFESPAN, NEUTRAL, Row, Shown, Unit};
use crate::sources::sysfs::{Buffer, Dir, File, Miss};

/// A wrap is a fall that the counter's own speed explains: at most so many times its last step.
const CREDIBLE_STEPS: u64 = 4;

/// Counters under their driver's names, which on mlx5 are those that begin again.
const EVENTS: [&Metric; 3] = [
    &RDMA_TRANSPORT_EVENTS,
    &RDMA_VPORT_EVENTS,
    &RDMA_DEVICE_EVENTS,
];

/// How counters of one port fell in one sweep.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Falls {
    /// Ran over their width.
    pub(super) wraps: u64,
    /// Fell for any other reason.
    pub(super) resets: u64,
}

/// One counter of one port.
pub(super) struct Counter {
    row: &'static Row,
    file: File,
    labels: Labels,
    /// Labels of the series that reports that it has stopped.
    stopped: Option<Labels>,
    /// The series that it is called on every driver, with the port's labels.
    neutral: Option<(&'static Metric, Labels)>,
    wraps_at_bits: Option<u8>,
    past: Option<Past>,
}

/// Last value of a counter, and its increase until then.
#[derive(Clone, Copy)]
struct Past {
    count: u64,
    step: u64,
}

impl Counter {
    /// The metric that it becomes.
    pub(super) fn metric(&self) -> &'static Metric {
        self.row.metric
    }

    /// Reads what the counter reports now. Returns it in base units.
    fn observe(
        &mut self,
        count: u64,
        ethernet: bool,
        reading: &mut NodeReading,
        falls: &mut Falls,
    ) -> Option<u64> {
        self.hold_against_the_past(count, falls);
        let (value, base) = match self.row.unit {
            Unit::Times(times) => match count.checked_mul(times) {
                Some(exact) => (Value::Int(exact), Some(exact)),
                None => (Value::Float(count as f64 * times as f64), None),
            },
            Unit::Milli => (Value::Float(count as f64 / MILLIS), None),
        };
        let profile = match self.row.shown {
            Shown::Always => Profile::Default,
            Shown::OnEthernet => Profile::default_if(ethernet),
            Shown::InFull => Profile::Full,
        };
        reading.push_in(profile, self.row.metric, &self.labels, value.clone());
        if let Some((metric, labels)) = &self.neutral {
            reading.push(metric, labels, value);
        }
        if let (Some(labels), Some(bits)) = (&self.stopped, self.row.stops_at_bits)
            && count == (1 << bits) - 1
        {
            reading.push(&RDMA_PORT_ERROR_SATURATED, labels, true);
        }
        base
    }

    fn hold_against_the_past(&mut self, count: u64, falls: &mut Falls) {
        let Some(past) = self.past else {
            self.past = Some(Past { count, step: 0 });
            return;
        };
        let mut step = count.saturating_sub(past.count);
        // `lifespan` is a setting: it may fall as it likes.
        if count < past.count && self.row.metric != LIFESPAN.metric {
            let wrapped = self
                .wraps_at_bits
                .and_then(|bits| ((1_u64 << bits) + count).checked_sub(past.count))
                .filter(|grown| *grown <= past.step.saturating_mul(CREDIBLE_STEPS));
            match wrapped {
                Some(grown) => {
                    falls.wraps += 1;
                    step = grown;
                }
                None => falls.resets += 1,
            }
        }
        self.past = Some(Past { count, step });
    }
}

/// Counters that the device returns in one request, though each has a separate file. When
/// the driver refuses the first one it would refuse all, and write a line into the kernel log for
/// each: then the rest is not read.
#[derive(Default)]
pub(super) struct Group {
    /// In order of their files' names.
    counters: Vec<Counter>,
    answer: Answer,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Answer {
    #[default]
    None,
    Given,
    Refused,
}

impl Group {
    /// Whether the driver refuses the request.
    pub(super) fn is_refused(&self) -> bool {
        self.answer == Answer::Refused
    }

    /// Whether there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Reads every file. `each` sees what was read, in base units.
    pub(super) fn read(
        &mut self,
        ethernet: bool,
        (reading, misses, buffer): (&mut NodeReading, &mut Misses, &mut Buffer),
        falls: &mut Falls,
        mut each: impl FnMut(&'static Row, u64),
    ) {
        if self.is_refused() {
            misses.note(Miss::Unsupported);
            return;
        }
        for counter in &mut self.counters {
            let count = counter.file.count(buffer);
            if count.is_err() && counter.file.is_refused() && self.answer == Answer::None {
                self.answer = Answer::Refused;
                misses.note(Miss::Unsupported);
                return;
            }
            if let Some(count) = misses.keep(count) {
                self.answer = Answer::Given;
                if let Some(base) = counter.observe(count, ethernet, reading, falls) {
                    each(counter.row, base);
                }
            }
        }
    }

    /// Reads a count that came by netlink; returns its row and the count in base units, and none
    /// where no counter of that name is in the tables.
    pub(super) fn take(
        &mut self,
        name: &str,
        count: u64,
        ethernet: bool,
        reading: &mut NodeReading,
        falls: &mut Falls,
    ) -> Option<(&'static Row, Option<u64>)> {
        let place = self
            .counters
            .binary_search_by(|counter| counter.row.file.cmp(name));
        let counter = &mut self.counters[place.ok()?];
        let base = counter.observe(count, ethernet, reading, falls);
        Some((counter.row, base))
    }
}

/// The counters of a port, by the request that returns them.
#[derive(Default)]
pub(super) struct Groups {
    /// `PortCounters` of the performance management agent.
    pub(super) errors: Group,
    /// `PortCountersExtended`, which virtual functions may read though they may not read the former.
    pub(super) traffic: Group,
    /// `hw_counters`.
    pub(super) hardware: Group,
    /// Settings among `hw_counters`, which are not read.
    pub(super) settings: Group,
}

impl Groups {
    /// The counter files that a port has and the tables know. Nothing is read.
    pub(super) fn of_port(port: &Dir, labels: &Labels, device: &str, driver: Option<&str>) -> Self {
        let mut groups = Self::default();
        let mut found = Vec::new();
        // Soft-RoCE, bnxt_re and EFA have no `counters`: that is no fault.
        if let Ok(dir) = port.dir("counters") {
            for name in dir.names().unwrap_or_default() {
                let row = COUNTERS.iter().find(|row| row.file == name);
                let counter = row.map(|row| counter(&dir, row, labels, None));
                let Some(counter) = known(device, &name, counter, &mut found) else {
                    continue;
                };
                let by_packet = [&RDMA_PORT_ERRORS, &RDMA_PORT_TRANSMIT_WAIT];
                if by_packet.contains(&counter.metric()) {
                    groups.errors.counters.push(counter);
                } else {
                    groups.traffic.counters.push(counter);
                }
            }
        }
        if let Ok(dir) = port.dir("hw_counters") {
            for name in dir.names().unwrap_or_default() {
                let row = hardware_row(&name, driver, |driver| driver.rows);
                let counter = row.map(|(row, wraps)| counter(&dir, row, labels, wraps));
                match known(device, &name, counter, &mut found) {
                    Some(counter) if name == LIFESPAN.file => {
                        groups.settings.counters.push(counter);
                    }
                    Some(counter) => groups.hardware.counters.push(counter),
                    None => {}
                }
            }
        }
        groups
    }

    /// The counters of a device as a whole.
    pub(super) fn of_device(device: &Dir, name: &str, driver: Option<&str>) -> Group {
        let mut group = Group::default();
        let labels = Labels::new([name]);
        // Only a few drivers have any; where the driver is unknown the names would report nothing.
        let Some((dir, _)) = device.dir("hw_counters").ok().zip(driver) else {
            return group;
        };
        for file in dir.names().unwrap_or_default() {
            let row = hardware_row(&file, driver, |driver| driver.device_rows);
            if let Some((row, wraps)) = row.filter(|_| file != LIFESPAN.file) {
                group.counters.push(counter(&dir, row, &labels, wraps));
            }
        }
        group
    }

    /// All of them that refer to the device, in the order in which they are read.
    pub(super) fn asked(&self) -> [&Group; 3] {
        [&self.errors, &self.traffic, &self.hardware]
    }
}

fn counter(dir: &Dir, row: &'static Row, labels: &Labels, wraps_at_bits: Option<u8>) -> Counter {
    let labels_of = |words: &[&str]| {
        let all = labels.values().chain(words.iter().copied());
        Labels::new(all)
    };
    let neutral = NEUTRAL.iter().find(|(file, _)| *file == row.file);
    Counter {
        row,
        file: dir.file(row.file),
        labels: labels_of(row.labels),
        stopped: row.stops_at_bits.map(|_| labels_of(&[row.file])),
        neutral: neutral.map(|(_, metric)| (*metric, labels.clone())),
        wraps_at_bits,
        past: None,
    }
}

/// The counter, unless another file of the port already is this series: two files may count the same
/// thing (a PMA and a driver's byte counter), and the first one stands.
fn known(
    device: &str,
    file: &str,
    counter: Option<Counter>,
    found: &mut Vec<(&'static Metric, Labels)>,
) -> Option<Counter> {
    let Some(counter) = counter else {
        tracing::debug!(device, file, "not in the table: not exported");
        return None;
    };
    let series = (counter.metric(), counter.labels.clone());
    if found.contains(&series) {
        return None;
    }
    found.push(series);
    Some(counter)
}

/// The row of a file in `hw_counters`, and the width at which it begins again.
fn hardware_row(
    file: &str,
    driver: Option<&str>,
    rows: impl Fn(&Driver) -> &'static [Row],
) -> Option<(&'static Row, Option<u8>)> {
    if file == LIFESPAN.file {
        return Some((&LIFESPAN, None));
    }
    let is = |family: &Driver, name: &str| family.names.contains(&name);
    let driver = driver.filter(|name| DRIVERS.iter().any(|family| is(family, name)));
    DRIVERS
        .iter()
        .filter(|family| driver.is_none_or(|name| is(family, name)))
        .find_map(|family| {
            let row = rows(family).iter().find(|row| row.file == file)?;
            let is_event = EVENTS.contains(&row.metric);
            Some((row, family.events_wrap_at_bits.filter(|_| is_event)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::sysfs::Root;

    #[test]
    fn no_table_names_a_file_twice() {
        for driver in DRIVERS {
            for (rows, common) in [(driver.rows, 2), (driver.device_rows, 1)] {
                for (place, row) in rows.iter().enumerate() {
                    let before = &rows[..place];
                    assert!(
                        before.iter().all(|other| other.file != row.file),
                        "{}",
                        row.file
                    );
                    let labels = row.labels.len() + common;
                    assert_eq!(row.metric.labels.len(), labels, "{}", row.file);
                }
            }
        }
    }

    #[test]
    fn every_neutral_name_is_a_counter_of_a_driver_and_no_driver_gives_one_twice() {
        for (file, _) in NEUTRAL {
            assert!(
                hardware_row(file, None, |driver| driver.rows).is_some(),
                "{file}"
            );
        }
        for driver in DRIVERS {
            let mut metrics: Vec<_> = NEUTRAL
                .iter()
                .filter(|(file, _)| driver.rows.iter().any(|row| row.file == *file))
                .map(|(file, metric)| (metric.name, *file))
                .collect();
            metrics.sort_unstable();
            let twice = metrics.windows(2).find(|pair| pair[0].0 == pair[1].0);
            // Two generations of one driver: a device has one of the names.
            let generations = [("tcpRetransSegs"), ("RetransSegs")];
            let twice =
                twice.filter(|pair| !pair.iter().all(|(_, file)| generations.contains(file)));
            assert_eq!(twice, None, "{:?}", driver.names);
        }
    }

    #[test]
    fn a_fall_is_a_wrap_only_where_the_counters_own_speed_explains_it() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = Root::new(temp.path()).open().expect("the root");
        let labels = Labels::new(["mlx5_0", "1"]);
        let (row, wraps) =
            hardware_row("rx_write_requests", Some("mlx5_core"), |driver| driver.rows)
                .expect("a row");
        let (wide, none) =
            hardware_row("rx_bytes", Some("bnxt_en"), |driver| driver.rows).expect("a row");
        assert_eq!((wraps, none), (Some(32), None));
        let falls = |wraps, resets| Falls { wraps, resets };
        let end = 1_u64 << 32;
        for (row, wraps, counts, expected) in [
            (
                row,
                wraps,
                vec![end - 300, end - 200, end - 100, 7],
                falls(1, 0),
            ),
            (row, wraps, vec![end - 200, end - 100, 1000], falls(0, 1)),
            (row, wraps, vec![5000, 6000, 0], falls(0, 1)),
            (
                row,
                wraps,
                vec![end - 2000, end - 1000, 500, 1500, 2000],
                falls(1, 0),
            ),
            (row, wraps, vec![end - 5, 3], falls(0, 1)),
            (row, wraps, vec![7, 7, 8], falls(0, 0)),
            (
                wide,
                none,
                vec![end - 300, end - 200, end - 100, 7],
                falls(0, 1),
            ),
        ] {
            let mut counter = counter(&dir, row, &labels, wraps);
            let mut seen = Falls::default();
            for count in &counts {
                counter.observe(*count, true, &mut NodeReading::default(), &mut seen);
            }
            assert_eq!(seen, expected, "{counts:?}");
        }
    }

    /// The loopback interface has neither speed nor duplex: a real kernel reports `EINVAL` to both.
    #[test]
    fn a_driver_that_refuses_its_first_counter_is_not_asked_for_the_second() {
        let name = "a_driver_that_refuses_its_first_counter_is_not_asked_for_the_second";
        let Ok(dir) = Root::new(std::path::Path::new("/sys"))
            .open()
            .and_then(|sys| sys.dir("class/net/lo"))
        else {
            eprintln!("SKIPPED: {name}: no /sys/class/net/lo");
            return;
        };
        let lo = |files: &[&'static str]| Group {
            counters: files
                .iter()
                .map(|file| Counter {
                    file: dir.file(file),
                    ..counter(&dir, &COUNTERS[0], &Labels::new(["lo", "1"]), None)
                })
                .collect(),
            answer: Answer::None,
        };
        for (files, refused, second_refused) in [
            (["duplex", "speed"], true, false),
            (["mtu", "speed"], false, true),
        ] {
            let mut group = lo(&files);
            let mut misses = Misses::new("test");
            let mut reading = NodeReading::default();
            for _ in 0..2 {
                let into = (&mut reading, &mut misses, &mut [0; 4096]);
                group.read(true, into, &mut Falls::default(), |_, _| ());
            }
            assert_eq!(group.is_refused(), refused, "{files:?}");
            // The second file was only touched where the first one answered.
            assert_eq!(
                group.counters[1].file.is_refused(),
                second_refused,
                "{files:?}"
            );
        }
    }
}
