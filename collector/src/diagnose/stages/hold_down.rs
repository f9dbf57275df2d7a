//! Cables whose loss may turn out to be their switch's, once its other cables have been seen, or their host's, once it is late.

use std::collections::{BTreeMap, BTreeSet};

use railscope_model::fabric::{Fabric, Timestamp};
use railscope_model::identity::Part;

use crate::diagnose::incident::Finding;
use crate::diagnose::stages::lost_links::{
    PARENT_MIN_CHILDREN, are_the_switchs, cables_of_hosts, cables_of_switches, is_lost_cable,
    said_by_hosts,
};
use crate::store::History;

/// What is lost of each switch, and of each host that lost all of its cables, from tick to tick.
#[derive(Debug, Default)]
pub(crate) struct Losses(BTreeMap<Part, Loss>);

/// Lost cables of one switch or host.
#[derive(Debug, Clone, Copy)]
struct Loss {
    /// At the last tick.
    cables: usize,
    /// The tick that saw the first of them.
    since: Timestamp,
}

impl Losses {
    /// Lost cables that it is too early to name one by one: exporters are read one after another, and what each
    /// host reports first is not yet whose fault it is. Such is a cable of a switch that loses more from tick to
    /// tick, or that enough hosts to make it the switch's fault have not been seen since its first loss.
    pub(crate) fn spreading(
        &mut self,
        fabric: &Fabric,
        history: &History,
        findings: &[Finding],
        now: Timestamp,
    ) -> BTreeSet<Part> {
        let lost: BTreeSet<_> = findings
            .iter()
            .filter(|found| is_lost_cable(found.evidence.class))
            .map(|found| &found.evidence.part)
            .collect();
        let (mut losses, mut spreading) = (BTreeMap::new(), BTreeSet::new());
        for (switch, cables) in cables_of_switches(fabric, &lost) {
            let cables = cables.into_iter().map(|(cable, _)| cable);
            let (gone, left): (Vec<_>, Vec<_>) = cables.partition(|part| lost.contains(part));
            if gone.is_empty() {
                continue;
            }
            let before = self.0.get(switch);
            let loss = Loss {
                cables: gone.len(),
                since: before.map_or(now, |before| before.since),
            };
            losses.insert(switch.clone(), loss);
            let grows = gone.len() >= PARENT_MIN_CHILDREN
                && gone.len() > before.map_or(0, |before| before.cables);
            let since = |heard: Timestamp| heard > loss.since;
            if grows || may_be_the_switch(history, gone.len(), &left, (since, now)) {
                spreading.extend(gone);
            }
        }
        for (host, cables) in unheard_hosts(fabric, findings, &lost) {
            let before = self.0.get(&host);
            let loss = Loss {
                cables: cables.len(),
                since: before.map_or(now, |before| before.since),
            };
            let node = host.node().and_then(|node| history.node(node));
            // One that is silent is down itself.
            let node = node.filter(|node| node.is_current(now));
            if node.is_some_and(|node| node.heard().is_none_or(|heard| heard <= loss.since)) {
                spreading.extend(cables);
            }
            losses.insert(host, loss);
        }
        self.0 = losses;
        spreading
    }
}

/// Hosts that lost all of their cables, as others report, each with these.
fn unheard_hosts(
    fabric: &Fabric,
    findings: &[Finding],
    lost: &BTreeSet<&Part>,
) -> BTreeMap<Part, Vec<Part>> {
    let mut hosts = cables_of_hosts(fabric, lost, 1);
    hosts.retain(|_, cables| cables.iter().all(|cable| lost.contains(cable)));
    let said_by_hosts = said_by_hosts(findings);
    hosts.retain(|_, cables| !cables.iter().any(|cable| said_by_hosts.contains(cable)));
    hosts
}

/// Whether the loss of a cable can no longer be its switch's: enough others on it were seen at this time or later.
pub(crate) fn is_its_own(
    fabric: &Fabric,
    history: &History,
    (cable, lost): (&Part, &BTreeSet<&Part>),
    (heard_by, now): (Timestamp, Timestamp),
) -> bool {
    let switches = cables_of_switches(fabric, &BTreeSet::from([cable]));
    switches.into_values().all(|cables| {
        let cables = cables.into_iter().map(|(cable, _)| cable);
        let (gone, left): (Vec<_>, Vec<_>) = cables.partition(|part| lost.contains(part));
        let since = |heard: Timestamp| heard >= heard_by;
        !may_be_the_switch(history, gone.len(), &left, (since, now))
    })
}

/// Whether the hosts that were not seen `since` could make it the switch's fault.
fn may_be_the_switch(
    history: &History,
    gone: usize,
    left: &[Part],
    (since, now): (impl Fn(Timestamp) -> bool, Timestamp),
) -> bool {
    let hosts = || left.iter().filter_map(Part::node);
    let unheard = hosts().filter(|node| {
        let node = history.node(node).filter(|node| node.is_fresh(now));
        node.is_some_and(|node| !node.heard().is_some_and(&since))
    });
    let (unheard, all) = (unheard.count(), gone + hosts().count());
    unheard > 0 && are_the_switchs(gone + unheard, all)
}
