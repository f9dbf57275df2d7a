//! Recordings of small runs: replayed, limited, damaged, and searched for secrets.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use railscope_otlp::{IncidentEvent, OpenIncidents};
use tempfile::TempDir;

use super::*;
use crate::mapping::Reader;
use crate::replay::pack::{Line as Scraped, Pack, PackError};
use crate::replay::tests::exposition;
use crate::replay::{Replay, Replayed, Window as Part};
use crate::serve::otlp::{event, time};
use crate::service::Event;
use crate::service::analysis::Analysis;

const START: u64 = 1_764_000_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp(START + millis)
}

/// A folder, and a configuration in it that records into its folder `rec`.
fn configured(text: &str) -> (TempDir, Config) {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("{text}\n[record]\nfolder = \"rec\"");
    let config = Config::parse(&text, &folder.path().join("collector.toml"));
    (folder, config.expect("valid"))
}

fn recorder(config: &Config) -> Recorder {
    Recorder::open(config, at(0)).expect("configured")
}

fn target(node: &str) -> Target {
    let name = node.parse().expect("a name");
    Target::of_node(name, format!("http://{node}:10660/metrics"))
}

fn scrapes(folder: &Path) -> Vec<Result<Scraped, PackError>> {
    let pack = Pack::open(&folder.join("rec")).expect("a pack");
    let scrapes = pack.scrapes().expect("scrapes");
    scrapes.map(|one| one.map(|(_, line)| line)).collect()
}

/// The bodies of all scrapes, none of which may be invalid.
fn bodies(folder: &Path) -> Vec<String> {
    let scrapes = scrapes(folder).into_iter();
    let bodies = scrapes.map(|one| one.expect("valid").answer.expect("a body"));
    bodies.collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder.join("rec")).expect("a folder");
    let mut files: Vec<_> = files.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut files = files(folder);
    files.retain(|file| file.extension().is_some_and(|end| end == "zst"));
    files
}

/// Text that hardly compresses.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        write!(text, "{state:016x}").expect("text");
    }
    text
}

fn shown(event: &IncidentEvent) -> String {
    let at = event.at.duration_since(std::time::UNIX_EPOCH);
    let incident = &event.incident;
    format!(
        "{} {:?} {} {} {} {}",
        at.expect("after 1970").as_millis(),
        event.kind,
        incident.class,
        incident.component,
        incident.posterior,
        incident.is_suppressed
    )
}

/// The analysis as the service runs it, with a recorder.
struct Live {
    analysis: Analysis,
    state: State,
    recorder: Arc<Recorder>,
    readers: HashMap<Target, Reader>,
    open: OpenIncidents,
    seen: Vec<String>,
}

impl Live {
    fn new(mut config: Config) -> Self {
        let recorder = Arc::new(recorder(&config));
        let mut state = State::new(&config, || Timestamp(0));
        state.recorder = Some(Arc::clone(&recorder));
        Self {
            analysis: Analysis::new(&mut config, None, None),
            state,
            recorder,
            readers: HashMap::new(),
            open: OpenIncidents::default(),
            seen: Vec::new(),
        }
    }

    fn set_targets(&mut self, targets: &[Target], are_pushed: bool, now: Timestamp) {
        self.recorder.set_targets(targets, are_pushed, now);
        let event = match are_pushed {
            true => Event::PushedTargets(targets.to_vec()),
            false => Event::Targets(targets.to_vec()),
        };
        self.state.set_targets(targets, true);
        self.analysis.take(event, &self.state);
    }

    fn take(&mut self, target: &Target, body: String, samples_at: Timestamp) {
        let shared = Arc::new(target.clone());
        let reader = self.readers.entry(target.clone());
        let reader = reader.or_insert_with(|| Reader::new(shared, Default::default()));
        let event = reader.event(body, samples_at, None);
        self.analysis.take(event, &self.state);
    }

    fn tick(&mut self, now: Timestamp) {
        self.analysis.tick(now, &self.state);
        let snapshot = self.state.snapshot().expect("a cycle");
        let open = snapshot.view.incidents.iter();
        let open = open.map(|incident| event(incident, &self.state));
        let events = self.open.update(open, time(now));
        self.seen.extend(events.iter().map(shown));
    }
}

fn replay(folder: &Path) -> (Vec<String>, Replayed, Arc<State>) {
    let mut pack = Pack::open(&folder.join("rec")).expect("a pack");
    let mut replay = Replay::open(&mut pack).expect("a pack");
    let mut seen = Vec::new();
    let replayed = replay.run(&pack, Part::default(), |event| seen.push(shown(event)));
    (seen, replayed.expect("valid"), Arc::clone(replay.state()))
}

