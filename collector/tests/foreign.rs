//! Translation of other exporters' expositions, compared with golden files. `UPDATE_EXPECT=1` updates these.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use expect_test::expect_file;
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::mapping::{Mappings, Recognised, Translation, Translator};
use railscope_collector::store::source_id::{Speaker, Subject};
use railscope_model::fabric::{LinkKind, Timestamp};

/// The part that a target of each kind reports; none if its series name their parts.
fn about(kind: &str) -> Option<Subject> {
    match kind {
        "infiniband_exporter" | "gnmic" | "cumulus-otlp" | "nmx-telemetry" => None,
        "snmp_exporter" | "sonic-exporter" => {
            Some(Subject::Switch("leaf-01".parse().expect("name")))
        }
        _ => Some(Subject::Node("n1".parse().expect("name"))),
    }
}

/// Readings as lines, sorted, with what became of the samples in front.
fn show(read: &Translation) -> String {
    let counts = &read.counts;
    let mut text = format!(
        "unknown {}, unfit {}{}, unreadable {}\n",
        counts.unknown,
        counts.unfit,
        read.unfit
            .as_ref()
            .map_or(String::new(), |why| format!(" ({why})")),
        counts.errors.len()
    );
    for (subject, reading) in &read.readings {
        let part = match subject {
            Subject::Node(_) => "node",
            Subject::Switch(_) => "switch",
        };
        writeln!(text, "\n{part} {subject}").expect("a string");
        let mut lines: Vec<_> = reading
            .samples()
            .iter()
            .map(|sample| {
                let names = sample.metric.labels.iter();
                let labels: Vec<_> = names
                    .zip(sample.labels.values())
                    .filter(|(_, value)| !value.is_empty())
                    .map(|(name, value)| format!("{name}={value:?}"))
                    .collect();
                let value = sample.value.as_f64();
                format!("{}{{{}}} {value}\n", sample.metric.name, labels.join(","))
            })
            .collect();
        lines.sort();
        text.extend(lines);
    }
    text
}

fn page(kind: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/foreign/{kind}.prom"));
    fs::read_to_string(file).expect(kind)
}

#[test]
fn every_exporter_s_page_is_recognised_and_becomes_the_readings_of_its_golden_file() {
    let mappings = Mappings::default();
    for kind in mappings.kinds().skip(1) {
        let page = page(kind);
        let recognised = mappings.recognise(&page);
        let Some(Recognised::Foreign(mapping)) = recognised else {
            unreachable!("{kind}: {recognised:?}");
        };
        assert_eq!(&*mapping.kind, kind);
        let mut translator = Translator::new(mapping, about(kind));
        let first = show(&translator.translate(&page, Timestamp(0)));
        let again = show(&translator.translate(&page, Timestamp(5_000)));
        assert_eq!(first, again, "{kind}: what is remembered is what was found");
        expect_file![format!("foreign/{kind}.txt")].assert_eq(&first);
    }
}

/// Lines of a real scrape of dcgm-exporter, of two GPU types of labels (with and without a container).
#[test]
fn a_page_that_was_recorded_on_h100s_is_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let file = root.join("dcgm/aicr-8xh100-dcgm-sampled.prom");
    let Ok(page) = fs::read_to_string(&file) else {
        println!("skipped: {} is not here", file.display());
        return;
    };
    let mapping = Mappings::default().by_kind("dcgm-exporter").cloned();
    let mut translator = Translator::new(mapping.expect("built in"), about("dcgm-exporter"));
    let read = translator.translate(&page, Timestamp(0));
    let text = show(&read);
    assert_eq!(
        (read.counts.unfit, read.counts.errors.len()),
        (0, 0),
        "{text}"
    );
    let count = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    for (metric, series) in [
        ("railscope_gpu_info{", 8),
        ("railscope_pcie_path_info{", 8),
        ("railscope_gpu_temperature_celsius{", 8),
        ("railscope_gpu_power_watts{", 8),
        ("railscope_gpu_utilization_ratio{", 8),
        ("railscope_gpu_memory_utilization_ratio{", 6),
    ] {
        assert_eq!(count(metric), series, "{metric}\n{text}");
    }
    assert!(
        text.contains("railscope_gpu_power_watts{gpu=\"0\"} 113.611\n"),
        "{text}"
    );
    assert!(text.contains("pci=\"0000:ca:00.0\""), "{text}");
}

