//! State of each component without incidents: ok if a source has fresh data about it, unknown otherwise.

use railscope_model::fabric::{Presence, Sightings, Witness};

use super::{Condition, Health, Layout};
use crate::analyzer::ClusterView;
use crate::serve::wire;

/// Number of components of one class by state, in the order of [`Health::ALL`].
pub(crate) type States = [usize; Health::ALL.len()];

impl Layout {
    /// Sets the state of all components by the freshness of their sources. A node with exporters is known only through them;
    /// its NICs also through a sweep that reads their counters, because the presence of a cable is weak evidence.
    pub(super) fn judge_unheard(&mut self, view: &ClusterView) {
        let fresh = &view.freshness;
        let mut known_switches: Vec<bool> = self
            .switches
            .iter()
            .map(|switch| {
                let swept = switch.trunks.iter();
                let swept = || {
                    swept
                        .clone()
                        .any(|trunk| trunk.seen_by.shows(Witness::Subnet))
                };
                fresh.switches.contains(&switch.name) || fresh.subnet && swept()
            })
            .collect();
        for host in &mut self.hosts {
            let has_exporter = host.heard.is_some();
            let heard = host.heard == Some(true);
            let swept = fresh.swept.contains(&host.name);
            let nics_heard = heard && !fresh.without_nics.contains(&host.name);
            let inside_heard = heard && !fresh.in_part.contains(&host.name);
            let mut any = heard;
            for nic in &mut host.nics {
                let mut shown = false;
                for uplink in nic.uplinks.iter().filter(|uplink| uplink.present) {
                    let by = |witness| shows(&uplink.seen_by, witness);
                    let by_subnet = fresh.subnet && by(Witness::Subnet);
                    let by_switch = known_switches[uplink.switch] && by(Witness::Switch);
                    shown |= by_subnet || by_switch;
                    known_switches[uplink.switch] |= nics_heard || by_subnet;
                }
                let known = nics_heard || swept || shown && !has_exporter;
                any |= known;
                nic.condition = Condition::plain(health(known));
            }
            host.inside = Condition::plain(health(any && (inside_heard || !has_exporter)));
        }
        for (switch, known) in self.switches.iter_mut().zip(&known_switches) {
            switch.condition = Condition::plain(health(*known));
            for trunk in &mut switch.trunks {
                let known = *known || known_switches[trunk.switch];
                trunk.condition = Condition::plain(health(known));
            }
        }
    }

    /// Number of nodes, NICs and switches by state.
    pub(crate) fn states(&self) -> [(&'static str, States); 3] {
        let nics = self.hosts.iter().flat_map(|host| &host.nics);
        [
            (
                "host",
                wire::by_health(self.hosts.iter().map(|host| host.inside)),
            ),
            ("nic", wire::by_health(nics.map(|nic| nic.condition))),
            (
                "switch",
                wire::by_health(self.switches.iter().map(|switch| switch.condition)),
            ),
        ]
    }

    /// Whether the state of any component is unknown.
    pub(crate) fn has_unknown(&self) -> bool {
        self.states()
            .iter()
            .any(|(_, states)| states[Health::Unknown as usize] > 0)
    }
}

fn shows(seen_by: &Sightings, witness: Witness) -> bool {
    seen_by
        .iter()
        .any(|(by, sighting)| by == witness && sighting.says == Presence::Present)
}

fn health(known: bool) -> Health {
    if known { Health::Ok } else { Health::Unknown }
}
