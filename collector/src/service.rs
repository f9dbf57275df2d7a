//! The collector as a running service: scrapers, subnet, analysis and server, until it is stopped.

pub(crate) mod analysis;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;
use railscope_otlp::Otlp;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::clock;
use crate::config::{Config, Target};
use crate::fabric::Told;
use crate::fabric::subnet::Subnet;
use crate::fabric::subnet::counters::DeviceReading;
use crate::mapping::Translation;
use crate::record::{self, Recorder};
use crate::serve::clients::{self, Limits};
use crate::serve::otlp::IncidentEvents;
use crate::serve::{metrics, router};
use crate::service::analysis::Analysis;
use crate::sources::collectives::watch;
use crate::sources::collectives::watch::Found;
use crate::sources::push;
use crate::sources::scrape::{Bells, Held, Scraper, Scrapers};
use crate::sources::subnet;
use crate::sources::switch_lldp;
use crate::sources::targets::{LOOK_INTERVAL, TargetList};
use crate::status::State;
use crate::store::source_id::Speaker;

/// Scrapes that may wait for the analysis. When it falls behind, scrapers wait too, and nothing piles
/// up.
const WAITING_EVENTS: usize = 128;
/// How long a shutdown waits for requests in flight. Idle connections are closed at once.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Why the collector stopped without a request.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The HTTP client cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The wiring plan cannot be read.
    #[error(transparent)]
    Plan(#[from] crate::config::ConfigError),
    /// One of its tasks ended: a bug in Railscope.
    #[error("the {0} task ended; this is a bug in Railscope")]
    Task(&'static str),
}

/// What the analysis ingests.
#[derive(Debug)]
pub(crate) enum Event {
    /// The targets that are scraped.
    Targets(Vec<Target>),
    /// The targets whose samples are pushed.
    PushedTargets(Vec<Target>),
    /// A scrape of Railscope's exporter.
    Page {
        target: Arc<Target>,
        page: String,
        at: Timestamp,
        /// Its byte reservation, released after ingestion.
        held: Option<Held>,
    },
    /// What a scrape of another exporter reports.
    Foreign {
        target: Arc<Target>,
        speaker: Speaker,
        translation: Translation,
        at: Timestamp,
        /// Its byte reservation, released after ingestion.
        held: Option<Held>,
    },
    /// What a switch reports about its neighbors, or why it could not be read.
    Neighbors {
        switch: SwitchName,
        told: Result<Told, String>,
        at: Timestamp,
    },
    /// A sweep of the subnet.
    Subnet {
        subnet: Box<Subnet>,
        /// State and counters of ports, where the source has them.
        readings: Vec<DeviceReading>,
        at: Timestamp,
    },
    /// What jobs wrote of their collectives.
    Collectives { found: Found, at: Timestamp },
    /// Start an analysis, due at this time.
    Tick(Instant),
}

/// What a program that runs the collector serves beside it, on the same address.
#[derive(Debug, Default)]
pub struct Beside {
    /// Its routes: other ones than the collector's.
    pub routes: axum::Router,
    /// Text in the header of the web page, and its path without a leading slash; none for no
    /// link.
    pub link: Option<(&'static str, &'static str)>,
    /// Where metrics and incidents are sent; flushed at the end.
    pub otlp: Option<Otlp>,
}

/// Runs the collector on a listener until `shutdown` is done.
///
/// # Errors
/// Why it stopped before.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    run_beside(config, listener, Beside::default(), shutdown).await
}

