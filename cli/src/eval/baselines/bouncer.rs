//! NetBouncer-like: probes that bounce off switches, and the probability of each cable to deliver that fits them
//! best.

use std::collections::BTreeMap;
use std::sync::Arc;

use railscope_model::identity::Part;

use super::super::alarm::Naming;
use super::super::frame::{Frame, Layout};
use super::super::probes::{Answer, Window};
use super::Baseline;
use super::pingmesh::LEAST_LOST;

/// Weight of the term that pulls each cable towards good or bad (an engineering choice, not tuned: a cable of n
/// paths that loses less than this over 2 n is taken for good).
const PULL: f64 = 2e-3;
/// A cable that delivers less is bad (NetBouncer, NSDI 2019, has a separate limit; this one is an engineering
/// choice, not tuned).
const GOOD: f64 = 0.998;
/// Rounds of descent, at most, and the change that ends them.
const ROUNDS: usize = 100;
/// See [`ROUNDS`].
const SETTLED: f64 = 1e-6;

/// NetBouncer-like: regularised least squares by coordinate descent, and the rule for devices. As a single lost probe
/// is no fault, a cable is also ignored whose paths lost fewer than a few.
pub(super) struct BouncerLike {
    layout: Arc<Layout>,
    window: Window,
}

impl BouncerLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            window: Window::default(),
        }
    }
}

/// A path: the places of its cables in the list of unknowns, and the share of its probes that came
/// back.
struct Row {
    cables: Vec<usize>,
    back: f64,
}

/// Probability of each of so many cables to deliver: minimizes the sum over paths of (share that came back -
/// product over its cables)^2 plus `pull` times the sum over cables of x (1 - x), one cable after another.
fn solve(rows: &[Row], cables: usize, pull: f64) -> Vec<f64> {
    let mut over: Vec<Vec<usize>> = vec![Vec::new(); cables];
    for (number, row) in rows.iter().enumerate() {
        for cable in &row.cables {
            over[*cable].push(number);
        }
    }
    // The best that each cable can be known to be: that of its best path.
    let best = |rows_of: &Vec<usize>| {
        rows_of
            .iter()
            .map(|row| rows[*row].back)
            .fold(0.0, f64::max)
    };
    let mut x: Vec<f64> = over.iter().map(best).collect();
    for _ in 0..ROUNDS {
        let mut moved: f64 = 0.0;
        for cable in 0..cables {
            let (mut squares, mut products) = (0.0, 0.0);
            for row in over[cable].iter().map(|row| &rows[*row]) {
                let others = row.cables.iter().filter(|other| **other != cable);
                let rest: f64 = others.map(|other| x[*other]).product();
                squares += rest * rest;
                products += rest * row.back;
            }
            let next = lowest(squares - pull, pull - 2.0 * products);
            moved = moved.max((next - x[cable]).abs());
            x[cable] = next;
        }
        if moved < SETTLED {
            break;
        }
    }
    x
}

/// Where `a x^2 + b x` is lowest between 0 and 1.
fn lowest(a: f64, b: f64) -> f64 {
    if a > 0.0 {
        (-b / (2.0 * a)).clamp(0.0, 1.0)
    } else if a + b < 0.0 {
        1.0
    } else {
        0.0
    }
}

/// Bad cables by number, each with its probability to deliver.
fn bad_cables(bounces: &[Answer], sums: &[[u32; 2]]) -> BTreeMap<usize, f64> {
    // Most of the time there is nothing to solve.
    if sums.iter().map(|[_, lost]| lost).sum::<u32>() < LEAST_LOST {
        return BTreeMap::new();
    }
    let mut lost_over: BTreeMap<usize, u32> = BTreeMap::new();
    let known = bounces.iter().zip(sums);
    let known = known.filter_map(|(answer, sums)| Some((answer.cables.as_ref()?, *sums)));
    for (cables, [_, lost]) in known.clone() {
        for cable in cables {
            *lost_over.entry(*cable).or_default() += lost;
        }
    }
    if lost_over.values().all(|lost| *lost < LEAST_LOST) {
        return BTreeMap::new();
    }
    let numbers: Vec<usize> = lost_over.keys().copied().collect();
    let rows = known.filter(|(_, [sent, _])| *sent > 0);
    let rows = rows.map(|(cables, [sent, lost])| Row {
        cables: cables
            .iter()
            .filter_map(|cable| numbers.binary_search(cable).ok())
            .collect(),
        back: 1.0 - f64::from(lost) / f64::from(sent),
    });
    let x = solve(&rows.collect::<Vec<_>>(), numbers.len(), PULL);
    let bad = lost_over.into_iter().zip(x);
    bad.filter(|((_, lost), x)| *lost >= LEAST_LOST && *x < GOOD)
        .map(|((cable, _), x)| (cable, x))
        .collect()
}

