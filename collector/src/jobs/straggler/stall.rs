//! A stalled job: which ranks never entered a collective that others wait in, or never finished the
//! last.

use std::collections::{BTreeMap, BTreeSet};

/// State of one process group on a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Its ranks.
    pub members: BTreeSet<u32>,
    /// What the framework calls the group.
    pub description: Option<String>,
    /// Whether sends and receives run in it: their numbers differ between ranks by design, so it is not
    /// evaluated.
    pub has_point_to_point: bool,
    /// Number of the last collective that the host handed to the GPU; none if unknown.
    pub last_enqueued: Option<u64>,
    /// Number of the last collective that the GPU finished; none if unknown.
    pub last_completed: Option<u64>,
    /// Number of the oldest collective that is not finished; none if nothing is pending.
    pub oldest_pending: Option<u64>,
    /// Its operation.
    pub operation: Option<String>,
}

/// What the dumps of one folder report about a stalled job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The folder, below that of all dumps.
    pub folder: String,
    /// Ranks whose dumps were read.
    pub ranks: usize,
    /// Those that the others wait for.
    pub late: Vec<Late>,
}

/// State of one rank, by the name of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankState {
    /// Its number in the job.
    pub rank: u32,
    /// Groups that it is in.
    pub groups: BTreeMap<String, GroupState>,
}

/// What of a rank is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The host handed the collective over, the GPU did not finish what other GPUs of the group did.
    Gpu,
    /// The host never handed over the collective that the others are in.
    Host,
}

/// A rank that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// Its number in the job.
    pub rank: u32,
    /// What of it is late.
    pub side: Side,
    /// The first group, by name, in which it shows.
    pub group: String,
    /// What the framework calls that group.
    pub description: Option<String>,
    /// The collective that others wait in.
    pub operation: Option<String>,
    /// How many ranks wait for it in any group.
    pub waiting: usize,
}

/// Ranks that others wait for and that wait for none, in their order. Of two ranks of a group the one with the
/// lower last finished number has a late GPU. A rank that has not entered what others are in has a late host,
/// unless it is itself in a collective for which another rank is late: then it is a victim.
pub fn late_ranks(ranks: &[RankState]) -> Vec<Late> {
    let mut late: BTreeMap<u32, Late> = BTreeMap::new();
    let mut waits: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (name, states) in groups(ranks) {
        if states.iter().any(|(_, state)| state.has_point_to_point) {
            continue;
        }
        let finished = states
            .iter()
            .filter_map(|(_, state)| state.last_completed)
            .max();
        for (rank, state) in &states {
            let Some(side) = side(*rank, state, finished, &states) else {
                continue;
            };
            let waiting = states
                .iter()
                .filter(|(other, at)| other != rank && waits_for(at, state, side));
            let mut operation = None;
            for (other, at) in waiting {
                waits.entry(*other).or_default().insert(*rank);
                operation = operation.or_else(|| at.operation.clone());
            }
            let this = Late {
                rank: *rank,
                side,
                group: name.to_owned(),
                description: states
                    .iter()
                    .find_map(|(_, state)| state.description.clone()),
                operation,
                waiting: 0,
            };
            let known = late.entry(*rank).or_insert_with(|| this.clone());
            if side < known.side {
                *known = this;
            }
        }
    }
    let is_victim = |late: &Late| late.side == Side::Host && waits.contains_key(&late.rank);
    let mut roots: Vec<Late> = late.into_values().filter(|late| !is_victim(late)).collect();
    for root in &mut roots {
        root.waiting = waits.values().filter(|of| of.contains(&root.rank)).count();
    }
    roots
}

/// What the members of one group report, by rank.
type States<'a> = Vec<(u32, &'a GroupState)>;