/// The cables of a graph, by name.
fn cables_of(view: &ClusterView) -> Vec<String> {
    let links = view.fabric.links();
    links
        .filter(|(.., link)| link.kind == LinkKind::Cable && link.is_present())
        .filter_map(|(id, ..)| view.fabric.cable_part(id))
        .map(|part| part.to_string())
        .collect()
}

/// LLDP-MIB of a switch of which one port has one neighbor.
fn neighbour(port: &str, system: &str, their_port: &str) -> String {
    let rem = "lldpRemIndex=\"1\",lldpRemLocalPortNum=\"5\",lldpRemTimeMark=\"0\"";
    format!(
        "ifHighSpeed{{ifName=\"{port}\"}} 400000\n\
         lldpLocPortId{{lldpLocPortId=\"{port}\",lldpLocPortNum=\"5\"}} 1\n\
         lldpRemChassisId{{lldpRemChassisId=\"{system}-id\",{rem}}} 1\n\
         lldpRemPortId{{{rem},lldpRemPortId=\"{their_port}\"}} 1\n\
         lldpRemSysName{{{rem},lldpRemSysName=\"{system}\"}} 1\n"
    )
}

#[test]
fn switches_that_hear_each_other_by_somebody_else_s_exporter_share_a_cable_and_a_moved_one_moves() {
    let mapping = Mappings::default().by_kind("snmp_exporter").cloned();
    let mapping = mapping.expect("built in");
    let mut analyzer = Analyzer::default();
    let mut cables = |seconds: u64, leaf: &str, spine: &str| {
        let at = Timestamp(seconds * 1000);
        for (switch, page) in [
            ("leaf-01", neighbour(leaf, "spine-01", spine)),
            ("spine-01", neighbour(spine, "leaf-01", leaf)),
        ] {
            let about = Subject::Switch(switch.parse().expect("name"));
            let mut translator = Translator::new(mapping.clone(), Some(about));
            for (subject, reading) in translator.translate(&page, at).readings {
                analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
            }
        }
        cables_of(&analyzer.tick(at))
    };
    assert_eq!(
        cables(0, "Ethernet1/1", "Ethernet1/9"),
        ["link/leaf-01[Ethernet1/1]"]
    );
    assert_eq!(
        cables(5, "Ethernet1/2", "Ethernet1/10"),
        ["link/leaf-01[Ethernet1/2]"]
    );
}