/// Switches all of whose cables that were probed are bad, if there are several; their cables are taken out.
fn bad_switches(
    switches: &[(Part, Vec<usize>)],
    probed: &dyn Fn(usize) -> bool,
    bad: &mut BTreeMap<usize, f64>,
) -> Vec<Part> {
    let mut named = Vec::new();
    let all_of_it = bad.clone();
    for (switch, cables) in switches {
        let probed: Vec<usize> = cables.iter().copied().filter(|c| probed(*c)).collect();
        if probed.len() > 1 && probed.iter().all(|cable| all_of_it.contains_key(cable)) {
            named.push(switch.clone());
            bad.retain(|cable, _| !cables.contains(cable));
        }
    }
    named
}

impl Baseline for BouncerLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let bounces = &frame.probes().bounces;
        self.window.push(frame.seconds, bounces);
        let mut bad = bad_cables(bounces, self.window.sums());
        if bad.is_empty() {
            return Vec::new();
        }
        let over = |cable: usize| {
            let known = bounces.iter().filter_map(|answer| answer.cables.as_ref());
            known.into_iter().any(|cables| cables.contains(&cable))
        };
        let switches = bad_switches(&self.layout.switches, &over, &mut bad);
        let switches = switches.into_iter().map(|switch| Naming::page(switch, 1.0));
        let of_cable =
            |(cable, x): (usize, f64)| Naming::page(self.layout.cables[cable].clone(), 1.0 - x);
        switches.chain(bad.into_iter().map(of_cable)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four NICs with cables 0 to 3, each bounced off switches behind cables 4 and 5, a thousand times each;
    /// `deliver` is the probability of each cable.
    fn bounces(deliver: [f64; 6]) -> (Vec<Answer>, Vec<[u32; 2]>) {
        let ways = (0..4).flat_map(|nic| [4, 5].map(|up| (nic, up)));
        let answers = ways.map(|(nic, up)| Answer {
            from: nic,
            to: None,
            cables: Some(vec![nic, up]),
            sent: 1000,
            lost: (1000.0 * (1.0 - deliver[nic] * deliver[up])).round() as u32,
        });
        let answers: Vec<Answer> = answers.collect();
        let sums = answers.iter().map(|answer| [answer.sent, answer.lost]);
        let sums = sums.collect();
        (answers, sums)
    }

    #[test]
    fn the_cable_that_loses_is_named_and_those_that_share_its_ways_are_not() {
        for (deliver, expected) in [
            ([1.0; 6], &[][..]),
            ([1.0, 1.0, 1.0, 1.0, 0.95, 1.0], &[4]),
            ([1.0, 0.9, 1.0, 1.0, 1.0, 1.0], &[1]),
            ([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], &[2]),
            ([1.0, 0.9, 1.0, 1.0, 0.95, 1.0], &[1, 4]),
            // One lost probe on a path is no fault.
            ([1.0, 1.0, 0.999, 1.0, 1.0, 1.0], &[]),
        ] {
            let (answers, sums) = bounces(deliver);
            let bad = bad_cables(&answers, &sums);
            let found: Vec<usize> = bad.keys().copied().collect();
            assert_eq!(found, expected, "{deliver:?}");
            for (cable, x) in bad {
                assert!((x - deliver[cable]).abs() < 2e-3, "{cable}: {x}");
            }
        }
    }

    #[test]
    fn a_switch_whose_cables_are_all_bad_is_named_instead_of_them() {
        let part = |name: &str| Part::Switch(name.parse().expect("a name"));
        let switches = [(part("s0"), vec![0, 1, 9]), (part("s1"), vec![2, 3])];
        let mut bad: BTreeMap<usize, f64> = [0, 1, 3].map(|cable| (cable, 0.5)).into();
        // No probe has crossed cable 9.
        let found = bad_switches(&switches, &|cable| cable != 9, &mut bad);
        assert_eq!(found, [part("s0")]);
        assert_eq!(bad.into_keys().collect::<Vec<_>>(), [3]);
    }
}
