//! Injected faults are found and no others, on a small fabric with random probes.

use super::*;

const LEAVES: u32 = 4;
const SPINES: u32 = 4;
/// Hosts of each pair of leaves; each has a NIC on both.
const HOSTS: u32 = 8;
const EDGES: u32 = LEAVES * HOSTS;

/// What a part of the fabric is, and its number.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// Leaf, host of the leaf.
    Edge(u32, u32),
    /// Pair of leaves, host of the pair.
    Host(u32, u32),
    /// Leaf, spine.
    Cable(u32, u32),
    Leaf(u32),
    Spine(u32),
}

impl Part {
    const fn number(self) -> u32 {
        match self {
            Self::Edge(leaf, host) => leaf * HOSTS + host,
            Self::Host(pair, host) => EDGES + pair * HOSTS + host,
            Self::Cable(leaf, spine) => EDGES + EDGES / 2 + leaf * SPINES + spine,
            Self::Leaf(leaf) => EDGES + EDGES / 2 + LEAVES * SPINES + leaf,
            Self::Spine(spine) => EDGES + EDGES / 2 + LEAVES * SPINES + LEAVES + spine,
        }
    }
}

/// Draws by SplitMix64.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self, probes: u32, chance: f64) -> f64 {
        let hit = |_: &u32| ((self.bits() >> 11) as f64 / (1_u64 << 53) as f64) < chance;
        (0..probes).filter(hit).count() as f64
    }
}

/// How the fabric is probed and what is known of it.
#[derive(Debug, Clone, Copy)]
struct Lab<'a> {
    probes: u32,
    base: f64,
    /// Whether the path out of each flow is known.
    knows_ways: bool,
    /// Broken parts and the share of the probes over them, each time they cross, that they affect.
    broken: &'a [(Part, f64)],
    /// Hosts with only their own probes affected.
    noisy: &'a [(u32, u32, f64)],
}

const HEALTHY: Lab<'static> = Lab {
    probes: 140,
    base: 1e-4,
    knows_ways: true,
    broken: &[],
    noisy: &[],
};

fn parts() -> Vec<Kind> {
    [
        (EDGES, Kind::Edge),
        (EDGES / 2, Kind::Host),
        (LEAVES * SPINES, Kind::Cable),
        (LEAVES + SPINES, Kind::Switch),
    ]
    .into_iter()
    .flat_map(|(count, kind)| (0..count).map(move |_| kind))
    .collect()
}

/// The set of paths between two leaves.
fn set(a: u32, b: u32) -> Vec<(u32, f64)> {
    let share = 1.0 / f64::from(SPINES);
    (0..SPINES)
        .flat_map(|spine| {
            [
                Part::Cable(a, spine),
                Part::Cable(b, spine),
                Part::Spine(spine),
            ]
        })
        .map(|part| (part.number(), share))
        .collect()
}

impl Lab<'_> {
    /// From each NIC to four of its leaf and four of each other leaf, with four flows each.
    fn problem(&self, seed: u64) -> Problem {
        let mut draw = Draw(seed);
        let mut problem = Problem {
            parts: parts(),
            sets: (0..LEAVES * LEAVES)
                .map(|pair| set(pair / LEAVES, pair % LEAVES))
                .collect(),
            flows: Vec::new(),
        };
        for from in 0..EDGES {
            let (leaf, host) = (from / HOSTS, from % HOSTS);
            for step in 1..=4 {
                let near = (leaf, (host + step) % HOSTS);
                problem.flows.push(self.flow(&mut draw, (leaf, host), near));
                for far in (0..LEAVES).filter(|far| *far != leaf) {
                    let to = (far, (host + step) % HOSTS);
                    problem.flows.push(self.flow(&mut draw, (leaf, host), to));
                }
            }
        }
        problem
    }

    fn flow(&self, draw: &mut Draw, from: (u32, u32), to: (u32, u32)) -> Flow {
        let spines = [draw.bits() as u32 % SPINES, draw.bits() as u32 % SPINES];
        let way = |spine: u32| {
            let cables = [Part::Cable(from.0, spine), Part::Cable(to.0, spine)];
            cables.into_iter().chain([Part::Spine(spine)])
        };
        // What a host adds is counted for its own probes only.
        let counted = if self.noisy.is_empty() { 2 } else { 1 };
        let hosts = [from, to].into_iter().take(counted);
        let hosts = hosts.map(|(leaf, host)| Part::Host(leaf / 2, host));
        let ends = [from, to].into_iter();
        let ends = ends.flat_map(|(leaf, host)| [Part::Edge(leaf, host), Part::Leaf(leaf)]);
        let mut certain: Vec<Part> = ends.chain(hosts).collect();
        let mut crossed = certain.clone();
        let is_far = from.0 != to.0;
        if is_far {
            crossed.extend(spines.into_iter().flat_map(way));
            if self.knows_ways {
                certain.extend(way(spines[0]));
            }
        }
        let mut passes = 1.0 - self.base;
        for (part, rate) in self.broken {
            let times = crossed.iter().filter(|other| *other == part).count();
            passes *= (1.0 - rate).powi(times.min(2) as i32);
        }
        for (pair, host, rate) in self.noisy {
            passes *= if (from.0 / 2, from.1) == (*pair, *host) {
                1.0 - rate
            } else {
                1.0
            };
        }
        let mut over: Vec<u32> = certain.into_iter().map(Part::number).collect();
        over.sort_unstable();
        over.dedup();
        let times = if self.knows_ways { 1 } else { 2 };
        Flow {
            probes: f64::from(self.probes),
            hits: draw.hits(self.probes, 1.0 - passes),
            base: self.base,
            over,
            within: is_far
                .then_some((from.0 * LEAVES + to.0, times))
                .into_iter()
                .collect(),
        }
    }

    /// Whether these parts and no others are found, whatever the seed.
    fn finds(&self, expected: &[Part]) {
        for seed in 0..5 {
            let found = explain(&self.problem(seed));
            let mut numbers: Vec<u32> = found.iter().map(|one| one.part).collect();
            numbers.sort_unstable();
            let mut expected: Vec<u32> = expected.iter().map(|part| part.number()).collect();
            expected.sort_unstable();
            assert_eq!(numbers, expected, "seed {seed}: {found:?}");
        }
    }
}

