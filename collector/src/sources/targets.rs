//! Which exporters there are: those of the configuration and those of file_sd files, read again when they change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use railscope_model::identity::SwitchName;

use crate::config::Target;
use crate::config::file_sd::parse_file_sd;
use crate::mapping::Mappings;

/// How often file_sd files are looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// One file with what was last read from it.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// Time and size of what was last read, be it right or wrong.
    stamp: Option<(SystemTime, u64)>,
    targets: Option<Vec<Target>>,
    problem: Option<String>,
}

/// The list of targets, as far as it is known.
#[derive(Debug)]
pub struct TargetList {
    fixed: Vec<Target>,
    sources: Vec<Source>,
    mappings: Mappings,
}

impl TargetList {
    /// Targets of the configuration, and files that name more.
    pub fn new(fixed: Vec<Target>, files: Vec<PathBuf>, mappings: Mappings) -> Self {
        let source = |path| Source {
            path,
            stamp: None,
            targets: None,
            problem: None,
        };
        Self {
            fixed,
            sources: files.into_iter().map(source).collect(),
            mappings,
        }
    }

    /// Whether every file has been read once.
    pub fn is_known(&self) -> bool {
        self.sources.iter().all(|source| source.targets.is_some())
    }

    /// Looks at the files. Returns whether the list may have changed; what is wrong is logged when it
    /// begins, and what was read before then stays, as in Prometheus.
    pub fn look(&mut self) -> bool {
        let mut changed = false;
        for source in &mut self.sources {
            match source.look(&self.mappings) {
                Ok(read) => {
                    changed |= read;
                    source.problem = source.problem.take().filter(|_| !read);
                }
                Err(problem) => {
                    if source.problem.as_ref() != Some(&problem) {
                        tracing::error!(file = %source.path.display(), "targets not read, older ones stay: {problem}");
                    }
                    source.problem = Some(problem);
                }
            }
        }
        changed
    }

    /// All targets in order, one of each kind for each part: the first one named wins, and the others are
    /// logged.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = BTreeMap::new();
        let read = self
            .sources
            .iter()
            .filter_map(|source| source.targets.as_ref())
            .flatten();
        for target in self.fixed.iter().chain(read) {
            // Without a part to speak for, only the address tells targets apart.
            let url = target.about.is_none().then_some(&target.url);
            let key = (&target.about, &target.kind, url);
            let first = targets.entry(key).or_insert(target);
            if first.url != target.url {
                tracing::warn!(
                    target = target.name(),
                    url = target.url,
                    "left out: it is scraped at {} already; the kind of each tells several exporters apart",
                    first.url
                );
            }
        }
        let mut targets: Vec<_> = targets.into_values().cloned().collect();
        targets.sort();
        targets
    }
}

impl Source {
    /// Reads the file if it changed; says whether it did.
    fn look(&mut self, mappings: &Mappings) -> Result<bool, String> {
        let stamp = stamp(&self.path).map_err(|error| error.to_string())?;
        if self.stamp == Some(stamp) {
            return Ok(false);
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        self.stamp = Some(stamp);
        self.targets = Some(parse_file_sd(&text, mappings)?);
        Ok(true)
    }
}

/// Why Railscope's own exporter, or a page that nobody knows, is none for a target `switch = …`: it speaks of the
/// node that it runs on.
pub(crate) fn own_on_switch(switch: &SwitchName) -> String {
    format!(
        "of a switch another exporter's page is expected; where Railscope's own runs on {switch}, expected \
         node = \"{switch}\" here and name = \"{switch}\" under [[switches]]"
    )
}

/// What changes when a file is written.
///
/// # Errors
/// The file cannot be looked at.
pub(crate) fn stamp(path: &Path) -> std::io::Result<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.modified()?, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_breaks_keeps_its_targets_and_one_that_never_was_there_leaves_the_list_unknown() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("targets.json");
        let mut list = TargetList::new(Vec::new(), vec![path.clone()], Mappings::default());
        assert!(!list.look() && !list.is_known());
        std::fs::write(&path, "[{\"targets\": [\"n1:1\"]}]").expect("write");
        assert!(list.look() && list.is_known());
        assert!(!list.look(), "unchanged");
        std::fs::write(&path, "[{\"targets\": [\"n1:1\"").expect("write");
        assert!(!list.look() && list.is_known());
        assert_eq!(list.targets().len(), 1);
        std::fs::write(&path, "[]").expect("write");
        assert!(
            list.look() && list.targets().is_empty(),
            "an empty list is a list"
        );
    }
}
