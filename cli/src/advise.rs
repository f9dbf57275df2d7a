//! `railscope advise`: words to the scheduler, never deeds. Open incidents as proposals that somebody else may follow.

mod kubernetes;
mod memory;
mod plan;
mod slurm;
mod time;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;

use crate::topology::remote::ask;
use plan::{Detail, Fabric, Incidents, Plan};

/// Older than this, an analysis is none.
const STALE_SECONDS: f64 = 120.0;

/// Prints what a scheduler should know of open incidents: drain proposals for Slurm, node conditions and events for
/// Kubernetes, or both as JSON. It changes nothing anywhere: it reads a collector's API and prints.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Whose words.
    #[arg(long, value_enum)]
    format: Format,
    /// Address of the collector.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:10661")]
    collector: String,
    /// Only about this node.
    #[arg(long)]
    node: Option<String>,
    /// File that keeps what was said last time, so that what is over is withdrawn.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// From more nodes to drain than this on, their lines are comments: that many at once are rarely the nodes' fault.
    #[arg(long, value_name = "NODES", default_value_t = 10)]
    most: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// `scontrol` lines: drain, and resume when it is over.
    Slurm,
    /// A list of nodes with conditions, and events, as node-problem-detector writes them.
    Kubernetes,
    /// All that is known.
    Json,
}

/// Asks the collector and prints.
pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<()> {
    let fabric: Fabric = get(args, &["fabric"])?;
    if fabric.tick_age_seconds > STALE_SECONDS {
        bail!(
            "the collector's last analysis is {:.0} s old: expected at most {STALE_SECONDS:.0} s",
            fabric.tick_age_seconds
        );
    }
    let incidents: Incidents = get(args, &["incidents"])?;
    let mut details = Vec::new();
    for incident in &incidents.incidents {
        // One that closed in between is left out.
        if let Ok(detail) = get::<Detail>(args, &["incidents", &incident.id]) {
            details.push(detail);
        }
    }
    let before = match &args.state {
        Some(path) => memory::read(path, &incidents.cluster)?,
        None => memory::Memory::default(),
    };
    let mut plan = Plan::of(&incidents, details, &args.collector, args.node.as_deref());
    if fabric.is_blind() {
        eprintln!(
            "railscope: {} of {} exporters answer: nothing is withdrawn while most do not",
            fabric.targets_up, fabric.targets
        );
        plan.keep(&before);
    } else {
        plan.withdraw(&before, args.node.as_deref());
    }
    plan.hold_back(args.most);
    let text = match args.format {
        Format::Slurm => slurm::write(&plan),
        Format::Kubernetes => pretty(&kubernetes::list(&plan))?,
        Format::Json => pretty(&plan)?,
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot print")?;
    // After it was said, or what is over would never be withdrawn.
    match &args.state {
        Some(path) => memory::write(path, &plan.memory(&before, args.node.as_deref())),
        None => Ok(()),
    }
}

fn get<T: DeserializeOwned>(args: &AdviseArgs, path: &[&str]) -> anyhow::Result<T> {
    let text = ask(&args.collector, path, &[])?;
    let what = || {
        format!(
            "/api/v1/{}: the answer is of another version",
            path.join("/")
        )
    };
    serde_json::from_str(&text).with_context(what)
}

fn pretty(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests;
