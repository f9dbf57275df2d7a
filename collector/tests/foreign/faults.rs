//! Faults that another exporter's exposition states: each is named by its part, and an ordinary event that changes the same series is not.

use std::collections::BTreeSet;

use railscope_collector::analyzer::Analyzer;
use railscope_collector::mapping::{Mappings, Translator};
use railscope_collector::store::source_id::Subject;
use railscope_model::fabric::Timestamp;

use super::{named, take_up};

/// Seconds between two scrapes.
const STEP: u64 = 5;
/// The scrape with which the fault, or the event, begins.
const BEGIN: u64 = 12;
const SCRAPES: u64 = 36;

/// The values of a series.
#[derive(Clone, Copy)]
enum Course {
    Is(f64),
    Becomes(f64, f64),
    /// By so much a second.
    Rises(f64),
    /// All series of the part end.
    Ends(f64),
}

impl Course {
    /// Reads `2`, `0 > 2`, `+50/s` or `90 > end`.
    fn read(text: &str) -> Self {
        let number = |text: &str| text.parse().expect(text);
        let rate = text
            .strip_prefix('+')
            .and_then(|rate| rate.strip_suffix("/s"));
        match (rate, text.split_once(" > ")) {
            (Some(rate), _) => Self::Rises(number(rate)),
            (_, Some((before, "end"))) => Self::Ends(number(before)),
            (_, Some((before, after))) => Self::Becomes(number(before), number(after)),
            _ => Self::Is(number(text)),
        }
    }

    /// `None` where the part is no longer exported.
    fn at(self, scrape: u64) -> Option<f64> {
        let has_begun = scrape >= BEGIN;
        match self {
            Self::Is(value) => Some(value),
            Self::Becomes(before, after) => Some(if has_begun { after } else { before }),
            Self::Rises(rate) => Some(rate * (scrape.saturating_sub(BEGIN) * STEP) as f64),
            Self::Ends(value) => (!has_begun).then_some(value),
        }
    }
}

/// What a healthy target exports: `$` is the number of a part, `@` the name of the target.
struct Shape {
    /// In the first column of the table.
    name: &'static str,
    /// The exporter.
    kind: &'static str,
    /// Parts of a target; the last one has the fault.
    parts: usize,
    /// Labels of each of its series.
    labels: &'static str,
    usual: &'static [(&'static str, f64)],
}

