//! Networks of a fabric: what cables join, and whether several are planes, rails, or strangers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::structure::{Network, Split};
use crate::fabric::graph::host_classes::{HostRole, Shapes};
use crate::fabric::graph::index::{HostView, Survey};
use crate::fabric::graph::tiers::Sets;

/// Networks are of the same hosts when more than this share of the smaller one's hosts are connected to both. By
/// design it is all or none; a crossed cable makes one of many.
const SAME_HOSTS_SHARE: f64 = 0.25;
/// Ports of the same cards make planes when at least this share of the hosts whose PCI addresses are known
/// have a card with ports in several networks.
const CARD_SHARE: f64 = 0.9;

/// Networks, and what they are to each other.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    pub(crate) networks: Vec<Network>,
    pub(crate) split: Split,
}

/// One network while it is counted.
#[derive(Default)]
struct Count {
    network: Network,
    rails: BTreeSet<u16>,
    /// Hosts with several NICs on it.
    several: usize,
}

impl Networks {
    pub(crate) fn of(survey: &Survey<'_>, shapes: &Shapes, tiers: &[Option<u8>]) -> Self {
        let mut sets = Sets::new(survey.switches.len());
        for cable in &survey.trunks {
            sets.union(cable.ends[0] as usize, cable.ends[1] as usize);
        }
        let mut tally = Tally {
            root: (0..survey.switches.len())
                .map(|switch| sets.find(switch))
                .collect(),
            ..Tally::default()
        };
        for (host, view) in survey.hosts.iter().enumerate() {
            if matches!(
                shapes.roles[host],
                HostRole::Compute { .. } | HostRole::Unlike
            ) {
                tally.add_host(view, &shapes.rails[host]);
            }
        }
        tally.add_tiers(tiers);
        let split = tally.split();
        let mut networks: Vec<Network> = tally
            .counts
            .into_values()
            .map(|count| Network {
                rails: count.rails.into_iter().collect(),
                ..count.network
            })
            .collect();
        networks.sort_by_key(|network| std::cmp::Reverse(network.nics));
        Self { networks, split }
    }
}

/// What is counted, by the first switch of each network.
#[derive(Default)]
struct Tally {
    /// The first switch of each switch's network.
    root: Vec<usize>,
    counts: BTreeMap<usize, Count>,
    /// Hosts on both of two networks.
    shared: HashMap<(usize, usize), usize, FixedState>,
    /// Hosts with a card whose ports are connected to several networks.
    split_cards: usize,
    /// Hosts of which that can be determined.
    known_cards: usize,
}

impl Tally {
    fn add_host(&mut self, host: &HostView<'_>, rails: &[Option<u16>]) {
        let mut nics_on: BTreeMap<usize, usize> = BTreeMap::new();
        let mut by_card: BTreeMap<(u32, u8, u8), BTreeSet<usize>> = BTreeMap::new();
        let mut is_split = false;
        for (nic, rail) in host.nics.iter().zip(rails) {
            let roots: BTreeSet<usize> = nic.switches.iter().map(|s| self.root[*s]).collect();
            is_split |= roots.len() > 1;
            for root in &roots {
                *nics_on.entry(*root).or_default() += 1;
                self.counts.entry(*root).or_default().rails.extend(*rail);
            }
            // A card is a PCI device; its ports are the functions.
            if let Some(pci) = nic.pci {
                let card = by_card.entry((pci.domain, pci.bus, pci.device));
                card.or_default().extend(roots);
            }
        }
        is_split |= by_card.values().any(|networks| networks.len() > 1);
        self.known_cards += usize::from(!by_card.is_empty() || is_split);
        self.split_cards += usize::from(is_split);
        for (root, nics) in &nics_on {
            let count = self.counts.entry(*root).or_default();
            count.network.hosts += 1;
            count.network.nics += nics;
            count.several += usize::from(*nics > 1);
        }
        let roots: Vec<usize> = nics_on.into_keys().collect();
        for (place, a) in roots.iter().enumerate() {
            for b in &roots[place + 1..] {
                *self.shared.entry((*a, *b)).or_default() += 1;
            }
        }
    }

    fn add_tiers(&mut self, tiers: &[Option<u8>]) {
        for (switch, tier) in tiers.iter().enumerate() {
            let count = self.counts.get_mut(&self.root[switch]);
            if let (Some(count), Some(tier)) = (count, tier) {
                let place = usize::from(tier.saturating_sub(1));
                let by_tier = &mut count.network.switches_by_tier;
                by_tier.resize(by_tier.len().max(place + 1), 0);
                by_tier[place] += 1;
            }
        }
    }

    fn split(&self) -> Split {
        if self.counts.len() < 2 {
            return Split::Whole;
        }
        let place: BTreeMap<usize, usize> = self.counts.keys().copied().zip(0..).collect();
        let hosts = |root: &usize| self.counts[root].network.hosts;
        let mut sets = Sets::new(place.len());
        for ((a, b), both) in &self.shared {
            if *both as f64 > SAME_HOSTS_SHARE * hosts(a).min(hosts(b)) as f64 {
                sets.union(place[a], place[b]);
            }
        }
        let first = sets.find(0);
        if (1..place.len()).any(|network| sets.find(network) != first) {
            return Split::Apart;
        }
        let of_cards =
            self.known_cards > 0 && self.split_cards as f64 >= CARD_SHARE * self.known_cards as f64;
        let of_several = |count: &Count| count.several * 2 > count.network.hosts;
        if of_cards || self.counts.values().any(of_several) {
            Split::Planes
        } else {
            Split::Rails
        }
    }
}
