//! Every number of a detector is explained, and docs/detectors.md lists them all.

use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use railscope_collector::detect::registry::{Described, describe};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect();
    files.sort();
    files
}

/// Names of the constants of a source that are numbers, or lists of them.
fn numbers(source: &str) -> Vec<&str> {
    let lines = source
        .lines()
        .map(|line| line.trim_start_matches("pub(super) "));
    let constants = lines.filter_map(|line| line.strip_prefix("const ")?.split_once(": "));
    let is_number = |kind: &str| {
        ["f64", "usize", "u32", "[", "("]
            .iter()
            .any(|of| kind.starts_with(of))
            // Lists of metrics.
            && !["[&", "[(&"].iter().any(|of| kind.starts_with(of))
    };
    constants
        .filter(|(_, kind)| is_number(kind))
        .map(|(name, _)| name)
        .collect()
}

/// Thresholds in a source file: its list of rules, and the constants used as thresholds.
fn explained(source: &str) -> String {
    let rules = source.split_once("fn rules(&self)");
    let rules = rules.and_then(|(_, after)| Some(after.split_once("\n    }\n")?.0));
    let made = source.split("Threshold::new(").skip(1);
    let made = made.filter_map(|after| Some(after.split_once(')')?.0));
    rules.into_iter().chain(made).collect()
}

#[test]
fn every_number_that_a_detector_takes_is_among_its_thresholds() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/detect/rules"));
    let mut seen = 0;
    for file in files(folder) {
        let source = fs::read_to_string(&file).expect("a source");
        let mut said = explained(&source);
        // A detector may keep its rules in a separate file.
        said += &fs::read_to_string(file.with_extension("").join("rules.rs")).unwrap_or_default();
        for name in numbers(&source) {
            assert!(said.contains(name), "{name} of {}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} numbers");
}

fn row(described: &Described) -> String {
    let (rule, why) = (&described.rule, &described.explanation);
    let signal = match rule.signal {
        "" => String::new(),
        signal => format!(" by `{signal}`"),
    };
    let numbers: Vec<String> = rule
        .thresholds
        .iter()
        .map(|one| format!("{}: {} {}; {}", one.what, one.value, one.unit, one.source))
        .collect();
    let numbers = match &numbers[..] {
        [] => String::from("none: a state"),
        some => some.join("<br>"),
    };
    format!(
        "| {} | [{class}](../alerts/runbooks/{class}.md){signal} | {} | {numbers} | {} |\n",
        described.detector,
        why.check,
        why.clears,
        class = rule.class.name
    )
}

#[test]
fn the_page_of_detectors_lists_every_threshold() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/detectors.md");
    let page = fs::read_to_string(path).expect("docs/detectors.md");
    let (before, rest) = page.split_once("<!-- rules -->\n").expect("the mark");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end");
    let rows: String = describe().iter().map(row).collect();
    let table = format!(
        "| detector | class | checks | numbers | clears when |\n|---|---|---|---|---|\n{rows}"
    );
    expect_file![path].assert_eq(&format!(
        "{before}<!-- rules -->\n{table}<!-- end -->{after}"
    ));
}
