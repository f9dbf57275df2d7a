//! Cables between switches beside those of the switches that are wired alike: missing, moved, exchanged, between planes.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::identity::{Part, PortName};
use railscope_model::plan::Socket;

use super::{
    CROSS_PLANE, Case, Finding, MIN_PEERS, MISSING_CABLE, MOVED_CABLE, SWAPPED_CABLES,
    UNEVEN_UPLINKS, UNEXPECTED_CABLE, cable_at, usual,
};
use crate::fabric::classify::verdict::Kind;
use crate::fabric::graph::tiers::Sets;

/// Two switches of a tier are wired alike when at least this share of what the smaller one joins is joined by both.
/// Leaves of one tree share all their spines, those of two planes or two rails none; one wrong cable is a small share.
const ALIKE_SHARE: f64 = 0.5;

/// A switch that differs from its peers at more than this share of the switches that they join, and at
/// [`MIN_OTHERWISE`] at least, was cabled by another rule: Selene's two management spines and two service leaves.
const OTHERWISE_SHARE: f64 = 0.25;
/// One exchanged pair of cables is two differences.
const MIN_OTHERWISE: usize = 3;

/// How a switch differs from its peers at one neighbor: more or fewer cables to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Odd {
    switch: usize,
    peer: usize,
    /// Cables more than usual.
    more: i64,
    usual: i64,
    peers: usize,
    /// Neighbors that its peers usually have.
    joined: usize,
}

pub(super) fn check(case: &Case<'_>, out: &mut Vec<Finding>) {
    // A direct network has no tiers, and which of its switches are wired alike is a design choice.
    if let Kind::Direct | Kind::Dragonfly | Kind::DragonflyPlus = case.verdict.kind {
        degrees(case, out);
        return;
    }
    let mut odd = odd_cables(case);
    let mut told: BTreeSet<usize> = BTreeSet::new();
    otherwise(case, &mut odd, &mut told, out);
    for finding in explain(case, &odd, &mut told) {
        out.push(finding);
    }
    if case.whole {
        uneven(case, &told, out);
    }
}

/// Cables of a switch to each neighbor that is not below it.
fn upward(case: &Case<'_>, index: usize) -> BTreeMap<usize, i64> {
    let mut counts = BTreeMap::new();
    for (peer, _) in &case.survey.switches[index].trunks {
        if case.tiers[*peer] >= case.tiers[index] {
            *counts.entry(*peer).or_default() += 1;
        }
    }
    counts
}

fn odd_cables(case: &Case<'_>) -> Vec<Odd> {
    let all: Vec<BTreeMap<usize, i64>> = (0..case.tiers.len())
        .map(|index| upward(case, index))
        .collect();
    let mut odd = Vec::new();
    for group in groups(case, &all) {
        if group.len() < MIN_PEERS {
            continue;
        }
        let peers: BTreeSet<usize> = group
            .iter()
            .flat_map(|own| all[*own].keys().copied())
            .collect();
        let cables = |own: usize, peer: usize| all[own].get(&peer).copied().unwrap_or(0);
        let rules: Vec<(usize, i64)> = peers
            .into_iter()
            .filter_map(|peer| Some((peer, usual(group.iter().map(|own| cables(*own, peer)))?)))
            .collect();
        let joined = rules.iter().filter(|(_, usual)| *usual > 0).count();
        for (peer, usual) in rules {
            let cables = |own: usize| cables(own, peer);
            let differing = group.iter().filter(|own| cables(**own) != usual);
            odd.extend(differing.map(|own| Odd {
                switch: *own,
                peer,
                more: cables(*own) - usual,
                usual,
                peers: group.len() - 1,
                joined,
            }));
        }
    }
    odd.sort();
    odd
}

