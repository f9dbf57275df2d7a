//! `railscope topology`: shows, checks, compares and exports the topology in files or in a running collector.

mod diff;
mod json;
pub(crate) mod remote;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use railscope_collector::fabric::lint::{Finding, lint};
use railscope_collector::fabric::plans::export::{Target, missing};
use railscope_collector::fabric::plans::{
    Document, Format, NodeNames, Opened, Placement, Site, read,
};
use railscope_collector::fabric::{Kind, SubnetMerge, judge};
use railscope_model::plan::PlanError;

/// Problems of a file that are printed one by one.
const SHOWN_PROBLEMS: usize = 10;

/// Show, check, compare or export the topology of a fabric, from files or a running collector. Formats: ibnetdiscover,
/// iblinkinfo, ibdiagnet's db_csv and net_dump, saved scrape bodies of exporters (file name: the node), wiring plans, NDT, NetQ, LLDP,
/// Slurm's topology.conf, topograph models, NCCL's and hwloc's XML, nvidia-smi (complete list: docs/inputs.md). Exit status:
/// 0 no findings, 1 findings, 2 no result.
#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    #[command(subcommand)]
    command: TopologyCommand,
}

#[derive(Debug, Subcommand)]
enum TopologyCommand {
    /// Show the topology type of a fabric, its evidence, and inconsistencies.
    Show {
        #[command(flatten)]
        files: Files,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Check the wiring against its own regularity or a plan.
    Lint {
        #[command(flatten)]
        files: Files,
        /// Wiring plan to compare with; can be given several times. A collector has its own.
        #[arg(long, value_name = "FILE", conflicts_with = "collector")]
        plan: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the changes between two files, also of different formats, or between two times of a collector.
    Diff(DiffArgs),
    /// Export the topology in the format of another tool.
    Export {
        /// Output format.
        #[arg(long, value_parser = targets())]
        to: Target,
        #[command(flatten)]
        files: Files,
    },
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// Before.
    #[arg(required_unless_present = "collector", requires = "new")]
    old: Option<PathBuf>,
    /// After.
    new: Option<PathBuf>,
    /// Address of a running collector, instead of files.
    #[arg(long, value_name = "URL", conflicts_with_all = ["old", "new"], requires = "from")]
    collector: Option<String>,
    /// Before: 2026-11-22T05:00:00Z, or seconds of Unix time.
    #[arg(long, value_name = "TIME", requires = "collector")]
    from: Option<String>,
    /// After; default: now.
    #[arg(long, value_name = "TIME", requires = "collector")]
    to: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Files {
    /// Files, or directories of files; together they are one site.
    #[arg(required_unless_present = "collector")]
    paths: Vec<PathBuf>,
    /// Address of a running collector, instead of files.
    #[arg(long, value_name = "URL", conflicts_with_all = ["paths", "format"])]
    collector: Option<String>,
    /// Names of InfiniBand nodes by GUID, in the format of opensm's --node-name-map.
    #[arg(long, value_name = "FILE", conflicts_with = "collector")]
    node_name_map: Option<PathBuf>,
    /// Format of the files; default: detected from the content.
    #[arg(long, value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
}

/// Runs a subcommand; its exit status reports more than success or failure.
pub(crate) fn run(args: &TopologyArgs) -> ExitCode {
    let clean = match &args.command {
        TopologyCommand::Show { files, json } => show(files, *json),
        TopologyCommand::Lint { files, plan, json } => lint_files(files, plan, *json),
        TopologyCommand::Diff(args) => diff_sites(args),
        TopologyCommand::Export { to, files } => export_files(*to, files),
    };
    match clean {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("railscope: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The content of all files, and the unusable files.
struct Loaded {
    site: Site,
    /// Errors of the rejected files.
    refused: Vec<PlanError>,
}

impl Files {
    fn load(&self) -> anyhow::Result<Loaded> {
        let format = match &self.format {
            Some(name) => Some(
                name.parse()
                    .map_err(|expected: String| anyhow!("--format: {expected}"))?,
            ),
            None => None,
        };
        load(&self.paths, format, self.names()?.as_ref())
    }

    fn names(&self) -> anyhow::Result<Option<NodeNames>> {
        let Some(path) = &self.node_name_map else {
            return Ok(None);
        };
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
        match NodeNames::read(&file, &text) {
            Ok(names) => Ok(Some(names)),
            Err(errors) => {
                report(&errors);
                bail!("{file} is not a valid node-name map")
            }
        }
    }

    /// As [`Files::load`], for uses where an incomplete site would mislead: an unusable file is an error.
    fn whole_site(&self) -> anyhow::Result<Site> {
        whole(self.load()?)
    }
}

fn whole(loaded: Loaded) -> anyhow::Result<Site> {
    match loaded.refused.first() {
        Some(error) => bail!("{} is unusable", error.file),
        None => Ok(loaded.site),
    }
}

/// Reads files and directories into one site, and prints errors to standard error. An unusable file in a directory is
/// reported and the others are read.
fn load(
    paths: &[PathBuf],
    format: Option<Format>,
    names: Option<&NodeNames>,
) -> anyhow::Result<Loaded> {
    let mut opened: Vec<Opened> = Vec::new();
    let mut refused = Vec::new();
    let files = files_of(paths)?;
    for path in &files {
        let file = path.to_string_lossy();
        let text = std::fs::read(path)
            .map_err(|error| unusable(&file, &error.to_string(), "a readable file"));
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match text.and_then(|text| read(&file, &text, format)) {
            Ok(mut file) => {
                report(&file.problems);
                if let Document::Switch(_) = file.document {
                    let found = "the state of a switch's ports, without cables";
                    let error = unusable(
                        &file.file,
                        found,
                        "a fabric; use \"railscope check --file\"",
                    );
                    report(&error);
                    refused.extend(error);
                    continue;
                }
                if let (Some(names), Document::Subnet(subnet)) = (names, &mut file.document) {
                    names.apply(subnet);
                }
                opened.push(file);
            }
            Err(errors) => {
                report(&errors);
                refused.extend(errors);
            }
        }
    }
    if opened.is_empty() {
        match files.as_slice() {
            [one] => bail!("{} is unusable", one.display()),
            many => bail!("none of {} files is usable", many.len()),
        }
    }
    Ok(Loaded {
        site: Site::of(opened),
        refused,
    })
}

/// An error of the entire file.
fn unusable(file: &str, found: &str, expected: &str) -> Vec<PlanError> {
    vec![PlanError {
        file: file.to_owned(),
        line: 0,
        field: "file".to_owned(),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }]
}

/// All files, those of directories sorted by name.
pub(crate) fn files_of(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut own = Vec::new();
        for entry in entries {
            let entry = entry
                .with_context(|| format!("cannot read {}", path.display()))?
                .path();
            if entry.is_file() {
                own.push(entry);
            }
        }
        if own.is_empty() {
            bail!("{}: no files in the directory", path.display());
        }
        own.sort();
        files.extend(own);
    }
    Ok(files)
}

fn report(problems: &[PlanError]) {
    for problem in problems.iter().take(SHOWN_PROBLEMS) {
        eprintln!("{problem}");
    }
    if let Some(first) = problems.get(SHOWN_PROBLEMS) {
        eprintln!(
            "{}: and {} more problems",
            first.file,
            problems.len() - SHOWN_PROBLEMS
        );
    }
}

fn print(text: &str) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")?;
    Ok(true)
}

fn pretty(value: &serde_json::Value) -> anyhow::Result<bool> {
    print(&(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n"))
}

/// Prints what a collector reported.
fn told((text, nothing): remote::Said) -> anyhow::Result<bool> {
    print(&text)?;
    Ok(nothing)
}

fn show(files: &Files, as_json: bool) -> anyhow::Result<bool> {
    if let Some(collector) = &files.collector {
        return told(remote::show(collector, as_json)?);
    }
    let loaded = files.load()?;
    if as_json {
        pretty(&json::site(&loaded.site, &loaded.refused))?;
    } else {
        print(&site_text(&loaded.site))?;
    }
    Ok(loaded.refused.is_empty() && is_clean(&loaded.site))
}

/// Whether a site has no findings.
fn is_clean(site: &Site) -> bool {
    let fabric = site.verdict.as_ref().is_none_or(|verdict| {
        let wiring = &verdict.wiring;
        !matches!(verdict.kind, Kind::Unknown { .. })
            && verdict.doubts.is_empty()
            && wiring.missing.is_empty()
            && wiring.misplaced.is_empty()
            && wiring.absent_leaves.is_empty()
            && verdict.self_loops.is_empty()
    });
    let placements = site.placements.iter();
    fabric
        && site.gpus.iter().all(|(_, gpus)| gpus.findings().is_empty())
        && site.contested.is_empty()
        && site.problems.is_empty()
        && site
            .nodes
            .iter()
            .all(|(_, node)| node.findings().is_empty())
        && placements
            .into_iter()
            .all(|(_, placement)| placement.defects().is_empty())
}

/// The complete text report of a site.
fn site_text(site: &Site) -> String {
    let mut text = String::new();
    if let Some(verdict) = &site.verdict {
        if !site.seen {
            text += "PLANNED, not seen: ";
        }
        text += &verdict.to_string();
    } else if site.neighbors {
        text += &diff::neighbors(site);
    }
    for contested in &site.contested {
        text += &format!("  WRONG      {contested}\n");
    }
    for note in &site.notes {
        text += &format!("  note       {note}\n");
    }
    for (file, placement) in &site.placements {
        text += &format!("{file}: {placement}");
    }
    for (file, node) in &site.nodes {
        text += &format!("{file}: {node}");
    }
    for (file, gpus) in &site.gpus {
        text += &format!("{file}: {gpus}");
    }
    text
}

fn lint_files(files: &Files, plans: &[PathBuf], as_json: bool) -> anyhow::Result<bool> {
    if let Some(collector) = &files.collector {
        return told(remote::lint(collector, as_json)?);
    }
    let Loaded { site, refused } = files.load()?;
    let plan = if plans.is_empty() {
        site.plan.clone().filter(|_| site.seen)
    } else {
        let loaded = whole(load(plans, None, None)?)?;
        Some(
            loaded
                .plan
                .context("--plan: no wiring plan among the files")?,
        )
    };
    let defects = defects(&site);
    // The view of one device has no topology type, but cables to check.
    let one_device = || {
        site.neighbors
            .then(|| judge(&site.fabric, &SubnetMerge::default()))
    };
    let findings: Vec<Finding> = match site.verdict.clone().or_else(one_device) {
        Some(verdict) => lint(&site.fabric, &verdict, plan.as_ref()),
        None if site.placements.is_empty() && site.nodes.is_empty() && site.gpus.is_empty() => {
            bail!("no fabric in the files: cables are needed for this")
        }
        None => Vec::new(),
    };
    let all = findings.len() + defects.len();
    if as_json {
        pretty(&json::findings(&findings, &defects, &site, &refused))?;
    } else {
        let mut text: String = findings.iter().map(ToString::to_string).collect();
        for (rule, defect) in &defects {
            text += &format!("warning {rule}: {defect}\n");
        }
        text += &match all {
            0 if site.problems.is_empty() => "nothing found\n".to_owned(),
            0 => "nothing found in the readable parts\n".to_owned(),
            1 => "1 finding\n".to_owned(),
            all => format!("{all} findings\n"),
        };
        print(&text)?;
    }
    Ok(all == 0 && refused.is_empty() && site.problems.is_empty())
}

/// Findings other than cables, each with its rule.
fn defects(site: &Site) -> Vec<(&'static str, String)> {
    let placements = site.placements.iter().flat_map(|(file, placement)| {
        let defects = placement.defects().into_iter();
        defects.map(move |defect| ("placement", format!("{file}: {defect}.")))
    });
    let nodes = site.nodes.iter().flat_map(|(file, node)| {
        let findings = node.findings().into_iter();
        findings.map(move |finding| ("inside-node", format!("{file}: {finding}.")))
    });
    let gpus = site.gpus.iter().flat_map(|(file, gpus)| {
        let findings = gpus.findings().into_iter();
        findings.map(move |finding| ("inside-node", format!("{file}: {finding}.")))
    });
    let contested = site
        .contested
        .iter()
        .map(|one| ("contradiction", format!("{one}.")));
    contested
        .chain(placements)
        .chain(nodes)
        .chain(gpus)
        .collect()
}

fn diff_sites(args: &DiffArgs) -> anyhow::Result<bool> {
    match (&args.collector, &args.from, &args.old, &args.new) {
        (Some(collector), Some(from), ..) => told(remote::diff(
            collector,
            from,
            args.to.as_deref(),
            args.json,
        )?),
        (.., Some(old), Some(new)) => diff_files(old, new, args.json),
        _ => bail!("expected two files, or --collector with --from"),
    }
}

fn diff_files(old: &Path, new: &Path, as_json: bool) -> anyhow::Result<bool> {
    let [old, new] = [old, new].map(|path| whole(load(&[path.to_owned()], None, None)?));
    let changes = diff::changes(&old?, &new?)?;
    if as_json {
        pretty(&json::changes(&changes))?;
    } else {
        let mut text: String = changes.iter().map(|change| format!("{change}\n")).collect();
        if changes.is_empty() {
            text += "no difference\n";
        }
        print(&text)?;
    }
    Ok(changes.is_empty())
}

fn export_files(to: Target, files: &Files) -> anyhow::Result<bool> {
    if let Some(collector) = &files.collector {
        return exported(&remote::export(collector, to.name())?);
    }
    let site = files.whole_site()?;
    let fabric = || match &site.verdict {
        Some(verdict) => Ok((&site.fabric, verdict)),
        None => Err(anyhow!(
            "no fabric in the files: cables are needed for this"
        )),
    };
    // A placement from a file takes precedence over a computed one.
    let placement = || match site.placements.as_slice() {
        [] => Ok(Placement::of(fabric()?.0)),
        [(_, own)] => Ok(own.clone()),
        [(one, _), (other, _), ..] => Err(anyhow!(
            "two placements, {one} and {other}: name one of them"
        )),
    };
    exported(&to.write(fabric, placement)?)
}

/// Prints an export. Missing data is also printed to standard error, because the text is usually redirected to a file.
fn exported(text: &str) -> anyhow::Result<bool> {
    print(text)?;
    for what in missing(text) {
        eprintln!("railscope: missing {what}");
    }
    Ok(missing(text).next().is_none())
}

fn targets() -> impl TypedValueParser<Value = Target> {
    let values = Target::ALL.map(|(_, name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Target>())
}
