//! Files of people and of other programs that the collector reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use railscope_collector::collectives::flight_recorder::{parse_dump, rank_states};
use railscope_collector::collectives::nccl_tests::parse_log;
use railscope_collector::config::{Config, Target};
use railscope_collector::foreign::{Mappings, Reader};
use railscope_collector::maintenance::RawWindow;
use railscope_collector::state_file;
use railscope_collector::targets::TargetList;
use railscope_model::fabric::Timestamp;

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A folder of this process in memory, for what is only read from a file.
pub(crate) fn folder() -> PathBuf {
    let folder = Path::new("/dev/shm").join(format!("railscope-fuzz-{}", std::process::id()));
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
    let mut list = TargetList::new(Vec::new(), vec![file], Mappings::default());
    list.look();
    list.targets();
}

/// What a hung job leaves behind.
pub(crate) fn flight_recorder(bytes: &[u8]) {
    if let Ok(dump) = parse_dump("rank_0.json", 0, &text(bytes)) {
        rank_states(&[dump]);
    }
}

/// The table of nccl-tests.
pub(crate) fn nccl_tests(bytes: &[u8]) {
    if let Err(error) = parse_log("log", &text(bytes)) {
        assert!(!error.to_string().is_empty());
    }
}

/// A site's own mapping of another exporter.
pub(crate) fn foreign_mapping(bytes: &[u8]) {
    if let Err(error) = Mappings::default().add(&text(bytes), Path::new("mapping.toml")) {
        assert!(!error.to_string().is_empty());
    }
}

/// A page of another exporter, recognised and translated, twice: names are remembered.
pub(crate) fn foreign_page(bytes: &[u8]) {
    let target = Target {
        about: None,
        kind: None,
        url: String::from("http://there:9100/metrics"),
    };
    let mut reader = Reader::new(Arc::new(target), Mappings::default());
    for at in [1_000, 6_000] {
        reader.read(&text(bytes), Timestamp(at));
    }
}

/// Work that is announced over the API.
pub(crate) fn maintenance(bytes: &[u8]) {
    if let Ok(window) = serde_json::from_slice::<RawWindow>(bytes)
        && let Err(error) = window.check(Timestamp(1_754_493_083_000))
    {
        assert!(!error.is_empty());
    }
}

/// What an earlier run left behind.
pub(crate) fn state_file(bytes: &[u8]) {
    let folder = folder();
    std::fs::write(folder.join("topology.json"), bytes).expect("a file");
    if let Err(error) = state_file::load(&folder) {
        assert!(error.to_string().contains("topology.json"));
    }
}
