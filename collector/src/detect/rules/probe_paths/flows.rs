//! Flows of probes as exporters count them: found once, and counted over scrapes on which both of their ends were
//! there.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{PartId, Timestamp};
use railscope_model::identity::{NodeName, Part};
use railscope_model::label;
use railscope_model::metric::{PROBE_FLOW_LOST, PROBE_FLOW_SENT, PROBE_FLOW_SLOW, PROBE_HOP};
use railscope_model::path_class::PathClass;
use railscope_model::reading::Labels;

use super::{SETTLE_SECONDS, WINDOW_SECONDS};
use crate::assemble::node_parts::read;
use crate::detect::detector::View;
use crate::detect::rules::probe_paths::paths::{Basis, Known, Step, Ways};
use crate::store::per_node_cache::Kept;
use crate::store::{NodeHistory, Rows, Window};

/// One flow, and where its counters stand.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// NICs: sender and responder.
    pub(super) ends: [PartId; 2],
    /// How far apart they are.
    pub(super) path_class: PathClass,
    /// Whether they travel by RDMA, not UDP: the NIC responds sooner than the kernel, and the baseline differs.
    pub(super) is_rdma: bool,
    peer: NodeName,
    /// The paths out and back between the leaves of the two.
    pub(super) ways: Known,
    sent: u32,
    lost: Option<u32>,
    slow: Option<u32>,
}

/// A router on the path out of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) number: u8,
    pub(super) switch: PartId,
    /// The port by which it is entered, where that has a separate address.
    pub(super) port: Option<u16>,
}

/// What one flow met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) row: &'a Row,
    /// Probes that were answered or given up.
    pub(super) probes: f64,
    /// Time over which they were counted, seconds.
    pub(super) seconds: f64,
    pub(super) lost: Hits,
    pub(super) slow: Hits,
}

/// The flows of each pair of NICs, which are side by side.
pub(super) fn by_pair<'a, 'b>(
    counted: &'b [Counted<'a>],
) -> impl Iterator<Item = &'b [Counted<'a>]> {
    counted.chunk_by(|a, b| a.row.ends == b.row.ends)
}

/// The flows of each NIC that sends, which are side by side.
pub(super) fn by_sender<'a, 'b>(
    counted: &'b [Counted<'a>],
) -> impl Iterator<Item = &'b [Counted<'a>]> {
    counted.chunk_by(|a, b| a.row.ends[0] == b.row.ends[0])
}

/// Probes of a flow that were lost, or slow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hits {
    pub(super) count: f64,
    /// Scrapes that reported the first and the last of them.
    pub(super) told: Option<(Timestamp, Timestamp)>,
}

/// The flows of all nodes.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Rests on fabric, rows and routers.
    kept: Kept<(Basis, [u64; 4]), Vec<Row>>,
}

impl Flows {
    /// Begins a tick.
    pub(super) fn refresh(&mut self, view: &View<'_>, ways: &mut Ways) {
        let basis = ways.refresh(view);
        self.kept.begin();
        for (node, history) in view.history.fresh_nodes(view.now) {
            let rows = [&PROBE_FLOW_SENT, &PROBE_FLOW_LOST, &PROBE_FLOW_SLOW];
            let [sent, lost, slow] = rows.map(|metric| history.rows_since(metric));
            if sent == 0 {
                continue;
            }
            let rests_on = [sent, lost, slow, history.presence_since(&PROBE_HOP)];
            let found = || found(view, ways, (node, history));
            self.kept.refresh(history, (basis, rests_on), found);
        }
    }

    /// What every flow met lately.
    pub(super) fn count<'a>(&'a self, view: &View<'a>) -> Vec<Counted<'a>> {
        let all = view.history.nodes();
        let spans: HashMap<&NodeName, Span, FixedState> = all
            .filter_map(|(node, history)| Some((node, Span::of(history)?)))
            .collect();
        let mut counted = Vec::new();
        for (_, history) in view.history.fresh_nodes(view.now) {
            let columns = [&PROBE_FLOW_SENT, &PROBE_FLOW_LOST, &PROBE_FLOW_SLOW];
            let columns = columns.map(|metric| history.rows(metric));
            for row in self.kept.of(history).into_iter().flatten() {
                let peer = spans.get(&row.peer);
                counted.extend(peer.and_then(|peer| row.count(columns, peer, view.now)));
            }
        }
        counted
    }
}

/// Times at which a node could respond.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// Start of its exporter, from its own counters.
    since: Option<Timestamp>,
    heard: Timestamp,
}

impl Span {
    fn of(history: &NodeHistory) -> Option<Self> {
        let first = history.series(&PROBE_FLOW_SENT).next();
        let known = first.map(|(_, window)| {
            let counts = window.counts().take_while(|count| !count.count.is_nan());
            counts.last().map(|count| count.at)
        });
        Some(Self {
            since: known.flatten(),
            heard: history.heard()?,
        })
    }
}

