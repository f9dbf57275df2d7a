//! The board's own sensors: fans, temperatures, alarms, power supplies.

use std::time::Duration;

use railscope_model::metric::{FAN_SPEED, SENSOR, SENSOR_ALARM, SENSOR_TEMPERATURE};
use railscope_model::reading::{Labels, NodeReading};

use super::discovery::{Fleet, Misses};
use crate::sampler::{Machine, Presence, SampleError, Sampler};
use crate::sources::hwmon::{self, Channel, Chip, Quantity};
use crate::sources::sysfs::{Buffer, Dir, File, Miss, Root};

/// Source label.
const NAME: &str = "sensors";
/// Sensors of one kind on one node, alarms included. An air-cooled node of eight GPUs has up to 20 fans.
const MOST_OF_A_KIND: usize = 32;
/// A limit is near, or the sensor itself is broken.
const WARNING: u64 = 1;
/// A part has failed, or a limit beyond which it may is passed.
const CRITICAL: u64 = 2;

/// Alarms that count, by kind and the end of the file's name, and their weight.
///
/// The plain limits of temperatures and voltages (`temp1_alarm`, `in0_min_alarm`) are omitted, but for the
/// mains: boards seldom set them, and then they alarm permanently.
const ALARMS: &[(Kind, &str, u64)] = &[
    (Kind::Fan, "alarm", CRITICAL),
    (Kind::Fan, "fault", CRITICAL),
    (Kind::Fan, "min_alarm", CRITICAL),
    (Kind::Fan, "max_alarm", WARNING),
    (Kind::Temperature, "max_alarm", WARNING),
    (Kind::Temperature, "fault", WARNING),
    (Kind::Temperature, "crit_alarm", CRITICAL),
    (Kind::Temperature, "emergency_alarm", CRITICAL),
    (Kind::Voltage, "lcrit_alarm", CRITICAL),
    (Kind::Voltage, "crit_alarm", CRITICAL),
    (Kind::Power, "alarm", WARNING),
    (Kind::Power, "min_alarm", WARNING),
    (Kind::Power, "max_alarm", WARNING),
    (Kind::Power, "cap_alarm", WARNING),
    (Kind::Power, "lcrit_alarm", CRITICAL),
    (Kind::Power, "crit_alarm", CRITICAL),
];
/// Words in the names of sensors of air and board, of which a node has few.
const BOARD: [&str; 10] = [
    "inlet", "ambient", "intake", "exhaust", "outlet", "board", "chassis", "system", "front",
    "rear",
];

/// What an alarm is about: a label's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fan,
    Temperature,
    Voltage,
    Power,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Fan, Self::Temperature, Self::Voltage, Self::Power];

    /// The input of a PMBus supply is called `vin`: without it the supply is dead, whatever it is in volts.
    fn of(channel: &Channel) -> Self {
        match channel.quantity {
            Quantity::Fan => Self::Fan,
            Quantity::Temperature => Self::Temperature,
            Quantity::Voltage if channel.label.starts_with("vin") => Self::Power,
            Quantity::Voltage => Self::Voltage,
            Quantity::Current | Quantity::Power => Self::Power,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Fan => "fan",
            Self::Temperature => "temperature",
            Self::Voltage => "voltage",
            Self::Power => "power",
        }
    }
}

struct Sensors {
    root: Root,
    chips: Fleet<Watched>,
    misses: Misses,
}

/// One chip, or one input from the mains.
struct Watched {
    name: String,
    dir: Dir,
    sensors: Vec<Sensor>,
}

/// What is read of one sensor.
struct Sensor {
    kind: Kind,
    /// Chip and sensor.
    labels: Labels,
    /// Chip, sensor, driver and the maker's name.
    about: Labels,
    input: Option<File>,
    alarms: Vec<Alarm>,
}

