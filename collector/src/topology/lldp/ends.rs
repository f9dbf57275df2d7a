//! Ends of cables in numbers: there are two for each of hundreds of thousands of cables, and each is named four times.

use foldhash::fast::FixedState;
use indexmap::{IndexMap, IndexSet};
use railscope_model::fabric::PartId;
use railscope_model::identity::{PortName, PortWord, SwitchName};

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A port of a NIC.
    Nic(PartId, u8),
    /// A port of a switch.
    Switch(SwitchPort),
}

/// A port of a switch of [`SwitchPorts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchPort {
    /// The switch, as [`SwitchPorts::switch`] counts.
    pub switch: usize,
    port: u32,
}

/// Switches and their ports, each counted from 0 as it is first heard of.
#[derive(Debug, Default)]
pub struct SwitchPorts(IndexMap<SwitchName, Ports, FixedState>);

/// Ports of one switch.
#[derive(Debug)]
struct Ports {
    switch: SwitchName,
    /// Whether it tells its neighbours.
    speaks: bool,
    names: IndexSet<PortName, FixedState>,
    /// So many of them, the first, the switch told itself.
    own: usize,
}

impl SwitchPorts {
    /// A switch that tells its neighbours.
    pub fn speaker(&mut self, name: &SwitchName) -> usize {
        let switch = self.switch(name);
        self.0[switch].speaks = true;
        switch
    }

    /// A switch that somebody speaks of.
    pub fn switch(&mut self, name: &SwitchName) -> usize {
        if let Some(known) = self.0.get_index_of(name) {
            return known;
        }
        let ports = Ports {
            switch: name.clone(),
            speaks: false,
            names: IndexSet::default(),
            own: 0,
        };
        self.0.insert_full(name.clone(), ports).0
    }

    /// A port that the switch itself tells of. All of these are told before [`SwitchPorts::port`] is asked.
    pub fn own_port(&mut self, switch: usize, word: PortWord<'_>) -> End {
        let port = self.port(switch, word);
        let ports = &mut self.0[switch];
        ports.own = ports.names.len();
        End::Switch(port)
    }

    /// A port of a switch as somebody calls it.
    pub fn port(&mut self, switch: usize, word: PortWord<'_>) -> SwitchPort {
        let names = &mut self.0[switch].names;
        let known = names.get_index_of(&word);
        let place = known.unwrap_or_else(|| names.insert_full(word.into()).0);
        let port = place as u32;
        SwitchPort { switch, port }
    }

    /// Switches that tell their neighbours, with their numbers.
    pub(super) fn speakers(&self) -> impl Iterator<Item = (usize, &SwitchName)> {
        let all = self.0.values().enumerate();
        all.filter(|(_, ports)| ports.speaks)
            .map(|(switch, ports)| (switch, &ports.switch))
    }

    /// Whether a switch tells its neighbours.
    pub(super) fn speaks(&self, name: &SwitchName) -> bool {
        self.0.get(name).is_some_and(|ports| ports.speaks)
    }

    /// The number of a switch by its name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.get_index_of(name)
    }

    /// Whether the switch itself tells of a port of this name.
    pub(super) fn is_own(&self, switch: usize, word: PortWord<'_>) -> bool {
        let ports = &self.0[switch];
        let place = ports.names.get_index_of(&word);
        place.is_some_and(|place| place < ports.own)
    }

    /// Whether a switch that tells its own ports knows none of this name.
    pub(super) fn is_foreign(&self, end: SwitchPort) -> bool {
        let own = self.0[end.switch].own;
        own > 0 && end.port as usize >= own
    }

    /// Names of a switch and of its port.
    pub(super) fn names(&self, end: SwitchPort) -> (&SwitchName, &PortName) {
        let ports = &self.0[end.switch];
        (&ports.switch, &ports.names[end.port as usize])
    }

    /// How many switches there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
