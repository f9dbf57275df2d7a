//! Hosts whose NICs all are connected to one leaf, as where each rack has one: which NICs are connected to the leaf of another rack.
//!
//! ```text
//! host -> the leaf that most of its NICs are connected to, its home -> NICs elsewhere, unless that is how such hosts are wired
//! ```

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::rails::{FABRIC_SHARE, MISPLACED_LIMIT, Misplaced};
use crate::detect::peers::{MAJORITY, MIN_PEERS};
use crate::fabric::graph::host_classes::{HostRole, Shapes};
use crate::fabric::graph::index::Survey;

/// A NIC of a host at this leaf, by numbers.
struct Placed {
    host: usize,
    nic: usize,
    leaf: usize,
}

/// NICs that are connected to the home of other hosts; none where hosts have no home.
pub(super) fn misplaced(survey: &Survey<'_>, shapes: &Shapes) -> Vec<Misplaced> {
    let homes = homes(survey, shapes);
    let mut strays: Vec<Placed> = Vec::new();
    for (host, home) in &homes {
        let elsewhere = placed(survey, *host).filter(|nic| nic.leaf != *home);
        strays.extend(elsewhere);
    }
    // A rail that is connected elsewhere on many hosts is so by design.
    let kind = |stray: &Placed| {
        (
            shapes.roles[stray.host],
            shapes.rails[stray.host][stray.nic],
        )
    };
    let mut by_kind: BTreeMap<(HostRole, Option<u16>), usize> = BTreeMap::new();
    for stray in &strays {
        *by_kind.entry(kind(stray)).or_default() += 1;
    }
    let limit = |role: HostRole| {
        let alike = homes.keys().filter(|host| shapes.roles[**host] == role);
        MISPLACED_LIMIT * alike.count() as f64
    };
    strays.retain(|stray| by_kind[&kind(stray)] as f64 <= limit(shapes.roles[stray.host]));
    let told = strays.iter().filter_map(|stray| {
        let home = homes[&stray.host];
        let twin = strays
            .iter()
            .find(|twin| twin.leaf == home && homes[&twin.host] == stray.leaf);
        let name = |nic: &Placed| {
            let host = &survey.hosts[nic.host];
            (host.name.clone(), host.nics[nic.nic].device.clone())
        };
        let (host, device) = name(stray);
        Some(Misplaced {
            host,
            device,
            rail: shapes.rails[stray.host][stray.nic]?,
            leaf: survey.switches[stray.leaf].name.clone(),
            leaf_rail: None,
            expected_leaf: Some(survey.switches[home].name.clone()),
            swapped_with: twin.map(name),
        })
    });
    let mut told: Vec<Misplaced> = told.collect();
    told.sort_by(|a, b| (&a.host, a.rail).cmp(&(&b.host, b.rail)));
    told
}

/// NICs of a host that are connected to one leaf each.
fn placed<'a>(survey: &'a Survey<'_>, host: usize) -> impl Iterator<Item = Placed> + 'a {
    let nics = survey.hosts[host].nics.iter().enumerate();
    nics.filter_map(move |(nic, view)| {
        let leaf = *view.switches.first()?;
        let is_one = view.switches.iter().all(|other| *other == leaf);
        is_one.then_some(Placed { host, nic, leaf })
    })
}

/// By compute host the leaf that most of its NICs are connected to; nothing where not nearly all hosts have one.
fn homes(survey: &Survey<'_>, shapes: &Shapes) -> HashMap<usize, usize, FixedState> {
    let mut homes: HashMap<usize, usize, FixedState> = HashMap::default();
    let mut judged = 0;
    for host in 0..survey.hosts.len() {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for nic in placed(survey, host) {
            *counts.entry(nic.leaf).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        let is_compute = matches!(shapes.roles[host], HostRole::Compute { .. });
        if !is_compute || all < MIN_PEERS {
            continue;
        }
        judged += 1;
        let most = counts.into_iter().max_by_key(|(_, nics)| *nics);
        let home = most.filter(|(_, nics)| *nics as f64 >= MAJORITY * all as f64);
        homes.extend(home.map(|(leaf, _)| (host, leaf)));
    }
    let are_usual = judged >= MIN_PEERS && homes.len() as f64 >= FABRIC_SHARE * judged as f64;
    if !are_usual {
        homes.clear();
    }
    homes
}
