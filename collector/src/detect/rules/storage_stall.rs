//! Storage that keeps many nodes waiting at once, or one while the others do not wait.

use railscope_model::fabric::Timestamp;
use railscope_model::identity::{NodeName, Part};
use railscope_model::metric::{CPU_IOWAIT, GPU_UTILIZATION, HOST_PRESSURE, Metric};

use crate::assemble::netdev;
use crate::assemble::node_parts::gpus_behind;
use crate::classes::{Class, STORAGE_STALL};
use crate::detect::detector::{Detector, Evidence, Explanation, View, list};
use crate::detect::peers;
use crate::detect::peers::{MAJORITY, MIN_PEERS, median};
use crate::detect::registry::{Rule, Threshold};
use crate::store::{Increase, NodeHistory, Window};

/// The window over which waiting is counted.
const WINDOW_SECONDS: f64 = 120.0;
/// Share of that window in which every process of a node must have waited. A checkpoint to healthy storage takes
/// seconds and comes every half an hour.
const MIN_SHARE: f64 = 0.1;
/// Share of the nodes that must still wait for it to last: they end one by one.
const STILL_WAIT: f64 = 0.25;

/// Most hosts without GPUs among those that wait that may each be the server of the files.
const MOST_SERVERS: usize = 2;
/// How many times as long as the median one with GPUs the one server waits that is named itself, where other nodes continue.
const ABOVE_CLIENTS: f64 = 1.5;
/// Share of the time from which it waits long enough whatever they do.
const HANGS: f64 = 0.9;

/// The window for a node that waits alone.
const ALONE_WINDOW_SECONDS: f64 = 60.0;
/// Share of it in which some process of such a node must have waited.
const ALONE_MIN_SHARE: f64 = 0.15;
/// Equal pieces of the window, in each of which it must have waited for as large a share: a node that saves a checkpoint for
/// its job waits for half a minute.
const PIECES: u32 = 3;
/// How many times as long as the middle node it must have waited.
const ALONE_ABOVE_MEDIAN: f64 = 5.0;
/// How many times as long as each other node that computes it must have waited, where these wait, too: ranks that wait for its data
/// read their own a little later.
const ALONE_ABOVE_OTHERS: f64 = 3.0;
/// The same of a node that waits less: the others hardly wait.
const FAINT_MIN_SHARE: f64 = 0.08;
/// See [`FAINT_MIN_SHARE`].
const FAINT_ABOVE_MEDIAN: f64 = 20.0;
/// Mean utilization of the busiest GPU of a node that computes.
const BUSY: f64 = 0.5;
/// The same of a node that waits alone: its GPUs lack data. A rank that loads a checkpoint does not compute yet.
const STARVED: f64 = 0.15;

#[derive(Default)]
struct StorageStall {
    /// Whether many nodes waited together lately. The wait of single nodes leaves the window one by one.
    lasts: bool,
    /// When a server was last named: nodes end their wait for it one by one, too.
    server_named: Option<Timestamp>,
}

/// Which counters show that the processes of a node wait for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Time in which some process waited.
    SomeWait,
    /// Time in which all processes waited.
    AllWait,
    /// CPU time that was idle while I/O was under way, summed over all CPUs: only of nodes that do not measure pressure.
    IdleCpus,
}

impl Source {
    fn metric(self) -> &'static Metric {
        match self {
            Self::SomeWait | Self::AllWait => &HOST_PRESSURE,
            Self::IdleCpus => &CPU_IOWAIT,
        }
    }

    /// The counters of a node that add up to its wait.
    fn counters(self, history: &NodeHistory) -> Vec<Window<'_>> {
        let pressure = |kind| history.window(&HOST_PRESSURE, &["io", kind]);
        match self {
            Self::SomeWait => pressure("some").into_iter().collect(),
            Self::AllWait => pressure("full").into_iter().collect(),
            Self::IdleCpus if pressure("some").is_some() => Vec::new(),
            Self::IdleCpus => history
                .by_numa_node(&CPU_IOWAIT)
                .map(|(_, of)| of)
                .collect(),
        }
    }
}

