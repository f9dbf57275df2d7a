//! A small fake of the query API of Prometheus, and what a read-back of it leads to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use railscope_model::fabric::Timestamp;
use serde_json::json;

use super::super::{ReadBack, ReadBackError, Request, Store, read_back};
use crate::config::Config;
use crate::replay::pack::Pack;

const START: u64 = 1_764_000_000_000;

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp(START + millis)
}

/// A series: name, labels, and samples by milliseconds from the start.
pub(super) struct Stored {
    name: &'static str,
    labels: Vec<(&'static str, &'static str)>,
    pub(super) samples: Vec<(u64, &'static str)>,
}

pub(super) fn stored(
    name: &'static str,
    labels: &[(&'static str, &'static str)],
    samples: impl IntoIterator<Item = (u64, &'static str)>,
) -> Stored {
    Stored {
        name,
        labels: labels.to_vec(),
        samples: samples.into_iter().collect(),
    }
}

/// A sample every ten seconds.
pub(super) fn regular(
    seconds: u64,
    value: &'static str,
) -> impl Iterator<Item = (u64, &'static str)> {
    (0..=seconds / 10).map(move |index| (index * 10_000, value))
}

/// What the server refuses: path and milliseconds of the range.
pub(super) type Refuses = fn(&str, u64) -> Option<(StatusCode, &'static str)>;

/// A server with the semantics of Prometheus 2: ranges have both of their ends.
struct Fake {
    series: Vec<Stored>,
    refuses: Refuses,
    /// Paths and queries, and the headers that log in.
    requests: Mutex<Vec<(String, String)>>,
}

impl Stored {
    fn metric(&self) -> BTreeMap<&str, &str> {
        let labels = self.labels.iter().copied();
        labels.chain([("__name__", self.name)]).collect()
    }

    fn fits(&self, selector: &str) -> bool {
        let (name, matchers) = selector.split_once('{').unwrap_or((selector, ""));
        let mut matchers = matchers
            .trim_end_matches('}')
            .split(',')
            .filter(|one| !one.is_empty());
        let has = |matcher: &str| {
            let (label, value) = matcher.split_once('=').expect("a matcher");
            let of_it = self.labels.iter().find(|(name, _)| *name == label);
            of_it.map_or("", |(_, value)| value) == value.trim_matches('"')
        };
        (name.is_empty() || name == self.name) && matchers.all(has)
    }
}

async fn answer(State(fake): State<Arc<Fake>>, request: HttpRequest) -> Response {
    let url = reqwest::Url::parse(&format!("http://fake{}", request.uri())).expect("a URL");
    let login = ["authorization", "x-scope-orgid"].map(|name| {
        let value = request.headers().get(name);
        value.map_or("", |value| value.to_str().expect("text"))
    });
    let path = url.path().to_owned();
    fake.requests
        .lock()
        .expect("unpoisoned")
        .push((path.clone(), login.join("|")));
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let one = |name: &str| {
        let pair = pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let query = one("query");
    let (selector, range) = query.split_once('[').unwrap_or_default();
    let range: u64 = range.trim_end_matches("ms]").parse().unwrap_or(0);
    if let Some((status, body)) = (fake.refuses)(&path, range) {
        return (status, body).into_response();
    }
    let any = |series: &&Stored| {
        let mut selectors = pairs.iter().filter(|(key, _)| key == "match[]");
        selectors.any(|(_, selector)| series.fits(selector))
    };
    let data = match &*path {
        "/api/v1/series" => fake
            .series
            .iter()
            .filter(any)
            .map(|one| json!(one.metric()))
            .collect(),
        "/api/v1/label/__name__/values" => fake
            .series
            .iter()
            .filter(any)
            .map(|one| json!(one.name))
            .collect(),
        _ => {
            let until = (one("time").parse::<f64>().expect("a time") * 1e3).round() as u64 - START;
            let span = until.saturating_sub(range)..=until;
            let fits = fake.series.iter().filter(|series| series.fits(selector));
            let result: Vec<_> = fits
                .map(|series| {
                    let samples = series.samples.iter().filter(|(at, _)| span.contains(at));
                    let values =
                        samples.map(|(millis, value)| json!([at(*millis).as_seconds(), value]));
                    json!({"metric": series.metric(), "values": values.collect::<Vec<_>>()})
                })
                .filter(|series| series["values"] != json!([]))
                .collect();
            json!({"resultType": "matrix", "result": result})
        }
    };
    axum::Json(json!({"status": "success", "data": data})).into_response()
}

/// What a read-back of a fake led to: the result, and the lines of the pack.
pub(super) struct Outcome {
    pub(super) result: Result<ReadBack, ReadBackError>,
    /// Milliseconds, instance, and the exposition or the error.
    pub(super) lines: Vec<(u64, String, Result<String, String>)>,
    pub(super) requests: Vec<(String, String)>,
    _folder: tempfile::TempDir,
}

pub(super) fn serve(series: Vec<Stored>, refuses: Refuses, config: &str, seconds: u64) -> Outcome {
    let fake = Arc::new(Fake {
        series,
        refuses,
        requests: Mutex::default(),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config::parse(config, &folder.path().join("collector.toml")).expect("valid");
    let pack = folder.path().join("pack");
    std::fs::create_dir(&pack).expect("a folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime.expect("a runtime").block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&fake));
        let server = tokio::spawn(async { axum::serve(listener, router).await });
        let headers = [String::from("X-Scope-OrgID: team")];
        let request = Request {
            store: Store::new(&url, Some("a-token"), &headers).expect("valid"),
            span: (at(0), at(seconds * 1_000)),
            jobs: Vec::new(),
        };
        let result = read_back(&request, &config, &pack, |_| {}).await;
        server.abort();
        result
    });
    let lines = match &result {
        Err(_) => Vec::new(),
        Ok(_) => {
            let pack = Pack::open(&pack).expect("a pack");
            let lines = pack
                .scrapes()
                .expect("scrapes")
                .map(|line| line.expect("valid").1);
            let lines = lines.map(|line| (line.at.0 - START, line.origin.instance, line.answer));
            lines.collect()
        }
    };
    let requests = std::mem::take(&mut *fake.requests.lock().expect("unpoisoned"));
    Outcome {
        result,
        lines,
        requests,
        _folder: folder,
    }
}

pub(super) fn never(_: &str, _: u64) -> Option<(StatusCode, &'static str)> {
    None
}
