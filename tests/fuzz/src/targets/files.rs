//! Files of people and of other programs that the collector reads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use railscope_collector::analyzer::Analyzer;
use railscope_collector::config::{Config, Target};
use railscope_collector::maintenance::RawWindow;
use railscope_collector::mapping::{Mappings, Reader};
use railscope_collector::persist::fabric_file;
use railscope_collector::persist::incidents_file;
use railscope_collector::sources::collectives::flight_recorder::{parse_dump, rank_states};
use railscope_collector::sources::collectives::job_log::JobLog;
use railscope_collector::sources::collectives::nccl_tests::{parse_log, parse_pairs};
use railscope_collector::sources::collectives::ras::{judge_ras, parse_ras};
use railscope_collector::sources::targets::TargetList;
use railscope_model::fabric::Timestamp;

use super::web::{NOW, show};

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Those that come with Railscope, read once.
fn mappings() -> &'static Mappings {
    static MAPPINGS: OnceLock<Mappings> = OnceLock::new();
    MAPPINGS.get_or_init(Mappings::default)
}

/// A folder of this process for what is only read from a file.
pub(crate) fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("railscope-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The collector's configuration.
pub(crate) fn collector_config(bytes: &[u8]) {
    if let Err(error) = Config::parse(&text(bytes), Path::new("/nowhere/collector.toml")) {
        assert!(!error.to_string().is_empty());
    }
}

/// Prometheus' lists of targets.
pub(crate) fn file_sd(bytes: &[u8]) {
    let file = folder().join("targets.json");
    std::fs::write(&file, bytes).expect("a file");
    let mut list = TargetList::new(Vec::new(), vec![file], mappings().clone());
    list.look();
    list.targets();
}

/// What a hung job leaves behind.
pub(crate) fn flight_recorder(bytes: &[u8]) {
    if let Ok(dump) = parse_dump("rank_0.json", 0, bytes) {
        rank_states(&[dump]);
    }
}

/// Output of NCCL's RAS client.
pub(crate) fn nccl_ras(bytes: &[u8]) {
    let snapshots = parse_ras(&text(bytes));
    for (finding, _) in judge_ras(&snapshots) {
        assert!(!finding.is_empty());
    }
}

/// Job logs: PyTorch's watchdog, NCCL INFO.
pub(crate) fn job_log(bytes: &[u8]) {
    let mut log = JobLog::default();
    log.take(&text(bytes));
    log.judge();
}

/// The table of nccl-tests, or a plain list of pairs.
pub(crate) fn nccl_tests(bytes: &[u8]) {
    parse_pairs(&text(bytes));
    if let Err(error) = parse_log("log", &text(bytes)) {
        assert!(!error.to_string().is_empty());
    }
}

/// A site's own mapping of another exporter.
pub(crate) fn foreign_mapping(bytes: &[u8]) {
    if let Err(error) = mappings()
        .clone()
        .add(&text(bytes), Path::new("mapping.toml"))
    {
        assert!(!error.to_string().is_empty());
    }
}

/// An exposition of another exporter, recognized and translated, twice: names are remembered.
pub(crate) fn foreign_page(bytes: &[u8]) {
    let target = Target {
        about: None,
        kind: None,
        url: String::from("http://there:9100/metrics"),
    };
    let mut reader = Reader::new(Arc::new(target), mappings().clone());
    for at in [1_000, 6_000] {
        reader.read(&text(bytes), Timestamp(at));
    }
}

/// Work that is announced over the API, and the file with a list of it.
pub(crate) fn maintenance(bytes: &[u8]) {
    let one = serde_json::from_slice::<RawWindow>(bytes).ok();
    let list = serde_json::from_slice::<Vec<RawWindow>>(bytes).unwrap_or_default();
    for window in one.iter().chain(&list) {
        if let Err(error) = window.check(NOW) {
            assert!(!error.is_empty());
        }
    }
}

/// What an earlier run left behind.
pub(crate) fn state_file(bytes: &[u8]) {
    let folder = folder();
    std::fs::write(folder.join("topology.json"), bytes).expect("a file");
    match fabric_file::load(&folder) {
        Ok(Some(past)) => {
            let mut analyzer = Analyzer::default();
            analyzer.restore(past.fabric, past.changes);
            show(analyzer.tick(NOW));
        }
        Ok(None) => {}
        Err(error) => assert!(error.to_string().contains("topology.json")),
    }
}

/// Saved incidents of an earlier run.
pub(crate) fn incident_file(bytes: &[u8]) {
    let folder = folder();
    std::fs::write(folder.join("incidents.json"), bytes).expect("a file");
    match incidents_file::load(&folder) {
        Ok(past) => {
            let mut analyzer = Analyzer::default();
            analyzer.restore_incidents(past.open, past.closed);
            analyzer.set_maintenance(past.announced);
            show(analyzer.tick(NOW));
        }
        Err(error) => assert!(error.to_string().contains("incidents.json")),
    }
}
