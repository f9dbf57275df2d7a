//! Flows and paths -> the parts that tomography distinguishes, with numbers.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use railscope_model::fabric::{LinkId, PartId};

use super::flows::{Counted, Hits, by_pair, by_sender};
use super::{
    LEAST_LOSS, LEAST_TAIL, LEAST_TAIL_OF_FABRIC, LEAST_TAIL_OF_NODE, MOST_FLOWS, MOST_USUAL,
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
    /// A host of which one NIC is probed is that NIC's edge.
    hosts: HashMap<PartId, Probed, FixedState>,
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

/// Where something may be wrong: leaves at which probes are hit more than is usual, or at whose NICs or hosts they are, with the
/// largest such excess in nats. What is wrong with a component between leaves shows at them. A NIC whose leaf is not known counts
/// by itself.
fn suspicious(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
    signal: Signal,
    usual: Usual,
) -> HashMap<PartId, f64, FixedState> {
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
    let mut leaves = HashMap::default();
    if sums.is_empty() {
        return leaves;
    }
    for nic in by_pair(counted).flat_map(|flows| flows[0].row.ends) {
        let end = ways.end(view.fabric, nic);
        let excesses = Place::at(nic, &end).filter_map(|place| sums.get(&place));
        if let Some(most) = excesses.map(|sum| sum.excess_nats()).reduce(f64::max) {
            let known = leaves.entry(end.leaf.unwrap_or(nic)).or_insert(most);
            *known = f64::max(*known, most);
        }
    }
    leaves
}

/// Of such leaves those with the largest excess, as many as have [`MOST_FLOWS`] flows together, each counted at either end, and at
/// least one.
fn worst(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
    leaves: HashMap<PartId, f64, FixedState>,
) -> BTreeSet<PartId> {
    let mut flows: HashMap<PartId, usize, FixedState> = HashMap::default();
    for of_pair in by_pair(counted) {
        let leaf = of_pair[0].row.ends.map(|nic| ways.leaf(view.fabric, nic));
        for leaf in distinct(Some(leaf[0]), Some(leaf[1])).filter(|leaf| leaves.contains_key(leaf))
        {
            *flows.entry(leaf).or_default() += of_pair.len();
        }
    }
    let flows_at = |(leaf, nats)| (leaf, nats, flows[&leaf]);
    as_many_as_fit(leaves.into_iter().map(flows_at).collect(), MOST_FLOWS).collect()
}

/// Those with the largest excess, as many as have so many flows together, and at least one. `leaves`: excess in nats, and flows.
fn as_many_as_fit<T: Ord>(
    mut leaves: Vec<(T, f64, usize)>,
    most_flows: usize,
) -> impl Iterator<Item = T> {
    leaves.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut sum = 0;
    leaves.into_iter().map_while(move |(leaf, _, flows)| {
        let is_first = sum == 0;
        sum += flows;
        (is_first || sum <= most_flows).then_some(leaf)
    })
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
    if counted.iter().all(|one| signal.hits(one).count == 0.0) {
        return None;
    }
    let usual = usual(view, ways, counted, signal);
    let leaves = suspicious(view, ways, counted, signal, usual);
    if leaves.is_empty() {
        return None;
    }
    let leaves = worst(view, ways, counted, leaves);
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
    for flows in by_pair(counted) {
        let nics = flows[0].row.ends;
        let ends = nics.map(|nic| poser.ways.end(view.fabric, nic));
        let mut at = nics
            .map(|nic| poser.ways.leaf(view.fabric, nic))
            .into_iter();
        if !at.any(|leaf| leaves.contains(&leaf)) {
            continue;
        }
        for one in flows {
            let base = usual[kind(one, &ends)];
            if base <= MOST_USUAL && signal.probes(one) > 0.0 {
                posed.0.push(poser.flow(one, ends, base));
                posed.1.push(one);
            }
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
    // Those with probes.
    let mut sources: [Vec<(f64, f64)>; 4] = Default::default();
    let mut single: [Vec<(f64, f64)>; 4] = Default::default();
    for of_sender in by_sender(counted) {
        let mut sums = [(0.0, 0.0); 4];
        for flows in by_pair(of_sender) {
            let ends = flows[0].row.ends.map(|nic| ways.end(view.fabric, nic));
            for one in flows {
                let kind = kind(one, &ends);
                let (probes, hits) = (signal.probes(one), signal.hits(one).count);
                sums[kind] = (sums[kind].0 + probes, sums[kind].1 + hits);
                single[kind].push((probes, hits));
            }
        }
        for (sources, sum) in sources.iter_mut().zip(sums) {
            sources.extend((sum.0 > 0.0).then_some(sum));
        }
    }
    [0, 1, 2, 3].map(|kind| {
        let (sources, flows) = (sources[kind].iter(), single[kind].iter());
        base_rate(sources.copied(), flows.copied(), signal.least())
    })
}

/// What of a host is probed.
struct Probed {
    first: PartId,
    several: bool,
}

/// NICs that are probed, by host.
fn hosts(
    view: &View<'_>,
    ways: &mut Ways,
    counted: &[Counted<'_>],
) -> HashMap<PartId, Probed, FixedState> {
    let mut hosts: HashMap<PartId, Probed, FixedState> = HashMap::default();
    for nic in by_pair(counted).flat_map(|flows| flows[0].row.ends) {
        if let Some(host) = ways.end(view.fabric, nic).host {
            let probed = hosts.entry(host).or_insert(Probed {
                first: nic,
                several: false,
            });
            probed.several |= probed.first != nic;
        }
    }
    hosts
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
                let has_several =
                    |host: &PartId| self.hosts.get(host).is_some_and(|own| own.several);
                let several = hosts.filter(has_several);
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

#[cfg(test)]
mod tests {
    use super::as_many_as_fit;

    #[test]
    fn the_leaves_with_the_largest_excess_are_explained_first_and_at_least_one() {
        let taken = |most| {
            let leaves = vec![("a", 9.0, 500), ("b", 300.0, 2_000), ("c", 40.0, 1_000)];
            as_many_as_fit(leaves, most).collect::<Vec<_>>()
        };
        assert_eq!(taken(10_000), ["b", "c", "a"]);
        assert_eq!(taken(3_000), ["b", "c"]);
        assert_eq!(taken(2_500), ["b"]);
        assert_eq!(taken(100), ["b"]);
    }
}