/// Switches that follow no rule of their peers, as one finding each; what is odd at them is taken out.
fn otherwise(
    case: &Case<'_>,
    odd: &mut Vec<Odd>,
    told: &mut BTreeSet<usize>,
    out: &mut Vec<Finding>,
) {
    let mut by_switch: BTreeMap<usize, Vec<Odd>> = BTreeMap::new();
    for one in odd.iter() {
        by_switch.entry(one.switch).or_default().push(*one);
    }
    for (switch, own) in by_switch {
        let joined = own.iter().map(|odd| odd.joined).max().unwrap_or(0);
        if own.len() < MIN_OTHERWISE || own.len() as f64 <= OTHERWISE_SHARE * joined as f64 {
            continue;
        }
        odd.retain(|odd| odd.switch != switch);
        told.insert(switch);
        let more = own.iter().filter(|odd| odd.more > 0).count();
        out.push(Finding {
            rule: &UNEVEN_UPLINKS,
            parts: vec![Part::Switch(case.survey.switches[switch].name.clone())],
            sentence: format!(
                "{} is cabled by another rule than its {} peers: more cables to {more} switches, fewer to {}.",
                name(case, switch),
                own[0].peers,
                own.len() - more
            ),
            evidence: vec![format!("its peers join {joined} switches, each with the same number of cables")],
        });
    }
}