/// How long processes of a node waited for I/O.
struct Wait<'a> {
    node: &'a NodeName,
    source: Source,
    counters: Vec<Window<'a>>,
    rise: Increase,
}

/// Builds the detector.
pub fn build() -> Box<dyn Detector> {
    Box::<StorageStall>::default()
}

impl Detector for StorageStall {
    fn name(&self) -> &'static str {
        "storage-stall"
    }

    fn observe(&mut self, view: &View<'_>, out: &mut Vec<Evidence>) {
        let stalled = waits(view, Source::AllWait, WINDOW_SECONDS);
        let is_long = |wait: &&Wait<'_>| wait.rise.amount >= MIN_SHARE * WINDOW_SECONDS;
        let (long, others): (Vec<_>, Vec<_>) = stalled.iter().partition(is_long);
        // Shared storage keeps all waiting; where other nodes continue, one job loads or saves much.
        let going_on = || {
            others
                .iter()
                .filter(|own| computes(view, own.node, BUSY))
                .count()
        };
        let nodes = (long.len() >= MIN_PEERS).then(|| long.len() + going_on());
        let share = if self.lasts { STILL_WAIT } else { MAJORITY };
        // Where most nodes are idle, it may be one job that begins.
        let fewest = STILL_WAIT * stalled.len() as f64;
        let is_most = |nodes: &usize| long.len() as f64 >= fewest.max(share * *nodes as f64);
        let is_of_server = self
            .server_named
            .is_some_and(|last| view.now.seconds_since(last) <= WINDOW_SECONDS);
        let nodes = nodes.filter(|nodes| is_most(nodes) && (self.lasts || !is_of_server));
        self.lasts = nodes.is_some();
        match nodes {
            Some(nodes) => out.extend(of_many(view, &long, nodes)),
            None => {
                let server = of_server(view, &long);
                self.server_named = server.is_some().then_some(view.now).or(self.server_named);
                out.extend(server.or_else(|| alone(view)));
            }
        }
    }

    fn remembers(&self) -> bool {
        true
    }

    fn explain(&self, _: &Class, _: &str) -> Explanation {
        Explanation {
            check: "All processes of most nodes waited for I/O in the same minutes, or processes of one node waited while other nodes did not (of nodes that do not measure pressure: CPU time that was idle because of it).",
            threshold: format!(
                "{:.0} % of {WINDOW_SECONDS:.0} s on at least {MIN_PEERS} nodes and {:.0} % of those that wait or compute (a healthy checkpoint takes seconds every 30 minutes); or {:.0} % of each of {PIECES} parts of {ALONE_WINDOW_SECONDS:.0} s, or of the newest {PIECES} scrapes if these are farther apart, on one node, {ALONE_ABOVE_MEDIAN:.0} times the median node (or {:.0} %, {FAINT_ABOVE_MEDIAN:.0} times the median node), while every other node that computes waits for less than the larger of half of that and 1/{ALONE_ABOVE_OTHERS} of its wait; or the only host without GPUs that waits for {:.0} % of those {WINDOW_SECONDS:.0} s and of each part does so {ABOVE_CLIENTS} times as long as the median of at least {MIN_PEERS} nodes with GPUs that do, too, or for {:.0} %",
                100.0 * MIN_SHARE,
                100.0 * MAJORITY,
                100.0 * ALONE_MIN_SHARE,
                100.0 * FAINT_MIN_SHARE,
                100.0 * MIN_SHARE,
                100.0 * HANGS
            ),
            clears: "Fewer nodes wait, or each node waits less.",
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let thresholds = vec![
            Threshold::new(
                "share of the window in which all processes of a node wait",
                MIN_SHARE,
                "ratio",
                "a healthy checkpoint takes seconds every 30 minutes (a choice)",
            ),
            Threshold::new(
                "window",
                WINDOW_SECONDS,
                "s",
                "longer than a checkpoint to healthy storage (a choice)",
            ),
            Threshold::new(
                "share of the nodes that wait, of all that wait or compute",
                MAJORITY,
                "ratio",
                "storage that all share keeps all waiting; else one job loads or saves much (a choice)",
            ),
            Threshold::new(
                "the same for it to last",
                STILL_WAIT,
                "ratio",
                "the nodes end their waiting one by one; also the smallest share of all nodes (a choice)",
            ),
            Threshold::new(
                "utilization of its busiest GPU from which a node that does not wait computes",
                BUSY,
                "ratio",
                "one that is idle does not show whether storage works (a choice)",
            ),
            Threshold::new(
                "hosts without GPUs among those that wait that are named as possible servers, at most",
                MOST_SERVERS as f64,
                "hosts",
                "more are clients, such as login nodes (a choice)",
            ),
            Threshold::new(
                "or, where other nodes continue: wait of the only one, compared with the median of several nodes with GPUs that wait",
                ABOVE_CLIENTS,
                "times",
                "clients wait for their server a part of the time that it waits for its disks (a choice)",
            ),
            Threshold::new(
                "or a share of the time",
                HANGS,
                "ratio",
                "its disks hang (a choice)",
            ),
        ];
        let fewest = peers::thresholds().into_iter().take(1);
        vec![Rule::new(
            &STORAGE_STALL,
            thresholds
                .into_iter()
                .chain(of_single_nodes())
                .chain(fewest)
                .collect(),
        )]
    }
}

