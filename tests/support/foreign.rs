//! What other exporters would report of a simulated node: expositions written from its reading.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use railscope_model::metric::{
    GPU, GPU_CLOCK, GPU_CLOCK_EVENT_SECONDS, GPU_ENERGY, GPU_POWER, GPU_ROW_REMAP_PENDING,
    GPU_TEMPERATURE, GPU_UTILIZATION, Metric, PCIE_LINK_WIDTH, PCIE_LINK_WIDTH_MAX, RDMA_DEVICE,
    RDMA_PORT_CAST_PACKETS, RDMA_PORT_ERRORS, RDMA_PORT_PHYSICAL_STATE, RDMA_PORT_RECEIVE_BYTES,
    RDMA_PORT_RECEIVE_PACKETS, RDMA_PORT_SPEED, RDMA_PORT_STATE, RDMA_PORT_TRANSMIT_BYTES,
    RDMA_PORT_TRANSMIT_PACKETS, RDMA_PORT_TRANSMIT_WAIT,
};
use railscope_model::reading::{NodeReading, Sample};

/// node_exporter's name for a metric of a port, and in the label that follows device and port, if it has one.
const PORT: &[(&Metric, &str)] = &[
    (&RDMA_PORT_STATE, "state_id"),
    (&RDMA_PORT_PHYSICAL_STATE, "physical_state_id"),
    (&RDMA_PORT_SPEED, "rate_bytes_per_second"),
    (
        &RDMA_PORT_TRANSMIT_BYTES,
        "port_data_transmitted_bytes_total",
    ),
    (&RDMA_PORT_RECEIVE_BYTES, "port_data_received_bytes_total"),
    (
        &RDMA_PORT_TRANSMIT_PACKETS,
        "port_packets_transmitted_total",
    ),
    (&RDMA_PORT_RECEIVE_PACKETS, "port_packets_received_total"),
    (&RDMA_PORT_TRANSMIT_WAIT, "port_transmit_wait_total"),
];

/// The kernel's file -> what node_exporter makes of it.
const ERRORS: &[(&str, &str)] = &[
    ("symbol_error", "symbol_error"),
    ("link_error_recovery", "link_error_recovery"),
    ("link_downed", "link_downed"),
    ("port_rcv_errors", "port_errors_received"),
    ("port_xmit_discards", "port_discards_transmitted"),
    (
        "port_rcv_remote_physical_errors",
        "port_receive_remote_physical_errors",
    ),
    (
        "port_rcv_switch_relay_errors",
        "port_receive_switch_relay_errors",
    ),
    (
        "port_rcv_constraint_errors",
        "port_constraint_errors_received",
    ),
    (
        "port_xmit_constraint_errors",
        "port_constraint_errors_transmitted",
    ),
    ("local_link_integrity_errors", "local_link_integrity_errors"),
    (
        "excessive_buffer_overrun_errors",
        "excessive_buffer_overrun_errors",
    ),
    ("VL15_dropped", "vl15_dropped"),
];

/// DCGM's field for a metric of a GPU with one label more at most, and how many of its units are one of ours.
const FIELDS: &[(&Metric, Option<&str>, &str, f64)] = &[
    (&GPU_CLOCK, Some("sm"), "SM_CLOCK", 1e-6),
    (&GPU_UTILIZATION, None, "GPU_UTIL", 100.0),
    (&GPU_POWER, None, "POWER_USAGE", 1.0),
    (&GPU_ENERGY, None, "TOTAL_ENERGY_CONSUMPTION", 1e3),
    (&GPU_TEMPERATURE, Some("gpu"), "GPU_TEMP", 1.0),
    (&GPU_ROW_REMAP_PENDING, None, "ROW_REMAP_PENDING", 1.0),
];

/// Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS, from nvml.h.
const REASONS: &[(&str, u64)] = &[
    ("sw_power_cap", 0x4),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("hw_power_brake", 0x80),
];

fn of<'a>(reading: &'a NodeReading, metric: &'static Metric) -> impl Iterator<Item = &'a Sample> {
    let samples = reading.samples().iter();
    samples.filter(move |sample| sample.metric == metric)
}

