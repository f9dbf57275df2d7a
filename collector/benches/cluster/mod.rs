//! A cluster of any size: each node serves the exposition of a real exporter, and switches count.
#![allow(
    dead_code,
    clippy::expect_used,
    reason = "a benchmark, and each uses a part of it"
)]

#[path = "../../tests/topology_net.rs"]
mod net;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use net::{Net, three_tiers};
use railscope_collector::analyzer::Analyzer;
use railscope_collector::fabric::subnet::NodeKind;
use railscope_collector::fabric::subnet::counters::{
    COUNTERS, DeviceReading, PortCounters, PortReading,
};
use railscope_collector::fabric::subnet::parse_ibnetdiscover;
use railscope_collector::store::Ingested;
use railscope_model::fabric::Timestamp;
use railscope_model::identity::{Guid, NodeName};

use crate::measure::processor_time;

/// GPUs of a node, and NICs on rails.
pub(crate) const GPUS_PER_NODE: usize = 8;
/// The expositions of an exporter on such a node, from files of a synthetic machine.
pub(crate) const FULL: &str = include_str!("../../../tests/golden/hgx-h100-ib.full.prom");
/// See [`FULL`].
pub(crate) const DEFAULT: &str = include_str!("../../../tests/golden/hgx-h100-ib.default.prom");
/// Number of distinct nodes, so that the expositions of 12,500 are written in time.
const ALIKE: usize = 32;
/// What a node's port carries while a job runs: half of 400 Gb/s.
const BYTES_PER_SECOND: f64 = 25e9;
/// Share of the time in which tensor cores are active.
const TENSOR_ACTIVE: f64 = 0.4;
/// Counters that are constant on a healthy cluster, by words in their names.
const STILL: &[&str] = &[
    "error",
    "replay",
    "dropped",
    "retransmit",
    "steal",
    "pressure",
];
/// Gauges that are never constant, by the beginnings of their series.
const RESTLESS: &[&str] = &[
    "railscope_gpu_power_watts",
    "railscope_gpu_temperature_celsius",
    "railscope_gpu_clock_hertz",
    "railscope_gpu_tensor_active_ratio",
    "railscope_gpu_sm_active_ratio",
    "railscope_gpu_dram_bandwidth_ratio",
    "railscope_gpu_memory_utilization_ratio",
    "railscope_gpu_peak_power_watts",
    "railscope_gpu_nvlink_peak",
    "railscope_rdma_port_peak",
    "railscope_source_age_seconds",
    "railscope_source_duration_seconds",
];

/// How the value of a line comes about.
#[derive(Debug, Clone, Copy)]
enum Value {
    Fixed(f64),
    /// Rises by so much a second, on each node by a little more or less.
    Rises {
        from: f64,
        per_second: f64,
    },
    /// Varies by so much around a value.
    Around {
        value: f64,
        by: f64,
    },
}

/// One series of the exposition.
#[derive(Debug)]
struct Row {
    series: String,
    /// Rail of the NIC whose GUIDs stand among the labels.
    guids_of: Option<usize>,
    value: Value,
}

/// What is wrong with a series of one node.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) node: usize,
    /// What the series begins with, such as `railscope_rdma_port_up{device="mlx5_3"`.
    pub(crate) series: &'static str,
    pub(crate) wrong: Wrong,
    /// Seconds after the start from which it is so.
    pub(crate) since: f64,
}

/// How a series goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wrong {
    /// It stands at a value.
    Is(f64),
    /// Factor on its normal value: a gauge, or how fast a counter rises.
    Times(f64),
    /// It rises by so much a second more.
    Rises(f64),
}

/// Text that equal nodes have in common, and the row after it that differs.
type Piece = (String, Option<usize>);

/// Time between two scrapes of a node, two reads of all switches, and two ticks.
pub(crate) const EVERY_SECONDS: f64 = 10.0;

