//! C4D-like: the matrix of the times of messages, from each sender to each receiver, and what in it stands out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::alarm::Naming;
use super::super::frame::{Entity, Frame, Layout};
use super::super::probes::Message;
use super::Baseline;
use super::ratios::median;

/// A message is slow if it takes this multiple of the median. C4 (HPCA 2025) publishes no limit: that of the link
/// test in Greyhound's code.
const SLOW: f64 = 1.2;
/// Ticks in a row for which a message must be slow (an engineering choice: a single one reports
/// nothing).
const TICKS: u32 = 2;

/// C4D-like. A row that is slow accuses its sender, a column its receiver, and a single cell the cables between them:
/// the matrix does not report which end. A collective by rings has one cell in each row and column, so that there a
/// NIC is accused by both. A message is timed as if no other node sent, where C4D times it among all others.
pub(super) struct DelaysLike {
    layout: Arc<Layout>,
    /// By job, collective, sender and receiver: ticks for which it has been slow.
    slow: BTreeMap<((usize, usize), usize, usize), u32>,
}

impl DelaysLike {
    pub(super) fn new(layout: Arc<Layout>) -> Self {
        Self {
            layout,
            slow: BTreeMap::new(),
        }
    }
}

/// What the matrix accuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspect {
    /// A NIC, by index.
    Nic(usize),
    /// What is between two NICs.
    Between(usize, usize),
}

/// Cells of a matrix above this multiple of the median.
pub(super) fn slow_cells(messages: &[Message], times: f64) -> Vec<(usize, usize)> {
    let mut seconds: Vec<f64> = messages.iter().map(|message| message.seconds).collect();
    let Some(median) = median(&mut seconds) else {
        return Vec::new();
    };
    let slow = messages.iter().filter(|m| m.seconds > times * median);
    slow.map(|message| (message.from, message.to)).collect()
}

/// The NICs behind the slow cells of a matrix, all cells of which are `cells`: repeatedly the NIC that
/// explains most of them, if all of its row or all of its column is slow and that is more than one cell.
pub(super) fn suspects(cells: &[(usize, usize)], slow: &[(usize, usize)]) -> Vec<Suspect> {
    let mut size: BTreeMap<(usize, bool), usize> = BTreeMap::new();
    for (from, to) in cells {
        *size.entry((*from, true)).or_default() += 1;
        *size.entry((*to, false)).or_default() += 1;
    }
    let full = |line: (usize, bool)| {
        let of_line = |(from, to): &&(usize, usize)| line == (*from, true) || line == (*to, false);
        let found = slow.iter().filter(of_line).count();
        found > 0 && size.get(&line) == Some(&found)
    };
    let mut left: BTreeSet<(usize, usize)> = slow.iter().copied().collect();
    let mut named = Vec::new();
    loop {
        let mut explains: BTreeMap<usize, usize> = BTreeMap::new();
        for (from, to) in &left {
            for line in [(*from, true), (*to, false)] {
                if full(line) {
                    *explains.entry(line.0).or_default() += 1;
                }
            }
        }
        // The first of equals.
        let best = explains.into_iter().rev().max_by_key(|(_, count)| *count);
        let Some((nic, _)) = best.filter(|(_, count)| *count > 1) else {
            break;
        };
        named.push(Suspect::Nic(nic));
        left.retain(|(from, to)| {
            !(*from == nic && full((nic, true)) || *to == nic && full((nic, false)))
        });
    }
    named.extend(
        left.into_iter()
            .map(|(from, to)| Suspect::Between(from, to)),
    );
    named
}

