//! `railscope replay`: the analysis of a recorded cluster, as fast as it goes.

#[path = "replay_pace.rs"]
mod pace;
#[path = "replay_progress.rs"]
mod progress;
#[path = "replay_read_back.rs"]
mod read_back;
#[path = "replay_serve.rs"]
mod serve;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use railscope_collector::replay::pack::Pack;
use railscope_collector::replay::{Replay, Replayed, Window};
use railscope_collector::status::State;
use railscope_model::fabric::Timestamp;
use railscope_otlp::{EventKind, Incident, IncidentEvent};
use serde::Serialize;

use pace::{Pace, Speed};
use progress::Progress;
use read_back::StoreArgs;
use serve::Server;

/// Analyze recordings of clusters again and print when each incident opened, changed and closed.
///
/// The analysis is that of the collector, with the configuration and the times of the recording (docs/recording.md).
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Folders with one recording each.
    #[arg(required_unless_present = "prometheus", conflicts_with = "prometheus")]
    packs: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object per line for each change.
    #[arg(long)]
    json: bool,
    /// Omit scrapes before this time, in seconds of Unix time.
    #[arg(long)]
    from: Option<f64>,
    /// Omit scrapes after this time, in seconds of Unix time.
    #[arg(long)]
    to: Option<f64>,
    /// Print the changes at this multiple of real time, or at once: a number or `max`.
    #[arg(long, default_value = "max")]
    speed: Speed,
    /// Serve the web page and the API with the state at the end until Ctrl-C, on `host:port` or `:port`.
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<String>,
}

/// Replays all packs.
pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<()> {
    if args.serve.is_some() && args.packs.len() != 1 && !args.store.is_given() {
        bail!("--serve: {} recordings: expected one", args.packs.len());
    }
    // A replay takes long: an address that is in use is an error before it.
    let server = args.serve.as_deref().map(Server::bind).transpose()?;
    let window = Window {
        from: args.from.map(at),
        until: args.to.map(at),
    };
    let mut state = None;
    for folder in &args.packs {
        let name = folder.display().to_string();
        state = Some(replay(folder, &name, window, args)?);
    }
    if let Some((recording, summary)) = args.store.read((window.from, window.until))? {
        if args.json {
            eprint!("{summary}");
        } else {
            write!(io::stdout(), "{summary}")?;
        }
        // It has nothing outside of the window, and the last cycle is after the last scrape.
        state = Some(replay(
            recording.folder(),
            "replay",
            Window::default(),
            args,
        )?);
    }
    match (server, state) {
        (Some(server), Some(state)) => server.run(state),
        _ => Ok(()),
    }
}

fn at(seconds: f64) -> Timestamp {
    Timestamp((seconds.max(0.0) * 1e3) as u64)
}

/// Replays a pack, which is called `name`, and returns the state at its end.
fn replay(
    folder: &Path,
    name: &str,
    window: Window,
    args: &ReplayArgs,
) -> anyhow::Result<Arc<State>> {
    let mut out = io::stdout().lock();
    let mut pack = Pack::open(folder)?;
    let mut replay = Replay::open(&mut pack)?;
    let state = Arc::clone(replay.state());
    if !args.json {
        writeln!(
            out,
            "{name}: cluster {:?}, {} targets",
            pack.config.cluster,
            pack.targets.len()
        )?;
    }
    let print = if args.json { print_json } else { print };
    let pace = Pace::start(args.speed, &pack, window)?;
    let progress = Progress::start(folder, window, Arc::clone(&state));
    let mut failed = Ok(());
    let replayed = replay.run(&pack, window, |event| {
        pace.wait_until(event.at);
        if failed.is_ok() {
            failed = progress.hidden(|| print(&mut out, event));
        }
    });
    failed.context("cannot print")?;
    let replayed = replayed?;
    if let Some((_, last)) = replayed.span {
        pace.wait_until(time(last));
    }
    drop(progress);
    if !args.json {
        summary(&mut out, &replayed)?;
    }
    Ok(state)
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.0)
}

fn print_json(out: &mut impl Write, event: &IncidentEvent) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Wire::of(event))?;
    writeln!(out)
}

fn print(out: &mut impl Write, event: &IncidentEvent) -> io::Result<()> {
    let incident = &event.incident;
    writeln!(
        out,
        "{:.1}  {:<7} {:<8} {:<18} {}  {:.0} %  {}",
        seconds(event.at),
        verb(event.kind),
        incident.severity.as_str(),
        incident.class,
        incident.component,
        incident.posterior * 100.0,
        incident.summary
    )
}

fn summary(out: &mut impl Write, replayed: &Replayed) -> io::Result<()> {
    let span = replayed
        .span
        .map_or(0.0, |(first, last)| last.seconds_since(first));
    let ignored = match replayed.ignored {
        0 => String::new(),
        count => format!("{count} scrapes of invalid targets ignored, "),
    };
    writeln!(
        out,
        "{} scrapes, {} failed, {ignored}{} cycles of the analysis, {span:.0} s",
        replayed.scrapes, replayed.failures, replayed.ticks
    )
}

fn verb(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Opened => "opened",
        EventKind::Changed => "changed",
        EventKind::Closed => "closed",
    }
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// A change as a line of JSON.
#[derive(Serialize)]
struct Wire<'a> {
    t: f64,
    event: &'static str,
    incident: WireIncident<'a>,
}

#[derive(Serialize)]
struct WireIncident<'a> {
    id: &'a str,
    component: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Labels<'a>>,
    related: &'a [String],
    class: &'a str,
    severity: &'static str,
    probability: f64,
    since: f64,
    summary: &'a str,
    victims: u64,
    gpus_affected: u64,
    suppressed: bool,
}

/// Labels of the incident's series beside those that are fields.
#[derive(Serialize)]
struct Labels<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    far_end: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    alternatives: &'a [String],
}

impl<'a> Labels<'a> {
    /// None where both are empty.
    fn of(incident: &'a Incident) -> Option<Self> {
        let labels = Self {
            far_end: incident.far_end.as_deref(),
            alternatives: &incident.alternatives,
        };
        let has_any = labels.far_end.is_some() || !labels.alternatives.is_empty();
        has_any.then_some(labels)
    }
}

impl<'a> Wire<'a> {
    fn of(event: &'a IncidentEvent) -> Self {
        let Incident {
            id,
            component,
            related,
            class,
            ..
        } = &event.incident;
        let incident = &event.incident;
        Self {
            t: seconds(event.at),
            event: verb(event.kind),
            incident: WireIncident {
                id,
                component,
                labels: Labels::of(incident),
                related,
                class,
                severity: incident.severity.as_str(),
                probability: incident.posterior,
                since: seconds(incident.since),
                summary: &incident.summary,
                victims: incident.victims,
                gpus_affected: incident.gpus,
                suppressed: incident.is_suppressed,
            },
        }
    }
}
