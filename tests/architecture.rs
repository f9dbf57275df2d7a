//! The rules of ARCHITECTURE.md, checked: dependencies, access to the machine, pure modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sources::{Source, reached, root, sources};
use expect_test::expect_file;
use railscope_collector::classes::CLASSES;
use railscope_collector::detect::detector::DETECTORS;
use railscope_model::metric::{
    CATALOGUE, HOST_TIMER_DELAY, Metric, PROBE_PATH_RTT, Profile, Writer,
};
use serde_json::Value;

/// Lines in a file.
const LONGEST_FILE: usize = 500;

/// Which of our packages each may use, for its code and for its tests.
const MAY_USE: &[(&str, &[&str])] = &[
    ("railscope-model", &[]),
    ("railscope-exporter", &["railscope-model", "railscope-otlp"]),
    (
        "railscope-collector",
        &["railscope-model", "railscope-otlp"],
    ),
    ("railscope-simulator", &["railscope-model"]),
    ("railscope-nvml-mock", &[]),
    ("railscope-rdma-probe", &["railscope-model"]),
    ("railscope-otlp", &["railscope-model"]),
    ("railscope-dashboards", &[]),
    (
        "railscope",
        &[
            "railscope-model",
            "railscope-exporter",
            "railscope-collector",
            "railscope-otlp",
            "railscope-simulator",
        ],
    ),
];

/// The collector's middle: the same input gives the same output, byte for byte, so that it replays.
const PURE: &[&str] = &[
    "collector/src/analyzer",
    "collector/src/assemble",
    "collector/src/classes",
    "collector/src/cluster_view",
    "collector/src/detect",
    "collector/src/diagnose",
    "collector/src/jobs",
    "collector/src/stages",
    "collector/src/store",
    "collector/src/fabric",
];

/// Where the collector may know of wire formats: at its edges.
const SERIALIZES: &[&str] = &[
    "collector/src/serve",
    "collector/src/sources/collectives",
    "collector/src/config",
    "collector/src/mapping/file.rs",
    "collector/src/fabric/lldp/text",
    "collector/src/fabric/plans",
    "collector/src/persist/incidents_file.rs",
    "collector/src/maintenance.rs",
    "collector/src/persist/fabric_file.rs",
    "collector/src/record",
    "collector/src/replay",
    "collector/src/lib.rs",
];

fn metadata() -> Value {
    let run = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    serde_json::from_slice(&run.stdout).expect("JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn below(source: &Source, folders: &[&str]) -> bool {
    folders.iter().any(|folder| {
        source
            .path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    })
}

#[test]
fn packages_use_only_those_below_them() {
    let metadata = metadata();
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    let mut seen = BTreeSet::new();
    for package in list(&metadata, "packages") {
        let name = package["name"].as_str().expect("name");
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name} is new: say in MAY_USE what it may use"));
        seen.insert(name);
        for dependency in list(package, "dependencies") {
            let used = dependency["name"].as_str().expect("name");
            assert!(
                !used.starts_with("railscope") || may.contains(&used),
                "{name} uses {used}"
            );
        }
    }
    assert_eq!(seen, allowed.into_keys().collect());
}

/// Fails with all lines of the chosen sources that hold one of the words, and why they may not.
fn forbid(reason: &str, words: &[&str], among: impl Fn(&Source) -> bool) {
    let chosen: Vec<_> = sources().into_iter().filter(among).collect();
    assert!(
        !chosen.is_empty(),
        "no source to check: has a folder moved?"
    );
    let found: Vec<_> = chosen
        .iter()
        .flat_map(|source| source.lines_with(words))
        .collect();
    assert!(found.is_empty(), "{reason}\n{}", found.join("\n"));
}

#[test]
fn only_the_sources_of_the_exporter_touch_the_machine() {
    let words = [
        "std::fs",
        "fs::",
        "std::process",
        "std::os",
        "env::var",
        "env::var_os",
        "env::vars",
        "env::args",
        "libc",
        "rustix",
        "nvml_wrapper",
        "UnixStream",
    ];
    forbid(
        "only exporter/src/sources touches the machine",
        &words,
        |source| {
            below(source, &["exporter/src"])
                && !below(source, &["exporter/src/sources"])
                // Tests build the machine that a sampler reads.
                && !source.path.ends_with("tests.rs")
        },
    );
}