const SHAPES: [Shape; 11] = [
    Shape {
        name: "dcgm",
        kind: "dcgm-exporter",
        parts: 2,
        labels: r#"gpu="$",UUID="GPU-$",pci_bus_id="00000000:1$:00.0",modelName="H100""#,
        usual: &[
            ("DCGM_FI_DEV_GPU_TEMP", 40.0),
            ("DCGM_FI_DEV_GPU_UTIL", 0.0),
            ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", 16.0),
        ],
    },
    Shape {
        name: "nvidia_smi",
        kind: "nvidia_gpu_exporter",
        parts: 2,
        labels: r#"uuid="$""#,
        usual: &[
            (
                r#"nvidia_smi_gpu_info{index="$",pci_bus_id="00000000:1$:00.0",name="H100"}"#,
                1.0,
            ),
            ("nvidia_smi_temperature_gpu", 40.0),
            ("nvidia_smi_pcie_link_width_max", 16.0),
        ],
    },
    Shape {
        name: "amd",
        kind: "amd-device-metrics-exporter",
        parts: 2,
        labels: r#"gpu_id="$",gpu_partition_id="0",serial_number="S$",card_series="AMD Instinct MI300X",gpu_uuid="u$""#,
        usual: &[
            ("gpu_gfx_activity", 90.0),
            ("gpu_junction_temperature", 45.0),
        ],
    },
    Shape {
        name: "host",
        kind: "node_exporter",
        parts: 1,
        labels: "",
        usual: &[],
    },
    Shape {
        name: "rdma",
        kind: "node_exporter",
        parts: 4,
        labels: r#"device="mlx5_$",port="1""#,
        usual: &[
            ("node_infiniband_state_id", 4.0),
            ("node_infiniband_physical_state_id", 5.0),
            ("node_infiniband_rate_bytes_per_second", 5e10),
            ("node_infiniband_port_packets_received_total", 1e9),
        ],
    },
    Shape {
        name: "bmc",
        kind: "ipmi_exporter",
        parts: 1,
        labels: "",
        usual: &[("ipmi_chassis_power_state", 1.0)],
    },
    Shape {
        name: "if_mib",
        kind: "snmp_exporter",
        parts: 4,
        labels: r#"ifDescr="Ethernet1/$",ifIndex="$",ifName="Ethernet1/$""#,
        usual: &[
            ("ifOperStatus", 1.0),
            ("ifAdminStatus", 1.0),
            ("ifHighSpeed", 4e5),
            ("ifHCInUcastPkts", 1e9),
        ],
    },
    Shape {
        name: "sonic",
        kind: "sonic-exporter",
        parts: 4,
        labels: r#"device="Ethernet$""#,
        usual: &[
            ("sonic_interface_operational_status", 1.0),
            ("sonic_interface_speed_bytes", 5e10),
        ],
    },
    Shape {
        name: "gnmic",
        kind: "gnmic",
        parts: 4,
        labels: r#"interface_name="Ethernet$",source="@:57400""#,
        usual: &[
            (
                r#"interfaces_interface_state_oper_status{oper_status="UP"}"#,
                1.0,
            ),
            (
                r#"interfaces_interface_ethernet_state_port_speed{port_speed="SPEED_400GB"}"#,
                1.0,
            ),
        ],
    },
    Shape {
        name: "cumulus",
        kind: "cumulus-otlp",
        parts: 4,
        labels: r#"interface="swp$",net_host_name="@""#,
        usual: &[
            ("nvswitch_interface_oper_state", 1.0),
            ("nvswitch_interface_oper_aggregate_speed", 4e11),
        ],
    },
    Shape {
        name: "infiniband",
        kind: "infiniband_exporter",
        parts: 4,
        labels: r#"guid="0x00000000000000@",port="$""#,
        usual: &[
            (r#"infiniband_switch_info{switch="@"}"#, 1.0),
            ("infiniband_switch_port_rate_bytes_per_second", 5e10),
        ],
    },
];

/// A line of an exposition; the series may have additional labels.
fn line(series: &str, labels: &str, value: f64) -> String {
    let (name, own) = series.split_once('{').unwrap_or((series, "}"));
    let own = own.strip_suffix('}').expect(series);
    let all: Vec<_> = [labels, own]
        .into_iter()
        .filter(|one| !one.is_empty())
        .collect();
    format!("{name}{{{}}} {value}\n", all.join(","))
}

/// A line of the table.
struct Case<'a> {
    shape: &'static Shape,
    fact: &'a str,
    fault: Course,
    event: Course,
    incident: &'a str,
    /// Several that have the same values are separated by ` & `.
    series: &'a str,
}

fn cases(table: &str) -> Vec<Case<'_>> {
    let lines = table.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let cases = lines.map(|line| {
        let cells: Vec<_> = line.split(" | ").map(str::trim).collect();
        let [of, fact, fault, event, incident, series] = cells[..] else {
            unreachable!("{line}");
        };
        let shape = SHAPES.iter().find(|shape| shape.name == of);
        Case {
            shape: shape.expect(line),
            fact,
            fault: Course::read(fault),
            event: Course::read(event),
            incident,
            series,
        }
    });
    cases.collect()
}

