//! Edges between two parts, with their witnesses and times.

use serde::Serialize;

use super::Timestamp;
use crate::units::LinkSpeed;

/// What kind of edge joins two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// One sits inside the other: host and GPU, host and NIC.
    Inside,
    /// A PCIe link.
    Pcie,
    /// An NVLink, or several between the same two parts.
    NvLink,
    /// A network cable.
    Cable,
}

/// Source that observed an edge. A wiring plan is not a witness: it only describes the intended state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Witness {
    /// The exporter of the node; of a cable, by the LLDP packets that the node receives.
    Exporter,
    /// A sweep of the InfiniBand subnet.
    Subnet,
    /// A switch, by the LLDP packets that it receives.
    Switch,
}

impl Witness {
    /// Every witness.
    pub const ALL: [Self; 3] = [Self::Exporter, Self::Subnet, Self::Switch];

    /// The API's name of the witness.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exporter => "exporter",
            Self::Subnet => "subnet",
            Self::Switch => "switch",
        }
    }
}

/// Whether an edge is there, according to one witness or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// It was there, and is gone: a complete sweep of the subnet does not show it, or its port is down.
    Lost,
    /// It was there, and no witness reports it gone: its port is up, and its neighbor is not received.
    Unknown,
    /// It is there.
    Present,
}

impl Presence {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Unknown => "unknown",
            Self::Present => "present",
        }
    }
}

/// One witness's report of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// When the witness last saw it.
    pub at: Timestamp,
    /// The witness's newest report.
    pub says: Presence,
}

/// All witnesses of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sightings([Option<Sighting>; Witness::ALL.len()]);

impl Sightings {
    /// Seen by one witness, whose newest report it is.
    pub fn by(witness: Witness, at: Timestamp) -> Self {
        let mut sightings = Self::default();
        let says = Presence::Present;
        sightings.0[witness as usize] = Some(Sighting { at, says });
        sightings
    }

    /// One witness's report; none if it never saw the edge.
    pub fn of(&self, witness: Witness) -> Option<Sighting> {
        self.0[witness as usize]
    }

    /// All witnesses with their reports.
    pub fn iter(&self) -> impl Iterator<Item = (Witness, Sighting)> {
        Witness::ALL
            .into_iter()
            .zip(self.0)
            .filter_map(|(witness, sighting)| Some((witness, sighting?)))
    }

    /// Adds other reports; of one witness the newer report counts, and of equally old ones the better.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            let rank = |said: &Option<Sighting>| said.map(|said| (said.at, said.says));
            if rank(&other) > rank(own) {
                *own = other;
            }
        }
    }

    /// Replaces one witness's report; none removes it.
    pub fn set(&mut self, witness: Witness, said: Option<Sighting>) {
        self.0[witness as usize] = said;
    }

    /// Whether the edge is there: it is if any witness shows it, and it is lost only if one reports that and
    /// none shows it.
    pub fn presence(&self) -> Presence {
        let says = |wanted| self.0.iter().flatten().any(|said| said.says == wanted);
        let order = [Presence::Present, Presence::Lost];
        let found = order.into_iter().find(|wanted| says(*wanted));
        found.unwrap_or(Presence::Unknown)
    }
}

/// An edge. Ports are those of the two ends in the order in which the edge was added.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// What joins the ends.
    pub kind: LinkKind,
    /// Ports at both ends, zero where an end has none: numbers, or handles of names, which
    /// [`Fabric::port_name`](super::Fabric::port_name) distinguishes.
    pub ports: (u16, u16),
    /// Width and speed now, if reported.
    pub speed: Option<LinkSpeed>,
    /// Its witnesses, with their times.
    pub seen_by: Sightings,
}

impl Link {
    /// A cable between two ports that a witness saw.
    pub fn cable(
        ports: (u16, u16),
        speed: Option<LinkSpeed>,
        witness: Witness,
        at: Timestamp,
    ) -> Self {
        Self {
            kind: LinkKind::Cable,
            ports,
            speed,
            seen_by: Sightings::by(witness, at),
        }
    }

    /// An edge without ports and speed that a witness saw: what sits inside a host.
    pub fn plain(kind: LinkKind, witness: Witness, at: Timestamp) -> Self {
        Self {
            kind,
            ports: (0, 0),
            speed: None,
            seen_by: Sightings::by(witness, at),
        }
    }

    /// When anybody last saw it.
    pub fn seen(&self) -> Timestamp {
        self.seen_by
            .iter()
            .map(|(_, said)| said.at)
            .max()
            .unwrap_or_default()
    }

    /// Whether any witness still shows it.
    pub fn is_present(&self) -> bool {
        self.seen_by.presence() == Presence::Present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_word_of_a_witness_counts_and_witnesses_do_not_replace_each_other() {
        let mut link = Link::cable((1, 2), None, Witness::Exporter, Timestamp(5));
        link.seen_by
            .merge(&Sightings::by(Witness::Switch, Timestamp(9)));
        link.seen_by
            .merge(&Sightings::by(Witness::Exporter, Timestamp(3)));
        let said: Vec<_> = link
            .seen_by
            .iter()
            .map(|(who, said)| (who, said.at))
            .collect();
        assert_eq!(
            said,
            [
                (Witness::Exporter, Timestamp(5)),
                (Witness::Switch, Timestamp(9))
            ]
        );
        assert_eq!(link.seen(), Timestamp(9));
    }

    #[test]
    fn an_edge_is_there_if_anybody_shows_it_and_lost_only_if_somebody_says_so() {
        use Presence::{Lost, Present, Unknown};
        for (exporter, switch, expected) in [
            (Some(Present), Some(Lost), Present),
            (Some(Lost), Some(Unknown), Lost),
            (Some(Unknown), None, Unknown),
            (None, None, Unknown),
        ] {
            let mut seen_by = Sightings::default();
            for (witness, says) in [(Witness::Exporter, exporter), (Witness::Switch, switch)] {
                let at = Timestamp(2);
                seen_by.set(witness, says.map(|says| Sighting { at, says }));
            }
            assert_eq!(seen_by.presence(), expected);
        }
    }
}
