//! Translation of other exporters' expositions, compared with golden files. `UPDATE_EXPECT=1` updates these.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use expect_test::expect_file;
use railscope_collector::analyzer::{Analyzer, ClusterView};
use railscope_collector::mapping::{Mappings, Recognized, Translation, Translator};
use railscope_collector::store::source_id::{Speaker, Subject};
use railscope_model::fabric::Timestamp;

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

pub(crate) fn page(kind: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/foreign/{kind}.prom"));
    fs::read_to_string(file).expect(kind)
}

#[test]
fn every_exporter_s_page_is_recognized_and_becomes_the_readings_of_its_golden_file() {
    let mappings = Mappings::default();
    for kind in mappings.kinds().skip(1) {
        let page = page(kind);
        let recognized = mappings.recognize(&page);
        let Some(Recognized::Foreign(mapping)) = recognized else {
            unreachable!("{kind}: {recognized:?}");
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

/// Ingests what a target's exposition became.
pub(crate) fn take_up(analyzer: &mut Analyzer, read: Translation, at: Timestamp) {
    for (subject, reading) in read.readings {
        analyzer.ingest_from(&Speaker::default(), &subject, &reading, at, false);
    }
}

/// Class and root of each incident.
pub(crate) fn named(view: &ClusterView) -> Vec<String> {
    let incidents = view.incidents.iter();
    incidents
        .map(|one| format!("{} {}", one.class.name, one.root))
        .collect()
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
            take_up(&mut analyzer, read, at);
        }
        last = named(&analyzer.tick(at));
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
