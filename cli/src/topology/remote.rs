//! What a running collector reports about its fabric: `railscope topology … --collector URL`.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;

/// Longest wait for the collector's response: the export of 100,000 GPUs has tens of megabytes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum items of a list per response of the collector.
const MOST: &str = "20000";

#[derive(Debug, Deserialize)]
struct Refused {
    error: String,
    expected: String,
}

/// A collector's API, with one HTTP client for all requests.
pub(crate) struct Api {
    address: String,
    base: Url,
    client: reqwest::Client,
    runtime: Runtime,
}

impl Api {
    /// The API of the collector at this address. Connects with the first request.
    pub(crate) fn at(collector: &str, patience: Duration) -> anyhow::Result<Self> {
        let example = "expected an address such as http://127.0.0.1:10661";
        let base =
            Url::parse(collector).with_context(|| format!("--collector {collector}: {example}"))?;
        if base.cannot_be_a_base() {
            bail!("--collector {collector}: {example}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Ok(Self {
            address: collector.to_owned(),
            base,
            client: reqwest::Client::builder().timeout(patience).build()?,
            runtime: runtime.context("cannot start the runtime")?,
        })
    }

    /// The text of a resource below `/api/v1`.
    pub(crate) fn get(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<String> {
        let (url, status, text) = self.request(path, query)?;
        text_of(&url, status, text)
    }

    /// The same, and `None` if the status is 404. Every other failure is an error.
    pub(crate) fn find(&self, path: &[&str]) -> anyhow::Result<Option<String>> {
        let (url, status, text) = self.request(path, &[])?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        text_of(&url, status, text).map(Some)
    }

    fn request(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<(Url, StatusCode, String)> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.runtime.block_on(async {
            let answer = self.client.get(url.clone()).send().await;
            let answer = answer.with_context(|| format!("no answer from {}", self.address))?;
            let status = answer.status();
            let body = answer.bytes().await.with_context(|| format!("{url}"))?;
            Ok((url, status, String::from_utf8_lossy(&body).into_owned()))
        })
    }
}

fn text_of(url: &Url, status: StatusCode, text: String) -> anyhow::Result<String> {
    if status.is_success() {
        return Ok(text);
    }
    match serde_json::from_str::<Refused>(&text) {
        Ok(refused) => bail!("{}: expected {}", refused.error, refused.expected),
        Err(_) => bail!("{url}: {status}"),
    }
}

/// Requests a path below `/api/v1` and returns its text.
pub(crate) fn ask(
    collector: &str,
    path: &[&str],
    query: &[(&str, &str)],
) -> anyhow::Result<String> {
    Api::at(collector, PATIENCE)?.get(path, query)
}

/// [`ask`] with another timeout.
pub(crate) fn ask_within(
    patience: Duration,
    collector: &str,
    path: &[&str],
    query: &[(&str, &str)],
) -> anyhow::Result<String> {
    Api::at(collector, patience)?.get(path, query)
}

fn read<T: for<'de> Deserialize<'de>>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context("the collector's response is of another version")
}

/// A response as JSON, or as text, and whether there was nothing to report.
pub(super) type Said = (String, bool);

fn as_json(text: &str) -> anyhow::Result<String> {
    let value: Value = read(text)?;
    Ok(serde_json::to_string_pretty(&value).context("cannot write JSON")? + "\n")
}

#[derive(Debug, Deserialize)]
struct Fabric {
    cluster: String,
    verdict: Verdict,
    parts: std::collections::BTreeMap<String, usize>,
    links: std::collections::BTreeMap<String, usize>,
    subnet_age_seconds: Option<f64>,
    tick_age_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    kind: String,
    sentence: String,
    levels: usize,
    confidence: String,
    evidence: Vec<String>,
    doubts: Vec<String>,
}