/// The numbers for a node that waits alone.
fn of_single_nodes() -> Vec<Threshold> {
    vec![
        Threshold::new(
            "share of the time in which some process waits, or one CPU is idle because of it, on a node that waits alone",
            ALONE_MIN_SHARE,
            "ratio",
            "data loading makes all nodes of a job wait equally (a choice)",
        ),
        Threshold::new(
            "window for a single node",
            ALONE_WINDOW_SECONDS,
            "s",
            "longer than one node takes to write a checkpoint (a choice)",
        ),
        Threshold::new(
            "equal parts of that window, or as many scrapes if these are farther apart, in each of which it waits for that share",
            f64::from(PIECES),
            "parts",
            "a node that saves a checkpoint for its job waits for half a minute (a choice)",
        ),
        Threshold::new(
            "above the median node",
            ALONE_ABOVE_MEDIAN,
            "times",
            "the job's reads cause an increase on all nodes (a choice)",
        ),
        Threshold::new(
            "above each other node that computes, where these wait longer than half of that",
            ALONE_ABOVE_OTHERS,
            "times",
            "ranks that wait for its data wait a part of the time (a choice)",
        ),
        Threshold::new(
            "or a smaller share of the time",
            FAINT_MIN_SHARE,
            "ratio",
            "a slow local disk (a choice)",
        ),
        Threshold::new(
            "if it is as many times above the median node",
            FAINT_ABOVE_MEDIAN,
            "times",
            "the others hardly wait (a choice)",
        ),
        Threshold::new(
            "utilization of its busiest GPU during this time",
            STARVED,
            "ratio",
            "its GPUs lack data; a node that loads a checkpoint does not compute yet (a choice)",
        ),
    ]
}

/// Of every node, the time for which its processes waited.
fn waits<'a>(view: &View<'a>, source: Source, seconds: f64) -> Vec<Wait<'a>> {
    let nodes = view.history.fresh_nodes(view.now);
    let waits = nodes.filter_map(|(node, history)| {
        let counters = source.counters(history);
        let rises = counters.iter().map(|of| of.newest_increase(seconds));
        let mut rise = rises.reduce(|sum, of| Some(sum? + of?))??;
        // Several CPUs wait at once: as pressure does, it counts that some task waits.
        rise.amount = rise.amount.min(rise.seconds);
        Some(Wait {
            node,
            source,
            counters,
            rise,
        })
    });
    waits.collect()
}