impl DelaysLike {
    /// NICs that are replaced by their node if all of them are accused.
    fn named(&self, suspects: BTreeSet<Suspect>) -> Vec<Naming> {
        let is_accused = |nic: usize| suspects.contains(&Suspect::Nic(nic));
        let by_node = self.layout.by_node(Entity::Link);
        let hosts = by_node.zip(&self.layout.hosts);
        let hosts = hosts.filter(|(nics, _)| nics.len() > 1 && nics.clone().all(is_accused));
        let hosts: Vec<_> = hosts.collect();
        let stands_for = |nic: &usize| hosts.iter().any(|(nics, _)| nics.contains(nic));
        let mut named: Vec<Naming> = hosts
            .iter()
            .map(|(nics, host)| Naming::page((*host).clone(), nics.len() as f64))
            .collect();
        let links = self.layout.parts(Entity::Link);
        for suspect in suspects {
            let (nics, score) = match suspect {
                Suspect::Nic(nic) => (vec![nic], 1.0),
                Suspect::Between(from, to) => (vec![from, to], 0.5),
            };
            let nics = nics.into_iter().filter(|nic| !stands_for(nic));
            named.extend(nics.map(|nic| Naming::page(links[nic].clone(), score)));
        }
        named
    }
}

impl Baseline for DelaysLike {
    fn observe(&mut self, frame: &Frame) -> Vec<Naming> {
        let messages = &frame.probes().messages;
        let mut before = std::mem::take(&mut self.slow);
        let mut found = BTreeSet::new();
        for of_one in messages.chunk_by(|a, b| a.collective == b.collective) {
            let collective = of_one[0].collective;
            let mut lasting = Vec::new();
            for (from, to) in slow_cells(of_one, SLOW) {
                let key = (collective, from, to);
                let ticks = before.remove(&key).unwrap_or(0) + 1;
                self.slow.insert(key, ticks);
                if ticks >= TICKS {
                    lasting.push((from, to));
                }
            }
            if !lasting.is_empty() {
                let cells: Vec<_> = of_one.iter().map(|m| (m.from, m.to)).collect();
                found.extend(suspects(&cells, &lasting));
            }
        }
        self.named(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(among: usize) -> Vec<(usize, usize)> {
        let pairs = (0..among).flat_map(|a| (0..among).map(move |b| (a, b)));
        pairs.filter(|(a, b)| a != b).collect()
    }

    #[test]
    fn rows_accuse_senders_columns_receivers_and_single_cells_what_is_between() {
        let experts = pairs(4);
        let ring: Vec<_> = (0..4).map(|nic| (nic, (nic + 1) % 4)).collect();
        let of = |which: fn(&(usize, usize)) -> bool| {
            let cells = experts.iter().copied();
            cells.filter(which).collect::<Vec<_>>()
        };
        for (cells, slow, expected) in [
            (&experts, vec![], vec![]),
            (&experts, of(|c| c.0 == 2), vec![Suspect::Nic(2)]),
            (&experts, of(|c| c.1 == 1), vec![Suspect::Nic(1)]),
            (
                &experts,
                of(|c| c.0 == 2 || c.1 == 2),
                vec![Suspect::Nic(2)],
            ),
            (&experts, vec![(0, 3)], vec![Suspect::Between(0, 3)]),
            (&ring, vec![(0, 1), (1, 2)], vec![Suspect::Nic(1)]),
            (&ring, vec![(3, 0)], vec![Suspect::Between(3, 0)]),
        ] {
            assert_eq!(suspects(cells, &slow), expected, "{slow:?}");
        }
    }

    #[test]
    fn a_message_is_slow_beside_the_others_of_its_collective() {
        let message = |to: usize, seconds: f64| Message {
            collective: (0, 0),
            from: 0,
            to,
            seconds,
        };
        let usual = (1..5).map(|to| message(to, 1.0));
        let all = |seconds: f64| {
            usual
                .clone()
                .chain([message(9, seconds)])
                .collect::<Vec<_>>()
        };
        assert_eq!(slow_cells(&all(1.19), SLOW), []);
        assert_eq!(slow_cells(&all(1.21), SLOW), [(0, 9)]);
        assert_eq!(slow_cells(&all(f64::INFINITY), SLOW), [(0, 9)]);
        assert_eq!(slow_cells(&[], SLOW), []);
    }
}
