//! Flows and paths -> the parts that tomography distinguishes, with numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkId, PartId};

use super::flows::{Counted, Hits, by_pair};
use super::{
    LEAST_LOSS, LEAST_TAIL, LEAST_TAIL_OF_FABRIC, LEAST_TAIL_OF_NODE, MOST_USUAL,
    SUSPICIOUS_NATS_OF_LEAF, SUSPICIOUS_NATS_OF_NODE,
};
use crate::detect::detector::View;
use crate::detect::rules::probe_paths::paths::{End, Ways};
use crate::detect::tomography::{Flow, Kind, MIN_HITS, Problem, base_rate};

/// What probes suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// No reply in time.
    Loss,
    /// A late reply.
    Tail,
}

/// What tomography distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Suspect {
    /// A NIC, its cable and what is behind it.
    Edge(PartId),
    /// A host, with its inbound and outbound probes.
    Host(PartId),
    /// A host, with the probes that it sends itself: the delay that it adds is its own. For those
    /// that it responds to, its processing time is omitted.
    Prober(PartId),
    /// A cable between switches.
    Cable(LinkId),
    /// A switch.
    Switch(PartId),
}

impl Suspect {
    const fn kind(self) -> Kind {
        match self {
            Self::Edge(_) => Kind::Edge,
            Self::Host(_) | Self::Prober(_) => Kind::Host,
            Self::Cable(_) => Kind::Cable,
            Self::Switch(_) => Kind::Switch,
        }
    }
}

/// Everything that probes report about one signal.
pub(super) struct Posed<'a> {
    pub(super) problem: Problem,
    pub(super) suspects: Vec<Suspect>,
    /// By flow of the problem.
    pub(super) counted: Vec<&'a Counted<'a>>,
}

impl Signal {
    pub(super) const fn hits(self, counted: &Counted<'_>) -> Hits {
        match self {
            Self::Loss => counted.lost,
            Self::Tail => counted.slow,
        }
    }

    fn probes(self, counted: &Counted<'_>) -> f64 {
        match self {
            Self::Loss => counted.probes,
            Self::Tail => counted.probes - counted.lost.count,
        }
    }

    const fn least(self) -> f64 {
        match self {
            Self::Loss => LEAST_LOSS,
            Self::Tail => LEAST_TAIL,
        }
    }

    /// Share of the probes over a part that must suffer before it is named.
    pub(super) const fn least_named(self, suspect: Suspect) -> f64 {
        match (self, suspect) {
            (Self::Loss, _) => 0.0,
            (Self::Tail, Suspect::Cable(_) | Suspect::Switch(_)) => LEAST_TAIL_OF_FABRIC,
            (Self::Tail, _) => LEAST_TAIL_OF_NODE,
        }
    }
}

/// Numbers of suspects and of sets of paths.
struct Poser<'a, 'b> {
    view: &'a View<'a>,
    ways: &'b mut Ways,
    signal: Signal,
    /// Hosts of which several NICs are probed: others are their NIC's edge.
    hosts: BTreeSet<PartId>,
    numbers: HashMap<Suspect, u32, FixedState>,
    suspects: Vec<Suspect>,
    sets: Vec<Vec<(u32, f64)>>,
    by_pair: HashMap<(PartId, PartId), u32, FixedState>,
}

/// Probes and hits at one place, and the hits that are usual for them.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    hits: f64,
    usual: f64,
}

impl Sum {
    fn add(&mut self, hits: f64, usual: f64) {
        self.hits += hits;
        self.usual += usual;
    }

    /// By how much its hits exceed what chance makes of the usual share: the deviance of a Poisson count.
    fn excess_nats(self) -> f64 {
        let Self { hits, usual } = self;
        if hits < MIN_HITS || hits <= usual {
            return 0.0;
        }
        hits * (hits / usual).ln() - (hits - usual)
    }
}

/// Where probes are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// Those from and to a NIC.
    Nic(PartId),
    /// Those from and to a host.
    Host(PartId),
    /// Those that a host sends.
    Prober(PartId),
    /// Those from and to the NICs of a leaf.
    Leaf(PartId),
}

impl Place {
    /// Where the probes between two NICs are counted, once in each place.
    fn of(nics: [PartId; 2], ends: &[End; 2]) -> impl Iterator<Item = Self> {
        let [from, to] = ends;
        let hosts = distinct(from.host, to.host).map(Self::Host);
        let leaves = distinct(from.leaf, to.leaf).map(Self::Leaf);
        let nics = nics.into_iter().map(Self::Nic);
        nics.chain(from.host.map(Self::Prober))
            .chain(hosts)
            .chain(leaves)
    }

