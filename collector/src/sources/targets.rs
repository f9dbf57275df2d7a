//! Which exporters there are: those of the configuration and those of file_sd files, read again when they change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, SwitchName};

use crate::config::Target;
use crate::config::file_sd::parse_file_sd;
use crate::health::SourceStatus;
use crate::mapping::Mappings;
use crate::sources::node_names::unite;
use crate::status::State;
use crate::store::STALE_AFTER_SECONDS;

/// Interval at which file_sd files are checked.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// One file with what was last read from it.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    /// Time and size of what was last read, be it right or wrong.
    stamp: Option<(SystemTime, u64)>,
    targets: Option<Vec<Target>>,
    /// Its ignored entries.
    left_out: Vec<String>,
    problem: Option<String>,
}

/// The list of targets read so far.
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
            left_out: Vec::new(),
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

    /// Checks the files. Returns whether the list may have changed; an error is logged when it
    /// first occurs, and the previous content then stays, as in Prometheus.
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
                        tracing::error!(file = %source.path.display(), "cannot read targets; keeping the previous ones: {problem}");
                    }
                    source.problem = Some(problem);
                }
            }
        }
        changed
    }

    /// Problems of the files: ignored entries, or the reason why a file is unreadable.
    pub fn problems(&self) -> Vec<FileProblem> {
        let of = |source: &Source| {
            let problem = |left_out| {
                let file = source.path.display().to_string();
                move |why: &String| FileProblem {
                    file: file.clone(),
                    left_out,
                    why: why.clone(),
                }
            };
            let whole = source.problem.iter().map(problem(false));
            let entries = source.left_out.iter().map(problem(true));
            whole.chain(entries).collect::<Vec<_>>()
        };
        self.sources.iter().flat_map(of).collect()
    }

    /// Records the result of reading each file.
    pub(crate) fn record(&self, state: &State) {
        for source in &self.sources {
            let (status, at) = match source.problem {
                None => (SourceStatus::Ok, Some(state.now())),
                Some(_) => (SourceStatus::Failed, None),
            };
            let key = ("file_sd", source.path.display().to_string());
            state.record_source(&key, status, at, source.problem.clone());
        }
    }

    /// Registers the files as sources.
    pub(crate) fn expect(&self, state: &State) {
        for source in &self.sources {
            let key = ("file_sd", source.path.display().to_string());
            state.expect_source(&key, Some(LOOK_INTERVAL));
        }
    }

    /// All targets in order. A node that is listed with and without a domain has the name without it. Of targets with the same node or switch and the same configured kind the first one is kept, and the
    /// others are logged. Targets whose kind is detected differ by their URL.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = BTreeMap::new();
        let read = self
            .sources
            .iter()
            .filter_map(|source| source.targets.as_ref())
            .flatten();
        let mut all: Vec<Target> = self.fixed.iter().chain(read).cloned().collect();
        unite(all.iter_mut());
        for target in &all {
            let is_told = target.about.is_some() && target.kind.is_some();
            let url = (!is_told).then_some(&target.url);
            let key = (&target.about, &target.kind, url);
            let first = targets.entry(key).or_insert(target);
            if first.url != target.url {
                tracing::warn!(
                    target = target.name(),
                    url = target.url,
                    "omitted: an exporter of this kind is already scraped at {}",
                    first.url
                );
            }
        }
        let mut targets: Vec<_> = targets.into_values().cloned().collect();
        targets.sort();
        targets
    }
}

/// A problem of a target file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// The file.
    pub file: String,
    /// Whether one entry is ignored; otherwise the file is unreadable, and its previous targets remain.
    pub left_out: bool,
    /// Description of the problem.
    pub why: String,
}

/// What a new list of targets changes.
#[derive(Debug)]
pub(crate) struct Replaced {
    /// The nodes of all targets.
    pub(crate) nodes: Vec<NodeName>,
    /// Addresses that are no longer listed.
    pub(crate) gone: HashSet<String>,
    /// Nodes whose Railscope exporter is no longer listed.
    pub(crate) own_gone: HashSet<NodeName>,
}

/// All targets, and which one is the Railscope exporter of each node: one at a time.
#[derive(Debug, Default)]
pub(crate) struct KnownTargets {
    all: Vec<Target>,
    own_exporters: HashMap<NodeName, (Arc<Target>, Timestamp)>,
}

impl KnownTargets {
    /// Replaces those that are scraped, or those that are pushed.
    pub(crate) fn replace(&mut self, new: Vec<Target>, are_pushed: bool) -> Replaced {
        let is_replaced = |target: &Target| target.is_pushed() == are_pushed;
        let (old, mut all): (Vec<_>, Vec<_>) = std::mem::take(&mut self.all)
            .into_iter()
            .partition(is_replaced);
        all.extend(new);
        all.sort();
        let is_gone = |target: &Target| all.binary_search(target).is_err();
        let gone = old.into_iter().filter(is_gone);
        let gone = gone.map(|target| target.url).collect();
        let own_gone = self
            .own_exporters
            .extract_if(|_, (target, _)| is_gone(target));
        let own_gone = own_gone.map(|(node, _)| node).collect();
        let nodes = all.iter().filter_map(Target::node).cloned().collect();
        self.all = all;
        Replaced {
            nodes,
            gone,
            own_gone,
        }
    }

    /// Whether it is in the list.
    pub(crate) fn holds(&self, target: &Target) -> bool {
        self.all.binary_search(target).is_ok()
    }

