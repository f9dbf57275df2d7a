//! Names of the subnet's nodes out of a file, opensm's `--node-name-map`, which is read again when it has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::fabric::plans::NodeNames;
use crate::sources::targets::stamp;

/// The file and what was read of it.
pub(super) struct NameFile {
    path: PathBuf,
    stamp: Option<(SystemTime, u64)>,
    names: Option<Arc<NodeNames>>,
}

impl NameFile {
    /// A file that has not been read.
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            stamp: None,
            names: None,
        }
    }

    /// The names as they are now, and whether they changed. A file that becomes unusable leaves the names as they were: a
    /// switch that suddenly has another name would be another switch.
    ///
    /// # Errors
    /// The file was never usable, with the reason.
    pub(super) async fn refresh(&mut self) -> Result<(Arc<NodeNames>, bool), String> {
        let path = self.path.display().to_string();
        let stamped = stamp(&self.path).map_err(|error| format!("{path}: {error}"));
        if let (Ok(stamp), Some(names)) = (&stamped, &self.names)
            && self.stamp == Some(*stamp)
        {
            return Ok((names.clone(), false));
        }
        let read = match &stamped {
            Ok(_) => tokio::fs::read_to_string(&self.path)
                .await
                .map_err(|error| format!("{path}: {error}")),
            Err(error) => Err(error.clone()),
        };
        let read = read.and_then(|text| {
            let first = |errors: Vec<_>| match errors.first() {
                Some(error) => format!("{error}"),
                None => format!("{path}: no node-name map"),
            };
            NodeNames::read(&path, &text).map_err(first)
        });
        // Not read again, nor reported again, before it changes.
        self.stamp = stamped.ok();
        match (read, &self.names) {
            (Ok(names), _) => {
                let names = Arc::new(names);
                self.names = Some(names.clone());
                Ok((names, true))
            }
            (Err(error), Some(names)) => {
                tracing::error!("node names unchanged: {error}");
                Ok((names.clone(), false))
            }
            (Err(error), None) => Err(error),
        }
    }
}