/// Four minutes of four nodes, of which one is pushed and one is removed from the list; the recording is written at odd times.
fn run_live(config: Config) -> Live {
    let mut live = Live::new(config);
    let pushed = Target {
        url: Target::pushed_url("gpu", "n4:10660"),
        ..target("n4")
    };
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(target);
    live.set_targets(&[n1.clone(), n2.clone(), n3.clone()], false, at(0));
    live.set_targets(std::slice::from_ref(&pushed), true, at(0));
    let fabric = include_str!("../../../tests/fabrics/rail-2tier.ibnetdiscover");
    let (mut next_tick, mut next_flush) = (at(2_137), at(1_000));
    for millis in (0..240_000).step_by(1_000) {
        let second = millis / 1_000;
        if second == 100 {
            live.recorder.fabric(at(millis), fabric.to_owned());
            let subnet = crate::fabric::subnet::parse_ibnetdiscover(fabric);
            let event = Event::Subnet {
                subnet: Box::new(subnet),
                readings: Vec::new(),
                at: at(millis),
            };
            live.analysis.take(event, &live.state);
        }
        if second == 150 {
            live.set_targets(&[n1.clone(), n2.clone()], false, at(millis + 1));
        }
        for (index, one) in [&n1, &n2, &n3].into_iter().enumerate() {
            let now = at(millis + 10 * index as u64);
            let is_gone = second >= 150 && *one == n3;
            if second % 5 != index as u64 || is_gone {
                continue;
            }
            if second == 32 {
                live.recorder.scrape(one, now, Err("timeout"));
                continue;
            }
            let body = exposition(&one.name(), second);
            live.recorder.scrape(one, now, Ok(&body));
            live.take(one, body, now);
        }
        if second % 5 == 3 {
            let (now, samples_at) = (at(millis + 77), at(millis.saturating_sub(2_500)));
            let body = exposition("n4", second);
            live.recorder.pushed(&pushed, now, samples_at, &body);
            live.take(&pushed, body, samples_at);
        }
        let end = at(millis + 1_000);
        while next_tick < end {
            live.tick(next_tick);
            next_tick = Timestamp(next_tick.0 + 5_137);
        }
        if next_flush < end {
            live.recorder.flush(end);
            next_flush = Timestamp(next_flush.0 + 7_300);
        }
    }
    live.recorder.flush(at(240_000));
    live
}

#[test]
fn a_replay_of_a_recording_has_the_incidents_of_the_live_run_at_the_same_times() {
    let work = format!(
        "[[maintenance]]\nparts = [\"link/n2:*\"]\nfrom = {}.0\nuntil = {}.25\nwhy = \"cable\"",
        START / 1_000 + 80,
        START / 1_000 + 90
    );
    let text = format!("{work}\n[subnet]\nfile = \"none\"\n[cluster]\nname = \"c\"");
    let (folder, config) = configured(&text);
    let live = run_live(config);
    assert!(
        live.seen
            .iter()
            .any(|one| one.contains("Opened port-down link/n2:mlx5_1/1")),
        "{:?}",
        live.seen
    );
    let (seen, replayed, state) = replay(folder.path());
    assert_eq!(seen, live.seen);
    assert_eq!((replayed.scrapes, replayed.failures), (173, 1));
    assert_eq!(replayed.ticks, 47);
    let links = |state: &State| {
        state
            .snapshot()
            .expect("a cycle")
            .view
            .fabric
            .links()
            .count()
    };
    assert!(links(&live.state) > 0);
    assert_eq!(links(&state), links(&live.state));
    let names = |state: &State| -> Vec<_> {
        let targets = state.targets();
        targets.all.keys().map(Target::name).collect()
    };
    assert_eq!(names(&state), ["n1", "n2", "n4"], "n3 was removed");
    let written = live
        .recorder
        .counts()
        .find(|(result, _)| *result == "written");
    assert_eq!(written, Some(("written", 174)));
}

