//! R-Pingmesh-like: probes between NICs; time-outs within a leaf accuse a NIC, those between leaves a cable.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Entity, Frame, Layout};
use super::super::probes::{Answer, Window};
use super::Baseline;

/// A NIC is bad if more than this share of the probes from it and to it within its leaf time out (R-Pingmesh,
/// SIGCOMM 2024).
const TIME_OUTS: f64 = 0.10;
/// A cable is accused by at least so many lost probes. The publication has no such limit; of the 1,200 probes that
/// cross the cable of a NIC in a minute, a healthy fabric loses as many once in years (Poisson, at 1e-5 of probes).
pub(super) const LEAST_LOST: u32 = 4;

/// R-Pingmesh-like. Its watch over the paths of the jobs themselves, and what it reports about the processors of
/// nodes, are not part of it.
pub(super) struct PingmeshLike {
    layout: Arc<Layout>,
    far: Window,
}

impl PingmeshLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            far: Window::default(),
        }
    }
}

/// NICs whose probes within their leaf time out, the worst first, each with its share. The probes of a named NIC are removed,
/// so that the NICs that probe it are not named for it.
fn bad_nics(mesh: &[Answer]) -> Vec<(usize, f64)> {
    let mut bad: Vec<(usize, f64)> = Vec::new();
    if mesh.iter().all(|answer| answer.lost == 0) {
        return bad;
    }
    loop {
        let mut of_nic: BTreeMap<usize, [u32; 2]> = BTreeMap::new();
        let is_bad = |nic: usize| bad.iter().any(|(other, _)| *other == nic);
        for answer in mesh {
            let ends = || std::iter::once(answer.from).chain(answer.to);
            if ends().any(is_bad) {
                continue;
            }
            for nic in ends() {
                let sums = of_nic.entry(nic).or_default();
                *sums = [sums[0] + answer.sent, sums[1] + answer.lost];
            }
        }
        let shares = of_nic.into_iter().filter(|(_, [sent, _])| *sent > 0);
        let shares = shares.map(|(nic, [sent, lost])| (nic, f64::from(lost) / f64::from(sent)));
        let worst = shares.fold(
            (0, 0.0),
            |worst, own| if own.1 > worst.1 { own } else { worst },
        );
        if worst.1 <= TIME_OUTS {
            return bad;
        }
        bad.push(worst);
    }
}

/// Cables that most of the lost probes have crossed, and how many. `sums` are sent and lost of each
/// path.
fn accused(far: &[Answer], sums: &[[u32; 2]], bad: &[(usize, f64)]) -> (Vec<usize>, u32) {
    let is_bad = |nic: usize| bad.iter().any(|(other, _)| *other == nic);
    let mut votes: BTreeMap<usize, u32> = BTreeMap::new();
    for (answer, [_, lost]) in far.iter().zip(sums).filter(|(_, sums)| sums[1] > 0) {
        if is_bad(answer.from) || answer.to.is_some_and(is_bad) {
            continue;
        }
        for cable in answer.cables.iter().flatten() {
            *votes.entry(*cable).or_default() += lost;
        }
    }
    let most = votes.values().copied().max().unwrap_or(0);
    if most < LEAST_LOST {
        return (Vec::new(), 0);
    }
    // Cables with equal votes cannot be distinguished: all of them are named.
    let worst = votes.into_iter().filter(|(_, count)| *count == most);
    (worst.map(|(cable, _)| cable).collect(), most)
}

impl Baseline for PingmeshLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let probes = frame.probes();
        self.far.push(frame.seconds, &probes.far);
        let bad = bad_nics(&probes.mesh);
        let (cables, votes) = accused(&probes.far, self.far.sums(), &bad);
        let nics = self.layout.parts(Entity::Link);
        let of_nic = |(nic, share): &(usize, f64)| Naming::page(nics[*nic].clone(), *share);
        let mut named: Vec<Naming> = bad.iter().map(of_nic).collect();
        let of_cable =
            |cable: usize| Naming::page(self.layout.cables[cable].clone(), f64::from(votes));
        named.extend(cables.into_iter().map(of_cable));
        named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(from: usize, to: usize, cables: &[usize], lost: u32) -> Answer {
        Answer {
            from,
            to: Some(to),
            cables: Some(cables.to_vec()),
            sent: 100,
            lost,
        }
    }

    /// Four NICs that probe each other; those of `lost` lose so many of a hundred.
    fn mesh(lost: impl Fn(usize, usize) -> u32) -> Vec<Answer> {
        let pairs = (0..4).flat_map(|a| (0..4).map(move |b| (a, b)));
        let pairs = pairs.filter(|(a, b)| a != b);
        pairs
            .map(|(a, b)| answer(a, b, &[a, b], lost(a, b)))
            .collect()
    }

    #[test]
    fn a_nic_is_bad_above_a_tenth_of_time_outs_and_its_neighbors_are_not() {
        let of_two = |lost: u32| move |a: usize, b: usize| if a == 2 || b == 2 { lost } else { 0 };
        assert_eq!(bad_nics(&mesh(of_two(100))), [(2, 1.0)]);
        assert_eq!(bad_nics(&mesh(of_two(11))), [(2, 0.11)]);
        assert_eq!(bad_nics(&mesh(of_two(10))), []);
        assert_eq!(bad_nics(&[]), []);
    }

    #[test]
    fn lost_probes_between_leaves_accuse_the_cable_that_they_share() {
        let far = [
            answer(0, 4, &[0, 10, 11, 4], 3),
            answer(1, 5, &[1, 10, 12, 5], 2),
            answer(2, 6, &[2, 13, 11, 6], 0),
        ];
        let sums = far.clone().map(|answer| [answer.sent, answer.lost]);
        assert_eq!(accused(&far, &sums, &[]), (vec![10], 5));
        // What a bad NIC loses indicates no other part, and what remains is too little.
        assert_eq!(accused(&far, &sums, &[(0, 1.0)]), (vec![], 0));
    }
}