/// As [`run`], with more on the same address.
///
/// Requests in flight then get a short time to end; connections that a client keeps open do not delay it.
///
/// # Errors
/// Why it stopped before.
pub async fn run_beside(
    mut config: Config,
    listener: TcpListener,
    beside: Beside,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), RunError> {
    let plan = config.read_plan()?;
    let mut state = State::new(&config, clock::now);
    state.beside = beside.link;
    state.otlp = beside.otlp.as_ref().map(Otlp::stats_reader);
    let pushed = config.push.take().map(push::open);
    let pushed = pushed.map(|(intake, inbox)| {
        state.push = Some(intake);
        inbox
    });
    state.recorder = Recorder::open(&config, state.now()).map(Arc::new);
    let state = Arc::new(state);
    let mut otlp = beside.otlp;
    let incidents = otlp.as_ref().and_then(IncidentEvents::to);
    if let Some(otlp) = &mut otlp {
        let state = Arc::clone(&state);
        otlp.export_metrics(process_start(), move || metrics::text(&state));
    }
    let (events, inbox) = mpsc::channel(WAITING_EVENTS);
    let scraper = Scraper::new(config.scrape.clone())?;
    let limits = Limits::of(scraper.places_for_clients());
    let bells = Arc::new(Bells::default());
    let mut analysis = Analysis::new(&mut config, plan, incidents);
    let analysis = {
        let (state, bells) = (Arc::clone(&state), Arc::clone(&bells));
        tokio::task::spawn_blocking(move || follow(inbox, &mut analysis, &bells, &state))
    };
    let mut tasks = feed(config, (scraper, pushed), events, &state, bells);
    let (asked, was_asked) = oneshot::channel::<()>();
    let routes = router::router(Arc::clone(&state)).merge(beside.routes);
    let counts = Arc::clone(state.clients());
    let serving = clients::serve(listener, routes, limits, counts, async move {
        shutdown.await;
        drop(asked);
    });
    let grace_is_over = async {
        // Ends when the sender is dropped, which is the shutdown request.
        was_asked.await.ok();
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let result = tokio::select! {
        () = serving => Ok(()),
        () = grace_is_over => Ok(()),
        _ = analysis => Err(RunError::Task("analysis")),
        Some(ended) = tasks.join_next() => Err(RunError::Task(ended.unwrap_or("aborted"))),
    };
    // Scrapers and ticks end here; the analysis ends with the last of those that send to it.
    tasks.shutdown().await;
    if let Some(recorder) = state.recorder.clone() {
        let now = state.now();
        // A panic there is no reason to end differently.
        tokio::task::spawn_blocking(move || recorder.flush(now))
            .await
            .ok();
    }
    if let Some(otlp) = otlp {
        otlp.shutdown().await;
    }
    result
}

/// Starts all that feeds the analysis; when these tasks end, it does.
fn feed(
    config: Config,
    (scraper, pushed): (Scraper, Option<push::Inbox>),
    events: mpsc::Sender<Event>,
    state: &Arc<State>,
    bells: Arc<Bells>,
) -> JoinSet<&'static str> {
    let mut tasks = JoinSet::new();
    let mappings = config.mappings;
    let list = TargetList::new(config.targets, config.file_sd, mappings.clone());
    if let Some(pushed) = pushed {
        tasks.spawn(named(
            "remote write",
            push::follow(pushed, mappings.clone(), events.clone(), Arc::clone(state)),
        ));
    }
    let scrapers = Scrapers::new(scraper, events.clone(), Arc::clone(state), mappings, bells);
    tasks.spawn(named(
        "targets",
        follow_targets(list, scrapers, events.clone(), Arc::clone(state)),
    ));
    tasks.spawn(named(
        "tick",
        tick(config.analysis_interval, events.clone()),
    ));
    if let Some(subnet) = config.subnet {
        tasks.spawn(named(
            "subnet",
            subnet::follow(subnet, events.clone(), Arc::clone(state)),
        ));
    }
    if let Some(recorder) = state.recorder.clone() {
        tasks.spawn(named(
            "recording",
            record::follow(recorder, Arc::clone(state)),
        ));
    }
    tasks.spawn(named(
        "switches",
        switch_lldp::follow(config.switches, events.clone(), Arc::clone(state)),
    ));
    tasks.spawn(named(
        "collectives",
        watch::follow(config.collectives, events, Arc::clone(state)),
    ));
    tasks
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

/// Since when our counters count.
#[allow(clippy::disallowed_methods)] // the edge: counters begin with the process
fn process_start() -> SystemTime {
    SystemTime::now()
}

async fn tick(every: Duration, events: mpsc::Sender<Event>) {
    let mut due = interval(every);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let at = due.tick().await;
        clock::look();
        if events.send(Event::Tick(at)).await.is_err() {
            return;
        }
    }
}

/// Keeps scrapers, analysis and API at the newest list of targets.
async fn follow_targets(
    mut list: TargetList,
    mut scrapers: Scrapers,
    events: mpsc::Sender<Event>,
    state: Arc<State>,
) {
    let mut due = interval(LOOK_INTERVAL);
    list.expect(&state);
    let mut first = true;
    loop {
        due.tick().await;
        let looked = tokio::task::spawn_blocking(move || {
            let changed = list.look();
            (list, changed)
        });
        let Ok((seen, changed)) = looked.await else {
            return;
        };
        list = seen;
        state.set_file_problems(list.problems());
        list.record(&state);
        if !changed && !first {
            continue;
        }
        first = false;
        let targets = list.targets();
        state.set_targets(&targets, list.is_known());
        if let Some(recorder) = &state.recorder {
            recorder.set_targets(&targets, false, state.now());
        }
        // The analysis receives the targets before their first scrapes.
        if events.send(Event::Targets(targets.clone())).await.is_err() {
            return;
        }
        scrapers.set_targets(&targets);
        tracing::info!(targets = targets.len(), "targets");
    }
}

/// Analyses events until all senders have ended. Runs on a separate thread: a tick computes.
fn follow(mut inbox: mpsc::Receiver<Event>, analysis: &mut Analysis, bells: &Bells, state: &State) {
    analysis.restore(state);
    while let Some(event) = inbox.blocking_recv() {
        match event {
            Event::Tick(due) => {
                state.record_tick(due);
                analysis.tick(state.now(), state);
            }
            event => bells.ring(&analysis.take(event, state)),
        }
    }
}