    /// Why a scrape of this target is refused: another one is the Railscope exporter of the node, and was scraped within 60 s.
    pub(crate) fn refusal(
        &self,
        node: &NodeName,
        target: &Target,
        at: Timestamp,
    ) -> Option<String> {
        let (first, last_seen) = self.own_exporters.get(node)?;
        (**first != *target && at.seconds_since(*last_seen) <= STALE_AFTER_SECONDS).then(|| {
            format!(
                "the Railscope exporter of {node} is already scraped at {}: expected one target per exporter",
                first.url
            )
        })
    }

    /// Records a scrape of this target as the Railscope exporter of the node.
    pub(crate) fn taken(&mut self, node: &NodeName, target: &Arc<Target>, at: Timestamp) {
        let exporter = (Arc::clone(target), at);
        self.own_exporters.insert(node.clone(), exporter);
    }
}

impl Source {
    /// Reads the file if it changed; reports whether it did.
    fn look(&mut self, mappings: &Mappings) -> Result<bool, String> {
        let stamp = stamp(&self.path).map_err(|error| error.to_string())?;
        if self.stamp == Some(stamp) {
            return Ok(false);
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        self.stamp = Some(stamp);
        let read = parse_file_sd(&text, mappings)?;
        for left_out in read
            .left_out
            .iter()
            .filter(|one| !self.left_out.contains(one))
        {
            tracing::error!(file = %self.path.display(), "invalid target ignored: {left_out}");
        }
        (self.targets, self.left_out) = (Some(read.targets), read.left_out);
        Ok(true)
    }
}

/// Why Railscope's own exporter, or an unknown scrape, is invalid for a target `switch = …`: it is about the
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
/// The file is inaccessible, or not a regular file: reading a pipe without a writer would block forever.
pub(crate) fn stamp(path: &Path) -> std::io::Result<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        let said = "expected a regular file";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, said));
    }
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
        assert_eq!(list.problems(), []);
        std::fs::write(&path, "[{\"targets\": [\"n1:1\"").expect("write");
        assert!(!list.look() && list.is_known());
        assert_eq!(list.targets().len(), 1);
        assert!(!list.problems()[0].left_out, "{:?}", list.problems());
        let text = "[{\"targets\": [\"n1:1\", \"n 2:1\"]}]";
        std::fs::write(&path, text).expect("write");
        assert!(list.look() && list.targets().len() == 1);
        assert!(list.problems()[0].left_out, "{:?}", list.problems());
        std::fs::write(&path, "[]").expect("write");
        assert!(
            list.look() && list.targets().is_empty(),
            "an empty list is a list"
        );
    }

    #[test]
    fn what_is_no_file_is_never_opened() {
        for path in ["/dev/null", "/"] {
            assert!(stamp(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_node_may_have_many_targets_but_one_of_each_configured_kind() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("targets.json");
        let text = r#"[
            {"targets": ["n1:10660"]}, {"targets": ["n1:9100"]}, {"targets": ["n1:9400"]}, {"targets": ["n1:9100"]},
            {"targets": ["n1:1"], "labels": {"__railscope_kind": "node_exporter"}},
            {"targets": ["n1:2"], "labels": {"__railscope_kind": "node_exporter"}}
        ]"#;
        std::fs::write(&path, text).expect("write");
        let mut list = TargetList::new(Vec::new(), vec![path], Mappings::default());
        list.look();
        let targets = list.targets();
        let urls: Vec<_> = targets.iter().map(|target| &*target.url).collect();
        let expected = [10_660, 9_100, 9_400, 1].map(|port| format!("http://n1:{port}/metrics"));
        assert_eq!(urls, expected);
    }

    #[test]
    fn a_node_that_is_listed_with_and_without_a_domain_is_one() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("targets.json");
        let text = r#"[{"targets": ["n1:9100"]}, {"targets": ["n1.a.net:9400"]}, {"targets": ["n2.a.net:9400"]}]"#;
        std::fs::write(&path, text).expect("write");
        let mut list = TargetList::new(Vec::new(), vec![path], Mappings::default());
        list.look();
        let targets = list.targets();
        let nodes: Vec<_> = targets
            .iter()
            .filter_map(Target::node)
            .map(NodeName::as_str)
            .collect();
        assert_eq!(nodes, ["n1", "n1", "n2.a.net"]);
    }

    #[test]
    fn a_node_has_one_railscope_exporter_at_a_time() {
        let node: NodeName = "n1".parse().expect("a name");
        let [first, second] =
            ["http://a", "http://b"].map(|url| Target::of_node(node.clone(), url.to_owned()));
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        let mut own = KnownTargets::default();
        own.replace(vec![first.clone(), second.clone()], false);
        assert_eq!(own.refusal(&node, &second, at(0)), None, "the first one");
        own.taken(&node, &Arc::new(first.clone()), at(1));
        assert_eq!(own.refusal(&node, &first, at(2)), None);
        let refused = own.refusal(&node, &second, at(61)).expect("refused");
        assert!(refused.contains("already scraped at http://a"), "{refused}");
        assert_eq!(
            own.refusal(&node, &second, at(62)),
            None,
            "a minute without scrapes"
        );
        let replaced = own.replace(vec![second.clone()], false);
        assert_eq!(replaced.gone, HashSet::from([first.url.clone()]));
        assert_eq!(replaced.own_gone, HashSet::from([node.clone()]));
        assert!(own.holds(&second) && !own.holds(&first));
        assert_eq!(
            own.refusal(&node, &second, at(2)),
            None,
            "removed from the list"
        );
    }
}
