//! Sends Railscope's metrics, incident events and traces to an OTLP receiver, by gRPC or HTTP with protobuf, and reads
//! the metrics of other senders.
//!
//! [`Settings`] come from the table `[otlp]` and the standard `OTEL_*` variables; without an endpoint nothing starts.
//! [`Otlp::start`] opens the pipelines, [`Otlp::stats`] counts what they sent and dropped.
//!
//! The SDK batches log records and spans; one transport of this crate sends all three signals. `opentelemetry-otlp` is
//! not used: it reads the process environment by itself, rejects the standard value
//! `OTEL_EXPORTER_OTLP_COMPRESSION=none`, and does not report partial success, so rejected items could not be counted.

mod convert;
mod delivery;
mod incidents;
mod log_ids;
mod metrics;
mod names;
mod pipeline;
mod queue;
pub mod receive;
mod resource;
mod settings;
mod stats;
mod wire;

pub use convert::{Converted, Converter};
pub use incidents::{
    EventKind, Incident, IncidentEvent, IncidentLog, OpenIncidents, POSTERIOR_STEP, Severity,
};
pub use log_ids::WithTraceIds;
pub use names::{
    Component, Instrument, MAPPED, Mapping, OtlpName, Renamed, names_table, otlp_name,
};
pub use pipeline::{Otlp, StartError, StatsReader};
pub use resource::Service;
pub use settings::{Protocol, Settings, SettingsError, SignalTable, Table, Target};
pub use stats::{Signal, SignalStats, Stats};
pub use wire::WireError;
