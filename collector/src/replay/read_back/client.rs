//! The query API of Prometheus over HTTP: raw samples, label sets and names, with errors that name the question and the remedy.

use std::fmt;
use std::time::Duration;

use railscope_model::fabric::Timestamp;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client as Http, StatusCode, Url, redirect};
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer};

use super::ReadBackError;

/// Longest wait for a response: the default of `--query.timeout` is two minutes.
const PATIENCE: Duration = Duration::from_secs(130);
/// Limit on the size of a response. A larger one is requested in parts.
const MOST_BYTES: usize = 256 << 20;
/// How long an overloaded server gets before each further attempt.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// Length of a server's message in an error.
const MOST_MESSAGE: usize = 300;

/// Where samples are stored, and how to log in there.
#[derive(Clone)]
pub struct Store {
    base: Url,
    headers: HeaderMap,
}

impl fmt::Debug for Store {
    /// Without what is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.name()).finish()
    }
}

impl Store {
    /// A server by the URL below which it has `/api/v1`, with a bearer token and further headers (`NAME: VALUE`).
    ///
    /// # Errors
    /// The URL, the token or a header is invalid.
    pub fn new(url: &str, token: Option<&str>, headers: &[String]) -> Result<Self, ReadBackError> {
        const EXPECTED: &str = "expected an address such as http://prometheus:9090";
        let invalid = |why: String| ReadBackError::Address(format!("{EXPECTED}: {why}"));
        // The text itself may have a password: errors do not repeat it.
        let mut base = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
        match base.scheme() {
            "http" if base.has_host() => {}
            "https" => {
                return Err(invalid(String::from(
                    "this version reads http, not https; a local proxy can add TLS",
                )));
            }
            other => return Err(invalid(format!("not {other}"))),
        }
        base.set_query(None);
        base.set_fragment(None);
        let path = base.path().trim_end_matches('/');
        let path = path.strip_suffix("/api/v1").unwrap_or(path).to_owned();
        base.set_path(&path);
        let mut map = HeaderMap::new();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value
                .map_err(|_| ReadBackError::Address(String::from("the token is not one line")))?;
            value.set_sensitive(true);
            map.insert(AUTHORIZATION, value);
        }
        for header in headers {
            let parsed = header.split_once(':').and_then(|(name, value)| {
                let name: HeaderName = name.trim().parse().ok()?;
                let mut value: HeaderValue = value.trim().parse().ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            let expected = "header: expected NAME: VALUE, such as X-Scope-OrgID: team";
            let (name, value) =
                parsed.ok_or_else(|| ReadBackError::Address(expected.to_owned()))?;
            map.insert(name, value);
        }
        Ok(Self { base, headers: map })
    }

    /// Its URL without user and password.
    pub fn name(&self) -> String {
        let mut url = self.base.clone();
        // They fail for URLs without a host alone, which are refused.
        url.set_username("").ok();
        url.set_password(None).ok();
        url.as_str().trim_end_matches('/').to_owned()
    }
}

/// One series of a response.
#[derive(Debug, Deserialize)]
pub(super) struct RawSeries {
    /// Its labels; `__name__` is one of them.
    #[serde(deserialize_with = "pairs")]
    pub(super) metric: Labels,
    /// Seconds of Unix time, and the value. Native histograms have none.
    #[serde(default)]
    pub(super) values: Vec<(f64, Number)>,
}

/// Names and values of labels in order of the names.
pub(super) type Labels = Vec<(String, String)>;

fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
    let map = std::collections::BTreeMap::deserialize(deserializer)?;
    Ok(map.into_iter().collect())
}

/// A value, which the API writes as text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as text")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Read)
    }
}

#[derive(Deserialize)]
struct Matrix {
    result: Vec<RawSeries>,
}

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
    #[serde(default)]
    warnings: Vec<String>,
}

/// An error as the API writes it.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// A response, or that the query was too large for the server.
pub(super) enum Answered {
    /// Its series.
    Series(Vec<RawSeries>),
    /// What the server wrote, with what was requested.
    TooMuch(String),
}

/// Sends requests to one server.
#[derive(Debug)]
pub(super) struct Client {
    http: Http,
    store: Store,
    /// The first warning of the server, such as an incomplete response.
    warning: std::sync::Mutex<Option<String>>,
}

/// What a request led to.
enum Sent<T> {
    Ok(T),
    TooMuch(String),
}