#[test]
fn the_model_and_the_middle_of_the_collector_are_pure() {
    let words = [
        "async",
        "await",
        "tokio",
        "SystemTime",
        "Instant::now",
        "std::fs",
        "std::net",
        "env::var",
        "env::var_os",
        "env::vars",
        "env::args",
        "std::process",
        "std::thread",
        "axum",
        "reqwest",
        "tracing",
        "println!",
        "eprintln!",
        "RandomState",
    ];
    forbid(
        "the same input must give the same output: time comes in as an argument, input as text",
        &words,
        |source| {
            // It reads recordings.
            let reads = "collector/src/fabric/lldp/text/tests.rs";
            source.path != reads && (below(source, PURE) || below(source, &["model/src"]))
        },
    );
}

#[test]
fn wire_types_live_at_the_edge_of_the_collector() {
    forbid(
        "wire types live at the edges of the collector",
        &["serde", "serde_json", "Serialize", "Deserialize"],
        |source| below(source, &["collector/src"]) && !below(source, SERIALIZES),
    );
}

#[test]
fn the_middle_of_the_collector_keeps_no_set_whose_order_changes_from_run_to_run() {
    forbid("take a BTreeSet", &["HashSet"], |source| {
        below(source, PURE) && !below(source, &["collector/src/fabric"])
    });
}

/// Folders of the repository that the map must name: those at the top, and those of a crate's sources.
fn rooms() -> BTreeSet<String> {
    let listed = sources().into_iter().filter_map(|source| {
        let (krate, inner) = source.path.split_once("/src/")?;
        let (room, _) = inner.split_once('/')?;
        Some(format!("{krate}/src/{room}/"))
    });
    let top = root().read_dir().expect("the repository");
    let top = top.map(|entry| entry.expect("an entry"));
    let top = top.filter(|entry| entry.path().is_dir());
    let top = top.map(|entry| format!("{}/", entry.file_name().to_string_lossy()));
    let top = top.filter(|folder| !folder.starts_with('.') && folder != "target/");
    let listed = listed.filter(|room| !room.starts_with("tests/"));
    listed.chain(top).collect()
}

#[test]
fn the_map_names_every_room_and_no_other() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("readable");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let named: BTreeSet<_> = rows
        .filter_map(|row| Some(row.split_once("/`")?.0))
        .map(|folder| format!("{folder}/"))
        .collect();
    let missing: Vec<_> = rooms()
        .into_iter()
        .filter(|room| !named.contains(room))
        .collect();
    assert!(missing.is_empty(), "rooms without a row: {missing:?}");
    let gone = named.iter().filter(|folder| !root().join(folder).is_dir());
    let gone: Vec<_> = gone.collect();
    assert!(gone.is_empty(), "rows without a folder: {gone:?}");
}

/// Words of README, which only opens the door.
const LONGEST_README: usize = 900;

#[test]
fn readme_is_short_and_counts_what_there_is() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("readable");
    let words = text.split_whitespace().count();
    assert!(words <= LONGEST_README, "{words} words");
    let [detectors, classes] = [DETECTORS.len(), CLASSES.len()];
    let counted =
        format!("{detectors} [detectors](docs/detectors.md) report {classes} fault classes");
    assert!(text.contains(&counted), "{counted}");
    for class in CLASSES {
        assert!(
            text.contains(&format!("`{}`", class.name)),
            "{}",
            class.name
        );
    }
}

#[test]
fn links_of_documents_lead_to_files() {
    let docs = root().join("docs").read_dir().expect("docs");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|name| name == "md"));
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|name| root().join(name));
    for document in docs.chain(top) {
        let text = std::fs::read_to_string(&document).expect("readable");
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|after| after.split_once(')'));
        for (link, _) in links.filter(|(link, _)| !link.contains("://")) {
            let file = link.split('#').next().unwrap_or_default();
            let folder = document.parent().expect("a folder");
            let leads = file.is_empty() || folder.join(file).exists();
            assert!(leads, "{}: {link}", document.display());
        }
    }
}