struct Alarm {
    file: File,
    /// What the file reports about an alarm; 0 of an input from the mains.
    set: u64,
    severity: u64,
    /// Reports that the sensor's value is invalid.
    is_fault: bool,
}

/// Builds the sampler.
pub fn build(machine: &Machine) -> Box<dyn Sampler> {
    Box::new(Sensors {
        root: Root::new(&machine.sysfs),
        chips: Fleet::default(),
        misses: Misses::new(NAME),
    })
}

impl Sampler for Sensors {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Chips on I2C buses take about a millisecond a value, and share the bus with the BMC. Heat and fans
    /// take tens of seconds to do damage.
    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn sample(&mut self, reading: &mut NodeReading) -> Result<Presence, SampleError> {
        let mut buffer = [0; 4096];
        let names = self.root.open().and_then(|sysfs| hwmon::names(&sysfs));
        self.chips.call(names.unwrap_or_default());
        let root = &self.root;
        let found = self.chips.look(|_| discover(&root.open()?, &mut buffer));
        if let Some(miss) = found {
            return Ok(Presence::Absent(miss.into()));
        }
        let misses = &mut self.misses;
        self.chips
            .sample(|chip| chip.sample(reading, misses, &mut buffer));
        misses.end_source(reading);
        Ok(Presence::Present)
    }
}

/// Every chip that has values, within the limits of the node.
fn discover(sysfs: &Dir, buffer: &mut Buffer) -> Result<Vec<Watched>, Miss> {
    let chips = hwmon::chips(sysfs, buffer);
    let mains = hwmon::mains(sysfs, buffer);
    let miss = chips.as_ref().err().copied();
    let mut found = Vec::new();
    for chip in chips.unwrap_or_default() {
        let Ok(channels) = chip.channels(buffer) else {
            continue; // gone by now
        };
        let sensors = channels.iter().filter_map(|it| Sensor::new(&chip, it));
        found.push(Watched {
            sensors: sensors.collect(),
            name: chip.name,
            dir: chip.dir,
        });
    }
    found.extend(
        mains
            .into_iter()
            .map(|(name, dir)| Watched::mains(name, dir)),
    );
    limit(&mut found);
    found.retain(|chip| !chip.sensors.is_empty());
    match miss.filter(|_| found.is_empty()) {
        Some(miss) => Err(miss),
        None => Ok(found),
    }
}

/// Leaves at most [`MOST_OF_A_KIND`], those of the air and the board before others.
fn limit(found: &mut [Watched]) {
    for kind in Kind::ALL {
        let sensors = found.iter().flat_map(|chip| &chip.sensors);
        let of_kind = sensors.filter(|sensor| sensor.kind == kind);
        let (first, others): (Vec<_>, Vec<_>) = of_kind.partition(|sensor| sensor.is_of_board());
        let all = first.into_iter().chain(others);
        let left_out: Vec<Labels> = all
            .skip(MOST_OF_A_KIND)
            .map(|sensor| sensor.labels.clone())
            .collect();
        if left_out.is_empty() {
            continue;
        }
        tracing::debug!(
            kind = kind.as_str(),
            count = left_out.len(),
            "sensors omitted: limit per kind reached"
        );
        for chip in found.iter_mut() {
            chip.sensors
                .retain(|sensor| sensor.kind != kind || !left_out.contains(&sensor.labels));
        }
    }
}

impl Watched {
    /// An input from the mains: `online` is 0 without power.
    fn mains(name: String, dir: Dir) -> Self {
        let sensor = Sensor {
            kind: Kind::Power,
            labels: Labels::new([name.as_str(), "online"]),
            about: Labels::new([name.as_str(), "online", "power_supply", ""]),
            input: None,
            alarms: vec![Alarm {
                file: dir.file("online"),
                set: 0,
                severity: CRITICAL,
                is_fault: false,
            }],
        };
        Self {
            name,
            dir,
            sensors: vec![sensor],
        }
    }

