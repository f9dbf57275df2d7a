//! Serves HTTP to a bounded number of clients, so that slow ones do not delay the others or use up the open files.
//!
//! At the limit a new client replaces the one that has waited longest: for the rest of its first request, for another
//! request, or for its own reading of a response. Clients whose request is being answered are closed last.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tower_service::Service;

/// Pause after a failed accept: the usual reason is a lack of open files, which lasts a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum number of connections.
    pub(crate) connections: usize,
    /// Time for the complete head of the first request.
    pub(crate) first_request: Duration,
    /// Time until the head of the next request.
    pub(crate) idle: Duration,
}

impl Limits {
    /// The usual times.
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            connections,
            first_request: Duration::from_secs(10),
            // Longer than the usual scrape intervals and the export intervals of OTLP.
            idle: Duration::from_secs(300),
        }
    }
}

/// Number of clients, and of those that the server closed.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    open: AtomicUsize,
    timed_out: AtomicU64,
    replaced: AtomicU64,
}

impl Counts {
    /// Clients that are connected.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Closed clients by reason.
    pub(crate) fn closed(&self) -> [(&'static str, u64); 2] {
        let [timed_out, replaced] =
            [&self.timed_out, &self.replaced].map(|count| count.load(Ordering::Relaxed));
        [("timeout", timed_out), ("limit", replaced)]
    }
}

/// One connection.
#[derive(Debug)]
struct Client {
    limits: Limits,
    in_flight: AtomicUsize,
    has_asked: AtomicBool,
    /// Time of the connection, or of the last begin or end of a request.
    since: Mutex<Instant>,
    replaced: Notify,
}

impl Client {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            in_flight: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            since: Mutex::new(Instant::now()),
            replaced: Notify::new(),
        }
    }

    fn is_answered(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    fn since(&self) -> Instant {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Time until the client must have sent a request.
    fn time_left(&self) -> Duration {
        if self.is_answered() {
            return self.limits.idle;
        }
        let limit = match self.has_asked.load(Ordering::Relaxed) {
            true => self.limits.idle,
            false => self.limits.first_request,
        };
        limit.saturating_sub(self.since().elapsed())
    }
}

/// A request that is being answered.
struct InFlight(Arc<Client>);

impl InFlight {
    fn begin(client: &Arc<Client>) -> Self {
        client.has_asked.store(true, Ordering::Relaxed);
        client.in_flight.fetch_add(1, Ordering::Relaxed);
        client.touch();
        Self(Arc::clone(client))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.touch();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The routes, with a mark of the requests that are being answered.
#[derive(Clone)]
struct Tracked {
    routes: Router,
    client: Arc<Client>,
}

impl<R> Service<R> for Tracked
where
    Router: Service<R, Future: Send + 'static>,
{
    type Response = <Router as Service<R>>::Response;
    type Error = <Router as Service<R>>::Error;
    type Future = std::pin::Pin<
        Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send + 'static>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.routes.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let in_flight = InFlight::begin(&self.client);
        let answer = self.routes.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(in_flight);
            answer
        })
    }
}

/// All connections.
struct Clients {
    limits: Limits,
    places: Arc<Semaphore>,
    all: Mutex<Vec<Arc<Client>>>,
    counts: Arc<Counts>,
}

impl Clients {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection with its place. At the limit another client is closed for it.
    async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, OwnedSemaphorePermit)> {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    tracing::error!("cannot accept a client: {error}");
                    self.replace();
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        };
        if self.places.available_permits() == 0 {
            self.replace();
        }
        // The semaphore is never closed.
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some((stream, place))
    }

    /// Closes the client that has waited longest.
    fn replace(&self) {
        let mut all = self.all();
        let clients = all.iter().enumerate();
        let longest = clients.min_by_key(|(_, client)| (client.is_answered(), client.since()));
        if let Some((index, _)) = longest {
            all.swap_remove(index).replaced.notify_one();
            if self.counts.replaced.fetch_add(1, Ordering::Relaxed) == 0 {
                let most = self.limits.connections;
                tracing::warn!(most, "too many clients: those that wait longest are closed");
            }
        }
    }

    /// Serves one client until the connection ends, its time is over, or another client needs its place.
    async fn follow(&self, client: Arc<Client>, connection: impl Future) {
        let mut connection = pin!(connection);
        loop {
            let left = client.time_left();
            if left.is_zero() {
                self.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                break;
            }
            tokio::select! {
                _ = &mut connection => break,
                () = client.replaced.notified() => break,
                () = sleep(left) => {}
            }
        }
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        self.all().retain(|other| !Arc::ptr_eq(other, &client));
    }
}

/// Whether the client broke the connection before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Serves the routes until `shutdown` is done, then lets requests in flight end.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: Limits,
    counts: Arc<Counts>,
    shutdown: impl Future<Output = ()>,
) {
    let clients = Arc::new(Clients {
        limits,
        places: Arc::new(Semaphore::new(limits.connections)),
        all: Mutex::default(),
        counts,
    });
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            accepted = clients.accept(&listener) => match accepted {
                Some(accepted) => accepted,
                None => break,
            },
            () = &mut shutdown => break,
        };
        let client = Arc::new(Client::new(limits));
        let service = TowerToHyperService::new(Tracked {
            routes: routes.clone(),
            client: Arc::clone(&client),
        });
        let builder = Builder::new(TokioExecutor::new());
        let connection = builder
            .serve_connection_with_upgrades(TokioIo::new(stream), service)
            .into_owned();
        let connection = graceful.watch(connection);
        // Before the next accept, which may replace it.
        clients.all().push(Arc::clone(&client));
        clients.counts.open.fetch_add(1, Ordering::Relaxed);
        let clients = Arc::clone(&clients);
        tokio::spawn(async move {
            clients.follow(client, connection).await;
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

#[cfg(test)]
mod tests;