    /// The places where all probes of a NIC are counted, or those that its host sends.
    fn at(nic: PartId, end: &End) -> impl Iterator<Item = Self> {
        let of_host = end.host.into_iter();
        let of_host = of_host.flat_map(|host| [Self::Host(host), Self::Prober(host)]);
        of_host
            .chain(end.leaf.map(Self::Leaf))
            .chain([Self::Nic(nic)])
    }

    /// Excess from which something may be wrong here.
    const fn suspicious_nats(self) -> f64 {
        match self {
            Self::Nic(_) | Self::Host(_) | Self::Prober(_) => SUSPICIOUS_NATS_OF_NODE,
            Self::Leaf(_) => SUSPICIOUS_NATS_OF_LEAF,
        }
    }
}

fn distinct(one: Option<PartId>, other: Option<PartId>) -> impl Iterator<Item = PartId> {
    one.into_iter().chain(other.filter(|_| one != other))
}

/// Where something may be wrong: leaves at which probes are hit more than is usual, or at whose NICs or hosts they are. What is
/// wrong with a component between leaves shows at them. A NIC whose leaf is not known counts by itself.
pub(super) fn suspicious(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
    signal: Signal,
    usual: Usual,
) -> BTreeSet<PartId> {
    let mut sums: HashMap<Place, Sum, FixedState> = HashMap::default();
    for flows in by_pair(counted) {
        let nics = flows[0].row.ends;
        let ends = nics.map(|nic| ways.end(view.fabric, nic));
        let hits = flows.iter().map(|one| signal.hits(one).count).sum();
        let expected = |one| signal.probes(one) * usual[kind(one, &ends)];
        let usual = flows.iter().map(expected).sum();
        for place in Place::of(nics, &ends) {
            sums.entry(place).or_default().add(hits, usual);
        }
    }
    sums.retain(|place, sum| sum.excess_nats() >= place.suspicious_nats());
    if sums.is_empty() {
        return BTreeSet::new();
    }
    let nics: BTreeSet<PartId> = by_pair(counted)
        .flat_map(|flows| flows[0].row.ends)
        .collect();
    let ends = nics
        .into_iter()
        .map(|nic| (nic, ways.end(view.fabric, nic)));
    ends.filter(|(nic, end)| Place::at(*nic, end).any(|place| sums.contains_key(&place)))
        .map(|(nic, end)| end.leaf.unwrap_or(nic))
        .collect()
}

/// What the flows at suspicious leaves show of a signal; none if no leaf is. Flows of a kind most of which
/// are affected carry no information about single parts, and are omitted, as are flows between leaves without
/// outliers: they are nearly all.
pub(super) fn pose<'a>(
    view: &'a View<'a>,
    ways: &mut Ways,
    counted: &'a [Counted<'a>],
    signal: Signal,
) -> Option<Posed<'a>> {
    let usual = usual(view, ways, counted, signal);
    let leaves = suspicious(view, ways, counted, signal, usual);
    if leaves.is_empty() {
        return None;
    }
    let mut poser = Poser {
        view,
        hosts: hosts(view, ways, counted),
        ways,
        signal,
        numbers: HashMap::default(),
        suspects: Vec::new(),
        sets: Vec::new(),
        by_pair: HashMap::default(),
    };
    let mut posed = (Vec::new(), Vec::new());
    for one in counted {
        let ends = one.row.ends.map(|nic| poser.ways.end(view.fabric, nic));
        let base = usual[kind(one, &ends)];
        let mut places = one.row.ends.iter().zip(&ends);
        let is_near = places.any(|(nic, end)| leaves.contains(&end.leaf.unwrap_or(*nic)));
        if is_near && base <= MOST_USUAL && signal.probes(one) > 0.0 {
            posed.0.push(poser.flow(one, ends, base));
            posed.1.push(one);
        }
    }
    let (flows, counted) = posed;
    Some(Posed {
        problem: Problem {
            parts: poser
                .suspects
                .iter()
                .map(|suspect| suspect.kind())
                .collect(),
            sets: poser.sets,
            flows,
        },
        suspects: poser.suspects,
        counted,
    })
}

fn is_far(ends: &[End; 2]) -> bool {
    ends[0].leaf != ends[1].leaf || ends[0].leaf.is_none()
}

/// Share of the probes that suffers while nothing is broken, by [`kind`] of flow.
type Usual = [f64; 4];

/// What is usual differs within a leaf and beyond, and by UDP and RDMA.
fn kind(one: &Counted<'_>, ends: &[End; 2]) -> usize {
    usize::from(is_far(ends)) + 2 * usize::from(one.row.is_rdma)
}

