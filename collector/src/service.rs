//! The collector as a running service: scrapers, subnet, analysis and server, until it is told to stop.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use railscope_model::fabric::Timestamp;
use railscope_model::identity::SwitchName;
use railscope_otlp::Otlp;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::field::Empty;

use crate::analyzer::Analyzer;
use crate::config::{Config, SwitchSource, Target};
use crate::fabric::Told;
use crate::fabric::addresses::Addresses;
use crate::fabric::subnet::Subnet;
use crate::fabric::subnet::counters::DeviceReading;
use crate::maintenance::Announced;
use crate::mapping::Translation;
use crate::persist::Past;
use crate::serve::otlp::IncidentEvents;
use crate::serve::{metrics, router};
use crate::sources::collectives::watch;
use crate::sources::collectives::watch::Found;
use crate::sources::push;
use crate::sources::scrape::{Bells, Scraper, Scrapers};
use crate::sources::subnet;
use crate::sources::switch_lldp;
use crate::sources::targets::{KnownTargets, LOOK_INTERVAL, TargetList, own_on_switch};
use crate::status::{ScrapeResult, Snapshot, State};
use crate::store::Ingested;
use crate::store::source_id::{Speaker, Subject};

/// Pages that may wait for the analysis. When it falls behind, scrapers wait too, and nothing piles up.
const WAITING_EVENTS: usize = 128;
/// How long a shutdown waits for requests in flight. Idle connections are closed at once.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Why the collector stopped although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The HTTP client cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The wiring plan cannot be read.
    #[error(transparent)]
    Plan(#[from] crate::config::ConfigError),
    /// The server failed.
    #[error("server: {0}")]
    Server(#[from] io::Error),
    /// One of its own tasks ended: a defect of Railscope.
    #[error("the {0} task ended; this is a defect of Railscope")]
    Task(&'static str),
}

/// What the analysis takes up.
#[derive(Debug)]
pub(crate) enum Event {
    /// The targets that are scraped.
    Targets(Vec<Target>),
    /// The targets whose samples are pushed.
    PushedTargets(Vec<Target>),
    /// A page of Railscope's own exporter.
    Page {
        target: Arc<Target>,
        page: String,
        at: Timestamp,
    },
    /// What a page of another exporter says.
    Foreign {
        target: Arc<Target>,
        speaker: Speaker,
        translation: Translation,
        at: Timestamp,
    },
    /// What a switch tells of its neighbours, or why it could not be read.
    Neighbours {
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
    /// Time to judge.
    Tick,
}

/// What a program that runs the collector serves beside it, on the same address.
#[derive(Debug, Default)]
pub struct Beside {
    /// Its routes: other ones than the collector's.
    pub routes: axum::Router,
    /// What the page's head calls it, and its path without a slash in front; none for no link.
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

/// Who has which address, as the configuration says.
fn addresses(switches: &[SwitchSource]) -> Addresses {
    let of = |switch: &SwitchSource| {
        let name = switch.name.clone();
        let all = switch.addresses.clone().into_iter();
        all.map(move |(address, port)| (address, (name.clone(), port)))
    };
    switches.iter().flat_map(of).collect()
}

/// As [`run`], with more on the same address.
///
/// Requests in flight then get a moment to end; connections that a client keeps open do not hold it up.
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
    let mut state = State::new(&config, system_time);
    state.beside = beside.link;
    state.otlp = beside.otlp.as_ref().map(Otlp::stats_reader);
    let pushed = config.push.take().map(push::open);
    let pushed = pushed.map(|(intake, inbox)| {
        state.push = Some(intake);
        inbox
    });
    let state = Arc::new(state);
    let mut otlp = beside.otlp;
    let incidents = otlp.as_ref().and_then(IncidentEvents::to);
    if let Some(otlp) = &mut otlp {
        let state = Arc::clone(&state);
        otlp.export_metrics(process_start(), move || metrics::text(&state));
    }
    let (events, inbox) = mpsc::channel(WAITING_EVENTS);
    let scraper = Scraper::new(config.scrape.clone())?;
    let bells = Arc::new(Bells::default());
    let analysis = {
        let (state, bells) = (Arc::clone(&state), Arc::clone(&bells));
        let switches: Vec<_> = config.switches.iter().map(|one| one.name.clone()).collect();
        let mut analyzer = Analyzer::default();
        analyzer.set_switches(&switches);
        analyzer.set_plan(plan);
        analyzer.set_addresses(addresses(&config.switches));
        let past = Past::of(config.state_dir.clone());
        let windows = std::mem::take(&mut config.maintenance);
        let announced = Announced::new(windows, config.maintenance_file.take());
        tokio::task::spawn_blocking(move || {
            analyse(
                inbox,
                analyzer,
                past,
                (announced, incidents),
                &bells,
                &state,
            );
        })
    };
    let mut tasks = feed(config, (scraper, pushed), events, &state, bells);
    let (asked, was_asked) = oneshot::channel::<()>();
    let routes = router::router(state).merge(beside.routes);
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async move {
        shutdown.await;
        drop(asked);
    });
    let grace_is_over = async {
        // Ends when the sender is dropped, which is what "asked" means.
        was_asked.await.ok();
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let result = tokio::select! {
        served = serving => served.map_err(RunError::Server),
        () = grace_is_over => Ok(()),
        _ = analysis => Err(RunError::Task("analysis")),
        Some(ended) = tasks.join_next() => Err(RunError::Task(ended.unwrap_or("aborted"))),
    };
    // Scrapers and ticks end here; the analysis ends with the last of those that send to it.
    tasks.shutdown().await;
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

/// The one place where the collector reads the clock.
#[allow(clippy::disallowed_methods)] // the edge: everything below takes the time as an argument
fn system_time() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Since when our counters count.
#[allow(clippy::disallowed_methods)] // the edge, as above
fn process_start() -> SystemTime {
    SystemTime::now()
}

async fn tick(every: Duration, events: mpsc::Sender<Event>) {
    let mut due = interval(every);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        if events.send(Event::Tick).await.is_err() {
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
        if !changed && !first {
            continue;
        }
        first = false;
        let targets = list.targets();
        state.set_targets(&targets, list.is_known());
        // The analysis hears of a node before its first page arrives.
        if events.send(Event::Targets(targets.clone())).await.is_err() {
            return;
        }
        scrapers.set_targets(&targets);
        tracing::info!(targets = targets.len(), "targets");
    }
}

/// Counts a page that cannot be taken up, and says why if that is new.
fn refuse(state: &State, target: &Target, why: &str) {
    if state.record_scrape(target, ScrapeResult::Malformed, None, Some(why.to_owned())) {
        tracing::warn!(target = target.name(), "{why}");
    }
}

/// Takes up events until nobody can send any more. Runs on a thread of its own: a tick computes.
fn analyse(
    mut inbox: mpsc::Receiver<Event>,
    mut analyzer: Analyzer,
    mut past: Past,
    (mut announced, mut incidents): (Announced, Option<IncidentEvents>),
    bells: &Bells,
    state: &State,
) {
    past.restore(&mut analyzer);
    past.restore_incidents(&mut analyzer, state);
    let mut targets = KnownTargets::default();
    while let Some(event) = inbox.blocking_recv() {
        match event {
            Event::Targets(new) => analyzer.set_targets(&targets.replace(new, false)),
            Event::PushedTargets(new) => analyzer.set_targets(&targets.replace(new, true)),
            // A page of what is no target any more came too late.
            Event::Page { target, .. } | Event::Foreign { target, .. }
                if !targets.holds(&target) => {}
            Event::Page { target, page, at } => match &target.about {
                Some(Subject::Node(node)) => {
                    if let Some(why) = targets.refusal(node, &target, at) {
                        refuse(state, &target, &why);
                        continue;
                    }
                    let ingested = analyzer.ingest(node, &page, at);
                    if ingested.kept > 0 {
                        targets.taken(node, &target, at);
                    }
                    bells.ring(&analyzer.second_look(node));
                    note(state, &target, &ingested, None, at);
                }
                Some(Subject::Switch(switch)) => refuse(state, &target, &own_on_switch(switch)),
                // The kind of such a target is told, and it is not ours.
                None => {}
            },
            Event::Foreign {
                target,
                speaker,
                translation,
                at,
            } => {
                let mut ingested = translation.counts;
                for (subject, reading) in &translation.readings {
                    let from_afar = target.about.is_none();
                    let taken = analyzer.ingest_from(&speaker, subject, reading, at, from_afar);
                    ingested.kept += taken.kept;
                    ingested.unread += taken.unread;
                    ingested.late += taken.late;
                    ingested.overruled += taken.overruled;
                    ingested.over_limit += taken.over_limit;
                    if let Subject::Node(node) = subject {
                        bells.ring(&analyzer.second_look(node));
                    }
                }
                note(state, &target, &ingested, translation.unfit, at);
            }
            Event::Subnet {
                subnet,
                readings,
                at,
            } => {
                analyzer.take_subnet(*subnet, at);
                analyzer.take_readings(readings, at);
            }
            Event::Collectives { found, at } => {
                analyzer.take_collectives(found.operations, found.stuck, at);
            }
            Event::Neighbours { switch, told, at } => analyzer.take_switch(&switch, told, at),
            Event::Tick => {
                analyzer.set_maintenance(announced.windows(state));
                judge(&mut analyzer, &mut past, incidents.as_mut(), state);
            }
        }
    }
}

/// One cycle of the analysis: what it finds is kept, sent and published.
fn judge(
    analyzer: &mut Analyzer,
    past: &mut Past,
    incidents: Option<&mut IncidentEvents>,
    state: &State,
) {
    let begun = Instant::now();
    let span = tracing::info_span!("tick", late_targets = Empty, incidents = Empty);
    let _within = span.enter();
    let mut snapshot = Snapshot::new(analyzer.tick(state.now()));
    log_suspension(state.snapshot().as_deref(), &snapshot);
    snapshot.tick_seconds = begun.elapsed().as_secs_f64();
    past.keep(&snapshot.view);
    past.keep_incidents(&snapshot.view, state);
    span.record("late_targets", snapshot.view.observation.late_targets);
    span.record("incidents", snapshot.view.incidents.len());
    if let Some(incidents) = incidents {
        incidents.follow(&snapshot.view, state);
    }
    state.publish(snapshot);
}

/// Logs when the opening of incidents is suspended, and when that ends.
fn log_suspension(before: Option<&Snapshot>, now: &Snapshot) {
    let suspension = |snapshot: &Snapshot| snapshot.view.observation.suspension;
    match (before.and_then(suspension), suspension(now)) {
        (None, Some(new)) => tracing::warn!(
            cause = new.late.as_str(),
            late_targets = now.view.observation.late_targets,
            "observation is late: no new incident opens until two intervals are complete"
        ),
        (Some(old), None) => tracing::info!(
            seconds = now.view.now.seconds_since(old.since),
            "observation is complete again: incidents open"
        ),
        _ => {}
    }
}

/// Counts what became of a page, and logs bad lines when they begin.
fn note(state: &State, target: &Target, ingested: &Ingested, unfit: Option<String>, at: Timestamp) {
    state.record_samples(ingested);
    let kept = ingested.kept + ingested.unread + ingested.late;
    let understood = kept + ingested.overruled + ingested.over_limit;
    let samples = understood + ingested.unknown + ingested.unfit;
    let problem = match ingested.errors.first() {
        Some(error) => Some(format!(
            "{} lines cannot be read, the first at {error}",
            ingested.errors.len()
        )),
        None if samples == 0 => Some(String::from("the page holds no samples")),
        None if understood == 0 => Some(format!(
            "none of the page's {samples} samples is known: is it another exporter (kind)?"
        )),
        None => None,
    };
    let result = if problem.is_some() {
        ScrapeResult::Malformed
    } else {
        ScrapeResult::Ok
    };
    // Worth a look, but the page itself is sound.
    let problem = problem.or_else(|| {
        let why = unfit?;
        Some(format!(
            "{} samples do not fit their mapping, the first: {why}",
            ingested.unfit
        ))
    });
    let said = problem.clone().unwrap_or_default();
    let taken_up = (samples > 0).then_some(at);
    if state.record_scrape(target, result, taken_up, problem) && result != ScrapeResult::Ok {
        tracing::warn!(target = target.name(), "{said}");
    }
    if ingested.over_limit > 0 {
        tracing::debug!(
            target = target.name(),
            samples = ingested.over_limit,
            "samples beyond the limit of a node"
        );
    }
}