/// Nodes and switches.
pub(crate) struct Cluster {
    pub(crate) names: Vec<NodeName>,
    net: Net,
    rows: Vec<Row>,
    /// By node and rail.
    guids: Vec<[u64; GPUS_PER_NODE]>,
    /// By node modulo [`ALIKE`]: seconds, and the exposition in pieces that end before a series with GUIDs.
    pieces: RefCell<BTreeMap<usize, (f64, Vec<Piece>)>>,
    pub(crate) faults: Vec<Fault>,
    /// Whether every node exports 256 flows of probes, the most that an exporter has.
    pub(crate) probes: bool,
}

/// NICs that each NIC probes, and flows to each.
const PROBED: (usize, usize) = (8, 4);

impl Cluster {
    /// A cluster of so many nodes with this exposition, eight rails and three tiers of switches.
    pub(crate) fn new(nodes: usize, page: &str) -> Self {
        let net = three_tiers(nodes, GPUS_PER_NODE);
        let mut guids = vec![[0; GPUS_PER_NODE]; nodes];
        for (description, guid) in net.adapters() {
            let (host, device) = description.split_once(' ').expect("host and device");
            let number = |text: &str, before| -> usize {
                let text = text.strip_prefix(before).expect("its name");
                text.parse().expect("a number")
            };
            guids[number(host, "gpu-")][number(device, "mlx5_")] = guid;
        }
        Self {
            names: (0..nodes)
                .map(|node| format!("gpu-{node:05}").parse().expect("a name"))
                .collect(),
            net,
            rows: rows(page),
            guids,
            pieces: RefCell::default(),
            faults: Vec::new(),
            probes: false,
        }
    }

    /// An analyzer that expects these nodes and has their subnet.
    pub(crate) fn watched(&self, begin: Timestamp) -> Analyzer {
        let mut analyzer = Analyzer::default();
        analyzer.set_targets(&self.names);
        analyzer.take_subnet(parse_ibnetdiscover(&self.subnet()), begin);
        analyzer
    }

    /// Ingests every node's exposition; returns the processor time.
    pub(crate) fn take_up(
        &self,
        analyzer: &mut Analyzer,
        seconds: f64,
        at: Timestamp,
        mut each: impl FnMut(Ingested),
    ) -> f64 {
        let (mut page, mut spent) = (String::new(), 0.0);
        for (node, name) in self.names.iter().enumerate() {
            self.page(node, seconds, &mut page);
            let began = processor_time();
            let taken = analyzer.ingest(name, &page, at);
            spent += (processor_time() - began).as_secs_f64();
            each(taken);
        }
        spent
    }

    /// The subnet as `ibnetdiscover` prints it.
    pub(crate) fn subnet(&self) -> String {
        self.net.text()
    }

    /// Series of one node's exposition.
    pub(crate) const fn series_per_node(&self) -> usize {
        self.rows.len()
    }

    /// Writes the exposition that a node serves so many seconds after the start.
    pub(crate) fn page(&self, node: usize, seconds: f64, page: &mut String) {
        page.clear();
        if self.probes {
            self.flows(node, seconds, page);
        }
        let faults: Vec<_> = self.faults_of(node, seconds).collect();
        if !faults.is_empty() {
            return (0..self.rows.len())
                .for_each(|row| self.line(node, row, seconds, &faults, page));
        }
        let mut pieces = self.pieces.borrow_mut();
        let known = pieces.entry(node % ALIKE).or_insert((f64::NAN, Vec::new()));
        if known.0.to_bits() != seconds.to_bits() {
            *known = (seconds, self.pieces(node, seconds));
        }
        for (text, own) in &known.1 {
            page.push_str(text);
            own.iter()
                .for_each(|row| self.line(node, *row, seconds, &[], page));
        }
    }

    /// Flows to the same rail of the next nodes, and of some far away: a probe a second, of which one in a thousand is slow.
    fn flows(&self, node: usize, seconds: f64, page: &mut String) {
        let nodes = self.names.len();
        for (name, per_second) in [("sent", 1.0), ("lost", 0.0), ("slow", 1e-3)] {
            for (rail, peer) in
                (0..GPUS_PER_NODE).flat_map(|rail| (0..PROBED.0).map(move |peer| (rail, peer)))
            {
                let step = if peer < PROBED.0 / 2 {
                    peer + 1
                } else {
                    peer * nodes / PROBED.0
                };
                let peer = &self.names[(node + step) % nodes];
                for flow in 0..PROBED.1 {
                    let begun = 1e3 * noise(node, rail * PROBED.1 + flow, step);
                    let count = ((begun + seconds) * per_second).floor();
                    writeln!(page, "railscope_probe_flow_{name}_total{{device=\"mlx5_{rail}\",peer_node=\"{peer}\",peer_device=\"mlx5_{rail}\",flow=\"{flow}\",transport=\"udp\"}} {count}").expect("text");
                }
            }
        }
    }