/// If many nodes wait, the cause is the shared storage, not one of them.
fn of_many(view: &View<'_>, long: &[&Wait<'_>], nodes: usize) -> Option<Evidence> {
    let by_rise = |a: &&&Wait<'_>, b: &&&Wait<'_>| a.rise.amount.total_cmp(&b.rise.amount);
    let longest = long.iter().max_by(by_rise)?;
    let Wait { node, rise, .. } = longest;
    let hosts = long.iter().map(|wait| Part::Host(wait.node.clone()));
    let with_gpus = |host: Part| {
        let gpus = gpus_behind(view.fabric, &host);
        gpus.into_iter().chain([host])
    };
    let mut statement = format!(
        "{} of {nodes} nodes waited for I/O at the same time, {node} for {:.0} s of the last {:.0} s.",
        long.len(),
        rise.amount,
        rise.seconds
    );
    let servers = possible_servers(view, long);
    if !servers.is_empty() {
        statement += &format!(
            " Without GPUs among them: {}. One that serves the files may be the cause.",
            list(&servers)
        );
    }
    Some(Evidence {
        statement,
        victims: hosts.flat_map(with_gpus).collect(),
        alike: servers,
        part: Part::SharedStorage,
        ..evidence(longest)
    })
}

/// The one host without GPUs that waits, if it and several nodes with GPUs wait all the time, and it longer: these wait for it.
fn of_server(view: &View<'_>, long: &[&Wait<'_>]) -> Option<Evidence> {
    let (clients, servers) = by_gpus(view, long);
    let [server] = servers[..] else {
        return None;
    };
    let lasts = |wait: &&Wait<'_>| wait.is_throughout(MIN_SHARE);
    let clients: Vec<_> = clients.into_iter().filter(lasts).collect();
    let rate = |wait: &Wait<'_>| wait.rise.rate();
    let usual = median(clients.iter().map(|client| rate(client)))?;
    let is_server = rate(server) >= (ABOVE_CLIENTS * usual).min(HANGS) && lasts(&server);
    (clients.len() >= MIN_PEERS && is_server).then(|| Evidence {
        statement: format!(
            "All processes of {}, which has no GPUs, waited for I/O for {:.0} % of the last {:.0} s, and those of {} nodes with GPUs for {:.0} % of it: these may wait for its storage.",
            server.node,
            100.0 * rate(server),
            server.rise.seconds,
            clients.len(),
            100.0 * usual
        ),
        victims: clients
            .iter()
            .flat_map(|client| gpus_behind(view.fabric, &Part::Host(client.node.clone())))
            .collect(),
        // Whether they wait for it is not known.
        effect: 0.0,
        ..evidence(server)
    })
}

/// Those with GPUs, and those without.
fn by_gpus<'a>(view: &View<'_>, long: &[&'a Wait<'a>]) -> (Vec<&'a Wait<'a>>, Vec<&'a Wait<'a>>) {
    let has_gpus = |wait: &&Wait<'_>| {
        let history = view.history.node(wait.node);
        history.is_some_and(netdev::has_gpus)
    };
    long.iter().copied().partition(has_gpus)
}

/// Hosts without GPUs that wait as nodes with GPUs do: a server of files waits for its own disks. None where they are too many.
fn possible_servers(view: &View<'_>, long: &[&Wait<'_>]) -> Vec<Part> {
    let (computing, others) = by_gpus(view, long);
    if computing.is_empty() || others.len() > MOST_SERVERS {
        return Vec::new();
    }
    let hosts = others.into_iter().map(|wait| Part::Host(wait.node.clone()));
    hosts.collect()
}

/// A node that waits while the others do not: of those that measure pressure, or of those that do not.
fn alone(view: &View<'_>) -> Option<Evidence> {
    let of = |source| of_single(view, &waits(view, source, ALONE_WINDOW_SECONDS));
    of(Source::SomeWait).or_else(|| of(Source::IdleCpus))
}

/// Share of each piece of the window, and of the whole window, for which a node must have waited alone, if it waited for a share
/// of `rate` and the median node for one of `usual`; none if that is too little.
fn needed(rate: f64, usual: f64) -> Option<(f64, f64)> {
    let limits = [
        (ALONE_MIN_SHARE, ALONE_ABOVE_MEDIAN),
        (FAINT_MIN_SHARE, FAINT_ABOVE_MEDIAN),
    ];
    let mut limits = limits
        .map(|(share, times)| (share, share.max(times * usual)))
        .into_iter();
    limits.find(|(_, least)| rate >= *least)
}

