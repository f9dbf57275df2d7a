//! Forwarding tables of switches from a file beside the subnet's, read again when it has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use railscope_model::fabric::Timestamp;

use crate::clock;
use crate::fabric::subnet::forwarding::Tables;
use crate::fabric::subnet::{Forwarding, Node, NodeKind, Subnet, parse_forwarding};
use crate::health::{SourceKey, SourceStatus};
use crate::sources::targets::stamp;
use crate::status::State;

use super::{read_file, unix};

/// The file and what was read of it.
pub(super) struct TablesFile {
    path: PathBuf,
    stamp: Option<(SystemTime, u64)>,
    /// The tables, or why there are none.
    read: Result<Forwarding, String>,
    /// What is wrong with some of the tables.
    flaws: Option<String>,
    /// The shape of the subnet, and the time of the first text of this shape.
    shape: Option<(u64, Timestamp)>,
    /// What was reported last of it.
    said: Option<String>,
}

impl TablesFile {
    /// A file that has not been read.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            stamp: None,
            read: Err(String::from("not read yet")),
            flaws: None,
            shape: None,
            said: None,
        }
    }

    /// Reads the file if it has changed. Whether it has.
    pub(super) async fn refresh(&mut self, now: Timestamp) -> bool {
        let stamped = stamp(&self.path);
        if let Ok(stamped) = &stamped
            && self.stamp == Some(*stamped)
        {
            return false;
        }
        let had_tables = self.read.is_ok();
        // Not read again, nor reported again, before it changes.
        self.stamp = stamped.as_ref().ok().copied();
        self.flaws = None;
        self.read = match stamped {
            Ok((written, bytes)) => {
                let at = clock::placed(unix(written), now).min(now);
                match read_file(&self.path, bytes).await {
                    Ok(text) => self.understand(text, at).await,
                    Err(error) => Err(error.to_string()),
                }
            }
            Err(error) => Err(format!("{}: {error}", self.path.display())),
        };
        had_tables || self.read.is_ok()
    }

    async fn understand(&mut self, text: String, read_at: Timestamp) -> Result<Forwarding, String> {
        let parsed = tokio::task::spawn_blocking(move || parse_forwarding(&text)).await;
        let dump = parsed.map_err(|error| error.to_string())?;
        let path = self.path.display();
        self.flaws = dump.problems.first().map(|first| {
            let count = dump.problem_count;
            format!("{path}: {first} ({count} in all; a switch with one has no table)")
        });
        if dump.tables.is_empty() {
            let none = || format!("{path}: expected the output of dump_fts, found no table");
            return Err(self.flaws.take().unwrap_or_else(none));
        }
        Ok(Forwarding {
            tables: Arc::<Tables>::new(dump.tables),
            read_at,
        })
    }

    /// Attaches the tables to a subnet of that time. Tables that are older than the first text of its shape belong to another
    /// shape, and are omitted.
    pub(super) fn attach(&mut self, subnet: &mut Subnet, at: Timestamp, state: &State) {
        let shape = subnet.shape();
        let since = match self.shape {
            Some((known, since)) if known == shape => since,
            _ => at,
        };
        self.shape = Some((shape, since));
        let (mut status, mut problem) = (SourceStatus::Ok, self.flaws.clone());
        if problem.is_some() {
            status = SourceStatus::Partial;
        }
        match &self.read {
            Ok(forwarding) if forwarding.read_at >= since => {
                subnet.forwarding = Some(forwarding.clone());
            }
            Ok(_) => {
                status = SourceStatus::Partial;
                problem = Some(format!(
                    "{}: older than the subnet's last change, and not used: expected a file written after the subnet's",
                    self.path.display()
                ));
            }
            Err(error) => (status, problem) = (SourceStatus::Failed, Some(error.clone())),
        }
        if problem.is_some() && problem != self.said {
            tracing::warn!(
                "forwarding tables: {}",
                problem.as_deref().unwrap_or_default()
            );
        }
        self.said.clone_from(&problem);
        let read_at = self.read.as_ref().ok().map(|forwarding| forwarding.read_at);
        state.record_source(&self.key(), status, read_at, problem);
    }

    /// Name of the source.
    pub(super) fn key(&self) -> SourceKey {
        ("forwarding", self.path.display().to_string())
    }
}

/// Sets of how many switches the own sweep has read the tables.
pub(super) fn note_swept(subnet: &Subnet, device: &str, state: &State) {
    let is_switch = |node: &&Node| node.kind == NodeKind::Switch;
    let switches = subnet.nodes.iter().filter(is_switch).count();
    let forwarding = subnet.forwarding.as_ref();
    let read = forwarding.map_or(0, |forwarding| forwarding.tables.len());
    let (status, problem) = if read >= switches {
        (SourceStatus::Ok, None)
    } else {
        let problem = format!(
            "{read} of {switches} switches have a forwarding table that was read since the subnet changed"
        );
        (SourceStatus::Partial, Some(problem))
    };
    let key = ("forwarding", device.to_owned());
    let read_at = forwarding.map(|forwarding| forwarding.read_at);
    state.record_source(&key, status, read_at, problem);
}