/// States of each group, by its name and members: names alone may repeat.
fn groups(ranks: &[RankState]) -> impl Iterator<Item = (&str, States<'_>)> {
    let mut groups: BTreeMap<(&str, &BTreeSet<u32>), States<'_>> = BTreeMap::new();
    for rank in ranks {
        for (name, state) in &rank.groups {
            let group = groups.entry((name.as_str(), &state.members)).or_default();
            group.push((rank.rank, state));
        }
    }
    groups.into_iter().map(|((name, _), states)| (name, states))
}

fn side(
    rank: u32,
    state: &GroupState,
    finished: Option<u64>,
    states: &[(u32, &GroupState)],
) -> Option<Side> {
    let behind = state.last_completed.is_some_and(|own| Some(own) < finished);
    if behind && state.oldest_pending.is_some() {
        return Some(Side::Gpu);
    }
    let mut others = states.iter().filter(|(other, _)| *other != rank);
    let missed = others.any(|(_, at)| waits_for(at, state, Side::Host));
    missed.then_some(Side::Host)
}

/// Whether a rank at `at` has something pending that the late one at `late` keeps from its end.
fn waits_for(at: &GroupState, late: &GroupState, side: Side) -> bool {
    match (side, at.oldest_pending) {
        (_, None) => false,
        (Side::Gpu, Some(_)) => at.last_completed > late.last_completed,
        (Side::Host, Some(pending)) => late.last_enqueued.is_some_and(|last| last < pending),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `enqueued, completed` of each rank of one group; what lies between is pending.
    fn group(name: &str, ranks: &[(u32, u64, u64)]) -> Vec<RankState> {
        let members: BTreeSet<u32> = ranks.iter().map(|(rank, ..)| *rank).collect();
        let state = |&(rank, enqueued, completed): &(u32, u64, u64)| {
            let state = GroupState {
                members: members.clone(),
                last_enqueued: Some(enqueued),
                last_completed: Some(completed),
                oldest_pending: (completed < enqueued).then_some(completed + 1),
                ..GroupState::default()
            };
            RankState {
                rank,
                groups: BTreeMap::from([(name.to_owned(), state)]),
            }
        };
        ranks.iter().map(state).collect()
    }

    fn check(groups: &[Vec<RankState>], expected: &[(u32, Side)]) {
        let mut ranks: BTreeMap<u32, RankState> = BTreeMap::new();
        for state in groups.iter().flatten() {
            let empty = || RankState {
                rank: state.rank,
                groups: BTreeMap::new(),
            };
            let rank = ranks.entry(state.rank).or_insert_with(empty);
            rank.groups.extend(state.groups.clone());
        }
        let ranks: Vec<RankState> = ranks.into_values().collect();
        let late: Vec<(u32, Side)> = late_ranks(&ranks)
            .iter()
            .map(|late| (late.rank, late.side))
            .collect();
        assert_eq!(late, expected);
    }

    #[test]
    fn who_waits_for_nobody_and_is_waited_for_is_late() {
        check(&[group("a", &[(0, 5, 4), (1, 5, 4)])], &[]);
        check(
            &[group("a", &[(0, 5, 4), (1, 4, 4), (2, 5, 4)])],
            &[(1, Side::Host)],
        );
        check(
            &[group("a", &[(0, 5, 4), (1, 5, 3), (2, 5, 4)])],
            &[(1, Side::Gpu)],
        );
    }

    #[test]
    fn a_rank_that_is_late_because_it_waits_is_a_victim() {
        let first = group("a", &[(0, 5, 4), (1, 4, 4)]);
        let second = group("b", &[(1, 9, 8), (2, 8, 8)]);
        check(&[first, second], &[(2, Side::Host)]);
    }

    #[test]
    fn groups_of_sends_and_receives_are_not_judged() {
        let mut ranks = group("a", &[(0, 5, 4), (1, 4, 4)]);
        for rank in &mut ranks {
            for state in rank.groups.values_mut() {
                state.has_point_to_point = true;
            }
        }
        check(&[ranks], &[]);
    }
}
