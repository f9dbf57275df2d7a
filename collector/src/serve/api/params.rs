//! Query parameters and what is reported about wrong ones: always JSON with an error and what was
//! expected.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::serve::wire;

/// Items that a list shows by default.
const DEFAULT_LIMIT: usize = 1_000;
/// Most items that a list shows.
const MAX_LIMIT: usize = 20_000;

/// A response other than the requested data.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: String,
    expected: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: String, expected: String) -> Self {
        Self {
            status,
            error,
            expected,
        }
    }

    /// The error in one line, for responses in another format.
    pub(crate) fn into_error(self) -> String {
        format!("{}: expected {}", self.error, self.expected)
    }

    pub(crate) fn not_found(what: &str, name: &str, list: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("no {what} {name:?}"),
            format!("one that {list} lists"),
        )
    }

    pub(crate) fn parts(&self) -> (StatusCode, &str, &str) {
        (self.status, &self.error, &self.expected)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = wire::Error {
            error: self.error,
            expected: self.expected,
        };
        (self.status, Json(body)).into_response()
    }
}

/// The parameters of a query; unknown ones are errors.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(in crate::serve) T);

/// What a query may hold, as text.
pub(crate) trait Expected: DeserializeOwned {
    const EXPECTED: &'static str;
}

impl<S: Sync, T: Expected> FromRequestParts<S> for Params<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Refusal> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => {
                let said = rejection.body_text();
                let error = said
                    .rsplit_once("query string: ")
                    .map_or(&*said, |(_, error)| error);
                // Before the colon is the field again, after it serde's message.
                let field = |front: &str| !front.contains([' ', '"', '`']);
                let error = match error.split_once(": ") {
                    Some((front, error)) if field(front) => error,
                    _ => error,
                };
                let end = [", expected", ", there are"].map(|tail| error.find(tail));
                let error = &error[..end.into_iter().flatten().min().unwrap_or(error.len())];
                Err(Refusal::new(
                    StatusCode::BAD_REQUEST,
                    format!("query: {error}"),
                    T::EXPECTED.to_owned(),
                ))
            }
        }
    }
}

/// No parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

impl Expected for Nothing {
    const EXPECTED: &'static str = "no query parameters";
}

/// `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    #[serde(default)]
    limit: Limit,
}

impl Page {
    pub(crate) fn limit(&self) -> usize {
        self.limit.0
    }
}

impl Expected for Page {
    const EXPECTED: &'static str = "limit=N with N from 1 to 20000, or nothing";
}

/// `leaf` or `node`, and `limit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Neighborhood {
    pub(crate) leaf: Option<String>,
    pub(crate) node: Option<String>,
    #[serde(default)]
    limit: Limit,
}

impl Neighborhood {
    pub(crate) fn limit(&self) -> usize {
        self.limit.0
    }
}

impl Expected for Neighborhood {
    const EXPECTED: &'static str = "leaf=SWITCH or node=NODE, and limit=N with N from 1 to 20000";
}

/// Most items of a list that a response may hold.
#[derive(Debug)]
pub(crate) struct Limit(usize);

impl Limit {
    /// The number.
    pub(crate) fn get(&self) -> usize {
        self.0
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(DEFAULT_LIMIT)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let limit = text
            .parse()
            .ok()
            .filter(|limit| (1..=MAX_LIMIT).contains(limit));
        limit.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "limit {text:?} is not a number from 1 to {MAX_LIMIT}"
            ))
        })
    }
}
