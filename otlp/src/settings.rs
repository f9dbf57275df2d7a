//! Settings: the table `[otlp]` and the standard `OTEL_*` variables, checked.
//!
//! The order for each option is: signal variable, general variable, key of the signal's table, key of `[otlp]`.
//! Variables win, because an operator or a sidecar injector sets them for one process, while the file is shared by all
//! nodes.

mod table;
mod values;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::header::{HeaderName, HeaderValue};

use crate::stats::Signal;
pub use table::{SignalTable, Table};
use values::{Given, Origin, Reader};

/// Time for one request, from the OTLP exporter specification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two exports of metrics, from the SDK specification.
const INTERVAL: Duration = Duration::from_secs(60);

/// A value that cannot be used. Values of headers are not shown: they hold credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {origin}: expected {expected}, found {found}")]
pub struct SettingsError {
    /// The variable, or the key in the file.
    pub origin: String,
    /// What is valid.
    pub expected: &'static str,
    /// The value, in quotes.
    pub found: String,
}

/// How requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `grpc`: gRPC over HTTP/2.
    Grpc,
    /// `http/protobuf`: protobuf in the body of a POST.
    Http,
}

/// Where and how one signal is sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL of requests; by gRPC, scheme and authority only.
    pub endpoint: Uri,
    /// How requests are sent.
    pub protocol: Protocol,
    /// Headers of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Time for one request, its connection included.
    pub timeout: Duration,
    /// Whether requests are compressed.
    pub gzip: bool,
    /// Certificates (PEM) to trust in place of the system's.
    pub certificate: Option<PathBuf>,
    /// Certificate and key (PEM) that the client presents.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Target")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("headers", &names)
            .field("timeout", &self.timeout)
            .field("gzip", &self.gzip)
            .field("certificate", &self.certificate)
            .field("client", &self.client)
            .finish()
    }
}

/// Checked settings. A signal without a target is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Metric points.
    pub metrics: Option<Target>,
    /// Incident events.
    pub logs: Option<Target>,
    /// Spans.
    pub traces: Option<Target>,
    /// Time between two exports of metrics.
    pub interval: Duration,
    /// `service.name`, in place of the program's.
    pub service_name: Option<String>,
    /// More attributes of the resource.
    pub resource_attributes: BTreeMap<String, String>,
}

impl Settings {
    /// Settings that send nothing.
    pub fn off() -> Self {
        Self {
            metrics: None,
            logs: None,
            traces: None,
            interval: INTERVAL,
            service_name: None,
            resource_attributes: BTreeMap::new(),
        }
    }

    /// Whether any signal is sent.
    pub fn is_on(&self) -> bool {
        Signal::ALL
            .iter()
            .any(|signal| self.target(*signal).is_some())
    }

    /// The target of one signal.
    pub fn target(&self, signal: Signal) -> Option<&Target> {
        match signal {
            Signal::Metrics => self.metrics.as_ref(),
            Signal::Logs => self.logs.as_ref(),
            Signal::Traces => self.traces.as_ref(),
        }
    }

    /// Checks the table and the variables, which `variable` looks up. An empty variable is an unset one, as the
    /// specification of OpenTelemetry requires.
    ///
    /// # Errors
    /// If a value cannot be used: see [`SettingsError`]. With `OTEL_SDK_DISABLED=true` nothing else is checked.
    pub fn resolve(
        table: &Table,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let reader = Reader { table, variable };
        if reader.disabled()? {
            return Ok(Self::off());
        }
        let interval = reader.interval()?.unwrap_or(INTERVAL);
        let mut resource_attributes = table.resource_attributes.clone();
        resource_attributes.extend(reader.resource_attributes()?);
        Ok(Self {
            metrics: target(&reader, Signal::Metrics)?,
            logs: target(&reader, Signal::Logs)?,
            traces: target(&reader, Signal::Traces)?,
            interval,
            service_name: reader
                .plain("OTEL_SERVICE_NAME")
                .or_else(|| table.service_name.clone()),
            resource_attributes,
        })
    }
}

fn target(reader: &Reader<'_>, signal: Signal) -> Result<Option<Target>, SettingsError> {
    if !reader.is_exported(signal)? {
        return Ok(None);
    }
    let protocol = reader.option(signal, "PROTOCOL", |table| table.protocol.clone());
    let protocol = protocol.map(|given| values::protocol(&given)).transpose()?;
    let protocol = protocol.unwrap_or(Protocol::Http);
    let Some(endpoint) = reader.option(signal, "ENDPOINT", |table| table.endpoint.clone()) else {
        return Ok(None);
    };
    let timeout = reader.option(signal, "TIMEOUT", |table| table.timeout.clone());
    let compression = reader.option(signal, "COMPRESSION", |table| table.compression.clone());
    let path = |suffix, of: fn(&SignalTable) -> &Option<PathBuf>| {
        let given = reader.option(signal, suffix, |table| {
            of(table)
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned())
        });
        given.map(|given| PathBuf::from(given.value))
    };
    let certificate = path("CERTIFICATE", |table| &table.certificate);
    let client_certificate = path("CLIENT_CERTIFICATE", |table| &table.client_certificate);
    let client_key = path("CLIENT_KEY", |table| &table.client_key);
    let client = match (client_certificate, client_key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(half_a_client(signal)),
    };
    Ok(Some(Target {
        endpoint: values::endpoint(&endpoint, protocol, signal)?,
        protocol,
        headers: reader.headers(signal)?,
        timeout: timeout
            .map(|given| values::duration(&given))
            .transpose()?
            .unwrap_or(TIMEOUT),
        gzip: compression
            .map(|given| values::compression(&given))
            .transpose()?
            .unwrap_or(false),
        certificate,
        client,
    }))
}

fn half_a_client(signal: Signal) -> SettingsError {
    SettingsError {
        origin: format!("the client certificate of {}", signal.as_str()),
        expected: "a certificate and its key (CLIENT_CERTIFICATE and CLIENT_KEY, or client_certificate and client_key)",
        found: "one of them".to_owned(),
    }
}

/// An error about a value.
fn unusable(given: &Given, expected: &'static str) -> SettingsError {
    SettingsError {
        origin: given.origin.to_string(),
        expected,
        found: format!("{:?}", given.value),
    }
}

/// An error about a value that must not be shown.
fn unusable_secret(origin: &Origin, expected: &'static str) -> SettingsError {
    SettingsError {
        origin: origin.to_string(),
        expected,
        found: "a value that is not shown, as it can hold credentials".to_owned(),
    }
}
