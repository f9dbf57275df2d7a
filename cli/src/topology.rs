//! `railscope topology`: what files say of a fabric, what is wrong with it, what changed, and the same for other tools.

mod diff;
mod json;
mod remote;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use railscope_collector::fabric::Kind;
use railscope_collector::fabric::lint::{Finding, lint};
use railscope_collector::fabric::plans::export::Target;
use railscope_collector::fabric::plans::{Format, Opened, Placement, Site, read};

/// Problems of a file that are printed one by one.
const SHOWN_PROBLEMS: usize = 10;

/// Looks at the shape of a fabric, in files of many kinds: ibnetdiscover, saved pages of exporters (named by their
/// node), wiring plans, NDT, NetQ, LLDP, Slurm's topology.conf, topograph models, NCCL's and hwloc's XML, nvidia-smi
/// topo -m; or in a running collector. Exit status: 0 nothing found, 1 findings, 2 unreadable.
#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    #[command(subcommand)]
    command: TopologyCommand,
}

#[derive(Debug, Subcommand)]
enum TopologyCommand {
    /// Says what a fabric is, what that rests on, and what does not fit.
    Show {
        #[command(flatten)]
        files: Files,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Says what is wrong with the wiring, by its own regularity or by a plan.
    Lint {
        #[command(flatten)]
        files: Files,
        /// Wiring plan to hold it against; may be given several times. A collector has its own.
        #[arg(long, value_name = "FILE", conflicts_with = "collector")]
        plan: Vec<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Says what changed between two files, which may be of different kinds, or between two times of a collector.
    Diff(DiffArgs),
    /// Writes it as another tool reads it.
    Export {
        /// What to write.
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
    /// Address of a running collector, in place of files.
    #[arg(long, value_name = "URL", conflicts_with_all = ["old", "new"], requires = "from")]
    collector: Option<String>,
    /// Before: 2026-11-22T05:00:00Z, or seconds of Unix time.
    #[arg(long, value_name = "TIME", requires = "collector")]
    from: Option<String>,
    /// After; now if left out.
    #[arg(long, value_name = "TIME", requires = "collector")]
    to: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Files {
    /// Files, or folders of files; together they are one site.
    #[arg(required_unless_present = "collector")]
    paths: Vec<PathBuf>,
    /// Address of a running collector, in place of files.
    #[arg(long, value_name = "URL", conflicts_with_all = ["paths", "format"])]
    collector: Option<String>,
    /// What the files are, where their content does not say it.
    #[arg(long, value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
}

/// Runs a subcommand; its exit status says more than success or failure.
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

impl Files {
    fn site(&self) -> anyhow::Result<Site> {
        let format = match &self.format {
            Some(name) => Some(
                name.parse()
                    .map_err(|expected: String| anyhow!("--format: {expected}"))?,
            ),
            None => None,
        };
        load(&self.paths, format)
    }
}

/// Reads files and folders into one site, and says on standard error what could not be read.
fn load(paths: &[PathBuf], format: Option<Format>) -> anyhow::Result<Site> {
    let mut opened: Vec<Opened> = Vec::new();
    let mut refused = 0;
    for path in files_of(paths)? {
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match read(
            &path.to_string_lossy(),
            &String::from_utf8_lossy(&bytes),
            format,
        ) {
            Ok(file) => {
                report(&file.problems);
                opened.push(file);
            }
            Err(errors) => {
                report(&errors);
                refused += 1;
            }
        }
    }
    if refused > 0 {
        bail!(
            "{refused} of {} files are of no use",
            refused + opened.len()
        );
    }
    Ok(Site::of(opened))
}

/// Files by name, those of folders in order.
fn files_of(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
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
            bail!("{}: no file in it", path.display());
        }
        own.sort();
        files.extend(own);
    }
    Ok(files)
}

fn report(problems: &[railscope_model::plan::PlanError]) {
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

/// Prints what a collector said.
fn told((text, nothing): remote::Said) -> anyhow::Result<bool> {
    print(&text)?;
    Ok(nothing)
}

fn show(files: &Files, as_json: bool) -> anyhow::Result<bool> {
    if let Some(collector) = &files.collector {
        return told(remote::show(collector, as_json)?);
    }
    let site = files.site()?;
    if as_json {
        pretty(&json::site(&site))?;
    } else {
        print(&said(&site))?;
    }
    Ok(site
        .verdict
        .as_ref()
        .is_none_or(|verdict| !matches!(verdict.kind, Kind::Unknown { .. })))
}

/// Everything that a site says, in text.
fn said(site: &Site) -> String {
    let mut text = String::new();
    if let Some(verdict) = &site.verdict {
        if !site.seen {
            text += "PLANNED, not seen: ";
        }
        text += &verdict.to_string();
    } else if site.neighbours {
        text += &diff::neighbours(site);
    }
    for (file, placement) in &site.placements {
        text += &format!("{file}: {placement}");
    }
    for (file, node) in &site.nodes {
        text += &format!("{file}: {node}");
    }
    text
}

fn lint_files(files: &Files, plans: &[PathBuf], as_json: bool) -> anyhow::Result<bool> {
    if let Some(collector) = &files.collector {
        return told(remote::lint(collector, as_json)?);
    }
    let site = files.site()?;
    let plan = if plans.is_empty() {
        site.plan.clone().filter(|_| site.seen)
    } else {
        let loaded = load(plans, None)?;
        Some(
            loaded
                .plan
                .context("--plan: no wiring plan among the files")?,
        )
    };
    let defects: Vec<String> = site
        .placements
        .iter()
        .flat_map(|(file, placement)| {
            placement
                .defects()
                .into_iter()
                .map(move |defect| format!("{file}: {defect}."))
        })
        .collect();
    let findings: Vec<Finding> = match &site.verdict {
        Some(verdict) => lint(&site.fabric, verdict, plan.as_ref()),
        None if defects.is_empty() && site.placements.is_empty() => {
            bail!("no fabric in the files: cables are needed for this")
        }
        None => Vec::new(),
    };
    if as_json {
        pretty(&json::findings(&findings, &defects))?;
    } else {
        let mut text: String = findings.iter().map(ToString::to_string).collect();
        for defect in &defects {
            text += &format!("warning placement: {defect}\n");
        }
        let all = findings.len() + defects.len();
        text += &match all {
            0 => "nothing found\n".to_owned(),
            1 => "1 finding\n".to_owned(),
            all => format!("{all} findings\n"),
        };
        print(&text)?;
    }
    Ok(findings.is_empty() && defects.is_empty())
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
    let [old, new] = [old, new].map(|path| load(&[path.to_owned()], None));
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
        return told(remote::export(collector, to.name())?);
    }
    let site = files.site()?;
    let fabric = || match site.verdict {
        Some(_) => Ok(&site.fabric),
        None => Err(anyhow!(
            "no fabric in the files: cables are needed for this"
        )),
    };
    // A placement that a file gives is better than one that is computed.
    let placement = || match site.placements.as_slice() {
        [] => Ok(Placement::of(fabric()?)),
        [(_, own)] => Ok(own.clone()),
        [(one, _), (other, _), ..] => Err(anyhow!(
            "two placements, {one} and {other}: name one of them"
        )),
    };
    print(&to.write(fabric, placement)?)
}

fn targets() -> impl TypedValueParser<Value = Target> {
    let values = Target::ALL.map(|(_, name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Target>())
}
