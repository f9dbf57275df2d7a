//! What the ports of a swept subnet have counted, and the series that it becomes.

use std::sync::LazyLock;

use railscope_model::identity::{Guid, RdmaDevice};
use railscope_model::metric::{
    Metric, RDMA_PORT_ERROR_SATURATED, RDMA_PORT_ERRORS, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_SPEED, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_PACKETS, RDMA_PORT_TRANSMIT_WAIT, RDMA_PORT_UP, RDMA_PORT_WIDTH, SWITCH,
    SWITCH_PORT_DISCARDS, SWITCH_PORT_ERRORS, SWITCH_PORT_LINK_DOWNED, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_RECEIVE_PACKETS, SWITCH_PORT_SATURATED, SWITCH_PORT_SPEED,
    SWITCH_PORT_TRANSMIT_BYTES, SWITCH_PORT_TRANSMIT_PACKETS, SWITCH_PORT_TRANSMIT_WAIT,
    SWITCH_PORT_UP, SWITCH_PORT_WIDTH,
};
use railscope_model::reading::{Labels, NodeReading};
use railscope_model::units::{BYTES_PER_PORT_DATA_WORD, LinkSpeed};

use super::NodeKind;

/// How many counters a port has here.
pub const COUNTERS: usize = ROWS.len();

/// One counter: the kernel's name, and the series of a host's port and of a switch's.
struct Row {
    name: &'static str,
    unit: u64,
    host: &'static Metric,
    switch: &'static Metric,
    /// Value of the label behind the switch's port, where its metric has one.
    label: Option<&'static str>,
}

const fn traffic(
    name: &'static str,
    unit: u64,
    host: &'static Metric,
    switch: &'static Metric,
) -> Row {
    Row {
        name,
        unit,
        host,
        switch,
        label: None,
    }
}

const fn error(name: &'static str) -> Row {
    Row {
        label: Some(name),
        ..traffic(name, 1, &RDMA_PORT_ERRORS, &SWITCH_PORT_ERRORS)
    }
}

/// The counters in the order in which [`PortCounters`] holds them.
static ROWS: [Row; 17] = [
    traffic(
        "port_xmit_data",
        BYTES_PER_PORT_DATA_WORD,
        &RDMA_PORT_TRANSMIT_BYTES,
        &SWITCH_PORT_TRANSMIT_BYTES,
    ),
    traffic(
        "port_rcv_data",
        BYTES_PER_PORT_DATA_WORD,
        &RDMA_PORT_RECEIVE_BYTES,
        &SWITCH_PORT_RECEIVE_BYTES,
    ),
    traffic(
        "port_xmit_packets",
        1,
        &RDMA_PORT_TRANSMIT_PACKETS,
        &SWITCH_PORT_TRANSMIT_PACKETS,
    ),
    traffic(
        "port_rcv_packets",
        1,
        &RDMA_PORT_RECEIVE_PACKETS,
        &SWITCH_PORT_RECEIVE_PACKETS,
    ),
    error("symbol_error"),
    error("link_error_recovery"),
    traffic(
        "link_downed",
        1,
        &RDMA_PORT_ERRORS,
        &SWITCH_PORT_LINK_DOWNED,
    ),
    error("port_rcv_errors"),
    error("port_rcv_remote_physical_errors"),
    error("port_rcv_switch_relay_errors"),
    Row {
        label: Some("transmit"),
        ..traffic(
            "port_xmit_discards",
            1,
            &RDMA_PORT_ERRORS,
            &SWITCH_PORT_DISCARDS,
        )
    },
    error("port_xmit_constraint_errors"),
    error("port_rcv_constraint_errors"),
    error("local_link_integrity_errors"),
    error("excessive_buffer_overrun_errors"),
    error("VL15_dropped"),
    traffic(
        "port_xmit_wait",
        1,
        &RDMA_PORT_TRANSMIT_WAIT,
        &SWITCH_PORT_TRANSMIT_WAIT,
    ),
];

/// What one port has counted, under the kernel's names ([`counter_name`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    values: [u64; COUNTERS],
    /// Bit by bit: whether the counter was read, and whether it stands at its largest value.
    known: u32,
    saturated: u32,
}

/// The kernel's name of a counter, by its place.
pub fn counter_name(place: usize) -> &'static str {
    ROWS[place].name
}

impl PortCounters {
    /// Notes a counter. One of fewer than 64 bits that stands at all-ones has stopped there.
    pub fn set(&mut self, place: usize, value: u64, bits: u32) {
        self.values[place] = value;
        self.known |= 1 << place;
        let stopped = bits < u64::BITS && value == (1 << bits) - 1;
        self.saturated = self.saturated & !(1 << place) | u32::from(stopped) << place;
    }

    /// A counter by its place, in its own unit; none if it was not read.
    pub fn get(&self, place: usize) -> Option<u64> {
        (self.known & 1 << place != 0).then_some(self.values[place])
    }

