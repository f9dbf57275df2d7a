//! `railscope advise`: prints open incidents as proposals for a scheduler; it changes nothing itself.

mod kubernetes;
mod memory;
mod plan;
mod slurm;
pub(crate) mod time;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;

use crate::topology::remote::{Api, PATIENCE};
use plan::{Detail, Fabric, Incidents, Listed, Plan};

/// Maximum age of the last analysis; older results are rejected as stale.
const STALE_SECONDS: f64 = 120.0;

/// Print proposals for a scheduler from open incidents: drain commands for Slurm, node conditions and events for
/// Kubernetes, or both as JSON. Reads only the collector's API and changes nothing.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Output format.
    #[arg(long, value_enum)]
    format: Format,
    /// Address of the collector.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:10661")]
    collector: String,
    /// Restrict the advice to this node.
    #[arg(long)]
    node: Option<String>,
    /// File that stores the last advice, so that advice about resolved incidents is withdrawn.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Maximum number of nodes to drain; above it the drain commands are commented out, because the cause is probably shared.
    #[arg(long, value_name = "NODES", default_value_t = 10)]
    most: usize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// `scontrol` commands: drain, and resume when the incident is resolved.
    Slurm,
    /// List of nodes with conditions, and of events, in the form of node-problem-detector.
    Kubernetes,
    /// Complete advice as JSON.
    Json,
}

/// Reads the collector's API and prints the advice.
pub(crate) fn run(args: &AdviseArgs) -> anyhow::Result<()> {
    let api = Api::at(&args.collector, PATIENCE)?;
    let fabric: Fabric = get(&api, &["fabric"])?;
    if fabric.tick_age_seconds > STALE_SECONDS {
        bail!(
            "stale data: the collector's last analysis is {:.0} s old, expected at most {STALE_SECONDS:.0} s",
            fabric.tick_age_seconds
        );
    }
    let incidents: Incidents = get(&api, &["incidents"])?;
    let details = details(&api, &incidents)?;
    let before = match &args.state {
        Some(path) => memory::read(path, &incidents.cluster)?,
        None => memory::Memory::default(),
    };
    let mut plan = Plan::of(&incidents, details, &args.collector, args.node.as_deref());
    if fabric.is_blind() {
        eprintln!(
            "railscope: only {} of {} exporters answer: no advice is withdrawn",
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
    // After printing: if printing fails, the next run still withdraws resolved advice.
    match &args.state {
        Some(path) => memory::write(path, &plan.memory(&before, args.node.as_deref())),
        None => Ok(()),
    }
}

/// The details of each listed incident, without those that resolved in the meantime.
///
/// Advice is withdrawn for what is missing here, so only a 404 means that an incident is resolved, and only if the
/// collector's list no longer has it: a proxy in front of the collector can return 404 as well.
fn details(api: &Api, listed: &Incidents) -> anyhow::Result<Vec<Detail>> {
    let (mut details, mut missing) = (Vec::new(), Vec::new());
    for Listed { id } in &listed.incidents {
        let path = ["incidents", id];
        match api.find(&path).with_context(|| format!("incident {id}"))? {
            Some(text) => details.push(parse(&path, &text)?),
            None => missing.push(id),
        }
    }
    if missing.is_empty() {
        return Ok(details);
    }
    let now: Incidents = get(api, &["incidents"])?;
    let is_open = |id: &&String| now.incidents.iter().any(|open| open.id == **id);
    if let Some(id) = missing.into_iter().find(is_open) {
        bail!("incident {id}: it is listed as open, but its details are not found");
    }
    Ok(details)
}

fn get<T: DeserializeOwned>(api: &Api, path: &[&str]) -> anyhow::Result<T> {
    parse(path, &api.get(path, &[])?)
}

fn parse<T: DeserializeOwned>(path: &[&str], text: &str) -> anyhow::Result<T> {
    let what = || {
        format!(
            "/api/v1/{}: unexpected response; the collector may be of another version",
            path.join("/")
        )
    };
    serde_json::from_str(text).with_context(what)
}

fn pretty(value: &impl serde::Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests;