#[test]
fn a_file_begins_with_what_it_is_for_and_stays_short() {
    for Source { path, text } in sources() {
        assert!(
            text.starts_with("//! "),
            "{path}: the first line says what the file is for"
        );
        let lines = text.lines().count();
        assert!(
            lines <= LONGEST_FILE,
            "{path}: {lines} lines, at most {LONGEST_FILE}"
        );
    }
}

#[test]
fn no_result_is_thrown_away() {
    forbid(
        "say with .ok() and a comment why a failure does not matter, or handle it",
        &["let _ ="],
        |source| {
            // The file that holds the word itself.
            source.path != "tests/architecture.rs"
        },
    );
}

#[test]
fn every_source_file_belongs_to_a_crate() {
    let metadata = metadata();
    let targets = list(&metadata, "packages")
        .iter()
        .flat_map(|package| list(package, "targets"));
    let mut roots: Vec<_> = targets
        .map(|target| PathBuf::from(target["src_path"].as_str().expect("path")))
        .collect();
    // Compiled by simulator/build.rs.
    roots.push(root().join("simulator/nvml-mock/src/lib.rs"));
    // A separate workspace, built by tests/fuzz/run.
    roots.push(root().join("tests/fuzz/src/main.rs"));
    let reached: BTreeSet<_> = roots.iter().flat_map(|path| reached(path)).collect();
    for Source { path, .. } in sources() {
        let file = root().join(&path).canonicalize().expect("exists");
        assert!(
            reached.contains(&file),
            "{path}: no crate has it as a module"
        );
    }
}

#[test]
fn scripts_can_be_run_and_name_no_path_of_one_machine() {
    for script in [
        "tests/run",
        ".ci/run",
        "tests/qemu/build",
        "tests/bench/probe_cost",
        "tests/bench/scrape_vs_node_exporter",
        "tests/bench/sweep_vs_ibnetdiscover",
        "tests/fuzz/run",
    ] {
        let path = root().join(script);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{script}: {error}"));
        assert!(text.starts_with("#!/usr/bin/env bash\n"), "{script}");
        assert!(is_executable(&path), "{script}: not executable");
        let here = root().canonicalize().expect("the checkout");
        for place in ["/home/", &here.to_string_lossy()] {
            assert!(!text.contains(place), "{script} names {place}");
        }
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|metadata| metadata.permissions().mode() & 0o111 == 0o111)
}

/// The generated document: every metric, by component that exports it. Rewritten by `UPDATE_EXPECT=1 cargo test`.
#[test]
fn the_metric_reference_is_the_catalogue() {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from `model/src/metric/catalogue.rs` by \
         `UPDATE_EXPECT=1 cargo test -p railscope --test integration architecture`. Do not edit.\n\n\
         All values are in base units. A value that could not be read has no sample; `railscope_source_status` \
         shows the reason. Metrics of the full profile are exposed at `/metrics?profile=full` only.\n",
    );
    page += &format!(
        "\nIn Prometheus' protobuf format, `{}` and `{}` are also \
         [native histograms](docs/probing.md#native-histograms).\n",
        PROBE_PATH_RTT.name, HOST_TIMER_DELAY.name
    );
    let parts = [
        (
            Writer::Exporter,
            "Exporter",
            "Exposed by each node. Prometheus adds the label `node` as a target label.",
        ),
        (Writer::Collector, "Collector", "Exposed once per cluster."),
        (
            Writer::Switch,
            "Switches",
            "Not exposed: the names under which the collector stores what it reads of switches, by its own sweep of the \
             subnet or from exporters that a site already runs. The switch is not a label: each has a separate history.",
        ),
    ];
    for (writer, title, said) in parts {
        page += &format!(
            "\n## {title}\n\n{said}\n\n| Metric | Type | Labels | Profile | |\n|---|---|---|---|---|\n"
        );
        for metric in CATALOGUE.iter().filter(|metric| metric.writer == writer) {
            page += &row(metric);
        }
    }
    expect_file![root().join("METRICS.md")].assert_eq(&page);
}

fn row(metric: &Metric) -> String {
    let labels: Vec<_> = metric
        .labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let profile = match metric.profile {
        Profile::Default => "default",
        Profile::Full => "full",
    };
    let help = metric.help.replace('|', "\\|");
    format!(
        "| `{}` | {} | {} | {profile} | {help} |\n",
        metric.name,
        metric.kind.as_str(),
        labels.join(" ")
    )
}