/// node_exporter's exposition with its infiniband collector alone.
pub(crate) fn node_exporter(reading: &NodeReading) -> String {
    let mut lines = vec![String::from(
        "node_scrape_collector_success{collector=\"infiniband\"} 1",
    )];
    for sample in reading.samples() {
        let labels: Vec<_> = sample.labels.values().collect();
        let value = sample.value.as_f64();
        let name = match labels[..] {
            [_, _, kind] if sample.metric == &RDMA_PORT_ERRORS => {
                let known = ERRORS.iter().find(|(file, _)| *file == kind);
                known.map(|(_, name)| format!("{name}_total"))
            }
            [_, _, cast, direction] if sample.metric == &RDMA_PORT_CAST_PACKETS => {
                let way = if direction == "receive" {
                    "received"
                } else {
                    "transmitted"
                };
                Some(format!("{cast}_packets_{way}_total"))
            }
            [_, _] => {
                let known = PORT.iter().find(|(metric, _)| *metric == sample.metric);
                known.map(|(_, name)| (*name).to_owned())
            }
            [device, board, firmware, kind] if sample.metric == &RDMA_DEVICE => {
                lines.push(format!(
                    "node_infiniband_info{{board_id={board:?},device={device:?},firmware_version={firmware:?},hca_type={kind:?}}} 1"
                ));
                None
            }
            _ => None,
        };
        if let Some(name) = name {
            let (device, port) = (labels[0], labels[1]);
            lines.push(format!(
                "node_infiniband_{name}{{device={device:?},port={port:?}}} {value}"
            ));
        }
    }
    lines.sort();
    lines.join("\n") + "\n"
}

/// dcgm-exporter's exposition, from one reading to the next: its clock events are the current ones.
#[derive(Debug, Default)]
pub(crate) struct Dcgm {
    events: BTreeMap<(String, String), f64>,
}

impl Dcgm {
    pub(crate) fn page(&mut self, reading: &NodeReading) -> String {
        let mut page = String::new();
        for about in of(reading, &GPU) {
            let labels: Vec<_> = about.labels.values().collect();
            let [gpu, uuid, pci, name, _, _, driver, ..] = labels[..] else {
                continue;
            };
            let series = format!(
                "{{gpu={gpu:?},UUID={uuid:?},pci_bus_id=\"0000{}\",device=\"nvidia{gpu}\",modelName={name:?},Hostname=\"h\",DCGM_FI_DRIVER_VERSION={driver:?}}}",
                pci.to_uppercase()
            );
            let mut say = |field: &str, value: f64| {
                writeln!(page, "DCGM_FI_DEV_{field}{series} {value}").expect("a string");
            };
            let find = |metric, wanted: &[&str]| {
                let mut samples = of(reading, metric);
                let found =
                    samples.find(|sample| sample.labels.values().eq(wanted.iter().copied()));
                found.map(|sample| sample.value.as_f64())
            };
            for (metric, second, field, times) in FIELDS {
                let labels: Vec<_> = std::iter::once(gpu).chain(*second).collect();
                if let Some(value) = find(metric, &labels) {
                    say(field, value * times);
                }
            }
            for (metric, field) in [
                (&PCIE_LINK_WIDTH, "PCIE_LINK_WIDTH"),
                (&PCIE_LINK_WIDTH_MAX, "PCIE_MAX_LINK_WIDTH"),
            ] {
                if let Some(value) = find(metric, &[pci]) {
                    say(field, value);
                }
            }
            let mut mask = 0;
            for (reason, bit) in REASONS {
                let seconds = find(&GPU_CLOCK_EVENT_SECONDS, &[gpu, reason]).unwrap_or_default();
                let before = self
                    .events
                    .insert((gpu.to_owned(), (*reason).to_owned()), seconds);
                mask |= if before.is_some_and(|before| seconds > before) {
                    *bit
                } else {
                    0
                };
            }
            say("CLOCKS_EVENT_REASONS", mask as f64);
        }
        page
    }
}
