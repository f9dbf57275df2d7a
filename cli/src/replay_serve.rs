//! Web page and API with the state at the end of a recording.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use railscope_collector::serve::router::router;
use railscope_collector::status::State;
use railscope_model::fabric::Timestamp;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// How long connections that clients keep open may delay the end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The time of the last analysis cycle in milliseconds: "now" of the web page, which is constant.
static END: AtomicU64 = AtomicU64::new(0);

fn end() -> Timestamp {
    Timestamp(END.load(Ordering::Relaxed))
}

/// A server that listens and does not respond yet.
#[derive(Debug)]
pub(super) struct Server {
    runtime: Runtime,
    listener: TcpListener,
}

impl Server {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address is invalid or in use.
    pub(super) fn bind(address: &str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let listener = runtime.block_on(crate::exporter::listen(address));
        let listener = listener.context("--serve")?;
        Ok(Self { runtime, listener })
    }

    /// Serves this state until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// The server fails.
    pub(super) fn run(self, mut state: Arc<State>) -> anyhow::Result<()> {
        let snapshot = state.snapshot();
        let snapshot = snapshot.context("--serve: the recording has no scrape in this time")?;
        END.store(snapshot.view.now.0, Ordering::Relaxed);
        drop(snapshot);
        let only = Arc::get_mut(&mut state);
        only.context("bug in Railscope: the replay has not ended")?
            .clock = end;
        let Self { runtime, listener } = self;
        let served = runtime.block_on(async {
            let at = listener.local_addr().context("cannot read the address")?;
            let mut interrupt =
                signal(SignalKind::interrupt()).context("cannot watch for Ctrl-C")?;
            let mut terminate =
                signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
            eprintln!("railscope: the state at the end is on http://{at}/ until Ctrl-C");
            let serving = axum::serve(listener, router(state)).into_future();
            tokio::select! {
                served = serving => served.context("the server failed"),
                _ = interrupt.recv() => Ok(()),
                _ = terminate.recv() => Ok(()),
            }
        });
        runtime.shutdown_timeout(SHUTDOWN_GRACE);
        served
    }
}
