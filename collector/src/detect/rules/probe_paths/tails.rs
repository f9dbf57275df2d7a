//! Flows of probes -> what they measured by class of path, and where most of them were slow.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkId, LinkKind};
use railscope_model::identity::{NodeName, Part};
use railscope_model::label;
use railscope_model::metric::{PROBE_PATH_LOST, PROBE_PATH_QUANTILE, PROBE_PATH_RTT};
use railscope_model::path_class::PathClass;
use railscope_model::reading::Labels;

use super::WINDOW_SECONDS;
use super::evidence::part;
use super::flows::{Counted, Row, by_pair};
use super::problem::Suspect;
use crate::assemble::node_parts::read;
use crate::detect::detector::View;
use crate::detect::rules::probe_paths::paths::Ways;
use crate::detect::tails::{Causes, ClassTail, Coverage, Distribution, LISTED, Pair, Slow, Tails};
use crate::detect::tomography::MIN_HITS;
use crate::store::{Increase, NodeHistory};

/// What all nodes and flows report.
pub(super) fn tails(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
    causes: Causes,
) -> Tails {
    let usual = usual(counted);
    Tails {
        at: view.now,
        classes: classes(view),
        causes,
        coverage: coverage(view, ways, counted),
        components: components(view, ways, counted, &usual),
        pairs: pairs(view, counted, &usual),
    }
}

/// Of one class of paths: nodes that have the series, and those of them that probed it; probes that were lost; sums of buckets
/// by bound with the nodes that have the bound; and the worst node.
#[derive(Default)]
struct OfClass {
    having: usize,
    nodes: usize,
    lost: f64,
    buckets: BTreeMap<u64, (f64, usize)>,
    worst: Option<(f64, NodeName)>,
}

fn classes(view: &View<'_>) -> Vec<ClassTail> {
    let mut all: BTreeMap<(PathClass, String), OfClass> = BTreeMap::new();
    for (node, history) in view.history.fresh_nodes(view.now) {
        add_node(&mut all, node, history);
    }
    let tail = |((path_class, transport), of_class): (_, OfClass)| {
        // A bound that not every node has cannot be added up.
        let common = |(_, nodes): &(f64, usize)| *nodes == of_class.having;
        let common = of_class.buckets.iter().filter(|(_, sum)| common(sum));
        let buckets = common.map(|(bound, (count, _))| (f64::from_bits(*bound), *count));
        ClassTail {
            path_class,
            transport,
            nodes: of_class.nodes,
            lost: of_class.lost,
            round_trips: Distribution::new(buckets.collect()),
            worst_node: of_class.worst,
        }
    };
    let probed = |(_, of_class): &(_, OfClass)| of_class.nodes > 0 || of_class.lost > 0.0;
    all.into_iter().filter(probed).map(tail).collect()
}

fn add_node(
    all: &mut BTreeMap<(PathClass, String), OfClass>,
    node: &NodeName,
    history: &NodeHistory,
) {
    let key = |labels: &Labels| {
        let path_class = read(labels, label!(PROBE_PATH_RTT, "path_class"))?;
        let transport = labels.get(label!(PROBE_PATH_RTT, "transport"))?;
        Some((path_class, transport.to_owned()))
    };
    for (labels, window) in history.series(&PROBE_PATH_RTT) {
        let Some((key, part)) = key(labels).zip(labels.values().last()) else {
            continue;
        };
        let rise = window.increase(WINDOW_SECONDS);
        let rise = rise.map_or(0.0, |Increase { amount, .. }| amount);
        let of_class = all.entry(key).or_default();
        match part.parse::<f64>() {
            Ok(bound) => {
                let bucket = of_class.buckets.entry(bound.to_bits()).or_default();
                *bucket = (bucket.0 + rise, bucket.1 + 1);
            }
            Err(_) if part == "count" => {
                of_class.having += 1;
                of_class.nodes += usize::from(rise > 0.0);
            }
            Err(_) => {}
        }
    }
    for (labels, window) in history.series(&PROBE_PATH_LOST) {
        if let Some(of_class) = key(labels).and_then(|key| all.get_mut(&key)) {
            let rise = window.increase(WINDOW_SECONDS);
            of_class.lost += rise.map_or(0.0, |rise| rise.amount);
        }
    }
    for (labels, window) in history.series(&PROBE_PATH_QUANTILE) {
        if labels.get(label!(PROBE_PATH_QUANTILE, "q")) == Some("0.999")
            && let Some(of_class) = key(labels).and_then(|key| all.get_mut(&key))
            && let Some(seconds) = window.value()
            && of_class
                .worst
                .as_ref()
                .is_none_or(|(most, _)| seconds > *most)
        {
            of_class.worst = Some((seconds, node.clone()));
        }
    }
}

/// Share of slow probes by class of path and by whether they travel by RDMA.
type Usual = BTreeMap<(PathClass, bool), f64>;