#[test]
fn what_is_planted_is_found_and_nothing_else() {
    for (part, rate) in [
        (Part::Edge(1, 3), 0.05),
        (Part::Edge(0, 0), 1.0),
        (Part::Cable(2, 1), 0.01),
        (Part::Cable(0, 3), 0.05),
        (Part::Leaf(3), 0.01),
        (Part::Spine(2), 0.01),
        (Part::Host(1, 5), 0.03),
    ] {
        Lab {
            broken: &[(part, rate)],
            ..HEALTHY
        }
        .finds(&[part]);
    }
}

#[test]
fn nothing_is_found_where_nothing_is_broken() {
    for seed in 0..60 {
        for base in [1e-4, 1e-2] {
            let lab = Lab { base, ..HEALTHY };
            assert_eq!(explain(&lab.problem(seed)), [], "seed {seed}, {base}");
        }
        let blind = Lab {
            knows_ways: false,
            ..HEALTHY
        };
        assert_eq!(explain(&blind.problem(seed)), [], "seed {seed}, blind");
    }
}

#[test]
fn two_faults_at_once_are_two_wherever_they_are() {
    for (one, other) in [
        ((Part::Cable(0, 1), 0.05), (Part::Cable(3, 2), 0.03)),
        // Of one leaf, and not the leaf.
        ((Part::Cable(1, 1), 0.05), (Part::Cable(1, 2), 0.05)),
        ((Part::Edge(2, 6), 0.5), (Part::Cable(2, 0), 0.03)),
        ((Part::Spine(1), 0.02), (Part::Edge(0, 1), 0.1)),
    ] {
        Lab {
            broken: &[one, other],
            ..HEALTHY
        }
        .finds(&[one.0, other.0]);
    }
}

#[test]
fn the_share_that_is_told_is_the_one_that_was_planted() {
    for rate in [0.02, 0.1, 0.6] {
        let part = Part::Edge(1, 1);
        let lab = Lab {
            broken: &[(part, rate)],
            probes: 2000,
            ..HEALTHY
        };
        let found = explain(&lab.problem(7));
        assert_eq!(found.len(), 1);
        assert!(
            (found[0].rate / rate - 1.0).abs() < 0.2,
            "{rate}: {found:?}"
        );
    }
}

#[test]
fn a_host_with_tails_is_a_host_and_none_of_its_cables() {
    let host = Part::Host(1, 2);
    let mut lab = Lab {
        base: 1e-2,
        noisy: &[(1, 2, 0.2)],
        ..HEALTHY
    };
    lab.finds(&[host]);
    lab.noisy = &[(1, 2, 0.2), (0, 7, 0.1), (0, 4, 0.3)];
    lab.finds(&[host, Part::Host(0, 7), Part::Host(0, 4)]);
}

