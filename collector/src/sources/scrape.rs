//! Scrapes exporters over HTTP, within limits of time, size and number.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONNECTION};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::config::{Scrape, ScrapeProfile, Target};
use crate::mapping::{Mappings, Reader};
use crate::service::Event;
use crate::status::{ScrapeResult, State};

use crate::sources::scrape::budget::Budget;
pub(crate) use crate::sources::scrape::budget::Held;
use crate::sources::scrape::descriptors::Descriptors;
pub(crate) use crate::sources::scrape::schedule::Bells;
use crate::sources::scrape::schedule::Turns;

/// The parser reads both formats; the plain one is the shorter.
const ACCEPTED: &str = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5";

/// Why a scrape failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// No connection, or it broke.
    #[error("not reached: {0}")]
    Unreachable(String),
    /// No complete scrape body in time.
    #[error("scrape timed out after {0:?}")]
    Timeout(Duration),
    /// A response that is no exposition.
    #[error("not an exposition: {0}")]
    Malformed(String),
    /// A response with another status than 200.
    #[error("not an exposition: status {0}")]
    Status(StatusCode),
    /// A scrape body beyond the limit.
    #[error("the scrape body has more than {0} bytes (scrape.max_body_bytes)")]
    TooLarge(usize),
}

impl ScrapeError {
    /// The name of the error in a recording. It has nothing of the error's text, which may name an address.
    fn recorded(&self) -> Cow<'static, str> {
        match self {
            Self::Unreachable(_) => Cow::Borrowed("refused"),
            Self::Timeout(_) => Cow::Borrowed("timeout"),
            Self::TooLarge(_) => Cow::Borrowed("too large"),
            Self::Malformed(_) => Cow::Borrowed("malformed"),
            Self::Status(status) => Cow::Owned(format!("http {}", status.as_u16())),
        }
    }

    /// The counted result of an error in a recording, by its name. Other recordings have other names.
    pub(crate) fn result_of(word: &str) -> ScrapeResult {
        match word {
            "timeout" => ScrapeResult::Timeout,
            "too large" => ScrapeResult::TooLarge,
            "malformed" => ScrapeResult::Malformed,
            other if other.starts_with("http ") => ScrapeResult::Malformed,
            _ => ScrapeResult::Unreachable,
        }
    }

    /// The error as a counted result.
    pub fn result(&self) -> ScrapeResult {
        match self {
            Self::Unreachable(_) => ScrapeResult::Unreachable,
            Self::Timeout(_) => ScrapeResult::Timeout,
            Self::Malformed(_) | Self::Status(_) => ScrapeResult::Malformed,
            Self::TooLarge(_) => ScrapeResult::TooLarge,
        }
    }
}

/// Scrapes exporters. Connections are kept open between scrapes.
#[derive(Debug)]
pub struct Scraper {
    client: Client,
    limits: Scrape,
    /// One for each scrape that is being read. Waiting for a node that does not respond takes none: a
    /// dead rack must not starve the others.
    reading: Semaphore,
    /// Byte budget of scrape bodies until their ingestion.
    budget: Budget,
    descriptors: Descriptors,
    /// One for each descriptor that scrapes may use.
    connections: Semaphore,
}

impl Scraper {
    /// A scraper with these limits. It needs an open file for each target, so this raises the process's soft limit of
    /// them to the hard one.
    ///
    /// # Errors
    /// The HTTP client cannot be set up.
    pub fn new(limits: Scrape) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .user_agent(concat!("railscope-collector/", env!("CARGO_PKG_VERSION")))
            // Nodes are near; a proxy of the environment is meant for the world outside.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(limits.interval * 3)
            .build()?;
        let permits = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        let descriptors = Descriptors::raise();
        Ok(Self {
            client,
            reading: permits(limits.concurrency),
            budget: Budget::new(limits.max_body_bytes),
            limits,
            connections: permits(descriptors.for_scrapes()),
            descriptors,
        })
    }

    /// Connections that scrapes leave to clients of the collector's server.
    pub(crate) fn places_for_clients(&self) -> usize {
        self.descriptors.for_clients()
    }

    /// Performs one scrape.
    ///
    /// # Errors
    /// Why it failed.
    pub async fn scrape(&self, target: &Target) -> Result<String, ScrapeError> {
        let fetched = self.fetch(target, None).await;
        fetched.map(|(page, _)| page)
    }

    /// Fetches one scrape body; `last` is the size of the target's previous one.
    async fn fetch(
        &self,
        target: &Target,
        last: Option<usize>,
    ) -> Result<(String, Option<Held>), ScrapeError> {
        let name = target.name();
        let span = tracing::info_span!("scrape", target = name, bytes = Empty, error = Empty);
        let fetched = self.fetch_in_time(target, last);
        let page = fetched.instrument(span.clone()).await;
        match &page {
            Ok((page, _)) => span.record("bytes", page.len()),
            Err(error) => span.record("error", tracing::field::display(error)),
        };
        page
    }

    /// Applies the timeout to the target only; time in the collector's own queue is not counted.
    async fn fetch_in_time(
        &self,
        target: &Target,
        last: Option<usize>,
    ) -> Result<(String, Option<Held>), ScrapeError> {
        let limit = self.limits.timeout;
        let late = |_| ScrapeError::Timeout(limit);
        // This semaphore and the next are never closed.
        let _connection = self.connections.acquire().await.ok();
        let begun = Instant::now();
        let response = timeout(limit, self.request(target)).await.map_err(late)??;
        let left = limit.saturating_sub(begun.elapsed());
        let _permit = self.reading.acquire().await.ok();
        let mut held = self.budget.hold(last).await;
        let page = timeout(left, self.read(response, held.as_mut()))
            .await
            .map_err(late)??;
        Ok((page, held))
    }

    async fn request(&self, target: &Target) -> Result<Response, ScrapeError> {
        let mut request = self.client.get(self.address(target)?);
        request = request.header(ACCEPT, ACCEPTED);
        if self.descriptors.are_short() {
            request = request.header(CONNECTION, "close");
        }
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            other => Err(ScrapeError::Status(other)),
        }
    }

    async fn read(
        &self,
        mut response: Response,
        mut held: Option<&mut Held>,
    ) -> Result<String, ScrapeError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
            let bytes = body.len() + chunk.len();
            if bytes > self.limits.max_body_bytes {
                return Err(ScrapeError::TooLarge(self.limits.max_body_bytes));
            }
            if let Some(held) = held.as_deref_mut() {
                self.budget.grow(held, bytes).await;
                // Exactly the reserved bytes, so that the buffer does not grow beyond them.
                if bytes > body.capacity() && bytes <= held.bytes() {
                    body.reserve_exact(held.bytes() - body.len());
                }
            }
            body.extend_from_slice(&chunk);
        }
        String::from_utf8(body)
            .map_err(|error| ScrapeError::Malformed(error.utf8_error().to_string()))
    }

    /// Railscope's own exporter is asked for a profile; others do not have profiles.
    fn address(&self, target: &Target) -> Result<Url, ScrapeError> {
        let mut url =
            Url::parse(&target.url).map_err(|error| ScrapeError::Unreachable(error.to_string()))?;
        if self.limits.profile == ScrapeProfile::Full && !target.is_foreign() {
            url.query_pairs_mut().append_pair("profile", "full");
        }
        Ok(url)
    }
}

