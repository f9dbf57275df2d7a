//! The demo's eye: asks the collector's API as a user would, and tells what it finds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use railscope_simulator::fault::Truth;
use serde::Deserialize;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// How long the collector may take until every exporter has been scraped.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// After this long without the culprit the demo says that it is missing: twice of what it promises.
const FIND_PATIENCE: Duration = Duration::from_secs(60);

/// The collector's API.
pub(super) struct Api {
    client: reqwest::Client,
    /// Address of the page, without the slash at its end.
    pub(super) base: String,
}

#[derive(Deserialize)]
struct Incidents {
    incidents: Vec<Incident>,
}

/// An open incident, as far as the demo reads it.
#[derive(Deserialize)]
struct Incident {
    id: String,
    fault_domain: String,
    class: String,
    title: String,
    summary: String,
    action: String,
    gpus_affected: usize,
}

impl Api {
    pub(super) fn new(base: String) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(5))
            .build()
            .context("cannot set up the HTTP client")?;
        Ok(Self { client, base })
    }

    async fn text(&self, path: &str) -> anyhow::Result<String> {
        let answer = self
            .client
            .get(format!("{}{path}", self.base))
            .send()
            .await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    /// Waits until the collector has scraped so many exporters.
    pub(super) async fn wait_for(&self, exporters: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        loop {
            // Errors are what is waited out: no analysis yet, or no answer.
            let page = self.text("/metrics").await.unwrap_or_default();
            let is_up = |line: &&str| {
                line.starts_with("railscope_collector_target_up{") && line.ends_with(" 1")
            };
            let up = page.lines().filter(is_up).count();
            if up >= exporters {
                return Ok(());
            }
            if Instant::now() > deadline {
                tracing::warn!(
                    "{up} of {exporters} exporters have been scraped after {READY_PATIENCE:?}"
                );
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Tells of every incident when it opens; `injected` is what was broken, and when. Ends never.
    pub(super) async fn tell(&self, injected: Option<(&Truth, Instant)>) -> anyhow::Result<()> {
        let mut told = BTreeSet::new();
        let mut found = injected.is_none();
        loop {
            let text = self.text("/api/v1/incidents").await;
            // A busy moment is no reason to give up: the next look is soon.
            let incidents =
                text.and_then(|text| Ok(serde_json::from_str::<Incidents>(&text)?.incidents));
            for incident in incidents.unwrap_or_default() {
                // The class of an incident may change as evidence comes in.
                if told.insert((incident.id.clone(), incident.class.clone())) {
                    found |= self.announce(&incident, injected);
                }
            }
            if let Some((truth, since)) = injected
                && !found
                && since.elapsed() > FIND_PATIENCE
            {
                println!(
                    "  NOT FOUND: {} has no incident after {FIND_PATIENCE:?}.",
                    truth.part
                );
                found = true;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Prints an incident; true if it is the one that was to be found.
    fn announce(&self, incident: &Incident, injected: Option<(&Truth, Instant)>) -> bool {
        let Incident {
            id,
            fault_domain,
            class,
            title,
            summary,
            action,
            gpus_affected,
        } = incident;
        let is_culprit = |truth: &Truth| {
            let mut parts = std::iter::once(&truth.part).chain(&truth.accomplices);
            parts.any(|part| part.to_string() == *fault_domain) && truth.class == class
        };
        let seconds =
            |since: Instant| format!("{:.1} s after it broke", since.elapsed().as_secs_f64());
        let hit = injected.filter(|(truth, _)| is_culprit(truth));
        match (hit, injected) {
            (Some((_, since)), _) => {
                println!("\n  FOUND {}: {title}, {fault_domain}", seconds(since));
            }
            (None, Some((_, since))) => {
                println!(
                    "\n  Another incident, {}: {title}, {fault_domain} ({class})",
                    seconds(since)
                );
            }
            (None, None) => println!("\n  FALSE ALARM: {title}, {fault_domain} ({class})"),
        }
        println!("    evidence    {summary}");
        println!("    GPUs behind {gpus_affected}");
        println!("    what to do  {action}");
        println!("    page        {}/incidents/{id}", self.base);
        hit.is_some()
    }
}
