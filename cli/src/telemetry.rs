//! Log lines on standard error, and what is sent by OTLP beside them.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use railscope_otlp::{Otlp, Service, Settings, Table, WithTraceIds};
use tokio::runtime::Handle;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// Logs from here on what this filter selects, which has been checked.
pub(crate) fn log(filter: &str) {
    fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .init();
}

/// Logs from here on, and sends by OTLP what configuration and environment specify; none if that is
/// nothing. Log lines within a span that is sent begin with its ids.
pub(crate) fn start(
    filter: &str,
    table: &Table,
    (name, host): (&str, String),
    runtime: &Handle,
) -> anyhow::Result<Option<Otlp>> {
    let settings = Settings::resolve(table, &|name| std::env::var(name).ok())?;
    if !settings.is_on() {
        log(filter);
        return Ok(None);
    }
    let service = Service {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance: host.clone(),
        host,
    };
    let otlp = Otlp::start(&settings, &service, runtime).context("cannot send by OTLP")?;
    let lines = fmt::layer()
        .event_format(WithTraceIds(fmt::format()))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .with_filter(EnvFilter::new(filter));
    let spans = otlp.trace_layer();
    tracing_subscriber::registry()
        .with(spans)
        .with(lines)
        .init();
    Ok(Some(otlp))
}

/// This machine's name; empty if it has none that is valid text.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().unwrap_or_default().to_owned()
}
