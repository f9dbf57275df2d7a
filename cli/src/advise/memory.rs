//! State file with the last advice, so that advice about resolved incidents can be withdrawn.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// The last advice by node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) cluster: String,
    pub(super) nodes: BTreeMap<String, NodeState>,
}

/// The last advice about one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    /// Whether a drain was proposed.
    pub(super) drain: bool,
    /// Incidents by their condition type.
    pub(super) conditions: BTreeMap<String, Vec<String>>,
}

/// Reads the file; empty if it does not exist.
pub(super) fn read(path: &Path, cluster: &str) -> anyhow::Result<Memory> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Memory::default()),
        Err(error) => return Err(error).with_context(|| format!("--state {}", path.display())),
    };
    let memory: Memory = serde_json::from_str(&text).with_context(|| {
        format!(
            "--state {}: expected a state file written by railscope advise",
            path.display()
        )
    })?;
    if memory.cluster != cluster {
        bail!(
            "--state {}: the file is of cluster {:?}, but the collector's cluster is {cluster:?}",
            path.display(),
            memory.cluster
        );
    }
    Ok(memory)
}

/// Writes a temporary file in the same directory and renames it, so that the file is always complete.
pub(super) fn write(path: &Path, memory: &Memory) -> anyhow::Result<()> {
    let what = || format!("--state {}", path.display());
    let mut name = path.file_name().with_context(what)?.to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let text = serde_json::to_string_pretty(memory).context("cannot write JSON")?;
    let mut file = std::fs::File::create(&beside).with_context(what)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(what)?;
    std::fs::rename(&beside, path).with_context(what)
}