/// Scrapes a minute apart, each switch at another time, and the neighbors that both lose with the cable.
#[test]
fn a_cable_whose_ports_are_down_on_pages_of_a_minute_is_down() {
    let mapping = Mappings::default().by_kind("snmp_exporter").cloned();
    let mapping = mapping.expect("built in");
    let switches = [
        (
            "leaf-01",
            [
                ("Eth1/9", "spine-01", "Eth1/1"),
                ("Eth1/10", "spine-02", "Eth1/1"),
            ],
        ),
        (
            "leaf-02",
            [
                ("Eth1/9", "spine-01", "Eth1/2"),
                ("Eth1/10", "spine-02", "Eth1/2"),
            ],
        ),
        (
            "spine-01",
            [
                ("Eth1/1", "leaf-01", "Eth1/9"),
                ("Eth1/2", "leaf-02", "Eth1/9"),
            ],
        ),
        (
            "spine-02",
            [
                ("Eth1/1", "leaf-01", "Eth1/10"),
                ("Eth1/2", "leaf-02", "Eth1/10"),
            ],
        ),
    ];
    let mut translators = switches.map(|(switch, _)| {
        let about = Subject::Switch(switch.parse().expect("name"));
        Translator::new(mapping.clone(), Some(about))
    });
    let page = |seconds: u64, (switch, ports): &(&str, [(&str, &str, &str); 2])| {
        let is_of_it = |port: &str| {
            [("leaf-01", "Eth1/10"), ("spine-02", "Eth1/1")].contains(&(*switch, port))
        };
        let mut text = String::new();
        for (number, (port, system, their_port)) in (1..).zip(ports) {
            let is_up = seconds < 300 || !is_of_it(port);
            let status = if is_up { 1 } else { 2 };
            let _ = write!(
                text,
                "ifOperStatus{{ifName=\"{port}\"}} {status}\n\
                 ifHighSpeed{{ifName=\"{port}\"}} 200000\n\
                 lldpLocPortId{{lldpLocPortId=\"{port}\",lldpLocPortNum=\"{number}\"}} 1\n"
            );
            let rem = format!(
                "lldpRemIndex=\"1\",lldpRemLocalPortNum=\"{number}\",lldpRemTimeMark=\"0\""
            );
            if is_up {
                let _ = write!(
                    text,
                    "lldpRemChassisId{{lldpRemChassisId=\"{system}-id\",{rem}}} 1\n\
                     lldpRemPortId{{{rem},lldpRemPortId=\"{their_port}\"}} 1\n\
                     lldpRemSysName{{{rem},lldpRemSysName=\"{system}\"}} 1\n"
                );
            }
        }
        text
    };
    let mut analyzer = Analyzer::default();
    let mut named = Vec::new();
    for seconds in (0..600).step_by(5) {
        let at = Timestamp(seconds * 1000);
        for (number, (switch, translator)) in (0..).zip(switches.iter().zip(&mut translators)) {
            if seconds % 60 != 15 * number {
                continue;
            }
            for (subject, reading) in translator.translate(&page(seconds, switch), at).readings {
                analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
            }
        }
        let view = analyzer.tick(at);
        let of_view = view.incidents.iter();
        let of_view = of_view.map(|one| format!("{} {}", one.class.name, one.root));
        if seconds == 295 || seconds >= 420 {
            named.push((seconds, of_view.collect::<Vec<_>>()));
        }
    }
    let (before, after) = named.split_at(1);
    assert_eq!(before[0].1, Vec::<String>::new());
    for (seconds, after) in after {
        assert_eq!(*after, ["uplink-down link/leaf-01[Eth1/10]"], "{seconds} s");
    }
}

#[test]
fn cables_of_an_infiniband_subnet_are_those_that_its_exporter_lists() {
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mut translator = Translator::new(mapping.expect("built in"), None);
    let mut analyzer = Analyzer::default();
    let at = Timestamp(1000);
    let page = page("infiniband_exporter");
    for (subject, reading) in translator.translate(&page, at).readings {
        analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
    }
    let mut cables = cables_of(&analyzer.tick(at));
    cables.sort();
    assert_eq!(cables, ["link/leaf-01:33", "link/n1:mlx5_0/1"]);
}

/// Two leaves and two spines of an InfiniBand subnet as infiniband_exporter lists them, with these cables between them and a
/// hundred others, and an HCA on the first leaf while it runs.
fn subnet(cables: &[(&str, &str, &str, &str)], has_hca: bool) -> String {
    let mut text = String::new();
    for name in ["leaf-1", "leaf-2", "spine-1", "spine-2"] {
        let _ = writeln!(
            text,
            "infiniband_switch_info{{guid=\"{name}\",switch=\"{name}\"}} 1"
        );
    }
    let mut uplink = |near: &str, port: &str, far: &str, far_port: &str, kind: &str| {
        let _ = writeln!(
            text,
            "infiniband_switch_uplink_info{{guid=\"{near}\",port=\"{port}\",switch=\"{near}\",uplink=\"{far}\",uplink_guid=\"{far}\",uplink_port=\"{far_port}\",uplink_type=\"{kind}\"}} 1"
        );
    };
    for (a, a_port, b, b_port) in cables {
        uplink(a, a_port, b, b_port, "SW");
        uplink(b, b_port, a, a_port, "SW");
    }
    for port in (101..=200).map(|port| port.to_string()) {
        uplink("leaf-2", &port, "spine-2", &port, "SW");
        uplink("spine-2", &port, "leaf-2", &port, "SW");
    }
    if has_hca {
        uplink("leaf-1", "1", "n1 mlx5_0", "1", "CA");
        text += "infiniband_hca_info{guid=\"0x1\",hca=\"n1 mlx5_0\"} 1\n";
    }
    text
}

