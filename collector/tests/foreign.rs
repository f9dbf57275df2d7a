//! Translation of other exporters' expositions, compared with golden files. `UPDATE_EXPECT=1` updates these.

mod faults;

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

/// Where the table of facts locates a test.
fn test_file(name: &str) -> String {
    match name {
        "foreign.rs" => String::from("collector/tests/foreign.rs"),
        "faults.rs" => String::from("collector/tests/foreign/faults.rs"),
        "drivers.rs" => String::from("exporter/tests/drivers.rs"),
        _ if name.starts_with("analysis/") => format!("collector/tests/{name}"),
        _ if name.starts_with("tests/") => name.to_owned(),
        _ => format!("tests/{name}"),
    }
}

/// The section about facts, and the cells of its table's rows.
fn facts() -> (String, Vec<Vec<String>>) {
    let page = read_of_repository("docs/other-exporters.md");
    let (_, section) = page.split_once("\n## Facts by exporter\n").expect("facts");
    let (section, _) = section.split_once("\n## ").expect("the next section");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    (section.to_owned(), rows.map(cells).collect())
}

fn read_of_repository(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(file)).expect(file)
}

#[test]
fn every_cell_of_the_table_of_facts_has_a_text_and_every_test_that_it_names_exists() {
    let (section, rows) = facts();
    assert!(rows.len() > 20, "{}", rows.len());
    for cells in rows {
        assert_eq!(cells.len(), 6, "{cells:?}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{cells:?}");
    }
    let names = section.split('`').skip(1).step_by(2);
    let mut tests = 0;
    for (file, test) in names.filter_map(|name| name.split_once(".rs::")) {
        let file = test_file(&format!("{file}.rs"));
        let function = format!("\nfn {test}() ");
        assert!(
            read_of_repository(&file).contains(&function),
            "{test} in {file}"
        );
        tests += 1;
    }
    assert!(tests > 30, "{tests}");
}