/// That of all flows of a class.
fn usual(counted: &[Counted<'_>]) -> Usual {
    let mut sums: BTreeMap<(PathClass, bool), (f64, f64)> = BTreeMap::new();
    for one in counted {
        let sums = sums
            .entry((one.row.path_class, one.row.is_rdma))
            .or_default();
        *sums = (sums.0 + answered(one), sums.1 + one.slow.count);
    }
    let shares = sums.into_iter();
    shares
        .map(|(class, (probes, slow))| (class, slow / probes.max(1.0)))
        .collect()
}

fn answered(one: &Counted<'_>) -> f64 {
    one.probes - one.lost.count
}

/// Adds one flow.
fn add<T>(slow: &mut Slow<T>, one: &Counted<'_>, usual: &Usual) {
    let probes = answered(one);
    slow.probes += probes;
    slow.slow += one.slow.count;
    slow.expected += probes
        * usual
            .get(&(one.row.path_class, one.row.is_rdma))
            .unwrap_or(&0.0);
}

/// Those that stand out most, the most unlikely first.
fn worst<T>(all: impl Iterator<Item = Slow<T>>) -> Vec<Slow<T>> {
    let mut all: Vec<Slow<T>> = all
        .filter(|one| one.slow >= MIN_HITS && one.slow > one.expected)
        .collect();
    all.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    all.truncate(LISTED);
    all
}

fn components(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
    usual: &Usual,
) -> Vec<Slow<Part>> {
    let mut hits: HashMap<Suspect, f64, FixedState> = HashMap::default();
    let mut over = Vec::new();
    for one in counted.iter().filter(|one| one.slow.count > 0.0) {
        crossed(view, ways, one, &mut over);
        for suspect in &over {
            *hits.entry(*suspect).or_default() += one.slow.count;
        }
    }
    hits.retain(|_, hits| *hits >= MIN_HITS);
    let blank = |suspect| (suspect, Slow::none_of(suspect));
    let mut found: HashMap<Suspect, Slow<Suspect>, FixedState> =
        hits.into_keys().map(blank).collect();
    if found.is_empty() {
        return Vec::new();
    }
    for one in counted {
        crossed(view, ways, one, &mut over);
        for suspect in &over {
            if let Some(slow) = found.get_mut(suspect) {
                add(slow, one, usual);
            }
        }
    }
    let mut found: Vec<Slow<Suspect>> = found.into_values().collect();
    found.sort_by_key(|slow| slow.of);
    let worst = worst(found.into_iter()).into_iter();
    worst
        .filter_map(|slow| slow.named(|suspect| part(view, ways, suspect)))
        .collect()
}

/// Puts into `over` the components that every probe of a flow crosses: the host that sends it, NICs with their cables,
/// leaves, and what is between them on its path out and back, where those are known.
fn crossed(view: &View<'_>, ways: &mut Ways, one: &Counted<'_>, over: &mut Vec<Suspect>) {
    over.clear();
    over.extend(one.row.ends.map(Suspect::Edge));
    let ends = one.row.ends.map(|nic| ways.end(view.fabric, nic));
    over.extend(ends[0].host.map(Suspect::Prober));
    over.extend(ends.iter().filter_map(|end| end.leaf).map(Suspect::Switch));
    for step in one.row.steps() {
        over.extend(step.switch.map(Suspect::Switch));
        if let [cable] = step.cables[..] {
            over.push(Suspect::Cable(cable));
        }
    }
    over.sort_unstable();
    over.dedup();
}

/// Which cables the flows are known to cross.
fn coverage(view: &View<'_>, ways: &mut Ways, counted: &[Counted<'_>]) -> Coverage {
    // Flows by cable.
    let mut crossed: HashMap<LinkId, usize, FixedState> = HashMap::default();
    for flows in by_pair(counted) {
        let ends = flows[0].row.ends.into_iter();
        for cable in ends.filter_map(|nic| ways.end(view.fabric, nic).cable) {
            *crossed.entry(cable).or_default() += flows.len();
        }
        for step in flows.iter().flat_map(|one| one.row.steps()) {
            if let [cable] = step.cables[..] {
                *crossed.entry(cable).or_default() += 1;
            }
        }
    }
    let mut coverage = Coverage::default();
    let is_switch = |part| matches!(view.fabric.vertex(part).part, Part::Switch(_));
    for (id, a, b, link) in view.fabric.links() {
        if link.kind == LinkKind::Cable && link.is_present() {
            let of = if is_switch(a) && is_switch(b) {
                &mut coverage.switch_cables
            } else {
                &mut coverage.host_cables
            };
            of.all += 1;
            of.probed += usize::from(crossed.contains_key(&id));
        }
    }
    coverage
}

fn pairs(view: &View<'_>, counted: &[Counted<'_>], usual: &Usual) -> Vec<Slow<Pair>> {
    let sums = by_pair(counted).filter(|flows| flows.iter().any(|one| one.slow.count > 0.0));
    let sums = sums.map(|flows| {
        let mut slow = Slow::none_of(flows[0].row);
        for one in flows {
            add(&mut slow, one, usual);
        }
        slow
    });
    let name = |row: &Row| {
        let nic = |end: usize| match &view.fabric.vertex(row.ends[end]).part {
            Part::Nic(node, device) => Some((node.clone(), device.clone())),
            _ => None,
        };
        let ((node, device), (peer_node, peer_device)) = (nic(0)?, nic(1)?);
        Some(Pair {
            node,
            device,
            peer_node,
            peer_device,
            path_class: row.path_class,
        })
    };
    let worst = worst(sums).into_iter();
    worst.filter_map(|slow| slow.named(name)).collect()
}
