//! Bandwidth of every pair of nodes as a matrix: a slow row is a node, a slow block is the path between two groups.

use std::collections::{BTreeMap, BTreeSet};

/// Share of the usual bandwidth below which a pair is slow: twice the spread of a healthy public cluster of ten nodes,
/// whose best pairs (of one leaf, it seems) are up to 11 % faster than its slowest.
const SLOW_PAIR: f64 = 0.8;
/// Share of a node's pairs that must be slow before the node is named.
const SLOW_ROW: f64 = 0.7;
/// Fewest nodes of a matrix that is evaluated.
const MIN_NODES: usize = 4;
/// Share of the pairs that the usual bandwidth is taken above: at least a few pairs are healthy even where most are slow.
const USUAL: f64 = 0.9;

/// What one test of two nodes gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The two nodes.
    pub nodes: [String; 2],
    /// Bus bandwidth; any unit, the same for all pairs.
    pub bandwidth: f64,
}

/// What a matrix of pairs reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Unevenness {
    /// Fewer than four nodes, or not every pair was measured.
    Undecided,
    /// No pair is slow.
    Even,
    /// These nodes are slow with nearly everybody.
    Nodes(Vec<String>),
    /// Pairs within each group are fast and pairs across are slow: what the groups share to reach each other, no node.
    Between(Vec<Vec<String>>),
    /// Single pairs.
    Pairs(Vec<[String; 2]>),
}

/// Evaluates the pairs of one test.
pub fn judge_pairs(pairs: &[Pair]) -> Unevenness {
    let nodes: BTreeSet<&str> = pairs
        .iter()
        .flat_map(|pair| &pair.nodes)
        .map(String::as_str)
        .collect();
    let mut rows: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for Pair {
        nodes: [a, b],
        bandwidth,
    } in pairs
    {
        let cell = (a.min(b).as_str(), a.max(b).as_str());
        // Measured twice: the better, which the pair can reach.
        let known = rows.entry(cell).or_insert(*bandwidth);
        *known = known.max(*bandwidth);
    }
    if nodes.len() < MIN_NODES || rows.len() != nodes.len() * (nodes.len() - 1) / 2 {
        return Unevenness::Undecided;
    }
    let mut sorted: Vec<f64> = rows.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[((sorted.len() - 1) as f64 * USUAL) as usize];
    let is_slow = |bandwidth: f64| bandwidth < SLOW_PAIR * usual;
    let slow: Vec<(&str, &str)> = rows
        .iter()
        .filter(|(_, b)| is_slow(**b))
        .map(|(pair, _)| *pair)
        .collect();
    if slow.is_empty() {
        return Unevenness::Even;
    }
    let fast = rows.keys().filter(|pair| !slow.contains(pair)).copied();
    let groups = groups(&nodes, fast);
    let crosses = |pair: &(&str, &str)| {
        !groups
            .iter()
            .any(|group| group.contains(pair.0) && group.contains(pair.1))
    };
    let large = groups.iter().filter(|group| group.len() > 1).count();
    if large > 1 && slow.iter().all(crosses) {
        let group = |group: &BTreeSet<&str>| group.iter().map(ToString::to_string).collect();
        return Unevenness::Between(groups.iter().map(group).collect());
    }
    let of = |node: &str| {
        slow.iter()
            .filter(|pair| pair.0 == node || pair.1 == node)
            .count()
    };
    let row = (nodes.len() - 1) as f64;
    let bad: Vec<&str> = nodes
        .iter()
        .copied()
        .filter(|node| of(node) as f64 >= SLOW_ROW * row)
        .collect();
    if !bad.is_empty()
        && slow
            .iter()
            .all(|pair| bad.contains(&pair.0) || bad.contains(&pair.1))
    {
        return Unevenness::Nodes(bad.into_iter().map(str::to_owned).collect());
    }
    Unevenness::Pairs(
        slow.iter()
            .map(|(a, b)| [(*a).to_owned(), (*b).to_owned()])
            .collect(),
    )
}

/// Nodes that fast pairs join.
fn groups<'a>(
    nodes: &BTreeSet<&'a str>,
    fast: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<BTreeSet<&'a str>> {
    let mut groups: Vec<BTreeSet<&str>> =
        nodes.iter().map(|node| BTreeSet::from([*node])).collect();
    for (a, b) in fast {
        let (joined, mut rest): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.contains(a) || group.contains(b));
        rest.push(joined.into_iter().flatten().collect());
        groups = rest;
    }
    groups.sort();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs of `n0` to `n5`; the bandwidth of two numbers by a function.
    fn judge(bandwidth: impl Fn(u8, u8) -> f64) -> Unevenness {
        let pair = |a, b| Pair {
            nodes: [format!("n{b}"), format!("n{a}")],
            bandwidth: bandwidth(a, b),
        };
        let pairs: Vec<Pair> = (0..6)
            .flat_map(|a| (a + 1..6).map(move |b| pair(a, b)))
            .collect();
        judge_pairs(&pairs)
    }

    #[test]
    fn a_row_is_a_node_a_block_is_between_and_a_cell_is_a_pair() {
        let usual = |slow: bool| if slow { 20.0 } else { 40.0 };
        assert_eq!(judge(|_, _| 40.0), Unevenness::Even);
        assert_eq!(
            judge(|a, b| usual(a == 2 || b == 2)),
            Unevenness::Nodes(vec!["n2".to_owned()])
        );
        let halves = vec![vec!["n0", "n1", "n2"], vec!["n3", "n4", "n5"]];
        let halves = halves
            .into_iter()
            .map(|half| half.into_iter().map(str::to_owned).collect())
            .collect();
        assert_eq!(
            judge(|a, b| usual((a < 3) != (b < 3))),
            Unevenness::Between(halves)
        );
        assert_eq!(
            judge(|a, b| usual((a, b) == (1, 4))),
            Unevenness::Pairs(vec![["n1".to_owned(), "n4".to_owned()]])
        );
    }

    #[test]
    fn a_matrix_with_holes_is_not_judged() {
        let pair = |a: &str, b: &str| Pair {
            nodes: [a.to_owned(), b.to_owned()],
            bandwidth: 1.0,
        };
        assert_eq!(
            judge_pairs(&[pair("a", "b"), pair("c", "d")]),
            Unevenness::Undecided
        );
        assert_eq!(judge_pairs(&[]), Unevenness::Undecided);
    }
}