/// Nodes of a job that loads a checkpoint wait together, and do not compute yet.
fn of_single(view: &View<'_>, waits: &[Wait<'_>]) -> Option<Evidence> {
    let usual = median(waits.iter().map(|wait| wait.rise.rate()));
    let usual = usual.filter(|_| waits.len() >= MIN_PEERS)?;
    let rate = |wait: &&Wait<'_>| wait.rise.rate();
    let long = waits
        .iter()
        .filter(|wait| rate(wait) >= FAINT_MIN_SHARE / 2.0);
    let mut long: Vec<_> = long
        .filter(|wait| computes(view, wait.node, STARVED))
        .collect();
    long.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let (wait, others) = long.split_first()?;
    let (share, least) = needed(rate(wait), usual)?;
    let most = (least / 2.0).max(rate(wait) / ALONE_ABOVE_OTHERS);
    if others.iter().any(|other| rate(other) >= most) {
        return None;
    }
    let is_long = wait.rise.amount >= share * ALONE_WINDOW_SECONDS;
    let (who, did, why) = match wait.source {
        Source::SomeWait | Source::AllWait => ("Processes", "waited for I/O", ""),
        Source::IdleCpus => ("CPUs", "were idle", " because tasks waited for I/O"),
    };
    (is_long && wait.is_throughout(share)).then(|| Evidence {
        statement: format!(
            "{who} of {} {did} for {:.0} % of the last {:.0} s{why}, those of the median node for {:.1} %.",
            wait.node,
            100.0 * wait.rise.rate(),
            wait.rise.seconds,
            100.0 * usual
        ),
        // Waiting of some process is no measure of what a job loses.
        effect: 0.0,
        ..evidence(wait)
    })
}

impl Wait<'_> {
    /// Whether it waited for this share of every piece of the window: a node that saves a checkpoint waits for a shorter time.
    fn is_throughout(&self, share: f64) -> bool {
        // Of several pieces within one step between two scrapes nothing is known.
        let steps = self
            .counters
            .iter()
            .map(|of| of.longest_step(ALONE_WINDOW_SECONDS));
        let seconds = steps.fold(ALONE_WINDOW_SECONDS / f64::from(PIECES), f64::max);
        let waited_in = |counter: &Window<'_>, piece: u32| {
            let (newest, _) = counter.latest()?;
            let count =
                |pieces| counter.count_at(newest.plus_seconds(-seconds * f64::from(pieces)));
            Some(count(piece)? - count(piece + 1)?)
        };
        (0..PIECES).all(|piece| {
            let counters = self.counters.iter();
            let waited: Option<f64> = counters.map(|of| waited_in(of, piece)).sum();
            waited.is_some_and(|waited| waited >= share * seconds)
        })
    }
}

/// Whether a node has no GPUs, or one of them was busy lately.
fn computes(view: &View<'_>, node: &NodeName, least: f64) -> bool {
    let history = view.history.node(node);
    let gpus = history
        .into_iter()
        .flat_map(|history| history.series(&GPU_UTILIZATION));
    let mut means = gpus.map(|(_, window)| {
        let values = window.told_within(view.now, ALONE_WINDOW_SECONDS);
        let (sum, count) = values.fold((0.0, 0.0), |(sum, count), (_, value)| {
            (sum + value, count + 1.0)
        });
        if count > 0.0 { sum / count } else { 0.0 }
    });
    let first = means.next();
    first.is_none_or(|first| first.max(means.fold(0.0, f64::max)) >= least)
}

fn evidence(wait: &Wait<'_>) -> Evidence {
    Evidence {
        detector: "storage-stall",
        signal: wait.source.metric().name,
        class: &STORAGE_STALL,
        effect: wait.rise.rate(),
        statement: String::new(),
        victims: Vec::new(),
        related: Vec::new(),
        alike: Vec::new(),
        part: Part::Host(wait.node.clone()),
    }
}