    fn pieces(&self, node: usize, seconds: f64) -> Vec<Piece> {
        let mut pieces = vec![(String::new(), None)];
        for (number, row) in self.rows.iter().enumerate() {
            let (text, own) = pieces.last_mut().expect("a piece");
            if row.guids_of.is_some() {
                *own = Some(number);
                pieces.push((String::new(), None));
            } else {
                self.line(node, number, seconds, &[], text);
            }
        }
        pieces
    }

    fn line(&self, node: usize, row: usize, seconds: f64, faults: &[&Fault], page: &mut String) {
        self.series(node, &self.rows[row], page);
        let value = self.value(node % ALIKE, row, seconds, faults);
        writeln!(page, " {value}").expect("text");
    }

    /// Calls `each` with series and value of those series of a node that `wanted` names.
    pub(crate) fn values(
        &self,
        node: usize,
        seconds: f64,
        wanted: &[&str],
        mut each: impl FnMut(&str, f64),
    ) {
        let faults: Vec<_> = self.faults_of(node, seconds).collect();
        let mut series = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let name = row.series.split('{').next().unwrap_or_default();
            if wanted.contains(&name) {
                series.clear();
                self.series(node, row, &mut series);
                each(&series, self.value(node % ALIKE, number, seconds, &faults));
            }
        }
    }

    fn faults_of(&self, node: usize, seconds: f64) -> impl Iterator<Item = &Fault> {
        let faults = self.faults.iter();
        faults.filter(move |fault| fault.node == node && fault.since <= seconds)
    }

    fn series(&self, node: usize, row: &Row, text: &mut String) {
        let Some(rail) = row.guids_of else {
            text.push_str(&row.series);
            return;
        };
        let guid = self.guids[node][rail];
        let mut parts = row.series.split("_guid=\"0x");
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            write!(text, "_guid=\"{guid:#018x}{}", &part[16..]).expect("text");
        }
    }

    fn value(&self, node: usize, row: usize, seconds: f64, faults: &[&Fault]) -> f64 {
        let Row { series, value, .. } = &self.rows[row];
        let healthy = match *value {
            Value::Fixed(value) => value,
            Value::Rises { from, per_second } => {
                let own = 1.0 + 0.002 * (noise(node, row, 0) - 0.5);
                let count = from + own * per_second * seconds;
                if series.contains("_seconds_total") {
                    count
                } else {
                    count.floor()
                }
            }
            Value::Around { value, by } => value + by * (noise(node, row, seconds as usize) - 0.5),
        };
        let of_it = faults.iter().find(|fault| series.starts_with(fault.series));
        of_it.map_or(healthy, |fault| {
            let since = seconds - fault.since;
            match (fault.wrong, value) {
                (Wrong::Is(value), _) => value,
                (Wrong::Rises(per_second), _) => healthy + per_second * since,
                (Wrong::Times(share), Value::Rises { per_second, .. }) => {
                    healthy + (share - 1.0) * per_second * since
                }
                (Wrong::Times(share), _) => healthy * share,
            }
        })
    }

    /// What a sweep reads of all switches so many seconds after the start.
    pub(crate) fn switches(&self, seconds: f64) -> Vec<DeviceReading> {
        let switches = self.net.switches();
        switches
            .map(|(guid, ports)| DeviceReading {
                guid: Guid(guid),
                kind: NodeKind::Switch,
                vendor: 0x2c9,
                device: 0xd2f2,
                ports: (1..=ports as u8)
                    .map(|port| counted(port, seconds))
                    .collect(),
            })
            .collect()
    }
}

