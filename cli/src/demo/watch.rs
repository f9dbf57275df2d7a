//! Polls the collector's API as a user would, and reports what it finds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Deserialize;

use super::stage::Stage;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(250);
/// How long the collector may take until every exporter has been scraped.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// After this long without the root cause the demo reports that it is missing: twice of what it
/// promises.
const FIND_PATIENCE: Duration = Duration::from_secs(60);

/// The collector's API.
pub(super) struct Api {
    client: reqwest::Client,
    /// Address of the web page, without a trailing slash.
    pub(super) base: String,
}

#[derive(Deserialize)]
struct Incidents {
    incidents: Vec<Incident>,
}

/// The fields of an open incident that the demo reads.
#[derive(Deserialize)]
struct Incident {
    id: String,
    fault_domain: String,
    class: String,
    title: String,
    summary: String,
    action: String,
    gpus_affected: usize,
    gpus_behind: usize,
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
            // Errors are retried until then: no analysis yet, or no response.
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

    /// Reports every incident when it opens, with the injected faults. Never returns.
    pub(super) async fn tell(&self, stage: &Stage) -> anyhow::Result<()> {
        let mut told = BTreeSet::new();
        loop {
            let text = self.text("/api/v1/incidents").await;
            // A short overload is no reason to give up: the next poll follows soon.
            if let Ok(text) = text
                && let Ok(open) = serde_json::from_str::<Incidents>(&text)
            {
                let ids: BTreeSet<_> = open.incidents.iter().map(Incident::key).collect();
                for incident in &open.incidents {
                    let Incident {
                        id,
                        fault_domain,
                        class,
                        title,
                        ..
                    } = incident;
                    let after = stage.take(id, title, fault_domain, class);
                    // The class of an incident may change as evidence comes in.
                    let new = !told.contains(&incident.key());
                    if after.is_some() || new && !stage.explains(fault_domain, class) {
                        self.announce(incident, after, stage.is_touched());
                    }
                }
                told = ids;
            }
            for part in stage.missed(FIND_PATIENCE) {
                println!("  NOT FOUND: {part} has no incident after {FIND_PATIENCE:?}.");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Prints an incident. `after` is the time in seconds to find the fault that it names, if it names one.
    fn announce(&self, incident: &Incident, after: Option<f64>, broken: bool) {
        let Incident {
            id,
            fault_domain,
            class,
            title,
            summary,
            action,
            gpus_affected,
            gpus_behind,
        } = incident;
        let heading = match after {
            Some(seconds) => {
                format!("FOUND {seconds:.1} s after it broke: {title}, {fault_domain}")
            }
            None if broken => format!("Another incident: {title}, {fault_domain} ({class})"),
            None => format!("FALSE ALARM: {title}, {fault_domain} ({class})"),
        };
        println!("\n  {heading}");
        println!("    evidence    {summary}");
        println!("    GPUs        {gpus_behind} behind it, {gpus_affected} wait");
        println!("    what to do  {action}");
        println!("    page        {}/incidents/{id}", self.base);
    }
}

impl Incident {
    fn key(&self) -> (String, String) {
        (self.id.clone(), self.class.clone())
    }
}