/// Switches of one tier that are wired alike.
fn groups(case: &Case<'_>, all: &[BTreeMap<usize, i64>]) -> Vec<Vec<usize>> {
    let mut below: BTreeMap<(Option<u8>, usize), Vec<usize>> = BTreeMap::new();
    for (index, own) in all.iter().enumerate() {
        for peer in own.keys() {
            below
                .entry((case.tiers[index], *peer))
                .or_default()
                .push(index);
        }
    }
    let mut sets = Sets::new(all.len());
    for members in below.values() {
        // Each against the first of its set suffices: what is alike to it is alike to the others.
        let mut firsts: Vec<usize> = Vec::new();
        for member in members {
            let alike = firsts.iter().find(|first| {
                let shared = all[**first]
                    .keys()
                    .filter(|peer| all[*member].contains_key(peer))
                    .count();
                let smaller = all[**first].len().min(all[*member].len());
                shared as f64 >= ALIKE_SHARE * smaller as f64
            });
            match alike {
                Some(first) => {
                    sets.union(*first, *member);
                }
                None => firsts.push(*member),
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in (0..all.len()).filter(|index| !all[*index].is_empty()) {
        groups.entry(sets.find(index)).or_default().push(index);
    }
    groups.into_values().collect()
}

/// One finding for each cabling error: pairs first, then moves, then what is left.
fn explain(case: &Case<'_>, odd: &[Odd], told: &mut BTreeSet<usize>) -> Vec<Finding> {
    let apart = planes_without(case, odd);
    let mut left: Vec<Odd> = odd.to_vec();
    let mut findings = Vec::new();
    let less = |left: &[Odd], switch: usize| {
        left.iter()
            .copied()
            .filter(move |odd| odd.switch == switch && odd.more < 0)
            .collect::<Vec<_>>()
    };
    while let Some(extra) = left.iter().copied().find(|odd| odd.more > 0) {
        let lost = less(&left, extra.switch);
        let twin = lost.iter().find_map(|lost| {
            let back = left
                .iter()
                .find(|odd| odd.more > 0 && odd.peer == lost.peer && odd.switch != extra.switch)?;
            let theirs = less(&left, back.switch);
            let theirs = theirs.iter().find(|odd| odd.peer == extra.peer)?;
            Some((*lost, *back, *theirs))
        });
        told.insert(extra.switch);
        let crosses = apart.contains(&(extra.switch, extra.peer));
        let used = match (twin, lost.first()) {
            (Some((lost, back, theirs)), _) => {
                told.insert(back.switch);
                findings.push(swapped(case, extra, lost, back, crosses));
                vec![extra, lost, back, theirs]
            }
            (None, Some(lost)) => {
                findings.push(moved(case, extra, *lost, crosses));
                vec![extra, *lost]
            }
            (None, None) => {
                findings.push(unexpected(case, extra, crosses));
                vec![extra]
            }
        };
        // A cable within a tier is one too many at both of its ends.
        let again = |odd: &Odd| {
            used.iter().any(|one| {
                one.more > 0 && odd.more > 0 && (odd.switch, odd.peer) == (one.peer, one.switch)
            })
        };
        left.retain(|odd| !used.contains(odd) && !again(odd));
    }
    if case.whole {
        for odd in left {
            told.insert(odd.switch);
            findings.push(missing(case, odd));
        }
    }
    findings
}

fn name(case: &Case<'_>, switch: usize) -> String {
    case.survey.switches[switch].name.to_string()
}

/// Ports of a switch that lead to another.
fn ports(case: &Case<'_>, switch: usize, peer: usize) -> Vec<PortName> {
    let (own, peer) = (&case.survey.switches[switch], &case.survey.switches[peer]);
    let cables = case.fabric.cables(own.id);
    let cables = cables.filter(|near| near.peer == peer.id);
    let mut ports: Vec<PortName> = cables
        .map(|near| case.fabric.port_name(own.id, near.port))
        .collect();
    ports.sort();
    ports
}

/// Of the cables of a switch to another the one at the port that fewest peers use so: the one that is out of place.
fn odd_port(case: &Case<'_>, odd: Odd) -> Part {
    let part = Part::Switch(case.survey.switches[odd.switch].name.clone());
    let own = ports(case, odd.switch, odd.peer);
    let used = |port: &PortName| {
        let peers = (0..case.tiers.len())
            .filter(|peer| *peer != odd.switch && case.tiers[*peer] == case.tiers[odd.switch]);
        peers
            .filter(|peer| ports(case, *peer, odd.peer).contains(port))
            .count()
    };
    match own.into_iter().min_by_key(&used) {
        Some(port) => cable_at(&Socket { part, port }),
        None => part,
    }
}

fn usually(odd: Odd) -> String {
    let cables = |count: i64| match count {
        1 => "1 cable".to_owned(),
        count => format!("{count} cables"),
    };
    format!(
        "most of its {} peers have {} to it",
        odd.peers,
        cables(odd.usual)
    )
}

fn swapped(case: &Case<'_>, extra: Odd, lost: Odd, back: Odd, crosses: bool) -> Finding {
    let (one, other) = (name(case, extra.switch), name(case, back.switch));
    let (wrong, right) = (name(case, extra.peer), name(case, lost.peer));
    Finding {
        rule: if crosses {
            &CROSS_PLANE
        } else {
            &SWAPPED_CABLES
        },
        parts: vec![odd_port(case, extra), odd_port(case, back)],
        sentence: format!(
            "A cable of {one} leads to {wrong} and one of {other} to {right}: each has the other's place."
        ),
        evidence: vec![
            format!("{right}: {}", usually(lost)),
            format!("{wrong}: {}", usually(extra)),
        ],
    }
}

fn moved(case: &Case<'_>, extra: Odd, lost: Odd, crosses: bool) -> Finding {
    Finding {
        rule: if crosses { &CROSS_PLANE } else { &MOVED_CABLE },
        parts: vec![odd_port(case, extra)],
        sentence: format!(
            "A cable of {} leads to {} and not to {}.",
            name(case, extra.switch),
            name(case, extra.peer),
            name(case, lost.peer)
        ),
        evidence: vec![format!("{}: {}", name(case, lost.peer), usually(lost))],
    }
}

fn unexpected(case: &Case<'_>, extra: Odd, crosses: bool) -> Finding {
    Finding {
        rule: if crosses {
            &CROSS_PLANE
        } else {
            &UNEXPECTED_CABLE
        },
        parts: vec![odd_port(case, extra)],
        sentence: format!(
            "{} has {} more to {} than its peers.",
            name(case, extra.switch),
            if extra.more == 1 {
                "a cable".to_owned()
            } else {
                format!("{} cables", extra.more)
            },
            name(case, extra.peer)
        ),
        evidence: vec![usually(extra)],
    }
}

fn missing(case: &Case<'_>, odd: Odd) -> Finding {
    let part = Part::Switch(case.survey.switches[odd.switch].name.clone());
    // Peers of its tier report which port leads there.
    let own: BTreeSet<PortName> = case
        .fabric
        .cables(case.survey.switches[odd.switch].id)
        .map(|near| {
            case.fabric
                .port_name(case.survey.switches[odd.switch].id, near.port)
        })
        .collect();
    let mut votes: BTreeMap<PortName, usize> = BTreeMap::new();
    for peer in (0..case.tiers.len()).filter(|peer| case.tiers[*peer] == case.tiers[odd.switch]) {
        for port in ports(case, peer, odd.peer) {
            *votes.entry(port).or_default() += 1;
        }
    }
    let dark = votes
        .into_iter()
        .filter(|(port, _)| !own.contains(port))
        .max_by_key(|(_, votes)| *votes);
    let dark = dark.filter(|(_, votes)| *votes as f64 >= super::PEER_SHARE * odd.peers as f64);
    let lacks = -odd.more;
    let sentence = format!(
        "{} lacks {} to {}{}.",
        name(case, odd.switch),
        if lacks == 1 {
            "a cable".to_owned()
        } else {
            format!("{lacks} cables")
        },
        name(case, odd.peer),
        dark.as_ref()
            .map(|(port, _)| format!(", by its peers at port {port}"))
            .unwrap_or_default()
    );
    let part = match dark {
        Some((port, _)) => cable_at(&Socket { part, port }),
        None => part,
    };
    Finding {
        rule: &MISSING_CABLE,
        parts: vec![
            part,
            Part::Switch(case.survey.switches[odd.peer].name.clone()),
        ],
        sentence,
        evidence: vec![usually(odd)],
    }
}

/// Odd cables that join what nothing else joins.
fn planes_without(case: &Case<'_>, odd: &[Odd]) -> BTreeSet<(usize, usize)> {
    let extra: BTreeSet<(usize, usize)> = odd
        .iter()
        .filter(|odd| odd.more > 0)
        .map(|odd| (odd.switch, odd.peer))
        .collect();
    let mut sets = Sets::new(case.tiers.len());
    for (index, switch) in case.survey.switches.iter().enumerate() {
        for (peer, _) in &switch.trunks {
            if !extra.contains(&(index, *peer)) && !extra.contains(&(*peer, index)) {
                sets.union(index, *peer);
            }
        }
    }
    let mut apart = BTreeSet::new();
    for (switch, peer) in extra {
        if sets.find(switch) != sets.find(peer) {
            apart.insert((switch, peer));
        }
    }
    apart
}

/// Leaves with fewer or more cables upwards than the other leaves with compute hosts, where nothing else reports why.
fn uneven(case: &Case<'_>, told: &BTreeSet<usize>, out: &mut Vec<Finding>) {
    let leaves: Vec<(usize, i64)> = (0..case.tiers.len())
        .filter(|index| {
            case.tiers[*index] == Some(1) && !case.survey.switches[*index].nics.is_empty()
        })
        .map(|index| (index, upward(case, index).values().sum()))
        .filter(|(_, up)| *up > 0)
        .collect();
    let Some(usual) = usual(leaves.iter().map(|(_, up)| *up)) else {
        return;
    };
    for (leaf, up) in leaves
        .iter()
        .filter(|(leaf, up)| *up != usual && !told.contains(leaf))
    {
        out.push(Finding {
            rule: &UNEVEN_UPLINKS,
            parts: vec![Part::Switch(case.survey.switches[*leaf].name.clone())],
            sentence: format!(
                "{} has {up} uplinks, most of the {} other leaves have {usual}.",
                name(case, *leaf),
                leaves.len() - 1
            ),
            evidence: Vec::new(),
        });
    }
}

/// In a direct network: switches with fewer cables to switches than most; two that each lack one lack the same one.
fn degrees(case: &Case<'_>, out: &mut Vec<Finding>) {
    let trunks: Vec<usize> = case
        .survey
        .switches
        .iter()
        .map(|switch| switch.trunks.len())
        .collect();
    let Some(usual) = usual(trunks.iter().copied()).filter(|_| case.whole) else {
        return;
    };
    let short: Vec<usize> = (0..trunks.len())
        .filter(|index| trunks[*index] < usual)
        .collect();
    let part = |index: usize| Part::Switch(case.survey.switches[index].name.clone());
    let peers = trunks.len() - 1;
    let evidence = vec![format!(
        "most of its {peers} peers have {usual} cables to switches"
    )];
    if let [a, b] = short[..]
        && trunks[a] + 1 == usual
        && trunks[b] + 1 == usual
    {
        out.push(Finding {
            rule: &MISSING_CABLE,
            parts: vec![part(a), part(b)],
            sentence: format!(
                "{} and {} lack a cable each, and no other switch does: the one between them.",
                name(case, a),
                name(case, b)
            ),
            evidence,
        });
        return;
    }
    for index in short {
        out.push(Finding {
            rule: &MISSING_CABLE,
            parts: vec![part(index)],
            sentence: format!(
                "{} has {} cables to switches.",
                name(case, index),
                trunks[index]
            ),
            evidence: evidence.clone(),
        });
    }
}