#[test]
fn no_secret_is_in_any_file() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["web", "push"] {
        fs::write(folder.path().join(name), format!("SECRET-{name}\n")).expect("written");
    }
    let text = "[web]\nmaintenance_token_file = \"web\"\n[push]\ntoken_file = \"push\"\n\
        [otlp]\nendpoint = \"http://user:SECRET-otlp@otel:4318\"\nheaders = { authorization = \"SECRET-header\" }\n\
        [[targets]]\nnode = \"n1\"\nurl = \"http://me:SECRET-password@n1:9400/metrics?token=SECRET-query#SECRET-fragment\"\n\
        [subnet]\ncommand = [\"sweep\", \"--token=SECRET-argument\"]\n\
        [[switches]]\nname = \"leaf-1\"\naddresses = [\"10.0.0.1\"]\nport_addresses = { swp1 = \"10.1.0.0\" }\n\
        lldp_command = [\"ssh\", \"SECRET-login\"]\n[record]\nfolder = \"rec\"";
    let config = Config::parse(text, &folder.path().join("collector.toml")).expect("valid");
    assert_eq!(config.maintenance_token.as_deref(), Some("SECRET-web"));
    let recorder = recorder(&config);
    recorder.set_targets(&config.targets, false, at(0));
    recorder.scrape(&config.targets[0], at(0), Ok("up 1"));
    recorder.flush(at(0));
    let files = files(folder.path());
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).expect("a file");
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("SECRET"), "{}: {text}", file.display());
    }
    assert_eq!(bodies(folder.path()), ["up 1"]);
    for one in scrapes(folder.path()) {
        assert_eq!(one.expect("valid").origin.instance, "n1:9400");
    }
    // What is not secret and is needed is there.
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    assert_eq!(
        pack.config.switches[0].addresses,
        config.switches[0].addresses
    );
    assert!(pack.config.record.is_none() && pack.config.push.is_none());
}

#[test]
fn time_never_goes_back_and_samples_keep_theirs() {
    let (folder, config) = configured("");
    let n1 = target("n1");
    let first = recorder(&config);
    first.set_targets(std::slice::from_ref(&n1), false, at(0));
    first.scrape(&n1, at(9_000), Ok("a"));
    first.scrape(&n1, at(8_000), Ok("b"));
    first.flush(at(9_000));
    // It took longer to arrive than the write.
    first.scrape(&n1, at(8_999), Ok("c"));
    first.flush(at(10_000));
    // The clock was set back before the collector started again.
    let second = recorder(&config);
    second.set_targets(std::slice::from_ref(&n1), false, at(0));
    second.scrape(&n1, at(1_000), Ok("d"));
    second.flush(at(1_000));
    let lines = scrapes(folder.path()).into_iter();
    let lines: Vec<_> = lines.map(|one| one.expect("in order")).collect();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            let body = line.answer.as_deref().expect("a body");
            (body, line.at.0 - START, line.samples_at.0 - START)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("b", 8_000, 8_000),
            ("a", 9_000, 9_000),
            ("c", 9_000, 8_999),
            ("d", 9_000, 1_000)
        ]
    );
}

#[test]
fn every_target_has_an_entry_of_its_own_also_over_a_restart() {
    let text = "[[targets]]\nswitch = \"s1\"\nkind = \"snmp_exporter\"\nurl = \"http://snmp:9116/snmp?target=s1\"\n\
        [[targets]]\nswitch = \"s2\"\nkind = \"snmp_exporter\"\nurl = \"http://snmp:9116/snmp?target=s2\"\n\
        [[targets]]\nkind = \"infiniband_exporter\"\nurl = \"http://ib:9315/metrics?a\"\n\
        [[targets]]\nkind = \"infiniband_exporter\"\nurl = \"http://ib:9315/metrics?b\"";
    let (folder, config) = configured(text);
    let pushed = Target {
        url: Target::pushed_url("snmp_exporter", "snmp:9116/snmp"),
        ..target("n1")
    };
    let mut targets = config.targets.clone();
    targets.sort();
    for start in [0, 60_000] {
        let recorder = Recorder::open(&config, at(start)).expect("configured");
        recorder.set_targets(&targets, false, at(start));
        recorder.set_targets(std::slice::from_ref(&pushed), true, at(start));
        for one in targets.iter().chain([&pushed]) {
            recorder.scrape(one, at(start + 1), Ok(&one.url));
        }
        recorder.flush(at(start + 2));
    }
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    assert_eq!(pack.targets.len(), 5);
    let mut bodies: HashMap<_, Vec<_>> = HashMap::new();
    for line in scrapes(folder.path()) {
        let line = line.expect("valid");
        let target = &pack.origins[&line.origin];
        bodies
            .entry(target.name())
            .or_default()
            .push(line.answer.expect("a body"));
    }
    for one in ["s1", "s2"] {
        let expected = format!("http://snmp:9116/snmp?target={one}");
        assert_eq!(bodies[one], [expected.clone(), expected], "{bodies:?}");
    }
    assert_eq!(bodies["n1"], [pushed.url.clone(), pushed.url]);
    assert_eq!(bodies.len(), 5, "{bodies:?}");
    // A replay has each of them as long as it was in the list.
    assert_eq!(replay(folder.path()).1.scrapes, 10);
}