    /// Reads its sensors; false if the chip is gone.
    fn sample(
        &mut self,
        reading: &mut NodeReading,
        misses: &mut Misses,
        buffer: &mut Buffer,
    ) -> bool {
        if self.dir.id().is_none() {
            return false;
        }
        for sensor in &mut self.sensors {
            sensor.sample(reading, misses, buffer);
        }
        misses.end_device(reading, &self.name);
        true
    }
}

impl Sensor {
    /// What to read of a sensor; none if it has neither a value for us nor an alarm, and for the many cores
    /// and dies of a CPU, whose package represents them.
    fn new(chip: &Chip, channel: &Channel) -> Option<Self> {
        let kind = Kind::of(channel);
        let is_core = ["Core ", "Tccd"]
            .iter()
            .any(|of| channel.label.starts_with(of));
        if kind == Kind::Temperature && is_core {
            return None;
        }
        let file = |property: &str| chip.dir.file(&format!("{}_{property}", channel.name));
        let has = |property: &str| channel.properties.iter().any(|it| it == property);
        let rows = ALARMS.iter();
        let rows = rows.filter(|(of, property, _)| *of == kind && has(property));
        let alarms = rows.map(|(_, property, severity)| Alarm {
            file: file(property),
            set: 1,
            severity: *severity,
            is_fault: *property == "fault",
        });
        let alarms: Vec<_> = alarms.collect();
        let is_shown = matches!(kind, Kind::Fan | Kind::Temperature) && has("input");
        let input = is_shown.then(|| file("input"));
        if input.is_none() && alarms.is_empty() {
            return None;
        }
        let labels = Labels::new([chip.name.as_str(), &channel.name]);
        Some(Self {
            kind,
            about: labels.with(&chip.driver).with(&channel.label),
            labels,
            input,
            alarms,
        })
    }

    /// Whether it measures the air or the board, judging by its name.
    fn is_of_board(&self) -> bool {
        let names = self.about.values().skip(3).map(str::to_lowercase);
        names
            .into_iter()
            .any(|label| BOARD.iter().any(|word| label.contains(word)))
    }

    fn sample(&mut self, reading: &mut NodeReading, misses: &mut Misses, buffer: &mut Buffer) {
        let begun = reading.samples().len();
        let mut state = None;
        let mut is_faulty = false;
        for alarm in &mut self.alarms {
            if let Some(is_set) = misses.keep(alarm.read(buffer)) {
                let severity = if is_set { alarm.severity } else { 0 };
                state = state.max(Some(severity));
                is_faulty |= is_set && alarm.is_fault;
            }
        }
        if let Some(state) = state {
            let labels = self.labels.with(self.kind.as_str());
            reading.push(&SENSOR_ALARM, &labels, state);
        }
        if let Some(input) = self.input.as_mut() {
            match self.kind {
                Kind::Fan => {
                    if let Some(speed) = misses.keep(input.count(buffer)) {
                        reading.push(&FAN_SPEED, &self.labels, speed);
                    }
                }
                // The value of a sensor that is broken is anything.
                _ if is_faulty => {}
                _ => {
                    let value = input.read(buffer, |text| text.parse::<i32>().ok());
                    if let Some(value) = misses.keep(value) {
                        let celsius = f64::from(value) / 1e3;
                        reading.push(&SENSOR_TEMPERATURE, &self.labels, celsius);
                    }
                }
            }
        }
        if reading.samples().len() > begun {
            reading.push(&SENSOR, &self.about, true);
        }
    }
}

impl Alarm {
    /// Whether it is set.
    fn read(&mut self, buffer: &mut Buffer) -> Result<bool, Miss> {
        let set = self.set;
        self.file.read(buffer, |text| match text.parse() {
            Ok(said @ 0..=1_u64) => Some(said == set),
            // An adapter whose voltage can be chosen reports 2 while it is one.
            Ok(2) if set == 0 => Some(false),
            _ => None,
        })
    }
}