#[test]
fn a_cable_between_switches_that_infiniband_exporter_no_longer_lists_is_down_until_it_is_listed_again()
 {
    let cables = [
        ("leaf-1", "33", "spine-1", "1"),
        ("leaf-1", "34", "spine-2", "1"),
        ("leaf-2", "33", "spine-1", "2"),
        ("leaf-2", "34", "spine-2", "2"),
    ];
    let mapping = Mappings::default().by_kind("infiniband_exporter").cloned();
    let mut translator = Translator::new(mapping.expect("built in"), None);
    let mut analyzer = Analyzer::default();
    let mut incidents = |seconds: std::ops::Range<u64>, page: &str| {
        let mut last = Vec::new();
        for second in seconds.step_by(10) {
            let at = Timestamp(second * 1000);
            for (subject, reading) in translator.translate(page, at).readings {
                analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
            }
            let view = analyzer.tick(at);
            let of_view = view.incidents.iter();
            last = of_view
                .map(|one| format!("{} {}", one.class.name, one.root))
                .collect();
        }
        last
    };
    let none = Vec::<String>::new();
    let whole = subnet(&cables, true);
    assert_eq!(incidents(0..60, &whole), none);
    // A switch that does not answer a query lists nothing of its cables.
    assert_eq!(incidents(60..80, &subnet(&cables[2..], true)), none);
    assert_eq!(incidents(80..140, &whole), none);
    let down = ["uplink-down link/leaf-1:33"];
    assert_eq!(incidents(140..200, &subnet(&cables[1..], true)), down);
    // Other HCAs on the list change what its lines mean, and the exporter may fail.
    assert_eq!(incidents(200..230, &subnet(&cables[1..], false)), down);
    let fails = "infiniband_exporter_collect_errors{collector=\"ibnetdiscover\"} 1\n";
    assert_eq!(incidents(230..250, fails), down);
    assert_eq!(incidents(250..300, &subnet(&cables[1..], false)), down);
    assert_eq!(incidents(300..520, &whole), none);
}

/// An exposition of a node's exporter: whether the node has the fault.
type PageOf = fn(bool) -> String;

/// The name of a fault that only one node's exposition shows.
const FAULTS: &[(&str, PageOf, &str)] = &[
    (
        "node_exporter",
        |is_slow| {
            let fastest = if is_slow { "1.2e+09" } else { "3.7e+09" };
            format!(
                "node_cpu_scaling_frequency_hertz{{cpu=\"0\"}} 8e+08\n\
                 node_cpu_scaling_frequency_hertz{{cpu=\"1\"}} {fastest}\n"
            )
        },
        "host-hardware host/n3",
    ),
    (
        "dcgm-exporter",
        |exceeds| {
            gpus(
                "DCGM_FI_DEV_THRESHOLD_SRM",
                &u8::from(exceeds).to_string(),
                "0",
            )
        },
        "gpu-memory gpu/n3:1",
    ),
    (
        "dcgm-exporter",
        |exceeds| {
            gpus(
                "DCGM_FI_DEV_SRAM_EXCEEDED",
                &u8::from(exceeds).to_string(),
                "0",
            )
        },
        "gpu-memory gpu/n3:1",
    ),
    (
        "dcgm-exporter",
        |asks| {
            let action = if asks { "2" } else { "0" };
            gpus("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", action, "0")
        },
        "gpu-error gpu/n3:1",
    ),
    (
        "nvidia_gpu_exporter",
        |is_pending| {
            let gpus = [(0, false), (1, is_pending)].map(|(gpu, is_pending)| {
                let is_pending = u8::from(is_pending);
                format!(
                    "nvidia_smi_gpu_info{{uuid=\"{gpu}\",index=\"{gpu}\",pci_bus_id=\"00000000:1{gpu}:00.0\",name=\"H100\"}} 1\n\
                     nvidia_smi_remapped_rows_pending{{uuid=\"{gpu}\"}} {is_pending}\n"
                )
            });
            gpus.concat()
        },
        "gpu-memory gpu/n3:1",
    ),
];