impl Case<'_> {
    /// The value that other parts have.
    fn usual(&self) -> Course {
        let healthy = match self.fault {
            Course::Is(_) => self.event,
            changes => changes,
        };
        Course::Is(healthy.at(0).expect("a first value"))
    }

    /// The exposition of a target whose last part has the course.
    fn exposition(&self, target: &str, of_last: Course, scrape: u64) -> String {
        let Shape {
            parts,
            labels,
            usual,
            ..
        } = self.shape;
        let parts = (0..*parts).filter_map(|part| {
            let is_last = part + 1 == *parts;
            let course = if is_last { of_last } else { self.usual() };
            let value = course.at(scrape)?;
            let own: Vec<_> = self.series.split(" & ").collect();
            let others = usual
                .iter()
                .copied()
                .filter(|(name, _)| !own.contains(name));
            let all = others.chain(own.iter().map(|series| (*series, value)));
            let lines = all.map(|(series, value)| line(series, labels, value));
            Some(lines.collect::<String>().replace('$', &part.to_string()))
        });
        parts.collect::<String>().replace('@', target)
    }

    /// Incidents by scrape, where the third of six targets has the course.
    fn incidents(&self, of_third: Course) -> Vec<Vec<String>> {
        let kind = self.shape.kind;
        let mapping = Mappings::default().by_kind(kind).cloned();
        let mapping = mapping.expect(kind);
        let names = (1..=6).map(|number| format!("a{number}"));
        let mut targets: Vec<_> = names
            .map(|name| {
                let about = super::about(kind).map(|part| match part {
                    Subject::Switch(_) => Subject::Switch(name.parse().expect("name")),
                    Subject::Node(_) => Subject::Node(name.parse().expect("name")),
                });
                (name, Translator::new(mapping.clone(), about))
            })
            .collect();
        let mut analyzer = Analyzer::default();
        let mut all = Vec::new();
        for scrape in 0..SCRAPES {
            let at = Timestamp(scrape * STEP * 1_000);
            for (name, target) in &mut targets {
                let of_last = if name == "a3" { of_third } else { self.usual() };
                let text = self.exposition(name, of_last, scrape);
                let read = target.translate(&text, at);
                assert_eq!(read.unfit, None, "{text}");
                take_up(&mut analyzer, read, at);
            }
            all.push(named(&analyzer.tick(at)));
        }
        all
    }
}

#[test]
fn each_stated_fault_is_named_and_an_ordinary_event_of_its_series_is_not() {
    let mut wrong = Vec::new();
    for case in cases(include_str!("faults.txt")) {
        let Case {
            incident, series, ..
        } = case;
        let found = case.incidents(case.fault).pop();
        if found.as_deref() != Some(&[incident.to_owned()]) {
            wrong.push(format!("{series}: {found:?} instead of {incident}"));
        }
        let found = case.incidents(case.event).concat();
        if !found.is_empty() {
            wrong.push(format!("{series}: {found:?} without a fault"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The column of an exporter in the table of facts; those of switches share one.
fn column(kind: &str) -> Option<usize> {
    match kind {
        "dcgm-exporter" => Some(2),
        "node_exporter" => Some(3),
        "ipmi_exporter" => Some(4),
        "nvidia_gpu_exporter" | "amd-device-metrics-exporter" => None,
        _ => Some(5),
    }
}

#[test]
fn the_table_of_facts_has_a_fault_where_one_is_replayed() {
    let (_, rows) = super::facts();
    let cases = cases(include_str!("faults.txt"));
    for case in &cases {
        let mut facts = rows.iter().map(|cells| cells[0].as_str());
        assert!(facts.any(|fact| fact == case.fact), "{}", case.fact);
    }
    for cells in &rows {
        for (number, cell) in cells.iter().enumerate().skip(2) {
            let is_of =
                |case: &&Case<'_>| case.fact == cells[0] && column(case.shape.kind) == Some(number);
            let shapes: BTreeSet<_> = cases
                .iter()
                .filter(is_of)
                .map(|case| case.shape.name)
                .collect();
            let listed = cell.strip_prefix("fault");
            assert_eq!(listed.is_some(), !shapes.is_empty(), "{}: {cell}", cells[0]);
            // The exporters of switches, which share a column, are listed.
            if let Some(listed) = listed.and_then(|listed| listed.strip_prefix(": ")) {
                let listed = listed.split(';').next().unwrap_or_default();
                let listed: BTreeSet<_> = listed.split(", ").collect();
                assert_eq!(listed, shapes, "{}", cells[0]);
            }
        }
    }
}