impl Row {
    /// The known steps of both its paths.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.ways.iter().flatten().flat_map(|way| way.iter())
    }

    /// What it met while its peer was there: from when that's exporter has run for a while until it
    /// was last seen. A node that is down does not respond, and that is no fault of the network.
    fn count(
        &self,
        columns: [Option<Rows<'_>>; 3],
        peer: &Span,
        now: Timestamp,
    ) -> Option<Counted<'_>> {
        let [sent, lost, slow] = columns;
        let is_in = |at: Timestamp| {
            let settled = |since: Timestamp| at >= since.plus_seconds(SETTLE_SECONDS);
            now.seconds_since(at) <= WINDOW_SECONDS && peer.since.is_none_or(settled)
        };
        let rise = |window: Window<'_>| rise(window, &is_in, peer.heard);
        let sent = rise(sent.and_then(|rows| rows.window(self.sent))?)?;
        let moving = |one: &Window<'_>| one.moves();
        let hits = |window: Option<Window<'_>>| {
            let rise = window.filter(moving).and_then(rise);
            rise.map_or_else(Hits::default, |rise| rise.hits)
        };
        (sent.hits.count > 0.0).then(|| Counted {
            row: self,
            probes: sent.hits.count,
            seconds: sent.seconds,
            lost: hits(window(lost, self.lost)),
            slow: hits(window(slow, self.slow)),
        })
    }
}

fn window(rows: Option<Rows<'_>>, row: Option<u32>) -> Option<Window<'_>> {
    rows?.window(row?)
}

/// Increase of a counter, from scrape to scrape.
struct Rise {
    hits: Hits,
    seconds: f64,
}

fn rise(window: Window<'_>, is_in: &impl Fn(Timestamp) -> bool, until: Timestamp) -> Option<Rise> {
    let mut counts = window.counts().skip_while(|count| count.at > until);
    let newest = counts.next()?;
    let (mut later, mut told) = (newest, None);
    for count in counts.take_while(|count| is_in(count.at) && !count.count.is_nan()) {
        if later.count > count.count {
            let (_, last) = told.unwrap_or((later.at, later.at));
            told = Some((later.at, last));
        }
        later = count;
    }
    Some(Rise {
        hits: Hits {
            count: newest.count - later.count,
            told,
        },
        seconds: newest.at.seconds_since(later.at),
    })
}

/// The flows of one node whose ends are in the fabric.
fn found(view: &View<'_>, ways: &mut Ways, (node, history): (&NodeName, &NodeHistory)) -> Vec<Row> {
    let places = |metric| -> BTreeMap<&Labels, u32> {
        let labels = history.rows(metric).into_iter().flat_map(Rows::labels);
        labels.zip(0..).collect()
    };
    let (lost, slow) = (places(&PROBE_FLOW_LOST), places(&PROBE_FLOW_SLOW));
    let mut hops = hops(view, history);
    let mut rows = Vec::new();
    for (labels, sent) in places(&PROBE_FLOW_SENT) {
        let Some(peer) = read::<NodeName>(labels, label!(PROBE_FLOW_SENT, "peer_node")) else {
            continue;
        };
        let nic = |node: &NodeName, device| {
            let device = read(labels, device)?;
            view.fabric.find(&Part::Nic(node.clone(), device))
        };
        let ends = (
            nic(node, label!(PROBE_FLOW_SENT, "device")),
            nic(&peer, label!(PROBE_FLOW_SENT, "peer_device")),
        );
        let (Some(from), Some(to)) = ends else {
            continue;
        };
        let flow: Vec<&str> = labels.values().collect();
        rows.push(Row {
            ends: [from, to],
            path_class: ways.path_class(view.fabric, [from, to]),
            is_rdma: labels.get(label!(PROBE_FLOW_SENT, "transport")) == Some("rdma"),
            peer,
            ways: ways.known(view, [from, to], hops.remove(&flow)),
            sent,
            lost: lost.get(labels).copied(),
            slow: slow.get(labels).copied(),
        });
    }
    rows
}

/// Routers that are known, by flow.
fn hops<'a>(view: &View<'_>, history: &'a NodeHistory) -> BTreeMap<Vec<&'a str>, Vec<Hop>> {
    let mut hops: BTreeMap<Vec<&str>, Vec<Hop>> = BTreeMap::new();
    for (labels, _) in history.series(&PROBE_HOP) {
        let hop = || {
            let (switch, port) = view
                .addresses
                .of(labels.get(label!(PROBE_HOP, "address"))?)?;
            let switch = view.fabric.find(&Part::Switch(switch.clone()))?;
            Some(Hop {
                number: read(labels, label!(PROBE_HOP, "hop"))?,
                switch,
                port: (port.as_ref()).and_then(|port| view.fabric.find_port(switch, port)),
            })
        };
        // The flow's own labels come first.
        let flow: Vec<&str> = labels.values().take(PROBE_FLOW_SENT.labels.len()).collect();
        hops.entry(flow).or_default().extend(hop());
    }
    hops
}
