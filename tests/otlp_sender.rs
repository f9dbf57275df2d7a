//! Sends the expositions of a demo's nodes by OTLP, as an agent on each node would.

#![allow(clippy::disallowed_methods)] // the clock of a real sender

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::http::uri::PathAndQuery;
use railscope_otlp::Converter;
use railscope_otlp::receive::BytesCodec;
use serde_json::Value;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};

use crate::support::Http;

const EVERY: Duration = Duration::from_secs(2);
const EXPORT: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum By {
    Http,
    Grpc,
}

/// A thread that sends until it is dropped.
pub(crate) struct Sender {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Scrapes the nodes of the demo at `from` and sends their expositions to the collector at `to`.
pub(crate) fn start(by: By, from: &str, to: &str, token: &'static str) -> Sender {
    let stops = Arc::new(AtomicBool::new(false));
    let (from, to, ended) = (from.to_owned(), to.to_owned(), Arc::clone(&stops));
    let thread = std::thread::spawn(move || {
        let http = Http::new();
        let mut converters = BTreeMap::new();
        while !ended.load(Ordering::Relaxed) {
            for (node, text) in expositions(&http, &from) {
                let at = SystemTime::now();
                let converter = converters
                    .entry(node.clone())
                    .or_insert_with(|| Converter::new(at));
                let resource = [
                    ("service.name", "railscope-exporter"),
                    ("host.name", &*node),
                ];
                let resource = resource.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let body = Bytes::from(converter.convert(&text, at).request(&resource));
                let sent = http.block_on(async {
                    match by {
                        By::Http => post(&to, token, body).await,
                        By::Grpc => call(&to, token, body).await,
                    }
                });
                if let Err(error) = sent {
                    println!("{by:?}: {error}");
                }
            }
            std::thread::sleep(EVERY);
        }
    });
    Sender {
        stops,
        thread: Some(thread),
    }
}

/// Names and expositions of all nodes.
fn expositions(http: &Http, demo: &str) -> Vec<(String, String)> {
    let Ok(Value::Array(groups)) = http.json(&format!("{demo}/api/v1/sd")) else {
        return Vec::new();
    };
    let exposition = |group: &Value| {
        let path = group["labels"]["__metrics_path__"].as_str()?;
        let url = format!(
            "http://{}{path}?profile=full",
            group["targets"][0].as_str()?
        );
        let node = group["labels"]["node"].as_str()?.to_owned();
        Some((node, http.get(&url).ok()?))
    };
    groups.iter().filter_map(exposition).collect()
}

async fn post(to: &str, token: &str, body: Bytes) -> Result<(), String> {
    let client = reqwest::Client::builder().no_proxy().build();
    let request = client
        .map_err(|error| error.to_string())?
        .post(format!("{to}/v1/metrics"));
    let request = request
        .bearer_auth(token)
        .header("content-type", "application/x-protobuf");
    let answer = request
        .body(body)
        .send()
        .await
        .map_err(|error| error.to_string())?;
    let (status, message) = (answer.status(), answer.bytes().await);
    let message = message.map_err(|error| error.to_string())?;
    // An empty message rejects nothing.
    if status == 200 && message.is_empty() {
        return Ok(());
    }
    Err(format!("{status}: {message:?}"))
}

async fn call(to: &str, token: &str, body: Bytes) -> Result<(), String> {
    let endpoint = Endpoint::from_shared(to.to_owned()).map_err(|error| error.to_string())?;
    let channel: Channel = endpoint
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let mut client = Grpc::new(channel).send_compressed(CompressionEncoding::Gzip);
    client.ready().await.map_err(|error| error.to_string())?;
    let mut request = tonic::Request::new(body);
    let bearer = format!("Bearer {token}").parse().expect("a header");
    request.metadata_mut().insert("authorization", bearer);
    let path = PathAndQuery::from_static(EXPORT);
    let answer = client.unary(request, path, BytesCodec).await;
    let message = answer.map_err(|status| status.to_string())?.into_inner();
    if message.is_empty() {
        return Ok(());
    }
    Err(format!("{message:?}"))
}