/// That of these flows.
fn usual(view: &View<'_>, ways: &mut Ways, counted: &[Counted<'_>], signal: Signal) -> Usual {
    let mut sources: [BTreeMap<PartId, (f64, f64)>; 4] = Default::default();
    let mut single: [Vec<(f64, f64)>; 4] = Default::default();
    for flows in by_pair(counted) {
        let nics = flows[0].row.ends;
        let ends = nics.map(|nic| ways.end(view.fabric, nic));
        for one in flows {
            let (kind, probes, hits) =
                (kind(one, &ends), signal.probes(one), signal.hits(one).count);
            let sums = sources[kind].entry(nics[0]).or_default();
            sums.0 += probes;
            sums.1 += hits;
            single[kind].push((probes, hits));
        }
    }
    [0, 1, 2, 3].map(|kind| {
        let (sources, flows) = (sources[kind].values(), single[kind].iter());
        base_rate(sources.copied(), flows.copied(), signal.least())
    })
}

/// Hosts of which several NICs are probed.
fn hosts(view: &View<'_>, ways: &mut Ways, counted: &[Counted<'_>]) -> BTreeSet<PartId> {
    let mut nics: BTreeMap<PartId, BTreeSet<PartId>> = BTreeMap::new();
    for nic in counted.iter().flat_map(|one| one.row.ends) {
        if let Some(host) = ways.end(view.fabric, nic).host {
            nics.entry(host).or_default().insert(nic);
        }
    }
    let several = nics.into_iter().filter(|(_, nics)| nics.len() > 1);
    several.map(|(host, _)| host).collect()
}

impl Poser<'_, '_> {
    fn number(&mut self, suspect: Suspect) -> u32 {
        let next = self.suspects.len() as u32;
        let number = *self.numbers.entry(suspect).or_insert(next);
        if number == next {
            self.suspects.push(suspect);
        }
        number
    }

    fn flow(&mut self, one: &Counted<'_>, ends: [End; 2], base: f64) -> Flow {
        let mut over: Vec<Suspect> = one.row.ends.map(Suspect::Edge).into();
        match self.signal {
            Signal::Loss => {
                let hosts = ends.iter().filter_map(|end| end.host);
                let several = hosts.filter(|host| self.hosts.contains(host));
                over.extend(several.map(Suspect::Host));
            }
            Signal::Tail => over.extend(ends[0].host.map(Suspect::Prober)),
        }
        over.extend(ends.iter().filter_map(|end| end.leaf).map(Suspect::Switch));
        let mut within = Vec::new();
        if let [Some(a), Some(b)] = ends.map(|end| end.leaf)
            && a != b
        {
            within = self.far(one, [a, b], &mut over);
        }
        over.sort_unstable();
        over.dedup();
        Flow {
            probes: self.signal.probes(one),
            hits: self.signal.hits(one).count,
            base,
            over: over
                .into_iter()
                .map(|suspect| self.number(suspect))
                .collect(),
            within,
        }
    }

    /// Adds the paths between two leaves, out and back: parts that they are known to lead over, and
    /// sets of those that they may.
    fn far(
        &mut self,
        one: &Counted<'_>,
        leaves: [PartId; 2],
        over: &mut Vec<Suspect>,
    ) -> Vec<(u32, u8)> {
        let view = self.view;
        if self.ways.between(view, leaves[0], leaves[1]).is_none() {
            return Vec::new();
        }
        let mut within = Vec::new();
        let unknown = one.row.ways.iter().filter(|way| way.is_none()).count() as u8;
        if unknown > 0 {
            within.push((self.set(leaves), unknown));
        }
        for step in one.row.steps() {
            over.extend(step.switch.map(Suspect::Switch));
            if let [cable] = step.cables[..] {
                over.push(Suspect::Cable(cable));
            } else {
                let share = 1.0 / step.cables.len() as f64;
                let cables = step.cables.iter();
                let cables = cables.map(|cable| (self.number(Suspect::Cable(*cable)), share));
                let cables = cables.collect();
                self.sets.push(cables);
                within.push((self.sets.len() as u32 - 1, 1));
            }
        }
        within
    }

    /// The set of all paths between two leaves.
    fn set(&mut self, [a, b]: [PartId; 2]) -> u32 {
        let pair = (a.min(b), a.max(b));
        if let Some(known) = self.by_pair.get(&pair) {
            return *known;
        }
        let set = self.ways.between(self.view, a, b).cloned();
        let parts: Vec<(Suspect, f64)> = set.map_or_else(Vec::new, |set| {
            let cables = set.cables.into_iter();
            let cables = cables.map(|(cable, share)| (Suspect::Cable(cable), share));
            let switches = set.switches.into_iter();
            let switches = switches.map(|(switch, share)| (Suspect::Switch(switch), share));
            cables.chain(switches).collect()
        });
        let parts = parts
            .into_iter()
            .map(|(part, share)| (self.number(part), share));
        let parts = parts.collect();
        self.sets.push(parts);
        let number = self.sets.len() as u32 - 1;
        self.by_pair.insert(pair, number);
        number
    }
}