/// Two GPUs that respond, with one more field.
fn gpus(field: &str, of_second: &str, of_first: &str) -> String {
    let lines = [of_first, of_second].into_iter().enumerate();
    let lines = lines.map(|(gpu, value)| {
        let labels = format!("{{gpu=\"{gpu}\",UUID=\"GPU-{gpu}\",modelName=\"H100\"}}");
        format!(
            "DCGM_FI_DEV_GPU_TEMP{labels} 40\nDCGM_FI_DEV_GPU_UTIL{labels} 0\n{field}{labels} {value}\n"
        )
    });
    lines.collect()
}

/// Incidents after two minutes in which one of six nodes has the fault, or none.
fn incidents(kind: &str, page: PageOf, is_faulty: bool) -> Vec<String> {
    let mapping = Mappings::default().by_kind(kind).cloned().expect(kind);
    let mut analyzer = Analyzer::default();
    let nodes = (1..=6).map(|node| format!("n{node}").parse().expect("name"));
    let mut nodes: Vec<_> = nodes
        .map(|node| Translator::new(mapping.clone(), Some(Subject::Node(node))))
        .collect();
    let mut last = Vec::new();
    for tick in 0..24 {
        let at = Timestamp(tick * 5_000);
        for (number, translator) in (1..).zip(&mut nodes) {
            let text = page(is_faulty && number == 3);
            let read = translator.translate(&text, at);
            assert_eq!(read.unfit, None, "{text}");
            for (subject, reading) in read.readings {
                analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
            }
        }
        let view = analyzer.tick(at);
        let of_view = view.incidents.iter();
        last = of_view
            .map(|incident| format!("{} {}", incident.class.name, incident.root))
            .collect();
    }
    last
}

#[test]
fn a_fault_that_one_field_of_another_exporter_states_is_named_and_its_absence_is_not() {
    for (kind, page, expected) in FAULTS {
        assert_eq!(incidents(kind, *page, true), [*expected], "{kind}");
        assert_eq!(
            incidents(kind, *page, false),
            Vec::<String>::new(),
            "{kind}"
        );
    }
}

/// Where the table of facts locates a test.
fn test_file(name: &str) -> String {
    match name {
        "foreign.rs" => String::from("collector/tests/foreign.rs"),
        "drivers.rs" => String::from("exporter/tests/drivers.rs"),
        _ if name.starts_with("analysis/") => format!("collector/tests/{name}"),
        _ if name.starts_with("tests/") => name.to_owned(),
        _ => format!("tests/{name}"),
    }
}

#[test]
fn every_cell_of_the_table_of_facts_has_a_text_and_every_test_that_it_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |file: &str| fs::read_to_string(root.join(file)).expect(file);
    let page = read("docs/other-exporters.md");
    let (_, section) = page.split_once("\n## Facts by exporter\n").expect("facts");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows: Vec<_> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
    let names = section.split('`').skip(1).step_by(2);
    let mut tests = 0;
    for (file, test) in names.filter_map(|name| name.split_once(".rs::")) {
        let file = test_file(&format!("{file}.rs"));
        let function = format!("\nfn {test}() ");
        assert!(read(&file).contains(&function), "{test} in {file}");
        tests += 1;
    }
    assert!(tests > 30, "{tests}");
}