/// A port of a switch that carries what a node's port does. Its first four counters are of data and packets.
fn counted(port: u8, seconds: f64) -> PortReading {
    let mut counters = PortCounters::default();
    for place in 0..COUNTERS {
        let per_second = match place {
            0 | 1 => BYTES_PER_SECOND / 4.0,
            2 | 3 => BYTES_PER_SECOND / 4096.0,
            _ => 0.0,
        };
        counters.set(place, (per_second * seconds) as u64, u64::BITS);
    }
    PortReading {
        port,
        active: true,
        speed: "4xNDR".parse().ok(),
        counters: Some(counters),
    }
}

/// A pseudo-random number from 0 to 1 (splitmix64).
fn noise(node: usize, row: usize, second: usize) -> f64 {
    let mut state = (node as u64) << 40 ^ (row as u64) << 20 ^ second as u64;
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state ^ state >> 31) as f64 / u64::MAX as f64
}

/// The rows of the exposition of a healthy node under load.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let rows: Vec<_> = lines.map(row).collect();
    let healthy = rows.into_iter().map(|row| Row {
        value: healed(&row.series).unwrap_or(row.value),
        ..row
    });
    healthy.collect()
}

/// The synthetic machine has broken parts, and does nothing. This one has none, and works.
fn healed(series: &str) -> Option<Value> {
    let values: BTreeMap<_, _> = [
        ("railscope_rdma_port_up", 1.0),
        ("railscope_gpu_utilization_ratio", 1.0),
        ("railscope_gpu_row_remap_pending", 0.0),
        ("railscope_gpu_row_remap_failed", 0.0),
        ("railscope_gpu_clock_event_active", 0.0),
        ("railscope_gpu_clock_event_seconds_total", 0.0),
        ("railscope_gpu_nvlinks_active", 18.0),
        ("railscope_gpu_nvlinks", 18.0),
        ("railscope_nvlink_up", 1.0),
        ("railscope_gpu_xid_events_total", 0.0),
    ]
    .into();
    let (name, labels) = series.split_once('{')?;
    // One of its GPUs has half of its lanes.
    let narrow = name == "railscope_pcie_link_width_lanes" && labels.contains("\"0000:9d:00.0\"");
    let narrow = narrow.then_some(Value::Fixed(16.0));
    let clock = name == "railscope_gpu_clock_hertz" && labels.contains("\"sm\"");
    let clock = clock.then_some(Value::Around {
        value: 1.7e9,
        by: 2e7,
    });
    let rises = |per_second| Value::Rises {
        from: 1e3,
        per_second,
    };
    let work = match name {
        "railscope_gpu_tensor_active_ratio" => Some(Value::Around {
            value: TENSOR_ACTIVE,
            by: 0.02 * TENSOR_ACTIVE,
        }),
        "railscope_gpu_tensor_active_seconds_total" => Some(rises(TENSOR_ACTIVE)),
        "railscope_gpu_monitored_seconds_total" => Some(rises(1.0)),
        _ => None,
    };
    let fixed = values.get(name).map(|value| Value::Fixed(*value));
    clock.or(narrow).or(work).or(fixed)
}

fn row(line: &str) -> Row {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let name = series.split('{').next().unwrap_or_default();
    // Values that differ from run to run are hidden in the golden file.
    let value = value.parse().unwrap_or(1e3);
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let counts = name.ends_with("_total");
    let value = if RESTLESS.iter().any(|begins| series.starts_with(begins)) {
        let by = 0.02 * value;
        Value::Around { value, by }
    } else if !counts || value == 0.0 || is(STILL) {
        Value::Fixed(value)
    } else {
        let bytes = name.starts_with("railscope_rdma_port_") && name.contains("_bytes");
        let per_second = if bytes {
            BYTES_PER_SECOND
        } else {
            1.0 + value * 1e-4
        };
        Value::Rises {
            from: value,
            per_second,
        }
    };
    let device = series.split("device=\"mlx5_").nth(1);
    let rail = device.and_then(|rest| rest.split('"').next()?.parse().ok());
    Row {
        guids_of: rail.filter(|_| series.contains("_guid=\"0x")),
        series: series.to_owned(),
        value,
    }
}