    /// A counter by the kernel's name.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        self.get(ROWS.iter().position(|row| row.name == name)?)
    }

    /// Whether a counter stands at its largest value and counts no more.
    pub fn is_saturated(&self, place: usize) -> bool {
        self.saturated & 1 << place != 0
    }
}

/// A port and what it has counted.
#[derive(Debug, Clone, PartialEq)]
pub struct PortReading {
    /// Port number, from 1.
    pub port: u8,
    /// Whether it carries traffic.
    pub active: bool,
    /// Width and speed now; none without a link.
    pub speed: Option<LinkSpeed>,
    /// None if it was not requested, or the port did not respond.
    pub counters: Option<PortCounters>,
}

/// A device and what its ports have counted.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReading {
    /// Node GUID.
    pub guid: Guid,
    /// What it is.
    pub kind: NodeKind,
    /// Vendor id, an IEEE company id.
    pub vendor: u32,
    /// Device id of the vendor.
    pub device: u16,
    /// Ports in order.
    pub ports: Vec<PortReading>,
}

/// Label values of one switch port: of its series, and of each counter's.
struct PortLabels {
    port: Labels,
    counters: [Labels; COUNTERS],
    saturated: [Labels; COUNTERS],
}

/// Made once for all switches: the same port numbers come in every reading of every one of them.
static SWITCH_LABELS: LazyLock<Vec<PortLabels>> = LazyLock::new(|| {
    (0..=u8::MAX)
        .map(|port| {
            let port = Labels::new([port]);
            PortLabels {
                counters: std::array::from_fn(|place| match ROWS[place].label {
                    Some(label) => port.with(label),
                    None => port.clone(),
                }),
                saturated: std::array::from_fn(|place| port.with(ROWS[place].name)),
                port,
            }
        })
        .collect()
});