#[test]
fn a_removed_window_ends_when_it_was_removed() {
    let (folder, config) = configured("");
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    let window = |part: &str, from, until| {
        Arc::new(Window {
            parts: vec![part.parse().expect("a part")],
            from: at(from),
            until: at(until),
            why: String::from("\"quoted\" work"),
        })
    };
    let [early, late] = [
        window("host/n1", 0, 90_000),
        window("host/n2", 50_000, 60_000),
    ];
    recorder.scrape(&n1, at(0), Ok(""));
    recorder.cycle(at(5_000), &[Arc::clone(&early), late]);
    recorder.flush(at(5_000));
    recorder.cycle(at(10_000), &[]);
    recorder.flush(at(10_000));
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    let mut expected = Window::clone(&early);
    expected.until = at(10_000);
    assert_eq!(pack.config.maintenance, [expected]);
}

#[test]
fn an_equal_sweep_is_recorded_once() {
    let (folder, config) = configured("[subnet]\nfile = \"none\"");
    let recorder = recorder(&config);
    let n1 = target("n1");
    recorder.set_targets(std::slice::from_ref(&n1), false, at(0));
    recorder.scrape(&n1, at(0), Ok(""));
    for (second, text) in [
        (1, "# generated on Tue\nvendid=1"),
        (2, "# generated on Wed\nvendid=1"),
        (3, "# generated on Thu\nvendid=2"),
    ] {
        recorder.fabric(at(second * 1_000 + 250), text.to_owned());
        recorder.flush(at(second * 1_000 + 300));
    }
    let pack = Pack::open(&folder.path().join("rec")).expect("a pack");
    let versions: Vec<_> = pack.fabric.iter().map(|file| file.from).collect();
    assert_eq!(versions, [Some(at(1_250)), Some(at(3_250))]);
}

/// Serves an exposition; requests the collector to stop at the tenth scrape.
async fn exporter(stop: Arc<Notify>) -> std::net::SocketAddr {
    let scrapes = Arc::new(AtomicU64::new(0));
    let metrics = move || {
        if scrapes.fetch_add(1, Ordering::Relaxed) == 9 {
            stop.notify_one();
        }
        std::future::ready(exposition("n1", 0))
    };
    let routes = axum::Router::new().route("/metrics", axum::routing::get(metrics));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(axum::serve(listener, routes).into_future());
    address
}

#[tokio::test]
async fn the_service_records_scrapes_failures_and_cycles() {
    let stop = Arc::new(Notify::new());
    let address = exporter(Arc::clone(&stop)).await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let refused = closed.expect("a port").local_addr().expect("an address");
    let target = |node: &str, url: String| {
        format!("[[targets]]\nnode = \"{node}\"\nurl = \"http://{url}\"\n")
    };
    let targets = target("n1", format!("{address}/metrics"))
        + &target("n2", format!("{address}/none"))
        + &target("n3", format!("{refused}/metrics"));
    let (folder, config) = configured(&format!(
        "{targets}[scrape]\ninterval = \"100ms\"\n[analysis]\ninterval = \"100ms\""
    ));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let shutdown = async move { stop.notified().await };
    let run = crate::service::run(config, listener.expect("a port"), shutdown);
    run.await.expect("stopped when it was asked to");
    let (mut expositions, mut errors) = (0, std::collections::BTreeSet::new());
    for line in scrapes(folder.path()) {
        match line.expect("valid").answer {
            Ok(body) => expositions += u64::from(body == exposition("n1", 0)),
            Err(error) => {
                errors.insert(error);
            }
        }
    }
    // Where the processor is short, some of ten scrapes are too late.
    errors.remove("timeout");
    assert!(expositions >= 3, "{expositions}");
    assert!(errors.iter().eq(["http 404", "refused"]), "{errors:?}");
    let (_, replayed, _) = replay(folder.path());
    assert!(
        replayed.ticks >= 3 && replayed.scrapes == expositions,
        "{replayed:?}"
    );
}

mod limits;
