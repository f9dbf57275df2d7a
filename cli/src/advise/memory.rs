//! What was said last time: a small file, so that what is over can be withdrawn.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// What was said of each node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) cluster: String,
    pub(super) nodes: BTreeMap<String, Said>,
}

/// What was said of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Said {
    /// Whether to drain it.
    pub(super) drain: bool,
    /// Incidents by the condition that told of them.
    pub(super) conditions: BTreeMap<String, Vec<String>>,
}

/// What the file holds; nothing if there is none.
pub(super) fn read(path: &Path, cluster: &str) -> anyhow::Result<Memory> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Memory::default()),
        Err(error) => return Err(error).with_context(|| format!("--state {}", path.display())),
    };
    let memory: Memory = serde_json::from_str(&text).with_context(|| {
        format!(
            "--state {}: expected a file that railscope advise wrote",
            path.display()
        )
    })?;
    if memory.cluster != cluster {
        bail!(
            "--state {}: it is of cluster {:?}, and the collector's is {cluster:?}",
            path.display(),
            memory.cluster
        );
    }
    Ok(memory)
}

/// Writes it beside the old one and puts it in its place, so that it is whole at any time.
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
