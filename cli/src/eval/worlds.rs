//! `railscope eval --worlds`: replays recorded clusters with ground truth and compares the incidents with it.
//!
//! ```text
//! pack -> replay -> incidents -+
//!   |                          +-> judge -> World -> Report -> tables
//!   +---- truth.json ----------+
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use railscope_collector::config::Target;
use railscope_collector::mapping::OWN_KIND;
use railscope_collector::replay::pack::Pack;
use railscope_collector::replay::{Replay, Window};

mod classes;
mod component;
mod incidents;
mod judge;
mod matching;
mod table;
mod text;
mod truth;

use super::ReportFormat;
use incidents::Incidents;
use table::{Report, World};
use truth::Truth;

/// What each reader of the figures must know.
const NOTE: &str = "A figure holds for these recordings; those of simulated clusters do not describe real hardware.";

/// How to replay and print.
#[derive(Debug)]
pub(super) struct Options {
    /// Threads. Results do not depend on it.
    pub(super) threads: usize,
    /// How to print the scores.
    pub(super) format: ReportFormat,
    /// Whether to print missed faults and wrong incidents, line by line.
    pub(super) lists_wrong: bool,
}

/// Replays packs and prints the scores.
///
/// # Errors
/// A pack or its truth is missing or invalid, or a pack is given twice.
pub(super) fn run(packs: &[PathBuf], options: &Options) -> anyhow::Result<()> {
    // All truth files first: a replay takes long, and errors should come before it.
    let truths = read_truths(packs)?;
    let worlds = super::in_parallel(packs.len(), options.threads, |index| {
        let (folder, truth) = (&packs[index], &truths[index]);
        replay(folder, truth).with_context(|| format!("cannot replay {}", folder.display()))
    })?;
    let report = Report::new(NOTE, &worlds);
    match options.format {
        ReportFormat::Table => {
            print!("{}", text::tables(&report));
            if options.lists_wrong {
                print!("\n{}", text::details(&report));
            }
        }
        ReportFormat::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(())
}

fn read_truths(packs: &[PathBuf]) -> anyhow::Result<Vec<Truth>> {
    let mut known = BTreeSet::new();
    for folder in packs {
        let path = folder.canonicalize();
        let path = path.with_context(|| format!("{}: expected a pack", folder.display()))?;
        if !known.insert(path) {
            bail!("{}: expected each pack once", folder.display());
        }
    }
    packs.iter().map(|folder| Truth::read(folder)).collect()
}

fn replay(folder: &Path, truth: &Truth) -> anyhow::Result<World> {
    let mut pack = Pack::open(folder)?;
    let dialect = dialect(&pack.targets);
    let mut replay = Replay::open(&mut pack)?;
    let mut incidents = Incidents::default();
    replay.run(&pack, Window::default(), |event| incidents.record(event))?;
    let incidents = incidents.finish(truth.end);
    Ok(World::new(name(folder, truth), dialect, truth, &incidents))
}

/// The folder's name, and that of the world if it is another one.
fn name(folder: &Path, truth: &Truth) -> String {
    let folder = folder.file_name().map(|name| name.to_string_lossy());
    match folder {
        Some(folder) if folder != truth.world => format!("{folder} ({})", truth.world),
        _ => truth.world.clone(),
    }
}

/// The kinds of all targets, such as `dcgm-exporter + node_exporter`.
fn dialect(targets: &[Target]) -> String {
    let kinds = targets.iter().map(|target| target.kind.as_deref());
    let kinds: BTreeSet<_> = kinds.map(|kind| kind.unwrap_or(OWN_KIND)).collect();
    let kinds: Vec<_> = kinds.into_iter().collect();
    kinds.join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Option<&str>) -> Target {
        Target {
            about: None,
            kind: kind.map(Into::into),
            url: String::new(),
        }
    }

    #[test]
    fn the_dialect_has_each_kind_once_in_order() {
        let targets = [
            target(Some("node_exporter")),
            target(None),
            target(Some("gnmic")),
            target(Some("node_exporter")),
            target(Some(OWN_KIND)),
        ];
        assert_eq!(dialect(&targets), "gnmic + node_exporter + railscope");
    }

    #[test]
    fn a_world_has_the_name_of_its_pack() {
        let truth = r#"{"world": "w", "start": 0, "end": 9, "faults": [], "benign": []}"#;
        let truth = Truth::parse(truth).expect("valid");
        assert_eq!(name(Path::new("packs/w"), &truth), "w");
        assert_eq!(name(Path::new("packs/x"), &truth), "x (w)");
        assert_eq!(name(Path::new(".."), &truth), "w");
    }

    #[test]
    fn a_pack_that_is_missing_or_given_twice_is_an_error() {
        let folder = tempfile::tempdir().expect("folder");
        let error = |packs: &[PathBuf]| format!("{:#}", read_truths(packs).expect_err("wrong"));
        let pack = folder.path().to_owned();
        assert!(error(&[pack.join("none")]).contains("none: expected a pack"));
        let once = error(std::slice::from_ref(&pack));
        assert!(
            once.contains("truth.json: expected the ground truth"),
            "{once}"
        );
        let twice = error(&[pack.clone(), pack.join(".")]);
        assert!(twice.contains("expected each pack once"), "{twice}");
    }
}
