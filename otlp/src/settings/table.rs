//! The table `[otlp]` as it is written in a configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// `[otlp]`. Its options hold for all signals that do not have their own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// The receiver: `http://HOST:4318`, or `http://HOST:4317` for gRPC. By HTTP, `/v1/metrics` and the like are added.
    pub endpoint: Option<String>,
    /// `http/protobuf` (default) or `grpc`.
    pub protocol: Option<String>,
    /// Headers of each request.
    pub headers: Option<BTreeMap<String, String>>,
    /// Time for one request, such as `"10s"` (default).
    pub timeout: Option<String>,
    /// `gzip` or `none` (default).
    pub compression: Option<String>,
    /// Certificates (PEM) to trust in place of the system's.
    pub certificate: Option<PathBuf>,
    /// Certificate (PEM) that the client presents.
    pub client_certificate: Option<PathBuf>,
    /// Its key (PEM).
    pub client_key: Option<PathBuf>,
    /// Time between two exports of metrics, such as `"60s"` (default).
    pub interval: Option<String>,
    /// `service.name`, in place of the program's.
    pub service_name: Option<String>,
    /// More attributes of the resource.
    pub resource_attributes: BTreeMap<String, String>,
    /// Options of metrics.
    pub metrics: SignalTable,
    /// Options of incident events.
    pub logs: SignalTable,
    /// Options of traces.
    pub traces: SignalTable,
}

/// `[otlp.metrics]`, `[otlp.logs]` or `[otlp.traces]`: options of one signal.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignalTable {
    /// Whether the signal is sent; true unless set.
    pub enabled: Option<bool>,
    /// The receiver; by HTTP, the full URL.
    pub endpoint: Option<String>,
    /// As in [`Table`].
    pub protocol: Option<String>,
    /// As in [`Table`]; replaces all of its headers.
    pub headers: Option<BTreeMap<String, String>>,
    /// As in [`Table`].
    pub timeout: Option<String>,
    /// As in [`Table`].
    pub compression: Option<String>,
    /// As in [`Table`].
    pub certificate: Option<PathBuf>,
    /// As in [`Table`].
    pub client_certificate: Option<PathBuf>,
    /// As in [`Table`].
    pub client_key: Option<PathBuf>,
}

impl Table {
    /// Its options for all signals, in the form of those for one.
    pub(super) fn general(&self) -> SignalTable {
        SignalTable {
            enabled: None,
            endpoint: self.endpoint.clone(),
            protocol: self.protocol.clone(),
            headers: self.headers.clone(),
            timeout: self.timeout.clone(),
            compression: self.compression.clone(),
            certificate: self.certificate.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
        }
    }
}