impl Client {
    pub(super) fn new(store: Store) -> Result<Self, ReadBackError> {
        let http = Http::builder()
            .user_agent(concat!("railscope/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .redirect(redirect::Policy::limited(3))
            .timeout(PATIENCE)
            .build()
            .map_err(|error| ReadBackError::Address(error.to_string()))?;
        Ok(Self {
            http,
            store,
            warning: std::sync::Mutex::default(),
        })
    }

    /// The first warning of the server.
    pub(super) fn warning(&self) -> Option<String> {
        let warning = self.warning.lock();
        warning.map(|warning| warning.clone()).unwrap_or_default()
    }

    /// The raw samples after `after` until `until` of all series that the selector matches.
    pub(super) async fn samples(
        &self,
        selector: &str,
        (after, until): (Timestamp, Timestamp),
    ) -> Result<Answered, ReadBackError> {
        let query = format!("{selector}[{}ms]", until.0.saturating_sub(after.0));
        let time = format!("{:.3}", until.as_seconds());
        let asked = format!("query={query} at time={time}");
        let parameters = [("query", &*query), ("time", &*time)];
        let sent = self
            .get::<Matrix>("query", &parameters, &asked, true)
            .await?;
        Ok(match sent {
            Sent::Ok(matrix) => Answered::Series(matrix.result),
            Sent::TooMuch(message) => Answered::TooMuch(message),
        })
    }

    /// The label sets of the series that any of the selectors matches.
    pub(super) async fn label_sets(
        &self,
        selectors: &[String],
        span: (Timestamp, Timestamp),
    ) -> Result<Vec<Labels>, ReadBackError> {
        #[derive(Deserialize)]
        struct Set(#[serde(deserialize_with = "pairs")] Labels);
        let sets: Vec<Set> = self.list("series", selectors, span).await?;
        Ok(sets.into_iter().map(|Set(labels)| labels).collect())
    }

    /// The names of the metrics that the selector matches.
    pub(super) async fn metric_names(
        &self,
        selector: &str,
        span: (Timestamp, Timestamp),
    ) -> Result<Vec<String>, ReadBackError> {
        self.list("label/__name__/values", &[selector.to_owned()], span)
            .await
    }

    async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        selectors: &[String],
        (from, until): (Timestamp, Timestamp),
    ) -> Result<Vec<T>, ReadBackError> {
        let (start, end) = (
            format!("{:.3}", from.as_seconds()),
            format!("{:.3}", until.as_seconds()),
        );
        let mut parameters = vec![("start", &*start), ("end", &*end)];
        parameters.extend(selectors.iter().map(|selector| ("match[]", &**selector)));
        let asked = format!("{path} of {} from {start} to {end}", selectors.join(", "));
        match self.get(path, &parameters, &asked, false).await? {
            Sent::Ok(list) => Ok(list),
            Sent::TooMuch(message) => Err(ReadBackError::TooMuch(message)),
        }
    }

    /// Sends a request, again while the server is overloaded.
    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        asked: &str,
        can_split: bool,
    ) -> Result<Sent<T>, ReadBackError> {
        let mut url = self.store.base.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/api/v1/{path}"));
        url.query_pairs_mut().extend_pairs(parameters);
        let mut pauses = PAUSES.iter();
        loop {
            let Some((status, body)) = self.fetch(&url).await? else {
                let message = format!("{asked}: more than {MOST_BYTES} bytes");
                return Ok(Sent::TooMuch(message));
            };
            if status == StatusCode::OK {
                return self.parse(&body, asked).map(Sent::Ok);
            }
            let message = message(&body);
            let is_timeout = message.contains("timed out") || message.contains("timeout");
            let is_busy = matches!(status.as_u16(), 429 | 502 | 503 | 504);
            if is_busy
                && !(can_split && is_timeout)
                && let Some(pause) = pauses.next()
            {
                tokio::time::sleep(*pause).await;
                continue;
            }
            // 413: of a proxy; 422: too many samples, series or chunks for the server's limits.
            let is_large = matches!(status.as_u16(), 413 | 422) || (is_busy && is_timeout);
            if is_large && can_split {
                return Ok(Sent::TooMuch(format!(
                    "{asked}: {}: {message}",
                    status.as_u16()
                )));
            }
            return Err(ReadBackError::Refused {
                store: self.store.name(),
                asked: asked.to_owned(),
                status: status.as_u16(),
                hint: hint(status),
                message,
            });
        }
    }

    /// Status and body; none if the body is too large.
    async fn fetch(&self, url: &Url) -> Result<Option<(StatusCode, Vec<u8>)>, ReadBackError> {
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() {
                format!("no answer within {} s", PATIENCE.as_secs())
            } else {
                innermost(&error)
            };
            let store = self.store.name();
            ReadBackError::Unreachable { store, why }
        };
        let request = self.http.get(url.clone());
        let request = request.headers(self.store.headers.clone());
        let mut response = request.send().await.map_err(failed)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MOST_BYTES {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some((response.status(), body)))
    }

    fn parse<T: DeserializeOwned>(&self, body: &[u8], asked: &str) -> Result<T, ReadBackError> {
        let answer: Answer<T> =
            serde_json::from_slice(body).map_err(|error| ReadBackError::NoApi {
                store: self.store.name(),
                asked: asked.to_owned(),
                why: error.to_string(),
            })?;
        if let (Some(first), Ok(mut warning)) =
            (answer.warnings.into_iter().next(), self.warning.lock())
        {
            warning.get_or_insert(first);
        }
        Ok(answer.data)
    }
}

/// What the server wrote about an error, in one line.
fn message(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) => refusal.error,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST_MESSAGE) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// What to do about a status.
fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => {
            "expected a login: --token-file, --header, or http://USER:PASSWORD@HOST; of Mimir also --header 'X-Scope-OrgID: TENANT'"
        }
        404 => {
            "expected the URL below which it has /api/v1 (of Mimir /prometheus, of a VictoriaMetrics cluster /select/0/prometheus)"
        }
        413 | 422 => "expected a shorter time between --from and --to, or fewer jobs (--job)",
        429 | 502..=504 => "the server is overloaded or restarts: try again",
        _ => "expected the query API of Prometheus",
    }
}

/// The cause itself: `connection refused`, not `error sending request`.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