/// What the collector's fabric is, and what that rests on.
pub(super) fn show(collector: &str, json: bool) -> anyhow::Result<Said> {
    let answer = ask(collector, &["fabric"], &[])?;
    let fabric: Fabric = read(&answer)?;
    let known = fabric.verdict.kind != "unknown";
    if json {
        return Ok((as_json(&answer)?, known));
    }
    let verdict = &fabric.verdict;
    let counts = |counts: &std::collections::BTreeMap<String, usize>| {
        let words: Vec<_> = counts
            .iter()
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        words.join(", ")
    };
    let mut text = format!(
        "{}: {}, {} levels (confidence {})\n",
        fabric.cluster, verdict.sentence, verdict.levels, verdict.confidence
    );
    writeln!(text, "  parts: {}", counts(&fabric.parts))?;
    writeln!(text, "  links: {}", counts(&fabric.links))?;
    for evidence in &verdict.evidence {
        writeln!(text, "  because {evidence}")?;
    }
    for doubt in &verdict.doubts {
        writeln!(text, "  but {doubt}")?;
    }
    if let Some(age) = fabric.subnet_age_seconds {
        writeln!(
            text,
            "  the last complete sweep of the subnet was {age:.0} s ago"
        )?;
    }
    writeln!(text, "  as of {:.0} s ago", fabric.tick_age_seconds)?;
    Ok((text, known))
}

#[derive(Debug, Deserialize)]
struct Listed<T> {
    left_off: usize,
    items: Vec<T>,
}

#[derive(Debug, Deserialize)]
struct Lint {
    has_plan: bool,
    findings: Listed<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    rule: String,
    severity: String,
    sentence: String,
    evidence: Vec<String>,
    action: String,
}

/// What is wrong with the wiring as the collector sees it, by the plan that it has.
pub(super) fn lint(collector: &str, json: bool) -> anyhow::Result<Said> {
    let answer = ask(collector, &["topology", "lint"], &[("limit", MOST)])?;
    let lint: Lint = read(&answer)?;
    let clean = lint.findings.items.is_empty();
    if json {
        return Ok((as_json(&answer)?, clean));
    }
    let mut text = String::new();
    for finding in &lint.findings.items {
        writeln!(
            text,
            "{:<7} {}: {}",
            finding.severity, finding.rule, finding.sentence
        )?;
        for evidence in &finding.evidence {
            writeln!(text, "          because {evidence}")?;
        }
        writeln!(text, "          {}", finding.action)?;
    }
    let by = if lint.has_plan {
        "by its plan and by peers"
    } else {
        "by peers"
    };
    match lint.findings.items.len() + lint.findings.left_off {
        0 => writeln!(text, "nothing found, {by}")?,
        1 => writeln!(text, "1 finding, {by}")?,
        all => writeln!(text, "{all} findings, {by}")?,
    }
    left_off(&mut text, lint.findings.left_off)?;
    Ok((text, clean))
}

fn left_off(text: &mut String, count: usize) -> anyhow::Result<()> {
    if count > 0 {
        writeln!(text, "{count} of them are not shown")?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
struct Diff {
    differences: Listed<Changed>,
}

#[derive(Debug, Deserialize)]
struct Changed {
    statement: String,
}

/// Differences between two times, if the collector still has both.
pub(super) fn diff(
    collector: &str,
    from: &str,
    to: Option<&str>,
    json: bool,
) -> anyhow::Result<Said> {
    let mut query = vec![("from", from), ("limit", MOST)];
    query.extend(to.map(|to| ("to", to)));
    let answer = ask(collector, &["topology", "diff"], &query)?;
    let diff: Diff = read(&answer)?;
    let same = diff.differences.items.is_empty();
    if json {
        return Ok((as_json(&answer)?, same));
    }
    let mut text = String::new();
    for change in &diff.differences.items {
        writeln!(text, "{}", change.statement)?;
    }
    if same {
        text += "no difference\n";
    }
    left_off(&mut text, diff.differences.left_off)?;
    Ok((text, same))
}

/// The collector's fabric as another tool reads it.
pub(super) fn export(collector: &str, to: &str) -> anyhow::Result<String> {
    let answer = ask(collector, &["topology", "export"], &[("to", to)])?;
    if to == "json" {
        as_json(&answer)
    } else {
        Ok(answer)
    }
}
