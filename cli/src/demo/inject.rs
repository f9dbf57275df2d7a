//! `railscope demo inject`: breaks and repairs parts of a demo that runs.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use railscope_model::identity::Part;
use railscope_simulator::faults::CAUSES;
use railscope_simulator::spec::Transport;
use reqwest::{StatusCode, Url};
use serde::Deserialize;

use super::scene::Scene;
use super::wanted::{Wanted, named_as};

/// Timeout of the demo's response: on a machine that is short of CPU one step of the cluster takes seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(45);
/// `inject list`.
const LIST: &str = "list";

/// Inject a fault into a running demo, or end one.
#[derive(Debug, Args)]
pub(super) struct InjectArgs {
    /// Fault to inject; `list` describes each, its parameters, and whether Railscope names it.
    #[arg(value_parser = PossibleValuesParser::new(CAUSES.iter().copied().chain([LIST])), hide_possible_values = true)]
    fault: String,
    /// Component, as in incidents: gpu/gpu-node-03:2, link/gpu-node-03:mlx5_2/1. Default: the demo selects one.
    #[arg(long)]
    part: Option<Part>,
    /// Severity, as a parameter of the fault, such as clock_ratio=0.9.
    #[arg(long = "severity", value_name = "NAME=NUMBER", conflicts_with = "end")]
    severity: Vec<String>,
    /// End the fault; without --part, the last one of its kind.
    #[arg(long)]
    end: bool,
    /// Address of the demo, `host:port`.
    #[arg(long, default_value = super::LISTEN)]
    demo: String,
}

/// What the demo reports about the fault.
#[derive(Deserialize)]
struct Answer {
    part: String,
    what: String,
    named_as: Option<String>,
    found: Option<Found>,
}

#[derive(Deserialize)]
struct Found {
    title: String,
    after_seconds: f64,
}

pub(super) fn run(args: &InjectArgs) -> anyhow::Result<()> {
    if args.fault == LIST {
        return super::print(&list()?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(send(args))
}

/// What can be broken.
fn list() -> anyhow::Result<String> {
    let mut text = String::new();
    for cause in CAUSES {
        let cluster = Scene::of_cause(Some(cause)).cluster(None, 1)?;
        let fault = Wanted::typical(cause).fault(&cluster, 1)?;
        let mut numbers = toml::Table::try_from(&fault.effect)?;
        numbers.remove("cause");
        let numbers: Vec<_> = numbers
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let named = named_as(cause, cluster.spec()).unwrap_or("not named yet");
        let numbers = if numbers.is_empty() {
            "none".to_owned()
        } else {
            numbers.join(" ")
        };
        let needs = match cluster.spec().transport {
            Transport::Infiniband | Transport::Efa => "",
            Transport::Roce => "; of RoCE only: demo --fault starts one",
        };
        text.push_str(&format!(
            "{cause:<18} {} {}\n{:18} Railscope: {named}; numbers: {numbers}{needs}\n",
            fault.part, fault.effect, ""
        ));
    }
    Ok(text)
}

async fn send(args: &InjectArgs) -> anyhow::Result<()> {
    let InjectArgs { demo, fault, .. } = args;
    let action = if args.end { "end" } else { "inject" };
    let mut url = Url::parse(&format!("http://{demo}/demo/{action}"))
        .with_context(|| format!("--demo {demo:?}: expected host:port"))?;
    url.query_pairs_mut().append_pair("cause", fault);
    if let Some(part) = &args.part {
        url.query_pairs_mut().append_pair("part", &part.to_string());
    }
    for number in &args.severity {
        url.query_pairs_mut().append_pair("set", number);
    }
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(RESPONSE_TIMEOUT)
        .build()
        .context("cannot set up the HTTP client")?;
    let sent = client.post(url).send().await;
    let answer = sent.with_context(|| {
        format!("no demo answers at {demo}; start one with `railscope demo`, or give its address with --demo host:port")
    })?;
    let status = answer.status();
    let text = answer
        .text()
        .await
        .context("the demo ended the connection")?;
    match status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => bail!("{demo} is not a demo: it has no faults to inject"),
        _ => bail!("the demo refuses: {}", text.trim()),
    }
    let answer: Answer = serde_json::from_str(&text)
        .with_context(|| format!("{demo} is not a demo of this version: it returned {text:?}"))?;
    say(args, &answer);
    Ok(())
}

fn say(args: &InjectArgs, answer: &Answer) {
    let Answer { part, what, .. } = answer;
    if args.end {
        println!("CLEARED: {part} ({}).", args.fault);
        match &answer.found {
            Some(found) => println!(
                "Railscope had named it after {:.1} s: {}.",
                found.after_seconds, found.title
            ),
            None => println!("Railscope had not named it."),
        }
        return;
    }
    println!("BROKEN: {part} {what}.");
    match &answer.named_as {
        Some(class) => println!("Railscope is expected to name it, with the class {class}."),
        None => println!("Railscope does not name this yet: look for its symptoms."),
    }
    println!("Truth and findings: http://{}/demo", args.demo);
}