fn unreachable(error: &reqwest::Error) -> ScrapeError {
    ScrapeError::Unreachable(innermost(error))
}

/// A body that ends early is the connection's fault, one that does not decompress the server's.
fn broken(error: &reqwest::Error) -> ScrapeError {
    let why = innermost(error);
    if error.is_decode() {
        ScrapeError::Malformed(why)
    } else {
        ScrapeError::Unreachable(why)
    }
}

/// What really happened: `connection refused`, not `error sending request`.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Keeps one task for each target, as the list of targets changes.
#[derive(Debug)]
pub(crate) struct Scrapers {
    scraper: Arc<Scraper>,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
    mappings: Mappings,
    bells: Arc<Bells>,
    tasks: HashMap<Target, (AbortHandle, Arc<Notify>)>,
}

impl Scrapers {
    pub(crate) fn new(
        scraper: Scraper,
        events: mpsc::Sender<Event>,
        state: Arc<State>,
        mappings: Mappings,
        bells: Arc<Bells>,
    ) -> Self {
        Self {
            mappings,
            bells,
            scraper: Arc::new(scraper),
            events,
            state,
            tasks: HashMap::new(),
        }
    }

    /// Starts tasks of new targets and ends those of targets that are gone.
    pub(crate) fn set_targets(&mut self, targets: &[Target]) {
        let descriptors = &self.scraper.descriptors;
        descriptors.expect_targets(targets.len());
        self.state.record_open_files_short(descriptors.are_short());
        self.tasks.retain(|target, (task, _)| {
            let stays = targets.binary_search(target).is_ok();
            if !stays {
                task.abort();
            }
            stays
        });
        for target in targets {
            if !self.tasks.contains_key(target) {
                let (target, bell) = (Arc::new(target.clone()), Arc::new(Notify::new()));
                let interval = self.scraper.limits.interval;
                let follow = follow(
                    Turns::of(&target, interval, Arc::clone(&bell)),
                    Reader::new(Arc::clone(&target), self.mappings.clone()),
                    Arc::clone(&target),
                    Arc::clone(&self.scraper),
                    self.events.clone(),
                    Arc::clone(&self.state),
                );
                let task = tokio::spawn(follow).abort_handle();
                self.tasks.insert(Target::clone(&target), (task, bell));
            }
        }
        let bells = self.tasks.iter();
        self.bells
            .hang(bells.filter_map(|(target, (_, bell))| Some((target.node()?, bell))));
    }
}

impl Drop for Scrapers {
    fn drop(&mut self) {
        self.tasks.values().for_each(|(task, _)| task.abort());
    }
}

/// Scrapes one target until the analysis is gone.
async fn follow(
    mut turns: Turns,
    mut reader: Reader,
    target: Arc<Target>,
    scraper: Arc<Scraper>,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let mut last = None;
    loop {
        turns.next().await;
        let scraped = scraper.fetch(&target, last).await;
        let now = state.now();
        if let Some(recorder) = &state.recorder {
            let failure = scraped.as_ref().map_err(ScrapeError::recorded);
            let answer = failure.as_ref().map(|(page, _)| page.as_str());
            recorder.scrape(&target, now, answer.map_err(|word| &**word));
        }
        match scraped {
            Ok((page, held)) => {
                last = Some(page.len());
                let event = reader.event(page, now, held);
                if let (None, Some(kind)) = (&target.kind, reader.kind()) {
                    state.record_kind(&target, kind);
                }
                if events.send(event).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let said = Some(error.to_string());
                if state.record_scrape(&target, error.result(), None, said) {
                    tracing::warn!(
                        target = target.name(),
                        url = target.url,
                        "scrape failed: {error}"
                    );
                }
            }
        }
    }
}

mod budget;
mod descriptors;
pub(crate) mod reader;
pub(crate) mod schedule;
#[cfg(test)]
mod tests;