#[test]
fn what_cannot_be_told_apart_is_said_so() {
    // The path of each flow is unknown: the cables of its leaf are all alike, or it is that one.
    let culprit = Part::Cable(2, 1);
    let lab = Lab {
        knows_ways: false,
        broken: &[(culprit, 0.05)],
        ..HEALTHY
    };
    let of_leaf: Vec<u32> = (0..SPINES)
        .map(|spine| Part::Cable(2, spine).number())
        .collect();
    for seed in 0..5 {
        let found = explain(&lab.problem(seed));
        let [first, ..] = &found[..] else {
            panic!("seed {seed}: nothing");
        };
        assert!(of_leaf.contains(&first.part), "seed {seed}: {found:?}");
        let mut named = first.alike.iter().chain([&first.part]);
        assert!(
            named.any(|part| *part == culprit.number()),
            "seed {seed}: {found:?}"
        );
        assert!(
            first.alike.iter().all(|part| of_leaf.contains(part)),
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn of_cables_that_packets_are_sprayed_over_none_is_named_before_the_others() {
    // Every flow has the same loss, as each probe takes another path.
    let cables: Vec<(u32, f64)> = (0..8).map(|cable| (cable, 1.0 / 8.0)).collect();
    let flow = Flow {
        probes: 1000.0,
        hits: 6.0,
        base: 1e-4,
        over: Vec::new(),
        within: vec![(0, 2)],
    };
    let problem = Problem {
        parts: vec![Kind::Cable; 8],
        sets: vec![cables],
        flows: vec![flow; 40],
    };
    let found = explain(&problem);
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((one.alike.len(), one.same), (7, true), "{one:?}");
    // 0.6 % of the probes, of which 15 in 64 cross a cable on their paths out or back.
    assert!((one.rate / 0.0256 - 1.0).abs() < 0.2, "{one:?}");
}

#[test]
fn a_cable_of_most_of_the_same_flows_is_told_apart_by_more_probes() {
    let flow = |over: &[u32], hits: usize| Flow {
        probes: 150.0,
        hits: hits as f64,
        base: 1e-4,
        over: over.to_vec(),
        within: Vec::new(),
    };
    // 25 flows cross both, seven the second only.
    for (of_both, of_second) in (4..20).flat_map(|both| (0..6).map(move |second| (both, second))) {
        let both = (0..25).map(|place| flow(&[0, 1], usize::from(place < of_both)));
        let second = (0..7).map(|place| flow(&[1], usize::from(place < of_second)));
        let problem = Problem {
            parts: vec![Kind::Cable; 2],
            sets: Vec::new(),
            flows: both.chain(second).collect(),
        };
        for one in explain(&problem).iter().filter(|one| !one.alike.is_empty()) {
            assert!(!one.same, "{of_both} and {of_second} hits: {one:?}");
        }
    }
}

#[test]
fn an_edge_behind_a_host_of_one_nic_is_as_likely_the_host() {
    let flow = |from: u32, to: u32, hits: f64| Flow {
        probes: 1000.0,
        hits,
        base: 1e-4,
        over: vec![from, to, from + 3, to + 3],
        within: Vec::new(),
    };
    let problem = Problem {
        parts: [[Kind::Edge; 3], [Kind::Host; 3]].concat(),
        sets: Vec::new(),
        flows: vec![flow(0, 1, 50.0), flow(1, 2, 0.0), flow(2, 0, 50.0)],
    };
    let found = explain(&problem);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].part, &*found[0].alike), (0, &[3][..]));
}

#[test]
fn what_most_sources_show_is_usual() {
    let of_hundred = |hits: &[f64]| hits.iter().map(|hits| (100.0, *hits)).collect::<Vec<_>>();
    let rate = |hits: &[f64]| base_rate(of_hundred(hits).into_iter(), std::iter::empty(), 1e-3);
    assert_eq!(rate(&[]), 1e-3);
    assert_eq!(rate(&[0.0, 0.0, 0.0]), 1e-3);
    // Of a hundred probes the middle count is 0 up to a mean of 0.7.
    assert_eq!(rate(&[0.0, 0.0, 50.0]), 0.7 / 100.0);
    assert_eq!(rate(&[0.0, 0.0, 0.0, 0.0, 1.0]), 1.0 / 500.0);
    assert_eq!(rate(&[1.0, 1.0, 1.0, 50.0, 50.0]), 1.7 / 100.0);

    // One of four spines hits a quarter of each source's flows, and of most flows nothing.
    let both = |sources: &[f64], flows: &[f64]| {
        let (sources, flows) = (of_hundred(sources), of_hundred(flows));
        base_rate(sources.into_iter(), flows.into_iter(), 1e-3)
    };
    let quarter = [1.0, 2.0, 1.0, 50.0, 1.0, 0.0, 1.0, 50.0];
    assert_eq!(both(&[13.0; 2], &quarter), 0.01);
    // All flows are affected equally; and too few hits to evaluate any flow.
    assert_eq!(both(&[13.0; 2], &[13.0; 8]), 0.13);
    assert_eq!(both(&[2.0; 2], &[0.0, 0.0, 0.0, 8.0]), 0.02);
}

#[test]
fn a_share_between_those_that_are_tried_first_tells_no_parts_apart() {
    // 20 flows cross both cables, seven the second only: of 8 hits at 0.3 %, none on those seven is likely by chance.
    let flow = |over: &[u32], hits: usize| Flow {
        probes: 110.0,
        hits: hits as f64,
        base: 1e-4,
        over: over.to_vec(),
        within: Vec::new(),
    };
    let both = (0..20).map(|place| flow(&[0, 1], usize::from(place < 8)));
    let problem = Problem {
        parts: vec![Kind::Cable; 2],
        sets: Vec::new(),
        flows: both.chain((0..7).map(|_| flow(&[1], 0))).collect(),
    };
    let found = explain(&problem);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].part, &found[0].alike[..]),
        (0, &[1][..]),
        "{found:?}"
    );
    assert!(!found[0].same, "{found:?}");
}