impl DeviceReading {
    /// Calls `each` with the series of the catalogue's switch table for this device, those of one metric together.
    pub fn for_switch(&self, mut each: impl FnMut(&'static Metric, &Labels, f64)) {
        let ids = [
            format!("{:#x}", self.vendor),
            format!("{:#x}", self.device),
            String::new(),
        ];
        each(&SWITCH, &Labels::new(ids), 1.0);
        let named = |port: &PortReading| &SWITCH_LABELS[usize::from(port.port)];
        for port in &self.ports {
            let is_up = f64::from(u8::from(port.active));
            each(&SWITCH_PORT_UP, &named(port).port, is_up);
        }
        let speeds = || {
            self.ports
                .iter()
                .filter_map(|port| Some((port, port.speed?)))
        };
        for (port, speed) in speeds() {
            let rate = speed.bytes_per_second();
            each(&SWITCH_PORT_SPEED, &named(port).port, rate);
        }
        for (port, speed) in speeds() {
            let lanes = f64::from(speed.lanes);
            each(&SWITCH_PORT_WIDTH, &named(port).port, lanes);
        }
        for (place, row) in ROWS.iter().enumerate() {
            for port in &self.ports {
                if let Some((value, _)) = counted(port, place) {
                    each(row.switch, &named(port).counters[place], value as f64);
                }
            }
        }
        for port in &self.ports {
            let stopped = |place| counted(port, place).is_some_and(|(_, stopped)| stopped);
            for place in (0..COUNTERS).filter(|place| stopped(*place)) {
                each(&SWITCH_PORT_SATURATED, &named(port).saturated[place], 1.0);
            }
        }
    }

    /// What an exporter on the host would report about these ports, under the device's name there.
    pub fn as_adapter(&self, device: &RdmaDevice) -> NodeReading {
        let mut reading = NodeReading::default();
        for port in &self.ports {
            let labels = Labels::new([device.as_str(), &port.port.to_string()]);
            reading.push(&RDMA_PORT_UP, &labels, port.active);
            if let Some(speed) = port.speed {
                reading.push(&RDMA_PORT_SPEED, &labels, speed.bytes_per_second());
                reading.push(&RDMA_PORT_WIDTH, &labels, u32::from(speed.lanes));
            }
            for (place, row) in ROWS.iter().enumerate() {
                let Some((value, stopped)) = counted(port, place) else {
                    continue;
                };
                if *row.host == RDMA_PORT_ERRORS {
                    reading.push(row.host, &labels.with(row.name), value);
                } else {
                    reading.push(row.host, &labels, value);
                }
                if stopped {
                    reading.push(&RDMA_PORT_ERROR_SATURATED, &labels.with(row.name), true);
                }
            }
        }
        reading
    }
}

/// A counter by its place: value in the row's unit, and whether it has stopped.
fn counted(port: &PortReading, place: usize) -> Option<(u64, bool)> {
    let counters = port.counters.as_ref()?;
    let value = counters.get(place)?.saturating_mul(ROWS[place].unit);
    Some((value, counters.is_saturated(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> DeviceReading {
        let mut counters = PortCounters::default();
        for place in 0..COUNTERS {
            counters.set(place, place as u64 + 10, 64);
        }
        counters.set(6, 255, 8);
        DeviceReading {
            guid: Guid(1),
            kind: NodeKind::Switch,
            vendor: 0x2c9,
            device: 0xd2f0,
            ports: vec![
                PortReading {
                    port: 33,
                    active: true,
                    speed: "4xHDR".parse().ok(),
                    counters: Some(counters),
                },
                PortReading {
                    port: 34,
                    active: false,
                    speed: None,
                    counters: None,
                },
            ],
        }
    }

    fn value(reading: &NodeReading, metric: &Metric, labels: &[&str]) -> Option<f64> {
        let is = |labels_: &Labels| labels_.values().eq(labels.iter().copied());
        let found = reading.samples().iter();
        found
            .filter(|sample| *sample.metric == *metric && is(&sample.labels))
            .map(|sample| sample.value.as_f64())
            .next()
    }

    #[test]
    fn a_switch_says_every_counter_once_and_nothing_of_a_port_without_a_link() {
        let mut reading = NodeReading::default();
        device().for_switch(|metric, labels, value| reading.push(metric, labels, value));
        for (metric, labels, expected) in [
            (&SWITCH, &["0x2c9", "0xd2f0", ""][..], Some(1.0)),
            (&SWITCH_PORT_UP, &["33"], Some(1.0)),
            (&SWITCH_PORT_UP, &["34"], Some(0.0)),
            (&SWITCH_PORT_SPEED, &["33"], Some(25e9)),
            (&SWITCH_PORT_SPEED, &["34"], None),
            (&SWITCH_PORT_WIDTH, &["33"], Some(4.0)),
            (&SWITCH_PORT_TRANSMIT_BYTES, &["33"], Some(40.0)),
            (&SWITCH_PORT_RECEIVE_PACKETS, &["33"], Some(13.0)),
            (&SWITCH_PORT_ERRORS, &["33", "symbol_error"], Some(14.0)),
            (&SWITCH_PORT_ERRORS, &["33", "VL15_dropped"], Some(25.0)),
            (&SWITCH_PORT_LINK_DOWNED, &["33"], Some(255.0)),
            (&SWITCH_PORT_SATURATED, &["33", "link_downed"], Some(1.0)),
            (&SWITCH_PORT_SATURATED, &["33", "symbol_error"], None),
            (&SWITCH_PORT_DISCARDS, &["33", "transmit"], Some(20.0)),
            (&SWITCH_PORT_TRANSMIT_WAIT, &["33"], Some(26.0)),
            (&SWITCH_PORT_TRANSMIT_WAIT, &["34"], None),
        ] {
            assert_eq!(value(&reading, metric, labels), expected, "{labels:?}");
        }
        // Identity, two states, speed, width, all counters, one of them saturated.
        assert_eq!(reading.samples().len(), 1 + 2 + 2 + COUNTERS + 1);
        assert_eq!(reading.normalize(), 0, "no series twice");
    }

    #[test]
    fn an_adapter_says_what_an_exporter_would() {
        let mut reading = device().as_adapter(&"mlx5_4".parse().expect("a device"));
        for (metric, labels, expected) in [
            (&RDMA_PORT_UP, &["mlx5_4", "33"][..], Some(1.0)),
            (&RDMA_PORT_TRANSMIT_BYTES, &["mlx5_4", "33"], Some(40.0)),
            (
                &RDMA_PORT_ERRORS,
                &["mlx5_4", "33", "link_downed"],
                Some(255.0),
            ),
            (
                &RDMA_PORT_ERRORS,
                &["mlx5_4", "33", "port_xmit_discards"],
                Some(20.0),
            ),
            (
                &RDMA_PORT_ERROR_SATURATED,
                &["mlx5_4", "33", "link_downed"],
                Some(1.0),
            ),
            (&RDMA_PORT_TRANSMIT_WAIT, &["mlx5_4", "33"], Some(26.0)),
        ] {
            assert_eq!(value(&reading, metric, labels), expected, "{labels:?}");
        }
        assert_eq!(reading.normalize(), 0, "no series twice");
    }

    #[test]
    fn only_a_narrow_counter_stops() {
        let mut counters = PortCounters::default();
        for (value, bits, stopped) in [
            (15, 4, true),
            (14, 4, false),
            (u64::from(u32::MAX), 32, true),
            (u64::from(u32::MAX), 64, false),
        ] {
            counters.set(4, value, bits);
            assert_eq!(counters.is_saturated(4), stopped, "{value} of {bits} bits");
            assert_eq!(counters.by_name("symbol_error"), Some(value));
        }
        assert_eq!(counters.get(5), None, "what was not read is not zero");
    }
}
